package backtest

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/data"
)

// rested is a policy that releases after rest of a length, the second part of it as
// grace.
func rested(name string, lasting, grace time.Duration) string {
	return fmt.Sprintf(`  - name: %s
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("%s")
    then: [{warn: {grace: %s}}, {do: terminate}]
`, name, lasting, grace)
}

// aged is a dead man's switch. Traces need a launch time for it.
func aged(name string, after, grace time.Duration, busy bool) string {
	return fmt.Sprintf(`  - name: %s
    when: resource.age >= duration("%s")
    then: [{warn: {grace: %s}}, {do: stop, even_if_busy: %v}]
`, name, after, grace, busy)
}

func policies(t testingTB, texts ...string) *policy.Set {
	t.Helper()
	return parsed(t, "apiVersion: curfew.policy/v1\npolicies:\n"+strings.Join(texts, ""))
}

// numbers returns the figures of a rule without its name and the fields that only policies have.
func numbers(r Result) Result {
	r.Name, r.WaitSeconds, r.ReleasedByState, r.VerdictUnknownHours, r.WhyNot = "", nil, nil, nil, nil
	return r
}

// sameNumbers holds the numbers of results against those of others.
func sameNumbers(t testingTB, r Report, pairs map[string]string) {
	t.Helper()
	for name, baseline := range pairs {
		var got, want Result
		for _, res := range r.Results {
			switch res.Name {
			case name:
				got = numbers(res)
			case baseline:
				want = numbers(res)
			}
		}
		if diff := cmp.Diff(want, got, sameDollars); diff != "" || want.ResourceHours == 0 {
			t.Fatal(fmt.Sprintf("%s is not %s (-baseline +policy):\n%s", name, baseline, diff))
		}
	}
}

var fixedPolicies = []string{
	rested("p1", time.Minute, 0), rested("p5", 5*time.Minute, 0), rested("p15", 15*time.Minute, 0),
	rested("p60", time.Hour, 0),
	rested("p5-10", 5*time.Minute, 10*time.Minute), rested("p59-1", 59*time.Minute, time.Minute),
}

var fixedPairs = map[string]string{
	"p1": "fixed-1m", "p5": "fixed-5m", "p15": "fixed-15m", "p60": "fixed-60m", "p5-10": "fixed-15m",
	"p59-1": "fixed-60m",
}

// TestPolicyIsTheFixedWait checks that a policy on lasting rest, with or without a grace, equals
// the fixed wait of that length in every number.
func TestPolicyIsTheFixedWait(t *testing.T) {
	set := policies(t, fixedPolicies...)
	rapid.Check(t, func(t *rapid.T) {
		p := params(time.Duration(rapid.IntRange(0, 600).Draw(t, "restart")) * time.Second)
		p.Policies, p.IdleBelow = set, 1
		r, err := Run(context.Background(), strings.NewReader(csvOf(rowsOf(patterns().Draw(t, "patterns")...))), p)
		if err != nil {
			t.Fatal(err)
		}
		sameNumbers(t, r, fixedPairs)
	})
}

// launchedBefore adds a launch time to all rows of a trace, an hour before 1970.
func launchedBefore(trace string) string {
	head, rows, _ := strings.Cut(trace, "\n")
	return head + ",launched\n" + strings.ReplaceAll(rows, "\n", ",1969-12-31T23:00:00Z\n")
}

// switched returns the tally of a dead man's switch on a pattern, by a walk in seconds. Age
// continues through a release, so that the switch ends a machine again once it is back.
func switched(pattern string, after, grace int64) learn.Tally {
	pattern = strings.TrimRight(pattern, " ")
	var want learn.Tally
	away, warned := false, int64(-1)
	var ended int64
	for s := range int64(len(pattern) * 60) {
		c, starts := pattern[s/60], s%60 == 0
		if away && starts && c != '.' {
			if away = false; c == '#' {
				want.Restarts++
				if s-ended <= 60 {
					want.Interrupted++
				}
			}
		}
		if !away && s >= after {
			if warned < 0 {
				warned = s
			}
			if s-warned >= grace { // while nothing is sampled it is back at once
				if away, ended, warned = c != ' ', s, -1; !away {
					warned = s
				}
			}
		}
		if away {
			want.Released += 1_000_000
		}
	}
	return want
}

// TestPolicyIsTheDeadMansSwitch checks that a policy on age that ends work as well equals a walk
// through every second.
func TestPolicyIsTheDeadMansSwitch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Not at a whole minute, where it is a matter of taste whether a sample of that
		// very moment is the next one.
		after := time.Duration(rapid.IntRange(0, 20).Draw(t, "after"))*time.Minute + 13*time.Second
		grace := time.Duration(rapid.IntRange(0, 9).Draw(t, "grace"))*time.Minute + 7*time.Second
		p := params(time.Minute)
		p.Policies, p.Baselines = policies(t, aged("age", time.Hour+after, grace, true)), false
		patterns := patterns().Draw(t, "patterns")
		r, err := Run(context.Background(), strings.NewReader(launchedBefore(csvOf(rowsOf(patterns...)))), p)
		if err != nil {
			t.Fatal(err)
		}
		var want learn.Tally
		for _, pattern := range patterns {
			want.Add(switched(pattern, int64(after.Seconds()), int64(grace.Seconds())))
		}
		res := r.Results[0]
		// each return takes a microsecond
		got := learn.Tally{
			Released: int64(math.Round(res.ReleasedHours*3600)) * 1e6, Restarts: res.Restarts,
			Interrupted: res.Interrupted,
		}
		if got != want {
			t.Fatalf("a policy on an age of %s with a grace of %s does %+v, the switch %+v", after, grace, got, want)
		}
	})
}

// recorded replays the public trace of a day of image generation on a hundred pods.
func recorded(t testing.TB, p Params) Report {
	t.Helper()
	f, err := os.Open(data.Path(t, "alibaba-gentd26/pod_gpu_duty_cycle.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p.Format = usage.Format{
		Name: "duty.csv.gz", Step: 57 * time.Second,
		Map: map[string]string{"resource": "pod", "time": "t_s", "gpu_util": "gpu_util_pct"},
	}
	r, err := Run(context.Background(), f, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRecordedTrace checks the figures of the public trace, and that policies are the fixed waits
// on it.
func TestRecordedTrace(t *testing.T) {
	p := params(8700 * time.Millisecond)
	r := recorded(t, p)
	for name, want := range map[string]string{
		"fixed-1m": "56.0", "fixed-5m": "41.0", "fixed-15m": "26.6", "fixed-60m": "10.35", "oracle": "65.2",
	} {
		if share := fmt.Sprintf("%.*f", len(want)-3, 100*r.result(t, name).NetSavedShare); share != want {
			t.Errorf("%s saves %s%%, want %s%%", name, share, want)
		}
	}
	if five := r.result(t, "fixed-5m"); five.Restarts != 2329 {
		t.Errorf("fixed-5m restarts %d times, want 2329", five.Restarts)
	}
	p.Policies, p.IdleBelow = policies(t, fixedPolicies...), 1
	sameNumbers(t, recorded(t, p), fixedPairs)
	for _, test := range []struct {
		restart time.Duration
		least   float64
	}{{5 * time.Minute, 0.855}, {10 * time.Minute, 0.677}} {
		p := params(test.restart)
		learned := recorded(t, p).result(t, "learned")
		if *learned.OfForesight < test.least-0.0005 {
			t.Errorf("at a restart cost of %s learned saves %.4f of what the oracle does, want %v", test.restart,
				*learned.OfForesight, test.least)
		}
	}
}

// TestDecisions spells out a few replays.
func TestDecisions(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	tests := []struct {
		name, policy, trace string
		want                []Decision
	}{
		{"at 300 s, between samples", rested("p", 5*time.Minute, 0), "#.......#", []Decision{
			{
				Time: at(360), Resource: "r000", Policy: "p", Step: "warn",
			}, {Time: at(360), Resource: "r000", Policy: "p", Step: "terminate"},
		}},
		{"grace runs from the warning", rested("p", 2*time.Minute, 3*time.Minute), "#.......#", []Decision{
			{
				Time: at(180), Resource: "r000", Policy: "p", Step: "warn",
			}, {Time: at(360), Resource: "r000", Policy: "p", Step: "terminate"},
		}},
		{"work withdraws", rested("p", 2*time.Minute, 3*time.Minute), "...#....", []Decision{
			{
				Time: at(120), Resource: "r000", Policy: "p", Step: "warn",
			}, {Time: at(180), Resource: "r000", Policy: "p", Step: "withdraw"},
			{Time: at(360), Resource: "r000", Policy: "p", Step: "warn"},
		}},
		{"a missing sample ends what lasted", rested("p", 4*time.Minute, 0), "... ...", nil},
		{"busy is not ended by age", aged("p", 62*time.Minute, 0, false), "#####.#", []Decision{
			{Time: at(120), Resource: "r000", Policy: "p", Step: "refuse", Refusal: "busy"},
			{
				Time: at(300), Resource: "r000", Policy: "p", Step: "warn",
			}, {Time: at(300), Resource: "r000", Policy: "p", Step: "stop"},
			{Time: at(360), Resource: "r000", Policy: "p", Step: "refuse", Refusal: "busy"},
		}},
		{"unless it may be", aged("p", 62*time.Minute, 0, true), "###", []Decision{
			{
				Time: at(120), Resource: "r000", Policy: "p", Step: "warn",
			}, {Time: at(120), Resource: "r000", Policy: "p", Step: "stop"},
		}},
		{
			"age goes on after a restart", aged("p", 61*time.Minute+30*time.Second, 20*time.Second,
				true), "####", []Decision{
				{
					Time: at(90), Resource: "r000", Policy: "p", Step: "warn",
				}, {Time: at(110), Resource: "r000", Policy: "p", Step: "stop"},
				{
					Time: at(120), Resource: "r000", Policy: "p", Step: "warn",
				}, {Time: at(140), Resource: "r000", Policy: "p", Step: "stop"},
				{
					Time: at(180), Resource: "r000", Policy: "p", Step: "warn",
				}, {Time: at(200), Resource: "r000", Policy: "p", Step: "stop"},
			}},
		{"without a launch there is no age", aged("p", time.Minute, 0, true), "", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			trace := csvOf(rowsOf("#######"))
			if test.trace != "" {
				trace = launchedBefore(csvOf(rowsOf(test.trace)))
			}
			got := decided(t, trace, policies(t, test.policy))
			if diff := cmp.Diff(test.want, got, sameDollars); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnknownIsNotIdle checks that age ends nothing whose samples stopped, though it rested when
// they did.
func TestUnknownIsNotIdle(t *testing.T) {
	trace := launchedBefore(csvOf(rowsOf("...", "#############")))
	for busy, want := range map[bool][]string{false: nil, true: {"r000", "r001"}} {
		var ended []string
		for _, d := range decided(t, trace, policies(t, aged("p", 70*time.Minute, 0, busy))) {
			if d.Step == "stop" && !slices.Contains(ended, d.Resource) {
				ended = append(ended, d.Resource)
			}
		}
		if !slices.Equal(ended, want) {
			t.Errorf("with even_if_busy %v age ends %v, want %v", busy, ended, want)
		}
	}
}

// TestGangsAreJudgedTogether checks that a machine at rest is left alone while another of its run
// works, and that all go together.
func TestGangsAreJudgedTogether(t *testing.T) {
	tests := []struct {
		name, a, b, tags string
		want             int
	}{
		{"one works", "#.......", "########", "curfew:gang=run", 0},
		{"both rest", "#.......", "##......", "curfew:gang=run", 2},
		{"one is not measured", "#.......", "#..     ", "curfew:gang=run", 0},
		{"not one run", "#.......", "########", "team=vision", 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("resource,time,gpu_util,tags\n")
			for _, r := range rowsOf(test.a, test.b) {
				fmt.Fprintf(&b, "%s,%d,%g,%s\n", r.resource, r.at*60, r.util, test.tags)
			}
			acted := 0
			for _, d := range decided(t, b.String(), policies(t, rested("p", 4*time.Minute, 0))) {
				if d.Step == "stop" || d.Step == "terminate" {
					acted++
				}
			}
			if acted != test.want {
				t.Errorf("%d of them are ended, want %d", acted, test.want)
			}
		})
	}
}

// TestWhatTheTraceSays checks that a description decides, and a missing property is unknown, which
// never acts.
func TestWhatTheTraceSays(t *testing.T) {
	const policyText = `  - name: p
    select: {kind: instance, lifetime: ephemeral, purpose: experimentation}
    when: duty.lasting >= duration("1m")
    then: [{warn: {grace: 0s}}, {do: stop}]
`
	production := strings.Replace(policyText, "    when",
		"    where: resource.environment != \"production\"\n    when",
		1)
	tests := []struct {
		name, policy, header, row string
		released                  float64 // minutes
		note                      string
	}{
		{"nothing: an ephemeral instance for experimentation", policyText, "", "", 4, ""},
		{"another kind", policyText, ",kind", ",node", 0, ""},
		{"persistent", policyText, ",lifetime", ",persistent", 0, ""},
		{"persistent, by a policy that does not ask", rested("p", time.Minute, 0), ",lifetime", ",persistent", 0, ""},
		{"another purpose", policyText, ",purpose", ",inference", 0, ""},
		{"tags make it persistent", policyText, ",tags", ",curfew:lifetime=persistent", 0, ""},
		{"kept for good", policyText, ",tags", ",curfew:keep-until=never", 0, ""},
		{"kept for three minutes", policyText, ",tags", ",curfew:keep-until=1970-01-01T00:03:00Z", 2, ""},
		{
			"its environment is not known", production, "", "", 0,
			"p never acted. Its answer was unknown for 0.1 h on 1 resource (where: resource.environment is unknown: no tag " +
				"says it), false for 0 h",
		},
		{"its environment is known", production, ",tags", ",env=dev", 4, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("resource,time,gpu_util" + test.header + "\n")
			for i := range 5 {
				fmt.Fprintf(&b, "a,%d,0%s\n", i*60, test.row)
			}
			p := params(0)
			p.Baselines, p.Policies = false, policies(t, test.policy)
			r := replayed(t, b.String(), p)
			if got := r.Results[0].figures().released; got != test.released {
				t.Errorf("released %v min, want %v", got, test.released)
			}
			if noted := strings.HasPrefix(strings.Join(r.Notes, "\n"), test.note); !noted {
				t.Errorf("the notes are %q, want %q first", r.Notes, test.note)
			}
		})
	}
}

// TestVerbs checks that only verbs that end a resource release its time.
func TestVerbs(t *testing.T) {
	for do, released := range map[string]float64{
		"{do: stop}": 3, "{do: terminate}": 3, "{do: hibernate}": 3, "{do: suspend}": 3,
		"{do: notify}": 0, `{do: tag, tags: {idle: "yes"}}`: 0, "{do: checkpoint}": 0,
	} {
		p := params(0)
		p.Baselines = false
		p.Policies = policies(t,
			"  - name: p\n    when: duty.lasting >= duration(\"2m\")\n    then: [{warn: {grace: 0s}}, "+
				do+"]\n")
		if got := replayed(t, csvOf(rowsOf(".....")), p).Results[0].figures().released; got != released {
			t.Errorf("%s releases %v min, want %v", do, got, released)
		}
	}
}

// TestCaps: limits bind only with Caps, and then defer the excess.
func TestCaps(t *testing.T) {
	limited := func(limits string) *policy.Set {
		return policies(t,
			"  - name: p\n    when: duty.lasting >= duration(\"2m\")\n    then: [{warn: {grace: 0s}}, {do: "+
				"stop}]\n    limits: "+limits+"\n")
	}
	trace := csvOf(rowsOf(".....", ".....", ".....", "....."))
	price := 2 * money.USD
	for limits, released := range map[string]float64{
		`{per_hour: 4, share: "100%", dollars_per_hour: 100}`: 12,
		`{per_hour: 3, share: "100%", dollars_per_hour: 100}`: 9,
		`{per_hour: 4, share: "75%", dollars_per_hour: 100}`:  9,
		`{per_hour: 4, share: "100%", dollars_per_hour: 7}`:   9,
		`{per_hour: 4, share: "100%", dollars_per_hour: 8}`:   12,
	} {
		p := params(0)
		p.Baselines, p.Policies, p.Price, p.Caps = false, limited(limits), &price, true
		if got := replayed(t, trace, p).Results[0].figures().released; got != released {
			t.Errorf("with %s released %v min, want %v", limits, got, released)
		}
		p.Caps = false
		if got := replayed(t, trace, p).Results[0].figures().released; got != 12 {
			t.Errorf("with %s and no caps released %v min, want 12", limits, got)
		}
	}
	p := params(0)
	p.Policies, p.Caps = limited(`{per_hour: 4, share: "100%", dollars_per_hour: 1}`), true
	if got := replayed(t, trace, p).Results[0].figures().released; got != 12 {
		t.Errorf("without a price, where the limit in dollars counts nothing, released %v min, want 12", got)
	}
}

// TestWhatComesBackWarmsUp checks that a machine whose release ends with its samples, and which was
// launched again meanwhile, warms up although nothing is measured of it yet.
func TestWhatComesBackWarmsUp(t *testing.T) {
	set := parsed(t, "apiVersion: curfew.policy/v1\npolicies:\n  - name: p\n    when: duty.state == \"warming\" || "+
		"duty.state == \"idle\" && duty.lasting > duration(\"5m\")\n    then: [{warn: {grace: 0s}}, {do: stop, "+
		"even_if_busy: true}]\n")
	rows := "resource,time,gpu_util,mem_used_bytes,mem_total_bytes,launched\n"
	for _, minute := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 40, 41} {
		launched := "1969-12-31T00:00:00Z"
		if minute >= 15 {
			launched = "1970-01-01T00:15:00Z"
		}
		rows += fmt.Sprintf("m,%d,0,0,80000000000,%s\n", minute*60, launched)
	}
	p := params(time.Minute)
	p.Baselines, p.Policies, p.Every, p.MaxRoundGap, p.Thresholds.WarmUp = false, set, time.Minute, time.Hour, 15*
		time.Minute
	var warned []int
	for _, d := range sameAsProcesses(t, rows, p) {
		if d.Step == "warn" {
			warned = append(warned, int(d.Time.Unix()/60))
		}
	}
	if len(warned) < 2 || warned[0] != 6 || warned[1] != 20 {
		t.Errorf("warned at minutes %v, want 6, and 20 when its release ends", warned)
	}
}
