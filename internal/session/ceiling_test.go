package session

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestNothingAboveTheGate: a pool that costs more than what the gate let pass is never
// launched, nor one without a price, unless the gate let it pass without one.
func TestNothingAboveTheGate(t *testing.T) {
	cheap, dear := Pool{
		Type: "g6.xlarge", Zone: "a", Rate: rated(800),
	}, Pool{Type: "g5.xlarge", Zone: "a", Rate: rated(900)}
	unpriced := Pool{Type: "g9.xlarge", Zone: "a"}
	for _, tc := range []struct {
		name    string
		ceiling money.Amount
		nodes   int
		pools   []Pool
		want    string // the type that is launched, or why none is
	}{
		{"the cheapest that is let pass", 800_000_000, 1, []Pool{dear, cheap}, "g6.xlarge"},
		{"of two machines", 1_700_000_000, 2, []Pool{dear, cheap}, "g6.xlarge"},
		{"none", 799_999_999, 1, []Pool{cheap, dear}, "2 of 2 pools cost more than the gate let pass ($0.80 an hour)"},
		{"one without a price", 5_000_000_000, 1, []Pool{unpriced}, "1 of 1 pools cost more"},
		{"let pass without a price", 0, 1, []Pool{unpriced, dear}, "g9.xlarge"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
			n := Decide(View{
				Now: now, Session: Session{ID: "a", Name: "a", State: Launching, RequestedAt: now, Ceiling: tc.ceiling},
				Pools: tc.pools, Nodes: tc.nodes,
			}, DefaultTiming())
			got := n.Session.Pool.Type
			if n.Session.Launch.State() != intent.Planned || n.Session.Launch.Key == "" {
				got = n.Session.Why
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
