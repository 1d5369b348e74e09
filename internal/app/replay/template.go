package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/plan/sessionfile"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/snapshot"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// TemplateOptions select the machine for a session file. Type, Region and Name override the known
// values; Trace is recorded usage, or empty.
type TemplateOptions struct {
	From               string
	Trace              TraceOptions
	Type, Region, Name string
}

// SessionTemplate writes a session file that starts a machine like an existing one, from the last
// scan or from a trace.
func SessionTemplate(ctx context.Context, req *runtime.Request, o TemplateOptions) (*sessionfile.File, error) {
	cfg, book, err := req.Priced()
	if err != nil {
		return nil, err
	}
	if _, ok := book.Machine(o.Type); !ok && o.Type != "" {
		return nil, runtime.Invalid("--type %s: it is not in the price book%s", o.Type, book.DidYouMean(o.Type))
	}
	m, err := seenMachine(ctx, req, cfg, o.From)
	var unseen *runtime.Error
	if errors.As(err, &unseen) && (unseen.Code == "not_found" || unseen.Code == "no_scan") && o.Trace.Trace != "" {
		m, err = sessionfile.Machine{Name: o.From, Seen: o.Trace.Trace}, nil
	}
	if err != nil {
		return nil, err
	}
	var size *rightsize.Resource
	var usual *sessionfile.Habit
	if o.Trace.Trace != "" {
		name, said, err := traced(ctx, req, o, m)
		if err != nil {
			return nil, err
		}
		if m.ID == "" { // only what the trace states is known
			m.Owner, m.Purpose = inventory.Owner{
				Team: said.Team, Project: said.Project, User: said.User, Environment: said.Environment,
			}, said.Purpose
			m.Assumed = o.Region == ""
			m.Region = cmp.Or(o.Region, TracedRegion)
		}
		m.Type = cmp.Or(m.Type, said.Type, o.Type)
		if m.Type == "" {
			return nil, runtime.Invalid("%s does not say of which type %s is: give --type", o.Trace.Trace, o.From)
		}
		if m.Hourly, err = hourlyOf(book, m); err != nil {
			return nil, err
		}
		if size, err = sized(ctx, req, o, m, name, book); err != nil {
			return nil, err
		}
		if usual, err = habit(ctx, req, cfg, o, m, name); err != nil {
			return nil, err
		}
	}
	m.Type, m.Region = cmp.Or(m.Type, o.Type), cmp.Or(m.Region, o.Region)
	f, err := sessionfile.New(m, size, usual, sessionfile.Options{
		Name: o.Name, Lease: cfg.Sessions.Lease, Idle: cfg.Sessions.Idle, MaxLease: cfg.Sessions.MaxLease,
	})
	if err != nil {
		return nil, runtime.Invalid("%w", err)
	}
	return f, nil
}

// hourlyOf returns the hourly price of a machine: from the scan, or else of its type; unknown if
// the book has none.
func hourlyOf(book *price.Book, m sessionfile.Machine) (inventory.Fact[money.Amount], error) {
	if m.Hourly.Known() {
		return m.Hourly, nil
	}
	p, err := book.OnDemand(m.Type, cmp.Or(m.Region, TracedRegion))
	if errors.Is(err, price.ErrUnpriced) {
		return m.Hourly, nil
	}
	if err != nil {
		return m.Hourly, runtime.Invalid("%w", err)
	}
	hourly, err := p.Hourly()
	return inventory.Known(hourly), err
}

// seenMachine returns a machine as last seen in the state.
func seenMachine(ctx context.Context, req *runtime.Request, cfg config.Config, name string) (sessionfile.Machine,
	error) {
	var none sessionfile.Machine
	ref, err := audit.Resolve(ctx, req, cfg, name)
	if err != nil {
		return none, err
	}
	if ref.Kind != inventory.KindInstance {
		return none, runtime.Invalid("%s is of kind %s: a session is a machine", ref, ref.Kind)
	}
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return none, err
	}
	defer s.Close()
	seen, err := s.Snapshots().Resources(ctx, snapshot.Query{IncludeGone: true, Ref: ref})
	if err != nil {
		return none, err
	}
	if len(seen) > 0 {
		kept, err := audit.KeptResource(seen[0])
		if err != nil {
			return none, err
		}
		return keptMachine(kept, seen[0], cfg), nil
	}
	return none, &runtime.Error{
		Code: "not_found", Err: fmt.Errorf("no scan that is kept has %s", ref), Hint: "run `curfew scan` first",
	}
}

// keptMachine converts a resource of the state to a machine for a file.
func keptMachine(k view.KeptResource, r snapshot.Resource, cfg config.Config) sessionfile.Machine {
	p := k.Priced(cfg.Tags)
	m := sessionfile.Machine{
		ID: k.Ref.ID, Name: k.Name, Type: k.Type, Region: k.Ref.Region, Owner: p.Resource.Owner,
		Purpose: p.Resource.Purpose,
		Hourly:  p.Hourly,
		Seen:    "the scan of " + plain.Date(r.SeenAt.UTC())}
	if k.Instance != nil {
		m.Spot, m.Image = k.Instance.Market == inventory.Spot, k.Instance.Image
		for _, d := range k.Instance.Disks {
			if d.Root && d.SizeGiB != nil {
				m.DiskGiB = *d.SizeGiB
			}
		}
	}
	if k.Ref.Cloud != "aws" && k.Ref.Cloud != "sim" {
		m.Region = "" // a site is not a cloud region
	}
	if r.Duty != "" && r.Duty != "unknown" {
		m.Doing = r.Duty
		if !r.DutySince.IsZero() {
			m.Doing += " since " + plain.Time(r.DutySince)
		}
	}
	return m
}

// traced finds a machine in the trace: by its id, its name, or as the only one. It returns its name
// there and its stated properties.
func traced(ctx context.Context, req *runtime.Request, o TemplateOptions, m sessionfile.Machine) (name string,
	said usage.Description, err error) {
	p, file, err := trace(ctx, req, o)
	if err != nil {
		return "", said, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	all := map[string]usage.Description{}
	if _, err := usage.Read(ctx, file, p.Format, func(s *usage.Sample) error {
		if _, ok := all[s.Resource]; !ok || s.Description != nil {
			all[s.Resource] = usage.Description{}
		}
		if s.Description != nil {
			all[s.Resource] = *s.Description
		}
		return nil
	}); err != nil {
		return "", said, TraceError(o.Trace.Trace, err)
	}
	for _, n := range []string{o.From, m.ID, m.Name} {
		if d, ok := all[n]; ok && n != "" {
			return n, d, nil
		}
	}
	if len(all) == 1 {
		for n, d := range all {
			return n, d, nil
		}
	}
	return "", said, &runtime.Error{
		Code: "not_found", Err: fmt.Errorf("%s has no samples of %s: it has those of %s", o.Trace.Trace, o.From,
			plain.Count(len(all), "resource")),
		Hint: "--map resource=COLUMN names the column of the resources"}
}

type readSeekCloser interface {
	io.ReadSeeker
	io.Closer
}

// trace opens the trace again.
func trace(ctx context.Context, req *runtime.Request, o TemplateOptions) (backtest.Params, readSeekCloser, error) {
	p, err := o.Trace.Params(func(option string) string { return "--" + option })
	if err != nil {
		return p, nil, err
	}
	file, err := OpenTrace(ctx, req, o.Trace.Trace, &p.Format)
	return p, file, err
}

// sized returns the right-sizing advice for the machine; nil if it has no GPUs.
func sized(ctx context.Context, req *runtime.Request, o TemplateOptions, m sessionfile.Machine, name string,
	book *price.Book) (*rightsize.Resource, error) {
	if from, ok := book.Machine(m.Type); !ok || from.GPUs() == 0 {
		return nil, nil
	}
	p, file, err := trace(ctx, req, o)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	r, err := rightsize.FromUsage(ctx, file, p.Format, m.Type, book, rightsize.Params{
		Options: rightsize.Options{Purpose: m.Purpose}, Region: m.Region, Most: mostFits,
		Only: func(n string) bool { return n == name },
	})
	if err != nil {
		return nil, clouds.CloudError(err)
	}
	for i := range r.Resources {
		if r.Resources[i].Name == name {
			return &r.Resources[i], nil
		}
	}
	return nil, nil
}

// mostFits limits the number of fitting types to consider, including those of other clouds.
const mostFits = 1000

// habit replays the machine as sessions, with the idle time that was best in hindsight.
func habit(ctx context.Context, req *runtime.Request, cfg config.Config, o TemplateOptions, m sessionfile.Machine,
	name string) (*sessionfile.Habit, error) {
	run := func(idle time.Duration) (backtest.Report, error) {
		p, file, err := trace(ctx, req, o)
		if err != nil {
			return backtest.Report{}, err
		}
		defer file.Close() //nolint:errcheck // it was only read
		set, err := backtest.SessionRule(max(idle, time.Minute))
		if err != nil {
			return backtest.Report{}, err
		}
		if p, err = Replayed(req, cfg, p, set); err != nil {
			return backtest.Report{}, err
		}
		p.AsSessions, p.Baselines = max(idle, time.Minute), idle == 0
		p.Only = func(n string) bool { return n == name }
		if price, ok := m.Hourly.Get(); ok && p.Price == nil {
			p.Price = &price
		}
		r, err := backtest.Run(ctx, file, p)
		if err != nil {
			return r, TraceError(o.Trace.Trace, err)
		}
		return r, nil
	}
	all, err := run(0)
	if err != nil {
		return nil, err
	}
	h := &sessionfile.Habit{
		Trace: o.Trace.Trace, From: all.Trace.First,
		To: all.Trace.Last.Add(time.Duration(all.Trace.StepSeconds * float64(time.Second))),
	}
	if best := all.Named(backtest.BestFixed); best != nil && best.WaitSeconds != nil {
		h.Wait = time.Duration(*best.WaitSeconds * float64(time.Second))
	}
	h.Idle = sessionfile.Idle(h.Wait)
	as, err := run(h.Idle)
	if err != nil {
		return nil, err
	}
	for _, r := range as.Results {
		if s := r.AsSessions; s != nil {
			h.MachineHours, h.IdleHours, h.RestartHours, h.SessionHours = r.ResourceHours, r.IdleHours, r.RestartHours,
				s.SessionHours
			h.Launches, h.CostUSD, h.SessionUSD = s.Launches, r.CostUSD, s.CostUSD
		}
	}
	return h, nil
}
