package server

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/fleets"
	"github.com/curfew-dev/curfew/internal/app/scheduler"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/cloud/custom"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/httpclient"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

const (
	// fleetsSource is the source that sets the sizes of fleets: one process does.
	fleetsSource = "fleets"
	// resizeEvery is the longest time from a decision until it is carried out.
	resizeEvery = 5 * time.Second
	// wakeEvery is that time while a fleet has no replica.
	wakeEvery = time.Second
	// findAgain is the time after which a fleet that was not found is looked for again.
	findAgain = 5 * time.Minute
	// growthHold is how long budgets reserve machines that a fleet grows by; by then they are charged.
	growthHold = time.Hour
)

// resized returns the source that carries out what the policies of fleets decide.
func (v *server) resized(cfg config.Config, made string) scheduler.Source {
	return scheduler.Source{
		Name: fleetsSource, Deadline: cfg.Serve.Deadline, Made: made,
		Every: func() time.Duration {
			if v.fleets.Hurries() {
				return wakeEvery
			}
			return resizeEvery
		},
		Open: func(_ context.Context, lease store.Lease) (scheduler.Rounds, error) {
			return &fleetRounds{v: v, cfg: cfg, lease: lease}, nil
		},
	}
}

// enforcesFleets reports whether a policy sets the size of a fleet.
func enforcesFleets(set *policy.Set) bool {
	return slices.ContainsFunc(set.Policies, func(p *policy.Policy) bool {
		return p.IsFleet() && p.Mode == policy.Enforce
	})
}

// fleetRounds carries decisions out under a lease.
type fleetRounds struct {
	v     *server
	cfg   config.Config
	lease store.Lease
}

// Round implements scheduler.Rounds.
func (r *fleetRounds) Round(ctx context.Context) (scheduler.Outcome, error) {
	v := r.v
	if _, err := v.req.StateClock(ctx, v.store); err != nil {
		return scheduler.Outcome{}, err
	}
	lines, err := v.fleets.Act(ctx, fleets.Acting{Admit: v.admitGrowth,
		Ladder: func(p *fleets.Provider) (*action.Ladder, error) {
			ladders, err := clouds.Ladders(v.req.Fresh(), r.cfg, v.store, p.Cloud, true)
			if err != nil {
				return nil, err
			}
			account := p.Ref.Cloud + "/" + p.Ref.Account
			return under(ladders, v.store, r.lease, v.scheduler.Metrics)(account), nil
		}})
	v.mirrored(ctx)
	out := scheduler.Outcome{Failed: map[policy.Verb]int{}}
	for _, l := range lines {
		if l.Result == action.ResultFailed {
			out.Failed[l.Verb]++
		}
		if l.Result == action.ResultActed || l.Result == action.ResultConfirmed || l.Result == action.ResultFailed {
			out.Acts = append(out.Acts, scheduler.Act{Resource: l.Resource.ID, Verb: l.Verb, Result: string(l.Result)})
		}
	}
	return out, err
}

// fleetFinder finds where fleets are, and does not look for a missing one at every reading.
type fleetFinder struct {
	v *server

	mu     sync.Mutex
	missed map[string]missedFleet
}

// missedFleet is a fleet that was not found.
type missedFleet struct {
	at  time.Time
	err error
}

// find returns where the fleet of an action is, in the one account and region that has it.
func (f *fleetFinder) find(ctx context.Context, d *policy.Do) (*fleets.Provider, error) {
	if d.IsCustomFleet() {
		return f.v.findFleet(ctx, d) // in the configuration, which may have changed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.v.req.Now()
	if m, ok := f.missed[d.Fleet]; ok && now.Sub(m.at) < findAgain {
		return nil, m.err
	}
	p, err := f.v.findFleet(ctx, d)
	if err != nil {
		f.missed[d.Fleet] = missedFleet{now, err}
		return nil, err
	}
	delete(f.missed, d.Fleet)
	return p, nil
}

func (v *server) findFleet(ctx context.Context, d *policy.Do) (*fleets.Provider, error) {
	kind, id := d.FleetResource()
	req := v.req.Fresh()
	cfg, err := req.Config()
	if err != nil {
		return nil, err
	}
	if d.IsCustomFleet() {
		return v.customFleet(cfg, d)
	}
	book, err := req.PriceBook(cfg)
	if err != nil {
		return nil, err
	}
	var found *fleets.Provider
	for _, source := range *v.accounts.Load() {
		if source.Cloud != clouds.ProviderAWS && source.Cloud != "" {
			continue
		}
		lister, err := clouds.OpenActionable(ctx, req, cfg, source)
		if err != nil {
			return nil, err
		}
		seen, err := lister.List(ctx, round.Query{Now: req.Now().UTC(), Kinds: map[inventory.Kind]bool{kind: true}})
		if err != nil {
			return nil, clouds.CloudError(err)
		}
		cloud, ok := sessions.AWSActions(v.req, cfg, v.store, lister).(fleets.Cloud)
		for _, r := range seen.Resources {
			switch {
			case r.Kind != kind || r.ID != id || !ok:
			case found != nil && found.Ref != r.Ref():
				return nil, fmt.Errorf("both %s and %s are fleet %s: give one another name", found.Ref, r.Ref(), d.Fleet)
			default:
				found = &fleets.Provider{Ref: r.Ref(), Cloud: cloud, Machine: machinePrices(book, kind)}
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no account that curfew reads has fleet %s: %w", d.Fleet, inventory.ErrNotFound)
	}
	return found, nil
}

// customFleet returns the fleet whose size a command or webhook of the configuration sets.
func (v *server) customFleet(cfg config.Config, d *policy.Do) (*fleets.Provider, error) {
	i := slices.IndexFunc(cfg.Fleets, func(f config.Fleet) bool { return f.ID == d.Fleet })
	if i < 0 {
		return nil, fmt.Errorf("fleets in curfew.yaml has no %s: %w", d.Fleet, inventory.ErrNotFound)
	}
	scale := cfg.Fleets[i].Scale
	hourly, err := scale.Hourly()
	if err != nil {
		return nil, err
	}
	_, name := d.FleetResource()
	o := custom.Options{
		Name: name, Command: scale.Command, URL: scale.URL, Drains: scale.Drains, Timeout: scale.Timeout,
		Tags: scale.Tags, Mapping: cfg.Tags,
		Client: httpclient.New(httpclient.Options{Attempts: 1, AttemptTimeout: scale.Timeout}),
	}
	o.Output, _ = v.req.Log.(*os.File)
	if scale.KeyEnv != "" {
		if o.Key, _ = v.req.Lookup(scale.KeyEnv); o.Key == "" {
			return nil, fmt.Errorf("the environment has no %s, which key_env of fleet %s names", scale.KeyEnv, d.Fleet)
		}
	}
	f := custom.New(o)
	return &fleets.Provider{Ref: f.Ref(), Cloud: f, Machine: func(string, string) fleets.Machine {
		return fleets.Machine{Hourly: inventory.Known(hourly)}
	}}, nil
}

// machinePrices returns what a machine of a type costs on demand, and its size.
func machinePrices(book *price.Book, kind inventory.Kind) func(machineType, region string) fleets.Machine {
	return func(machineType, region string) fleets.Machine {
		p, err := book.OnDemand(machineType, region)
		if kind == inventory.KindEndpoint {
			p, err = book.Managed("sagemaker", machineType, region)
		}
		m := fleets.Machine{Size: book.Size(strings.TrimPrefix(machineType, "ml."))}
		if err == nil {
			if hourly, err := p.Hourly(); err == nil {
				m.Hourly = inventory.Known(hourly)
			}
		}
		return m
	}
}

// admitGrowth asks the gate whether the budgets and quotas of its owner leave room for an hour of the
// machines that a fleet grows by. Its owner's maximum takes the place of the threshold for approvals.
func (v *server) admitGrowth(ctx context.Context, g fleets.Growth) (func(context.Context) error, error) {
	kept := v.kept.Load()
	params, err := spend.GateParams(ctx, v.req.Fresh(), kept.Config, kept.Decider, v.store)
	if err != nil {
		return nil, err
	}
	params.Threshold = money.Amount(math.MaxInt64)
	r := g.Fleet.Resource
	ask := gate.Ask{
		Kind: "fleet", Name: r.ID, SpecHash: r.Ref().String() + " " + r.Type, Owner: r.Owner,
		Purpose: inventory.Inference, P50: g.Hourly, P95: g.Hourly, Hourly: g.Hourly, Machines: g.Machines(),
		MaxRuntime: growthHold, AskedBy: "policy " + g.Policy,
		Key: fmt.Sprintf("fleet %s at %s", r.Ref(), g.At.UTC().Format(time.RFC3339Nano)),
	}
	if n := g.Machine.Size.GPUs.Or(0); n > 0 && g.Machine.Size.GPU != "" {
		ask.GPUs = map[string]int{g.Machine.Size.GPU: n * g.Machines()}
	}
	d, err := gate.Decide(ctx, ask, params)
	if err != nil {
		return nil, err
	}
	switch d.Decision {
	case gate.Allow:
		return func(ctx context.Context) error {
			if d.HoldID == "" {
				return nil
			}
			_, err := params.Budgets.Release(ctx, d.HoldID, ask.AskedBy, params.Now)
			return err
		}, nil
	case gate.Held:
		return nil, &action.Refusal{Rule: "budget", Why: fmt.Sprintf("approval %s is needed: %s", d.ApprovalID,
			strings.Join(d.Reasons, "; "))}
	}
	return nil, &action.Refusal{Rule: "budget", Why: strings.Join(d.Reasons, "; ")}
}
