package backtest

import (
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// subject is one resource under a policy in a replay.
type subject struct {
	meter
	book  *book
	facts policy.Facts
	// told is what it does; the facts hold it as if it lasted on (see lasting).
	told duty.Verdict
	// gang are the resources of the same run, itself among them; nil when alone.
	gang []*subject

	begun, away bool
	// whole says that it stays away until work comes back, not only until the end of
	// its rest; back is when it does so without any news.
	whole bool
	back  int64
	item  action.Item
	// due is when to look again though no sample comes. settled says that until then
	// samples that only let the state last on change nothing.
	due     int64
	settled bool
	seen    int64 // when it was looked at last
	at      int64 // of the next event, as it stands in the queue
	place   int   // in the queue
	waits   bool  // for the caps

	// answer is the policy's when it was looked at last.
	answer usage.Answer

	forecasts [2]forecast
}

// Inventory makes a resource of the inventory from what a trace says. Without a
// description it is an ephemeral instance for experimentation.
func (r Resource) Inventory() *inventory.Resource {
	d := r.Description
	if d == nil {
		d = &usage.Description{}
	}
	out := &inventory.Resource{
		ID: r.Name, Name: r.Name, Kind: r.traits().kind, Type: d.Type, State: inventory.StateRunning, Tags: d.Tags,
	}
	// A keep-until that cannot be read keeps for ever, which is what the error says.
	_ = inventory.DefaultTagMapping().Apply(out)
	for _, f := range []struct {
		to    *string
		value string
	}{{&out.Owner.Team, d.Team}, {&out.Owner.Project, d.Project}, {&out.Owner.User, d.User}} {
		if f.value != "" {
			*f.to = f.value
		}
	}
	if d.Lifetime != inventory.LifetimeUnknown {
		out.Lifetime = d.Lifetime
	}
	if out.Lifetime == inventory.LifetimeUnknown {
		out.Lifetime = inventory.Ephemeral
	}
	if d.Purpose != inventory.PurposeUnknown {
		out.Purpose = d.Purpose
	}
	if out.Purpose == inventory.PurposeUnknown {
		out.Purpose = inventory.Experimentation
	}
	return out
}

func (t *trace) subject(index int, pol *policy.Policy, known *verdicts, p Params) *subject {
	m := t.meters[index]
	s := &subject{book: t.book(index), due: never}
	gpus := 0
	for _, p := range m.open {
		if p.count > 0 {
			gpus++
		}
	}
	if m.tape == nil && gpus == 1 {
		s.meter = &runMeter{
			cursor: t.tracks[index].cursor(t.step), known: known, turns: never, exact: strings.Contains(pol.Where+pol.When, "coverage"),
		}
	} else {
		s.meter = &windowMeter{
			readings: m.readings(t.step), names: m.gpus, step: t.step, floors: floors(p.IdleBelow), judge: p.Thresholds,
			lean: m.tape == nil, last: make([]glimpse, len(m.gpus)),
		}
	}
	s.facts.Resource = t.resources[index].Inventory()
	if p.Price != nil {
		s.facts.Hourly = inventory.Known(*p.Price)
	}
	s.at = s.meter.next()
	return s
}

// leave lets the subject go.
func (s *subject) leave(now int64, whole bool) {
	s.away, s.whole, s.item, s.due, s.back = true, whole, action.Item{}, never, never
	if m, ok := s.meter.(*runMeter); ok && whole && !m.run.idle {
		if nth := (now/1000-m.run.start)/m.step + 1; nth < m.run.count {
			s.back = nanos(m.run.start + nth*m.step)
		}
	}
}

// launch says that the resource was launched at a time: at its first sample, or when
// work came back to it.
func (s *subject) launch(at int64) {
	r := *s.facts.Resource
	r.CreatedAt, r.StateSince = moment(at), moment(at)
	s.facts.Resource = &r
	s.item, s.forecasts = action.Item{}, [2]forecast{}
}

// next is the time of the subject's next event.
func (s *subject) next() int64 {
	at := s.meter.next()
	switch {
	case !s.begun:
		return at
	case s.away:
		return min(at, s.back)
	}
	at = min(at, s.due)
	// What becomes unknown can only end what the policy wants, never begin it.
	if e := s.expires(); s.item.Phase != "" && s.seen <= e && e < never {
		at = min(at, e+1)
	}
	return at
}

// take takes the samples of a time, and says whether to look at the subject.
func (s *subject) take(now int64) bool {
	n := s.meter.take()
	switch {
	case !s.begun:
		s.begun = true
		s.launch(now)
	case s.away && n.work:
		s.away = false
		s.launch(now)
	case s.away && n.gap && !s.whole:
		s.away, s.item = false, action.Item{}
	case s.away:
		return false
	default:
		return !n.same || !s.settled || now >= s.due
	}
	return true
}

// know brings the facts up to a time. Where more rest is all that is to come, the
// verdict says that it lasts on, so that the outcome says when that will matter.
func (s *subject) know(now int64, v duty.Verdict) {
	s.told = v
	s.settled = !v.Until.IsZero() && now < v.Until.UnixNano()
	if s.settled {
		v = lasting(v)
	}
	s.facts.Now, s.facts.Duty = moment(now), &v
	s.facts.GPUs = inventory.Known(s.gpus())
}

// lasting returns a verdict that goes on and on.
func lasting(v duty.Verdict) duty.Verdict {
	if !v.Since.IsZero() {
		v.Until = v.Since.Add(100 * 365 * 24 * time.Hour)
	}
	v.Expires = time.Time{}
	return v
}

// proposal is what a policy proposes for the subject.
func (s *subject) proposal(p *policy.Policy) action.Proposal {
	out := action.Proposal{
		Source: p.Name, Resource: s.facts.Resource, Do: p.Do, Mode: policy.Enforce, Limits: p.Limits, Governed: true,
		Class: p.Class(), Duty: &s.told, Hourly: s.facts.Hourly, Condition: s.answer, ReadAt: s.facts.Now,
	}
	if p.Warn != nil {
		out.Grace = p.Warn.Grace
	}
	for _, o := range s.gang {
		if !o.begun || o.away {
			continue
		}
		ref := o.facts.Resource.Ref()
		out.Gang = append(out.Gang, ref)
		if o.answer == usage.True {
			out.Together = append(out.Together, ref)
		}
	}
	return out
}

// refused says whether the ladder forbids what is proposed. The replay assumes what a
// trace does not say: that tags which it does not have exempt nothing, that nobody
// else manages the machine, that it has a price, and that some grace is given.
func (s *subject) refused(p action.Proposal) bool {
	r := *p.Resource
	if r.Tags == nil {
		r.Tags = map[string]string{}
	}
	if r.Kind == inventory.KindInstance {
		r.Detail = &inventory.Instance{}
	}
	p.Resource, p.Grace = &r, max(p.Grace, 1)
	if !p.Hourly.Known() {
		p.Hourly = inventory.Known(money.Amount(0))
	}
	return action.Refuse(p, s.item, s.facts.Now, nil) != nil
}

// keptUntil is when a tag ends to exempt the subject; never where none does.
func (s *subject) keptUntil() int64 {
	if until := s.facts.Resource.KeepUntil; until.After(s.facts.Now) && until.Before(inventory.KeepForever) {
		return until.UnixNano()
	}
	return never
}
