package store_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/snapshot"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestService checks that backtests and audits of the service behave the same on both databases.
func TestService(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			t.Run("backtests", func(t *testing.T) { backtests(t, open(t, empty(t, at))) })
			t.Run("findings", func(t *testing.T) { checkFindingEntries(t, open(t, empty(t, at))) })
		})
	}
}

func entriesOf(t *testing.T, s *store.Store, what ...string) []string {
	t.Helper()
	out := []string{}
	err := s.Actions().Entries(t.Context(), action.Query{}, func(e action.Entry) error {
		for _, w := range what {
			if e.What == w {
				out = append(out, fmt.Sprintf("%s %s %s %s %s", e.What, e.Item, e.Because, e.Resource, e.Outcome))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func backtests(t *testing.T, s *store.Store) {
	ctx, b := t.Context(), s.Backtests()
	said := action.Entry{At: morning, Actor: "ana", What: action.EventBacktest}
	create := func(n int) error {
		return b.Create(ctx, store.Backtest{
			ID: fmt.Sprint("b", n), CreatedBy: "ana",
			CreatedAt: morning.Add(time.Duration(n) * time.Minute), Spec: `{"n":1}`,
		}, 4, 2, said)
	}
	for n := range 4 {
		if err := create(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := create(4); !errors.Is(err, store.ErrTooManyBacktests) {
		t.Errorf("a fifth open one: %v", err)
	}
	if err := create(0); err == nil {
		t.Error("an id was taken twice")
	}
	if open, err := b.Open(ctx); err != nil || len(open) != 4 || open[0].ID != "b0" ||
		open[0].State != store.BacktestQueued {
		t.Errorf("open: %+v, %v", open, err)
	}
	first, second := store.Lease{Fence: 1}, store.Lease{Fence: 2}
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	ended := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrBacktestEnded) {
			t.Errorf("%s: %v, want that it has ended", what, err)
		}
	}
	ok("begin", b.Begin(ctx, "b0", first, morning, ""))
	ok("advance", b.Advance(ctx, "b0", first, 40))
	// Its process died, and another one starts it under a later lease: the first can no longer
	// write.
	ok("begin again", b.Begin(ctx, "b0", second, morning.Add(time.Hour), "run again"))
	ended("begin under an earlier lease", b.Begin(ctx, "b0", first, morning, ""))
	ended("advance by the first", b.Advance(ctx, "b0", first, 90))
	ended("end by the first", b.End(ctx, "b0", first, store.BacktestDone, "", "{}", morning, said))
	ok("advance by the second", b.Advance(ctx, "b0", second, 10))
	ok("end", b.End(ctx, "b0", second, store.BacktestDone, "", `{"schema":"x"}`, morning.Add(2*time.Hour), said))
	ended("cancel what has ended", b.Cancel(ctx, "b0", "no", morning, said))
	got, err := b.Get(ctx, "b0")
	want := store.Backtest{
		ID: "b0", CreatedBy: "ana", CreatedAt: morning, Spec: `{"n":1}`,
		State: store.BacktestDone, Attempts: 2, Fence: 2,
		Progress:  100,
		StartedAt: morning.Add(time.Hour), EndedAt: morning.Add(2 * time.Hour), Result: `{"schema":"x"}`}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	ok("begin the second", b.Begin(ctx, "b1", first, morning, ""))
	ok("cancel it", b.Cancel(ctx, "b1", "canceled by ana", morning, said))
	ended("go on with what was canceled", b.Advance(ctx, "b1", first, 50))
	ended("end what was canceled", b.End(ctx, "b1", first, store.BacktestDone, "", "{}", morning, said))
	ok("begin the third", b.Begin(ctx, "b2", first, morning, ""))
	ok("give it back", b.Yield(ctx, "b2", first, "the service ended"))
	ok("begin the third again", b.Begin(ctx, "b2", second, morning, ""))
	ok("fail", b.End(ctx, "b2", second, store.BacktestFailed, "no such trace", "", morning, said))
	if got, err := b.Get(ctx, "b2"); err != nil || got.Attempts != 1 ||
		got.Note != "no such trace" || got.Result != "" ||
		got.State != store.BacktestFailed {
		t.Errorf("the failed one: %+v, %v", got, err)
	}
	if _, err := b.Get(ctx, "b9"); !errors.Is(err, store.ErrNoBacktest) {
		t.Errorf("an unknown one: %v", err)
	}
	// Two of the ended ones remain, and all open ones.
	ok("a new one", create(5))
	all, err := b.List(ctx)
	var ids []string
	for _, x := range all {
		ids = append(ids, x.ID)
		if x.Result != "" {
			t.Errorf("the list holds the result of %s", x.ID)
		}
	}
	if err != nil || fmt.Sprint(ids) != "[b5 b3 b2 b1]" {
		t.Errorf("after pruning: %v, %v", ids, err)
	}
	// Of concurrent calls under one lease, one succeeds.
	var won atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			switch err := b.Begin(ctx, "b3", first, morning, ""); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, store.ErrBacktestEnded):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d began it", won.Load())
	}
	if at, err := s.Audited(ctx, "aws"); err != nil || !at.IsZero() {
		t.Errorf("never audited: %s, %v", at, err)
	}
	for _, when := range []time.Time{morning, morning.Add(time.Hour)} {
		ok("audited", s.PutAudited(ctx, "aws", when))
		if at, err := s.Audited(ctx, "aws"); err != nil || !at.Equal(when) {
			t.Errorf("audited at %s, %v", at, err)
		}
	}
}

// checkFindingEntries checks that the audit log has exactly one entry for each new, changed and ended
// finding if the pass records them.
func checkFindingEntries(t *testing.T, s *store.Store) {
	part := snapshot.Part{Region: "us-east-1", Kind: inventory.KindInstance}
	look := func(minutes int, told bool, parts []snapshot.Part, gists map[string]string) []string {
		t.Helper()
		before := len(entriesOf(t, s, action.EventFindingNew, action.EventFindingChanged, action.EventFindingEnded))
		l := snapshot.Observation{
			Cloud: "aws", Account: "1", At: morning.Add(time.Duration(minutes) * time.Minute),
			Parts: parts, FindingsComplete: true,
			AuditFindings: told,
		}
		for _, id := range []string{"a", "b", "c"} {
			if gist, ok := gists[id]; ok {
				l.Findings = append(l.Findings, snapshot.Finding{
					ID: id, Rule: "instance-idle", Summary: gist, Body: []byte(fmt.Sprintf(`{"at":%d}`, minutes)),
					Ref: inventory.Ref{
						Cloud: "aws", Account: "1", Region: part.Region, Kind: part.Kind, ID: "i-" + id,
					}})
			}
		}
		if err := s.Snapshots().Save(t.Context(), nil, l); err != nil {
			t.Fatal(err)
		}
		return entriesOf(t, s, action.EventFindingNew, action.EventFindingChanged, action.EventFindingEnded)[before:]
	}
	const ref = " instance-idle aws/1/us-east-1/instance/i-"
	for i, tc := range []struct {
		told  bool
		parts []snapshot.Part
		gists map[string]string
		want  []string
	}{
		{false, []snapshot.Part{part}, map[string]string{"a": "$10"}, nil},
		{
			true, []snapshot.Part{part}, map[string]string{"a": "$10", "b": "$20"},
			[]string{"finding-new b" + ref + "b $20"},
		},
		{true, []snapshot.Part{part}, map[string]string{"a": "$10", "b": "$20"}, nil},
		{
			true, []snapshot.Part{part}, map[string]string{"a": "$15", "b": "$20"},
			[]string{"finding-changed a" + ref + "a $15"},
		},
		{true, nil, map[string]string{"b": "$20"}, nil}, // an incomplete listing ends nothing
		{true, []snapshot.Part{part}, map[string]string{"b": "$20"}, []string{"finding-ended a" + ref + "a $15"}},
		{
			true, []snapshot.Part{part}, map[string]string{"a": "$15", "b": "$20"},
			[]string{"finding-new a" + ref + "a $15"},
		},
	} {
		got := look(i, tc.told, tc.parts, tc.gists)
		if diff := cmp.Diff(append([]string{}, tc.want...), append([]string{}, got...)); diff != "" {
			t.Errorf("look %d (-want +got):\n%s", i, diff)
		}
	}
	// A pass during an audit does not make the audit late; a later end of an earlier audit does.
	if err := s.Snapshots().Save(t.Context(), nil, snapshot.Observation{
		Cloud: "aws", Account: "1", At: morning.Add(time.Hour), Parts: []snapshot.Part{part},
	}); err != nil {
		t.Fatal(err)
	}
	if got := look(30, true, []snapshot.Part{
		part,
	}, map[string]string{"a": "$15", "b": "$20", "c": "$5"}); len(got) != 1 {
		t.Errorf("an audit of before a pass: %q", got)
	}
	if got := look(20, true, []snapshot.Part{part}, nil); len(got) != 0 {
		t.Errorf("an audit of before another one: %q", got)
	}
	if got := look(40, true, []snapshot.Part{part}, map[string]string{"a": "$15", "b": "$20"}); len(got) != 1 {
		t.Errorf("a later audit: %q", got)
	}
	found, err := s.Snapshots().Findings(t.Context(), snapshot.Query{})
	if err != nil || len(found) != 2 || found[0].Summary != "$15" ||
		!found[0].FirstAt.Equal(morning.Add(6*time.Minute)) ||
		!found[1].FirstAt.Equal(morning.Add(time.Minute)) {
		t.Errorf("findings: %+v, %v", found, err)
	}
}
