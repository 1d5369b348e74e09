package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/store"
)

// serving is a service in this process, on a loopback port of its own.
type serving struct {
	*httptest.Server
	req *runtime.Request
}

// serveState serves the state of a directory as curfew serve does, as the user that who names.
func serveState(t *testing.T, dir, data string, who func() string, now func() time.Time,
	wrap func(http.Handler) http.Handler) *serving {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Dir: data, Host: store.Host{Now: now}})
	if err != nil {
		t.Fatal(err)
	}
	req := runtime.NewProcess(runtime.Host{
		Now: now, Dir: dir, DataDir: data, WitnessDir: filepath.Join(dir, "witness"), Log: &bytes.Buffer{},
		Lookup: func(k string) (string, bool) { return who(), k == "CURFEW_IDENTITY" },
	}).Request()
	req.Storage = runtime.LentStorage{State: s}
	owner, err := identity.MakeOwner(data)
	if err != nil {
		t.Fatal(err)
	}
	served, err := api.New(api.Options{
		Process: req.Process, State: s, Owner: owner, Rate: 1e6, Burst: 1e6, Version: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := http.Handler(served)
	if wrap != nil {
		handler = wrap(handler)
	}
	srv := &serving{httptest.NewServer(handler), req}
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// owned gives a data directory the owner token of the service, as the user of the service has it,
// and returns the check that nothing else was left there.
func (s *serving) owned(t *testing.T, service, dir string) (unchanged func()) {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(service, identity.OwnerFile))
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, identity.OwnerFile), token, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("a state was made here: %v, %v", left, err)
		}
	}
}

// gave is the result of a command.
type gave struct {
	code      int
	out, errs string
}

// giveAt gives a command with a data directory and environment of its own.
func (d *desktop) giveAt(data string, width int, env map[string]string, args ...string) gave {
	d.t.Helper()
	var out, errs bytes.Buffer
	code := Run(context.Background(), Process{
		Args: args, Dir: d.dir, DataDir: data, WitnessDir: filepath.Join(d.dir, "witness"),
		ConfigDir: filepath.Join(d.dir, "home"), Version: "test", Stdin: strings.NewReader(env["stdin"]),
		Stdout: &out, Stderr: &errs, Now: d.clock, Width: width, Lookup: func(k string) (string, bool) {
			v, ok := env[k]
			return v, ok
		}})
	return gave{code, out.String(), errs.String()}
}

// fresh are ids and secrets that every run draws.
var fresh = regexp.MustCompile(`curfew_[0-9a-f]{64}|\b[0-9a-f]{8,}\b`)

// sameAnywhere are lines, besides those of commandLines, that have to come to the same
// wherever the state is: mistakes above all.
var sameAnywhere = []string{
	"keep", "keep nosuch --for 24h --reason x", "keep x", "keep x --for 24h",
	"keep sim/000000000000/us-east-1/instance/i-0f3a --for never --reason x",
	"keep sim/000000000000/us-east-1/instance/i-0f3a --for 9000h --reason x",
	"freeze", "unfreeze", "confirm nosuch --reason x", "confirm nosuch", "approvals", "approvals ffff", "approve ffff",
	"deny ffff", "deny ffff --reason x", "approve REQUEST", "approvals REQUEST",
	"budget settle HOLD", "budget settle ffff --actual 3", "budget release ffff",
	"budget extend HOLD --amount 9999 --for 12h", "budget extend HOLD --amount 9999999 --for 9000h",
	"budget settle HOLD --actual x",
	"budget holds --since never", "costs --by nonsense", "costs --granularity nonsense", "costs --where team",
	"costs --since 2026-08-01 --until 2026-07-01", "costs --by resource,duty --granularity day --since 7d",
	"costs --by team --where team=vision", "costs units --counts gpu-hours --unit hour --per 1000 --target 2.5",
	"costs units nosuch", "bill reconcile --basis effective", "bill show --by project --basis effective",
	"estimate missing.yaml", "estimate broken.yaml", "estimate job.yaml --regions us-west-2,us-east-1",
	"gate big.yaml --dry-run", "gate huge.yaml --dry-run", "gate broken.yaml", "gate job.yaml", "gate big.yaml",
	"audit --since 7d", "audit --what hold-release --limit 1", "audit --limit 3", "audit --actor ana --since 30d",
	"audit --since never", "scan --last --cloud onprem", "fix ffff", "fix --undo ffff", "fix --undo ffff --undo eeee",
	"fix ffff eeee --enforce", "fix FINDING ffff --enforce",
	"bill import missing.csv", "bill import odd.yaml", "bill show --since 2026-10-01 --until 2026-11-01",
	"costs shares missing.csv", "costs shares broken.yaml",
	"costs shares --by team", "costs shares examples/data/shares.csv --since never",
	"settings set missing.yaml --reason x", "settings set odd.yaml --reason x", "settings set --reason x",
	"settings set shared.yaml --prices missing.csv --reason x", "fix FINDING --scratch-disks",
	"policy check --against last", "token create ci", "token create ci --role viewer --for 30d",
	"token create ci --role nonsense", "token revoke ffff", "approvals --all", "gate report --since 7d",
}

// writes are the beginnings of lines that change a state; they come after those that do not,
// because a server records in its audit log that it was called.
var writes = regexp.MustCompile(
	`^(keep .|freeze|unfreeze|confirm .|approve|deny|budget (settle|release|extend)|estimate|gate [a-z]+\.yaml|token (create|revoke)|fix --undo|fix .*--enforce|settings set|bill import|costs shares [a-z])`)

// TestTheSameWhereverTheStateIs gives commands to a state of this machine and to a server with
// the same state: output, errors and exit codes are the same, byte for byte. CURFEW_SLOW=1
// compares every form of output.
func TestTheSameWhereverTheStateIs(t *testing.T) {
	d := newCommandDesk(t)
	d.write("curfew.yaml", strings.Replace(gateConfig, "amount: 1000", "amount: 9000000",
		1)+"policies: [examples/policies]\n")
	d.write("broken.yaml", "apiVersion: curfew.job/v1\nname: x\npurpose: nonsense\n")
	d.write("odd.yaml", "nonsense: 1\n")
	d.write("huge.yaml", fmt.Sprintf(gateJob, "huge", "20000000h"))
	type given struct {
		who, line string
		whole     bool
	}
	var reading, writing, tokens []given
	var all []given
	for _, line := range sameAnywhere {
		all = append(all, given{"ana", line, false})
	}
	for _, line := range commandLines {
		// they say who is asked, or where its witness is; TestSetAtAServer
		if placedAt(t, line) == ops.Anywhere &&
			!slices.Contains([]string{"whoami", "bill import", "settings set", "state"},
				named(line)) {
			all = append(all, given{"ana", line, true})
		}
	}
	for _, g := range all {
		if name, rest, as := strings.Cut(g.line, ": "); as && strings.HasPrefix(name, "as ") {
			g.who, g.line = strings.TrimPrefix(name, "as "), rest
		}
		// from the first token on a server takes nothing else: TestLogin revokes one
		if strings.Contains(g.line, "TOKEN") {
			continue
		}
		switch g.line = d.filled(g.line); {
		case strings.HasPrefix(g.line, "token create ci --role viewer"), strings.HasPrefix(
			g.line, "token create dash"):
			g.who = "root"
			tokens = append(tokens, g)
		case writes.MatchString(g.line):
			writing = append(writing, g)
		default:
			reading = append(reading, g)
		}
	}
	d.write("big.yaml", fmt.Sprintf(gateJob, "big", "400h"))
	for _, line := range []string{
		"keep sim/000000000000/us-east-1/volume/vol-1 --for 24h --reason before", "freeze --reason before",
		"unfreeze --reason before",
	} {
		if code, _, errs := d.run(strings.Fields(line)...); code != ExitDone {
			t.Fatalf("%s: exit %d, %s", line, code, errs)
		}
	}
	mine, theirs, none := filepath.Join(d.dir, "mine"), filepath.Join(d.dir, "theirs"), filepath.Join(d.dir, "none")
	for _, dir := range []string{mine, theirs} {
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(d.dir, "data"))); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	who := "ana"
	srv := serveState(t, d.dir, theirs, func() string { return who }, d.clock, nil)
	unchanged := srv.owned(t, theirs, none)
	compare := func(lines []given) {
		for _, g := range lines {
			who = g.who
			for _, form := range forms(t, g.line, g.whole) {
				width := 0
				if form == "wide" {
					form, width = "table", 100
				}
				args := append(strings.Fields(g.line), "-o", form)
				here := d.giveAt(mine, width, map[string]string{"CURFEW_IDENTITY": who}, args...)
				there := d.giveAt(none, width, map[string]string{
					"CURFEW_IDENTITY": "cy", "CURFEW_SERVER": srv.URL,
				}, args...)
				same(t, strings.Join(args, " "), here, there)
			}
		}
	}
	compare(reading)
	compare(writing)
	// A token that is kept counts before the owner token.
	req := srv.req.Fresh()
	req.Caller = runtime.ServedCaller(approval.Person{Name: "root"})
	admin, err := identity.CreateToken(t.Context(), req, identity.TokenOptions{Name: "root", Roles: []string{"admin"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.giveAt(none, 0, map[string]string{"CURFEW_SERVER": srv.URL, "stdin": admin.Secret},
		"login"); got.code != ExitDone {
		t.Fatalf("exit %d: %s", got.code, got.errs)
	}
	compare(tokens)
	unchanged()
}

// same compares the results of a command in two places, except for ids that every run draws.
func same(t *testing.T, line string, here, there gave) {
	t.Helper()
	// The user is known by name here, and by the owner token at the server.
	mask := func(s string) string {
		return strings.ReplaceAll(fresh.ReplaceAllString(s, "ID"), string(approval.OwnerToken),
			string(approval.SelfDeclared))
	}
	if here.code != there.code || mask(here.out) != mask(there.out) || mask(here.errs) != mask(there.errs) {
		t.Errorf("curfew %s\nhere: exit %d\n%s%s\nat the server: exit %d\n%s%s", line, here.code, here.out, here.errs,
			there.code, there.out, there.errs)
	}
}

// forms are the output forms to compare for a line: forms for people of whole documents, forms for
// programs of mistakes, and all of them if there is time.
func forms(t *testing.T, line string, whole bool) []string {
	if os.Getenv("CURFEW_SLOW") == "" {
		return map[bool][]string{true: {"wide"}, false: {"json"}}[whole]
	}
	c, _, err := newRoot(&Process{}, nil).Find(strings.Fields(line))
	if err != nil {
		t.Fatal(err)
	}
	out, ok := c.Flags().Lookup("output").Value.(*ops.Choice)
	if !ok {
		t.Fatalf("%s has no -o", line)
	}
	return append([]string{"wide"}, out.Allowed()...)
}

// placedAt returns where a line runs.
func placedAt(t *testing.T, line string) ops.Location {
	t.Helper()
	if _, rest, as := strings.Cut(line, ": "); as && strings.HasPrefix(line, "as ") {
		line = rest
	}
	c, args, err := newRoot(&Process{}, nil).Find(strings.Fields(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ParseFlags(args); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	where, _ := ops.Placements()[strings.TrimPrefix(c.CommandPath(), "curfew ")].Locate(c.Flags(), c.Flags().Args())
	return where
}

// TestEveryCommandHasAPlacement checks that each command of the tree is placed with a reason, and
// nothing else is; the flags of a placement exist.
func TestEveryCommandHasAPlacement(t *testing.T) {
	seen := map[string]bool{}
	placements := ops.Placements()
	walk(func(name string, c *cobra.Command) {
		seen[name] = true
		p, ok := placements[name]
		if !ok || p.Why == "" {
			t.Errorf("curfew %s has no placement, or no reason for it", name)
		}
		for flag := range p.Flags {
			flag, _, _ = strings.Cut(flag, "=")
			if c.Flags().Lookup(flag) == nil {
				t.Errorf("curfew %s has no flag --%s", name, flag)
			}
		}
	})
	for name := range placements {
		if !seen[name] {
			t.Errorf("there is no command curfew %s", name)
		}
	}
}

// TestRefusesStateCommandsAtServer: with a server configured, a command that needs the state of
// this machine says so in one line, exits with 2, asks the server nothing and makes no state;
// --data-dir takes one.
func TestRefusesStateCommandsAtServer(t *testing.T) {
	d := newDesktop(t)
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(srv.Close)
	env := map[string]string{"CURFEW_SERVER": srv.URL}
	data := filepath.Join(d.dir, "none")
	for _, line := range []string{
		"scan", "scan --demo", "scan --no-save --bill imported", "enforce --once", "serve", "consent i-1 --reason x",
		"tag --enforce", "settings clock --reason x", "state backup x", "bill import s3://x/y --profile p",
		"costs shares --metrics-source http://127.0.0.1:1", "costs shares --profile p",
		"connect demo", "costs units --counts x.csv --unit x", "keep i-1 --for 1h --reason x --profile p",
		"gate x.yaml --github", "gate x.yaml --votes v.yaml", "approve ff --proof aws", "audit --anchor x",
		"audit --verify --anchor x", "fix ff --enforce --profile p", "fix ff --demo", "plan commit --from ledger",
	} {
		got := d.giveAt(data, 0, env, strings.Fields(line)...)
		if got.code != ExitUsage || strings.Count(got.errs, "\n") != 1 ||
			!strings.Contains(got.errs, "needs a state of this machine") || !strings.Contains(got.errs, "--data-dir") {
			t.Errorf("curfew %s: exit %d, %s", line, got.code, got.errs)
		}
	}
	// The sandbox keeps no ledger for this; TestSandboxBooks does.
	for _, line := range []string{
		"price list --type g6.2xlarge", "costs --demo --by nonsense", "policy check ../examples",
		"plan tco --saving 1200/month --effort 3w --rate 120/h --upkeep 2h/month", "scan --print-iam-policy",
	} {
		if got := d.giveAt(data, 0, env, strings.Fields(line)...); strings.Contains(got.errs, "needs a state") {
			t.Errorf("curfew %s: exit %d, %s", line, got.code, got.errs)
		}
	}
	if asked > 0 {
		t.Errorf("the server was asked %d times", asked)
	}
	if _, err := os.Stat(data); err == nil {
		t.Error("a state was made here")
	}
	if got := d.giveAt(data, 0, env, "keep", "--data-dir", filepath.Join(d.dir, "given")); got.code != ExitDone ||
		asked > 0 {
		t.Errorf("with --data-dir: exit %d, %s", got.code, got.errs)
	}
}

// TestSetAtAServer: bills, shared settings and prices have the same result when they are sent to a
// server; a refused one is named in one line.
func TestSetAtAServer(t *testing.T) {
	d := newDesktop(t)
	d.write("curfew.yaml", "")
	d.write("shared.yaml", "approvers: {root: [admin], bo: [approver]}\napprovals: {accept: [self-declared]}\n")
	d.write("prices.csv",
		"cloud,service,name,region,term,above,usd,unit,accelerator,accelerators,source,as_of\naws,rate,ebs:gp2,us-east-1,on-demand,,0.07,GiB-month,,,mine,2026-11-20\n")
	text := readFile(t, "../../examples/data/focus-2026-10.csv")
	d.write("focus-2026-10.csv", string(text))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(text)
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	d.write("focus-2026-10.csv.gz", packed.String())
	d.write("long.csv", string(text)+strings.Repeat("\n", ops.MaxText))
	d.write("bill.parquet", "PAR1 and more")
	if err := os.Mkdir(filepath.Join(d.dir, "exports"), 0o700); err != nil {
		t.Fatal(err)
	}
	mine, theirs, none := filepath.Join(d.dir, "mine"), filepath.Join(d.dir, "theirs"), filepath.Join(d.dir, "none")
	srv := serveState(t, d.dir, theirs, func() string { return "root" }, d.clock, nil)
	unchanged := srv.owned(t, theirs, none)
	here := func(args ...string) gave {
		return d.giveAt(mine, 0, map[string]string{"CURFEW_IDENTITY": "root"}, args...)
	}
	there := func(args ...string) gave {
		return d.giveAt(none, 0, map[string]string{"CURFEW_IDENTITY": "cy", "CURFEW_SERVER": srv.URL}, args...)
	}
	// An import is named by the file here, and by the upload there.
	source := regexp.MustCompile(`(upload/|/[A-Za-z0-9/._-]+/)focus-2026-10\.csv(\.gz)?`)
	for _, line := range []string{
		"bill import focus-2026-10.csv --dry-run", "bill import focus-2026-10.csv",
		"bill import focus-2026-10.csv -o json",
		"bill show --since 2026-10-01 --until 2026-11-01", "bill import odd.csv",
		"settings set shared.yaml --prices prices.csv --reason both", "settings set shared.yaml --reason again",
		"settings set --prices prices.csv --reason prices",
		"settings set curfew.yaml --reason x", "settings -o json"} {
		a, b := here(strings.Fields(line)...), there(strings.Fields(line)...)
		mask := func(s string) string {
			return strings.Join(
				strings.Fields(regexp.MustCompile(`TIME|\d{4}-\d\d-\d\dT[0-9:.]+Z`).ReplaceAllString(
					source.ReplaceAllString(s, "SOURCE"), "TIME")), " ")
		}
		a.out, a.errs, b.out, b.errs = mask(a.out), mask(a.errs), mask(b.out), mask(b.errs)
		same(t, line, a, b)
		if wrong := strings.Contains(line, "odd.csv") ||
			strings.Contains(line, "curfew.yaml"); wrong != (a.code != ExitDone) {
			t.Errorf("curfew %s: exit %d: %s", line, a.code, a.errs)
		}
	}
	if got := there("bill", "import", "focus-2026-10.csv.gz", "-o", "json"); got.code != ExitDone ||
		!strings.Contains(got.out, `"upload/focus-2026-10.csv"`) {
		t.Errorf("compressed: exit %d: %s%s", got.code, got.out, got.errs)
	}
	for _, name := range []string{"long.csv", "bill.parquet", "exports"} {
		got := there("bill", "import", name)
		if got.code != ExitUsage || strings.Count(got.errs, "\n") != 1 ||
			!strings.Contains(got.errs, "a server takes one file of CSV") ||
			!strings.Contains(got.errs, "serve.bill_paths") {
			t.Errorf("%s: exit %d: %s", name, got.code, got.errs)
		}
	}
	if got := there("bill", "import", "s3://elsewhere/focus"); got.code != ExitDenied ||
		!strings.Contains(got.errs, "serve.bill_paths") {
		t.Errorf("a bucket that is not allowed: exit %d: %s", got.code, got.errs)
	}
	unchanged()
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
