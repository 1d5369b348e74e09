package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/session"
)

// TestGPUErrorsAreAFault runs commands that fail while nvidia-smi counts errors, and while it does not:
// only the former is a fault of the GPU.
func TestGPUErrorsAreAFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, after, evidence string
		class                 session.Class
	}{
		{"new errors", "echo 0, GPU-a, 5", "3 uncorrected memory errors of GPU 0", session.GPUFault},
		{"old errors", "echo 0, GPU-a, 2", "exit code 1", session.OwnError},
		{"no ECC", "echo 0, GPU-a, [N/A]", "exit code 1", session.OwnError},
		{"lost", "echo 'Unable to determine the device handle for GPU 0: GPU is lost.'; exit 15", "GPU is lost",
			session.GPUFault},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			smi, broken := filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "broken")
			text := "#!/bin/sh\ncase \"$1\" in *ecc*) ;; *apps*) exit 0 ;; *) echo 0, GPU-a, 0, 0, 1000, 50; exit ;; esac\n" +
				"if [ -e " + broken + " ]; then " + c.after + "; else echo 0, GPU-a, 2; fi\n"
			if err := os.WriteFile(smi, []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
			w := commandWorld(t, ": > "+broken+"; exit 1")
			w.config.Host.GPUs = []string{"0"}
			w.config.SMI = smi
			w.start()
			if o := w.outcome(); o.Class != c.class || !strings.Contains(o.Evidence, c.evidence) {
				t.Errorf("%s: %s", o.Class, o.Evidence)
			}
		})
	}
}

// TestHeldAttemptWaitsForItsTurn checks that a held host sets nothing up before an order lets it.
func TestHeldAttemptWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	w := commandWorld(t, "true")
	w.config.Host.Command.Held = true
	w.start()
	await(t, "it waits", func() bool { return w.hasEvent("step", session.StepRunning("turn")) })
	w.order(func(o *session.Order) { o.Held = true })
	await(t, "the order is heard", func() bool { return w.status(0).OrderSerial > 0 })
	if w.hasEvent("step", session.StepRunning("work")) || w.phase() != session.HostStarting {
		t.Error("it restored the work of an attempt that is not over")
	}
	w.order(func(o *session.Order) { o.Held = false })
	if o := w.outcome(); o.Class != session.Succeeded {
		t.Errorf("%s: %s", o.Class, o.Evidence)
	}
}
