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

// Bounds of what an agent measured: of a line and of a file, in bytes, of the time between two
// samples, and of the samples of one machine in one reading. An agent runs as its session's user.
const (
	maxSample  = 64 << 10
	maxSamples = 8 << 20
	leastStep  = 10 * time.Millisecond
	maxPoints  = 200_000
	maxSignals = 64 // of a sample, and GPUs
)

// Name implements usage.Source.
func (p *Provider) Name() string { return "agent" }

// Measure hands over what the agents of sessions measured: they append it to files in their
// state folders. What a machine does without such a file is unknown.
func (p *Provider) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(r *inventory.Resource, o usage.Opened) usage.Sink) (usage.Measured, error) {
	var out usage.Measured
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
			continue // its agent has measured nothing yet
		}
		from := iv.From
		if samples[0].Start.After(from) {
			from = samples[0].Start
		}
		if sink := open(r, usage.Opened{From: from, Step: time.Duration(samples[0].Step), Source: p.Name()}); sink != nil {
			hand(sink, samples, iv)
		}
	}
	return out, nil
}

// samples are what the agent of a machine measured within an interval, in order of time, and
// by one step: that of the newest. An agent that was started again with another one begins again.
func (p *Provider) samples(ctx context.Context, r *inventory.Resource, iv usage.Interval) ([]session.Measurement,
	error) {
	m, err := openMachine(p.Folder(r.ID))
	if err != nil {
		return nil, err
	}
	var all []session.Measurement
	now := p.o.Now()
	for _, name := range []string{session.PreviousSamplesFile, session.SamplesFile} {
		if err := eachSample(ctx, m.own(), filepath.Join("agent", name), func(s session.Measurement) {
			if time.Duration(s.Step) < leastStep || time.Duration(s.Step) > time.Hour || s.Steps <= 0 || s.Steps > 1<<16 ||
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
	// Two that stand for the same time were not both measured: the first counts.
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

// eachSample reads the lines of a file of samples. The last one may be cut off.
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

// hand hands samples over, each signal of a GPU or of the machine in order of time.
func hand(sink usage.Sink, samples []session.Measurement, iv usage.Interval) {
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
