package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// spark reads a SparkApplication of Kubeflow's Spark operator: a driver and its executors, 1
// by default. With dynamic allocation they grow to maxExecutors, which has no bound by default
// (https://www.kubeflow.org/docs/components/spark-operator/user-guide/writing-sparkapplication,
// https://spark.apache.org/docs/latest/configuration.html#dynamic-allocation). GPUs are in gpu
// of each, in its pod template, or in spark.executor.resource.
func (w *workload) spark(body ast.Node) ([]*Spec, error) {
	n, unknown, err := w.executors(body)
	if err != nil {
		return nil, err
	}
	again, err := w.number(body, 0, "restartPolicy", "onFailureRetries")
	if err != nil {
		return nil, err
	}
	var out []*Spec
	for _, part := range []replicas{{name: "driver", count: 1}, {name: "executor", count: n, unknown: unknown}} {
		node := w.get(body, part.name)
		q, err := w.sparkPod(body, node, part.name)
		if err != nil {
			return nil, err
		}
		d, err := w.demand(q, node)
		if err != nil {
			return nil, err
		}
		part.errors = again
		s, err := w.replicas(d, part)
		if err != nil {
			return nil, err
		}
		if s != nil {
			w.place(s, w.get(node, "template", "spec"), node, body)
			out = append(out, s)
		}
	}
	if w.word(body, "restartPolicy", "type") == "Always" {
		return w.boundToMonth(out, nil)
	}
	for _, s := range out {
		s.noteAttempts("onFailureRetries: 0")
	}
	return out, nil
}

// sparkPod returns the request of a driver or an executor.
func (w *workload) sparkPod(body, node ast.Node, role string) (quantities, error) {
	conf := func(key string) ast.Node { return w.get(body, "sparkConf", key) }
	for _, key := range []string{"spark.kubernetes." + role + ".podTemplateFile", "spark.kubernetes.podTemplateFile"} {
		if conf(key) != nil {
			return nil, unreadf("the template of its pods is in another file (%s)", key)
		}
	}
	own := quantities{}
	if gpu := w.get(node, "gpu"); gpu != nil {
		n, err := w.number(gpu, 0, "quantity")
		if err != nil {
			return nil, err
		}
		own[w.word(gpu, "name")] += n
	}
	prefix := "spark." + role + ".resource."
	var names []string
	w.each(func(key string, _ ast.Node) {
		if name, ok := strings.CutSuffix(key, ".amount"); ok && strings.HasPrefix(name, prefix) {
			names = append(names, strings.TrimPrefix(name, prefix))
		}
	}, body, "sparkConf")
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		n, err := w.number(body, 0, "sparkConf", prefix+name+".amount")
		if err != nil {
			return nil, err
		}
		vendor := w.word(conf(prefix + name + ".vendor"))
		resource := fmt.Sprintf("%s/%s", vendor, name)
		if vendor == "" {
			resource = name
		}
		own[resource] = max(own[resource], n)
	}
	pod := w.get(node, "template", "spec")
	containers, err := w.listContainers(append(w.items(pod, "containers"), w.items(node, "sidecars")...))
	if err != nil {
		return nil, err
	}
	initial, err := w.listContainers(append(w.items(pod, "initContainers"), w.items(node, "initContainers")...))
	if err != nil {
		return nil, err
	}
	return w.together(pod, own, containers, initial)
}

// executors returns the maximum number of executors.
func (w *workload) executors(body ast.Node) (int, []string, error) {
	largest, bounded := 0, false
	for _, path := range [][]string{{"executor", "instances"}, {"sparkConf", "spark.executor.instances"}} {
		n, err := w.number(body, 1, path...)
		if err != nil {
			return 0, nil, err
		}
		largest = max(largest, n)
	}
	if !w.flag(body, "dynamicAllocation", "enabled") && !w.flag(body, "sparkConf", "spark.dynamicAllocation.enabled") {
		return largest, nil, nil
	}
	for _, key := range []string{"minExecutors", "initialExecutors", "maxExecutors"} {
		for _, path := range [][]string{{"dynamicAllocation", key}, {"sparkConf", "spark.dynamicAllocation." + key}} {
			n, err := w.number(body, 0, path...)
			if err != nil {
				return 0, nil, err
			}
			largest, bounded = max(largest, n), bounded || key == "maxExecutors" && n > 0
		}
	}
	if !bounded {
		return largest, []string{"how many executors it grows to: dynamic allocation has no maxExecutors"}, nil
	}
	return largest, nil, nil
}

// scheduledSpark reads one run of a ScheduledSparkApplication.
func (w *workload) scheduledSpark(body ast.Node) ([]*Spec, error) {
	specs, err := w.spark(w.get(body, "template"))
	w.scheduled(specs, body, "concurrencyPolicy")
	return specs, err
}
