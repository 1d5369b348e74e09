package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Ladder moves the proposals of one account through the safety ladder, one round at a time. Its
// state between rounds is in the store, so that any process can make the next round and resume
// after a crash.
type Ladder struct {
	Store    Store
	Cloud    Cloud
	Notifier Notifier
	// Verify reads the resources of items and the facts of their conditions again, and returns
	// their sources' current proposals, by item id. An item without a proposal is gone, or its
	// condition is not true any more.
	Verify func(ctx context.Context, items []Item) (map[string]Proposal, error)
	// Approve returns the approval of an item with planned steps, or an error without one. It is
	// used up with the item's intent. If nil, everything that needs an approval is refused.
	Approve func(ctx context.Context, it Item, p Proposal) (Approval, error)
	// Ask requests the approval that an item with planned steps will need, so that the grace period
	// runs meanwhile; nil requests it when the item is due.
	Ask func(ctx context.Context, it Item, p Proposal) error
	// Know returns how far an action can be undone (full, partial, none) and what to consider
	// before; nil uses general knowledge about the verb.
	Know func(r *inventory.Resource, do policy.Do) (undo, know string)
	// KeepByHand returns the provider's command that writes the tag which exempts a resource until
	// a time; may be empty or nil.
	KeepByHand func(r *inventory.Resource, until time.Time) string
	// Account is "cloud/account"; Actor is the person who runs the command.
	Account, Actor string
	// Enforce allows warnings and actions. Without it a round only shows what it would do, and
	// neither sends nor stores anything.
	Enforce bool
	Clock   func() Clock
	Log     *slog.Logger
	// MaxRoundGap is the longest pause between rounds after which grace periods continue, 2 h by
	// default.
	MaxRoundGap time.Duration
	// KeepMax is the longest keep, 30 days by default.
	KeepMax time.Duration
	// UndoKeep is how long policies leave a resource alone after an action on it was undone; 0 is
	// not at all.
	UndoKeep time.Duration
	// Assume replaces facts that a recorded account lacks. Only replays set it.
	Assume Assumptions
	// Progress, if set, is called for every line as it is decided.
	Progress func(Line)
}

// Round advances the items in a scope by one round, and looks up every item of the account that is
// under way. Other items are unchanged, except that the round confirms warned items that were not
// confirmed lately, or all of them after a clock was set. Its cost is that of these items, however
// many are open. It never sleeps: waiting items are in the report with their times.
//
// An item in scope without a proposal is withdrawn. The next call of an item under way is made only
// by a round with its source in scope.
//
// An error means that the round was aborted; what was done before is stored.
func (l *Ladder) Round(ctx context.Context, look Scope) (Report, error) {
	s, items, err := l.begin(ctx, &look)
	if err != nil {
		return Report{}, err
	}
	err = s.run(ctx, items)
	s.deliver(ctx)
	slices.SortStableFunc(s.report.Lines, func(a, b Line) int {
		return cmp.Or(inventory.CompareRefs(a.Resource, b.Resource), cmp.Compare(a.Source, b.Source))
	})
	return s.report, err
}

// pass is a round in progress.
type pass struct {
	*Ladder
	*Scope
	round     Round
	startedAt Clock
	// shared is set if the clock is the store's, which all machines share.
	shared bool
	maxGap time.Duration
	keeps  []Keep
	// proposed are the proposals of this round; allowedTogether marks those, of sources with gangs,
	// that no rule forbids.
	proposed        map[itemKey]*Proposal
	allowedTogether map[itemKey]bool
	// callsInProgress are items whose calls the provider is carrying out; calledBy are the sources
	// that made a call about a resource in this round.
	callsInProgress map[itemKey]bool
	calledBy        map[inventory.Ref]string
	// fuses are the newest fuses of each source in the account.
	fuses map[string]*Fuse
	due   []candidate
	// hasNewNotices is set if notices were written since the last delivery, and failedDeliveries
	// counts the failed deliveries of the round.
	hasNewNotices    bool
	failedDeliveries int
	report           Report
}

// itemKey identifies an open item.
type itemKey struct {
	ref    inventory.Ref
	source string
}

// begin starts a round: its number, the clocks, freeze and keeps.
func (l *Ladder) begin(ctx context.Context, look *Scope) (*pass, []Item, error) {
	if l.Clock == nil || (l.Enforce && (l.Store == nil || l.Cloud == nil || l.Notifier == nil || l.Verify == nil)) {
		return nil, nil, errors.New(
			"begin a round: enforcing needs a clock, a store that every process shares, a cloud, " +
				"a notifier, and a way to verify")
	}
	if err := look.validate(); err != nil {
		return nil, nil, err
	}
	shared := false
	if l.Enforce && l.Assume == (Assumptions{}) { // a recording has a time of its own
		var err error
		if l, shared, err = l.withStoreClock(ctx); err != nil {
			return nil, nil, fmt.Errorf("begin a round: %w", err)
		}
	}
	s := &pass{
		Ladder: l, startedAt: l.Clock(), shared: shared, maxGap: l.MaxRoundGap, Scope: look,
		proposed:        make(map[itemKey]*Proposal, len(look.Proposals)),
		callsInProgress: map[itemKey]bool{}, calledBy: map[inventory.Ref]string{}, fuses: map[string]*Fuse{}}
	if s.maxGap <= 0 {
		s.maxGap = DefaultMaxRoundGap
	}
	s.round.Now = s.startedAt.Wall
	var items []Item
	if l.Store != nil {
		var err error
		if l.Enforce {
			var last *Clock
			if s.round.Number, last, err = l.Store.BeginRound(ctx, l.Account, s.startedAt); err != nil {
				return nil, nil, fmt.Errorf("begin a round: %w", err)
			}
			s.round.Restart = last != nil && s.clockJumped(*last)
		}
		if s.report.Frozen, err = l.Store.Frozen(ctx); err != nil {
			return nil, nil, fmt.Errorf("read whether actions are frozen: %w", err)
		}
		if s.keeps, err = l.Store.Keeps(ctx, s.round.Now); err != nil {
			return nil, nil, fmt.Errorf("read what is kept: %w", err)
		}
		fuses, err := l.Store.Fuses(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("read which fuses have blown: %w", err)
		}
		for i := range fuses {
			if fuses[i].Account == l.Account {
				s.fuses[fuses[i].Source] = &fuses[i]
			}
		}
		if items, err = s.openItems(ctx); err != nil {
			return nil, nil, err
		}
	}
	if !l.Enforce {
		for _, it := range items {
			s.round.Number = max(s.round.Number, it.FirstRound+1, it.WarnedRound+1)
		}
	}
	s.report.Round, s.report.At = s.round.Number, s.round.Now
	s.indexProposals()
	return s, items, nil
}

// indexProposals indexes the proposals, and finds those that no rule forbids, which gangs need.
func (s *pass) indexProposals() {
	var gangs []string // sources with gangs
	for i := range s.Proposals {
		p := &s.Proposals[i]
		if p.ReadAt.IsZero() {
			p.ReadAt = s.round.Now
		}
		s.proposed[itemKey{p.Resource.Ref(), p.Source}] = p
		if len(p.Gang) > 0 && !slices.Contains(gangs, p.Source) {
			gangs = append(gangs, p.Source)
		}
	}
	if gangs == nil {
		return
	}
	s.allowedTogether = map[itemKey]bool{}
	for about, p := range s.proposed {
		if slices.Contains(gangs, p.Source) {
			alone := *p
			alone.Gang = nil
			s.allowedTogether[about] = s.Assume.Refuse(alone, Item{}, s.round.Now, s.keeps) == nil
		}
	}
}

// gangMembers returns the members of a proposal's gang that are in one of the sets.
func (p *Proposal) gangMembers(among ...map[itemKey]bool) []inventory.Ref {
	var out []inventory.Ref
	for _, ref := range p.Gang {
		if slices.ContainsFunc(among, func(m map[itemKey]bool) bool { return m[itemKey{ref, p.Source}] }) {
			out = append(out, ref)
		}
	}
	return out
}

// run processes the open items, then the new proposals, then acts.
func (s *pass) run(ctx context.Context, items []Item) error {
	known := make(map[itemKey]bool, len(items)+len(s.Proposals))
	for _, it := range items {
		about := itemKey{it.Ref, it.Source}
		known[about] = true
		step := s.advance
		switch {
		case it.Phase.isUnderWay():
			step = s.resume
		case !s.covers(it.Source, it.Ref):
			step = s.confirmWarning
		}
		if err := s.skipItem(it, step(ctx, it, s.proposed[about])); err != nil {
			return err
		}
	}
	for i := range s.Proposals {
		p := &s.Proposals[i]
		about := itemKey{p.Resource.Ref(), p.Source}
		if known[about] {
			continue
		}
		known[about] = true
		it := Item{Account: s.Account}
		if err := s.skipItem(about.newItem(p.Do), s.advance(ctx, it, s.proposed[about])); err != nil {
			return err
		}
	}
	return s.act(ctx)
}

// newItem returns an unsaved item, for a line.
func (a itemKey) newItem(do policy.Do) Item { return Item{Ref: a.ref, Source: a.source, Do: do} }

// unreadError is a failure to read something at the provider, which affects one item and leaves it
// unchanged.
type unreadError struct {
	result Result
	error
}

// Unwrap returns the cause.
func (u unreadError) Unwrap() error { return u.error }

// skipItem reports an item that another process is changing, or that the provider does not answer
// about; any other error ends the round.
func (s *pass) skipItem(it Item, err error) error {
	var u unreadError
	switch {
	case errors.Is(err, ErrConflict):
		s.reportItem(it, Line{
			Result: ResultWaiting,
			Why:    "another process changed it meanwhile; it is looked at again in the next round",
			NextAt: s.retryAt(),
		})
	case errors.As(err, &u):
		s.reportFailure(it, Line{Result: u.result, Why: u.Error(), NextAt: s.retryAt()})
	default:
		return err
	}
	return nil
}

// advance advances an item that is not acted on yet.
func (s *pass) advance(ctx context.Context, it Item, p *Proposal) error {
	if p == nil && it.Phase == Warned && it.notified() && s.Unknown != nil && s.Unknown(it.Source, it.Ref) {
		s.reportResult(it, ResultWarned, "too little is known to tell whether it goes on")
		return s.confirmWarning(ctx, it, nil)
	}
	r := s.round
	r.Restart = r.Restart || (it.ID != "" && s.clockJumped(it.clock()))
	next, want := Advance(it, p, r)
	switch {
	case next.Phase == "":
		return nil
	case next.Phase == Withdrawn && next.notified():
		return s.resolve(ctx, next)
	case next.Phase == Withdrawn:
		return s.withdraw(ctx, next,
			"its condition no longer holds, or is not known, or another machine or action took its place")
	}
	p.Together = p.gangMembers(s.allowedTogether)
	switch refusal := s.Assume.Refuse(*p, next, s.round.Now, s.keeps); {
	case refusal != nil && refusal.Rule == ruleUnsavedDisk:
		return s.askConsent(ctx, next, *p, refusal)
	case refusal != nil:
		return s.refuse(ctx, next, refusal)
	}
	if s.report.Frozen != nil {
		s.reportResult(next, ResultFrozen, s.report.Frozen.String())
		return nil
	}
	if want == Warn || (want == Verify && !s.Enforce) {
		if c := (candidate{item: next, proposal: *p}); p.Mode == policy.Enforce && p.Do.Verb != policy.Notify {
			if over := c.overCap(); over != nil {
				s.reportDeferral(c, over, time.Time{})
				return nil
			}
		}
		// An impossible action is not warned about.
		if ok, err := s.plannable(ctx, next, *p); err != nil || !ok {
			return err
		}
	}
	if !s.Enforce {
		s.preview(next, *p, want)
		return nil
	}
	next, err := s.saveChange(ctx, it, next, p)
	if err != nil {
		return err
	}
	if want == Warn || want == Wait {
		if err := s.requestApproval(ctx, next, *p); err != nil {
			return err
		}
	}
	switch want {
	case Warn:
		return s.warn(ctx, next, *p)
	case Verify:
		s.due = append(s.due, candidate{item: next, isFirst: true})
	case Wait:
		s.reportWaiting(next, *p)
	default:
		s.reportResult(next, ResultObserved, p.Because)
	}
	return nil
}

// saveChange saves a changed item, and from time to time that a round confirmed a warned item.
func (s *pass) saveChange(ctx context.Context, old, it Item, p *Proposal) (Item, error) {
	switch {
	case it.Version == 0:
		return s.save(ctx, it, s.entry(it, p, EventObserved, ""))
	case it.Phase != old.Phase:
		return s.save(ctx, it, s.entry(it, p, string(it.Phase), "put back from "+string(old.Phase)))
	case !it.GraceFrom.Equal(old.GraceFrom):
		return s.save(ctx, it, s.entry(it, p, EventGrace, "runs from "+plain.Time(it.GraceFrom)))
	case it.Grace != old.Grace || !slices.Equal(it.Gang, old.Gang),
		it.Phase == Warned && s.round.Now.Sub(it.UpdatedAt) > s.maxGap/4:
		return s.save(ctx, it)
	}
	return it, nil
}

// confirmWarning keeps the grace period of an item out of scope consistent with the clocks.
func (s *pass) confirmWarning(ctx context.Context, it Item, _ *Proposal) error {
	if it.Phase != Warned || !s.Enforce || s.report.Frozen != nil {
		return nil
	}
	next := it
	if !it.GraceFrom.IsZero() && (s.round.Restart || s.clockJumped(it.clock())) {
		next.GraceFrom = s.round.Now
	}
	_, err := s.saveChange(ctx, it, next, nil)
	return err
}

// reportWaiting reports a warned item.
func (s *pass) reportWaiting(it Item, p Proposal) {
	switch {
	case it.Do.Verb == policy.Notify:
		s.reportResult(it, ResultWarned, "told: "+strings.Join(it.Recipients, ", "))
	case it.GraceFrom.IsZero():
		s.reportResult(it, ResultWarned, "its policy warns and does not act: "+p.Because)
	default:
		s.reportItem(it, Line{Result: ResultWaiting, Why: p.Because, NextAt: it.DueAt()})
	}
}

// preview reports what would be done.
func (s *pass) preview(it Item, p Proposal, want NextStep) {
	switch want {
	case Warn:
		s.reportResult(it, ResultWouldWarn, p.Because)
	case Verify:
		s.due = append(s.due, candidate{item: it, proposal: p, isFirst: true})
	case Wait:
		s.reportWaiting(it, p)
	default:
		s.reportResult(it, ResultObserved, p.Because)
	}
}

// plannable reports whether the cloud could carry out the action at all.
func (s *pass) plannable(ctx context.Context, it Item, p Proposal) (bool, error) {
	if s.Cloud == nil || p.Do.Verb == policy.Notify {
		return true, nil
	}
	_, refusal, err := s.plan(ctx, p)
	switch {
	case refusal != nil:
		return false, s.refuse(ctx, it, refusal)
	case err != nil:
		return false, unreadError{ResultObserved, err}
	}
	return true, nil
}

// requestApproval requests the approval that a person's proposal will need.
func (s *pass) requestApproval(ctx context.Context, it Item, p Proposal) error {
	if s.Ask == nil || s.Cloud == nil || !s.Enforce || !p.ByPerson || !NeedsApproval(p) {
		return nil
	}
	steps, refusal, err := s.plan(ctx, p)
	switch {
	case refusal != nil:
		return nil //nolint:nilerr // reported when the item is due or warned
	case err != nil:
		return unreadError{ResultWaiting, err}
	}
	it.Steps = steps
	if err := s.Ask(ctx, it, p); err != nil {
		return fmt.Errorf("ask for the approval of %s: %w", it.Ref.ID, err)
	}
	return nil
}

// plan returns the calls of a proposal, or why the cloud refuses it.
func (s *pass) plan(ctx context.Context, p Proposal) ([]Step, *Refusal, error) {
	var steps []Step
	err := intent.Within(ctx, callTimeout, "ask the provider about "+p.Resource.ID,
		func(ctx context.Context) (err error) {
			steps, err = s.Cloud.Plan(ctx, p.Resource, p.Do)
			return err
		})
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return nil, refusal, nil
	case err != nil:
		return nil, nil, fmt.Errorf("plan to %s it: %w", p.Do.Verb, err)
	case len(steps) == 0:
		return nil, &Refusal{Rule: "verb", Why: "there is no call that would " + string(p.Do.Verb) + " it"}, nil
	}
	return steps, nil, nil
}

// NoWarning starts the alarm of an item whose warning reached no one.
const NoWarning = "no warning was sent, so it is not acted on"

// warn warns the recipients of an item. Without a recipient whose channel accepted the warning the
// item is never acted on.
func (s *pass) warn(ctx context.Context, it Item, p Proposal) error {
	m := s.message("notice", it, p)
	if p.Mode == policy.Enforce && p.Do.Verb != policy.Notify {
		m.Kind, m.ActsAt = "warning", s.Clock().Wall.Add(p.Grace)
	}
	accepted, err := s.sendToAll(ctx, p.Notify, m)
	if len(accepted) == 0 {
		why := Redact(fmt.Sprintf("%s: %v", NoWarning, err))
		s.reportFailure(it, Line{Result: ResultObserved, Why: why, NextAt: s.round.Now.Add(maxFactsAge)})
		if it.Alarm == why {
			return nil
		}
		it.Alarm = why
		_, err := s.save(ctx, it, s.entry(it, &p, EventUnwarned, why))
		return err
	}
	r := s.round
	r.Now = s.Clock().Wall // the grace period starts with the acceptance
	it = it.Accepted(accepted, p, r)
	if p.Do.Verb == policy.Notify {
		it.Briefing = s.briefing(it, p)
	}
	told := "accepted by " + strings.Join(accepted, ", ")
	if due := it.DueAt(); !due.IsZero() {
		told += "; not before " + plain.Time(due)
	}
	if err != nil {
		told += "; " + err.Error()
	}
	it, err = s.save(ctx, it, s.entry(it, &p, EventWarned, told))
	if err != nil {
		return err
	}
	s.reportItem(it, Line{Result: ResultWarned, Why: p.Because + "; " + told, NextAt: it.DueAt()})
	return nil
}

// sendToAll sends a message to every recipient, the owner by default, and returns who accepted it
// and why others did not.
func (s *pass) sendToAll(ctx context.Context, recipients []string, m Message) (accepted []string, err error) {
	var errs []error
	for _, to := range recipientsOrOwner(recipients) {
		name, err := s.sendTo(ctx, to, m)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", to, err))
		case name != "" && !slices.Contains(accepted, name):
			accepted = append(accepted, name)
		}
	}
	if len(accepted) == 0 && len(errs) == 0 {
		errs = append(errs, errUnnamed)
	}
	return accepted, errors.Join(errs...)
}

// errUnnamed means that a channel did not name the recipient that accepted a message.
var errUnnamed = errors.New("no channel named who accepted it")

// recipientsOrOwner returns the recipients of a policy, by default the owner.
func recipientsOrOwner(recipients []string) []string {
	if len(recipients) == 0 {
		return []string{recipientOwner}
	}
	return recipients
}

// sendTo sends a message to one recipient and returns the name of who accepted it.
func (s *pass) sendTo(ctx context.Context, to string, m Message) (name string, err error) {
	m.To = to
	err = intent.Within(ctx, callTimeout, "tell "+to, func(ctx context.Context) (err error) {
		name, err = s.Notifier.Notify(ctx, to, m)
		return err
	})
	return name, err
}

func (s *pass) message(kind string, it Item, p Proposal) Message {
	know := s.Know
	if know == nil {
		know = generalUndo
	}
	m := Message{
		Kind: kind, Resource: p.Resource, Item: it.ID, Verb: it.Do.Verb, Because: Redact(p.Because), Hourly: p.Hourly,
		Evidence: redactAll(p.Evidence), Keep: "curfew keep " + it.Ref.String() + " --for 24h --reason TEXT"}
	m.Undo, m.Know = know(p.Resource, p.Do)
	m.LostDisks = LostDisks(p.Resource, p.Do)
	m.Lost = lostText(p.Resource, p.Do)
	if s.KeepByHand != nil {
		m.KeepTag = s.KeepByHand(p.Resource, s.Clock().Wall.Add(keepTagDuration).Truncate(time.Minute))
	}
	return m
}

// withdraw removes an item from the ladder; a new one starts at the first phase.
func (s *pass) withdraw(ctx context.Context, it Item, why string) error {
	return s.close(ctx, it, EventWithdrawn, Line{Result: ResultWithdrawn, Why: why})
}

// notified reports whether people were notified by a policy that does nothing else.
func (it Item) notified() bool { return it.Do.Verb == policy.Notify && !it.WarnedAt.IsZero() }

// resolve takes an alarm off the ladder, and notifies those who were notified of it.
func (s *pass) resolve(ctx context.Context, it Item) error {
	why := "it no longer holds: " + it.Because
	if s.Enforce && it.Version > 0 {
		closed, e := s.closedItem(it, EventWithdrawn, why)
		saved, err := s.saveWithNotices(context.WithoutCancel(ctx), noticeResolved, closed, nil, e)
		if err != nil {
			return err
		}
		it = saved
	}
	s.reportItem(it, Line{Result: ResultWithdrawn, Why: why})
	return nil
}

// refuse removes an item from the ladder because a rule forbids it.
func (s *pass) refuse(ctx context.Context, it Item, refusal *Refusal) error {
	return s.close(ctx, it, EventRefused, Line{
		Result: ResultRefused, Rule: refusal.Rule, Why: refusal.Rule + ": " + refusal.Why,
	})
}

// close closes an item and reports it. An unsaved item is only reported.
func (s *pass) close(ctx context.Context, it Item, what string, l Line) error {
	if s.Enforce && it.Version > 0 {
		var err error
		closed, e := s.closedItem(it, what, l.Why)
		if it, err = s.save(context.WithoutCancel(ctx), closed, e); err != nil {
			return err
		}
	}
	s.reportItem(it, l)
	return nil
}

// closedItem returns an item as withdrawn, with its entry.
func (s *pass) closedItem(it Item, what, why string) (Item, Entry) {
	it.Phase, it.Alarm = Withdrawn, Redact(why)
	return it, s.entry(it, nil, what, why)
}

// save writes an item with its entries and the current clocks.
func (s *pass) save(ctx context.Context, it Item, entries ...Entry) (Item, error) {
	saved, err := s.Store.Save(ctx, s.stamp(it), entries...)
	if err != nil {
		return it, fmt.Errorf("save the item of %s: %w", it.Ref.ID, err)
	}
	return saved, nil
}

// stamp marks the item as confirmed by this round.
func (s *pass) stamp(it Item) Item {
	c := s.Clock()
	it.UpdatedAt, it.Boot, it.Uptime = c.Wall, c.Boot, c.Uptime
	return it
}

// entry returns an audit log entry about an item.
func (s *pass) entry(it Item, p *Proposal, what, outcome string) Entry {
	if m, ok := s.Store.(*Memory); ok && m.DiscardClosed {
		return Entry{At: s.Clock().Wall, What: what} // its readers need no more
	}
	e := Entry{
		At: s.Clock().Wall, Account: s.Account, Round: s.round.Number, Actor: s.actor(it), What: what,
		Resource: it.Ref.String(),
		Item:     it.ID, Verb: string(it.Do.Verb), Because: it.Because, Outcome: outcome}
	if p != nil {
		e.Because, e.Evidence = p.Because, p.Evidence
	}
	return e.redacted()
}

// actor returns who acts: the policy, or the person who asked.
func (l *Ladder) actor(it Item) string {
	if isPersonSource(it.Source) {
		return l.Actor
	}
	return "policy " + it.Source
}

// reportResult reports the result of an item.
func (s *pass) reportResult(it Item, result Result, why string) {
	s.reportItem(it, Line{Result: result, Why: why})
}

// reportItem reports a line about an item, and notes when it is due again.
func (s *pass) reportItem(it Item, l Line) {
	l.Resource, l.Source, l.Verb, l.Why = it.Ref, it.Source, it.Do.Verb, Redact(l.Why)
	if it.Version > 0 {
		l.Item = it.ID
	}
	if l.Result == ResultWarned || l.Result == ResultWaiting {
		l.DueAt = it.DueAt()
	}
	if s.Assume != (Assumptions{}) {
		if p := s.proposed[itemKey{it.Ref, it.Source}]; p != nil {
			l.Assumed = s.Assume.assumedText(p)
		}
	}
	if next := s.report.NextAt; next.IsZero() || (!l.NextAt.IsZero() && l.NextAt.Before(next)) {
		s.report.NextAt = l.NextAt
	}
	s.report.Lines = append(s.report.Lines, l)
	if s.Progress != nil {
		s.Progress(l)
	}
}

// reportFailure reports a failure, which makes the round partial.
func (s *pass) reportFailure(it Item, l Line) {
	s.report.Partial = true
	s.reportItem(it, l)
}

// retryAt returns when to try again after a conflict or a provider error.
func (s *pass) retryAt() time.Time { return s.round.Now.Add(time.Minute) }

// String says who froze all actions, and why.
func (f *Freeze) String() string {
	return "all actions are frozen by " + f.By + " since " + plain.Time(f.At) + ": " + f.Reason
}

// generalUndo returns the general knowledge about undoing a verb.
func generalUndo(_ *inventory.Resource, do policy.Do) (undo, know string) {
	switch do.Verb {
	case policy.Stop, policy.Hibernate:
		return "full",
			"A stopped GPU machine may not start again while the provider has no capacity, and its disks go on costing."
	case policy.Terminate:
		return "none", "The machine is gone, with every disk that is deleted with it."
	case policy.Delete, policy.Release:
		return "none", "It is gone; of a volume a snapshot stays."
	case policy.Scale:
		return "partial", "Taking it back starts other machines; the disks of those that ended are gone."
	case policy.PutRetention, policy.PutLifecycle:
		return "none", "The rules can be put back as they were; what they have let expire by then cannot."
	}
	return "full", ""
}
