package prom

import (
	"cmp"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Holder is the workload that a GPU is allocated to, from the labels of Kubernetes and Slurm.
type Holder struct {
	GPU string
	// Namespace and Pod are of Kubernetes, Job is of Slurm.
	Namespace, Pod, Job string
}

// maxHolders bounds the holders that are remembered for a machine.
const maxHolders = 256

// holderOf returns the workload that lower-case labels allocate a GPU to, or false. A pod named
// like the host or like an exporter is the exporter itself: a target label, present where the
// series has no pod label.
func holderOf(gpu string, labels map[string]string) (Holder, bool) {
	h := Holder{
		GPU: gpu, Namespace: first(labels, "namespace", "pod_namespace", "podnamespace"),
		Pod: first(labels, "pod", "pod_name", "podname"),
		Job: first(labels, "hpc_job", "slurm_job_id", "job_id")}
	if h.Pod == "" || h.Pod == labels["hostname"] || labels["exported_pod"] == "" &&
		strings.Contains(h.Pod, "exporter") {
		h.Namespace, h.Pod = "", ""
	}
	return h, h.Pod != "" || h.Job != ""
}

// Holders returns the workloads that held GPUs of a machine in the last reading, sorted.
func (s *Source) Holders(m inventory.Ref) []Holder {
	out := make([]Holder, 0, len(s.holders[m]))
	for h := range s.holders[m] {
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Job, b.Job))
	})
	return out
}

// recordHolder records the workload that a GPU is allocated to.
func (s *Source) recordHolder(m inventory.Ref, h Holder) {
	known := s.holders[m]
	if known == nil {
		known = map[Holder]bool{}
		s.holders[m] = known
	}
	if len(known) < maxHolders {
		known[h] = true
	}
}
