package spec

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/curfew-dev/curfew/internal/inventory"
)

func manifests(t testing.TB) string {
	t.Helper()
	src, err := os.ReadFile("testdata/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

func TestManifests(t *testing.T) {
	got, err := Read("m.yaml", []byte(manifests(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []*Spec{
		{
			Kind: Job, Name: "finetune", Purpose: inventory.Training, Owner: inventory.Owner{
				Team: "nlp", Project: "chat", User: "bo",
			},
			Resources: Resources{GPU: "A100-SXM4-80GB", GPUs: 4, Nodes: 2}, Capacity: Spot,
			Regions:    []string{"us-east-1"},
			MaxRuntime: 2 * time.Hour,
			Retries: Retries{
				DefaultInterruptions, 1,
			}, Unknown: []string{
				"how often it is begun again: 1 more time at most, each for as long; activeDeadlineSeconds of the Job would " +
					"bound all",
			}, File: "m.yaml", Line: 6},
		{
			Kind: Job, Name: "sweep.fit", Resources: Resources{InstanceType: "g5.12xlarge", GPUs: 1, Nodes: 4},
			Capacity: OnDemand, MaxRuntime: 2 * time.Hour,
			Retries: Retries{
				DefaultInterruptions, 0,
			}, Unknown: []string{`how often step "again" runs: it is known only at run time, and is counted once`},
			File: "m.yaml", Line: 33},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Spec{}, "Digest", "Selector")); diff != "" {
		t.Error(diff)
	}
}

// job is a Job with one container; parts are put into its template's spec.
func job(parts string) string {
	return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  template:\n    spec:\n" + parts +
		"      containers:\n        - {name: a, resources: {limits: {nvidia.com/gpu: 2}}}\n"
}

func TestManifestForms(t *testing.T) {
	gpus := "resources: {limits: {nvidia.com/gpu: 1}}"
	for _, tc := range []struct {
		name, src string
		check     func(*Spec) bool
	}{
		{"requests alone", strings.Replace(job(""), "limits", "requests", 1), func(s *Spec) bool {
			return s.Resources.GPUs == 2
		}},
		{
			"several containers", job("") + "        - {name: b, resources: {limits: {nvidia.com/gpu: \"3\"}}}\n",
			func(s *Spec) bool { return s.Resources.GPUs == 5 },
		},
		{
			"a larger one before",
			job("      initContainers: [{name: i, resources: {limits: {nvidia.com/gpu: 8}}}]\n"),
			func(s *Spec) bool { return s.Resources.GPUs == 8 },
		},
		{
			"affinity", job("      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: " +
				"{nodeSelectorTerms: [{matchExpressions: [{key: node.kubernetes.io/instance-type, operator: In, values: " +
				"[g5.xlarge]}]}]}}}\n"),
			func(s *Spec) bool { return s.Resources.InstanceType == "g5.xlarge" }},
		{
			"several types", job("      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: " +
				"{nodeSelectorTerms: [{matchExpressions: [{key: node.kubernetes.io/instance-type, operator: In, values: " +
				"[g5.xlarge, g6.xlarge]}]}]}}}\n"),
			func(s *Spec) bool {
				return s.Resources.InstanceType == "" && len(s.Unknown) == 1 &&
					strings.Contains(s.Unknown[0], "g5.xlarge, g6.xlarge")
			}},
		{
			"no round count",
			strings.Replace(job(""), "  template:", "  parallelism: 2\n  completions: 6\n  template:", 1),
			func(s *Spec) bool { return s.Resources.Nodes == 2 && len(s.Unknown) == 1 },
		},
		{
			"a bound of the whole job",
			strings.Replace(job(""), "  template:", "  activeDeadlineSeconds: 60\n  completions: 6\n  template:", 1),
			func(s *Spec) bool { return s.MaxRuntime == time.Minute && s.Resources.Nodes == 1 },
		},
		{
			"cron", "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\nspec: {schedule: 0 3 * * *, " +
				"jobTemplate: " +
				"{metadata: {labels: {team: x}}, spec: {template: {spec: {containers: [{" + gpus + "}]}}}}}\n",
			func(s *Spec) bool {
				return s.Owner.Team == "x" && len(s.Unknown) == 1 && strings.Contains(s.Unknown[0], "0 3 * * *")
			}},
		{
			"pod",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {activeDeadlineSeconds: 90, containers: [{" + gpus +
				"}]}\n",
			func(s *Spec) bool { return s.MaxRuntime == 90*time.Second },
		},
		{
			"list",
			"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: " +
				"{containers: [{" +
				gpus + "}]}}]\n",
			func(s *Spec) bool { return s.Name == "p" },
		},
		{
			"alias",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  x: &g\n    limits: {nvidia.com/gpu: 3}\n  " +
				"containers: " +
				"[{resources: *g}]\n",
			func(s *Spec) bool { return s.Resources.GPUs == 3 },
		},
		{
			"merged from a list",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  x: &g {nvidia.com/gpu: 3}\n  containers: " +
				"[{resources: " +
				"{limits: {<<: [*g]}}}]\n",
			func(s *Spec) bool { return s.Resources.GPUs == 3 },
		},
		{
			"none of another maker", job("") + "        - {name: b, resources: {limits: {amd.com/gpu: 0}}}\n",
			func(s *Spec) bool { return s.Resources.GPUs == 2 },
		},
		{
			"each try bounded", strings.Replace(job("      activeDeadlineSeconds: 60\n"), "spec:\n",
				"spec:\n  backoffLimit: 3\n", 1), func(s *Spec) bool {
				return s.MaxRuntime == time.Minute && len(s.Unknown) == 1 &&
					strings.Contains(s.Unknown[0], "how often it is begun again: 3 more times at most")
			}},
		{
			"all tries bounded",
			strings.Replace(job(""), "spec:\n", "spec:\n  backoffLimit: 3\n  activeDeadlineSeconds: 60\n", 1),
			func(s *Spec) bool { return s.MaxRuntime == time.Minute && s.Unknown == nil },
		},
		{
			"merged",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  x: &g\n    resources: {limits: " +
				"{nvidia.com/gpu: 3}}\n  " +
				"containers:\n    - <<: *g\n      name: a\n",
			func(s *Spec) bool { return s.Resources.GPUs == 3 },
		},
		{
			"cron workflow",
			"apiVersion: argoproj.io/v1alpha1\nkind: CronWorkflow\nmetadata: {name: w}\nspec: {schedule: " +
				"'@daily', workflowSpec: {entrypoint: a, templates: [{name: a, steps: [[{name: s, template: b, " +
				"withSequence: " +
				"{count: 5}}]]}, {name: b, container: {" + gpus + "}}]}}\n",
			func(s *Spec) bool { return s.Resources.Nodes == 5 && s.Name == "w.b" && len(s.Unknown) == 1 }},
	} {
		got, err := parseManifest("m.yaml", []byte(tc.src))
		if err != nil || len(got) != 1 || !tc.check(got[0]) {
			t.Errorf("%s: got %v", tc.name, err)
			for _, s := range got {
				t.Errorf("%+v", *s)
			}
		}
	}
}

// TestCountsEveryDocument checks that neither an empty document nor a redefined anchor hides GPUs.
func TestCountsEveryDocument(t *testing.T) {
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{resources: {limits: {nvidia.com/gpu: " +
		"%s}}}]}\n"
	for name, src := range map[string]string{
		"empty documents between":   fmt.Sprintf(pod, "3") + "---\n---\n# nothing\n---\n" + fmt.Sprintf(pod, "5"),
		"an end and a beginning":    fmt.Sprintf(pod, "3") + "...\n---\n" + fmt.Sprintf(pod, "5"),
		"a redefined anchor":        "x: &n 3\n" + fmt.Sprintf(pod, "*n") + "y: &n 0\n---\n" + fmt.Sprintf(pod, "5"),
		"an anchor of another file": fmt.Sprintf(pod, "&n 3") + "---\nx: &n 5\n" + fmt.Sprintf(pod, "*n"),
	} {
		got, err := Read("m.yaml", []byte(src), nil)
		if err != nil || len(got) != 2 || got[0].Resources.GPUs != 3 || got[1].Resources.GPUs != 5 {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestManifestMistakes(t *testing.T) {
	gpu := strings.Index(job(""), "nvidia.com/gpu: 2")
	with := func(limit string) string { return job("")[:gpu] + limit + "}}}\n" }
	for _, tc := range []struct{ name, src, want string }{
		{"not a number", with("aws.amazon.com/neuron: x"), "aws.amazon.com/neuron is a whole number"},
		{
			"no GPU", "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a}]}\n",
			"m.yaml:1:1: no workload is limited to nvidia.com/gpu",
		},
		{
			"half a GPU", strings.Replace(job(""), "gpu: 2", "gpu: 0.5", 1),
			"m.yaml:8:58: nvidia.com/gpu is a whole number from 0 to 1024",
		},
		{
			"parallelism", strings.Replace(job(""), "  template:", "  parallelism: many\n  template:", 1),
			"m.yaml:5:16: parallelism is a whole number",
		},
		{"an alias of itself", "kind: Pod\nspec: &a {x: *a}\n", "m.yaml:2:14: alias *a has no anchor before it"},
		{"a name", strings.Replace(job(""), "name: j", "name: j/k", 1), `name "j/k"`},
	} {
		_, err := parseManifest("m.yaml", []byte(tc.src))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestManifestHash checks that an approval covers the whole file and not its formatting.
func TestManifestHash(t *testing.T) {
	hash := func(src string) string {
		t.Helper()
		specs, err := parseManifest("m.yaml", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		return specs[0].Hash()
	}
	src := manifests(t)
	want := hash(src)
	if got := hash("# a comment\n" + strings.Replace(src, "  parallelism: 2\n  completions: 3\n",
		"  completions: 3\n  parallelism:   2\n", 1)); got != want {
		t.Error("comments, spaces and the order of keys change the hash")
	}
	for name, edit := range map[string][2]string{
		"image": {"train:1", "train:2"}, "gpus": {"nvidia.com/gpu: 4", "nvidia.com/gpu: 8"},
		"a script in another document": {"python train.py", "python other.py"},
		"another workload":             {"withItems: [1, 2, 3]", "withItems: [1, 2]"},
		"a number made a text":         {"backoffLimit: 1", `backoffLimit: "1"`},
	} {
		edited := strings.Replace(src, edit[0], edit[1], 1)
		if edited == src || hash(edited) == want {
			t.Errorf("%s: the edited file has the same hash", name)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifests(f)))
	f.Add([]byte(job("")))
	f.Add([]byte("a: &a [*a, *a]\nkind: Pod\n"))
	f.Add([]byte(
		"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nspec: {entrypoint: a, templates: [{name: a, dag: " +
			"{tasks: [{template: b}, {template: b}]}}, {name: b, script: {resources: {limits: {nvidia.com/gpu: 1}}}}]}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		specs, err := parseManifest("f", src)
		if err != nil {
			checkPosition(t, src, err)
			return
		}
		for _, s := range specs {
			if !s.Unread() && (s.Resources.GPUs < 1 || s.Resources.Nodes < 1) ||
				s.MaxRuntime < 0 || len(s.Hash()) != 64 ||
				s.Digest == "" {
				t.Fatalf("%+v", *s)
			}
		}
	})
}

func BenchmarkManifest(b *testing.B) {
	src := []byte(strings.Repeat(manifests(b)+"---\n", 20))
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		if _, err := parseManifest("m.yaml", src); err != nil {
			b.Fatal(err)
		}
	}
}

// parseManifest reads manifests of which at least one workload asks for GPUs.
func parseManifest(name string, src []byte) ([]*Spec, error) {
	d, err := open(name, src)
	if err != nil {
		return nil, err
	}
	out, err := d.manifests(nil)
	if err == nil && len(out) == 0 {
		return nil, d.At(d.Bodies[0], "no workload is limited to %s", gpuResource)
	}
	return out, err
}
