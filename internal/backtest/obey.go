package backtest

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Decision is one step that was taken with a resource for a policy.
type Decision struct {
	Time     time.Time `json:"time"`
	Resource string    `json:"resource"`
	Policy   string    `json:"policy"`
	// Step is "warn", the verb that was carried out, "withdraw", "refuse" or "defer".
	Step string `json:"step"`
	// Refusal is the rule that refused it, Cap the cap that deferred it.
	Refusal string `json:"refusal,omitempty"`
	Cap     string `json:"cap,omitempty"`
}

// Decisions are the steps that the lines of a round report. Lines that only wait are none.
func Decisions(at time.Time, lines []action.Line) []Decision {
	var out []Decision
	for _, l := range lines {
		d := Decision{Time: at.UTC(), Resource: l.Resource.ID, Policy: l.Source, Refusal: l.Rule, Cap: l.Cap}
		switch l.Result {
		case action.ResultWarned:
			d.Step = "warn"
		case action.ResultConfirmed, action.ResultActed:
			d.Step = string(l.Verb)
		case action.ResultWithdrawn:
			d.Step = "withdraw"
		case action.ResultRefused:
			d.Step = "refuse"
		case action.ResultDeferred, action.ResultOverCap, action.ResultFuse:
			d.Step = "defer"
		default:
			continue
		}
		out = append(out, d)
	}
	return out
}

// CompareDecisions orders decisions by time, resource and policy.
func CompareDecisions(a, b Decision) int {
	return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Policy, b.Policy))
}

// Notices counts the notices of a policy that only notifies people.
type Notices struct {
	// Times counts them, one each time that its condition began to hold, of how many
	// Resources, and Hours is for how long it held, all of them together.
	Times     int64   `json:"times"`
	Resources int     `json:"resources"`
	Hours     float64 `json:"hours"`
	// CostUSD is the price of Hours: what would have been left to save when people were notified. UnprogressedUSD
	// is the price of the time from the last progress of the work to the end of the condition; null for a policy
	// that does not ask for progress. Both are null where a resource has no price.
	CostUSD         money.Dollars `json:"cost_usd"`
	UnprogressedUSD money.Dollars `json:"without_progress_usd"`
}

// WhyNot is a reason why a policy did nothing, and for how long.
type WhyNot struct {
	// Answer is "false", "unknown", "refused" or, where the caps bind, "deferred".
	Answer string `json:"answer"`
	Reason string `json:"reason"`
	// Resources is how many it was so with, Hours for how long, all of them together.
	Resources int     `json:"resources"`
	Hours     float64 `json:"hours"`
}

// obeyed is the outcome of one policy other than its releases.
type obeyed struct {
	byState map[duty.State]int64 // released, by the verdict at that moment
	unknown int64                // time in which the verdict was unknown
	whyNot  map[reason]*idled
	busy    bool // it released time that the baselines call busy
	acted   bool // it acted at least once, be it only to notify people
	// notices are its notices and their resources, if it only notifies.
	notices Notices
	told    map[int]bool
	// held is the time in which the condition held of each resource, and before that from its last progress
	// until then.
	held map[int]heldTime
	// decisions are its decisions, if the caller asked for them.
	decisions []Decision
}

// heldTime is the time in which a condition held, and the time before it since the last progress of the work, in
// microseconds.
type heldTime struct{ length, before int64 }

type reason struct{ answer, text string }

// idled is for how long a policy did nothing for one reason.
type idled struct {
	resources map[int]bool
	length    int64
}

func newObeyed() *obeyed {
	return &obeyed{
		byState: map[duty.State]int64{}, whyNot: map[reason]*idled{}, told: map[int]bool{}, held: map[int]heldTime{},
	}
}

// obey replays one policy: the engine that acts live, on the account that the trace is.
// Groups of resources that have nothing to do with one another are replayed at the same
// time, on all processors.
func (t *trace) obey(ctx context.Context, pol *policy.Policy, p Params, collect bool) (outcome, error) {
	out := t.newOutcome(collect)
	out.obeyed = newObeyed()
	enforced := *pol
	enforced.Mode = policy.Enforce
	groups := t.account.Groups()
	p.Setting = t.account.charging(p.Setting, []*policy.Policy{pol}, p.Budgets)
	if p.Caps || p.Setting.Books != nil { // actions on one resource affect the others
		groups = [][]int{nil}
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	const batch = 64 // groups are many, and most are small
	for first := 0; first < len(groups); first += batch {
		group.Go(func() error {
			for _, g := range groups[first:min(first+batch, len(groups))] {
				part := t.act(g, &enforced, p)
				if err := part.run(ctx); err != nil {
					return err
				}
				mu.Lock()
				part.into(&out)
				mu.Unlock()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return out, err
	}
	out.total()
	if p.Decided != nil {
		slices.SortStableFunc(out.decisions, CompareDecisions)
		for _, d := range out.decisions {
			p.Decided(d)
		}
	}
	return out, nil
}

// acting is the replay of one policy on some resources.
type acting struct {
	*trace
	Params
	engine *round.Engine
	replay round.Replay
	*obeyed
	verb     policy.Verb // of the policy
	clock    virtual
	feed     *Feed
	said     map[int]*telling
	released []released
	refused  map[refusal]string // the rule of the newest refusal
	warned   map[refusal]bool   // that people were told
	back     map[int]time.Time  // the return times of released resources
}

// returning is a feed with the return times of released resources.
type returning struct {
	*Feed
	back map[int]time.Time
}

// Back implements [round.Feed]. What is released for nothing, while it is not measured,
// and at once again, is looked at again with its next sample.
func (r *returning) ReturnsAt(i int) (time.Time, bool) {
	at, ok := r.back[i]
	return at, ok
}

type refusal struct{ resource, policy string }

// telling is the last notice of the policy about a resource.
type telling struct {
	resource int
	// heldUntil is the end of the last time in which the condition held, which is not counted again.
	heldUntil int64
	at        int64
	end       int64 // of the resource's known time
	unknown   bool  // its verdict is
	holds     bool  // the condition does
	// why is where the time is counted in which nothing is done, nil where the policy acts,
	// and refused where it is refused, or deferred.
	why, refused *idled
	// whys are reasons by statement, for repeated statements.
	whys map[saying]*idled
}

// saying is an answer in a state.
type saying struct {
	answer usage.Tristate
	state  duty.State
}

type released struct {
	resource int
	at       int64
	Released
	state duty.State
}

// act prepares the replay of a policy on some resources, nil for all.
func (t *trace) act(group []int, pol *policy.Policy, p Params) *acting {
	a := &acting{
		trace: t, Params: p, verb: pol.Do.Verb, obeyed: newObeyed(), feed: t.account.Feed(group),
		said:    map[int]*telling{},
		refused: map[refusal]string{}, warned: map[refusal]bool{},
		back: map[int]time.Time{}}
	store := action.NewMemory()
	store.DiscardClosed = true
	var on *cloud
	on = newCloud(t.account, func(i int, stalled bool, _ policy.Verb) error {
		now := a.clock.read()
		r := a.feed.Release(i, stalled)
		a.released = append(a.released, released{i, now.UnixMicro(), r, on.states[i]})
		if again := a.back[i].Equal(now) && r.End.Sub(now) <= time.Microsecond; again ||
			!r.End.Before(a.replay.Until) {
			delete(a.back, i)
		} else {
			a.back[i] = r.End
		}
		a.release(i, now, r)
		return nil
	})
	gap := Unbounded
	if p.Every > 0 && p.MaxRoundGap > 0 {
		gap = p.MaxRoundGap
	}
	ladder := &action.Ladder{
		Store: store, Cloud: on, Notifier: Everybody{}, Account: Cloud + "/", Actor: "replay", Enforce: true,
		Clock: a.clock.clock, MaxRoundGap: gap, Assume: Allowed,
	}
	s := p.Setting
	s.Duty = p.Thresholds
	s.Clock, s.Policies, s.Uncapped, s.Source = a.clock.read, &policy.Set{
		Policies: []*policy.Policy{pol},
	}, !p.Caps, "backtest"
	s.Activity = t.account.params.Activity
	s.AddFacts = on.know
	s.Ladder = func(string) *action.Ladder { return ladder }
	a.engine = round.New(s)
	a.replay = round.Replay{
		Feed: &returning{a.feed, a.back}, SetTime: a.clock.set, Interval: p.Every,
		Until:    t.summary.Last.Add(span(t.step)),
		OnAnswer: a.tell, OnLines: a.lines,
	}
	return a
}

func (a *acting) run(ctx context.Context) error {
	err := a.engine.Run(ctx, a.replay)
	for _, told := range a.said {
		a.spend(told, never)
	}
	return err
}

// into adds the result to an outcome.
func (a *acting) into(out *outcome) {
	slices.SortStableFunc(a.released, func(x, y released) int {
		return cmp.Or(cmp.Compare(x.resource, y.resource), cmp.Compare(x.at, y.at))
	})
	newest, at := -1, cursor{}
	for _, r := range a.released {
		i := a.place[r.resource]
		if i < 0 {
			continue
		}
		length, end := micros(r.Sampled), r.End.UnixMicro()
		out.by[i].Release(length, r.ByWork, a.restart, 1)
		out.releases.add(i, r.at, min(end, r.at+max(length, 0)))
		out.byState[r.state] += length
		if newest != i {
			newest, at = i, a.tracks[i].cursor(a.step)
			at.advance()
		}
		out.busy = out.busy || at.works(r.at, end)
	}
	out.unknown += a.unknown
	out.acted = out.acted || a.acted
	out.notices.Times += a.notices.Times
	for i, h := range a.held {
		sum := out.held[i]
		out.held[i] = heldTime{sum.length + h.length, sum.before + h.before}
	}
	maps.Copy(out.told, a.told)
	for key, w := range a.whyNot {
		sum := out.whyNot[key]
		if sum == nil {
			out.whyNot[key] = w
			continue
		}
		sum.length += w.length
		for i := range w.resources {
			sum.resources[i] = true
		}
	}
	out.decisions = append(out.decisions, a.decisions...)
}

// works says whether a track worked between two times; those asked for do not go back.
func (c *cursor) works(from, to int64) bool {
	for {
		end := c.run.start + c.run.count*c.step
		if end > from && c.run.start < to && !c.run.idle {
			return true
		}
		if next, more := c.peek(); end > to || !more || next >= to {
			return false
		}
		c.advance()
	}
}

// lines takes the lines of the ladder in a round.
func (a *acting) lines(now time.Time, lines []action.Line) {
	for _, d := range Decisions(now, lines) {
		i, _ := a.account.Index(d.Resource)
		if told := a.said[i]; told != nil {
			a.spend(told, now.UnixMicro())
			switch told.refused = nil; {
			case d.Refusal != "":
				told.refused = a.reason(i, "refused", d.Refusal)
			case d.Cap != "":
				told.refused = a.reason(i, "deferred", d.Cap)
			}
		}
		a.acted = a.acted || d.Step == string(a.verb) || d.Step == "warn" && a.verb == policy.Notify
		key := refusal{d.Resource, d.Policy}
		again := a.verb == policy.Notify && d.Step == "warn" && a.warned[key]
		if a.warned[key] = d.Step == "warn"; a.warned[key] && !again {
			a.notices.Times++
			a.told[i] = true
		}
		if again && a.Every == 0 {
			continue // they know
		}
		if d.Step == "refuse" && a.Every == 0 && a.refused[key] == d.Refusal {
			continue // it still is
		}
		a.refused[key] = d.Refusal
		if a.Decided != nil {
			a.decisions = append(a.decisions, d)
		}
	}
}

// tell takes the answer of the policy about a resource.
func (a *acting) tell(t round.PolicyAnswer, why func() string) {
	told := a.said[t.Resource]
	if told == nil {
		if a.place[t.Resource] < 0 {
			return
		}
		told = &telling{
			resource: t.Resource, at: t.At.UnixMicro(),
			end: a.tracks[a.place[t.Resource]].last + a.step, whys: map[saying]*idled{},
		}
		a.said[t.Resource] = told
	}
	a.spend(told, t.At.UnixMicro())
	if t.Answer == usage.True && !told.holds && !t.Progress.IsZero() {
		h := a.held[t.Resource]
		h.before += max(0, t.At.UnixMicro()-max(t.Progress.UnixMicro(), told.heldUntil))
		a.held[t.Resource] = h
	}
	told.unknown, told.refused, told.holds = t.State == duty.Unknown, nil, t.Answer == usage.True
	switch {
	case t.Answer == usage.True:
		told.why = nil
	case t.Repeated:
		told.why = told.whys[saying{t.Answer, t.State}]
	default:
		told.why = a.reason(t.Resource, t.Answer.String(), policy.NormalizeReason(why()))
		told.whys[saying{t.Answer, t.State}] = told.why
	}
}

// reason returns where time is counted in which nothing is done with a resource.
func (a *acting) reason(i int, answer, text string) *idled {
	key := reason{answer, text}
	w := a.whyNot[key]
	if w == nil {
		w = &idled{resources: map[int]bool{}}
		a.whyNot[key] = w
	}
	w.resources[i] = true
	return w
}

// release notes that a resource is away.
func (a *acting) release(i int, now time.Time, r Released) {
	if told := a.said[i]; told != nil {
		a.spend(told, now.UnixMicro())
		told.at, told.unknown, told.holds, told.why, told.refused = r.End.UnixMicro(), false, false, nil, nil
	}
}

// spend counts the time since something was said of a resource.
func (a *acting) spend(told *telling, now int64) {
	length := min(now, told.end) - told.at
	if length <= 0 {
		return
	}
	told.at += length
	if told.unknown {
		a.unknown += length
	}
	if told.holds {
		h := a.held[told.resource]
		h.length += length
		a.held[told.resource], told.heldUntil = h, told.at
	}
	switch {
	case told.refused != nil:
		told.refused.length += length
	case told.why != nil:
		told.why.length += length
	}
}

// reasons are why a policy did nothing, the longest first.
func (o *obeyed) reasons() []WhyNot {
	out := []WhyNot{}
	for key, w := range o.whyNot {
		out = append(out, WhyNot{
			Answer: key.answer, Reason: key.text, Resources: len(w.resources), Hours: hours(w.length),
		})
	}
	slices.SortFunc(out, func(a, b WhyNot) int {
		return cmp.Or(cmp.Compare(b.Hours, a.Hours), cmp.Compare(a.Answer, b.Answer), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}
