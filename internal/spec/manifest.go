package spec

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
)

// gpuResource is the extended resource of the NVIDIA device plugin for Kubernetes.
const gpuResource = "nvidia.com/gpu"

// otherAccelerator are the extended resources of accelerators that no price is known for
// one by one: slices and shares of GPUs, and those of other makers.
var otherAccelerator = lazyregexp.New(`^(nvidia\.com/(mig-.+|gpu\.shared)|amd\.com/gpu|gpu\.intel\.com/.+|habana\.ai/gaudi|aws\.amazon\.com/neuron.*|google\.com/tpu)$`)

// manifests reads manifests of Kubernetes, one or several documents in a file: each
// Pod, Job, CronJob, JobSet and Deployment, each role of a job of Kubeflow's training
// operator or of Ray, and each template of an Argo Workflow that is reached, whose
// containers are limited to `nvidia.com/gpu`. Documents without GPUs give nothing; one of
// another kind that asks for GPUs is a *document.Error.
//
// Nodes is how many pods run at once; MaxRuntime is activeDeadlineSeconds, that of a pod
// times the rounds in which the pods of a Job follow one another. GPU, InstanceType,
// Regions and Capacity come from node selectors and required node affinity, Owner and
// Purpose from the labels, whatever prefix they have, by [inventory.DefaultTagMapping].
// Digest is that of the whole file, because a pod may read what other documents hold.
func (d *reader) manifests() ([]*Spec, error) {
	t := &tree{d.File}
	digest, err := t.digest()
	if err != nil {
		return nil, d.Placed(err)
	}
	var out []*Spec
	for _, body := range d.Bodies {
		documents := []ast.Node{body}
		if t.word(body, "kind") == "List" {
			documents = t.items(body, "items")
		}
		for _, doc := range documents {
			specs, err := (&workload{reader: d, tree: t, root: doc, digest: digest}).read()
			if err != nil {
				return nil, err
			}
			out = append(out, specs...)
		}
	}
	return out, nil
}

// workload is a document of Kubernetes.
type workload struct {
	*reader
	*tree
	root   ast.Node
	digest string
	// parameters are those of the template of a workflow that is read.
	parameters map[string]string
}

func (w *workload) read() ([]*Spec, error) {
	kind, body := w.word(w.root, "kind"), w.get(w.root, "spec")
	var s *Spec
	var err error
	switch kind {
	case "Pod":
		s, err = w.pod(body, 1, w.deadline(body))
	case "Job":
		s, err = w.job(w.root, body)
	case "CronJob":
		if s, err = w.job(w.get(body, "jobTemplate"), w.get(body, "jobTemplate", "spec")); s != nil {
			s.Unknown = append(s.Unknown, "how often it runs: the estimate is of one run, and it begins by the schedule "+w.word(body, "schedule"))
		}
	case "JobSet":
		return w.jobSet(body)
	case "RayJob", "RayCluster", "RayService":
		if kind == "RayService" {
			body = w.get(body, "rayClusterConfig")
		}
		return w.ray(body, kind == "RayJob")
	case "Deployment", "StatefulSet", "ReplicaSet":
		return w.service(body)
	case "PyTorchJob", "MPIJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob":
		return w.replicaSpecs(body)
	case "Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate":
		return w.workflow(body)
	case "CronWorkflow":
		specs, err := w.workflow(w.get(body, "workflowSpec"))
		for _, s := range specs {
			s.Unknown = append(s.Unknown, "how often it runs: the estimate is of one run, and it begins by the schedule "+w.word(body, "schedule"))
		}
		return specs, err
	default:
		if n := w.find(w.root, func(key string) bool { return key == gpuResource || otherAccelerator.MatchString(key) }); n != nil {
			return nil, w.At(n, "a %s asks for GPUs; a Pod, Job, CronJob, JobSet, PyTorchJob, MPIJob, RayJob, Workflow or Deployment can be estimated", cmp.Or(kind, "document without a kind"))
		}
	}
	if s == nil || err != nil {
		return nil, err
	}
	return []*Spec{s}, nil
}

// job reads the spec of a Job. Its pods run in rounds of parallelism until completions.
func (w *workload) job(meta, body ast.Node) (*Spec, error) {
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
	s, err := w.pod(w.get(template, "spec"), atOnce, limit, meta, template)
	if s == nil || err != nil {
		return nil, err
	}
	if s.Retries.Errors, err = w.number(body, 6, "backoffLimit"); err != nil { // 6 is Kubernetes' own default
		return nil, err
	}
	if !whole {
		s.begunAgain("activeDeadlineSeconds of the Job")
	}
	if rounds > 1 && limit == 0 {
		s.Unknown = append(s.Unknown, "how long its rounds of pods take: "+plain.Count(completions, "pod")+" run "+plain.Count(atOnce, "pod")+" at a time")
	}
	return s, nil
}

// begunAgain notes that only each try has a bound, and what would bound all of them.
func (s *Spec) begunAgain(bound string) {
	if s.Retries.Errors > 0 {
		s.Unknown = append(s.Unknown, "how often it is begun again: "+plain.Count(s.Retries.Errors, "more time")+" at most, each for as long; "+bound+" would bound all")
	}
}

// pod reads the spec of a pod; nil where it asks for no GPU.
func (w *workload) pod(body ast.Node, count int, limit time.Duration, parts ...ast.Node) (*Spec, error) {
	gpus, err := w.gpus(body)
	if gpus == 0 || err != nil {
		return nil, err
	}
	s, err := w.named(gpus, count, "", parts...)
	if err != nil {
		return nil, err
	}
	s.MaxRuntime = limit
	w.place(s, body)
	return s, nil
}

// named begins a Spec of so many pods; its owner is in the labels of the document and of
// the given parts of it.
func (w *workload) named(gpus, pods int, suffix string, parts ...ast.Node) (*Spec, error) {
	s := &Spec{Kind: Job, Capacity: OnDemand, Retries: Retries{Interruptions: DefaultInterruptions},
		Resources: Resources{GPUs: gpus, Nodes: pods}, Digest: w.digest, File: w.Name, Line: w.At(w.root, "").Line}
	s.Name = cmp.Or(w.word(w.root, "metadata", "name"), strings.Trim(w.word(w.root, "metadata", "generateName"), "-."), strings.ToLower(w.word(w.root, "kind"))) + suffix
	if !specName.MatchString(s.Name) {
		return nil, w.At(w.root, "name %q: letters, digits, dots, dashes and underscores are allowed, 100 at most", s.Name)
	}
	r := &inventory.Resource{Tags: map[string]string{}}
	for _, n := range append([]ast.Node{w.root}, parts...) {
		w.each(func(key string, v ast.Node) {
			_, bare, prefixed := strings.Cut(key, "/")
			if r.Tags[key] == "" {
				r.Tags[key] = document.Scalar(v)
			}
			if prefixed && r.Tags[bare] == "" {
				r.Tags[bare] = document.Scalar(v)
			}
		}, n, "metadata", "labels")
	}
	_ = inventory.DefaultTagMapping().Apply(r) // its only error is of an exemption
	s.Owner, s.Purpose = r.Owner, r.Purpose
	return s, nil
}

// gpus is how many GPUs the containers of a pod are limited to. Containers of the
// initialization run one by one before the others.
func (w *workload) gpus(body ast.Node) (int, error) {
	total, before := 0, 0
	for _, key := range []string{"containers", "initContainers"} {
		for _, c := range w.items(body, key) {
			n, err := w.limit(c)
			if err != nil {
				return 0, err
			}
			if key == "containers" {
				total += n
			} else {
				before = max(before, n)
			}
		}
	}
	return max(total, before), nil
}

// limit is how many GPUs a container is limited to.
func (w *workload) limit(container ast.Node) (int, error) {
	var other error
	for _, part := range []string{"limits", "requests"} {
		w.each(func(key string, v ast.Node) {
			if n, ok := whole(v); otherAccelerator.MatchString(key) && (!ok || n > 0) {
				other = w.At(v, "%s cannot be estimated, only whole %s can", key, gpuResource)
			}
		}, container, "resources", part)
	}
	if other != nil {
		return 0, other
	}
	n := w.get(container, "resources", "limits", gpuResource)
	if n == nil {
		n = w.get(container, "resources", "requests", gpuResource)
	}
	if n == nil {
		return 0, nil
	}
	v, ok := w.count(n)
	if !ok || v > maxGPUs {
		return 0, w.At(n, "%s is a whole number from 0 to %d", gpuResource, maxGPUs)
	}
	return v, nil
}

// count reads a whole number, or a parameter of a workflow that is given as one.
func (w *workload) count(n ast.Node) (int, bool) {
	if v, ok := whole(n); ok {
		return v, ok
	}
	v, err := strconv.ParseUint(strings.TrimSpace(w.resolve(document.Scalar(n))), 10, 31)
	return int(v), err == nil
}

// placeholder is a parameter of a workflow or of a template.
var placeholder = lazyregexp.New(`\{\{\s*(workflow|inputs)\.parameters\.([A-Za-z0-9_.-]+)\s*\}\}`)

// resolve puts the parameters of the workflow, and of the template that is read, in the
// place of their names. One that is not known stays.
func (w *workload) resolve(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		m := placeholder.FindStringSubmatch(found)
		if m[1] == "inputs" {
			if v, known := w.parameters[m[2]]; known {
				return v
			}
			return found
		}
		for _, body := range []ast.Node{w.get(w.root, "spec"), w.get(w.root, "spec", "workflowSpec")} {
			for _, p := range w.items(body, "arguments", "parameters") {
				if v := w.word(p, "value"); w.word(p, "name") == m[2] && v != "" {
					return v
				}
			}
		}
		return found
	})
}

// deadline is activeDeadlineSeconds; 0 where it is not there or not a time.
func (w *workload) deadline(n ast.Node, path ...string) time.Duration {
	if v, ok := whole(w.get(n, append(path, "activeDeadlineSeconds")...)); ok && v <= int(maxDuration/time.Second) {
		return time.Duration(v) * time.Second
	}
	return 0
}

// number is a whole number, or otherwise where it is not there.
func (w *workload) number(n ast.Node, otherwise int, key string) (int, error) {
	v := w.get(n, key)
	if v == nil {
		return otherwise, nil
	}
	out, ok := whole(v)
	if !ok || out > maxCount {
		return 0, w.At(v, "%s is a whole number from 0 to %d", key, maxCount)
	}
	return out, nil
}

// place reads where a pod may run: its node selectors and required node affinity. Those
// of a later part hold where the parts before have none.
func (w *workload) place(s *Spec, parts ...ast.Node) {
	labels := map[string][]string{}
	for _, part := range slices.Backward(parts) {
		for key, values := range w.selected(part) {
			labels[key] = values
		}
	}
	one := func(key string) string {
		all := labels[key]
		slices.Sort(all)
		if all = slices.Compact(all); len(all) > 1 {
			s.Unknown = append(s.Unknown, "which of "+strings.Join(all, ", ")+" it runs on ("+key+")")
			return ""
		}
		return strings.Join(all, "")
	}
	s.Selector = labels
	s.Resources.GPU = strings.TrimPrefix(one("nvidia.com/gpu.product"), "NVIDIA-")
	s.Resources.InstanceType = one("node.kubernetes.io/instance-type")
	for _, capacity := range slices.Concat(labels["karpenter.sh/capacity-type"], labels["eks.amazonaws.com/capacityType"]) {
		if strings.EqualFold(capacity, string(Spot)) {
			s.Capacity = Spot
		}
	}
	if len(labels["karpenter.sh/capacity-type"]) > 1 && s.Capacity == Spot {
		s.Capacity = Auto
	}
	regions := labels["topology.kubernetes.io/region"]
	for _, zone := range labels["topology.kubernetes.io/zone"] {
		regions = append(regions, strings.TrimRight(zone, "abcdefghi"))
	}
	for _, region := range regions {
		if regionName.MatchString(region) && !slices.Contains(s.Regions, region) {
			s.Regions = append(s.Regions, region)
		}
	}
}

// selected are the values that a pod's node selector and required node affinity admit.
func (w *workload) selected(part ast.Node) map[string][]string {
	labels := map[string][]string{}
	w.each(func(key string, v ast.Node) { labels[key] = append(labels[key], w.resolve(document.Scalar(v))) }, part, "nodeSelector")
	for _, term := range w.items(part, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms") {
		for _, e := range w.items(term, "matchExpressions") {
			if key := w.word(e, "key"); w.word(e, "operator") == "In" {
				for _, v := range w.items(e, "values") {
					labels[key] = append(labels[key], document.Scalar(v))
				}
			}
		}
	}
	return labels
}
