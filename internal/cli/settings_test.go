package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/view"
)

// TestSharedSettingsOverrideLocal: once an admin has set them, the asker's own threshold, budget,
// approvers and prices decide nothing that the shared ones forbid, and the record says
// which configuration decided.
func TestSharedSettingsOverrideLocal(t *testing.T) {
	d := newDesktop(t)
	d.write("job.yaml", fmt.Sprintf(gateJob, "big", "390h"))
	decided := func(want int, args ...string) (doc struct {
		Decision string
		P95      string `json:"p95_usd"`
		Settings view.Decider
	}) {
		t.Helper()
		code, out, errs := d.run(append([]string{"gate", "job.yaml", "-o", "json"}, args...)...)
		if code != want {
			t.Fatalf("gate %v: exit %d, want %d\n%s%s", args, code, want, out, errs)
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil && want != ExitUsage {
			t.Fatal(err)
		}
		return doc
	}
	if got := decided(ExitHeld, "--dry-run"); !got.Settings.Advisory || got.Settings.Source != "local" ||
		got.Settings.Hash == "" {
		t.Errorf("without shared settings it is decided by %+v", got.Settings)
	}
	if code, _, errs := d.run("settings"); code != ExitDone {
		t.Errorf("settings: %s", errs)
	}
	const shared = `approvers: {root: [admin], bo: [approver]}
approvals: {accept: [self-declared]}
budgets:
  - {id: vision, team: vision, purpose: training, amount: 1000, period: {from: 2026-01-01, until: 2046-01-01}}
`
	d.write("shared.yaml", shared)
	set := func(want int, who, file string, more ...string) {
		t.Helper()
		d.env["CURFEW_IDENTITY"] = who
		args := []string{"settings", "set", "--reason", "test"}
		if file != "" {
			args = append(args, file)
		}
		if code, out, errs := d.run(append(args, more...)...); code != want {
			t.Errorf("%s sets %s %v: exit %d, want %d\n%s%s", who, file, more, code, want, out, errs)
		}
		d.env["CURFEW_IDENTITY"] = "ana"
	}
	set(ExitDenied, "ana", "shared.yaml") // is no admin of it
	d.write("viewer.yaml", strings.Replace(shared, "[admin]", "[viewer]", 1))
	set(ExitUsage, "root", "viewer.yaml")
	set(ExitUsage, "root", "", "--prices", "cheap.csv")
	set(ExitDone, "root", "shared.yaml")
	d.write("mine.yaml", strings.Replace(shared, "{root:", "{ana: [admin], root:", 1))
	set(ExitDenied, "ana", "mine.yaml") // an admin by a version that is not set

	// What the asker supplies is weaker, and refused.
	plainConfig := "github: {identities: {}}\n"
	for name, local := range map[string]string{
		"an approver": "approvers: {eve: [approver]}\n", "a threshold": "gate: {ask_over: 500}\n",
		"a budget": strings.Replace(gateConfig[strings.Index(gateConfig, "budgets:"):],
			"amount: 1000", "amount: 9000", 1)} {
		d.write("curfew.yaml", local)
		if code, _, errs := d.run("gate", "job.yaml"); code != ExitDenied ||
			!strings.Contains(errs, "weaker than the shared settings") {
			t.Errorf("%s of the asker's own: exit %d, %s", name, code, errs)
		}
	}
	d.write("curfew.yaml", plainConfig)
	d.env["CURFEW_GATE_ASK_OVER"] = "5000"
	if code, _, errs := d.run("gate", "job.yaml"); code != ExitDenied || !strings.Contains(errs, "gate.ask_over") {
		t.Errorf("a threshold of the environment: exit %d, %s", code, errs)
	}
	d.env["CURFEW_GATE_ASK_OVER"] = "10"
	got := decided(ExitHeld)
	if got.Settings.Advisory || got.Settings.Source != "shared" || got.Settings.Version != 1 {
		t.Errorf("decided by %+v", got.Settings)
	}
	delete(d.env, "CURFEW_GATE_ASK_OVER")

	// Prices of the asker's own directory are not read.
	usual := got.P95
	_, list, _ := d.run("price", "show", "g5.xlarge", "-o", "json")
	if list == "" {
		t.Fatal("no price is shown")
	}
	overlay := "cloud,service,type,item,region,term,price,source,as_of\n"
	if err := os.MkdirAll(filepath.Join(d.dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.write(filepath.Join("data", "prices.csv"), overlay)
	if got := decided(ExitHeld); got.P95 != usual {
		t.Errorf("the asker's own price file makes $%s of $%s", got.P95, usual)
	}
	if err := os.Remove(filepath.Join(d.dir, "data", "prices.csv")); err != nil {
		t.Fatal(err)
	}

	// Every version is kept and audited; a verified identity is needed once it is not said
	// that a name is enough.
	d.write("strict.yaml", strings.Replace(shared, "approvals: {accept: [self-declared]}\n", "", 1))
	set(ExitDone, "root", "strict.yaml")
	set(ExitDenied, "root", "shared.yaml")
	_, out, _ := d.run("settings", "-o", "json")
	var view struct {
		Versions []struct {
			Version int
			Who     string
		}
		Advisory bool
	}
	if err := json.Unmarshal([]byte(out), &view); err != nil || len(view.Versions) != 2 ||
		view.Versions[0].Version != 2 || view.Advisory {
		t.Errorf("versions %s, %v", out, err)
	}
	if _, out, _ := d.run("audit", "--what", "settings"); strings.Count(out, "root") < 2 {
		t.Errorf("the audit log has %s", out)
	}
	if code, _, errs := d.run("gate", "job.yaml"); code != ExitUsage ||
		!strings.Contains(errs, "verified identities alone") {
		t.Errorf("an unproven name asks: exit %d, %s", code, errs)
	}
}

// TestSharedSettingsBindEveryCommand: acting commands refuse a weaker configuration too, and roles
// are shown as shared, whatever the local configuration says of them.
func TestSharedSettingsBindEveryCommand(t *testing.T) {
	d := newDesktop(t)
	d.write("job.yaml", fmt.Sprintf(gateJob, "big", "390h"))
	d.write("shared.yaml",
		"approvers: {root: [admin], cy: [approver]}\napprovals: {accept: [self-declared]}\nbudgets:\n"+
			"  - {id: vision, team: vision, purpose: training, amount: 1000, period: {from: 2026-01-01, until: "+
			"2046-01-01}}\n")
	d.write("curfew.yaml", "policies: []\n")
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		t.Setenv(name, filepath.Join(d.dir, "none"))
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	whoami := func(who string) (doc struct {
		Roles    []string
		Settings view.Decider
	}) {
		t.Helper()
		d.env["CURFEW_IDENTITY"] = who
		defer func() { d.env["CURFEW_IDENTITY"] = "ana" }()
		code, out, errs := d.run("whoami", "-o", "json")
		if err := json.Unmarshal([]byte(out), &doc); code != ExitDone || err != nil {
			t.Fatalf("whoami: exit %d, %s%s", code, out, errs)
		}
		return doc
	}
	if got := whoami("cy"); len(got.Roles) != 0 || !got.Settings.Advisory {
		t.Errorf("without shared settings cy is %+v", got)
	}
	d.env["CURFEW_IDENTITY"] = "root"
	if code, _, errs := d.run("settings", "set", "shared.yaml", "--reason", "test"); code != ExitDone {
		t.Fatal(errs)
	}
	d.env["CURFEW_IDENTITY"] = "ana"
	asked := d.gate(ExitHeld, "job.yaml").ApprovalID
	// The local file now names others, which is weaker.
	d.write("curfew.yaml", "approvers: {eve: [approver]}\n")
	if got := whoami("cy"); strings.Join(got.Roles, " ") != "approver" || got.Settings.Advisory ||
		got.Settings.Version != 1 {
		t.Errorf("cy is %+v", got)
	}
	if got := whoami("eve"); len(got.Roles) != 0 {
		t.Errorf("eve gave herself the roles %v", got.Roles)
	}
	if _, out, errs := d.run("whoami"); !strings.Contains(out, "the shared settings (version 1) does not name you") {
		t.Errorf("whoami: %s%s", out, errs)
	}
	var list struct {
		Requests []view.Request
		Settings view.Decider
	}
	_, out, errs := d.run("approvals", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Requests) != 1 ||
		list.Requests[0].ID != asked ||
		strings.Join(list.Requests[0].Approvers, " ") != "cy" || list.Settings.Version != 1 {
		t.Errorf("approvals: %s%s", out, errs)
	}
	d.write("policies.yaml", ladderPolicies)
	for _, args := range [][]string{
		{
			"enforce", "--once", "--policy", "policies.yaml",
		}, {"enforce", "--once", "--enforce", "--policy", "policies.yaml"},
		{"fix", "--undo", "4f1c"}, {"budget"}, {"approve", asked},
	} {
		if code, _, errs := d.run(args...); code != ExitDenied ||
			!strings.Contains(errs, "weaker than the shared settings") {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
}

// TestAFixIsPricedByTheSharedSettings checks that the amount that a fix asks an approval for is not
// of prices in the asker's own directory.
func TestAFixIsPricedByTheSharedSettings(t *testing.T) {
	s := newSeededFixes(t)
	volume := s.lookup(s.scan(), "volume-unattached", "detector-scratch")
	s.write("curfew.yaml",
		regexp.MustCompile(`(?m)^approvals: .*\npeople: .*$`).ReplaceAllString(s.read("curfew.yaml"),
			"approvals: {accept: [self-declared]}"))
	s.write("shared.yaml",
		"approvers: {root: [admin], bo: [approver], ana: [approver]}\napprovals: {accept: [self-declared]}\n")
	amount := func(data string, cheap, shared bool) string {
		t.Helper()
		dir := filepath.Join(s.dir, data)
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(s.dir, "data"))); err != nil {
			t.Fatal(err)
		}
		if cheap {
			overlay := "cloud,service,name,region,term,above,usd,unit,accelerator,accelerators,source,as_of\n"
			for _, kind := range []string{"gp2,us-east-1,on-demand,,0.07", "gp3,us-east-1,on-demand,,0.06"} {
				overlay += "aws,rate,ebs:" + kind + ",GiB-month,,,mine,2026-11-20\n"
			}
			s.write(filepath.Join(data, "prices.csv"), overlay)
		}
		s.host = data // a copy of the state with the same witness would count as one that was put back
		at := func(args ...string) []string { return append(args, "--data-dir", dir) }
		if shared {
			s.who = "root"
			s.curfew(ExitDone, at("settings", "set", "shared.yaml", "--reason", "test")...)
			s.who = "ana"
		}
		s.curfewAny(at("fix", volume, "--enforce")...)
		var list struct{ Requests []view.Request }
		if err := json.Unmarshal([]byte(s.curfew(ExitDone, at("approvals", "-o", "json")...)), &list); err != nil ||
			len(list.Requests) != 1 {
			t.Fatalf("%d requests, %v", len(list.Requests), err)
		}
		return list.Requests[0].Plan.Costs[0].Amount.String()
	}
	book, own, shared := amount("book", false, false), amount("own", true, false), amount("shared", true, true)
	if own == book {
		t.Fatalf("local prices change nothing: $%s", own)
	}
	if shared != book {
		t.Errorf("it asks for $%s an hour by the asker's own prices, and for $%s by the shared ones", shared, book)
	}
}
