package report

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/report/chart/charttest"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// traceOf writes patterns, one per machine, as recorded usage: '.' is an idle minute and '#' a busy
// one. With owned the machines have teams and users.
func traceOf(owned bool, patterns ...string) string {
	var b strings.Builder
	b.WriteString("resource,time,gpu_util,team,user\n")
	for i, p := range patterns {
		team, user := "", ""
		if owned {
			team, user = []string{"vision", "speech", ""}[i%3], []string{"ana", "", ""}[i%3]
		}
		for at, c := range []byte(p) {
			fmt.Fprintf(&b, "r%03d,%d,%d,%s,%s\n", i, at*60, map[byte]int{'.': 0, '#': 50}[c], team, user)
		}
	}
	return b.String()
}

// machines returns patterns of machines with bursts of work.
func machines(n, minutes int) []string {
	rng := rand.New(rand.NewPCG(3, 1))
	out := make([]string, n)
	for i := range out {
		for len(out[i]) < minutes {
			out[i] += strings.Repeat("#", 1+rng.IntN(9)) + strings.Repeat(".", 1+rng.IntN(60))
		}
		out[i] = out[i][:minutes]
	}
	return out
}

func traceParams(restart time.Duration) backtest.Params {
	return backtest.Params{
		Format: usage.Format{Name: "trace.csv", Step: time.Minute}, RestartCost: restart, Baselines: true,
	}
}

func rested(name string, lasting, grace time.Duration) string {
	return fmt.Sprintf("  - name: %s\n    when: duty.state in [\"idle\", \"held\"] && duty.lasting >= "+
		"duration(\"%s\")\n    then: [{warn: {grace: %s}}, {do: terminate}]\n", name, lasting, grace)
}

func policies(t testing.TB, texts ...string) *policy.Set {
	t.Helper()
	set, err := policy.Parse("p.yaml", []byte("apiVersion: curfew.policy/v1\npolicies:\n"+strings.Join(texts, "")))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func replayed(t testing.TB, trace string, p backtest.Params) backtest.Report {
	t.Helper()
	r, err := backtest.Run(context.Background(), strings.NewReader(trace), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBacktest checks that the headline states the decision with its dollars, and that pictures and
// tables exist.
func TestBacktest(t *testing.T) {
	p := traceParams(3 * time.Minute)
	price := 12 * money.USD
	p.Price, p.Draw = &price, 40
	p.Policies = policies(t, rested("idle-machines", 5*time.Minute, 0))
	r := replayed(t, traceOf(true, machines(9, 600)...), p)
	html := strings.ReplaceAll(rendered(t, r), "\u00a0", " ")
	want := r.Results[0]
	for _, text := range []string{
		fmt.Sprintf("idle-machines would have released %s of 90 machine-hours: %s saved, %d restarts",
			plain.Share(want.ReleasedHours/want.ResourceHours, 0), want.SavedUSD, want.Restarts),
		"When idle-machines would have released resources", "Savings against restarts", "Savings by team and user",
		"vision / ana", "unallocated", "perfect foresight",
		"A restart costs 3m of the resource", "A resource costs $12.00 an hour", "Every warning is accepted at once",
		"curfew next",
	} {
		if !strings.Contains(html, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	for _, bad := range []string{"https://", "<script", "src=", "@import", "url(", "ZgotmplZ", "NaN", "Inf", "%!"} {
		if strings.Contains(html, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	doc := view.NewBacktest(r)
	for name, svg := range map[string]string{
		"timeline": timelineChart(doc.Timeline), "savings": savingsChart(&doc), "owners": ownersChart(&doc, want.Name),
	} {
		t.Run(name, func(t *testing.T) { charttest.Check(t, svg) })
	}
}

// TestBacktestLeadsWithBestPolicy checks that headline, pictures and timeline show the policy that
// saves most, at any position, and that policies without effect are folded.
func TestBacktestLeadsWithBestPolicy(t *testing.T) {
	slow, quick, never := rested("slow", 40*time.Minute, 0), rested("quick", 5*time.Minute, 0), rested("never",
		1000*time.Hour, 0)
	for _, order := range [][]string{{never, slow, quick}, {quick, never, slow}, {slow, quick, never}} {
		p := traceParams(time.Minute)
		p.Draw, p.Policies = 40, policies(t, order...)
		r := replayed(t, traceOf(true, machines(9, 600)...), p)
		if r.Timeline == nil || r.Timeline.Rule != "quick" {
			t.Errorf("the timeline is not of quick: %+v", r.Timeline)
		}
		page := rendered(t, r)
		for _, text := range []string{
			"quick would have released", "No other of the 3 policies saves more", "When quick would have released",
			"<details class=\"folded\"><summary>Where never did nothing",
		} {
			if !strings.Contains(page, text) {
				t.Errorf("the page lacks %q", text)
			}
		}
	}
}

func rendered(t testing.TB, r backtest.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := Backtest(view.NewBacktest(r), []string{"curfew next"}).HTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestBacktestWithMissingParts shows replays with missing parts: a zero says why.
func TestBacktestWithMissingParts(t *testing.T) {
	bare := func(change func(*backtest.Params), patterns ...string) view.Backtest {
		p := traceParams(3 * time.Minute)
		p.Draw = 3
		change(&p)
		return view.NewBacktest(replayed(t, traceOf(false, patterns...), p))
	}
	alone := func(lasting time.Duration) func(*backtest.Params) {
		return func(p *backtest.Params) { p.Baselines, p.Policies = false, policies(t, rested("p", lasting, 0)) }
	}
	for _, test := range []struct {
		name        string
		doc         view.Backtest
		title, note string
	}{
		{
			"only a policy", bare(alone(time.Minute), "#......#"),
			"p would have released 62% of 0.1 machine-hours: 0 machine-hours saved, 1 restart", "have no price",
		},
		{
			"only baselines", bare(func(*backtest.Params) {}, "#.........#.......###........."),
			"learned would have released 73% of 0.5 machine-hours", "Dollars are unknown",
		},
		{
			"nothing idle", bare(func(*backtest.Params) {}, "####"),
			"Nothing to release: none of 0.1 machine-hours was idle",
			"0% GPU",
		},
		{
			"never due", bare(alone(time.Hour), "#......"), "p would have released nothing of 0.1 machine-hours idle",
			"p never acted",
		},
		{
			"a loss", bare(alone(0), "#.#.#.#"),
			"p would have released 43% of 0.1 machine-hours: 0.1 machine-hours lost, 3 restarts", "accepted at once",
		},
		{"nothing replayed", view.NewBacktest(backtest.Report{}), "Nothing was replayed", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := Backtest(test.doc, nil)
			if !strings.HasPrefix(s.Title, test.title) {
				t.Errorf("the headline is %q, want %q", s.Title, test.title)
			}
			if all := strings.Join(s.Assumptions, "\n"); !strings.Contains(all, test.note) {
				t.Errorf("the assumptions lack %q:\n%s", test.note, all)
			}
			var b bytes.Buffer
			if err := s.HTML(&b); err != nil || strings.Contains(b.String(), "NaN") {
				t.Errorf("%v\n%s", err, b.String())
			}
		})
	}
}
