package docs

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cli"
)

// aside is why a command is not run here.
type aside struct {
	match *regexp.Regexp
	why   string
}

// asides lists the commands that no test runs, or that another test does. This list is reviewed and
// should stay short.
var asides = []aside{
	{regexp.MustCompile(`^go install `), "installs a published version"},
	{regexp.MustCompile(`^docker (?:build|run) `), "needs a container engine"},
	{
		regexp.MustCompile(`^make aws-sandbox|^\. \./sandbox\.env`),
		"serves until it is interrupted; TestGettingStarted runs it",
	},
	{
		regexp.MustCompile(`^pip install 'moto|^moto_server `),
		"serves until it is interrupted; TestScanAgainstOtherAWSImplementation scans plain moto",
	},
	{regexp.MustCompile(`^curl `), "needs a service that listens; the tests of internal/api make these calls"},
	{
		regexp.MustCompile(`^curfew (?:up|connect|down|extend|status|logs) `),
		"starts or needs processes of a session; the scripts session.txtar and session_idle.txtar, and " +
			"test/sessions, run " +
			"them",
	},
	{
		regexp.MustCompile(`^curfew (?:(?:run|explain|cancel) |why job\.)`),
		"starts or needs a job; the script job.txtar and TestFirstJobRunsAsWritten run them",
	},
	{
		regexp.MustCompile(`^kill -KILL \$\(curfew logs `),
		"needs a job that runs; TestFirstJobRunsAsWritten gives it",
	},
	{
		regexp.MustCompile(`^curfew approve 4f1c --up-to 400`),
		"needs a request for a job; TestApprovesLessThanRequested of internal/approval approves one for less",
	},
	{regexp.MustCompile(`^curfew ci run `), "starts a session; the script ci.txtar runs it"},
	{regexp.MustCompile(`^curfew token revoke`), "ids of tokens are random; the script token.txtar runs it"},
	{regexp.MustCompile(`^curfew login .*--aws`), "needs STS and a service that it reaches; TestLoginByAWS runs it"},
	{regexp.MustCompile(`^aws cloudformation create-stack`), "the AWS CLI, which the tests do not require"},
	{
		regexp.MustCompile(`^curfew agent (?:host|bootstrap) `),
		"runs a session until it ends; the script agent.txtar runs it",
	},
	{
		regexp.MustCompile(`^curfew gateway(?: -| list| profile| stats|$)`),
		"needs model servers, or a gateway that runs; the tests of internal/gateway and gateway_test.go of " +
			"internal/cli do",
	},
	{regexp.MustCompile(`^helm install `), "needs a cluster; test/helm renders the chart"},
}

// long matches the commands that take seconds, which only make test-slow runs.
var long = regexp.MustCompile(
	`enforce --demo --seed|plan spot .* --work 48h|scan --regions all|record --from cloudwatch|curfew (?:costs|budget|bill) .*--demo`)

// elsewhere lists the documents that a separate test carries out from top to bottom.
var elsewhere = map[string]string{
	"docs/getting-started.md": "TestGettingStarted", "docs/first-gated-pr.md": "TestFirstGatedPullRequest",
	"docs/on-call.md":   "TestDrill of test/service",
	"docs/backup.md":    "TestBackupIsRestored of test/service",
	"docs/terraform.md": "TestDocument of test/terraform"}

// stands replaces an example of an id or a name by one that exists in the world.
type stands struct {
	match *regexp.Regexp
	with  string // {name} is a placeholder of the world
}

// examplesOf are applied in this order before a command is run.
var examplesOf = []stands{
	{regexp.MustCompile(`(--undo) (?:4f1c2a|ID|ITEM)`), "$1 {item}"},
	{regexp.MustCompile(`(curfew budget \w+) (?:4f1c|HOLD)`), "$1 {hold}"},
	{regexp.MustCompile(`(curfew (?:approve|deny|approvals)) (?:4f1c|REQUEST|ID)`), "$1 {request}"},
	{regexp.MustCompile(`(curfew fix) (?:9c6e|FINDING)$`), "$1 {demo finding}"},
	{regexp.MustCompile(`(curfew fix) (?:9c6e|FINDING)( .*--demo)`), "$1 {demo finding}$2"},
	{regexp.MustCompile(`(curfew fix) (?:9c6e|FINDING)`), "$1 {finding}"},
	{regexp.MustCompile(`i-0f3a|i-0123456789abcdef0|vision-train-7|trainer-7|\bRESOURCE\b|\bNAME\b`), "{machine}"},
	{regexp.MustCompile(`(curfew price show) \{machine\}`), "$1 H100"},
	{regexp.MustCompile(`(curfew confirm) (?:POLICY|off-hours)`), "$1 idle-gpu-machines"},
	{regexp.MustCompile(`(curfew policy (?:test|check|explain).*) DIR\b`), "$1 examples/policies"},
	{regexp.MustCompile(`(curfew policy test.*) FILE\.\.\.`), "$1 examples/policies/tests"},
	{regexp.MustCompile(`(curfew policy check) FILE(?:\.\.\.)?`), "$1 examples/policies"},
	{regexp.MustCompile(`--policy FILE --trace FILE`), "--policy examples/policies --trace examples/data/gpus.csv.gz"},
	{regexp.MustCompile(`\bTEXT\b`), "agreed"},
	{
		regexp.MustCompile(`^(curfew state accept)`),
		"curfew enforce --once --enforce > pass.log; cp -R data before; curfew freeze --reason first > frozen.log; rm -r " +
			"data; mv before data; $1",
	},
	{regexp.MustCompile(`^(curfew settings set --prices)`), "curfew settings set shared.yaml --reason first; $1"},
	{regexp.MustCompile(`(curfew backtest .*)trace.parquet`), "${1}examples/data/gpus.csv.gz"},
	{regexp.MustCompile(`(curfew keep \S+) -o json$`), "$1 --for 1h --reason TEXT -o json"},
	{regexp.MustCompile(`^(curfew gate) FILE$`), "$1 job.yaml"},
	{regexp.MustCompile(`^(curfew profile) (?:.* )?-- python train\.py$`), "$1 --every 20ms -- sleep 0.5"},
	{regexp.MustCompile(`^(curfew profile) -- CMD -o json$`), "$1 --every 20ms -o json -- sleep 0.5"},
	{regexp.MustCompile(`^(curfew profile) --pid 4242 --for 1m`), "$1 --pid $$$$ --for 1s"},
	// Answer its question in advance.
	{regexp.MustCompile(`(curfew checkpoint gc .* --now)$`), "$1 --yes"},
	{regexp.MustCompile(`(curfew estimate) --history FILE`), "$1 job.yaml --history runs.csv"},
	{regexp.MustCompile(`(curfew costs units --counts) FILE`), "$1 tokens.csv --unit token"},
	{regexp.MustCompile(`(curfew costs shares) FILE`), "$1 shares.csv"},
	{
		regexp.MustCompile(`(curfew record) --format json`),
		"$1 --from prometheus --metrics-source {prometheus} --since 30d -o trace.parquet --format json",
	},
	{regexp.MustCompile(`http://prometheus:9090`), "{prometheus}"},
	{regexp.MustCompile(`--seed N\b`), "--seed 7"},
	// A new state has no problem, so that the exit code is 0.
	{regexp.MustCompile(`^(curfew doctor state)`), "$1 --data-dir new"},
	// A service runs until it is stopped, and uses any port.
	{
		regexp.MustCompile(`^(?:\S+/)?(curfew serve[^&|>]*)`),
		"timeout --preserve-status -s TERM 5 $1 --listen 127.0.0.1:0",
	},
	{
		regexp.MustCompile(`^printf %s "\$TOKEN" \| curfew login https://curfew\.example\.com`),
		`curfew serve --listen 127.0.0.1:0 > serve.log 2>&1 & for i in $$(seq 300); do at=$$(sed -n 's/.*address=\([0-9.:]*\).*/\1/p' serve.log); [ -z "$$at" ] || break; sleep 0.2; done; ` +
			`TOKEN=$$(curfew token create dashboard --role viewer | head -1); printf %s "$$TOKEN" | curfew login "http://$$at"; code=$$?; kill $$!; wait; exit $$code`},
	{regexp.MustCompile(`(?:s3://bucket|file://\$HOME)/runs/resnet50`), "file://$$PWD/runs/resnet50"},
	{
		regexp.MustCompile(`^curfew login http://127\.0\.0\.1:8787 --browser`),
		`curfew serve --listen 127.0.0.1:0 > serve.log 2>&1 & for i in $$(seq 300); do at=$$(sed -n 's/.*address=\([0-9.:]*\).*/\1/p' serve.log); [ -z "$$at" ] || break; sleep 0.2; done; ` +
			`curfew login "http://$$at" --browser; code=$$?; kill $$!; wait; exit $$code`},
	{regexp.MustCompile(`(curfew checkpoint .*)--snapshot 12`), "${1}--snapshot 1"},
	// the other ranks do not exist
	{regexp.MustCompile(`(curfew checkpoint save .*)--rank 1 --ranks 4`), "${1}--rank 0 --ranks 1"},
	{regexp.MustCompile(`2026-12-01T08:00:00Z`), "{soon}"},
	{regexp.MustCompile(`arn:aws:iam::\d+:role/(?:audit|curfew)`), "{role}"},
	// Accept the suggestions of init, in a folder without files.
	{regexp.MustCompile(`^(curfew (?:policy )?init)`), "rm -r curfew.yaml policies; $1"},
}

// TestCommands runs every command of the documents and of the help texts, each in its own
// copy of the world, and compares exit codes and output with what the text says.
func TestCommands(t *testing.T) {
	const root = "../.."
	var sections []section
	for _, name := range documents(t, root) {
		if by := elsewhere[name]; by != "" {
			continue
		}
		sections = append(sections, sectionsOf(t, name, string(read(t, filepath.Join(root, name))))...)
	}
	for _, c := range helpExamples(t, nil) {
		sections = append(sections, section{commands: []command{c}})
	}

	if t.Failed() {
		return
	}
	runner := &runner{world: newWorld(t), done: map[string]*result{}}
	runner.shared = runner.copied(t)
	slots := make(chan bool, 3)
	var all sync.WaitGroup
	for _, s := range sections {
		all.Add(1)
		slots <- true
		go func() {
			defer func() { <-slots; all.Done() }()
			runner.check(t, s)
		}()
	}
	all.Wait()
	t.Logf("%d commands ran, %d of them different; %d take long and are left to make test-slow; %d are set aside",
		runner.ran, len(runner.done), runner.long, runner.aside)
	if runner.ran < 200 || runner.aside > 220 {
		t.Errorf("%d commands ran and %d are set aside", runner.ran, runner.aside)
	}
}

// constants are amounts in texts that no command prints: AWS prices, defaults covered by other
// tests, and amounts of examples.
var constants = []string{"$0", "$0.01", "$0.0005", "$0.005", "$10", "$100", "$190", "$200", "$1,000", "$20,000"}

// TestFigures checks that each amount in a sentence or table of a document is compared by a test:
// it is in an output that the document shows, or in a comment that quotes a command.
func TestFigures(t *testing.T) {
	const root = "../.."
	for _, name := range documents(t, root) {
		if generated(name) {
			continue
		}
		text := string(read(t, filepath.Join(root, name)))
		compared := slices.Clone(constants)
		for _, b := range blocks(text) {
			if b.kind == "text" {
				compared = append(compared, dollars.FindAllString(b.text, -1)...)
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			compared = append(compared, dollars.FindAllString(m[2], -1)...)
		}
		prose := remarks.ReplaceAllString(fenced.ReplaceAllString(text, ""), "")
		for _, figure := range dollars.FindAllString(prose, -1) {
			if !slices.Contains(compared, figure) {
				t.Errorf("%s quotes %s, and no output or comment <!-- curfew …: %[2]s --> does", name, figure)
			}
		}
	}
}

// TestLinks checks that every link of a document to a file, or to a heading in one, has a target.
func TestLinks(t *testing.T) {
	const root = "../.."
	link := regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	for _, name := range documents(t, root) {
		for _, m := range link.FindAllStringSubmatch(
			fenced.ReplaceAllString(string(read(t, filepath.Join(root, name))), ""),
			-1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := filepath.Join(root, name)
			if m[1] != "" {
				target = filepath.Join(root, filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			} else if m[2] != "" && !slices.Contains(headings(string(read(t, target))), m[2]) {
				t.Errorf("%s links to %s#%s, and there is no such heading", name, m[1], m[2])
			}
		}
	}
}

// headings are the anchors of a document's headings, as GitHub names them.
func headings(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(
		fenced.ReplaceAllString(text, ""), -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(anchor, " ", "-"))
	}
	return all
}

// section is a sequence of commands with their documented output.
type section struct {
	commands []command
	where    string
	// shown are lines of a text block, matched exactly except for times and ids.
	shown []string
	// quoted are figures that must occur somewhere in the output.
	quoted []string
}

// documents returns the documents, by their names.
func documents(t *testing.T, root string) []string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/ci/README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			name, _ := filepath.Rel(root, path) // it is below root
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// generated reports whether a document is generated from the code; it may then contain syntax
// without a fence.
func generated(name string) bool { return strings.HasPrefix(name, "docs/reference/") }

// sectionsOf returns the commands of a document, and checks that they can be found.
func sectionsOf(t *testing.T, name, text string) []section {
	t.Helper()
	var all []section
	pictured := map[int]bool{}
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "<!-- curfew scan --demo -->") {
			pictured[i+2] = true // TestReadmeShowsRealOutput
		}
	}
	for i, b := range blocks(text) {
		switch {
		case !kinds[b.kind]:
			t.Errorf("%s:%d: a block is one of sh, text and the like, and not %q", name, b.line, b.kind)
		case b.kind == "sh" || b.kind == "console":
			all = append(all, section{commands: commands(name, b.line+1, b.text)})
		case b.kind == "crontab":
			for _, c := range commands(name, b.line+1, b.text) {
				c.text = strings.Join(strings.Fields(c.text)[5:], " ") // after the five fields of the time
				all = append(all, section{commands: []command{c}})
			}
		case b.kind == "yaml":
			if s, ok := fileOf(name, b); ok {
				all = append(all, s)
			}
		case b.kind == "text" && pictured[b.line]:
		case b.kind == "text":
			if i == 0 || blocks(text)[i-1].kind != "sh" {
				t.Errorf("%s:%d: no commands stand before this output", name, b.line)
				continue
			}
			last := &all[len(all)-1]
			last.where = name + ":" + strconv.Itoa(b.line)
			last.shown = strings.Split(strings.TrimSpace(b.text), "\n")
		}
	}
	if m := regexp.MustCompile(`(?m)^\n    \S.*$`).FindString(fenced.ReplaceAllString(text, "")); m != "" &&
		!generated(name) {
		t.Errorf("%s: %q is a block without a fence", name, strings.TrimSpace(m))
	}
	prose := remarks.ReplaceAllString(text, "")
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		s := section{commands: []command{{where: name, text: m[1]}}, where: name, quoted: strings.Split(m[2], " | ")}
		for _, q := range s.quoted {
			if !strings.Contains(prose, q) {
				t.Errorf("%s says that it quotes %q of %s, and does not", name, q, m[1])
			}
		}
		all = append(all, s)
	}
	for _, c := range inline(name, text) {
		if generated(name) && (strings.Contains(c.text, ",") || strings.Contains(c.text, " and ")) {
			continue // a description of the output in words
		}
		all = append(all, section{commands: []command{c}})
	}
	return all
}

// fileOf returns the command that prints a complete file shown in a document; false for a part of
// one.
func fileOf(name string, b block) (section, bool) {
	here := func(command string) string { return "cat > shown.yaml <<'END'\n" + b.text + "END\n" + command }
	c := command{where: name + ":" + strconv.Itoa(b.line)}
	switch first, _, _ := strings.Cut(b.text, "\n"); first {
	case "apiVersion: curfew.policy/v1":
		c.text = here("curfew policy check shown.yaml")
	case "apiVersion: curfew.job/v1":
		c.text = here("curfew estimate shown.yaml")
	case "aws:", "approvers:", "budgets:", "governance:", "machines:", "notify:", "owners:",
		"people:", "shared_costs:",
		"units:":
		c.text = here("curfew whoami --config shown.yaml")
	default:
		return section{}, false
	}
	return section{commands: []command{c}}, true
}

// helpExamples returns the examples of a command's help text and of all below it.
func helpExamples(t *testing.T, path []string) []command {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Run(context.Background(), cli.Process{
		Args: append(slices.Clone(path), "--help"), Stdout: &out, Stderr: &errs, Version: "test", Dir: t.TempDir(),
		Lookup: func(string) (string, bool) { return "", false }, Now: func() time.Time { return time.Unix(0, 0) }})
	if code != cli.ExitDone {
		t.Fatalf("curfew %q --help: exit %d\n%s", path, code, errs.String())
	}
	all := examples("help of curfew "+strings.Join(path, " "), out.String())
	for _, name := range below(out.String()) {
		all = append(all, helpExamples(t, append(slices.Clone(path), name))...)
	}
	return all
}

// runner runs each command once.
type runner struct {
	*world
	// shared is the copy for commands that change nothing.
	shared           string
	account          sync.RWMutex
	mu               sync.Mutex
	done             map[string]*result
	ran, aside, long int
}

type result struct {
	once sync.Once
	said string
	code int
}

// check runs the commands of a section in order, in one copy of the world, and compares their
// output.
func (r *runner) check(t *testing.T, s section) {
	var said strings.Builder
	for _, c := range s.commands {
		if mention.MatchString(c.text) {
			r.mentioned(t, c)
		}
		out, code, ran := r.one(t, c.text)
		if !ran || code == cli.ExitUsage && mention.MatchString(c.text) && c.inline {
			continue
		}
		said.WriteString(out)
		if want := exits(c); !slices.Contains(want, code) {
			t.Errorf("%s: exit code %d of\n  %s\nwant %v\n%s", c.where, code, c.text, want, tail(out))
		}
	}
	for _, line := range s.shown {
		if strings.TrimSpace(line) != "" && !shows(line, said.String()) {
			t.Errorf("%s shows %q, and the output is\n%s", s.where, strings.TrimSpace(line), said.String())
		}
	}
	for _, q := range s.quoted {
		if !strings.Contains(said.String(), q) {
			t.Errorf("%s quotes %q of %s, and the output is\n%s", s.where, q, s.commands[0].text, said.String())
		}
	}
}

// reads matches commands that change neither files nor state, and need no copy of them.
var reads = regexp.MustCompile(
	`^(?:curfew (?:plan|estimate|costs|approvals|whoami|backtest|bill show|bill reconcile|price (?:show|list|watching)|policy (?:check|test|explain)|budget$|budget holds|settings$|enforce --demo|scan --(?:print|last))|make)[^>]*$`)

// mention matches a command without any value, as named in a sentence: `curfew fix --enforce`.
var mention = regexp.MustCompile(`^curfew(?: [a-z]+)*(?: --[a-z-]+)*(?: -o json)?$`)

// ofSession matches commands about the session in the examples.
var ofSession = regexp.MustCompile(`^(curfew (?:up|connect|down|extend|status|logs)) demo\b|` +
	`^(curfew (?:explain|cancel|status|logs)) (?:train|count)\b`)

// mentioned checks that a command and its flags exist.
func (r *runner) mentioned(t *testing.T, c command) {
	words := strings.Fields(ofSession.ReplaceAllString(c.text, "$1$2"))
	n := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") })
	if n < 0 {
		n = len(words)
	}
	var out bytes.Buffer
	cli.Run(context.Background(), cli.Process{
		Args: append(slices.Clone(words[1:n]), "--help"), Stdout: &out, Stderr: &out, Version: "test", Dir: r.dir,
		Lookup: func(string) (string, bool) { return "", false }, Now: func() time.Time { return time.Unix(0, 0) }})
	if !strings.Contains(out.String(), "Usage:\n  "+strings.Join(words[:n], " ")) {
		t.Errorf("%s: there is no command %s", c.where, c.text)
	}
	for _, f := range words[n:] {
		if f == "json" {
			continue
		}
		if !regexp.MustCompile(`(?m)^ +(?:-\w, )?` + f + `\b`).MatchString(out.String()) {
			t.Errorf("%s: %s has no flag %s", c.where, strings.Join(words[:n], " "), f)
		}
	}
}

// one runs a command unless another section did.
func (r *runner) one(t *testing.T, text string) (said string, code int, ran bool) {
	if os.Getenv("CURFEW_SLOW") == "" && long.MatchString(text) {
		r.mu.Lock()
		r.long++
		r.mu.Unlock()
		return "", 0, false
	}
	for _, a := range asides {
		if a.match.MatchString(text) {
			r.mu.Lock()
			r.aside++
			r.mu.Unlock()
			return "", 0, false
		}
	}
	line := strings.TrimPrefix(text, "bin/")
	for _, e := range examplesOf {
		line = e.match.ReplaceAllString(line, e.with)
	}
	for name, is := range r.known {
		line = strings.ReplaceAll(line, "{"+name+"}", is)
	}
	if strings.HasPrefix(line, "make") {
		line = strings.Replace(line, "make", "make -n", 1) // a target that other tests run
	}
	r.mu.Lock()
	r.ran++
	x := r.done[line]
	if x == nil {
		x = &result{}
		r.done[line] = x
	}
	r.mu.Unlock()
	x.once.Do(func() {
		who := "ana"
		if regexp.MustCompile(`curfew (approve|deny) `).MatchString(line) {
			who = "bo"
		}
		// A command that changes the account runs alone.
		if regexp.MustCompile(`--enforce|curfew (consent|keep) `).MatchString(line) &&
			!strings.Contains(line, "--demo") {
			r.account.Lock()
			defer r.account.Unlock()
		} else {
			r.account.RLock()
			defer r.account.RUnlock()
		}
		dir := r.shared
		if !reads.MatchString(line) {
			dir = r.copied(t)
			defer os.RemoveAll(dir)
		}
		x.said, x.code = r.run(t, dir, who, line)
	})
	return x.said, x.code, true
}

// exits returns the expected exit codes of a command: those in its comment, or 0.
func exits(c command) []int {
	at := strings.Index(c.comment, "exit code")
	if at < 0 {
		return []int{0}
	}
	var all []int
	for _, n := range regexp.MustCompile(`\b\d\b`).FindAllString(c.comment[at:], -1) {
		v, _ := strconv.Atoi(n) // it is a digit
		all = append(all, v)
	}
	return all
}

func tail(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}
