package store_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/witness"
)

var wall = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

const watchedAccount = "aws/123456789012"

// watched is a state in one folder with a witness in another.
type watched struct {
	testing.TB
	dir, witness string
}

func newWatched(tb testing.TB) *watched {
	dir := tb.TempDir()
	return &watched{tb, filepath.Join(dir, "state"), filepath.Join(dir, "witness")}
}

// open opens the state for one process.
func (w *watched) open() *store.Store {
	w.Helper()
	s, err := store.Open(w.Context(), store.Options{
		Dir: w.dir, Host: store.Host{Now: func() time.Time { return wall }},
		Witness: &witness.Witness{Documents: witness.Dir{Path: w.witness}}})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = s.Close() })
	return s
}

// close closes a state, so that its files can be copied.
func (w *watched) close(s *store.Store) {
	w.Helper()
	if err := s.Close(); err != nil {
		w.Fatal(err)
	}
}

// copy copies the files of a state.
func (w *watched) copy(from, to string) {
	w.Helper()
	if err := os.RemoveAll(to); err != nil {
		w.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		w.Fatal(err)
	}
}

// round begins a round of the account and returns its freeze.
func (w *watched) round(s *store.Store) *action.Freeze {
	w.Helper()
	if _, _, err := s.Actions().BeginRound(w.Context(), watchedAccount, action.Clock{Wall: wall}); err != nil {
		w.Fatal(err)
	}
	frozen, err := s.Actions().Frozen(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return frozen
}

func (w *watched) keep(s *store.Store, id string) {
	w.Helper()
	ref := inventory.Ref{
		Cloud: "aws", Account: "123456789012", Region: "eu-central-1", Kind: inventory.KindInstance, ID: id,
	}
	if err := s.Actions().PutKeep(w.Context(), action.Keep{
		Ref: ref, Until: wall.Add(24 * time.Hour), Reason: "demo", By: "ana", At: wall,
	}); err != nil {
		w.Fatal(err)
	}
}

// warned adds an item in its grace period.
func (w *watched) warned(s *store.Store, id string) action.Item {
	w.Helper()
	it := action.Item{
		ID: id, Account: watchedAccount, Ref: inventory.Ref{
			Cloud: "aws", Account: "123456789012", Region: "eu-central-1", Kind: inventory.KindInstance, ID: "i-" + id,
		},
		Source: "idle", Do: policy.Do{Verb: policy.Stop}, Phase: action.Warned, FirstRound: 1,
		FirstAt: wall, WarnedRound: 1,
		WarnedAt: wall, GraceFrom: wall, Grace: time.Hour,
		Recipients: []string{"ana"}, UpdatedAt: wall,
	}
	it, err := s.Actions().Save(w.Context(), it, action.Entry{
		At: wall, Account: it.Account, Actor: "policy idle", What: action.EventWarned, Item: id,
	})
	if err != nil {
		w.Fatal(err)
	}
	return it
}

func TestRestoredStateDoesNotAct(t *testing.T) {
	w := newWatched(t)
	s := w.open()
	if f := w.round(s); f != nil {
		t.Fatalf("a new state is frozen: %s", f.Reason)
	}
	if _, err := s.Actions().SaveOwing(t.Context(), w.warned(s, "a"), []action.Notice{
		{
			ID: "a-2-owner", Account: watchedAccount, Item: "a", Recipient: "owner", Kind: "acted", CreatedAt: wall,
			DueAt: wall,
		},
	}); err != nil {
		t.Fatal(err)
	}
	w.close(s)
	w.copy(w.dir, w.dir+".backup")

	s = w.open()
	w.keep(s, "i-kept")
	if err := s.Actions().Freeze(t.Context(), action.Freeze{By: "bo", Reason: "incident", At: wall}); err != nil {
		t.Fatal(err)
	}
	w.close(s)
	w.copy(w.dir+".backup", w.dir)

	s = w.open()
	frozen := w.round(s)
	if frozen == nil || !strings.Contains(frozen.Reason, "older copy") ||
		!strings.Contains(frozen.Reason, "curfew state accept") {
		t.Fatalf("the restored state is frozen by %+v", frozen)
	}
	it, err := s.Actions().Item(t.Context(), "a")
	if err != nil || it.Phase != action.Observed || !it.GraceFrom.IsZero() {
		t.Errorf("the item is %s with a grace from %s, %v; want it at its first step", it.Phase, it.GraceFrom, err)
	}
	if n, err := s.Actions().ClaimNotice(t.Context(), watchedAccount, wall.Add(time.Hour),
		wall.Add(2*time.Hour)); n != nil || err != nil {
		t.Errorf("it would say again what was said: %+v, %v", n, err)
	}
	if err := s.Actions().Unfreeze(t.Context(), "bo", "over", wall); err != nil {
		t.Fatal(err)
	}
	if f := w.round(s); f == nil {
		t.Error("unfreezing ended the quarantine")
	}
	freeze, keeps, err := s.Accept(t.Context(), "ana", "the disk broke", wall)
	if err != nil {
		t.Fatal(err)
	}
	if freeze == nil || freeze.By != "bo" || len(keeps) != 1 || keeps[0].Ref.ID != "i-kept" {
		t.Errorf("it brought back the freeze %+v and the keeps %+v", freeze, keeps)
	}
	if f := w.round(s); f == nil || f.By != "bo" {
		t.Errorf("after the acceptance it is frozen by %+v; want the freeze of bo", f)
	}
	kept, err := s.Actions().Keeps(t.Context(), wall)
	if err != nil || len(kept) != 1 {
		t.Errorf("the keeps are %+v, %v", kept, err)
	}
	if _, err := s.VerifyAudit(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHealthyStateActs(t *testing.T) {
	w := newWatched(t)
	for i := range 5 {
		s := w.open()
		if f := w.round(s); f != nil {
			t.Fatalf("in process %d it is frozen: %s", i, f.Reason)
		}
		w.warned(s, string(rune('a'+i)))
		w.keep(s, "i-kept")
		w.close(s)
	}
}

func TestEmptiedStateDoesNotAct(t *testing.T) {
	w := newWatched(t)
	s := w.open()
	w.round(s)
	w.close(s)
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	s = w.open()
	if f := w.round(s); f == nil || !strings.Contains(f.Reason, "emptied") {
		t.Fatalf("the emptied state is frozen by %+v", f)
	}
	if _, _, err := s.Accept(t.Context(), "ana", "moved", wall); err != nil {
		t.Fatal(err)
	}
	if f := w.round(s); f != nil {
		t.Errorf("after the acceptance it is frozen: %s", f.Reason)
	}
	w.close(s)
	s = w.open()
	if f := w.round(s); f != nil {
		t.Errorf("the next process finds it frozen: %s", f.Reason)
	}
}

func TestSecondStateOfAccountDoesNotAct(t *testing.T) {
	w := newWatched(t)
	s := w.open()
	w.round(s)
	w.close(s)
	w.dir += ".other"
	s = w.open()
	if frozen, err := s.Actions().Frozen(t.Context()); err != nil || frozen != nil {
		t.Fatalf("a new path that does not enforce is frozen by %+v, %v", frozen, err)
	}
	if f := w.round(s); f == nil || !strings.Contains(f.Reason, "another state has acted") {
		t.Fatalf("another state of the account is frozen by %+v", f)
	}
	if _, _, err := s.Accept(t.Context(), "ana", "moved", wall); err != nil {
		t.Fatal(err)
	}
	if f := w.round(s); f != nil {
		t.Errorf("after the acceptance it is frozen: %s", f.Reason)
	}
	w.dir = strings.TrimSuffix(w.dir, ".other")
	if f := w.round(w.open()); f == nil {
		t.Error("the state before still acts on the account")
	}
}

func TestOlderCopyElsewhereDoesNotAct(t *testing.T) {
	w := newWatched(t)
	s := w.open()
	w.round(s)
	w.close(s)
	w.copy(w.dir, w.dir+".moved")
	s = w.open()
	w.keep(s, "i-kept")
	w.close(s)
	w.dir += ".moved"
	s = w.open()
	if f := w.round(s); f == nil || !strings.Contains(f.Reason, "older copy") {
		t.Fatalf("an older copy in another place is frozen by %+v", f)
	}
	if _, keeps, err := s.Accept(t.Context(), "ana", "moved", wall); err != nil || len(keeps) != 1 {
		t.Fatalf("it brought back the keeps %+v, %v", keeps, err)
	}
	if f := w.round(s); f != nil {
		t.Errorf("after the acceptance it is frozen by %+v", f)
	}
	w.close(s)
	w.dir = strings.TrimSuffix(w.dir, ".moved")
	if f := w.round(w.open()); f == nil {
		t.Error("the state in the place before still acts")
	}
}

// TestDetectsCopyBeforeFirstRound checks that an older copy cannot store sessions either, which are
// stored without a round of an account.
func TestDetectsCopyBeforeFirstRound(t *testing.T) {
	w := newWatched(t)
	s := w.open()
	w.round(s)
	w.close(s)
	w.copy(w.dir, w.dir+".restored")
	s = w.open()
	w.round(s)
	w.keep(s, "i-kept")
	before, err := s.Standing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.close(s)
	w.dir += ".restored"
	s = w.open()
	if err := s.Compare(t.Context(), ""); !errors.Is(err, store.ErrQuarantined) {
		t.Fatalf("it is compared with %v; want a quarantine", err)
	}
	now, err := s.Standing(t.Context())
	if err != nil || now.Known == nil || now.Known.Generation != before.Mark.Generation {
		t.Errorf("the witness knows %+v, %v; want generation %d", now.Known, err, before.Mark.Generation)
	}
}

func TestMovedStateContinues(t *testing.T) {
	w := newWatched(t)
	s := w.open()
	w.round(s)
	w.close(s)
	if err := os.Rename(w.dir, w.dir+".moved"); err != nil {
		t.Fatal(err)
	}
	w.dir += ".moved"
	if f := w.round(w.open()); f != nil {
		t.Errorf("a state that was moved is frozen: %s", f.Reason)
	}
}

func TestHistoryRevealsRestoredState(t *testing.T) {
	w := newWatched(t)
	s := w.open()
	w.round(s)
	w.close(s)
	w.copy(w.dir, w.dir+".backup")
	s = w.open()
	w.round(s)
	w.keep(s, "i-kept")
	w.close(s)
	w.copy(w.dir+".backup", w.dir)
	// A process on another host, whose witness is empty, continues with the older state.
	own := w.witness
	w.witness += ".elsewhere"
	s = w.open()
	w.round(s)
	for _, id := range []string{"a", "b", "c"} {
		w.warned(s, id)
	}
	w.close(s)
	w.witness = own
	if f := w.round(w.open()); f == nil || !strings.Contains(f.Reason, "audit log") {
		t.Errorf("it is frozen by %+v; want its history named", f)
	}
}

func TestAcceptanceHoldsForOtherHosts(t *testing.T) {
	w := newWatched(t)
	first, second := w.witness+".1", w.witness+".2"
	both := func(want bool, when string) {
		t.Helper()
		for _, w.witness = range []string{first, second} {
			s := w.open()
			if f := w.round(s); (f != nil) != want {
				t.Errorf("%s: %s finds it frozen by %+v", when, w.witness, f)
			}
			w.close(s)
		}
	}
	both(false, "at first")
	w.copy(w.dir, w.dir+".backup")
	w.witness = first
	s := w.open()
	w.round(s)
	w.keep(s, "i-kept")
	w.close(s)
	both(false, "before")
	w.copy(w.dir+".backup", w.dir)
	both(true, "restored")
	w.witness = first
	s = w.open()
	if _, _, err := s.Accept(t.Context(), "ana", "the disk broke", wall); err != nil {
		t.Fatal(err)
	}
	w.close(s)
	both(false, "accepted")
}

func TestUnusableWitnessFreezesActions(t *testing.T) {
	for name, spoil := range map[string]func(w *watched) error{
		"damaged": func(w *watched) error {
			return eachFile(w.witness, func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) })
		},
		"emptied": func(w *watched) error {
			return eachFile(w.witness, func(path string) error { return os.Truncate(path, 0) })
		},
		"writable by others": func(w *watched) error {
			return eachFile(w.witness, func(path string) error { return os.Chmod(path, 0o666) })
		},
		"in a folder of others": func(w *watched) error { return os.Chmod(w.witness, 0o777) },
		"a file in its place": func(w *watched) error {
			if err := os.RemoveAll(w.witness); err != nil {
				return err
			}
			return os.WriteFile(w.witness, nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t)
			s := w.open()
			w.round(s)
			if err := spoil(w); err != nil {
				t.Fatal(err)
			}
			if f := w.round(s); f == nil || !strings.Contains(f.Reason, "witness") {
				t.Errorf("it is frozen by %+v", f)
			}
			if _, err := s.Actions().Admit(t.Context(), action.Batch{
				Account: watchedAccount, Source: "idle", Now: wall,
			}); !errors.Is(err, action.ErrFrozen) {
				t.Errorf("a batch ends with %v", err)
			}
			if err := s.Compare(t.Context(), ""); !errors.Is(err, action.ErrFrozen) {
				t.Errorf("comparing ends with %v", err)
			}
			if err := os.RemoveAll(w.witness); err != nil {
				t.Fatal(err)
			}
			if f := w.round(s); f != nil {
				t.Errorf("once it can be used again it is frozen by %+v", f)
			}
		})
	}
}

func eachFile(dir string, do func(path string) error) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err == nil && len(paths) == 0 {
		err = io.ErrUnexpectedEOF
	}
	for _, p := range paths {
		err = errors.Join(err, do(p))
	}
	return err
}

func TestSimulationHasNoWitness(t *testing.T) {
	w := newWatched(t)
	s := w.open()
	if _, _, err := s.Actions().BeginRound(t.Context(), "sim/000000000000", action.Clock{Wall: wall}); err != nil {
		t.Fatal(err)
	}
	w.keep(s, "i-kept")
	w.close(s)
	if _, err := os.Stat(w.witness); !errors.Is(err, os.ErrNotExist) {
		files, _ := os.ReadDir(w.witness)
		for _, f := range files {
			if f.Name() != ".lock" {
				t.Errorf("it left %s", f.Name())
			}
		}
	}
}

// TestPassesContinueAfterAcceptance checks that round numbers, which are part of idempotency keys,
// are not reused.
func TestPassesContinueAfterAcceptance(t *testing.T) {
	w := newWatched(t)
	s := w.open()
	for i := range 7 {
		w.round(s)
		w.warned(s, "item-"+string(rune('a'+i)))
	}
	w.keep(s, "i-kept")
	w.close(s)
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	s = w.open()
	w.round(s)
	if _, _, err := s.Accept(t.Context(), "ana", "moved", wall); err != nil {
		t.Fatal(err)
	}
	n, _, err := s.Actions().BeginRound(t.Context(), watchedAccount, action.Clock{Wall: wall})
	if err != nil || n <= 7 {
		t.Errorf("the next round has number %d, %v; want one after 7", n, err)
	}
}

func TestAcceptRequiresOlderState(t *testing.T) {
	w := newWatched(t)
	s := w.open()
	w.round(s)
	if _, _, err := s.Accept(context.Background(), "ana", "why not", wall); !errors.Is(err, store.ErrNotOlder) {
		t.Errorf("it ends with %v", err)
	}
}
