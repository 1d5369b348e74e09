package finding

import (
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// Alive returns a signal whose samples cover a window, which shows that the resource was measured:
// if a provider publishes a counter only when it is positive, its absence then means zero.
func (x *Index) Alive(w *usage.Window, signals ...usage.Signal) (usage.Signal, *usage.Stats) {
	for _, sig := range signals {
		if st := w.Machine.Stats(sig); x.Covered(w, st) && w.Fresh(st, x.Now) {
			return sig, st
		}
		for _, t := range w.GPUs {
			if st := t.Stats(sig); x.Covered(w, st) && w.Fresh(st, x.Now) {
				return sig, st
			}
		}
	}
	return 0, nil
}

// perDay returns a counter's daily mean over a window.
func perDay(sum float64, w *usage.Window) float64 {
	days := w.To.Sub(w.From).Hours() / (24 * time.Hour).Hours()
	if days <= 0 {
		return 0
	}
	return sum / days
}
