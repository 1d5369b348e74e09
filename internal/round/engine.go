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

// Engine makes rounds in one setting. What it knows of a resource it keeps from one
// round to the next, so that a round costs what has changed. It is not safe for
// concurrent use.
type Engine struct {
	Setting
	subjects map[inventory.Ref]*subject
	// listed are those of the newest list, in its order.
	listed []*subject
	gangs  map[string][]*subject
	// read is up to when the sources were read, and lists how often the account was listed.
	read  time.Time
	lists int
	// charged says that the charges are those of what is there.
	charged bool
	charges map[inventory.Ref][]ledger.Charge
	// standing is what Setting.Standing returned in the newest pass; stands says that
	// policies ask for it, so that every answer may change with it.
	standing func(f *policy.Facts)
	stands   bool
	// watch is what policies ask about the GPUs over windows; nil is nothing.
	watch *duty.Watch
	// lean leaves out what only people read of a verdict, and partly tells the ladder only
	// of what was looked at: so a replay does it.
	lean, partly bool
	// looked and proposed are of the newest round of a replay, which makes millions.
	looked   map[inventory.Ref]bool
	proposed []action.Proposal
	// recheck takes the place of reading everything again in a replay, whose account tells
	// at once what has changed.
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
		s.Step = stepOf(s.LookBack)
	}
	e := &Engine{Setting: s, watch: watch, subjects: map[inventory.Ref]*subject{}, gangs: map[string][]*subject{}}
	if s.Standing != nil && s.Policies != nil {
		e.stands = slices.ContainsFunc(s.Policies.Policies, (*policy.Policy).AsksCharges)
	}
	return e
}

// newTracker returns a tracker without samples, of what the policies ask for.
func (e *Engine) newTracker() *duty.Tracker {
	return duty.NewTracker(e.Duty, e.Activity, e.LookBack).Watch(e.watch)
}

// subject is one resource with all that is known of it.
type subject struct {
	*inventory.Resource
	ref     inventory.Ref
	tracker *duty.Tracker
	// did is what it did by itself over the window of an audit: it was judged last at asked,
	// and that may change by itself at turns.
	did          duty.Spans
	asked, turns time.Time
	// own is what it does by itself, and does what it does as a machine of its gang; nil
	// where that is not judged.
	own  *duty.Verdict
	does *duty.Verdict
	// missing says that machines of its gang may not have been seen.
	missing bool
	// unmeasured is why metrics of it could not be read in the newest pass; empty where all were.
	unmeasured string
	hourly     inventory.Fact[money.Amount]
	facts      policy.Facts
	answers    []answer // of the policies, in their order
	// open says that the ladder has an item of it.
	open bool
	// news says that something was learned of it since it was judged last.
	news bool
	seen int // the number of the newest list that it is in

	// A replay's: the machines of its gang, when to look at it next and when the ladder
	// has something due, both in nanoseconds since 1970, its place in the queue, and
	// whether it is to be looked at in this round.
	gang     []*subject
	at, item int64
	place    int
	number   int
	queued   bool
	ahead    duty.Verdict        // does, as far as it is known to last
	kept     duty.Verdict        // own
	was      *inventory.Resource // as it was when it was there last
	ended    *inventory.Resource // as it ended; nil while it is there
	charges  []ledger.Charge
	// foresight is what policies say of it whenever it is at work, and at rest; calm is
	// until when that holds now, 0 where they were asked.
	foresight [2]foresight
	calm      int64
	climbed   *inventory.Resource // as the ladder saw it last
}

// answer is what a policy said of a subject last.
type answer struct {
	usage.Answer
	next     time.Time
	selected usage.Answer
	// last and state are what was told of it in a replay.
	last  usage.Answer
	state duty.State
	told  bool
	// climbed says that the ladder was told that it is true.
	climbed bool
}

// Result is what came of a round.
type Result struct {
	StartedAt, FinishedAt time.Time
	Observation
	// Verdicts are those over the window of an audit, by resource.
	Verdicts map[inventory.Ref]duty.Verdict
	Charges  map[inventory.Ref][]ledger.Charge
	// Window is what the account cost over the window of an audit, by team, as far as this
	// round alone can tell: the waste of an audit. Nil without a window.
	Window   *costs.Costs
	Findings []finding.Finding
	Totals   Totals
	// Billing is what the supplied bill comes to; nil without one.
	Billing *Billing
	// Facts is what the policies saw, in the order of the resources.
	Facts []*policy.Facts
	// Proposals is what policies and people want.
	Proposals []action.Proposal
	// Gone are requests whose findings no longer hold; Manual are those whose fix
	// no call carries out.
	Gone, Manual []Request
	// Untagged are the resources that lack tags, in their order; only with a Tagging.
	Untagged []Untagged
	// Changed are requests whose fix is another one than the person was shown.
	Changed []Request
	// Reports is what the ladder did, for each account.
	Reports []action.Report
	// Counts is what each policy came to, in their order.
	Counts []Count
	kinds  map[inventory.Kind]bool // that were asked for; nil is all
	// Unposted are the accounts that could not be charged, and so not acted on.
	Unposted map[string]error
}

// Lines are those of all accounts.
func (r *Result) Lines() []action.Line {
	var out []action.Line
	for _, rep := range r.Reports {
		out = append(out, rep.Lines...)
	}
	return out
}

// NextAt is when there is something to do again; zero is not before something changes.
func (r *Result) NextAt() time.Time {
	var next time.Time
	for _, rep := range r.Reports {
		if next.IsZero() || (!rep.NextAt.IsZero() && rep.NextAt.Before(next)) {
			next = rep.NextAt
		}
	}
	return next
}

// Frozen is the freeze that held everything back; nil is none.
func (r *Result) Frozen() *action.Freeze {
	for _, rep := range r.Reports {
		if rep.Frozen != nil {
			return rep.Frozen
		}
	}
	return nil
}

// Partial says that something failed or could not be read.
func (r *Result) Partial() bool {
	return len(r.BlindSpots) > 0 || len(r.Unposted) > 0 || slices.ContainsFunc(r.Reports, func(r action.Report) bool {
		return r.Partial
	})
}

// Round makes one round of what is due now: observe, judge, charge, decide, act. It
// never sleeps. A result that comes with an error holds what was done before it.
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
	if err := e.stand(ctx, now); err != nil {
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

// Due is when an answer of the policies may change next by time alone; zero is not before
// something changes.
func (e *Engine) Due() time.Time {
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

// again is an engine of the same setting that observes some resources again without the
// earlier observations, and stops before it acts.
func (e *Engine) again(only map[inventory.Ref]bool) *Engine {
	s := e.Setting
	s.Ladder, s.Books = nil, nil
	s.Query.Only, s.Query.Progress = only, nil
	return New(s)
}

// decide asks the rules and the policies.
func (e *Engine) decide(r *Result, woken []*subject, now time.Time) error {
	if e.Audit != nil {
		if err := e.findings(r, now); err != nil {
			return err
		}
		e.requests(r, now)
	}
	if e.Tagging != nil {
		e.untagged(r, now)
	}
	if e.Policies != nil {
		e.ask(woken, now)
		r.Proposals = append(r.Proposals, e.propose(nil, woken, r.Unread)...)
	}
	e.ofGroups(r.Proposals)
	for _, s := range e.listed {
		if e.Policies == nil {
			e.know(s, now)
		}
		r.Facts = append(r.Facts, &s.facts)
	}
	return nil
}

// act hands every account's ladder what is proposed there. An account whose ladder fails
// keeps no other one from acting.
func (e *Engine) act(ctx context.Context, r *Result, woken []*subject) error {
	if e.Ladder == nil {
		return nil
	}
	var errs []error
	for _, account := range r.Accounts {
		if err := r.Unposted[r.Cloud+"/"+account]; err != nil {
			continue // what is not charged is not acted on
		}
		var proposals []action.Proposal
		for _, p := range r.Proposals {
			if p.Resource.Account == account {
				proposals = append(proposals, p)
			}
		}
		report, err := e.climb(ctx, r.Cloud, account, proposals, woken, r.read)
		r.Reports = append(r.Reports, report)
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// climb makes an account's round on the ladder: these are the proposals about its
// resources, and read says which part of the account was looked at.
func (e *Engine) climb(ctx context.Context, cloud, account string, proposals []action.Proposal, woken []*subject,
	read func(inventory.Ref) bool) (action.Report, error) {
	look := action.Look{Proposals: proposals, Sources: []string{}, Selected: map[string]int{}}
	if e.Policies != nil {
		for _, p := range e.Policies.Policies {
			look.Sources = append(look.Sources, p.Name)
			if e.Uncapped {
				look.Selected[p.Name] = math.MaxInt32 // a share of them is no limit
			}
		}
		if e.partly {
			const few = 64
			if len(e.looked) > few { // to empty a map takes as long as it once was large
				e.looked = map[inventory.Ref]bool{}
			}
			clear(e.looked)
			for _, s := range woken {
				e.looked[s.ref] = true
			}
			look.Seen = e.looked
		} else {
			look.Within = read
		}
		if !e.Uncapped {
			e.count(look.Selected, account)
		}
	}
	for _, q := range e.Requests {
		if q.Resource.Account == account {
			look.Sources = append(look.Sources, FindingSource(q.Finding))
		}
	}
	if e.Tagging != nil {
		look.Sources, look.Within = append(look.Sources, TagSource), read
		look.Selected[TagSource] = math.MaxInt32 // a share of them is no limit
	}
	ladder := e.Ladder(cloud + "/" + account)
	if ladder.Verify = e.verify; e.recheck != nil {
		ladder.Verify = e.recheck
	}
	report, err := ladder.Round(ctx, look)
	if err != nil {
		err = fmt.Errorf("act on %s: %w", account, err)
	}
	e.note(report)
	return report, err
}

// count counts how many machines every policy selects in an account.
func (e *Engine) count(selected map[string]int, account string) {
	for _, s := range e.subjects {
		for i := range s.answers {
			if s.answers[i].selected == usage.True && s.ref.Account == account {
				selected[e.Policies.Policies[i].Name]++
			}
		}
	}
}

// read says whether a round read the part of the account that a resource is in, so that
// its absence means something.
func (r *Result) read(ref inventory.Ref) bool {
	if r.kinds != nil && !r.kinds[ref.Kind] {
		return false
	}
	return slices.Contains(r.RegionsRead(ref.Account), ref.Region)
}

// RegionsRead are the regions that were read of an account.
func (o *Observation) RegionsRead(account string) []string {
	if regions, differ := o.RegionsOf[account]; differ {
		return regions
	}
	return o.Regions
}

// Whole are the kinds and regions of an account that a round listed whole: a resource that
// is not among those of such a part is not there.
func (r *Result) Whole(account string) []snapshot.Part {
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

// note remembers which subjects the ladder has an open item of.
func (e *Engine) note(report action.Report) {
	for _, l := range report.Lines {
		if s := e.subjects[l.Resource]; s != nil {
			switch l.Result {
			case action.ResultConfirmed, action.ResultRefused, action.ResultWithdrawn, action.ResultUndone:
				s.open = false
			default:
				s.open = true
			}
		}
	}
}

// verify reads the resources of items again, with all that belong to their gangs among
// those that the engine knows, and returns what holds for the items now.
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
	if len(e.Requests) > 0 { // a finding rests on more than its own resource
		only = nil
	}
	r, err := e.again(only).Round(ctx)
	if err != nil {
		return nil, err
	}
	return byItem(items, r.Proposals), nil
}

// byItem returns what is proposed for items, by their ids.
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
