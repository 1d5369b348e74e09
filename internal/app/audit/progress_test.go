package audit_test

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestRunsAndCostsShowTheProgressOfTheAudit compares the progress of runs and costs with the one that the
// audit itself showed of each machine.
func TestRunsAndCostsShowTheProgressOfTheAudit(t *testing.T) {
	req, cfg, doc := scanned(t)
	_, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	spent := view.Costs{Costs: &costs.Costs{By: []ledger.Dimension{ledger.ByTeam, ledger.ByResource}}}
	want := map[string]view.ScanProgress{}
	for _, p := range doc.Progress {
		ref := audit.RefOf(p.Resource).String()
		spent.Rows = append(spent.Rows, costs.Cost{Key: []string{"vision", ref}})
		want[ref] = p
		r := view.Run{Provider: p.Resource.Cloud, ResourceIDs: []string{p.Resource.ID}}
		if err := audit.AddRunProgress(t.Context(), s, cfg.Tags, &r); err != nil {
			t.Fatal(err)
		}
		if r.Progress == nil {
			t.Errorf("%s has no progress", ref)
		} else {
			sameProgress(t, ref, r.Progress, p, doc.StartedAt)
		}
		later := doc.FinishedAt.Add(time.Hour)
		r = view.Run{Provider: p.Resource.Cloud, ResourceIDs: []string{p.Resource.ID}, LaunchedAt: &later}
		if err := audit.AddRunProgress(t.Context(), s, cfg.Tags, &r); err != nil || r.Progress != nil {
			t.Errorf("%s was launched after the audit and has progress %v, %v", ref, r.Progress, err)
		}
	}
	if len(want) == 0 {
		t.Fatal("no machine is at work")
	}
	if err := audit.AddCostProgress(t.Context(), s, cfg.Tags, &spent); err != nil {
		t.Fatal(err)
	}
	if len(spent.Progress) != len(want) {
		t.Errorf("costs show the progress of %d machines, want %d", len(spent.Progress), len(want))
	}
	for _, p := range spent.Progress {
		sameProgress(t, p.Resource, &p.SeenProgress, want[p.Resource], doc.StartedAt)
	}
}

func sameProgress(t *testing.T, ref string, got *view.SeenProgress, want view.ScanProgress, at time.Time) {
	t.Helper()
	if !got.Since.Equal(want.Since) || got.SpentUSD != want.SpentUSD || got.Reported != want.Reported ||
		!got.At.Equal(at) {
		t.Errorf("%s: progress %+v, the audit of %s has %+v", ref, *got, at, want.Progress)
	}
}
