package backtest

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// decision is one release, when it was decided.
type decision struct {
	resource string
	at       time.Time
	wait     time.Duration
}

func decisions(t *testing.T, rows []row, restart time.Duration) []decision {
	t.Helper()
	tr := loaded(t, rows, restart)
	fleet := Fleet{Step: time.Minute, RestartCost: restart, Resources: tr.resources}
	var out []decision
	_, err := tr.follow(context.Background(), NewLearned(fleet), false, func(s Sample, wait time.Duration) {
		out = append(out, decision{tr.resources[s.Resource].Name, s.Time, wait})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLearnedSeesOnlyThePast cuts a trace at random times, and finds that no
// decision before the cut changed.
func TestLearnedSeesOnlyThePast(t *testing.T) {
	rows := rowsOf(day(15, 900, 3)...)
	for i := range rows { // machines come and go
		if n := int64(rows[i].resource[3] - '0'); n%3 == 0 {
			rows[i].at += 40 * n
		}
	}
	const restart = 7 * time.Minute
	all := decisions(t, rows, restart)
	rng := rand.New(rand.NewPCG(5, 5))
	for range 25 {
		cut := rng.Int64N(1000)
		past := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.at >= cut })
		if len(past) == 0 {
			continue
		}
		got := decisions(t, past, restart)
		want := slices.DeleteFunc(slices.Clone(all), func(d decision) bool { return d.at.Unix() >= cut*60 })
		if !slices.Equal(got, want) {
			t.Fatalf("cut at minute %d there are %d decisions, of the whole trace there are %d before", cut, len(got), len(want))
		}
	}
	if len(all) < 200 {
		t.Errorf("only %d decisions", len(all))
	}
}

// TestLearnedWithinAStep holds that a decision rests on other machines only as they
// were when the step began, because within it their samples are in no order.
func TestLearnedWithinAStep(t *testing.T) {
	const machines, minutes = 20, 600
	ps := day(machines, minutes, 11)
	// odds runs a day, turns the last step around for all machines but the last, and
	// returns the last one's odds in it.
	odds := func(turn bool) float64 {
		l := newLearned(Fleet{Step: time.Minute, RestartCost: 7 * time.Minute, Resources: make([]Resource, machines)})
		var ages [machines]int
		for at := range minutes {
			l.Begin(time.Unix(int64(at)*60, 0))
			for i, p := range ps {
				last := at == minutes-1
				s := Sample{Resource: i, Idle: p[at] == '.' != (last && turn && i < machines-1), Gap: at > 0 && p[at-1] == ' '}
				if last && i == machines-1 {
					s.Idle = true
				}
				if p[at] == ' ' {
					continue
				}
				if s.Gap || !s.Idle {
					ages[i] = 0
				}
				if s.Idle {
					s.Lasting = time.Duration(ages[i]) * time.Minute
					ages[i]++
				}
				l.Decide(s)
			}
		}
		h := &l.histories[machines-1]
		var x [features]float32
		l.describe(h, &x)
		return l.odds(h, h.age, &x)
	}
	if got, want := odds(true), odds(false); got != want {
		t.Errorf("what others did in the step changed the odds from %v to %v", want, got)
	}
}

// TestLearnedAgainstFixedWaits holds the learner, which has one day to learn in,
// against the best wait that hindsight finds for that day.
func TestLearnedAgainstFixedWaits(t *testing.T) {
	for restart, least := range map[time.Duration]float64{3 * time.Minute: 0.97, 6 * time.Minute: 0.98, 12 * time.Minute: 1.04} {
		r := replayed(t, csvOf(rowsOf(day(40, 1440, 9)...)), params(restart))
		learned, fixed := r.result(t, "learned"), r.result(t, "best-fixed")
		if got := learned.NetSavedHours / fixed.NetSavedHours; got < least {
			t.Errorf("at a restart cost of %s learned saves %.3f of what the best fixed wait does, want %v", restart, got, least)
		}
	}
}

// TestLearnedStartsWithBreakEven holds that before any outcome is known the wait is
// one restart cost, whatever the machine looks like.
func TestLearnedStartsWithBreakEven(t *testing.T) {
	for _, minutes := range []int{2, 5, 10, 60, 600} {
		l := newLearned(Fleet{Step: time.Minute, RestartCost: time.Duration(minutes) * time.Minute, Resources: make([]Resource, 1)})
		h := &l.histories[0]
		for h.age = 1; h.age < 1000; h.age++ {
			var x [features]float32
			l.describe(h, &x)
			lasting := h.age - 1
			if hold := l.odds(h, h.age, &x) > 1e-6; hold != (lasting < minutes) {
				t.Errorf("restart of %d min: after %d idle minutes hold is %v", minutes, lasting, hold)
			}
		}
	}
}

// TestLearnedCheapRestart lets go at once where a step repays the restart.
func TestLearnedCheapRestart(t *testing.T) {
	rows := rowsOf(day(5, 300, 2)...)
	for _, restart := range []time.Duration{0, 10 * time.Second, time.Minute} {
		tr := loaded(t, rows, restart)
		got, err := tr.follow(context.Background(), NewLearned(Fleet{Step: time.Minute, RestartCost: restart, Resources: tr.resources}), false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := tr.totals().oracle(tr.step, tr.restart); got.net(tr.restart) != want.net(tr.restart) {
			t.Errorf("at a restart cost of %s learned does %+v, the oracle %+v", restart, got, want)
		}
	}
}

// TestLearnedLongRestart learns where breaking even takes longer than is remembered
// of a stretch.
func TestLearnedLongRestart(t *testing.T) {
	for _, restart := range []time.Duration{time.Hour, 5 * time.Hour, 100 * time.Hour} {
		r := replayed(t, csvOf(rowsOf(day(20, 1440, 4)...)), params(restart))
		learned, hour := r.result(t, "learned"), r.result(t, "fixed-5m")
		if learned.NetSavedHours < hour.NetSavedHours {
			t.Errorf("at a restart cost of %s learned saves %.1f h, a wait of five minutes %.1f h", restart, learned.NetSavedHours, hour.NetSavedHours)
		}
	}
}
