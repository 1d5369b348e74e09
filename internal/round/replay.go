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
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Feed is an account whose changes come at known times: a recorded one. Its time does not
// go back. Resources are numbered.
type Feed interface {
	// Next returns when something becomes known next; false when nothing does any more.
	Next() (time.Time, bool)
	// Advance hands over what becomes known up to and at a time, of each meter in order of
	// time but for late samples. Runs of equal samples may reach past the time.
	Advance(to time.Time, visit func(Heard))
	// Since hands over what is known of a resource from a time on, in order.
	Since(resource int, from time.Time, visit func(Heard))
	// Resource returns a resource as it is known now, nil where it is not there. Until
	// something more is said of it, it is the same one.
	Resource(i int) *inventory.Resource
	// Back returns when a resource that is away is there again; false is not before more
	// becomes known of it.
	Back(i int) (time.Time, bool)
	// Opened is what the samples are handed over with.
	Opened() usage.SourceInfo
}

// Heard is what became known of one meter: equal samples, one step apart.
type Heard struct {
	Resource int
	// GPU is empty for a signal of the machine, and where no GPU is named.
	GPU    string
	Signal usage.Signal
	Start  time.Time
	Count  int
	Value  float64
	// Late says that newer samples of the GPU were heard before: the verdicts from those
	// have to be made again from [Feed.Since].
	Late bool
}

// Replay says how a feed is replayed.
type Replay struct {
	Feed
	// Set is told the time of every round before it begins; the setting's clock reads it.
	Set func(now time.Time)
	// Until is the last moment that is replayed.
	Until time.Time
	// Every makes rounds only at the multiples of a duration since the Unix epoch, as
	// processes that cron starts do, and looks at everything in each. 0 makes one at
	// every sample and at every time that was computed before.
	Every time.Duration
	// Told, when set, hears what a policy says of a resource whenever that changes; why
	// returns the reason in words, while Told is under way. Lines hears what the ladder did
	// in a round.
	Told  func(told Told, why func() string)
	Lines func(now time.Time, lines []action.Line)
}

// Told is what a policy says of a resource from a time on.
type Told struct {
	At       time.Time
	Resource int
	// Policy is its number in the set.
	Policy int
	Answer usage.Tristate
	// State is the resource's verdict.
	State duty.State
	// Again says that the policy said so of it in this state before, for the same reason.
	Again bool
}

// never is a time that does not come, in nanoseconds since 1970.
const never = math.MaxInt64

// replay is a replay under way.
type replay struct {
	*Engine
	Replay
	opened   usage.SourceInfo
	resource map[int]*subject
	queue    queue
	woken    []*subject
	there    []*subject // of the woken
	now      time.Time
	account  ledger.Account
	regions  []string
	// charged is when all that is there was charged for last. Since then came is what is
	// there now and was not, and back how it had ended before.
	charged time.Time
	came    []*subject
	back    []*inventory.Resource
	// each says that policies ask for what every sample changes, also one like the sample
	// before it; timeless that what they say can be foreseen.
	each, timeless bool
	// tells says that policies only tell people, so that what they were told once stays so
	// while no answer changes.
	tells bool
	// hearing and because are hear and why, asked about what is told.
	hearing func(Heard)
	because func() string
	about   *subject
	policy  int
}

// Run replays a feed: time goes on from event to event, and of one moment all samples
// come first, then what is decided. The rounds are the engine's own.
func (e *Engine) Run(ctx context.Context, p Replay) error {
	e.lean, e.partly, e.looked = true, p.Every == 0, map[inventory.Ref]bool{}
	r := &replay{Engine: e, Replay: p, opened: p.Opened(), resource: map[int]*subject{}}
	e.recheck, r.hearing, r.because = r.recheck, r.hear, r.why
	for _, p := range e.Policies.Policies {
		e.lean = e.lean && !p.Asks("duty.why")
		r.each = r.each || p.Asks("duty.why") || p.Asks("duty.coverage")
	}
	r.timeless = e.Uncapped && !r.each && !r.stands &&
		!slices.ContainsFunc(e.Policies.Policies, func(p *policy.Policy) bool { return !p.Timeless() })
	r.tells = p.Every == 0 && !slices.ContainsFunc(e.Policies.Policies, func(p *policy.Policy) bool {
		return p.Do.Verb != policy.Notify
	})
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now, ok := r.next()
		if !ok || now.After(r.Until) {
			return r.close(ctx)
		}
		if err := r.round(ctx, now); err != nil {
			return err
		}
	}
}

// next is the time of the next round.
func (r *replay) next() (time.Time, bool) {
	at, ok := r.Feed.Next()
	if len(r.queue) > 0 && r.queue[0].at < never {
		if due := moment(r.queue[0].at); !ok || due.Before(at) {
			at, ok = due, true
		}
	}
	if hour := r.hour(); r.Every == 0 && !r.charged.IsZero() && (!ok || hour.Before(at)) {
		at, ok = hour, true
	}
	if r.Every > 0 {
		every := int64(r.Every)
		switch {
		case !r.now.IsZero(): // every one, because each vouches for what is warned
			at, ok = moment((r.now.UnixNano()/every+1)*every), true
		case ok:
			at = moment((at.UnixNano() + every - 1) / every * every)
		}
	}
	return at, ok
}

func moment(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// round makes the rounds of one moment: one, and where the ladder has something due at
// once another that judges everything again.
func (r *replay) round(ctx context.Context, now time.Time) error {
	r.now = now
	r.Set(now)
	r.woken = r.woken[:0]
	r.Feed.Advance(now, r.hearing)
	for len(r.queue) > 0 && r.queue[0].at <= now.UnixNano() {
		s := r.queue[0]
		s.at = never
		heap.Fix(&r.queue, 0)
		r.wake(s)
	}
	charges := r.Books != nil && !now.Before(r.hour())
	if r.Every > 0 || charges && r.stands {
		for _, s := range r.queue {
			r.wake(s)
		}
	}
	if len(r.woken) > 1 {
		slices.SortFunc(r.woken, func(a, b *subject) int { return cmp.Compare(a.number, b.number) })
	}
	for again := len(r.woken) > 0 || charges; again; {
		var err error
		if again, err = r.turn(ctx, now); err != nil {
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
func (r *replay) turn(ctx context.Context, now time.Time) (bool, error) {
	present := r.present()
	for _, s := range present {
		if s.gang == nil {
			r.verdict(s, now)
			s.does = s.own
		} else if s.leads() {
			r.whole(s.gang, now)
		}
	}
	if err := r.charge(ctx, now); err != nil {
		return false, err
	}
	act := false
	for i, s := range present {
		if s.calm = r.foreseen(s); s.calm == 0 {
			r.ask(present[i:i+1], now)
			r.foresee(s)
		}
		act = act || (s.open || s.proposes()) && !r.told(s)
		r.tell(s)
	}
	if !act || r.Ladder == nil {
		return false, nil
	}
	r.proposed = r.propose(r.proposed[:0], present, nil)
	report, err := r.climb(ctx, r.account.Cloud, r.account.ID, r.proposed, present, nil)
	if r.Lines != nil && len(report.Lines) > 0 {
		r.Lines(now, report.Lines)
	}
	if err != nil {
		return false, err
	}
	for _, s := range present {
		s.item, s.climbed = never, s.Resource
		for i := range s.answers {
			s.answers[i].climbed = s.answers[i].Tristate == usage.True
		}
		r.look(s) // what was acted on may be away
	}
	again := false
	for _, l := range report.Lines {
		s := r.subjects[l.Resource]
		if s == nil || l.NextAt.IsZero() {
			continue
		}
		if at := l.NextAt.UnixNano(); at > now.UnixNano() {
			s.item = min(s.item, at)
		} else {
			again = true
		}
	}
	return again && r.Every == 0, nil
}

// hour is when all that is there is charged for next: in every round of a cadence, as
// processes do, and else at every whole hour, which is how fine the ledger is.
func (r *replay) hour() time.Time {
	if r.Every > 0 {
		return r.charged.Add(1)
	}
	return r.charged.Truncate(time.Hour).Add(time.Hour)
}

// charge posts what there is when that is due, and what came back meanwhile; then it reads
// what follows from the charges.
func (r *replay) charge(ctx context.Context, now time.Time) error {
	whole := !now.Before(r.hour())
	if r.Books == nil || !whole && len(r.came) == 0 {
		return nil
	}
	account := func() *Result {
		return &Result{
			Observation: Observation{Cloud: r.account.Cloud, Accounts: []string{r.account.ID}},
			Charges:     map[inventory.Ref][]ledger.Charge{},
		}
	}
	if len(r.back) > 0 {
		before := account()
		before.Ended = r.back
		// seconds are the finest that the ledger tells apart
		if err := r.post(ctx, before, now.Add(-time.Second)); err != nil {
			return err
		}
	}
	out, list := account(), r.came
	if whole {
		list, out.Regions, r.charged = r.queue, r.regions, now
	}
	for _, s := range list {
		switch {
		case s.Resource != nil:
			out.Resources, out.Charges[s.ref] = append(out.Resources, s.Resource), s.charges
		case s.ended != nil:
			out.Ended = append(out.Ended, s.ended)
		}
	}
	r.came, r.back = r.came[:0], nil
	if err := r.post(ctx, out, now); err != nil || !whole {
		return err
	}
	return r.stand(ctx, now)
}

func (r *replay) post(ctx context.Context, out *Result, now time.Time) error {
	for _, seen := range r.Seen(out, now) {
		if err := r.Books.Post(ctx, seen); err != nil {
			return err
		}
	}
	return nil
}

// close charges up to the end, which no round of processes does.
func (r *replay) close(ctx context.Context) error {
	if r.Books == nil || r.Every > 0 || !r.charged.Before(r.Until) {
		return nil
	}
	r.now, r.charged = r.Until, time.Time{}
	for _, s := range r.queue {
		r.look(s)
	}
	return r.charge(ctx, r.Until)
}

// Ended is a resource that is not there any more, as the last that is heard of it.
func Ended(r *inventory.Resource, at time.Time) *inventory.Resource {
	out := *r
	out.State, out.StateSince = inventory.StateStopped, at
	return &out
}

// recheck judges the subjects of items and their gangs again, and asks the policies.
func (r *replay) recheck(_ context.Context, items []action.Item) (map[string]action.Proposal, error) {
	var again []*subject
	for _, it := range items {
		s := r.subjects[it.Ref]
		if s == nil || s.Resource == nil {
			continue
		}
		if s.gang == nil {
			r.verdict(s, r.now)
			s.does = s.own
		} else {
			r.whole(s.gang, r.now)
		}
		again = append(again, s)
	}
	r.ask(again, r.now)
	return byItem(items, r.propose(nil, again, nil)), nil
}

// present are those of the woken subjects that are there.
func (r *replay) present() []*subject {
	r.there = r.there[:0]
	for _, s := range r.woken {
		if r.look(s); s.Resource != nil {
			r.there = append(r.there, s)
		}
	}
	return r.there
}

// look brings a subject to what the feed says it is. One that is not there does nothing,
// and what was measured of it before is forgotten.
func (r *replay) look(s *subject) {
	res := r.Feed.Resource(s.number)
	switch {
	case res == nil:
		if s.Resource != nil {
			s.ended = Ended(s.Resource, r.now)
		}
		s.Resource, s.tracker, s.own, s.does, s.open, s.item, s.calm = nil, nil, nil, nil, false, never, 0
		for i := range s.answers {
			s.answers[i] = answer{}
		}
	case s.Resource != res:
		if s.Resource == nil && r.Books != nil {
			if s.ended != nil && r.Every == 0 && !s.ended.StateSince.Before(r.charged) {
				r.back = append(r.back, s.ended)
			}
			r.came, s.ended = append(r.came, s), nil
		}
		if s.Resource = res; s.was == res {
			break
		}
		s.was, s.foresight = res, [2]foresight{}
		s.charges = ledger.RunRates([]*inventory.Resource{res}, r.Prices)[s.ref]
		s.hourly, _ = ledger.AnHour(s.charges) // a rate that does not fit is not known
	}
	if res != nil && s.tracker == nil { // what was just launched warms up, measured or not
		s.tracker = r.newTracker(s)
	}
}

// told says that the ladder would find nothing new about a subject.
func (r *replay) told(s *subject) bool {
	if !r.tells || s.item <= r.now.UnixNano() || s.climbed != s.Resource || !s.KeepUntil.IsZero() {
		return false
	}
	return !slices.ContainsFunc(s.answers, func(a answer) bool { return a.climbed != (a.Tristate == usage.True) })
}

// leads says whether a subject is the first of its gang that is there.
func (s *subject) leads() bool {
	return s.gang[slices.IndexFunc(s.gang, func(o *subject) bool { return o.Resource != nil })] == s
}

// proposes says whether any policy wants something of a subject.
func (s *subject) proposes() bool {
	for i := range s.answers {
		if s.answers[i].Tristate == usage.True {
			return true
		}
	}
	return false
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
		if a.told && a.last == a.Tristate && a.state == state {
			continue
		}
		a.told, a.last, a.state = true, a.Tristate, state
		r.about, r.policy = s, i
		r.Told(Told{
			At: r.now, Resource: s.number, Policy: i, Answer: a.Tristate, State: state, Again: s.calm != 0,
		}, r.because)
	}
}

// settle puts a subject where it is to be looked at next without news.
func (r *replay) settle(s *subject) {
	at := s.item
	earlier := func(t time.Time) {
		if t.After(r.now) && !t.After(r.Until) {
			at = min(at, t.UnixNano())
		}
	}
	if s.does != nil {
		earlier(s.does.Next)
	}
	if r.each && s.own != nil && s.own.Until.Before(s.tracker.CoveredUntil()) {
		earlier(s.own.Until) // when the next sample is taken
	}
	if s.calm != 0 {
		at = min(at, s.calm)
	} else {
		for i := range s.answers {
			earlier(s.answers[i].next)
		}
	}
	if s.Resource == nil {
		if back, ok := r.Back(s.number); ok {
			earlier(back)
		}
	} else {
		earlier(s.KeepUntil)
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

// hear takes what became known.
func (r *replay) hear(h Heard) {
	s := r.resource[h.Resource]
	if s == nil {
		if s = r.meet(h.Resource); s == nil {
			return
		}
	}
	r.wake(s)
	if s.tracker != nil && !h.Late && s.tracker.AddRun(r.opened, h.GPU, h.Signal, h.Start, h.Count, h.Value) {
		return
	}
	s.tracker = r.newTracker(s)
	r.Feed.Since(h.Resource, duty.Horizon(r.now, r.LookBack), func(h Heard) {
		s.tracker.AddRun(r.opened, h.GPU, h.Signal, h.Start, h.Count, h.Value)
	})
}

// meet makes a subject of a resource of which something became known for the first time.
func (r *replay) meet(number int) *subject {
	res := r.Feed.Resource(number)
	if res == nil {
		return nil
	}
	s := &subject{ref: res.Ref(), number: number, at: never, item: never, place: len(r.queue)}
	r.account = ledger.Account{Cloud: res.Cloud, ID: res.Account}
	if !slices.Contains(r.regions, res.Region) {
		r.regions = append(r.regions, res.Region)
	}
	r.resource[number], r.subjects[s.ref] = s, s
	r.queue = append(r.queue, s)
	r.look(s)
	if id := gangOf(res); id != "" {
		r.gangs[id] = append(r.gangs[id], s)
		if members := r.gangs[id]; len(members) > 1 {
			for _, o := range members {
				o.gang = members
			}
		}
	}
	return s
}

// queue orders subjects by when they are to be looked at next.
type queue []*subject

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].at, q[j].at), cmp.Compare(q[i].number, q[j].number)) < 0
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push is of [heap.Interface]; subjects stay in the queue.
func (q *queue) Push(any) {}

// Pop is of [heap.Interface]; subjects stay in the queue.
func (q *queue) Pop() any { return nil }
