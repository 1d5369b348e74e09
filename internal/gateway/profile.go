package gateway

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/batch"
	"github.com/curfew-dev/curfew/internal/gateway/fit"
	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// describeFits returns the lines of a model by server.
func describeFits(model string, fits []batch.ModelFit) []stats.Fit {
	out := []stats.Fit{}
	for _, f := range fits {
		if f.Model == model {
			out = append(out, describeFit(f))
		}
	}
	slices.SortFunc(out, func(a, b stats.Fit) int { return strings.Compare(a.Upstream, b.Upstream) })
	return out
}

func describeFit(f batch.ModelFit) stats.Fit {
	out := stats.Fit{Upstream: f.Server, Sizes: len(f.Sizes), LevelChanges: f.Changes}
	for _, s := range f.Sizes {
		out.Batches += s.Batches
	}
	if len(f.Sizes) > 0 {
		out.MinRows, out.MaxRows = f.Sizes[0].Rows, f.Sizes[len(f.Sizes)-1].Rows
	}
	if f.Changes > 0 {
		at := f.ChangedAt.UTC()
		out.ChangedAt = &at
	}
	if f.Fitted && f.Line.Sizes > 1 {
		a, b := round(f.Line.PerRow*1000, 6), round(f.Line.Base*1000, 6)
		e, p90 := round(f.Line.Error, 4), round(f.Line.ErrorP90, 4)
		out.AMS, out.BMS, out.Error, out.ErrorP90 = &a, &b, &e, &p90
	}
	return out
}

func round(v float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(v*scale) / scale
}

// What a profile needs: so many batches in each of so many ranges of sizes. Two sizes make any line
// fit.
const (
	leastBatches = 5
	leastRanges  = 3
)

// Profile returns the measured batch time of a model. It returns an error that names the batch
// sizes of which too little was measured.
func (g *Gateway) Profile(model string) (stats.Profile, error) {
	s := g.state.Load()
	if model == "" {
		known := g.batchedModels()
		if len(known) != 1 {
			return stats.Profile{}, fmt.Errorf("name a model: %d models were measured%s", len(known), listed(known))
		}
		model = known[0]
	}
	name, _, _ := strings.Cut(model, "@")
	p := s.pool(name)
	if p == nil {
		return stats.Profile{}, fmt.Errorf("no pool serves model %q", name)
	}
	if laws := p.plain.lawsOf(name); len(laws) > 0 && !p.batches(model) {
		return p.lawProfile(name, laws)
	}
	if missing := tooFew(p.queue.Ranges(model)); missing != "" {
		return stats.Profile{}, fmt.Errorf(
			"model %q: too few batch sizes were measured; fewer than %d batches had %s "+
				"rows: send more requests at once", model, leastBatches, missing)
	}
	var best *stats.Fit
	for _, f := range p.queue.Fits() {
		if f.Model == model && f.Fitted && f.Line.Sizes > 1 && (best == nil || f.Line.Batches > best.Batches) {
			one := describeFit(f)
			best = &one
		}
	}
	if best == nil {
		return stats.Profile{}, fmt.Errorf("model %q: no line fits the measured batches yet", model)
	}
	return stats.Profile{
		Schema: stats.ProfileSchema, Pool: p.name, Model: model, MaxBatch: p.config.MaxBatch, Fit: *best,
		Profile: lineText(*best),
	}, nil
}

// batchedModels returns the models of which batches or completions were measured.
func (g *Gateway) batchedModels() []string {
	seen := map[string]bool{}
	for _, p := range g.state.Load().pools {
		for _, f := range p.queue.Fits() {
			seen[f.Model] = true
		}
		for _, model := range p.plain.models() {
			seen[model] = true
		}
	}
	return sortedKeys(seen)
}

func listed(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names[:min(len(names), 10)], ", ") + ")"
}

// describeLaws returns the concurrency laws of a model by server.
func describeLaws(laws []law) []stats.Fit {
	out := []stats.Fit{}
	for _, l := range laws {
		out = append(out, describeLaw(l))
	}
	return out
}

func describeLaw(l law) stats.Fit {
	out := stats.Fit{Upstream: l.server, Sizes: l.line.Sizes, LevelChanges: l.changes}
	for _, level := range l.levels {
		if level.Batches == 0 {
			continue
		}
		out.Batches += level.Batches
		out.Levels = append(out.Levels, stats.Level{
			Low: level.Low, High: level.High, Requests: level.Batches, Running: round(level.Running, 3),
			LatencyMS:         round(level.Time.Seconds()*1000, 3),
			RequestsPerSecond: round(level.Running/level.Time.Seconds(), 3),
		})
	}
	if l.changes > 0 {
		at := l.changedAt.UTC()
		out.ChangedAt = &at
	}
	if l.fitted {
		out.MinRows, out.MaxRows = l.line.Min, l.line.Max
	}
	if l.fitted && l.line.Sizes > 1 {
		a, b := round(l.line.PerRow*1000, 6), round(l.line.Base*1000, 6)
		e, p90 := round(l.line.Error, 4), round(l.line.ErrorP90, 4)
		out.AMS, out.BMS, out.Error, out.ErrorP90 = &a, &b, &e, &p90
	}
	return out
}

// batches reports whether batches of a model were measured.
func (p *pool) batches(model string) bool {
	return slices.ContainsFunc(p.queue.Fits(), func(f batch.ModelFit) bool { return f.Model == model })
}

// lawProfile returns the concurrency law of the server of which the most was measured, or an error
// that names the running requests of which too little was.
func (p *pool) lawProfile(model string, laws []law) (stats.Profile, error) {
	best := slices.MaxFunc(laws, func(a, b law) int { return a.line.Batches - b.line.Batches })
	var ranges []fit.Range
	for _, l := range best.levels {
		ranges = append(ranges, l.Range)
	}
	if missing := tooFew(ranges); missing != "" {
		return stats.Profile{}, fmt.Errorf(
			"model %q: too few numbers of running requests were measured; fewer than %d completions had %s "+
				"running: send more requests at once", model, leastBatches, missing)
	}
	f := describeLaw(best)
	if f.AMS == nil {
		return stats.Profile{}, fmt.Errorf("model %q: no line fits the measured completions yet", model)
	}
	return stats.Profile{
		Schema: stats.ProfileSchema, Pool: p.name, Model: model, Fit: f,
		Profile: fmt.Sprintf("%s,running=%d-%d", lineText(f), f.MinRows, f.MaxRows),
	}, nil
}

// tooFew names the ranges that were not measured, where so many are missing that no line can be
// told; empty where enough were measured.
func tooFew(ranges []fit.Range) string {
	var missing []string
	for _, r := range ranges {
		if r.Batches >= leastBatches {
			continue
		}
		text := strconv.Itoa(r.Low)
		if r.High > r.Low {
			text += "-" + strconv.Itoa(r.High)
		}
		missing = append(missing, text)
	}
	if len(ranges)-len(missing) >= leastRanges {
		return ""
	}
	return strings.Join(missing, ", ")
}

// lineText writes a line as plan capacity reads it.
func lineText(f stats.Fit) string {
	millis := func(v float64) string {
		return time.Duration(math.Round(v * float64(time.Millisecond))).String()
	}
	return "a=" + millis(*f.AMS) + ",b=" + millis(*f.BMS)
}
