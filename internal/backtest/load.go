package backtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// trace is a recorded trace in memory.
type trace struct {
	summary   usage.Summary
	step      int64
	restart   int64
	resources []Resource
	tracks    []*track // by resource
	// meters are what policies are replayed on, by resource; nil without policies.
	meters []*metered
}

// span returns when the first sample begins and the last one ends.
func (t *trace) span() (from, to int64) {
	from = t.tracks[0].first
	for _, track := range t.tracks {
		from, to = min(from, track.first), max(to, track.last+t.step)
	}
	return from, to
}

// metered is what was read of one resource so far.
type metered struct {
	Resource
	left  bool // out of the replay
	parts []*part
	// open is the part to which rows of a GPU are added, by the GPU's number.
	open []*part
	gpus []string
	// tape is nil where only utilisation was measured, or no policy asks for more.
	tape *tape
}

// of returns the part of a GPU to which its next row is added.
func (m *metered) of(gpu string) *part {
	for i, g := range m.gpus {
		if g == gpu {
			return m.open[i]
		}
	}
	m.gpus = append(m.gpus, gpu)
	m.open = append(m.open, nil)
	return m.begin(len(m.gpus) - 1)
}

func (m *metered) begin(gpu int) *part {
	p := &part{gpu: gpu}
	m.parts = append(m.parts, p)
	m.open[gpu] = p
	return p
}

// record keeps a row with all its values.
func (m *metered) record(s *usage.Sample, at int64, gpu int) {
	if m.tape == nil {
		m.tape = &tape{}
	}
	m.tape.add(s, at, gpu)
}

// measured says whether there is a sample of the utilisation of a GPU.
func (m *metered) measured() bool {
	return slices.ContainsFunc(m.parts, func(p *part) bool { return p.count > 0 })
}

// load reads a trace.
func load(ctx context.Context, source io.Reader, p Params) (*trace, error) {
	if p.Policies == nil {
		a, err := ReadAccount(ctx, source, AccountParams{Format: p.Format, Only: p.Only})
		if errors.Is(err, usage.ErrNoSamples) {
			err = fmt.Errorf("replay %s: %w", p.Format.Name, ErrNothingMeasured)
		}
		if err != nil {
			return nil, err
		}
		return a.trace(ctx, p)
	}
	t := &trace{step: micros(p.Format.Step), restart: micros(p.RestartCost)}
	known := map[string]*metered{}
	var current *metered
	summary, err := usage.Read(ctx, source, p.Format, func(s *usage.Sample) error {
		v, ok := s.Get(usage.GPUUtil)
		if !ok && p.Policies == nil {
			return nil
		}
		if current == nil || current.Name != s.Resource {
			m := known[s.Resource]
			if m == nil {
				m = &metered{Resource: Resource{Name: s.Resource, Description: s.Description}}
				m.left = p.Only != nil && !p.Only(s.Resource)
				known[s.Resource] = m
			}
			current = m
		}
		if current.left {
			return nil
		}
		at, idle := s.Time.UnixMicro(), v == 0 || v < p.IdleBelow
		meter := current.of(s.GPU)
		if p.Policies != nil && (current.tape != nil || rich(s)) {
			current.record(s, at, meter.gpu)
		}
		if ok && !meter.add(at, t.step, idle) {
			current.begin(meter.gpu).add(at, t.step, idle)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.summary = summary
	if s := summary.Step; s > 0 && s <= p.Format.Step/2 {
		return nil, fmt.Errorf("replay %s: samples are %s apart, and each would count as a step of %s: give the step as it was recorded",
			p.Format.Name, s.Round(time.Millisecond), p.Format.Step)
	}
	// By name, so that the order of the rows changes nothing.
	for i, name := range slices.Sorted(maps.Keys(known)) {
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("replay %s: %w", p.Format.Name, context.Cause(ctx))
		}
		if m := known[name]; !m.left && m.measured() {
			t.resources = append(t.resources, m.Resource)
			t.tracks = append(t.tracks, merged(m.parts, len(m.gpus), t.step))
			if p.Policies != nil {
				t.meters = append(t.meters, m)
			}
		}
		delete(known, name)
	}
	if len(t.tracks) == 0 {
		return nil, fmt.Errorf("replay %s: %w", p.Format.Name, ErrNothingMeasured)
	}
	return t, nil
}
