package job

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
)

const gpu = "resources: {gpus: L4}\ncapacity: on-demand\n"

// TestInterruptedJobGoesOnFromItsNewestCheckpoint checks the whole life with machines that are taken
// away: each attempt starts where the one before was saved, and the job ends with all steps.
func TestInterruptedJobGoesOnFromItsNewestCheckpoint(t *testing.T) {
	w := newWorld(t, 1)
	w.steps = 90
	id := w.submit(gpu)
	last := w.now
	j := w.run(id, 1, func() {
		if w.now.Sub(last) > 25*time.Minute && len(w.jobs[id].Attempts) < 4 {
			last = w.now
			w.interrupt()
		}
	})
	if j.State != Succeeded || len(j.Attempts) != 4 {
		t.Fatalf("%s after %d attempts: %s", j.State, len(j.Attempts), j.Why)
	}
	saved := int64(0)
	for _, a := range j.Attempts {
		if from := a.Start.Step; from == nil && saved > 0 || from != nil && *from != saved {
			t.Errorf("attempt %d starts from %v, and %d was saved", a.Number, from, saved)
		}
		if a.Saved.Step != nil {
			saved = *a.Saved.Step
		}
	}
	if n, cost := j.Interruptions(); n != 3 || cost <= 0 {
		t.Errorf("%d interruptions cost %s", n, cost)
	}
	checkMoney(t, w, j)
}

// checkMoney recomputes the dollars of a job from the machines' own seconds.
func checkMoney(t *testing.T, w *world, j Job) {
	t.Helper()
	var total money.Amount
	for _, a := range j.Attempts {
		if a.Useful+a.Repeated+a.Waiting != a.Cost || a.Useful < 0 || a.Repeated < 0 || a.Waiting < 0 {
			t.Errorf("attempt %d costs %s: %s useful, %s repeated, %s waiting", a.Number, a.Cost.Exact(), a.Useful.Exact(),
				a.Repeated.Exact(), a.Waiting.Exact())
		}
		total += a.Cost
	}
	var machines money.Amount
	for _, m := range w.machines {
		cost, err := m.Pool.Rate.For(int64(m.goneAt.Sub(m.LaunchedAt)/time.Second), 3600)
		if err != nil {
			t.Fatal(err)
		}
		machines += cost
	}
	// The keeper sees that a machine is gone by its next look.
	slack, _ := w.pools[0].Rate.For(int64(len(w.machines))*120, 3600)
	if total < machines || total > machines+slack {
		t.Errorf("the attempts cost %s, the machines %s", total.Exact(), machines.Exact())
	}
}

// TestKilledKeepersNeverLetTwoWrite kills keepers at any call, alone and in pairs, takes machines
// away, and hides some that go on working: a zombie. No earlier attempt's write is accepted after a
// later one claimed the work, no attempt has two machines, and nothing is left running.
func TestKilledKeepersNeverLetTwoWrite(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 15
	}
	zombies, refused := 0, 0
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, uint64(seed))
			w.crashRate = 0.03
			id := w.submit(gpu + "retries: {interruptions: 1000}\n")
			hidden := map[*machine]time.Time{}
			j := w.run(id, 1+seed%2, func() {
				switch x := w.rng.Float64(); {
				case x < 0.01:
					w.interrupt()
				case x < 0.015:
					for _, m := range w.machines {
						if m.goneAt.IsZero() && !m.hidden {
							m.hidden = true
							hidden[m] = w.now.Add(time.Duration(w.rng.IntN(3600)) * time.Second)
							zombies++
						}
					}
				}
				for m, back := range hidden {
					if m.hidden && (w.now.After(back) || w.jobs[id].State.IsFinal()) {
						m.hidden = false // listed again: reconciliation ends it
					}
				}
				w.reconcile()
			})
			if j.State != Succeeded || w.store.step < w.steps {
				t.Errorf("%s: %s; step %d of %d is saved", j.State, j.Why, w.store.step, w.steps)
			}
			for epoch, by := range w.store.writers {
				if len(by) > 1 {
					t.Errorf("epoch %d was written by %v", epoch, by)
				}
			}
			perSession := map[string]int{}
			for _, m := range w.machines {
				if perSession[m.Session]++; perSession[m.Session] > 1 {
					t.Errorf("session %s launched twice", m.Session)
				}
			}
			refused += w.store.refused
		})
	}
	if zombies == 0 || refused == 0 {
		t.Errorf("%d zombies had %d writes refused: the test does not reach what it is for", zombies, refused)
	}
}

// reconcile compares machines and records once a minute, as every keeper does.
func (w *world) reconcile() {
	if w.now.Second() != 0 {
		return
	}
	rate := w.crashRate
	w.crashRate = 0
	defer func() { w.crashRate = rate }()
	k := w.keeper()
	if err := k.Sessions.Reconcile(context.Background(), "sim"); err != nil {
		w.t.Fatal(err)
	}
}

// TestJobNeverExceedsItsDollars checks max_cost with machines that are taken away at random: what the
// machines cost, by their own seconds, is at most max_cost, and the rate for the time of the end.
func TestJobNeverExceedsItsDollars(t *testing.T) {
	for seed := range 30 {
		w := newWorld(t, uint64(seed))
		w.steps = 100_000
		id := w.submit(gpu + "max_cost: 5\nretries: {interruptions: 1000}\n")
		j := w.run(id, 1, func() {
			if w.rng.Float64() < 0.01 {
				w.interrupt()
			}
		})
		if j.State != Failed {
			t.Fatalf("%s: %s", j.State, j.Why)
		}
		var total money.Amount
		for _, m := range w.machines {
			cost, _ := m.Pool.Rate.For(int64(m.goneAt.Sub(m.LaunchedAt)/time.Second), 3600)
			total += cost
		}
		end := w.pools[0].Rate // for the grace, the last snapshot and the keeper's looks
		extra, _ := end.For(int64((timeouts.Grace+w.saveTime+time.Minute)/time.Second), 3600)
		if most := 5*money.USD + extra; total > most {
			t.Errorf("seed %d: it cost %s, which is over %s", seed, total.Exact(), most.Exact())
		}
		if total < 4*money.USD {
			t.Errorf("seed %d: it was stopped at %s already", seed, total.Exact())
		}
	}
}

// TestJobEndsByItsOtherBounds checks max_runtime, deadline and cancellation, without a keeper in the
// last moments too: the host ends by its lease.
func TestJobEndsByItsOtherBounds(t *testing.T) {
	for _, c := range []struct {
		name, text, why string
		state           State
		ran             time.Duration
		cancel          bool
	}{
		{"max_runtime", "max_runtime: 30m\n", "limit (max_runtime 30m is used up)", Failed, 30 * time.Minute, false},
		{"deadline", "deadline: 40m\n", "limit (its deadline was 2026-11-01 09:40 UTC)", Failed, 40 * time.Minute, false},
		{"cancel", "", "by ana", Canceled, 15 * time.Minute, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.steps = 100_000
			id := w.submit(gpu + c.text)
			j := w.run(id, 1, func() {
				if c.cancel && w.now.Sub(w.jobs[id].RequestedAt) == 15*time.Minute {
					if _, err := w.keeper().Cancel(t.Context(), id, "ana", false); err != nil {
						t.Fatal(err)
					}
				}
			})
			if j.State != c.state || j.Why != c.why {
				t.Errorf("%s: %s, want %s: %s", j.State, j.Why, c.state, c.why)
			}
			ran := j.Runtime()
			if ran < c.ran-2*time.Minute || ran > c.ran+timeouts.Grace+w.saveTime+time.Minute {
				t.Errorf("its machines ran for %s, want about %s", ran, c.ran)
			}
			if a := j.Attempts[0]; a.Saved.Step == nil || *a.Saved.Step == 0 || a.Lost > 2*w.saveTime {
				t.Errorf("it was not saved at its end: %+v", a)
			}
		})
	}
}

// TestRetriesGoByClass checks which ends are followed by another attempt.
func TestRetriesGoByClass(t *testing.T) {
	one := 1
	for _, c := range []struct {
		class    session.Class
		code     *int
		retries  string
		attempts int
		state    State
	}{
		{session.OwnError, &one, "", 1, Failed},
		{session.OwnError, &one, "retries: {errors: 2}\n", 3, Failed},
		{session.OutOfMemory, nil, "", 1, Failed},
		{session.GPUMemory, &one, "", 1, Failed},
		{session.DiskFull, &one, "", 1, Failed},
		{session.Stalled, nil, "", 1, Failed},
		{session.NoArtifacts, nil, "", 1, Failed},
		{session.Interrupted, nil, "retries: {interruptions: 3}\n", 4, Failed},
		{session.GPUFault, &one, "retries: {interruptions: 2}\n", 3, Failed},
		{session.Rendezvous, &one, "", 3, Failed},
	} {
		t.Run(string(c.class)+c.retries, func(t *testing.T) {
			w := newWorld(t, 4)
			w.fail = func(_ int, step int64) *session.Outcome {
				if step < 5 {
					return nil
				}
				return &session.Outcome{Class: c.class, ExitCode: c.code, Evidence: "seen", At: w.now}
			}
			j := w.run(w.submit(gpu+c.retries), 1, nil)
			if j.State != c.state || len(j.Attempts) != c.attempts {
				t.Errorf("%s after %d attempts, want %s after %d: %s", j.State, len(j.Attempts), c.state, c.attempts, j.Why)
			}
			for _, a := range j.Attempts {
				if a.EndedBy != c.class {
					t.Errorf("attempt %d ended by %s", a.Number, a.EndedBy)
				}
			}
		})
	}
}

// TestJobWaitsForCapacity checks that a lack of machines is waited out, and said.
func TestJobWaitsForCapacity(t *testing.T) {
	w := newWorld(t, 5)
	opens := w.now.Add(time.Hour)
	w.up = func(_ session.Pool, at time.Time) bool { return !at.Before(opens) }
	id := w.submit(gpu)
	waited := false
	j := w.run(id, 1, func() {
		if k := w.jobs[id]; k.State == Waiting && len(k.Attempts) > 0 {
			waited = true
			if k.Why == "" {
				t.Error("it does not say why it waits")
			}
		}
	})
	if j.State != Succeeded || !waited {
		t.Errorf("%s, waited %t: %s", j.State, waited, j.Why)
	}
	if spent, _ := j.Spent(); spent <= 0 {
		t.Errorf("it cost %s", spent.Exact())
	}
	for _, a := range j.Attempts[:len(j.Attempts)-1] {
		if a.EndedBy != session.NoCapacity || a.Cost != 0 {
			t.Errorf("attempt %d ended by %s and cost %s", a.Number, a.EndedBy, a.Cost.Exact())
		}
	}
}

// TestZombieWithKeepersKilledAtEveryChange lets a machine vanish from the provider's list, work on, and be
// listed again after its successor started, while one or two keepers are killed before and after each call
// that changes something. The zombie writes nothing, no attempt has two machines, nothing is left running,
// and the job's dollars are those of all its machines.
func TestZombieWithKeepersKilledAtEveryChange(t *testing.T) {
	changes := zombie(t, 1, 0, false)
	if changes < 30 {
		t.Fatalf("%d calls change something: the test does not reach what it is for", changes)
	}
	step := 1
	if testing.Short() {
		step = 5
	}
	for keepers := 1; keepers <= 2; keepers++ {
		for n := 1; n <= changes; n += step {
			zombie(t, keepers, n, false)
			zombie(t, keepers, n, true)
		}
	}
}

// zombie runs a job whose first machine comes back, with keepers of which one is killed at a change, and
// returns the number of changes.
func zombie(t *testing.T, keepers, killAt int, killAfter bool) int {
	t.Helper()
	w := newWorld(t, 1)
	w.killAt, w.killAfter, w.steps, w.saveTime = killAt, killAfter, 30, 10*time.Second
	vanishes, returns := w.now.Add(15*time.Minute), w.now.Add(25*time.Minute)
	var z *machine
	j := w.run(w.submit(gpu), keepers, func() {
		switch {
		case z == nil && !w.now.Before(vanishes):
			z = w.machines["i-0"]
			z.hidden = true
		case z != nil && z.hidden && !w.now.Before(returns):
			if len(w.machines) < 2 {
				t.Errorf("change %d: no successor started", killAt)
			}
			z.hidden = false
		}
		if w.now.Second() == 0 {
			w.recover(func() error { return w.keeper().Sessions.Reconcile(context.Background(), "sim") })
		}
	})
	if j.State != Succeeded || w.store.step < w.steps || w.store.refused == 0 {
		t.Errorf("change %d: %s: %s; step %d of %d is saved, %d writes were refused", killAt, j.State, j.Why,
			w.store.step, w.steps, w.store.refused)
	}
	sessions := map[string]int{}
	for _, m := range w.machines {
		sessions[m.Session]++
	}
	for id, n := range sessions {
		if s := w.sessions[id]; n > 1 || !s.State.IsFinal() {
			t.Errorf("change %d: session %s has %d machines, and is %s", killAt, s.Name, n, s.State)
		}
	}
	for epoch, by := range w.store.writers {
		if len(by) > 1 {
			t.Errorf("change %d: epoch %d was written by %v", killAt, epoch, by)
		}
	}
	checkMoney(t, w, w.jobs["j1"])
	return w.changes
}

// TestAbsentKeeperRestartsNothing lets all keepers be away for hours while a job works: it works on, and
// what became of it is seen later. Its one attempt and its one machine stay.
func TestAbsentKeeperRestartsNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		away  time.Duration
		steps int64
	}{
		{"it still works", 4 * time.Hour, 600},
		{"it succeeded meanwhile", 4 * time.Hour, 120},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 6)
			w.steps = c.steps
			left := false
			j := w.run(w.submit(gpu), 1, func() {
				if !left && w.now.Sub(w.jobs["j1"].RequestedAt) > time.Hour {
					left = true
					for began := w.now; w.now.Sub(began) < c.away; {
						w.tick(10 * time.Second)
					}
				}
			})
			if j.State != Succeeded || len(j.Attempts) != 1 || len(w.machines) != 1 || w.store.step != c.steps {
				t.Errorf("%s (%s) after %d attempts on %d machines; step %d of %d is saved", j.State, j.Why,
					len(j.Attempts), len(w.machines), w.store.step, c.steps)
			}
		})
	}
}

// TestCanceledJobLeavesNothingToPay cancels a job in each of its states, with keepers that are killed: its
// machines are gone, no machine is launched afterwards, and its dollars are theirs.
func TestCanceledJobLeavesNothingToPay(t *testing.T) {
	states := map[State]bool{}
	for seed := range 40 {
		w := newWorld(t, uint64(seed))
		w.crashRate, w.steps = 0.02, 100_000
		id := w.submit(gpu + "retries: {interruptions: 1000}\n")
		after, opens := time.Duration(w.rng.IntN(1200))*time.Second, w.now.Add(5*time.Minute)
		w.up = func(_ session.Pool, at time.Time) bool { return !at.Before(opens) }
		canceled := false
		j := w.run(id, 1+seed%2, func() {
			if w.rng.Float64() < 0.01 {
				w.interrupt()
			}
			if j := w.jobs[id]; !canceled && w.now.Sub(j.RequestedAt) >= after {
				w.recover(func() error {
					_, err := w.keeper().Cancel(t.Context(), id, "ana", seed%3 == 0)
					return err
				})
				if canceled = !w.jobs[id].CanceledAt.IsZero(); canceled {
					states[j.State] = true
				}
			}
		})
		if j.State != Canceled {
			t.Errorf("seed %d: %s: %s", seed, j.State, j.Why)
		}
		checkMoney(t, w, j)
		before := len(w.machines)
		for range 100 {
			w.pass(w.keeper(), id)
			w.tick(time.Minute)
			w.reconcile()
		}
		if len(w.machines) != before || w.running() > 0 {
			t.Errorf("seed %d: %d machines were launched after its end, %d run", seed, len(w.machines)-before, w.running())
		}
	}
	if len(states) < 3 {
		t.Errorf("it was canceled while %v", states)
	}
}
