package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/view"
)

// Accounts are the accounts that were observed.
func Accounts(ctx context.Context, req *runtime.Request) (view.Accounts, error) {
	doc := view.Accounts{Schema: view.AccountsSchema, Accounts: []view.Account{}}
	_, s, err := req.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	all, err := s.Snapshots().Accounts(ctx)
	for _, a := range all {
		doc.Accounts = append(doc.Accounts, view.Account{
			ID: a.Cloud + "/" + a.ID, Cloud: a.Cloud, Account: a.ID, Regions: append([]string{}, a.Reach.Regions...),
			SeenAt: a.At.UTC(),
		})
	}
	return doc, err
}

// History is how the state and the verdict of a resource changed, by its id, its name or its
// whole identity.
func History(ctx context.Context, req *runtime.Request, name string) (view.History, error) {
	doc := view.History{Schema: view.HistorySchema, Changes: []view.Change{}}
	cfg, s, err := req.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	ref, err := Resolve(ctx, req, cfg, name)
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
func Actions(ctx context.Context, req *runtime.Request, before string, limit int) (view.Actions, error) {
	doc := view.Actions{Schema: view.ActionsSchema, Actions: []view.Action{}}
	_, s, err := req.State(ctx)
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
func Action(ctx context.Context, req *runtime.Request, id string) (view.OneAction, error) {
	_, s, err := req.State(ctx)
	if err != nil {
		return view.OneAction{}, err
	}
	defer s.Close()
	it, err := s.Actions().Item(ctx, id)
	if errors.Is(err, action.ErrNotFound) {
		return view.OneAction{}, &runtime.Error{
			Code: "not_found", Err: fmt.Errorf("there is no action whose id begins with %q", id),
		}
	}
	return view.OneAction{Schema: view.ActionSchema, Action: view.NewAction(it)}, err
}

// Frozen reports whether all actions are frozen, since when and why.
func Frozen(ctx context.Context, req *runtime.Request) (view.Freeze, error) {
	doc := view.Freeze{Schema: view.FreezeSchema}
	_, s, err := req.State(ctx)
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
