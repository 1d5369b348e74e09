package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newShares() *cobra.Command {
	var f periodFlags
	var output string
	c := &cobra.Command{
		Use:   "shares FILE",
		Short: "What each workload of shared machines costs: GPUs of a machine, MIG slices, time slices",
		Long: `Divides what the ledger has charged for machines among the workloads that shared them,
by a file of resource,workload,share,used: a share is 3/8 (GPUs), 2/7 (MIG slices), 0.25
or 25%. Workloads and what nobody was allocated add up to the machine's cost.`,
		Example: "  curfew costs shares shares.csv --since 7d",
		Args:    oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("output", output, planOutputs...); err != nil {
				return err
			}
			return a.shares(c.Context(), args[0], f, output)
		},
	}
	f.add(c, "month")
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json, html or md")
	return c
}

// sharesDoc is what `costs shares` says.
type sharesDoc struct {
	Schema   string         `json:"schema"`
	Since    time.Time      `json:"since"`
	Until    time.Time      `json:"until"`
	Machines []machineShare `json:"machines"`
	notes    []string
}

// machineShare is one machine's cost, divided.
type machineShare struct {
	Resource    string          `json:"resource"`
	Amount      costs.Dollars   `json:"total_usd"`
	Workloads   []workloadShare `json:"workloads"`
	Unallocated costs.Dollars   `json:"unallocated_usd"`
	Note        string          `json:"note,omitempty"`
}

type workloadShare struct {
	Workload    string        `json:"workload"`
	Amount      costs.Dollars `json:"total_usd"`
	Used        costs.Dollars `json:"used_usd"`
	Idle        costs.Dollars `json:"idle_usd"`
	CannotJudge costs.Dollars `json:"cannot_judge_usd"`
}

func (a *app) shares(ctx context.Context, name string, f periodFlags, output string) error {
	since, until, err := f.bounds(a.Now())
	if err != nil {
		return err
	}
	all, err := readPlan(a, name, costs.ReadShares)
	if err != nil {
		return err
	}
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	charged, err := costs.Spent(ctx, s.Ledger(), costs.Query{By: []ledger.Dimension{ledger.ByResource}, Since: since, Until: until})
	if err != nil {
		return err
	}
	doc, err := divide(charged, all)
	if err != nil {
		return planFailure(err)
	}
	return a.show(output, doc, func() report.Sheet { return sharesSheet(doc) })
}

// divide divides each machine's cost among its workloads.
func divide(charged *costs.Costs, all []costs.Shared) (*sharesDoc, error) {
	amounts := map[string]money.Amount{}
	for _, r := range charged.Rows {
		id := r.Key[0][strings.LastIndex(r.Key[0], "/")+1:]
		sum, err := amounts[id].Add(money.Amount(r.Amount))
		if err != nil {
			return nil, fmt.Errorf("add up %s: %w", id, err)
		}
		amounts[id] = sum
	}
	doc := &sharesDoc{Schema: "curfew.shares/v1", Since: charged.Since, Until: charged.Until, Machines: []machineShare{}}
	shares := map[string][]costs.Share{}
	var order []string
	for _, s := range all {
		if shares[s.Resource] == nil {
			order = append(order, s.Resource)
		}
		shares[s.Resource] = append(shares[s.Resource], s.Share)
	}
	slices.SortStableFunc(order, func(x, y string) int { return cmp.Compare(amounts[y], amounts[x]) })
	for _, id := range order {
		amount, ok := amounts[id]
		if !ok {
			doc.notes = append(doc.notes, id+" was not charged in this time, so there is nothing to divide")
			continue
		}
		parts, err := costs.Split(amount, shares[id])
		if err != nil {
			return nil, fmt.Errorf("divide %s: %w", id, err)
		}
		m := machineShare{Resource: id, Amount: costs.Dollars(amount), Unallocated: costs.Dollars(parts.Unallocated), Note: parts.Over, Workloads: []workloadShare{}}
		for _, w := range parts.Workloads {
			m.Workloads = append(m.Workloads, workloadShare{w.Workload, costs.Dollars(w.Amount), costs.Dollars(w.Used), costs.Dollars(w.Idle), costs.Dollars(w.CannotJudge)})
		}
		doc.Machines = append(doc.Machines, m)
	}
	return doc, nil
}

func sharesSheet(d *sharesDoc) report.Sheet {
	s := report.Sheet{Verb: "costs shares", Title: plain.Count(len(d.Machines), "machine") + " divided among workloads", Coverage: d.notes,
		Assumptions: []string{"each share held for the whole of the time"}, Caption: "What each workload costs, and what nobody was allocated."}
	g := report.Grid{Head: []string{"machine", "workload", "cost", "used", "idle", "cannot judge"}, Right: []bool{false, false, true, true, true, true}}
	var bars []report.Measure
	for _, m := range d.Machines {
		for _, w := range m.Workloads {
			g.Rows = append(g.Rows, []string{m.Resource, w.Workload, dollars(w.Amount), dollars(w.Used), dollars(w.Idle), dollars(w.CannotJudge)})
			bars = append(bars, report.Measure{Label: w.Workload, Share: float64(w.Amount), Value: dollars(w.Amount)})
		}
		g.Rows = append(g.Rows, []string{m.Resource, "(not allocated)", dollars(m.Unallocated), "", "", ""})
		bars = append(bars, report.Measure{Label: "not allocated", Share: float64(m.Unallocated), Value: dollars(m.Unallocated)})
		if m.Note != "" {
			s.Coverage = append(s.Coverage, m.Resource+": "+m.Note)
		}
	}
	s.Tables, s.Picture = []report.Grid{g}, report.Bars("What each workload costs", bars[:min(len(bars), maxCostRows)])
	return s
}
