package spec

import (
	"fmt"
	"strings"
	"testing"
)

// TestManifestKinds reads workloads with the fields of the projects' own examples:
// kubeflow/training-operator, ray-project/kuberay, kubernetes-sigs/jobset and
// argoproj/argo-workflows.
func TestManifestKinds(t *testing.T) {
	pod := func(gpus int) string {
		return fmt.Sprintf(
			"{spec: {restartPolicy: OnFailure, nodeSelector: {pool: gpu}, containers: [{name: pytorch, "+
				"image: train, resources: {limits: {nvidia.com/gpu: %d}}}]}}", gpus)
	}
	for _, tc := range []struct {
		name, src string
		want      []string // name, GPUs a pod, pods, bound, duration, errors
		unknown   string
	}{
		{
			"PyTorchJob", "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: bert, labels: {team: " +
				"nlp}}\nspec:\n  runPolicy: {activeDeadlineSeconds: 7200, backoffLimit: 3}\n" +
				"  pytorchReplicaSpecs:\n    Master: {replicas: 1, template: " + pod(1) +
				"}\n    Worker: {replicas: 3, template: " + pod(8) + "}\n",
			[]string{"bert.master 1 1 2h0m0s 0s 3", "bert.worker 8 3 2h0m0s 0s 3"}, ""},
		{
			"an elastic one",
			"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: e}\nspec: {elasticPolicy: " +
				"{minReplicas: 1, maxReplicas: 4}, pytorchReplicaSpecs: {Worker: {replicas: 2, template: " + pod(1) +
				"}}}\n",
			[]string{"e.worker 1 4 0s 0s 0"}, ""},
		{
			"MPIJob", "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: h}\nspec:\n  runPolicy: " +
				"{activeDeadlineSeconds: 60}\n  mpiReplicaSpecs:\n" +
				"    Launcher: {replicas: 1, template: {spec: {containers: [{name: l}]}}}\n    Worker: {replicas: " +
				"2, template: " +
				pod(4) + "}\n", []string{"h.worker 4 2 1m0s 0s 0"}, ""},
		{
			"RayJob",
			"apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: r}\nspec:\n  activeDeadlineSeconds: 600\n  " +
				"shutdownAfterJobFinishes: true\n  ttlSecondsAfterFinished: 60\n  entrypoint: python x.py\n  " +
				"rayClusterSpec:\n  " +
				"  headGroupSpec: {template: {spec: {containers: [{name: h}]}}}\n" +
				"    workerGroupSpecs:\n      - {groupName: gpu, replicas: 2, minReplicas: 1, maxReplicas: 5, template: " +
				pod(1) + "}\n", []string{"r.gpu 1 2 11m0s 0s 0"}, ""},
		{
			"one that grows",
			"apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r}\nspec: {enableInTreeAutoscaling: " +
				"true, headGroupSpec: {template: " + pod(1) +
				"}, workerGroupSpecs: [{groupName: g, replicas: 1, maxReplicas: 5, numOfHosts: 2, template: " +
				pod(1) + "}]}\n",
			[]string{"r.head 1 1 0s 730h0m0s 0", "r.g 1 10 0s 730h0m0s 0"}, "does not end"},
		{
			"JobSet",
			"apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: s}\nspec:\n  failurePolicy: " +
				"{maxRestarts: 2}\n  replicatedJobs:\n" +
				"    - {name: workers, replicas: 2, template: {spec: {parallelism: 4, completions: 4, " +
				"activeDeadlineSeconds: " +
				"120, template: " + pod(8) + "}}}\n" +
				"    - {name: driver, replicas: 1, template: {spec: {template: {spec: {containers: [{name: d}]}}}}}\n",
			[]string{"s.workers 8 8 2m0s 0s 2"}, "how often the set is begun again"},
		{
			"Deployment",
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 3, template: " + pod(1) +
				"}\n",
			[]string{"d 1 3 0s 730h0m0s 0"}, "a Deployment does not end",
		},
		{"Argo steps", `apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: train-}
spec:
  entrypoint: main
  arguments: {parameters: [{name: gpus, value: "4"}]}
  templates:
    - name: main
      steps:
        - - {name: prepare, template: prepare}
        - - {name: train-a, template: train}
          - {name: train-b, template: train}
    - name: prepare
      container: {image: p}
    - name: train
      activeDeadlineSeconds: 3600
      container: {image: t, resources: {limits: {nvidia.com/gpu: "{{workflow.parameters.gpus}}"}}}
`, []string{"train.train 4 2 1h0m0s 0s 0"}, ""},
		{
			"Argo steps in one list", "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: " +
				"{entrypoint: m, templates: [{name: m, steps: [{name: a, template: t}, {name: b, template: t}]}, {name: t, " +
				"container: {resources: {limits: {nvidia.com/gpu: 1}}}}]}\n",
			[]string{"w.t 1 2 0s 0s 0"}, ""},
		{"Argo arguments", `apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  entrypoint: main
  arguments: {parameters: [{name: most, value: 8}]}
  templates:
    - name: main
      inputs: {parameters: [{name: small, value: "1"}]}
      dag:
        tasks:
          - {name: a, template: train, arguments: {parameters: [{name: gpus, value: "{{ inputs.parameters.small }}"}]}}
          - {name: b, template: train, arguments: {parameters: [{name: gpus, value: "{{workflow.parameters.most}}"}]}}
          - {name: c, template: train, arguments: {parameters: [{name: gpus, value: 1}]}}
          - {name: d, template: train}
          - {name: e, template: train, withItems: [2, 2, 4], arguments: {parameters: [{name: gpus, value: "{{item}}"}]}}
          - {name: f, template: train, withItems: [{n: 8, s: x}], arguments: {parameters: [{name: gpus, value: "{{item.n}}"}]}}
    - name: train
      inputs: {parameters: [{name: gpus, default: 4}]}
      nodeSelector: {pool: "p{{inputs.parameters.gpus}}"}
      container: {resources: {limits: {nvidia.com/gpu: "{{inputs.parameters.gpus}}"}}}
`, []string{"w.train 1 2 0s 0s 0", "w.train-2 8 2 0s 0s 0", "w.train-3 4 2 0s 0s 0", "w.train-4 2 2 0s 0s 0"}, ""},
		{"Argo inline", `apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  entrypoint: main
  templates:
    - name: main
      steps: [[{name: prepare, inline: {container: {image: p}}}], [{name: train, withItems: [1, 2], inline: {activeDeadlineSeconds: 60, container: {resources: {limits: {nvidia.com/gpu: 2}}}}}]]
`, []string{"w.main.train 2 2 1m0s 0s 0"}, ""},
		{"Argo creates a manifest", `apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  entrypoint: main
  templates:
    - name: main
      steps:
        - [{name: a, template: job, arguments: {parameters: [{name: n, value: "2"}]}}]
        - [{name: b, template: note}]
        - [{name: c, template: gone}]
    - name: job
      inputs: {parameters: [{name: n}]}
      resource:
        action: create
        manifest: |
          apiVersion: batch/v1
          kind: Job
          metadata: {generateName: train-}
          spec:
            activeDeadlineSeconds: 60
            backoffLimit: 1
            parallelism: {{inputs.parameters.n}}
            template: {spec: {containers: [{name: t, resources: {limits: {nvidia.com/gpu: 8}}}]}}
    - name: note
      resource: {action: apply, manifest: "{apiVersion: v1, kind: ConfigMap, data: {a: b}}"}
    - name: gone
      resource: {action: delete, manifest: "{kind: Pod, spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}"}
`, []string{"train 8 2 1m0s 0s 1"}, ""},
		{"a manifest of which parts are known later", `apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  entrypoint: main
  templates:
    - {name: main, steps: [[{name: t, template: t}], [{name: j, template: j}]]}
    - {name: t, container: {resources: {limits: {nvidia.com/gpu: 1}}}}
    - {name: j, resource: {action: create, manifest: "kind: Job\nspec: {parallelism: {{steps.t.outputs.result}}, template: {}}"}}
`, []string{"w.t 1 1 0s 0s 0", "w 0 0 0s 0s 0"}, "parts of the manifest of template j are known only at run time"},
	} {
		specs, err := parseManifest("m.yaml", []byte(tc.src))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		var got, unknown []string
		for _, s := range specs {
			got = append(got, fmt.Sprint(s.Name, " ", s.Resources.GPUs, " ", s.Resources.Nodes, " ", s.MaxRuntime, " ",
				s.Duration, " ", s.Retries.Errors))
			unknown = append(unknown, s.Unknown...)
			if strings.HasPrefix(tc.name, "PyTorch") && (s.Owner.Team != "nlp" || s.Selector["pool"][0] != "gpu") {
				t.Errorf("%s: %+v", tc.name, s)
			}
		}
		if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
		if all := strings.Join(unknown, "\n"); !strings.Contains(all, tc.unknown) || tc.unknown == "" && all != "" {
			t.Errorf("%s: unknown %q, want %q", tc.name, all, tc.unknown)
		}
	}
	for name, src := range map[string]string{
		"too many arguments": "kind: Workflow\nspec: {entrypoint: m, templates: [{name: m, steps: [[{name: s, template: " +
			"t, withItems: [" + numbers(600) + "], arguments: {parameters: [{name: n, value: '{{item}}'}]}}]]}, " +
			"{name: t, inputs: {parameters: [{name: n}]}, container: {resources: {limits: {nvidia.com/gpu: 1}}}}]}\n",
		"too many times": "kind: Workflow\nspec: {entrypoint: m, templates: [{name: m, steps: [[{name: s, template: t, " +
			"withSequence: {start: 1, end: 1000000000}}]]}, {name: t, container: {image: i}}]}\n",
	} {
		if got, err := parseManifest("m.yaml", []byte("apiVersion: argoproj.io/v1alpha1\n"+src)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got, err := parseManifest("m.yaml", []byte("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: "+
		"{pytorchReplicaSpecs: {Worker: {replicas: 1000000000, template: "+pod(1)+"}}}\n")); err == nil {
		t.Errorf("too many replicas: %+v", got)
	}
}

// numbers returns a list of the first n integers.
func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d, ", i)
	}
	return strings.TrimSuffix(b.String(), ", ")
}

func TestShownRemovesCredentials(t *testing.T) {
	for uri, want := range map[string]string{
		"s3://bucket/a": "s3://bucket/a", "https://h/p?sig=x": "https://h/p?[redacted]",
		"https://h/p#x": "https://h/p?[redacted]", "https://u:p@h/p": "https://[redacted]@h/p",
		"https://u:p@q@h/p@r?x": "https://[redacted]@h/p@r?[redacted]", "none": "none",
		"https://h?x": "https://h?[redacted]",
	} {
		if got := Shown(uri); got != want {
			t.Errorf("%s is shown as %s, want %s", uri, got, want)
		}
	}
}
