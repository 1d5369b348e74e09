package backtest

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/curfew-dev/curfew/internal/usage"
)

// tape is what was sampled of a resource of which more than the utilisation of GPUs
// was measured: every row with all its values, in the order of the trace. A value
// that is that of the GPU's row before costs a byte.
type tape struct {
	rows []byte
	at   int64
	// last are the newest values of each GPU as bits.
	last [][]uint64
}

// rich says whether a row holds more than the utilisation of a GPU.
func rich(s *usage.Sample) bool {
	for _, sig := range signals {
		if _, ok := s.Get(sig); ok && sig != usage.GPUUtil {
			return true
		}
	}
	return false
}

func (t *tape) add(s *usage.Sample, at int64, gpu int) {
	t.rows = binary.AppendVarint(t.rows, at-t.at)
	t.rows = binary.AppendUvarint(t.rows, uint64(gpu))
	t.at = at
	var mask uint64
	for i, sig := range signals {
		if _, ok := s.Get(sig); ok {
			mask |= 1 << i
		}
	}
	t.rows = binary.AppendUvarint(t.rows, mask)
	last := t.of(gpu)
	for i, sig := range signals {
		if v, ok := s.Get(sig); ok {
			b := math.Float64bits(v)
			// Round numbers have their bits at the top.
			t.rows = binary.AppendUvarint(t.rows, bits.ReverseBytes64(b^last[i]))
			last[i] = b
		}
	}
}

func (t *tape) of(gpu int) []uint64 {
	for len(t.last) <= gpu {
		t.last = append(t.last, make([]uint64, len(signals)))
	}
	return t.last[gpu]
}

// readings returns the measurements in the order of the trace. A signal of the whole
// machine that stands in the rows of several GPUs is that of the GPU which carried it
// first, so that it counts once.
func (t *tape) readings() []reading {
	var out []reading
	play := tape{rows: t.rows}
	from := make([]int32, len(signals))
	for i := range from {
		from[i] = -1
	}
	next := func() uint64 {
		v, n := binary.Uvarint(play.rows)
		play.rows = play.rows[n:]
		return v
	}
	for len(play.rows) > 0 {
		step, n := binary.Varint(play.rows)
		play.rows = play.rows[n:]
		play.at += step
		gpu := int32(next())
		last := play.of(int(gpu))
		for mask := next(); mask != 0; mask &= mask - 1 {
			i := bits.TrailingZeros64(mask)
			last[i] ^= bits.ReverseBytes64(next())
			if !signals[i].PerGPU() {
				if from[i] < 0 {
					from[i] = gpu
				}
				if from[i] != gpu {
					continue
				}
			}
			out = append(out, reading{play.at, math.Float64frombits(last[i]), gpu, signals[i]})
		}
	}
	return out
}

// readings returns everything that was measured of a resource, in order of time, each
// once: of its utilisation only whether it was idle, where the tape does not have it.
func (m *metered) readings(step int64) []reading {
	var out []reading
	if m.tape != nil {
		out = m.tape.readings()
	}
	for _, p := range m.parts {
		for r := (&reader{cursor: p.cursor(step), gpu: p.gpu}); r.next(); {
			v := reading{r.at, somewhat, int32(r.gpu), usage.GPUUtil}
			if r.run.idle {
				v.value = 0
			}
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b reading) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.signal, b.signal))
	})
	// Of two of one meter at one time the first counts, the tape's before a part's,
	// unless it is 0: work that anybody saw was there.
	kept := out[:0]
	for _, r := range out {
		if n := len(kept) - 1; n >= 0 && kept[n].at == r.at && kept[n].gpu == r.gpu && kept[n].signal == r.signal {
			if kept[n].value == 0 {
				kept[n].value = r.value
			}
			continue
		}
		kept = append(kept, r)
	}
	return kept
}
