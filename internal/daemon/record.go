package daemon

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/prom"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// What a recording is made from.
const (
	FromPrometheus = "prometheus"
	FromCloud      = "cloudwatch" // the cloud's own metrics
)

// RecordOptions say what is recorded.
type RecordOptions struct {
	// From is FromPrometheus or FromCloud.
	From string
	Period
	// Step is the time that a sample stands for.
	Step time.Duration
	// Output is the file; its name says the format.
	Output string
}

const (
	// serverSlice is how much of the history of all machines is held at once where a server
	// tells of all of them together; cloudSlice is how many machines are asked about at once
	// where each is asked about by itself.
	serverSlice = 2 * time.Hour
	cloudSlice  = 25
)

// Record writes what sources measured of the running machines of an account to a trace.
func (rt *Runtime) Record(ctx context.Context, f Source, o RecordOptions) (view.Record, error) {
	doc := view.Record{Schema: view.RecordSchema, From: o.From, Output: o.Output}
	cfg, err := rt.Config()
	if err != nil {
		return doc, err
	}
	if doc.Since, doc.Until, err = o.Bounds(rt.Now()); err != nil {
		return doc, err
	}
	if now := rt.Now().UTC(); doc.Until.After(now) {
		doc.Until = now
	}
	bar := rt.bar("record")
	defer bar.Finish()
	setting, err := rt.Setting(ctx, cfg, f)
	if err != nil {
		return doc, err
	}
	sources := slices.DeleteFunc(setting.Sources, func(s usage.Source) bool {
		_, server := s.(*prom.Source)
		return server != (o.From == FromPrometheus)
	})
	if len(sources) == 0 {
		return doc, &Error{Class: Usage, Code: "no_source", Err: fmt.Errorf("record --from %s: there is no such source", o.From),
			Hint: "give --metrics-source URL, or metrics.sources in curfew.yaml"}
	}
	listed, err := setting.Lister.List(ctx, round.Query{Now: setting.Clock().UTC(), Progress: bar.Report, Kinds: machineKinds})
	if err != nil {
		return doc, CloudError(err)
	}
	if setting.Owners != nil {
		spots, err := setting.Owners(ctx, listed.Resources, setting.Clock().UTC())
		if err != nil {
			return doc, err
		}
		doc.Add(spots)
	}
	var machines []*inventory.Resource
	for _, r := range listed.Resources {
		if t := r.Kind.Traits(); t.Measured && t.Compute {
			setting.Prices.Fill(r)
			machines = append(machines, r)
		}
	}
	r := &recorder{progress: bar.Report, sources: sources, about: map[inventory.Ref]*usage.Description{}, doc: &doc, seen: map[string]bool{}}
	for _, m := range machines {
		r.about[m.Ref()] = describe(m)
	}
	doc.Add(listed.BlindSpots)
	err = ReplaceFile(rt.Path(o.Output), func(w io.Writer) error {
		if r.out, err = usage.NewWriter(w, filepath.Base(o.Output)); err != nil {
			return &Error{Class: Usage, Code: "usage", Err: err}
		}
		if err := r.record(ctx, machines, o); err != nil {
			return err
		}
		return r.out.Close()
	})
	return doc, err
}

// recorder writes samples as sources tell them.
type recorder struct {
	progress func(round.Progress)
	sources  []usage.Source
	about    map[inventory.Ref]*usage.Description
	out      usage.Writer
	doc      *view.Record
	seen     map[string]bool
	// ahead are rows of the slice after this one.
	ahead map[row]*usage.Sample
}

// describe returns what a trace says of a machine itself.
func describe(m *inventory.Resource) *usage.Description {
	return &usage.Description{Kind: m.Kind, Lifetime: m.Lifetime, Purpose: m.Purpose, Type: m.Type, Team: m.Owner.Team, Project: m.Owner.Project,
		User: m.Owner.User, Environment: m.Owner.Environment, Tags: m.Tags, GPUs: m.Size.GPUs, Launched: m.CreatedAt}
}

// record reads slice after slice.
func (r *recorder) record(ctx context.Context, machines []*inventory.Resource, o RecordOptions) error {
	read := 0
	done := func(part string, of int) {
		read++
		r.progress(round.Progress{What: part, Done: read, Total: of, Resources: len(r.seen)})
	}
	if o.From == FromPrometheus {
		parts := int((r.doc.Until.Sub(r.doc.Since) + serverSlice - 1) / serverSlice)
		for from := r.doc.Since; from.Before(r.doc.Until); from = from.Add(serverSlice) {
			to := from.Add(serverSlice)
			if to.After(r.doc.Until) {
				to = r.doc.Until
			}
			if err := r.slice(ctx, machines, usage.Interval{From: from, To: to, Step: o.Step}); err != nil {
				return err
			}
			done(from.Format(time.DateTime), parts)
		}
		return nil
	}
	chunks := (len(machines) + cloudSlice - 1) / cloudSlice
	for part := range slices.Chunk(machines, cloudSlice) {
		if err := r.slice(ctx, part, usage.Interval{From: r.doc.Since, To: r.doc.Until, Step: o.Step}); err != nil {
			return err
		}
		done(part[0].ID, chunks)
	}
	return nil
}

// row is where a sample goes.
type row struct {
	ref inventory.Ref
	gpu string
	at  int64
}

// repeats returns how many rows a point of a step makes, and the value of each. A trace has
// one step: what stands for five minutes is in five rows of one. An amount in a step is
// divided among them. A meter that repeats itself would seem frozen, and has one row.
func repeats(s usage.Signal, step, of time.Duration, v float64) (rows int, value float64) {
	rows = int(step / of)
	if rows <= 1 || s.Repeats() > 0 {
		return 1, v
	}
	switch s {
	case usage.NetBytes, usage.DiskBytes, usage.DiskOps, usage.Requests:
		v *= float64(of) / float64(step)
	}
	return rows, v
}

// slice records one interval. Of one signal of a machine the first source speaks, and of
// its GPUs one source alone.
func (r *recorder) slice(ctx context.Context, machines []*inventory.Resource, iv usage.Interval) error {
	rows := r.ahead
	if rows == nil {
		rows = map[row]*usage.Sample{}
	}
	r.ahead = map[row]*usage.Sample{}
	type voice struct {
		ref    inventory.Ref
		signal usage.Signal
	}
	speaks := map[voice]int{}
	for i, s := range r.sources {
		m, err := s.Measure(ctx, machines, iv, func(x *inventory.Resource, opened usage.Opened) usage.Sink {
			ref := x.Ref()
			return usage.SinkFunc(func(gpu string, sig usage.Signal, p usage.Point) bool {
				v := voice{ref, sig}
				if sig.PerGPU() {
					v.signal = usage.GPUUtil
				} else {
					gpu = ""
				}
				if by := speaks[v]; by != 0 && by != i+1 || p.Time.Before(iv.From) || !p.Time.Before(iv.To) {
					return false
				}
				speaks[v] = i + 1
				each, value := repeats(sig, opened.Step, iv.Step, p.Max)
				for n := range each {
					at := p.Time.Add(time.Duration(n) * iv.Step)
					to := rows
					switch {
					case !at.Before(r.doc.Until):
						return true
					case !at.Before(iv.To):
						to = r.ahead
					}
					k := row{ref, gpu, at.UnixNano()}
					sample := to[k]
					if sample == nil {
						sample = &usage.Sample{Resource: x.ID, GPU: gpu, Time: at, Description: r.about[ref]}
						to[k] = sample
					}
					sample.Set(sig, value) // the highest, by which rest is judged
				}
				return true
			})
		})
		if err != nil {
			return err
		}
		r.doc.Add(m.BlindSpots)
	}
	samples := make([]*usage.Sample, 0, len(rows))
	for _, s := range rows {
		samples = append(samples, s)
	}
	slices.SortFunc(samples, usage.CompareSamples)
	for _, s := range samples {
		if used, ok := s.Get(usage.MemUsed); ok { // of which a trace may hold no more than the whole
			if total, ok := s.Get(usage.MemTotal); ok && used > total {
				s.Set(usage.MemUsed, total)
			}
		}
		if err := r.out.Write(s); err != nil {
			return err
		}
		r.seen[s.Resource] = true
	}
	r.doc.Samples, r.doc.Machines = r.doc.Samples+int64(len(samples)), len(r.seen)
	return nil
}
