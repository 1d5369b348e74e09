package backtest

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
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
	fleet := learn.Fleet{Step: time.Minute, RestartCost: restart, Resources: tr.resources}
	var out []decision
	_, err := tr.follow(context.Background(), learn.NewLearned(fleet), false,
		func(s learn.Sample, wait time.Duration) {
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
			t.Fatalf("cut at minute %d there are %d decisions, of the whole trace there are %d before", cut, len(got),
				len(want))
		}
	}
	if len(all) < 200 {
		t.Errorf("only %d decisions", len(all))
	}
}

// TestLearnedAgainstFixedWaits compares the learner, which has one day to learn in, with the best
// wait that hindsight finds for that day.
func TestLearnedAgainstFixedWaits(t *testing.T) {
	for restart, least := range map[time.Duration]float64{
		3 * time.Minute: 0.97, 6 * time.Minute: 0.98, 12 * time.Minute: 1.04,
	} {
		r := replayed(t, csvOf(rowsOf(day(40, 1440, 9)...)), params(restart))
		learned, fixed := r.result(t, "learned"), r.result(t, "best-fixed")
		if got := learned.NetSavedHours / fixed.NetSavedHours; got < least {
			t.Errorf("at a restart cost of %s learned saves %.3f of what the best fixed wait does, want %v", restart,
				got,
				least)
		}
	}
}

// TestLearnedCheapRestart releases at once where a step repays the restart.
func TestLearnedCheapRestart(t *testing.T) {
	rows := rowsOf(day(5, 300, 2)...)
	for _, restart := range []time.Duration{0, 10 * time.Second, time.Minute} {
		tr := loaded(t, rows, restart)
		got, err := tr.follow(context.Background(),
			learn.NewLearned(learn.Fleet{Step: time.Minute, RestartCost: restart, Resources: tr.resources}), false,
			nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := tr.totals().PerfectForesight(tr.step, tr.restart); got.Net(tr.restart) != want.Net(tr.restart) {
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
			t.Errorf("at a restart cost of %s learned saves %.1f h, a wait of five minutes %.1f h", restart,
				learned.NetSavedHours, hour.NetSavedHours)
		}
	}
}
