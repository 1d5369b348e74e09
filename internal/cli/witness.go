package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newState() *cobra.Command {
	c := &cobra.Command{
		Use:   "state",
		Short: "Show how far the state is, and what its witness knows",
		Long: `Shows the generation of the state, which rises with every change that actions depend on,
and the newest one that its witness has seen. Where the state is older than its witness,
because a copy was restored or it was emptied, no action is taken until an operator
accepts it.`,
		Example: "  curfew state\n  curfew state accept --reason \"restored from the backup of Monday\"",
		Args:    noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := ops.GetState.Call(c.Context(), a.at, ops.None{})
			if err != nil {
				return err
			}
			return a.say(doc, "%s", plain.Text(stateText(doc)))
		},
	}
	a.outputs(c, tableJSON...)
	var in ops.ReasonInput
	accept := &cobra.Command{
		Use:   "accept --reason TEXT",
		Short: "Let a state act that is older than its witness; needs the role operator",
		Long: `Ends the quarantine of a state that was restored, replaced or emptied. The state takes over
the freeze and the exemptions from its witness, and restarts every action at the first step
of the safety ladder. Approvals given since the copy are lost and requested again. The
acceptance is in the audit log.`,
		Example: "  curfew state accept --reason \"restored from the backup of Monday\"",
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return a.acceptState(c.Context(), in) },
	}
	ops.AcceptState.AddFlags(accept.Flags(), &in)
	a.outputs(accept, tableJSON...)
	c.AddCommand(accept, a.newStateBackup())
	return c
}

func (a *app) newStateBackup() *cobra.Command {
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the file of the state while a service uses it",
		Long: `Writes a consistent copy of the state to a new file that only its user can read. A service
may keep running. Every page is checked, so that a damaged state gives no backup. No file is
replaced, and an interrupted backup leaves no file of that name. To
restore it, put it in the place of curfew.db in an empty data directory. A state in
PostgreSQL is backed up with pg_dump.`,
		Example: "  curfew state backup monday.db",
		Args:    oneArg("the name of the new file"),
		RunE: func(c *cobra.Command, args []string) error {
			doc, err := act.BackupState(c.Context(), a.req, args[0])
			if err != nil {
				return err
			}
			return a.say(doc, "The state up to %s is in %s (%s).", plain.Time(doc.At), plain.Line(doc.File),
				plain.Size(doc.Bytes))
		},
	}
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) acceptState(ctx context.Context, in ops.ReasonInput) error {
	doc, err := ops.AcceptState.Call(ctx, a.at, in)
	if err != nil {
		return err
	}
	lines := []string{
		fmt.Sprintf("Accepted: the state continues with generation %d, every action at its first step.", doc.Generation),
	}
	if lost := lostText(doc); lost != "" {
		lines = append(lines, lost)
	}
	if r := doc.Restored; r != nil {
		if r.Freeze != nil {
			lines = append(lines,
				fmt.Sprintf("The freeze by %s holds again (%s): `curfew unfreeze --reason TEXT` lifts it.",
					r.Freeze.By, r.Freeze.Reason))
		}
		for _, k := range r.Keeps {
			lines = append(lines, fmt.Sprintf("%s is exempt again until %s (%s).", k.Resource,
				plain.Time(k.Until), k.Reason))
		}
	}
	return a.say(doc, "%s", plain.Text(strings.Join(lines, "\n")))
}

// stateText describes the heights of a state and its witness.
func stateText(d view.State) string {
	var lines []string
	if q := d.Quarantine; q != nil {
		lines = append(lines, "Quarantined since "+plain.Time(q.At)+": "+q.Reason+".")
		if lost := lostText(d); lost != "" {
			lines = append(lines, lost)
		}
		lines = append(lines, "Nothing acts until `curfew state accept --reason TEXT`.")
	}
	text := fmt.Sprintf("Generation %d, %s of the audit log", d.Generation, plain.Count(d.AuditEntries, "entry"))
	if !d.NewestAt.IsZero() {
		text += ", the newest of " + plain.Time(d.NewestAt)
	}
	lines = append(lines, text+".")
	switch w := d.Witness; {
	case w == nil:
	case w.Problem != "":
		lines = append(lines, "The witness cannot be used, so that nothing acts: "+w.Problem+".")
	case w.Generation == nil:
		lines = append(lines, "Nothing has acted by this state, so that the witness in "+w.Place+" does not know it.")
	default:
		lines = append(lines, fmt.Sprintf("The witness in %s has seen generation %d on %s.", w.Place, *w.Generation,
			plain.Time(w.SeenAt)))
	}
	return strings.Join(lines, "\n")
}

// lostText describes the changes that a state does not know; empty if they are unknown.
func lostText(d view.State) string {
	switch l := d.Lost; {
	case l == nil:
		return ""
	case l.From.IsZero():
		return fmt.Sprintf("Lost: %s up to %s.", plain.Count(l.Changes, "change"), plain.Time(l.To))
	default:
		return fmt.Sprintf("Lost: %s from %s to %s.", plain.Count(l.Changes, "change"),
			plain.Time(l.From), plain.Time(l.To))
	}
}
