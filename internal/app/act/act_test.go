package act_test

import (
	"errors"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/view"
)

const machine = "sim/000000000000/us-east-1/instance/i-0f3a"

func TestExemptionIsListed(t *testing.T) {
	req := apptest.Request(t, "")
	if _, err := act.Exempt(t.Context(), req, clouds.Source{}, machine, "24h", "deadline"); err != nil {
		t.Fatal(err)
	}
	all, err := act.Keeps(t.Context(), req)
	if err != nil || len(all.Keeps) != 1 || all.Keeps[0].Resource != machine || all.Keeps[0].By != "ana" {
		t.Errorf("got %+v, %v, want the exemption of ana", all.Keeps, err)
	}
}

func TestExemptionNeedsAReason(t *testing.T) {
	_, err := act.Exempt(t.Context(), apptest.Request(t, ""), clouds.Source{}, machine, "24h", " ")
	var f *runtime.Error
	if !errors.As(err, &f) || f.Class != runtime.Usage {
		t.Errorf("got %v, want a usage error", err)
	}
}

func TestFreezeHoldsUntilItIsLifted(t *testing.T) {
	req := apptest.Request(t, "")
	for _, on := range []bool{true, false} {
		if _, err := act.Freeze(t.Context(), req, "incident", on); err != nil {
			t.Fatal(err)
		}
		if doc, err := audit.Frozen(t.Context(), req); err != nil || doc.Frozen != on {
			t.Errorf("frozen: %t, %v, want %t", doc.Frozen, err, on)
		}
	}
}

// TestFixesSimulatedAccount takes the first finding that curfew fixes by itself from its scan to
// the end of the ladder.
func TestFixesSimulatedAccount(t *testing.T) {
	req := apptest.Request(t, "")
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	source := clouds.Source{Cloud: "sim"}
	var found view.Scan
	if _, err := audit.Scan(t.Context(), req, cfg, audit.ScanOptions{Source: source},
		func(doc view.Scan, _ bool) error {
			found = doc
			return nil
		}); err != nil {
		t.Fatal(err)
	}
	for _, f := range found.Findings {
		previews, err := act.FixPreviews(t.Context(), req, []string{f.ID}, act.FixOptions{Source: source})
		if err != nil {
			t.Fatal(err)
		}
		if len(previews) != 1 || len(previews[0].Refusals) > 0 || f.Rule != "volume-unattached" {
			continue
		}
		var done view.Fixes
		if err := act.Fix(t.Context(), req, []string{f.ID}, act.FixOptions{Source: source, Grace: time.Hour},
			func(doc view.Fixes) error {
				done = doc
				return nil
			}); err != nil {
			t.Fatal(err)
		}
		for _, p := range done.Passes {
			for _, l := range p.Lines {
				if l.Result == string(action.ResultConfirmed) {
					return
				}
			}
		}
		t.Fatalf("the fix of %s is not confirmed: %+v", f.ID, done.Passes)
	}
	t.Fatal("no volume is fixed")
}
