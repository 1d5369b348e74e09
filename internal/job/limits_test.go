package job

import (
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
)

// TestMovingJobNeverExceedsItsDollars checks max_cost while a job moves between places that come and go,
// where two of its machines run at once, with keepers that are killed at any call and away for hours. By
// the seconds of its machines the job costs at most max_cost, and one rate for the time of the end.
func TestMovingJobNeverExceedsItsDollars(t *testing.T) {
	const limit = 8 * money.USD
	rate := func(cents int64) *money.Rate { r := money.Rate(cents) * money.USDPerUnit / 100; return &r }
	pairs, ended := 0, 0
	for seed := range 24 {
		w := newWorld(t, uint64(seed))
		w.crashRate, w.steps = 0.01, 100_000
		w.pools = []session.Pool{{Type: "g6.xlarge", Region: "us-east-1", Rate: rate(200)}}
		for z := range 3 {
			w.pools = append(w.pools, session.Pool{
				Type: "g6.xlarge", Region: "us-east-1", Zone: fmt.Sprint(z), Spot: true, Rate: rate(60 + int64(z)),
			})
		}
		w.up = func(p session.Pool, at time.Time) bool {
			return !p.Spot || at.Unix()/3600%3 == 2 && at.Unix()/600%4 != int64(p.Zone[0]-'0')
		}
		id := w.submit("resources: {gpus: L4}\ncapacity: auto\nduration: 10h\ndeadline: 11h\nmax_cost: 8\n" +
			"retries: {interruptions: 1000}\ncheckpoint: {dir: /ckpt, to: \"s3://b/c\", restart: 4m}\n")
		w.placer = &Placer{Sessions: sessionStore{w}, Launchers: map[string]session.Launcher{"sim": launcher{w}}}
		j := w.run(id, 1, func() {
			w.leaveOver()
			w.reconcile()
			if n := w.running(); n > 1 {
				pairs++
				if w.rng.Float64() < 0.1 { // no keeper is there for hours
					for range 6 * 60 * 4 {
						w.tick(10 * time.Second)
						w.leaveOver()
					}
				}
			}
		})
		total := money.Amount(0)
		for _, m := range w.machines {
			cost, err := m.Pool.Rate.For(int64(m.goneAt.Sub(m.LaunchedAt)/time.Second), 3600)
			if err != nil {
				t.Fatal(err)
			}
			total += cost
		}
		end, err := w.pools[0].Rate.For(int64((timeouts.Grace+w.saveTime+time.Minute)/time.Second), 3600)
		if err != nil {
			t.Fatal(err)
		}
		if total > limit+end {
			t.Errorf("seed %d: it cost %s, which is over %s: %s", seed, total.Exact(), (limit + end).Exact(), j.Why)
		}
		if total > limit-money.USD {
			ended++
		}
	}
	if pairs == 0 || ended == 0 {
		t.Errorf("two machines ran at once %d times, and %d jobs came to their limit", pairs, ended)
	}
}

// TestMovingJobNeverExceedsItsRuntime checks max_runtime in the same way: the seconds of all machines, two at once
// included, are at most max_runtime and the time of one end, also while no keeper is there.
func TestMovingJobNeverExceedsItsRuntime(t *testing.T) {
	const limit = 6 * time.Hour
	rate := func(cents int64) *money.Rate { r := money.Rate(cents) * money.USDPerUnit / 100; return &r }
	pairs, ended, used := 0, 0, 0
	for seed := range 24 {
		w := newWorld(t, uint64(seed))
		w.crashRate, w.steps = 0.01, 100_000
		w.pools = []session.Pool{{Type: "g6.xlarge", Region: "us-east-1", Rate: rate(200)}}
		for z := range 3 {
			w.pools = append(w.pools, session.Pool{
				Type: "g6.xlarge", Region: "us-east-1", Zone: fmt.Sprint(z), Spot: true, Rate: rate(60 + int64(z)),
			})
		}
		w.up = func(p session.Pool, at time.Time) bool {
			return !p.Spot || at.Unix()/3600%3 == 2 && at.Unix()/600%4 != int64(p.Zone[0]-'0')
		}
		id := w.submit("resources: {gpus: L4}\ncapacity: auto\nduration: 10h\nmax_runtime: 6h\ndeadline: 11h\n" +
			"retries: {interruptions: 1000}\ncheckpoint: {dir: /ckpt, to: \"s3://b/c\", restart: 4m}\n")
		w.placer = &Placer{Sessions: sessionStore{w}, Launchers: map[string]session.Launcher{"sim": launcher{w}}}
		j := w.run(id, 1, func() {
			w.leaveOver()
			w.reconcile()
			if n := w.running(); n > 1 {
				pairs++
				if w.rng.Float64() < 0.5 { // no keeper is there until it is over
					for range 6 * 60 * 7 {
						w.tick(10 * time.Second)
						w.leaveOver()
					}
				}
			}
		})
		ran, lost := time.Duration(0), 0
		for _, m := range w.machines {
			ran += m.goneAt.Sub(m.LaunchedAt)
			if m.outcome == nil {
				lost++
			}
		}
		// A keeper sees that a machine is gone, and what ran since, by its next look.
		if end := timeouts.Grace + w.saveTime + time.Minute; ran > limit+end {
			t.Errorf("seed %d: its machines ran for %s: %s", seed, ran, j.Why)
		}
		if ran > limit-5*time.Minute { // what was reserved is given back
			ended++
		}
		used += lost
	}
	if pairs == 0 || ended == 0 || used == 0 {
		t.Errorf("two machines ran at once %d times, %d jobs came to their limit, %d machines were lost", pairs, ended, used)
	}
}

// leaveOver takes away the machines of places without capacity, and those whose hosts have ended: they
// turn themselves off.
func (w *world) leaveOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.machines {
		if m.goneAt.IsZero() && (m.done || m.Pool.Spot && !w.up(m.Pool, w.now)) {
			m.goneAt = w.now
		}
	}
}
