package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newFix() *cobra.Command {
	var f fixFlags
	var dryRun bool
	c := &cobra.Command{
		Use:   "fix FINDING…",
		Short: "Carry a finding's fix out through the safety ladder, or show what it would do",
		Long: `Looks a finding up in the last scan, by its id or any unique prefix of it, and shows
the fix: what it does, what it saves, its risk, what refuses it, how far it can
be undone, and the commands that do it by hand. That is all without --enforce.

With --enforce it reads the resource again and climbs the ladder one step: it warns the
owner, waits out the grace, verifies again, acts, confirms. It never sleeps; run the same
command again when it says. What is not explicitly ephemeral, and every deletion, needs
the approval of a second person for exactly that plan.

It reads the account of the finding with the role and profile of the scan. A finding that
does not hold is one of three: gone (the resource is not there), changed (it is, and the
waste is not), unread (it could not be read; exit code 1 when nothing could).

--undo shows what was done, what it was before, and the calls that take it back; with
--enforce it makes them.`,
		Example: `  curfew fix 9c6e
  curfew fix 9c6e --enforce
  curfew fix 9c6e --enforce --github            # in a workflow: a review of the pull request approves
  curfew fix 9c6e --enforce --demo --scratch-disks   # every step on the simulated account, in simulated time
  curfew fix --undo 4f1c2a
  curfew fix --undo 4f1c2a --enforce`,
		RunE: func(c *cobra.Command, ids []string) error {
			if err := oneOf("output", f.output, "table", "json"); err != nil {
				return err
			}
			if err := f.check(); err != nil {
				return err
			}
			switch {
			case f.github && (!f.enforce || len(f.undo) > 0):
				return usageError("--github goes with curfew fix FINDING --enforce: it asks a pull request for the approval")
			case f.enforce && dryRun && c.Flags().Changed("dry-run"):
				return usageError("--dry-run and --enforce say the opposite")
			case len(f.undo) > 0 && len(ids) > 0:
				return usageError("curfew fix --undo takes the id of what was done, not findings as well")
			case len(f.undo) > 0:
				return a.undo(c.Context(), f)
			case len(ids) == 0:
				return usageError("%s takes the id of a finding, or the beginning of one; `curfew scan` shows them", c.CommandPath())
			case f.enforce:
				return a.carryOut(c.Context(), ids, f)
			}
			return a.fix(ids, f)
		},
	}
	fl := c.Flags()
	fl.BoolVar(&dryRun, "dry-run", true, "change nothing")
	fl.BoolVar(&f.enforce, "enforce", false, "warn, and act when the grace is over")
	fl.StringVar(&f.grace, "grace", defaultGrace, "how long nothing happens after the owner was warned")
	fl.StringSliceVar(&f.undo, "undo", nil, "show how to take back what was done, by the `id` that `curfew audit` shows; with --enforce take it back; repeatable")
	fl.BoolVar(&f.scratch, "scratch-disks", false, "the machine's instance-store and delete-on-termination disks hold nothing that matters")
	fl.BoolVar(&f.save, "save-disks", false, "snapshot delete-on-termination disks before, and wait until that is complete")
	fl.BoolVar(&f.github, "github", false, "in a workflow: post the plan to the pull request, and count its reviews")
	f.add(fl)
	fl.StringVarP(&f.output, "output", "o", "table", "table or json")
	return c
}

func (a *app) fix(ids []string, f fixFlags) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	chosen, err := daemon.Choose(cfg.DataDir, ids)
	if err != nil {
		return err
	}
	kept, err := daemon.Inventories(cfg.DataDir)
	if err != nil {
		return err
	}
	docs := make([]view.Fix, 0, len(chosen))
	for _, s := range chosen {
		d := view.NewFix(s.Finding, s.Scanned, daemon.ByHand(s.Finding))
		d.Refusals = foreseen(s.Finding, kept, cfg, f, a.Now().UTC())
		docs = append(docs, d)
	}
	if f.output == "json" {
		return a.printJSON(view.NewFixPreview(docs))
	}
	for i, d := range docs {
		if i > 0 {
			plain.Fprintln(a.Stdout)
		}
		flags := f.repeated()
		if d.Finding.Resource.Cloud == sim.CloudName {
			flags = " --demo" + flags
		}
		if err := a.draw(report.FixSheet(d, a.Now(), flags+a.globals())); err != nil {
			return err
		}
	}
	return nil
}
