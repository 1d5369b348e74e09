package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
)

// launched runs a launch in a process of its own.
func (w *world) launched(o order) (machines []session.Machine, said string, err error) {
	w.t.Helper()
	o.Dir, o.Name = w.dir, testName
	text, err := json.Marshal(o)
	if err != nil {
		w.t.Fatal(err)
	}
	// Its output goes to a file: agents that live on would keep a pipe open.
	file, err := os.CreateTemp(w.t.TempDir(), "out")
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command("/proc/self/exe", "launch", string(text))
	cmd.Stdout, cmd.Stderr = file, file
	err = cmd.Run()
	b, _ := os.ReadFile(file.Name())
	if err == nil {
		first, _, _ := strings.Cut(string(b), "\n")
		err = json.Unmarshal([]byte(first), &machines)
	}
	return machines, string(b), err
}

// starts counts how often agents of a session were started.
func (w *world) starts(ids []string) int {
	n := 0
	for _, id := range ids {
		b, _ := os.ReadFile(filepath.Join(w.dir, "machines", id, "starts"))
		n += len(b)
	}
	return n
}

// A launch is killed after each of its steps. The next with the same token completes it, with
// one agent a machine; or it ends, and nothing is left.
func TestKilledAtEveryStep(t *testing.T) {
	w := newWorld(t)
	first := launch(cpu(2))
	machines, said, err := w.launched(order{Launch: first})
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	var steps int
	if _, err := fmt.Sscanf(said[strings.Index(said, "steps:"):], "steps: %d", &steps); err != nil || steps < 8 {
		t.Fatalf("%d steps, %v: %s", steps, err, said)
	}
	w.over(first, idsOf(machines))
	for at := 1; at <= steps; at++ {
		for i, then := range []string{"launch", "end"} {
			if os.Getenv("CURFEW_SLOW") == "" && i != at%2 {
				continue // make test-slow does both
			}
			l := launch(cpu(2), func(l *session.Launch) { l.Host.Setup = "sleep 1000" })
			_, said, err := w.launched(order{Launch: l, KillAt: at})
			if err == nil || !strings.Contains(said, "killed after") {
				t.Fatalf("step %d: it was not killed: %v, %s", at, err, said)
			}
			t.Logf("step %d of %d: %s", at, steps, said)
			where := fmt.Sprintf("step %d, %s, then %s", at, strings.TrimSpace(said), then)
			var ids []string
			if then == "launch" {
				machines, err := w.p.Launch(t.Context(), l)
				if err != nil || len(machines) != 2 {
					t.Fatalf("%s: %v, %v", where, machines, err)
				}
				w.runs(l)
				ids = idsOf(machines)
				eventually(t, where+": each agent is started", func() bool { return w.starts(ids) == 2 })
				again, err := w.p.Launch(t.Context(), l)
				if err != nil || !slices.Equal(idsOf(again), ids) {
					t.Fatalf("%s, again: %v, %v", where, again, err)
				}
				if n := w.starts(ids); n != 2 {
					t.Errorf("%s: agents were started %d times", where, n)
				}
			} else {
				for _, f := range w.find(l.Session.ID) {
					ids = append(ids, f.ID)
				}
			}
			w.over(l, ids)
			if pids := w.mentioned(); len(pids) > 0 {
				eventually(t, where+": nothing runs", func() bool { return len(w.mentioned()) == 0 })
			}
		}
	}
	w.nothing()
}

// A process that ends a session is killed after each of its steps, and another one goes on.
func TestEndKilledAtEveryStep(t *testing.T) {
	w := newWorld(t)
	first := launch(cpu(1))
	_, said, err := w.launched(order{Launch: first, End: true})
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	var steps int
	if _, err := fmt.Sscanf(said[strings.Index(said, "steps:"):], "steps: %d", &steps); err != nil {
		t.Fatal(err)
	}
	for at := 7; at <= steps; at++ { // the launch is what comes before
		l := launch(cpu(1), func(l *session.Launch) { l.Host.Setup = "sleep 1000" })
		_, said, err := w.launched(order{Launch: l, KillAt: at, End: true})
		if err == nil || !strings.Contains(said, "killed after") {
			continue // one that is quick takes fewer steps
		}
		var ids []string
		for _, f := range w.find(l.Session.ID) {
			ids = append(ids, f.ID)
		}
		w.over(l, ids)
	}
	w.nothing()
}

// Several processes launch at once: the same token is the same machines with one agent each,
// and no GPU is given twice.
func TestLaunchersAtOnce(t *testing.T) {
	w := newWorld(t)
	gpus := []Listed{{"L4", 4}}
	same := launch(l4(1, 1))
	orders := []order{{Launch: same, GPUs: gpus}, {Launch: same, GPUs: gpus}, {Launch: same, GPUs: gpus}}
	for range 4 {
		orders = append(orders, order{Launch: launch(l4(1, 1)), GPUs: gpus})
	}
	answers, errs := make([][]session.Machine, len(orders)), make([]error, len(orders))
	var wg sync.WaitGroup
	for i, o := range orders {
		wg.Go(func() { answers[i], _, errs[i] = w.launched(o) })
	}
	wg.Wait()
	refused := map[string]bool{} // by token
	for i, err := range errs {
		var exit *exec.ExitError
		switch {
		case err == nil:
		case errors.As(err, &exit) && exit.ExitCode() == 7:
			refused[orders[i].Launch.Token] = true
		default:
			t.Errorf("launch %d: %v", i, err)
		}
	}
	if len(refused) != 1 || refused[same.Token] && (errs[0] == nil || errs[1] == nil || errs[2] == nil) {
		t.Errorf("the launches %v found no GPU, want 1 of 5 for 4", refused)
	}
	for i := range 3 {
		if !slices.Equal(idsOf(answers[i]), idsOf(answers[0])) {
			t.Errorf("one token is %v and %v", answers[i], answers[0])
		}
	}
	all, err := w.p.machines()
	if err != nil || len(all) != 4 {
		t.Fatalf("%d machines, %v", len(all), err)
	}
	seen := map[string]string{}
	for _, m := range all {
		if len(m.GPUs) != 1 || seen[m.GPUs[0]] != "" {
			t.Errorf("%s has the GPUs %v, which %s has", m.ID, m.GPUs, seen[m.GPUs[0]])
		}
		seen[m.GPUs[0]] = m.ID
		var h session.HostConfig
		if _, err := readJSON(m.path(hostFile), &h); err != nil || !slices.Equal(h.GPUs, m.GPUs) || h.WholeMachine {
			t.Errorf("its agent is told of %v (%v)", h.GPUs, err)
		}
	}
	eventually(t, "each agent is started", func() bool {
		return w.starts([]string{all[0].ID, all[1].ID, all[2].ID, all[3].ID}) == 4
	})
}

// Whatever of a machine dies, it is found as it is, and ends whole.
func TestPartsDie(t *testing.T) {
	for _, tc := range []struct {
		name           string
		watcher, agent bool
	}{{"the agent", false, true}, {"the watcher", true, false}, {"both", true, true}} {
		t.Run(tc.name, func(t *testing.T) {
			w, word := newWorld(t), nap()
			l := launch(cpu(1), func(l *session.Launch) { l.Host.Setup = `(setsid sleep ` + word + ` &)` })
			machines := w.start(l)
			w.runs(l)
			pid := outside(t, word)
			m, err := openMachine(filepath.Join(w.dir, "machines", machines[0].ID))
			if err != nil {
				t.Fatal(err)
			}
			s, err := m.look()
			if err != nil {
				t.Fatal(err)
			}
			// The watcher first, which would start the agent again.
			for _, part := range []struct {
				dies bool
				p    Process
			}{{tc.watcher, s.Watcher}, {tc.agent, s.Agent}} {
				if !part.dies {
					continue
				}
				if err := errors.Join(part.p.Signal(unix.SIGKILL), part.p.wait(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			if found := w.find(l.Session.ID); len(found) != 1 || found[0].State != inventory.StateRunning {
				t.Fatalf("it is found as %+v", found)
			}
			if !running(pid) {
				t.Fatal("the work has ended with it")
			}
			if !tc.watcher {
				eventually(t, "the agent is started again", func() bool { return w.starts(idsOf(machines)) == 2 })
			} else if !tc.agent {
				if again := w.start(l); !slices.Equal(idsOf(again), idsOf(machines)) {
					t.Errorf("%v", again)
				}
				eventually(t, "it is watched again", func() bool {
					now, err := m.look()
					return err == nil && now.Watcher.Alive() && now.Agent == s.Agent
				})
			}
			w.over(l, idsOf(machines))
			ends(t, pid)
		})
	}
}

// An agent that ends by itself ends its machine, with all that runs in it. One that cannot
// live is given up.
func TestAgentEndsTheMachine(t *testing.T) {
	w, word := newWorld(t), nap()
	l := launch(cpu(1), func(l *session.Launch) {
		l.Host.Setup = `(setsid sleep ` + word + ` &) ; sleep 1`
		l.Host.Env = map[string]string{"STUB": "done"}
	})
	machines := w.start(l)
	eventually(t, "it is gone", func() bool { return len(w.find(l.Session.ID)) == 0 })
	for _, path := range []string{"/proc"} {
		all, _ := filepath.Glob(path + "/[0-9]*/cmdline")
		for _, one := range all {
			b, _ := os.ReadFile(one)
			if strings.Contains(string(b), "\x00"+word) && strings.HasPrefix(string(b), "sleep") {
				t.Errorf("%s is left", one)
			}
		}
	}
	var over ended
	if there, err := readJSON(filepath.Join(w.dir, "machines", machines[0].ID, endedFile), &over); err != nil || !there ||
		over.Why != "its agent ended it" || over.At.Before(machines[0].LaunchedAt) {
		t.Errorf("%+v, %v", over, err)
	}
	again, err := w.p.Launch(t.Context(), l)
	if err != nil || !slices.Equal(idsOf(again), idsOf(machines)) || again[0].State != inventory.StateDeleting ||
		w.starts(idsOf(machines)) != 1 {
		t.Errorf("its token: %+v, %v", again, err)
	}
	w.over(l, idsOf(machines))
	if again, err := w.p.Launch(t.Context(), l); err != nil || len(again) != 1 ||
		again[0].State != inventory.StateDeleting || len(w.find("")) != 0 {
		t.Errorf("its token, when nothing is left: %+v, %v", again, err)
	}
	other := l
	other.Host.Setup = "other"
	if _, err := w.p.Launch(t.Context(), other); !errors.Is(err, session.ErrMismatch) {
		t.Errorf("its token for another launch: %v", err)
	}
}

// After a boot nothing runs, whatever has the numbers now.
func TestAfterABoot(t *testing.T) {
	w := newWorld(t)
	l := launch(cpu(1))
	machines := w.start(l)
	w.runs(l)
	m, err := openMachine(filepath.Join(w.dir, "machines", machines[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.look()
	if err != nil {
		t.Fatal(err)
	}
	for file, p := range map[string]Process{watcherFile: s.Watcher, agentFile: s.Agent} {
		old := p
		old.Boot = "3b1c"
		if err := writeJSON(m.path(file), old); err != nil {
			t.Fatal(err)
		}
	}
	c, err := OpenCage(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	was := c.file
	c.file.Boot = "3b1c"
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	if found := w.find(l.Session.ID); len(found) != 0 {
		t.Errorf("it is found: %+v", found)
	}
	if again := w.start(l); again[0].State != inventory.StateDeleting {
		t.Errorf("its token: %+v", again)
	}
	if err := w.p.End(t.Context(), l.Session.ID, idsOf(machines)); err != nil {
		t.Error(err)
	}
	if !s.Agent.Alive() || !s.Watcher.Alive() {
		t.Fatal("a process of this boot was ended for one of another")
	}
	c.file = was
	if err := errors.Join(writeJSON(m.path(watcherFile), s.Watcher), writeJSON(m.path(agentFile), s.Agent),
		c.save()); err != nil {
		t.Fatal(err)
	}
}

// On a full disk nothing starts, and what runs can be ended.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("no disk of its own size can be mounted here: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	w := &world{t: t, dir: filepath.Join(dir, "local")}
	w.p = w.open()
	defer w.sweep()
	running := launch(cpu(1))
	machines := w.start(running)
	w.runs(running)
	fill := filepath.Join(dir, "fill")
	b := make([]byte, 1<<20)
	if err := os.WriteFile(fill, b, 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	l := launch(cpu(2))
	if machines, err := w.p.Launch(t.Context(), l); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("launched on a full disk: %v, %v", machines, err)
	}
	if found := w.find(l.Session.ID); len(found) > 0 {
		t.Errorf("left of it: %+v", found)
	}
	w.over(running, idsOf(machines))
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	machines = w.start(l)
	w.runs(l)
	w.over(l, idsOf(machines))
	w.nothing()
}
