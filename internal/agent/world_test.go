package agent

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/objectstore"
	"github.com/curfew-dev/curfew/internal/session"
)

// agentConfig configures an agent process of a test.
type agentConfig struct {
	Host  session.HostConfig
	State string
	Home  string
	// Mode is "host" or "bootstrap".
	Mode string
	// KillAt kills the process at the log line with this prefix.
	KillAt string
	// TerminatedFile is created when the machine is terminated; empty means that the machine stays.
	TerminatedFile string
	// Parameters and Notice are files, Memory is a folder.
	Parameters, Notice, Memory string
	Address                    string
	Paces                      Intervals
	SMI                        string
}

// TestMain runs the agent if a test started this program for that.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv("AGENT_RECIPE"); ok {
		if err := runAgent(text); err != nil {
			fmt.Println("the agent failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The tests mostly wait for processes, so more of them may run than there are CPUs.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// skipUnlessSlow skips a test outside of make test-slow.
func skipUnlessSlow(t *testing.T) {
	t.Helper()
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("make test-slow runs it")
	}
}

func runAgent(text string) error {
	var r agentConfig
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	control, err := objectstore.Open(ctx, r.Host.Control, objectstore.Options{})
	if err != nil {
		return err
	}
	o := Options{
		Host: r.Host, State: r.State, Home: r.Home, Control: control, Cage: ProcessTree{
			ID: r.Host.Session + "-" + strconv.Itoa(r.Host.Node),
		},
		Work: func(ctx context.Context, url string) (checkpoint.Backend, error) {
			return objectstore.Open(ctx, url, objectstore.Options{})
		},
		Now: time.Now, Uptime: bootTime, Environ: slices.DeleteFunc(os.Environ(), func(v string) bool {
			return strings.HasPrefix(v, "AGENT_RECIPE=")
		}),
		Memory: r.Memory, Address: r.Address, Intervals: r.Paces, GPUs: SMI{Command: r.SMI},
		Datasets: symlinkDatasets{},
		Log: func(line string) {
			fmt.Println(line)
			if r.KillAt != "" && strings.HasPrefix(line, r.KillAt) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		},
	}
	if r.TerminatedFile != "" {
		o.Terminator = endFile(r.TerminatedFile)
	}
	if r.Parameters != "" {
		o.Parameters = parameterFile(r.Parameters)
	}
	if r.Notice != "" {
		o.Notices = noticeFile(r.Notice)
	}
	if r.Mode == "bootstrap" {
		return Bootstrap(ctx, o)
	}
	return Run(ctx, o)
}

func bootTime() (string, time.Duration) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err)
	}
	return "boot", time.Duration(t.Nano())
}

// endFile is a MachineTerminator that creates a file.
type endFile string

func (f endFile) Terminate(context.Context) error { return os.WriteFile(string(f), nil, 0o600) }

// parameterFile implements Parameters with a JSON file.
type parameterFile string

func (f parameterFile) Parameter(_ context.Context, name string) (string, error) {
	data, err := os.ReadFile(string(f))
	if err != nil {
		return "", err
	}
	all := map[string]string{}
	if err := json.Unmarshal(data, &all); err != nil {
		return "", err
	}
	v, ok := all[name]
	if !ok {
		return "", errors.New("there is no such parameter")
	}
	return v, nil
}

// noticeFile implements Notices with a file that holds a time.
type noticeFile string

func (f noticeFile) Notice(context.Context) (time.Time, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, string(data))
}

// symlinkDatasets implements Datasets with symbolic links.
type symlinkDatasets struct{}

func (symlinkDatasets) Fetch(_ context.Context, from, dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	return os.Symlink(strings.TrimPrefix(from, "file://"), dir)
}

// world is a session with a keeper, its stores and its machine.
type world struct {
	t           *testing.T
	dir         string
	config      agentConfig
	env         []string
	keeperStore checkpoint.Backend
	// serial and version of the current order
	serial  int64
	version string
}

// newWorld returns a session that does not end by itself within a test.
func newWorld(t *testing.T) *world {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("processes are read on Linux only")
	}
	w := &world{t: t, dir: t.TempDir(), env: os.Environ()}
	w.config = agentConfig{Mode: "host", State: filepath.Join(w.dir, "state"), Home: filepath.Join(w.dir, "home"),
		Host: session.HostConfig{
			Schema:  session.HostSchema,
			Session: "s-" + strings.ToLower(strings.NewReplacer("/", "-").Replace(t.Name())),
			Name:    "demo", Nodes: 1, Epoch: 1,
			Control: "file://" + filepath.Join(w.dir, "control"), Work: "file://" + filepath.Join(w.dir, "work"),
			WorkDir:      "~/work",
			SaveInterval: session.Duration(time.Hour), LeaseUntil: time.Now().Add(time.Hour).UTC(),
			Grace:     session.Duration(time.Second),
			SaveLimit: session.Duration(20 * time.Second)},
		Paces: Intervals{
			Poll: 100 * time.Millisecond, Tick: 50 * time.Millisecond, Flush: 100 * time.Millisecond,
			Retry: 100 * time.Millisecond, Notice: 100 * time.Millisecond, FileQuiet: 100 * time.Millisecond,
		},
	}
	must(t, os.MkdirAll(w.config.Home, 0o755))
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// agentProcess is a running agent.
type agentProcess struct {
	world *world
	cmd   *exec.Cmd
	log   string
	done  chan error
}

// start starts the agent. Its log is printed if the test fails.
func (w *world) start() *agentProcess {
	w.t.Helper()
	text, err := json.Marshal(w.config)
	must(w.t, err)
	log, err := os.CreateTemp(w.dir, "log-")
	must(w.t, err)
	m := &agentProcess{world: w, log: log.Name(), done: make(chan error, 1)}
	m.cmd = exec.Command("/proc/self/exe")
	m.cmd.Env = append(slices.Clone(w.env), "AGENT_RECIPE="+string(text))
	m.cmd.Stdout, m.cmd.Stderr = log, log
	must(w.t, m.cmd.Start())
	must(w.t, log.Close())
	go func() { m.done <- m.cmd.Wait() }()
	w.t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		_ = w.cage().Kill(context.Background())
		if w.t.Failed() {
			data, _ := os.ReadFile(m.log)
			w.t.Logf("the agent:\n%s", data)
		}
	})
	return m
}

// useNewMachine prepares the next start of the session on an empty machine.
func (w *world) useNewMachine(epoch int64) {
	w.t.Helper()
	w.config.State, w.config.Host.Epoch = filepath.Join(w.dir, fmt.Sprintf("state%d", epoch)), epoch
	must(w.t, os.RemoveAll(filepath.Join(w.config.Home, "work")))
	must(w.t, os.RemoveAll(filepath.Join(w.dir, "control")))
	w.serial, w.version, w.keeperStore = 0, "", nil
}

func (w *world) cage() ProcessTree {
	return ProcessTree{ID: w.config.Host.Session + "-" + strconv.Itoa(w.config.Host.Node)}
}

// awaitTimeout bounds waits on a busy machine.
const awaitTimeout = 3 * time.Minute

// await waits until a condition holds.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(awaitTimeout); !condition(); {
		if time.Now().After(end) {
			t.Fatalf("after %s: not %s", awaitTimeout, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// wait waits for the end of the agent.
func (m *agentProcess) wait() error {
	m.world.t.Helper()
	select {
	case err := <-m.done:
		m.done <- err
		return err
	case <-time.After(awaitTimeout):
		m.world.t.Fatalf("after %s: the agent runs", awaitTimeout)
		return nil
	}
}

func (m *agentProcess) kill() {
	m.world.t.Helper()
	must(m.world.t, m.cmd.Process.Kill())
	_ = m.wait()
}

func (m *agentProcess) isRunning() bool {
	select {
	case err := <-m.done:
		m.done <- err
		return false
	default:
		return true
	}
}

// store returns the keeper's view of the control store.
func (w *world) store() checkpoint.Backend {
	w.t.Helper()
	if w.keeperStore == nil {
		s, err := objectstore.Open(w.t.Context(), w.config.Host.Control, objectstore.Options{})
		must(w.t, err)
		w.keeperStore = s
	}
	return w.keeperStore
}

// order writes an order of the keeper.
func (w *world) order(change func(*session.Order)) {
	w.t.Helper()
	w.serial++
	o := session.Order{
		Schema: session.OrderSchema, Session: w.config.Host.Session, Epoch: w.config.Host.Epoch, Serial: w.serial,
		At: time.Now().UTC(), LeaseUntil: w.config.Host.LeaseUntil, IdleTimeout: w.config.Host.IdleTimeout,
	}
	change(&o)
	data, err := json.Marshal(o)
	must(w.t, err)
	w.version, err = w.store().Replace(w.t.Context(), orderKey, data, w.version)
	must(w.t, err)
}

// shortenLease orders a lease that ends soon and waits until the host obeys.
func (w *world) shortenLease(d time.Duration) {
	w.t.Helper()
	w.config.Host.LeaseUntil = time.Now().Add(d).UTC()
	w.order(func(o *session.Order) { o.SaveRequest = w.status(w.config.Host.Node).AnsweredSave })
	await(w.t, "under the new lease", func() bool { return w.status(w.config.Host.Node).OrderSerial == w.serial })
}

// status returns the status of a node, zero before the first.
func (w *world) status(node int) (s session.Status) {
	o, err := w.store().Get(w.t.Context(), statusKey(node), maxOrder)
	if err != nil {
		return s
	}
	must(w.t, json.Unmarshal(o.Data, &s))
	return s
}

func (w *world) phase() session.Phase { return w.status(w.config.Host.Node).Phase }

func (w *world) awaitPhase(p session.Phase) {
	w.t.Helper()
	await(w.t, "in phase "+string(p), func() bool { return w.phase() == p })
}

// events returns all events of a node in order.
func (w *world) events() (list []session.Event) {
	w.t.Helper()
	for n := int64(1); ; n++ {
		o, err := w.store().Get(w.t.Context(), eventsKey(w.config.Host.Node, n), maxOrder)
		if errors.Is(err, checkpoint.ErrNotFound) {
			return list
		}
		must(w.t, err)
		for line := range strings.Lines(string(o.Data)) {
			var e session.Event
			must(w.t, json.Unmarshal([]byte(line), &e))
			list = append(list, e)
		}
	}
}

// hasEvent reports whether an event was sent.
func (w *world) hasEvent(kind, part string) bool {
	return slices.ContainsFunc(w.events(), func(e session.Event) bool {
		return e.Kind == kind && strings.Contains(e.Text, part)
	})
}

// checkEventOrder checks that events were sent in this order, possibly with others in between.
func (w *world) checkEventOrder(want ...string) {
	w.t.Helper()
	var got []string
	next := 0
	for _, e := range w.events() {
		line := e.Kind + ": " + e.Text
		got = append(got, line)
		if next < len(want) && strings.HasPrefix(line, want[next]) {
			next++
		}
	}
	if next < len(want) {
		w.t.Errorf("no %q in order in:\n%s", want[next], strings.Join(got, "\n"))
	}
}

func (w *world) path(name string) string { return filepath.Join(w.config.Home, "work", name) }

func (w *world) write(name, text string) {
	w.t.Helper()
	must(w.t, os.WriteFile(w.path(name), []byte(text), 0o600))
}

// restoredFile restores the newest snapshot and returns one of its files.
func (w *world) restoredFile(name string) string {
	w.t.Helper()
	s, err := objectstore.Open(w.t.Context(), workURL(&w.config.Host), objectstore.Options{})
	must(w.t, err)
	to := filepath.Join(w.t.TempDir(), "restored")
	if _, err := (checkpoint.Run{Store: s, Now: time.Now}).Restore(w.t.Context(), to,
		checkpoint.RestoreOptions{}); err != nil {
		w.t.Fatalf("restore by hand: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(to, name))
	must(w.t, err)
	return string(data)
}

// spawn starts a command in the session's cage, as a connected person does.
func (w *world) spawn(script string) *exec.Cmd {
	w.t.Helper()
	c := exec.Command("/bin/sh", "-c", script)
	c.Env = os.Environ()
	must(w.t, w.cage().Start(w.t.Context(), c))
	go func() { _ = c.Wait() }()
	return c
}
