package cli

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestGPUHours checks that of a machine with four GPUs at a dollar an hour that worked for half of
// a day, an hour of a GPU costs a quarter dollar while it is used, and twice that with the time in
// which it lay idle. A machine without GPUs has no part in it.
func TestGPUHours(t *testing.T) {
	d := newDesktop(t)
	s, err := store.Open(t.Context(), store.Options{Dir: filepath.Join(d.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -2)
	account := ledger.Account{Cloud: "aws", ID: "111122223333"}
	for h := range 25 {
		at := day.Add(time.Duration(h) * time.Hour)
		state := duty.Busy
		if h > 12 {
			state = duty.Idle
		}
		r := ledger.Round{
			Account: account, At: at, Source: "scan",
			Complete: []ledger.Part{{Region: "us-east-1", Kind: inventory.KindInstance}},
		}
		var seen []ledger.Observation
		for id, machine := range map[string]string{"i-gpu": "g5.12xlarge", "i-cpu": "c5.xlarge"} {
			o := ledger.Observation{
				At: at, Ref: inventory.Ref{
					Cloud: "aws", Account: account.ID, Region: "us-east-1", Kind: inventory.KindInstance, ID: id,
				},
				State: inventory.StateRunning, StateSince: day.AddDate(0, -1, 0), CreatedAt: day.AddDate(0, -1, 0),
				Meters: []ledger.Meter{
					{
						Name: "compute", Category: ledger.Compute, Monthly: 730 * money.USD, Source: "test",
						AsOf: day.AddDate(0, -2, 0),
					},
				},
				Duty: []ledger.Span{{From: at.Add(-time.Hour), To: at, State: state}}}
			o.Type, o.Owner.Team = machine, "vision"
			seen = append(seen, o)
		}
		if _, err := ledger.Post(t.Context(), s.Ledger(), r, seen); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, by := range []string{"", "team", "project"} { // of no project: unallocated
		code, out, errs := d.run("costs", "units", "--counts", "gpu-hours", "--by", by, "--since",
			day.Format(time.DateOnly),
			"--until", day.AddDate(0, 0, 1).Format(time.DateOnly), "-o", "json")
		if code != ExitDone {
			t.Fatalf("exit %d: %s", code, errs)
		}
		var doc struct {
			Units []struct {
				Unit string
				Rows []struct {
					Basis string
					Count json.Number
					Cost  string `json:"unit_cost_usd"`
				}
			}
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, r := range doc.Units[0].Rows {
			got[r.Basis] = string(r.Count) + " at " + r.Cost
		}
		for basis, want := range map[string]string{
			"used": "48 at 0.25", "allocated": "48 at 0.50", "idle": "48 at 0.25",
		} {
			if got[basis] != want {
				t.Errorf("by %q: %s is %s, want %s", by, basis, got[basis], want)
			}
		}
	}
}
