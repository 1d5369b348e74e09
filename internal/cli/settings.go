package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/store"
)

// Kinds of settings.
const (
	settingsKind = "gate"
	pricesKind   = "prices"
)

// decider says which configuration decides.
type decider struct {
	// Source is "shared" or "local"; a local configuration is advisory, because whoever
	// asks can change it.
	Source   string `json:"source"`
	Version  int64  `json:"version,omitempty"`
	Hash     string `json:"hash"`
	Prices   int64  `json:"prices_version,omitempty"`
	Advisory bool   `json:"advisory"`
}

// String names the configuration, for records and people.
func (d decider) String() string {
	if d.Advisory {
		return "local " + d.Hash
	}
	return fmt.Sprintf("shared %d, prices %d, %s", d.Version, d.Prices, d.Hash)
}

// governed is the configuration under the shared settings of the state: theirs, or what is
// stricter here. A weaker one is refused. Prices are from then on those of the store.
func (a *app) governed(ctx context.Context, cfg config.Config, s *store.Store) (config.Config, decider, error) {
	shared, set, err := a.shared(ctx, s)
	if err != nil {
		return cfg, decider{}, err
	}
	if set.Version == 0 {
		return cfg, decider{Source: "local", Hash: cfg.SharedHash(), Advisory: true}, nil
	}
	if cfg, err = cfg.Under(shared); err != nil {
		return cfg, decider{}, &failure{exit: ExitDenied, code: "weaker_settings", err: err, hint: "`curfew settings` shows the shared ones; leave out of curfew.yaml what they set"}
	}
	prices, _, err := s.Settings().Newest(ctx, pricesKind)
	if err != nil {
		return cfg, decider{}, err
	}
	a.overlay = &prices.Body
	return cfg, decider{Source: "shared", Version: set.Version, Hash: cfg.SharedHash(), Prices: prices.Version}, nil
}

// asker is who asks the gate: by a verified identity where shared settings take no names
// that nobody proves.
func (a *app) asker(ctx context.Context, cfg config.Config, by decider) (approval.Person, error) {
	if by.Advisory || cfg.Approvals.Accepts(approval.SelfDeclared) {
		return a.declared(cfg)
	}
	who, err := a.signedIn(ctx, cfg, "curfew gate")
	if err != nil {
		return who, &failure{exit: ExitUsage, code: "no_identity", err: fmt.Errorf("the shared settings take verified identities alone: %w", err), hint: "`curfew whoami` shows who you are"}
	}
	who.Proof.Signed = ""
	return who, nil
}

func (a *app) newSettings() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "settings",
		Short: "Show or set the budgets, thresholds and approvers that bind everybody",
		Long: `Shows the shared settings of the state and all of their versions. They hold approvers,
people, approvals, github, budgets, quotas and gate, as curfew.yaml writes them, and the
price overlay. Once they are set, a local curfew.yaml may only be stricter, prices come
from the store, and approvals need a verified identity unless they say otherwise.`,
		Example: "  curfew settings\n  curfew settings set shared.yaml --reason \"budgets of 2027\"",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "table", "json"); err != nil {
				return err
			}
			return a.settings(c.Context(), output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
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
	judge, set, err := a.shared(ctx, s)
	if err != nil {
		return err
	}
	who, err := a.declared(cfg)
	if set.Version > 0 {
		who, err = a.admin(ctx, cfg, judge, "clock")
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

// shared are the shared settings of the state; version 0: there are none.
func (a *app) shared(ctx context.Context, s *store.Store) (config.Shared, store.Setting, error) {
	set, ok, err := s.Settings().Newest(ctx, settingsKind)
	if err != nil || !ok {
		return config.Shared{}, store.Setting{}, err
	}
	shared, err := config.DecodeShared(fmt.Sprintf("shared settings %d", set.Version), []byte(set.Body))
	if err != nil {
		err = fmt.Errorf("read the shared settings: %w", err)
	}
	return shared, set, err
}

// people is the configuration with the roles and identities that count: those of the shared
// settings where there are any, also where the local ones are weaker and decide nothing.
func (a *app) people(ctx context.Context, cfg config.Config, s *store.Store) (config.Config, decider, error) {
	under, by, err := a.governed(ctx, cfg, s)
	weaker := (*failure)(nil)
	if !errors.As(err, &weaker) || weaker.code != "weaker_settings" {
		return under, by, err
	}
	shared, set, err := a.shared(ctx, s)
	cfg.Approvers, cfg.People, cfg.Approvals, cfg.GitHub = shared.Approvers, shared.People, shared.Approvals, shared.GitHub
	return cfg, decider{Source: "shared", Version: set.Version, Hash: cfg.SharedHash()}, err
}

func (a *app) settings(ctx context.Context, output string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	s, err := a.open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	type view struct {
		Kind    string `json:"kind"`
		Version int64  `json:"version"`
		At      string `json:"at"`
		Who     string `json:"who"`
		Reason  string `json:"reason"`
		Hash    string `json:"hash"`
	}
	views, body := []view{}, ""
	for _, kind := range []string{settingsKind, pricesKind} {
		all, err := s.Settings().Versions(ctx, kind)
		if err != nil {
			return err
		}
		if kind == settingsKind && len(all) > 0 {
			body = all[0].Body
		}
		for _, v := range all {
			views = append(views, view{kind, v.Version, v.At.UTC().Format("2006-01-02T15:04:05Z"), v.Who, v.Reason, bodyHash(v.Body)})
		}
	}
	if output == "json" {
		return a.printJSON(map[string]any{"schema": "curfew.settings/v1", "versions": views, "body": orNull(body), "advisory": body == ""})
	}
	if body == "" {
		plain.Fprintln(a.Stdout, "no shared settings: budgets, thresholds, approvers and prices come from each local configuration and are advisory")
		return nil
	}
	for _, v := range views {
		plain.Fprintf(a.Stdout, "%s %d  %s  %s  %s  %s\n", v.Kind, v.Version, v.At, v.Hash, v.Who, v.Reason)
	}
	plain.Fprintln(a.Stdout)
	for line := range strings.Lines(body) {
		plain.Fprintf(a.Stdout, "%s\n", strings.TrimSuffix(line, "\n"))
	}
	return nil
}

func bodyHash(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:8])
}

func (a *app) setSettings(ctx context.Context, name, prices, reason string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	s, err := a.open(ctx, cfg)
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
		bodies[settingsKind] = string(src)
	}
	if prices != "" {
		if bodies[pricesKind], err = a.readOverlay(prices); err != nil {
			return err
		}
	}
	judge, held, err := a.shared(ctx, s)
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
		return usageError("%s: approvers names nobody with the role %s, so nobody could set it again", name, config.AdminRole)
	}
	who, err := a.admin(ctx, cfg, judge, bodyHash(bodies[settingsKind]+bodies[pricesKind]))
	if err != nil {
		return err
	}
	now, err := a.inTime(ctx, s)
	if err != nil {
		return err
	}
	for _, kind := range []string{settingsKind, pricesKind} {
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
			Outcome: fmt.Sprintf("%s %d, %s, by %s", kind, v.Version, bodyHash(body), who.Proof)})
		if err != nil {
			return err
		}
		plain.Fprintf(a.Stdout, "%s %d is set by %s (%s)\n", kind, v.Version, who.Name, who.Proof)
	}
	return nil
}

// admin is who may set settings, by those that judge.
func (a *app) admin(ctx context.Context, cfg config.Config, judge config.Shared, binding string) (approval.Person, error) {
	cfg.Approvers, cfg.People, cfg.Approvals, cfg.GitHub = judge.Approvers, judge.People, judge.Approvals, judge.GitHub
	who, err := a.declared(cfg)
	if !judge.Approvals.Accepts(approval.SelfDeclared) {
		who, err = a.signedIn(ctx, cfg, "curfew settings "+binding)
	}
	if err != nil {
		return who, &failure{exit: ExitDenied, code: "not_admin", err: fmt.Errorf("who sets the settings is not verified: %w", err), hint: "`curfew whoami` shows who you are"}
	}
	if !slices.Contains(who.Roles, config.AdminRole) {
		return who, &failure{exit: ExitDenied, code: "not_admin", err: fmt.Errorf("%s (%s) has not the role %s", who.Name, who.Proof, config.AdminRole)}
	}
	return who, nil
}

// readOverlay reads a price overlay of which every price passes the quarantine.
func (a *app) readOverlay(name string) (string, error) {
	f, err := os.Open(a.path(name))
	if err != nil {
		return "", &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read prices %s: %w", name, unwrapPath(err))}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, document.MaxBytes*8))
	if err != nil {
		return "", fmt.Errorf("read prices %s: %w", name, err)
	}
	_, refused, err := a.quarantined(string(text), name)
	if err == nil && len(refused) > 0 {
		err = errors.New(refused[0].Reason)
		err = fmt.Errorf("%d of its prices are refused: %s in %s: %w", len(refused), refused[0].Entry.Type, refused[0].Entry.Region, err)
	}
	if err != nil {
		return "", &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("%s: %w", name, err)}
	}
	return string(text), nil
}
