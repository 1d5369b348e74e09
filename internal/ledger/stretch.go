package ledger

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// MaxGap is the longest time between two observations through which the former state
// holds where the provider does not say more, and the longest time for which a price
// that moves holds before and after it was seen. Two hours, our own choice: rounds that
// run every hour may miss one.
const MaxGap = 2 * time.Hour

// stretch is time of a resource in which one observation's meters run, or in which
// the meters are unknown.
type stretch struct {
	from, to time.Time
	// holds is the observation whose meters and attributes hold. next is the one after
	// it where the state lasted until then, so that its newer rates may hold in part.
	holds, next *Observation
	// gap is set where the running meters are unknown; holds and next are then those on either
	// side of it, and either may be nil.
	gap Gap
	// unseen says of a gap that something ran whose meters were never observed.
	unseen bool
	// extra are the seconds billed beyond to, for a run shorter than the minimum.
	extra int64
	// duty are the measured spans, and unused those in which nothing used a meter without a duty.
	duty, unused []Span
}

// who returns the observation whose attributes hold.
func (s *stretch) who() *Observation {
	if s.holds != nil {
		return s.holds
	}
	return s.next
}

// meters returns those that may have run in a gap, each at the higher of its rates.
func (s *stretch) meters() []Meter {
	var out []Meter
	if s.unseen {
		out = []Meter{{Name: "compute", Category: Compute, Unpriced: "it ran and ended between two looks"}}
	}
	for _, o := range []*Observation{s.holds, s.next} {
		if o == nil {
			continue
		}
		for _, m := range o.Meters {
			i := slices.IndexFunc(out, func(x Meter) bool { return x.Name == m.Name })
			if i < 0 {
				out = append(out, m)
				continue
			}
			have, bounded := out[i].bound()
			if most, also := m.bound(); bounded && (!also || most > have) {
				out[i] = m
			}
		}
	}
	return out
}

// idleTime returns when nothing used a resource that is only of use while it is attached:
// from when on the provider or what was measured says so, and for [MaxGap] after a look at
// which it was unattached.
func (s *stretch) idleTime() []Span {
	if !s.who().Ref.Kind.Traits().Attachable {
		return nil
	}
	var out []Span
	for _, d := range s.duty {
		if d.State == Unused {
			out = append(out, d)
		}
	}
	for _, o := range []*Observation{s.holds, s.next} {
		switch {
		case o == nil || !o.unused():
		case o.At.After(s.from) && !o.StateSince.IsZero():
			out = append(out, Span{latest(s.from, o.StateSince), o.At, Unused})
		case !o.At.After(s.from) && !s.to.After(o.At.Add(MaxGap)):
			out = append(out, Span{s.from, s.to, Unused})
		}
	}
	return layered(out, s.to)
}

// unused says whether a resource was unattached.
func (o *Observation) unused() bool {
	return o.Ref.Kind.Traits().Attachable && o.State == inventory.StateAvailable
}

// since returns the time from which on an observation's state is known to have lasted;
// zero is not known. What only costs by existing lasts since it was made, a running
// machine since its launch or, where that is unknown, since it was measured.
func (o *Observation) since() time.Time {
	t := o.StateSince
	if !o.Ref.Kind.Traits().Stateful ||
		(t.IsZero() && o.Ref.Kind == inventory.KindInstance && o.State == inventory.StateRunning) {
		t = o.CreatedAt
	}
	if t.After(o.At) {
		return time.Time{}
	}
	if t.IsZero() && o.State == inventory.StateRunning {
		return o.measured()
	}
	return t
}

// measured returns from when on a resource was measured up to its observation, in gaps of
// at most [MaxGap]; zero where it was not.
func (o *Observation) measured() time.Time {
	var since time.Time
	end := o.At
	for _, s := range slices.Backward(o.Duty) {
		if s.State == Unused || s.To.Before(end.Add(-MaxGap)) {
			break
		}
		since, end = s.From, s.From
	}
	return since
}

// ended says whether a run is over, or may be, whose meters the observation does not
// have any more. What is only starting or failed never ran.
func (o *Observation) ended() bool {
	switch o.State {
	case inventory.StateStopping, inventory.StateStopped, inventory.StateDeleting, inventory.StateUnknown:
		return o.Ref.Kind.Traits().Stateful
	}
	return false
}

// made returns when the resource was made or launched; zero is not known.
func (o *Observation) made() time.Time {
	if o.CreatedAt.After(o.At) {
		return time.Time{}
	}
	return o.CreatedAt
}

// stretches returns what is known of a resource's time, in order; w is what they are
// kept in.
//
//   - Before the first observation: from its launch or creation, if its part was listed
//     before without it; nothing before that listing, and nothing at all where there
//     was none.
//   - Between two: what the provider says of its state and launch, however long ago;
//     else the former state for at most [MaxGap], and past that unknown.
//   - After the last: unknown, until the listing that it is missing from.
//
// A round takes time, and speaks of the moment at which it began: what the provider
// dates later than that was not there yet.
func (h *History) stretches(w *walk) []stretch {
	for i := range h.Observations {
		o := &h.Observations[i]
		before, absent := h.absences(i)
		w.duty = o.Duty
		switch {
		case i == 0:
			w.head(before, o)
		case absent.IsZero() || w.lasts(&h.Observations[i-1], o):
			w.between(&h.Observations[i-1], o)
		default:
			w.tail(&h.Observations[i-1], absent)
			w.head(before, o)
		}
	}
	if n := len(h.Observations); n > 0 {
		last := &h.Observations[n-1]
		if i, _ := slices.BinarySearchFunc(h.Rounds, last.At.Add(1), time.Time.Compare); i < len(h.Rounds) {
			w.duty = nil
			w.tail(last, h.Rounds[i])
		}
	}
	return w.out
}

// absences returns the newest listing before observation i, and the first one after the
// observation before it that did not see the resource; zero is none.
func (h *History) absences(i int) (before, absent time.Time) {
	j, _ := slices.BinarySearchFunc(h.Rounds, h.Observations[i].At, time.Time.Compare)
	if j > 0 {
		before = h.Rounds[j-1]
	}
	if i == 0 {
		return before, time.Time{}
	}
	last := h.Observations[i-1].At
	if k, _ := slices.BinarySearchFunc(h.Rounds, last.Add(1), time.Time.Compare); k < j {
		absent = h.Rounds[k]
	}
	return before, absent
}

// walk collects stretches.
type walk struct {
	out  []stretch
	duty []Span
}

func (w *walk) add(s stretch) {
	if s.from.Before(s.to) {
		s.duty = w.duty
		w.out = append(w.out, s)
	}
}

// lasts says whether b's state is known to have lasted since a.
func (w *walk) lasts(a, b *Observation) bool {
	t := b.since()
	return !t.IsZero() && !t.After(a.At)
}

// between adds the time from one observation to the next.
func (w *walk) between(a, b *Observation) {
	since, made := b.since(), b.made()
	unknown := func(from, to time.Time) { w.add(stretch{from: from, to: to, holds: a, next: b, gap: Unobserved}) }
	if w.lasts(a, b) {
		if a.Ref.Kind.Traits().Stateful && a.State != b.State {
			w.add(stretch{from: a.At, to: b.At, holds: b})
		} else {
			w.add(stretch{from: a.At, to: b.At, holds: a, next: b})
		}
		return
	}
	begin := a.At
	if b.CreatedAt.After(b.At) && !a.CreatedAt.IsZero() { // while the round was being read
		made = b.At
	}
	if made.After(a.At) { // it was launched, or replaced
		switch {
		case b.CreatedAt.Equal(a.CreatedAt): // as a's round found out while it was being read
		case a.State == inventory.StateStopped && b.Ref.Kind == inventory.KindInstance:
			w.add(stretch{from: a.At, to: made, holds: a})
		default:
			unknown(a.At, made)
		}
		begin = made
	}
	if begin.Equal(b.At) {
		return
	}
	switch {
	case since.IsZero() && begin.After(a.At) && b.ended():
		w.add(stretch{
			from: begin, to: b.At, holds: a, next: b, gap: Unobserved, unseen: a.State != inventory.StateRunning,
		})
	case since.IsZero() && b.At.Sub(begin) > MaxGap:
		unknown(begin, b.At)
	case since.IsZero() && begin.After(a.At):
		w.add(stretch{from: begin, to: b.At, holds: b})
	case since.IsZero() && a.State == b.State:
		w.add(stretch{from: begin, to: b.At, holds: a, next: b})
	case since.IsZero():
		w.add(stretch{from: begin, to: b.At, holds: a})
	default:
		w.entered(a, b, begin, latest(since, begin))
	}
}

// entered adds the time from begin, at which a's state held or b's run began, to since,
// at which b's state was entered, and from there to b.
func (w *walk) entered(a, b *Observation, begin, since time.Time) {
	switch launched := begin.After(a.At); {
	case launched && a.State == inventory.StateRunning:
		w.add(stretch{from: begin, to: since, holds: a, extra: short(a, begin, since)})
	case launched:
		w.add(stretch{from: begin, to: since, holds: a, next: b, gap: Unobserved, unseen: b.ended()})
	case a.ended() && a.StateSince.Equal(since): // a's round was still being read when it ended
		w.add(stretch{from: begin, to: since, holds: a, next: b, gap: Unobserved, unseen: true})
	case a.State == b.State && since.Sub(begin) > MaxGap:
		w.add(stretch{from: begin, to: since, holds: a, next: b, gap: Unobserved})
	default:
		w.add(stretch{from: begin, to: since, holds: a, extra: short(a, b.made(), since)})
	}
	w.add(stretch{from: since, to: b.At, holds: b})
}

// short returns the seconds by which a run is shorter than what is billed at least.
func short(o *Observation, launched, stopped time.Time) int64 {
	var least int64
	for _, m := range o.Meters {
		least = max(least, m.MinimumSeconds)
	}
	if o.State != inventory.StateRunning || launched.IsZero() || !launched.Before(stopped) {
		return 0
	}
	return max(0, least-seconds(launched, stopped))
}

// head adds the time from the last listing without a resource to its first observation.
func (w *walk) head(listed time.Time, b *Observation) {
	if listed.IsZero() || b.CreatedAt.After(b.At) { // made while the round was being read
		return
	}
	since, made := b.since(), b.made()
	begin := latest(made, listed)
	if made.IsZero() {
		begin = latest(since, listed)
		if since.IsZero() {
			begin = b.At
		}
		w.add(stretch{from: listed, to: begin, next: b, gap: Unobserved})
	}
	switch {
	case since.IsZero() && b.ended():
		w.add(stretch{from: begin, to: b.At, next: b, gap: Unobserved, unseen: true})
	case since.IsZero() && b.At.Sub(begin) > MaxGap:
		w.add(stretch{from: begin, to: b.At, next: b, gap: Unobserved})
	case since.After(begin):
		w.add(stretch{from: begin, to: since, next: b, gap: Unobserved, unseen: b.ended()})
		begin = since
		fallthrough
	default:
		w.add(stretch{from: begin, to: b.At, holds: b})
	}
}

// tail adds the time from the last observation of a resource to the listing that it is
// missing from.
func (w *walk) tail(a *Observation, absent time.Time) {
	w.add(stretch{from: a.At, to: absent, holds: a, gap: Gone})
}
