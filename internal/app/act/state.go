package act

import (
	"context"
	"errors"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// State returns the generations of the state and of its witness.
func State(ctx context.Context, req *runtime.Request) (view.State, error) {
	_, s, err := req.State(ctx)
	if err != nil {
		return view.State{}, err
	}
	defer s.Close()
	return standing(ctx, s)
}

func standing(ctx context.Context, s *store.Store) (view.State, error) {
	now, err := s.Standing(ctx)
	if err != nil {
		return view.State{}, err
	}
	doc := view.NewState(now.Mark, now.NewestAt)
	if q := now.Quarantine; q != nil {
		doc.Quarantine = &view.Quarantine{
			At: q.At.UTC(), Reason: q.Why, Generation: q.Generation, NewestAt: q.NewestAt.UTC(),
		}
	}
	if now.Witness != "" {
		doc.Seen(now.Witness, now.Known, now.Problem)
	}
	return doc, nil
}

// AcceptState lets an older state act again, from the first step of every item. It returns what is
// lost and what the witness restored.
func AcceptState(ctx context.Context, req *runtime.Request, reason string) (view.State, error) {
	cfg, err := req.Config()
	if err != nil {
		return view.State{}, err
	}
	if err := CheckReason(reason); err != nil {
		return view.State{}, err
	}
	who, err := req.Person(cfg)
	if err != nil {
		return view.State{}, err
	}
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return view.State{}, err
	}
	defer s.Close()
	if err := s.Compare(ctx, ""); err != nil && !errors.Is(err, store.ErrQuarantined) {
		return view.State{}, runtime.StateError(err)
	}
	before, err := standing(ctx, s)
	if err != nil {
		return view.State{}, err
	}
	now, err := req.StateTime(ctx, s)
	if err != nil {
		return view.State{}, err
	}
	freeze, keeps, err := s.Accept(ctx, who, action.Redact(reason), now)
	if errors.Is(err, store.ErrNotOlder) {
		return view.State{}, &runtime.Error{
			Class: runtime.Usage, Code: "not_older", Err: err, Hint: "`curfew state` shows how far both are",
		}
	}
	if err != nil {
		return view.State{}, err
	}
	doc, err := standing(ctx, s)
	doc.Lost, doc.Restored = before.Lost, &view.Restored{Freeze: freeze, Keeps: view.NewKeeps(keeps).Keeps}
	return doc, err
}
