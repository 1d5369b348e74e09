package cli

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestPlansBeginWithTheVerdictOfTheAudit compares scan with plan rightsize, doctor metrics and
// policy explain at several times of the simulated account: a machine that an idle or held
// finding ends, or that is unmeasured, has no right size and is not moved, and no finding
// resizes a machine that is not busy.
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
			hostsAgree(t, scan, plan)
			doctor := d.doctorAgrees(scan, verdict)
			d.explainAgrees(scan, doctor)
		})
	}
}

// hostsAgree compares the findings about machines without GPUs with the plan: those at rest have no right size,
// and the others move where and only where a finding resizes them.
func hostsAgree(t *testing.T, scan view.Scan, plan rightsize.Report) {
	t.Helper()
	resized, resting := map[string]view.Finding{}, map[string]bool{}
	for _, f := range scan.Findings {
		switch name := cmp.Or(f.Resource.Name, f.Resource.ID); f.Rule {
		case "cpu-underutilized":
			resized[name] = f
		case "instance-idle":
			resting[name] = true
		}
	}
	if len(resized) == 0 || len(resting) == 0 {
		t.Errorf("%d findings resize machines without GPUs, %d end them", len(resized), len(resting))
	}
	saves := money.Known(0)
	for _, r := range plan.Resources {
		if fit, ok := r.Advised(); ok {
			saves = saves.Plus(fit.SavingUSD.Or(0))
		}
	}
	for _, h := range plan.Hosts {
		if h.Advised != nil {
			saves = saves.Plus(h.Advised.SavingUSD.Or(0))
		}
		f, found := resized[h.Name]
		if moves := h.Advised != nil || h.Graviton != nil; moves != found {
			t.Errorf("%s: plan rightsize moves it: %v, scan: %v", h.Name, moves, found)
		}
		if found && h.Advised != nil && !strings.Contains(f.Because, h.Advised.Type+" would do") {
			t.Errorf("%s: plan rightsize moves it to %s, scan says %s", h.Name, h.Advised.Type, f.Because)
		}
		if rests := h.Verdict == "idle" || h.Verdict == "held"; rests != resting[h.Name] || rests && h.Advised != nil {
			t.Errorf("%s: plan rightsize says %s, scan finds it at rest: %v", h.Name, h.Verdict, resting[h.Name])
		}
	}
	if saves != plan.SavingUSD {
		t.Errorf("the moves of all machines save %s, the plan %s", saves, plan.SavingUSD)
	}
}

// doctorAgrees compares the states of doctor with an audit and with the verdicts of a plan, by name.
func (d *desktop) doctorAgrees(scan view.Scan, planned map[string]string) map[string]view.DoctorMachine {
	d.t.Helper()
	var doc view.Doctor
	d.document(&doc, "doctor", "metrics", "--demo")
	machines, compared, differ := map[string]view.DoctorMachine{}, 0, 0
	for _, m := range doc.Machines {
		name := cmp.Or(m.Name, m.ID)
		machines[name] = m
		if m.State != m.Now.State {
			differ++
		}
		rests := m.State == "idle" || m.State == "held" || m.State == "stalled" || m.State == "unknown"
		switch v := planned[name]; {
		case v == "":
		case rests && v != m.State:
			d.t.Errorf("%s: doctor says %s, plan rightsize %s", name, m.State, v)
		case !rests && (v == "idle" || v == "held" || v == "stalled"):
			d.t.Errorf("%s: doctor says %s, plan rightsize %s", name, m.State, v)
		}
	}
	if differ == 0 {
		d.t.Error("no machine does now what it did not do before, so that nothing was compared")
	}
	for _, f := range scan.Findings {
		m, known := machines[cmp.Or(f.Resource.Name, f.Resource.ID)]
		if want := map[string]string{
			"gpu-instance-idle": "idle", "gpu-held": "held",
		}[f.Rule]; known && want != "" {
			if compared++; m.State != want || m.Why != f.Because || !slices.Equal(m.Evidence, f.Evidence) {
				d.t.Errorf("%s: scan finds %s (%s, %v), doctor says %s (%s, %v)", m.Name, f.Rule, f.Because, f.Evidence,
					m.State, m.Why, m.Evidence)
			}
		}
	}
	unmeasured := 0
	for _, u := range scan.CannotJudge {
		m, known := machines[cmp.Or(u.Resource.Name, u.Resource.ID)]
		if known {
			unmeasured++
		}
		if known && (m.State != "unknown" || m.Why != u.Why) {
			d.t.Errorf("%s is unmeasured for scan (%s), doctor says %s (%s)", m.Name, u.Why, m.State, m.Why)
		}
	}
	if doc.Unmeasured != unmeasured || doc.Found == 0 || doc.Judged+doc.Found+doc.Unmeasured != len(doc.Machines) {
		d.t.Errorf("doctor counts %d judged, %d found, %d unmeasured of %d machines, scan %d unmeasured", doc.Judged,
			doc.Found, doc.Unmeasured, len(doc.Machines), unmeasured)
	}
	if compared < 5 {
		d.t.Errorf("%d findings were compared with doctor", compared)
	}
	return machines
}

// explainAgrees compares the verdict of policy explain on some machines with doctor.
func (d *desktop) explainAgrees(scan view.Scan, doctor map[string]view.DoctorMachine) {
	d.t.Helper()
	var names []string
	for _, f := range scan.Findings {
		if m, ok := doctor[f.Resource.Name]; ok && m.State != m.Now.State && len(names) < 2 {
			names = append(names, f.Resource.Name)
		}
	}
	for _, u := range scan.CannotJudge[:min(1, len(scan.CannotJudge))] {
		names = append(names, u.Resource.Name)
	}
	if len(names) < 2 {
		d.t.Errorf("only %v are compared with policy explain", names)
	}
	policies, err := filepath.Abs(shipped)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, name := range names {
		var doc view.PolicyExplain
		d.document(&doc, "policy", "explain", name, "--demo", "--policy", policies)
		m := doctor[name]
		if doc.Audit == nil || doc.Audit.State != m.State || doc.Audit.Why != m.Why ||
			doc.Audit.LastingSeconds != m.LastingSeconds {
			d.t.Errorf("%s: policy explain says %+v, doctor %s (%s)", name, doc.Audit, m.State, m.Why)
		}
	}
}
