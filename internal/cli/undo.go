package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// reach makes the flags those of the scan that found something: its profile, and the
// roles of the findings' accounts. Flags that are given count first.
func (a *app) reach(cfg config.Config, f *sourceFlags, chosen []daemon.Kept) error {
	var refs []inventory.Ref
	for _, s := range chosen {
		refs = append(refs, daemon.RefOf(s.Resource))
	}
	docs, err := daemon.KeptScans(cfg.DataDir)
	if err != nil {
		return err
	}
	f.reach(cfg, docs, refs)
	return nil
}

// missing says of every request whose finding does not hold any more why that is. One that
// was carried out before is confirmed.
func missing(ctx context.Context, out *round.Result, store action.Store) ([]view.Line, error) {
	var lines []view.Line
	for _, q := range out.Gone {
		source := round.FindingSource(q.Finding)
		why, text := out.Missing(q)
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

// carriedOut returns the newest item of a source that the provider has confirmed; nil
// where there is none.
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

// undo takes back what the ladder did; without --enforce it shows what that would be.
func (a *app) undo(ctx context.Context, f fixFlags) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if cfg, _, err = a.governed(ctx, cfg, s); err != nil {
		return err
	}
	book, err := a.prices(cfg)
	if err != nil {
		return err
	}
	var items []action.Item
	var refs []inventory.Ref
	for _, id := range f.undo {
		it, err := s.Actions().Item(ctx, id)
		if err != nil {
			return &failure{exit: ExitError, code: "not_found", err: fmt.Errorf("undo %s: %w", id, err), hint: "`curfew audit` shows the ids"}
		}
		items, refs = append(items, it), append(refs, it.Ref)
		if !slices.Contains(f.regions, it.Ref.Region) && it.Ref.Region != "" {
			f.regions = append(f.regions, it.Ref.Region)
		}
	}
	docs, err := daemon.KeptScans(cfg.DataDir)
	if unkept := (*daemon.Error)(nil); err != nil && (!errors.As(err, &unkept) || unkept.Code != "no_scan") {
		return err
	}
	f.reach(cfg, docs, refs)
	observer, err := a.rt.Lister(ctx, f.source(), cfg, book, a.Now().UTC())
	if err != nil {
		return err
	}
	cloud, ok := observer.(*daemon.AWS)
	if !ok {
		return usageError("--cloud %s: only what was done to a real account is undone", f.cloud)
	}
	ladders, err := a.rt.Ladders(cfg, s, cloud.Actions(), f.enforce)
	if err != nil {
		return err
	}
	who, err := a.rt.Person(cfg)
	if err != nil {
		return err
	}
	var lines []view.UndoLine
	var failed error
	for _, it := range items {
		line, err := ladders(it.Account).Undo(ctx, it.ID, who)
		if line.Item == "" {
			return daemon.StateError(err)
		}
		lines = append(lines, view.NewUndoLine(line, it))
		switch {
		case err != nil:
			failed = cmp.Or(failed, undoFailure(err))
		case line.Result == action.ResultRefused:
			failed = cmp.Or(failed, error(&failure{exit: ExitDenied, code: "not_undone", err: fmt.Errorf("undo %s: %s", it.ID, line.Why)}))
		}
	}
	doc := view.NewUndo(lines, !f.enforce)
	if err := a.show(doc, func() report.Sheet {
		return report.UndoSheet(doc, "curfew fix --undo "+strings.Join(f.undo, ",")+" --enforce"+reaching(f.sourceFlags)+a.globals())
	}); err != nil {
		return err
	}
	return failed
}

// undoFailure says what to do where the provider could not be asked.
func undoFailure(err error) error {
	f := daemon.CloudError(err).(*daemon.Error) //nolint:errorlint // it always is one
	if errors.Is(err, inventory.ErrUnauthenticated) {
		f.Hint = "give the --assume-role and --profile that reach its account"
	}
	return f
}
