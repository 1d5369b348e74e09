package backtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/usage"
)

// testingTB is the common part of a test, a benchmark and a property.
type testingTB interface {
	Helper()
	Fatal(args ...any)
}

const minute = int64(time.Minute / time.Microsecond)

// row is one row of a recorded trace; times are in steps of a minute.
type row struct {
	resource, gpu string
	at            int64
	util          float64
}

// csvOf writes rows as recorded usage.
func csvOf(rows []row) string {
	var b strings.Builder
	b.WriteString("resource,gpu,time,gpu_util\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "%s,%s,%d,%g\n", r.resource, r.gpu, r.at*60, r.util)
	}
	return b.String()
}

// rowsOf reads patterns, one a resource: '.' is an idle minute, '#' a busy one and
// ' ' one that was not sampled.
func rowsOf(patterns ...string) []row {
	var rows []row
	for i, p := range patterns {
		for at, c := range []byte(p) {
			if c != ' ' {
				rows = append(rows, row{
					resource: fmt.Sprintf("r%03d", i), at: int64(at), util: map[byte]float64{'.': 0, '#': 50}[c],
				})
			}
		}
	}
	return rows
}

func params(restart time.Duration) Params {
	return Params{
		Format:      usage.Format{Name: "trace.csv", Step: time.Minute},
		RestartCost: restart, Baselines: true,
	}
}

func loaded(t testingTB, rows []row, restart time.Duration) *trace {
	t.Helper()
	tr, err := load(context.Background(), strings.NewReader(csvOf(rows)), params(restart))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// patterns draws a few resources of changing habits.
func patterns() *rapid.Generator[[]string] {
	run := rapid.Custom(func(t *rapid.T) string {
		kind := rapid.SampledFrom([]string{".", "#", ".", "#", " "}).Draw(t, "kind")
		return strings.Repeat(kind, rapid.IntRange(1, 9).Draw(t, "length"))
	})
	one := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{
			".", "#",
		}).Draw(t, "first") + strings.Join(rapid.SliceOfN(run, 1, 12).Draw(t, "runs"), "")
	})
	return rapid.SliceOfN(one, 1, 5)
}

// day is a longer trace of machines with bursts of work, for learning.
func day(machines, minutes int, seed uint64) []string {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]string, machines)
	for i := range out {
		var b strings.Builder
		chatty := rng.IntN(2) == 0
		for b.Len() < minutes {
			for range 1 + rng.IntN(8) { // a burst
				b.WriteString(strings.Repeat("#", 1+rng.IntN(4)))
				b.WriteString(strings.Repeat(".", 1+rng.IntN(3)))
			}
			quiet := 20 + rng.IntN(200)
			if chatty {
				quiet = 1 + rng.IntN(12)
			}
			b.WriteString(strings.Repeat(".", quiet))
			if rng.IntN(20) == 0 {
				b.WriteString("  ")
			}
		}
		out[i] = b.String()[:minutes]
	}
	return out
}

// idles returns the idle periods of a pattern, by looking at every sample.
func idles(pattern string) []learn.Period {
	var out []learn.Period
	var k int64
	pattern = strings.TrimRight(pattern, " ")
	for _, c := range []byte(pattern + " ") {
		switch {
		case c == '.':
			k++
		case k > 0:
			out = append(out, learn.Period{Samples: k, Busy: c == '#'})
			k = 0
		}
	}
	return out
}

func TestIdlePeriods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := patterns().Draw(t, "patterns")
		tr := loaded(t, rowsOf(ps...), time.Minute)
		for i, p := range ps {
			var got []learn.Period
			tr.tracks[i].idlePeriods(minute, func(s dated) { got = append(got, s.Period) })
			if want := idles(p); !slices.Equal(got, want) {
				t.Fatalf("idle periods of %q are %v, want %v", p, got, want)
			}
		}
	})
}

// TestPerfectForesightIsOptimal tries every point of release in every idle period.
func TestPerfectForesightIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := patterns().Draw(t, "patterns")
		restart := time.Duration(rapid.IntRange(0, 600).Draw(t, "restart")) * time.Second
		tr := loaded(t, rowsOf(ps...), restart)
		var want int64
		for _, p := range ps {
			for _, s := range idles(p) {
				var best int64
				for point := range s.Samples {
					net := (s.Samples - point) * minute
					if s.Busy {
						net -= micros(restart)
					}
					best = max(best, net)
				}
				want += best
			}
		}
		if got := tr.totals().PerfectForesight(tr.step, tr.restart).Net(tr.restart); got != want {
			t.Fatalf("the oracle saves %s, the best choice in every stretch %s", span(got), span(want))
		}
	})
}

func TestBestFixedIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := patterns().Draw(t, "patterns")
		restart := time.Duration(rapid.IntRange(0, 600).Draw(t, "restart")) * time.Second
		sum := loaded(t, rowsOf(ps...), restart).totals()
		best, at := int64(-1), int64(0)
		for k := range int64(121) {
			if net := sum.Fixed(k*minute, minute, micros(restart)).Net(micros(restart)); net > best {
				best, at = net, k*minute
			}
		}
		wait, got := sum.BestFixed(minute, micros(restart))
		if got.Net(micros(restart)) != best {
			t.Fatalf("best-fixed waits %s and saves %s, a wait of %s saves %s", span(wait),
				span(got.Net(micros(restart))),
				span(at), span(best))
		}
	})
}

// patient releases after a fixed wait, as a policy with one threshold does.
type patient struct{ wait time.Duration }

func (patient) Begin(time.Time) {}

func (p patient) Decide(s learn.Sample) time.Duration { return p.wait - s.Lasting }

// whimsical releases at random.
type whimsical struct{ rng *rand.Rand }

func (whimsical) Begin(time.Time) {}

func (w whimsical) Decide(learn.Sample) time.Duration {
	return time.Duration(w.rng.IntN(600)) * time.Second
}

func TestDeciderOfAFixedWaitIsTheBaseline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := patterns().Draw(t, "patterns")
		wait := time.Duration(rapid.IntRange(0, 600).Draw(t, "wait")) * time.Second
		tr := loaded(t, rowsOf(ps...), 90*time.Second)
		got, err := tr.follow(context.Background(), patient{wait}, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := tr.totals().Fixed(micros(wait), tr.step, tr.restart); got.Tally != want {
			t.Fatalf("sample by sample a wait of %s does %+v, over stretches %+v", wait, got, want)
		}
	})
}

func TestNothingBeatsPerfectForesight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := patterns().Draw(t, "patterns")
		restart := time.Duration(rapid.IntRange(0, 600).Draw(t, "restart")) * time.Second
		tr := loaded(t, rowsOf(ps...), restart)
		sum := tr.totals()
		oracle := sum.PerfectForesight(tr.step, tr.restart).Net(tr.restart)
		fleet := learn.Fleet{Step: time.Minute, RestartCost: restart, Resources: tr.resources}
		seed := rapid.Uint64().Draw(t, "seed")
		for name, d := range map[string]learn.Decider{
			"learned": learn.NewLearned(fleet), "whimsical": whimsical{rand.New(rand.NewPCG(seed, 2))},
		} {
			got, err := tr.follow(context.Background(), d, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			if net := got.Net(tr.restart); net > oracle {
				t.Fatalf("%s saves %s, the oracle %s", name, span(net), span(oracle))
			}
			if got.Released > sum.idle*tr.step {
				t.Fatalf("%s releases %s of %s idle", name, span(got.Released), span(sum.idle*tr.step))
			}
		}
	})
}

// TestDeadman compares with a walk in seconds.
func TestDeadman(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := patterns().Draw(t, "patterns")[0]
		after := int64(rapid.IntRange(1, 900).Draw(t, "after"))
		tr := loaded(t, rowsOf(p), time.Minute)
		var got learn.Tally
		tr.tracks[0].deadman(after*1_000_000, tr.step, tr.restart, &got)
		var want learn.Tally
		ends := after
		for s := range int64(len(p) * 60) {
			c := p[s/60]
			if s%60 == 0 && c == '#' && s >= ends {
				want.Restarts++
				if s-ends <= 60 {
					want.Interrupted++
				}
				ends = s + after
			}
			if s >= ends && c != ' ' {
				want.Released += 1_000_000
			}
		}
		if got != want {
			t.Fatalf("a switch after %d s does %+v on %q, want %+v", after, got, p, want)
		}
	})
}

// TestGPUsMakeAResource compares the merged track with a look at every minute.
func TestGPUsMakeAResource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := patterns().Draw(t, "GPUs")
		var rows []row
		longest := 0
		for i, p := range ps {
			for _, r := range rowsOf(p) {
				r.gpu = fmt.Sprint(i)
				rows = append(rows, r)
			}
			longest = max(longest, len(p))
		}
		want := []byte(strings.Repeat(" ", longest))
		for at := range want {
			idle, busy, unknown := false, false, false
			for _, p := range ps { // every GPU is sampled from the first minute on
				switch {
				case at >= len(p) || p[at] == ' ':
					unknown = true
				case p[at] == '#':
					busy = true
				default:
					idle = true
				}
			}
			switch {
			case busy:
				want[at] = '#'
			case idle && !unknown:
				want[at] = '.'
			}
		}
		order := rapid.Permutation(rows).Draw(t, "order")
		if rapid.Bool().Draw(t, "by time") {
			slices.SortStableFunc(order, func(a, b row) int { return int(a.at - b.at) })
		}
		got := []byte(strings.Repeat(" ", longest))
		for c := loaded(t, order, time.Minute).tracks[0].cursor(minute); c.advance(); {
			for i := range c.run.count {
				got[c.run.start/minute+i] = map[bool]byte{true: '.', false: '#'}[c.run.idle]
			}
		}
		if string(got) != string(want) {
			t.Fatalf("GPUs %q make %q, want %q", ps, got, want)
		}
	})
}
