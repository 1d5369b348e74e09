package spec

import (
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// labelStep is the label that marks the training job of a runtime.
const labelStep = "trainer.kubeflow.org/trainjob-ancestor-step"

// trainJob reads a TrainJob of Kubeflow Trainer (https://www.kubeflow.org/docs/components/trainer):
// the jobs of its runtime, which must be in the file. The training job has numNodes pods, of the
// TrainJob or else of the runtime's mlPolicy; resourcesPerNode replaces the resources of its
// container "node".
func (w *workload) trainJob(body ast.Node) ([]*Spec, error) {
	name, of := w.word(body, "runtimeRef", "name"), w.word(body, "runtimeRef", "kind")
	if of == "" {
		of = "ClusterTrainingRuntime"
	}
	runtime, err := w.find(name, kind{w.group, of})
	if err != nil {
		return nil, err
	}
	if runtime == nil {
		return nil, unreadf("it runs on the %s %s, which is not in the file", of, name)
	}
	for _, key := range []string{"podTemplateOverrides", "podSpecOverrides", "runtimePatches"} {
		if len(w.items(body, key)) > 0 {
			return nil, unreadf("its %s change the pods of the runtime", key)
		}
	}
	spec := w.get(runtime.root, "spec")
	nodes, err := w.number(spec, 1, "mlPolicy", "numNodes")
	if err != nil {
		return nil, err
	}
	if nodes, err = w.number(body, nodes, "trainer", "numNodes"); err != nil {
		return nil, err
	}
	set := w.get(spec, "template", "spec")
	again, err := w.number(set, 0, "failurePolicy", "maxRestarts")
	if err != nil {
		return nil, err
	}
	mpi := w.get(spec, "mlPolicy", "mpi")
	var out []*Spec
	for _, part := range w.items(set, "replicatedJobs") {
		step := trainStep{part: part, nodes: nodes, each: w.get(body, "trainer", "resourcesPerNode")}
		name, asNode := w.word(part, "name"), w.flag(mpi, "runLauncherAsNode")
		switch {
		case mpi != nil && name == "launcher":
			step.nodes, step.trains = 1, asNode
		case mpi != nil && name == "node" && asNode:
			step.nodes, step.trains = nodes-1, true
		default:
			step.trains = name == "node" || w.word(part, "template", "metadata", "labels", labelStep) == "trainer"
		}
		s, err := w.trainStep(step)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		if limit := w.deadline(body); limit > 0 {
			s.MaxRuntime = limit
		}
		s.Retries.Errors = again
		s.noteAttempts("maxRestarts: 0 of the runtime")
		out = append(out, s)
	}
	return out, nil
}

// trainStep is a replicated job of a runtime. A training step has nodes pods, each with the
// resources of the TrainJob if set.
type trainStep struct {
	part   ast.Node
	trains bool
	nodes  int
	each   ast.Node
}

func (w *workload) trainStep(step trainStep) (*Spec, error) {
	count, err := w.number(step.part, 1, "replicas")
	if err != nil {
		return nil, err
	}
	job := w.get(step.part, "template", "spec")
	pods, err := w.number(job, 1, "parallelism")
	if err != nil {
		return nil, err
	}
	template := w.get(job, "template")
	pod := w.get(template, "spec")
	containers, err := w.listContainers(w.items(pod, "containers"))
	if err != nil {
		return nil, err
	}
	initial, err := w.listContainers(w.items(pod, "initContainers"))
	if err != nil {
		return nil, err
	}
	further := quantities{}
	if step.trains {
		if pods = step.nodes; step.each != nil {
			if further, err = w.resources(step.each); err != nil {
				return nil, err
			}
			containers = slices.DeleteFunc(containers, func(c podContainer) bool { return c.name == "node" })
		}
	}
	q, err := w.together(pod, further, containers, initial)
	if err != nil {
		return nil, err
	}
	d, err := w.demand(q, pod)
	if err != nil {
		return nil, err
	}
	limit := w.deadline(job)
	if limit == 0 {
		limit = w.deadline(pod)
	}
	s, err := w.replicas(d, replicas{
		name: w.word(step.part, "name"), count: count * pods, template: template, limit: limit,
	})
	if s != nil {
		w.place(s, pod)
	}
	return s, err
}
