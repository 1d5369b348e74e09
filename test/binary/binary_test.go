package binary

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	// The dependencies of the binary: a change there invalidates cached results of these tests.
	_ "github.com/curfew-dev/curfew/internal/cli"
)

const module = "github.com/curfew-dev/curfew/"

// growthLimit is the allowed growth of the binary over the size in CHANGELOG.md.
const growthLimit = 0.05

// Limits of the start: for the module's own initializers, and for `curfew --help`. On a slow or
// busy machine they may instead take a share of the time of the imported packages.
const (
	initializersLimit = time.Millisecond
	initializersShare = 1.0 / 30 // of the initializers of other modules
	helpLimit         = 30 * time.Millisecond
	helpOverFloor     = 1.25 // times a program that imports the same and does nothing
)

// startRuns is how often a start is measured; the shortest counts. Load only makes it longer.
const startRuns = 40

// The binary and the linker's dump of its dependencies, built once.
var binary, dump string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "curfew-binary-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is temporary anyway
	binary, dump = filepath.Join(dir, "curfew"), filepath.Join(dir, "dump")
	if err := build(binary, "./cmd/curfew", dump); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build builds a command of the module for linux/amd64 as `make build` does. With a dump, the
// linker writes there why it kept each symbol.
func build(to, command, dump string) error {
	flags := "-s -w"
	if dump != "" {
		flags += " -dumpdep"
	}
	args := []string{"build", "-trimpath", "-ldflags", flags, "-o", to}
	if dump != "" {
		// go build repeats the output of the last link of the same compiled command. A compiler
		// flag without effect separates the dump from other builds.
		args = append(args, "-gcflags", command+"=-c=1")
	}
	c := exec.CommandContext(context.Background(), "go", append(args, command)...)
	c.Dir = filepath.Join("..", "..")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=linux", "GOARCH=amd64")
	if dump == "" {
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", command, err, out)
		}
		return nil
	}
	out, err := os.Create(dump)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the tests fail on an incomplete dump
	c.Stdout, c.Stderr = out, out
	if err := c.Run(); err != nil {
		text, _ := os.ReadFile(dump) // the error is sufficient without it
		return fmt.Errorf("build %s: %w: %.2000s", command, err, text)
	}
	return nil
}

// edge is a line of a dump: one symbol is reachable because of another one.
type edge struct {
	from, to  string
	attribute string // of to
}

// edges returns the lines of the dump.
func edges(t *testing.T) []edge {
	t.Helper()
	file, err := os.Open(dump)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // it was only read
	var all []edge
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		from, to, ok := strings.Cut(lines.Text(), " -> ")
		if !ok {
			continue
		}
		from, _ = attribute(from)
		e := edge{from: from}
		e.to, e.attribute = attribute(to)
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(all) < 10_000 {
		t.Fatalf("the linker's dump has %d edges, which is too few to be one", len(all))
	}
	return all
}

// attribute splits the linker's description of a symbol: "name <ReflectMethod>".
func attribute(s string) (name, attribute string) {
	if i := strings.LastIndex(s, " <"); i > 0 && strings.HasSuffix(s, ">") {
		return s[:i], s[i+2 : len(s)-1]
	}
	return s, ""
}

// TestRefusesLookupOfMethodsByName fails if a function looks up methods by names that are only
// known at run time, and names it. The linker would then keep all exported methods of every type
// that is converted to an interface, thousands of which are never called.
func TestRefusesLookupOfMethodsByName(t *testing.T) {
	all := edges(t)
	parent := map[string]string{}
	var found []string
	for _, e := range all {
		if _, known := parent[e.to]; !known {
			parent[e.to] = e.from
		}
		if strings.Contains(e.attribute, "ReflectMethod") {
			found = append(found, e.to)
		}
	}
	slices.Sort(found)
	byPackage := map[string][]string{}
	for _, f := range slices.Compact(found) {
		byPackage[packageOf(f)] = append(byPackage[packageOf(f)], f)
	}
	if len(byPackage) > 1 {
		delete(byPackage, "reflect") // its methods are only kept because of the others
	}
	for _, name := range slices.Sorted(maps.Keys(byPackage)) {
		functions := byPackage[name]
		t.Errorf("%d functions of %s look methods up by name, such as %s: it is kept by %s",
			len(functions), name, functions[0], strings.Join(keptBy(parent, functions[0]), ", by "))
	}
}

// packageOf returns the package of a symbol such as "text/template.(*state).evalField".
func packageOf(symbol string) string {
	dot := strings.Index(symbol[strings.LastIndex(symbol, "/")+1:], ".")
	return symbol[:strings.LastIndex(symbol, "/")+1+max(dot, 0)]
}

// keptBy returns the chain of symbols that keep a symbol, up to a function of this module.
func keptBy(parent map[string]string, symbol string) (chain []string) {
	for {
		next, known := parent[symbol]
		if !known || slices.Contains(chain, next) {
			return chain
		}
		chain = append(chain, next)
		if symbol = next; strings.HasPrefix(symbol, module) {
			return chain
		}
	}
}

// stated matches the line of CHANGELOG.md with the size of the binary.
var stated = regexp.MustCompile(`The binary has ([0-9]+\.[0-9]) MB`)

// TestSize fails when the binary is over 5% larger than the first line of CHANGELOG.md that
// states its size.
func TestSize(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	size := float64(info.Size()) / 1e6
	m := stated.FindSubmatch(text)
	if m == nil {
		t.Fatalf("CHANGELOG.md has no line with %q", fmt.Sprintf("The binary has %.1f MB", size))
	}
	want, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the binary has %.1f MB (%d bytes); CHANGELOG.md says %.1f MB", size, info.Size(), want)
	if size > want*(1+growthLimit) {
		t.Errorf("the binary has %.1f MB, %.1f%% more than the %.1f MB of CHANGELOG.md: make it smaller, or write %q "+
			"there and why",
			size, 100*(size/want-1), want, fmt.Sprintf("The binary has %.1f MB", size))
	}
}

// canRun reports whether the binary runs on this machine.
func canRun(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the binary is built for linux/amd64")
	}
}

// TestInitializers fails if the initializers of this module take over a millisecond in total, each
// measured as the fastest of several starts.
func TestInitializers(t *testing.T) {
	canRun(t)
	fastest := map[string]float64{}
	total, others := math.Inf(1), math.Inf(1)
	for run := 0; run < startRuns && total > milliseconds(initializersLimit); run++ {
		c := exec.CommandContext(t.Context(), binary, "--help")
		c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		trace, err := errorOutput(c)
		if err != nil {
			t.Fatal(err)
		}
		total = 0
		var beside float64
		for line := range strings.Lines(trace) {
			// init github.com/… @5.1 ms, 0.023 ms clock, 4976 bytes, 37 allocs
			f := strings.Fields(line)
			if len(f) < 6 || f[0] != "init" {
				continue
			}
			took, err := strconv.ParseFloat(f[4], 64)
			if err != nil {
				t.Fatalf("line of the trace %q: %v", line, err)
			}
			if !strings.HasPrefix(f[1], module) {
				beside += took
				continue
			}
			if before, measured := fastest[f[1]]; measured {
				took = min(took, before)
			}
			fastest[f[1]] = took
			total += took
		}
		others = min(others, beside)
	}
	if len(fastest) == 0 {
		t.Fatal("the trace has no initializer of this module")
	}
	t.Logf("%d packages initialize in %.2f ms, those of other modules in %.2f ms", len(fastest), total, others)
	if total > max(milliseconds(initializersLimit), others*initializersShare) {
		for name, took := range fastest {
			if took > 0.02 {
				t.Logf("%.3f ms: %s", took, name)
			}
		}
		t.Errorf("the initializers of this module take %.2f ms, over %s and a thirtieth of the %.2f ms of others",
			total, initializersLimit, others)
	}
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

func errorOutput(c *exec.Cmd) (string, error) {
	var b strings.Builder
	c.Stderr = &b
	err := c.Run()
	return b.String(), err
}

// TestHelpStartsFast measures the CPU time of `curfew --help`, which depends less on load than the
// elapsed time.
func TestHelpStartsFast(t *testing.T) {
	canRun(t)
	help := fastestStart(t, binary, helpLimit)
	if help <= helpLimit {
		t.Logf("curfew --help takes %s", help)
		return
	}
	floor := filepath.Join(t.TempDir(), "floor")
	if err := build(floor, "./test/binary/floor", ""); err != nil {
		t.Fatal(err)
	}
	empty := fastestStart(t, floor, 0)
	t.Logf("curfew --help takes %s, a program with the same imports %s", help, empty)
	if float64(help) > float64(empty)*helpOverFloor {
		t.Errorf("curfew --help takes %s, over %s and over %g times a program with the same imports (%s)",
			help, helpLimit, helpOverFloor, empty)
	}
}

// fastestStart returns the minimum CPU time of a program with --help. It stops measuring once the
// time is good enough.
func fastestStart(t *testing.T, program string, enough time.Duration) time.Duration {
	t.Helper()
	least := time.Duration(math.MaxInt64)
	for run := 0; run < startRuns && least > enough; run++ {
		c := exec.CommandContext(t.Context(), program, "--help")
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		used, ok := c.ProcessState.SysUsage().(*syscall.Rusage)
		if !ok {
			t.Fatal(errors.New("the system does not say what a process used"))
		}
		least = min(least, time.Duration(used.Utime.Nano()+used.Stime.Nano()))
	}
	return least
}
