package spec

import (
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// kinds returns the supported kinds with their readers.
func kinds() map[kind]readFunc {
	all := map[kind]readFunc{
		{"", "Pod"}:                   (*workload).barePod,
		{"", "ReplicationController"}: (*workload).service,
		{"batch", "Job"}:              (*workload).batchJob,
		{"batch", "CronJob"}:          (*workload).cronJob,

		{"argoproj.io", "Rollout"}:                 (*workload).rollout,
		{"argoproj.io", "Workflow"}:                (*workload).workflow,
		{"argoproj.io", "CronWorkflow"}:            (*workload).cronWorkflow,
		{"argoproj.io", "WorkflowTemplate"}:        (*workload).workflowTemplate,
		{"argoproj.io", "ClusterWorkflowTemplate"}: (*workload).workflowTemplate,

		{"batch.volcano.sh", "Job"}:                     (*workload).volcanoJob,
		{"jobset.x-k8s.io", "JobSet"}:                   (*workload).jobSet,
		{"leaderworkerset.x-k8s.io", "LeaderWorkerSet"}: (*workload).leaderWorkerSet,
		{"keda.sh", "ScaledJob"}:                        (*workload).scaledJob,

		{"kubeflow.org", "Notebook"}:         (*workload).notebook,
		{"trainer.kubeflow.org", "TrainJob"}: (*workload).trainJob,

		{"ray.io", "RayJob"}:     (*workload).rayJob,
		{"ray.io", "RayCluster"}: (*workload).rayCluster,
		{"ray.io", "RayService"}: (*workload).rayService,

		{"serving.knative.dev", "Service"}:        (*workload).knative,
		{"serving.knative.dev", "Configuration"}:  (*workload).knative,
		{"serving.knative.dev", "Revision"}:       (*workload).knative,
		{"serving.kserve.io", "InferenceService"}: (*workload).inferenceService,

		{"sparkoperator.k8s.io", "SparkApplication"}:          (*workload).spark,
		{"sparkoperator.k8s.io", "ScheduledSparkApplication"}: (*workload).scheduledSpark,
	}
	for _, group := range []string{"apps", "extensions"} {
		for _, name := range []string{"Deployment", "StatefulSet", "ReplicaSet"} {
			all[kind{group, name}] = (*workload).service
		}
		all[kind{group, "DaemonSet"}] = (*workload).daemonSet
	}
	for _, name := range []string{"PyTorchJob", "MPIJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob"} {
		all[kind{"kubeflow.org", name}] = (*workload).replicaSpecs
	}
	return all
}

// replicas is a set of concurrent pods with the same template.
type replicas struct {
	// name is the workload's own name for the pods; empty if it has only one template.
	name     string
	count    int
	template ast.Node
	limit    time.Duration
	// errors is the number of restarts after an error.
	errors int
	// unknown are further unknowns of these pods.
	unknown []string
}

// several reads a workload of one or more templates into a Spec for each that requests GPUs.
func (w *workload) several(all []replicas) ([]*Spec, error) {
	var out []*Spec
	for _, r := range all {
		d, err := w.pod(r.template)
		if err != nil {
			return nil, err
		}
		s, err := w.replicas(d, r)
		if err != nil {
			return nil, err
		}
		if s != nil {
			w.place(s, w.get(r.template, "spec"))
			out = append(out, s)
		}
	}
	return out, nil
}

// replicas makes the Spec of a set of pods; nil if they request nothing.
func (w *workload) replicas(d demand, r replicas) (*Spec, error) {
	suffix := ""
	if r.name != "" {
		suffix = "." + strings.ToLower(r.name)
	}
	s, err := w.named(d, r.count, suffix, r.template)
	if s == nil || err != nil {
		return nil, err
	}
	s.MaxRuntime, s.Retries.Errors = r.limit, r.errors
	s.Unknown = append(s.Unknown, r.unknown...)
	return s, nil
}

func (w *workload) barePod(body ast.Node) ([]*Spec, error) {
	return w.several([]replicas{{count: 1, template: w.root, limit: w.deadline(body)}})
}

func (w *workload) batchJob(body ast.Node) ([]*Spec, error) { return w.job(w.root, body) }

// cronJob reads one run of a CronJob. Runs may overlap unless concurrencyPolicy forbids it. The
// file does not bound them, so the gate asks.
func (w *workload) cronJob(body ast.Node) ([]*Spec, error) {
	specs, err := w.job(w.get(body, "jobTemplate"), w.get(body, "jobTemplate", "spec"))
	w.scheduled(specs, body, "concurrencyPolicy")
	return specs, err
}

// scheduled records that a workload is started repeatedly and that its runs may overlap.
func (w *workload) scheduled(specs []*Spec, body ast.Node, policy string) {
	often := "how often it runs: the estimate is of one run, and it begins by the schedule " + w.word(body, "schedule")
	if p := w.word(body, policy); p == "" || p == "Allow" {
		often += "; runs may overlap, because " + policy + " allows it"
	}
	for _, s := range specs {
		s.Unknown = append(s.Unknown, often)
	}
}

// job reads the spec of a Job, whose pods run in rounds of parallelism until completions.
func (w *workload) job(meta, body ast.Node) ([]*Spec, error) {
	template := w.get(body, "template")
	parallel, err := w.number(body, 1, "parallelism")
	if err != nil {
		return nil, err
	}
	completions, err := w.number(body, parallel, "completions")
	if err != nil {
		return nil, err
	}
	atOnce := max(1, min(parallel, completions))
	rounds := (max(1, completions) + atOnce - 1) / atOnce
	limit, whole := w.deadline(body), true
	if each := w.deadline(template, "spec"); limit == 0 && each > 0 && each <= maxDuration/time.Duration(rounds) {
		limit, whole = each*time.Duration(rounds), false
	}
	d, err := w.pod(template)
	if err != nil {
		return nil, err
	}
	s, err := w.named(d, atOnce, "", meta, template)
	if s == nil || err != nil {
		return nil, err
	}
	s.MaxRuntime = limit
	w.place(s, w.get(template, "spec"))
	// An indexed job may have a limit per index; 6 is the default of Kubernetes.
	if s.Retries.Errors, err = w.number(body, 6, "backoffLimit"); err != nil {
		return nil, err
	}
	each, err := w.number(body, 0, "backoffLimitPerIndex")
	if err != nil {
		return nil, err
	}
	if each > 0 {
		s.Retries.Errors = max(s.Retries.Errors, min(each*max(1, completions), maxCount))
	}
	if !whole {
		s.noteAttempts("activeDeadlineSeconds of the Job")
	}
	if rounds > 1 && limit == 0 {
		s.Unknown = append(s.Unknown, "how long its rounds of pods take: "+
			plain.Count(completions, "pod")+" run "+plain.Count(atOnce, "pod")+" at a time")
	}
	return []*Spec{s}, nil
}

// volcanoJob reads a Job of Volcano: its tasks, each with a count and a template
// (https://volcano.sh/docs/vcjob). The whole job has no time limit; the pods of a task may have a
// deadline each, and the job restarts up to maxRetry times, 3 by default.
func (w *workload) volcanoJob(body ast.Node) ([]*Spec, error) {
	again, err := w.number(body, 3, "maxRetry")
	if err != nil {
		return nil, err
	}
	var all []replicas
	for _, task := range w.items(body, "tasks") {
		n, err := w.number(task, 1, "replicas")
		if err != nil {
			return nil, err
		}
		template := w.get(task, "template")
		all = append(all, replicas{
			name:     w.word(task, "name"),
			count:    n,
			template: template,
			limit:    w.deadline(template, "spec"),
			errors:   again,
		})
	}
	specs, err := w.several(all)
	for _, s := range specs {
		s.noteAttempts("maxRetry: 0")
	}
	return specs, err
}

// jobSet reads a JobSet: jobs with a number of replicas each
// (https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2).
func (w *workload) jobSet(body ast.Node) ([]*Spec, error) {
	again, err := w.number(body, 0, "failurePolicy", "maxRestarts")
	if err != nil {
		return nil, err
	}
	var out []*Spec
	for _, part := range w.items(body, "replicatedJobs") {
		n, err := w.number(part, 1, "replicas")
		if err != nil {
			return nil, err
		}
		specs, err := w.job(w.get(part, "template"), w.get(part, "template", "spec"))
		if err != nil {
			return nil, err
		}
		for _, s := range specs {
			if n == 0 {
				break
			}
			if s.Resources.Nodes *= n; s.Resources.Nodes > maxCount {
				return nil, w.At(part, "a replicated job has more than %d pods", maxCount)
			}
			s.Name += "." + w.word(part, "name")
			if !specName.MatchString(s.Name) {
				return nil, w.At(part,
					"name %q: letters, digits, dots, dashes and underscores are allowed, 100 at most", s.Name)
			}
			if s.Retries.Errors = again; again > 0 {
				s.Unknown = append(s.Unknown, "how often the set is begun again: "+plain.Count(again,
					"more time")+" at most")
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// service reads a workload of one template that does not end. It is estimated for a month, at the
// maximum of its autoscaler.
func (w *workload) service(body ast.Node) ([]*Spec, error) {
	n, err := w.number(body, 1, "replicas")
	if err != nil {
		return nil, err
	}
	return w.scaled(n, w.get(body, "template"))
}

// scaled reads a set of pods that do not end.
func (w *workload) scaled(n int, template ast.Node) ([]*Spec, error) {
	n, unknown, err := w.maxReplicas(n)
	if err != nil {
		return nil, err
	}
	return w.boundToMonth(w.several([]replicas{{count: n, template: template, unknown: unknown}}))
}

// boundToMonth bounds endless workloads to a month.
func (w *workload) boundToMonth(specs []*Spec, err error) ([]*Spec, error) {
	for _, s := range specs {
		s.Duration, s.MaxRuntime, s.Retries.Errors = money.Month, 0, 0
		s.Unknown = append(s.Unknown,
			"how long it runs: a "+w.kind.name+" does not end, and is estimated for a month of 730 hours")
	}
	return specs, err
}

// rollout reads an Argo Rollout, which has a template or references that of another workload.
func (w *workload) rollout(body ast.Node) ([]*Spec, error) {
	n, err := w.number(body, 1, "replicas")
	if err != nil {
		return nil, err
	}
	template := w.get(body, "template")
	if ref := w.get(body, "workloadRef"); ref != nil {
		of, err := w.find(w.word(ref, "name"), kind{"apps", w.word(ref, "kind")})
		if err != nil {
			return nil, err
		}
		if of == nil {
			return nil, unreadf("its pods are those of %s %s, which is not in the file", w.word(ref, "kind"),
				w.word(ref, "name"))
		}
		template = w.get(of.root, "spec", "template")
	}
	return w.scaled(n, template)
}

// daemonSet reads a DaemonSet: one pod per eligible node. Only the cluster knows their number.
func (w *workload) daemonSet(body ast.Node) ([]*Spec, error) {
	return w.boundToMonth(w.several([]replicas{{count: 1, template: w.get(body, "template"),
		unknown: []string{"how many nodes it runs on: one pod is counted"}}}))
}

// leaderWorkerSet reads a LeaderWorkerSet: groups of a leader and workers, with size pods in each
// (https://lws.sigs.k8s.io/docs/reference/leaderworkerset.v1).
func (w *workload) leaderWorkerSet(body ast.Node) ([]*Spec, error) {
	n, err := w.number(body, 1, "replicas")
	if err != nil {
		return nil, err
	}
	n, unknown, err := w.maxReplicas(n)
	if err != nil {
		return nil, err
	}
	size, err := w.number(body, 1, "leaderWorkerTemplate", "size")
	if err != nil {
		return nil, err
	}
	worker := w.get(body, "leaderWorkerTemplate", "workerTemplate")
	all := []replicas{{count: n * max(1, size), template: worker, unknown: unknown}}
	if leader := w.get(body, "leaderWorkerTemplate", "leaderTemplate"); leader != nil {
		all = []replicas{
			{name: "leader", count: n, template: leader, unknown: unknown},
			{name: "worker", count: n * (max(1, size) - 1), template: worker, unknown: unknown},
		}
	}
	return w.boundToMonth(w.several(all))
}

// notebook reads a Notebook of Kubeflow: one pod.
func (w *workload) notebook(body ast.Node) ([]*Spec, error) {
	return w.boundToMonth(w.several([]replicas{{count: 1, template: w.get(body, "template")}}))
}

// replicaSpecs reads the jobs of Kubeflow's training operator (PyTorchJob, MPIJob, TFJob
// and so on): a mapping of roles, each with its count and template. An elastic job counts at
// its largest; its bounds default to one another, or to the replicas (setElasticPolicy of
// github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1).
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
		if !strings.HasSuffix(key, "ReplicaSpecs") && key != "replicaSpecs" {
			return
		}
		w.each(func(role string, v ast.Node) {
			n, err := w.number(v, 1, "replicas")
			if err != nil {
				failed = err
			}
			all = append(all, replicas{
				name: role, count: n, template: w.get(v, "template"), limit: limit, errors: again,
			})
		}, roles)
	}, body)
	if failed != nil {
		return nil, failed
	}
	most := 0
	for _, bound := range []string{"minReplicas", "maxReplicas"} {
		n, err := w.number(body, 0, "elasticPolicy", bound)
		if err != nil {
			return nil, err
		}
		most = max(most, n)
	}
	for i := range all {
		if !strings.EqualFold(all[i].name, "worker") {
			continue
		}
		all[i].count = max(all[i].count, most)
		if all[i].count, all[i].unknown, err = w.maxReplicas(all[i].count); err != nil {
			return nil, err
		}
	}
	return w.several(all)
}
