package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// PeopleHere returns the configuration with the roles and identities in force. It does not create a
// state file.
func PeopleHere(ctx context.Context, req *runtime.Request, cfg config.Config) (config.Config, view.Decider, error) {
	if !req.Storage.Exists(cfg) {
		return cfg, view.Decider{Source: "local", Hash: cfg.SharedHash(), Advisory: true}, nil
	}
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return cfg, view.Decider{}, err
	}
	defer s.Close()
	return People(ctx, req, cfg, s)
}

// Directory returns the people in the configuration in force with their roles.
func Directory(ctx context.Context, req *runtime.Request) (view.People, error) {
	doc := view.People{Schema: view.PeopleSchema, People: []view.Person{}}
	cfg, by, err := PeopleInForce(ctx, req)
	if err != nil {
		return doc, err
	}
	doc.Settings = by
	holders := cfg.Holders()
	for name := range cfg.People {
		if holders[name] == nil {
			holders[name] = []string{}
		}
	}
	for name := range holders {
		has := cfg.People[name]
		list := func(all []string) []string { return append([]string{}, all...) }
		doc.People = append(doc.People, view.Person{
			Name: name, Roles: list(approval.Roles(holders, name)), Mail: list(has.Mail), OIDC: list(has.OIDC),
			AWS:   list(has.AWS),
			Slack: list(has.Slack), GitHub: list(has.GitHub), Linux: list(has.Linux), Tags: list(has.Tags)})
	}
	slices.SortFunc(doc.People, func(a, b view.Person) int { return strings.Compare(a.Name, b.Name) })
	return doc, nil
}

// PeopleInForce returns the configuration with the people in force.
func PeopleInForce(ctx context.Context, req *runtime.Request) (config.Config, view.Decider, error) {
	cfg, s, err := req.State(ctx)
	if err != nil {
		return cfg, view.Decider{}, err
	}
	defer s.Close()
	return People(ctx, req, cfg, s)
}

// Asker returns the caller of the gate: by a verified identity if shared settings refuse
// self-declared names.
func Asker(ctx context.Context, req *runtime.Request, cfg config.Config, by view.Decider) (approval.Person, error) {
	if by.Advisory || cfg.Approvals.Accepts(approval.SelfDeclared) {
		return req.Declared(cfg)
	}
	who, err := SignedIn(ctx, req, cfg, "curfew gate")
	if err != nil {
		return who, &runtime.Error{
			Class: runtime.Usage, Code: "no_identity",
			Err:  fmt.Errorf("the shared settings take verified identities alone: %w", err),
			Hint: "`curfew whoami` shows who you are",
		}
	}
	who.Proof.Signed = ""
	return who, nil
}

// People returns the configuration with the roles and identities in force: those of the shared
// settings if there are any, even if the local ones are weaker, which decide nothing.
func People(ctx context.Context, req *runtime.Request, cfg config.Config, s *store.Store) (config.Config, view.Decider,
	error) {
	under, by, err := req.Governed(ctx, cfg, s)
	weaker := (*runtime.Error)(nil)
	if !errors.As(err, &weaker) || weaker.Code != "weaker_settings" {
		return under, by, err
	}
	shared, set, err := req.Shared(ctx, s)
	cfg.Approvers, cfg.People, cfg.Approvals, cfg.GitHub = shared.Approvers, shared.People, shared.Approvals,
		shared.GitHub
	return cfg, view.Decider{Source: "shared", Version: set.Version, Hash: cfg.SharedHash()}, err
}

// Admin returns the caller, who must be allowed to change settings by the settings in force.
func Admin(ctx context.Context, req *runtime.Request, cfg config.Config, judge config.Shared, binding string) (
	approval.Person, error) {
	cfg.Approvers, cfg.People, cfg.Approvals, cfg.GitHub = judge.Approvers, judge.People, judge.Approvals, judge.GitHub
	who, err := req.Declared(cfg)
	if _, served := req.Caller.Served(); served && !who.Proof.Verified() { // the owner of the service: by what judges
		who.Roles = approval.Roles(cfg.Holders(), who.Name)
	}
	if !judge.Approvals.Accepts(approval.SelfDeclared) {
		who, err = SignedIn(ctx, req, cfg, "curfew settings "+binding)
	}
	if err != nil {
		return who, &runtime.Error{
			Class: runtime.Denied, Code: "not_admin",
			Err:  fmt.Errorf("who sets the settings is not verified: %w", err),
			Hint: "`curfew whoami` shows who you are",
		}
	}
	if !slices.Contains(who.Roles, config.AdminRole) {
		return who, &runtime.Error{
			Class: runtime.Denied, Code: "not_admin",
			Err: fmt.Errorf("%s (%s) has not the role %s", who.Name, who.Proof, config.AdminRole),
		}
	}
	return who, nil
}
