package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/backtest"
)

// goldenNow is the time of a golden script until it says another: a Saturday morning.
const goldenNow = "2026-11-21T09:00:00Z"

// TestGolden pins the output of commands. A script of testdata/golden runs commands in this process
// under a clock that stands still, and compares the whole output with a file in the script; -update
// writes these files again.
func TestGolden(t *testing.T) {
	golden(t, "testdata/golden/*.txtar", func(*testscript.Env) error { return nil }, nil)
}

// golden runs golden scripts. The files of examples are next to each; more prepares further files,
// and cmds are further commands.
func golden(t *testing.T, pattern string, more func(*testscript.Env) error,
	cmds map[string]func(*testscript.TestScript, bool, []string)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no script is %s: %v", pattern, err)
	}
	all := map[string]func(*testscript.TestScript, bool, []string){
		"run": run, "at": at, "outline": outline, "record": record, "each-rule": eachRule, "decisions": decisions,
	}
	for name, cmd := range cmds {
		all[name] = cmd
	}
	testscript.Run(t, testscript.Params{
		Files: files, UpdateScripts: *update, RequireUniqueNames: true, Cmds: all,
		Setup: func(e *testscript.Env) error {
			e.Setenv("NOW", goldenNow)
			e.Setenv("CURFEW_IDENTITY", "ana")
			root, err := filepath.Abs("../..")
			if err != nil {
				return err
			}
			if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(e.WorkDir, "examples")); err != nil {
				return err
			}
			return more(e)
		},
		Condition: func(name string) (bool, error) {
			path, ok := strings.CutPrefix(name, "shared:")
			if !ok {
				return false, fmt.Errorf("there is no condition %q", name)
			}
			return sharedFile(path) != "", nil
		},
	})
}

// sharedFile is a recorded file next to the repository; empty if it is absent, which CI does not
// accept.
func sharedFile(path string) string {
	full := filepath.Join(sharedData, path)
	if _, err := os.Stat(full); err != nil && os.Getenv("CI") == "" {
		return ""
	}
	return full
}

// sharedData is where recorded files are: next to the repository.
var sharedData, _ = filepath.Abs("../../../shared/data")

// run runs a command line at the time of the script: run ARG…. Standard output, then standard
// error, then an exit code other than 0 become the output to compare. Random and machine-dependent
// parts are replaced by a word.
func run(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("the exit code is a part of the output: run ARG…")
	}
	now, err := time.Parse(time.RFC3339, ts.Getenv("NOW"))
	ts.Check(err)
	dir := ts.MkAbs(".")
	for i, a := range args { // recorded files are next to the repository
		if path, ok := strings.CutPrefix(a, "shared:"); ok {
			args[i] = sharedFile(path)
		}
	}
	var out, errs bytes.Buffer
	code := Run(context.Background(), Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Version: "test",
		Dir: dir, DataDir: filepath.Join(dir, "data"),
		WitnessDir: filepath.Join(dir, "witness"), Now: func() time.Time {
			return now
		},
		Uptime: func() (string, time.Duration) {
			return "golden", now.Sub(now.Truncate(24*time.Hour)) + 100*24*time.Hour
		},
		Lookup: func(name string) (string, bool) { v := ts.Getenv(name); return v, v != "" },
	})
	text := out.String() + errs.String()
	if code != ExitDone {
		text += fmt.Sprintf("exit %d\n", code)
	}
	text = strings.NewReplacer(dir, "$WORK", sharedData, "$SHARED").Replace(text)
	text = longNumber.ReplaceAllStringFunc(randomID.ReplaceAllString(text, "${1}RANDOM${2}"), func(n string) string {
		at := strings.IndexAny(n, "-0123456789")
		v, err := strconv.ParseFloat(n[at:], 64)
		ts.Check(err)
		return n[:at] + strconv.FormatFloat(v, 'g', 6, 64)
	})
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	_, err = io.WriteString(ts.Stdout(), strings.Join(lines, "\n")+"\n")
	ts.Check(err)
}

// longNumber matches a number other than an amount of money whose last digits depend on the
// machine's rounding.
var longNumber = regexp.MustCompile(`[:,\[\s]-?[0-9]+\.[0-9]{10,}\b`)

// randomID is an identifier that differs with every run.
var randomID = regexp.MustCompile(
	`(?m)("(?:hold_id|approval_id)": "|(?:approve|settle|release|hold) |^ *)[0-9a-f]{12}(?:[0-9a-f]{20})?("| |\x60|$)`)

// at sets the clock: at TIME, or at +DURATION.
func at(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: at TIME")
	}
	now := args[0]
	if after, ok := strings.CutPrefix(now, "+"); ok {
		d, err := time.ParseDuration(after)
		ts.Check(err)
		old, err := time.Parse(time.RFC3339, ts.Getenv("NOW"))
		ts.Check(err)
		now = old.Add(d).Format(time.RFC3339)
	}
	ts.Setenv("NOW", now)
}

// outline shortens the last output. A JSON document becomes a line for each section, and for each
// long item of a section its key and a digest of the whole; other text its length and a digest.
func outline(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: outline")
	}
	text, w := []byte(ts.ReadFile("stdout")), ts.Stdout()
	var doc map[string]json.RawMessage
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&doc); err != nil {
		fmt.Fprintf(w, "%d lines, %s\n", bytes.Count(text, []byte("\n")), digest(text))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		var items []json.RawMessage
		if whole := compact(ts, doc[name]); len(whole) < 500 || json.Unmarshal(whole, &items) != nil {
			fmt.Fprintf(w, "%s: %s\n", name, whole)
			continue
		}
		fmt.Fprintf(w, "%s: %d\n", name, len(items))
		for _, item := range items {
			var f struct {
				Rule     string
				Resource struct{ ID, Type, Name, Region string }
				Savings  string `json:"monthly_savings_usd"`
				Waste    string `json:"monthly_waste_usd"`
			}
			whole := compact(ts, item)
			if len(whole) < 500 || json.Unmarshal(whole, &f) != nil {
				fmt.Fprintf(w, "  %s\n", whole)
				continue
			}
			r := f.Resource
			fmt.Fprintf(w, "  %s %s %s %s saves %s wastes %s %s\n", f.Rule, r.Region, r.Type, cmp.Or(r.Name, r.ID),
				cmp.Or(f.Savings, "?"), cmp.Or(f.Waste, "?"), digest(whole))
		}
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		fmt.Fprintf(w, "%s\n", rest) // the exit code
	}
}

func compact(ts *testscript.TestScript, src []byte) []byte {
	var b bytes.Buffer
	ts.Check(json.Compact(&b, src))
	return b.Bytes()
}

func digest(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b))[:12] }

// eachRule shows the fix of the first finding of each rule in the last scan:
// each-rule SCAN.
func eachRule(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: each-rule SCAN")
	}
	var doc struct {
		Findings []struct{ ID, Rule string }
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &doc))
	ids := map[string]string{}
	for _, f := range doc.Findings {
		ids[f.Rule] = cmp.Or(ids[f.Rule], f.ID)
	}
	command := []string{"fix"}
	for _, rule := range slices.Sorted(maps.Keys(ids)) {
		command = append(command, ids[rule])
	}
	run(ts, false, command)
}

// maxDecisions is how many decisions are shown.
const maxDecisions = 16

// decisions shows each decision of the policies of a replay with its time; the command prints only
// the sums: decisions TRACE POLICIES….
func decisions(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: decisions TRACE POLICIES…")
	}
	a := newApp(&Process{Dir: ts.MkAbs(".")})
	p, err := backtestFlags{trace: args[0], restartCost: "5m"}.params()
	ts.Check(err)
	p.Policies, err = govern.ReadPolicies(a.req, args[1:])
	ts.Check(err)
	var lines []string
	p.Decided = func(d backtest.Decision) {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", d.Time.UTC().Format("15:04:05.999999"), d.Resource, d.Policy,
			strings.TrimSpace(d.Step+" "+d.Refusal)))
	}
	file, err := replay.OpenTrace(context.Background(), a.req, args[0], &p.Format)
	ts.Check(err)
	defer file.Close()
	_, err = backtest.Run(context.Background(), file, p)
	ts.Check(err)
	w := ts.Stdout()
	for i, line := range lines {
		if i == maxDecisions {
			fmt.Fprintf(w, "and %d more, %s\n", len(lines)-i, digest([]byte(strings.Join(lines, "\n"))))
			break
		}
		fmt.Fprintln(w, line)
	}
	if len(lines) == 0 {
		fmt.Fprintln(w, "nothing is decided")
	}
}

// record writes a trace from a short account of it: record SPEC FILE STEP START. The
// columns from and for of SPEC, durations after START, stand in place of time; a row is
// a sample at each step between. A row's other columns are as they are.
func record(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: record SPEC FILE STEP START")
	}
	step, err := time.ParseDuration(args[2])
	ts.Check(err)
	start, err := time.Parse(time.RFC3339, args[3])
	ts.Check(err)
	spec := csv.NewReader(strings.NewReader(ts.ReadFile(args[0])))
	spec.Comment, spec.TrimLeadingSpace = '#', true
	rows, err := spec.ReadAll()
	ts.Check(err)
	from, length := slices.Index(rows[0], "from"), slices.Index(rows[0], "for")
	if from < 0 || length != from+1 {
		ts.Fatalf("%s has no columns from, for", args[0])
	}
	type sample struct {
		at  time.Duration
		row []string
	}
	var samples []sample
	for _, row := range rows[1:] {
		begin, err := time.ParseDuration(row[from])
		ts.Check(err)
		d, err := time.ParseDuration(row[length])
		ts.Check(err)
		for t := begin; t < begin+d; t += step {
			samples = append(samples, sample{t, row})
		}
	}
	slices.SortStableFunc(samples, func(a, b sample) int { return cmp.Compare(a.at, b.at) })
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	line := func(row []string, at string) {
		ts.Check(w.Write(slices.Replace(slices.Clone(row), from, length+1, at)))
	}
	line(rows[0], "time")
	for _, s := range samples {
		line(s.row, start.Add(s.at).Format(time.RFC3339))
	}
	w.Flush()
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o600))
}
