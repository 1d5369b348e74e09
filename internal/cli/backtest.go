package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

// backtestFlags are the flags of backtest.
type backtestFlags struct {
	trace       string
	columns     string
	step        string
	price       string
	restartCost string
	idleBelow   float64
	baselines   bool
	resource    string
	tz          string
	policies    []string
	caps        bool
	every       string
	decisions   string
	asSessions  bool
	idle        string
	fleet       replay.FleetOptions
}

// addTrace adds the flags of the trace and of the cost of a restart.
func (f *backtestFlags) addTrace(fl *pflag.FlagSet) {
	fl.StringVar(&f.trace, "trace", "", "recorded usage (CSV, CSV.gz, Parquet or nvidia-smi CSV) `file`, or - for a pipe")
	fl.StringVar(&f.columns, "map", "", "columns of the trace under other names: `resource=pod,time=t_s`")
	fl.StringVar(&f.step, "step", "", "sampling step, such as 60s (default: seen in the file)")
	fl.StringVar(&f.price, "price", "", "price of a resource in `dollars` an hour")
	fl.StringVar(&f.restartCost, "restart-cost", "5m", "time lost when work comes back to a released resource")
	fl.Float64Var(&f.idleBelow, "idle-below", 0,
		"GPU utilization in `percent` under which a sample is idle (default: only 0 is)")
	fl.StringVar(&f.resource, "resource", "", "the resource that nvidia-smi's output is about")
	fl.StringVar(&f.tz, "tz", "",
		"time `zone` of times without one, such as Europe/Berlin or +09:00 (default: that of this machine)")
}

func (a *app) newBacktest() *cobra.Command {
	var f backtestFlags
	c := &cobra.Command{
		Use:   "backtest",
		Short: "Show what policies would have done and saved on recorded usage",
		Long: `Replays recorded GPU samples through the engine that enforce uses, and shows what each
policy would have released and saved. Baselines to compare with are fixed waits, a dead
man's switch, the best fixed wait in hindsight, an online policy that learns from the past
only, and perfect foresight. A sample at t covers [t, t + step). A missing sample is
unknown time and ends an idle period. A restart is charged where work comes back to a
released resource.

--as-sessions shows the cost of the machines as sessions: each ends after --idle without
work, and is started again when its work comes back.

--arrivals replays recorded requests of a serving fleet through policies with do: scale and
fleet: paid replica hours, late answers and cold starts, next to KEDA, Knative and AWS
target tracking with their defaults and to the smallest fixed fleet that is as punctual.`,
		Example: `  curfew backtest --trace examples/data/gpus.csv.gz --restart-cost 5m
  curfew backtest --trace examples/data/gpus.csv.gz --as-sessions --idle 30m
  curfew backtest --trace examples/data/gpus.csv.gz --policy examples/policies/idle-ephemeral.yaml -o html > replay.html
  curfew backtest --trace examples/data/gpus.csv.gz --step 5m --price 3.06 -o json
  curfew backtest --arrivals examples/data/requests.csv.gz --policy examples/fleets/embed.yaml --profile a=40ms,b=60ms --max-batch 8 --late-after 1s`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.checkFleetFlags("backtest", c.Flags().Changed); err != nil {
				return err
			}
			if f.fleet.Arrivals != "" {
				return a.backtestFleets(f)
			}
			if c.Flags().Changed("idle") && !f.asSessions {
				return usageError("--idle needs --as-sessions: give that as well")
			}
			return a.backtest(c.Context(), f)
		},
	}
	fl := c.Flags()
	f.addTrace(fl)
	f.addFleet(fl)
	fl.BoolVar(&f.fleet.Tune, "tune", false, "with --arrivals: fit the setting with the fewest hours on the first half, and judge all by the second")
	f.addPolicies(fl)
	fl.BoolVar(&f.asSessions, "as-sessions", false, "show what the machines would have cost as sessions")
	fl.StringVar(&f.idle, "idle", "30m", "idle time after which a session ends, with --as-sessions")
	fl.BoolVar(&f.caps, "caps", false, "apply the limits of the policies")
	fl.StringVar(&f.every, "every", "0s",
		"make a pass at every multiple of a `duration`, as enforce --once from cron "+
			"(default: at every sample and deadline)")
	fl.StringVar(&f.decisions, "decisions", "", "append each decision of the policies to a `file` as a line of JSON")
	fl.BoolVar(&f.baselines, "baselines", true, "compare with the baselines")
	a.outputs(c, reports...)
	return c
}

func (a *app) backtest(ctx context.Context, f backtestFlags) error {
	p, err := f.params()
	if err != nil {
		return err
	}
	if len(f.policies) == 0 && !f.baselines && !f.asSessions {
		return usageError("--baselines=false and no --policy leave nothing to replay")
	}
	p.Baselines, p.Caps = f.baselines, f.caps
	cfg, err := a.config()
	if err != nil {
		return err
	}
	var set *policy.Set
	if len(f.policies) > 0 {
		if set, err = govern.ReadPolicies(a.req, f.policies); err != nil {
			return err
		}
		for _, p := range set.Policies {
			if p.IsFleet() {
				return usageError("policy %s scales fleet %s by its requests: replay it with --arrivals", p.Name, p.Do.Fleet)
			}
		}
	}
	if f.asSessions {
		if p.AsSessions, err = config.ParseDuration(f.idle); err != nil || p.AsSessions <= 0 {
			return usageError("--idle %q: it is a duration such as 30m", f.idle)
		}
		if set, err = withSessions(set, p.AsSessions); err != nil {
			return err
		}
	}
	if p, err = replay.Replayed(a.req, cfg, p, set); err != nil {
		return err
	}
	if f.every != "" {
		if p.Every, err = config.ParseDuration(f.every); err != nil || p.Every < 0 {
			return usageError("--every %q: it is a duration such as 5m", f.every)
		}
	}
	var decisions []backtest.Decision
	if f.decisions != "" {
		p.Decided = func(d backtest.Decision) { decisions = append(decisions, d) }
	}
	if a.format == "html" {
		p.Draw = drawn
	}
	file, err := replay.OpenTrace(ctx, a.req, f.trace, &p.Format)
	if err != nil {
		return err
	}
	defer file.Close()
	r, err := backtest.Run(ctx, file, p)
	if err != nil {
		return replay.TraceError(f.trace, err)
	}
	if err := a.writeDecisions(f.decisions, decisions); err != nil {
		return err
	}
	doc := view.NewBacktest(r)
	return a.show(doc, func() report.Sheet { return report.Backtest(doc, f.next()) })
}

// withSessions adds the rule of sessions to the policies; nil has none.
func withSessions(set *policy.Set, idle time.Duration) (*policy.Set, error) {
	rule, err := backtest.SessionRule(idle)
	if err != nil || set == nil {
		return rule, err
	}
	return policy.Merge(rule, set)
}

// command is a command on the same trace, with the flags that were given.
func (f backtestFlags) command(verb string) string {
	out := "curfew " + verb + " --trace " + plain.Shell(f.trace)
	for _, x := range []struct{ flag, value, usual string }{
		{"map", f.columns, ""}, {"step", f.step, ""}, {"price", f.price, ""}, {"restart-cost", f.restartCost, "5m"},
		{"resource", f.resource, ""}, {"tz", f.tz, ""},
	} {
		if x.value != x.usual {
			out += " --" + x.flag + " " + plain.Shell(x.value)
		}
	}
	if f.idleBelow != 0 {
		out += fmt.Sprintf(" --idle-below %g", f.idleBelow)
	}
	return out
}

// next are the commands after a replay: learn policies, or try those that were replayed.
func (f backtestFlags) next() []string {
	if len(f.policies) == 0 {
		return []string{
			f.command("policy tune") + " --write tuned.yaml", f.command("backtest") + " --policy tuned.yaml",
		}
	}
	check, enforce := "curfew policy check --against last", "curfew enforce --once"
	for _, p := range f.policies {
		check += " " + plain.Shell(p)
		enforce += " --policy " + plain.Shell(p)
	}
	return []string{check, enforce}
}

// drawn is how many resources the page shows over time.
const drawn = 24

// params reads the flags of addTrace.
// options say how the trace is read.
func (f backtestFlags) options() replay.TraceOptions {
	return replay.TraceOptions{
		Trace: f.trace, Columns: f.columns, Step: f.step, Price: f.price,
		RestartCost: f.restartCost, Resource: f.resource,
		TZ: f.tz, IdleBelow: f.idleBelow,
	}
}

func (f backtestFlags) params() (backtest.Params, error) {
	if f.trace == "" {
		return backtest.Params{}, usageError("give the recorded usage, --trace FILE")
	}
	return f.options().Params(func(option string) string { return "--" + option })
}
