package job

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
)

const replaced = "resources: {gpus: V100, nodes: 3}\ncapacity: spot\nnodes: {replace: one}\n"

// newSpotWorld returns a world with one spot pool.
func newSpotWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := newWorld(t, seed)
	rate := 2 * money.USDPerUnit
	w.steps, w.saveEvery, w.peerErrors = 60, 3, true
	w.pools = []session.Pool{{Type: "p3.2xlarge", Region: "us-east-1", Zone: "a", Spot: true, Rate: &rate}}
	return w
}

// take takes away the machine of a node of the newest session that runs its command.
func (w *world) take(node int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.machines {
		if m.goneAt.IsZero() && !m.hidden && m.Node == node && !m.commandAt.IsZero() &&
			w.isComplete(m, func(o *machine) bool { return !o.commandAt.IsZero() }) {
			m.goneAt = w.now
			return true
		}
	}
	return false
}

// checkStarts checks that all nodes of a round go on from the same step, which was saved.
func checkStarts(t *testing.T, w *world) {
	t.Helper()
	from := map[string]int64{}
	for _, s := range w.starts {
		key := fmt.Sprint(s.session, "/", s.round)
		if step, ok := from[key]; ok && step != s.from || s.from > s.saved {
			t.Errorf("node %d goes on from step %d in round %s: another one from %d, and %d was saved", s.node, s.from,
				key, step, s.saved)
		}
		from[key] = s.from
	}
}

// TestLostNodeIsReplacedWhileTheOthersStay takes nodes of one attempt away, the first one too. Each time one
// machine is launched, all nodes go on from the same snapshot, and the attempt goes on to its end.
func TestLostNodeIsReplacedWhileTheOthersStay(t *testing.T) {
	w := newSpotWorld(t, 1)
	lost, last := 0, w.now
	id := w.submit(replaced)
	j := w.run(id, 2, func() {
		if w.now.Sub(last) > 12*time.Minute && lost < 3 && w.take(lost) {
			lost, last = lost+1, w.now
		}
	})
	if j.State != Succeeded || len(j.Attempts) != 1 || len(j.Attempts[0].Restarts) != 3 || len(w.machines) != 6 {
		t.Fatalf("%s (%s): %d attempts, %d machines", j.State, j.Why, len(j.Attempts), len(w.machines))
	}
	checkStarts(t, w)
	checkMoney(t, w, j)
	if n, cost := j.Interruptions(); n != 3 || cost <= 0 || j.Attempts[0].Repeated == 0 {
		t.Errorf("%d interruptions cost %s, %s repeated", n, cost, j.Attempts[0].Repeated.Dollars())
	}
	for _, r := range j.Attempts[0].Restarts {
		if r.CommandAt.IsZero() || r.Step == nil {
			t.Errorf("a restart is not known: %+v", r)
		}
	}
}

// TestNodesShareOneFateWhereTheirPlaceHasNoOther lets the place of an attempt run out: the replacement is
// refused, nothing of it stays, and the next attempt launches all nodes.
func TestNodesShareOneFateWhereTheirPlaceHasNoOther(t *testing.T) {
	w := newSpotWorld(t, 2)
	full, lost := false, time.Time{}
	w.up = func(session.Pool, time.Time) bool { return !full }
	id := w.submit(replaced)
	j := w.run(id, 1, func() {
		if w.now.Sub(w.jobs[id].RequestedAt) > 12*time.Minute && lost.IsZero() && w.take(1) {
			full, lost = true, w.now
		}
		if full && w.running() == 0 {
			full = false
		}
	})
	if j.State != Succeeded || len(j.Attempts) != 2 || len(w.machines) != 6 {
		t.Fatalf("%s (%s): %d attempts, %d machines", j.State, j.Why, len(j.Attempts), len(w.machines))
	}
	if a := j.Attempts[0]; a.EndedBy != session.Interrupted || a.ExitCode != nil {
		t.Errorf("the first attempt ended: %s: %s", a.EndedBy, a.Evidence)
	}
	checkStarts(t, w)
	checkMoney(t, w, j)
}

// TestReplacementNeverExceedsTheDollars lets the price rise between launch and loss: a node whose replacement
// would spend more than the job may cost before its lease ends is not replaced.
func TestReplacementNeverExceedsTheDollars(t *testing.T) {
	w := newSpotWorld(t, 3)
	id := w.submit(replaced + "max_cost: 8\n")
	taken := false
	j := w.run(id, 1, func() {
		if !taken && w.now.Sub(w.jobs[id].RequestedAt) > 12*time.Minute && w.take(2) {
			taken = true
			expensive := 40 * money.USDPerUnit
			w.pools[0].Rate = &expensive
		}
	})
	spent, err := j.Spent()
	end := 3 * 40 * money.USD / 20 // three expensive machines for the three minutes of their end
	if err != nil || !taken || len(j.Attempts[0].Restarts) != 1 || spent > 8*money.USD+end {
		t.Errorf("%s (%s): %d machines cost %s: %v", j.State, j.Why, len(w.machines), spent.Dollars(), err)
	}
	for _, m := range w.machines {
		if m.host.Round > 0 {
			t.Error("the node was replaced at the higher price")
		}
	}
}

// TestReplacedMachineThatComesBackIsEnded hides a machine, which is replaced, and shows it again: it writes
// nothing after its replacement began, is ended, and is paid for once.
func TestReplacedMachineThatComesBackIsEnded(t *testing.T) {
	w := newSpotWorld(t, 4)
	id := w.submit(replaced)
	var zombie *machine
	j := w.run(id, 2, func() {
		switch {
		case zombie == nil && w.now.Sub(w.jobs[id].RequestedAt) > 12*time.Minute:
			for _, m := range w.machines {
				if m.Node == 0 && !m.commandAt.IsZero() {
					zombie = m
					m.hidden = true
				}
			}
		case zombie != nil && zombie.hidden && len(w.machines) == 4 &&
			w.now.Sub(w.machines["i-3"].LaunchedAt) > 10*time.Minute:
			zombie.hidden = false
		}
	})
	if j.State != Succeeded || len(j.Attempts) != 1 || len(w.machines) != 4 || zombie.goneAt.IsZero() {
		t.Fatalf("%s (%s): %d attempts, %d machines", j.State, j.Why, len(j.Attempts), len(w.machines))
	}
	if w.store.refused == 0 || len(w.store.writers[1]) != 1 || w.store.writers[2][zombie.ID] {
		t.Errorf("writers of each epoch: %v, %d writes refused", w.store.writers, w.store.refused)
	}
	if zombie.goneAt.After(j.EndedAt.Add(-5 * time.Minute)) {
		t.Error("the replaced machine ran on until the end")
	}
	checkStarts(t, w)
	checkMoney(t, w, j)
}

// TestReplacementWithKeepersKilledAtEveryChange kills a keeper before and after each change of a replacement,
// alone and next to another one: exactly one machine takes the place of the lost one, and nothing is left.
func TestReplacementWithKeepersKilledAtEveryChange(t *testing.T) {
	canceled := false
	for _, end := range []string{"", "cancel"} {
		for _, after := range []bool{false, true} {
			for kill := 1; ; kill++ {
				w := newSpotWorld(t, 5)
				w.steps = 30
				id, reached := w.submit(replaced), false
				j := w.run(id, 1+kill%2, func() {
					if !reached && w.now.Sub(w.jobs[id].RequestedAt) > 12*time.Minute && w.take(1) {
						reached = true
						w.killAt, w.killAfter = w.changes+kill, after
					}
					if s := w.sessions[w.jobs[id].Attempts[0].Session]; end != "" && s.Replacement != nil &&
						w.jobs[id].CanceledAt.IsZero() {
						w.recover(func() error {
							_, err := w.keeper().Cancel(t.Context(), id, "ana", false)
							return err
						})
					}
				})
				s := w.sessions[j.Attempts[0].Session]
				canceled = canceled || !j.CanceledAt.IsZero()
				finished := j.CanceledAt.IsZero()
				name := fmt.Sprintf("killed at change %d (after it: %t) %s", kill, after, end)
				want, machines := Succeeded, len(w.machines) == 4 && len(s.Former) == 1
				if !finished {
					want, machines = Canceled, len(w.machines) <= 4
				}
				if j.State != want || !machines || len(j.Attempts) != 1 || s.Replacement != nil {
					t.Fatalf("%s: %s (%s), %d machines, %d attempts", name, j.State, j.Why, len(w.machines),
						len(j.Attempts))
				}
				checkStarts(t, w)
				checkMoney(t, w, j)
				for epoch, by := range w.store.writers {
					if len(by) > 1 {
						t.Fatalf("%s: %d machines wrote under epoch %d", name, len(by), epoch)
					}
				}
				if w.changes < w.killAt {
					break
				}
			}
		}
	}
	if !canceled {
		t.Error("no job was canceled while a node was replaced")
	}
}

// TestReplacingNodesOutlastsSharingOneFate replays the recorded cluster of TestNodesOfOneJobShareOneFate: with
// nodes.replace the same job needs fewer launches of all its nodes.
func TestReplacingNodesOutlastsSharingOneFate(t *testing.T) {
	spans := bamboo(t)
	attempts := map[string]int{}
	for _, replace := range []string{"all", "one"} {
		w := newWorld(t, 8)
		w.steps, w.saveEvery = 90, 3
		zero := w.now
		rate := *w.pools[0].Rate
		w.pools = []session.Pool{{Type: "p3.2xlarge", Region: "us-east-1", Zone: "a", Spot: true, Rate: &rate}}
		taken := map[string]string{}
		running := func(at time.Time) (out []nodeSpan) {
			for _, s := range spans {
				if d := at.Sub(zero); s.from <= d && d < s.to {
					out = append(out, s)
				}
			}
			return out
		}
		free := func(at time.Time) (out []string) {
			for _, s := range running(at) {
				if !slices.Contains(slices.Collect(maps.Values(taken)), s.name) {
					out = append(out, s.name)
				}
			}
			return out
		}
		w.up = func(_ session.Pool, at time.Time) bool {
			return len(free(at)) >= 8 || len(taken) > 0 && len(free(at)) > 0
		}
		id := w.submit("resources: {gpus: V100, nodes: 8}\ncapacity: spot\nretries: {interruptions: 10000}\n" +
			"nodes: {replace: " + replace + "}\n")
		j := w.run(id, 1, func() {
			for mid, m := range w.machines {
				if !m.goneAt.IsZero() {
					delete(taken, mid)
					continue
				}
				if _, ok := taken[mid]; !ok {
					if names := free(m.LaunchedAt); len(names) > 0 {
						taken[mid] = names[len(names)-1]
					}
				}
				if !slices.ContainsFunc(running(w.now), func(s nodeSpan) bool { return s.name == taken[mid] }) {
					m.goneAt = w.now
					delete(taken, mid)
				}
			}
		})
		if j.State != Succeeded {
			t.Fatalf("%s: %s (%s)", replace, j.State, j.Why)
		}
		checkStarts(t, w)
		checkMoney(t, w, j)
		restarts := 0
		for _, a := range j.Attempts {
			restarts += len(a.Restarts)
		}
		attempts[replace] = len(j.Attempts)
		t.Logf("%s: %d attempts, %d replaced nodes, %s", replace, len(j.Attempts), restarts, j.EndedAt.Sub(j.RequestedAt))
	}
	if attempts["one"] >= attempts["all"] {
		t.Errorf("attempts: %v", attempts)
	}
}
