package report

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/report/chart/charttest"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestWaitPolicyIsValid parses the policy of each wait offered by the slider.
func TestWaitPolicyIsValid(t *testing.T) {
	for _, seconds := range []float64{60, 90, 900, 86400} {
		set, err := policy.Parse("wait.yaml", []byte(WaitPolicy(backtest.Wait{WaitSeconds: seconds})))
		if err != nil {
			t.Fatal(err)
		}
		want := time.Duration(seconds) * time.Second
		if got := set.Policies[0].Horizon(); got != want || set.Policies[0].Mode == policy.Enforce {
			t.Errorf("%v: waits for %v, in mode %v", want, got, set.Policies[0].Mode)
		}
	}
}

// TestMachineTimelineNamesVerdicts checks verdicts and actions at their times.
func TestMachineTimelineNamesVerdicts(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	since := now.Add(-6 * time.Hour)
	h := view.History{Changes: []view.Change{
		{At: now.Add(-4 * time.Hour), Since: &since, What: "duty", Value: "idle"},
		{At: now.Add(-4 * time.Hour), What: "state", Value: "running"},
		{At: now.Add(-2 * time.Hour), What: "duty", Value: "busy"},
		{At: now.Add(-time.Hour), What: "state", Value: "stopped"},
	}}
	var entry view.AuditEntry
	entry.At, entry.What, entry.Verb = now.Add(-3*time.Hour), "warned", "stop"
	svg := MachineTimeline(h, []view.AuditEntry{entry}, now.Add(-8*time.Hour), now)
	charttest.Check(t, svg)
	for _, want := range []string{"idle ", "busy ", "running ", "stopped ", "warned stop"} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q is not in the picture", want)
		}
	}
}
