package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/prom"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// Sources of a recording.
const (
	FromPrometheus = "prometheus"
	FromCloud      = "cloudwatch" // the cloud's own metrics
)

// RecordOptions select the usage to record.
type RecordOptions struct {
	// From is FromPrometheus or FromCloud.
	From string
	runtime.Period
	// Step is the time between two samples.
	Step time.Duration
	// Output is the file; its extension determines the format.
	Output string
}

const (
	// serverSlice is how much history is held in memory at once if a server returns all machines
	// together; cloudSlice is the number of machines queried at once if each is queried separately.
	serverSlice = 2 * time.Hour
	cloudSlice  = 25
)

// Record writes the measurements of the running machines of accounts to a trace. If there are
// several accounts, one that cannot be read is a blind spot.
func Record(ctx context.Context, req *runtime.Request, of []clouds.Source, o RecordOptions) (view.Record, error) {
	doc := view.Record{Schema: view.RecordSchema, From: o.From, Output: o.Output}
	cfg, err := req.Config()
	if err != nil {
		return doc, err
	}
	if doc.Since, doc.Until, err = o.Bounds(req.Now()); err != nil {
		return doc, err
	}
	if now := req.Now().UTC(); doc.Until.After(now) {
		doc.Until = now
	}
	bar := req.Progress("record")
	defer bar.Finish()
	r := &recorder{
		progress: bar.Report, about: map[inventory.Ref]*usage.Description{}, doc: &doc, seen: map[string]bool{},
	}
	var accounts []gauged
	var unread error
	for _, f := range of {
		one, spots, err := gaugedOf(ctx, req, cfg, f, o.From, bar)
		switch {
		case ctx.Err() != nil:
			return doc, context.Cause(ctx)
		case err != nil && len(of) == 1:
			return doc, err
		case err != nil:
			unread = cmp.Or(unread, err)
			doc.Add([]inventory.BlindSpot{
				{
					What: "account " + cmp.Or(strings.Join(f.AssumeRoles, " "),
						"of the credentials"), Why: err.Error(),
					Effect: "its machines are not recorded",
				},
			})
			continue
		}
		doc.Add(spots)
		one.machines = slices.DeleteFunc(one.machines, func(m *inventory.Resource) bool {
			return r.about[m.Ref()] != nil
		})
		for _, m := range one.machines {
			r.about[m.Ref()] = describe(m)
		}
		// A server holds the machines of all accounts, so it is queried once.
		if o.From == FromPrometheus && len(accounts) > 0 {
			accounts[0].machines = append(accounts[0].machines, one.machines...)
			continue
		}
		accounts = append(accounts, one)
	}
	switch {
	case len(of) == 0:
		return doc, &runtime.Error{
			Code: "no_account", Err: errors.New("record: no account is known yet"),
			Hint: "/readyz of the service names the problem",
		}
	case len(accounts) == 0:
		return doc, unread
	}
	err = durable.Replace(req.Path(o.Output), 0o600, func(w io.Writer) error {
		if r.out, err = usage.NewWriter(w, filepath.Base(o.Output)); err != nil {
			return &runtime.Error{Class: runtime.Usage, Code: "usage", Err: err}
		}
		if err := r.record(ctx, accounts, o); err != nil {
			return err
		}
		return r.out.Close()
	})
	return doc, err
}

// gauged holds the running machines of an account and the sources of their measurements.
type gauged struct {
	machines []*inventory.Resource
	sources  []usage.Source
}

// gaugedOf returns the running machines of an account, with the sources of a recording.
func gaugedOf(ctx context.Context, req *runtime.Request, cfg config.Config, f clouds.Source, from string,
	bar runtime.Bar) (of gauged, spots []inventory.BlindSpot, err error) {
	setting, err := clouds.Setting(ctx, req, cfg, f)
	if err != nil {
		return of, nil, err
	}
	of.sources = slices.DeleteFunc(setting.Sources, func(s usage.Source) bool {
		_, server := s.(*prom.Source)
		return server != (from == FromPrometheus)
	})
	if len(of.sources) == 0 {
		return of, nil, &runtime.Error{
			Class: runtime.Usage, Code: "no_source",
			Err:  fmt.Errorf("record --from %s: there is no such source", from),
			Hint: "give --metrics-source URL, or metrics.sources in curfew.yaml"}
	}
	listed, err := setting.Lister.List(ctx, round.Query{
		Now: setting.Clock().UTC(), Progress: bar.Report, Kinds: clouds.MachineKinds,
	})
	if err != nil {
		return of, nil, clouds.CloudError(err)
	}
	if setting.Owners != nil {
		if spots, err = setting.Owners(ctx, listed.Resources, setting.Clock().UTC()); err != nil {
			return of, nil, err
		}
	}
	for _, r := range listed.Resources {
		if t := r.Kind.Traits(); t.Measured && t.Compute {
			setting.Prices.Fill(r)
			of.machines = append(of.machines, r)
		}
	}
	return of, append(spots, listed.BlindSpots...), nil
}

// recorder writes the samples of sources in time order.
type recorder struct {
	progress func(round.Progress)
	about    map[inventory.Ref]*usage.Description
	out      usage.Writer
	doc      *view.Record
	seen     map[string]bool
	// ahead holds rows of the next slice.
	ahead map[row]*usage.Sample
}

// describe returns the properties of a machine for the trace.
func describe(m *inventory.Resource) *usage.Description {
	return &usage.Description{
		Kind: m.Kind, Lifetime: m.Lifetime, Purpose: m.Purpose, Type: m.Type, Team: m.Owner.Team,
		Project: m.Owner.Project,
		User:    m.Owner.User, Environment: m.Owner.Environment, Tags: m.Tags,
		GPUs: m.Size.GPUs, Launched: m.CreatedAt}
}

// record reads the history slice by slice.
func (r *recorder) record(ctx context.Context, accounts []gauged, o RecordOptions) error {
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
			if err := r.slice(ctx, accounts[0], usage.Interval{From: from, To: to, Step: o.Step}); err != nil {
				return err
			}
			done(from.Format(time.DateTime), parts)
		}
		return nil
	}
	chunks := 0
	for _, a := range accounts {
		chunks += (len(a.machines) + cloudSlice - 1) / cloudSlice
	}
	for _, a := range accounts {
		for part := range slices.Chunk(a.machines, cloudSlice) {
			if err := r.slice(ctx, gauged{
				part, a.sources,
			}, usage.Interval{From: r.doc.Since, To: r.doc.Until, Step: o.Step}); err != nil {
				return err
			}
			done(part[0].ID, chunks)
		}
	}
	return nil
}

// row identifies a row of the trace.
type row struct {
	ref inventory.Ref
	gpu string
	at  int64
}

// repeats returns the number of rows for one point of a source, and the value of each. A trace has
// one step, so a five-minute value fills five rows of one minute; an amount per step is divided
// among them. A meter only gets one row, because repeated readings would look frozen.
func repeats(s usage.Signal, step, of time.Duration, v float64) (rows int, value float64) {
	rows = int(step / of)
	if rows <= 1 || s.FrozenAfter() > 0 {
		return 1, v
	}
	switch s {
	case usage.NetBytes, usage.DiskBytes, usage.DiskOps, usage.Requests:
		v *= float64(of) / float64(step)
	}
	return rows, v
}

// slice records one interval. Each signal of a machine comes from the first source that has it, and
// all signals of its GPUs from the same source.
func (r *recorder) slice(ctx context.Context, of gauged, iv usage.Interval) error {
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
	for i, s := range of.sources {
		m, err := s.Measure(ctx, of.machines, iv, func(x *inventory.Resource, opened usage.SourceInfo) usage.Sink {
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
					sample.Set(sig, value) // the maximum, which decides whether the machine is idle
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
		if used, ok := s.Get(usage.MemUsed); ok { // a trace may not hold more than the total
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
