package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
)

const short = session.Duration(2 * time.Second)

// A session at rest is warned, saved and ended, in this order; nothing of it runs on, also
// not what went to the background; the next start has its files.
func TestRestEndsASession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.r.Host.IdleTimeout = short
	w.r.Host.Setup = `echo prepared; (setsid sh -c 'while :; do sleep 1000; done' >/dev/null 2>&1 &) ; echo $$ >pid; echo kept >file`
	m := w.start()
	if err := m.ends(); err != nil {
		t.Fatal(err)
	}
	w.inOrder("step: work: running", "output: prepared", "step: setup: done", "ready", "idle", "warned",
		"snapshot: the last", "snapshot: snapshot confirmed", "ended")
	if left, err := w.cage().Processes(); err != nil || len(left) > 0 {
		t.Errorf("processes %v are left, %v", left, err)
	}
	s := w.status(0)
	if s.Phase != session.HostEnding || !s.Snapshot.Complete || s.Snapshot.Manifest == "" || s.UnsavedReason != "" ||
		s.Activity != "idle" {
		t.Errorf("the last status: %+v", s)
	}
	if got := w.restored("file"); got != "kept\n" {
		t.Errorf("the snapshot has %q", got)
	}

	// The next start, on a machine with nothing.
	w.r.Host.IdleTimeout, w.r.Host.Setup = 0, ""
	w.onNewMachine(2)
	w.start()
	w.awaitPhase(session.HostReady)
	if data, err := os.ReadFile(w.path("file")); err != nil || string(data) != "kept\n" {
		t.Errorf("after the next start: %q, %v", data, err)
	}
	if got := w.status(0).Snapshot; got.Manifest != s.Snapshot.Manifest || !got.Complete {
		t.Errorf("the snapshot that was restored: %+v, want %s", got, s.Snapshot.Manifest)
	}
}

// Busy CPUs keep a session; work during the grace takes the warning back.
func TestWorkKeepsASession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.r.Host.IdleTimeout, w.r.Host.Grace = short, session.Duration(time.Hour)
	m := w.start()
	w.awaitPhase(session.HostWarned)
	if at := w.status(0).EndsAt; at.Before(time.Now()) || at.After(w.r.Host.LeaseUntil.Add(time.Second)) {
		t.Errorf("warned, and ends at %s", at)
	}
	// A shell that computes, in children that end at once.
	spin := w.spawn(`while :; do :; done`)
	await(t, "put back", func() bool { return w.phase() == session.HostReady && w.status(0).Activity == "busy" })
	time.Sleep(3 * time.Second)
	if s := w.status(0); s.Phase != session.HostReady || !m.runs() {
		t.Errorf("while it works: %+v", s)
	}
	if !w.saw("extended", "the warning is taken back: it works") {
		t.Errorf("events: %v", w.events())
	}
	must(t, spin.Process.Kill())
	w.awaitPhase(session.HostWarned)
}

// An extension and a touch of the keep file take a warning back.
func TestOwnersAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.r.Host.IdleTimeout, w.r.Host.Grace = short, session.Duration(time.Hour)
	w.start()
	w.awaitPhase(session.HostWarned)
	must(t, os.MkdirAll(filepath.Join(w.r.Home, ".curfew"), 0o755))
	must(t, os.WriteFile(filepath.Join(w.r.Home, ".curfew", "keep"), nil, 0o600))
	await(t, "put back by the keep file", func() bool { return w.saw("extended", "keep was touched") })
	await(t, "warned again", func() bool {
		warnings := 0
		for _, e := range w.events() {
			if e.Kind == "warned" {
				warnings++
			}
		}
		return warnings == 2
	})
	w.order(func(o *session.Order) { o.IdleTimeout = session.Duration(time.Hour) })
	await(t, "put back by the order", func() bool { return w.saw("extended", "the idle time was extended") })
	w.awaitPhase(session.HostReady)
}

// The lease ends a session without a word of the keeper, although the control store is lost;
// not before.
func TestLeaseWithoutAKeeper(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "work")
	w.leaseIn(3 * time.Second)
	control := filepath.Join(w.dir, "control")
	must(t, os.Rename(control, control+".lost"))
	must(t, os.WriteFile(control, nil, 0o600)) // a store that only fails
	if err := m.ends(); err != nil {
		t.Fatal(err)
	}
	if early := time.Until(w.r.Host.LeaseUntil); early > 0 {
		t.Errorf("it ended %s before its lease", early)
	}
	if got := w.restored("file"); got != "work" {
		t.Errorf("the snapshot has %q", got)
	}
}

// The host obeys the newest order of its own start: it saves when asked, extends, and ends.
func TestOrders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "first")
	later := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Second)
	w.order(func(o *session.Order) { o.SaveRequest, o.LeaseUntil = 7, later })
	await(t, "saved and extended", func() bool {
		s := w.status(0)
		return s.AnsweredSave == 7 && s.OrderSerial == 1 && s.LeaseUntil.Equal(later) && s.Snapshot.Complete
	})
	if got := w.restored("file"); got != "first" {
		t.Errorf("the snapshot has %q", got)
	}
	// Orders of another start, and older ones, are not for it.
	w.order(func(o *session.Order) { o.Epoch, o.End = 9, &session.End{Why: "not you", By: "bo", Discard: true} })
	w.order(func(o *session.Order) {
		o.Serial, o.LeaseUntil, o.End = 1, later, &session.End{Why: "too old", By: "bo", Discard: true}
	})
	w.serial = 3
	w.order(func(o *session.Order) { o.LeaseUntil, o.SaveRequest = later, 8 })
	await(t, "saved again", func() bool { return w.status(0).AnsweredSave == 8 })
	if !m.runs() {
		t.Fatal("it obeyed an order that was not for it")
	}
	w.write("file", "second")
	w.order(func(o *session.Order) { o.LeaseUntil, o.End = later, &session.End{Why: "done", By: "bo"} })
	if err := m.ends(); err != nil {
		t.Fatal(err)
	}
	if got := w.restored("file"); got != "second" {
		t.Errorf("the last snapshot has %q", got)
	}
	w.inOrder("ended: done, by bo; the last snapshot is confirmed")
}

// A machine whose work cannot be saved is kept past its lease and says why, until it is
// saved; an owner who gives it up ends it at once.
func TestUnsavedWorkKeepsTheMachine(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"saved", "discarded", "nothing written"} {
		t.Run(end, func(t *testing.T) {
			if end == "discarded" {
				slow(t)
			}
			t.Parallel()
			w := newWorld(t)
			w.r.Ended = filepath.Join(w.dir, "ended")
			w.r.Host.SaveLimit = session.Duration(time.Second)
			m := w.start()
			w.awaitPhase(session.HostReady)
			w.write("file", "first")
			w.order(func(o *session.Order) { o.SaveRequest = 1 })
			await(t, "saved", func() bool { return w.status(0).AnsweredSave == 1 })
			if end != "nothing written" {
				w.write("file", "second")
			}
			w.leaseIn(2 * time.Second)
			store := filepath.Join(w.dir, "work")
			must(t, os.Rename(store, store+".lost"))
			must(t, os.WriteFile(store, nil, 0o600))
			if end == "nothing written" {
				if err := m.ends(); err != nil {
					t.Fatal(err)
				}
				w.inOrder("unsaved", "ended: its lease ended at")
				return
			}
			await(t, "kept", func() bool { return w.saw("unsaved", "is kept until it is") })
			await(t, "past lease and save", func() bool { return time.Since(w.r.Host.LeaseUntil) > 3*time.Second })
			if s := w.status(0); !m.runs() || s.UnsavedReason == "" || s.Phase != session.HostSaving {
				t.Fatalf("after the lease: %+v", s)
			}
			if end == "discarded" {
				w.order(func(o *session.Order) { o.SaveRequest, o.End = 1, &session.End{Why: "enough", By: "bo", Discard: true} })
			} else {
				must(t, os.Remove(store))
				must(t, os.Rename(store+".lost", store))
			}
			if err := m.ends(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(w.r.Ended); err != nil {
				t.Errorf("the machine is not given back: %v", err)
			}
			if end == "saved" {
				if got := w.restored("file"); got != "second" {
					t.Errorf("the last snapshot has %q", got)
				}
			}
		})
	}
}

// A session whose machine and files stay ends by its lease, with what could not be saved
// left where it is; one at rest whose work cannot be saved goes on until then.
func TestUnsavedWorkOnAMachineThatStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.r.Host.IdleTimeout, w.r.Host.Grace, w.r.Host.SaveLimit = session.Duration(time.Second), session.Duration(
		300*time.Millisecond), session.Duration(500*time.Millisecond)
	m := w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "work")
	must(t, os.RemoveAll(filepath.Join(w.dir, "work")))
	must(t, os.WriteFile(filepath.Join(w.dir, "work"), nil, 0o600)) // a store that only fails
	await(t, "kept although it rests", func() bool { return w.saw("extended", "its work could not be saved") })
	w.leaseIn(time.Second)
	if err := m.ends(); err != nil {
		t.Fatal(err)
	}
	if early := time.Until(w.r.Host.LeaseUntil); early > 0 {
		t.Errorf("it ended %s before its lease", early)
	}
	w.inOrder("ended: its lease ended at")
	if data, err := os.ReadFile(w.path("file")); err != nil || string(data) != "work" {
		t.Errorf("the file is %q, %v", data, err)
	}
}

// Files that change all the time are saved by ending what writes them.
func TestWriterIsEndedForTheLastSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.start()
	w.awaitPhase(session.HostReady)
	w.spawn(`cd "` + filepath.Join(w.r.Home, "work") + `"; while :; do echo line >>log; sleep 0.01; done`)
	await(t, "a log", func() bool { _, err := os.Stat(w.path("log")); return err == nil })
	w.order(func(o *session.Order) { o.End = &session.End{Why: "done", By: "bo"} })
	if err := m.ends(); err != nil {
		t.Fatal(err)
	}
	if s := w.status(0); !s.Snapshot.Complete {
		t.Errorf("the last snapshot: %+v", s.Snapshot)
	}
	data, err := os.ReadFile(w.path("log"))
	must(t, err)
	if got := w.restored("log"); got != string(data) {
		t.Errorf("the last snapshot has %d bytes of the log, want %d", len(got), len(data))
	}
}

// A snapshot is taken at once after a notice, with all the time that is left for more.
func TestSpotNotice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.r.Notice = filepath.Join(w.dir, "notice")
	w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "work")
	must(t, os.WriteFile(w.r.Notice, []byte(time.Now().Add(2*time.Minute).Format(time.RFC3339Nano)), 0o600))
	await(t, "saved", func() bool { s := w.status(0); return s.Snapshot.Complete && s.Phase == session.HostSaving })
	w.inOrder("notice", "snapshot: snapshot confirmed")
	if got := w.restored("file"); got != "work" {
		t.Errorf("the snapshot has %q", got)
	}
}

// Snapshots are taken at their times without being asked.
func TestSnapshotsEvery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.r.Host.SaveInterval = session.Duration(500 * time.Millisecond)
	w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "work")
	await(t, "saved", func() bool { return w.status(0).Snapshot.Manifest != "" })
	first := w.status(0).Snapshot.Manifest
	await(t, "saved again", func() bool { s := w.status(0).Snapshot; return s.Complete && s.Manifest != first })
}

// A set-up that fails is told, and the session goes on to be looked at.
func TestSetupFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.r.Host.Setup = "echo no space left; exit 3"
	m := w.start()
	w.awaitPhase(session.HostFailed)
	s := w.status(0)
	if !strings.Contains(s.Why, "exit code 3") || !m.runs() {
		t.Errorf("status %+v", s)
	}
	await(t, "told", func() bool { return w.saw("output", "no space left") })
	m.kill()
	w.start()
	w.awaitPhase(session.HostFailed)
	w.order(func(o *session.Order) { o.End = &session.End{Why: "it failed", By: "keeper"} })
	w.awaitPhase(session.HostEnding)
}

// Killed at any line of its log and started again, the agent does everything once.
func TestKilledAtEveryLine(t *testing.T) {
	t.Parallel()
	lines := []string{
		"skipped: driver: ", "step: work: running", "step: work: done", "step: setup: running", "step: setup: done",
		"ready", "snapshot: the last", "snapshot: snapshot confirmed", "ended",
	}
	if os.Getenv("CURFEW_SLOW") == "" {
		lines = []string{"step: work: done", "step: setup: running", "ready", "ended"}
	}
	for i, line := range lines {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.r.Ended = filepath.Join(w.dir, "ended")
			w.r.Host.Setup = `echo run >>runs; sleep 0.3; echo one; echo two`
			w.r.KillAt = line
			m := w.start()
			await(t, "killed", func() bool {
				if w.phase() == session.HostReady && w.serial == 0 {
					w.order(func(o *session.Order) { o.End = &session.End{Why: "done", By: "bo"} })
				}
				return !m.runs()
			})
			if err := m.ends(); err == nil {
				t.Fatalf("it was not killed at %q", line)
			}
			w.r.KillAt = ""
			m = w.start()
			if w.serial == 0 {
				w.awaitPhase(session.HostReady)
				w.order(func(o *session.Order) { o.End = &session.End{Why: "done", By: "bo"} })
			}
			if err := m.ends(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(w.r.Ended); err != nil {
				t.Errorf("the machine is not given back: %v", err)
			}
			if got := w.restored("runs"); got != "run\n" {
				t.Errorf("the set-up ran as %q", got)
			}
			var outputs []string
			for _, e := range w.events() {
				if e.Kind == "output" {
					outputs = append(outputs, e.Text)
				}
			}
			if got := strings.Join(outputs, " "); got != "one two" {
				t.Errorf("its output was sent as %q", got)
			}
			w.inOrder("resumed")
			w.inOrder("ended: done, by bo")
		})
	}
}

// An earlier start of the session saves nothing over a later one.
func TestEarlierStartIsFenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "old")
	w.order(func(o *session.Order) { o.SaveRequest = 1 })
	await(t, "saved", func() bool { return w.status(0).AnsweredSave == 1 })

	later := newWorld(t)
	later.r.Host.Work, later.r.Host.Epoch, later.r.Host.Session = w.r.Host.Work, 2, "s-later"
	next := later.start()
	later.awaitPhase(session.HostReady)
	if data, err := os.ReadFile(later.path("file")); err != nil || string(data) != "old" {
		t.Fatalf("restored %q, %v", data, err)
	}
	later.write("file", "new")
	later.order(func(o *session.Order) { o.End = &session.End{Why: "done", By: "bo"} })
	if err := next.ends(); err != nil {
		t.Fatal(err)
	}
	w.write("file", "too late")
	w.order(func(o *session.Order) { o.SaveRequest = 2 })
	await(t, "refused", func() bool { return strings.Contains(w.status(0).UnsavedReason, "a newer attempt holds the run") })
	if got := later.restored("file"); got != "new" || !old.runs() {
		t.Errorf("the snapshot has %q", got)
	}
}

// An end during the set-up ends its command, which is not run again.
func TestEndDuringTheSetup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.r.Host.Setup = "echo run >>runs; echo under way; while :; do sleep 1000; done"
	m := w.start()
	await(t, "under way", func() bool { return w.saw("output", "under way") })
	w.order(func(o *session.Order) { o.End = &session.End{Why: "changed my mind", By: "bo"} })
	if err := m.ends(); err != nil {
		t.Fatal(err)
	}
	if left, err := w.cage().Processes(); err != nil || len(left) > 0 {
		t.Errorf("processes %v are left, %v", left, err)
	}
	if got := w.restored("runs"); got != "run\n" {
		t.Errorf("the command ran as %q", got)
	}
}

// A warning that reached no terminal and no store ends no session, however long it rests.
func TestWarningThatNoOneCanRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.r.Host.IdleTimeout, w.r.Host.Grace = short, session.Duration(100*time.Millisecond)
	m := w.start()
	w.awaitPhase(session.HostReady)
	control := filepath.Join(w.dir, "control")
	must(t, os.Rename(control, control+".lost"))
	must(t, os.WriteFile(control, nil, 0o600)) // a store that only fails
	log := func() string {
		data, err := os.ReadFile(m.log)
		must(t, err)
		return string(data)
	}
	await(t, "warned", func() bool { return strings.Contains(log(), "warned: ") })
	time.Sleep(4 * time.Second)
	if text := log(); !m.runs() || strings.Contains(text, "the last snapshot") {
		t.Errorf("it ended:\n%s", text)
	}
	must(t, os.Remove(control))
	must(t, os.Rename(control+".lost", control))
	if err := m.ends(); err != nil {
		t.Fatal(err)
	}
	w.inOrder("ready", "warned", "ended")
}
