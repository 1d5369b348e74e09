package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// Backtest writes a replay for a terminal of a width in columns; 0 is no terminal.
func Backtest(out io.Writer, r view.Backtest, width int) error {
	seconds := func(s float64) string { return time.Duration(s * float64(time.Second)).String() }
	plain.Fprintf(out, "curfew backtest   %s, %s resources, %s samples of %s, a restart costs %s\n\n", r.Trace.Name, money.Thousands(int64(r.Trace.Resources)),
		money.Thousands(r.Trace.Samples), seconds(r.Trace.StepSeconds), seconds(r.Trace.RestartCostSeconds))
	if len(r.Results) > 0 {
		first := r.Results[0]
		plain.Fprintf(out, "  %s resource hours, %s idle, %s not measured\n\n", plain.Number(first.ResourceHours, 1), plain.Number(first.IdleHours, 1), plain.Number(first.UnknownHours, 1))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	plain.Fprintf(w, "  %-22s\treleased h\trestarts\tcut short\tnet saved h\tof all\tof oracle\t", "rule")
	if r.Priced() {
		plain.Fprintf(w, "saved\t")
	}
	plain.Fprintln(w)
	for _, res := range r.Results {
		name := res.Name
		if name == "best-fixed" && res.WaitSeconds != nil {
			name += " (" + seconds(*res.WaitSeconds) + ")"
		}
		ofOracle := "-"
		if res.OfForesight != nil {
			ofOracle = plain.Share(*res.OfForesight, 1)
		}
		plain.Fprintf(w, "  %-22s\t%s\t%s\t%s\t%s\t%s\t%s\t", name, plain.Number(res.ReleasedHours, 1), money.Thousands(res.Restarts), money.Thousands(res.Interrupted),
			plain.Number(res.NetSavedHours, 1), plain.Share(res.NetSavedShare, 1), ofOracle)
		if r.Priced() {
			plain.Fprintf(w, "%s\t", savedText(res.SavedUSD))
		}
		plain.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, res := range r.Results {
		if err := writeWhyNot(out, res); err != nil {
			return err
		}
	}
	for _, n := range r.Notes {
		plain.Fprintf(out, "\n  %s", wrapped(n, width, 2))
	}
	if len(r.Notes) > 0 {
		plain.Fprintln(out)
	}
	return nil
}

// printWhyNot says for how long a policy did nothing, and why.
func writeWhyNot(out io.Writer, res backtest.Result) error {
	const most = 6
	if len(res.WhyNot) == 0 {
		return nil
	}
	plain.Fprintf(out, "\n  why %s did nothing\n", res.Name)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, n := range res.WhyNot[:min(len(res.WhyNot), most)] {
		plain.Fprintf(w, "    %s\t%s h\t%s\t%s\n", n.Answer, plain.Number(n.Hours, 1), plain.Count(n.Resources, "resource"), n.Reason)
	}
	if more := len(res.WhyNot) - most; more > 0 {
		plain.Fprintf(w, "    and %s\n", plain.Count(more, "other reason"))
	}
	return w.Flush()
}

func savedText(usd *string) string {
	if usd == nil {
		return "-"
	}
	v, err := money.ParseAmount(*usd)
	if err != nil {
		return cmp.Or(*usd, "-")
	}
	return v.Dollars()
}

// Tune writes what was learned, from how much history, and its savings.
func Tune(b io.Writer, r view.Tune) error {
	seconds := func(s float64) string { return plain.Duration(time.Duration(s * float64(time.Second))) }
	fmt.Fprintf(b, "learned from %d resources and %d rests; a restart costs %s\n\n", r.Trace.Resources, r.Trace.IdlePeriods, seconds(r.Trace.RestartCostSeconds))
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "wait\tresting on\trests\tended by work\tsaved when tested\tclass")
	for _, c := range append(slices.Clone(r.Classes), r.Fleet) {
		name := learn.Class{Kind: inventory.Kind(c.Kind), Type: c.Type, Purpose: inventory.Purpose(c.Purpose), Team: c.Team}.String()
		if c.Kind == "" {
			name = "all together"
		}
		if c.Why != "" {
			name += " (no policy: " + c.Why + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s h, %s%%\t%s\n", seconds(c.WaitSeconds), c.Basis, c.IdlePeriods, c.EndedByWork,
			plain.Number(c.Tested.NetSavedHours, 1), plain.Number(100*c.Tested.NetSavedShare, 1), name)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(b, "\nwaiting for one restart cost saves %s h, knowing the future %s h\n",
		plain.Number(r.BreakEven.NetSavedHours, 1), plain.Number(r.PerfectForesight.NetSavedHours, 1))
	return err
}
