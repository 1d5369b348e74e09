package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// spans returns what is known of a resource's duty before at: the verdict's own time
// first, then what the caller knows besides.
func spans(s Seen, ref inventory.Ref, at time.Time) []Span {
	var all []Span
	if v, ok := s.Verdicts[ref]; ok {
		all = append(all, verdictSpans(v, s.Windows[ref], at)...)
	}
	others := slices.Clone(s.Spans[ref])
	slices.SortStableFunc(others, func(a, b Span) int {
		return cmp.Or(b.To.Compare(a.To), b.From.Compare(a.From), cmp.Compare(a.State, b.State))
	})
	return layered(append(all, others...), at)
}

// verdictSpans returns the time for which a verdict was measured: since the state
// began, for a busy machine the longest unbroken work up to now.
func verdictSpans(v duty.Verdict, w *usage.Window, at time.Time) []Span {
	if v.State == duty.Unknown {
		return nil
	}
	from, to := v.Since, v.Until
	switch {
	case v.State == duty.Warming && w != nil:
		from = w.Launched
	case v.State == duty.Busy && w != nil:
		from = w.Working(to)
	}
	if from.IsZero() {
		return nil
	}
	if to.IsZero() || to.After(at) {
		to = at
	}
	return []Span{{From: from, To: to, State: v.State}}
}

// layered lays spans over one another, the first on top, and returns what can be seen
// of them before at, in order, in whole seconds.
func layered(all []Span, at time.Time) []Span {
	var out []Span
	for _, s := range all {
		from, to := clean(s.From), clean(s.To)
		if to.After(at) {
			to = at
		}
		for _, o := range out { // in order of time
			if !from.Before(to) {
				break
			}
			if o.To.After(from) && o.From.Before(to) {
				if from.Before(o.From) {
					out = append(out, Span{from, o.From, s.State})
				}
				from = o.To
			}
		}
		if from.Before(to) && !from.IsZero() {
			out = append(out, Span{from, to, s.State})
		}
		slices.SortFunc(out, func(a, b Span) int { return a.From.Compare(b.From) })
	}
	return out
}
