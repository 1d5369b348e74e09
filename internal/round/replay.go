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

// Feed is an account whose changes have known times, such as a recorded one. Its time never goes
// back. Resources are numbered.
type Feed interface {
	// NextTime returns the time of the next event; false after the last one.
	NextTime() (time.Time, bool)
	// Advance calls visit for every sample available up to and including to, per meter in time
	// order except late samples. A run of equal samples may extend past to.
	Advance(to time.Time, visit func(FeedSamples))
	// SamplesSince calls visit for the known samples of a resource from a time on, in order.
	SamplesSince(resource int, from time.Time, visit func(FeedSamples))
	// Resource returns the current state of a resource, nil if it is absent. The pointer stays the
	// same until the resource changes.
	Resource(i int) *inventory.Resource
	// ReturnsAt returns when an absent resource is present again; false if it is not before another
	// event.
	ReturnsAt(i int) (time.Time, bool)
	// SourceInfo describes the samples.
	SourceInfo() usage.SourceInfo
}

// FeedSamples are new samples of one meter: equal ones, one step apart.
type FeedSamples struct {
	Resource int
	// GPU is empty for a signal of the machine, and if the source names no GPU.
	GPU    string
	Signal usage.Signal
	Start  time.Time
	Count  int
	Value  float64
	// Late is set if newer samples of the GPU were visited before: the tracker has to be rebuilt
	// from [Feed.SamplesSince].
	Late bool
}

// Replay configures the replay of a feed.
type Replay struct {
	Feed
	// SetTime is called with the time of every round before it begins; the setting's clock returns
	// it.
	SetTime func(now time.Time)
	// Until is the end of the replay.
	Until time.Time
	// Interval makes rounds only at multiples of a duration since the Unix epoch, as processes
	// started by cron do, and evaluates everything in each. 0 makes one at every sample and every
	// known change.
	Interval time.Duration
	// OnAnswer, if set, is called for every change of a policy's answer about a resource; why
	// returns the reason and is valid only within the call. OnLines is called with the ladder's
	// report of a round.
	OnAnswer func(told PolicyAnswer, why func() string)
	OnLines  func(now time.Time, lines []action.Line)
}

// PolicyAnswer is a policy's answer about a resource from a time on.
type PolicyAnswer struct {
	At       time.Time
	Resource int
	// Policy is its index in the set.
	Policy int
	Answer usage.Tristate
	// State is the state of the resource's verdict.
	State duty.State
	// Progress is the time of the last progress of the work; zero is unknown.
	Progress time.Time
	// Repeated is set if the policy gave the same answer in this state before, for the same reason.
	Repeated bool
}

// never is after all times, in nanoseconds since 1970.
const never = math.MaxInt64

// replay is the state of a replay.
type replay struct {
	*Engine
	Replay
	source          usage.SourceInfo
	resource        map[int]*subject
	queue           queue
	woken           []*subject
	presentSubjects []*subject // the present ones among woken
	now             time.Time
	account         ledger.Account
	regions         []string
	// charged is the time of the last charge of all present subjects. newSubjects have appeared
	// since then, and returned are the earlier ends of those among them that were present before.
	charged     time.Time
	newSubjects []*subject
	returned    []*inventory.Resource
	// everySample is set if policies use a value that every sample changes; foreseeable if their
	// answers can be foreseen.
	everySample, foreseeable bool
	// notifyOnly is set if policies only notify people, so that nothing new happens while no answer
	// changes.
	notifyOnly bool
	// samplesVisitor and whyVisitor are addSamples and why as values, for the answer being
	// reported.
	samplesVisitor func(FeedSamples)
	whyVisitor     func() string
	answerSubject  *subject
	answerPolicy   int
}

// Run replays a feed event by event: at each time all samples come first, then the decisions. The
// rounds are the engine's own.
func (e *Engine) Run(ctx context.Context, p Replay) error {
	e.verdictOnly, e.changedOnly, e.evaluated = true, p.Interval == 0, map[inventory.Ref]bool{}
	r := &replay{Engine: e, Replay: p, source: p.SourceInfo(), resource: map[int]*subject{}}
	e.recheck, r.samplesVisitor, r.whyVisitor = r.recheck, r.addSamples, r.why
	for _, p := range e.Policies.Policies {
		e.verdictOnly = e.verdictOnly && !p.UsesFact("duty.why")
		r.everySample = r.everySample || p.UsesFact("duty.why") || p.UsesFact("duty.coverage")
	}
	r.foreseeable = e.Uncapped && !r.everySample && !r.usesCharges &&
		!slices.ContainsFunc(e.Policies.Policies, func(p *policy.Policy) bool { return !p.IgnoresTime() })
	r.notifyOnly = p.Interval == 0 && !slices.ContainsFunc(e.Policies.Policies, func(p *policy.Policy) bool {
		return p.Do.Verb != policy.Notify
	})
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now, ok := r.next()
		if !ok || now.After(r.Until) {
			return r.finish(ctx)
		}
		if err := r.round(ctx, now); err != nil {
			return err
		}
	}
}

// next returns the time of the next round.
func (r *replay) next() (time.Time, bool) {
	at, ok := r.Feed.NextTime()
	if len(r.queue) > 0 && r.queue[0].dueAt < never {
		if due := timeOf(r.queue[0].dueAt); !ok || due.Before(at) {
			at, ok = due, true
		}
	}
	if hour := r.nextCharge(); r.Interval == 0 && !r.charged.IsZero() && (!ok || hour.Before(at)) {
		at, ok = hour, true
	}
	if r.Interval > 0 {
		every := int64(r.Interval)
		switch {
		case !r.now.IsZero(): // no round is skipped, because each confirms the warnings
			at, ok = timeOf((r.now.UnixNano()/every+1)*every), true
		case ok:
			at = timeOf((at.UnixNano() + every - 1) / every * every)
		}
	}
	return at, ok
}

func timeOf(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// round makes the rounds of one time: one, and another if the ladder has something due immediately.
func (r *replay) round(ctx context.Context, now time.Time) error {
	r.now = now
	r.SetTime(now)
	r.woken = r.woken[:0]
	r.Feed.Advance(now, r.samplesVisitor)
	for len(r.queue) > 0 && r.queue[0].dueAt <= now.UnixNano() {
		s := r.queue[0]
		s.dueAt = never
		heap.Fix(&r.queue, 0)
		r.wake(s)
	}
	charges := r.Books != nil && !now.Before(r.nextCharge())
	if r.Interval > 0 || charges && r.usesCharges {
		for _, s := range r.queue {
			r.wake(s)
		}
	}
	if len(r.woken) > 1 {
		slices.SortFunc(r.woken, func(a, b *subject) int { return cmp.Compare(a.number, b.number) })
	}
	for again := len(r.woken) > 0 || charges; again; {
		var err error
		if again, err = r.step(ctx, now); err != nil {
			return err
		}
	}
	for _, s := range r.woken {
		s.queued = false
		r.schedule(s)
	}
	return nil
}

// step judges, evaluates and acts once, and reports whether more is due at this time.
func (r *replay) step(ctx context.Context, now time.Time) (bool, error) {
	present := r.present()
	for _, s := range present {
		if s.gang == nil {
			r.judgeOwn(s, now)
			s.groupVerdict = s.ownVerdict
		} else if s.isGangLeader() {
			r.judgeGang(s.gang, now)
		}
	}
	if err := r.charge(ctx, now); err != nil {
		return false, err
	}
	act := false
	for i, s := range present {
		if s.foreseenUntil = r.applyForesight(s); s.foreseenUntil == 0 {
			r.evaluate(present[i:i+1], now)
			r.foresee(s)
		}
		act = act || (s.hasItem || s.hasProposal()) && !r.nothingNew(s)
		r.reportAnswers(s)
	}
	if !act || r.Ladder == nil {
		return false, nil
	}
	r.proposed = r.propose(r.proposed[:0], present, nil)
	report, err := r.runLadder(ctx, r.account.Cloud, r.account.ID, r.proposed, present, nil)
	if r.OnLines != nil && len(report.Lines) > 0 {
		r.OnLines(now, report.Lines)
	}
	if err != nil {
		return false, err
	}
	for _, s := range present {
		s.itemDueAt, s.ladderResource = never, s.Resource
		for i := range s.answers {
			s.answers[i].ladderTrue = s.answers[i].Tristate == usage.True
		}
		r.refresh(s) // the action may have removed it
	}
	again := false
	for _, l := range report.Lines {
		s := r.subjects[l.Resource]
		if s == nil || l.NextAt.IsZero() {
			continue
		}
		if at := l.NextAt.UnixNano(); at > now.UnixNano() {
			s.itemDueAt = min(s.itemDueAt, at)
		} else {
			again = true
		}
	}
	return again && r.Interval == 0, nil
}

// nextCharge returns the time of the next charge of all present subjects: in every round with an
// Interval, as processes do, and otherwise at every whole hour, the resolution of the ledger.
func (r *replay) nextCharge() time.Time {
	if r.Interval > 0 {
		return r.charged.Add(1)
	}
	return r.charged.Truncate(time.Hour).Add(time.Hour)
}

// charge posts the present subjects if that is due, and new ones immediately; then it reads the
// facts that depend on the charges.
func (r *replay) charge(ctx context.Context, now time.Time) error {
	whole := !now.Before(r.nextCharge())
	if r.Books == nil || !whole && len(r.newSubjects) == 0 {
		return nil
	}
	account := func() *Result {
		return &Result{
			Observation: Observation{Cloud: r.account.Cloud, Accounts: []string{r.account.ID}},
			Charges:     map[inventory.Ref][]ledger.Charge{},
		}
	}
	if len(r.returned) > 0 {
		before := account()
		before.Ended = r.returned
		// seconds are the ledger's resolution of order
		if err := r.post(ctx, before, now.Add(-time.Second)); err != nil {
			return err
		}
	}
	out, list := account(), r.newSubjects
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
	r.newSubjects, r.returned = r.newSubjects[:0], nil
	if err := r.post(ctx, out, now); err != nil || !whole {
		return err
	}
	return r.readChargeFacts(ctx, now)
}

func (r *replay) post(ctx context.Context, out *Result, now time.Time) error {
	for _, seen := range r.LedgerObservations(out, now) {
		if err := r.Books.Post(ctx, seen); err != nil {
			return err
		}
	}
	return nil
}

// finish charges up to the end of the replay.
func (r *replay) finish(ctx context.Context) error {
	if r.Books == nil || r.Interval > 0 || !r.charged.Before(r.Until) {
		return nil
	}
	r.now, r.charged = r.Until, time.Time{}
	for _, s := range r.queue {
		r.refresh(s)
	}
	return r.charge(ctx, r.Until)
}

// EndedResource returns a resource as stopped at a time, its last known state.
func EndedResource(r *inventory.Resource, at time.Time) *inventory.Resource {
	out := *r
	out.State, out.StateSince = inventory.StateStopped, at
	return &out
}

// recheck judges the subjects of items and their gangs again, and evaluates the policies.
func (r *replay) recheck(_ context.Context, items []action.Item) (map[string]action.Proposal, error) {
	var again []*subject
	for _, it := range items {
		s := r.subjects[it.Ref]
		if s == nil || s.Resource == nil {
			continue
		}
		if s.gang == nil {
			r.judgeOwn(s, r.now)
			s.groupVerdict = s.ownVerdict
		} else {
			r.judgeGang(s.gang, r.now)
		}
		again = append(again, s)
	}
	r.evaluate(again, r.now)
	return byItem(items, r.propose(nil, again, nil)), nil
}

// present returns the woken subjects that are present.
func (r *replay) present() []*subject {
	r.presentSubjects = r.presentSubjects[:0]
	for _, s := range r.woken {
		if r.refresh(s); s.Resource != nil {
			r.presentSubjects = append(r.presentSubjects, s)
		}
	}
	return r.presentSubjects
}

// refresh updates a subject from the feed. An absent one has no verdict, and its samples are
// forgotten.
func (r *replay) refresh(s *subject) {
	res := r.Feed.Resource(s.number)
	switch {
	case res == nil:
		if s.Resource != nil {
			s.ended = EndedResource(s.Resource, r.now)
		}
		s.Resource, s.tracker, s.ownVerdict, s.groupVerdict, s.hasItem, s.itemDueAt, s.foreseenUntil = nil, nil,
			nil, nil, false, never, 0
		for i := range s.answers {
			s.answers[i] = answer{}
		}
	case s.Resource != res:
		if s.Resource == nil && r.Books != nil {
			if s.ended != nil && r.Interval == 0 && !s.ended.StateSince.Before(r.charged) {
				r.returned = append(r.returned, s.ended)
			}
			r.newSubjects, s.ended = append(r.newSubjects, s), nil
		}
		if s.Resource = res; s.lastResource == res {
			break
		}
		s.lastResource, s.foresight = res, [2]foresight{}
		s.charges = ledger.RunRates([]*inventory.Resource{res}, r.Prices)[s.ref]
		s.hourly, _ = ledger.AnHour(s.charges) // a rate that overflows is unknown
	}
	if res != nil && s.tracker == nil { // a launched machine warms up, measured or not
		s.tracker = r.newTracker(s)
	}
}

// nothingNew reports whether the ladder would find nothing new about a subject.
func (r *replay) nothingNew(s *subject) bool {
	if !r.notifyOnly || s.itemDueAt <= r.now.UnixNano() || s.ladderResource != s.Resource || !s.KeepUntil.IsZero() {
		return false
	}
	return !slices.ContainsFunc(s.answers, func(a answer) bool { return a.ladderTrue != (a.Tristate == usage.True) })
}

// isGangLeader reports whether a subject is the first present one of its gang.
func (s *subject) isGangLeader() bool {
	return s.gang[slices.IndexFunc(s.gang, func(o *subject) bool { return o.Resource != nil })] == s
}

// hasProposal reports whether any policy is true for a subject.
func (s *subject) hasProposal() bool {
	for i := range s.answers {
		if s.answers[i].Tristate == usage.True {
			return true
		}
	}
	return false
}

// reportAnswers reports the policies' answers about a subject that changed.
func (r *replay) reportAnswers(s *subject) {
	if r.OnAnswer == nil {
		return
	}
	state := duty.Unknown
	if s.groupVerdict != nil {
		state = s.groupVerdict.State
	}
	for i := range s.answers {
		a := &s.answers[i]
		if a.reported && a.reportedAnswer == a.Tristate && a.reportedState == state {
			continue
		}
		a.reported, a.reportedAnswer, a.reportedState = true, a.Tristate, state
		r.answerSubject, r.answerPolicy = s, i
		progress, _ := s.facts.LastProgress()
		r.OnAnswer(PolicyAnswer{
			At: r.now, Resource: s.number, Policy: i, Answer: a.Tristate, State: state, Progress: progress,
			Repeated: s.foreseenUntil != 0,
		}, r.whyVisitor)
	}
}

// schedule sets the time at which a subject is next due without new samples.
func (r *replay) schedule(s *subject) {
	at := s.itemDueAt
	earlier := func(t time.Time) {
		if t.After(r.now) && !t.After(r.Until) {
			at = min(at, t.UnixNano())
		}
	}
	if s.groupVerdict != nil {
		earlier(s.groupVerdict.Next)
	}
	if r.everySample && s.ownVerdict != nil && s.ownVerdict.Until.Before(s.tracker.CoveredUntil()) {
		earlier(s.ownVerdict.Until) // the time of the next sample
	}
	if s.foreseenUntil != 0 {
		at = min(at, s.foreseenUntil)
	} else {
		for i := range s.answers {
			earlier(s.answers[i].next)
		}
	}
	if s.Resource == nil {
		if back, ok := r.ReturnsAt(s.number); ok {
			earlier(back)
		}
	} else {
		earlier(s.KeepUntil)
	}
	s.dueAt = at
	heap.Fix(&r.queue, s.queueIndex)
}

// wake marks a subject and its gang for evaluation.
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

// addSamples adds new samples to their subject.
func (r *replay) addSamples(h FeedSamples) {
	s := r.resource[h.Resource]
	if s == nil {
		if s = r.addSubject(h.Resource); s == nil {
			return
		}
	}
	r.wake(s)
	if s.tracker != nil && !h.Late && s.tracker.AddRun(r.source, h.GPU, h.Signal, h.Start, h.Count, h.Value) {
		return
	}
	s.tracker = r.newTracker(s)
	r.Feed.SamplesSince(h.Resource, duty.Horizon(r.now, r.LookBack), func(h FeedSamples) {
		s.tracker.AddRun(r.source, h.GPU, h.Signal, h.Start, h.Count, h.Value)
	})
}

// addSubject creates the subject of a resource.
func (r *replay) addSubject(number int) *subject {
	res := r.Feed.Resource(number)
	if res == nil {
		return nil
	}
	s := &subject{ref: res.Ref(), number: number, dueAt: never, itemDueAt: never, queueIndex: len(r.queue)}
	r.account = ledger.Account{Cloud: res.Cloud, ID: res.Account}
	if !slices.Contains(r.regions, res.Region) {
		r.regions = append(r.regions, res.Region)
	}
	r.resource[number], r.subjects[s.ref] = s, s
	r.queue = append(r.queue, s)
	r.refresh(s)
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

// queue orders subjects by the time at which they are due.
type queue []*subject

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].dueAt, q[j].dueAt), cmp.Compare(q[i].number, q[j].number)) < 0
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].queueIndex, q[j].queueIndex = i, j
}

// Push implements [heap.Interface]; subjects stay in the queue.
func (q *queue) Push(any) {}

// Pop implements [heap.Interface]; subjects stay in the queue.
func (q *queue) Pop() any { return nil }
