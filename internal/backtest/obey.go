package backtest

import (
	"cmp"
	"container/heap"
	"context"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Decision is one step that a policy took with a resource.
type Decision struct {
	Time             time.Time
	Resource, Policy string
	// Want is [action.Warn] where its people were warned, [action.Verify] where the
	// action was carried out, and [action.Nothing] where it was withdrawn because the
	// condition does not hold any more.
	Want action.Want
}

// assumptions are what the replay of policies rests on.
var assumptions = []string{
	"Policies are replayed as if they were enforced, each for itself, and see only what had been sampled by then. Warnings reach somebody at once.",
	"Resources are governed and free of protection; what the trace does not say of them is unknown, but for an ephemeral instance for experimentation where it says nothing.",
	"What a policy ends stays away until its rest is over, or, where the policy would have ended it at work as well, until work comes back; then its age begins anew.",
}

// obey replays one policy. Resources that have nothing to do with one another are
// replayed at the same time, on all processors.
func (t *trace) obey(ctx context.Context, pol *policy.Policy, p Params, collect bool) (outcome, error) {
	out := t.newOutcome(collect)
	known := judged(p.Format.Step, p.Thresholds)
	crews := t.crews(p.Caps)
	end := t.summary.Last.Add(p.Format.Step).UnixNano()
	parts := make([]outcome, len(crews))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	if p.Decided != nil {
		group.SetLimit(1)
	}
	const batch = 64 // crews are many, and most are small
	for first := 0; first < len(crews); first += batch {
		group.Go(func() error {
			for i := first; i < min(first+batch, len(crews)); i++ {
				b := bench{trace: t, policy: pol, params: p, outcome: outcome{by: out.by, releases: out.releases}, end: end}
				for _, index := range crews[i] {
					b.subjects = append(b.subjects, t.subject(index, pol, &known, p))
				}
				if err := b.run(ctx); err != nil {
					return err
				}
				parts[i] = b.outcome
			}
			return nil
		})
	}
	err := group.Wait()
	for _, part := range parts {
		out.releases = append(out.releases, part.releases...)
		out.unclear += part.unclear
		out.why = cmp.Or(out.why, part.why)
	}
	out.total()
	return out, err
}

// crews divides the resources into those that have to be replayed together: the
// machines of a gang, or with caps all.
func (t *trace) crews(caps bool) [][]int {
	var out [][]int
	number := map[string]int{}
	for i, r := range t.resources {
		gang := ""
		if r.Description != nil && len(r.Description.Tags) > 0 {
			gang = r.Inventory().Gang
		}
		n, ok := number[gang]
		switch {
		case caps && i > 0:
			n, ok = 0, true
		case !caps && gang == "":
			ok = false
		}
		if !ok {
			n = len(out)
			out = append(out, nil)
			if gang != "" {
				number[gang] = n
			}
		}
		out[n] = append(out[n], i)
	}
	return out
}

// bench replays a policy on resources that have to be looked at together.
type bench struct {
	*trace
	policy *policy.Policy
	params Params
	outcome
	subjects []*subject
	queue    queue
	woken    []*subject
	now, end int64
	round    int64
	caps     caps
}

// run goes from event to event: a sample that shows something new, a time at which
// the policy's answer may change, the end of a grace. Of one moment all samples come
// first, then what is decided.
func (b *bench) run(ctx context.Context) error {
	b.begin()
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if b.now = min(b.queue[0].at, b.caps.retry); b.now > b.end {
			return nil
		}
		b.woken = b.woken[:0]
		for s := b.queue[0]; s.at == b.now; s = b.queue[0] {
			if b.happens(s) {
				b.wake(s)
			}
			b.settle(s)
		}
		for _, s := range b.woken {
			b.look(s)
		}
		for _, s := range b.woken {
			b.climb(s)
		}
		b.admit()
		for _, s := range b.woken {
			b.settle(s)
		}
	}
}

// happens lets what this moment brings happen to a subject, and says whether to look
// at it.
func (b *bench) happens(s *subject) bool {
	if s.meter.next() == b.now {
		first := !s.begun
		look := s.take(b.now)
		if first {
			b.meet(s)
		}
		return look
	}
	if s.away { // work goes on
		s.away = false
		s.launch(b.now)
	}
	return true
}

// settle puts a subject in its place in the queue. Everything of this moment is looked
// at now, so its next event is later.
func (b *bench) settle(s *subject) {
	s.at = max(s.next(), b.now+1)
	heap.Fix(&b.queue, s.place)
}

// meet counts a resource that is there from now on.
func (b *bench) meet(s *subject) {
	s.facts.Now = moment(b.now)
	s.facts.GPUs = inventory.Known(s.gpus())
	switch b.policy.Selects(&s.facts) {
	case usage.True:
		b.caps.seen()
	case usage.Unknown:
		b.unclear++
		if b.why == "" {
			b.why = why(b.policy.Explain(&s.facts))
		}
	}
}

// begin puts the subjects in the order of their first samples.
func (b *bench) begin() {
	b.caps.retry = never
	gangs := map[string][]*subject{}
	for i, s := range b.subjects {
		s.place = i
		if gang := s.facts.Resource.Gang; gang != "" {
			gangs[gang] = append(gangs[gang], s)
		}
	}
	for _, s := range b.subjects {
		if gang := gangs[s.facts.Resource.Gang]; len(gang) > 1 {
			s.gang = gang
		}
	}
	b.queue = queue(b.subjects)
	heap.Init(&b.queue)
}

// wake says that a subject, and with it its gang, is to be looked at.
func (b *bench) wake(s *subject) {
	if s.gang == nil {
		b.woken = append(b.woken, s)
		return
	}
	for _, o := range s.gang {
		if o.begun && !o.away && !slices.Contains(b.woken, o) {
			b.woken = append(b.woken, o)
		}
	}
}

// look asks the policy.
func (b *bench) look(s *subject) {
	s.seen = b.now
	if s.foreseen(b.now) {
		return
	}
	v := s.verdict(b.now)
	if s.gang != nil {
		var all []duty.Verdict
		for _, o := range s.gang {
			if o.begun && !o.away {
				all = append(all, o.verdict(b.now))
			}
		}
		v = duty.Gang(all)
	}
	s.know(b.now, v)
	out := b.policy.Evaluate(&s.facts)
	s.answer, s.due = out.Answer, max(nanosOf(out.Next), b.now+1)
	s.foresee(b.now, b.policy)
}

// climb takes a subject up the ladder as far as it goes at this moment.
func (b *bench) climb(s *subject) {
	b.caps.leave(s)
	switch {
	case s.answer != usage.True && (s.item.Phase == "" || s.item.Phase == action.Done):
		s.item = action.Item{}
		return
	case s.item.Phase == action.Done:
		return
	}
	p := s.proposal(b.policy)
	for {
		b.round++
		r := action.Round{Number: b.round, Now: s.facts.Now}
		var want action.Want
		s.item, want = action.Climb(s.item, &p, r)
		switch want {
		case action.Warn, action.Verify:
			if s.refused(p) {
				s.due = min(s.due, s.keptUntil())
				return
			}
			if want == action.Verify {
				b.caps.wait(s)
				return
			}
			s.item = s.item.Accepted([]string{"replay"}, p, r)
			b.decide(s, action.Warn)
		case action.Wait:
			if due := nanosOf(s.item.DueAt()); due > b.now {
				s.due = min(s.due, due)
			}
			return
		default:
			if s.item.Phase == action.Withdrawn {
				s.item = action.Item{}
				b.decide(s, action.Nothing)
			}
			return
		}
	}
}

func (b *bench) decide(s *subject, want action.Want) {
	if b.params.Decided != nil {
		b.params.Decided(Decision{Time: moment(b.now), Resource: s.facts.Resource.ID, Policy: b.policy.Name, Want: want})
	}
}

// act carries out what the policy wants.
func (b *bench) act(s *subject) {
	b.decide(s, action.Verify)
	if !ends(b.policy.Do.Verb) {
		s.item.Phase = action.Done
		return
	}
	// A policy that would end the resource at work as well is a dead man's switch.
	atWork := s.facts
	atWork.Duty = &duty.Verdict{State: duty.Busy, Coverage: 1}
	whole := b.policy.Evaluate(&atWork).Answer == usage.True
	if whole {
		s.book.whole(b.now/1000, &b.outcome)
	} else {
		s.book.rest(b.now/1000, &b.outcome)
	}
	s.leave(b.now, whole)
}

// ends says whether a verb ends what a resource costs while it runs.
func ends(v policy.Verb) bool {
	switch v {
	case policy.Stop, policy.Hibernate, policy.Terminate, policy.Delete, policy.Release, policy.Suspend, policy.Scale:
		return true
	}
	return false
}

// why returns what left a policy in doubt.
func why(o policy.Outcome) string {
	for _, p := range o.Parts {
		if p.Answer == usage.Unknown {
			return p.Name + ": " + p.Why
		}
	}
	return "it is unknown"
}

// queue orders subjects by the time of their next event.
type queue []*subject

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].at, q[j].at), cmp.Compare(q[i].book.index, q[j].book.index)) < 0
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push is of [heap.Interface]; subjects stay in the queue.
func (q *queue) Push(any) {}

// Pop is of [heap.Interface]; subjects stay in the queue.
func (q *queue) Pop() any { return nil }
