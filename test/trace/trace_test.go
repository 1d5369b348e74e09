package trace_test

import (
	"bytes"
	"testing"

	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/trace"
)

// TestWrite checks that every row of the trace is a sample with all requested signals.
func TestWrite(t *testing.T) {
	for _, all := range []bool{true, false} {
		var b bytes.Buffer
		if err := trace.Write(&b, 30_000, all); err != nil {
			t.Fatal(err)
		}
		signals, machines := map[usage.Signal]int{}, map[string]bool{}
		s, err := usage.Read(t.Context(), &b, usage.Format{Name: "trace.csv"}, func(s *usage.Sample) error {
			machines[s.Resource] = true
			for sig := range usage.SignalCount {
				if _, ok := s.Get(usage.Signal(sig)); ok {
					signals[usage.Signal(sig)]++
				}
			}
			return nil
		})
		if err != nil || s.Rows != 30_000 || len(machines) != 3 {
			t.Errorf("%d rows of %d machines: %v", s.Rows, len(machines), err)
		}
		if want := map[bool]int{true: 8, false: 1}[all]; len(signals) != want {
			t.Errorf("%d signals, want %d", len(signals), want)
		}
		for sig, n := range signals {
			if n != 30_000 {
				t.Errorf("%s is in %d rows", sig, n)
			}
		}
	}
}
