package gate

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
)

// group is a number of pods of one template, each with some of the eight GPUs of a p4d.24xlarge.
type group struct{ pods, gpus int }

// machines counts naively how many machines fit the pods.
func (g group) machines() int {
	if g.gpus == 0 {
		return 0
	}
	n := 0
	for left := g.pods; left > 0; left -= 8 / g.gpus {
		n++
	}
	return n
}

// workloadForm is a kind of workload with the pods that it creates.
type workloadForm struct {
	name string
	// ends reports that the document bounds its runtime, so that the gate can allow it.
	ends  bool
	write func(t *rapid.T) (text string, groups []group)
}

func drawPods(t *rapid.T, label string) int { return rapid.IntRange(0, 8).Draw(t, label) }

func drawGPUs(t *rapid.T, label string) int {
	return rapid.SampledFrom([]int{0, 1, 2, 4, 8}).Draw(t, label)
}

// podSpec is the spec of a pod on a p4d.24xlarge.
func podSpec(gpus int) string {
	return fmt.Sprintf(
		"{activeDeadlineSeconds: 1200, nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}, "+
			"containers: [{name: node, image: i, resources: {limits: {nvidia.com/gpu: %d}}}]}", gpus)
}

func podTemplate(gpus int) string { return "{spec: " + podSpec(gpus) + "}" }

// ofReplicas returns a kind with one template and a number of replicas.
func ofReplicas(name, version, form string, ends bool) workloadForm {
	return workloadForm{name, ends, func(t *rapid.T) (string, []group) {
		pods, gpus := drawPods(t, "pods"), drawGPUs(t, "gpus")
		spec := strings.NewReplacer("PODS", fmt.Sprint(pods), "TEMPLATE", podTemplate(gpus)).Replace(form)
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: NAME}\nspec: %s\n",
				version, name, spec), []group{
				{pods, gpus},
			}
	}}
}

// ofRoles returns a kind with two templates and their replicas.
func ofRoles(name, version, form string, ends bool) workloadForm {
	return workloadForm{name, ends, func(t *rapid.T) (string, []group) {
		a, b := group{
			drawPods(t, "pods of a"), drawGPUs(t, "gpus of a"),
		}, group{drawPods(t, "pods of b"), drawGPUs(t, "gpus of b")}
		spec := strings.NewReplacer("POD1", fmt.Sprint(a.pods), "TEMPLATE1", podTemplate(a.gpus),
			"POD2", fmt.Sprint(b.pods),
			"TEMPLATE2", podTemplate(b.gpus)).Replace(form)
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: NAME}\nspec: %s\n",
				version, name, spec), []group{
				a, b,
			}
	}}
}

// workloadForms returns the supported kinds.
func workloadForms() []workloadForm {
	forms := []workloadForm{
		{"Pod", true, func(t *rapid.T) (string, []group) {
			gpus := drawGPUs(t, "gpus")
			return "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\nspec: " + podSpec(gpus) + "\n", []group{
				{1, gpus},
			}
		}},
		{"Job", true, func(t *rapid.T) (string, []group) {
			pods, gpus := rapid.IntRange(1, 8).Draw(t, "pods"), drawGPUs(t, "gpus")
			return fmt.Sprintf(
				"apiVersion: batch/v1\nkind: Job\nmetadata: {name: NAME}\nspec: {activeDeadlineSeconds: 600, "+
					"parallelism: %d, completions: %d, template: %s}\n", pods, 2*pods,
				podTemplate(gpus)), []group{{pods, gpus}}
		}},
		{"Deployment", false, func(t *rapid.T) (string, []group) {
			pods, most, gpus := drawPods(t, "pods"), rapid.IntRange(1, 8).Draw(t, "most"), drawGPUs(t, "gpus")
			scaler := rapid.SampledFrom([]string{
				"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas",
				"apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nspec: {maxReplicaCount",
			}).Draw(t, "scaler")
			return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: NAMEd}\nspec: {replicas: %d, "+
				"template: %s}\n---\n%s: %d, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: NAMEd}}\n",
				pods,
				podTemplate(gpus), scaler, most), []group{{max(pods, most), gpus}}
		}},
		{"LeaderWorkerSet", false, func(t *rapid.T) (string, []group) {
			n, size, leader, worker := drawPods(t, "groups"), rapid.IntRange(1, 4).Draw(t, "size"), drawGPUs(t,
				"leader"), drawGPUs(t, "worker")
			return fmt.Sprintf("apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: "+
				"NAME}\nspec: {replicas: %d, leaderWorkerTemplate: {size: %d, leaderTemplate: %s, workerTemplate: %s}}\n",
				n, size, podTemplate(leader), podTemplate(worker)), []group{{n, leader}, {n * (size - 1), worker}}
		}},
		{"RayJob", true, func(t *rapid.T) (string, []group) {
			head, worker, least, n, hosts := drawGPUs(t, "head"), drawGPUs(t,
				"worker"), drawPods(t, "least"), drawPods(t,
				"pods"), rapid.IntRange(1, 2).Draw(t, "hosts")
			return fmt.Sprintf(
					"apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: NAME}\nspec: {activeDeadlineSeconds: "+
						"600, shutdownAfterJobFinishes: true, rayClusterSpec: {headGroupSpec: {template: %s}, "+
						"workerGroupSpecs: "+
						"[{groupName: g, replicas: %d, minReplicas: %d, maxReplicas: 9, numOfHosts: %d, template: %s}]}}\n",
					podTemplate(head), n, least, hosts, podTemplate(worker)), []group{
					{1, head}, {max(n, least) * hosts, worker},
				}
		}},
		{"RayCluster", false, func(t *rapid.T) (string, []group) {
			worker, n, most := drawGPUs(t, "worker"), drawPods(t, "pods"), drawPods(t, "most")
			return fmt.Sprintf("apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: NAME}\nspec: "+
				"{enableInTreeAutoscaling: true, headGroupSpec: {template: %s}, workerGroupSpecs: [{groupName: g, "+
				"replicas: %d, "+
				"maxReplicas: %d, template: %s}]}\n",
				podTemplate(0), n, most, podTemplate(worker)), []group{{max(n, most), worker}}
		}},
		{"TrainJob", true, func(t *rapid.T) (string, []group) {
			nodes, gpus := rapid.IntRange(1, 8).Draw(t, "nodes"), drawGPUs(t, "gpus")
			return fmt.Sprintf(
				"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: NAME}\nspec: "+
					"{runtimeRef: {name: NAMEr}, trainer: {numNodes: %d, resourcesPerNode: {limits: "+
					"{nvidia.com/gpu: %d}}}}\n---\n"+
					"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: "+
					"NAMEr}\nspec: "+
					"{mlPolicy: {numNodes: 1}, template: {spec: {replicatedJobs: [{name: node, template: {spec: "+
					"{activeDeadlineSeconds: 900, template: %s}}}]}}}\n", nodes, gpus,
				podTemplate(8)), []group{{nodes, gpus}}
		}},
		{"InferenceService", false, func(t *rapid.T) (string, []group) {
			least, most, gpus := drawPods(t, "least"), rapid.IntRange(1, 8).Draw(t, "most"), drawGPUs(t, "gpus")
			return fmt.Sprintf(
				"apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: NAME}\nspec: "+
					"{predictor: {minReplicas: %d, maxReplicas: %d, nodeSelector: "+
					"{node.kubernetes.io/instance-type: p4d.24xlarge}, "+
					"pytorch: {resources: {limits: {nvidia.com/gpu: %d}}}}}\n", least, most,
				gpus), []group{{max(least, most), gpus}}
		}},
		{"SparkApplication", false, func(t *rapid.T) (string, []group) {
			driver, executor, n, most := drawGPUs(t, "driver"), drawGPUs(t, "executor"), rapid.IntRange(1, 8).Draw(t,
				"pods"), rapid.IntRange(1, 8).Draw(t, "most")
			return fmt.Sprintf("apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: "+
				"NAME}\nspec: {nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}, driver: {gpu: {name: "+
				"nvidia.com/gpu, quantity: %d}}, executor: {instances: %d, gpu: {name: nvidia.com/gpu, quantity: %d}}, "+
				"dynamicAllocation: {enabled: true, maxExecutors: %d}}\n",
				driver, n, executor, most), []group{{1, driver}, {max(n, most), executor}}
		}},
		{"Workflow", true, func(t *rapid.T) (string, []group) {
			n, items, gpus, hook := rapid.IntRange(1, 8).Draw(t, "count"), rapid.IntRange(1,
				8).Draw(t, "items"), drawGPUs(t,
				"gpus"), drawGPUs(t, "hook")
			list := "[" + strings.TrimSuffix(strings.Repeat("1,", items), ",") + "]"
			one := func(name string, gpus int) string {
				return strings.Replace(podSpec(gpus), "{activeDeadlineSeconds: 1200,", "{name: "+name+",", 1)
			}
			argo := func(name string, gpus int) string {
				return strings.Replace(strings.TrimSuffix(one(name, gpus), "]}")+"}",
					"containers: [", "container: ", 1)
			}
			return fmt.Sprintf(
				"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: NAME}\nspec: {entrypoint: "+
					"m, activeDeadlineSeconds: 600, parallelism: 1, hooks: {exit: {template: h}}, templates: "+
					"[{name: m, steps: "+
					"[[{name: a, template: t, withSequence: {start: 1, end: %d}}], [{name: b, template: t, "+
					"withParam: '%s'}]]}, %s, "+
					"%s]}\n",
				n, list, argo("t", gpus), argo("h", hook)), []group{{n + items, gpus}, {1, hook}}
		}},
		{"claims", true, func(t *rapid.T) (string, []group) {
			n, gpus := rapid.IntRange(1, 8).Draw(t, "pods"), rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "gpus")
			return fmt.Sprintf(
				"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: NAMEc}\nspec: "+
					"{spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu.nvidia.com, count: "+
					"%d}}]}}}\n---\n"+
					"apiVersion: batch/v1\nkind: Job\nmetadata: {name: NAME}\nspec: {activeDeadlineSeconds: 600, "+
					"parallelism: %d, "+
					"template: {spec: {nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}, "+
					"resourceClaims: [{name: g, "+
					"resourceClaimTemplateName: NAMEc}], containers: [{name: c}]}}}\n", gpus, n), []group{{n, gpus}}
		}},
		ofReplicas("StatefulSet", "apps/v1", "{replicas: PODS, template: TEMPLATE}", false),
		ofReplicas("ReplicaSet", "apps/v1", "{replicas: PODS, template: TEMPLATE}", false),
		{"ScaledJob", false, func(t *rapid.T) (string, []group) {
			most, gpus := rapid.IntRange(1, 8).Draw(t, "most"), drawGPUs(t, "gpus")
			return fmt.Sprintf("apiVersion: keda.sh/v1alpha1\nkind: ScaledJob\nmetadata: {name: NAME}\nspec: "+
				"{maxReplicaCount: %d, jobTargetRef: {template: %s}}\n", most,
				podTemplate(gpus)), []group{{most, gpus}}
		}},
		ofReplicas("JobSet", "jobset.x-k8s.io/v1alpha2",
			"{replicatedJobs: [{name: a, replicas: PODS, template: {spec: "+
				"{activeDeadlineSeconds: 600, template: TEMPLATE}}}]}", true),
		ofRoles("Job", "batch.volcano.sh/v1alpha1", "{maxRetry: 0, tasks: [{name: a, replicas: POD1, template: "+
			"TEMPLATE1}, {name: b, replicas: POD2, template: TEMPLATE2}]}", true),
		ofRoles("MPIJob", "kubeflow.org/v2beta1",
			"{runPolicy: {activeDeadlineSeconds: 600}, mpiReplicaSpecs: {Launcher: "+
				"{replicas: POD1, template: TEMPLATE1}, Worker: {replicas: POD2, template: TEMPLATE2}}}", true),
	}
	for name, key := range map[string]string{
		"PyTorchJob": "pytorch", "TFJob": "tf", "XGBoostJob": "xgb", "PaddleJob": "paddle",
		"JAXJob": "jax", "MXJob": "mx",
	} {
		forms = append(forms,
			ofRoles(name, "kubeflow.org/v1",
				"{runPolicy: {activeDeadlineSeconds: 600}, "+key+
					"ReplicaSpecs: {Master: {replicas: POD1, template: TEMPLATE1}, "+
					"Worker: {replicas: POD2, template: TEMPLATE2}}}", true))
	}
	return forms
}

// Documents that run nothing, and documents of unknown effect.
var (
	idleDocuments = []string{
		"apiVersion: v1\nkind: ConfigMap\n", "apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80}]}\n",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n",
		"apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nspec: {resourceGroups: [{coveredResources: " +
			"[nvidia.com/gpu]}]}\n"}
	unknownDocuments = []string{"apiVersion: example.com/v1\nkind: Fleet\nmetadata: {name: NAMEu}\nspec: {gpus: 64}\n",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: NAMEu}\nspec: {containers: [{name: c, resources: {limits: " +
			"{nvidia.com/mig-3g.40gb: 8}}}]}\n",
		"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: NAMEu}\nspec: {runtimeRef: {name: " +
			"gone}, trainer: {numNodes: 8}}\n"}
)

// TestCountsEveryWorkload compares the gate's machine counts with a naive count for every kind, in
// any order, with other documents between and shared names. Unlimited or unknown work asks.
func TestCountsEveryWorkload(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	forms := workloadForms()
	h := newMemoryStores(t, "budgets:\n  - {id: all, purpose: any, amount: 900000000}\n")
	p := h.params(now)
	p.Threshold, p.DryRun = 900_000_000*money.USD, true
	rapid.Check(t, func(t *rapid.T) {
		var documents []string
		want, ends := 0, true
		for i := range rapid.IntRange(1, 3).Draw(t, "workloads") {
			f := rapid.SampledFrom(forms).Draw(t, "form")
			text, groups := f.write(t)
			name := "w"
			if strings.Contains(text, "NAMEd") || strings.Contains(text, "NAMEr") || strings.Contains(text, "NAMEc") ||
				rapid.Bool().Draw(t, "own name") {
				name = fmt.Sprintf("w%d", i) // references within one document
			}
			documents = append(documents, strings.Split(strings.ReplaceAll(text, "NAME", name), "---\n")...)
			for _, g := range groups {
				want += g.machines()
				ends = ends && (f.ends || g.machines() == 0)
			}
		}
		documents = append(documents, rapid.SliceOfN(rapid.SampledFrom(idleDocuments), 0, 2).Draw(t, "neighbors")...)
		unknown := rapid.IntRange(0, 5).Draw(t, "unknown") == 0
		if unknown {
			documents = append(documents,
				strings.ReplaceAll(rapid.SampledFrom(unknownDocuments).Draw(t, "not known"), "NAME",
					"x"))
		}
		documents = rapid.Permutation(documents).Draw(t, "order")
		src := strings.Join(documents, "---\n")
		specs, err := spec.Read("m.yaml", []byte(src), nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, src)
		}
		if len(specs) == 0 {
			if want != 0 || unknown {
				t.Fatalf("nothing is counted, want %d machines\n%s", want, src)
			}
			return
		}
		e, err := estimate.File("m", specs, book, estimate.Params{
			Now: now, Defaults: estimate.Defaults{Regions: []string{"us-east-1"}},
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, src)
		}
		if e.Machines != want {
			t.Fatalf("%d machines, want %d\n%s", e.Machines, want, src)
		}
		d, err := Decide(context.Background(), NewAsk(e, approval.Person{Name: "ana"}, ""), p)
		if err != nil {
			t.Fatal(err)
		}
		wanted := Held
		if ends && !unknown {
			wanted = Allow
		}
		if d.Decision != wanted {
			t.Fatalf("%s, want %s: %q\n%s", d.Decision, wanted, d.Reasons, src)
		}
	})
}
