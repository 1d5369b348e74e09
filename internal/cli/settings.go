package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
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
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.settings(c.Context())
		},
	}
	a.outputs(c, tableJSON...)
	var reason, prices string
	set := &cobra.Command{
		Use:   "set [FILE]",
		Short: "Set the shared settings from a file; needs the role admin",
		Long: `Sets a new version of the shared settings, of the prices, or of both. Whoever does it
has the role admin in the version that holds (in the new one, for the first), by a
verified identity unless approvals.accept in that version says self-declared. All versions
are kept, and each is in the audit log.`,
		Example: "  curfew settings set shared.yaml --reason \"budgets of 2027\"\n  curfew settings set --prices prices.csv --reason \"new list prices\"",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && prices == "" {
				return usageError("curfew settings set: give a file, or --prices, or both")
			}
			if strings.TrimSpace(reason) == "" {
				return usageError("curfew settings set: give --reason")
			}
			return a.setSettings(c.Context(), strings.Join(args, ""), prices, action.Redact(reason))
		},
	}
	set.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	set.Flags().StringVar(&prices, "prices", "", "price overlay as `file`, as `curfew price update` keeps it")
	var why string
	clock := &cobra.Command{
		Use:   "clock --reason TEXT",
		Short: "Take the time of this machine for that of a state that is a file",
		Long: `The time of the state only goes forward. Where a wrong clock has moved that of a file,
commands are refused until it has passed. This takes the time of this machine for it. It
needs the role admin where there are shared settings, and is in the audit log.`,
		Example: "  curfew settings clock --reason \"the laptop began in 2031\"",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if strings.TrimSpace(why) == "" {
				return usageError("curfew settings clock: give --reason")
			}
			return a.setClock(c.Context(), action.Redact(why))
		},
	}
	clock.Flags().StringVar(&why, "reason", "", "why, for the audit log")
	c.AddCommand(set, clock)
	return c
}

func (a *app) setClock(ctx context.Context, reason string) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	judge, set, err := a.rt.Shared(ctx, s)
	if err != nil {
		return err
	}
	who, err := a.declared(cfg)
	if set.Version > 0 {
		who, err = a.rt.Admin(ctx, cfg, judge, "clock")
	}
	if err != nil {
		return err
	}
	was, err := a.stateTime(ctx, s)
	if err != nil {
		return err
	}
	now := a.Now().UTC()
	err = s.SetClock(ctx, action.Entry{At: now, Actor: who.Name, What: "clock", Because: reason, Outcome: fmt.Sprintf("%s, was %s, by %s", now.Format(time.RFC3339), was.Format(time.RFC3339), who.Proof)})
	if err != nil {
		return err
	}
	plain.Fprintf(a.Stdout, "the time of the state is %s; it was %s\n", now.Format(time.RFC3339), was.Format(time.RFC3339))
	return nil
}

func (a *app) settings(ctx context.Context) error {
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	views, body := []view.SettingsVersion{}, ""
	for _, kind := range []string{daemon.SettingsKind, daemon.PricesKind} {
		all, err := s.Settings().Versions(ctx, kind)
		if err != nil {
			return err
		}
		if kind == daemon.SettingsKind && len(all) > 0 {
			body = all[0].Body
		}
		for _, v := range all {
			views = append(views, view.SettingsVersion{Kind: kind, Version: v.Version, At: v.At.UTC().Format("2006-01-02T15:04:05Z"), Who: v.Who, Reason: v.Reason, Hash: daemon.BodyHash(v.Body)})
		}
	}
	doc := view.Settings{Schema: view.SettingsSchema, Versions: views, Body: orNull(body), Advisory: body == ""}
	if err := a.show(doc, func() report.Sheet { return report.SettingsSheet(doc) }); err != nil || a.format == "json" || doc.Advisory {
		return err
	}
	plain.Fprintln(a.Stdout)
	for line := range strings.Lines(body) {
		plain.Fprintf(a.Stdout, "%s\n", strings.TrimSuffix(line, "\n"))
	}
	return nil
}

func (a *app) setSettings(ctx context.Context, name, prices, reason string) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	bodies := map[string]string{}
	var next config.Shared
	if name != "" {
		src, err := a.read(namedFile{name, a.path(name)}, document.MaxBytes)
		if err != nil {
			return err
		}
		if next, err = config.DecodeShared(name, src); err != nil {
			return err
		}
		bodies[daemon.SettingsKind] = string(src)
	}
	if prices != "" {
		if bodies[daemon.PricesKind], err = a.readOverlay(prices); err != nil {
			return err
		}
	}
	judge, held, err := a.rt.Shared(ctx, s)
	if err != nil {
		return err
	}
	switch {
	case held.Version > 0:
	case name == "":
		return usageError("curfew settings set --prices: set the settings first, with who is an admin")
	default:
		judge = next
	}
	if name != "" && !slices.ContainsFunc(slices.Collect(maps.Values(next.Approvers)), func(roles []string) bool { return slices.Contains(roles, config.AdminRole) }) {
		return usageError("%s: approvers gives no person the role %s, so the settings could not be changed again", name, config.AdminRole)
	}
	who, err := a.rt.Admin(ctx, cfg, judge, daemon.BodyHash(bodies[daemon.SettingsKind]+bodies[daemon.PricesKind]))
	if err != nil {
		return err
	}
	now, err := a.inTime(ctx, s)
	if err != nil {
		return err
	}
	for _, kind := range []string{daemon.SettingsKind, daemon.PricesKind} {
		body, given := bodies[kind]
		if !given {
			continue
		}
		last, _, err := s.Settings().Newest(ctx, kind)
		if err != nil {
			return err
		}
		v := store.Setting{Kind: kind, Version: last.Version + 1, At: now, Who: who.Name, Reason: reason, Body: body}
		err = s.Settings().Put(ctx, v, action.Entry{At: now, Actor: who.Name, What: "settings", Because: reason,
			Outcome: fmt.Sprintf("%s %d, %s, by %s", kind, v.Version, daemon.BodyHash(body), who.Proof)})
		if err != nil {
			return err
		}
		plain.Fprintf(a.Stdout, "%s %d is set by %s (%s)\n", kind, v.Version, who.Name, who.Proof)
	}
	return nil
}

// readOverlay reads a price overlay of which every price passes the quarantine.
func (a *app) readOverlay(name string) (string, error) {
	f, err := os.Open(a.path(name))
	if err != nil {
		return "", &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read prices %s: %w", name, daemon.Cause(err))}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, document.MaxBytes*8))
	if err != nil {
		return "", fmt.Errorf("read prices %s: %w", name, err)
	}
	_, refused, err := a.rt.Quarantined(string(text), name)
	if err == nil && len(refused) > 0 {
		err = errors.New(refused[0].Reason)
		err = fmt.Errorf("%d of its prices are refused: %s in %s: %w", len(refused), refused[0].Entry.Type, refused[0].Entry.Region, err)
	}
	if err != nil {
		return "", &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("%s: %w", name, err)}
	}
	return string(text), nil
}
