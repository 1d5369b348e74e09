package spend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// Shares divides the charges of machines among the workloads of a file; text holds its contents if
// it is not on this machine.
func Shares(ctx context.Context, req *runtime.Request, name, text string, period runtime.Period) (view.Shares, error) {
	var none view.Shares
	since, until, err := period.Bounds(req.Now())
	if err != nil {
		return none, err
	}
	all, err := runtime.Given(req, name, text, costs.ReadShares)
	if err != nil {
		return none, err
	}
	_, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	charged, err := costs.Spent(ctx, s.Ledger(), costs.Query{
		By: []ledger.Dimension{ledger.ByResource}, Since: since, Until: until,
	})
	if err != nil {
		return none, err
	}
	divided, err := costs.Divide(charged, all)
	if err != nil {
		return none, runtime.PlanError(err)
	}
	return view.NewShares(divided, "", nil), nil
}

// TenantShares divides the charges of machines with GPUs among their holders according to metrics
// servers, grouped by one of [costs.Groups].
func TenantShares(ctx context.Context, req *runtime.Request, f clouds.Source, period runtime.Period,
	by string) (view.Shares, error) {
	var none view.Shares
	since, until, err := period.Bounds(req.Now())
	if err != nil {
		return none, err
	}
	cfg, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	servers, err := clouds.MetricsSources(req, cfg, f)
	if err != nil {
		return none, err
	}
	if len(servers) == 0 {
		return none, &runtime.Error{
			Class: runtime.Usage, Code: "no_source",
			Err: errors.New(
				"costs shares: there is neither a file nor a metrics server that says who shared the machines"),
			Hint: "give a file, --metrics-source URL, or metrics.sources in curfew.yaml"}
	}
	charged, err := costs.MachineHours(ctx, s.Ledger(), since, until)
	if err != nil {
		return none, err
	}
	machines, blind, err := gpuMachines(ctx, req, cfg, f, charged)
	if err != nil {
		return none, err
	}
	tenancy := &costs.Tenancy{GPUs: map[string]int{}}
	for _, m := range machines {
		tenancy.GPUs[m.ID] = m.Size.GPUs.Or(0)
	}
	end := until
	if now := req.Now().UTC(); end.After(now) {
		end = now
	}
	from := map[string]int{} // the server with metrics of a machine, counted from 1
	for i, server := range servers {
		spots, err := server.Tenancy(ctx, machines, since, end, cfg.Tags, func(o costs.Occupancy) {
			if from[o.Machine] == 0 {
				from[o.Machine] = i + 1
			}
			if from[o.Machine] == i+1 {
				tenancy.Add(o)
			}
		})
		if err != nil {
			return none, err
		}
		blind = append(blind, spots...)
	}
	divided, err := tenancy.Divide(since, until, charged)
	if err != nil {
		return none, err
	}
	if err := divided.Group(by); err != nil {
		return none, err
	}
	return view.NewShares(divided, by, blind), nil
}

// gpuMachines returns the machines that may have GPUs: those with charges, with details from the
// account for those that still run. If the account does not respond, only their ids are known.
func gpuMachines(ctx context.Context, req *runtime.Request, cfg config.Config, f clouds.Source,
	charged []costs.MachineHour) ([]*inventory.Resource, []inventory.BlindSpot, error) {
	book, err := req.PriceBook(cfg)
	if err != nil {
		return nil, nil, err
	}
	var blind []inventory.BlindSpot
	listed, err := listMachines(ctx, req, cfg, f, book)
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if err != nil {
		blind = append(blind, inventory.BlindSpot{
			What: "account", Why: err.Error(),
			Effect: "machines are matched by their ids, and by the provider ids of nodes",
		})
	}
	known := map[string]bool{}
	var out []*inventory.Resource
	add := func(m *inventory.Resource) {
		if t := m.Kind.Traits(); known[m.Ref().String()] || !t.Compute || !t.Measured {
			return
		}
		known[m.Ref().String()] = true
		if book.Fill(m); m.Size.GPUs.Or(-1) != 0 {
			out = append(out, m)
		}
	}
	was := map[string]bool{}
	types := map[string]string{}
	for _, h := range charged {
		was[h.Ref] = true
		if h.Type != "" {
			types[h.Ref] = h.Type
		}
	}
	for _, m := range listed.Resources {
		if was[m.Ref().String()] {
			add(m)
		}
	}
	for _, h := range charged {
		if part := strings.SplitN(h.Ref, "/", 5); len(part) == 5 {
			add(&inventory.Resource{
				Cloud: part[0], Account: part[1], Region: part[2], Kind: inventory.Kind(part[3]), ID: part[4],
				Type: types[h.Ref], State: inventory.StateRunning,
			})
		}
	}
	return out, append(blind, listed.BlindSpots...), nil
}

func listMachines(ctx context.Context, req *runtime.Request, cfg config.Config, f clouds.Source, book *price.Book) (
	inventory.Inventory, error) {
	var none inventory.Inventory
	now := req.Now().UTC()
	lister, err := clouds.Lister(ctx, req, f, cfg, book, now)
	if err != nil {
		return none, err
	}
	bar := req.Progress(f.Cloud)
	defer bar.Finish()
	seen, err := lister.List(ctx, round.Query{Now: now, Progress: bar.Report, Kinds: clouds.MachineKinds})
	if err != nil {
		return none, fmt.Errorf("list machines: %w", err)
	}
	return inventory.Inventory{Resources: seen.Resources, BlindSpots: seen.BlindSpots}, nil
}
