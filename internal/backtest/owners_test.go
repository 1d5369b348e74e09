package backtest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

// owned is a trace of machines of teams and users.
func owned(patterns ...string) string {
	var b strings.Builder
	b.WriteString("resource,time,gpu_util,team,user\n")
	for _, r := range rowsOf(patterns...) {
		n := int(r.resource[3] - '0')
		fmt.Fprintf(&b, "%s,%d,%g,%s,%s\n", r.resource, r.at*60, r.util, []string{"vision", "speech", ""}[n%3],
			[]string{"ana", "", ""}[n%3])
	}
	return b.String()
}

func TestByOwner(t *testing.T) {
	p := params(time.Minute)
	price := 60 * money.USD
	p.Price = &price
	p.Policies = policies(t, rested("p", time.Minute, 0))
	r := replayed(t, owned("#...#", "#.....", "##", "#....#"), p)
	var got []Owned
	for _, o := range r.ByOwner {
		if o.Rule == "p" {
			got = append(got, o)
		}
	}
	hour := func(minutes float64) float64 { return minutes / 60 }
	want := []Owned{
		{
			Rule: "p", Team: "speech", Resources: 1, ResourceHours: hour(6),
			IdleHours: hour(5), ReleasedHours: hour(4),
			NetSavedHours: hour(4), CostUSD: money.Known(6 * money.USD), SavedUSD: money.Known(4 * money.USD),
		},
		{
			Rule: "p", Team: "vision", User: "ana", Resources: 2, ResourceHours: hour(11), IdleHours: hour(7),
			ReleasedHours: hour(5), Restarts: 2, NetSavedHours: hour(3), CostUSD: money.Known(11 * money.USD),
			SavedUSD: money.Known(3 * money.USD),
		},
		{
			Rule: "p", Resources: 1, ResourceHours: hour(2), CostUSD: money.Known(2 * money.USD),
			SavedUSD: money.Known(0),
		},
	}
	if fmt.Sprint(flat(got)) != fmt.Sprint(flat(want)) {
		t.Errorf("by owner\n%+v, want\n%+v", flat(got), flat(want))
	}
	if r := replayed(t, csvOf(rowsOf("#...#")), p); r.ByOwner != nil {
		t.Errorf("a trace without owners has %+v", r.ByOwner)
	}
}

func flat(list []Owned) (out []string) {
	for _, o := range list {
		out = append(out, fmt.Sprintf("%s %s/%s %d %.4f %.4f %.4f %d %.4f %s %s", o.Rule, o.Team, o.User, o.Resources,
			o.ResourceHours, o.IdleHours,
			o.ReleasedHours, o.Restarts, o.NetSavedHours, o.CostUSD, o.SavedUSD))
	}
	return out
}

// TestOwnersAddUp checks that owners divide a result, whatever the rule.
func TestOwnersAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := params(2 * time.Minute)
		p.Policies = policies(t, rested("p", 2*time.Minute, 0))
		r, err := Run(t.Context(), strings.NewReader(owned(patterns().Draw(t, "patterns")...)), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"p", "learned"} {
			var net, all float64
			var restarts int64
			rows := 0
			for _, o := range r.ByOwner {
				if o.Rule == name {
					rows++
					net, all, restarts = net+o.NetSavedHours, all+o.ResourceHours, restarts+o.Restarts
				}
			}
			for _, res := range r.Results {
				if res.Name == name && rows > 0 &&
					(fmt.Sprintf("%.6f %.6f", net, all) != fmt.Sprintf("%.6f %.6f",
						res.NetSavedHours, res.ResourceHours) ||
						restarts != res.Restarts) {
					t.Fatalf("the owners' %s add up to %v h of %v h and %d restarts, the result is %+v",
						name, net, all, restarts,
						res)
				}
			}
		}
	})
}

func TestTimeline(t *testing.T) {
	p := params(time.Minute)
	p.Draw, p.Policies = 2, policies(t, rested("p", 2*time.Minute, 0))
	r := replayed(t, csvOf(rowsOf("##....#", "##  .....", "#.#")), p)
	spell := func(d Drawn) string {
		var b strings.Builder
		for _, s := range d.Spans {
			fmt.Fprintf(&b, "%s %d-%d ", s.State, s.From.Unix(), s.To.Unix())
		}
		return strings.TrimSpace(b.String())
	}
	tl := r.Timeline
	if tl == nil || tl.Rule != "p" || tl.More != 1 || len(tl.Resources) != 2 {
		t.Fatalf("the timeline is %+v", tl)
	}
	// Drawn to the 480th part of nine minutes, 1.125 s.
	for i, want := range []string{
		"r001 busy 0-120 unknown 120-240 idle 240-360 released 360-540",
		"r000 busy 0-120 idle 120-240 released 240-360 busy 360-420",
	} {
		got := tl.Resources[i].Resource + " " + spell(tl.Resources[i])
		if !roughly(got, want) {
			t.Errorf("drawn %q, want %q", got, want)
		}
	}
	p.Draw = 0
	if r := replayed(t, csvOf(rowsOf("##....#")), p); r.Timeline != nil {
		t.Error("a timeline that was not asked for")
	}
}

var digits = regexp.MustCompile(`\d+`)

// roughly compares texts whose numbers may differ by two.
func roughly(got, want string) bool {
	g, w := digits.FindAllString(got, -1), digits.FindAllString(want, -1)
	if len(g) != len(w) || digits.ReplaceAllString(got, "#") != digits.ReplaceAllString(want, "#") {
		return false
	}
	for i := range g {
		if d := mustFloat(g[i]) - mustFloat(w[i]); d < -2 || d > 2 {
			return false
		}
	}
	return true
}

// TestTimelineIsWhole: spans are in order, do not overlap, stay within bounds, and add up to the
// sampled and released time as well as their size allows.
func TestTimelineIsWhole(t *testing.T) {
	set := policies(t, rested("p", 90*time.Second, 0), aged("a", 7*time.Minute, 0, true))
	rapid.Check(t, func(t *rapid.T) {
		p := params(time.Minute)
		p.Draw = rapid.IntRange(1, 60).Draw(t, "draw")
		p.Baselines = false
		p.Policies = set
		if rapid.Bool().Draw(t, "by age") {
			p.Policies = policies(t, aged("a", 7*time.Minute, 0, true))
		}
		ps := patterns().Draw(t, "patterns")
		r, err := Run(t.Context(), strings.NewReader(csvOf(rowsOf(ps...))), p)
		if err != nil {
			t.Fatal(err)
		}
		released := 0.0
		for _, d := range r.Timeline.Resources {
			at := r.Timeline.From
			for _, s := range d.Spans {
				if s.From.Before(at) || !s.To.After(s.From) || s.To.After(r.Timeline.To) {
					t.Fatalf("%s holds from %s to %s, after %s", s.State, s.From, s.To, at)
				}
				if at = s.To; s.State == "released" {
					released += s.To.Sub(s.From).Hours()
				}
			}
			if len(d.Spans) > drawnParts {
				t.Fatalf("%d spans", len(d.Spans))
			}
		}
		slack := r.Timeline.ResolutionSeconds / 3600 * float64(20*len(ps))
		if best := r.Headline().Name; r.Timeline.Rule != best {
			t.Fatalf("%s is drawn, and the headline is of %s", r.Timeline.Rule, best)
		}
		if want := r.Named(r.Timeline.Rule).ReleasedHours; p.Draw >= len(ps) &&
			(released > want+slack || released < want-slack) {
			t.Fatalf("drawn as released %.4f h, were %.4f h", released, want)
		}
	})
}
