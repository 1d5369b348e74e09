package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/usage"
)

var _ usage.Source = (*Provider)(nil)

// Limits of agent measurements, which the session's user controls: size of a line and a file in
// bytes, time between samples, and samples of a machine per reading.
const (
	maxSample  = 64 << 10
	maxSamples = 8 << 20
	leastStep  = 10 * time.Millisecond
	maxPoints  = 200_000
	maxSignals = 64 // signals per sample, and GPUs
)

// Name implements usage.Source.
func (p *Provider) Name() string { return "agent" }

// Measure returns the measurements that session agents append to files in their state folders.
// Without a file, a machine's usage is unknown.
func (p *Provider) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(r *inventory.Resource, o usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	var out usage.MeasureResult
	for _, r := range resources {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		if r.Cloud != CloudName || r.Account != p.Account() || r.Kind != inventory.KindInstance {
			continue
		}
		samples, err := p.samples(ctx, r, iv)
		if err != nil {
			out.BlindSpots = append(out.BlindSpots, inventory.BlindSpot{
				What: "what machine " + r.ID + " does", Why: err.Error(), Effect: "whether it is idle is unknown",
			})
			continue
		}
		if len(samples) == 0 {
			continue // no measurements yet
		}
		from := iv.From
		if samples[0].Start.After(from) {
			from = samples[0].Start
		}
		if sink := open(r, usage.SourceInfo{
			From: from, Step: time.Duration(samples[0].Step), Source: p.Name(),
		}); sink != nil {
			sendSamples(sink, samples, iv)
		}
	}
	return out, nil
}

// samples returns a machine's samples within an interval in time order, with the step of the
// newest. A restarted agent may use another step.
func (p *Provider) samples(ctx context.Context, r *inventory.Resource, iv usage.Interval) ([]session.Measurement,
	error) {
	m, err := openMachine(p.Folder(r.ID))
	if err != nil {
		return nil, err
	}
	var all []session.Measurement
	now := p.options.Now()
	for _, name := range []string{session.PreviousSamplesFile, session.SamplesFile} {
		if err := eachSample(ctx, m.userTree(), filepath.Join("agent", name), func(s session.Measurement) {
			if time.Duration(s.Step) < leastStep || time.Duration(s.Step) > time.Hour ||
				s.Steps <= 0 || s.Steps > 1<<16 ||
				len(s.Host) > maxSignals || len(s.GPUs) > maxSignals || s.Start.Before(m.LaunchedAt.Add(-time.Hour)) {
				return
			}
			end := s.Start.Add(time.Duration(s.Steps) * time.Duration(s.Step))
			if !s.Start.Before(iv.To) || !end.After(iv.From) || end.After(now.Add(time.Minute)) {
				return
			}
			if len(all) > 0 && all[len(all)-1].Step != s.Step {
				all = all[:0]
			}
			all = append(all, s)
		}); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b session.Measurement) int { return a.Start.Compare(b.Start) })
	// Overlapping samples contradict each other: the first counts.
	kept, until, points := all[:0], time.Time{}, 0
	for _, s := range all {
		if s.Start.Before(until) {
			continue
		}
		if points += s.Steps; points > maxPoints {
			return nil, fmt.Errorf("its agent says that it measured more than %d times", maxPoints)
		}
		until = s.Start.Add(time.Duration(s.Steps) * time.Duration(s.Step))
		kept = append(kept, s)
	}
	return kept, nil
}

// eachSample reads the lines of a sample file. The last one may be incomplete.
func eachSample(ctx context.Context, of tree, name string, take func(session.Measurement)) error {
	data, err := of.read(ctx, name, maxSamples)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what the agent measured: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxSample)
	for lines.Scan() {
		var s session.Measurement
		if json.Unmarshal(lines.Bytes(), &s) == nil {
			take(s)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read what the agent measured: %w", err)
	}
	return nil
}

// sendSamples passes samples on, each signal in time order.
func sendSamples(sink usage.Sink, samples []session.Measurement, iv usage.Interval) {
	for _, s := range samples {
		for n := range s.Steps {
			at := s.Start.Add(time.Duration(n) * time.Duration(s.Step))
			if at.Before(iv.From) || !at.Before(iv.To) {
				continue
			}
			put := func(gpu string, signals map[string]float64) {
				for name, v := range signals {
					if signal, ok := usage.SignalNamed(name); ok && v >= 0 && !math.IsInf(v, 0) {
						sink.Add(gpu, signal, usage.Point{Time: at, Mean: v, Max: v})
					}
				}
			}
			put("", s.Host)
			for gpu, signals := range s.GPUs {
				put(gpu, signals)
			}
		}
	}
}
