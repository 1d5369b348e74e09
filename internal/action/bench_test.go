package action_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// BenchmarkRound previews a round of a large account: 10,000 proposals.
func BenchmarkRound(b *testing.B) {
	w := newWorld()
	var proposals []action.Proposal
	for i := range 10_000 {
		p := w.wants
		p.Resource, p.Condition = machine(fmt.Sprintf("i-%05d", i)).Inventory(), usage.True
		proposals = append(proposals, p)
	}
	l := action.Ladder{Clock: w.clock.Read, Account: w.ladder.Account}
	for b.Loop() {
		if r, err := l.Round(context.Background(), action.Scope{Proposals: proposals}); err != nil ||
			len(r.Lines) != len(proposals) {
			b.Fatalf("%d lines, %v", len(r.Lines), err)
		}
	}
}

// BenchmarkRedact redacts a line of the audit log.
func BenchmarkRedact(b *testing.B) {
	line := "dial postgres://curfew:hunter22@db:5432/x: connection refused after 3 attempts of 10 s"
	for b.Loop() {
		action.Redact(line)
	}
}

// stocked returns a world whose ladder has a store in memory with so many warned items,
// and a look at one of them.
func stocked(b *testing.B, open int) (*world, action.Scope) {
	w := newWorld()
	w.connect(action.NewMemory(), &quietCloud{}, &quietPeople{})
	w.wants.Grace = 1000 * time.Hour
	var all action.Scope
	for i := range open {
		r := machine(fmt.Sprintf("i-%05d", i))
		r.Kind, r.State = inventory.KindInstance, inventory.StateRunning
		p := w.wants
		p.Resource, p.Duty, p.Condition, p.Because = r.Inventory(), r.Verdict(), usage.True,
			"idle: 0% compute and 92% of memory held for 6d 4h"
		p.Hourly, p.ReadAt = inventory.Known(r.Hourly), start
		all.Proposals = append(all.Proposals, p)
	}
	if r, err := w.ladder.Round(b.Context(), all); err != nil || len(r.Lines) != open ||
		r.Lines[0].Result != action.ResultWarned {
		b.Fatal(r, err)
	}
	one := all.Proposals[open/2]
	return w, action.Scope{
		Proposals: []action.Proposal{one}, Evaluated: map[inventory.Ref]bool{one.Resource.Ref(): true},
		Sources: []string{one.Source},
	}
}

type quietPeople struct{}

func (quietPeople) Notify(context.Context, string, action.Message) (string, error) { return "ana", nil }

type quietCloud struct{ action.Cloud }

func (quietCloud) Plan(context.Context, *inventory.Resource, policy.Do) ([]action.Step, error) {
	return []action.Step{{Name: "terminate"}}, nil
}

// BenchmarkRoundOfOneItem looks at one machine, while a few or many items are open: either
// costs the same.
func BenchmarkRoundOfOneItem(b *testing.B) {
	for _, open := range []int{10, 10_000} {
		b.Run(fmt.Sprint(open), func(b *testing.B) {
			w, look := stocked(b, open)
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				if r, err := w.ladder.Round(b.Context(), look); err != nil || len(r.Lines) != 1 ||
					r.Lines[0].Result != action.ResultWaiting {
					b.Fatal(r, err)
				}
			}
		})
	}
}

func (quietCloud) Do(context.Context, action.Task) (string, error) { return "ended", nil }

func (quietCloud) Look(context.Context, action.Task) (action.Progress, string, error) {
	return action.Complete, "ended", nil
}

// BenchmarkWarningToConfirmation takes one machine after another from its warning to its end, two
// rounds each, as a replay does.
func BenchmarkWarningToConfirmation(b *testing.B) {
	w, look := stocked(b, 1)
	m := action.NewMemory()
	m.DiscardClosed = true
	w.connect(m, quietCloud{}, quietPeople{})
	w.ladder.Assume.NoGrace = true
	p := &look.Proposals[0]
	p.Grace, p.Evidence = 0, []usage.Evidence{
		usage.Fact("gpu_util_max_pct", "0.4", "recorded"), usage.Fact("mem_held_pct", "92", "recorded"),
	}
	w.ladder.Verify = func(_ context.Context, items []action.Item) (map[string]action.Proposal, error) {
		return map[string]action.Proposal{items[0].ID: *p}, nil
	}
	b.ReportAllocs()
	for b.Loop() {
		w.clock.Advance(time.Hour)
		p.ReadAt, p.Duty.Expires = w.now(), w.now()
		for _, result := range []action.Result{action.ResultWarned, action.ResultConfirmed} {
			if r, err := w.ladder.Round(b.Context(), look); err != nil || len(r.Lines) != 1 ||
				r.Lines[0].Result != result {
				b.Fatal(r, err)
			}
		}
	}
}
