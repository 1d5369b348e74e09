package host

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/agent"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// fakeGPU is a GPU with a utilization in percent; a negative one is unmeasured.
type fakeGPU float64

func (f fakeGPU) Read(context.Context) ([]agent.GPU, error) {
	g := agent.GPU{Index: "0"}
	if g.Signals = map[usage.Signal]float64{}; f >= 0 {
		g.Signals[usage.GPUUtil] = float64(f)
	}
	return []agent.GPU{g}, nil
}

// TestProfileExplainsWhyGPUsWait runs real processes next to a GPU that waits or computes.
func TestProfileExplainsWhyGPUsWait(t *testing.T) {
	for _, c := range []struct {
		name, command string
		util          fakeGPU
		cpus          int
		want          string
	}{
		{"one thread is full", "while :; do :; done", 10, 1000, "cpu-core"},
		{"all CPUs are full", "while :; do :; done", 10, 1, "cpus"},
		{"it sleeps", "sleep 60", 10, 1000, "unknown"},
		{"the GPU computes", "sleep 60", 80, 1000, ""},
		{"the GPU is unmeasured", "sleep 60", -1, 1000, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			// On a busy machine a thread gets less than a core, so retry until it got one for a
			// while.
			var doc view.Profile
			for range 10 {
				p := &profiler{
					options: ProfileOptions{
						Command: []string{"timeout", "1.5", "sh", "-c", c.command}, Every: 250 * time.Millisecond,
						Out: io.Discard, Err: io.Discard,
					},
					gpus: c.util, now: time.Now, doc: view.Profile{MachineCPUs: c.cpus},
				}
				if err := p.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				p.summarize()
				if doc = p.doc; c.want == "" || hasCause(doc.Waits, c.want) {
					break
				}
			}
			if c.want == "" && doc.Waits != nil || c.want != "" && !hasCause(doc.Waits, c.want) {
				t.Errorf("the GPU waits because of %+v, want %q", doc.Waits, c.want)
			}
			if w := doc.Waits; w != nil && w.Share != 1 {
				t.Errorf("it waits in %g of the samples, want all", w.Share)
			}
		})
	}
}

func hasCause(w *view.ProfileWaits, cause string) bool {
	if w == nil {
		return false
	}
	for _, c := range w.Causes {
		if c.Cause == cause && c.Why != "" {
			return true
		}
	}
	return false
}
