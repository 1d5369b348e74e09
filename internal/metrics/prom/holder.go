package prom

import (
	"cmp"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Holder is the workload that a GPU is lent to, by the labels of Kubernetes and Slurm.
type Holder struct {
	GPU string
	// Namespace and Pod are those of Kubernetes, Job is one of Slurm.
	Namespace, Pod, Job string
}

// maxHolders bounds the holders that are remembered of a machine.
const maxHolders = 256

// holderOf returns who labels in lower case lend a GPU to; false where they say nothing. A
// pod that has the name of the host, or of an exporter, is the exporter's own: a target's
// label, where the series has none.
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

// Holders returns who the GPUs of a machine were lent to in what was read last, in order.
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

// lend remembers who a GPU is lent to.
func (s *Source) lend(m inventory.Ref, h Holder) {
	known := s.holders[m]
	if known == nil {
		known = map[Holder]bool{}
		s.holders[m] = known
	}
	if len(known) < maxHolders {
		known[h] = true
	}
}
