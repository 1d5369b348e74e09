package prom

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// maxClaimAge is the maximum age of a series that names a machine's owner.
const maxClaimAge = 10 * time.Minute

// Claims returns the owners of machines at a time, from the labels of their Kubernetes nodes and of
// the pods and Slurm jobs that hold their GPUs, by the tag mapping.
func (s *Source) Claims(ctx context.Context, machines []*inventory.Resource, at time.Time, tags inventory.TagMapping) (
	map[inventory.Ref]inventory.Claims, error) {
	s.found.add(machines)
	c := &claims{
		Source: s, tags: tags, pods: map[podName]inventory.Owner{}, out: map[inventory.Ref]inventory.Claims{},
		tenants: map[inventory.Ref]map[string]bool{},
	}
	var err error
	each := func(expression string, do func(labels map[string]string)) {
		if err == nil {
			query := strings.NewReplacer("SELECT", s.where, "RANGE", "["+seconds(maxClaimAge)+"]").Replace(expression)
			err = s.server.instant(ctx, query, at, func(x series) error { do(lowerKeys(x.Labels)); return nil })
		}
	}
	each(`last_over_time(kube_node_labels{job!=""SELECT}RANGE)`, c.node)
	each(`last_over_time(kube_pod_labels{job!=""SELECT}RANGE)`+withRequest, func(labels map[string]string) {
		c.pods[podName{first(labels, "namespace"), first(labels, "pod")}] = tags.Owner(podLabels(labels))
	})
	each(`last_over_time(`+requestsOf+
		`) unless on (namespace, pod) (last_over_time(kube_pod_status_phase{phase=~"Succeeded|Failed"SELECT}RANGE) == 1)`,
		func(labels map[string]string) {
			if node := first(labels, "node"); node != "" {
				c.tenant(s.found.find(map[string]string{"node": node}), labels)
			}
		})
	var names []string
	for _, name := range s.words.names() {
		if signal := s.words[name].Signal; signal == usage.GPUUtil || signal == usage.GREngine {
			names = append(names, name)
		}
	}
	each(`last_over_time({__name__=~"`+strings.Join(names, "|")+`"SELECT`+s.near.matcher(at)+`}RANGE)`,
		func(labels map[string]string) { c.tenant(s.found.find(labels), labels) })
	return c.out, err
}

// claims collects owners while series are read.
type claims struct {
	*Source
	tags inventory.TagMapping
	pods map[podName]inventory.Owner
	out  map[inventory.Ref]inventory.Claims
	// tenants holds the tenants already recorded for each machine, by name.
	tenants map[inventory.Ref]map[string]bool
}

// node adds the owner in the labels of a node.
func (c *claims) node(labels map[string]string) {
	if m := c.found.find(map[string]string{"node": first(labels, "node")}); m != nil {
		x := c.out[m.Ref()]
		x.Machine = c.tags.Owner(podLabels(labels))
		c.out[m.Ref()] = x
	}
}

// tenant adds the pod or job in the labels of a series. Its other labels may be the exporter's and
// are ignored.
func (c *claims) tenant(m *inventory.Resource, labels map[string]string) {
	h, ok := holderOf("", labels)
	if m == nil || !ok {
		return
	}
	ref, name := m.Ref(), h.Namespace+"/"+h.Pod
	if h.Pod == "" {
		name = "job " + h.Job
	}
	if c.tenants[ref] == nil {
		c.tenants[ref] = map[string]bool{}
	}
	if c.tenants[ref][name] {
		return
	}
	c.tenants[ref][name] = true
	owner, known := c.pods[podName{h.Namespace, h.Pod}]
	if !known {
		owner = c.tags.Owner(podLabels(labels))
	}
	owner.User = cmp.Or(owner.User, first(labels, "job_user", "slurm_job_user", "slurm_user"))
	x := c.out[ref]
	x.Tenants = append(x.Tenants, owner)
	c.out[ref] = x
}
