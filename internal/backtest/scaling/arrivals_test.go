package scaling

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/plan"
)

func TestReadsArrivals(t *testing.T) {
	for _, c := range []struct {
		name, text string
		columns    map[string]string
		times      []float64
		work       []float64
	}{
		{"seconds", "t_s\n5\n7.5\n", nil, []float64{0, 2.5}, nil},
		{"milliseconds and tokens", "t_ms,input_tokens,output_tokens\n0,100,20\n1500,0,60\n", nil, []float64{0, 1.5},
			[]float64{30 / 45.0, 60 / 45.0}},
		{"times and work", "time,work\n2026-01-05T08:00:00Z,2\n2026-01-05T08:00:01Z,0.5\n", nil, []float64{0, 1},
			[]float64{2, 0.5}},
		{"other names", "arrived,context\n1,10\n2,10\n",
			map[string]string{"seconds": "arrived", "input_tokens": "context"}, []float64{0, 1}, []float64{1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := ReadArrivals(c.columns)("a.csv", strings.NewReader(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Times) != len(c.times) || len(r.Work) != len(c.work) {
				t.Fatalf("got %+v", r)
			}
			for i := range c.times {
				if r.Times[i] != c.times[i] || c.work != nil && math.Abs(r.Work[i]-c.work[i]) > 1e-9 {
					t.Errorf("got %+v", r)
				}
			}
		})
	}
}

func TestRejectsBrokenArrivals(t *testing.T) {
	for name, text := range map[string]string{
		"no time":       "x\n1\n2\n",
		"one request":   "t_s\n1\n",
		"not sorted":    "t_s\n2\n1\n",
		"two times":     "t_s,seconds\n1,1\n2,2\n",
		"mixed columns": "t_s,seconds\n1,\n,2\n",
		"no number":     "t_s\nx\n1\n",
		"not a number":  "t_s\nNaN\n1\n",
		"mixed sizes":   "t_s,work\n1,1\n2,\n",
		"two sizes":     "t_s,work,output_tokens\n1,1,1\n2,1,1\n",
		"negative work": "t_s,work\n1,-1\n2,1\n",
		"no RFC 3339":   "time\n2026-01-05 08:00\n2026-01-05 09:00\n",
		"empty":         "",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadArrivals(nil)("a.csv", strings.NewReader(text))
			if file := (*plan.FileError)(nil); !errors.As(err, &file) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzReadArrivals(f *testing.F) {
	f.Add("t_s,input_tokens,output_tokens\n0,1,2\n1,3,4\n")
	f.Add("time,work\n2026-01-05T08:00:00Z,2\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ReadArrivals(nil)("a.csv", strings.NewReader(text))
		if err != nil {
			return
		}
		for i := 1; i < len(r.Times); i++ {
			if !(r.Times[i] >= r.Times[i-1]) {
				t.Fatalf("times %v", r.Times)
			}
		}
		for _, w := range r.Work {
			if !(w > 0) {
				t.Fatalf("work %v", r.Work)
			}
		}
	})
}

// TestHalvesAreApart checks that a setting fitted on the first half has seen nothing of the second.
func TestHalvesAreApart(t *testing.T) {
	p := Params{Arrivals: []float64{0, 1, 2, 10, 12, 15}, Work: []float64{1, 2, 3, 4, 5, 6}}
	first, second, ok := Halves(p)
	if !ok || !slices.Equal(first.Arrivals, []float64{0, 1, 2}) || !slices.Equal(first.Work, []float64{1, 2, 3}) ||
		!slices.Equal(second.Arrivals, []float64{0, 2, 5}) || !slices.Equal(second.Work, []float64{4, 5, 6}) {
		t.Errorf("got %+v and %+v", first, second)
	}
	if _, _, ok := Halves(Params{Arrivals: []float64{0, 1, 2}}); ok {
		t.Error("three requests are divided")
	}
}
