package aws

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

// TestDemandOfMinutes reads demand from minutes of CloudWatch, which has none for minutes without requests
// and delivers the metrics of one minute one after another.
func TestDemandOfMinutes(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	minutes := func(values ...float64) (out answer) { // a negative value is no point
		for i, v := range values {
			if v >= 0 {
				out.points = append(out.points, point{start.Add(time.Duration(i) * time.Minute), v})
			}
		}
		return out
	}
	for _, tc := range []struct {
		name                              string
		cpu, invocations, model, overhead answer
		problem                           string
		minute                            int
		rate, inFlight                    float64 // -1 is unknown
	}{
		{"asked", minutes(1, 2), minutes(-1, 120), minutes(-1, 1.5e6), minutes(-1, 0.5e6), "", 1, 2, 4},
		{"asked, without latencies", minutes(1, 2), minutes(-1, 120), minutes(), minutes(), "", 1, 2, -1},
		{"two minutes without a request", minutes(1, 2), minutes(), minutes(), minutes(), "", 1, 0, 0},
		{
			"the newest requests are still to come", minutes(1, 2), minutes(60, -1), minutes(1e6, -1), minutes(),
			"", 0, 1, 1,
		},
		{"quiet after requests", minutes(1, 2, 3), minutes(60, -1, -1), minutes(1e6, -1, -1), minutes(), "", 2, 0, 0},
		{"silent machines", minutes(), minutes(), minutes(), minutes(), "reported nothing", 0, -1, -1},
		{
			"machines that were silent a minute ago", minutes(1, -1, 3), minutes(), minutes(), minutes(),
			"less than two", 0, -1, -1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s fleet.Sample
			problem := demandOf([]answer{tc.cpu, tc.invocations, tc.model, tc.overhead}, &s)
			if tc.problem != "" {
				if !strings.Contains(problem, tc.problem) || s.Rate.Known() || s.InFlight.Known() {
					t.Fatalf("%q, %+v", problem, s)
				}
				return
			}
			want := start.Add(time.Duration(tc.minute+1) * time.Minute)
			if problem != "" || !s.At.Equal(want) || s.Rate.Or(-1) != tc.rate || s.InFlight.Or(-1) != tc.inFlight {
				t.Errorf("%q, %+v, want %v requests a second and %v in flight at %s", problem, s, tc.rate, tc.inFlight, want)
			}
		})
	}
}
