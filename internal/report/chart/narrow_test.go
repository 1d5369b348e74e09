package chart_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/chart/charttest"
)

// phone is the width of a picture on a page of 390 pixels, without the padding of page and card.
const phone = 390 - 2*16 - 2*23

var bar = regexp.MustCompile(`<rect x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)" height="18.0"`)

// TestBarsFitPhones checks that the narrow form of a chart fits 390 pixels, and that its longest
// bar takes most of the width, with any labels.
func TestBarsFitPhones(t *testing.T) {
	if chart.MinNarrow > phone {
		t.Fatalf("the narrow form needs %d pixels, a phone shows %d", chart.MinNarrow, phone)
	}
	rapid.Check(t, func(r *rapid.T) {
		words := rapid.StringMatching(`[a-z0-9][a-z0-9 ]{0,59}`)
		b := chart.Bars{Title: "x", Axis: chart.Axis{Label: "dollars", Format: chart.USD}}
		for range rapid.IntRange(1, 8).Draw(r, "rows") {
			b.Rows = append(b.Rows, chart.Bar{
				Label: words.Draw(r, "label"), Note: words.Draw(r, "note"),
				Value: rapid.Float64Range(1, 1e6).Draw(r, "value"),
			})
		}
		drawn := b.SVG()
		charttest.Check(r, drawn)
		_, narrow, ok := strings.Cut(drawn, `class="chart-narrow least-272" viewBox="0 0 320 `)
		if !ok {
			r.Fatal("there is no narrow form")
		}
		longest := 0.0
		for _, m := range bar.FindAllStringSubmatch(narrow, -1) {
			x, _ := strconv.ParseFloat(m[1], 64)
			w, _ := strconv.ParseFloat(m[2], 64)
			if x+w > 320 {
				r.Errorf("a bar from %g is %g wide", x, w)
			}
			longest = max(longest, w)
		}
		if longest < 320/2 {
			r.Errorf("the longest bar takes %g of 320", longest)
		}
	})
}
