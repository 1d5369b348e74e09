package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// candidate is an item whose next call is due.
type candidate struct {
	it Item
	p  Proposal // as verified
	// first says that nothing was called for the item yet, so that the caps count it;
	// again that its call was made, or may have been, and left no trace.
	first, again bool
	steps        []Step
	approval     *Approval // nil where it needs none
	readAt       time.Time // when everything about it began to be read last
}

// read reads everything about items again.
func (s *pass) read(ctx context.Context, items []Item) (fresh map[string]Proposal, err error) {
	err = intent.Within(ctx, readFor, "read it", func(ctx context.Context) (err error) {
		fresh, err = s.Verify(ctx, items)
		return err
	})
	return fresh, err
}

// act verifies what is due and carries out what still holds, within the caps.
func (s *pass) act(ctx context.Context) error {
	if len(s.due) == 0 {
		return nil
	}
	if !s.Enforce {
		return s.wouldAct(ctx)
	}
	due, err := s.unfused(ctx, s.due)
	if err != nil {
		return err
	}
	if s.due = s.whole(due); len(s.due) == 0 {
		return nil
	}
	ready, err := s.verify(ctx, s.due)
	if err != nil {
		return err
	}
	ready = s.whole(ready)
	for _, source := range sourcesOf(ready) {
		if err := s.actFor(ctx, source, ready); err != nil {
			return err
		}
	}
	return nil
}

// actFor admits the first calls of one source together, then makes all its calls.
func (s *pass) actFor(ctx context.Context, source string, ready []candidate) error {
	var calls, first []candidate
	for _, c := range ready {
		switch {
		case c.it.Source != source:
		case !c.first:
			calls = append(calls, c)
		case s.called[c.it.Ref] != "" && c.replaces():
			s.say(c.it, Line{
				Result: ResultWaiting,
				Why:    "another fix of it was carried out in this pass; its document is another one now: scan again",
				NextAt: s.soon(),
			})
		case c.overCap() != nil || s.approved(ctx, &c):
			first = append(first, c)
		}
	}
	admitted, err := s.admit(ctx, source, first)
	if err != nil {
		return err
	}
	for _, c := range admitted {
		if err := s.skip(c.it, s.call(ctx, c)); err != nil {
			return err
		}
	}
	for _, c := range calls {
		if err := s.skip(c.it, s.callNext(ctx, c)); err != nil {
			return err
		}
	}
	return nil
}

// replaces says whether an item puts a document in the place of another one: of two such
// items about one resource the second would undo the first.
func (c *candidate) replaces() bool { return c.it.Do.Change.Document != "" }

// alone says whether no other process acts on a document of the resource. Each process
// writes its intent before it asks, so of two processes at least one sees the other.
func (s *pass) alone(ctx context.Context, c *candidate) (bool, error) {
	if !c.replaces() {
		return true, nil
	}
	items, err := s.Store.Items(ctx, s.Account, ItemQuery{Refs: []inventory.Ref{c.it.Ref}})
	if err != nil {
		return false, fmt.Errorf("read what else is done to %s: %w", c.it.Ref.ID, err)
	}
	return !slices.ContainsFunc(items, func(o Item) bool {
		return o.ID != c.it.ID && o.Phase.underWay() && o.Do.Change.Document != ""
	}), nil
}

// verify reads everything about due items again, and returns those that still hold and
// that nothing forbids. Whatever changed puts an item back.
func (s *pass) verify(ctx context.Context, due []candidate) ([]candidate, error) {
	at := s.Clock()
	items := make([]Item, len(due))
	for i, c := range due {
		items[i] = c.it
	}
	fresh, err := s.read(ctx, items)
	if err == nil && jumped(s.began, s.Clock(), s.gap) {
		err = errors.New("the clock was set during the round")
	}
	if err != nil {
		for _, it := range items {
			s.fail(it, Line{Result: ResultWaiting, Why: "verify it again: " + err.Error(), NextAt: s.soon()})
		}
		return nil, nil
	}
	now := s.Clock().Wall
	// A keep that came while things were read counts.
	if s.keeps, err = s.Store.Keeps(ctx, now); err != nil {
		return nil, fmt.Errorf("read what is kept: %w", err)
	}
	together := map[subject]bool{}
	for _, p := range fresh {
		if p.Resource != nil && p.Condition == usage.True {
			together[subject{p.Resource.Ref(), p.Source}] = true
		}
	}
	var ready []candidate
	for _, c := range due {
		p, ok := fresh[c.it.ID]
		if ok = ok && p.Resource != nil && p.Source == c.it.Source && p.Resource.Ref() == c.it.Ref; ok {
			c.p, c.it.Gang = p, p.Gang
			c.p.Together = p.gathered(together, s.underway)
			s.proposed[subject{c.it.Ref, c.it.Source}] = &c.p
			if p.ReadAt.IsZero() {
				c.p.ReadAt = at.Wall
			}
			c.readAt = at.Wall
		}
		holds, err := s.holds(ctx, &c, ok, at.Wall, now)
		if err = s.skip(c.it, err); err != nil {
			return nil, err
		}
		if holds {
			ready = append(ready, c)
		}
	}
	return ready, nil
}

// holds says whether a due item may be acted on by what was read again; where it may
// not, it is put back and reported.
func (s *pass) holds(ctx context.Context, c *candidate, found bool, readAt, now time.Time) (bool, error) {
	const changed = "verified again, it no longer holds"
	switch {
	case !found && c.again:
		// The call may have been carried out, and the provider be slow to show it.
		s.say(c.it, Line{
			Result: ResultActed, Why: "it no longer holds, and the provider shows no trace of " +
				c.it.Steps[c.it.Step].Name + " yet",
			NextAt: s.soon()})
		return false, nil
	case !found && !s.covers(c.it.Source, c.it.Ref):
		s.say(c.it, Line{
			Result: ResultActed, Why: "its next call waits for a pass that reads it", NextAt: s.soon(),
		})
		return false, nil
	case !found:
		return false, s.withdraw(ctx, c.it, changed)
	case c.first:
		next, want := Climb(c.it, &c.p, Round{Number: s.r.Number, Now: readAt})
		if next.Phase == Withdrawn || want == Warn {
			return false, s.withdraw(ctx, next, changed)
		}
		if want != Verify {
			s.waits(next, c.p)
			return false, nil
		}
		c.it = next
	case c.p.Condition != usage.True || c.p.Mode != policy.Enforce || !c.p.Do.Equal(&c.it.Do) || c.it.broken(c.p):
		return false, s.withdraw(ctx, c.it, changed)
	}
	if refusal := s.Assume.Refuse(c.p, c.it, now, s.keeps); refusal != nil {
		return false, s.refuse(ctx, c.it, refusal)
	}
	steps, refusal, err := s.plan(ctx, c.p)
	switch {
	case refusal != nil:
		return false, s.refuse(ctx, c.it, refusal)
	case err != nil:
		return false, unread{ResultWaiting, err}
	}
	c.steps = steps
	return true, nil
}

// whole leaves out machines of gangs of which others are not acted on in this round:
// a run ends as a whole or not at all.
func (s *pass) whole(ready []candidate) []candidate {
	for slices.ContainsFunc(ready, func(c candidate) bool { return len(c.it.Gang) > 0 }) {
		in := map[subject]bool{}
		for _, c := range ready {
			in[subject{c.it.Ref, c.it.Source}] = true
		}
		var kept, left []candidate
		for _, c := range ready {
			complete := !c.it.Do.Verb.Destructive() || !slices.ContainsFunc(c.it.Gang, func(ref inventory.Ref) bool {
				return !in[subject{ref, c.it.Source}] && !s.underway[subject{ref, c.it.Source}]
			})
			if complete {
				kept = append(kept, c)
			} else {
				left = append(left, c)
			}
		}
		for _, c := range left {
			s.line(c.it, ResultWaiting, "others of its run are not due yet")
		}
		if len(left) == 0 {
			return kept
		}
		ready = kept
	}
	return ready
}

// RuleUnapproved is the [Line.Rule] of what waits for an approval that no one gave.
const RuleUnapproved = "unapproved"

// approved finds the approval that an item needs. Without one the item waits where it is.
func (s *pass) approved(ctx context.Context, c *candidate) bool {
	if !NeedsApproval(c.p) {
		return true
	}
	var found Approval
	err := errors.New("this pass has no approver to ask")
	if c.p.ByPerson && s.Approve != nil {
		planned := c.it
		planned.Steps = c.steps
		found, err = s.Approve(ctx, planned, c.p)
	}
	if err != nil {
		s.say(c.it, Line{Result: ResultRefused, Rule: RuleUnapproved, Why: RuleUnapproved + ": " + err.Error()})
		return false
	}
	c.approval, c.it.ApprovedAt = &found, s.Clock().Wall
	return true
}

// admission is what a candidate asks of the caps.
func admission(c *candidate) Admission {
	due := c.it.DueAt()
	if due.IsZero() { // what needs no warning is due when it was first seen
		due = c.it.FirstAt
	}
	return Admission{Item: c.it, Hourly: max(0, c.p.Hourly.Or(0)), Due: due}
}

// alone returns the cap that a candidate exceeds by itself, so that it never fits within an
// hour: no approval is used up for it, and no warning is sent about it. Nil is none.
func (c candidate) overCap() *Deferral {
	return Batch{Limits: c.p.Limits, Admissions: []Admission{admission(&c)}}.Defer(0, 0)[0]
}

// admit writes the intents of what the caps allow of one source. Under a freeze nothing
// is; what is deferred stays warned, and is verified again later.
func (s *pass) admit(ctx context.Context, source string, first []candidate) ([]candidate, error) {
	if len(first) == 0 {
		return nil, nil
	}
	b := Batch{
		Account: s.Account, Source: source, Round: s.r.Number, Now: s.Clock().Wall,
		Limits: withDefaults(first[0].p.Limits), Selected: s.Selected[source],
	}
	for i := range first {
		c := &first[i]
		adm := admission(c)
		c.it.Phase, c.it.Because, c.it.Class = Acting, c.p.Because, c.p.Class
		c.it.Steps, c.it.Step, c.it.Briefing = slices.Clone(c.steps), 0, s.briefing(c.it, c.p)
		s.intend(&c.it)
		adm.Item, adm.Approval, adm.Entries = s.stamp(c.it), c.approval, []Entry{s.intent(c.it, &c.p)}
		b.Admissions = append(b.Admissions, adm)
	}
	result, why := ResultWaiting,
		"another process changed one of these meanwhile; the next pass checks them again"
	answers, err := s.Store.Admit(ctx, b)
	switch {
	case err == nil:
		var admitted []candidate
		for i, c := range first {
			if d := answers[i].Deferred; d != nil {
				s.hold(c, d, b.Now.Add(freshFor))
				continue
			}
			c.it = answers[i].Item
			admitted = append(admitted, c)
		}
		return admitted, nil
	case errors.Is(err, ErrFrozen):
		if s.report.Frozen, err = s.Store.Frozen(ctx); err != nil {
			return nil, fmt.Errorf("read whether actions are frozen: %w", err)
		}
		result, why = ResultFrozen, "all actions were frozen meanwhile"
	case errors.Is(err, ErrFuse):
		result, why = ResultFuse, "its fuse has blown meanwhile in another process"
	case !errors.Is(err, ErrConflict):
		return nil, fmt.Errorf("write what is intended for %s: %w", source, err)
	}
	for _, c := range first {
		s.say(c.it, Line{Result: result, Why: why, NextAt: b.Now.Add(freshFor)})
	}
	return nil, nil
}

// hold reports what a cap holds back.
func (s *pass) hold(c candidate, d *Deferral, again time.Time) {
	l := Line{Result: ResultDeferred, Why: d.String(), Cap: d.Cap, NextAt: again}
	if d.Never {
		l.Result = ResultOverCap
	}
	s.say(c.it, l)
	s.report.Partial = s.report.Partial || s.Enforce // a preview has shown all of it
}

// intend gives the step of an item its key and its time. The round is part of the
// key: a step that begins again is another call.
func (s *pass) intend(it *Item) {
	st := &it.Steps[it.Step]
	*st = st.Intend(fmt.Sprintf("%s-%d-%d", it.ID, s.r.Number, it.Step), s.Clock().Wall)
}

func (s *pass) intent(it Item, p *Proposal) Entry {
	st := it.Steps[it.Step]
	outcome := fmt.Sprintf("%s, key %s", st.Name, st.Key)
	if st.Params != "" {
		outcome += ": " + st.Params
	}
	return s.entry(it, p, EventIntent, outcome)
}

// callNext makes the next call of an item that is under way, after writing that it
// will; a call that left no trace keeps its key.
func (s *pass) callNext(ctx context.Context, c candidate) error {
	on := &carried{pass: s, it: c.it, p: &c.p}
	var err error
	if c.again {
		_, err = s.calls().Repeat(ctx, on, on.step())
	} else {
		on.it.Steps = slices.Clone(on.it.Steps)
		on.it.Step++
		s.intend(&on.it)
		err = on.Keep(ctx, on.step(), intent.EventIntended)
	}
	if err != nil {
		return err
	}
	c.it = on.it
	return s.call(ctx, c)
}

// call makes the call of an item whose intent is written, and looks what came of it.
func (s *pass) call(ctx context.Context, c candidate) error {
	if free, err := s.free(ctx, &c); err != nil || !free {
		return err
	}
	s.called[c.it.Ref] = c.it.Source
	on := &carried{pass: s, it: c.it, p: &c.p}
	if st := on.step(); !c.again && !s.calls().Callable(st) {
		// Calls before it took so long; it was not made, and everything was read again.
		st.IntentAt = s.Clock().Wall
		if err := on.Keep(ctx, st, intent.EventIntended); err != nil {
			return err
		}
	}
	st, out, err := s.calls().Call(ctx, on, on.step())
	if err != nil {
		s.deliver(context.WithoutCancel(ctx))
		if st.Error != "" {
			return s.unread(ResultFailed, fmt.Errorf("%s: %s; %w", st.Name, st.Error, err))
		}
		return s.unread(ResultActed, err)
	}
	return s.settle(context.WithoutCancel(ctx), on, out)
}

// free asks once more, right before the call, for what came while others were acted on:
// whatever verb it is, everything is read again, unless that was done a moment ago.
func (s *pass) free(ctx context.Context, c *candidate) (bool, error) {
	if age := s.Clock().Wall.Sub(c.readAt); age < 0 || age > justNow {
		if holds, err := s.reread(ctx, c); err != nil || !holds {
			return false, err
		}
	}
	frozen, err := s.Store.Frozen(ctx)
	if err != nil {
		return false, fmt.Errorf("read whether actions are frozen: %w", err)
	}
	if frozen != nil {
		s.report.Frozen = frozen
		s.line(c.it, ResultFrozen, frozen.String())
		return false, nil
	}
	switch alone, err := s.alone(ctx, c); {
	case err != nil:
		return false, err
	case !alone:
		return false, s.refuse(ctx, c.it, &Refusal{
			Rule: "changed", Why: "another fix of its document is under way; scan again when it is done",
		})
	}
	now := s.Clock().Wall
	keeps, err := s.Store.Keeps(ctx, now)
	if err != nil {
		return false, fmt.Errorf("read what is kept: %w", err)
	}
	refusal := s.Assume.Refuse(c.p, c.it, now, keeps)
	if refusal == nil {
		return true, nil
	}
	if refusal.Rule == "stale" {
		// The next round verifies it again, or puts it back.
		s.say(c.it, Line{Result: ResultWaiting, Why: refusal.Why, NextAt: now})
		return false, nil
	}
	return false, s.refuse(ctx, c.it, refusal)
}

// reread reads everything about an item again whose intent is written. What it was to be
// called with stays: where the provider would do something else by now, it is put back.
func (s *pass) reread(ctx context.Context, c *candidate) (bool, error) {
	again := *c
	again.first = false
	ready, err := s.verify(ctx, []candidate{again})
	if err != nil || len(ready) == 0 {
		return false, err
	}
	same := func(a, b Step) bool { return a.Name == b.Name && a.Params == b.Params }
	if c.it.Step == 0 && !slices.EqualFunc(ready[0].steps, c.it.Steps, same) {
		return false, s.withdraw(ctx, c.it, "verified again, it would take other calls than were written down")
	}
	c.p, c.it.Gang, c.readAt = ready[0].p, ready[0].it.Gang, ready[0].readAt
	return true, nil
}

// wouldAct reports what would be acted on, all of it, and what would hold it back.
func (s *pass) wouldAct(ctx context.Context) error {
	for _, source := range sourcesOf(s.due) {
		b := Batch{Source: source, Now: s.r.Now, Selected: s.Selected[source]}
		var of []candidate
		for _, c := range s.due {
			if c.it.Source == source {
				of, b.Limits, b.Admissions = append(of, c), c.p.Limits, append(b.Admissions, admission(&c))
			}
		}
		fuse, err := s.fuse(ctx, source, of)
		if err != nil {
			return err
		}
		if fuse != nil {
			s.report.Fuses = appendFuse(s.report.Fuses, *fuse)
		}
		deferred := b.Defer(0, 0)
		for i, c := range of {
			l := Line{Result: ResultWouldAct, Why: c.p.Because}
			switch d := deferred[i]; {
			case fuse != nil:
				l.Why, l.Cap = fuse.String(), CapFuse
			case d != nil:
				l.Why, l.Cap = d.String(), d.Cap
			}
			s.say(c.it, l)
		}
	}
	return nil
}

// task is the call of an item's step as a cloud is asked for it.
func task(it Item) Task {
	return Task{
		Ref: it.Ref, Identity: it.Identity, Do: it.Do, Step: it.Steps[it.Step],
		Earlier: slices.Clone(it.Steps[:it.Step]),
	}
}
