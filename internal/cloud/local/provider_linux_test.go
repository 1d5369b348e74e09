package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// stubAgent is a minimal agent: it runs the setup in the machine's cage and ends when told.
// Host.Env selects misbehavior.
func stubAgent(file string) int {
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGTERM)
	var h session.HostConfig
	if _, err := readJSON(file, &h); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c, err := OpenCage(filepath.Dir(file))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	count := filepath.Join(filepath.Dir(file), "starts")
	b, _ := os.ReadFile(count)
	if err := os.WriteFile(count, append(b, '+'), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if h.Setup != "" && len(b) == 0 {
		cmd := exec.Command("/bin/sh", "-c", h.Setup)
		cmd.Env = os.Environ()
		for k, v := range h.Env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		if err := c.Start(context.Background(), cmd); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		go func() { _ = cmd.Wait() }()
	}
	switch h.Env["STUB"] {
	case "crash":
		return 3
	case "done":
		return 0
	case "deaf":
		select {}
	}
	<-told
	return 0
}

// childOrder tells a child process what to launch.
type childOrder struct {
	Dir, Name string
	GPUs      []ConfiguredGPU
	Launch    session.Launch
	KillAt    int
	End       bool
}

// killingHandler kills the process at a logged step, like a power failure.
type killingHandler struct {
	slog.Handler
	killAt int
	steps  *int
}

func (d killingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (d killingHandler) Handle(_ context.Context, r slog.Record) error {
	*d.steps++
	if d.killAt > 0 && *d.steps >= d.killAt {
		fmt.Printf("killed after: %s\n", r.Message)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return nil
}

// runChild launches, and ends the launch if ordered.
func runChild(text string) int {
	var o childOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Println(err)
		return 1
	}
	steps := 0
	p, err := NewProvider(ProviderOptions{
		Dir: o.Dir, Name: o.Name, GPUs: o.GPUs, Hardware: noHardware{}, Agent: stub,
		Log: slog.New(killingHandler{slog.DiscardHandler, o.KillAt, &steps}),
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	machines, err := p.Launch(context.Background(), o.Launch)
	if err == nil && o.End {
		var ids []string
		for _, m := range machines {
			ids = append(ids, m.ID)
		}
		if err = p.End(context.Background(), o.Launch.Session.ID, ids); err == nil {
			for left := []string{""}; len(left) > 0 && err == nil; time.Sleep(10 * time.Millisecond) {
				left, err = p.Leftovers(context.Background(),
					o.Launch.Tags[inventory.TagInstallation], o.Launch.Session.ID)
			}
		}
	}
	if err != nil {
		fmt.Println(err)
		if errors.Is(err, session.ErrCapacity) {
			return 7
		}
		return 1
	}
	b, _ := json.Marshal(machines)
	fmt.Println(string(b))
	fmt.Println("steps:", steps)
	return 0
}

// runLaunchAs tries to launch a session as another user.
func runLaunchAs(name string) int {
	p, err := NewProvider(ProviderOptions{
		Dir: os.Getenv("LAUNCH_DIR"), Name: testName, Hardware: noHardware{}, Agent: stub,
		Sessions: os.Getenv("LAUNCH_DIR") + "-sessions",
	})
	if err == nil {
		_, err = p.Launch(context.Background(), launch(cpu(1), func(l *session.Launch) { l.Session.RunAs = name }))
	}
	fmt.Println(err)
	return 0
}

var stub = []string{"/proc/self/exe", "stub-agent"}

// noHardware is a machine without driver.
type noHardware struct{ list []GPU }

func (h noHardware) GPUs(context.Context) ([]GPU, error) { return slices.Clone(h.list), nil }

func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "cage":
			os.Exit(Helper(os.Args[2:], os.Stderr))
		case "stub-agent":
			os.Exit(stubAgent(os.Args[2]))
		case "launch":
			os.Exit(runChild(os.Args[2]))
		case "launch-as":
			os.Exit(runLaunchAs(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

// world is a machine for one test.
type world struct {
	t   testing.TB
	dir string
	p   *Provider
}

const testName = "lab-1"

// newWorld uses a short path, because the kernel limits some names.
func newWorld(t testing.TB, change ...func(*ProviderOptions)) *world {
	t.Helper()
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "local")}
	w.p = w.open(change...)
	t.Cleanup(func() { w.killAll() })
	return w
}

func (w *world) open(change ...func(*ProviderOptions)) *Provider {
	w.t.Helper()
	o := ProviderOptions{
		Dir: w.dir, Name: testName, Hardware: noHardware{}, Agent: stub, Tags: inventory.DefaultTagMapping(),
	}
	for _, c := range change {
		c(&o)
	}
	p, err := NewProvider(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// killAll ends everything that a test left behind.
func (w *world) killAll() {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	all, err := w.p.machines()
	if err != nil {
		w.t.Errorf("sweep: %v", err)
	}
	for _, m := range all {
		s, _ := m.readState()
		_ = s.Watcher.Signal(unix.SIGKILL)
		_ = s.Agent.Signal(unix.SIGKILL)
		_ = s.Watcher.wait(ctx)
		_ = s.Agent.wait(ctx)
		if err := w.p.clearMachine(ctx, m); err != nil {
			w.t.Errorf("sweep %s: %v", m.ID, err)
		}
	}
	w.checkNothingLeft()
}

// checkNothingLeft checks with system tools that nothing is left running.
func (w *world) checkNothingLeft() {
	w.t.Helper()
	folders, _ := filepath.Glob(filepath.Join(w.dir, "machines", "*"))
	hidden, _ := filepath.Glob(filepath.Join(w.dir, "machines", ".*"))
	if all := append(folders, hidden...); len(all) > 0 {
		w.t.Errorf("folders are left: %v", all)
	}
	eventually(w.t, "no process is left", func() bool { return len(w.processesInFolder()) == 0 })
}

// processesInFolder returns the processes whose command line names the test's folder.
func (w *world) processesInFolder() []int {
	var out []int
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		b, _ := os.ReadFile(path)
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		if strings.Contains(string(b), w.dir+"/") && pid != os.Getpid() && isRunning(pid) {
			out = append(out, pid)
		}
	}
	return out
}

// groupsOf returns the control groups of a machine.
func groupsOf(id string) []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/" + groupPrefix + id + "*")
	deeper, _ := filepath.Glob("/sys/fs/cgroup/*/" + groupPrefix + id + "*")
	return append(found, deeper...)
}

var sessions int

// launch returns a new launch.
func launch(s *spec.Spec, change ...func(*session.Launch)) session.Launch {
	sessions++
	id := fmt.Sprintf("s-%d-%d", os.Getpid(), sessions)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	l := session.Launch{
		Token: "t-" + id, Spec: s, Nodes: max(s.Resources.Nodes, 1), Session: session.Session{
			ID: id, Name: "demo", LeaseUntil: until,
		},
		Host: session.HostConfig{
			Schema: session.HostSchema, Session: id, Name: "demo", WorkDir: "/tmp", LeaseUntil: until,
		},
		Tags: map[string]string{
			"Name": "demo", inventory.TagSession: id, inventory.TagInstallation: "inst", inventory.TagManaged: "true",
			inventory.TagLifetime: string(inventory.Ephemeral), inventory.TagLease: until.Format(time.RFC3339),
			"team": "vision"}}
	l.Pool = session.Pool{Type: fmt.Sprintf("%dxCPU", max(s.Resources.CPUs, 1)), Zone: testName}
	if s.Resources.GPUs > 0 {
		l.Pool.Type = fmt.Sprintf("%dx%s", s.Resources.GPUs, s.Resources.GPU)
	}
	for _, c := range change {
		c(&l)
	}
	return l
}

func cpu(nodes int) *spec.Spec {
	return &spec.Spec{Kind: spec.Session, Name: "demo", Resources: spec.Resources{CPUs: 1, Nodes: nodes}}
}

func l4(gpus, nodes int) *spec.Spec {
	return &spec.Spec{Kind: spec.Session, Name: "demo", Resources: spec.Resources{GPU: "L4", GPUs: gpus, Nodes: nodes}}
}

func (w *world) start(l session.Launch) []session.Machine {
	w.t.Helper()
	machines, err := w.p.Launch(context.Background(), l)
	if err != nil {
		w.t.Fatalf("launch: %v", err)
	}
	return machines
}

func (w *world) find(id string) []session.FoundMachine {
	w.t.Helper()
	found, err := w.p.Find(context.Background(), "inst", id)
	if err != nil {
		w.t.Fatalf("find: %v", err)
	}
	return found
}

// waitRunning waits until all machines of a session run.
func (w *world) waitRunning(l session.Launch) {
	w.t.Helper()
	var found []session.FoundMachine
	defer func() {
		if w.t.Failed() {
			w.t.Logf("found: %+v", found)
			logs, _ := filepath.Glob(filepath.Join(w.dir, "machines", "*", logFile))
			for _, path := range logs {
				b, _ := os.ReadFile(path)
				w.t.Logf("%s: %s", path, b)
			}
		}
	}()
	eventually(w.t, "its machines run", func() bool {
		found = w.find(l.Session.ID)
		return len(found) == l.Nodes && !slices.ContainsFunc(found, func(f session.FoundMachine) bool {
			return f.State != inventory.StateRunning
		})
	})
}

func idsOf(machines []session.Machine) []string {
	var out []string
	for _, m := range machines {
		out = append(out, m.ID)
	}
	return out
}

// endAndCheck ends a session and checks that nothing of it is left.
func (w *world) endAndCheck(l session.Launch, ids []string) {
	w.t.Helper()
	if err := w.p.End(context.Background(), l.Session.ID, ids); err != nil {
		w.t.Fatalf("end: %v", err)
	}
	eventually(w.t, "its machines are gone", func() bool { return len(w.find(l.Session.ID)) == 0 })
	left, err := w.p.Leftovers(context.Background(), "inst", l.Session.ID)
	if err != nil || len(left) > 0 {
		w.t.Fatalf("leftovers: %v, %v", left, err)
	}
	for _, id := range ids {
		if g := groupsOf(id); len(g) > 0 {
			w.t.Errorf("control groups are left: %v", g)
		}
		if _, err := os.Stat(filepath.Join(w.dir, "machines", id)); !errors.Is(err, fs.ErrNotExist) {
			w.t.Errorf("the folder of %s is left: %v", id, err)
		}
	}
}

func TestLauncher(t *testing.T) {
	var mu sync.Mutex
	cloudtest.TestLauncher(t, func(tb testing.TB) cloudtest.LauncherCase {
		// GPUs used by another process simulate missing capacity.
		taken, listed := false, []GPU{
			{ID: "0", Model: "L4"}, {ID: "1", Model: "L4"}, {ID: "2", Model: "L4"}, {ID: "3", Model: "L4"},
			{ID: "4", Model: "L4"}, {ID: "5", Model: "L4"},
		}
		hardware := hardwareFunc(func() []GPU {
			mu.Lock()
			defer mu.Unlock()
			out := slices.Clone(listed)
			if taken {
				for i := range out {
					out[i].Users = []int{1}
				}
			}
			return out
		})
		with := func(o *ProviderOptions) { o.Hardware = hardware }
		w := newWorld(tb, with)
		faulty := &faultyLauncher{Provider: w.p, after: func() { mu.Lock(); taken = false; mu.Unlock() }}
		return cloudtest.LauncherCase{
			Launcher: faulty, Again: func(testing.TB) session.Launcher { return w.open(with) },
			Spec: l4(1, 1), Impossible: l4(64, 1), Nodes: 2, Host: session.HostConfig{WorkDir: "/tmp"},
			Pass: func(testing.TB) { time.Sleep(20 * time.Millisecond) },
			Inject: func(_ testing.TB, f cloudtest.LaunchFault) bool {
				mu.Lock()
				defer mu.Unlock()
				switch f {
				case cloudtest.NoCapacity:
					taken = true
				case cloudtest.Lost, cloudtest.Broken:
					faulty.next = f
				default:
					return false
				}
				return true
			},
			Left: func(tb testing.TB, id string) map[string]map[string]string {
				out := map[string]map[string]string{}
				records, _ := filepath.Glob(filepath.Join(w.dir, "machines", "*", recordFile))
				for _, path := range records {
					var r record
					if there, err := readJSON(path, &r); err != nil || !there {
						continue
					}
					if r.Session != id {
						continue
					}
					out[path] = r.Tags
					for _, g := range groupsOf(r.ID) {
						out[g] = nil
					}
				}
				return out
			},
		}
	})
}

type hardwareFunc func() []GPU

func (f hardwareFunc) GPUs(context.Context) ([]GPU, error) { return f(), nil }

// faultyLauncher loses a response or simulates a full disk.
type faultyLauncher struct {
	*Provider
	next  cloudtest.LaunchFault
	after func()
}

func (f *faultyLauncher) Launch(ctx context.Context, l session.Launch) ([]session.Machine, error) {
	defer f.after()
	next := f.next
	f.next = ""
	if next == cloudtest.Broken {
		if err := os.MkdirAll(f.options.Dir, 0o700); err != nil {
			return nil, err
		}
		dir := f.machinesDir()
		if err := errors.Join(ignoreNotExist(os.Rename(dir, dir+"-away")), os.WriteFile(dir, nil, 0o600)); err != nil {
			return nil, err
		}
		_, err := f.Provider.Launch(ctx, l)
		return nil, errors.Join(err, os.Remove(dir), ignoreNotExist(os.Rename(dir+"-away", dir)))
	}
	machines, err := f.Provider.Launch(ctx, l)
	if next == cloudtest.Lost && err == nil {
		return nil, errors.New("the answer is lost")
	}
	return machines, err
}

// TestEndKillsEverything checks the agent, its processes and their daemons.
func TestEndKillsEverything(t *testing.T) {
	for _, stub := range []string{"", "deaf"} {
		t.Run("agent "+stub, func(t *testing.T) {
			w, word, other := newWorld(t), uniqueSleep(), uniqueSleep()
			l := launch(cpu(2), func(l *session.Launch) {
				l.Host.Setup = `(setsid sleep ` + word + ` &) ; exec sleep ` + other
				l.Host.Env = map[string]string{"STUB": stub}
			})
			machines := w.start(l)
			w.waitRunning(l)
			pid := pidByWord(t, word)
			m, err := openMachine(filepath.Join(w.dir, "machines", machines[0].ID))
			if err != nil {
				t.Fatal(err)
			}
			if stub == "deaf" { // the deaf agent is killed after a timeout
				for _, one := range machines {
					m, err := openMachine(filepath.Join(w.dir, "machines", one.ID))
					if err != nil {
						t.Fatal(err)
					}
					s, _ := m.readState()
					_ = s.Watcher.Signal(unix.SIGKILL)
					_ = s.Watcher.wait(t.Context())
				}
			}
			s, err := m.readState()
			if err != nil || !s.Agent.Alive() {
				t.Fatalf("%+v, %v", s, err)
			}
			w.endAndCheck(l, idsOf(machines))
			waitGone(t, pid)
			for _, p := range []Process{s.Agent, s.Watcher} {
				if p.Alive() {
					t.Errorf("%+v is alive", p)
				}
			}
			w.checkNothingLeft()
		})
	}
}
