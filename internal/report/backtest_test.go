package report

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// traceOf writes patterns, one a machine, as recorded usage: '.' is an idle minute and '#' a
// busy one. owned gives the machines teams and users.
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

// machines are patterns of machines with bursts of work.
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
	return backtest.Params{Format: usage.Format{Name: "trace.csv", Step: time.Minute}, RestartCost: restart, Baselines: true}
}

func rested(name string, lasting, grace time.Duration) string {
	return fmt.Sprintf("  - name: %s\n    when: duty.state in [\"idle\", \"held\"] && duty.lasting >= duration(\"%s\")\n    then: [{warn: {grace: %s}}, {do: terminate}]\n", name, lasting, grace)
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

func rendered(t testing.TB, r backtest.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := BacktestHTML(&b, view.NewBacktest(r)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPage(t *testing.T) {
	p := traceParams(3 * time.Minute)
	price := 12 * money.USD
	p.Price, p.Draw = &price, 40
	p.Policies = policies(t, rested("idle-machines", 5*time.Minute, 0))
	html := rendered(t, replayed(t, traceOf(true, machines(9, 600)...), p))
	for _, want := range []string{
		"“idle-machines” would have saved $", "of what foresight could", "What “idle-machines” would have released, and when",
		"What each rule would have done", "Whose resources “idle-machines” would have let go", "vision / ana",
		"A restart costs 3m of the resource", "A resource costs $12.00 an hour", "samples of 1m each", "Every warning is accepted at once",
		`role="img"`, `<g class="policy">`, `<g class="learned">`, `<g class="best-fixed">`, `<g class="oracle">`, "prefers-color-scheme: dark",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	// Every picture says what it shows or is hidden; nothing is fetched, nothing runs.
	for _, svg := range regexp.MustCompile(`<svg[^>]*>`).FindAllString(html, -1) {
		if !strings.Contains(svg, "aria-label=") && !strings.Contains(svg, `aria-hidden="true"`) {
			t.Errorf("a picture without a title: %s", svg)
		}
	}
	for _, bad := range []string{"http://", "https://", "<script", "src=", "@import", "url(", "ZgotmplZ", "NaN", "Inf", "%!"} {
		if strings.Contains(html, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

// TestPageWithoutMuch renders reports that lack a part.
func TestPageWithoutMuch(t *testing.T) {
	bare := func(change func(*backtest.Params), trace string) string {
		p := traceParams(3 * time.Minute)
		change(&p)
		return rendered(t, replayed(t, trace, p))
	}
	tests := []struct {
		name, html, want, not string
	}{
		{"only a policy", bare(func(p *backtest.Params) { p.Baselines = false; p.Policies = policies(t, rested("p", time.Minute, 0)) }, traceOf(false, "#......#")), "“p” would have saved", "<svg class=\"curve\""},
		{"only baselines", bare(func(*backtest.Params) {}, traceOf(false, "#.........#.......###.........")), "“learned” would have", "What “learned” would have released, and when"},
		{"no price", bare(func(*backtest.Params) {}, traceOf(false, "#.........#.......###.........")), "Without a price there are no dollars", "$0"},
		{"nothing idle", bare(func(p *backtest.Params) { p.Draw = 3 }, traceOf(false, "####")), "Nothing was idle", "NaN"},
		{"one sample", bare(func(p *backtest.Params) { p.Draw = 3 }, traceOf(false, ".")), "1 samples", "NaN"},
		{"a loss", bare(func(p *backtest.Params) { p.Baselines = false; p.Policies = policies(t, rested("p", 0, 0)) }, traceOf(false, "#.#.#.#")), "would have lost", "NaN"},
		{"names that are markup", bare(func(p *backtest.Params) { p.Draw = 3 }, strings.ReplaceAll(traceOf(false, "#...#"), "r000", "<b>&amp")), "&lt;b&gt;&amp;amp", "<b>"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if !strings.Contains(test.html, test.want) || strings.Contains(test.html, test.not) {
				t.Errorf("the page lacks %q or holds %q", test.want, test.not)
			}
		})
	}
	if err := BacktestHTML(&bytes.Buffer{}, view.Backtest{}); err == nil {
		t.Error("a report of nothing is rendered")
	}
}

// TestTicks holds that an axis has a few marks at round times.
func TestTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := time.Unix(rapid.Int64Range(0, 1e9).Draw(t, "from"), 0).UTC()
		length := time.Duration(rapid.Int64Range(300, 3e8).Draw(t, "length")) * time.Second
		got := ticks(from, from.Add(length))
		if len(got) < 2 || len(got) > 10 {
			t.Fatalf("%s has %d marks", length, len(got))
		}
		for i, m := range got {
			if m.At < 0 || m.At > 100 || i > 0 && m.At <= got[i-1].At {
				t.Fatalf("marks of %s from %s are %+v", length, from, got)
			}
		}
	})
}
