//go:build unix

package action_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/intent/intenttest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// mortalStories are those of every verb.
var mortalStories = func() (out []intenttest.Story) {
	for _, verb := range slices.Sorted(maps.Keys(stories)) {
		out = append(out, intenttest.Story{Name: string(verb), Boundaries: stories[verb].boundaries,
			Prepare: func(_ testing.TB, dir string) { prepare(dir, verb) },
			Tell:    func(dir string, m *intenttest.Mortal) error { return mortalStory(dir, verb, m) },
			End:     func(t testing.TB, dir string, killed bool) { goOn(t, dir, verb, killed) }})
	}
	return out
}()

func TestMain(m *testing.M) { os.Exit(intenttest.Main(m, mortalStories...)) }

// TestResumesAfterKill checks that a process that is killed before or after any of its calls, of
// whatever round, leaves nothing done twice and nothing forgotten.
func TestResumesAfterKill(t *testing.T) {
	for _, s := range mortalStories {
		t.Run(s.Name, s.KilledAnywhere)
	}
}

type mortalStore struct {
	action.Store
	m *intenttest.Mortal
}

func (s mortalStore) BeginRound(ctx context.Context, account string, c action.Clock) (int64, *action.Clock, error) {
	s.m.Boundary()
	defer s.m.Boundary()
	return s.Store.BeginRound(ctx, account, c)
}

func (s mortalStore) Items(ctx context.Context, account string, q action.ItemQuery) ([]action.Item, error) {
	return intenttest.Between(s.m, func() ([]action.Item, error) { return s.Store.Items(ctx, account, q) })
}

func (s mortalStore) Save(ctx context.Context, it action.Item, entries ...action.Entry) (action.Item, error) {
	return intenttest.Between(s.m, func() (action.Item, error) { return s.Store.Save(ctx, it, entries...) })
}

func (s mortalStore) Admit(ctx context.Context, b action.Batch) ([]action.AdmissionResult, error) {
	return intenttest.Between(s.m, func() ([]action.AdmissionResult, error) { return s.Store.Admit(ctx, b) })
}

func (s mortalStore) SaveOwing(ctx context.Context, it action.Item, owed []action.Notice, entries ...action.Entry) (
	action.Item, error) {
	return intenttest.Between(s.m, func() (action.Item, error) { return s.Store.SaveOwing(ctx, it, owed, entries...) })
}

func (s mortalStore) ClaimNotice(ctx context.Context, account string, now, until time.Time) (*action.Notice, error) {
	return intenttest.Between(s.m, func() (*action.Notice, error) {
		return s.Store.ClaimNotice(ctx, account, now, until)
	})
}

func (s mortalStore) PutNotice(ctx context.Context, n action.Notice, entries ...action.Entry) error {
	_, err := intenttest.Between(s.m, func() (struct{}, error) {
		return struct{}{}, s.Store.PutNotice(ctx, n, entries...)
	})
	return err
}

func (s mortalStore) Blow(ctx context.Context, f action.Fuse, owed ...action.Notice) error {
	_, err := intenttest.Between(s.m, func() (struct{}, error) { return struct{}{}, s.Store.Blow(ctx, f, owed...) })
	return err
}

func (s mortalStore) Fuses(ctx context.Context) ([]action.Fuse, error) {
	return intenttest.Between(s.m, func() ([]action.Fuse, error) { return s.Store.Fuses(ctx) })
}

func (s mortalStore) Frozen(ctx context.Context) (*action.Freeze, error) {
	return intenttest.Between(s.m, func() (*action.Freeze, error) { return s.Store.Frozen(ctx) })
}

func (s mortalStore) Keeps(ctx context.Context, at time.Time) ([]action.Keep, error) {
	return intenttest.Between(s.m, func() ([]action.Keep, error) { return s.Store.Keeps(ctx, at) })
}

type mortalCloud struct {
	action.Cloud
	m *intenttest.Mortal
}

func (c mortalCloud) Plan(ctx context.Context, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	return intenttest.Between(c.m, func() ([]action.Step, error) { return c.Cloud.Plan(ctx, r, do) })
}

func (c mortalCloud) Do(ctx context.Context, t action.Task) (string, error) {
	return intenttest.Between(c.m, func() (string, error) { return c.Cloud.Do(ctx, t) })
}

func (c mortalCloud) Look(ctx context.Context, t action.Task) (action.Progress, string, error) {
	c.m.Boundary()
	defer c.m.Boundary()
	return c.Cloud.Look(ctx, t)
}

type mortalPeople struct {
	action.Notifier
	m *intenttest.Mortal
}

func (p mortalPeople) Notify(ctx context.Context, to string, m action.Message) (string, error) {
	return intenttest.Between(p.m, func() (string, error) { return p.Notifier.Notify(ctx, to, m) })
}

// tagged are the tags that the story of tags writes.
var tagged = map[string]string{"team": "vision"}

// stories lists, for each verb, the calls, the least number of boundaries, and the entries of the
// audit log in order.
var stories = map[policy.Verb]struct {
	do         policy.Do
	steps      []string
	boundaries int
	audit      []string
}{
	policy.Terminate: {policy.Do{Verb: policy.Terminate, SaveDisks: true}, []string{"snapshot", "terminate"}, 100,
		[]string{"observed", "warned", "intent", "confirmed", "intent", "confirmed"}},
	policy.Scale: {
		policy.Do{Verb: policy.Scale, To: policy.ThroughGroup}, []string{"scale"}, 60,
		[]string{"observed", "warned", "intent", "confirmed"},
	},
	policy.Tag: {
		policy.Do{Verb: policy.Tag, Tags: tagged}, []string{"tag"}, 40, []string{"observed", "intent", "confirmed"},
	},
}

// storied opens the world stored in a directory: two machines under one policy. When they are
// terminated, their disks are saved first, and a cap allows one per hour.
func storied(dir string, verb policy.Verb, at time.Time) *world {
	w := newWorld()
	w.clock = actiontest.NewClock(at)
	w.clock.Uptime += at.Sub(start)
	w.store = actiontest.OpenStore(filepath.Join(dir, "store.json"))
	w.cloud = actiontest.OpenCloud(filepath.Join(dir, "cloud.json"), w.now)
	w.people = actiontest.OpenPeople(filepath.Join(dir, "people.json"))
	w.wants.Do, w.wants.Limits.DollarsPerHour = stories[verb].do, 5*money.USD
	w.when = nil
	if verb == policy.Tag {
		w.wants.Class = "finding"
		w.when = func(r actiontest.Resource, _ time.Time) usage.Tristate {
			return usage.FromBool(r.Tags["team"] == "")
		}
	}
	w.connect(w.store, w.cloud, w.people)
	return w
}

// story are the rounds' times after the beginning.
var story = []time.Duration{
	0, 15 * time.Minute, 16 * time.Minute, 17 * time.Minute, 18 * time.Minute, 19 * time.Minute,
	75 * time.Minute, 76 * time.Minute, 77 * time.Minute, 78 * time.Minute, 79 * time.Minute}

// mortalStory makes all rounds, unless it is killed before.
func mortalStory(dir string, verb policy.Verb, m *intenttest.Mortal) error {
	for _, after := range story {
		w := storied(dir, verb, start.Add(after))
		w.connect(mortalStore{w.store, m}, mortalCloud{w.cloud, m}, mortalPeople{w.people, m})
		w.sample()
		if err := os.WriteFile(filepath.Join(dir, "at"), []byte(after.String()), 0o600); err != nil {
			return err
		}
		if _, err := w.tryRound(); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the two machines of a story.
func prepare(dir string, verb policy.Verb) {
	w := storied(dir, verb, start)
	w.idle("i-1", "i-2")
	w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Unsaved = true })
	if verb == policy.Scale {
		for _, id := range []string{"i-1", "i-2"} {
			w.cloud.Change(id, func(r *actiontest.Resource) { r.Group = "workers" })
		}
	}
	w.cloud.Slow(1)
}

// goOn lets another process go on a minute after the one that was killed, for as long as it
// takes, and checks the end of the story.
func goOn(t testing.TB, dir string, verb policy.Verb, killed bool) {
	text, err := os.ReadFile(filepath.Join(dir, "at"))
	if err != nil {
		t.Fatal(err)
	}
	died, err := time.ParseDuration(string(text))
	if err != nil {
		t.Fatal(err)
	}
	w := storied(dir, verb, start.Add(died))
	for i := range 60 {
		if !killed {
			break
		}
		step := time.Minute
		if i >= 25 { // what the cap has deferred comes an hour later
			step = 4 * time.Minute
		}
		w.rounds(t, step, step)
		if left(w, verb) == 0 && settled(w) && told(w) {
			break
		}
	}
	if survived(t, w, verb, killed); t.Failed() {
		t.Fatalf("it died %s into the story", died)
	}
}

// settled reports whether nothing is on the ladder any more.
func settled(w *world) bool {
	items, err := w.store.Items(context.Background(), actiontest.Account, action.ItemQuery{})
	return err == nil && len(items) == 0
}

// told reports whether no notice is owed any more.
func told(w *world) bool {
	owed, err := w.store.Owed(context.Background())
	return err == nil && len(owed) == 0
}

// left counts the machines to which nothing was done.
func left(w *world, verb policy.Verb) int {
	n := 0
	for _, r := range w.cloud.Resources() {
		if verb != policy.Tag || r.Tags["team"] != tagged["team"] {
			n++
		}
	}
	return n
}

// survived checks the end of the story: both machines saved and gone, or tagged, each call
// with one effect, all of it in the audit log in its order.
func survived(t testing.TB, w *world, verb policy.Verb, killed bool) {
	t.Helper()
	if n := left(w, verb); n != 0 {
		t.Errorf("%d are forgotten: %+v", n, w.cloud.Resources())
	}
	carried := map[string]int{}
	for _, c := range w.cloud.Calls() {
		if c.Carried {
			carried[c.Step+" "+c.Resource]++
		}
	}
	for _, id := range []string{"i-1", "i-2"} {
		for _, step := range stories[verb].steps {
			if n := carried[step+" "+id]; n != 1 {
				t.Errorf("%s of %s took effect %d times", step, id, n)
			}
		}
		at := 0
		audit := w.entries(id)
		for _, next := range stories[verb].audit {
			for at < len(audit) && audit[at].What != next {
				at++
			}
			at++
		}
		if at > len(audit) {
			t.Errorf("audit of %s is not complete: %s", id, w.audit(id))
		}
	}
	told := map[string]int{}
	for _, m := range w.people.Told() {
		if m.Kind == "acted" {
			told[m.Resource]++
		}
	}
	for _, id := range []string{"i-1", "i-2"} {
		switch n := told[id]; {
		case verb == policy.Tag && n != 0:
			t.Errorf("the owner of %s was told of a tag", id)
		case verb != policy.Tag && (n < 1 || n > 2 || n == 2 && !killed):
			t.Errorf("the owner of %s was told %d times of what was done", id, n)
		}
	}
	if owed, err := w.store.Owed(context.Background()); err != nil || len(owed) != 0 {
		t.Errorf("still owed: %+v, %v", owed, err)
	}
	for _, it := range w.store.All() {
		if it.Phase != action.Done {
			t.Errorf("%s ends as %s", it.Ref.ID, it.Phase)
		}
	}
	for _, c := range w.cloud.Calls() {
		meant := false
		for _, e := range w.entries(c.Resource) {
			meant = meant || e.What == "intent" && strings.Contains(e.Outcome, c.Key) && !e.At.After(c.At)
		}
		if !meant {
			t.Errorf("%s of %s has no intent before it", c.Step, c.Resource)
		}
	}
	warned := map[string]bool{}
	for _, m := range w.people.Told() {
		warned[m.Resource] = warned[m.Resource] || m.Kind == "warning"
	}
	if verb != policy.Tag && (!warned["i-1"] || !warned["i-2"]) {
		t.Errorf("warned of %v", warned)
	}
}
