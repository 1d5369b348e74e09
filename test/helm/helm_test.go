// Package helm renders the chart in deploy/helm, decodes the result strictly, and evaluates the
// Terraform module. It is a separate module because of its dependencies.
package helm

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const chartDir = "../../deploy/helm/curfew"

// serviceMonitor is the part of monitoring.coreos.com/v1 that the chart uses.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// rendered holds the objects of a release.
type rendered struct {
	deployment *appsv1.Deployment
	config     *corev1.ConfigMap
	service    *corev1.Service
	account    *corev1.ServiceAccount
	claim      *corev1.PersistentVolumeClaim
	budget     *policyv1.PodDisruptionBudget
	network    *networkingv1.NetworkPolicy
	monitor    *serviceMonitor
}

// render renders the chart with the values of a file (none for "") and additional ones.
func render(t *testing.T, file string, set map[string]any) (rendered, map[string]any, error) {
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
	maps.Copy(values, set)
	top, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{
		Name: "gpu", Namespace: "curfew", IsInstall: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Engine{Strict: true}.Render(chart, top)
	if err != nil {
		return rendered{}, nil, err
	}
	var out rendered
	for name, text := range files {
		if !strings.HasSuffix(name, ".yaml") || strings.TrimSpace(text) == "" {
			continue
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		into := map[string]any{
			"apps/v1 Deployment": &out.deployment, "v1 ConfigMap": &out.config, "v1 Service": &out.service,
			"v1 ServiceAccount":        &out.account,
			"v1 PersistentVolumeClaim": &out.claim, "policy/v1 PodDisruptionBudget": &out.budget,
			"networking.k8s.io/v1 NetworkPolicy":      &out.network,
			"monitoring.coreos.com/v1 ServiceMonitor": &out.monitor}[kind.APIVersion+" "+kind.Kind]
		if into == nil {
			t.Fatalf("%s is a %s of %s", name, kind.Kind, kind.APIVersion)
		}
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	return out, top["Values"].(chartutil.Values), nil
}

// sameConfig checks that curfew.yaml in the ConfigMap equals its value.
func sameConfig(t *testing.T, r rendered, values map[string]any) {
	t.Helper()
	got, want := map[string]any{}, map[string]any{}
	if err := yaml.Unmarshal([]byte(r.config.Data["curfew.yaml"]), &got); err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.Marshal(values["config"])
	if err == nil {
		err = yaml.Unmarshal(raw, &want)
	}
	if err != nil || !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		t.Errorf("curfew.yaml is %v, want %v (%v)", got, want, err)
	}
}

// secure checks properties that hold for all values.
func secure(t *testing.T, r rendered) corev1.Container {
	t.Helper()
	pod := r.deployment.Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || r.account == nil ||
		*r.account.AutomountServiceAccountToken {
		t.Error("the pod gets a token of the Kubernetes API")
	}
	if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser != 65532 || *s.FSGroup != 65532 ||
		s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("security context %+v", s)
	}
	if len(pod.Containers) != 1 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	c := pod.Containers[0]
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
		!reflect.DeepEqual(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
		t.Errorf("security context %+v", s)
	}
	for _, e := range c.Env {
		// no secrets
		plain := []string{"CURFEW_DATA_VOLUME", "XDG_STATE_HOME", "SSL_CERT_DIR", "HTTPS_PROXY", "NODE_NAME"}
		if !slices.Contains(plain, e.Name) && (e.Value != "" || e.ValueFrom == nil ||
			e.ValueFrom.SecretKeyRef == nil) {
			t.Errorf("%s is not a reference to a Secret", e.Name)
		}
	}
	for name, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != name ||
			probe.HTTPGet.Port.String() != "http" {
			t.Errorf("probe %+v, want %s", probe, name)
		}
	}
	if c.Resources.Requests.Cpu().Cmp(resource.MustParse("100m")) != 0 || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("resources %+v", c.Resources)
	}
	if len(c.Ports) != 1 || c.Ports[0].Name != "http" || r.service.Spec.Ports[0].Port != c.Ports[0].ContainerPort ||
		r.service.Spec.Ports[0].TargetPort.String() != "http" ||
		!slices.Contains(c.Args, fmt.Sprintf("--listen=:%d", c.Ports[0].ContainerPort)) {
		t.Errorf("ports %+v and %+v, arguments %q", c.Ports, r.service.Spec.Ports, c.Args)
	}
	labels := r.deployment.Spec.Template.Labels
	for _, selector := range []map[string]string{r.service.Spec.Selector, r.deployment.Spec.Selector.MatchLabels} {
		for k, v := range selector {
			if labels[k] != v {
				t.Errorf("%s=%s selects no pod", k, v)
			}
		}
	}
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("volume %s is mounted and not there", m.Name)
		}
	}
	return c
}

func TestOneReplicaHasAVolume(t *testing.T) {
	r, values, err := render(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := secure(t, r)
	sameConfig(t, r, values)
	if r.deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || *r.deployment.Spec.Replicas != 1 {
		t.Errorf("two processes could have the volume: %+v", r.deployment.Spec.Strategy)
	}
	if r.claim == nil || r.deployment.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName != r.claim.Name {
		t.Errorf("claim %+v", r.claim)
	}
	if r.budget != nil || r.network != nil || r.monitor != nil {
		t.Error("an option that is off has an object")
	}
	if slices.Contains(c.Args, "--enforce") || slices.Contains(c.Args, "--policy=/etc/curfew/policies") {
		t.Errorf("it does not begin by observing: %q", c.Args)
	}
}

func TestReplicasShareADatabase(t *testing.T) {
	if _, _, err := render(t, "", map[string]any{"replicas": 2}); err == nil ||
		!strings.Contains(err.Error(), "set database.existingSecret") {
		t.Errorf("two replicas with a volume each: %v", err)
	}
	r, values, err := render(t, "ci/shared-values.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := secure(t, r)
	sameConfig(t, r, values)
	if *r.deployment.Spec.Replicas != 3 ||
		r.deployment.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || r.claim != nil {
		t.Errorf("%+v, claim %v", r.deployment.Spec, r.claim)
	}
	env := map[string]string{}
	for _, e := range c.Env {
		if env[e.Name] = e.Value; e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			env[e.Name] = e.ValueFrom.SecretKeyRef.Name + "/" + e.ValueFrom.SecretKeyRef.Key
		}
	}
	if want := map[string]string{
		"CURFEW_DATA_VOLUME": "/data", "XDG_STATE_HOME": "/data/witness", "CURFEW_DATABASE_URL": "curfew-database/url",
		"SLACK_TOKEN":  "curfew-slack/token",
		"SSL_CERT_DIR": "/etc/curfew-ca:/etc/ssl/certs", "HTTPS_PROXY": "http://proxy.example.com:3128",
		"NODE_NAME": ""}; !maps.Equal(env, want) {
		t.Errorf("environment %v, want %v", env, want)
	}
	for _, want := range []string{"--enforce", "--policy=/etc/curfew/policies", "--regions=us-east-1,us-west-2"} {
		if !slices.Contains(c.Args, want) {
			t.Errorf("%q lack %s", c.Args, want)
		}
	}
	if r.account.Annotations["eks.amazonaws.com/role-arn"] != "arn:aws:iam::999988887777:role/curfew" {
		t.Errorf("annotations %v", r.account.Annotations)
	}
	if r.budget == nil || r.budget.Spec.MaxUnavailable.IntValue() != 1 || r.monitor == nil ||
		r.monitor.Spec.Endpoints[0].Path != "/metrics" || r.monitor.Labels["release"] != "prometheus" {
		t.Errorf("budget %+v, monitor %+v", r.budget, r.monitor)
	}
	if r.network == nil || len(r.network.Spec.PolicyTypes) != 2 || len(r.network.Spec.Egress) != 1 ||
		r.network.Spec.Ingress[0].From[0].NamespaceSelector == nil {
		t.Errorf("network policy %+v", r.network)
	}
	item := r.deployment.Spec.Template.Spec.Volumes[0].ConfigMap.Items[1]
	if item.Path != "policies/idle.yaml" ||
		r.config.Data[item.Key] != values["policies"].(map[string]any)["idle.yaml"] {
		t.Errorf("policy %+v is %q", item, r.config.Data[item.Key])
	}
}

// TestChartIsOfThisRepository checks the chart's user against the image's.
func TestChartIsOfThisRepository(t *testing.T) {
	raw, err := os.ReadFile("../../Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), "USER 65532:65532") || !strings.Contains(string(raw), "EXPOSE 8787") {
		t.Error("the image has another user or port than the chart")
	}
}
