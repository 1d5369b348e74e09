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
	item     Item
	proposal Proposal // as verified
	// isFirst is set if no call was made for the item yet, so that the caps count it; isRepeat if
	// its call was made, or may have been, and left no trace.
	isFirst, isRepeat bool
	steps             []Step
	approval          *Approval // nil if none is needed
	readAt            time.Time // start of the last reading of its facts
}

// readAgain reads the facts of items again.
func (s *pass) readAgain(ctx context.Context, items []Item) (fresh map[string]Proposal, err error) {
	err = intent.Within(ctx, rereadTimeout, "read it", func(ctx context.Context) (err error) {
		fresh, err = s.Verify(ctx, items)
		return err
	})
	return fresh, err
}

// act verifies due items and carries out those that still hold, within the caps.
func (s *pass) act(ctx context.Context) error {
	if len(s.due) == 0 {
		return nil
	}
	if !s.Enforce {
		return s.wouldAct(ctx)
	}
	due, err := s.withoutBlownFuses(ctx, s.due)
	if err != nil {
		return err
	}
	if s.due = s.completeGangs(due); len(s.due) == 0 {
		return nil
	}
	ready, err := s.verify(ctx, s.due)
	if err != nil {
		return err
	}
	ready = s.completeGangs(ready)
	for _, source := range sourcesOf(ready) {
		if err := s.actFor(ctx, source, ready); err != nil {
			return err
		}
	}
	return nil
}

// actFor admits the first calls of a source together, then makes all its calls.
func (s *pass) actFor(ctx context.Context, source string, ready []candidate) error {
	var calls, first []candidate
	for _, c := range ready {
		switch {
		case c.item.Source != source:
		case !c.isFirst:
			calls = append(calls, c)
		case s.calledBy[c.item.Ref] != "" && c.putsDocument():
			s.reportItem(c.item, Line{
				Result: ResultWaiting,
				Why:    "another fix of it was carried out in this pass; its document is another one now: scan again",
				NextAt: s.retryAt(),
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
		if err := s.skipItem(c.item, s.call(ctx, c)); err != nil {
			return err
		}
	}
	for _, c := range calls {
		if err := s.skipItem(c.item, s.callNext(ctx, c)); err != nil {
			return err
		}
	}
	return nil
}

// putsDocument reports whether an item replaces a document: of two such items of one resource the
// second would undo the first.
func (c *candidate) putsDocument() bool { return c.item.Do.Change.Document != "" }

// isOnlyDocumentFix reports whether no other process replaces a document of the resource. Each
// process writes its intent before it checks, so of two processes at least one sees the other.
func (s *pass) isOnlyDocumentFix(ctx context.Context, c *candidate) (bool, error) {
	if !c.putsDocument() {
		return true, nil
	}
	items, err := s.Store.Items(ctx, s.Account, ItemQuery{Refs: []inventory.Ref{c.item.Ref}})
	if err != nil {
		return false, fmt.Errorf("read what else is done to %s: %w", c.item.Ref.ID, err)
	}
	return !slices.ContainsFunc(items, func(o Item) bool {
		return o.ID != c.item.ID && o.Phase.isUnderWay() && o.Do.Change.Document != ""
	}), nil
}

// verify reads due items again, and returns those that still hold and are allowed. Any change
// resets an item.
func (s *pass) verify(ctx context.Context, due []candidate) ([]candidate, error) {
	at := s.Clock()
	items := make([]Item, len(due))
	for i, c := range due {
		items[i] = c.item
	}
	fresh, err := s.readAgain(ctx, items)
	if err == nil && clockJumped(s.startedAt, s.Clock(), s.maxGap) {
		err = errors.New("the clock was set during the round")
	}
	if err != nil {
		for _, it := range items {
			s.reportFailure(it, Line{
				Result: ResultWaiting, Why: "verify it again: " + err.Error(), NextAt: s.retryAt(),
			})
		}
		return nil, nil
	}
	now := s.Clock().Wall
	// A keep written during the reading counts.
	if s.keeps, err = s.Store.Keeps(ctx, now); err != nil {
		return nil, fmt.Errorf("read what is kept: %w", err)
	}
	together := map[itemKey]bool{}
	for _, p := range fresh {
		if p.Resource != nil && p.Condition == usage.True {
			together[itemKey{p.Resource.Ref(), p.Source}] = true
		}
	}
	var ready []candidate
	for _, c := range due {
		p, ok := fresh[c.item.ID]
		if ok = ok && p.Resource != nil && p.Source == c.item.Source && p.Resource.Ref() == c.item.Ref; ok {
			c.proposal, c.item.Gang = p, p.Gang
			c.proposal.Together = p.gangMembers(together, s.callsInProgress)
			s.proposed[itemKey{c.item.Ref, c.item.Source}] = &c.proposal
			if p.ReadAt.IsZero() {
				c.proposal.ReadAt = at.Wall
			}
			c.readAt = at.Wall
		}
		holds, err := s.stillHolds(ctx, &c, ok, at.Wall, now)
		if err = s.skipItem(c.item, err); err != nil {
			return nil, err
		}
		if holds {
			ready = append(ready, c)
		}
	}
	return ready, nil
}

// stillHolds reports whether the facts read again allow acting on a due item; otherwise the item is
// reset and reported.
func (s *pass) stillHolds(ctx context.Context, c *candidate, found bool, readAt, now time.Time) (bool, error) {
	const changed = "verified again, it does not hold any more"
	switch {
	case !found && c.isRepeat:
		// The call may have succeeded while the provider is slow to show it.
		s.reportItem(c.item, Line{
			Result: ResultActed, Why: "it does not hold any more, and the provider shows no trace of " +
				c.item.Steps[c.item.Step].Name + " yet",
			NextAt: s.retryAt()})
		return false, nil
	case !found && !s.covers(c.item.Source, c.item.Ref):
		s.reportItem(c.item, Line{
			Result: ResultActed, Why: "its next call waits for a pass that reads it", NextAt: s.retryAt(),
		})
		return false, nil
	case !found:
		return false, s.withdraw(ctx, c.item, changed)
	case c.isFirst:
		next, want := Advance(c.item, &c.proposal, Round{Number: s.round.Number, Now: readAt})
		if next.Phase == Withdrawn || want == Warn {
			return false, s.withdraw(ctx, next, changed)
		}
		if want != Verify {
			s.reportWaiting(next, c.proposal)
			return false, nil
		}
		c.item = next
	case c.proposal.Condition != usage.True || c.proposal.Mode != policy.Enforce || !c.proposal.Do.Equal(&c.item.Do) ||
		c.item.conditionBroken(c.proposal):
		return false, s.withdraw(ctx, c.item, changed)
	}
	if refusal := s.Assume.Refuse(c.proposal, c.item, now, s.keeps); refusal != nil {
		return false, s.refuse(ctx, c.item, refusal)
	}
	steps, refusal, err := s.plan(ctx, c.proposal)
	switch {
	case refusal != nil:
		return false, s.refuse(ctx, c.item, refusal)
	case err != nil:
		return false, unreadError{ResultWaiting, err}
	}
	c.steps = steps
	return true, nil
}

// completeGangs removes members of gangs that are not complete in this round: a run ends as a whole
// or not at all.
func (s *pass) completeGangs(ready []candidate) []candidate {
	for slices.ContainsFunc(ready, func(c candidate) bool { return len(c.item.Gang) > 0 }) {
		in := map[itemKey]bool{}
		for _, c := range ready {
			in[itemKey{c.item.Ref, c.item.Source}] = true
		}
		var kept, left []candidate
		for _, c := range ready {
			complete := !c.item.Do.Verb.IsDestructive() ||
				!slices.ContainsFunc(c.item.Gang, func(ref inventory.Ref) bool {
					return !in[itemKey{ref, c.item.Source}] && !s.callsInProgress[itemKey{ref, c.item.Source}]
				})
			if complete {
				kept = append(kept, c)
			} else {
				left = append(left, c)
			}
		}
		for _, c := range left {
			s.reportResult(c.item, ResultWaiting, "others of its run are not due yet")
		}
		if len(left) == 0 {
			return kept
		}
		ready = kept
	}
	return ready
}

// RuleUnapproved is the [Line.Rule] of an item that lacks an approval.
const RuleUnapproved = "unapproved"

// approved finds the approval that an item needs. Without one the item stays where it is.
func (s *pass) approved(ctx context.Context, c *candidate) bool {
	if !NeedsApproval(c.proposal) {
		return true
	}
	var found Approval
	err := errors.New("this pass has no approver to ask")
	if c.proposal.ByPerson && s.Approve != nil {
		planned := c.item
		planned.Steps = c.steps
		found, err = s.Approve(ctx, planned, c.proposal)
	}
	if err != nil {
		s.reportItem(c.item, Line{
			Result: ResultRefused, Rule: RuleUnapproved, Why: RuleUnapproved + ": " + err.Error(),
		})
		return false
	}
	c.approval, c.item.ApprovedAt = &found, s.Clock().Wall
	return true
}

// admission returns the admission of a candidate.
func admission(c *candidate) Admission {
	due := c.item.DueAt()
	if due.IsZero() { // an action without warning is due since it was first observed
		due = c.item.FirstAt
	}
	return Admission{Item: c.item, Hourly: max(0, c.proposal.Hourly.Or(0)), Due: due}
}

// overCap returns the cap that a candidate exceeds alone, so that it never fits: no approval is
// used up and no warning is sent for it. Nil is none.
func (c candidate) overCap() *Deferral {
	return Batch{Limits: c.proposal.Limits, Admissions: []Admission{admission(&c)}}.Defer(0, 0)[0]
}

// admit writes the intents that the caps allow for one source, and none under a freeze. Deferred
// items stay warned, and are verified again later.
func (s *pass) admit(ctx context.Context, source string, first []candidate) ([]candidate, error) {
	if len(first) == 0 {
		return nil, nil
	}
	b := Batch{
		Account: s.Account, Source: source, Round: s.round.Number, Now: s.Clock().Wall,
		Limits: withDefaults(first[0].proposal.Limits), Selected: s.Selected[source],
	}
	for i := range first {
		c := &first[i]
		adm := admission(c)
		c.item.Phase, c.item.Because, c.item.Class = Acting, c.proposal.Because, c.proposal.Class
		c.item.Steps, c.item.Step, c.item.Briefing = slices.Clone(c.steps), 0, s.briefing(c.item, c.proposal)
		s.prepareIntent(&c.item)
		adm.Item, adm.Approval, adm.Entries = s.stamp(c.item), c.approval, []Entry{s.intentEntry(c.item, &c.proposal)}
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
				s.reportDeferral(c, d, b.Now.Add(maxFactsAge))
				continue
			}
			c.item = answers[i].Item
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
		s.reportItem(c.item, Line{Result: result, Why: why, NextAt: b.Now.Add(maxFactsAge)})
	}
	return nil, nil
}

// reportDeferral reports an item that a cap holds back.
func (s *pass) reportDeferral(c candidate, d *Deferral, again time.Time) {
	l := Line{Result: ResultDeferred, Why: d.String(), Cap: d.Cap, NextAt: again}
	if d.Never {
		l.Result = ResultOverCap
	}
	s.reportItem(c.item, l)
	s.report.Partial = s.report.Partial || s.Enforce // a preview is complete despite deferrals
}

// prepareIntent sets the key and time of an item's step. The round is part of the key: a step that
// begins again is another call.
func (s *pass) prepareIntent(it *Item) {
	st := &it.Steps[it.Step]
	*st = st.Intend(fmt.Sprintf("%s-%d-%d", it.ID, s.round.Number, it.Step), s.Clock().Wall)
}

func (s *pass) intentEntry(it Item, p *Proposal) Entry {
	st := it.Steps[it.Step]
	outcome := fmt.Sprintf("%s, key %s", st.Name, st.Key)
	if st.Params != "" {
		outcome += ": " + st.Params
	}
	return s.entry(it, p, EventIntent, outcome)
}

// callNext writes the intent of the next call of an item under way and makes it; a call without a
// trace keeps its key.
func (s *pass) callNext(ctx context.Context, c candidate) error {
	on := &itemStep{pass: s, item: c.item, proposal: &c.proposal}
	var err error
	if c.isRepeat {
		_, err = s.calls().Repeat(ctx, on, on.step())
	} else {
		on.item.Steps = slices.Clone(on.item.Steps)
		on.item.Step++
		s.prepareIntent(&on.item)
		err = on.Keep(ctx, on.step(), intent.EventIntended)
	}
	if err != nil {
		return err
	}
	c.item = on.item
	return s.call(ctx, c)
}

// call makes the call of an item whose intent is written, and looks up the result.
func (s *pass) call(ctx context.Context, c candidate) error {
	if free, err := s.mayCall(ctx, &c); err != nil || !free {
		return err
	}
	s.calledBy[c.item.Ref] = c.item.Source
	on := &itemStep{pass: s, item: c.item, proposal: &c.proposal}
	if st := on.step(); !c.isRepeat && !s.calls().Callable(st) {
		// Earlier calls took too long: this one was not made yet, and its facts were read again.
		st.IntentAt = s.Clock().Wall
		if err := on.Keep(ctx, st, intent.EventIntended); err != nil {
			return err
		}
	}
	st, out, err := s.calls().Call(ctx, on, on.step())
	if err != nil {
		s.deliver(context.WithoutCancel(ctx))
		if st.Error != "" {
			return s.wrapUnread(ResultFailed, fmt.Errorf("%s: %s; %w", st.Name, st.Error, err))
		}
		return s.wrapUnread(ResultActed, err)
	}
	return s.finishStep(context.WithoutCancel(ctx), on, out)
}

// mayCall checks again right before the call for changes since the verification: for any verb
// everything is read again, unless it was read a moment ago.
func (s *pass) mayCall(ctx context.Context, c *candidate) (bool, error) {
	if age := s.Clock().Wall.Sub(c.readAt); age < 0 || age > maxRereadAge {
		if holds, err := s.rereadCandidate(ctx, c); err != nil || !holds {
			return false, err
		}
	}
	frozen, err := s.Store.Frozen(ctx)
	if err != nil {
		return false, fmt.Errorf("read whether actions are frozen: %w", err)
	}
	if frozen != nil {
		s.report.Frozen = frozen
		s.reportResult(c.item, ResultFrozen, frozen.String())
		return false, nil
	}
	switch alone, err := s.isOnlyDocumentFix(ctx, c); {
	case err != nil:
		return false, err
	case !alone:
		return false, s.refuse(ctx, c.item, &Refusal{
			Rule: "changed", Why: "another fix of its document is under way; scan again when it is done",
		})
	}
	now := s.Clock().Wall
	keeps, err := s.Store.Keeps(ctx, now)
	if err != nil {
		return false, fmt.Errorf("read what is kept: %w", err)
	}
	refusal := s.Assume.Refuse(c.proposal, c.item, now, keeps)
	if refusal == nil {
		return true, nil
	}
	if refusal.Rule == "stale" {
		// The next round verifies or resets the item.
		s.reportItem(c.item, Line{Result: ResultWaiting, Why: refusal.Why, NextAt: now})
		return false, nil
	}
	return false, s.refuse(ctx, c.item, refusal)
}

// rereadCandidate reads the facts of an item with a written intent again. Its calls are fixed: if
// the provider would need others by now, the item is reset.
func (s *pass) rereadCandidate(ctx context.Context, c *candidate) (bool, error) {
	again := *c
	again.isFirst = false
	ready, err := s.verify(ctx, []candidate{again})
	if err != nil || len(ready) == 0 {
		return false, err
	}
	same := func(a, b Step) bool { return a.Name == b.Name && a.Params == b.Params }
	if c.item.Step == 0 && !slices.EqualFunc(ready[0].steps, c.item.Steps, same) {
		return false, s.withdraw(ctx, c.item, "verified again, it would take other calls than were written down")
	}
	c.proposal, c.item.Gang, c.readAt = ready[0].proposal, ready[0].item.Gang, ready[0].readAt
	return true, nil
}

// wouldAct reports the actions of a preview, and what would hold them back.
func (s *pass) wouldAct(ctx context.Context) error {
	for _, source := range sourcesOf(s.due) {
		b := Batch{Source: source, Now: s.round.Now, Selected: s.Selected[source]}
		var of []candidate
		for _, c := range s.due {
			if c.item.Source == source {
				of, b.Limits, b.Admissions = append(of, c), c.proposal.Limits, append(b.Admissions, admission(&c))
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
			l := Line{Result: ResultWouldAct, Why: c.proposal.Because}
			switch d := deferred[i]; {
			case fuse != nil:
				l.Why, l.Cap = fuse.String(), CapFuse
			case d != nil:
				l.Why, l.Cap = d.String(), d.Cap
			}
			s.reportItem(c.item, l)
		}
	}
	return nil
}

// task returns the call of an item's step in the form of a cloud.
func task(it Item) Task {
	return Task{
		Ref: it.Ref, Identity: it.Identity, Do: it.Do, Step: it.Steps[it.Step],
		Earlier: slices.Clone(it.Steps[:it.Step]),
	}
}
