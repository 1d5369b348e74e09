package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newSettings() *cobra.Command {
	c := &cobra.Command{
		Use:   "settings",
		Short: "Show or set the budgets, thresholds and approvers that bind every user",
		Long: `Shows the shared settings of the state and all of their versions. They hold approvers,
people, approvals, github, budgets, quotas and gate, as curfew.yaml writes them, and the
price overlay. Once they are set, a local curfew.yaml may only be stricter, prices come
from the store, and approvals need a verified identity unless they say otherwise.`,
		Example: "  curfew settings\n  curfew settings set shared.yaml --reason \"budgets of 2027\"",
		Args:    noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.settings(c.Context())
		},
	}
	a.outputs(c, tableJSON...)
	var in ops.SettingsInput
	set := &cobra.Command{
		Use:   "set [FILE]",
		Short: "Set the shared settings from a file; needs the role admin",
		Long: `Sets a new version of the shared settings, of the prices, or of both. It needs the role
admin in the current version (for the first version, in the new one), by a verified
identity unless approvals.accept in that version is self-declared. All versions
are kept, and each is in the audit log.`,
		Example: "  curfew settings set shared.yaml --reason \"budgets of 2027\"\n  curfew settings set --prices " +
			"prices.csv --reason \"new list prices\"",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			in.Body.Name, in.FromFiles = strings.Join(args, ""), true
			if in.Body.Name == "" && in.Body.PricesOf == "" {
				return usageError("curfew settings set: give a file, or --prices, or both")
			}
			if strings.TrimSpace(in.Body.Reason) == "" {
				return usageError("curfew settings set: give --reason")
			}
			in.Body.Reason = action.Redact(in.Body.Reason)
			return a.setSettings(c.Context(), in)
		},
	}
	ops.SetSettings.AddFlags(set.Flags(), &in)
	a.outputs(set, tableJSON...)
	var why string
	clock := &cobra.Command{
		Use:   "clock --reason TEXT",
		Short: "Take the time of this machine for that of a state that is a file",
		Long: `The time of the state only goes forward. If a wrong clock has moved the time of a file
ahead, commands are refused until it has passed. This command sets it to the time of this
machine. It needs the role admin where there are shared settings, and is in the audit log.`,
		Example: "  curfew settings clock --reason \"the laptop began in 2031\"",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if strings.TrimSpace(why) == "" {
				return usageError("curfew settings clock: give --reason")
			}
			return a.setClock(c.Context(), action.Redact(why))
		},
	}
	a.outputs(clock, tableJSON...)
	clock.Flags().StringVar(&why, "reason", "", "why, for the audit log")
	c.AddCommand(set, clock)
	return c
}

func (a *app) setClock(ctx context.Context, reason string) error {
	doc, err := govern.SetClock(ctx, a.req, reason)
	if err != nil {
		return err
	}
	return a.say(doc, "the time of the state is %s; it was %s", plain.Time(doc.Now), plain.Time(doc.Was))
}

func (a *app) settings(ctx context.Context) error {
	doc, err := ops.GetSettings.Call(ctx, a.at, ops.None{})
	if err != nil {
		return err
	}
	if err := a.show(doc, func() report.Sheet {
		return report.SettingsSheet(doc)
	}); err != nil || a.format == "json" ||
		doc.Advisory {
		return err
	}
	plain.Fprintln(a.Stdout)
	return report.YAML(a.Stdout, a.Width, *doc.Body)
}

func (a *app) setSettings(ctx context.Context, in ops.SettingsInput) error {
	doc, err := ops.SetSettings.Call(ctx, a.at, in)
	if err != nil {
		return err
	}
	var lines []string
	for _, v := range doc.Versions {
		lines = append(lines, fmt.Sprintf("%s %d is set by %s (%s)", v.Kind, v.Version, plain.Line(doc.By),
			plain.Line(doc.Proof)))
	}
	return a.say(doc, "%s", plain.Text(strings.Join(lines, "\n")))
}
