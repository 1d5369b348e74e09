package backtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/policy"
)

func tuned(t testingTB, trace string, p Params) (*policy.Set, TuneReport) {
	t.Helper()
	set, r, err := Tune(context.Background(), strings.NewReader(trace), p)
	if err != nil {
		t.Fatal(err)
	}
	return set, r
}

// typed writes patterns as machines of two types: of the first, rests are short; of the
// second, long.
func typed(short, long []string) string {
	var b strings.Builder
	b.WriteString("resource,time,gpu_util,type,purpose\n")
	for typ, ps := range map[string][]string{"g5": short, "p4d": long} {
		for _, r := range rowsOf(ps...) {
			fmt.Fprintf(&b, "%s-%s,%d,%g,%s,training\n", typ, r.resource, r.at*60, r.util, typ)
		}
	}
	return b.String()
}

func TestTune(t *testing.T) {
	short, long := make([]string, 4), make([]string, 4)
	for i := range short {
		short[i] = strings.Repeat("#...", 60)          // rests of 3 minutes
		long[i] = strings.Repeat("#"+dots(23), 10+i%2) // of 23
	}
	p := params(5 * time.Minute)
	set, r := tuned(t, typed(short, long), p)
	if len(r.Classes) != 2 || len(set.Policies) != 2 {
		t.Fatalf("learned %+v", r)
	}
	for _, c := range r.Classes {
		want := map[string]float64{"g5": 180, "p4d": 60}[c.Type] // never within the short rests; soon in the long ones
		if c.WaitSeconds != want || c.Basis != "class" {
			t.Errorf("%s waits %v s by its %s, want %v s", c.Type, c.WaitSeconds, c.Basis, want)
		}
	}
	text := string(set.YAML())
	for _, want := range []string{"tuned-instance-training-g5", "g5", "p4d", "training", "ephemeral", "grace"} {
		if !strings.Contains(text, want) {
			t.Errorf("the policies lack %q:\n%s", want, text)
		}
	}
	for _, pol := range set.Policies {
		if pol.Mode != policy.Observe || pol.Warn == nil || pol.Do.Verb != policy.Stop {
			t.Errorf("%s is in mode %q, warns %v and does %s", pol.Name, pol.Mode, pol.Warn, pol.Do.Verb)
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

func dots(n int) string { return strings.Repeat(".", n) }

// TestTuneFallsBack tests the basis of waits with little history.
func TestTuneFallsBack(t *testing.T) {
	many := strings.Repeat("#"+dots(9), 40)
	tests := []struct {
		name        string
		short, long []string
		want        map[string]string
	}{
		{"both known", []string{many}, []string{many}, map[string]string{"g5": "class", "p4d": "class"}},
		{"one new", []string{many}, []string{"#..#"}, map[string]string{"g5": "class", "p4d": "fleet"}},
		{
			"nothing known", []string{"#...#"}, []string{"#..#"},
			map[string]string{"g5": "break-even", "p4d": "break-even"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, r := tuned(t, typed(test.short, test.long), params(7*time.Minute))
			for _, c := range r.Classes {
				if c.Basis != test.want[c.Type] {
					t.Errorf("%s rests on its %s, want %s", c.Type, c.Basis, test.want[c.Type])
				}
				if c.Basis == "break-even" && c.WaitSeconds != 420 {
					t.Errorf("breaking even takes %v s", c.WaitSeconds)
				}
			}
		})
	}
}

// TestTunedPoliciesDoWhatWasLearned replays the policies and finds for each class the
// fixed wait that was learned for it.
func TestTunedPoliciesDoWhatWasLearned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := params(time.Duration(rapid.IntRange(0, 900).Draw(t, "restart")) * time.Second)
		ps := patterns().Draw(t, "patterns")
		for i := range ps {
			ps[i] = strings.Repeat(ps[i], 1+i)
		}
		trace := csvOf(rowsOf(ps...))
		set, r := tuned(t, trace, p)
		p.Policies, p.Baselines = set, false
		replay, err := Run(context.Background(), strings.NewReader(trace), p)
		if err != nil {
			t.Fatal(err)
		}
		tr := loaded(t, rowsOf(ps...), p.RestartCost)
		want := tr.totals().Fixed(int64(r.Classes[0].WaitSeconds*1e6), tr.step, tr.restart)
		if got := replay.Results[0]; got.Restarts != want.Restarts ||
			fmt.Sprintf("%.6f", got.ReleasedHours) != fmt.Sprintf("%.6f", hours(want.Released)) {
			t.Fatalf("a learned wait of %v s does %+v as a policy, %+v as a wait", r.Classes[0].WaitSeconds, got, want)
		}
	})
}

// TestTuneIsTestedOnTheFuture checks that the waits tested on a part of the trace were learned
// before it: no sample after the first half changes them.
func TestTuneIsTestedOnTheFuture(t *testing.T) {
	p := params(6 * time.Minute)
	test := func(second []string) float64 {
		ps := day(8, 720, 3)
		for i := range ps {
			ps[i] += second[i]
		}
		tr := loaded(t, rowsOf(ps...), p.RestartCost)
		from, to := tr.span()
		fold := func(at int64) int { return min(learn.Folds, int((at-from)/((to-from+learn.Folds-1)/learn.Folds))) }
		w := learn.Waits{Step: tr.step, Restart: tr.restart, Fleet: &learn.History{}}
		for _, track := range tr.tracks {
			track.idlePeriods(tr.step, func(s dated) { w.Fleet.Add(s.Period, fold(s.from), fold(s.known)) })
		}
		wait, _ := w.Wait(w.Fleet, learn.Folds/2)
		return span(wait).Seconds()
	}
	busy, quiet := make([]string, 8), make([]string, 8)
	for i := range busy {
		busy[i], quiet[i] = strings.Repeat("#", 720), strings.Repeat(".", 720)
	}
	if a, b := test(busy), test(quiet); a != b || a == 0 {
		t.Errorf("half way the wait is %v s before a busy half and %v s before a quiet one", a, b)
	}
}

// TestTuneOverlaps checks that a class that no selection can tell from another gets no policy of
// its own.
func TestTuneOverlaps(t *testing.T) {
	var b strings.Builder
	b.WriteString("resource,time,gpu_util,team\n")
	for _, r := range rowsOf("#....", "#....") {
		fmt.Fprintf(&b, "%s,%d,%g,%s\n", r.resource, r.at*60, r.util, map[string]string{
			"r000": "", "r001": "vision",
		}[r.resource])
	}
	set, r := tuned(t, b.String(), params(time.Minute))
	if len(set.Policies) != 1 || len(r.Classes) != 2 || r.Classes[0].Why == "" {
		t.Errorf("wrote %d policies for %+v", len(set.Policies), r.Classes)
	}
	_, _, err := Tune(context.Background(), strings.NewReader("resource,time,gpu_util,lifetime\na,0,0,persistent\n"),
		params(time.Minute))
	if err == nil || !strings.Contains(err.Error(), "persistent") {
		t.Errorf("of persistent resources: %v", err)
	}
}

// TestTuneBeatsBreakEven checks that out of sample learning pays where there is something to learn.
func TestTuneBeatsBreakEven(t *testing.T) {
	_, r := tuned(t, csvOf(rowsOf(day(40, 1440, 9)...)), params(12*time.Minute))
	if r.Tested.NetSavedHours <= r.BreakEven.NetSavedHours ||
		r.Tested.NetSavedHours > r.PerfectForesight.NetSavedHours {
		t.Errorf("learned %.1f h, breaking even %.1f h, the oracle %.1f h", r.Tested.NetSavedHours,
			r.BreakEven.NetSavedHours, r.PerfectForesight.NetSavedHours)
	}
}
