package report

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/spot"
)

// TestPlacementScoresAreShownByZone checks that the best zone is the figure, and that a type
// without scores has none.
func TestPlacementScoresAreShownByZone(t *testing.T) {
	at := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		scores      []spot.Placement
		value, note string
	}{
		{
			[]spot.Placement{
				{ZoneID: "use1-az1", Score: 3}, {ZoneID: "use1-az4", Score: 8}, {ZoneID: "use1-az2", Score: 8},
			},
			"8 of 10", "use1-az2 8, use1-az4 8, use1-az1 3: 2 machines of g5.xlarge in us-east-1 at " +
				"2026-11-28 09:00 UTC; AWS rates a request for one type low",
		},
		{nil, "none", "AWS has no score: 2 machines of g5.xlarge in us-east-1 at 2026-11-28 09:00 UTC; AWS rates a " +
			"request for one type low"},
	} {
		p := spot.NewPlacements("g5.xlarge", "us-east-1", 2, at, tc.scores)
		if f := placementFigure(&p); f.Value != tc.value || f.Note != tc.note {
			t.Errorf("got %q, %q, want %q, %q", f.Value, f.Note, tc.value, tc.note)
		}
	}
}
