package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/server"
)

// demoSeed is the seed of the served demonstration: that of CURFEW_SEED, or 7.
func demoSeed(t *testing.T) uint64 {
	t.Helper()
	text, ok := os.LookupEnv("CURFEW_SEED")
	if !ok {
		return 7
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seed
}

// served is a demonstration that has ended.
type served struct {
	*desktop
	t     *testing.T
	truth server.Truth
	until time.Time
}

// serveDemo serves the simulated account for some hours as fast as it can.
func serveDemo(t *testing.T, hours int, more ...string) served {
	t.Helper()
	d := newDesktop(t)
	d.write("curfew.yaml", "")
	args := append([]string{
		"serve", "--demo", "--seed", strconv.FormatUint(demoSeed(t), 10), "--speed", "max", "--for",
		fmt.Sprintf("%dh", hours),
		"--listen", "127.0.0.1:0", "--demo-truth", "truth.json", "--data-dir", filepath.Join(d.dir, "data")}, more...)
	code, _, errs := d.run(args...)
	if code != ExitDone || strings.Contains(errs, "level=ERROR") {
		t.Fatalf("exit %d: %s", code, errs)
	}
	s := served{desktop: d, t: t}
	text, err := os.ReadFile(filepath.Join(d.dir, "truth.json"))
	if err == nil {
		err = json.Unmarshal(text, &s.truth)
	}
	if err != nil {
		t.Fatal(err)
	}
	// What the newest samples do not cover yet is unknown: an hour later it is known.
	s.until = s.truth.From.Add(time.Duration(hours-1) * time.Hour)
	return s
}

// wasted is the share of idle, held and stalled machines that may end, in dollars over the
// last hours, from the ledger's JSON.
func (s served) wasted(hours int) float64 {
	s.t.Helper()
	from := s.until.Add(-time.Duration(hours) * time.Hour)
	code, out, errs := s.run("costs", "--data-dir", filepath.Join(s.dir, "data", "demo"), "--by", "lifetime,duty,kind",
		"--since", from.Format(time.RFC3339), "--until", s.until.Format(time.RFC3339), "-o", "json")
	var doc struct {
		Rows []struct {
			Key   []string
			Total string `json:"total_usd"`
		}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != ExitDone {
		s.t.Fatalf("exit %d: %s, %v", code, errs, err)
	}
	var all, lost float64
	for _, r := range doc.Rows {
		if r.Key[0] != "ephemeral" || r.Key[2] != "instance" {
			continue
		}
		all += usd(s.t, r.Total)
		if r.Key[1] == "idle" || r.Key[1] == "held" || r.Key[1] == "stalled" {
			lost += usd(s.t, r.Total)
		}
	}
	if all < 1 {
		s.t.Fatalf("machines that may end cost %.2f in %d hours", all, hours)
	}
	return lost / all
}

// ended are the calls that the audit log holds; none was made while the machine worked.
func (s served) ended() int {
	s.t.Helper()
	code, out, errs := s.run("audit", "--data-dir", filepath.Join(s.dir, "data", "demo"), "-o", "jsonl")
	if code != ExitDone {
		s.t.Fatalf("exit %d: %s", code, errs)
	}
	calls := 0
	for line := range strings.Lines(out) {
		var e struct {
			At             time.Time
			What, Resource string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatal(err)
		}
		if e.What != "intent" {
			continue
		}
		calls++
		for _, m := range s.truth.Machines {
			for _, w := range m.Worked {
				if m.Resource == e.Resource && !e.At.Before(w.From) && e.At.Before(w.To) {
					s.t.Errorf("%s was ended at %s, and it worked from %s to %s", m.Resource, e.At, w.From, w.To)
				}
			}
		}
	}
	return calls
}

// TestServeDemoEndsIdleMachines checks that an hour of the simulated account is enough to end
// something, and nothing that worked.
func TestServeDemoEndsIdleMachines(t *testing.T) {
	t.Parallel()
	s := serveDemo(t, 1)
	if n := s.ended(); n == 0 {
		t.Error("nothing was ended")
	}
	// The service has audited the account by itself.
	code, out, errs := s.run("scan", "--last", "--data-dir", filepath.Join(s.dir, "data", "demo"), "-o", "json")
	var doc struct{ Findings []struct{ Rule string } }
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != ExitDone || len(doc.Findings) == 0 {
		t.Errorf("exit %d, %d findings, %v: %s", code, len(doc.Findings), err, errs)
	}
	// People of the company have started jobs; some run, and some wait with a reason.
	code, out, errs = s.run("audit", "--data-dir", filepath.Join(s.dir, "data", "demo"), "-o", "jsonl")
	if code != ExitDone {
		t.Fatalf("exit %d: %s", code, errs)
	}
	running, waiting := map[string]bool{}, map[string]string{}
	for line := range strings.Lines(out) {
		var e struct{ Resource, Verb, Because string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Verb == "running", e.Verb == "ready":
			running[e.Resource] = true
		case e.Verb == "waiting" && e.Because != "":
			waiting[e.Resource] = e.Because
		}
	}
	if !running["job/reward-model"] || !running["session/workbench"] ||
		!strings.Contains(waiting["job/llm-sft"], "needs approval") ||
		!strings.Contains(waiting["job/embedding-sweep"], "no spot machine") {
		t.Errorf("running: %v; waiting: %v", running, waiting)
	}
}

// TestServePrintsItsPolicy: that of the roles that are configured, and of the organization.
func TestServePrintsItsPolicy(t *testing.T) {
	d := newDesktop(t)
	for yaml, want := range map[string]string{
		"": `CurfewAssume sts:AssumeRole arn:aws:iam::*:role/curfew-act arn:aws:iam::*:role/curfew-read`,
		"aws: {organization: {role: ops/curfew-read}}":                                          `CurfewOrganization organizations:ListAccounts CurfewAssume sts:AssumeRole arn:aws:iam::*:role/ops/curfew-read`,
		"aws: {accounts: [{role: 'arn:aws:iam::111122223333:role/x'}, {regions: [us-east-1]}]}": `CurfewAssume sts:AssumeRole arn:aws:iam::111122223333:role/x`,
		"aws: {organization: {role: r, list_role: 'arn:aws:iam::111122223333:role/l'}}":         `CurfewAssume sts:AssumeRole arn:aws:iam::*:role/r arn:aws:iam::111122223333:role/l`,
	} {
		d.write("curfew.yaml", yaml+"\n")
		code, out, errs := d.run("serve", "--print-iam-policy")
		var doc struct {
			Statement []struct {
				Sid, Effect string
				Action      []string
				Resource    any
			}
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil || code != ExitDone {
			t.Fatalf("%s: exit %d: %s, %v", yaml, code, errs, err)
		}
		var got []string
		for _, s := range doc.Statement {
			if got = append(append(got, s.Sid), s.Action...); s.Resource != "*" {
				got = append(got, strings.Trim(fmt.Sprint(s.Resource), "[]"))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", yaml, got, want)
		}
	}
}

// TestServeDemoSaves: left alone, machines that may end cost almost nothing while they rest;
// the same account where nothing acts goes on to waste. CURFEW_SEED says which account.
func TestServeDemoSaves(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("make test-slow runs it")
	}
	t.Parallel()
	const hours = 13
	acting, observing := serveDemo(t, hours), serveDemo(t, hours, "--observe")
	if share := acting.wasted(6); share >= 0.05 {
		t.Errorf("%.1f%% of the dollars of machines that may end are wasted, want under 5%%", 100*share)
	}
	if share := observing.wasted(6); share <= 0.30 {
		t.Errorf("observing, %.1f%% of the dollars are wasted, want over 30%%", 100*share)
	}
	if n := acting.ended(); n == 0 {
		t.Error("nothing was ended")
	}
	if n := observing.ended(); n != 0 {
		t.Errorf("%d calls were made while it observed", n)
	}
}

// TestServeRefusesWrongFlags: before anything is opened.
func TestServeRefusesWrongFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--observe"}, {"--for", "1h"}, {"--demo-truth", "x"}, {"--demo", "--enforce"},
		{"--demo", "--regions", "us-east-1"},
		{"--demo", "--speed", "0"},
		{"--demo", "--speed", "fast"}, {"--demo", "--for", "x"}, {"--lease", "1ms"}, {"--log-format", "xml"},
		{"--demo", "--listen", "nowhere"},
	} {
		d := newDesktop(t)
		d.write("curfew.yaml", "")
		if code, _, errs := d.run(append([]string{"serve"}, args...)...); code != ExitUsage {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
}
