package spec

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestCountsWorkloads checks the maximum number of pods and GPUs for each kind of workload. The
// manifests follow the projects' own examples.
func TestCountsWorkloads(t *testing.T) {
	containers := func(gpus int) string {
		return fmt.Sprintf("containers: [{name: node, image: i, resources: {limits: {nvidia.com/gpu: %d}}}]", gpus)
	}
	template := func(gpus int) string { return "template: {spec: {" + containers(gpus) + "}}" }
	for _, tc := range []struct {
		name, src string
		want      []string // name, GPUs per pod, pods
	}{
		{
			"Volcano",
			"apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: v}\nspec: {minAvailable: 2, " +
				"tasks: [{name: ps, replicas: 2, " + template(1) + "}, {name: worker, replicas: 5, " + template(4) +
				"}, {name: log, " + template(0) + "}]}\n",
			[]string{"v.ps 1 2", "v.worker 4 5"}},
		{
			"LeaderWorkerSet",
			"apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: l}\nspec: " +
				"{replicas: 3, leaderWorkerTemplate: {size: 4, worker" + strings.Replace(
				template(8), "t", "T", 1) + "}}\n",
			[]string{"l 8 12"}},
		{
			"a leader of its own",
			"apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: " +
				"l}\nspec: {replicas: 3, leaderWorkerTemplate: {size: 4, leader" + strings.Replace(
				template(2), "t", "T", 1) +
				", worker" + strings.Replace(template(8), "t", "T", 1) + "}}\n---\n" +
				"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas: 6, scaleTargetRef: " +
				"{apiVersion: " +
				"leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: l}}\n",
			[]string{"l.leader 2 6", "l.worker 8 18"}},
		{
			"MPIJob v2",
			"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: m}\nspec: {slotsPerWorker: 8, " +
				"mpiReplicaSpecs: {Launcher: {replicas: 1, " + template(0) +
				"}, Worker: {replicas: 7, " + template(8) + "}}}\n",
			[]string{"m.worker 8 7"}},
		{
			"an elastic job",
			"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: p}\nspec: {elasticPolicy: " +
				"{minReplicas: 3}, pytorchReplicaSpecs: {Worker: {replicas: 1, " + template(2) + "}}}\n",
			[]string{"p.worker 2 3"}},
		{
			"Notebook", "apiVersion: kubeflow.org/v1\nkind: Notebook\nmetadata: {name: n}\nspec: {" + template(1) +
				"}\n",
			[]string{"n 1 1"},
		},
		{
			"RayService",
			"apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: r}\nspec: {rayClusterConfig: {headGroupSpec: {" +
				template(0) + "}, workerGroupSpecs: [{groupName: a, minReplicas: 3, " + template(1) +
				"}, {groupName: b, replicas: 2, maxReplicas: 9, numOfHosts: 4, " + template(2) + "}]}}\n",
			[]string{"r.a 1 3", "r.b 2 8"}},
		{
			"a pod that submits", "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: r}\nspec: " +
				"{shutdownAfterJobFinishes: true, submitterPodTemplate: {spec: {" + containers(1) +
				"}}, rayClusterSpec: {headGroupSpec: {" + template(1) + "}}}\n",
			[]string{"r.head 1 1", "r.submitter 1 1"}},
		{
			"Deployment with KEDA",
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: x}\nspec: {" +
				template(1) +
				"}\n---\napiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nspec: {scaleTargetRef: {name: d}}\n",
			[]string{"d 1 100"}},
		{
			"the largest of two", "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: d}\nspec: {replicas: 4, " +
				template(1) + "}\n---\napiVersion: autoscaling.aibrix.ai/v1alpha1\nkind: PodAutoscaler\nspec: " +
				"{maxReplicas: 6, " +
				"scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: d}}\n---\napiVersion: " +
				"autoscaling/v1\nkind: " +
				"HorizontalPodAutoscaler\nspec: {maxReplicas: 5, scaleTargetRef: {kind: StatefulSet, name: d}}\n",
			[]string{"d 1 6"}},
		{
			"ScaledJob",
			"apiVersion: keda.sh/v1alpha1\nkind: ScaledJob\nmetadata: {name: s}\nspec: {maxReplicaCount: 7, " +
				"jobTargetRef: " +
				"{parallelism: 2, completions: 2, " + template(1) + "}}\n",
			[]string{"s 1 14"},
		},
		{
			"Knative",
			"apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: k}\nspec: {template: {metadata: " +
				"{annotations: {autoscaling.knative.dev/max-scale: \"9\", autoscaling.knative.dev/initial-scale: " +
				"\"2\"}}, spec: {" + containers(1) + "}}}\n",
			[]string{"k 1 9"},
		},
		{
			"Rollout",
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 0, " + template(2) +
				"}\n---\napiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: o}\nspec: {replicas: 3, " +
				"workloadRef: " +
				"{apiVersion: apps/v1, kind: Deployment, name: d}}\n",
			[]string{"o 2 3"},
		},
		{
			"SparkApplication", "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: " +
				"s}\nspec: {driver: {gpu: {name: nvidia.com/gpu, quantity: 1}}, executor: {instances: 2, gpu: {name: " +
				"nvidia.com/gpu, quantity: 2}}, dynamicAllocation: {enabled: true, maxExecutors: 11}}\n",
			[]string{"s.driver 1 1", "s.executor 2 11"}},
		{
			"Spark's own settings",
			"apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: " +
				"s}\nspec: {executor: {}, sparkConf: {spark.executor.instances: \"6\", " +
				"spark.executor.resource.gpu.amount: " +
				"\"4\", spark.executor.resource.gpu.vendor: nvidia.com}}\n",
			[]string{"s.executor 4 6"}},
		{
			"InferenceService",
			"apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: i}\nspec: " +
				"{predictor: {minReplicas: 0, maxReplicas: 4, pytorch: {resources: {limits: {nvidia.com/gpu: 2}}}}, " +
				"transformer: {maxReplicas: 3, " + containers(1) + "}}\n",
			[]string{"i.predictor 2 4", "i.transformer 1 3"}},
		{
			"a runtime of several nodes",
			"apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: " +
				"i}\nspec: {predictor: {maxReplicas: 2, model: {runtime: vllm, resources: {limits: {nvidia.com/gpu: 2}}}, " +
				"workerSpec: {pipelineParallelSize: 3, tensorParallelSize: 4}}}\n---\n" +
				"apiVersion: serving.kserve.io/v1alpha1\nkind: ServingRuntime\nmetadata: {name: vllm}\nspec: " +
				"{containers: " +
				"[{name: kserve-container, resources: {limits: {nvidia.com/gpu: 1}}}], workerSpec: {}}\n",
			[]string{"i.predictor 4 2", "i.predictor-worker 4 4"}},
		{
			"TrainJob", "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec: " +
				"{runtimeRef: " +
				"{name: torch}, trainer: {numNodes: 6, resourcesPerNode: {limits: {nvidia.com/gpu: 4}}}}\n---\n" +
				"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: " +
				"torch}\nspec: " +
				"{mlPolicy: {numNodes: 2}, template: {spec: {replicatedJobs: [{name: dataset, template: {spec: {" +
				template(1) +
				"}}}, {name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: " +
				"trainer}}, spec: {" + template(1) + "}}}]}}}\n",
			[]string{"t.dataset 1 1", "t.node 4 6"}},
		{
			"TrainJob by its runtime",
			"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\nmetadata: {name: " +
				"mpi}\nspec: {mlPolicy: {numNodes: 5, mpi: {runLauncherAsNode: true}}, template: {spec: " +
				"{replicatedJobs: " +
				"[{name: launcher, template: {spec: {" + template(2) +
				"}}}, {name: node, template: {spec: {" + template(2) +
				"}}}]}}}\n---\n" +
				"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec: {runtimeRef: " +
				"{name: mpi, " +
				"kind: TrainingRuntime}}\n",
			[]string{"t.launcher 2 1", "t.node 2 4"}},
		{
			"sidecars",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {initContainers: [{name: a, resources: " +
				"{limits: {nvidia.com/gpu: 3}}}, {name: b, restartPolicy: Always, resources: {limits: " +
				"{nvidia.com/gpu: 2}}}, " +
				"{name: c, resources: {limits: {nvidia.com/gpu: 5}}}], " + containers(4) + "}\n",
			[]string{"p 7 1"}},
		{
			"sidecars that end after",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {initContainers: [{name: b, " +
				"restartPolicy: Always, resources: {limits: {nvidia.com/gpu: 2}}}, {name: c, restartPolicy: Always, " +
				"resources: " +
				"{limits: {nvidia.com/gpu: 1}}}], " + containers(4) + "}\n",
			[]string{"p 7 1"}},
		{
			"defaults of a LimitRange",
			"apiVersion: v1\nkind: LimitRange\nspec: {limits: [{type: Container, default: " +
				"{nvidia.com/gpu: 2}}]}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: " +
				"[{name: a}, " +
				"{name: b, resources: {limits: {nvidia.com/gpu: 1}}}]}\n",
			[]string{"p 3 1"}},
		{
			"claims",
			"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: two}\nspec: {spec: " +
				"{devices: {requests: [{name: g, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}, {name: h, " +
				"firstAvailable: [{name: x, deviceClassName: gpu.nvidia.com, count: 3}, {name: y, deviceClassName: " +
				"gpu.nvidia.com}]}]}}}\n---\n" +
				"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 3, completions: 3, " +
				"template: {spec: " +
				"{resourceClaims: [{name: g, resourceClaimTemplateName: two}], containers: [{name: c, resources: {claims: " +
				"[{name: g}]}}]}}}\n",
			[]string{"j 5 3"}},
		{
			"a claim of an older version",
			"apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: " +
				"one}\nspec: {devices: {requests: [{name: g, deviceClassName: gpu.nvidia.com}]}}\n---\n" +
				"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {resourceClaims: [{name: g, " +
				"resourceClaimName: one}], " +
				"containers: [{name: c}]}\n",
			[]string{"p 1 1"}},
		{
			"documents of one name",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {" + containers(1) +
				"}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {" + containers(6) + "}\n",
			[]string{"p 1 1", "p 6 1"},
		},
		{
			"old groups",
			"apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 2, " +
				template(1) + "}\n",
			[]string{"d 1 2"},
		},
	} {
		documents := strings.Split(tc.src, "---\n")
		for range documents {
			documents = append(documents[1:], documents[0])
			specs, err := Read("m.yaml", []byte(strings.Join(documents, "---\n")), nil)
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
				break
			}
			got := []string{}
			for _, s := range specs {
				got = append(got, fmt.Sprint(s.Name, " ", s.Resources.GPUs, " ", s.Resources.Nodes))
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
			}
		}
	}
}

// TestMapsDevices checks that resources of a cluster are counted as the accelerators they are
// mapped to.
func TestMapsDevices(t *testing.T) {
	devices := Devices{
		"nvidia.com/tesla-m40": "T4", "amd.com/gpu": "MI300X", "example.com/nic": NoDevice,
		"mig.nvidia.com": "A100-80GB",
	}
	read := func(limits string) []*Spec {
		t.Helper()
		specs, err := Read("m.yaml",
			[]byte(
				"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, resources: {limits: {"+
					limits+
					"}}}]}\n"), devices)
		if err != nil {
			t.Fatal(err)
		}
		return specs
	}
	if s := read("nvidia.com/tesla-m40: 3, example.com/nic: 1"); len(s) != 1 || s[0].Resources.GPU != "T4" ||
		s[0].Resources.GPUs != 3 || s[0].Unknown != nil {
		t.Errorf("a renamed GPU: %+v", s)
	}
	if s := read("example.com/nic: 4"); len(s) != 0 {
		t.Errorf("no device: %+v", s[0])
	}
	if s := read("nvidia.com/tesla-m40: 1, amd.com/gpu: 2"); len(s) != 1 || !s[0].Unread() ||
		!strings.Contains(s[0].Unknown[0], "which machine has 3 accelerators of several kinds: MI300X, T4") {
		t.Errorf("two kinds: %+v", s)
	}
	if s := read("nvidia.com/tesla-m40: 1, amd.com/npu: 2"); len(s) != 1 || s[0].Resources.GPUs != 1 ||
		len(s[0].Unknown) != 1 {
		t.Errorf("one that is not mapped: %+v", s)
	}
	if s := read("vpc.amazonaws.com/efa: 4, nvidia.com/gpu: 8, nvidia.com/gpumem: 1000"); len(s) != 1 ||
		s[0].Resources.GPUs != 8 || s[0].Unknown != nil {
		t.Errorf("what comes with a GPU: %+v", s)
	}
}

// TestBoundsRayJobs checks that a RayJob keeps its cluster unless its spec ends it.
func TestBoundsRayJobs(t *testing.T) {
	for _, tc := range []struct {
		name, keys string
		ends       string // the bound; empty if it does not end
		unknown    string
	}{
		{"the default", "", "", "without shutdownAfterJobFinishes it runs on"},
		{"shut down", "shutdownAfterJobFinishes: true", "1h0m0s", ""},
		{"shut down later", "shutdownAfterJobFinishes: true, ttlSecondsAfterFinished: 900", "1h15m0s", ""},
		{
			"not shut down", "shutdownAfterJobFinishes: false, ttlSecondsAfterFinished: 900", "",
			"it runs on after the job",
		},
		{
			"tried again", "shutdownAfterJobFinishes: true, backoffLimit: 2", "1h0m0s",
			"how often it is begun again: 2 more times at most",
		},
		{
			"deleted either way",
			"deletionStrategy: {onSuccess: {policy: DeleteCluster}, onFailure: {policy: DeleteSelf}}",
			"1h0m0s", "",
		},
		{
			"kept after a failure",
			"deletionStrategy: {onSuccess: {policy: DeleteCluster}, onFailure: {policy: DeleteNone}}",
			"", "it runs on",
		},
		{
			"workers alone",
			"deletionStrategy: {onSuccess: {policy: DeleteWorkers}, onFailure: {policy: DeleteWorkers}}", "",
			"it runs on",
		},
		{
			"rules",
			"deletionStrategy: {deletionRules: [{policy: DeleteCluster, condition: {jobStatus: SUCCEEDED}}, {policy: " +
				"DeleteCluster, condition: {jobStatus: FAILED}}]}",
			"1h0m0s", "",
		},
		{
			"a rule of one end",
			"deletionStrategy: {deletionRules: [{policy: DeleteCluster, condition: {jobStatus: SUCCEEDED}}]}", "",
			"it runs on",
		},
	} {
		specs, err := Read("m.yaml", []byte("apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: r}\nspec: "+
			"{activeDeadlineSeconds: 3600, rayClusterSpec: {headGroupSpec: {template: {spec: {containers: [{name: h, "+
			"resources: {limits: {nvidia.com/gpu: 1}}}]}}}}, "+tc.keys+"}\n"), nil)
		if err != nil || len(specs) != 1 {
			t.Errorf("%s: %v, %v", tc.name, specs, err)
			continue
		}
		got := ""
		if limit, _ := specs[0].Cap(); limit > 0 {
			got = limit.String()
		}
		if all := strings.Join(specs[0].Unknown, "\n"); got != tc.ends || !strings.Contains(all, tc.unknown) ||
			tc.unknown == "" && all != "" {
			t.Errorf("%s: ends after %q, unknown %q; want %q, %q", tc.name, got, all, tc.ends, tc.unknown)
		}
	}
}

// TestCountsWorkflows checks how often and how long the templates of a workflow run.
func TestCountsWorkflows(t *testing.T) {
	const templates = "templates: [{name: gpu, inputs: {parameters: [{name: n, value: 2}]}, container: {image: i, " +
		"resources: {limits: {nvidia.com/gpu: '{{inputs.parameters.n}}'}}}}, {name: cpu, container: {image: i}}, {name: m, "
	for _, tc := range []struct {
		name, spec string
		want       []string // GPUs, pods, bound
		unknown    string
	}{
		{
			"a sequence of a count",
			"entrypoint: m, " + templates +
				"steps: [[{name: s, template: gpu, withSequence: {count: 6, start: 3}}]]}]",
			[]string{"2 6 0s"}, "",
		},
		{
			"down",
			"entrypoint: m, " + templates +
				"steps: [[{name: s, template: gpu, withSequence: {start: '9', end: '4'}}]]}]",
			[]string{"2 6 0s"}, "",
		},
		{
			"by a parameter",
			"entrypoint: m, arguments: {parameters: [{name: k, value: '7'}]}, " + templates +
				"steps: [[{name: s, template: gpu, withSequence: {count: '{{workflow.parameters.k}}'}}]]}]",
			[]string{"2 7 0s"}, "",
		},
		{
			"its numbers are arguments",
			"entrypoint: m, " + templates +
				"steps: [[{name: s, template: gpu, withSequence: {start: 1, end: 2}, arguments: " +
				"{parameters: [{name: n, value: '{{item}}'}]}}]]}]",
			[]string{"1 1 0s", "2 1 0s"}, "",
		},
		{
			"none",
			"entrypoint: m, " + templates +
				"steps: [[{name: s, template: gpu, withSequence: {count: 0}}], [{name: t, " +
				"template: gpu, withParam: '[]'}]]}]",
			nil, "",
		},
		{
			"a sequence known later",
			"entrypoint: m, " + templates +
				"steps: [[{name: s, template: gpu, withSequence: {count: '{{steps.x.outputs.result}}'}}]]}]",
			[]string{"2 1 0s"}, "known only at run time",
		},
		{
			"one known later without GPUs",
			"entrypoint: m, " + templates +
				"steps: [[{name: s, template: cpu, withParam: '{{steps.x.outputs.result}}'}, {name: t, template: gpu}]]}]",
			[]string{"2 1 0s"}, "",
		},
		{
			"a literal list",
			"entrypoint: m, " + templates +
				"dag: {tasks: [{name: s, template: gpu, withParam: '[{\"n\": 4}, {\"n\": 8}, " +
				"{\"n\": 8}]', arguments: {parameters: [{name: n, value: '{{item.n}}'}]}}]}}]",
			[]string{"4 1 0s", "8 2 0s"}, "",
		},
		{
			"an argument that is a list",
			"entrypoint: m, arguments: {parameters: [{name: l, value: '[1,2,3,4,5]'}]}, " + templates +
				"dag: {tasks: [{name: s, template: gpu, withParam: '{{workflow.parameters.l}}'}]}}]",
			[]string{"2 5 0s"}, "",
		},
		{
			"arguments of the entry point",
			"entrypoint: gpu, arguments: {parameters: [{name: n, value: '4'}]}, " + templates + "dag: {tasks: []}}]",
			[]string{"4 1 0s"}, "",
		},
		{
			"what runs at the end",
			"entrypoint: m, onExit: gpu, hooks: {exit: {template: gpu}, late: {template: gpu, expression: x}}, " +
				templates +
				"steps: [[{name: s, template: gpu}]]}]",
			[]string{"2 4 0s"}, "",
		},
		{
			"hooks of tasks",
			"entrypoint: m, " + templates +
				"dag: {tasks: [{name: s, template: cpu, withItems: [1, 2, 3], onExit: gpu, " +
				"hooks: {running: {template: gpu, arguments: {parameters: [{name: n, value: 8}]}}}}]}}]",
			[]string{"2 3 0s", "8 3 0s"}, "",
		},
		{
			"at most two at once",
			"entrypoint: m, parallelism: 2, " + templates +
				"parallelism: 1, steps: [[{name: s, template: gpu, withSequence: {count: 9}}]]}]",
			[]string{"2 9 0s"}, "",
		},
		{
			"tries",
			"entrypoint: m, " + templates +
				"activeDeadlineSeconds: 600, retryStrategy: {limit: '2'}, container: {resources: " +
				"{limits: {nvidia.com/gpu: 1}}}}]",
			[]string{"1 1 30m0s"}, "",
		},
		{
			"tries of tries",
			"entrypoint: o, " + templates +
				"activeDeadlineSeconds: 600, retryStrategy: {limit: 2}, container: {resources: " +
				"{limits: {nvidia.com/gpu: 1}}}}, {name: o, retryStrategy: {limit: 1}, steps: [[{name: s, template: m}]]}]",
			[]string{"1 1 1h0m0s"}, "",
		},
		{
			"tries without a limit",
			"entrypoint: m, " + templates +
				"activeDeadlineSeconds: 600, retryStrategy: {}, container: {resources: {limits: {nvidia.com/gpu: 1}}}}]",
			[]string{"1 1 0s"}, "retryStrategy has no limit",
		},
		{
			"tries within the workflow",
			"entrypoint: m, activeDeadlineSeconds: 900, " + templates +
				"activeDeadlineSeconds: 600, retryStrategy: {limit: " +
				"5}, container: {resources: {limits: {nvidia.com/gpu: 1}}}}]",
			[]string{"1 1 15m0s"}, "",
		},
		{
			"sidecars and what runs before",
			"entrypoint: m, " + templates + "initContainers: [{name: a, resources: {limits: {nvidia.com/gpu: 6}}}], " +
				"sidecars: [{name: b, resources: {limits: {nvidia.com/gpu: 1}}}], script: {resources: {limits: " +
				"{nvidia.com/gpu: " +
				"2}}}}]",
			[]string{"6 1 0s"}, "",
		},
		{
			"a set of containers",
			"entrypoint: m, " + templates +
				"containerSet: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: " +
				"1}}}, {name: b, resources: {limits: {nvidia.com/gpu: 3}}}]}}]",
			[]string{"4 1 0s"}, "",
		},
		{
			"a daemon",
			"entrypoint: m, " + templates + "daemon: true, container: {resources: {limits: {nvidia.com/gpu: 1}}}}]",
			[]string{"1 1 0s"}, "",
		},
		{
			"a patch of the workflow",
			`entrypoint: cpu, podSpecPatch: '{"containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":"8"}}}]}', ` + templates + "suspend: {}}]",
			[]string{"8 1 0s"}, "",
		},
		{
			"a patch of a template",
			"entrypoint: m, arguments: {parameters: [{name: k, value: 3}]}, " + templates +
				"podSpecPatch: 'containers: " +
				"[{name: main, resources: {limits: {nvidia.com/gpu: {{workflow.parameters.k}}}}}]', container: " +
				"{resources: " +
				"{limits: {nvidia.com/gpu: 1}}}}]",
			[]string{"3 1 0s"}, "",
		},
		{
			"a manifest",
			"entrypoint: m, " + templates +
				"resource: {action: create, manifest: '{apiVersion: v1, kind: Pod, metadata: " +
				"{name: x}, spec: {activeDeadlineSeconds: 60, containers: [{name: c, resources: {limits: " +
				"{nvidia.com/gpu: " +
				"5}}}]}}'}}]",
			[]string{"5 1 1m0s"}, "",
		},
		{
			"a manifest that is not read",
			"entrypoint: m, " + templates +
				"resource: {action: create, manifest: '{apiVersion: example.com/v1, kind: Train, metadata: {name: x}}'}}]",
			[]string{"0 0 0s"}, "Train (example.com) x",
		},
		{"a wait", "entrypoint: m, " + templates + "suspend: {duration: 1h}}]", nil, ""},
	} {
		specs, err := Read("m.yaml",
			[]byte("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: {"+tc.spec+"}\n"),
			nil)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		var got, unknown []string
		for _, s := range specs {
			got = append(got, fmt.Sprint(s.Resources.GPUs, " ", s.Resources.Nodes, " ", s.MaxRuntime))
			unknown = append(unknown, s.Unknown...)
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
		if all := strings.Join(unknown, "\n"); !strings.Contains(all, tc.unknown) || tc.unknown == "" && all != "" {
			t.Errorf("%s: unknown %q, want %q", tc.name, all, tc.unknown)
		}
	}
}

// TestFollowsWorkflowTemplates checks that templates in other documents of the file are
// followed and not counted twice.
func TestFollowsWorkflowTemplates(t *testing.T) {
	library := "apiVersion: argoproj.io/v1alpha1\nkind: WorkflowTemplate\nmetadata: {name: lib}\nspec: {entrypoint: " +
		"go, arguments: {parameters: [{name: n, value: 1}]}, nodeSelector: {node.kubernetes.io/instance-type: " +
		"g5.xlarge}, " +
		"templates: [{name: go, steps: [[{name: a, template: gpu}, {name: b, template: gpu}]]}, {name: gpu, " +
		"container: " +
		"{resources: {limits: {nvidia.com/gpu: '{{workflow.parameters.n}}'}}}}]}\n---\n"
	for name, tc := range map[string]struct{ spec, want string }{
		"the whole": {
			"{workflowTemplateRef: {name: lib}, arguments: {parameters: [{name: n, value: 4}]}}",
			"w.gpu 4 2 g5.xlarge",
		},
		"one step of it": {
			"{entrypoint: m, arguments: {parameters: [{name: n, value: 3}]}, templates: [{name: m, steps: [[{name: s, " +
				"templateRef: {name: lib, template: gpu}}]]}]}",
			"w.gpu 3 1 ",
		},
		"steps of it": {
			"{entrypoint: m, arguments: {parameters: [{name: n, value: 3}]}, templates: [{name: m, dag: {tasks: " +
				"[{name: s, " +
				"withItems: [1, 2], templateRef: {name: lib, template: go}}]}}]}",
			"w.gpu 3 4 ",
		},
	} {
		specs, err := Read("m.yaml",
			[]byte(library+"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: "+tc.spec+
				"\n"), nil)
		if err != nil || len(specs) != 1 {
			t.Errorf("%s: %v, %v", name, specs, err)
			continue
		}
		if got := fmt.Sprint(specs[0].Name, " ", specs[0].Resources.GPUs, " ", specs[0].Resources.Nodes, " ",
			specs[0].Resources.InstanceType); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// TestAffinityTermsAreAlternatives checks that a machine named by only some terms of a node affinity is not
// assumed.
func TestAffinityTermsAreAlternatives(t *testing.T) {
	pod := func(terms string) *Spec {
		t.Helper()
		specs, err := Read("m.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {affinity: "+
			"{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: ["+terms+
			"]}}}, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return specs[0]
	}
	const small = "{matchExpressions: [{key: node.kubernetes.io/instance-type, operator: In, values: [g4dn.xlarge]}, " +
		"{key: pool, operator: In, values: [a]}]}"
	if s := pod(small + ", {matchExpressions: [{key: pool, operator: In, values: [b]}]}"); s.Resources.InstanceType !=
		"" || len(s.Unknown) != 1 || !strings.Contains(s.Unknown[0], "not every term") {
		t.Errorf("a machine of one term: %+v", *s)
	}
	if s := pod(small + ", " + small); s.Resources.InstanceType != "g4dn.xlarge" || s.Unknown != nil {
		t.Errorf("a machine of both terms: %+v", *s)
	}
}
