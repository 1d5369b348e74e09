package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newConfirm() *cobra.Command {
	var reason, duration, account string
	c := &cobra.Command{
		Use:   "confirm POLICY --reason TEXT",
		Short: "Say that what has blown a policy's fuse is meant",
		Long: `A fuse guards against a bad policy: once more than five machines, and over half of
those that a policy selects, are due at once, nothing of the policy is carried out until a
person confirms. The confirmation means the machines that were due then; they are carried
out within the caps. --for says that the fuse is not to blow again for a time, for a
policy that ends most of what it selects by design, such as one for nights.
Without POLICY the fuses that have blown are listed.`,
		Example: `  curfew confirm
  curfew confirm idle-gpu-machines --reason "the fleet of the course that ended"
  curfew confirm off-hours --for 30d --reason "it stops the development fleet every evening"`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError("curfew confirm takes one policy, got %d", len(args))
			}
			if len(args) == 0 {
				return a.fuses(c.Context())
			}
			return a.confirm(c.Context(), args[0], account, duration, reason)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why so much is meant, for those who look later")
	c.Flags().StringVar(&duration, "for", "", "how long the fuse is not to blow again: `30d`, or an RFC 3339 time")
	c.Flags().StringVar(&account, "account", "", "only in this `account`, such as aws/123456789012 (default: all where it has blown)")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) confirm(ctx context.Context, policy, account, duration, reason string) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	who, err := a.rt.Person(cfg)
	if err != nil {
		return err
	}
	var end time.Time
	if duration != "" {
		now, err := a.inTime(ctx, s)
		if err != nil {
			return err
		}
		if end, err = until(now, duration); err != nil {
			return usageError("--for: %w", err)
		}
	}
	if strings.TrimSpace(reason) == "" {
		return usageError("curfew confirm %s: give --reason, so that others know why so much is meant", policy)
	}
	l := action.Ladder{Store: s.Actions(), Account: account, Actor: who, Clock: a.rt.Clock}
	confirmed, err := l.Confirm(ctx, policy, reason, end)
	switch {
	case errors.Is(err, action.ErrNoFuse):
		return &failure{exit: ExitError, code: "not_found", err: err, hint: "`curfew confirm` lists the fuses that have blown"}
	case err != nil:
		return err
	case a.format == "json":
		return a.printJSON(view.NewFuses(confirmed))
	}
	for _, f := range confirmed {
		plain.Fprintf(a.Stdout, "%s: confirmed, %d of %d machines; `curfew enforce` goes on within the caps\n", f.Name(), f.Due, f.Selected)
	}
	return nil
}

// fuses lists those that have blown and are not confirmed.
func (a *app) fuses(ctx context.Context) error {
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	all, err := s.Actions().Fuses(ctx)
	if err != nil {
		return fmt.Errorf("list the fuses: %w", err)
	}
	all = slices.DeleteFunc(all, func(f action.Fuse) bool { return !f.Stands() })
	doc := view.NewFuses(all)
	return a.show(doc, func() report.Sheet { return report.FusesSheet(doc, a.Now(), a.globals()) })
}
