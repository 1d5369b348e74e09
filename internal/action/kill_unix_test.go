//go:build unix

package action_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// The environment of a process that makes rounds in a directory and is killed at the
// n-th boundary of its calls to the outside.
const (
	killDir  = "CURFEW_TEST_LADDER_DIR"
	killAt   = "CURFEW_TEST_LADDER_KILL_AT"
	killVerb = "CURFEW_TEST_LADDER_VERB"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		at, err := strconv.Atoi(os.Getenv(killAt))
		if err == nil {
			err = mortalStory(dir, policy.Verb(os.Getenv(killVerb)), at)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// mortal counts boundaries and ends its process with SIGKILL at one of them.
type mortal struct{ left int }

func (m *mortal) boundary() {
	if m.left--; m.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// between runs a call between two boundaries.
func between[T any](m *mortal, call func() (T, error)) (T, error) {
	m.boundary()
	defer m.boundary()
	return call()
}

type mortalStore struct {
	action.Store
	m *mortal
}

func (s mortalStore) BeginRound(ctx context.Context, account string, c action.Clock) (int64, *action.Clock, error) {
	s.m.boundary()
	defer s.m.boundary()
	return s.Store.BeginRound(ctx, account, c)
}

func (s mortalStore) Items(ctx context.Context, account string, q action.ItemQuery) ([]action.Item, error) {
	return between(s.m, func() ([]action.Item, error) { return s.Store.Items(ctx, account, q) })
}

func (s mortalStore) Save(ctx context.Context, it action.Item, entries ...action.Entry) (action.Item, error) {
	return between(s.m, func() (action.Item, error) { return s.Store.Save(ctx, it, entries...) })
}

func (s mortalStore) Admit(ctx context.Context, b action.Batch) ([]action.Admitted, error) {
	return between(s.m, func() ([]action.Admitted, error) { return s.Store.Admit(ctx, b) })
}

func (s mortalStore) Blow(ctx context.Context, f action.Fuse) error {
	_, err := between(s.m, func() (struct{}, error) { return struct{}{}, s.Store.Blow(ctx, f) })
	return err
}

func (s mortalStore) Fuses(ctx context.Context) ([]action.Fuse, error) {
	return between(s.m, func() ([]action.Fuse, error) { return s.Store.Fuses(ctx) })
}

func (s mortalStore) Frozen(ctx context.Context) (*action.Freeze, error) {
	return between(s.m, func() (*action.Freeze, error) { return s.Store.Frozen(ctx) })
}

func (s mortalStore) Keeps(ctx context.Context, at time.Time) ([]action.Keep, error) {
	return between(s.m, func() ([]action.Keep, error) { return s.Store.Keeps(ctx, at) })
}

type mortalCloud struct {
	action.Cloud
	m *mortal
}

func (c mortalCloud) Plan(ctx context.Context, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	return between(c.m, func() ([]action.Step, error) { return c.Cloud.Plan(ctx, r, do) })
}

func (c mortalCloud) Do(ctx context.Context, t action.Task) (string, error) {
	return between(c.m, func() (string, error) { return c.Cloud.Do(ctx, t) })
}

func (c mortalCloud) Look(ctx context.Context, t action.Task) (action.Progress, string, error) {
	c.m.boundary()
	defer c.m.boundary()
	return c.Cloud.Look(ctx, t)
}

type mortalPeople struct {
	action.Notifier
	m *mortal
}

func (p mortalPeople) Notify(ctx context.Context, to string, m action.Message) (string, error) {
	return between(p.m, func() (string, error) { return p.Notifier.Notify(ctx, to, m) })
}

// tagged are the tags that the story of tags writes.
var tagged = map[string]string{"team": "vision"}

// stories are what is done in each: the calls, the least boundaries that they have, and
// what stands in the audit log in this order.
var stories = map[policy.Verb]struct {
	do         policy.Do
	steps      []string
	boundaries int
	audit      []string
}{
	policy.Terminate: {policy.Do{Verb: policy.Terminate, SaveDisks: true}, []string{"snapshot", "terminate"}, 100,
		[]string{"observed", "warned", "intent", "confirmed", "intent", "confirmed"}},
	policy.Scale: {policy.Do{Verb: policy.Scale, To: policy.ThroughGroup}, []string{"scale"}, 60, []string{"observed", "warned", "intent", "confirmed"}},
	policy.Tag:   {policy.Do{Verb: policy.Tag, Tags: tagged}, []string{"tag"}, 40, []string{"observed", "intent", "confirmed"}},
}

// storied opens the world that is kept in a directory: two machines under one policy. Where
// they are terminated their disks are saved first, and a cap allows one an hour.
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
		w.when = func(r actiontest.Resource, _ time.Time) usage.Answer { return usage.Of(r.Tags["team"] == "") }
	}
	w.connect(w.store, w.cloud, w.people)
	return w
}

// story are the rounds' times after the beginning.
var story = []time.Duration{0, 15 * time.Minute, 16 * time.Minute, 17 * time.Minute, 18 * time.Minute, 19 * time.Minute,
	75 * time.Minute, 76 * time.Minute, 77 * time.Minute, 78 * time.Minute, 79 * time.Minute}

// mortalStory makes all rounds, unless it is killed before.
func mortalStory(dir string, verb policy.Verb, boundary int) error {
	m := &mortal{left: boundary}
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

// everyBoundary, in the environment, kills at every boundary and not at every fifth.
const everyBoundary = "CURFEW_SLOW"

// TestKilledAnywhere: a process that is killed before or after any of its calls, of
// whatever round, leaves nothing done twice and nothing forgotten.
func TestKilledAnywhere(t *testing.T) {
	for verb := range stories {
		t.Run(string(verb), func(t *testing.T) { killedAnywhere(t, verb) })
	}
}

func killedAnywhere(t *testing.T, verb policy.Verb) {
	boundaries := 0
	stride, first := 5, 1+len(verb)%5
	if os.Getenv(everyBoundary) != "" {
		stride, first = 1, 1
	}
	for n := first; ; n += stride {
		dir := memoryDir(t)
		w := storied(dir, verb, start)
		w.idle("i-1", "i-2")
		w.cloud.Change("i-1", func(r *actiontest.Resource) { r.Unsaved = true })
		if verb == policy.Scale {
			for _, id := range []string{"i-1", "i-2"} {
				w.cloud.Change(id, func(r *actiontest.Resource) { r.Group = "workers" })
			}
		}
		w.cloud.Slow(1)
		child := exec.Command(os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), killDir+"="+dir, killAt+"="+strconv.Itoa(n), killVerb+"="+string(verb))
		out, err := child.CombinedOutput()
		if err == nil {
			boundaries = n - 1
			survived(t, w, verb)
			break
		}
		status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || status.Signal() != syscall.SIGKILL {
			t.Fatalf("boundary %d: %v: %s", n, err, out)
		}
		text, err := os.ReadFile(filepath.Join(dir, "at"))
		if err != nil {
			t.Fatal(err)
		}
		died, err := time.ParseDuration(string(text))
		if err != nil {
			t.Fatal(err)
		}
		// Another process goes on a minute later, for as long as it takes.
		w = storied(dir, verb, start.Add(died))
		for i := range 60 {
			step := time.Minute
			if i >= 25 { // what the cap has deferred comes an hour later
				step = 4 * time.Minute
			}
			w.rounds(t, step, step)
			if left(w, verb) == 0 && settled(w) {
				break
			}
		}
		if survived(t, w, verb); t.Failed() {
			t.Fatalf("killed at boundary %d, %s into it", n, died)
		}
	}
	if boundaries < stories[verb].boundaries {
		t.Errorf("only %d boundaries: the story does not reach its end", boundaries)
	}
}

// memoryDir returns a directory that survives a process and need not survive the
// machine: in memory, where there is such a place.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "ladder")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// settled says whether nothing is on the ladder any more.
func settled(w *world) bool {
	items, err := w.store.Items(context.Background(), actiontest.Account, action.ItemQuery{})
	return err == nil && len(items) == 0
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
func survived(t *testing.T, w *world, verb policy.Verb) {
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
