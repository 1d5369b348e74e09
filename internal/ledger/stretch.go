package ledger

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// MaxGap is the maximum time between two observations over which the former state is assumed to
// last without information from the provider, and the maximum time for which a moving price is
// valid before and after its observation. Two hours is our own choice: hourly rounds may miss one.
const MaxGap = 2 * time.Hour

// stretch is time of a resource with the meters of one observation, or with unknown meters.
type stretch struct {
	from, to time.Time
	// current is the observation that is valid in the stretch. next is the following one if the state
	// lasted until then, so that its newer rates may apply in part.
	current, next *Observation
	// gap is set if the running meters are unknown; holds and next are then the adjacent
	// observations, and may be nil.
	gap Gap
	// unseen is true for a gap in which unobserved meters ran.
	unseen bool
	// extra is the billed time in seconds beyond to, for a run shorter than the minimum.
	extra int64
	// duty holds the measured spans, unused those in which a meter without a duty was not in use.
	duty, unused []Span
}

// attributesOf returns the observation whose attributes apply.
func (s *stretch) attributesOf() *Observation {
	if s.current != nil {
		return s.current
	}
	return s.next
}

// meters returns the meters that may have run in a gap, each at the higher of its rates.
func (s *stretch) meters() []Meter {
	var out []Meter
	if s.unseen {
		out = []Meter{{Name: "compute", Category: Compute, Unpriced: "it ran and ended between two looks"}}
	}
	for _, o := range []*Observation{s.current, s.next} {
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

// idleTime returns the time in which a resource that is useful only while attached was unattached:
// from the time that the provider or measurements give, and for [MaxGap] after an observation as
// unattached.
func (s *stretch) idleTime() []Span {
	if !s.attributesOf().Ref.Kind.Traits().Attachable {
		return nil
	}
	var out []Span
	for _, d := range s.duty {
		if d.State == Unused {
			out = append(out, d)
		}
	}
	for _, o := range []*Observation{s.current, s.next} {
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

// unused reports whether a resource was unattached.
func (o *Observation) unused() bool {
	return o.Ref.Kind.Traits().Attachable && o.State == inventory.StateAvailable
}

// since returns the time since which an observation's state is known to have lasted; zero if
// unknown. For a resource that costs by existing it is the creation; for a running machine the
// launch or, if unknown, the first measurement.
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

// measured returns the time since which a resource was measured up to its observation, with gaps of
// at most [MaxGap]; zero if it was not.
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

// ended reports whether a run is over, or may be, whose meters the observation no longer has. A
// starting or failed resource never ran.
func (o *Observation) ended() bool {
	switch o.State {
	case inventory.StateStopping, inventory.StateStopped, inventory.StateDeleting, inventory.StateUnknown:
		return o.Ref.Kind.Traits().Stateful
	}
	return false
}

// made returns the time of creation or launch; zero if unknown.
func (o *Observation) made() time.Time {
	if o.CreatedAt.After(o.At) {
		return time.Time{}
	}
	return o.CreatedAt
}

// stretches returns the known time of a resource in order; w is reusable memory.
//
//   - Before the first observation: from its launch or creation, if its part was listed
//     before without it; nothing before that listing, and nothing at all where there
//     was none.
//   - Between two: what the provider says of its state and launch, however long ago;
//     else the former state for at most [MaxGap], and past that unknown.
//   - After the last: unknown, until the listing that it is missing from.
//
// A round is dated by its start: changes that the provider dates later do not belong to it.
func (h *History) stretches(w *walk) []stretch {
	for i := range h.Observations {
		o := &h.Observations[i]
		before, absent := h.absences(i)
		w.duty = o.Duty
		switch {
		case i == 0:
			w.head(before, o)
		case absent.IsZero() || w.hasLasted(&h.Observations[i-1], o):
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

// absences returns the last listing before observation i, and the first one after the previous
// observation that lacked the resource; zero if none.
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

// hasLasted reports whether b's state is known to have lasted since a.
func (w *walk) hasLasted(a, b *Observation) bool {
	t := b.since()
	return !t.IsZero() && !t.After(a.At)
}

// between adds the time from one observation to the next.
func (w *walk) between(a, b *Observation) {
	since, made := b.since(), b.made()
	unknown := func(from, to time.Time) { w.add(stretch{from: from, to: to, current: a, next: b, gap: Unobserved}) }
	if w.hasLasted(a, b) {
		if a.Ref.Kind.Traits().Stateful && a.State != b.State {
			w.add(stretch{from: a.At, to: b.At, current: b})
		} else {
			w.add(stretch{from: a.At, to: b.At, current: a, next: b})
		}
		return
	}
	begin := a.At
	if b.CreatedAt.After(b.At) && !a.CreatedAt.IsZero() { // created while the round was reading
		made = b.At
	}
	if made.After(a.At) { // launched or replaced
		switch {
		case b.CreatedAt.Equal(a.CreatedAt): // already observed by a's round while it was reading
		case a.State == inventory.StateStopped && b.Ref.Kind == inventory.KindInstance:
			w.add(stretch{from: a.At, to: made, current: a})
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
			from: begin, to: b.At, current: a, next: b, gap: Unobserved, unseen: a.State != inventory.StateRunning,
		})
	case since.IsZero() && b.At.Sub(begin) > MaxGap:
		unknown(begin, b.At)
	case since.IsZero() && begin.After(a.At):
		w.add(stretch{from: begin, to: b.At, current: b})
	case since.IsZero() && a.State == b.State:
		w.add(stretch{from: begin, to: b.At, current: a, next: b})
	case since.IsZero():
		w.add(stretch{from: begin, to: b.At, current: a})
	default:
		w.entered(a, b, begin, latest(since, begin))
	}
}

// entered adds the time from begin, when a's state was valid or b's run began, to since, when b's
// state was entered, and from there to b.
func (w *walk) entered(a, b *Observation, begin, since time.Time) {
	switch launched := begin.After(a.At); {
	case launched && a.State == inventory.StateRunning:
		w.add(stretch{from: begin, to: since, current: a, extra: short(a, begin, since)})
	case launched:
		w.add(stretch{from: begin, to: since, current: a, next: b, gap: Unobserved, unseen: b.ended()})
	case a.ended() && a.StateSince.Equal(since): // it ended while a's round was still reading
		w.add(stretch{from: begin, to: since, current: a, next: b, gap: Unobserved, unseen: true})
	case a.State == b.State && since.Sub(begin) > MaxGap:
		w.add(stretch{from: begin, to: since, current: a, next: b, gap: Unobserved})
	default:
		w.add(stretch{from: begin, to: since, current: a, extra: short(a, b.made(), since)})
	}
	w.add(stretch{from: since, to: b.At, current: b})
}

// short returns the seconds by which a run is shorter than the billed minimum.
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
	if listed.IsZero() || b.CreatedAt.After(b.At) { // created while the round was reading
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
		w.add(stretch{from: begin, to: b.At, current: b})
	}
}

// tail adds the time from the last observation of a resource to the first listing without it.
func (w *walk) tail(a *Observation, absent time.Time) {
	w.add(stretch{from: a.At, to: absent, current: a, gap: Gone})
}
