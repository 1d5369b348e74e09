package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestPartsAreTestsOfOnePackage(t *testing.T) {
	owners := map[string][]string{
		"TestAlpha": {module + "internal/a"}, "TestAlso": {module + "internal/a", module + "internal/b"},
		"TestAlpine": {module + "internal/b"}, "TestBeta": {module + "internal/a"},
	}
	p, err := partOf("internal/a=TestAl", owners)
	if err != nil || p.of != module+"internal/a" || !slices.Equal(p.tests, []string{"TestAlpha"}) {
		t.Errorf("got %+v, %v", p, err)
	}
	if _, err := partOf("internal/a=TestGamma", owners); err == nil {
		t.Error("a part without tests is a mistake")
	}
}

// TestEachTestRunsOnce checks that the tests of a part only run in their own process, and that the
// report contains both results of the package.
func TestEachTestRunsOnce(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	goTest := func(_ context.Context, args []string, out io.Writer) error {
		mu.Lock()
		calls = append(calls, strings.Join(args, " "))
		mu.Unlock()
		for _, e := range []event{
			{Action: "start"}, {Action: "output", Output: "ok  \ta\n"}, {Action: "skip", Test: "TestX"},
			{Action: "pass", Elapsed: 1},
		} {
			e.Package = module + "a"
			text, err := json.Marshal(e)
			if err != nil {
				return err
			}
			line := strings.Replace(string(text), "{", `{"Time":"2026-11-26T00:00:00Z",`, 1) + "\n"
			for _, half := range []string{line[:20], line[20:]} {
				if _, err := io.WriteString(out, half); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var out strings.Builder
	r := newReport(&out)
	parts := []part{{module + "a", []string{"TestP", "TestQ"}}, {module + "b", []string{"TestR"}}}
	if err := together(t.Context(), []string{module + "a", module + "c"}, parts, goTest, []string{"-count=1"},
		r); err != nil {
		t.Fatal(err)
	}
	r.close()
	slices.Sort(calls)
	want := []string{
		fmt.Sprintf("-count=1 -run ^(TestP|TestQ)$ %sa", module),
		fmt.Sprintf("-count=1 -skip ^(TestP|TestQ|TestR)$ %[1]sa %[1]sc", module),
	}
	if !slices.Equal(calls, want) {
		t.Errorf("got %q, want %q", calls, want)
	}
	if got := out.String(); got != "ok  \ta\nok  \ta\n" || r.packages != 2 || len(r.skips) != 1 {
		t.Errorf("got %q of %d packages, %d skips", got, r.packages, len(r.skips))
	}
}
