package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// LaunchFault is the fault of the next launch.
type LaunchFault string

// The faults.
const (
	// NoCapacity, OverQuota and NotOffered are the provider's refusals.
	NoCapacity LaunchFault = "no capacity"
	OverQuota  LaunchFault = "over a quota"
	NotOffered LaunchFault = "not offered"
	// Lost is an answer that never arrives, of a launch that was carried out.
	Lost LaunchFault = "answer lost"
	// Broken is a call that fails before anything was done.
	Broken LaunchFault = "call failed"
	// Late lets machines not show for a while.
	Late LaunchFault = "shown late"
)

// LauncherCase is a provider of machines under test.
type LauncherCase struct {
	Launcher session.Launcher
	// Again returns another client of the same provider, as another process has one.
	Again func(tb testing.TB) session.Launcher
	// Spec asks for one machine that can be launched; Impossible for what no pool ever has,
	// nil where there is no such thing.
	Spec, Impossible *spec.Spec
	// Nodes is the most machines that the suite may launch in one call; at least 1. There
	// has to be room for two such launches at once.
	Nodes int
	// Host is the configuration of the machines, without names and numbers.
	Host session.HostConfig
	// Pass lets the provider go on with what is under way, and time with it.
	Pass func(tb testing.TB)
	// Inject lets something go wrong with the next launch of any client. It returns false
	// where that cannot happen at this provider.
	Inject func(tb testing.TB, f LaunchFault) bool
	// Left returns everything that exists of a session at the provider, by the provider's
	// own means: machines, volumes, interfaces, folders, with their tags (nil: it keeps
	// none). What is gone, or going by itself, is not among it.
	Left func(tb testing.TB, session string) map[string]map[string]string
}

// TestLauncher holds a launcher against what sessions rely on, each in a test of its own
// with a case of its own; the cases may be of the same account.
func TestLauncher(t *testing.T, newCase func(tb testing.TB) LauncherCase) {
	t.Helper()
	for _, p := range launcherChecks {
		t.Run(p.name, func(t *testing.T) {
			l := &launches{LauncherCase: newCase(t), t: t, ctx: t.Context(), names: t.Name()}
			p.check(l)
		})
	}
}

var launcherChecks = []struct {
	name  string
	check func(l *launches)
}{
	{"pools are named, the best first, and nothing is made", (*launches).pools},
	{"what no pool has is not offered", (*launches).impossible},
	{"a launch starts all machines", (*launches).whole},
	{"everything is tagged when it is made", (*launches).tagged},
	{"the same token is the same machines", (*launches).sameToken},
	{"the same token at once, from several processes, is the same machines", (*launches).atOnce},
	{"the same token for another launch is refused", (*launches).mismatch},
	{"another token is other machines", (*launches).otherToken},
	{"no capacity", func(l *launches) { l.refused(NoCapacity, session.ErrCapacity) }},
	{"over a quota", func(l *launches) { l.refused(OverQuota, session.ErrQuota) }},
	{"not offered", func(l *launches) { l.refused(NotOffered, session.ErrUnsupported) }},
	{"an answer lost after success is found by the token", (*launches).lost},
	{"a call that failed is repeated", (*launches).broken},
	{"machines that show late are found by the token", (*launches).late},
	{"one machine takes the place of a lost node", (*launches).replaced},
	{"what is found is of one installation and session", (*launches).found},
	{"an end is for the session's own machines", (*launches).foreign},
	{"some machines of a session end", (*launches).some},
	{"an end is repeatable", (*launches).ended},
	{"a token does not launch again after the end", (*launches).endedToken},
	{"leftovers wait for the machines", (*launches).tooEarly},
	{"after the end nothing is left", (*launches).nothingLeft},
}

// launches is a case under test.
type launches struct {
	LauncherCase
	t     *testing.T
	ctx   context.Context
	names string
	ids   int
}

// installation is the id of the installation that these tests launch for.
func (l *launches) installation() string { return "inst-" + l.unique() }

// unique is a part of names that no other test has.
func (l *launches) unique() string {
	var h uint32 = 2166136261
	for _, b := range []byte(l.names) {
		h = (h ^ uint32(b)) * 16777619
	}
	return fmt.Sprintf("%08x", h)
}

// launch is one that was not asked for before.
func (l *launches) launch(nodes int) session.Launch {
	l.t.Helper()
	pools, err := l.Launcher.Pools(l.ctx, l.Spec)
	if err != nil || len(pools) == 0 {
		l.t.Fatalf("pools: %v, %v", pools, err)
	}
	l.ids++
	id := fmt.Sprintf("s-%s-%d", l.unique(), l.ids)
	want := *l.Spec
	want.Resources.Nodes = nodes
	at := time.Now().Add(4 * time.Hour).UTC().Truncate(time.Second)
	host := l.Host
	host.Schema, host.Session, host.Name, host.Nodes, host.Epoch, host.LeaseUntil = session.HostSchema, id, "demo",
		nodes,
		1,
		at
	out := session.Launch{Token: "t-" + id, Spec: &want, Pool: pools[0], Nodes: nodes, Host: host,
		Session: session.Session{
			ID: id, Name: "demo", RequestedBy: "ana", Owner: inventory.Owner{User: "ana"}, Epoch: 1,
			State:      session.Launching,
			LeaseUntil: at, Spec: want.Canonical(), Hash: want.Hash(),
		}}
	out.Tags = map[string]string{
		"owner": "ana", inventory.TagLease: at.Format(time.RFC3339), inventory.TagSession: id,
		inventory.TagHold:    "hold-1",
		inventory.TagManaged: "true", inventory.TagIntent: out.Token, inventory.TagInstallation: l.installation(),
		inventory.TagLifetime: string(inventory.Ephemeral)}
	l.t.Cleanup(func() { l.sweep(id) })
	return out
}

// sweep ends whatever a test left of a session.
func (l *launches) sweep(id string) {
	ctx := context.WithoutCancel(l.ctx)
	if found, err := l.Launcher.Find(ctx, l.installation(), id); err == nil && len(found) > 0 {
		var ids []string
		for _, f := range found {
			ids = append(ids, f.ID)
		}
		_ = l.Launcher.End(ctx, id, ids)
	}
}

// start launches, which has to succeed.
func (l *launches) start(launch session.Launch) []session.Machine {
	l.t.Helper()
	machines, err := l.Launcher.Launch(l.ctx, launch)
	if err != nil {
		l.t.Fatalf("launch: %v", err)
	}
	return machines
}

// patient is how long a test waits for what has to come, on a machine with much else to do.
const patient = 2 * time.Minute

// eventually waits for what the provider takes its time for.
func (l *launches) eventually(what string, done func() bool) {
	l.t.Helper()
	for end := time.Now().Add(patient); ; {
		if done() {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("after %s it does not hold that %s", patient, what)
		}
		l.Pass(l.t)
	}
}

// shown returns the machines of a session that are not on their way out.
func (l *launches) shown(c session.Launcher, id string) []session.FoundMachine {
	l.t.Helper()
	found, err := c.Find(l.ctx, l.installation(), id)
	if err != nil {
		l.t.Fatalf("find: %v", err)
	}
	return slices.DeleteFunc(found, func(f session.FoundMachine) bool { return f.State == inventory.StateDeleting })
}

// shows waits until a session has so many machines.
func (l *launches) shows(id string, n int) []session.FoundMachine {
	l.t.Helper()
	var found []session.FoundMachine
	l.eventually(fmt.Sprintf("%s shows %d machines", id, n), func() bool {
		found = l.shown(l.Launcher, id)
		return len(found) == n
	})
	return found
}

// stays lets the provider go on and checks that a session keeps so many machines.
func (l *launches) stays(id string, n int) {
	l.t.Helper()
	l.shows(id, n)
	for range 3 {
		l.Pass(l.t)
		if found := l.shown(l.Launcher, id); len(found) != n {
			l.t.Fatalf("%s has %d machines, want %d: %+v", id, len(found), n, found)
		}
	}
}

func ids(machines []session.Machine) []string {
	out := make([]string, len(machines))
	for i, m := range machines {
		out[i] = m.ID
	}
	slices.Sort(out)
	return out
}

func foundIDs(found []session.FoundMachine) []string {
	out := make([]string, len(found))
	for i, f := range found {
		out[i] = f.ID
	}
	slices.Sort(out)
	return out
}

// same checks that two answers name the same machines.
func (l *launches) same(what string, got, want []string) {
	l.t.Helper()
	if !slices.Equal(got, want) {
		l.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// nodes are how many machines the launches of several have, and one for launches of one.
func (l *launches) nodes() int { return max(l.Nodes, 1) }

func (l *launches) pools() {
	first, err := l.Launcher.Pools(l.ctx, l.Spec)
	if err != nil || len(first) == 0 {
		l.t.Fatalf("pools: %v, %v", first, err)
	}
	again, err := l.Again(l.t).Pools(l.ctx, l.Spec)
	if err != nil {
		l.t.Fatal(err)
	}
	name := func(p session.Pool) string { return fmt.Sprint(p.Type, p.Region, p.Zone, p.Spot) }
	for i, p := range first {
		if i >= len(again) || name(p) != name(again[i]) {
			l.t.Errorf("pool %d is %+v, and then %+v", i, p, again)
		}
		if slices.ContainsFunc(first[:i], func(o session.Pool) bool { return name(o) == name(p) }) {
			l.t.Errorf("pool %+v is there twice", p)
		}
	}
	if found := l.shown(l.Launcher, ""); len(found) > 0 {
		l.t.Errorf("to ask for pools made %+v", found)
	}
}

func (l *launches) impossible() {
	if l.Impossible == nil {
		l.t.Skip("this provider has no specification that it never offers")
	}
	if pools, err := l.Launcher.Pools(l.ctx, l.Impossible); !errors.Is(err, session.ErrUnsupported) {
		l.t.Errorf("pools %v, %v; want ErrUnsupported", pools, err)
	}
}

func (l *launches) whole() {
	for _, n := range slices.Compact([]int{1, l.nodes()}) {
		launch := l.launch(n)
		machines := l.start(launch)
		if len(machines) != n {
			l.t.Fatalf("%d machines, want %d", len(machines), n)
		}
		for i, m := range machines {
			if m.ID == "" || m.Node != i || m.Pool.Type != launch.Pool.Type || m.Pool.Zone != launch.Pool.Zone ||
				m.Pool.Spot != launch.Pool.Spot || m.LaunchedAt.IsZero() {
				l.t.Errorf("machine %d is %+v", i, m)
			}
			if m.State != inventory.StatePending && m.State != inventory.StateRunning {
				l.t.Errorf("machine %d is %q", i, m.State)
			}
		}
		if len(slices.Compact(ids(machines))) != n {
			l.t.Errorf("machines share ids: %v", ids(machines))
		}
		found := l.shows(launch.Session.ID, n)
		l.same("found", foundIDs(found), ids(machines))
		for _, f := range found {
			i := slices.IndexFunc(machines, func(m session.Machine) bool { return m.ID == f.ID })
			if f.Session != launch.Session.ID || f.Token != launch.Token ||
				!f.LeaseUntil.Equal(launch.Session.LeaseUntil) {
				l.t.Errorf("found session %q, token %q, lease %s; launched %q, %q, %s",
					f.Session, f.Token, f.LeaseUntil,
					launch.Session.ID, launch.Token, launch.Session.LeaseUntil)
			}
			if f.Node != machines[i].Node || f.Pool.Type != launch.Pool.Type || f.Pool.Zone != launch.Pool.Zone ||
				f.Pool.Spot != launch.Pool.Spot {
				l.t.Errorf("found %+v, launched %+v", f.Machine, machines[i])
			}
		}
		l.eventually("its machines run", func() bool {
			return !slices.ContainsFunc(l.shown(l.Launcher, launch.Session.ID), func(f session.FoundMachine) bool {
				return f.State != inventory.StateRunning
			})
		})
	}
}

func (l *launches) tagged() {
	launch := l.launch(l.nodes())
	l.start(launch)
	left := l.Left(l.t, launch.Session.ID)
	if len(left) < l.nodes() {
		l.t.Errorf("%d machines, and these exist: %v", l.nodes(), left)
	}
	for what, tags := range left {
		for k, want := range launch.Tags {
			if tags != nil && tags[k] != want {
				l.t.Errorf("%s has %s=%q, want %q", what, k, tags[k], want)
			}
		}
	}
}

func (l *launches) sameToken() {
	launch := l.launch(l.nodes())
	first := l.start(launch)
	again := l.start(launch)
	l.same("the same client", ids(again), ids(first))
	other, err := l.Again(l.t).Launch(l.ctx, launch)
	if err != nil {
		l.t.Fatalf("another client: %v", err)
	}
	l.same("another client", ids(other), ids(first))
	for i := range first {
		if again[i].Node != i || again[i].ID != first[i].ID {
			l.t.Errorf("node %d is %s, and was %s", i, again[i].ID, first[i].ID)
		}
	}
	l.stays(launch.Session.ID, l.nodes())
	l.same("found", foundIDs(l.shown(l.Launcher, launch.Session.ID)), ids(first))
}

func (l *launches) atOnce() {
	launch := l.launch(l.nodes())
	const clients = 4
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for range clients {
		c := l.Again(l.t)
		wg.Go(func() {
			// A client that comes in while another one's launch is under way may be told so.
			for end := time.Now().Add(patient); time.Now().Before(end); {
				machines, err := c.Launch(l.ctx, launch)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					answers[strings.Join(ids(machines), " ")]++
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			l.t.Error("a client is refused again and again")
		})
	}
	wg.Wait()
	if len(answers) != 1 {
		l.t.Errorf("%d clients were told of %v", clients, answers)
	}
	l.stays(launch.Session.ID, l.nodes())
}

func (l *launches) mismatch() {
	for name, change := range map[string]func(*session.Launch){
		"another number of machines": func(o *session.Launch) { o.Nodes++; o.Spec.Resources.Nodes++; o.Host.Nodes++ },
		"told something else":        func(o *session.Launch) { o.Host.Setup += "\necho other" },
	} {
		launch := l.launch(1)
		first := l.start(launch)
		other := launch
		changed := *launch.Spec
		other.Spec = &changed
		change(&other)
		if machines, err := l.Again(l.t).Launch(l.ctx, other); !errors.Is(err, session.ErrMismatch) {
			l.t.Errorf("%s: %v, %v; want ErrMismatch", name, machines, err)
		}
		l.stays(launch.Session.ID, 1)
		l.same("still", ids(l.start(launch)), ids(first))
	}
}

// replaced ends one machine of a session and launches another one for its node, next to the others that stay.
func (l *launches) replaced() {
	if l.nodes() < 2 {
		l.t.Skip("there is room for one machine")
	}
	launch := l.launch(2)
	for _, lost := range []int{1, 0} {
		launch := launch
		if lost == 0 {
			launch = l.launch(2)
		}
		first := l.start(launch)
		l.shows(launch.Session.ID, 2)
		if err := l.Launcher.End(l.ctx, launch.Session.ID, []string{first[lost].ID}); err != nil {
			l.t.Fatal(err)
		}
		l.eventually("one machine is left", func() bool { return len(l.shown(l.Launcher, launch.Session.ID)) == 1 })
		one := launch
		one.Token, one.Nodes, one.FirstNode, one.Host.Round = launch.Token+"-1", 1, lost, 1
		one.Tags = maps.Clone(launch.Tags)
		one.Tags[inventory.TagIntent], one.Tags[inventory.TagNode] = one.Token, strconv.Itoa(lost)
		second := l.start(one)
		if len(second) != 1 || second[0].Node != lost || second[0].ID == first[lost].ID {
			l.t.Fatalf("node %d is %+v, after %+v", lost, second, first)
		}
		l.same("again", ids(l.start(one)), ids(second))
		for _, f := range l.shows(launch.Session.ID, 2) {
			if want := map[string]int{first[1-lost].ID: 1 - lost, second[0].ID: lost}; f.Node != want[f.ID] {
				l.t.Errorf("%s is found as node %d, want %d", f.ID, f.Node, want[f.ID])
			}
		}
		if err := l.Launcher.End(l.ctx, launch.Session.ID, []string{first[1-lost].ID, second[0].ID}); err != nil {
			l.t.Fatal(err)
		}
		l.eventually("nothing is left", func() bool { return len(l.shown(l.Launcher, launch.Session.ID)) == 0 })
	}
}

func (l *launches) otherToken() {
	a, b := l.launch(1), l.launch(1)
	first, second := l.start(a), l.start(b)
	if first[0].ID == second[0].ID {
		l.t.Errorf("two tokens are one machine, %s", first[0].ID)
	}
	l.shows(a.Session.ID, 1)
	l.shows(b.Session.ID, 1)
}

// inject skips what cannot happen.
func (l *launches) inject(f LaunchFault) {
	l.t.Helper()
	if l.Inject == nil || !l.Inject(l.t, f) {
		l.t.Skipf("%s cannot happen at this provider", f)
	}
}

// refused is all or none: a refusal of a class, and nothing made.
func (l *launches) refused(f LaunchFault, class error) {
	launch := l.launch(l.nodes())
	l.inject(f)
	machines, err := l.Launcher.Launch(l.ctx, launch)
	if !errors.Is(err, class) || len(machines) != 0 {
		l.t.Fatalf("%v, %v; want %v", machines, err, class)
	}
	for _, other := range []error{
		session.ErrCapacity, session.ErrQuota, session.ErrUnsupported, session.ErrMismatch, session.ErrNoRole,
	} {
		if other != class && errors.Is(err, other) { //nolint:errorlint // classes are compared with themselves
			l.t.Errorf("%v is %v as well", err, other)
		}
	}
	for range 3 {
		l.Pass(l.t)
	}
	// The leftovers of a refused launch, such as a role, go as others do.
	if named, err := l.Launcher.Leftovers(l.ctx, l.installation(), launch.Session.ID); err != nil || len(named) > 0 {
		l.t.Errorf("it was refused, and leaves %v, %v", named, err)
	}
	if found, left := l.shown(l.Launcher, launch.Session.ID), l.Left(l.t, launch.Session.ID); len(found) > 0 ||
		len(left) > 0 {
		l.t.Errorf("it was refused, and there are %v, %v", found, left)
	}
	// A refusal holds for its call alone.
	if got := l.start(launch); len(got) != l.nodes() {
		l.t.Errorf("then %d machines", len(got))
	}
}

func (l *launches) lost() {
	launch := l.launch(l.nodes())
	l.inject(Lost)
	if machines, err := l.Launcher.Launch(l.ctx, launch); err == nil {
		l.t.Fatalf("the answer was lost, and is %v", machines)
	} else if class := classOf(err); class != nil {
		l.t.Errorf("a lost answer is taken for %v: %v", class, err)
	}
	again, err := l.Again(l.t).Launch(l.ctx, launch)
	if err != nil || len(again) != l.nodes() {
		l.t.Fatalf("repeated: %v, %v", again, err)
	}
	l.stays(launch.Session.ID, l.nodes())
	l.same("found", foundIDs(l.shown(l.Launcher, launch.Session.ID)), ids(again))
}

// classOf returns the class of a refusal; nil where it is none.
func classOf(err error) error {
	for _, class := range []error{
		session.ErrCapacity, session.ErrQuota, session.ErrUnsupported, session.ErrMismatch, session.ErrNoRole,
	} {
		if errors.Is(err, class) {
			return class
		}
	}
	return nil
}

func (l *launches) broken() {
	launch := l.launch(l.nodes())
	l.inject(Broken)
	if machines, err := l.Launcher.Launch(l.ctx, launch); err == nil {
		l.t.Fatalf("the call failed, and the answer is %v", machines)
	} else if class := classOf(err); class != nil {
		l.t.Errorf("a failed call is taken for %v: %v", class, err)
	}
	if again := l.start(launch); len(again) != l.nodes() {
		l.t.Errorf("repeated: %v", again)
	}
	l.stays(launch.Session.ID, l.nodes())
}

func (l *launches) late() {
	launch := l.launch(l.nodes())
	l.inject(Late)
	first := l.start(launch)
	if found := l.shown(l.Again(l.t), launch.Session.ID); len(found) != 0 {
		l.t.Fatalf("the machines show at once: %v", found)
	}
	again, err := l.Again(l.t).Launch(l.ctx, launch)
	if err != nil {
		l.t.Fatalf("repeated: %v", err)
	}
	l.same("repeated", ids(again), ids(first))
	l.stays(launch.Session.ID, l.nodes())
}

func (l *launches) found() {
	a, b := l.launch(1), l.launch(1)
	strange := l.launch(1)
	strange.Tags = maps.Clone(strange.Tags)
	strange.Tags[inventory.TagInstallation] = "other-" + l.unique()
	first, second, other := l.start(a), l.start(b), l.start(strange)
	l.same("of a session", foundIDs(l.shows(a.Session.ID, 1)), ids(first))
	l.same("of all sessions", foundIDs(l.shows("", 2)), ids(append(slices.Clone(first), second...)))
	if found := l.shown(l.Launcher, strange.Session.ID); len(found) != 0 {
		l.t.Errorf("another installation's machine is found: %v", found)
	}
	l.eventually("the other installation finds its own", func() bool {
		found, err := l.Launcher.Find(l.ctx, "other-"+l.unique(), "")
		return err == nil && len(found) == 1 && found[0].ID == other[0].ID
	})
	if err := l.Launcher.End(l.ctx, strange.Session.ID, ids(other)); err != nil {
		l.t.Error(err)
	}
}

func (l *launches) foreign() {
	a, b := l.launch(1), l.launch(1)
	first, second := l.start(a), l.start(b)
	l.shows(a.Session.ID, 1)
	l.shows(b.Session.ID, 1)
	_ = l.Launcher.End(l.ctx, a.Session.ID, append(ids(first), ids(second)...)) // an error or none
	l.stays(b.Session.ID, 1)
}

func (l *launches) some() {
	if l.nodes() < 2 {
		l.t.Skip("this provider launches one machine at a time")
	}
	launch := l.launch(l.nodes())
	machines := l.start(launch)
	l.shows(launch.Session.ID, l.nodes())
	if err := l.Launcher.End(l.ctx, launch.Session.ID, []string{machines[1].ID}); err != nil {
		l.t.Fatal(err)
	}
	l.stays(launch.Session.ID, l.nodes()-1)
	if slices.Contains(foundIDs(l.shown(l.Launcher, launch.Session.ID)), machines[1].ID) {
		l.t.Error("another one ended")
	}
}

// over ends a session's machines and waits until none is found, not even on its way out.
func (l *launches) over(launch session.Launch, machines []session.Machine) {
	l.t.Helper()
	if err := l.Launcher.End(l.ctx, launch.Session.ID, ids(machines)); err != nil {
		l.t.Fatalf("end: %v", err)
	}
	l.eventually("its machines are gone", func() bool {
		found, err := l.Launcher.Find(l.ctx, l.installation(), launch.Session.ID)
		return err == nil && len(found) == 0
	})
}

func (l *launches) ended() {
	launch := l.launch(l.nodes())
	machines := l.start(launch)
	l.shows(launch.Session.ID, l.nodes())
	for _, c := range []session.Launcher{l.Launcher, l.Launcher, l.Again(l.t)} {
		if err := c.End(l.ctx, launch.Session.ID, ids(machines)); err != nil {
			l.t.Errorf("end, again and again: %v", err)
		}
	}
	l.over(launch, machines)
	l.over(launch, machines)
}

func (l *launches) endedToken() {
	launch := l.launch(1)
	machines := l.start(launch)
	l.shows(launch.Session.ID, 1)
	l.over(launch, machines)
	again, err := l.Again(l.t).Launch(l.ctx, launch)
	if err == nil && !slices.Equal(ids(again), ids(machines)) {
		l.t.Errorf("the token launched %v", again)
	}
	for range 3 {
		l.Pass(l.t)
	}
	if found := l.shown(l.Launcher, launch.Session.ID); len(found) != 0 {
		l.t.Errorf("there is %v", found)
	}
}

func (l *launches) tooEarly() {
	launch := l.launch(l.nodes())
	l.start(launch)
	l.shows(launch.Session.ID, l.nodes())
	before := l.Left(l.t, launch.Session.ID)
	named, err := l.Launcher.Leftovers(l.ctx, l.installation(), launch.Session.ID)
	if err == nil && len(named) == 0 {
		l.t.Error("its machines run, and nothing is said to be left")
	}
	l.stays(launch.Session.ID, l.nodes())
	after := l.Left(l.t, launch.Session.ID)
	l.same("what exists", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
}

func (l *launches) nothingLeft() {
	launch, other := l.launch(l.nodes()), l.launch(1)
	machines := l.start(launch)
	l.start(other)
	l.shows(launch.Session.ID, l.nodes())
	l.shows(other.Session.ID, 1)
	others := len(l.Left(l.t, other.Session.ID))
	l.over(launch, machines)
	var named []string
	l.eventually("nothing is left", func() bool {
		var err error
		if named, err = l.Launcher.Leftovers(l.ctx, l.installation(), launch.Session.ID); err != nil {
			l.t.Fatalf("leftovers: %v", err)
		}
		return len(named) == 0
	})
	if left := l.Left(l.t, launch.Session.ID); len(left) != 0 {
		l.t.Errorf("left: %v", slices.Sorted(maps.Keys(left)))
	}
	if again, err := l.Again(l.t).Leftovers(l.ctx, l.installation(), launch.Session.ID); err != nil ||
		len(again) != 0 {
		l.t.Errorf("once more: %v, %v", again, err)
	}
	l.stays(other.Session.ID, 1)
	if n := len(l.Left(l.t, other.Session.ID)); n != others {
		l.t.Errorf("of another session %d are left of %d", n, others)
	}
	if named, err := l.Launcher.Leftovers(l.ctx, "other-"+l.unique(), other.Session.ID); err != nil ||
		len(named) != 0 {
		l.t.Errorf("another installation has leftovers of it: %v, %v", named, err)
	}
	l.stays(other.Session.ID, 1)
}
