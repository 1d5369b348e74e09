package ledger

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// spans returns the known duty of a resource before at.
func spans(s Seen, ref inventory.Ref, at time.Time) []Span { return layered(s.Spans[ref], at) }

// Overlay merges spans before a time into ordered ones without overlap; of overlapping spans the
// first wins.
func Overlay(spans []Span, at time.Time) []Span { return layered(spans, at) }

// layered merges overlapping spans, the first on top, and returns the visible parts before at, in
// order, in whole seconds, with adjacent equal states joined.
func layered(all []Span, at time.Time) []Span {
	var out []Span
	for _, s := range all {
		from, to := clean(s.From), clean(s.To)
		if to.After(at) {
			to = at
		}
		for _, o := range out { // in time order
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

// joined joins adjacent spans with equal states; the input is in time order.
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
