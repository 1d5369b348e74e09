package helm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// validator is the release of kubernetes-validate that the test runs; validated is the Kubernetes
// version of the schemas.
const (
	validator = "1.37.0"
	validated = "1.34"
)

// kubernetesValidate returns the interpreter of a virtual environment with the validator, which is
// created in the user's cache directory if necessary.
func kubernetesValidate(ctx context.Context, t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	venv := filepath.Join(cache, "curfew-test", "kubernetes-validate-"+validator)
	python := filepath.Join(venv, "bin", "python")
	if _, err := os.Stat(python); err == nil {
		return python
	}
	if err := os.MkdirAll(filepath.Dir(venv), 0o755); err != nil {
		t.Fatal(err)
	}
	// Create it in a temporary directory and move it into place, so that several processes may do
	// so at once.
	fresh, err := os.MkdirTemp(filepath.Dir(venv), "kubernetes-validate-new-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(fresh)
	for _, args := range [][]string{
		{"python3", "-m", "venv", fresh},
		{
			filepath.Join(fresh, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"kubernetes-validate==" + validator,
		},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	if err := os.Rename(fresh, venv); err != nil {
		if _, there := os.Stat(python); there != nil {
			t.Fatal(err)
		}
	}
	return python
}

// documents renders the chart with the values of a file, and returns the objects that Kubernetes
// itself defines.
func documents(t *testing.T, file string) map[string]string {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if file != "" {
		if values, err = chartutil.ReadValuesFile(chartDir + "/" + file); err != nil {
			t.Fatal(err)
		}
	}
	top, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{
		Name: "gpu", Namespace: "curfew", IsInstall: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Engine{Strict: true}.Render(chart, top)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, text := range files {
		// The monitor is defined by Prometheus' operator.
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" &&
			!strings.Contains(text, "monitoring.coreos.com") {
			out[filepath.Base(name)] = text
		}
	}
	return out
}

// TestKubernetesTakesTheChart validates the rendered chart strictly against the schemas of
// Kubernetes: an unknown or repeated field is an error, as an injected one shows.
func TestKubernetesTakesTheChart(t *testing.T) {
	python := kubernetesValidate(t.Context(), t)
	validate := func(dir string) (string, error) {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		args := append([]string{"-m", "kubernetes_validate", "--strict", "-k", validated}, files...)
		out, err := exec.CommandContext(t.Context(), python, args...).CombinedOutput()
		return string(out), err
	}
	for file, least := range map[string]int{"": 4, "ci/shared-values.yaml": 6} {
		dir := t.TempDir()
		all := documents(t, file)
		for name, text := range all {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := validate(dir); err != nil || len(all) < least {
			t.Errorf("values %q: %d documents, want %d or more: %v\n%s", file, len(all), least, err, out)
		}
		wrong := strings.Replace(all["deployment.yaml"], "enableServiceLinks:", "enableServiceLink:", 1)
		if err := os.WriteFile(filepath.Join(dir, "deployment.yaml"), []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := validate(dir); err == nil || !strings.Contains(out, "enableServiceLink") {
			t.Errorf("values %q: an unknown field is not refused: %v\n%s", file, err, out)
		}
	}
}

// TestValuesHaveASchema checks that values are refused that the chart would ignore.
func TestValuesHaveASchema(t *testing.T) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	for what, values := range map[string]map[string]any{
		"repicas":        {"repicas": 3},
		"replicas":       {"replicas": "3"},
		"existingSecert": {"database": map[string]any{"existingSecert": "x"}},
		"format":         {"log": map[string]any{"format": "xml"}},
		"mountPath":      {"extraVolumeMounts": []any{map[string]any{"name": "x"}}},
		"roleArn":        {"serviceAccount": map[string]any{"roleArn": "curfew"}},
	} {
		_, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{
			Name: "gpu", Namespace: "curfew",
		}, nil)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v: %v", values, err)
		}
	}
	// Every value of values.yaml is in the schema, and vice versa.
	schema := struct{ Properties map[string]any }{}
	if err := yaml.Unmarshal(chart.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	for key := range schema.Properties {
		if _, ok := chart.Values[key]; !ok && key != "global" {
			t.Errorf("values.yaml has no %s", key)
		}
	}
}

// TestAuthoritiesAndVolumes checks that additional volumes are mounted, and additional authorities
// are trusted besides the public ones.
func TestAuthoritiesAndVolumes(t *testing.T) {
	r, _, err := render(t, "ci/shared-values.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	pod := r.deployment.Spec.Template.Spec
	c := pod.Containers[0]
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	if env["SSL_CERT_DIR"] != mounts["ca"]+":/etc/ssl/certs" ||
		env["HTTPS_PROXY"] != "http://proxy.example.com:3128" ||
		len(c.EnvFrom) != 1 {
		t.Errorf("environment %v, from %v", env, c.EnvFrom)
	}
	if mounts["prices"] != "/etc/curfew-prices" || mounts["client-certificate"] != "/etc/curfew-database" {
		t.Errorf("mounts %v", mounts)
	}
	sources := map[string]string{}
	for _, v := range pod.Volumes {
		switch {
		case v.ConfigMap != nil:
			sources[v.Name] = v.ConfigMap.Name
		case v.Secret != nil:
			sources[v.Name] = v.Secret.SecretName
		}
	}
	if sources["ca"] != "corporate-authorities" || sources["prices"] != "curfew-prices" ||
		sources["client-certificate"] != "curfew-database-client" {
		t.Errorf("volumes %v", sources)
	}
	r, _, err = render(t, "", map[string]any{"ca": map[string]any{"existingSecret": "authorities"}})
	if err != nil {
		t.Fatal(err)
	}
	if v := r.deployment.Spec.Template.Spec.Volumes[3]; v.Name != "ca" || v.Secret == nil ||
		v.Secret.SecretName != "authorities" {
		t.Errorf("volume %+v", v)
	}
	both := map[string]any{"ca": map[string]any{"existingSecret": "a", "existingConfigMap": "b"}}
	if _, _, err := render(t, "", both); err == nil || !strings.Contains(err.Error(), "not both") {
		t.Errorf("two sources of authorities: %v", err)
	}
}

// TestLimitsFitWhatIsDocumented checks the memory of the chart against the measurements in
// docs/serve.md: a request for the documented use, and a limit with a quarter to spare.
func TestLimitsFitWhatIsDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`\| ([0-9,]+) MiB, ([0-9,]+) MiB at first \|`).FindAllStringSubmatch(string(raw), -1)
	if len(rows) < 2 {
		t.Fatalf("docs/serve.md has %d measurements", len(rows))
	}
	r, _, err := render(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resources := r.deployment.Spec.Template.Spec.Containers[0].Resources
	mib := func(text string, spare int64) resource.Quantity {
		n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return resource.MustParse(fmt.Sprintf("%dMi", n*spare/100))
	}
	for _, row := range rows {
		if steady, first := mib(row[1], 100), mib(row[2], 125); resources.Requests.Memory().Cmp(steady) < 0 ||
			resources.Limits.Memory().Cmp(first) < 0 {
			t.Errorf("%s: requests %s, limits %s", row[0], resources.Requests.Memory(), resources.Limits.Memory())
		}
	}
}
