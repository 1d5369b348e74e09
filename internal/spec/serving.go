package spec

import (
	"github.com/goccy/go-yaml/ast"
)

// inferenceService reads an InferenceService of KServe: predictor, transformer and explainer,
// each between minReplicas, 1 by default, and maxReplicas, which has no bound by default
// (https://kserve.github.io/website/docs/reference/crd-api). Its containers are those of the
// component, of its model, and of the serving runtime that the model runs on.
func (w *workload) inferenceService(body ast.Node) ([]*Spec, error) {
	var out []*Spec
	for _, name := range []string{"predictor", "transformer", "explainer"} {
		part := w.get(body, name)
		if part == nil {
			continue
		}
		specs, err := w.component(name, part)
		if err != nil {
			return nil, err
		}
		out = append(out, specs...)
	}
	return w.boundToMonth(out, nil)
}

// component reads a component of an InferenceService.
func (w *workload) component(name string, part ast.Node) ([]*Spec, error) {
	n, unknown, err := w.maxServed(part)
	if err != nil {
		return nil, err
	}
	runtime, why, err := w.servingRuntime(part)
	if err != nil {
		return nil, err
	}
	if why != "" {
		unknown = append(unknown, why)
	}
	q, err := w.servingPod(part, runtime)
	if err != nil {
		return nil, err
	}
	r := replicas{name: name, count: n, template: part, unknown: unknown}
	workers, stages, err := w.workers(part, runtime)
	if err != nil {
		return nil, err
	}
	specs := []*Spec{}
	add := func(r replicas, q quantities) error {
		d, err := w.demand(q, part)
		if err != nil {
			return err
		}
		if d.empty() && why != "" {
			d.unknown, r.unknown = []string{why}, nil
		}
		s, err := w.replicas(d, r)
		if s != nil {
			w.place(s, part, runtime)
			specs = append(specs, s)
		}
		return err
	}
	if err := add(r, q.largest(workers.head)); err != nil {
		return nil, err
	}
	if workers.given {
		why = ""
		err = add(replicas{
			name: name + "-worker", count: n * (stages - 1), template: part, unknown: unknown,
		}, workers.each)
	}
	return specs, err
}

// maxServed returns the maximum number of a component's replicas.
func (w *workload) maxServed(part ast.Node) (int, []string, error) {
	least, err := w.number(part, 1, "minReplicas")
	if err != nil {
		return 0, nil, err
	}
	most, err := w.number(part, 0, "maxReplicas")
	if err != nil {
		return 0, nil, err
	}
	if most > 0 {
		return max(least, most), nil, nil
	}
	scale, bounded, err := w.maxScale(w.root)
	if err != nil || bounded {
		return max(1, least, scale), nil, err
	}
	return max(1, least, scale), []string{"how many replicas it grows to: it has no maxReplicas"}, nil
}

// servingRuntime returns the runtime in the file that a component's model names; why is the reason
// if it is in no file or is chosen by the model's format.
func (w *workload) servingRuntime(part ast.Node) (spec ast.Node, why string, err error) {
	model := w.get(part, "model")
	if model == nil {
		return nil, "", nil
	}
	name := w.word(model, "runtime")
	if name == "" {
		return nil, "what its serving runtime adds: KServe chooses it by the format of the model", nil
	}
	of, err := w.find(name, kind{
		"serving.kserve.io", "ServingRuntime",
	}, kind{"serving.kserve.io", "ClusterServingRuntime"})
	if of == nil || err != nil {
		return nil, "what serving runtime " + name + " adds, which is not in the file", err
	}
	return w.get(of.root, "spec"), "", nil
}

// servingPod returns the request of one pod of a component: its own containers, the model or the
// frameworks that older versions have instead, and the containers of the runtime. Of the model's
// resources and those of the runtime's kserve-container the larger is counted.
func (w *workload) servingPod(part, runtime ast.Node) (quantities, error) {
	model, further := quantities{}, quantities{}
	var failed error
	w.each(func(key string, v ast.Node) {
		if key == "workerSpec" || w.get(v, "resources") == nil {
			return
		}
		one, err := w.container(v)
		if err != nil {
			failed = err
		}
		model = model.add(one)
	}, part)
	if failed != nil {
		return nil, failed
	}
	for _, c := range w.items(runtime, "containers") {
		one, err := w.container(c)
		if err != nil {
			return nil, err
		}
		if w.word(c, "name") == "kserve-container" {
			model = model.largest(one)
		} else {
			further = further.add(one)
		}
	}
	return w.containers(part, further.add(model))
}

// servingWorkers are the additional pods of a multi-node replica.
type servingWorkers struct {
	given      bool
	head, each quantities
}

// workers reads workerSpec: a replica has a head and pipelineParallelSize - 1 workers, 2 stages by
// default, with tensorParallelSize GPUs each
// (https://kserve.github.io/website/docs/model-serving/generative-inference/multi-node).
func (w *workload) workers(part, runtime ast.Node) (out servingWorkers, stages int, err error) {
	stages, gpus := 2, 0
	for _, n := range []ast.Node{w.get(runtime, "workerSpec"), w.get(part, "workerSpec")} {
		if n == nil {
			continue
		}
		out.given = true
		if stages, err = w.number(n, stages, "pipelineParallelSize"); err != nil {
			return out, 0, err
		}
		if gpus, err = w.number(n, gpus, "tensorParallelSize"); err != nil {
			return out, 0, err
		}
		q, err := w.containers(n, nil)
		if err != nil {
			return out, 0, err
		}
		out.each = out.each.largest(q)
	}
	if gpus > 0 {
		out.head = quantities{gpuResource: gpus}
		out.each = out.each.largest(out.head)
	}
	return out, max(1, stages), nil
}
