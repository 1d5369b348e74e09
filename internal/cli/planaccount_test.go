package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/snapshot"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestPlanCommitFromTheLedger checks that the hours of the ledger and the offers of the book make a
// plan without a file. Two machines ran for 70 days, of which one was idle; spot is no use that a
// commitment covers. What is advised needs history, and weighs that the type is left.
func TestPlanCommitFromTheLedger(t *testing.T) {
	d := newDesktop(t)
	s, err := store.Open(t.Context(), store.Options{Dir: filepath.Join(d.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	since := until.AddDate(0, 0, -70)
	account := ledger.Account{Cloud: "aws", ID: "111122223333"}
	for _, at := range []time.Time{since, until} {
		r := ledger.Round{
			Account: account, At: at, Source: "scan",
			Complete: []ledger.Part{{Region: "us-east-2", Kind: inventory.KindInstance}},
		}
		var seen []ledger.Observation
		for id, state := range map[string]duty.State{"i-busy": duty.Busy, "i-idle": duty.Idle, "i-spot": duty.Busy} {
			o := ledger.Observation{
				At: at, Ref: inventory.Ref{
					Cloud: "aws", Account: account.ID, Region: "us-east-2", Kind: inventory.KindInstance, ID: id,
				},
				State: inventory.StateRunning, StateSince: since.AddDate(0, -1, 0), CreatedAt: since.AddDate(0, -1, 0),
				Meters: []ledger.Meter{
					{
						Name: "compute", Category: ledger.Compute,
						Monthly: 730 * 2195764 * money.USD / 100000, Source: "test",
						AsOf: since.AddDate(0, -2, 0),
					},
				},
				Duty: []ledger.Span{{From: since, To: at, State: state}}}
			if id == "i-spot" {
				o.Meters[0].Moves = true
			}
			o.Type = "p4d.24xlarge"
			seen = append(seen, o)
		}
		if _, err := ledger.Post(t.Context(), s.Ledger(), r, seen); err != nil {
			t.Fatal(err)
		}
	}
	use, _, err := accountplan.Hours(t.Context(), s.Ledger(), since, until, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(use) != 70*24 || use[0].Key != "p4d.24xlarge/us-east-2" {
		t.Fatalf("%d hours, the first of %+v", len(use), use[0])
	}
	t.Logf("%+v", use[0])
	type plan struct {
		Commitments []struct {
			Key      string
			Quantity int64
			Advised  bool
			Why      string
			History  int    `json:"history_hours"`
			Term     int64  `json:"term_months"`
			Saving   string `json:"-"`
			Risk     *struct {
				PerYear float64 `json:"leave_per_year"`
				Saving  string  `json:"expected_saving_usd"`
			}
		}
		Assumptions []string
	}
	ask := func(args ...string) plan {
		t.Helper()
		code, out, errs := d.run(append([]string{
			"plan", "commit", "--from", "ledger", "--until", until.Format(time.DateOnly), "-o", "json",
		}, args...)...)
		if code != ExitDone {
			t.Fatalf("%v: exit %d: %s", args, code, errs)
		}
		var p plan
		if err := json.Unmarshal([]byte(out), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := ask("--since", since.Format(time.DateOnly))
	if len(p.Commitments) != 1 || p.Commitments[0].Key != "p4d.24xlarge/us-east-2" || p.Commitments[0].Quantity != 1 ||
		p.Commitments[0].Term != 36 || p.Commitments[0].History != 70*24 {
		t.Fatalf("the plan is %+v", p)
	}
	if c := p.Commitments[0]; !c.Advised || c.Risk == nil || c.Risk.PerYear != 0.35 {
		t.Errorf("on 70 days: advised %v, %q, %+v", c.Advised, c.Why, c.Risk)
	}
	if notes := strings.Join(p.Assumptions, "; "); !strings.Contains(notes, "OpenCost") ||
		!strings.Contains(notes, "2024-01-01") {
		t.Errorf("the source of the prices is not said: %s", notes)
	}
	p = ask("--since", until.AddDate(0, 0, -30).Format(time.DateOnly))
	if len(p.Commitments) != 1 || p.Commitments[0].Advised ||
		!strings.Contains(p.Commitments[0].Why, "720 hours of history") {
		t.Errorf("on 30 days: %+v", p.Commitments)
	}
	p = ask("--since", since.Format(time.DateOnly), "--leave-rate", "2")
	if len(p.Commitments) != 1 || p.Commitments[0].Advised || !strings.HasPrefix(p.Commitments[0].Risk.Saving, "-") {
		t.Errorf("of a type that is left soon: %+v", p.Commitments)
	}
	for args, want := range map[string]string{
		"plan commit --from ledger --since 2020-01-01 --until 2020-02-01": "the ledger has no on-demand machine hour",
		"plan commit --from bill":                 "give --offers FILE",
		"plan commit --from thin-air":             "--from",
		"plan commit --from ledger --usage x.csv": "not both",
	} {
		if code, _, errs := d.run(strings.Fields(args)...); code == ExitDone || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d: %s", args, code, errs)
		}
	}
}

// TestPlanCommitExcludesFindings checks that of three busy machines, one could be on spot and one
// is to be replaced by a smaller type: one is left to commit to, and the new type at its own price.
func TestPlanCommitExcludesFindings(t *testing.T) {
	d := newDesktop(t)
	s, err := store.Open(t.Context(), store.Options{Dir: filepath.Join(d.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	since, before := until.AddDate(0, 0, -65), until.AddDate(0, 0, -100)
	account := ledger.Account{Cloud: "aws", ID: "111122223333"}
	parts := []ledger.Part{{Region: "us-east-2", Kind: inventory.KindInstance}}
	ref := func(id string) inventory.Ref {
		return inventory.Ref{
			Cloud: "aws", Account: account.ID, Region: "us-east-2", Kind: inventory.KindInstance, ID: id,
		}
	}
	for _, at := range []time.Time{since, until} {
		r := ledger.Round{Account: account, At: at, Source: "scan", Complete: parts}
		var seen []ledger.Observation
		for _, id := range []string{"i-stays", "i-spot", "i-large"} {
			o := ledger.Observation{
				At: at, Ref: ref(id), State: inventory.StateRunning, StateSince: before, CreatedAt: before,
				Meters: []ledger.Meter{{
					Name: "compute", Category: ledger.Compute, Monthly: 730 * 2195764 * money.USD / 100000,
					Source: "test", AsOf: before,
				}},
				Duty: []ledger.Span{{From: since, To: at, State: duty.Busy}},
			}
			o.Type = "p4d.24xlarge"
			seen = append(seen, o)
		}
		if _, err := ledger.Post(t.Context(), s.Ledger(), r, seen); err != nil {
			t.Fatal(err)
		}
	}
	look := snapshot.Observation{
		Cloud: "aws", Account: account.ID, At: until, FindingsComplete: true,
		Parts: []snapshot.Part{{Region: "us-east-2", Kind: inventory.KindInstance}},
	}
	for id, fix := range map[string]change.Change{
		"i-spot":  {Verb: change.UseSpot},
		"i-large": {Verb: change.ChangeType, Arguments: change.Arguments{Type: "g5.12xlarge"}},
	} {
		var f view.Finding
		f.ID, f.Resource.ID, f.Resource.Type, f.Fix.Change = "f"+id, id, "p4d.24xlarge", fix
		body, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		seen := snapshot.Resource{Ref: ref(id), Name: id, State: "running", Body: []byte("{}")}
		look.Resources = append(look.Resources, seen)
		look.Findings = append(look.Findings, snapshot.Finding{ID: f.ID, Rule: "test", Ref: ref(id), Body: body})
	}
	ask := func() (doc struct {
		OnDemand    string `json:"on_demand_cost_usd"`
		Leaving     string `json:"leaving_cost_usd"`
		Commitments []struct {
			Key      string
			Quantity int64
		}
		Assumptions []string
	}) {
		t.Helper()
		code, out, errs := d.run("plan", "commit", "--from", "ledger", "--since", since.Format(time.DateOnly),
			"--until", until.Format(time.DateOnly), "-o", "json")
		if code != ExitDone {
			t.Fatalf("exit %d: %s", code, errs)
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all := ask()
	if all.Commitments[0].Quantity != 3 || all.Leaving != "0.00" ||
		!strings.Contains(strings.Join(all.Assumptions, "\n"), "no scan is kept") {
		t.Errorf("without a scan: %+v", all)
	}
	if s, err = store.Open(t.Context(), store.Options{Dir: filepath.Join(d.dir, "data")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshots().Save(t.Context(), nil, look); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	after := ask()
	reserved := map[string]int64{}
	for _, c := range after.Commitments {
		reserved[c.Key] += c.Quantity
	}
	if reserved["p4d.24xlarge/us-east-2"] != 1 {
		t.Errorf("of the machines that stay, 1 should be reserved: %v", reserved)
	}
	// Two of three machines at $21.95764 an hour come off, for 65 days.
	if want := fmt.Sprintf("%.4f", 2*21.95764*65*24); !strings.HasPrefix(after.Leaving, want[:len(want)-3]) {
		t.Errorf("machines that leave cost %s, want %s", after.Leaving, want)
	}
	text := strings.Join(after.Assumptions, "\n")
	if !strings.Contains(text, "1 to move to spot, 1 to become another type or move") {
		t.Errorf("the findings are not named: %s", text)
	}
}

// TestAccountPlanAgreesWithAudit checks that the plan begins with the bill of the audit, saves the
// sum of its findings, and shows the same as a page.
func TestAccountPlanAgreesWithAudit(t *testing.T) {
	d := newDesktop(t)
	d.now = time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC)
	var scan struct {
		Cost     money.Dollars `json:"monthly_cost_usd"`
		Findings []struct {
			Savings *string `json:"monthly_savings_usd"`
		}
	}
	var plan accountplan.Account
	for _, c := range []struct {
		args string
		doc  any
	}{{"scan --demo --no-save --all -o json", &scan}, {"plan account --demo --no-save -o json", &plan}} {
		code, out, errs := d.run(strings.Fields(c.args)...)
		if code != ExitDone && code != ExitPartial {
			t.Fatalf("%s: exit %d: %s", c.args, code, errs)
		}
		if err := json.Unmarshal([]byte(out), c.doc); err != nil {
			t.Fatal(err)
		}
	}
	var savings money.Amount
	for _, f := range scan.Findings {
		if f.Savings != nil {
			savings += amount(t, *f.Savings)
		}
	}
	if plan.SavingUSD != savings || plan.BeforeUSD != scan.Cost.Or(0) || plan.BeforeUSD == 0 {
		t.Errorf("plan from %s saves %s; the audit has %s and %s", plan.BeforeUSD, plan.SavingUSD, scan.Cost, savings)
	}
	if notes := strings.Join(plan.CoverageNotes, " "); !strings.Contains(notes, "no ledger is kept") {
		t.Errorf("the notes do not say why no commitment is planned: %s", notes)
	}
	code, out, errs := d.run("plan", "account", "--demo", "-o", "html")
	if code != ExitDone || strings.Count(out, "<svg") != 2 || !strings.Contains(out, plan.AfterUSD.Dollars()) {
		t.Errorf("exit %d: %s: not one picture, wide and narrow, with %s", code, errs, plan.AfterUSD.Dollars())
	}
}

// TestCommandsOfAccountPlanRun checks that the plan keeps its audit, so that the command of each
// change finds its finding; a plan that keeps nothing has no commands.
func TestCommandsOfAccountPlanRun(t *testing.T) {
	d := newDesktop(t)
	for _, kept := range []bool{false, true} {
		args := []string{"plan", "account", "--demo", "-o", "json"}
		if !kept {
			args = append(args, "--no-save")
		}
		code, out, errs := d.run(args...)
		var plan accountplan.Account
		if err := json.Unmarshal([]byte(out), &plan); code != ExitDone || err != nil {
			t.Fatalf("exit %d: %s %v", code, errs, err)
		}
		for _, step := range plan.Steps {
			for i, it := range step.Items {
				if (it.Command != "") != kept {
					t.Errorf("%s of %s has the command %q; kept: %v", it.Rule, it.Resource, it.Command, kept)
				}
				if !kept || i > 0 {
					continue
				}
				if code, _, errs := d.run(strings.Fields(it.Command)[1:]...); code == ExitUsage || code == ExitError {
					t.Errorf("%s: exit %d: %s", it.Command, code, errs)
				}
			}
		}
	}
}

// TestPlansFromAScan: machines are right-sized and serving fleets planned from the account
// itself. What is planned carries the load at the target, and no fleet in the band changes.
func TestPlansFromAScan(t *testing.T) {
	d := newDesktop(t)
	code, out, errs := d.run("plan", "capacity", "--from", "scan", "--demo", "-o", "json")
	if code != ExitDone {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var doc struct {
		Fleets []struct {
			Type     string
			Machines int
			Load     float64 `json:"load_machines"`
			Busy     float64 `json:"utilization"`
			Replicas int
			After    float64 `json:"utilization_after"`
			Saving   *string `json:"monthly_saving_usd"`
		}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || len(doc.Fleets) == 0 {
		t.Fatalf("%d fleets, %v", len(doc.Fleets), err)
	}
	grown := 0
	for _, f := range doc.Fleets {
		if inBand := f.Busy >= 0.6 && f.Busy <= 0.8; inBand != (f.Replicas == f.Machines) {
			t.Errorf("%d machines at %v become %d", f.Machines, f.Busy, f.Replicas)
		}
		if f.After > 0.8 || f.Saving == nil {
			t.Errorf("%+v: too busy afterwards, or without a price", f)
		}
		if f.Replicas > f.Machines {
			grown++
			if !strings.HasPrefix(*f.Saving, "-") {
				t.Errorf("%+v: more machines save %s", f, *f.Saving)
			}
		}
	}
	if grown == 0 {
		t.Error("the saturated fleet of the demo does not grow")
	}
	d.fleetByRecordedUsage()
	code, out, errs = d.run("plan", "rightsize", "--from", "scan", "--demo", "-o", "json")
	if code != ExitDone || !strings.Contains(out, `"defect-train-02"`) || !strings.Contains(out, `"g6.8xlarge"`) {
		t.Errorf("exit %d: %s", code, errs)
	}
	for args, want := range map[string]string{
		"plan rightsize --from bill":                    "expected scan or ledger",
		"plan commit --from scan":                       "--from ledger",
		"plan rightsize --from ledger --usage x.csv":    "not both",
		"plan rightsize --from scan --usage x.csv":      "x.csv",
		"plan capacity --from scan --qps 5":             "not both",
		"plan capacity --qps 5 --usage x.csv":           "--from scan",
		"plan capacity --from scan --demo --headroom 2": "--headroom",
		"plan capacity --from scan --cloud nowhere":     "--cloud",
	} {
		if code, _, errs := d.run(strings.Fields(args)...); code != ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d: %s", args, code, errs)
		}
	}
}

// fleetByRecordedUsage plans a fleet whose load comes from a file: two machines in production at
// 22% stay two, and the note says why.
func (d *desktop) fleetByRecordedUsage() {
	d.t.Helper()
	var b strings.Builder
	b.WriteString("time,resource,gpu,gpu_util\n")
	now := time.Now().UTC().Truncate(time.Minute)
	for at := now.AddDate(0, 0, -14); at.Before(now); at = at.Add(10 * time.Minute) {
		for _, name := range []string{"label-assist-01", "label-assist-02"} {
			fmt.Fprintf(&b, "%s,%s,0,22\n", at.Format(time.RFC3339), name)
		}
	}
	d.write("fleet.csv", b.String())
	code, out, errs := d.run("plan", "capacity", "--from", "scan", "--demo", "--usage", "fleet.csv")
	if code != ExitDone || !strings.Contains(out, "22%") || !strings.Contains(out, "two machines in production") {
		d.t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// TestPlansFromTheLedger: surplus machines are counted from the hours in which they worked at once,
// without a file. Unmeasured machines count as working, and unpriced ones are left out.
func TestPlansFromTheLedger(t *testing.T) {
	d := newDesktop(t)
	s, err := store.Open(t.Context(), store.Options{Dir: filepath.Join(d.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	since := until.AddDate(0, 0, -10)
	account := ledger.Account{Cloud: "aws", ID: "111122223333"}
	machines := []struct {
		id, machineType string
		purpose         inventory.Purpose
		states          [2]duty.State // in the first and the second half of each day
		unpriced        bool
	}{
		{"serve-1", "g5.xlarge", inventory.Inference, [2]duty.State{duty.Busy, duty.Idle}, false},
		{"serve-2", "g5.xlarge", inventory.Inference, [2]duty.State{duty.Idle, duty.Busy}, false},
		{"serve-3", "g5.xlarge", inventory.Inference, [2]duty.State{duty.Idle, duty.Idle}, false},
		{"train-1", "p4d.24xlarge", inventory.Training, [2]duty.State{duty.Busy, duty.Busy}, false},
		{"train-2", "p4d.24xlarge", inventory.Training, [2]duty.State{duty.Unknown, duty.Unknown}, false},
		{"odd", "x9.large", inventory.Training, [2]duty.State{duty.Idle, duty.Idle}, true},
	}
	for at := since; !at.After(until); at = at.Add(12 * time.Hour) {
		half := int(at.Add(-12*time.Hour).Sub(since)/(12*time.Hour)) % 2
		r := ledger.Round{
			Account: account, At: at, Source: "scan",
			Complete: []ledger.Part{{Region: "us-east-2", Kind: inventory.KindInstance}},
		}
		var seen []ledger.Observation
		for _, m := range machines {
			o := ledger.Observation{
				At: at, Ref: inventory.Ref{
					Cloud: "aws", Account: account.ID, Region: "us-east-2", Kind: inventory.KindInstance, ID: m.id,
				},
				State: inventory.StateRunning, StateSince: since.AddDate(0, -1, 0), CreatedAt: since.AddDate(0, -1, 0),
				Meters: []ledger.Meter{
					{
						Name: "compute", Category: ledger.Compute, Monthly: 730 * money.USD, Source: "test",
						AsOf: since.AddDate(0, -2, 0),
					},
				}}
			o.Type, o.Purpose, o.Owner = m.machineType, m.purpose, inventory.Owner{Team: "search"}
			if m.unpriced {
				o.Meters[0] = ledger.Meter{Name: "compute", Category: ledger.Compute, Unpriced: "no price"}
			}
			if at.After(since) && m.states[max(half, 0)] != duty.Unknown {
				o.Duty = []ledger.Span{{From: at.Add(-12 * time.Hour), To: at, State: m.states[half]}}
			}
			seen = append(seen, o)
		}
		if _, err := ledger.Post(t.Context(), s.Ledger(), r, seen); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ask := func(verb string, args ...string) string {
		t.Helper()
		code, out, errs := d.run(append([]string{
			"plan", verb, "--from", "ledger", "--since", since.Format(time.DateOnly), "--until",
			until.Format(time.DateOnly),
			"-o", "json",
		}, args...)...)
		if code != ExitDone {
			t.Fatalf("plan %s: exit %d: %s", verb, code, errs)
		}
		var doc struct{ Groups []accountplan.Group }
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, g := range doc.Groups {
			lines = append(lines,
				fmt.Sprintf("%s %s %s: %d ran, %d worked, %d needed, %.2f not known, saves %s", g.Team,
					g.Purpose, g.Type, g.Machines, g.Working, g.Needed, g.UnknownShare, g.SavingUSD))
		}
		return strings.Join(lines, "\n")
	}
	// Each machine costs a dollar an hour: two of three serving machines save 2 × 730.
	want := `search inference g5.xlarge: 3 ran, 1 worked, 1 needed, 0.00 not known, saves 1460.00
search training p4d.24xlarge: 2 ran, 2 worked, 2 needed, 0.50 not known, saves 0.00`
	if got := ask("rightsize"); got != want {
		t.Errorf("rightsize:\n%s\nwant\n%s", got, want)
	}
	// At 70% one machine's work takes two.
	if got, want := ask(
		"capacity"),
		"search inference g5.xlarge: 3 ran, 1 worked, 2 needed, 0.00 not known, saves 730.00"; got != want {
		t.Errorf("capacity: %s, want %s", got, want)
	}
	if code, _, errs := d.run("plan", "capacity", "--from", "ledger", "--since", "2020-01-01", "--until",
		"2020-02-01"); code == ExitDone ||
		!strings.Contains(errs, "the ledger has no hour of a machine with purpose inference") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
