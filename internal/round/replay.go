package round

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Feed is an account whose changes come at known times: a recorded one. Its clock does
// not go back.
type Feed interface {
	// Next returns when something becomes known next; false when nothing does any more.
	Next() (time.Time, bool)
	// Advance hands over what became known up to and at a time, of each resource in order.
	Advance(to time.Time, v Visitor)
}

// Visitor is told what becomes known of an account.
type Visitor interface {
	// Listed says that a resource is there, or is not what it was: another value each time.
	Listed(r *inventory.Resource)
	// Measured hands over count equal points one step apart; they may reach past the time
	// of the feed, as in [duty.Tracker.AddRun].
	Measured(ref inventory.Ref, o usage.Opened, gpu string, s usage.Signal, start time.Time, count int, v float64)
	// Late says that points became known that are older than others of their meter, which
	// were handed over before: replay hands over all that is known from a time on.
	Late(ref inventory.Ref, replay func(from time.Time, to usage.Sink))
}

// Replay says how a feed is replayed.
type Replay struct {
	Feed
	// Set is told the time of every round before it begins; the setting's Clock reads it.
	Set func(now time.Time)
	// Until is the last moment that is replayed.
	Until time.Time
	// Every makes rounds only at the multiples of a duration since the Unix epoch, as
	// processes that cron starts do, and looks at everything in each. 0 makes one at
	// every sample and at every time that was computed before.
	Every time.Duration
	// Told, when set, hears what a policy says of a resource whenever that changes.
	Told func(Told)
	// Lines, when set, hears what the ladder did in a round.
	Lines func(now time.Time, lines []action.Line)
}

// Told is what a policy says of a resource from a time on.
type Told struct {
	At       time.Time
	Resource *inventory.Resource
	// Policy is its number in the set.
	Policy int
	Answer usage.Answer
	State  duty.State
	// Why returns the reason in words.
	Why func() string
}

// replay is a replay under way.
type replay struct {
	*Engine
	Replay
	ctx     context.Context
	queue   queue
	woken   []*subject
	unread  map[string]bool
	cloud   string
	account string
	now     time.Time
}

// Run replays a feed: time goes on from event to event, and of one moment all samples
// come first, then what is decided. The rounds are the engine's own.
func (e *Engine) Run(ctx context.Context, p Replay) error {
	e.lean, e.partly = true, p.Every == 0
	r := &replay{Engine: e, Replay: p, ctx: ctx}
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now, ok := r.next()
		if !ok || now.After(r.Until) {
			return nil
		}
		if err := r.round(now); err != nil {
			return err
		}
	}
}

// next is the time of the next round.
func (r *replay) next() (time.Time, bool) {
	at, ok := r.Feed.Next()
	if len(r.queue) > 0 && r.queue[0].at < never {
		if due := time.Unix(0, r.queue[0].at).UTC(); !ok || due.Before(at) {
			at, ok = due, true
		}
	}
	if r.Every > 0 && ok {
		// Every multiple, because each is a round that vouches for what is warned.
		every := int64(r.Every)
		first := (at.UnixNano() + every - 1) / every * every
		if !r.now.IsZero() {
			first = (r.now.UnixNano()/every + 1) * every
		}
		at = time.Unix(0, first).UTC()
	}
	return at, ok
}

const never = math.MaxInt64

// round makes the rounds of one moment: one, and where the ladder has something due at
// once another that reads everything again.
func (r *replay) round(now time.Time) error {
	r.now = now
	r.Set(now)
	r.woken = r.woken[:0]
	r.Feed.Advance(now, r)
	for len(r.queue) > 0 && r.queue[0].at <= now.UnixNano() {
		s := r.queue[0]
		s.at = never
		heap.Fix(&r.queue, 0)
		r.wake(s)
	}
	if r.Every > 0 {
		for _, s := range r.queue {
			r.wake(s)
		}
	}
	if len(r.woken) == 0 {
		return nil
	}
	slices.SortFunc(r.woken, func(a, b *subject) int { return inventory.CompareRefs(a.ref, b.ref) })
	for again := true; again; {
		var err error
		if again, err = r.turn(now); err != nil {
			return err
		}
	}
	for _, s := range r.woken {
		s.queued = false
		r.settle(s)
	}
	return nil
}

// turn judges, asks and acts once, and says whether there is more to do at this moment.
func (r *replay) turn(now time.Time) (bool, error) {
	for _, s := range r.woken {
		if s.gang == nil {
			r.verdict(s, now)
			s.does = s.own
		} else if s.gang[0] == s {
			r.whole(s.gang, now)
		}
	}
	r.ask(r.woken, now)
	act := false
	for _, s := range r.woken {
		act = act || s.open || slices.ContainsFunc(s.answers, func(a answer) bool { return a.Answer == usage.True })
		r.tell(s)
	}
	if !act || r.Ladder == nil {
		return false, nil
	}
	for _, s := range r.woken {
		r.explain(s, now)
	}
	out := &Result{Observation: Observation{Cloud: r.cloud, Accounts: []string{r.account}, Unread: r.unread}}
	out.Proposals = r.propose(r.woken, nil)
	report, err := r.climb(r.ctx, out, r.woken, r.account)
	if r.Lines != nil && len(report.Lines) > 0 {
		r.Lines(now, report.Lines)
	}
	if err != nil {
		return false, err
	}
	for _, s := range r.woken {
		s.item = never
	}
	for _, l := range report.Lines {
		if s := r.subjects[l.Resource]; s != nil && !l.DueAt.IsZero() {
			s.item = min(s.item, l.DueAt.UnixNano())
		}
	}
	r.Feed.Advance(now, r) // what was acted on is not what it was
	return r.Every == 0 && !report.NextAt.IsZero() && !report.NextAt.After(now), nil
}

// explain adds to a verdict what people read of it, where a policy proposes something.
func (r *replay) explain(s *subject, now time.Time) {
	if s.does == nil || s.does != s.own || s.tracker == nil || !slices.ContainsFunc(s.answers, func(a answer) bool { return a.Answer == usage.True }) {
		return
	}
	*s.own = s.tracker.Explain(now, duty.MachineOf(s.Resource))
}

// tell says what a policy says of a subject where that has changed.
func (r *replay) tell(s *subject) {
	if r.Told == nil {
		return
	}
	state := duty.Unknown
	if s.does != nil {
		state = s.does.State
	}
	for i := range s.answers {
		a := &s.answers[i]
		if a.told && a.last == a.Answer && a.state == state {
			continue
		}
		a.told, a.last, a.state = true, a.Answer, state
		p := r.Policies.Policies[i]
		r.Told(Told{At: r.now, Resource: s.Resource, Policy: i, Answer: a.Answer, State: state, Why: func() string { return because(p, &s.facts) }})
	}
}

// settle puts a subject where it is to be looked at next without news.
func (r *replay) settle(s *subject) {
	at := s.item
	earlier := func(t time.Time) {
		if !t.IsZero() && t.After(r.now) {
			at = min(at, t.UnixNano())
		}
	}
	if s.does != nil {
		earlier(s.does.Next)
	}
	for i := range s.answers {
		earlier(s.answers[i].next)
	}
	s.at = at
	heap.Fix(&r.queue, s.place)
}

// wake says that a subject, and with it its gang, is to be looked at.
func (r *replay) wake(s *subject) {
	if s.queued {
		return
	}
	if s.gang == nil {
		s.queued = true
		r.woken = append(r.woken, s)
		return
	}
	for _, o := range s.gang {
		if !o.queued {
			o.queued = true
			r.woken = append(r.woken, o)
		}
	}
}

// Listed implements [Visitor].
func (r *replay) Listed(res *inventory.Resource) {
	ref := res.Ref()
	s := r.subjects[ref]
	if s == nil {
		s = &subject{ref: ref, at: never, item: never, place: len(r.queue)}
		r.subjects[ref] = s
		r.queue = append(r.queue, s)
		heap.Fix(&r.queue, s.place)
		r.cloud, r.account = res.Cloud, res.Account
	} else if s.State != res.State {
		s.tracker = nil
	}
	s.Resource = res
	charges := ledger.RunRates([]*inventory.Resource{res}, r.Prices)
	s.hourly, _ = hourly(charges[ref]) // a rate that does not fit is not known
	r.join(s)
	r.wake(s)
}

// join adds a subject to its gang.
func (r *replay) join(s *subject) {
	id := gangOf(s.Resource)
	if id == "" || slices.Contains(r.gangs[id], s) {
		return
	}
	r.gangs[id] = append(r.gangs[id], s)
	for _, o := range r.gangs[id] {
		if len(r.gangs[id]) > 1 {
			o.gang = r.gangs[id]
		}
	}
}

// Measured implements [Visitor].
func (r *replay) Measured(ref inventory.Ref, o usage.Opened, gpu string, sig usage.Signal, start time.Time, count int, v float64) {
	s := r.subjects[ref]
	if s.tracker == nil {
		s.tracker = duty.NewTracker(r.Duty, r.Activity, r.LookBack)
	}
	s.tracker.AddRun(o, gpu, sig, start, count, v)
	r.wake(s)
}

// Late implements [Visitor].
func (r *replay) Late(ref inventory.Ref, again func(from time.Time, to usage.Sink)) {
	s := r.subjects[ref]
	s.tracker = duty.NewTracker(r.Duty, r.Activity, r.LookBack)
	_ = again
	r.wake(s)
}

// queue orders subjects by when they are to be looked at next.
type queue []*subject

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].at, q[j].at), inventory.CompareRefs(q[i].ref, q[j].ref)) < 0
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push is of [heap.Interface]; subjects stay in the queue.
func (q *queue) Push(any) {}

// Pop is of [heap.Interface]; subjects stay in the queue.
func (q *queue) Pop() any { return nil }
