package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/simulation"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/view"
)

// commandLines are commands as people give them on the simulated account, on simulated
// books and on files, in this order. FINDING is a finding of the simulated account, STORE a
// run of checkpoints; HOLD, REQUEST and TOKEN are new at each run. What follows
// "as NAME:" is given by another person.
var commandLines = []string{
	"scan --demo", "scan --last", "scan --last --all", "why", "why now.running", "why now.wasted",
	"fix FINDING", "fix FINDING --enforce --demo",
	"fix FINDING --enforce --demo --scratch-disks",
	"enforce --demo", "keep", "keep sim/000000000000/us-east-1/instance/i-0f3a --for 24h --reason deadline",
	"tag --demo",
	"doctor metrics --demo", "doctor state", "alerts", "confirm", "whoami", "settings", "freeze --reason incident",
	"unfreeze --reason over",
	"policy check examples/policies", "policy check examples/policies --against last",
	"policy explain llm-playground --demo --policy examples/policies",
	"policy test examples/policies/tests", "policy tune --trace examples/data/gpus.csv.gz",
	"policy tune --arrivals examples/data/requests.csv.gz --policy examples/fleets/embed.yaml --profile a=40ms,b=60ms " +
		"--max-batch 8 --late-after 1s",
	"backtest --trace examples/data/gpus.csv.gz --policy examples/policies/idle-ephemeral.yaml",
	"backtest --arrivals examples/data/requests.csv.gz --policy examples/fleets/embed.yaml --profile a=40ms,b=60ms " +
		"--max-batch 8 --late-after 1s",
	"costs", "costs --by resource,duty", "costs units --counts gpu-hours --by team",
	"costs shares examples/data/shares.csv", "budget", "budget holds",
	"bill show", "bill reconcile", "bill import examples/data/focus-2026-10.csv --dry-run",
	"estimate job.yaml", "gate job.yaml --dry-run", "gate report", "budget settle HOLD --actual 3.20",
	"budget release HOLD", "budget extend HOLD --amount 20 --for 12h",
	"as bo: approve REQUEST", "as bo: deny REQUEST --reason no", "approvals --all", "audit", "audit --verify",
	"init --tags team,user --govern lifetime=ephemeral --instance-store scratch --notify #ml --observe yes --force",
	"policy init --tags team,user --govern lifetime=ephemeral --instance-store scratch --notify #ml --observe yes --force",
	"price list", "price list --type g6*", "price show p4d.24xlarge", "price show H100", "price show s3:GLACIER",
	"price watching", "price update catalog.csv --source site --provider AWS --dry-run",
	"plan market --for bf16-tflops", "plan tco --saving 1200/month --effort 3w --rate 120/h --upkeep 2h/month",
	"plan capacity --qps 500 --qps-per-gpu 200", "plan account --demo",
	"plan rightsize --from scan --demo", "plan mig --gpu A100-80GB --workloads examples/data/workloads.csv",
	"plan mig --gpu A100-80GB --enumerate",
	"plan commit --usage examples/data/hourly.csv.gz --offers examples/data/offers.csv",
	"plan spot --trace examples/data/spot.csv --gap 5m --work 12h --deadline 1.5x --spot-price 0.918 " +
		"--on-demand-price " +
		"3.06",
	"plan checkpoint --trace examples/data/spot.csv --gap 5m --write 120s --restart 180s",
	"checkpoint save examples/policies STORE --exited --nice 0",
	"checkpoint save examples/policies STORE --exited --keep 1 --deadline 60s", "checkpoint list STORE --nice 0",
	"checkpoint verify STORE --nice 0",
	"checkpoint restore STORE restored --replace --nice 0", "checkpoint gc STORE --keep 2 --nice 0",
	"token create dashboard --role viewer", "token list", "token revoke TOKEN",
	"ls", "ls --all", "state", "gateway list", "fleets", "version",
	"settings clock --reason sleep", "as root: settings set shared.yaml --reason test",
}

// notRun are the commands that these lines leave out, with the reason.
var notRun = map[string]string{
	"up":              "it starts processes; the script session.txtar runs it",
	"down":            "it ends processes; the script session.txtar runs it",
	"connect":         "it needs a session; the script session.txtar runs it",
	"extend":          "it needs a session; the script session.txtar runs it",
	"status":          "it needs a session; the script session.txtar runs it",
	"logs":            "it needs a session; the script session.txtar runs it",
	"run":             "it starts processes; the script job.txtar runs it",
	"cancel":          "it needs a job; the script job.txtar runs it",
	"explain":         "it needs a job; the script job.txtar runs it",
	"session adopt":   "it writes tags on a machine of AWS; adopt_test.go runs it on the seeded account",
	"consent":         "it writes a tag on a machine of AWS; fixes_test.go runs it on the seeded account",
	"gateway stats":   "it asks a gateway that runs; gateway_test.go starts one",
	"gateway profile": "it asks a gateway that runs; gateway_test.go starts one",
	"gateway key":     "its key is random; gateway_test.go runs it",
	"profile":         "it writes to standard error next to its command; the script profile.txtar runs it",
	"login":           "it signs in to a service; login_test.go runs it at one",
	"logout":          "it signs out of a service; login_test.go runs it at one",
	"state accept":    "it needs a state that was put back; witness_test.go runs it on one",
	"state backup":    "it replaces no file, and lines run several times; test/service runs it at a service",
}

// withoutJSON are the commands without -o json, with the reason.
var withoutJSON = map[string]string{
	"curfew": "it prints its help", "plan": "it prints its help", "policy": "it prints its help",
	"price": "it prints its help", "bill": "it prints its help", "token": "it prints its help",
	"checkpoint": "it prints its help", "agent": "it prints its help",
	"record": "its -o names the trace that it writes", "serve": "it runs until it is told to end",
	"gateway": "it runs until it is told to end",
	"connect": "its output is the command's", "session": "it prints its help", "ci": "it prints its help",
	"ci run": "its output is the command's", "session template": "its output is a session file",
	"agent host":      "it runs until its session ends, whose documents are in the control store",
	"agent bootstrap": "its steps are in the session's status",
}

// walk calls each with every command that can be given, but for those of cobra.
func walk(each func(name string, c *cobra.Command)) {
	var down func(c *cobra.Command)
	down = func(c *cobra.Command) {
		if name := strings.TrimPrefix(c.CommandPath(), "curfew "); c.Runnable() && !c.Hidden {
			each(name, c)
		}
		for _, sub := range c.Commands() {
			down(sub)
		}
	}
	down(newRoot(&Process{}, nil))
}

// named returns the command of a line: "budget settle".
func named(line string) string {
	if _, rest, as := strings.Cut(line, ": "); as && strings.HasPrefix(line, "as ") {
		line = rest
	}
	c, _, err := newRoot(&Process{}, nil).Find(strings.Fields(line))
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(c.CommandPath(), "curfew ")
}

// TestEveryCommandPrintsJSON checks that each command has -o json, or is listed with the reason why
// not, and is covered by the other tests.
func TestEveryCommandPrintsJSON(t *testing.T) {
	run := map[string]bool{}
	for _, line := range commandLines {
		run[named(line)] = true
	}
	walk(func(name string, c *cobra.Command) {
		if withoutJSON[name] != "" {
			return
		}
		flag := c.Flags().Lookup("output")
		if flag == nil {
			t.Errorf("curfew %s has no -o", name)
			return
		}
		out, ok := flag.Value.(*ops.Choice)
		if !ok || !slices.Contains(out.Allowed(), "json") {
			t.Errorf("curfew %s has no -o json", name)
		}
		if !run[name] && notRun[name] == "" {
			t.Errorf("curfew %s is in no line of commandLines", name)
		}
	})
}

// commandDesk is a desktop with the state that the lines need: kept scans, simulated books, a job.
type commandDesk struct {
	*desktop
	fill    *strings.Replacer
	started int
}

func newCommandDesk(t *testing.T) *commandDesk {
	d := &commandDesk{desktop: newDesktop(t)}
	d.now = time.Date(2026, 7, 20, 9, 0, 0, 0, time.UTC)
	d.write("curfew.yaml", strings.Replace(gateConfig, "amount: 1000", "amount: 9000000", 1))
	d.write("job.yaml", fmt.Sprintf(gateJob, "finetune", "8h"))
	d.write("shared.yaml", "approvers: {root: [admin], bo: [approver]}\napprovals: {accept: [self-declared]}\n")
	d.write("catalog.csv", "instance_type,region,on_demand_usd_per_hour\ng6.2xlarge,us-east-1,0.9776\n")
	d.books()
	if code, _, errs := d.run("scan", "--demo"); code != ExitDone && code != ExitPartial {
		t.Fatal(errs)
	}
	_, out, _ := d.run("scan", "--last", "-o", "csv")
	finding, _, _ := strings.Cut(strings.Split(out, "\n")[1], ",")
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(d.dir, "examples")); err != nil {
		t.Fatal(err)
	}
	d.fill = strings.NewReplacer("FINDING", finding, "STORE", "file://"+filepath.Join(d.dir, "store"))
	return d
}

// madeBooks is the state with the books of the simulated account at the time of the desktops,
// which takes seconds to make.
var madeBooks string

// books gives the desktop the books of the simulated account.
func (d *commandDesk) books() {
	if madeBooks == "" {
		madeBooks = d.makeBooks()
	}
	if err := os.Mkdir(filepath.Join(d.dir, "data"), 0o700); err != nil {
		d.t.Fatal(err)
	}
	d.write("data/curfew.db", madeBooks)
}

// makeBooks returns the file of a state with the books of the simulated account.
func (d *commandDesk) makeBooks() string {
	d.t.Setenv("TMPDIR", d.t.TempDir())
	a := newApp(&Process{
		Dir: d.dir, DataDir: filepath.Join(d.dir, "data"), WitnessDir: filepath.Join(d.dir, "witness"), Now: d.clock,
		Stderr: &bytes.Buffer{}, Lookup: func(string) (string, bool) { return "", false },
	})
	a.progress = &progress{}
	a.req.Storage = simulation.Books{}
	_, s, err := a.req.State(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	s.Close()
	made, err := filepath.Glob(filepath.Join(os.TempDir(), "curfew-demo*", "curfew.db"))
	if err != nil || len(made) != 1 {
		d.t.Fatalf("books are in %v, %v", made, err)
	}
	text, err := os.ReadFile(made[0])
	if err != nil {
		d.t.Fatal(err)
	}
	if err := a.req.Close(); err != nil {
		d.t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "curfew-demo*")); len(left) > 0 {
		d.t.Errorf("%v is left behind", left)
	}
	return string(text)
}

// give runs a line for a terminal of a width in columns, 0 for none, with more arguments.
func (d *commandDesk) give(line string, width int, more ...string) (code int, out, errs string) {
	d.t.Helper()
	who := "ana"
	if name, rest, as := strings.Cut(line, ": "); as && strings.HasPrefix(name, "as ") {
		who, line = strings.TrimPrefix(name, "as "), rest
	}
	line = d.filled(line)
	var stdout, stderr bytes.Buffer
	code = Run(context.Background(), Process{
		Args: append(strings.Fields(line), more...), Dir: d.dir, DataDir: filepath.Join(d.dir, "data"),
		WitnessDir: filepath.Join(d.dir, "witness"), Version: "test",
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Now: d.clock, Width: width,
		Lookup: func(k string) (string, bool) {
			if k == "CURFEW_IDENTITY" {
				return who, true
			}
			v, ok := d.env[k]
			return v, ok
		}})
	return code, stdout.String(), stderr.String()
}

// filled returns a line with the objects that it names: a hold, a request, a token.
func (d *commandDesk) filled(line string) string {
	d.t.Helper()
	if verb, flags, ok := strings.Cut(line, "HOLD"); ok {
		line = verb + d.gate(ExitDone, "job.yaml", "--key", d.next()).HoldID + flags
	}
	if verb, flags, ok := strings.Cut(line, "REQUEST"); ok {
		d.write("big.yaml", fmt.Sprintf(gateJob, "big-"+d.next(), "400h"))
		line = verb + d.gate(ExitHeld, "big.yaml").ApprovalID + flags
	}
	if verb, flags, ok := strings.Cut(line, "TOKEN"); ok {
		_, made, _ := d.run("token", "create", "ci-"+d.next(), "--role", "viewer", "-o", "json")
		var doc view.NewToken
		if err := json.Unmarshal([]byte(made), &doc); err != nil {
			d.t.Fatal(err)
		}
		line = verb + doc.ID + flags
	}
	return d.fill.Replace(line)
}

func (d *commandDesk) next() string {
	d.started++
	return fmt.Sprint(d.started)
}

// TestNoLineExceedsTerminalWidth checks that the output of commands fits into 60, 80 and 120
// columns, except for commands on lines of their own, which are never cut; and with -o json it is
// one document with its schema.
func TestNoLineExceedsTerminalWidth(t *testing.T) {
	widths := []int{60} // where the most has to be cut
	if os.Getenv("CURFEW_SLOW") != "" {
		widths = []int{60, 80, 120}
	}
	d := newCommandDesk(t)
	for _, line := range commandLines {
		for _, width := range widths {
			code, out, errs := d.give(line, width)
			if code == ExitUsage || code == ExitError || out == "" {
				t.Errorf("curfew %s: exit %d, %s", line, code, errs)
			}
			for text := range strings.Lines(out) {
				text = strings.TrimRight(text, "\n")
				if n := ansi.StringWidth(text); n > width && !command(text) && len(strings.Fields(text)) > 1 {
					t.Errorf("curfew %s at %d columns: %d in %q", line, width, n, text)
					break
				}
			}
		}
		code, out, errs := d.give(line, 0, "-o", "json")
		var doc map[string]any
		if err := json.Unmarshal([]byte(out), &doc); err != nil || code == ExitUsage {
			t.Errorf("curfew %s -o json: exit %d, %v in %.200s %s", line, code, err, out, errs)
		} else if schema, _ := doc["schema"].(string); !strings.HasPrefix(schema, "curfew.") {
			t.Errorf("curfew %s -o json has the schema %q", line, schema)
		}
	}
}

// command reports whether a line is a command for a shell.
func command(line string) bool {
	line = strings.TrimPrefix(strings.TrimSpace(ansi.Strip(line)), "next")
	line = strings.TrimPrefix(line, "by hand: ")
	word, _, _ := strings.Cut(strings.TrimLeft(line, " `("), " ")
	return word == "curfew" || word == "aws" || word == "kubectl" || word == "nvidia-smi" || word == "helm" ||
		word == "docker" || strings.HasPrefix(word, "CUDA_VISIBLE_DEVICES=")
}

// TestSandboxBooks checks that the books of the simulated account and its bill are there without
// any state, whatever server is configured, and nothing is left behind.
func TestSandboxBooks(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("makeBooks makes them every day; make test-slow runs it")
	}
	d := newDesktop(t)
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the server is asked")
	}))
	t.Cleanup(srv.Close)
	d.env["CURFEW_SERVER"] = srv.URL
	d.now = time.Date(2026, 7, 20, 9, 0, 0, 0, time.UTC)
	d.write("curfew.yaml", "")
	t.Setenv("TMPDIR", t.TempDir())
	var doc struct {
		Accrued string `json:"accrued_usd"`
		Billed  string `json:"billed_usd"`
		Causes  []struct{ Reason string }
	}
	code, out, errs := d.run("bill", "reconcile", "--demo", "-o", "json")
	if err := json.Unmarshal([]byte(out), &doc); code != ExitDone || err != nil {
		t.Fatalf("exit %d, %v: %s", code, err, errs)
	}
	if billed := amount(t, doc.Billed); billed <= 0 || amount(t, doc.Accrued) <= billed {
		t.Errorf("%s accrued, %s billed: newer days are accrued, and the bill has a discount", doc.Accrued, doc.Billed)
	}
	var reasons []string
	for _, c := range doc.Causes {
		reasons = append(reasons, c.Reason)
	}
	slices.Sort(reasons)
	if want := []string{"negotiated discount", "no resource named", "not billed yet"}; !slices.Equal(reasons, want) {
		t.Errorf("the reasons are %q, want %q", reasons, want)
	}
	for _, dir := range []string{os.TempDir(), filepath.Join(d.dir, "data")} {
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
}
