package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
)

// fromAccount checks --from of a planner of measurements.
func fromAccount(command, from string, file bool) error {
	switch {
	case from != "scan" && from != "ledger":
		return usageError("curfew plan %s --from %q: it is scan or ledger", command, from)
	case file:
		return usageError("curfew plan %s: --from and a file are one or the other", command)
	}
	return nil
}

// scanned reads and judges an account as scan does, and keeps nothing.
func (a *app) scanned(ctx context.Context, f sourceFlags) (*round.Result, config.Config, *price.Book, error) {
	cfg, err := a.config()
	if err == nil {
		err = f.checkAudit()
	}
	if err != nil {
		return nil, cfg, nil, err
	}
	setting, err := a.setting(ctx, cfg, f)
	if err != nil {
		return nil, cfg, nil, err
	}
	bar := a.newProgress(f.cloud)
	defer bar.finish()
	setting.Source, setting.Query = "plan", round.Query{Window: cfg.Scan.Window, Progress: bar.report, Kinds: map[inventory.Kind]bool{inventory.KindInstance: true}}
	setting.Audit = &round.Audit{Thresholds: cfg.Thresholds, Required: cfg.RequiredTags}
	r, err := round.New(setting).Round(ctx)
	if err != nil {
		return nil, cfg, nil, scanFailure(err)
	}
	return r, cfg, setting.Prices, nil
}

// rightsizeScan right-sizes every machine with GPUs that runs.
func (a *app) rightsizeScan(ctx context.Context, f rightsizeFlags) error {
	r, cfg, book, err := a.scanned(ctx, f.source)
	if err != nil {
		return err
	}
	var machines []rightsize.Measured
	for _, res := range r.Resources {
		w := r.Windows[res.Ref()]
		if res.Kind != inventory.KindInstance || res.State != inventory.StateRunning || w == nil || !res.Size.Accelerated() {
			continue
		}
		machines = append(machines, rightsize.Measured{Name: first(res.Name, res.ID), Type: res.Type, Region: res.Region, Purpose: res.Purpose, Window: w})
	}
	if len(machines) == 0 {
		return &failure{exit: ExitError, code: "no_usage", err: fmt.Errorf("right-size the account: no running machine with GPUs was measured"), hint: "curfew scan says what could not be read"}
	}
	out, err := rightsize.FromWindows("the account", machines, book, rightsize.Params{Options: rightsize.Options{MinCoverage: cfg.Thresholds.Coverage}})
	if err != nil {
		return scanFailure(err)
	}
	return a.show(f.output, out, func() report.Sheet { return rightsizeSheet(out) })
}

// fleetPlan is what one serving fleet needs.
type fleetPlan struct {
	Team     string `json:"team,omitempty"`
	Project  string `json:"project,omitempty"`
	Resource string `json:"resource"` // one of its machines
	Type     string `json:"type"`
	Region   string `json:"region"`
	Machines int    `json:"machines"`
	// Load is the sum of the p95 utilization, in machines.
	Load        float64 `json:"load_machines"`
	Utilization float64 `json:"utilization"`
	// Replicas are the machines that carry the load at the target.
	Replicas         int     `json:"replicas"`
	UtilizationAfter float64 `json:"utilization_after"`
	CostUSDPerHour   *string `json:"cost_usd_per_hour"`
	// SavingUSD is a month of the machines that are not needed, below 0 what more cost; null
	// without a price.
	SavingUSD *string `json:"monthly_saving_usd"`
}

// capacityScan plans the machines of every serving fleet.
func (a *app) capacityScan(ctx context.Context, f capacityFlags, target float64) error {
	r, cfg, book, err := a.scanned(ctx, f.source)
	if err != nil {
		return err
	}
	fleets, err := finding.Fleets(&finding.Account{Now: a.Now().UTC(), Resources: r.Resources, Windows: r.Windows, Verdicts: r.Verdicts, Prices: book}, cfg.Thresholds)
	if err != nil {
		return fmt.Errorf("find serving fleets: %w", err)
	}
	doc := struct {
		Schema      string      `json:"schema"`
		Target      float64     `json:"target"`
		Fleets      []fleetPlan `json:"fleets"`
		Assumptions []string    `json:"assumptions"`
	}{capacity.Schema, target, []fleetPlan{}, []string{
		"running machines with purpose inference, of one owner, type and region, serve together; the load is the sum of the p95 utilization of their GPUs",
		"a fleet of which one machine was not measured is left out; idle machines are not counted",
		"a fleet at 60 to 80% stays as it is, unless --headroom is given",
		"what runs on machines that go has to fit into the GPU memory of those that stay, with a fifth to spare; in production two stay",
	}}
	for _, fleet := range fleets {
		p, err := planFleet(fleet, r.Charges[fleet.Resource.Ref()], target)
		if err != nil {
			return err
		}
		doc.Fleets = append(doc.Fleets, p)
	}
	return a.show(f.out, doc, func() report.Sheet {
		s := report.Sheet{Verb: "plan capacity", Title: plain.Count(len(fleets), "serving fleet") + " at a target of " + plain.Share(target, 1), Assumptions: doc.Assumptions}
		g := report.Grid{Title: "fleets", Head: []string{"team", "type", "region", "machines", "busy", "needed", "then busy", "saves a month"}, Right: []bool{false, false, false, true, true, true, true, true}}
		for _, p := range doc.Fleets {
			saving := "unknown"
			if p.SavingUSD != nil {
				saving = money.ForPeople(*p.SavingUSD)
			}
			g.Rows = append(g.Rows, []string{p.Team, p.Type, p.Region, strconv.Itoa(p.Machines), plain.Share(p.Utilization, 1), strconv.Itoa(p.Replicas), plain.Share(p.UtilizationAfter, 1), saving})
		}
		if len(g.Rows) > 0 {
			s.Tables = append(s.Tables, g)
		}
		return s
	})
}

// planFleet plans one fleet by the same rule as a rate of requests: a machine serves one
// machine's load. Charges are those of one machine.
func planFleet(f finding.Fleet, charges []ledger.Charge, target float64) (fleetPlan, error) {
	res := f.Resource
	p := fleetPlan{Team: res.Owner.Team, Project: res.Owner.Project, Resource: res.ID, Type: res.Type, Region: res.Region, Machines: f.Machines, Load: f.Load,
		Utilization: f.Load / float64(f.Machines), Replicas: f.Least}
	if f.Load > 0 {
		r, err := capacity.Plan(capacity.Params{QPS: max(f.Load, 1e-6), QPSPerGPU: 1, Target: target})
		if err != nil {
			return p, fmt.Errorf("plan the fleet of %s: %w", res.ID, err)
		}
		p.Replicas = max(r.Replicas, f.Least)
	}
	if target == capacity.DefaultTarget && p.Utilization >= 0.6 && p.Utilization <= 0.8 {
		p.Replicas = f.Machines // within the band of which the target is the middle
	}
	p.UtilizationAfter = f.Load / float64(p.Replicas)
	var month money.Amount
	for _, c := range charges {
		if c.Category != ledger.Compute {
			continue
		}
		var err error
		if month, err = month.Add(c.ListCost); err != nil || c.Unpriced != "" {
			return p, err // without a price the dollars are null
		}
	}
	if month == 0 {
		return p, nil
	}
	cost, err := month.Mul(int64(p.Replicas), money.HoursPerMonth)
	saved, errSaved := month.Mul(int64(f.Machines-p.Replicas), 1)
	if err != nil || errSaved != nil {
		return p, fmt.Errorf("price the fleet of %s: %w", res.ID, money.ErrOverflow)
	}
	text, saving := cost.String(), saved.Cents()
	p.CostUSDPerHour, p.SavingUSD = &text, &saving
	return p, nil
}
