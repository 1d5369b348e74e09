package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// enforceFlags are the flags of enforce.
type enforceFlags struct {
	sourceFlags
	policies []string
	once     bool
	iam      policyFlags
	// buckets are the names whose lifecycle and tags the printed policy lets change.
	buckets []string
	enforce bool
	window  string
	// trace and at are those of --cloud trace; decisions is a file to write them to.
	trace, at, decisions string
	// seed varies the simulated account.
	seed uint64
	// refusals are those of the passes over each cloud.
	refusals *act.Refusals
}

func (a *app) newEnforce() *cobra.Command {
	var f enforceFlags
	c := &cobra.Command{
		Use:   "enforce --once",
		Short: "One pass of the policies over the account as it is now",
		Long: `Makes one pass of the policies: reads the account, judges it, and advances every
ladder by the steps that are due: warn, wait for the grace period, verify again, act, confirm.
It never sleeps; it prints when to run it again. From cron, every five minutes:

  */5 * * * *  curfew enforce --once --enforce

Without --enforce it only shows what it would do. A policy acts when its own mode is
enforce and --enforce is given; it never acts on unknown facts. See docs/safety.md.`,
		Example: `  curfew enforce --demo                         # the ladder on the simulated account, in simulated time
  curfew enforce --demo --seed 7 -o json        # a simulated day: true work, dollars before and after, what was done
  curfew enforce --once --policy policies/
  curfew enforce --once --enforce --regions us-east-1,us-west-2`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			named := c.Flags().Changed("cloud") || f.demo || f.iam.print
			f.refusals = &act.Refusals{}
			err := a.eachCloud(&f.sourceFlags, "curfew enforce", named, func() error {
				return a.enforce(c.Context(), f)
			})
			if broken := act.LookForAlerts(c.Context(), a.req, f.refusals); err == nil {
				err = broken
			}
			return err
		},
	}
	fl := c.Flags()
	f.add(fl)
	fl.StringArrayVar(&f.policies, "policy", nil,
		"policy `file` or directory; repeatable (default: policies in curfew.yaml)")
	fl.BoolVar(&f.once, "once", false, "one pass and done")
	fl.BoolVar(&f.enforce, "enforce", false, "warn and act; without it nothing is sent and nothing changes")
	fl.StringVar(&f.window, "window", "", "how far back usage is read (default: enforce.window in curfew.yaml)")
	a.outputs(c, tableJSON...)
	fl.StringVar(&f.trace, "trace", "",
		"with --cloud trace: recorded usage as the account (CSV, CSV.gz or Parquet) `file`")
	fl.StringVar(&f.at, "at", "",
		"with --cloud trace: the RFC 3339 `time` of the pass (default: the end of the trace)")
	fl.StringVar(&f.decisions, "decisions", "", "append each decision to a `file` as a line of JSON")
	fl.Uint64Var(&f.seed, "seed", clouds.SimSeed, "with --demo: the `number` that varies the simulated account")
	f.iam.add(fl, "with the permissions of scan and of actions on managed or governed resources (curfew.yaml)")
	fl.StringArrayVar(&f.buckets, "bucket", nil,
		"with --print-iam-policy: `name` of a bucket whose lifecycle and tags may be changed; repeatable")
	return c
}

func (a *app) enforce(ctx context.Context, f enforceFlags) error {
	if err := f.checkTrace(); err != nil {
		return err
	}
	if err := f.iam.check(); err != nil {
		return err
	}
	if err := checkBuckets(f.buckets, f.iam.print); err != nil {
		return err
	}
	if f.iam.print {
		cfg, err := a.config()
		if err != nil {
			return err
		}
		partition, err := f.iam.in(f.Regions, cfg.AWS.Regions)
		if err != nil {
			return err
		}
		_, err = a.Stdout.Write(clouds.ActionPolicy(clouds.Grants{
			Partition: partition, Governed: cfg.Governance.PermissionTags(cfg.Tags.Lifetime), Buckets: f.buckets,
		}))
		return err
	}
	if f.Cloud == "sim" {
		return a.demo(ctx, f)
	}
	if !f.once {
		return &failure{
			exit: ExitUsage, code: "usage", err: errors.New("curfew enforce: give --once"),
			hint: "`curfew serve` makes passes until it is stopped",
		}
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	if f.Cloud == backtest.Cloud {
		o.Wire = func(ctx context.Context, cfg config.Config, s *store.Store, _ act.EnforceOptions, set *policy.Set) (
			round.Setting, error) {
			return a.recorded(ctx, cfg, s, f, set)
		}
	}
	return act.Enforce(ctx, a.req, o, func(pass *round.Result, doc view.Enforce) error {
		if err := a.writeDecisions(f.decisions, backtest.Decisions(pass.StartedAt, pass.Lines())); err != nil {
			return err
		}
		return a.show(doc, func() report.Sheet {
			return report.EnforceSheet(doc, a.binding(), a.Now(), f.again()+a.globals())
		})
	})
}

// options are the flags as the operation takes them.
func (f enforceFlags) options() (act.EnforceOptions, error) {
	o := act.EnforceOptions{Source: f.Source, Policies: f.policies, Enforce: f.enforce, Refusals: f.refusals}
	if f.window != "" {
		var err error
		if o.Window, err = config.ParseDuration(f.window); err != nil || o.Window <= 0 {
			return o, usageError("--window %q: it is a duration such as 12h", f.window)
		}
	}
	return o, nil
}

// again is the command of the next pass.
func (f enforceFlags) again() string {
	words := []string{"curfew enforce --once"}
	if f.Cloud == local.CloudName || f.Cloud == local.OnPremises {
		words = append(words, "--cloud", f.Cloud)
	}
	for _, p := range f.policies {
		words = append(words, "--policy", plain.Shell(p))
	}
	if len(f.Regions) > 0 {
		words = append(words, "--regions", plain.Shell(strings.Join(f.Regions, ",")))
	}
	if f.window != "" {
		words = append(words, "--window", plain.Shell(f.window))
	}
	if f.enforce {
		words = append(words, "--enforce")
	}
	return strings.Join(words, " ") + reaching(f.sourceFlags)
}

// recorded wires a pass over a trace: the facts known at a time are the account, and machines that
// it releases are absent for later passes.
func (a *app) recorded(ctx context.Context, cfg config.Config, s *store.Store, f enforceFlags, set *policy.Set) (
	round.Setting, error) {
	setting, present, err := a.present(ctx, cfg, f.sourceFlags, looking{trace: f.trace, at: f.at, pass: true}, set)
	if err != nil {
		return round.Setting{}, err
	}
	setting.Uncapped = true
	setting.Ladder = ladderOf(s.Actions(), present, setting.Clock(), cfg.Enforce.MaxRoundGap, f.enforce)
	return setting, nil
}

// checkTrace settles which account is meant; a trace is one.
func (f *enforceFlags) checkTrace() error {
	if f.Cloud != backtest.Cloud || f.demo {
		if f.trace != "" || f.at != "" {
			return usageError("--trace and --at are for --cloud %s", backtest.Cloud)
		}
		return f.checkAudit()
	}
	if f.trace == "" {
		return usageError("--cloud %s: give the recorded usage, --trace FILE", backtest.Cloud)
	}
	return nil
}

// writeDecisions appends decisions to a file; an empty name keeps none.
func (a *app) writeDecisions(name string, decisions []backtest.Decision) error {
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(a.path(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return &failure{
			exit: ExitUsage, code: "invalid_file",
			err: fmt.Errorf("write decisions to %s: %w", name, runtime.Cause(err)),
		}
	}
	out := json.NewEncoder(file)
	for _, d := range decisions {
		if err = out.Encode(d); err != nil {
			break
		}
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write decisions to %s: %w", name, err)
	}
	return nil
}

// binding says whom the state binds: freezes, caps and grace hold for those who share
// it.
func (a *app) binding() string {
	cfg, err := a.config()
	if err != nil || cfg.DatabaseURL == "" {
		return "freezes and caps bind who shares " + cfg.DataDir + "; database_url shares them between machines"
	}
	return "freezes and caps bind all who share the database"
}
