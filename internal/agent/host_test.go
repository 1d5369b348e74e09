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

// TestIdleSessionEnds checks that an idle session is warned, saved and ended in this order, that no
// process of it survives, and that the next start has its files.
func TestIdleSessionEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Host.IdleTimeout = short
	w.config.Host.Setup = `echo prepared; (setsid sh -c 'while :; do sleep 1000; done' >/dev/null 2>&1 &) ; echo $$ >pid; echo kept >file`
	m := w.start()
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	w.checkEventOrder("step: work: running", "output: prepared", "step: setup: done", "ready", "idle", "warned",
		"snapshot: the last", "snapshot: snapshot confirmed", "ended")
	if left, err := w.cage().Processes(); err != nil || len(left) > 0 {
		t.Errorf("processes %v are left, %v", left, err)
	}
	s := w.status(0)
	if s.Phase != session.HostEnding || !s.Snapshot.Complete || s.Snapshot.Manifest == "" || s.UnsavedReason != "" ||
		s.Activity != "idle" {
		t.Errorf("the last status: %+v", s)
	}
	if got := w.restoredFile("file"); got != "kept\n" {
		t.Errorf("the snapshot has %q", got)
	}

	// The next start runs on a new machine.
	w.config.Host.IdleTimeout, w.config.Host.Setup = 0, ""
	w.useNewMachine(2)
	w.start()
	w.awaitPhase(session.HostReady)
	if data, err := os.ReadFile(w.path("file")); err != nil || string(data) != "kept\n" {
		t.Errorf("after the next start: %q, %v", data, err)
	}
	if got := w.status(0).Snapshot; got.Manifest != s.Snapshot.Manifest || !got.Complete {
		t.Errorf("the snapshot that was restored: %+v, want %s", got, s.Snapshot.Manifest)
	}
}

// TestWorkCancelsWarning checks that busy CPUs keep a session alive and that work during the grace
// period cancels the warning.
func TestWorkCancelsWarning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Host.IdleTimeout, w.config.Host.Grace = short, session.Duration(time.Hour)
	m := w.start()
	w.awaitPhase(session.HostWarned)
	if at := w.status(0).EndsAt; at.Before(time.Now()) || at.After(w.config.Host.LeaseUntil.Add(time.Second)) {
		t.Errorf("warned, and ends at %s", at)
	}
	// The shell computes in short-lived children.
	spin := w.spawn(`while :; do :; done`)
	await(t, "put back", func() bool { return w.phase() == session.HostReady && w.status(0).Activity == "busy" })
	time.Sleep(3 * time.Second)
	if s := w.status(0); s.Phase != session.HostReady || !m.isRunning() {
		t.Errorf("while it works: %+v", s)
	}
	if !w.hasEvent("extended", "the warning is withdrawn: it works") {
		t.Errorf("events: %v", w.events())
	}
	must(t, spin.Process.Kill())
	w.awaitPhase(session.HostWarned)
}

// TestExtensionCancelsWarning checks an order to extend and a touch of the keep file.
func TestExtensionCancelsWarning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Host.IdleTimeout, w.config.Host.Grace = short, session.Duration(time.Hour)
	w.start()
	w.awaitPhase(session.HostWarned)
	must(t, os.MkdirAll(filepath.Join(w.config.Home, ".curfew"), 0o755))
	must(t, os.WriteFile(filepath.Join(w.config.Home, ".curfew", "keep"), nil, 0o600))
	await(t, "put back by the keep file", func() bool { return w.hasEvent("extended", "keep was touched") })
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
	await(t, "put back by the order", func() bool { return w.hasEvent("extended", "the idle time was extended") })
	w.awaitPhase(session.HostReady)
}

// TestLeaseEndsWithoutKeeper checks that the lease ends a session on time although the control
// store is unreachable.
func TestLeaseEndsWithoutKeeper(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "work")
	w.shortenLease(3 * time.Second)
	control := filepath.Join(w.dir, "control")
	must(t, os.Rename(control, control+".lost"))
	must(t, os.WriteFile(control, nil, 0o600)) // a store whose calls fail
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	if early := time.Until(w.config.Host.LeaseUntil); early > 0 {
		t.Errorf("it ended %s before its lease", early)
	}
	if got := w.restoredFile("file"); got != "work" {
		t.Errorf("the snapshot has %q", got)
	}
}

// TestObeysNewestOrder checks that the host saves, extends and ends as the newest order of its
// start says.
func TestObeysNewestOrder(t *testing.T) {
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
	if got := w.restoredFile("file"); got != "first" {
		t.Errorf("the snapshot has %q", got)
	}
	// Orders of another start and older orders are ignored.
	w.order(func(o *session.Order) { o.Epoch, o.End = 9, &session.End{Why: "not you", By: "bo", Discard: true} })
	w.order(func(o *session.Order) {
		o.Serial, o.LeaseUntil, o.End = 1, later, &session.End{Why: "too old", By: "bo", Discard: true}
	})
	w.serial = 3
	w.order(func(o *session.Order) { o.LeaseUntil, o.SaveRequest = later, 8 })
	await(t, "saved again", func() bool { return w.status(0).AnsweredSave == 8 })
	if !m.isRunning() {
		t.Fatal("it obeyed an order that was not for it")
	}
	w.write("file", "second")
	w.order(func(o *session.Order) { o.LeaseUntil, o.End = later, &session.End{Why: "done", By: "bo"} })
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	if got := w.restoredFile("file"); got != "second" {
		t.Errorf("the last snapshot has %q", got)
	}
	w.checkEventOrder("ended: done, by bo; the last snapshot is confirmed")
}

// TestUnsavedWorkKeepsTheMachine checks that a machine with unsaved work outlives its lease, says
// why, and ends when the work is saved or discarded.
func TestUnsavedWorkKeepsTheMachine(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"saved", "discarded", "nothing written"} {
		t.Run(end, func(t *testing.T) {
			if end == "discarded" {
				skipUnlessSlow(t)
			}
			t.Parallel()
			w := newWorld(t)
			w.config.TerminatedFile = filepath.Join(w.dir, "ended")
			w.config.Host.SaveLimit = session.Duration(time.Second)
			m := w.start()
			w.awaitPhase(session.HostReady)
			w.write("file", "first")
			w.order(func(o *session.Order) { o.SaveRequest = 1 })
			await(t, "saved", func() bool { return w.status(0).AnsweredSave == 1 })
			if end != "nothing written" {
				w.write("file", "second")
			}
			w.shortenLease(2 * time.Second)
			store := filepath.Join(w.dir, "work")
			must(t, os.Rename(store, store+".lost"))
			must(t, os.WriteFile(store, nil, 0o600))
			if end == "nothing written" {
				if err := m.wait(); err != nil {
					t.Fatal(err)
				}
				w.checkEventOrder("unsaved", "ended: its lease ended at")
				return
			}
			await(t, "kept", func() bool { return w.hasEvent("unsaved", "is kept until it is") })
			await(t, "past lease and save", func() bool {
				return time.Since(w.config.Host.LeaseUntil) > 3*time.Second
			})
			if s := w.status(0); !m.isRunning() || s.UnsavedReason == "" || s.Phase != session.HostSaving {
				t.Fatalf("after the lease: %+v", s)
			}
			if end == "discarded" {
				w.order(func(o *session.Order) {
					o.SaveRequest, o.End = 1, &session.End{Why: "enough", By: "bo", Discard: true}
				})
			} else {
				must(t, os.Remove(store))
				must(t, os.Rename(store+".lost", store))
			}
			if err := m.wait(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(w.config.TerminatedFile); err != nil {
				t.Errorf("the machine is not given back: %v", err)
			}
			if end == "saved" {
				if got := w.restoredFile("file"); got != "second" {
					t.Errorf("the last snapshot has %q", got)
				}
			}
		})
	}
}

// TestUnsavedWorkOnPersistentMachine checks that a session whose machine stays ends by its lease
// with unsaved files left in place, and that an idle one continues until then.
func TestUnsavedWorkOnPersistentMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Host.IdleTimeout, w.config.Host.Grace, w.config.Host.SaveLimit = session.Duration(
		time.Second), session.Duration(
		300*time.Millisecond), session.Duration(500*time.Millisecond)
	m := w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "work")
	must(t, os.RemoveAll(filepath.Join(w.dir, "work")))
	must(t, os.WriteFile(filepath.Join(w.dir, "work"), nil, 0o600)) // a store whose calls fail
	await(t, "kept although it rests", func() bool { return w.hasEvent("extended", "its work could not be saved") })
	w.shortenLease(time.Second)
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	if early := time.Until(w.config.Host.LeaseUntil); early > 0 {
		t.Errorf("it ended %s before its lease", early)
	}
	w.checkEventOrder("ended: its lease ended at")
	if data, err := os.ReadFile(w.path("file")); err != nil || string(data) != "work" {
		t.Errorf("the file is %q, %v", data, err)
	}
}

// TestStopsWritersBeforeFinalSnapshot checks that files that change all the time are saved after
// their writers are ended.
func TestStopsWritersBeforeFinalSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.start()
	w.awaitPhase(session.HostReady)
	w.spawn(`cd "` + filepath.Join(w.config.Home, "work") + `"; while :; do echo line >>log; sleep 0.01; done`)
	await(t, "a log", func() bool { _, err := os.Stat(w.path("log")); return err == nil })
	w.order(func(o *session.Order) { o.End = &session.End{Why: "done", By: "bo"} })
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	if s := w.status(0); !s.Snapshot.Complete {
		t.Errorf("the last snapshot: %+v", s.Snapshot)
	}
	data, err := os.ReadFile(w.path("log"))
	must(t, err)
	if got := w.restoredFile("log"); got != string(data) {
		t.Errorf("the last snapshot has %d bytes of the log, want %d", len(got), len(data))
	}
}

// TestSavesOnSpotNotice checks that a notice triggers a save at once, and further saves while time
// is left.
func TestSavesOnSpotNotice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Notice = filepath.Join(w.dir, "notice")
	w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "work")
	must(t, os.WriteFile(w.config.Notice, []byte(time.Now().Add(2*time.Minute).Format(time.RFC3339Nano)), 0o600))
	await(t, "saved", func() bool { s := w.status(0); return s.Snapshot.Complete && s.Phase == session.HostSaving })
	w.checkEventOrder("notice", "snapshot: snapshot confirmed")
	if got := w.restoredFile("file"); got != "work" {
		t.Errorf("the snapshot has %q", got)
	}
}

func TestPeriodicSnapshots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Host.SaveInterval = session.Duration(500 * time.Millisecond)
	w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "work")
	await(t, "saved", func() bool { return w.status(0).Snapshot.Manifest != "" })
	first := w.status(0).Snapshot.Manifest
	await(t, "saved again", func() bool { s := w.status(0).Snapshot; return s.Complete && s.Manifest != first })
}

// TestReportsFailedSetup checks that a session with a failed setup stays for inspection.
func TestReportsFailedSetup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Host.Setup = "echo no space left; exit 3"
	m := w.start()
	w.awaitPhase(session.HostFailed)
	s := w.status(0)
	if !strings.Contains(s.Why, "exit code 3") || !m.isRunning() {
		t.Errorf("status %+v", s)
	}
	await(t, "told", func() bool { return w.hasEvent("output", "no space left") })
	m.kill()
	w.start()
	w.awaitPhase(session.HostFailed)
	w.order(func(o *session.Order) { o.End = &session.End{Why: "it failed", By: "keeper"} })
	w.awaitPhase(session.HostEnding)
}

// TestSurvivesKillAtEveryLogLine kills the agent at each line of its log and restarts it: every
// step happens once.
func TestSurvivesKillAtEveryLogLine(t *testing.T) {
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
			w.config.TerminatedFile = filepath.Join(w.dir, "ended")
			w.config.Host.Setup = `echo run >>runs; sleep 0.3; echo one; echo two`
			w.config.KillAt = line
			m := w.start()
			await(t, "killed", func() bool {
				if w.phase() == session.HostReady && w.serial == 0 {
					w.order(func(o *session.Order) { o.End = &session.End{Why: "done", By: "bo"} })
				}
				return !m.isRunning()
			})
			if err := m.wait(); err == nil {
				t.Fatalf("it was not killed at %q", line)
			}
			w.config.KillAt = ""
			m = w.start()
			if w.serial == 0 {
				w.awaitPhase(session.HostReady)
				w.order(func(o *session.Order) { o.End = &session.End{Why: "done", By: "bo"} })
			}
			if err := m.wait(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(w.config.TerminatedFile); err != nil {
				t.Errorf("the machine is not given back: %v", err)
			}
			if got := w.restoredFile("runs"); got != "run\n" {
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
			w.checkEventOrder("resumed")
			w.checkEventOrder("ended: done, by bo")
		})
	}
}

// TestEarlierStartIsFenced checks that an earlier start of a session cannot overwrite snapshots of
// a later one.
func TestEarlierStartIsFenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.start()
	w.awaitPhase(session.HostReady)
	w.write("file", "old")
	w.order(func(o *session.Order) { o.SaveRequest = 1 })
	await(t, "saved", func() bool { return w.status(0).AnsweredSave == 1 })

	later := newWorld(t)
	later.config.Host.Work, later.config.Host.Epoch, later.config.Host.Session = w.config.Host.Work, 2, "s-later"
	next := later.start()
	later.awaitPhase(session.HostReady)
	if data, err := os.ReadFile(later.path("file")); err != nil || string(data) != "old" {
		t.Fatalf("restored %q, %v", data, err)
	}
	later.write("file", "new")
	later.order(func(o *session.Order) { o.End = &session.End{Why: "done", By: "bo"} })
	if err := next.wait(); err != nil {
		t.Fatal(err)
	}
	w.write("file", "too late")
	w.order(func(o *session.Order) { o.SaveRequest = 2 })
	await(t, "refused", func() bool {
		return strings.Contains(w.status(0).UnsavedReason, "a newer attempt holds the run")
	})
	if got := later.restoredFile("file"); got != "new" || !old.isRunning() {
		t.Errorf("the snapshot has %q", got)
	}
}

// TestEndStopsSetup checks that an end during the setup ends its command, which is not run again.
func TestEndStopsSetup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Host.Setup = "echo run >>runs; echo under way; while :; do sleep 1000; done"
	m := w.start()
	await(t, "under way", func() bool { return w.hasEvent("output", "under way") })
	w.order(func(o *session.Order) { o.End = &session.End{Why: "changed my mind", By: "bo"} })
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	if left, err := w.cage().Processes(); err != nil || len(left) > 0 {
		t.Errorf("processes %v are left, %v", left, err)
	}
	if got := w.restoredFile("runs"); got != "run\n" {
		t.Errorf("the command ran as %q", got)
	}
}

// TestUndeliveredWarningEndsNothing checks that a warning that reached neither a terminal nor the
// store does not end the session.
func TestUndeliveredWarningEndsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Host.IdleTimeout, w.config.Host.Grace = short, session.Duration(100*time.Millisecond)
	m := w.start()
	w.awaitPhase(session.HostReady)
	control := filepath.Join(w.dir, "control")
	must(t, os.Rename(control, control+".lost"))
	must(t, os.WriteFile(control, nil, 0o600)) // a store whose calls fail
	log := func() string {
		data, err := os.ReadFile(m.log)
		must(t, err)
		return string(data)
	}
	await(t, "warned", func() bool { return strings.Contains(log(), "warned: ") })
	time.Sleep(4 * time.Second)
	if text := log(); !m.isRunning() || strings.Contains(text, "the last snapshot") {
		t.Errorf("it ended:\n%s", text)
	}
	must(t, os.Remove(control))
	must(t, os.Rename(control+".lost", control))
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	w.checkEventOrder("ready", "warned", "ended")
}
