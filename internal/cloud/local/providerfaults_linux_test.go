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

// launchInChild runs a launch in another process.
func (w *world) launchInChild(o childOrder) (machines []session.Machine, said string, err error) {
	w.t.Helper()
	o.Dir, o.Name = w.dir, testName
	text, err := json.Marshal(o)
	if err != nil {
		w.t.Fatal(err)
	}
	// Output goes to a file, because surviving agents would hold a pipe open.
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

// agentStarts counts the starts of a session's agents.
func (w *world) agentStarts(ids []string) int {
	n := 0
	for _, id := range ids {
		b, _ := os.ReadFile(filepath.Join(w.dir, "machines", id, "starts"))
		n += len(b)
	}
	return n
}

// TestLaunchKilledAtEveryStep kills a launch after each step. The next launch with the token
// completes it with one agent per machine, or it is ended without leftovers.
func TestLaunchKilledAtEveryStep(t *testing.T) {
	w := newWorld(t)
	first := launch(cpu(2))
	machines, said, err := w.launchInChild(childOrder{Launch: first})
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	var steps int
	if _, err := fmt.Sscanf(said[strings.Index(said, "steps:"):], "steps: %d", &steps); err != nil || steps < 8 {
		t.Fatalf("%d steps, %v: %s", steps, err, said)
	}
	w.endAndCheck(first, idsOf(machines))
	for at := 1; at <= steps; at++ {
		for i, then := range []string{"launch", "end"} {
			if os.Getenv("CURFEW_SLOW") == "" && i != at%2 {
				continue // make test-slow does both
			}
			l := launch(cpu(2), func(l *session.Launch) { l.Host.Setup = "sleep 1000" })
			_, said, err := w.launchInChild(childOrder{Launch: l, KillAt: at})
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
				w.waitRunning(l)
				ids = idsOf(machines)
				eventually(t, where+": each agent is started", func() bool { return w.agentStarts(ids) == 2 })
				again, err := w.p.Launch(t.Context(), l)
				if err != nil || !slices.Equal(idsOf(again), ids) {
					t.Fatalf("%s, again: %v, %v", where, again, err)
				}
				if n := w.agentStarts(ids); n != 2 {
					t.Errorf("%s: agents were started %d times", where, n)
				}
			} else {
				for _, f := range w.find(l.Session.ID) {
					ids = append(ids, f.ID)
				}
			}
			w.endAndCheck(l, ids)
			if pids := w.processesInFolder(); len(pids) > 0 {
				eventually(t, where+": nothing runs", func() bool { return len(w.processesInFolder()) == 0 })
			}
		}
	}
	w.checkNothingLeft()
}

// TestEndKilledAtEveryStep kills the end of a session after each step, and another process
// continues.
func TestEndKilledAtEveryStep(t *testing.T) {
	w := newWorld(t)
	first := launch(cpu(1))
	_, said, err := w.launchInChild(childOrder{Launch: first, End: true})
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	var steps int
	if _, err := fmt.Sscanf(said[strings.Index(said, "steps:"):], "steps: %d", &steps); err != nil {
		t.Fatal(err)
	}
	for at := 7; at <= steps; at++ { // the earlier steps belong to the launch
		l := launch(cpu(1), func(l *session.Launch) { l.Host.Setup = "sleep 1000" })
		_, said, err := w.launchInChild(childOrder{Launch: l, KillAt: at, End: true})
		if err == nil || !strings.Contains(said, "killed after") {
			continue // a fast run takes fewer steps
		}
		var ids []string
		for _, f := range w.find(l.Session.ID) {
			ids = append(ids, f.ID)
		}
		w.endAndCheck(l, ids)
	}
	w.checkNothingLeft()
}

// TestConcurrentLaunches checks that one token yields the same machines with one agent each, and
// that no GPU is given twice.
func TestConcurrentLaunches(t *testing.T) {
	w := newWorld(t)
	gpus := []ConfiguredGPU{{"L4", 4}}
	same := launch(l4(1, 1))
	orders := []childOrder{{Launch: same, GPUs: gpus}, {Launch: same, GPUs: gpus}, {Launch: same, GPUs: gpus}}
	for range 4 {
		orders = append(orders, childOrder{Launch: launch(l4(1, 1)), GPUs: gpus})
	}
	answers, errs := make([][]session.Machine, len(orders)), make([]error, len(orders))
	var wg sync.WaitGroup
	for i, o := range orders {
		wg.Go(func() { answers[i], _, errs[i] = w.launchInChild(o) })
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
		return w.agentStarts([]string{all[0].ID, all[1].ID, all[2].ID, all[3].ID}) == 4
	})
}

// TestSurvivesDeadParts kills each part of a machine: its state is reported correctly and it ends
// completely.
func TestSurvivesDeadParts(t *testing.T) {
	for _, tc := range []struct {
		name           string
		watcher, agent bool
	}{{"the agent", false, true}, {"the watcher", true, false}, {"both", true, true}} {
		t.Run(tc.name, func(t *testing.T) {
			w, word := newWorld(t), uniqueSleep()
			l := launch(cpu(1), func(l *session.Launch) { l.Host.Setup = `(setsid sleep ` + word + ` &)` })
			machines := w.start(l)
			w.waitRunning(l)
			pid := pidByWord(t, word)
			m, err := openMachine(filepath.Join(w.dir, "machines", machines[0].ID))
			if err != nil {
				t.Fatal(err)
			}
			s, err := m.readState()
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
			if !isRunning(pid) {
				t.Fatal("the work has ended with it")
			}
			if !tc.watcher {
				eventually(t, "the agent is started again", func() bool { return w.agentStarts(idsOf(machines)) == 2 })
			} else if !tc.agent {
				if again := w.start(l); !slices.Equal(idsOf(again), idsOf(machines)) {
					t.Errorf("%v", again)
				}
				eventually(t, "it is watched again", func() bool {
					now, err := m.readState()
					return err == nil && now.Watcher.Alive() && now.Agent == s.Agent
				})
			}
			w.endAndCheck(l, idsOf(machines))
			waitGone(t, pid)
		})
	}
}

// TestAgentExitEndsMachine checks that an agent's exit ends its machine, and that an agent that
// keeps crashing is given up.
func TestAgentExitEndsMachine(t *testing.T) {
	w, word := newWorld(t), uniqueSleep()
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
	if there, err := readJSON(filepath.Join(w.dir, "machines", machines[0].ID, endedFile), &over); err != nil ||
		!there ||
		over.Why != "its agent ended it" || over.At.Before(machines[0].LaunchedAt) {
		t.Errorf("%+v, %v", over, err)
	}
	again, err := w.p.Launch(t.Context(), l)
	if err != nil || !slices.Equal(idsOf(again), idsOf(machines)) || again[0].State != inventory.StateDeleting ||
		w.agentStarts(idsOf(machines)) != 1 {
		t.Errorf("its token: %+v, %v", again, err)
	}
	w.endAndCheck(l, idsOf(machines))
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

// TestMachinesEndAtBoot checks that reused PIDs are ignored after a boot.
func TestMachinesEndAtBoot(t *testing.T) {
	w := newWorld(t)
	l := launch(cpu(1))
	machines := w.start(l)
	w.waitRunning(l)
	m, err := openMachine(filepath.Join(w.dir, "machines", machines[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.readState()
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

func TestFullDiskBlocksLaunchOnly(t *testing.T) {
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
	defer w.killAll()
	running := launch(cpu(1))
	machines := w.start(running)
	w.waitRunning(running)
	fill := filepath.Join(dir, "fill")
	b := make([]byte, 1<<20)
	if err := os.WriteFile(fill, b, 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	l := launch(cpu(1))
	if machines, err := w.p.Launch(t.Context(), l); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("launched on a full disk: %v, %v", machines, err)
	}
	if found := w.find(l.Session.ID); len(found) > 0 {
		t.Errorf("left of it: %+v", found)
	}
	w.endAndCheck(running, idsOf(machines))
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	machines = w.start(l)
	w.waitRunning(l)
	w.endAndCheck(l, idsOf(machines))
	w.checkNothingLeft()
}
