package metrics

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/test/prometheus"
)

// TestPrometheus counts on a real server: three days of a counter with two series, one
// of which restarts from zero, and a day without any.
func TestPrometheus(t *testing.T) {
	begin := time.Now().UTC().Truncate(day).Add(-10 * day)
	address := prometheus.Start(t, history(begin), "")
	c, err := New(Options{URL: address})
	if err != nil {
		t.Fatal(err)
	}
	near := func(got, want float64) bool { return math.Abs(got-want) <= want/200 }

	got, err := c.CountByDay(t.Context(), "requests_total", begin, begin.Add(4*day))
	if err != nil || len(got) != 4 {
		t.Fatalf("CountByDay = %v, %v", got, err)
	}
	// a makes 2 a minute, b makes 3 until it restarts from zero at noon of the second day.
	for i, want := range []float64{1440 * 5, 1440 * 5, 1440 * 5} {
		if !got[i].Known || !near(got[i].Units, want) {
			t.Errorf("day %d: %+v, want about %v", i, got[i], want)
		}
	}
	if got[3].Known {
		t.Errorf("the day without a sample: %+v, want one that is not known", got[3])
	}
	for _, tt := range []struct {
		name, query string
		want        float64
		says        string
	}{
		{"one series", `requests_total{job="a"}`, 2 * 1440, ""},
		{"an expression", "sum(increase(requests_total[$range])) / 1e3", 7.2, ""},
		{"a counter that does not count", "still_total", 0, ""},
		{"several series", "increase(requests_total[$range])", 0, "2 series"},
		{"nothing of that name", "tokens_total", 0, "not known"},
		{"a wrong query", "sum(", 0, "does not understand the query"},
		{"an expression without its range", "sum(requests_total)", 0, "write [$range]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := c.Count(t.Context(), tt.query, begin, begin.Add(day))
			if tt.says == "" && (err != nil || !near(got, tt.want)) || tt.says != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("Count = %v, %v; want about %v, %q", got, err, tt.want, tt.says)
			}
			if errors.Is(err, ErrUnknown) != (tt.says == "not known") {
				t.Errorf("Count = %v", err)
			}
		})
	}
}

// history returns counters with a sample a minute.
func history(begin time.Time) []prometheus.Series {
	series := func(name, labels string, value func(minute int) int) prometheus.Series {
		s := prometheus.Series{Name: name, Labels: labels}
		for m := 0; m <= 3*1440; m++ {
			s.Points = append(s.Points, prometheus.Point{
				At: begin.Add(time.Duration(m) * time.Minute), V: float64(value(m)),
			})
		}
		return s
	}
	return []prometheus.Series{
		series("requests_total", `job="a"`, func(m int) int { return 2 * m }),
		series("requests_total", `job="b"`, func(m int) int {
			if m >= 1440+720 {
				m -= 1440 + 720
			}
			return 3 * m
		}),
		series("still_total", "", func(int) int { return 5 }),
	}
}
