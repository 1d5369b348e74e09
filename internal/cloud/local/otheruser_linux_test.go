package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/test/otheruser"
)

// launchAsUser runs a launch as a Unix user who executes a script.
func launchAsUser(u otheruser.User, script string) func(*session.Launch) {
	return func(l *session.Launch) {
		l.Session.RunAs, l.Session.Provider = u.Name, CloudName
		l.Host.Setup = script
		l.Host.Env = map[string]string{"HOME": "/", "WORD": "given"}
	}
}

// newServedWorld returns a machine that runs sessions of other users.
func newServedWorld(t *testing.T, change ...func(*ProviderOptions)) *world {
	t.Helper()
	shared := otheruser.Shared(t)
	return newWorld(
		t,
		append(
			[]func(*ProviderOptions){func(o *ProviderOptions) { o.Sessions = filepath.Join(shared, "sessions") }},
			change...)...)
}

// machine returns the only machine of a launch.
func (w *world) machine(ms []session.Machine) *machine {
	w.t.Helper()
	m, err := openMachine(filepath.Join(w.dir, "machines", ms[0].ID))
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// runInMachine runs a shell command in a machine and returns its output.
func (w *world) runInMachine(id, line string) string {
	w.t.Helper()
	c := exec.Command("/bin/sh", "-c", line)
	in, err := w.p.Inside(id)
	if err != nil {
		w.t.Fatal(err)
	}
	c.Env, c.Dir = in.Environ(os.Environ()), "/"
	var out strings.Builder
	c.Stdout, c.Stderr = struct{ *strings.Builder }{&out}, struct{ *strings.Builder }{&out}
	if err := w.p.Enter(w.t.Context(), id, c); err != nil {
		w.t.Fatal(err)
	}
	_ = c.Wait() // the output shows how it ended
	return strings.TrimSpace(out.String())
}

// TestIsolatesSessionsOfOtherUsers checks that a session has its own user, groups, home and
// variables, and cannot reach the service, watchers or other sessions.
func TestIsolatesSessionsOfOtherUsers(t *testing.T) {
	one, two := otheruser.Two(t)
	t.Setenv("OIDC_CLIENT_SECRET", "hush")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hush")
	t.Setenv("CURFEW_DATABASE_URL", "postgres://x:hush@db/x")
	w := newServedWorld(t)
	for name, text := range map[string]string{"curfew.db": "state", "owner-token": "hush", "curfew.yaml": "config"} {
		if err := errors.Join(os.MkdirAll(w.dir, 0o700), os.WriteFile(filepath.Join(w.dir, name), []byte(text),
			0o600)); err != nil {
			t.Fatal(err)
		}
	}
	mine, theirs := launch(cpu(1), launchAsUser(one, "sleep 1000")), launch(cpu(1),
		launchAsUser(two, "echo theirs > secret; sleep 1000"))
	first, second := w.start(mine), w.start(theirs)
	w.waitRunning(mine)
	w.waitRunning(theirs)
	m, other := w.machine(first), w.machine(second)
	id := m.ID
	if got := w.runInMachine(id, "id -u; id -G; id -un"); got != fmt.Sprintf("%d\n%d\n%s",
		one.UID, one.GID, one.Name) {
		t.Errorf("it is %q", got)
	}
	env := w.runInMachine(id, "env")
	for _, v := range strings.Fields(env) {
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains(
			slices.Concat(
				sessionVariables,
				userVariables,
				[]string{"PWD", "OLDPWD", "SHLVL", "_", CageVariable, "CUDA_VISIBLE_DEVICES"},
			),
			name,
		) {
			t.Errorf("its environment has %s", v)
		}
	}
	if strings.Contains(env, "hush") || !strings.Contains(env, "HOME="+m.userTree().path(HomeDir)) ||
		!strings.Contains(env, "USER="+one.Name) {
		t.Errorf("its environment is\n%s", env)
	}
	if got := w.runInMachine(id, "echo x > $HOME/file && stat -c %u $HOME/file"); got != strconv.Itoa(one.UID) {
		t.Errorf("its home: %q", got)
	}
	s, err := m.readState()
	if err != nil {
		t.Fatal(err)
	}
	o, err := other.readState()
	if err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(m.path(recordFile))
	denied := func(what, line string) {
		t.Helper()
		if got := w.runInMachine(id, line+" 2>/dev/null && echo reached"); strings.Contains(got, "reached") {
			t.Errorf("%s: %q", what, got)
		}
	}
	denied("the state", "cat "+filepath.Join(w.dir, "curfew.db"))
	denied("the owner's token", "cat "+filepath.Join(w.dir, "owner-token"))
	denied("the configuration", "cat "+filepath.Join(w.dir, "curfew.yaml"))
	denied("the folder of the state", "ls "+w.dir)
	denied("its own record", "echo {} > "+m.path(recordFile))
	denied("its end", "echo {} > "+m.path(endedFile))
	denied("the other's files", "cat "+other.userTree().path("home/secret"))
	denied("the other's folder", "ls "+other.userTree().path(""))
	denied("the other's documents", "ls "+filepath.Join(w.p.options.Sessions, theirs.Session.ID, controlName))
	denied("the names of sessions", "ls "+w.p.options.Sessions)
	denied("a folder next to its own", "mkdir "+filepath.Join(w.p.options.Sessions, "x"))
	for what, pid := range map[string]int{
		"the service": os.Getpid(), "the watcher": s.Watcher.PID, "the other's agent": o.Agent.PID,
		"the other's watcher": o.Watcher.PID,
	} {
		denied("the environment of "+what, fmt.Sprintf("cat /proc/%d/environ", pid))
		denied("the memory of "+what, fmt.Sprintf("head -c 1 /proc/%d/mem", pid))
		denied("the descriptors of "+what, fmt.Sprintf("ls /proc/%d/fd/", pid))
		for _, sig := range []string{"STOP", "KILL", "TERM", "0"} {
			denied("a signal to "+what, fmt.Sprintf("kill -%s %d", sig, pid))
		}
		for _, group := range []string{procs, subgroup(m.groupOf(t), procs)} {
			if filepath.IsAbs(group) {
				denied("to move "+what+" into its control group", fmt.Sprintf("echo %d > %s", pid, group))
			}
		}
	}
	// It may stop and read its own agent, which holds no secrets of the service.
	if got := w.runInMachine(id, fmt.Sprintf("tr '\\0' '\\n' < /proc/%d/environ", s.Agent.PID)); strings.Contains(
		got,
		"hush",
	) ||
		!strings.Contains(got, "HOME=") {
		t.Errorf("the environment of its agent: %q", got)
	}
	for _, limit := range []string{"memory.max", "memory.limit_in_bytes", "pids.max", "cgroup.subtree_control"} {
		c, err := OpenCage(m.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{
			c.file.MachineGroup, c.file.Path, c.file.Memory, subgroup(c.file.Memory, cageGroup), c.file.Processes,
			subgroup(c.file.Processes, cageGroup),
		} {
			if _, err := os.Stat(filepath.Join(dir, limit)); dir != "" && err == nil {
				denied("its limits", "echo max > "+filepath.Join(dir, limit))
			}
		}
		denied("to leave its control group", "echo $$ > "+filepath.Join(filepath.Dir(c.file.MachineGroup), procs))
	}
	if after, _ := os.ReadFile(m.path(recordFile)); string(after) != string(before) {
		t.Error("its record changed")
	}
	w.endAndCheck(mine, idsOf(first))
	if found := w.find(theirs.Session.ID); len(found) != 1 {
		t.Errorf("the other session: %+v", found)
	}
	w.endAndCheck(theirs, idsOf(second))
	if left, _ := os.ReadDir(w.p.options.Sessions); slices.ContainsFunc(
		left,
		func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), "work-") },
	) {
		t.Errorf("left of the sessions: %v", left)
	}
}

// groupOf returns the control group of a machine's processes.
func (m *machine) groupOf(t *testing.T) string {
	t.Helper()
	c, err := OpenCage(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	return c.file.Path
}

// TestRefusesUnusableUsers checks the users that no session may run as, and that failed launches
// leave nothing behind.
func TestRefusesUnusableUsers(t *testing.T) {
	one := otheruser.One(t)
	w := newServedWorld(t)
	for _, name := range []string{"no-such-user", "../root", "root\n", "-x", "#0"} {
		l := launch(cpu(1), launchAsUser(otheruser.User{Name: name}, "true"))
		if m, err := w.p.Launch(t.Context(), l); name != "#0" && !errors.Is(err, session.ErrUnsupported) {
			t.Errorf("as %q: %v, %v", name, m, err)
			w.endAndCheck(l, idsOf(m))
		} else if err == nil {
			w.endAndCheck(l, idsOf(m)) // the current user by its number
		}
	}
	if _, err := LookupUser(t.Context(), "root"); err == nil {
		t.Error("root is a user of sessions")
	}
	// World-writable folders and folders of other users are refused.
	for name, spoil := range map[string]func(dir string) error{
		"writable": func(dir string) error { return errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o777)) },
		"another's": func(dir string) error {
			return errors.Join(os.MkdirAll(dir, 0o700), os.Chown(dir, one.UID, one.GID))
		},
		"below a writable one": func(dir string) error {
			return errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(filepath.Dir(dir), 0o777))
		},
		"a link": func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), os.Symlink(one.Home, dir))
		},
	} {
		w := newServedWorld(t)
		if err := spoil(w.p.options.Sessions); err != nil {
			t.Fatal(err)
		}
		if m, err := w.p.Launch(t.Context(), launch(cpu(1), launchAsUser(one, "true"))); err == nil {
			t.Errorf("%s: %v", name, m)
		}
		w.checkNothingLeft()
	}
	// Only root can change its user.
	if out, err := one.Command(t.Context(), []string{"LAUNCH_DIR=" + filepath.Join(one.Home, "local")},
		otheruser.Program(t, "/proc/self/exe"), "launch-as", "daemon").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "cannot run as its user") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestEndsStoppedAgentsOfOtherUsers checks that neither a stopped agent nor forged documents keep a
// session alive: its watcher ends it after its lease, and the service can.
func TestEndsStoppedAgentsOfOtherUsers(t *testing.T) {
	one := otheruser.One(t)
	w := newServedWorld(t)
	// By the service.
	l := launch(cpu(1), launchAsUser(one, `sleep 1000 & while :; do kill -STOP $PPID; sleep 0.1; done`))
	machines := w.start(l)
	w.waitRunning(l)
	m := w.machine(machines)
	s, err := m.readState()
	if err != nil {
		t.Fatal(err)
	}
	w.runInMachine(m.ID, fmt.Sprintf("kill -STOP %d", s.Agent.PID))
	eventually(
		t,
		"its agent is stopped",
		func() bool { st, err := statOf(s.Agent.PID); return err == nil && st.state == 'T' },
	)
	w.endAndCheck(l, idsOf(machines))
	// By the watcher alone. A forged order does not extend the lease.
	l = launch(cpu(1), launchAsUser(one, `sleep 1000`), func(l *session.Launch) {
		l.Session.LeaseUntil = time.Now().Add(2 * time.Second)
		l.Host.LeaseUntil, l.Host.EndTimeout = l.Session.LeaseUntil, session.Duration(3*time.Second)
		l.Host.Control = "file://" + filepath.Join(w.p.options.Sessions, l.Session.ID, controlName)
	})
	machines = w.start(l)
	m = w.machine(machines)
	eventually(t, "its agent runs", func() bool { s, err = m.readState(); return err == nil && s.Agent.Alive() })
	order, _ := json.Marshal(
		session.Order{
			Schema:     session.OrderSchema,
			Session:    l.Session.ID,
			Serial:     99,
			LeaseUntil: time.Now().AddDate(1, 0, 0),
		},
	)
	control := filepath.Join(w.p.options.Sessions, l.Session.ID, controlName)
	if _, code := one.Sh(t, fmt.Sprintf("kill -STOP %d; printf '%%s' '%s' > %s/order.json", s.Agent.PID, order,
		control)); code != 0 {
		t.Fatal("its user cannot write its documents")
	}
	eventually(
		t,
		"its watcher has ended it",
		func() bool { over, err := m.readState(); return err == nil && over.State == "" },
	)
	s, err = m.readState()
	if err != nil || s.Ended.Why != leaseEndReason || s.Ended.At.Before(l.Session.LeaseUntil.Add(3*time.Second)) {
		t.Errorf("%+v, %v; its lease is until %s", s.Ended, err, l.Session.LeaseUntil)
	}
	w.endAndCheck(l, idsOf(machines))
}

// TestEndsStoppedWatcher checks that an unresponsive watcher ends with its machine.
func TestEndsStoppedWatcher(t *testing.T) {
	clock := time.Now
	w := newWorld(t)
	var later time.Duration
	w.p = w.open(func(o *ProviderOptions) { o.Now = func() time.Time { return clock().Add(later) } })
	l := launch(cpu(1), func(l *session.Launch) { l.Host.Setup = "sleep 1000" })
	machines := w.start(l)
	w.waitRunning(l)
	m := w.machine(machines)
	s, err := m.readState()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Process{s.Watcher, s.Agent} {
		if err := p.Signal(unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.p.End(t.Context(), l.Session.ID, idsOf(machines)); err != nil {
		t.Fatal(err)
	}
	if found := w.find(l.Session.ID); len(found) != 1 {
		t.Fatalf("a stopped watcher has ended it: %+v", found)
	}
	later = 2*agentEndTimeout + time.Second
	w.endAndCheck(l, idsOf(machines))
	if s.Watcher.Alive() || s.Agent.Alive() {
		t.Error("its watcher or its agent is left")
	}
}

// TestIgnoresLinksOfOtherUsers replaces files that the service reads, writes, moves and removes
// by links: none leads outside of the session's folder.
func TestIgnoresLinksOfOtherUsers(t *testing.T) {
	one, two := otheruser.Two(t)
	w := newServedWorld(t)
	control := func(l *session.Launch) {
		l.Host.Control = "file://" + filepath.Join(w.p.options.Sessions, l.Session.ID, controlName)
	}
	mine, theirs := launch(cpu(1), launchAsUser(one, "sleep 1000"), control), launch(cpu(1),
		launchAsUser(two, "sleep 1000"), control)
	first, second := w.start(mine), w.start(theirs)
	w.waitRunning(mine)
	w.waitRunning(theirs)
	m, other := w.machine(first), w.machine(second)
	secret := filepath.Join(w.dir, "secret")
	if err := os.WriteFile(secret, []byte(`{"session":"`+mine.Session.ID+`","phase":"ending","why":"hush"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	s := &session.Session{
		ID:            mine.Session.ID,
		Name:          "demo",
		Provider:      CloudName,
		RunAs:         one.Name,
		Epoch:         1,
		OrderSerial:   5,
		ControlPrefix: mine.Host.Control,
	}
	at, ok := w.p.Control(s)
	if !ok {
		t.Fatal("it has no documents")
	}
	give := func() error {
		o, err := at.Get(t.Context(), session.OrderFile, 1<<20)
		if err != nil {
			o.Version = ""
		}
		_, err = at.Replace(
			t.Context(),
			session.OrderFile,
			[]byte(`{"session":"x","serial":`+strconv.Itoa(int(time.Now().UnixNano()))+`}`),
			o.Version,
		)
		return err
	}
	folder := filepath.Join(w.p.options.Sessions, mine.Session.ID)
	victim := filepath.Join(w.p.options.Sessions, theirs.Session.ID)
	sh := func(line string) {
		t.Helper()
		if out, code := one.Sh(t, "cd "+folder+" && "+line); code != 0 {
			t.Fatalf("%s: %s", line, out)
		}
	}
	for _, c := range []struct{ name, line string }{
		{"a link to a secret", "rm -rf control && mkdir control && ln -s " + secret + " control/status-0.json"},
		{"a pipe", "rm -rf control && mkdir control && mkfifo control/status-0.json"},
		{"a folder", "rm -rf control && mkdir -p control/status-0.json control/order.json"},
		{"a sparse file", "rm -rf control && mkdir control && truncate -s 1T control/status-0.json"},
		{"a link to the folder of the state", "rm -rf control && ln -s " + w.dir + " control"},
		{
			"a link to the other's documents",
			"rm -rf control && ln -s " + filepath.Join(victim, controlName) + " control",
		},
		{"a link in its own folder", "rm -rf control && ln -s ../" + theirs.Session.ID + "/control control"},
		{"no folder", "rm -rf control"},
		{"a folder of no one", "rm -rf control && mkdir control && chmod 0 control"},
	} {
		sh(c.line)
		began := time.Now()
		if o, err := at.Get(t.Context(), "status-0.json", 1<<20); err == nil {
			t.Errorf("%s: its status is %.100q", c.name, o.Data)
		}
		if err := give(); err != nil {
			t.Errorf("%s: an order cannot be given: %v", c.name, err)
		}
		if _, known := m.lastStatus(t.Context()); known {
			t.Errorf("%s: it is taken for a status", c.name)
		}
		if took := time.Since(began); took > 2*readTimeout {
			t.Errorf("%s: it took %s", c.name, took)
		}
		for _, file := range []string{
			filepath.Join(w.dir, session.OrderFile), filepath.Join(victim, controlName, session.OrderFile),
		} {
			if _, err := os.Lstat(file); err == nil {
				t.Errorf("%s: %s was written", c.name, file)
			}
		}
		sh("chmod -f 700 control || true")
	}
	// Once its folder is repaired, the order is in it after the next poll.
	sh("rm -rf control && mkdir control")
	if _, err := at.Get(t.Context(), session.OrderFile, 1<<20); err != nil {
		t.Error(err)
	}
	if got, code := one.Sh(t, "cat "+filepath.Join(folder, controlName, session.OrderFile)); code != 0 ||
		!strings.Contains(got, `"session":"x"`) {
		t.Errorf("the order is %q", got)
	}
	// Preserved files are the session's own, whatever is in their place now.
	if _, err := w.p.PreserveFiles(t.Context(), mine.Session.ID, idsOf(first)); err != nil {
		t.Fatal(err)
	}
	sh("mv " + m.ID + " away && ln -s ../" + theirs.Session.ID + "/" + other.ID + " " + m.ID)
	if err := w.p.End(t.Context(), mine.Session.ID, idsOf(first)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is gone", func() bool { return len(w.find(mine.Session.ID)) == 0 })
	_, _ = w.p.Leftovers(t.Context(), "inst", mine.Session.ID) // a link must not expose files of others
	if _, err := os.Stat(other.userTree().path(HomeDir)); err != nil {
		t.Errorf("the home of another session: %v", err)
	}
	w.endAndCheck(theirs, idsOf(second))
	if err := removeTree(context.Background(), folder, m.User); err != nil {
		t.Error(err)
	}
}

// TestContainsForkBombs checks that a session at its limit of processes or memory does not affect
// others, and ends.
func TestContainsForkBombs(t *testing.T) {
	one, two := otheruser.Two(t)
	w := newServedWorld(t, func(o *ProviderOptions) { o.Limits = LimitOptions{Processes: 40, MemoryMiB: 256} })
	bomb := launch(cpu(1), launchAsUser(one, `while :; do (while :; do sleep 1000 & done) & done; sleep 1000`))
	calm := launch(cpu(1), launchAsUser(two, "sleep 1000"))
	first, second := w.start(bomb), w.start(calm)
	w.waitRunning(bomb)
	w.waitRunning(calm)
	m := w.machine(first)
	c, err := OpenCage(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	if notes := c.Limits(); len(notes) > 0 {
		t.Skipf("no controllers here: %v", notes)
	}
	counts := subgroup(c.file.Processes, cageGroup)
	if counts == "" {
		counts = c.file.Path
	}
	eventually(t, "it came to its limit", func() bool {
		b, err := os.ReadFile(filepath.Join(counts, "pids.events"))
		return err == nil && !strings.HasPrefix(string(b), "max 0\n")
	})
	if pids, err := c.Processes(); err != nil || len(pids) > 40 {
		t.Errorf("%d processes, its limit is 40: %v", len(pids), err)
	}
	if got := w.runInMachine(second[0].ID, "echo $(($(seq 100 | wc -l)+1))"); got != "101" {
		t.Errorf("the other session: %q", got)
	}
	if out, code := one.Sh(t, "sh -c 'sleep 0.01 & wait; echo alive'"); code != 0 || out != "alive" {
		t.Errorf("its user outside of it: %q", out)
	}
	w.endAndCheck(bomb, idsOf(first))
	// Memory that the machine does not have is not assigned.
	hungry := launch(cpu(1), launchAsUser(one, "sleep 1000"))
	third := w.start(hungry)
	w.waitRunning(hungry)
	if got := w.runInMachine(third[0].ID,
		`head -c 400000000 /dev/zero | tail -c 390000000 | wc -c; echo after`); strings.Contains(
		got,
		"390000000",
	) ||
		!strings.Contains(got, "after") {
		t.Errorf("with 256 MiB it holds 390 MB: %q", got)
	}
	if got := w.runInMachine(second[0].ID, "echo on"); got != "on" {
		t.Errorf("the other session: %q", got)
	}
	w.endAndCheck(hungry, idsOf(third))
	w.endAndCheck(calm, idsOf(second))
}

// TestSurvivesFullSessionDisk checks that a session that fills the disk does not affect the service
// or other sessions, and ends.
func TestSurvivesFullSessionDisk(t *testing.T) {
	one, two := otheruser.Two(t)
	disk := filepath.Join(otheruser.Shared(t), "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m,mode=755"); err != nil {
		t.Skipf("no disk of its own size can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t, func(o *ProviderOptions) { o.Sessions = filepath.Join(disk, "sessions") })
	control := func(l *session.Launch) {
		l.Host.Control = "file://" + filepath.Join(w.p.options.Sessions, l.Session.ID, controlName)
	}
	greedy, calm := launch(cpu(1), launchAsUser(one, "sleep 1000"), control), launch(cpu(1),
		launchAsUser(two, "sleep 1000"), control)
	first, second := w.start(greedy), w.start(calm)
	w.waitRunning(greedy)
	w.waitRunning(calm)
	if got := w.runInMachine(first[0].ID, `cat /dev/zero > $HOME/fill; echo $?`); !strings.HasSuffix(got, "1") {
		t.Fatalf("the disk is not full: %q", got)
	}
	if got := w.runInMachine(second[0].ID, "echo on"); got != "on" {
		t.Errorf("the other session: %q", got)
	}
	s := &session.Session{
		ID:            calm.Session.ID,
		Name:          "demo",
		Provider:      CloudName,
		RunAs:         two.Name,
		Epoch:         1,
		ControlPrefix: calm.Host.Control,
	}
	at, _ := w.p.Control(s)
	if _, err := at.Replace(t.Context(), session.OrderFile,
		[]byte(`{"session":"`+calm.Session.ID+`"}`), ""); err != nil {
		t.Errorf("an order for the other session: %v", err)
	}
	if m, err := w.p.Launch(t.Context(), launch(cpu(1), launchAsUser(two, "true"))); err == nil {
		t.Errorf("launched on a full disk: %v", m)
	}
	w.endAndCheck(greedy, idsOf(first))
	eventually(t, "the other hears its order", func() bool {
		_, err := at.Get(t.Context(), session.OrderFile, 1<<20)
		_, missing := os.Stat(filepath.Join(w.p.options.Sessions, calm.Session.ID, controlName, session.OrderFile))
		return err == nil && missing == nil
	})
	w.endAndCheck(calm, idsOf(second))
}

// TestRemovesDeepFolders checks that deeply nested folders are removed, and that a folder that
// cannot be removed does not block launches.
func TestRemovesDeepFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for n := 0; n < 2000 && err == nil; n++ {
		next := -1
		if err = unix.Mkdirat(fd, "d", 0o700); err == nil {
			next, err = unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
		err = errors.Join(err, unix.Close(fd))
		fd = next
	}
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	if err := removeTree(t.Context(), dir, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("it is left")
	}
}
