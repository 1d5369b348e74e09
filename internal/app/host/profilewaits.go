package host

import (
	"cmp"
	"slices"

	"github.com/curfew-dev/curfew/internal/agent"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// A GPU waits below waitingUtil percent of utilization. A CPU core, or all of them, are busy from
// fullCPU.
const (
	waitingUtil = 50
	fullCPU     = 0.9
)

// waitCauses are the explanations of the causes of waiting, by name.
var waitCauses = map[string]string{
	"cpus":     "all CPUs are full: a machine with more CPUs for each GPU, or less work on the CPUs",
	"cpu-core": "one thread fills a CPU core: it prepares input or runs other code; more loader workers share that work",
	"storage":  "it waits for a disk or a network file system: data nearer to the machine, or reading ahead",
	"unknown":  "no CPU core is full, and nothing waits for a disk: the network, another process, or sleep",
}

// waitCounts counts samples by what a command did while GPUs waited.
type waitCounts struct {
	samples, waiting int
	causes           map[string]int
}

// add counts a sample: the shares of all CPUs and of one core that the command and its busiest
// thread demanded since the previous one, and the number of its threads that wait for a disk.
// Samples with an unmeasured GPU only count if another one computed.
func (w *waitCounts) add(gpus []agent.GPU, cpus, core float64, diskWaits int) {
	measured := true
	for _, g := range gpus {
		util, ok := g.Signals[usage.GPUUtil]
		if ok && util >= waitingUtil {
			w.samples++
			return
		}
		measured = measured && ok
	}
	if !measured {
		return
	}
	if w.causes == nil {
		w.causes = map[string]int{}
	}
	w.samples, w.waiting = w.samples+1, w.waiting+1
	switch {
	case cpus >= fullCPU:
		w.causes["cpus"]++
	case core >= fullCPU:
		w.causes["cpu-core"]++
	case diskWaits > 0:
		w.causes["storage"]++
	default:
		w.causes["unknown"]++
	}
}

// document returns the shares; nil if no GPU waited.
func (w *waitCounts) document() *view.ProfileWaits {
	if w.waiting == 0 {
		return nil
	}
	doc := &view.ProfileWaits{Share: float64(w.waiting) / float64(w.samples), Causes: []view.ProfileWait{}}
	for cause, n := range w.causes {
		doc.Causes = append(doc.Causes, view.ProfileWait{
			Cause: cause, Share: float64(n) / float64(w.waiting), Why: waitCauses[cause],
		})
	}
	slices.SortFunc(doc.Causes, func(a, b view.ProfileWait) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Cause, b.Cause))
	})
	return doc
}
