package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// twoPolicies are the policies under test in the cases below.
const twoPolicies = `apiVersion: curfew.policy/v1
policies:
  - name: idle
    select: {lifetime: ephemeral}
    when: duty.state == "idle" && duty.lasting >= duration("30m")
    then: [{warn: {grace: 15m}}, {do: stop}]
  - name: costly
    when: resource.hourly_usd > 10
    then: [{do: notify}]
`

const testHead = "apiVersion: curfew.policytest/v1\ncases:\n"

func runCases(t *testing.T, src string) []CaseResult {
	t.Helper()
	tests, err := ParseTests("cases.yaml", []byte(testHead+src))
	if err != nil {
		t.Fatal(err)
	}
	set := parse(t, twoPolicies)
	return RunTests(set, tests, TestCaseFacts(set))
}

// resting is a case with a machine that is idle from the start, up to its expectations.
const resting = `  - name: c
    resources:
      - {id: m, lifetime: ephemeral, created: -2h, hourly_usd: 1, gpus: 1, samples: [{for: 1h, gpu_util: 0, mem_used_bytes: 0, mem_total_bytes: 24e9}]}
    expect:
`

// TestRunTestsFailureMessages checks that each way to fail a case is reported with the expected and
// actual result.
func TestRunTestsFailureMessages(t *testing.T) {
	for _, tc := range []struct {
		name, expect string
		want         []string
	}{
		{
			"it passes",
			"      - {at: 29m, propose: none}\n      - {from: 30m, propose: [{policy: idle, resource: m, verb: " +
				"stop}]}\n     " +
				" - {at: 2h, unknown: [{policy: idle}]}\n",
			nil,
		},
		{"a proposal that does not come", "      - {at: 29m, propose: [{policy: idle, verb: stop}]}\n", []string{
			`cases.yaml:7: at 29m: want idle stop m, got no proposal: when is false: duty.lasting >= duration("30m") is false: duty.lasting is 29m`}},
		{"a proposal that is not wanted", "      - {at: 30m, propose: none}\n", []string{
			`cases.yaml:7: at 30m: want no such proposal, got idle stop m: when is true: duty.state is "idle"; duty.lasting is 30m`}},
		{"another verb", "      - {at: 30m, propose: [{policy: idle, verb: terminate}]}\n", []string{
			"cases.yaml:7: at 30m: want idle terminate m, got idle stop m"}},
		{"a proposal that comes too early", "      - {from: 40m, propose: [{policy: idle, verb: stop}]}\n", []string{
			`cases.yaml:7: want idle stop m from 40m on, got it at 39m59s already: when is true: duty.state is "idle"; duty.lasting is 39m59s`}},
		{"known where unknown is wanted", "      - {at: 30m, unknown: all}\n", []string{
			`cases.yaml:7: at 30m: want idle stop m unknown, got true: when is true: duty.state is "idle"; duty.lasting is 30m`,
			"cases.yaml:7: at 30m: want costly notify m unknown, got false: when is false: resource.hourly_usd > 10 is " +
				"false: resource.hourly_usd is 1"}},
		{"one known where unknown is wanted", "      - {at: 30m, unknown: [{policy: costly}]}\n", []string{
			"cases.yaml:7: at 30m: want costly notify m unknown, got false: when is false: resource.hourly_usd > 10 is " +
				"false: resource.hourly_usd is 1"}},
		{
			"a policy that does not exist",
			"      - {at: 30m, propose: [{policy: idel, verb: stop}], unknown: [{resource: x}]}\n", []string{
				`cases.yaml:7: at 30m: there is no policy "idel" with a resource ""`,
				`cases.yaml:7: at 30m: want no such proposal, got idle stop m: when is true: duty.state is "idle"; duty.lasting is 30m`,
				`cases.yaml:7: at 30m: there is no policy "" with a resource "x"`}},
		{"a policy that is not named", "      - {at: 29m, propose: stop}\n", []string{
			"cases.yaml:7: at 29m: 2 answers fit: name the policy and the resource"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := runCases(t, resting+tc.expect)
			if len(got) != 1 || got[0].Passed() != (tc.want == nil) || got[0].Line != 3 {
				t.Fatalf("got %v", got)
			}
			if diff := cmp.Diff(tc.want, got[0].Failures); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCasesUseRoundEngine checks features that cases share with live accounts: gangs, launches,
// tags, several GPUs.
func TestCasesUseRoundEngine(t *testing.T) {
	rests := "samples: [{for: 1h, gpu_util: 0, mem_used_bytes: 0, mem_total_bytes: 24e9}]"
	for name, src := range map[string]string{
		"a busy machine of a run keeps the others": `    resources:
      - {id: a, gang: run-1, lifetime: ephemeral, created: -2h, gpus: 1, ` + rests + `}
      - {id: b, gang: run-1, lifetime: ephemeral, created: -2h, gpus: 1, samples: [{for: 1h, gpu_util: 90}]}
      - {id: c, gang: run-2, lifetime: ephemeral, created: -2h, gpus: 1, ` + rests + `}
    expect: [{at: 45m, propose: [{policy: idle, resource: c, verb: stop}]}]
`,
		"a machine that was just launched is warming": `    resources: [{id: a, lifetime: ephemeral, created: 0s, gpus: 1, ` + rests + `}]
    expect: [{at: 10m, propose: none}, {at: 50m, propose: [{policy: idle, verb: stop}]}]
`,
		"a machine that is stopped does nothing": `    resources: [{id: a, lifetime: ephemeral, created: -2h, state: stopped, gpus: 1, ` + rests + `}]
    expect: [{at: 50m, propose: none, unknown: [{policy: idle}]}]
`,
		"what is no machine has no duty": `    resources: [{id: a, kind: database, state: running, lifetime: ephemeral, created: -2h, samples: [{for: 1h, cpu_util: 0, net_bytes: 0}]}]
    expect: [{at: 50m, propose: none, unknown: [{policy: idle}]}]
`,
		"unsampled GPUs": `    resources: [{id: a, lifetime: ephemeral, created: -2h, gpus: 2, ` + rests + `}]
    expect: [{at: 50m, propose: none, unknown: [{policy: idle}]}]
`,
		"GPUs by the samples' names": `    resources: [{id: a, lifetime: ephemeral, created: -2h, samples: [{for: 1h, gpu: [0, 1], gpu_util: 0, mem_used_bytes: 0, mem_total_bytes: 24e9}]}]
    expect: [{at: 50m, propose: [{policy: idle, verb: stop}]}]
`,
		"a lifetime by the tags": `    resources: [{id: a, tags: {"curfew:lifetime": ephemeral}, created: -2h, gpus: 1, ` +
			rests + `}]
    expect: [{at: 50m, propose: [{policy: idle, verb: stop}]}]
`,
		"a stale inventory": `    resources: [{id: a, lifetime: ephemeral, created: -2h, hourly_usd: 20, stale: true, gpus: 1, ` + rests + `}]
    expect: [{at: 50m, propose: none, unknown: all}]
`,
		"the last row of a time counts from then on": `    step: 5m
    start: 2026-03-01T00:00:00Z
    resources: [{id: a, lifetime: ephemeral, created: 2026-02-01T00:00:00Z, gpus: 1, samples: [{at: 2026-03-01T01:00:00Z, for: 1h, gpu_util: 0, mem_used_bytes: 0, mem_total_bytes: 24e9}]}]
    expect: [{at: 80m, propose: none}, {from: 90m, propose: [{policy: idle, verb: stop}]}]
`,
	} {
		for _, r := range runCases(t, "  - name: "+name+"\n"+src) {
			if !r.Passed() {
				t.Error(r)
			}
		}
	}
}

// TestCasesUseConfiguredThresholdsAndTags checks that cases use the configured thresholds and tags.
func TestCasesUseConfiguredThresholdsAndTags(t *testing.T) {
	tests, err := ParseTests("cases.yaml", []byte(testHead+`  - name: c
    resources: [{id: a, tags: {Fate: ephemeral}, created: 0s, gpus: 1, samples: [{for: 1h, gpu_util: 0, mem_used_bytes: 0, mem_total_bytes: 24e9}]}]
    expect: [{at: 35m, propose: [{policy: idle, verb: stop}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	set := parse(t, twoPolicies)
	if RunTests(set, tests, TestCaseFacts(set))[0].Passed() {
		t.Error("a tag that is not configured makes a machine ephemeral")
	}
	tests.Tags = inventory.DefaultTagMapping()
	tests.Tags.Lifetime = []string{"fate"}
	if r := RunTests(set, tests, TestCaseFacts(set))[0]; !r.Passed() {
		t.Error(r)
	}
	tests.Duty = duty.DefaultThresholds()
	tests.Duty.WarmUp = 40 * 60e9
	if RunTests(set, tests, TestCaseFacts(set))[0].Passed() {
		t.Error("the thresholds make no difference")
	}
}

func TestParseTestsErrorPositions(t *testing.T) {
	one := func(keys string) string {
		return testHead + "  - name: c\n    resources:\n      - {id: a, " + keys +
			"}\n    expect: [{at: 1h, propose: none}]\n"
	}
	expects := func(e string) string {
		return testHead + "  - name: c\n    resources: [{id: a}]\n    expect: [" + e + "]\n"
	}
	for _, tc := range []struct {
		name, src    string
		line, column int
		message      string
	}{
		{"the wrong file", contractPolicies, 1, 13, `apiVersion is curfew.policytest/v1, not "curfew.policy/v1"`},
		{"no case", "apiVersion: curfew.policytest/v1\ncases: []\n", 1, 1, "has no case"},
		{
			"a case of one name",
			testHead + resting + "      - {at: 1h, propose: none}\n" + resting + "      - {at: 1h, propose: none}\n",
			8, 5,
			"defined already",
		},
		{
			"no resource", testHead + "  - name: c\n    resources: []\n    expect: [{at: 1h, propose: none}]\n", 3, 5,
			"has no resource",
		},
		{
			"a resource twice",
			testHead + "  - name: c\n    resources: [{id: a}, {id: a}]\n    expect: [{at: 1h, propose: none}]\n", 4,
			26,
			"is there already",
		},
		{
			"nothing expected", testHead + "  - name: c\n    resources: [{id: a}]\n    expect: []\n", 3, 5,
			"propose: none",
		},
		{"an unknown key of a resource", one("color: red"), 5, 17, `a resource has no key "color"`},
		{"a region that is none", one("region: [x]"), 5, 25, "region"},
		{"an unknown kind", one("kind: machine"), 5, 23, `kind "machine" does not exist`},
		{"a detail of another kind", one("size_gib: 100"), 5, 17, "size_gib is nothing that the kind instance has"},
		{"a time that is none", one("created: yesterday"), 5, 26, `created "yesterday" is not a time such as`},
		{
			"a last activity that is none", one("last_activity: yesterday"), 5, 32,
			`last_activity "yesterday" is not a time such as`,
		},
		{"a flag that is none", one("attached: maybe"), 5, 27, "attached is true or false"},
		{"an amount that is none", one("hourly_usd: cheap"), 5, 29, "an amount of dollars"},
		{"a number that is none", one("price_drift: .nan"), 5, 30, "price_drift is a number"},
		{"a number in quotes", one("price_drift: '0.1'"), 5, 30, "price_drift is a number"},
		{
			"a budget of an unknown state", one("budget: {state: gone, used_share: 1}"), 5, 33,
			`state "gone" does not exist`,
		},
		{"a budget without a share", one("budget: {state: ok}"), 5, 25, "needs used_share"},
		{"an unknown signal", one("samples: [{gpu_utl: 0}]"), 5, 28, `samples has no key "gpu_utl"`},
		{"samples without values", one("samples: [{for: 1h}]"), 5, 27, "need a value such as gpu_util: 0"},
		{"a gap with values", one("samples: [{gap: 1h, gpu_util: 0}]"), 5, 27, "a gap has no values"},
		{"samples for less than a step", one("samples: [{for: 1s, gpu_util: 0}]"), 5, 33, "at least 1m"},
		{"too many samples", one("samples: [{for: 3000d, gpu_util: 0}]"), 5, 27, "more than 50000 samples"},
		{"a GPU without a number", one("samples: [{gpu: first, gpu_util: 0}]"), 5, 33, "gpu is a list"},
		{"no time", expects("{propose: none}"), 5, 14, "has at or from"},
		{"two times", expects("{at: 1h, from: 1h, propose: stop}"), 5, 14, "has at or from"},
		{"nothing at a time", expects("{at: 1h}"), 5, 14, "has propose or unknown"},
		{"nothing from a time on", expects("{from: 1h, propose: none}"), 5, 14, "use at"},
		{"an unknown verb", expects("{at: 1h, propose: halt}"), 5, 32, `propose "halt" does not exist`},
		{"a pair without a verb", expects("{at: 1h, propose: [{policy: a}]}"), 5, 33, "needs verb"},
		{"a pair with a verb too many", expects("{at: 1h, unknown: [{verb: stop}]}"), 5, 34, `has no key "verb"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseTests("cases.yaml", []byte(tc.src))
			var e *document.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *document.Error", err)
			}
			if e.Line != tc.line || e.Column != tc.column || !strings.Contains(e.Message, tc.message) {
				t.Errorf("got %q, want %d:%d with %q", e, tc.line, tc.column, tc.message)
			}
		})
	}
}

// FuzzParseTests checks that mistakes are a *document.Error in the file, and that accepted cases
// run.
func FuzzParseTests(f *testing.F) {
	f.Add(testHead + resting + "      - {at: 29m, propose: none}\n")
	f.Add(testHead +
		"  - name: c\n    step: 1s\n    resources: [{id: a, kind: volume, attached: true, budget: {state: " +
		"ok, used_share: 1}}]\n    expect: [{from: 1h, propose: stop, unknown: all}]\n")
	set, err := Parse("two.yaml", []byte(twoPolicies))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, src string) {
		tests, err := ParseTests("f.yaml", []byte(src))
		if err != nil {
			var e *document.Error
			if !errors.As(err, &e) || e.Line < 1 || e.Line > strings.Count(src, "\n")+strings.Count(src, "\r")+1 {
				t.Fatalf("%v is no *document.Error in the file", err)
			}
			return
		}
		if got := RunTests(set, tests, TestCaseFacts(set)); len(got) == 0 {
			t.Fatal("cases without a result")
		}
	})
}
