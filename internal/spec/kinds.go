package spec

import (
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/plain"
)

// month is what a workload is estimated for that does not end.
const month = 730 * time.Hour

// replicas are pods of one template that run at once.
type replicas struct {
	// name is what the workload calls them; empty where it has but one template.
	name     string
	count    int
	template ast.Node
	limit    time.Duration
	// errors is how often they begin again.
	errors int
}

// several reads a workload of one or several templates: one Spec for each that asks for
// GPUs.
func (w *workload) several(all []replicas, unknown ...string) ([]*Spec, error) {
	var out []*Spec
	for _, r := range all {
		gpus, err := w.gpus(w.get(r.template, "spec"))
		if err != nil {
			return nil, err
		}
		if gpus == 0 || r.count == 0 {
			continue
		}
		suffix := ""
		if r.name != "" {
			suffix = "." + strings.ToLower(r.name)
		}
		s, err := w.named(gpus, r.count, suffix, r.template)
		if err != nil {
			return nil, err
		}
		s.MaxRuntime, s.Retries.Errors = r.limit, r.errors
		s.Unknown = append(s.Unknown, unknown...)
		w.place(s, w.get(r.template, "spec"))
		out = append(out, s)
	}
	return out, nil
}

// replicaSpecs reads the jobs of Kubeflow's training operator (PyTorchJob, MPIJob, TFJob
// and so on): a mapping of roles, each with its count and template.
func (w *workload) replicaSpecs(body ast.Node) ([]*Spec, error) {
	policy := w.get(body, "runPolicy")
	limit := w.deadline(policy)
	if limit == 0 {
		limit = w.deadline(body)
	}
	retries := policy
	if w.get(policy, "backoffLimit") == nil {
		retries = body
	}
	again, err := w.number(retries, 0, "backoffLimit")
	if err != nil {
		return nil, err
	}
	var all []replicas
	var failed error
	w.each(func(key string, roles ast.Node) {
		if !strings.HasSuffix(key, "ReplicaSpecs") {
			return
		}
		w.each(func(role string, v ast.Node) {
			n, err := w.number(v, 1, "replicas")
			if err != nil {
				failed = err
			}
			all = append(all, replicas{name: role, count: n, template: w.get(v, "template"), limit: limit, errors: again})
		}, roles)
	}, body)
	if most, ok := whole(w.get(body, "elasticPolicy", "maxReplicas")); ok {
		for i := range all {
			if strings.EqualFold(all[i].name, "worker") {
				all[i].count = max(all[i].count, min(most, maxCount))
			}
		}
	}
	if failed != nil {
		return nil, failed
	}
	return w.several(all)
}

// ray reads a RayJob or RayCluster: its head and its groups of workers, those that grow
// at their largest.
func (w *workload) ray(body ast.Node, ends bool) ([]*Spec, error) {
	cluster, limit := body, time.Duration(0)
	var unknown []string
	again := 0
	if ends {
		if n := w.get(body, "clusterSelector"); n != nil {
			return nil, w.At(n, "it runs on a cluster of another document: put its rayClusterSpec here to estimate it")
		}
		cluster, limit = w.get(body, "rayClusterSpec"), w.deadline(body)
		var err error
		if again, err = w.number(body, 0, "backoffLimit"); err != nil {
			return nil, err
		}
	} else {
		unknown = append(unknown, "how long it runs: a "+w.word(w.root, "kind")+" does not end, and is estimated for a month of 730 hours")
	}
	all := []replicas{{name: "head", count: 1, template: w.get(cluster, "headGroupSpec", "template"), limit: limit, errors: again}}
	for _, group := range w.items(cluster, "workerGroupSpecs") {
		n, err := w.number(group, 1, "replicas")
		if err != nil {
			return nil, err
		}
		if grows, ok := w.get(cluster, "enableInTreeAutoscaling").(*ast.BoolNode); ok && grows.Value {
			most, err := w.number(group, n, "maxReplicas")
			if err != nil {
				return nil, err
			}
			n = max(n, most)
		}
		hosts, err := w.number(group, 1, "numOfHosts")
		if err != nil {
			return nil, err
		}
		if n *= hosts; n > maxCount {
			return nil, w.At(group, "a group has more than %d pods", maxCount)
		}
		all = append(all, replicas{name: w.word(group, "groupName"), count: n, template: w.get(group, "template"), limit: limit, errors: again})
	}
	specs, err := w.several(all, unknown...)
	if !ends {
		lasting(specs)
	}
	return specs, err
}

// jobSet reads a JobSet: jobs of which each runs so many times at once.
func (w *workload) jobSet(body ast.Node) ([]*Spec, error) {
	again, err := w.number(w.get(body, "failurePolicy"), 0, "maxRestarts")
	if err != nil {
		return nil, err
	}
	var out []*Spec
	for _, part := range w.items(body, "replicatedJobs") {
		n, err := w.number(part, 1, "replicas")
		if err != nil {
			return nil, err
		}
		s, err := w.job(w.get(part, "template"), w.get(part, "template", "spec"))
		if err != nil {
			return nil, err
		}
		if s == nil || n == 0 {
			continue
		}
		if s.Resources.Nodes *= n; s.Resources.Nodes > maxCount {
			return nil, w.At(part, "a replicated job has more than %d pods", maxCount)
		}
		s.Name += "." + w.word(part, "name")
		if !specName.MatchString(s.Name) {
			return nil, w.At(part, "name %q: letters, digits, dots, dashes and underscores are allowed, 100 at most", s.Name)
		}
		if s.Retries.Errors = again; again > 0 {
			s.Unknown = append(s.Unknown, "how often the set is begun again: "+plain.Count(again, "more time")+" at most")
		}
		out = append(out, s)
	}
	return out, nil
}

// service reads a workload that does not end: it is estimated for a month.
func (w *workload) service(body ast.Node) ([]*Spec, error) {
	n, err := w.number(body, 1, "replicas")
	if err != nil {
		return nil, err
	}
	specs, err := w.several([]replicas{{count: n, template: w.get(body, "template")}},
		"how long it runs: a "+w.word(w.root, "kind")+" does not end, and is estimated for a month of 730 hours")
	lasting(specs)
	return specs, err
}

// lasting gives what does not end a month.
func lasting(specs []*Spec) {
	for _, s := range specs {
		s.Duration, s.Retries.Errors = month, 0
	}
}
