package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
)

var items = []test{
	{"every field comes back", func(t *testing.T, b *Backend) {
		it := filled[action.Item]()
		it.Version = 0
		saved := must(b.Actions.Save(t.Context(), it))(t)
		it.Version = 1
		if diff := cmp.Diff(it, saved); diff != "" {
			t.Errorf("what Save returns (-want +got):\n%s", diff)
		}
		read := must(b.Reopen(t).Actions.Item(t.Context(), it.ID))(t)
		if diff := cmp.Diff(it, read); diff != "" {
			t.Errorf("what is kept (-want +got):\n%s", diff)
		}
	}},
	{"zero stays zero", func(t *testing.T, b *Backend) {
		it := action.Item{ID: "a"}
		must(b.Actions.Save(t.Context(), it))(t)
		it.Version = 1
		if diff := cmp.Diff(it, must(b.Actions.Item(t.Context(), "a"))(t)); diff != "" {
			t.Errorf("what is kept (-want +got):\n%s", diff)
		}
	}},
	{"what Save returns is what is kept", func(t *testing.T, b *Backend) {
		rapid.Check(t, func(r *rapid.T) {
			it := anyItem(r)
			earlier, err := b.Actions.Item(t.Context(), it.ID)
			if err == nil && earlier.ID == it.ID {
				it.Version = earlier.Version
			}
			saved, err := b.Actions.Save(t.Context(), it)
			if err != nil {
				r.Fatal(err)
			}
			read, err := b.Actions.Item(t.Context(), it.ID)
			if err != nil || !reflect.DeepEqual(saved, read) {
				r.Fatalf("error %v (-saved +read):\n%s", err, cmp.Diff(saved, read))
			}
			if !saved.FirstAt.Equal(it.FirstAt.Truncate(time.Microsecond)) || saved.FirstAt.Location() != time.UTC {
				r.Fatalf("FirstAt %s is kept as %s", it.FirstAt, saved.FirstAt)
			}
		})
	}},
	{"what is not text keeps no outcome from being saved", func(t *testing.T, b *Backend) {
		it := machine("a")
		it.Alarm, it.Because, it.Steps = "\xff\x00 denied", "\x00", []action.Step{{Key: "k", Error: "bad \xfe"}}
		must(b.Actions.Save(t.Context(), it))(t)
		if got := must(b.Actions.Item(t.Context(), "a"))(t); !strings.HasSuffix(got.Alarm, " denied") ||
			!strings.HasPrefix(got.Steps[0].Error, "bad ") {
			t.Errorf("alarm %q, error of the step %q", got.Alarm, got.Steps[0].Error)
		}
	}},
	{"what would not come back byte for byte is refused", func(t *testing.T, b *Backend) {
		it := machine("a")
		it.Steps = []action.Step{{Name: "put-lifecycle", Undo: "\xff"}}
		if _, err := b.Actions.Save(t.Context(), it); err == nil {
			t.Errorf("saved as %+v", must(b.Actions.Item(t.Context(), "a"))(t).Steps)
		}
	}},
	{"what is changed afterwards is not kept", func(t *testing.T, b *Backend) {
		it := intended(machine("a"))
		it.Gang, it.Recipients, it.Do.Tags = []inventory.Ref{
			{ID: "i-b"},
		}, []string{"slack:#vision"}, map[string]string{"team": "vision"}
		spoil := func(it action.Item) {
			it.Gang[0].ID, it.Recipients[0], it.Steps[0].Key, it.Do.Tags["team"] = "x", "x", "x", "x"
		}
		saved := must(b.Actions.Save(t.Context(), it))(t)
		want := must(b.Actions.Item(t.Context(), "a"))(t)
		spoil(it)
		spoil(saved)
		spoil(must(b.Actions.Item(t.Context(), "a"))(t))
		spoil(must(b.Actions.Items(t.Context(), account, action.ItemQuery{}))(t)[0])
		if diff := cmp.Diff(want, must(b.Actions.Item(t.Context(), "a"))(t)); diff != "" {
			t.Errorf("what is kept (-before +after):\n%s", diff)
		}
	}},
	{"an item without an id is refused", func(t *testing.T, b *Backend) {
		if _, err := b.Actions.Save(t.Context(), action.Item{}); err == nil {
			t.Error("it was saved")
		}
	}},
	{"versions", versions},
	{"a save at the wrong version writes nothing", func(t *testing.T, b *Backend) {
		it := must(b.Actions.Save(t.Context(), machine("a")))(t)
		must(b.Actions.Save(t.Context(), it))(t)
		stale := it
		stale.Alarm = "stale"
		if _, err := b.Actions.Save(t.Context(), stale, entry("warned", it)); !errors.Is(err, action.ErrConflict) {
			t.Errorf("got %v, want ErrConflict", err)
		}
		if got := must(b.Actions.Item(t.Context(), "a"))(t); got.Alarm != "" || got.Version != 2 {
			t.Errorf("the item became %+v", got)
		}
		if n := len(lines(t, b, action.Query{})); n != 0 {
			t.Errorf("%d entries were recorded", n)
		}
	}},
	{"an entry that cannot be recorded saves no item", func(t *testing.T, b *Backend) {
		if _, err := b.Actions.Save(t.Context(), machine("a"), action.Entry{What: "without a time"}); err == nil {
			t.Error("an entry without a time was recorded")
		}
		if _, err := b.Actions.Item(t.Context(), "a"); !errors.Is(err, action.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	}},
	{"one open item of a resource and source", uniqueness},
	{"open ones in the order of their ids", func(t *testing.T, b *Backend) {
		phases := map[string]action.Phase{
			"b-observed": action.Observed, "B-warned": action.Warned, "a-acting": action.Acting,
			"é-confirming": action.Confirming,
			"c-done":       action.Done, "c-failed": action.Failed, "c-withdrawn": action.Withdrawn,
			"c-undone": action.Undone,
		}
		for id, phase := range phases {
			it := machine(id)
			it.Phase = phase
			must(b.Actions.Save(t.Context(), it))(t)
		}
		other := machine("other")
		other.Account = "aws/other"
		must(b.Actions.Save(t.Context(), other))(t)
		var got []string
		for _, it := range must(b.Actions.Items(t.Context(), account, action.ItemQuery{}))(t) {
			got = append(got, it.ID)
		}
		if diff := cmp.Diff([]string{"B-warned", "a-acting", "b-observed", "é-confirming"}, got); diff != "" {
			t.Errorf("open items (-want +got):\n%s", diff)
		}
	}},
	{"open ones that a query selects", selected},
	{"ids by their beginning", func(t *testing.T, b *Backend) {
		for _, id := range []string{"ab", "abc", "abd", "b", "x%z", "Q1"} {
			must(b.Actions.Save(t.Context(), machine(id)))(t)
		}
		beginnings(t, action.ErrNotFound, func(ctx context.Context, id string) (string, error) {
			it, err := b.Actions.Item(ctx, id)
			return it.ID, err
		})
	}},
	{"of many saves at once one wins", func(t *testing.T, b *Backend) {
		it := must(b.Actions.Save(t.Context(), machine("a")))(t)
		race(t, b, func(s action.Store) error {
			_, err := s.Save(t.Context(), it, entry("warned", it))
			return err
		})
		if got := must(b.Actions.Item(t.Context(), "a"))(t); got.Version != 2 ||
			len(lines(t, b, action.Query{})) != 1 {
			t.Errorf("version %d with %d entries, want 2 with 1", got.Version, len(lines(t, b, action.Query{})))
		}
	}},
	{"of many new items of a resource at once one wins", func(t *testing.T, b *Backend) {
		var n atomic.Int64
		race(t, b, func(s action.Store) error {
			it := machine("a")
			it.ID += strings.Repeat("x", int(n.Add(1)))
			_, err := s.Save(t.Context(), it)
			return err
		})
		if open := must(b.Actions.Items(t.Context(), account, action.ItemQuery{}))(t); len(open) != 1 {
			t.Errorf("%d open items of one resource", len(open))
		}
	}},
	{"a canceled save writes nothing", func(t *testing.T, b *Backend) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Actions.Save(ctx, machine("a")); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if _, err := b.Actions.Item(t.Context(), "a"); !errors.Is(err, action.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	}},
}

func versions(t *testing.T, b *Backend) {
	must(b.Actions.Save(t.Context(), machine("there")))(t)
	for _, tc := range []struct {
		name, id string
		version  int64
		want     error
	}{
		{"a new one", "new", 0, nil},
		{"a new one under an id that is taken", "there", 0, action.ErrConflict},
		{"the one that was read", "there", 1, nil},
		{"an older one", "there", 1, action.ErrConflict},
		{"a newer one", "there", 7, action.ErrConflict},
		{"one below all", "there", -1, action.ErrConflict},
		{"one that was never there", "missing", 1, action.ErrConflict},
	} {
		it := machine(tc.id)
		it.Version = tc.version
		saved, err := b.Actions.Save(t.Context(), it)
		if !errors.Is(err, tc.want) || (err == nil && saved.Version != tc.version+1) {
			t.Errorf("%s: version %d, error %v; want %d, %v", tc.name, saved.Version, err, tc.version+1, tc.want)
		}
	}
}

func uniqueness(t *testing.T, b *Backend) {
	first := must(b.Actions.Save(t.Context(), machine("a")))(t)
	for _, tc := range []struct {
		name   string
		change func(*action.Item)
		want   error
	}{
		{"second", func(*action.Item) {}, action.ErrConflict},
		{"second-in-another-phase", func(it *action.Item) { it.Phase = action.Confirming }, action.ErrConflict},
		{"closed", func(it *action.Item) { it.Phase = action.Done }, nil},
		{"other-source", func(it *action.Item) { it.Source = "other" }, nil},
		{"other-region", func(it *action.Item) { it.Ref.Region = "us-west-2" }, nil},
		{"other-kind", func(it *action.Item) { it.Ref.Kind = "volume" }, nil},
		{"other-resource", func(it *action.Item) { it.Ref.ID = "i-other" }, nil},
		{"other-account", func(it *action.Item) { it.Account, it.Ref.Account = "aws/2", "2" }, nil},
	} {
		it := machine("a")
		it.ID = tc.name
		tc.change(&it)
		if _, err := b.Actions.Save(t.Context(), it); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, err, tc.want)
		}
	}
	closed := must(b.Actions.Item(t.Context(), "closed"))(t)
	closed.Phase = action.Observed
	if _, err := b.Actions.Save(t.Context(), closed); !errors.Is(err, action.ErrConflict) {
		t.Errorf("reopened while another is open: got %v, want ErrConflict", err)
	}
	first.Phase = action.Withdrawn
	must(b.Actions.Save(t.Context(), first))(t)
	if _, err := b.Actions.Save(t.Context(), closed); err != nil {
		t.Errorf("reopened alone: %v", err)
	}
}

// selected compares queries with a loop over all items.
func selected(t *testing.T, b *Backend) {
	ids, sources := []string{"i-1", "i-2", "i-3"}, []string{"idle", "old", "finding:1"}
	phases := []action.Phase{action.Observed, action.Warned, action.Acting, action.Confirming, action.Done}
	run, found := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		account := fmt.Sprintf("aws/%d", run)
		ref := func(name string) inventory.Ref {
			return inventory.Ref{
				Cloud: "aws", Account: "1",
				Region: rapid.SampledFrom([]string{"us-east-1", "us-west-2"}).Draw(r, name+" region"),
				Kind:   inventory.KindInstance, ID: rapid.SampledFrom(ids).Draw(r, name)}
		}
		var all []action.Item
		for i := range rapid.IntRange(0, 12).Draw(r, "items") {
			it := action.Item{
				ID: fmt.Sprintf("%d-%02d", run, i), Account: account, Ref: ref("resource"),
				Source:    rapid.SampledFrom(sources).Draw(r, "source"),
				Phase:     rapid.SampledFrom(phases).Draw(r, "phase"),
				UpdatedAt: noon.Add(time.Duration(rapid.IntRange(0, 4).Draw(r, "updated")) * time.Minute)}
			saved, err := b.Actions.Save(t.Context(), it)
			if errors.Is(err, action.ErrConflict) {
				continue // a second open one
			}
			if err != nil {
				r.Fatal(err)
			}
			all = append(all, saved)
		}
		q := action.ItemQuery{UnderWay: rapid.Bool().Draw(r, "under way")}
		if rapid.Bool().Draw(r, "by resource") {
			q.Refs = []inventory.Ref{}
			for range rapid.IntRange(0, 2).Draw(r, "resources") {
				q.Refs = append(q.Refs, ref("asked for"))
			}
		}
		if rapid.Bool().Draw(r, "by source") {
			q.Sources = rapid.SliceOfNDistinct(rapid.SampledFrom(sources), 0, 2, rapid.ID).Draw(r, "sources")
		}
		if rapid.Bool().Draw(r, "unvouched") {
			q.UnconfirmedSince = noon.Add(2 * time.Minute)
		}
		var want []action.Item
		for _, it := range all {
			switch {
			case it.Phase == action.Done:
			case (q.Refs == nil || slices.Contains(q.Refs, it.Ref)) &&
				(q.Sources == nil || slices.Contains(q.Sources, it.Source)),
				q.UnderWay && (it.Phase == action.Acting || it.Phase == action.Confirming),
				it.Phase == action.Warned && it.UpdatedAt.Before(q.UnconfirmedSince):
				want = append(want, it)
			}
		}
		got, err := b.Actions.Items(t.Context(), account, q)
		if err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			r.Fatalf("items of %+v (-want +got):\n%s", q, diff)
		}
		found += len(got)
	})
	if found == 0 {
		t.Error("no query found anything: the test says nothing")
	}
}

// beginnings checks prefix look-ups among the IDs ab, abc, abd, b, x%z and Q1.
func beginnings(t *testing.T, none error, read func(ctx context.Context, id string) (string, error)) {
	for _, tc := range []struct{ name, id, want string }{
		{"whole", "abc", "abc"},
		{"whole, and the beginning of others", "ab", "ab"},
		{"beginning of one", "x", "x%z"},
		{"beginning of several", "a", ""},
		{"beginning of none", "abx", ""},
		{"longer than any", "bb", ""},
		{"empty", "", ""},
		{"another case", "q", ""},
		{"sign of a pattern", "%", ""},
		{"sign of one letter", "_", ""},
	} {
		got, err := read(t.Context(), tc.id)
		if got != tc.want || (tc.want == "" && !errors.Is(err, none)) || (tc.want != "" && err != nil) {
			t.Errorf("%s %q: got %q, %v; want %q", tc.name, tc.id, got, err, tc.want)
		}
	}
}

// race runs one operation on several connections at the same time: one succeeds, the others get
// ErrConflict.
func race(t *testing.T, b *Backend, do func(action.Store) error) {
	t.Helper()
	var won atomic.Int64
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for range 4 {
		s := b.Reopen(t).Actions
		for range 2 {
			wg.Go(func() {
				<-begin
				switch err := do(s); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, action.ErrConflict):
					t.Errorf("got %v, want ErrConflict", err)
				}
			})
		}
	}
	close(begin)
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d won, want 1", won.Load())
	}
}

// anyItem generates a closed item, so that one resource can have many.
func anyItem(r *rapid.T) action.Item {
	text := func(name string) string { return strings.ReplaceAll(rapid.String().Draw(r, name), "\x00", "") }
	moment := func(name string) time.Time {
		zone := time.FixedZone("", rapid.IntRange(-12, 14).Draw(r, name+" zone")*3600)
		return time.Unix(rapid.Int64Range(-1<<33, 1<<34).Draw(r, name),
			rapid.Int64Range(0, 999_999_999).Draw(r, name+" ns")).In(zone)
	}
	it := filled[action.Item]()
	it.ID, it.Version, it.Phase = "id-"+text("id"), 0, action.Done
	it.Because, it.Ref.ID, it.Identity = text("because"), text("resource"), text("identity")
	it.FirstAt, it.UpdatedAt = moment("first"), moment("updated")
	it.Grace = time.Duration(rapid.Int64().Draw(r, "grace"))
	it.Recipients = rapid.SliceOf(rapid.Just("slack:#vision")).Draw(r, "recipients")
	for range rapid.IntRange(0, 2).Draw(r, "steps") {
		it.Steps = append(it.Steps, action.Step{Key: text("key"), Undo: text("undo"), IntentAt: moment("intent")})
	}
	return it
}
