package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// wellFormed fails unless a picture is XML that holds no number that is none.
func wellFormed(t interface{ Fatalf(string, ...any) }, svg string) {
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Fatalf("a number that is none: %s", svg)
	}
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not well formed: %v in %s", err, svg)
		}
	}
}

func TestChartsOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Float64Range(-10, 1e12), rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1)}))
		n := rapid.IntRange(0, 8).Draw(t, "moments")
		labels := rapid.SliceOfN(rapid.String(), n, n).Draw(t, "labels")
		var all []Series
		for i := range rapid.IntRange(0, 3).Draw(t, "series") {
			all = append(all, Series{Name: rapid.String().Draw(t, "name"), Values: rapid.SliceOfN(number, n, n).Draw(t, fmt.Sprint("values ", i))})
		}
		wellFormed(t, Lines(rapid.String().Draw(t, "title"), labels, all, func(v float64) string { return fmt.Sprintf("%.2f <&", v) }))
		share := rapid.Float64Range(-1, 1)
		var bars []Measure
		for range rapid.IntRange(0, 5).Draw(t, "bars") {
			bars = append(bars, Measure{rapid.String().Draw(t, "label"), share.Draw(t, "share"), share.Draw(t, "from"), share.Draw(t, "to"), "<5%"})
		}
		wellFormed(t, Bars("a & b", bars))
	})
}

// TestLinesLeaveOutWhatNobodyKnows: a gap is no zero.
func TestLinesLeaveOutWhatNobodyKnows(t *testing.T) {
	svg := Lines("", []string{"a", "b", "c"}, []Series{{"x", []float64{1, math.NaN(), 2}}}, func(v float64) string { return fmt.Sprint(v) })
	if got := strings.Count(svg, "<circle"); got != 2 {
		t.Errorf("%d points of two that are known", got)
	}
	if strings.Contains(svg, "L") {
		t.Error("a line is drawn over unknown values")
	}
}
