package spec

import (
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/money"
)

// rayJob reads a RayJob
// (https://docs.ray.io/en/latest/cluster/kubernetes/getting-started/rayjob-quick-start.html). Its
// cluster ends with the job only if shutdownAfterJobFinishes is set (ttlSecondsAfterFinished
// later), which is false by default, or if a deletionStrategy deletes it in every outcome.
// Otherwise it runs on like a RayCluster. Each of the backoffLimit retries has its own cluster and
// activeDeadlineSeconds.
func (w *workload) rayJob(body ast.Node) ([]*Spec, error) {
	if selector := w.get(body, "clusterSelector"); selector != nil {
		name := w.word(selector, "ray.io/cluster")
		of, err := w.find(name, kind{"ray.io", "RayCluster"})
		if err != nil {
			return nil, err
		}
		if of == nil {
			return nil, unreadf("it runs on the RayCluster %s, which is not in the file", name)
		}
		return w.submitter(body, 0) // the cluster is counted separately
	}
	again, err := w.number(body, 0, "backoffLimit")
	if err != nil {
		return nil, err
	}
	limit, ends := w.deadline(body), w.shutsDown(body)
	if limit > 0 && ends {
		limit += w.seconds(body, "ttlSecondsAfterFinished")
	}
	if !ends {
		limit = 0
	}
	specs, err := w.rayPods(w.get(body, "rayClusterSpec"), limit, again)
	if err != nil {
		return nil, err
	}
	more, err := w.submitter(body, limit)
	if err != nil {
		return nil, err
	}
	if ends {
		for _, s := range specs {
			s.noteAttempts("backoffLimit: 0")
		}
		return append(specs, more...), nil
	}
	for _, s := range specs {
		s.Duration, s.Retries.Errors = money.Month, 0
		s.Unknown = append(s.Unknown,
			"how long its cluster runs: without shutdownAfterJobFinishes it runs on after the job, "+
				"and is estimated for a month of 730 hours")
	}
	return append(specs, more...), nil
}

// shutsDown reports whether a RayJob deletes its cluster in every outcome.
func (w *workload) shutsDown(body ast.Node) bool {
	strategy := w.get(body, "deletionStrategy")
	if strategy == nil {
		return w.flag(body, "shutdownAfterJobFinishes")
	}
	deletes := func(policy string) bool { return policy == "DeleteCluster" || policy == "DeleteSelf" }
	if rules := w.items(strategy, "deletionRules"); len(rules) > 0 {
		var covered []string
		for _, rule := range rules {
			if deletes(w.word(rule, "policy")) && w.seconds(rule, "condition", "ttlSeconds") == 0 {
				covered = append(covered, w.word(rule, "condition", "jobStatus"))
			}
		}
		return slices.Contains(covered, "SUCCEEDED") && slices.Contains(covered, "FAILED")
	}
	return deletes(w.word(strategy, "onSuccess", "policy")) && deletes(w.word(strategy, "onFailure", "policy"))
}

// submitter reads the pod that submits a RayJob, if its template requests GPUs.
func (w *workload) submitter(body ast.Node, limit time.Duration) ([]*Spec, error) {
	return w.several([]replicas{
		{name: "submitter", count: 1, template: w.get(body, "submitterPodTemplate"), limit: limit},
	})
}

// rayCluster reads a RayCluster, which runs until it is deleted.
func (w *workload) rayCluster(body ast.Node) ([]*Spec, error) {
	return w.boundToMonth(w.rayPods(body, 0, 0))
}

// rayService reads a RayService, which keeps a cluster.
func (w *workload) rayService(body ast.Node) ([]*Spec, error) {
	cluster := w.get(body, "rayClusterConfig")
	if cluster == nil {
		cluster = w.get(body, "rayClusterSpec")
	}
	return w.boundToMonth(w.rayPods(cluster, 0, 0))
}

// rayPods reads the head and the worker groups of a cluster. A group has replicas, at least
// minReplicas, each of numOfHosts pods; with enableInTreeAutoscaling it grows to maxReplicas, which
// is 2147483647 by default (GetWorkerGroupDesiredReplicas and the defaults of the CRD in
// github.com/ray-project/kuberay/ray-operator).
func (w *workload) rayPods(cluster ast.Node, limit time.Duration, again int) ([]*Spec, error) {
	all := []replicas{
		{name: "head", count: 1, template: w.get(cluster, "headGroupSpec", "template"), limit: limit, errors: again},
	}
	for _, group := range w.items(cluster, "workerGroupSpecs") {
		least, err := w.number(group, 0, "minReplicas")
		if err != nil {
			return nil, err
		}
		n, err := w.number(group, max(1, least), "replicas")
		if err != nil {
			return nil, err
		}
		n = max(n, least)
		var unknown []string
		if w.flag(cluster, "enableInTreeAutoscaling") {
			if w.get(group, "maxReplicas") == nil {
				unknown = []string{
					"how many pods group " + w.word(group, "groupName") + " grows to: it has no maxReplicas",
				}
			}
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
		all = append(all, replicas{
			name:     w.word(group, "groupName"),
			count:    n * max(1, hosts),
			template: w.get(group, "template"),
			limit:    limit,
			errors:   again,
			unknown:  unknown,
		})
	}
	return w.several(all)
}
