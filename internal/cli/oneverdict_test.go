package cli

import (
	"cmp"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestPlansBeginWithTheVerdictOfTheAudit compares scan with plan rightsize at several times of the
// simulated account: a machine that an idle or held finding ends, or that is unmeasured, has no
// right size and is not moved, and no finding resizes a machine that is not busy.
func TestPlansBeginWithTheVerdictOfTheAudit(t *testing.T) {
	rests := map[string]string{"gpu-instance-idle": "idle", "gpu-held": "held"}
	for _, at := range []string{"2026-11-21T09:00:00Z", "2026-11-25T22:40:00Z", "2026-12-02T13:20:00Z"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			d := newDesktop(t)
			var err error
			if d.now, err = time.Parse(time.RFC3339, at); err != nil {
				t.Fatal(err)
			}
			var scan view.Scan
			var plan rightsize.Report
			d.document(&scan, "scan", "--demo")
			d.document(&plan, "plan", "rightsize", "--from", "scan", "--demo")
			verdict, resting := map[string]string{}, 0
			for _, m := range plan.Resources {
				verdict[m.Name] = m.Verdict
				if m.Verdict == "idle" || m.Verdict == "held" || m.Verdict == "stalled" {
					resting++
				}
				if len(m.Fits) > 0 && (m.Verdict == "idle" || m.Verdict == "held" || m.Verdict == "unknown") {
					t.Errorf("%s is %s, and plan rightsize moves it to %s", m.Name, m.Verdict, m.Fits[0].Type)
				}
			}
			if plan.Resting != resting || resting < 5 || plan.Judged+plan.Unknown+plan.Resting != len(plan.Resources) {
				t.Errorf("%d judged, %d unknown, %d at rest of %d machines, counted %d", plan.Judged, plan.Unknown,
					plan.Resting, len(plan.Resources), resting)
			}
			checked := 0
			for _, f := range scan.Findings {
				name := cmp.Or(f.Resource.Name, f.Resource.ID)
				if want := rests[f.Rule]; want != "" && verdict[name] != "" {
					if checked++; verdict[name] != want {
						t.Errorf("%s: scan finds %s, plan rightsize says %s", name, f.Rule, verdict[name])
					}
				}
				if f.Step == 5 && (verdict[name] == "idle" || verdict[name] == "held") {
					t.Errorf("%s: plan rightsize says %s, scan finds %s", name, verdict[name], f.Rule)
				}
			}
			for _, u := range scan.CannotJudge {
				name := cmp.Or(u.Resource.Name, u.Resource.ID)
				if v := verdict[name]; v != "" && v != "unknown" {
					t.Errorf("%s is unmeasured for scan, plan rightsize says %s", name, v)
				}
			}
			if checked < 5 {
				t.Errorf("%d machines at rest were compared", checked)
			}
		})
	}
}
