package audit_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/view"
)

// scanned audits the simulated account and keeps what was found.
func scanned(t *testing.T) (*runtime.Request, config.Config, view.Scan) {
	t.Helper()
	req := apptest.Request(t, "")
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	var doc view.Scan
	_, err = audit.Scan(t.Context(), req, cfg, audit.ScanOptions{Source: clouds.Source{Cloud: "sim"}},
		func(d view.Scan, kept bool) error {
			if !kept {
				t.Error("nothing of the audit is kept")
			}
			doc = d
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return req, cfg, doc
}

func TestScanKeepsWhatItFinds(t *testing.T) {
	req, cfg, doc := scanned(t)
	if len(doc.Findings) == 0 {
		t.Fatal("nothing was found")
	}
	last, err := audit.LastScan(t.Context(), req, cfg, "")
	if err != nil || len(last.Findings) != len(doc.Findings) {
		t.Errorf("kept are %d findings, %v, want %d", len(last.Findings), err, len(doc.Findings))
	}
	all, err := audit.Findings(t.Context(), req)
	if err != nil || len(all.Findings) != len(doc.Findings) {
		t.Errorf("listed are %d findings, %v, want %d", len(all.Findings), err, len(doc.Findings))
	}
	_, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	chosen, err := audit.Choose(t.Context(), cfg, s, []string{doc.Findings[0].ID, doc.Findings[0].ID[:12]})
	if err != nil || len(chosen) != 1 || chosen[0].ID != doc.Findings[0].ID {
		t.Errorf("chosen are %d findings, %v, want the first one once", len(chosen), err)
	}
	f := doc.Findings[0]
	if ref, err := audit.Resolve(t.Context(), req, cfg, f.Resource.ID); err != nil || ref != audit.RefOf(f.Resource) {
		t.Errorf("%s is %v, %v", f.Resource.ID, ref, err)
	}
}

func TestResolveRefusesUnknownName(t *testing.T) {
	req := apptest.Request(t, "")
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	_, err = audit.Resolve(t.Context(), req, cfg, "nothing")
	var f *runtime.Error
	if !errors.As(err, &f) || f.Code != "not_found" {
		t.Errorf("got %v, want not_found", err)
	}
}

// TestScanIsKeptWithoutAPlan checks that an audit whose account cannot be planned is kept, and that the error of
// the scan and of the plan page name the reason.
func TestScanIsKeptWithoutAPlan(t *testing.T) {
	req := apptest.Request(t, `
clouds: [onprem]
machines: [{name: gpu-1, gpu: H100-80GB, gpus: 8, vcpus: 224, memory_gib: 2048, tags: {team: vision}}]
rates: {gpu_hour: {H100-80GB: 2.10}, source: finance, as_of: 2026-01-01}
`)
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	postTooMuch(t, req)
	shown := false
	out, err := audit.Scan(t.Context(), req, cfg, audit.ScanOptions{Source: clouds.Source{Cloud: "onprem"}},
		func(view.Scan, bool) error {
			shown = true
			return nil
		})
	var f *runtime.Error
	if !errors.As(err, &f) || f.Class != runtime.Partial || f.Code != "not_planned" {
		t.Errorf("got %v, want a partial error of the plan", err)
	}
	if !shown || out == nil || out.Plan != nil {
		t.Errorf("shown %v, audit %v", shown, out)
	}
	last, err := audit.LastScan(t.Context(), req, cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(last.Resources.ByKind) == 0 {
		t.Error("the kept audit has no resources")
	}
	if _, err := audit.KeptPlan(last); err == nil || !strings.Contains(err.Error(), "plan the account: ") {
		t.Errorf("got %v, want the reason for the absence of the plan", err)
	}
}

// postTooMuch posts charges that are too large for the sums of a plan, before the window of an audit.
func postTooMuch(t *testing.T, req *runtime.Request) {
	t.Helper()
	_, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, days := range []int{40, 42} { // of one day, the ledger itself refuses as much
		start := apptest.Now.AddDate(0, 0, -days)
		account := ledger.Account{Cloud: "onprem", ID: fmt.Sprintf("elsewhere-%d", days)}
		seen := ledger.Seen{Account: account, Source: "test", Regions: []string{"here"},
			Rates: map[inventory.Ref][]ledger.Charge{}}
		for i := range 400 {
			r := &inventory.Resource{
				Kind: inventory.KindInstance, ID: fmt.Sprintf("m-%d", i), Cloud: account.Cloud, Account: account.ID,
				Region: "here", Type: "large", CreatedAt: start, State: inventory.StateRunning,
			}
			seen.Resources = append(seen.Resources, r)
			seen.Rates[r.Ref()] = []ledger.Charge{{
				Resource: r, Meter: "compute", Category: ledger.Compute, ListCost: math.MaxInt64, Source: "test",
				AsOf: start,
			}}
		}
		for _, after := range []time.Duration{0, time.Hour} {
			seen.At = start.Add(after)
			if err := (ledger.Journal{Store: s.Ledger()}).Post(t.Context(), seen); err != nil {
				t.Fatal(err)
			}
		}
	}
}
