package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// module is the prefix of all packages.
const module = "github.com/curfew-dev/curfew/"

// part is a set of tests of one package that run in a separate process, because they change
// process-wide state and so cannot run in parallel with the others.
type part struct {
	of    string // the package
	tests []string
}

// parts is a flag of the form PACKAGE=REGULAR EXPRESSION of test names.
type parts []string

func (p *parts) String() string { return strings.Join(*p, " ") }

func (p *parts) Set(text string) error {
	*p = append(*p, text)
	return nil
}

var testName = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(t `)

// plan returns the packages that match patterns, longest first by the last run or by usual times,
// and the parts that run separately. No test of another package has the name of one of those.
func plan(
	ctx context.Context, patterns []string, apart parts, record string,
) (packages []string, all []part, err error) {
	const format = `{{.ImportPath}}	{{.Dir}}	{{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}`
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-e", "-f", format}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list the packages: %w", err)
	}
	owners := map[string][]string{} // by test name
	for line := range strings.Lines(string(out)) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		packages = append(packages, words[0])
		if len(apart) == 0 {
			continue
		}
		for _, file := range strings.Fields(words[2]) {
			text, err := os.ReadFile(path.Join(words[1], file))
			if err != nil {
				return nil, nil, fmt.Errorf("find the tests that run apart: %w", err)
			}
			for _, found := range testName.FindAllStringSubmatch(string(text), -1) {
				owners[found[1]] = append(owners[found[1]], words[0])
			}
		}
	}
	for _, text := range apart {
		p, err := partOf(text, owners)
		if err != nil {
			return nil, nil, err
		}
		if slices.Contains(packages, p.of) {
			all = append(all, p)
		}
	}
	took := lastTimes(record)
	slices.SortStableFunc(packages, func(a, b string) int { return cmp.Compare(took[b], took[a]) })
	return packages, all, nil
}

func partOf(text string, owners map[string][]string) (p part, err error) {
	of, pattern, _ := strings.Cut(text, "=")
	p.of = module + of
	names, err := regexp.Compile("^(?:" + pattern + ")")
	if err != nil {
		return p, fmt.Errorf("-apart %s: %w", text, err)
	}
	for name, by := range owners {
		if names.MatchString(name) && slices.Equal(by, []string{p.of}) {
			p.tests = append(p.tests, name)
		}
	}
	slices.Sort(p.tests)
	if len(p.tests) == 0 {
		return p, fmt.Errorf("-apart %s: no test has such a name, and is the only one of it", text)
	}
	return p, nil
}

// usualTimes are the seconds of the slowest packages on two processors, for runs without a record,
// such as that of a new clone.
var usualTimes = map[string]float64{
	module + "internal/cli":        218,
	module + "test/docs":           168,
	module + "test/sessions":       139,
	module + "internal/cloud/aws":  135,
	module + "internal/store":      127,
	module + "test/contributing":   110,
	module + "internal/action":     65,
	module + "internal/backtest":   58,
	module + "internal/checkpoint": 45,
}

// lastTimes reads the durations of packages in a recorded run, or returns the usual times without
// one.
func lastTimes(record string) map[string]float64 {
	took := map[string]float64{}
	file, err := os.Open(record)
	if err != nil {
		return usualTimes
	}
	defer file.Close()
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Test == "" && e.Action == "pass" {
			name, _, _ := strings.Cut(e.Package, partMark)
			took[name] += e.Elapsed
		}
		if err != nil {
			return took
		}
	}
}

// runner runs go test with arguments and writes its events.
type runner func(ctx context.Context, args []string, events io.Writer) error

// together runs go test for the packages without the parts, and for each part once its package has
// been built.
func together(ctx context.Context, packages []string, all []part, goTest runner, flags []string,
	events io.Writer) error {
	var skip []string
	for _, p := range all {
		skip = append(skip, p.tests...)
	}
	args := slices.Clone(flags)
	if len(skip) > 0 {
		args = append(args, "-skip", exactly(skip))
	}
	var rest sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	shared := &locked{to: events}
	begun := map[string]bool{}
	watch := &watcher{to: shared, started: func(name string) {
		if begun[name] {
			return
		}
		begun[name] = true
		for i, p := range all {
			if p.of != name {
				continue
			}
			rest.Go(func() {
				only := append(slices.Clone(flags), "-run", exactly(p.tests), p.of)
				err := goTest(ctx, only, &watcher{to: shared, of: p.of, part: fmt.Sprint(partMark, i+1)})
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			})
		}
	}}
	err := goTest(ctx, append(args, packages...), watch)
	rest.Wait()
	return errors.Join(append(failed, err)...)
}

// exactly returns a regular expression that matches only some names.
func exactly(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

// locked writes whole lines from several processes.
type locked struct {
	mu sync.Mutex
	to io.Writer
}

// partMark and a number are appended to the package name in the events of a part.
const partMark = "#"

// watcher passes lines on, and reports which packages start.
type watcher struct {
	to       *locked
	started  func(name string)
	of, part string // of is the package whose name is marked with a part
	rest     []byte
}

func (w *watcher) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	end := strings.LastIndexByte(string(w.rest), '\n') + 1
	if end == 0 {
		return len(b), nil
	}
	whole := w.rest[:end]
	if w.part != "" {
		name := `"Package":"` + w.of
		whole = []byte(strings.ReplaceAll(string(whole), name+`"`, name+w.part+`"`))
	}
	w.to.mu.Lock()
	_, err := w.to.to.Write(whole)
	w.to.mu.Unlock()
	if w.started != nil {
		for line := range strings.Lines(string(whole)) {
			var e event
			if strings.Contains(line, `"Action":"start"`) &&
				json.Unmarshal([]byte(line), &e) == nil && e.Action == "start" {
				w.started(e.Package)
			}
		}
	}
	w.rest = append([]byte(nil), w.rest[end:]...)
	return len(b), err
}
