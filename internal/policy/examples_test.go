package policy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/curfew-dev/curfew/internal/usage"
)

const examples = "../../examples/policies"

// TestExamples runs the cases of every shipped policy, and checks that each policy has a case in
// which it proposes, one in which it must not, and one that is unknown.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(examples + "/*.yaml")
	if err != nil || len(files) < 11 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			set, tests := example(t, file)
			for _, r := range RunTests(set, tests, TestCaseFacts(set)) {
				if !r.Passed() {
					t.Error(r)
				}
			}
			for _, p := range set.Policies {
				seen := answersExpected(t, set, tests, p)
				for _, want := range []usage.Tristate{usage.True, usage.False, usage.Unknown} {
					if !seen[want] {
						t.Errorf("no case expects that %s is %s", p.Name, want)
					}
				}
			}
		})
	}
}

func example(t *testing.T, file string) (*Set, *Tests) {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set, err := Parse(file, src)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(examples, "tests", filepath.Base(file))
	if src, err = os.ReadFile(name); err != nil {
		t.Fatal(err)
	}
	tests, err := ParseTests(name, src)
	if err != nil {
		t.Fatal(err)
	}
	if len(tests.Policies) != 1 || filepath.Join(filepath.Dir(name), tests.Policies[0]) != file {
		t.Errorf("%s is for %v", name, tests.Policies)
	}
	return set, tests
}

// answersExpected returns the answers of a policy that some case expects.
func answersExpected(t *testing.T, set *Set, tests *Tests, p *Policy) map[usage.Tristate]bool {
	t.Helper()
	seen := map[usage.Tristate]bool{}
	for _, c := range tests.cases {
		r := caseRun{set: set, tests: tests, testCase: c, look: TestCaseFacts(set)}
		for i := range c.checks {
			e := &c.checks[i]
			answers, err := r.evaluate(e.at)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range answers {
				if f.policy == p && (e.proposals != nil && f.outcome.Answer != usage.Unknown || e.everyUnknown) {
					seen[f.outcome.Answer] = true
				}
			}
			for _, w := range e.unknown {
				if f, err := r.find(answers, w); err == nil && f.policy == p {
					seen[usage.Unknown] = true
				}
			}
		}
	}
	return seen
}

// TestExamplesAreCompatible checks that all examples can be used together, with only the intended
// cautions: disks declared scratch, work that may be ended, and ephemeral resources without an
// environment tag.
func TestExamplesAreCompatible(t *testing.T) {
	files, err := filepath.Glob(examples + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var sets []*Set
	for _, file := range files {
		set, _ := example(t, file)
		sets = append(sets, set)
	}
	all, err := Merge(sets...)
	if err != nil {
		t.Fatal(err)
	}
	meant := map[string]string{"dead-mans-switch": "busy", "long-expired-lease": "busy"}
	for _, c := range Check(all, Governance{{Select: Select{Kind: kinds}}}) {
		if c.Rule != "disks" && c.Rule != "untagged" && meant[c.Policy] != c.Rule {
			t.Error(c)
		}
	}
	for _, p := range all.Policies {
		if p.Mode != Observe {
			t.Errorf("%s does not observe by default", p.Name)
		}
	}
}
