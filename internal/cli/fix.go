package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newFix() *cobra.Command {
	var f fixFlags
	var dryRun bool
	c := &cobra.Command{
		Use:   "fix FINDING…",
		Args:  cobra.ArbitraryArgs,
		Short: "Carry out the fix of a finding through the safety ladder, or preview it",
		Long: `Looks a finding up in the last scan, by its id or any unique prefix of it, and shows
the fix: what it does, what it saves, its risk, what refuses it, how far it can
be undone, and the commands that do it by hand. That is all without --enforce.

With --enforce it reads the resource again and takes the next step of the safety ladder:
warn the owner, wait for the grace period, verify again, act, confirm. It never sleeps; run
the same command again at the time it prints. Resources that are not marked ephemeral, and
all deletions, need the approval of a second person for exactly that plan.

It reads the account of the finding with the role and profile of the scan. A finding that
does not hold is one of three: gone (the resource is not there), changed (it is, and the
waste is not), unread (it could not be read; exit code 1 when nothing could).

--undo shows the action, the earlier state, and the calls that restore it; with
--enforce it makes them, and keeps the resource from every policy for 24 hours, or as
long as --keep says.`,
		Example: `  curfew fix 9c6e
  curfew fix 9c6e --enforce
  curfew fix 9c6e --enforce --github            # in a workflow: a review of the pull request approves
  curfew fix 9c6e --enforce --demo --scratch-disks   # every step on the simulated account, in simulated time
  curfew fix --undo 4f1c2a
  curfew fix --undo 4f1c2a --enforce`,
		RunE: func(c *cobra.Command, ids []string) error {
			if err := f.check(); err != nil {
				return err
			}
			switch {
			case f.github && (!f.enforce || len(f.undo) > 0):
				return usageError(
					"--github goes with curfew fix FINDING --enforce: it asks a pull request for the approval")
			case f.enforce && dryRun && c.Flags().Changed("dry-run"):
				return usageError("--dry-run and --enforce say the opposite")
			case f.keep != "" && len(f.undo) == 0:
				return usageError(
					"--keep needs --undo: it sets how long policies leave the resource alone")
			case len(f.undo) > 0 && len(ids) > 0:
				return usageError("curfew fix --undo takes the id of an action, and no findings")
			case len(f.undo) > 0:
				return a.undo(c.Context(), f)
			case len(ids) == 0:
				return usageError("%s takes the id of a finding, or the beginning of one; `curfew scan` shows them",
					c.CommandPath())
			case f.enforce:
				return a.carryOut(c.Context(), ids, f)
			}
			return a.fix(c.Context(), ids, f)
		},
	}
	fl := c.Flags()
	fl.BoolVar(&dryRun, "dry-run", true, "change nothing")
	fl.BoolVar(&f.enforce, "enforce", false, "warn, and act when the grace is over")
	fl.StringVar(&f.grace, "grace", defaultGrace, "how long nothing happens after the owner was warned")
	fl.StringVar(&f.keep, "keep", "",
		"with --undo: how long policies leave it alone afterwards, 0 not at all (default 24h)")
	fl.StringSliceVar(&f.undo, "undo", nil, "show how to undo an action, by the `id` that `curfew audit` "+
		"shows; with --enforce take it back; repeatable")
	fl.BoolVar(&f.scratch, "scratch-disks", false,
		"the machine's instance-store and delete-on-termination disks hold nothing that matters")
	fl.BoolVar(&f.save, "save-disks", false,
		"snapshot delete-on-termination disks before, and wait until that is complete")
	fl.BoolVar(&f.github, "github", false, "in a workflow: post the plan to the pull request, and count its reviews")
	f.add(fl)
	a.outputs(c, tableJSON...)
	return c
}

// carryOut takes findings one step up the ladder.
func (a *app) carryOut(ctx context.Context, ids []string, f fixFlags) error {
	if grace, err := config.ParseDuration(f.grace); err != nil || grace <= 0 {
		return usageError("--grace %q: it is a duration such as 15m; nothing is done without one", f.grace)
	}
	in := ops.FixFindingsInput{FixOptions: f.options()}
	in.Body.IDs, in.Body.Grace, in.Body.Scratch, in.Body.Save = ids, f.grace, f.scratch, f.save
	return showPartial(ctx, a, ops.FixFindings, in, func(doc view.Fixes) error {
		if len(doc.Passes) > 0 {
			return a.show(doc, func() report.Sheet { return report.FixDemoSheet(doc) })
		}
		again := "curfew fix " + strings.Join(ids, " ") + " --enforce" + f.repeated() + a.globals()
		return a.show(doc, func() report.Sheet { return report.FixesSheet(doc, a.Now(), again, a.globals()) })
	})
}

// undo shows how actions are taken back, or takes them back.
func (a *app) undo(ctx context.Context, f fixFlags) error {
	in := ops.UndoActionsInput{FixOptions: f.options()}
	in.Body.IDs, in.Body.Enforce, in.Body.Keep = f.undo, f.enforce, f.keep
	kept := ""
	if f.keep != "" {
		kept = " --keep " + plain.Shell(f.keep)
	}
	again := "curfew fix --undo " + strings.Join(f.undo, ",") + " --enforce" + kept + reaching(f.sourceFlags) +
		a.globals()
	return showPartial(ctx, a, ops.UndoActions, in, func(doc view.Undo) error {
		return a.show(doc, func() report.Sheet { return report.UndoSheet(doc, again) })
	})
}

// showPartial shows the document of an operation, also where the operation ended in an error.
func showPartial[I, D any](ctx context.Context, a *app, op *ops.Operation[I, D], in I, show func(D) error) error {
	r, err := op.Reply(ctx, a.at, in)
	if err != nil && !r.Partial {
		return err
	}
	if shown := show(r.Doc); shown != nil {
		return shown
	}
	return err
}

func (a *app) fix(ctx context.Context, ids []string, f fixFlags) error {
	var docs []view.Fix
	for _, id := range ids {
		doc, err := ops.PreviewFix.Call(ctx, a.at, ops.PreviewFixInput{
			ByID: ops.ByID{ID: id}, Scratch: f.scratch, Save: f.save, FixOptions: f.options(),
		})
		if err != nil {
			return err
		}
		docs = append(docs, doc.Fixes...)
	}
	if a.format == "json" {
		return a.printJSON(view.NewFixPreview(docs))
	}
	for i, d := range docs {
		if i > 0 {
			plain.Fprintln(a.Stdout)
		}
		enforce := "--enforce"
		if clouds.Of(d.Finding.Resource.Cloud).Simulated {
			enforce += " --demo"
		}
		if err := a.draw(report.FixSheet(d, a.Now(), enforce, f.repeated()+a.globals())); err != nil {
			return err
		}
	}
	return nil
}

// fixFlags are the flags of fix.
type fixFlags struct {
	sourceFlags
	enforce, scratch, save, github bool
	grace                          string
	keep                           string
	undo                           []string
}

// options returns the options that the flags set.
func (f fixFlags) options() ops.FixOptions { return ops.FixOptions{Source: f.Source, GitHub: f.github} }

// repeated are the flags of a fix, to follow a suggested command.
func (f fixFlags) repeated() string {
	out := reaching(f.sourceFlags)
	for flag, on := range map[string]bool{
		" --github": f.github, " --save-disks": f.save, " --scratch-disks": f.scratch,
	} {
		if on {
			out += flag
		}
	}
	if f.grace != defaultGrace {
		out += " --grace " + plain.Shell(f.grace)
	}
	return out
}

// defaultGrace is how long an owner has after a warning.
const defaultGrace = "15m"
