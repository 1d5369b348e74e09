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

// LaunchFault is a fault of the next launch.
type LaunchFault string

// The faults.
const (
	// NoCapacity, OverQuota and NotOffered are the provider's refusals.
	NoCapacity LaunchFault = "no capacity"
	OverQuota  LaunchFault = "over a quota"
	NotOffered LaunchFault = "not offered"
	// Lost is a launch that succeeds but whose response is lost.
	Lost LaunchFault = "answer lost"
	// Broken is a call that fails before it has an effect.
	Broken LaunchFault = "call failed"
	// Late hides new machines for a while.
	Late LaunchFault = "shown late"
)

// LauncherCase is a provider of machines under test.
type LauncherCase struct {
	Launcher session.Launcher
	// Again returns another client of the same provider, like that of another process.
	Again func(tb testing.TB) session.Launcher
	// Spec requests one machine that can be launched, Impossible one that no pool ever has; nil if
	// there is no such machine.
	Spec, Impossible *spec.Spec
	// Nodes is the maximum number of machines per launch in the suite, at least 1. There must be
	// capacity for two such launches at once.
	Nodes int
	// Host is the configuration of the machines without names and numbers.
	Host session.HostConfig
	// Pass lets the provider finish pending work, and advances its time.
	Pass func(tb testing.TB)
	// Inject makes the next launch of any client fail. It returns false if the provider cannot have
	// this fault.
	Inject func(tb testing.TB, f LaunchFault) bool
	// Left returns everything that exists of a session at the provider, with its tags (nil if it
	// stores none), by the provider's own API: machines, volumes, interfaces, folders. Resources
	// that are being deleted are excluded.
	Left func(tb testing.TB, session string) map[string]map[string]string
}

// TestLauncher runs the conformance checks of a session launcher, each in a subtest with its own
// case; the cases may share an account.
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
	{"no capacity", func(l *launches) { l.checkRefusal(NoCapacity, session.ErrCapacity) }},
	{"over a quota", func(l *launches) { l.checkRefusal(OverQuota, session.ErrQuota) }},
	{"not offered", func(l *launches) { l.checkRefusal(NotOffered, session.ErrUnsupported) }},
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

// installation returns the installation ID that these tests launch for.
func (l *launches) installation() string { return "inst-" + l.unique() }

// unique returns a name part that no other test has.
func (l *launches) unique() string {
	var h uint32 = 2166136261
	for _, b := range []byte(l.names) {
		h = (h ^ uint32(b)) * 16777619
	}
	return fmt.Sprintf("%08x", h)
}

// launch returns a new launch request.
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

// sweep ends everything that a test left of a session.
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

// start launches and requires success.
func (l *launches) start(launch session.Launch) []session.Machine {
	l.t.Helper()
	machines, err := l.Launcher.Launch(l.ctx, launch)
	if err != nil {
		l.t.Fatalf("launch: %v", err)
	}
	return machines
}

// maxWait bounds every wait; it is long because the tests may run under load.
const maxWait = 2 * time.Minute

// eventually waits until a condition is true.
func (l *launches) eventually(what string, done func() bool) {
	l.t.Helper()
	for end := time.Now().Add(maxWait); ; {
		if done() {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("after %s it does not hold that %s", maxWait, what)
		}
		l.Pass(l.t)
	}
}

// liveMachines returns the machines of a session that are not ending.
func (l *launches) liveMachines(c session.Launcher, id string) []session.FoundMachine {
	l.t.Helper()
	found, err := c.Find(l.ctx, l.installation(), id)
	if err != nil {
		l.t.Fatalf("find: %v", err)
	}
	return slices.DeleteFunc(found, func(f session.FoundMachine) bool { return f.State == inventory.StateDeleting })
}

// waitForMachines waits until a session has n machines.
func (l *launches) waitForMachines(id string, n int) []session.FoundMachine {
	l.t.Helper()
	var found []session.FoundMachine
	l.eventually(fmt.Sprintf("%s shows %d machines", id, n), func() bool {
		found = l.liveMachines(l.Launcher, id)
		return len(found) == n
	})
	return found
}

// checkStable lets the provider work and checks that a session keeps n machines.
func (l *launches) checkStable(id string, n int) {
	l.t.Helper()
	l.waitForMachines(id, n)
	for range 3 {
		l.Pass(l.t)
		if found := l.liveMachines(l.Launcher, id); len(found) != n {
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

// checkSame checks that two results name the same machines.
func (l *launches) checkSame(what string, got, want []string) {
	l.t.Helper()
	if !slices.Equal(got, want) {
		l.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// nodes returns the number of machines of a launch of several, or one.
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
	if found := l.liveMachines(l.Launcher, ""); len(found) > 0 {
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
		found := l.waitForMachines(launch.Session.ID, n)
		l.checkSame("found", foundIDs(found), ids(machines))
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
			return !slices.ContainsFunc(l.liveMachines(
				l.Launcher, launch.Session.ID,
			), func(f session.FoundMachine) bool {
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
	l.checkSame("the same client", ids(again), ids(first))
	other, err := l.Again(l.t).Launch(l.ctx, launch)
	if err != nil {
		l.t.Fatalf("another client: %v", err)
	}
	l.checkSame("another client", ids(other), ids(first))
	for i := range first {
		if again[i].Node != i || again[i].ID != first[i].ID {
			l.t.Errorf("node %d is %s, and was %s", i, again[i].ID, first[i].ID)
		}
	}
	l.checkStable(launch.Session.ID, l.nodes())
	l.checkSame("found", foundIDs(l.liveMachines(l.Launcher, launch.Session.ID)), ids(first))
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
			// While another client's launch is in progress, the provider may refuse a second one.
			for end := time.Now().Add(maxWait); time.Now().Before(end); {
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
	l.checkStable(launch.Session.ID, l.nodes())
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
		l.checkStable(launch.Session.ID, 1)
		l.checkSame("still", ids(l.start(launch)), ids(first))
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
		l.waitForMachines(launch.Session.ID, 2)
		if err := l.Launcher.End(l.ctx, launch.Session.ID, []string{first[lost].ID}); err != nil {
			l.t.Fatal(err)
		}
		l.eventually("one machine is left", func() bool {
			return len(l.liveMachines(l.Launcher, launch.Session.ID)) == 1
		})
		one := launch
		one.Token, one.Nodes, one.FirstNode, one.Host.Round = launch.Token+"-1", 1, lost, 1
		one.Tags = maps.Clone(launch.Tags)
		one.Tags[inventory.TagIntent], one.Tags[inventory.TagNode] = one.Token, strconv.Itoa(lost)
		second := l.start(one)
		if len(second) != 1 || second[0].Node != lost || second[0].ID == first[lost].ID {
			l.t.Fatalf("node %d is %+v, after %+v", lost, second, first)
		}
		l.checkSame("again", ids(l.start(one)), ids(second))
		for _, f := range l.waitForMachines(launch.Session.ID, 2) {
			if want := map[string]int{first[1-lost].ID: 1 - lost, second[0].ID: lost}; f.Node != want[f.ID] {
				l.t.Errorf("%s is found as node %d, want %d", f.ID, f.Node, want[f.ID])
			}
		}
		if err := l.Launcher.End(l.ctx, launch.Session.ID, []string{first[1-lost].ID, second[0].ID}); err != nil {
			l.t.Fatal(err)
		}
		l.eventually("nothing is left", func() bool { return len(l.liveMachines(l.Launcher, launch.Session.ID)) == 0 })
	}
}

func (l *launches) otherToken() {
	a, b := l.launch(1), l.launch(1)
	first, second := l.start(a), l.start(b)
	if first[0].ID == second[0].ID {
		l.t.Errorf("two tokens are one machine, %s", first[0].ID)
	}
	l.waitForMachines(a.Session.ID, 1)
	l.waitForMachines(b.Session.ID, 1)
}

// inject skips the test if the provider cannot have the fault.
func (l *launches) inject(f LaunchFault) {
	l.t.Helper()
	if l.Inject == nil || !l.Inject(l.t, f) {
		l.t.Skipf("%s cannot happen at this provider", f)
	}
}

// checkRefusal checks that a refusal has the expected class and that no machine was made.
func (l *launches) checkRefusal(f LaunchFault, class error) {
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
	// Leftovers of a refused launch, such as a role, are deleted like others.
	if named, err := l.Launcher.Leftovers(l.ctx, l.installation(), launch.Session.ID); err != nil || len(named) > 0 {
		l.t.Errorf("it was refused, and leaves %v, %v", named, err)
	}
	if found, left := l.liveMachines(l.Launcher, launch.Session.ID), l.Left(l.t, launch.Session.ID); len(found) > 0 ||
		len(left) > 0 {
		l.t.Errorf("it was refused, and there are %v, %v", found, left)
	}
	// A refusal must not affect the next call.
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
	l.checkStable(launch.Session.ID, l.nodes())
	l.checkSame("found", foundIDs(l.liveMachines(l.Launcher, launch.Session.ID)), ids(again))
}

// classOf returns the class of a refusal, or nil.
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
	l.checkStable(launch.Session.ID, l.nodes())
}

func (l *launches) late() {
	launch := l.launch(l.nodes())
	l.inject(Late)
	first := l.start(launch)
	if found := l.liveMachines(l.Again(l.t), launch.Session.ID); len(found) != 0 {
		l.t.Fatalf("the machines show at once: %v", found)
	}
	again, err := l.Again(l.t).Launch(l.ctx, launch)
	if err != nil {
		l.t.Fatalf("repeated: %v", err)
	}
	l.checkSame("repeated", ids(again), ids(first))
	l.checkStable(launch.Session.ID, l.nodes())
}

func (l *launches) found() {
	a, b := l.launch(1), l.launch(1)
	strange := l.launch(1)
	strange.Tags = maps.Clone(strange.Tags)
	strange.Tags[inventory.TagInstallation] = "other-" + l.unique()
	first, second, other := l.start(a), l.start(b), l.start(strange)
	l.checkSame("of a session", foundIDs(l.waitForMachines(a.Session.ID, 1)), ids(first))
	l.checkSame("of all sessions", foundIDs(l.waitForMachines("", 2)), ids(append(slices.Clone(first), second...)))
	if found := l.liveMachines(l.Launcher, strange.Session.ID); len(found) != 0 {
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
	l.waitForMachines(a.Session.ID, 1)
	l.waitForMachines(b.Session.ID, 1)
	_ = l.Launcher.End(l.ctx, a.Session.ID, append(ids(first), ids(second)...)) // may fail or succeed
	l.checkStable(b.Session.ID, 1)
}

func (l *launches) some() {
	if l.nodes() < 2 {
		l.t.Skip("this provider launches one machine at a time")
	}
	launch := l.launch(l.nodes())
	machines := l.start(launch)
	l.waitForMachines(launch.Session.ID, l.nodes())
	if err := l.Launcher.End(l.ctx, launch.Session.ID, []string{machines[1].ID}); err != nil {
		l.t.Fatal(err)
	}
	l.checkStable(launch.Session.ID, l.nodes()-1)
	if slices.Contains(foundIDs(l.liveMachines(l.Launcher, launch.Session.ID)), machines[1].ID) {
		l.t.Error("another one ended")
	}
}

// endAll ends a session's machines and waits until none is found, not even an ending one.
func (l *launches) endAll(launch session.Launch, machines []session.Machine) {
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
	l.waitForMachines(launch.Session.ID, l.nodes())
	for _, c := range []session.Launcher{l.Launcher, l.Launcher, l.Again(l.t)} {
		if err := c.End(l.ctx, launch.Session.ID, ids(machines)); err != nil {
			l.t.Errorf("end, again and again: %v", err)
		}
	}
	l.endAll(launch, machines)
	l.endAll(launch, machines)
}

func (l *launches) endedToken() {
	launch := l.launch(1)
	machines := l.start(launch)
	l.waitForMachines(launch.Session.ID, 1)
	l.endAll(launch, machines)
	again, err := l.Again(l.t).Launch(l.ctx, launch)
	if err == nil && !slices.Equal(ids(again), ids(machines)) {
		l.t.Errorf("the token launched %v", again)
	}
	for range 3 {
		l.Pass(l.t)
	}
	if found := l.liveMachines(l.Launcher, launch.Session.ID); len(found) != 0 {
		l.t.Errorf("there is %v", found)
	}
}

func (l *launches) tooEarly() {
	launch := l.launch(l.nodes())
	l.start(launch)
	l.waitForMachines(launch.Session.ID, l.nodes())
	before := l.Left(l.t, launch.Session.ID)
	named, err := l.Launcher.Leftovers(l.ctx, l.installation(), launch.Session.ID)
	if err == nil && len(named) == 0 {
		l.t.Error("its machines run, and nothing is said to be left")
	}
	l.checkStable(launch.Session.ID, l.nodes())
	after := l.Left(l.t, launch.Session.ID)
	l.checkSame("what exists", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
}

func (l *launches) nothingLeft() {
	launch, other := l.launch(l.nodes()), l.launch(1)
	machines := l.start(launch)
	l.start(other)
	l.waitForMachines(launch.Session.ID, l.nodes())
	l.waitForMachines(other.Session.ID, 1)
	others := len(l.Left(l.t, other.Session.ID))
	l.endAll(launch, machines)
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
	l.checkStable(other.Session.ID, 1)
	if n := len(l.Left(l.t, other.Session.ID)); n != others {
		l.t.Errorf("of another session %d are left of %d", n, others)
	}
	if named, err := l.Launcher.Leftovers(l.ctx, "other-"+l.unique(), other.Session.ID); err != nil ||
		len(named) != 0 {
		l.t.Errorf("another installation has leftovers of it: %v, %v", named, err)
	}
	l.checkStable(other.Session.ID, 1)
}
