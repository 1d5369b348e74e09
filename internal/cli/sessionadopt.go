package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

// newSession is about machines that become sessions.
func (a *app) newSession() *cobra.Command {
	c := &cobra.Command{
		Use:   "session",
		Short: "Turn machines that are kept on into sessions",
		Example: `  curfew session template --from i-0f3a > dev.yaml
  curfew session adopt i-0f3a --lease 8h`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.newSessionAdopt(), a.newSessionTemplate(), &cobra.Command{
		Use: "keep", Short: "Keep the sessions of the data directory until none is left", Hidden: true, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a.quiet = true
			return sessions.Keep(c.Context(), a.req, false)
		},
	})
	return c
}

func (a *app) newSessionAdopt() *cobra.Command {
	var o sessions.AdoptOptions
	var lease, idle string
	var dryRun bool
	c := &cobra.Command{
		Use:   "adopt MACHINE",
		Short: "Give a machine that someone started a lease and an owner, or show what would change",
		Long: `Reads one running machine of AWS and shows the tags that give it a lease and an owner, and
reasons against it. MACHINE is an id, a name, or the whole identity. That is all without
--enforce.

With --enforce it writes the tags and records a session. Policies may then stop the machine
when its lease is over or when it is idle, with a warning first. curfew never terminates it,
and starts nothing. ` + "`curfew extend`" + ` prolongs the lease, ` + "`curfew down`" + ` stops the machine, and
` + "`curfew fix --undo ITEM`" + ` gives it back.

Machines of groups, of another curfew, of production, and those marked persistent are
refused. See docs/pets-to-sessions.md.`,
		Example: `  curfew session adopt i-0f3a
  curfew session adopt i-0f3a --lease 8h --idle 1h --user ana --enforce`,
		Args: oneArg("the id, name or identity of one machine"),
		RunE: func(c *cobra.Command, args []string) error {
			if o.Enforce && dryRun && c.Flags().Changed("dry-run") {
				return usageError("--dry-run and --enforce say the opposite")
			}
			var err error
			if o.Idle, err = ops.ParseOptionalDuration("idle", idle); err != nil {
				return err
			}
			if o.Lease, err = ops.ParseOptionalDuration("lease", lease); err != nil {
				return err
			}
			return a.adopt(c.Context(), args[0], o)
		},
	}
	fl := c.Flags()
	fl.BoolVar(&dryRun, "dry-run", true, "change nothing")
	fl.BoolVar(&o.Enforce, "enforce", false, "write the tags and record the session")
	fl.StringVar(&o.Name, "name", "", "name of the session (default: that of the machine)")
	fl.StringVar(&lease, "lease", "", "how long it may still run, such as 8h (default: sessions.lease in curfew.yaml)")
	fl.StringVar(&idle, "idle", "",
		"idle period after which it is to end, such as 30m and at most 12h (default: sessions.idle in curfew.yaml)")
	fl.StringVar(&o.Owner.User, "user", "", "person who answers for it, where no tag says so")
	fl.StringVar(&o.Owner.Team, "team", "", "team that pays for it, where no tag says so")
	fl.StringVar(&o.Owner.Project, "project", "", "project that it is for, where no tag says so")
	fl.StringSliceVar(&o.Regions, "regions", nil,
		"regions to look in for an id that no scan has (default: the configured region)")
	fl.StringArrayVar(&o.AssumeRoles, "assume-role", nil, "`ARN` of the role that reaches its account; repeatable")
	fl.StringVar(&o.Profile, "profile", "", "AWS profile")
	a.outputs(c, tableJSON...)
	return c
}

// adopt adopts a machine, or previews the adoption.
func (a *app) adopt(ctx context.Context, name string, o sessions.AdoptOptions) error {
	doc, err := sessions.Adopt(ctx, a.req, name, o)
	if err != nil {
		return err
	}
	if err := a.show(doc, func() report.Sheet {
		return report.Adoption(doc, reaching(sourceFlags{Source: o.Source})+a.globals())
	}); err != nil {
		return err
	}
	switch doc.State {
	case view.AdoptRefused:
		return &failure{
			exit: ExitDenied, code: "refused", err: errors.New(doc.Resource + ": " + doc.Refusals[0].Why),
			hint: "docs/pets-to-sessions.md explains every rule",
		}
	case view.AdoptUnfinished:
		return &failure{
			exit: ExitPartial, code: "unfinished",
			err:  fmt.Errorf("session %s: its tags are not confirmed", doc.Session),
			hint: "give the same command again",
		}
	}
	return nil
}

func (a *app) newSessionTemplate() *cobra.Command {
	var o replay.TemplateOptions
	c := &cobra.Command{
		Use:   "template --from MACHINE",
		Short: "Write the session file that would start a machine again",
		Long: `Writes a session file (curfew.session/v1) of a machine of the last scan: its type, region, disk,
image and owner. With --trace it reads recorded usage: the file then has a machine type that
fits what was measured, and an idle time and a lease that fit how the machine was used.
Comments in the file say why, with the dollars. MACHINE may also be a resource that only the
trace has.`,
		Example: `  curfew session template --from i-0f3a > dev.yaml
  curfew session template --from train-a --trace examples/data/gpus.csv.gz | curfew estimate -`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.From == "" {
				return usageError("curfew session template: give --from with the id or name of a machine")
			}
			if o.Trace.Trace == "" {
				for _, name := range []string{"map", "step", "resource", "tz", "idle-below", "restart-cost", "price"} {
					if c.Flags().Changed(name) {
						return usageError("--%s is about the recorded usage: give --trace as well", name)
					}
				}
			}
			f, err := replay.SessionTemplate(c.Context(), a.req, o)
			if err != nil {
				return err
			}
			_, err = a.Stdout.Write(f.Text)
			return err
		},
	}
	fl := c.Flags()
	fl.StringVar(&o.From, "from", "", "id, name or identity of a machine of the last scan, or of the trace")
	var t backtestFlags
	t.addTrace(fl)
	c.PreRunE = func(*cobra.Command, []string) error {
		o.Trace = t.options()
		return nil
	}
	fl.StringVar(&o.Type, "type", "", "machine type, where neither scan nor trace says it")
	fl.StringVar(&o.Region, "region", "", "region, where no scan says it")
	fl.StringVar(&o.Name, "name", "", "name of the session (default: that of the machine)")
	return c
}
