package round

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/snapshot"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Engine makes rounds in one setting. It keeps what it learned of resources between rounds, so that
// a round costs only as much as has changed. It is not safe for concurrent use.
type Engine struct {
	Setting
	subjects map[inventory.Ref]*subject
	// listed are the subjects of the newest list, in its order.
	listed []*subject
	gangs  map[string][]*subject
	// readUntil is the end of the usage read so far, and listCount the number of listings.
	readUntil time.Time
	listCount int
	// chargesCurrent is set if charges match the listed resources.
	chargesCurrent bool
	charges        map[inventory.Ref][]ledger.Charge
	// chargeFacts is the newest result of Setting.ChargeFacts. usesCharges is set if policies use
	// it, so that every answer may change with it.
	chargeFacts func(f *policy.Facts)
	usesCharges bool
	// watch are the GPU figures that policies use; nil without any.
	watch *duty.Watch
	// verdictOnly omits the text of verdicts, and changedOnly passes only changed subjects to the
	// ladder. Replays set both.
	verdictOnly, changedOnly bool
	// evaluated and proposed are reused by the millions of rounds of a replay.
	evaluated map[inventory.Ref]bool
	proposed  []action.Proposal
	// recheck replaces reading everything again in a replay, whose account has no delay.
	recheck func(ctx context.Context, items []action.Item) (map[string]action.Proposal, error)
}

// New returns an engine that has seen nothing yet.
func New(s Setting) *Engine {
	if s.LookBack <= 0 {
		s.LookBack = duty.DefaultLookBack
	}
	s.LookBack = max(s.LookBack, s.Query.Window)
	var watch *duty.Watch
	if s.Policies != nil {
		if watch = s.Policies.Watch(); watch != nil {
			s.LookBack = max(s.LookBack, watch.Horizon()+overlap) // its newest samples may be old
		}
	}
	if s.Step <= 0 {
		s.Step = stepFor(s.LookBack)
	}
	e := &Engine{Setting: s, watch: watch, subjects: map[inventory.Ref]*subject{}, gangs: map[string][]*subject{}}
	if s.ChargeFacts != nil && s.Policies != nil {
		e.usesCharges = slices.ContainsFunc(s.Policies.Policies, (*policy.Policy).UsesCharges)
	}
	return e
}

// newTracker returns an empty tracker that keeps what the policies need.
func (e *Engine) newTracker(s *subject) *duty.Tracker {
	k := duty.NewTracker(e.Duty, e.Activity, e.LookBack).Watch(e.watch)
	if s.tracker != nil {
		k.RestoreProgress(s.tracker.Progress())
	} else if e.Progress != nil {
		if p, kept := e.Progress(s.Resource); kept {
			k.RestoreProgress(p)
		}
	}
	return k
}

// subject is the engine's state about one resource.
type subject struct {
	*inventory.Resource
	ref     inventory.Ref
	tracker *duty.Tracker
	// windowSpans are the resource's own states over the window of an audit. It was last judged at
	// judgedAt, and its verdict may change without new samples at nextChange.
	windowSpans          duty.Spans
	judgedAt, nextChange time.Time
	// ownVerdict is the verdict on the resource alone, groupVerdict that on its gang; nil if it is
	// not judged.
	ownVerdict   *duty.Verdict
	groupVerdict *duty.Verdict
	// maybeIncomplete is set if machines of its gang may be missing from the list.
	maybeIncomplete bool
	// unreadReason is why its metrics could not be read in the newest round; empty if they were.
	unreadReason string
	hourly       inventory.Fact[money.Amount]
	facts        policy.Facts
	answers      []answer // of the policies, in their order
	// hasItem is set if the ladder has an open item of it.
	hasItem bool
	// dirty is set if the resource or its samples changed since it was judged.
	dirty      bool
	listNumber int // the number of the newest list that contains it
	// record is the progress that is kept for later processes, as it was at recorded.
	record   duty.Progress
	recorded time.Time

	// State of a replay: the machines of its gang, the times in nanoseconds since 1970 at which it
	// and its ladder item are due, its index in the queue, its number in the feed, and whether this
	// round evaluates it.
	gang             []*subject
	dueAt, itemDueAt int64
	queueIndex       int
	number           int
	queued           bool
	extendedVerdict  duty.Verdict        // groupVerdict, extended by samples that are known ahead
	ownBuffer        duty.Verdict        // the memory of ownVerdict
	lastResource     *inventory.Resource // the resource when it was last present
	ended            *inventory.Resource // the resource as it ended; nil while it is present
	charges          []ledger.Charge
	// foresight are the policies' answers while it works and while it rests. foreseenUntil is the
	// time until which the current answer is foreseen; 0 if the policies were evaluated.
	foresight      [2]foresight
	foreseenUntil  int64
	ladderResource *inventory.Resource // as last passed to the ladder
}

// answer is a policy's last answer about a subject.
type answer struct {
	usage.Tristate
	next     time.Time
	selected usage.Tristate
	// reportedAnswer and reportedState were last reported by a replay.
	reportedAnswer usage.Tristate
	reportedState  duty.State
	reported       bool
	// ladderTrue is set if the last answer passed to the ladder was true.
	ladderTrue bool
}

// Result is the result of a round.
type Result struct {
	StartedAt, FinishedAt time.Time
	Observation
	// Verdicts are the verdicts over the window of an audit, by resource.
	Verdicts map[inventory.Ref]duty.Verdict
	Charges  map[inventory.Ref][]ledger.Charge
	// Window is the cost of the account over the window of an audit, by team, as far as this round
	// alone shows it. Nil without a window.
	Window   *costs.Costs
	Findings []finding.Finding
	Totals   Totals
	// Billing are the totals of the supplied bill; nil without one.
	Billing *Billing
	// Facts are the facts that the policies used, in the order of the resources.
	Facts []*policy.Facts
	// Progress is the record of progress of each machine that works, for [Setting.Progress] of
	// later processes; it may be of up to an hour ago.
	Progress map[inventory.Ref]duty.Progress
	// Proposals are the actions that policies and people want.
	Proposals []action.Proposal
	// GoneRequests are requests whose findings do not hold any more; ManualRequests are those whose
	// fix no API call carries out.
	GoneRequests, ManualRequests []Request
	// Untagged are the resources that lack tags, in their order; only with a Tagging.
	Untagged []Untagged
	// ChangedRequests are requests whose fix differs from the one shown to the person.
	ChangedRequests []Request
	// Reports are the reports of the ladder, one per account.
	Reports []action.Report
	// Counts are the counts of the policies, in their order.
	Counts []PolicyCount
	kinds  map[inventory.Kind]bool // the requested kinds; nil is all
	// Unposted are the accounts that could not be charged and were not acted on.
	Unposted map[string]error
}

// Lines returns the report lines of all accounts.
func (r *Result) Lines() []action.Line {
	var out []action.Line
	for _, rep := range r.Reports {
		out = append(out, rep.Lines...)
	}
	return out
}

// NextAt returns when the ladder has work again; zero if not before something changes.
func (r *Result) NextAt() time.Time {
	var next time.Time
	for _, rep := range r.Reports {
		if next.IsZero() || (!rep.NextAt.IsZero() && rep.NextAt.Before(next)) {
			next = rep.NextAt
		}
	}
	return next
}

// Freeze returns the freeze that held back all actions; nil without one.
func (r *Result) Freeze() *action.Freeze {
	for _, rep := range r.Reports {
		if rep.Frozen != nil {
			return rep.Frozen
		}
	}
	return nil
}

// IsPartial reports whether something failed or could not be read.
func (r *Result) IsPartial() bool {
	return len(r.BlindSpots) > 0 || len(r.Unposted) > 0 || slices.ContainsFunc(r.Reports, func(r action.Report) bool {
		return r.Partial
	})
}

// Round makes one round: observe, judge, charge, decide, act. It never sleeps. A result returned
// with an error holds the steps before it.
func (e *Engine) Round(ctx context.Context) (*Result, error) {
	r := &Result{StartedAt: e.Clock().UTC(), kinds: e.Query.Kinds}
	now := r.StartedAt
	if err := e.observe(ctx, r, now); err != nil {
		return nil, err
	}
	woken := e.judge(now)
	if err := e.charge(ctx, r, now); err != nil {
		return nil, err
	}
	if err := e.readChargeFacts(ctx, now); err != nil {
		return nil, err
	}
	if err := e.decide(r, woken, now); err != nil {
		return nil, err
	}
	err := e.act(ctx, r, woken)
	r.Counts = e.counts(r)
	r.FinishedAt = e.Clock().UTC()
	if err == nil {
		err = ctx.Err()
	}
	return r, err
}

// NextDue returns when a policy's answer may next change by time alone; zero if not before
// something changes.
func (e *Engine) NextDue() time.Time {
	var due time.Time
	for _, s := range e.listed {
		for i := range s.answers {
			if next := s.answers[i].next; s.answers[i].selected == usage.True && !next.IsZero() &&
				(due.IsZero() || next.Before(due)) {
				due = next
			}
		}
	}
	return due
}

// freshEngine returns an engine of the same setting that observes some resources without earlier
// observations, and stops before act.
func (e *Engine) freshEngine(only map[inventory.Ref]bool) *Engine {
	s := e.Setting
	s.Ladder, s.Books = nil, nil
	s.Progress = func(r *inventory.Resource) (duty.Progress, bool) {
		k := e.subjects[r.Ref()]
		if k == nil || k.Resource == nil || !k.CreatedAt.Equal(r.CreatedAt) {
			return duty.Progress{}, false
		}
		return k.tracker.Progress(), true
	}
	s.Query.Only, s.Query.Progress = only, nil
	return New(s)
}

// decide evaluates the rules and the policies.
func (e *Engine) decide(r *Result, woken []*subject, now time.Time) error {
	if e.Audit != nil {
		if err := e.judgeFindings(r, now); err != nil {
			return err
		}
		e.addRequests(r, now)
	}
	if e.Tagging != nil {
		e.untagged(r, now)
	}
	if e.Policies != nil {
		e.evaluate(woken, now)
		r.Proposals = append(r.Proposals, e.propose(nil, woken, r.Unread)...)
	}
	e.completeGroupProposals(r.Proposals)
	for _, s := range e.listed {
		if e.Policies == nil {
			e.gatherFacts(s, now)
		}
		r.Facts = append(r.Facts, &s.facts)
		e.keepProgress(r, s, now)
	}
	return nil
}

// recordEvery is how often the record of progress that is kept is brought up to date. What came
// since is read again with the samples of the look-back, which is longer.
const recordEvery = time.Hour

// keepProgress updates the progress record of a working machine.
func (e *Engine) keepProgress(r *Result, s *subject, now time.Time) {
	p := s.tracker.Progress()
	if p.From.IsZero() {
		s.recorded = time.Time{}
		return
	}
	if now.Sub(s.recorded) >= recordEvery || !p.From.Equal(s.record.From) {
		s.record, s.recorded = p, now
	}
	if r.Progress == nil {
		r.Progress = map[inventory.Ref]duty.Progress{}
	}
	r.Progress[s.ref] = s.record
}

// act passes the proposals to the ladder of each account. A failing ladder does not stop the
// others.
func (e *Engine) act(ctx context.Context, r *Result, woken []*subject) error {
	if e.Ladder == nil {
		return nil
	}
	var errs []error
	for _, account := range r.Accounts {
		if err := r.Unposted[r.Cloud+"/"+account]; err != nil {
			continue // never act on an account that is not charged
		}
		var proposals []action.Proposal
		for _, p := range r.Proposals {
			if p.Resource.Account == account {
				proposals = append(proposals, p)
			}
		}
		report, err := e.runLadder(ctx, r.Cloud, account, proposals, woken, r.wasRead)
		r.Reports = append(r.Reports, report)
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// runLadder makes an account's round of the ladder with the proposals about its resources. read
// reports which part of the account was read.
func (e *Engine) runLadder(ctx context.Context, cloud, account string, proposals []action.Proposal, woken []*subject,
	read func(inventory.Ref) bool) (action.Report, error) {
	look := action.Scope{Proposals: proposals, Sources: []string{}, Selected: map[string]int{}}
	if e.Policies != nil {
		look.Unknown = e.isUnknown
		for _, p := range e.Policies.Policies {
			look.Sources = append(look.Sources, p.Name)
			if e.Uncapped {
				look.Selected[p.Name] = math.MaxInt32 // disables the share limit
			}
		}
		if e.changedOnly {
			const few = 64
			if len(e.evaluated) > few { // clearing a map costs as much as its largest size
				e.evaluated = map[inventory.Ref]bool{}
			}
			clear(e.evaluated)
			for _, s := range woken {
				e.evaluated[s.ref] = true
			}
			look.Evaluated = e.evaluated
		} else {
			look.Includes = read
		}
		if !e.Uncapped {
			e.countSelected(look.Selected, account)
		}
	}
	for _, q := range e.Requests {
		if q.Resource.Account == account {
			look.Sources = append(look.Sources, FindingSource(q.Finding))
		}
	}
	if e.Tagging != nil {
		look.Sources, look.Includes = append(look.Sources, TagSource), read
		look.Selected[TagSource] = math.MaxInt32 // disables the share limit
	}
	ladder := e.Ladder(cloud + "/" + account)
	if ladder.Verify = e.verify; e.recheck != nil {
		ladder.Verify = e.recheck
	}
	report, err := ladder.Round(ctx, look)
	if err != nil {
		err = fmt.Errorf("act on %s: %w", account, err)
	}
	e.noteOpenItems(report)
	return report, err
}

// countSelected counts the resources that each policy selects in an account.
func (e *Engine) countSelected(selected map[string]int, account string) {
	for _, s := range e.subjects {
		for i := range s.answers {
			if s.answers[i].selected == usage.True && s.ref.Account == account {
				selected[e.Policies.Policies[i].Name]++
			}
		}
	}
}

// wasRead reports whether the round read the part of the account with the resource, so that its
// absence means that it is gone.
func (r *Result) wasRead(ref inventory.Ref) bool {
	if r.kinds != nil && !r.kinds[ref.Kind] {
		return false
	}
	return slices.Contains(r.RegionsRead(ref.Account), ref.Region)
}

// RegionsRead returns the regions of an account that were read.
func (o *Observation) RegionsRead(account string) []string {
	if regions, differ := o.RegionsOf[account]; differ {
		return regions
	}
	return o.Regions
}

// CompleteParts returns the kinds and regions of an account that were listed completely: a resource
// of such a part that is missing does not exist.
func (r *Result) CompleteParts(account string) []snapshot.Part {
	var out []snapshot.Part
	for _, region := range slices.Compact(slices.Sorted(slices.Values(r.RegionsRead(account)))) {
		for _, kind := range inventory.Kinds() {
			if (r.kinds == nil || r.kinds[kind]) && !r.Unread[account+"/"+region+"/"+string(kind)] {
				out = append(out, snapshot.Part{Region: region, Kind: kind})
			}
		}
	}
	return out
}

// noteOpenItems updates which subjects have an open item in the ladder.
func (e *Engine) noteOpenItems(report action.Report) {
	for _, l := range report.Lines {
		if s := e.subjects[l.Resource]; s != nil {
			switch l.Result {
			case action.ResultConfirmed, action.ResultRefused, action.ResultWithdrawn, action.ResultUndone:
				s.hasItem = false
			default:
				s.hasItem = true
			}
		}
	}
}

// verify reads the resources of items and of their gangs again, and returns what is proposed for
// the items now.
func (e *Engine) verify(ctx context.Context, items []action.Item) (map[string]action.Proposal, error) {
	only := map[inventory.Ref]bool{}
	for _, it := range items {
		only[it.Ref] = true
		for _, ref := range append(e.membersOf(it), it.Gang...) {
			only[ref] = true
		}
		if s := e.subjects[it.Ref]; s != nil {
			for _, o := range e.gangs[gangOf(s.Resource)] {
				only[o.ref] = true
			}
		}
	}
	if len(e.Requests) > 0 { // a finding depends on more than its own resource
		only = nil
	}
	r, err := e.freshEngine(only).Round(ctx)
	if err != nil {
		return nil, err
	}
	return byItem(items, r.Proposals), nil
}

// byItem returns the proposals for items, by item id.
func byItem(items []action.Item, proposals []action.Proposal) map[string]action.Proposal {
	type key struct {
		ref    inventory.Ref
		source string
	}
	found := map[key]action.Proposal{}
	for _, p := range proposals {
		found[key{p.Resource.Ref(), p.Source}] = p
	}
	out := map[string]action.Proposal{}
	for _, it := range items {
		if p, ok := found[key{it.Ref, it.Source}]; ok {
			out[it.ID] = p
		}
	}
	return out
}
