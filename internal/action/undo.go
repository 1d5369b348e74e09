package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
)

// Undo reverts the calls of an item, the last one first, as far as possible, and records it. A
// freeze does not prevent it, because undoing follows a freeze. What cannot be undone is a line
// with the result refused; after a failure Undo can be called again and continues. Without Enforce
// it returns the calls that it would make, and changes nothing. Like a round, it fails with a
// *[SkewError] if the clock of this machine is too far from that of the state.
func (l *Ladder) Undo(ctx context.Context, itemID, by string) (Line, error) {
	if l.Enforce {
		var err error
		if l, _, err = l.withStoreClock(ctx); err != nil {
			return Line{}, fmt.Errorf("undo %s: %w", itemID, err)
		}
	}
	it, err := l.Store.Item(ctx, itemID)
	if err != nil {
		return Line{}, fmt.Errorf("undo %s: %w", itemID, err)
	}
	s := &pass{Ladder: l}
	keep, written, err := l.keepAfterUndo(ctx, it, by)
	if err != nil {
		return Line{}, err
	}
	line := func(r Result, why string) Line {
		out := Line{Item: it.ID, Resource: it.Ref, Source: it.Source, Verb: it.Do.Verb, Result: r, Why: Redact(why)}
		if r == ResultUndone || r == ResultWouldUndo {
			out.KeptUntil = keep.Until
		}
		return out
	}
	if it.Phase == Acting || it.Phase == Confirming {
		return line(ResultRefused, "it is still under way; it can be undone once the provider has confirmed it"), nil
	}
	if !slices.ContainsFunc(it.Steps, confirmed) {
		return line(ResultRefused, "nothing was carried out that could be undone"), nil
	}
	unwritten := &keep // nil after the first call
	if written {
		unwritten = nil
	}
	var calls []string
	for i := len(it.Steps) - 1; i >= 0; i-- {
		if !confirmed(it.Steps[i]) {
			continue
		}
		if l.Enforce {
			it, err = s.undoStep(ctx, it, i, by, unwritten)
			unwritten = nil
		} else if calls, err = s.rehearseStep(ctx, it, i, calls); err == nil {
			continue
		}
		if err != nil {
			var refusal *Refusal
			if errors.As(err, &refusal) {
				out := line(ResultRefused, refusal.Rule+": "+refusal.Why)
				out.Rule = refusal.Rule
				return out, nil
			}
			return line(ResultFailed, err.Error()), err
		}
	}
	if !l.Enforce {
		return line(ResultWouldUndo, strings.Join(calls, "; ")), nil
	}
	return line(ResultUndone, ""), nil
}

// rehearseStep adds a description of the calls that would revert one step.
func (s *pass) rehearseStep(ctx context.Context, it Item, i int, calls []string) ([]string, error) {
	it.Step = i
	name := it.Steps[i].Name
	err := intent.Within(ctx, callTimeout, "ask the provider about "+it.Ref.ID, func(ctx context.Context) error {
		call, err := s.Cloud.Rehearse(ctx, task(it))
		calls = append(calls, name+": "+cmp.Or(call, "nothing is left to take back"))
		return err
	})
	if err != nil {
		err = fmt.Errorf("see how to undo %s of %s: %w", name, it.Ref.ID, err)
	}
	return calls, err
}

// keepAfterUndo returns the keep of an undone resource, which prevents policies from repeating the
// action. An existing keep that lasts at least as long is returned instead.
func (l *Ladder) keepAfterUndo(ctx context.Context, it Item, by string) (k Keep, written bool, err error) {
	if l.UndoKeep <= 0 {
		return k, true, nil
	}
	now := l.Clock().Wall
	k = Keep{
		Ref: it.Ref, At: now, Until: now.Add(l.UndoKeep), By: by,
		Reason: fmt.Sprintf("%s was undone (item %s)", it.Do.Verb, it.ID),
	}
	all, err := l.Store.Keeps(ctx, now)
	if err != nil {
		return k, false, fmt.Errorf("undo %s: %w", it.ID, err)
	}
	for _, held := range all {
		if held.Ref == it.Ref && !held.Until.Before(k.Until) {
			return held, true, nil
		}
	}
	return k, false, nil
}

// undoStep reverts one call, with its intent and its outcome in the audit log. A keep is written
// with the intent; nil writes none.
func (s *pass) undoStep(ctx context.Context, it Item, i int, by string, keep *Keep) (Item, error) {
	name := it.Steps[i].Name
	record := func(what, outcome string) Entry {
		e := s.entry(it, nil, what, outcome)
		e.Actor = by
		return e
	}
	it.Step = i
	begin := record(EventUndo, name+", key "+it.Steps[i].Key)
	var err error
	if keep == nil {
		it, err = s.save(ctx, it, begin)
	} else if it, err = s.Store.SaveKept(ctx, s.stamp(it), *keep, begin); err != nil {
		err = fmt.Errorf("save the item of %s and keep it: %w", it.Ref.ID, err)
	}
	if err != nil {
		return it, err
	}
	err = intent.Within(ctx, callTimeout, "wait for the provider to undo "+name+" of "+it.Ref.ID,
		func(ctx context.Context) error { return s.Cloud.Undo(ctx, task(it)) })
	ctx = context.WithoutCancel(ctx) // the result is recorded in any case
	if err != nil {
		what, refusal := EventOutcome, (*Refusal)(nil)
		if errors.As(err, &refusal) {
			what = EventRefused
		}
		return it, errors.Join(fmt.Errorf("undo %s of %s: %w", name, it.Ref.ID, err),
			s.Store.Record(ctx, record(what, "undo "+name+": "+err.Error())))
	}
	it.Steps = slices.Clone(it.Steps)
	it.Steps[i].ConfirmedAt = time.Time{}
	if !slices.ContainsFunc(it.Steps, confirmed) {
		it.Phase = Undone
	}
	return s.save(ctx, it, record(EventUndone, name))
}

// confirmed reports whether a call was carried out and not undone.
func confirmed(st Step) bool { return !st.ConfirmedAt.IsZero() }
