package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/view"
)

// Accounts are the accounts that were observed.
func (rt *Runtime) Accounts(ctx context.Context) (view.Accounts, error) {
	doc := view.Accounts{Schema: view.AccountsSchema, Accounts: []view.Account{}}
	_, s, err := rt.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	all, err := s.Snapshots().Accounts(ctx)
	for _, a := range all {
		doc.Accounts = append(doc.Accounts, view.Account{ID: a.Cloud + "/" + a.ID, Cloud: a.Cloud, Account: a.ID, Regions: append([]string{}, a.Reach.Regions...), SeenAt: a.At.UTC()})
	}
	return doc, err
}

// History is how the state and the verdict of a resource changed, by its id, its name or its
// whole identity.
func (rt *Runtime) History(ctx context.Context, name string) (view.History, error) {
	doc := view.History{Schema: view.HistorySchema, Changes: []view.Change{}}
	cfg, s, err := rt.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	ref, err := rt.Resolve(ctx, cfg, name)
	if err != nil {
		return doc, err
	}
	doc.Resource = ref.String()
	all, err := s.Snapshots().Changes(ctx, ref)
	for _, c := range all {
		doc.Changes = append(doc.Changes, view.NewChange(c))
	}
	return doc, err
}

// Actions are those of every account, open and done, the newest first: at most limit, before
// the one of an id where that is given.
func (rt *Runtime) Actions(ctx context.Context, before string, limit int) (view.Actions, error) {
	doc := view.Actions{Schema: view.ActionsSchema, Actions: []view.Action{}}
	_, s, err := rt.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	items, err := s.Items(ctx, before, limit)
	for _, it := range items {
		doc.Actions = append(doc.Actions, view.NewAction(it))
	}
	return doc, err
}

// Action is the action of an id, or the only one whose id begins so.
func (rt *Runtime) Action(ctx context.Context, id string) (view.OneAction, error) {
	_, s, err := rt.State(ctx)
	if err != nil {
		return view.OneAction{}, err
	}
	defer s.Close()
	it, err := s.Actions().Item(ctx, id)
	if errors.Is(err, action.ErrNotFound) {
		return view.OneAction{}, &Error{Code: "not_found", Err: fmt.Errorf("there is no action whose id begins with %q", id)}
	}
	return view.OneAction{Schema: view.ActionSchema, Action: view.NewAction(it)}, err
}

// Frozen says whether all actions are frozen, since when and why.
func (rt *Runtime) Frozen(ctx context.Context) (view.Freeze, error) {
	doc := view.Freeze{Schema: view.FreezeSchema}
	_, s, err := rt.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	f, err := s.Actions().Frozen(ctx)
	if f != nil {
		doc.Frozen, doc.By, doc.At, doc.Reason = true, f.By, f.At.UTC(), f.Reason
	}
	return doc, err
}

// Directory are the people whom the configuration in force names, with their roles.
func (rt *Runtime) Directory(ctx context.Context) (view.People, error) {
	doc := view.People{Schema: view.PeopleSchema, People: []view.Person{}}
	cfg, by, err := rt.PeopleInForce(ctx)
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
		doc.People = append(doc.People, view.Person{Name: name, Roles: list(approval.Roles(holders, name)), Mail: list(has.Mail), OIDC: list(has.OIDC), AWS: list(has.AWS),
			Slack: list(has.Slack), GitHub: list(has.GitHub), Linux: list(has.Linux), Tags: list(has.Tags)})
	}
	slices.SortFunc(doc.People, func(a, b view.Person) int { return strings.Compare(a.Name, b.Name) })
	return doc, nil
}

// PeopleInForce is the configuration with the people that count.
func (rt *Runtime) PeopleInForce(ctx context.Context) (config.Config, view.Decider, error) {
	cfg, s, err := rt.State(ctx)
	if err != nil {
		return cfg, view.Decider{}, err
	}
	defer s.Close()
	return rt.People(ctx, cfg, s)
}
