package usage

import "slices"

// Merge adds the signals of other, of the same resource and time, that w lacks. GPU signals are
// taken only if w has none, because two sources may name the GPUs of one machine differently. It
// returns false without merging if the times differ.
func (w *Window) Merge(other *Window) bool {
	if !w.From.Equal(other.From) || !w.To.Equal(other.To) {
		return false
	}
	gpus := len(w.GPUs) > 0 || w.Machine.measuresGPU()
	if !gpus {
		w.GPUs = slices.Clone(other.GPUs)
		w.Aggregated = other.Aggregated
	}
	for s := range numSignals {
		if w.Machine.stats[s] == nil && !(s.PerGPU() && gpus) {
			w.Machine.stats[s] = other.Machine.stats[s]
		}
	}
	if w.Launched.IsZero() {
		w.Launched = other.Launched
	}
	if w.GPUMemory == 0 {
		w.GPUMemory = other.GPUMemory
	}
	if w.GPUPower == 0 {
		w.GPUPower = other.GPUPower
	}
	return true
}

// measuresGPU reports whether a machine's own track has GPU signals.
func (t *Track) measuresGPU() bool {
	for s := range numSignals {
		if s.PerGPU() && t.stats[s] != nil {
			return true
		}
	}
	return false
}

// SourceOf returns the source of a signal of the window.
func (w *Window) SourceOf(st *Stats) string {
	if st == nil {
		return w.Source
	}
	return st.source
}
