package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
)

// agree checks that two ledgers of [sights] give the same answers.
func agree(t *testing.T, got, want ledger.Store) {
	t.Helper()
	ctx, long := t.Context(), noon.AddDate(1, 0, 0)
	if diff := cmp.Diff(must(want.Rounds(ctx, payer, noon, long))(t), must(got.Rounds(ctx, payer, noon, long))(t),
		partsInOrder); diff != "" {
		t.Errorf("the rounds (-want +got):\n%s", diff)
	}
	reach := must(want.Reach(ctx, payer))(t)
	if diff := cmp.Diff(reach, must(got.Reach(ctx, payer))(t)); diff != "" || len(reach) == 0 {
		t.Errorf("what %d parts are recorded of (-want +got):\n%s", len(reach), diff)
	}
	if p := must(got.Pending(ctx, payer))(t); len(p) != 0 {
		t.Errorf("%d rounds are pending", len(p))
	}
	q := everything(ledger.Dimensions...)
	q.Granularity = ledger.Hourly
	sums := must(want.Sums(ctx, q))(t)
	if diff := cmp.Diff(nonzero(sums), nonzero(must(got.Sums(ctx, q))(t))); diff != "" || len(sums) < 100 {
		t.Errorf("%d sums (-want +got):\n%s", len(sums), diff)
	}
	rounds, observations := sights()
	for i, r := range rounds {
		touches := must(want.Touched(ctx, r))(t)
		if diff := cmp.Diff(touches, must(got.Touched(ctx, r))(t)); diff != "" || len(touches) == 0 {
			t.Errorf("the %d touches of round %d (-want +got):\n%s", len(touches), i, diff)
		}
		var refs []inventory.Ref
		for _, o := range observations[i] {
			refs = append(refs, o.Ref)
		}
		from, to := r.At.Truncate(time.Hour), r.At.Add(7*time.Hour).Truncate(time.Hour)
		known, _, err := want.Histories(ctx, payer, refs, from, to)
		no(t, err)
		kept, _, err := got.Histories(ctx, payer, refs, from, to)
		no(t, err)
		for j := range known {
			if diff := cmp.Diff(known[j].Observations, kept[j].Observations); diff != "" {
				t.Errorf("the observations around round %d (-want +got):\n%s", i, diff)
			}
			if !adjacent(known[j], kept[j].Rounds) {
				t.Errorf("the rounds around round %d are %v, want those of %v next to an observation", i,
					kept[j].Rounds,
					known[j].Rounds)
			}
		}
	}
}

// adjacent reports whether rounds are a subset of a history's that includes those adjacent to an
// observation.
func adjacent(h ledger.History, rounds []time.Time) bool {
	for _, o := range h.Observations {
		i, at := slices.BinarySearchFunc(h.Rounds, o.At, time.Time.Compare)
		last := i
		if at {
			last++
		}
		for _, r := range h.Rounds[max(0, i-1):min(last+1, len(h.Rounds))] {
			if !slices.Contains(rounds, r) {
				return false
			}
		}
	}
	return slices.IsSortedFunc(rounds, time.Time.Compare) && !slices.ContainsFunc(rounds, func(r time.Time) bool {
		return !slices.Contains(h.Rounds, r)
	})
}

// partsInOrder compares the parts of rounds in any order.
var partsInOrder = cmp.Transformer("parts", func(parts []ledger.Part) map[ledger.Part]bool {
	out := map[ledger.Part]bool{}
	for _, p := range parts {
		out[p] = true
	}
	return out
})

// nonzero drops zero sums, of entries that corrections reversed.
func nonzero(sums []ledger.Sum) []ledger.Sum {
	return slices.DeleteFunc(sums, func(s ledger.Sum) bool {
		return s.Sums == ledger.Sums{} && s.Unknown == ledger.Sums{}
	})
}

// postAll posts all rounds of [sights] in an order specific to the worker.
func postAll(ctx context.Context, s ledger.Store, worker int, out io.Writer) error {
	rounds, observations := sights()
	for _, i := range rand.New(rand.NewPCG(7, uint64(worker))).Perm(len(rounds)) {
		err := ledger.ErrConflict
		for errors.Is(err, ledger.ErrConflict) {
			_, err = ledger.Post(ctx, s, rounds[i], observations[i])
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "posted", i)
	}
	return nil
}

// postedTogether lets processes post the same rounds concurrently, kills some, and compares the
// ledger with one posted in order.
func postedTogether(t *testing.T, b *Backend) {
	var all []*process
	for worker := range 2 {
		all = append(all, spawn(t, b, Job{"post", worker}))
	}
	for _, p := range all {
		p.begin(t)
	}
	for worker := 2; worker < 5; worker++ {
		victim := spawn(t, b, Job{"post", worker})
		victim.begin(t)
		victim.lines.Scan()
		time.Sleep(time.Duration(worker*worker) * time.Millisecond) // during a round
		no(t, victim.cmd.Process.Kill())
		victim.rest()
		_ = victim.cmd.Wait() // it was killed
	}
	for _, p := range all {
		p.rest()
		no(t, p.cmd.Wait())
	}
	agree(t, b.Ledger, model(t, 14))
	b.Check(t)
}
