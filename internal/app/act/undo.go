package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// missing returns the reason for every request whose finding no longer holds. A fix that was
// already carried out is confirmed.
func missing(ctx context.Context, out *round.Result, store action.Store) ([]view.Line, error) {
	var lines []view.Line
	for _, q := range out.GoneRequests {
		source := round.FindingSource(q.Finding)
		why, text := out.MissingReason(q)
		l := view.Line{Resource: q.Resource.String(), Policy: source, Result: string(why), Why: text}
		done, err := carriedOut(ctx, store, q.Resource, source)
		if err != nil {
			return nil, err
		}
		if done != nil && why != round.Unread {
			l.Result, l.Item, l.Verb = string(action.ResultConfirmed), done.ID, string(done.Do.Verb)
			l.Why = "it was carried out before; " + text
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// carriedOut returns the newest item of a source that the provider has confirmed, or nil.
func carriedOut(ctx context.Context, store action.Store, ref inventory.Ref, source string) (*action.Item, error) {
	var last string
	err := store.Entries(ctx, action.Query{What: "confirmed", Resource: ref.String()}, func(e action.Entry) error {
		if e.Resource == ref.String() {
			last = e.Item
		}
		return nil
	})
	if err != nil || last == "" {
		return nil, err
	}
	it, err := store.Item(ctx, last)
	if err != nil || it.Source != source || it.Phase != action.Done {
		return nil, err
	}
	return &it, nil
}

// DefaultUndoKeep is how long policies leave a resource alone after an action on it was undone.
const DefaultUndoKeep = 24 * time.Hour

// Undo reverts what the ladder did, by the ids of the items; without enforce it only rehearses
// that. Policies leave the resources alone for the time keep. show receives what was done, even if
// an item failed.
func Undo(ctx context.Context, req *runtime.Request, ids []string, f clouds.Source, keep time.Duration, enforce bool,
	show func(view.Undo) error) error {
	cfg, _, s, err := req.InForce(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	book, err := req.PriceBook(cfg)
	if err != nil {
		return err
	}
	var items []action.Item
	var refs []inventory.Ref
	for _, id := range ids {
		it, err := s.Actions().Item(ctx, id)
		if err != nil {
			return &runtime.Error{
				Code: "not_found", Err: fmt.Errorf("undo %s: %w", id, err), Hint: "`curfew audit` shows the ids",
			}
		}
		items, refs = append(items, it), append(refs, it.Ref)
		if !slices.Contains(f.Regions, it.Ref.Region) && it.Ref.Region != "" {
			f.Regions = append(f.Regions, it.Ref.Region)
		}
	}
	if longest := cmp.Or(cfg.Enforce.KeepMax, action.DefaultKeepMax); keep > longest {
		return runtime.Invalid("--keep %s: at most %s is allowed at a time (enforce.keep_max)", keep, longest)
	}
	var acts action.Cloud
	if req.Simulated != nil {
		acts = req.Simulated.Actions
	} else {
		if err := audit.RestoreAccess(ctx, cfg, s, &f, refs); err != nil {
			return err
		}
		observer, err := clouds.Lister(ctx, req, f, cfg, book, req.Now().UTC())
		if err != nil {
			return err
		}
		cloud, ok := observer.(*clouds.AWS)
		if !ok {
			return runtime.Invalid(
				"--cloud %s: only what was done to a real account, or at a service that simulates one, is undone",
				f.Cloud)
		}
		acts = sessions.AWSActions(req, cfg, s, cloud)
	}
	ladders, err := clouds.Ladders(req, cfg, s, acts, enforce)
	if err != nil {
		return err
	}
	for _, it := range items {
		if !enforce {
			break
		}
		// An older state may not know that it was undone or repeated.
		if err := s.Compare(ctx, it.Account); err != nil {
			return runtime.StateError(err)
		}
	}
	who, err := req.Person(cfg)
	if err != nil {
		return err
	}
	var lines []view.UndoLine
	var failed error
	bar := req.Progress(f.Cloud)
	defer bar.Finish()
	for i, it := range items {
		bar.Report(round.Progress{What: "undo " + it.Ref.ID, Done: i, Total: len(items)})
		l := ladders(it.Account)
		l.UndoKeep = keep
		line, err := l.Undo(ctx, it.ID, who)
		if line.Item == "" {
			return runtime.StateError(err)
		}
		lines = append(lines, view.NewUndoLine(line, it))
		switch {
		case err != nil:
			failed = cmp.Or(failed, undoFailure(err))
		case line.Result == action.ResultRefused:
			failed = cmp.Or(failed,
				error(&runtime.Error{
					Class: runtime.Denied, Code: "not_undone", Err: fmt.Errorf("undo %s: %s", it.ID, line.Why),
				}))
		}
	}
	doc := view.NewUndo(lines, !enforce)
	if err := show(doc); err != nil {
		return err
	}
	return failed
}

// undoFailure adds the next step to an error of the provider.
func undoFailure(err error) error {
	f := clouds.CloudError(err).(*runtime.Error) //nolint:errorlint // it always is one
	if errors.Is(err, inventory.ErrUnauthenticated) {
		f.Hint = "give the --assume-role and --profile that reach its account"
	}
	return f
}
