package spec

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// known is a document of known cost.
const known = "apiVersion: v1\nkind: Pod\nmetadata: {name: known}\nspec: {activeDeadlineSeconds: 900, containers: " +
	"[{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}\n"

// TestNamesUnreadDocuments checks that a document that is not understood is named even next to
// one that is, in either order.
func TestNamesUnreadDocuments(t *testing.T) {
	pod := func(resources string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: odd}\nspec: {containers: [{name: c, resources: {limits: {" +
			resources + "}}}]}\n"
	}
	argo := func(spec string) string {
		return "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: odd}\nspec: " + spec + "\n"
	}
	service := "metadata: {name: odd}\nspec: {replicas: 2, template: {spec: {containers: [{name: c, resources: " +
		"{limits: {nvidia.com/gpu: 1}}}]}}}\n"
	for _, tc := range []struct{ name, src, want string }{
		{
			"a kind that is not read",
			"apiVersion: example.com/v1\nkind: Train\nmetadata: {name: odd}\nspec: {workers: 3}\n",
			"what Train (example.com) odd (line 1) runs: its kind is not read",
		},
		{
			"a known kind of another group", "apiVersion: example.com/v1\nkind: Service\nmetadata: {name: odd}\n",
			"Service (example.com) odd",
		},
		{
			"no apiVersion", "kind: Pod\nmetadata: {name: odd}\n",
			"what Pod odd (line 1) runs: it has no apiVersion or no kind",
		},
		{"no kind", "apiVersion: v1\nmetadata: {name: odd}\n", "what the document odd (line 1) runs"},
		{
			"a kind in a block", "apiVersion: v1\nkind: |\n  Pod\nmetadata: {name: odd}\n",
			"has no apiVersion or no kind",
		},
		{"a list of documents", "- {apiVersion: v1, kind: Pod}\n", "it is a list and not a document of Kubernetes"},
		{
			"a job of curfew", "apiVersion: curfew.job/v1\nname: odd\nresources: {gpus: L4}\nrun: x\n",
			"it has no apiVersion or no kind",
		},
		{
			"an item of a list",
			"apiVersion: v1\nkind: List\nitems: [{apiVersion: example.com/v1, kind: Train, metadata: {name: odd}}]\n",
			"Train (example.com) odd",
		},
		{
			"an item of a list of a kind",
			"apiVersion: example.com/v1\nkind: TrainList\nitems: [{metadata: {name: odd}}]\n",
			"Train (example.com) odd",
		},
		{
			"kustomize",
			"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nmetadata: {name: odd}\nresources: [gpu]\n",
			"give what `kustomize build` prints",
		},
		{
			"machines of a pool",
			"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: odd}\nspec: {replicas: 3}\n",
			"its replicas keep machines running",
		},
		{
			"a machine", "apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {name: odd}\n",
			"NodeClaim (karpenter.sh) odd",
		},
		{
			"a slice of a GPU", pod("nvidia.com/mig-2g.20gb: 3"),
			"what 3 × nvidia.com/mig-2g.20gb costs: map it to an accelerator, or to none, under estimate.devices",
		},
		{"a share of a GPU", pod("nvidia.com/gpu.shared: 2"), "2 × nvidia.com/gpu.shared"},
		{"a renamed GPU", pod("nvidia.com/tesla-m40: 4"), "4 × nvidia.com/tesla-m40"},
		{"of another maker", pod(`amd.com/gpu: "6"`), "6 × amd.com/gpu"},
		{"of Intel", pod("gpu.intel.com/i915: 1"), "1 × gpu.intel.com/i915"},
		{"a resource of no known maker", pod("example.com/asic: 5"), "5 × example.com/asic"},
		{"a slice and a GPU", pod("nvidia.com/gpu: 2, nvidia.com/mig-1g.10gb: 1"), "1 × nvidia.com/mig-1g.10gb"},
		{"a part without its GPU", pod("nvidia.com/gpumem: 4000"), "4000 × nvidia.com/gpumem"},
		{
			"merged from a list",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: odd}\nspec:\n  x: &g {amd.com/gpu: 8}\n  containers:\n    - " +
				"resources: {limits: {<<: [*g]}}\n",
			"8 × amd.com/gpu",
		},
		{
			"a part by an annotation",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: odd, annotations: {gpu-fraction: \"0.5\"}}\nspec: " +
				"{containers: " +
				"[{name: c}]}\n",
			"the annotation gpu-fraction asks for it",
		},
		{
			"a number that a template writes", pod("nvidia.com/gpu: '{{ .Values.gpus }}'"),
			"nvidia.com/gpu is known only later",
		},
		{
			"a claim of another file",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: odd}\nspec: {resourceClaims: [{name: g, " +
				"resourceClaimTemplateName: " +
				"elsewhere}], containers: [{name: c}]}\n",
			`the ResourceClaimTemplate "elsewhere" of its resourceClaims is not in the file`,
		},
		{
			"replicas that a template writes",
			"apiVersion: apps/v1\nkind: Deployment\n" + strings.Replace(service, "replicas: 2",
				"replicas: '${COUNT}'", 1),
			"replicas is known only later",
		},
		{
			"an autoscaler of another file's",
			"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: odd}\nspec: {maxReplicas: 9, " +
				"scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: gone}}\n",
			"it scales Deployment gone, which is not a workload of this file",
		},
		{
			"no bound",
			"apiVersion: apps/v1\nkind: Deployment\n" + service + "---\napiVersion: autoscaling/v2\nkind: " +
				"HorizontalPodAutoscaler\nmetadata: {name: h}\nspec: {scaleTargetRef: {apiVersion: apps/v1, kind: " +
				"Deployment, " +
				"name: odd}}\n",
			"how many replicas it grows to: HorizontalPodAutoscaler h has no maxReplicas",
		},
		{"every node", "apiVersion: apps/v1\nkind: DaemonSet\n" + service, "how many nodes it runs on"},
		{
			"a runtime of another file",
			"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: odd}\nspec: {runtimeRef: {name: " +
				"torch}}\n",
			"it runs on the ClusterTrainingRuntime torch, which is not in the file",
		},
		{
			"a serving runtime of another file",
			"apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: odd}\nspec: {predictor: " +
				"{maxReplicas: 2, model: {runtime: vllm}}}\n",
			"what serving runtime vllm adds, which is not in the file",
		},
		{
			"a service without a bound", "apiVersion: serving.knative.dev/v1\nkind: Service\n" + service,
			"it has no annotation autoscaling.knative.dev/max-scale",
		},
		{
			"a cluster of another file",
			"apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: odd}\nspec: {clusterSelector: {ray.io/cluster: x}}\n",
			"it runs on the RayCluster x, which is not in the file",
		},
		{
			"executors without a bound",
			"apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: odd}\nspec: " +
				"{dynamicAllocation: {enabled: true}, driver: {}, executor: {instances: 2, gpu: {name: " +
				"nvidia.com/gpu, " +
				"quantity: 1}}}\n",
			"dynamic allocation has no maxExecutors",
		},
		{
			"pods in another file",
			"apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: odd}\nspec: " +
				"{sparkConf: " +
				"{spark.kubernetes.executor.podTemplateFile: /t.yaml}}\n",
			"the template of its pods is in another file",
		},
		{
			"a workflow of another file", argo("{workflowTemplateRef: {name: gone}}"),
			"it runs WorkflowTemplate gone, which is not in the file",
		},
		{
			"a step of another file",
			argo(
				"{entrypoint: a, templates: [{name: a, steps: [[{name: s, templateRef: {name: gone, template: t}}]]}]}"),
			"it runs WorkflowTemplate gone, which is not in the file",
		},
		{
			"a template that is not there",
			argo("{entrypoint: a, templates: [{name: a, dag: {tasks: [{name: s, template: gone}]}}]}"),
			`it runs template "gone", which is not in the file`,
		},
		{
			"a circle", argo("{entrypoint: a, templates: [{name: a, steps: [[{name: s, template: a}]]}]}"),
			`template "a" begins itself`,
		},
		{
			"a form of template", argo("{entrypoint: a, templates: [{name: a, plugin: {x: {}}}]}"),
			"template a is of a form that is not read",
		},
		{
			"a patch", argo(
				"{entrypoint: a, podSpecPatch: '{{=x}}: [', templates: [{name: a, container: {image: i}}]}"),
			"a podSpecPatch of it cannot be read",
		},
		{
			"an action", argo("{entrypoint: a, templates: [{name: a, resource: {action: patch, manifest: x}}]}"),
			`carries out the action "patch"`,
		},
		{
			"a number of GPUs that a step gives",
			argo("{entrypoint: a, templates: [{name: a, container: {resources: {limits: {nvidia.com/gpu: " +
				"'{{steps.b.outputs.result}}'}}}}]}"),
			"of template a nvidia.com/gpu is known only later",
		},
		{
			"a list that a step gives",
			argo("{entrypoint: m, templates: [{name: m, steps: [[{name: s, template: a, withParam: " +
				"'{{steps.b.outputs.result}}'}]]}, {name: a, container: {resources: {limits: {nvidia.com/gpu: 1}}}}]}"),
			`how often step "s" runs: it is known only at run time`,
		},
		{
			"defaults of templates",
			argo(
				"{entrypoint: a, templateDefaults: {container: {resources: {}}}, templates: [{name: a, container: {image: " +
					"i}}]}"),
			"templateDefaults change the containers",
		},
	} {
		for _, src := range []string{known + "---\n" + tc.src, tc.src + "---\n" + known} {
			if strings.HasPrefix(src, "apiVersion: curfew") || strings.HasPrefix(src, "- ") ||
				strings.HasPrefix(src, "apiVersion: v1\nmetadata") {
				continue // parsed as a job of curfew, which has one document
			}
			specs, err := Read("m.yaml", []byte(src), nil)
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
				continue
			}
			var unknown []string
			for _, s := range specs {
				unknown = append(unknown, s.Unknown...)
			}
			all := strings.Join(unknown, "\n")
			want := strings.ReplaceAll(tc.want, "(line 1)", "")
			got := strings.NewReplacer("(line 1)", "", "(line 6)", "").Replace(all)
			if !strings.Contains(got, want) {
				t.Errorf("%s: unknown %q, want %q", tc.name, all, tc.want)
			}
			if !slices.ContainsFunc(specs, func(s *Spec) bool {
				return s.Name == "known" && s.Resources.GPUs == 1 && s.Unknown == nil
			}) {
				t.Errorf("%s: the other document is not counted", tc.name)
			}
			if len(specs) < 2 {
				t.Errorf("%s: %d workloads", tc.name, len(specs))
			}
		}
	}
}

// TestIgnoresDocumentsWithoutPods checks that documents that run nothing do not make the gate ask.
func TestIgnoresDocumentsWithoutPods(t *testing.T) {
	src := known
	for _, doc := range []string{
		"v1 ConfigMap", "v1 Service", "v1 LimitRange", "v1 ResourceQuota", "rbac.authorization.k8s.io/v1 Role",
		"networking.k8s.io/v1 NetworkPolicy", "karpenter.sh/v1 NodePool",
		"kueue.x-k8s.io/v1beta2 ClusterQueue", "resource.k8s.io/v1 DeviceClass",
		"autoscaling.k8s.io/v1 VerticalPodAutoscaler", "cert-manager.io/v1 Certificate"} {
		version, name, _ := strings.Cut(doc, " ")
		src += fmt.Sprintf("---\napiVersion: %s\nkind: %s\nmetadata: {name: n}\n", version, name)
	}
	specs, err := Read("m.yaml", []byte(src), nil)
	if err != nil || len(specs) != 1 || specs[0].Unknown != nil {
		t.Errorf("got %v, %v", specs, err)
	}
	for k := range runsNothing() {
		if kinds()[k] != nil || autoscalers[k].target != nil {
			t.Errorf("%s is read and runs nothing", k)
		}
	}
	if n := strings.Count(nothingText, "\n"); len(runsNothing()) < n {
		t.Errorf("%d kinds in %d lines", len(runsNothing()), n)
	}
}

// TestUnrenderedTemplatesAsk checks that a Helm template makes the gate ask, and that any other broken
// file is a mistake.
func TestUnrenderedTemplatesAsk(t *testing.T) {
	helm := "apiVersion: apps/v1\nkind: Deployment\nspec:\n  {{- if .Values.big }}\n  replicas: {{ .Values.n }}\n  {{- " +
		"end }}\n"
	specs, err := Read("charts/gpu.yaml", []byte(helm), nil)
	if err != nil || len(specs) != 1 || !specs[0].Unread() ||
		!strings.Contains(specs[0].Unknown[0], "helm template") ||
		len(specs[0].Digest) != 64 {
		t.Errorf("got %v, %v", specs, err)
	}
	if specs, err := Read("m.yaml", []byte("kind: Pod\nspec: [\n"), nil); err == nil {
		t.Errorf("a broken file gives %v", specs)
	}
}

// TestGroupsUnreadDocuments checks that many documents of one kind yield one reason.
func TestGroupsUnreadDocuments(t *testing.T) {
	src := known
	for i := range 400 {
		src += fmt.Sprintf("---\napiVersion: example.com/v1\nkind: Train\nmetadata: {name: t%d}\n", i)
	}
	specs, err := Read("m.yaml", []byte(src), nil)
	if err != nil || len(specs) != 2 || !strings.Contains(specs[1].Unknown[0], "t0 (line 6), t1 (line 10)") ||
		!strings.Contains(specs[1].Unknown[0], "and 395 more") {
		t.Errorf("got %v, %v", specs, err)
	}
	other, err := Read("m.yaml", []byte(strings.Replace(src, "t399", "t999", 1)), nil)
	if err != nil || other[1].Hash() == specs[1].Hash() {
		t.Errorf("another document has the same hash: %v", err)
	}
}

// TestBoundsManifests checks that counts beyond their bounds are mistakes and never overflow.
func TestBoundsManifests(t *testing.T) {
	pods := "template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}}"
	for name, src := range map[string]string{
		"replicas": "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 1000000000, " + pods + "}\n",
		"a product": "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nspec: {replicas: 9000, " +
			"leaderWorkerTemplate: {size: 9000, worker" + strings.Replace(pods, "template", "Template", 1) + "}}\n",
		"GPUs of a pod": "apiVersion: v1\nkind: Pod\nspec: {containers: [" + strings.Repeat(
			"{name: c, resources: {limits: {nvidia.com/gpu: 1000}}},", 40) + "]}\n",
		"of a scaler": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {" + pods +
			"}\n---\napiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nspec: {maxReplicaCount: 1000000000, " +
			"scaleTargetRef: " +
			"{name: d}}\n",
		"past 64 bits": "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 99999999999999999999, " + pods +
			"}\n",
		"a negative one": "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: -1, " + pods + "}\n",
		"a bomb": "apiVersion: v1\nkind: Pod\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: " +
			"&c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e " +
			"[*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: " +
			"[*e,*e,*e,*e]\n",
		"documents": strings.Repeat("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b, labels: {a: "+
			"b}}\ndata: {a: b, c: d}\n---\n", 10_000),
	} {
		if specs, err := Read("m.yaml", []byte(src), nil); err == nil {
			t.Errorf("%s: %+v", name, *specs[0])
		}
	}
	many := strings.Repeat("apiVersion: v1\nkind: Pod\nspec: {containers: [{}]}\n---\n", 8_000) + known
	if specs, err := Read("m.yaml", []byte(many), nil); err != nil || len(specs) != 1 {
		t.Errorf("many small documents: %v, %v", specs, err)
	}
}
