package scheduler

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/store"
)

// sample returns the value of a metric with labels, and whether it exists.
func sample(t *testing.T, s *Scheduler, name string, labels map[string]string) (value float64, ok bool) {
	t.Helper()
	families, err := s.Metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			matching := 0
			for _, l := range m.GetLabel() {
				if labels[l.GetName()] == l.GetValue() {
					matching++
				}
			}
			if matching == len(labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
			}
		}
	}
	return 0, false
}

// TestMetricsStartAtZero checks that the first round of each result is an increase.
func TestMetricsStartAtZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		d.takes = time.Minute
		s, end := begin(t, newTable(), "a", d.source("aws"))
		defer end()
		time.Sleep(time.Second)
		for _, result := range []string{"done", "partial", "failed"} {
			labels := map[string]string{"source": "aws", "result": result}
			if v, ok := sample(t, s, "curfew_rounds_total", labels); v != 0 || !ok {
				t.Errorf("%s before the first round: %v, %t", result, v, ok)
			}
		}
	})
}

// TestForgetsMetricsOfLeftSources checks that only one process reports the metrics of a source, and
// none once nothing reads it.
func TestForgetsMetricsOfLeftSources(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(s *Scheduler, leases *table)
	}{
		{"taken over", func(_ *Scheduler, leases *table) {
			leases.mu.Lock()
			defer leases.mu.Unlock()
			l := leases.rows["aws"]
			leases.rows["aws"] = store.Lease{
				Name: "aws", Holder: "b", Fence: l.Fence + 1, Until: time.Now().Add(time.Hour),
			}
		}},
		{"not configured any more", func(s *Scheduler, _ *table) { s.Set(nil) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leases, source := newTable(), map[string]string{"source": "aws"}
				s, end := begin(t, leases, "a", newDesk().source("aws"))
				defer end()
				time.Sleep(time.Minute)
				names := []string{
					"curfew_resources", "curfew_verdicts", "curfew_running_dollars_per_hour",
					"curfew_wasted_dollars_per_hour",
					"curfew_blind_spots",
				}
				for _, name := range names {
					if _, ok := sample(t, s, name, source); !ok {
						t.Errorf("no %s of a source that is read", name)
					}
				}
				tc.end(s, leases)
				time.Sleep(time.Minute)
				for _, name := range names {
					if v, ok := sample(t, s, name, source); ok {
						t.Errorf("%s %v of a source that this process does not read", name, v)
					}
				}
			})
		})
	}
}

// TestHoldsNoSourceWithoutDatabase checks that a process whose leases have expired does not report
// that it holds sources.
func TestHoldsNoSourceWithoutDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases, source := newTable(), map[string]string{"source": "aws"}
		s, end := begin(t, leases, "a", newDesk().source("aws"))
		defer end()
		time.Sleep(time.Minute)
		if held, ok := sample(t, s, "curfew_source_held", source); held != 1 || !ok {
			t.Errorf("held %v, %t", held, ok)
		}
		leases.fail(errors.New("connection refused"))
		time.Sleep(time.Minute)
		if held, ok := sample(t, s, "curfew_source_held", source); held != 0 || !ok {
			t.Errorf("after a minute without a database: held %v, %t", held, ok)
		}
		leases.fail(nil)
		time.Sleep(time.Minute)
		if held, ok := sample(t, s, "curfew_source_held", source); held != 1 || !ok {
			t.Errorf("the database is back: held %v, %t", held, ok)
		}
	})
}
