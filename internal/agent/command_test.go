package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
)

// TestEndLetsProcessesSave checks that an end asks first: a process that catches SIGTERM saves, the
// stop file says why, and the last snapshot has what was saved.
func TestEndLetsProcessesSave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Host.Grace = session.Duration(20 * time.Second)
	w.start()
	w.awaitPhase(session.HostReady)
	dir := filepath.Join(w.config.Home, "work")
	w.spawn(`trap 'sleep 1; cp "` + filepath.Join(w.config.State, "run", "stop") + `" "` + dir + `/saved"; exit' TERM
: > "` + dir + `/armed"; while :; do sleep 0.1; done`)
	await(t, "the process is armed", func() bool {
		_, err := os.Stat(filepath.Join(dir, "armed"))
		return err == nil
	})
	w.order(func(o *session.Order) { o.End = &session.End{Why: "asked for", By: "ana"} })
	w.awaitPhase(session.HostEnding)
	w.checkEventOrder("stop", "snapshot", "ended")
	if text := w.restoredFile("saved"); !strings.Contains(text, `"reason":"asked for, by ana"`) {
		t.Errorf("saved after SIGTERM: %q", text)
	}
}

// commandWorld is a world whose host runs a command.
func commandWorld(t *testing.T, run string) *world {
	t.Helper()
	w := newWorld(t)
	w.config.Host.Command = &session.Command{Run: run, Job: "j", Attempt: 1, CheckpointDir: "~/ckpt", Keep: 3}
	w.config.Host.SaveInterval = 0 // after each declaration
	return w
}

// outcome waits until the command has ended, and returns how.
func (w *world) outcome() session.Outcome {
	w.t.Helper()
	await(w.t, "the command has ended", func() bool {
		c := w.status(0).Command
		return c != nil && c.Outcome != nil
	})
	return *w.status(0).Command.Outcome
}

// TestClassifiesTheEndOfACommand checks the class and the evidence of each kind of end.
func TestClassifiesTheEndOfACommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, run, evidence string
		class               session.Class
	}{
		{"success", "true", "exit code 0", session.Succeeded},
		{"own error", "exit 3", "exit code 3", session.OwnError},
		{"killed", "sh -c 'kill -KILL $$'", "exit status 137: SIGKILL", session.Interrupted},
		{"crashed", "sh -c 'kill -SEGV $$'", "exit status 139: SIGSEGV", session.Interrupted},
		{"host memory", "echo MemoryError; exit 1", "its output: MemoryError", session.OutOfMemory},
		{"GPU memory", "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried'; exit 1", "CUDA out of memory",
			session.GPUMemory},
		{"full disk", "echo 'OSError: [Errno 28] No space left on device'; exit 1", "No space left", session.DiskFull},
		{"rendezvous", "echo 'Watchdog caught collective operation timeout: NCCL'; exit 1", "NCCL", session.Rendezvous},
		{"GPU fault", "echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered'; exit 1",
			"uncorrectable ECC error", session.GPUFault},
		{"words before a success", "echo 'CUDA out of memory, smaller batch'; exit 0", "exit code 0", session.Succeeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := commandWorld(t, c.run)
			w.start()
			if o := w.outcome(); o.Class != c.class || !strings.Contains(o.Evidence, c.evidence) {
				t.Errorf("%s (%s), want %s (%s)", o.Class, o.Evidence, c.class, c.evidence)
			}
			w.awaitPhase(session.HostEnding)
		})
	}
}

// TestFailedCommandKeepsItsMachine checks --keep-on-failure: the machine of a command that failed stays for
// its time, its status says why, and it ends then. A success keeps no machine.
func TestFailedCommandKeepsItsMachine(t *testing.T) {
	t.Parallel()
	w := commandWorld(t, "exit 3")
	const keep = 3 * time.Second
	w.config.Host.Command.KeepOnFailure = session.Duration(keep)
	m := w.start()
	o := w.outcome()
	await(t, "the machine is kept", func() bool {
		s := w.status(0)
		return s.Phase == session.HostReady && strings.Contains(s.Why, "the machine is kept until ")
	})
	w.awaitPhase(session.HostEnding)
	must(t, m.wait())
	if kept := time.Since(o.At); kept < keep-time.Second {
		t.Errorf("the machine was kept for %s, want %s", kept, keep)
	}
	w = commandWorld(t, "true")
	w.config.Host.Command.KeepOnFailure = session.Duration(time.Hour)
	w.start()
	w.outcome()
	w.awaitPhase(session.HostEnding)
}

// TestStallEndsACommand checks that only new highest steps are progress: a command that declares the
// same steps again is stopped.
func TestStallEndsACommand(t *testing.T) {
	t.Parallel()
	w := commandWorld(t, `while :; do for n in 1 2 3; do
printf '{"event":"step","step":%d,"at":"%s"}\n' $n "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >> "$CURFEW_RUN_DIR/events.jsonl"
sleep 0.1; done; done`)
	w.config.Host.Command.StallLimit = session.Duration(2 * time.Second)
	w.start()
	o := w.outcome()
	if o.Class != session.Stalled || !strings.Contains(o.Evidence, "the last is 3") {
		t.Errorf("%s: %s", o.Class, o.Evidence)
	}
}

// TestEndWaitsForNoLookAtACommand checks a session that has ended its command, saved and is done
// before the agent looks at the command again: the outcome is recorded all the same.
func TestEndWaitsForNoLookAtACommand(t *testing.T) {
	t.Parallel()
	w := commandWorld(t, "while :; do sleep 0.1; done")
	w.config.Paces.Command = time.Hour
	w.config.Host.Command.StallLimit = session.Duration(time.Second)
	w.start()
	if o := w.outcome(); o.Class != session.Stalled {
		t.Errorf("%s: %s", o.Class, o.Evidence)
	}
}

// TestHalfWrittenCheckpointIsNotRestored checks a command that is killed while it writes over its
// checkpoint in place: the next attempt has the one that was declared, with its step.
func TestHalfWrittenCheckpointIsNotRestored(t *testing.T) {
	t.Parallel()
	w := commandWorld(t, `at="$CURFEW_CHECKPOINT_DIR/model"
if [ -e "$at" ]; then cat "$at" > "$CURFEW_WORK/found"; exit 0; fi
echo whole > "$at"; sync
printf '{"event":"saved","path":"%s","step":5,"at":"%s"}\n' "$at" "$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)" >> "$CURFEW_RUN_DIR/events.jsonl"
sleep 5; echo ha > "$at"; kill -KILL $$`)
	w.start()
	if o := w.outcome(); o.Class != session.Interrupted {
		t.Fatalf("%s: %s", o.Class, o.Evidence)
	}
	w.awaitPhase(session.HostEnding)
	w.useNewMachine(2)
	w.start()
	if o := w.outcome(); o.Class != session.Succeeded {
		t.Fatalf("%s: %s", o.Class, o.Evidence)
	}
	found, err := os.ReadFile(w.path("found"))
	if err != nil || string(found) != "whole\n" {
		t.Errorf("the next attempt found %q: %v", found, err)
	}
	if from := w.status(0).Command.Restored; from == nil || from.Step == nil || *from.Step != 5 {
		t.Errorf("it started from %+v", from)
	}
}

// TestKilledWriterLeavesNoCompleteCheckpoint checks a command that declares nothing: what it wrote as it
// was killed is saved, is not complete, and the next attempt begins without it.
func TestKilledWriterLeavesNoCompleteCheckpoint(t *testing.T) {
	t.Parallel()
	w := commandWorld(t, `echo ha > "$CURFEW_CHECKPOINT_DIR/model"; sh -c 'kill -KILL $PPID'; kill -KILL $$`)
	w.start()
	if o := w.outcome(); o.Class != session.Interrupted {
		t.Fatalf("%s: %s", o.Class, o.Evidence)
	}
	w.awaitPhase(session.HostEnding)
	if n := w.status(0).Snapshot; n.Manifest == "" || n.Complete {
		t.Errorf("its last snapshot: %+v", n)
	}
	w.config.Host.Command.Run = `[ ! -e "$CURFEW_CHECKPOINT_DIR/model" ]`
	w.useNewMachine(2)
	w.start()
	if o := w.outcome(); o.Class != session.Succeeded {
		t.Errorf("the next attempt finds what was half written: %s: %s", o.Class, o.Evidence)
	}
}

// TestArtifactsAreKeptOrMissed checks that declared artifacts are copied, and that their absence is a
// failure.
func TestArtifactsAreKeptOrMissed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		run   string
		class session.Class
	}{
		{`mkdir -p "$CURFEW_ARTIFACTS_DIR/deep"; echo kept > "$CURFEW_ARTIFACTS_DIR/deep/a"`, session.Succeeded},
		{"true", session.NoArtifacts},
	} {
		t.Run(string(c.class), func(t *testing.T) {
			t.Parallel()
			w := commandWorld(t, c.run)
			to := filepath.Join(w.dir, "artifacts")
			w.config.Host.Command.ArtifactsDir, w.config.Host.Command.Artifacts = "~/out", "file://"+to
			w.start()
			if o := w.outcome(); o.Class != c.class {
				t.Errorf("%s: %s", o.Class, o.Evidence)
			}
			data, err := os.ReadFile(filepath.Join(to, "deep", "a"))
			if c.class == session.Succeeded && string(data) != "kept\n" || c.class != session.Succeeded &&
				!errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the artifact is %q: %v", data, err)
			}
		})
	}
}

// TestWarnsBeforeTheLeaseEnds checks the two warnings of a short lease, once each.
func TestWarnsBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Host.LeaseUntil = time.Now().Add(12 * time.Second)
	w.start()
	w.awaitPhase(session.HostEnding)
	warnings := 0
	for _, e := range w.events() {
		if e.Kind == "warned" && strings.Contains(e.Text, "curfew extend demo --for 2h") {
			warnings++
		}
	}
	if warnings != 2 {
		t.Errorf("%d warnings: %v", warnings, w.events())
	}
}
