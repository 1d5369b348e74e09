package audit_test

import (
	"errors"
	"testing"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
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
