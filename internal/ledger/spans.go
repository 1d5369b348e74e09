package ledger

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// spans returns what is known of a resource's duty before at.
func spans(s Seen, ref inventory.Ref, at time.Time) []Span { return layered(s.Spans[ref], at) }

// Overlay returns spans before a time in order and without overlap: the first of two holds.
func Overlay(spans []Span, at time.Time) []Span { return layered(spans, at) }

// layered lays spans over one another, the first on top, and returns what can be seen
// of them before at, in order, in whole seconds, without a break where the state goes on.
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
	return joined(out)
}

// joined makes one span of those that touch and say the same; they are in order of time.
func joined(all []Span) []Span {
	out := all[:0:0]
	for _, s := range all {
		if n := len(out); n > 0 && out[n-1].State == s.State && out[n-1].To.Equal(s.From) {
			out[n-1].To = s.To
			continue
		}
		out = append(out, s)
	}
	return out
}
