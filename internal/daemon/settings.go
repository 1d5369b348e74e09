package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// Kinds of settings.
const (
	SettingsKind = "gate"
	PricesKind   = "prices"
)

// Governed is the configuration under the shared settings of the state: theirs, or what is
// stricter here. A weaker one is refused. Prices are from then on those of the store.
func (rt *Runtime) Governed(ctx context.Context, cfg config.Config, s *store.Store) (config.Config, view.Decider, error) {
	shared, set, err := rt.Shared(ctx, s)
	if err != nil {
		return cfg, view.Decider{}, err
	}
	if set.Version == 0 {
		return cfg, view.Decider{Source: "local", Hash: cfg.SharedHash(), Advisory: true}, nil
	}
	if cfg, err = cfg.Under(shared); err != nil {
		return cfg, view.Decider{}, &Error{Class: Denied, Code: "weaker_settings", Err: err, Hint: "`curfew settings` shows the shared ones; leave out of curfew.yaml what they set"}
	}
	prices, _, err := s.Settings().Newest(ctx, PricesKind)
	if err != nil {
		return cfg, view.Decider{}, err
	}
	rt.overlay = &prices.Body
	return cfg, view.Decider{Source: "shared", Version: set.Version, Hash: cfg.SharedHash(), Prices: prices.Version}, nil
}

// Asker is who asks the gate: by a verified identity where shared settings take no names
// that are self-declared.
func (rt *Runtime) Asker(ctx context.Context, cfg config.Config, by view.Decider) (approval.Person, error) {
	if by.Advisory || cfg.Approvals.Accepts(approval.SelfDeclared) {
		return rt.Declared(cfg)
	}
	who, err := rt.SignedIn(ctx, cfg, "curfew gate")
	if err != nil {
		return who, &Error{Class: Usage, Code: "no_identity", Err: fmt.Errorf("the shared settings take verified identities alone: %w", err), Hint: "`curfew whoami` shows who you are"}
	}
	who.Proof.Signed = ""
	return who, nil
}

// Shared are the shared settings of the state; version 0: there are none.
func (rt *Runtime) Shared(ctx context.Context, s *store.Store) (config.Shared, store.Setting, error) {
	set, ok, err := s.Settings().Newest(ctx, SettingsKind)
	if err != nil || !ok {
		return config.Shared{}, store.Setting{}, err
	}
	shared, err := config.DecodeShared(fmt.Sprintf("shared settings %d", set.Version), []byte(set.Body))
	if err != nil {
		err = fmt.Errorf("read the shared settings: %w", err)
	}
	return shared, set, err
}

// People is the configuration with the roles and identities that count: those of the shared
// settings where there are any, also where the local ones are weaker and decide nothing.
func (rt *Runtime) People(ctx context.Context, cfg config.Config, s *store.Store) (config.Config, view.Decider, error) {
	under, by, err := rt.Governed(ctx, cfg, s)
	weaker := (*Error)(nil)
	if !errors.As(err, &weaker) || weaker.Code != "weaker_settings" {
		return under, by, err
	}
	shared, set, err := rt.Shared(ctx, s)
	cfg.Approvers, cfg.People, cfg.Approvals, cfg.GitHub = shared.Approvers, shared.People, shared.Approvals, shared.GitHub
	return cfg, view.Decider{Source: "shared", Version: set.Version, Hash: cfg.SharedHash()}, err
}

// BodyHash is a short hash of shared settings, by which decisions name them.
func BodyHash(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:8])
}

// Admin is who may set settings, by those that judge.
func (rt *Runtime) Admin(ctx context.Context, cfg config.Config, judge config.Shared, binding string) (approval.Person, error) {
	cfg.Approvers, cfg.People, cfg.Approvals, cfg.GitHub = judge.Approvers, judge.People, judge.Approvals, judge.GitHub
	who, err := rt.Declared(cfg)
	if !judge.Approvals.Accepts(approval.SelfDeclared) {
		who, err = rt.SignedIn(ctx, cfg, "curfew settings "+binding)
	}
	if err != nil {
		return who, &Error{Class: Denied, Code: "not_admin", Err: fmt.Errorf("who sets the settings is not verified: %w", err), Hint: "`curfew whoami` shows who you are"}
	}
	if !slices.Contains(who.Roles, config.AdminRole) {
		return who, &Error{Class: Denied, Code: "not_admin", Err: fmt.Errorf("%s (%s) has not the role %s", who.Name, who.Proof, config.AdminRole)}
	}
	return who, nil
}
