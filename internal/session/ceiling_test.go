package session

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestLaunchStaysBelowCeiling checks that no pool is launched that costs more than the gate
// allowed, nor an unpriced one unless the gate allowed that.
func TestLaunchStaysBelowCeiling(t *testing.T) {
	cheap, dear := Pool{
		Type: "g6.xlarge", Zone: "a", Rate: pricePtr(800),
	}, Pool{Type: "g5.xlarge", Zone: "a", Rate: pricePtr(900)}
	unpriced := Pool{Type: "g9.xlarge", Zone: "a"}
	for _, tc := range []struct {
		name    string
		ceiling money.Amount
		nodes   int
		pools   []Pool
		want    string // the launched type, or the reason why nothing was launched
	}{
		{"cheapest below the ceiling", 800_000_000, 1, []Pool{dear, cheap}, "g6.xlarge"},
		{"ceiling for two machines", 1_700_000_000, 2, []Pool{dear, cheap}, "g6.xlarge"},
		{"none", 799_999_999, 1, []Pool{cheap, dear}, "2 of 2 pools cost more than the gate let pass ($0.80 an hour)"},
		{"unpriced pool", 5_000_000_000, 1, []Pool{unpriced}, "1 of 1 pools cost more"},
		{"allowed without a price", 0, 1, []Pool{unpriced, dear}, "g9.xlarge"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
			n := Decide(Observation{
				Now: now, Session: Session{
					ID: "a", Name: "a", State: Launching, RequestedAt: now, HourlyCeiling: tc.ceiling,
				},
				Pools: tc.pools, Nodes: tc.nodes,
			}, DefaultTimeouts())
			got := n.Session.Pool.Type
			if n.Session.LaunchStep.State() != intent.Planned || n.Session.LaunchStep.Key == "" {
				got = n.Session.Why
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
