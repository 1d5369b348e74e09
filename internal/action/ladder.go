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

// Ladder takes what is proposed for one account up the ladder, one round at a time.
// All that it knows between rounds is in the store, so that any process can make the
// next round, and a crash anywhere is resumed by it.
type Ladder struct {
	Store    Store
	Cloud    Cloud
	Notifier Notifier
	// Verify reads the resources of items again, with all that their conditions rest
	// on, and returns what their sources propose for them now, by the items' ids. An
	// item without a proposal is gone, or its condition is not true any more.
	Verify func(ctx context.Context, items []Item) (map[string]Proposal, error)
	// Approve returns the approval of an item, whose steps are planned; an error means that
	// there is none. It is used up with the item's intent. Nil refuses whatever needs one.
	Approve func(ctx context.Context, it Item, p Proposal) (Approval, error)
	// Ask asks for the approval that an item will need, at once, so that grace runs
	// meanwhile; nil asks when the item is due. Its steps are planned.
	Ask func(ctx context.Context, it Item, p Proposal) error
	// Know says how far an action can be undone (full, partial, none) and what to
	// know before; nil is the general knowledge about its verb.
	Know func(r *inventory.Resource, do policy.Do) (undo, know string)
	// KeepByHand returns the provider's own command that writes the tag which exempts a
	// resource until a time; empty where there is none. Nil knows none.
	KeepByHand func(r *inventory.Resource, until time.Time) string
	// Account is "cloud/account"; Actor the person who gave the command.
	Account, Actor string
	// Enforce allows to warn and to act. Without it a round only shows what it would
	// do: nothing is sent and nothing is kept.
	Enforce bool
	Clock   func() Clock
	Log     *slog.Logger
	// MaxRoundGap is the longest pause between rounds that is vouched for, 2 h by
	// default: after a longer one every grace starts over.
	MaxRoundGap time.Duration
	// KeepMax is how long a keep may hold, 30 days by default.
	KeepMax time.Duration
	// UndoKeep is how long policies leave a resource alone after an action on it was undone; 0
	// is not at all.
	UndoKeep time.Duration
	// Assume is what a recorded account does not say. Nothing but a replay sets it.
	Assume Assumptions
	// Progress, when set, is told of every line as it is decided.
	Progress func(Line)
}

// Round takes the items that a look covers one round further, and looks up every item
// of the account that is under way. It touches nothing else, except that it vouches for
// the clocks: of a warned item that no round has vouched for lately, or of all after a
// clock was set. Its cost is that of these items, however many are open. It never
// sleeps: what has to wait is in the report with its time.
//
// An item that is covered and proposed no more is withdrawn. The next call of an item
// under way is made only by a round that speaks for its source.
//
// An error means that the round was given up; whatever was done before is kept.
func (l *Ladder) Round(ctx context.Context, look Look) (Report, error) {
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

// pass is one round under way.
type pass struct {
	*Ladder
	*Look
	r     Round
	began Clock
	// shared says that the clock is the store's, which all machines have in common.
	shared bool
	gap    time.Duration
	keeps  []Keep
	// proposed is what holds in this round; together, of sources that have gangs, what
	// of it no rule forbids.
	proposed map[subject]*Proposal
	together map[subject]bool
	// underway are subjects whose calls the provider is carrying out; called are the
	// resources that a source made a call about in this round.
	underway map[subject]bool
	called   map[inventory.Ref]string
	// fuses are the newest of each source in the account.
	fuses map[string]*Fuse
	due   []candidate
	// owing reports that notices were written since the last delivery, and refusals counts the
	// deliveries of the round that failed.
	owing    bool
	refusals int
	report   Report
}

// subject is what only one open item can be about.
type subject struct {
	ref    inventory.Ref
	source string
}

// begin starts a round: its number, the clocks, freeze and keeps.
func (l *Ladder) begin(ctx context.Context, look *Look) (*pass, []Item, error) {
	if l.Clock == nil || (l.Enforce && (l.Store == nil || l.Cloud == nil || l.Notifier == nil || l.Verify == nil)) {
		return nil, nil, errors.New(
			"begin a round: enforcing needs a clock, a store that every process shares, a cloud, " +
				"a notifier, and a way to verify")
	}
	if err := look.check(); err != nil {
		return nil, nil, err
	}
	shared := false
	if l.Enforce && l.Assume == (Assumptions{}) { // a recording has a time of its own
		var err error
		if l, shared, err = l.inTime(ctx); err != nil {
			return nil, nil, fmt.Errorf("begin a round: %w", err)
		}
	}
	s := &pass{
		Ladder: l, began: l.Clock(), shared: shared, gap: l.MaxRoundGap, Look: look,
		proposed: make(map[subject]*Proposal, len(look.Proposals)),
		underway: map[subject]bool{}, called: map[inventory.Ref]string{}, fuses: map[string]*Fuse{}}
	if s.gap <= 0 {
		s.gap = DefaultMaxRoundGap
	}
	s.r.Now = s.began.Wall
	var items []Item
	if l.Store != nil {
		var err error
		if l.Enforce {
			var last *Clock
			if s.r.Number, last, err = l.Store.BeginRound(ctx, l.Account, s.began); err != nil {
				return nil, nil, fmt.Errorf("begin a round: %w", err)
			}
			s.r.Restart = last != nil && s.jumped(*last)
		}
		if s.report.Frozen, err = l.Store.Frozen(ctx); err != nil {
			return nil, nil, fmt.Errorf("read whether actions are frozen: %w", err)
		}
		if s.keeps, err = l.Store.Keeps(ctx, s.r.Now); err != nil {
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
		if items, err = s.items(ctx); err != nil {
			return nil, nil, err
		}
	}
	if !l.Enforce {
		for _, it := range items {
			s.r.Number = max(s.r.Number, it.FirstRound+1, it.WarnedRound+1)
		}
	}
	s.report.Round, s.report.At = s.r.Number, s.r.Now
	s.index()
	return s, items, nil
}

// index sorts the proposals by what they are about and finds those that nothing
// forbids, which is what gangs are made of.
func (s *pass) index() {
	var gangs []string // sources
	for i := range s.Proposals {
		p := &s.Proposals[i]
		if p.ReadAt.IsZero() {
			p.ReadAt = s.r.Now
		}
		s.proposed[subject{p.Resource.Ref(), p.Source}] = p
		if len(p.Gang) > 0 && !slices.Contains(gangs, p.Source) {
			gangs = append(gangs, p.Source)
		}
	}
	if gangs == nil {
		return
	}
	s.together = map[subject]bool{}
	for about, p := range s.proposed {
		if slices.Contains(gangs, p.Source) {
			alone := *p
			alone.Gang = nil
			s.together[about] = s.Assume.Refuse(alone, Item{}, s.r.Now, s.keeps) == nil
		}
	}
}

// gathered returns the members of a proposal's gang that are among subjects.
func (p *Proposal) gathered(among ...map[subject]bool) []inventory.Ref {
	var out []inventory.Ref
	for _, ref := range p.Gang {
		if slices.ContainsFunc(among, func(m map[subject]bool) bool { return m[subject{ref, p.Source}] }) {
			out = append(out, ref)
		}
	}
	return out
}

// run goes through what is on the ladder, then through what is new, then acts.
func (s *pass) run(ctx context.Context, items []Item) error {
	known := make(map[subject]bool, len(items)+len(s.Proposals))
	for _, it := range items {
		about := subject{it.Ref, it.Source}
		known[about] = true
		step := s.climb
		switch {
		case it.Phase.underWay():
			step = s.resume
		case !s.covers(it.Source, it.Ref):
			step = s.vouch
		}
		if err := s.skip(it, step(ctx, it, s.proposed[about])); err != nil {
			return err
		}
	}
	for i := range s.Proposals {
		p := &s.Proposals[i]
		about := subject{p.Resource.Ref(), p.Source}
		if known[about] {
			continue
		}
		known[about] = true
		it := Item{Account: s.Account}
		if err := s.skip(about.item(p.Do), s.climb(ctx, it, s.proposed[about])); err != nil {
			return err
		}
	}
	return s.act(ctx)
}

// item names a subject of which nothing is kept, for a line.
func (a subject) item(do policy.Do) Item { return Item{Ref: a.ref, Source: a.source, Do: do} }

// unread is a failure to read something at the provider, which concerns one item and
// leaves it where it is.
type unread struct {
	result Result
	error
}

// Unwrap returns the cause.
func (u unread) Unwrap() error { return u.error }

// skip leaves alone for this round what another process is at work on, and what the
// provider does not answer about; any other error ends the round.
func (s *pass) skip(it Item, err error) error {
	var u unread
	switch {
	case errors.Is(err, ErrConflict):
		s.say(it, Line{
			Result: ResultWaiting,
			Why:    "another process changed it meanwhile; the next pass checks it again",
			NextAt: s.soon(),
		})
	case errors.As(err, &u):
		s.fail(it, Line{Result: u.result, Why: u.Error(), NextAt: s.soon()})
	default:
		return err
	}
	return nil
}

// climb takes an item that is not acted on yet one round further.
func (s *pass) climb(ctx context.Context, it Item, p *Proposal) error {
	r := s.r
	r.Restart = r.Restart || (it.ID != "" && s.jumped(it.clock()))
	next, want := Climb(it, p, r)
	switch next.Phase {
	case "":
		return nil
	case Withdrawn:
		return s.withdraw(ctx, next,
			"its condition no longer holds, or is not known, or another machine or action took its place")
	}
	p.Together = p.gathered(s.together)
	switch refusal := s.Assume.Refuse(*p, next, s.r.Now, s.keeps); {
	case refusal != nil && refusal.Rule == unsavedDiskRule:
		return s.askConsent(ctx, next, *p, refusal)
	case refusal != nil:
		return s.refuse(ctx, next, refusal)
	}
	if s.report.Frozen != nil {
		s.line(next, ResultFrozen, s.report.Frozen.String())
		return nil
	}
	if want == Warn || (want == Verify && !s.Enforce) {
		if c := (candidate{it: next, p: *p}); p.Mode == policy.Enforce && p.Do.Verb != policy.Notify {
			if over := c.overCap(); over != nil {
				s.hold(c, over, time.Time{})
				return nil
			}
		}
		// An action that could not be carried out is not warned about.
		if ok, err := s.plannable(ctx, next, *p); err != nil || !ok {
			return err
		}
	}
	if !s.Enforce {
		s.preview(next, *p, want)
		return nil
	}
	next, err := s.keepState(ctx, it, next, p)
	if err != nil {
		return err
	}
	if want == Warn || want == Wait {
		if err := s.askEarly(ctx, next, *p); err != nil {
			return err
		}
	}
	switch want {
	case Warn:
		return s.warn(ctx, next, *p)
	case Verify:
		s.due = append(s.due, candidate{it: next, first: true})
	case Wait:
		s.waits(next, *p)
	default:
		s.line(next, ResultObserved, p.Because)
	}
	return nil
}

// keepState saves what a step changed, and from time to time that a round vouched
// for a warned item.
func (s *pass) keepState(ctx context.Context, old, it Item, p *Proposal) (Item, error) {
	switch {
	case it.Version == 0:
		return s.save(ctx, it, s.entry(it, p, EventObserved, ""))
	case it.Phase != old.Phase:
		return s.save(ctx, it, s.entry(it, p, string(it.Phase), "put back from "+string(old.Phase)))
	case !it.GraceFrom.Equal(old.GraceFrom):
		return s.save(ctx, it, s.entry(it, p, EventGrace, "runs from "+plain.Time(it.GraceFrom)))
	case it.Grace != old.Grace || !slices.Equal(it.Gang, old.Gang),
		it.Phase == Warned && s.r.Now.Sub(it.UpdatedAt) > s.gap/4:
		return s.save(ctx, it)
	}
	return it, nil
}

// vouch keeps the grace of an item that this round does not speak for true to the
// clocks.
func (s *pass) vouch(ctx context.Context, it Item, _ *Proposal) error {
	if it.Phase != Warned || !s.Enforce || s.report.Frozen != nil {
		return nil
	}
	next := it
	if !it.GraceFrom.IsZero() && (s.r.Restart || s.jumped(it.clock())) {
		next.GraceFrom = s.r.Now
	}
	_, err := s.keepState(ctx, it, next, nil)
	return err
}

// waits reports a warned item.
func (s *pass) waits(it Item, p Proposal) {
	switch {
	case it.Do.Verb == policy.Notify:
		s.line(it, ResultWarned, "notified: "+strings.Join(it.Recipients, ", "))
	case it.GraceFrom.IsZero():
		s.line(it, ResultWarned, "its policy warns and does not act: "+p.Because)
	default:
		s.say(it, Line{Result: ResultWaiting, Why: p.Because, NextAt: it.DueAt()})
	}
}

// preview reports what would be done.
func (s *pass) preview(it Item, p Proposal, want Want) {
	switch want {
	case Warn:
		s.line(it, ResultWouldWarn, p.Because)
	case Verify:
		s.due = append(s.due, candidate{it: it, p: p, first: true})
	case Wait:
		s.waits(it, p)
	default:
		s.line(it, ResultObserved, p.Because)
	}
}

// plannable asks the cloud whether the action could be carried out at all.
func (s *pass) plannable(ctx context.Context, it Item, p Proposal) (bool, error) {
	if s.Cloud == nil || p.Do.Verb == policy.Notify {
		return true, nil
	}
	_, refusal, err := s.plan(ctx, p)
	switch {
	case refusal != nil:
		return false, s.refuse(ctx, it, refusal)
	case err != nil:
		return false, unread{ResultObserved, err}
	}
	return true, nil
}

// askEarly asks for the approval that a person's proposal will need.
func (s *pass) askEarly(ctx context.Context, it Item, p Proposal) error {
	if s.Ask == nil || s.Cloud == nil || !s.Enforce || !p.ByPerson || !NeedsApproval(p) {
		return nil
	}
	steps, refusal, err := s.plan(ctx, p)
	switch {
	case refusal != nil:
		return nil //nolint:nilerr // it is said where it is due, or before it is warned of
	case err != nil:
		return unread{ResultWaiting, err}
	}
	it.Steps = steps
	if err := s.Ask(ctx, it, p); err != nil {
		return fmt.Errorf("ask for the approval of %s: %w", it.Ref.ID, err)
	}
	return nil
}

// plan returns the calls that a proposal takes, or why the cloud refuses it.
func (s *pass) plan(ctx context.Context, p Proposal) ([]Step, *Refusal, error) {
	var steps []Step
	err := intent.Within(ctx, patience, "ask the provider about "+p.Resource.ID,
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

// NoWarning begins the alarm of an item that no one could be warned of.
const NoWarning = "no warning was sent, so it is not acted on"

// warn tells the people of an item. Without a named recipient whose channel accepted
// the warning nothing is ever acted on.
func (s *pass) warn(ctx context.Context, it Item, p Proposal) error {
	m := s.message("notice", it, p)
	if p.Mode == policy.Enforce && p.Do.Verb != policy.Notify {
		m.Kind, m.ActsAt = "warning", s.Clock().Wall.Add(p.Grace)
	}
	accepted, err := s.tell(ctx, p.Notify, m)
	if len(accepted) == 0 {
		why := Redact(fmt.Sprintf("%s: %v", NoWarning, err))
		s.fail(it, Line{Result: ResultObserved, Why: why, NextAt: s.r.Now.Add(freshFor)})
		if it.Alarm == why {
			return nil
		}
		it.Alarm = why
		_, err := s.save(ctx, it, s.entry(it, &p, EventUnwarned, why))
		return err
	}
	r := s.r
	r.Now = s.Clock().Wall // grace runs from when it was accepted
	it = it.Accepted(accepted, p, r)
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
	s.say(it, Line{Result: ResultWarned, Why: p.Because + "; " + told, NextAt: it.DueAt()})
	return nil
}

// tell sends a message to every recipient, the owner where none is named, and
// returns who accepted it and why others did not.
func (s *pass) tell(ctx context.Context, recipients []string, m Message) (accepted []string, err error) {
	var errs []error
	for _, to := range orOwner(recipients) {
		name, err := s.notify(ctx, to, m)
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

// errUnnamed means that a channel did not name the recipient who accepted a message.
var errUnnamed = errors.New("no channel named who accepted it")

// orOwner returns the recipients of a policy, which are the owner if it names none.
func orOwner(recipients []string) []string {
	if len(recipients) == 0 {
		return []string{recipientOwner}
	}
	return recipients
}

// notify sends a message to one recipient and returns the name of who accepted it.
func (s *pass) notify(ctx context.Context, to string, m Message) (name string, err error) {
	m.To = to
	err = intent.Within(ctx, patience, "notify "+to, func(ctx context.Context) (err error) {
		name, err = s.Notifier.Notify(ctx, to, m)
		return err
	})
	return name, err
}

func (s *pass) message(kind string, it Item, p Proposal) Message {
	know := s.Know
	if know == nil {
		know = generally
	}
	m := Message{
		Kind: kind, Resource: p.Resource, Item: it.ID, Verb: it.Do.Verb, Because: Redact(p.Because), Hourly: p.Hourly,
		Evidence: redactAll(p.Evidence), Keep: "curfew keep " + it.Ref.String() + " --for 24h --reason TEXT"}
	m.Undo, m.Know = know(p.Resource, p.Do)
	m.Loses = Losses(p.Resource, p.Do)
	m.Lost = lostBy(p.Resource, p.Do)
	if s.KeepByHand != nil {
		m.KeepTag = s.KeepByHand(p.Resource, s.Clock().Wall.Add(keptByTag).Truncate(time.Minute))
	}
	return m
}

// withdraw takes an item off the ladder; what begins again begins at the first step.
func (s *pass) withdraw(ctx context.Context, it Item, why string) error {
	return s.close(ctx, it, EventWithdrawn, Line{Result: ResultWithdrawn, Why: why})
}

// refuse takes an item off the ladder because a rule forbids it.
func (s *pass) refuse(ctx context.Context, it Item, refusal *Refusal) error {
	return s.close(ctx, it, EventRefused, Line{
		Result: ResultRefused, Rule: refusal.Rule, Why: refusal.Rule + ": " + refusal.Why,
	})
}

// close ends an item's way. Of what was never kept there is only the line.
func (s *pass) close(ctx context.Context, it Item, what string, l Line) error {
	if s.Enforce && it.Version > 0 {
		var err error
		closed, e := s.closed(it, what, l.Why)
		if it, err = s.save(context.WithoutCancel(ctx), closed, e); err != nil {
			return err
		}
	}
	s.say(it, l)
	return nil
}

// closed is an item at the end of its way, with the entry about that.
func (s *pass) closed(it Item, what, why string) (Item, Entry) {
	it.Phase, it.Alarm = Withdrawn, Redact(why)
	return it, s.entry(it, nil, what, why)
}

// save writes an item with its entries and the clocks of now.
func (s *pass) save(ctx context.Context, it Item, entries ...Entry) (Item, error) {
	saved, err := s.Store.Save(ctx, s.stamp(it), entries...)
	if err != nil {
		return it, fmt.Errorf("save the item of %s: %w", it.Ref.ID, err)
	}
	return saved, nil
}

// stamp notes that this round vouches for the item.
func (s *pass) stamp(it Item) Item {
	c := s.Clock()
	it.UpdatedAt, it.Boot, it.Uptime = c.Wall, c.Boot, c.Uptime
	return it
}

// entry is one line of the audit log about an item.
func (s *pass) entry(it Item, p *Proposal, what, outcome string) Entry {
	if m, ok := s.Store.(*Memory); ok && m.Forgetful {
		return Entry{At: s.Clock().Wall, What: what} // its readers need no more
	}
	e := Entry{
		At: s.Clock().Wall, Account: s.Account, Round: s.r.Number, Actor: s.actor(it), What: what,
		Resource: it.Ref.String(),
		Item:     it.ID, Verb: string(it.Do.Verb), Because: it.Because, Outcome: outcome}
	if p != nil {
		e.Because, e.Evidence = p.Because, p.Evidence
	}
	return e.redacted()
}

// actor is who acts: the policy, or the person who asked.
func (l *Ladder) actor(it Item) string {
	if byPerson(it.Source) {
		return l.Actor
	}
	return "policy " + it.Source
}

// line reports what became of an item.
func (s *pass) line(it Item, result Result, why string) { s.say(it, Line{Result: result, Why: why}) }

// say reports a line about an item, and notes when there is something to do for it.
func (s *pass) say(it Item, l Line) {
	l.Resource, l.Source, l.Verb, l.Why = it.Ref, it.Source, it.Do.Verb, Redact(l.Why)
	if it.Version > 0 {
		l.Item = it.ID
	}
	if l.Result == ResultWarned || l.Result == ResultWaiting {
		l.DueAt = it.DueAt()
	}
	if s.Assume != (Assumptions{}) {
		if p := s.proposed[subject{it.Ref, it.Source}]; p != nil {
			l.Assumed = s.Assume.of(p)
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

// fail reports what makes the round partial.
func (s *pass) fail(it Item, l Line) {
	s.report.Partial = true
	s.say(it, l)
}

// soon is when to try again what others, or the provider, stood in the way of.
func (s *pass) soon() time.Time { return s.r.Now.Add(time.Minute) }

// String says who froze all actions, and why.
func (f *Freeze) String() string {
	return "all actions are frozen by " + f.By + " since " + plain.Time(f.At) + ": " + f.Reason
}

// generally is what is known of a verb whatever the resource.
func generally(_ *inventory.Resource, do policy.Do) (undo, know string) {
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
