package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/witness"
)

// flippedBitCount is the number of wrong bits in a database, flippedSeeds the number of such databases.
const flippedBitCount, flippedSeeds = 40, 200

// idleFleet is a set of idle machines of one account: some are due, some have a keep, some are in
// their grace period.
type idleFleet struct {
	dir, witness string
	clock        *actiontest.Clock
}

var fleetClasses = []string{"due", "kept", "waiting"}

const fleetOfEach = 6

func (idleFleet) machines() (out []actiontest.Resource) {
	for _, class := range fleetClasses {
		for n := range fleetOfEach {
			out = append(out, actiontest.Resource{
				ID: fmt.Sprintf("i-%s-%d", class, n), Kind: inventory.KindInstance, State: inventory.StateRunning,
				CreatedAt: noon.Add(-48 * time.Hour), Tags: map[string]string{"owner": "ana"}, Hourly: money.Cent})
		}
	}
	return out
}

func (f *idleFleet) open(ctx context.Context) (*store.Store, error) {
	return store.Open(ctx, store.Options{
		Dir: f.dir, Temporary: true, Host: store.Host{Now: func() time.Time { return f.clock.Wall }},
		Witness: &witness.Witness{Documents: witness.Dir{Path: f.witness}}})
}

// round runs a round over all machines and returns the stopped ones.
func (f *idleFleet) round(ctx context.Context, s *store.Store) ([]string, action.Report, error) {
	cloud := actiontest.NewCloud(func() time.Time { return f.clock.Wall })
	for _, m := range f.machines() {
		cloud.Put(m)
	}
	proposals := map[inventory.Ref]action.Proposal{}
	var all []action.Proposal
	for _, r := range cloud.Resources() {
		grace := 15 * time.Minute
		if strings.Contains(r.ID, "-waiting-") {
			grace = 24 * time.Hour
		}
		p := action.Proposal{
			Source: "idle", Do: policy.Do{Verb: policy.Stop, EvenIfBusy: true}, Mode: policy.Enforce,
			Notify: []string{"owner"},
			Grace:  grace, Resource: r.Inventory(),
			Governed: true, Condition: usage.True, Because: "idle", Class: "age", Hourly: inventory.Known(r.Hourly),
			Limits: policy.Limits{PerHour: 100, Share: 1, DollarsPerHour: 100 * money.USD}}
		p.Resource.Lifetime = inventory.Ephemeral
		proposals[p.Resource.Ref()], all = p, append(all, p)
	}
	l := action.Ladder{
		Store: timeless{s.Actions()}, Cloud: cloud, Notifier: actiontest.NewPeople(), Account: actiontest.Account,
		Actor: "ana", Enforce: true, Clock: f.clock.Read,
		Verify: func(_ context.Context, items []action.Item) (map[string]action.Proposal, error) {
			out := map[string]action.Proposal{}
			for _, it := range items {
				if p, ok := proposals[it.Ref]; ok {
					out[it.ID] = p
				}
			}
			return out, nil
		}}
	report, err := l.Round(ctx, action.Scope{
		Proposals: all, Sources: []string{"idle"}, Selected: map[string]int{"idle": 1000},
	})
	var stopped []string
	for _, c := range cloud.Carried("stop") {
		stopped = append(stopped, fmt.Sprint(c))
	}
	slices.Sort(stopped)
	return stopped, report, err
}

// prepare creates and opens the state of a fleet with some due machines.
func (f *idleFleet) prepare(t *testing.T, frozen bool) *store.Store {
	t.Helper()
	ctx := t.Context()
	s, err := f.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for i := range 400 { // a state of some weeks
		e := action.Entry{
			At: noon, Account: actiontest.Account, Actor: "policy idle", What: action.EventObserved,
			Resource: fmt.Sprintf("old-%d", i), Because: strings.Repeat("idle ", 20),
		}
		if err := s.Actions().Record(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := f.round(ctx, s); err != nil {
		t.Fatal(err)
	}
	for _, m := range f.machines() {
		if !strings.Contains(m.ID, "-kept-") {
			continue
		}
		k := action.Keep{
			Ref: m.Inventory().Ref(), Until: noon.Add(24 * time.Hour), Reason: "demo", By: "ana", At: noon,
		}
		if err := s.Actions().PutKeep(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	if frozen {
		if err := s.Actions().Freeze(ctx, action.Freeze{By: "ana", Reason: "incident", At: noon}); err != nil {
			t.Fatal(err)
		}
	}
	f.clock.Advance(20 * time.Minute)
	return s
}

// TestFlippedBitsCauseNoAction flips random bits of a database and of its log: no pass may act
// on a machine on which the intact state would not act.
func TestFlippedBitsCauseNoAction(t *testing.T) {
	seeds := 40
	if os.Getenv("CURFEW_SLOW") != "" {
		seeds = flippedSeeds
	}
	for _, tc := range []struct {
		name   string
		frozen bool
		bits   int
		// the files to flip; with the log it is the state after a killed process
		files []string
	}{
		{"database", false, flippedBitCount, []string{""}},
		{"database of a frozen state", true, flippedBitCount, []string{""}},
		{"database and log", false, flippedBitCount, []string{"", "-wal"}},
		{"database and log of a frozen state", true, flippedBitCount, []string{"", "-wal"}},
		{"log", false, flippedBitCount, []string{"-wal"}},
		{"log of a frozen state", true, flippedBitCount, []string{"-wal"}},
		{"two bits of a database", false, 2, []string{""}},
		{"two bits of a database of a frozen state", true, 2, []string{""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			base := &idleFleet{filepath.Join(dir, "state"), filepath.Join(dir, "witness"), actiontest.NewClock(noon)}
			s := base.prepare(t, tc.frozen)
			if !slices.Contains(tc.files, "-wal") {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			at := *base.clock
			attempt := func(seed uint64) (stopped []string, found *action.Freeze, refused error) {
				clock := at
				f := &idleFleet{filepath.Join(dir, "copy"), filepath.Join(dir, "copy.witness"), &clock}
				copied(t, base.dir, f.dir)
				copied(t, base.witness, f.witness)
				_ = os.Remove(filepath.Join(f.dir, store.FileName+"-shm")) // missing after a crash of the machine
				if seed > 0 {
					flip(t, f.dir, tc.files, tc.bits, rand.New(rand.NewPCG(seed, 40)))
				}
				s, err := f.open(t.Context())
				if err != nil {
					return nil, nil, err
				}
				defer s.Close()
				stopped, report, err := f.round(t.Context(), s)
				return stopped, report.Frozen, err
			}
			intact, _, err := attempt(0)
			if err != nil {
				t.Fatal(err)
			}
			if want := fleetOfEach; !tc.frozen && len(intact) != want || tc.frozen && len(intact) != 0 {
				t.Fatalf("the intact state acts on %v", intact)
			}
			var refused, held, same, less int
			for seed := uint64(1); seed <= uint64(seeds); seed++ {
				stopped, found, err := attempt(seed)
				for _, id := range stopped {
					if !slices.Contains(intact, id) {
						t.Errorf("seed %d: it acts on %s", seed, id)
					}
				}
				switch {
				case err != nil:
					refused++
					if !errors.Is(err, store.ErrDamaged) && !strings.Contains(err.Error(), "damaged") {
						t.Errorf("seed %d: it does not say that the state is damaged: %v", seed, err)
					}
				case found != nil && strings.Contains(found.Reason, "curfew state accept"):
					held++
				case len(stopped) == len(intact):
					same++
				default:
					less++
				}
			}
			t.Logf("%d databases with %d flipped bits: %d refused, %d held back as older, %d acted as the intact "+
				"one, %d on "+
				"less", seeds, tc.bits, refused, held, same, less)
			if refused+held == 0 {
				t.Error("no flip was noticed")
			}
		})
	}
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	// The copies get the file modes of curfew's files.
	err := filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return errors.Join(err, os.Chmod(path, 0o600))
		}
		return os.Chmod(path, 0o700)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// flip flips the same number of bits in each file of a database.
func flip(t *testing.T, dir string, files []string, bits int, r *rand.Rand) {
	t.Helper()
	for _, end := range files {
		path := filepath.Join(dir, store.FileName+end)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for range bits / len(files) {
			text[r.IntN(len(text))] ^= 1 << r.IntN(8)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
