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

// recipe is how a process of a test runs the agent.
type recipe struct {
	Host  session.HostConfig
	State string
	Home  string
	// Verb is "host" or "bootstrap".
	Verb string
	// KillAt ends the process with SIGKILL at the line of its log that begins with it.
	KillAt string
	// Ended is a file that the machine's end makes; empty: the machine stays.
	Ended string
	// Parameters, Notice and Memory are files and a folder.
	Parameters, Notice, Memory string
	Address                    string
	Paces                      Paces
	SMI                        string
}

// TestMain runs the agent where a test started this program for it.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv("AGENT_RECIPE"); ok {
		if err := cook(text); err != nil {
			fmt.Println("the agent failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The tests wait for processes most of their time, so more of them run at once than
	// there are CPUs.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// slow leaves a test to make test-slow.
func slow(t *testing.T) {
	t.Helper()
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("make test-slow runs it")
	}
}

func cook(text string) error {
	var r recipe
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
		Host: r.Host, State: r.State, Home: r.Home, Control: control, Cage: Tree{
			ID: r.Host.Session + "-" + strconv.Itoa(r.Host.Node),
		},
		Work: func(ctx context.Context, url string) (checkpoint.Backend, error) {
			return objectstore.Open(ctx, url, objectstore.Options{})
		},
		Now: time.Now, Uptime: bootTime, Environ: slices.DeleteFunc(os.Environ(), func(v string) bool {
			return strings.HasPrefix(v, "AGENT_RECIPE=")
		}),
		Memory: r.Memory, Address: r.Address, Paces: r.Paces, GPUs: SMI{Command: r.SMI}, Datasets: linked{},
		Log: func(line string) {
			fmt.Println(line)
			if r.KillAt != "" && strings.HasPrefix(line, r.KillAt) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		},
	}
	if r.Ended != "" {
		o.Ender = endFile(r.Ended)
	}
	if r.Parameters != "" {
		o.Parameters = parameterFile(r.Parameters)
	}
	if r.Notice != "" {
		o.Notices = noticeFile(r.Notice)
	}
	if r.Verb == "bootstrap" {
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

// endFile is a machine that goes: its end is a file.
type endFile string

func (f endFile) End(context.Context) error { return os.WriteFile(string(f), nil, 0o600) }

// parameterFile is a store of parameters, as JSON.
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

// noticeFile holds the time of a notice.
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

// linked brings datasets by links.
type linked struct{}

func (linked) Fetch(_ context.Context, from, dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	return os.Symlink(strings.TrimPrefix(from, "file://"), dir)
}

// world is a session with a keeper, its stores and its machine.
type world struct {
	t    *testing.T
	dir  string
	r    recipe
	env  []string
	keep checkpoint.Backend
	// serial and version are of the order.
	serial  int64
	version string
}

// newWorld makes a session that never rests long enough and whose lease is far.
func newWorld(t *testing.T) *world {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("processes are read on Linux only")
	}
	w := &world{t: t, dir: t.TempDir(), env: os.Environ()}
	w.r = recipe{Verb: "host", State: filepath.Join(w.dir, "state"), Home: filepath.Join(w.dir, "home"),
		Host: session.HostConfig{
			Schema: session.HostSchema, Session: "s-" + strings.ToLower(strings.NewReplacer("/", "-").Replace(t.Name())),
			Name: "demo", Nodes: 1, Epoch: 1,
			Control: "file://" + filepath.Join(w.dir, "control"), Work: "file://" + filepath.Join(w.dir, "work"),
			WorkDir:      "~/work",
			SaveInterval: session.Duration(time.Hour), LeaseUntil: time.Now().Add(time.Hour).UTC(), Grace: session.Duration(time.Second),
			SaveLimit: session.Duration(20 * time.Second)},
		Paces: Paces{
			Poll: 100 * time.Millisecond, Tick: 50 * time.Millisecond, Flush: 100 * time.Millisecond,
			Retry: 100 * time.Millisecond, Notice: 100 * time.Millisecond, Quiet: 100 * time.Millisecond,
		},
	}
	must(t, os.MkdirAll(w.r.Home, 0o755))
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// machine is an agent that runs.
type machine struct {
	w    *world
	c    *exec.Cmd
	log  string
	done chan error
}

// start starts the agent; what it logs is shown where the test fails.
func (w *world) start() *machine {
	w.t.Helper()
	text, err := json.Marshal(w.r)
	must(w.t, err)
	log, err := os.CreateTemp(w.dir, "log-")
	must(w.t, err)
	m := &machine{w: w, log: log.Name(), done: make(chan error, 1)}
	m.c = exec.Command("/proc/self/exe")
	m.c.Env = append(slices.Clone(w.env), "AGENT_RECIPE="+string(text))
	m.c.Stdout, m.c.Stderr = log, log
	must(w.t, m.c.Start())
	must(w.t, log.Close())
	go func() { m.done <- m.c.Wait() }()
	w.t.Cleanup(func() {
		_ = m.c.Process.Kill()
		_ = w.cage().Kill(context.Background())
		if w.t.Failed() {
			data, _ := os.ReadFile(m.log)
			w.t.Logf("the agent:\n%s", data)
		}
	})
	return m
}

// onNewMachine readies the next start of the session, on a machine with nothing.
func (w *world) onNewMachine(epoch int64) {
	w.t.Helper()
	w.r.State, w.r.Host.Epoch = filepath.Join(w.dir, fmt.Sprintf("state%d", epoch)), epoch
	must(w.t, os.RemoveAll(filepath.Join(w.r.Home, "work")))
	must(w.t, os.RemoveAll(filepath.Join(w.dir, "control")))
	w.serial, w.version, w.keep = 0, "", nil
}

func (w *world) cage() Tree { return Tree{ID: w.r.Host.Session + "-" + strconv.Itoa(w.r.Host.Node)} }

// patience is how long something may take on a machine with much else to do.
const patience = 3 * time.Minute

// await waits until something is so.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); {
		if time.Now().After(end) {
			t.Fatalf("after %s: not %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ends waits for the end of the agent.
func (m *machine) ends() error {
	m.w.t.Helper()
	select {
	case err := <-m.done:
		m.done <- err
		return err
	case <-time.After(patience):
		m.w.t.Fatalf("after %s: the agent runs", patience)
		return nil
	}
}

func (m *machine) kill() {
	m.w.t.Helper()
	must(m.w.t, m.c.Process.Kill())
	_ = m.ends()
}

func (m *machine) runs() bool {
	select {
	case err := <-m.done:
		m.done <- err
		return false
	default:
		return true
	}
}

// store opens what the keeper sees.
func (w *world) store() checkpoint.Backend {
	w.t.Helper()
	if w.keep == nil {
		s, err := objectstore.Open(w.t.Context(), w.r.Host.Control, objectstore.Options{})
		must(w.t, err)
		w.keep = s
	}
	return w.keep
}

// order writes an order of the keeper, on top of what the host was told.
func (w *world) order(change func(*session.Order)) {
	w.t.Helper()
	w.serial++
	o := session.Order{
		Schema: session.OrderSchema, Session: w.r.Host.Session, Epoch: w.r.Host.Epoch, Serial: w.serial,
		At: time.Now().UTC(), LeaseUntil: w.r.Host.LeaseUntil, IdleTimeout: w.r.Host.IdleTimeout,
	}
	change(&o)
	data, err := json.Marshal(o)
	must(w.t, err)
	w.version, err = w.store().Replace(w.t.Context(), orderKey, data, w.version)
	must(w.t, err)
}

// leaseIn orders a lease that is over soon, and waits until the host goes by it.
func (w *world) leaseIn(d time.Duration) {
	w.t.Helper()
	w.r.Host.LeaseUntil = time.Now().Add(d).UTC()
	w.order(func(o *session.Order) { o.SaveRequest = w.status(w.r.Host.Node).AnsweredSave })
	await(w.t, "under the new lease", func() bool { return w.status(w.r.Host.Node).OrderSerial == w.serial })
}

// status reads what a node says; the zero status where it said nothing.
func (w *world) status(node int) (s session.Status) {
	o, err := w.store().Get(w.t.Context(), statusKey(node), maxOrder)
	if err != nil {
		return s
	}
	must(w.t, json.Unmarshal(o.Data, &s))
	return s
}

func (w *world) phase() session.Phase { return w.status(w.r.Host.Node).Phase }

func (w *world) awaitPhase(p session.Phase) {
	w.t.Helper()
	await(w.t, "in phase "+string(p), func() bool { return w.phase() == p })
}

// events are all that a node sent, in order.
func (w *world) events() (list []session.Event) {
	w.t.Helper()
	for n := int64(1); ; n++ {
		o, err := w.store().Get(w.t.Context(), eventsKey(w.r.Host.Node, n), maxOrder)
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

// saw says whether an event was sent.
func (w *world) saw(kind, part string) bool {
	return slices.ContainsFunc(w.events(), func(e session.Event) bool {
		return e.Kind == kind && strings.Contains(e.Text, part)
	})
}

// inOrder checks that events were sent one after the other, others between them.
func (w *world) inOrder(want ...string) {
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

func (w *world) path(name string) string { return filepath.Join(w.r.Home, "work", name) }

func (w *world) write(name, text string) {
	w.t.Helper()
	must(w.t, os.WriteFile(w.path(name), []byte(text), 0o600))
}

// snapshots restores the newest snapshot of a node by hand, and returns a file of it.
func (w *world) restored(name string) string {
	w.t.Helper()
	s, err := objectstore.Open(w.t.Context(), workURL(&w.r.Host), objectstore.Options{})
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

// spawn starts a command in the cage of the session, as a person does who connects.
func (w *world) spawn(script string) *exec.Cmd {
	w.t.Helper()
	c := exec.Command("/bin/sh", "-c", script)
	c.Env = os.Environ()
	must(w.t, w.cage().Start(w.t.Context(), c))
	go func() { _ = c.Wait() }()
	return c
}
