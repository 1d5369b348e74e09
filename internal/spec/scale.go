package spec

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// autoscaler names the fields of an autoscaler kind that hold its target and limits.
type autoscaler struct {
	target, most []string
	// defaultKind is the default kind of the target.
	defaultKind string
	// defaultMax is the default maximum; 0 is unlimited.
	defaultMax int
}

// autoscalers are the kinds that change the replicas of other workloads: those of Kubernetes
// (https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/horizontal-pod-autoscaler-v2),
// KEDA (maxReplicaCount is 100 by default, https://keda.sh/docs/latest/reference/scaledobject-spec),
// the HTTP add-on of KEDA, and AIBrix.
var autoscalers = map[kind]autoscaler{
	{"autoscaling", "HorizontalPodAutoscaler"}: {target: []string{"scaleTargetRef"}, most: []string{"maxReplicas"}},
	{
		"keda.sh", "ScaledObject",
	}: {
		target: []string{"scaleTargetRef"}, most: []string{"maxReplicaCount"},
		defaultKind: "Deployment", defaultMax: kedaDefaultMax,
	},
	{
		"http.keda.sh", "HTTPScaledObject",
	}: {
		target: []string{"scaleTargetRef"}, most: []string{"replicas", "max"},
		defaultKind: "Deployment", defaultMax: kedaDefaultMax,
	},
	{"autoscaling.aibrix.ai", "PodAutoscaler"}: {target: []string{"scaleTargetRef"}, most: []string{"maxReplicas"}},
}

// kedaDefaultMax is KEDA's default maximum of replicas or jobs.
const kedaDefaultMax = 100

// scaler is an autoscaler of the file.
type scaler struct {
	*workload
	at, body ast.Node
	of       autoscaler
	// applied is true if a workload was counted at its bound.
	applied bool
}

func (w *workload) scaler(a autoscaler) *scaler {
	body := w.get(w.root, "spec")
	return &scaler{workload: w, body: body, at: w.get(body, a.target...), of: a}
}

// target names what it scales.
func (s *scaler) target() string {
	k := s.word(s.at, "kind")
	if k == "" {
		k = s.of.defaultKind
	}
	return strings.TrimSpace(k + " " + s.word(s.at, "name"))
}

// scales reports whether it scales a document.
func (s *scaler) scales(w *workload) bool {
	if s.target() != w.kind.name+" "+w.name || !s.sharesNamespace(w) {
		return false
	}
	version := s.word(s.at, "apiVersion")
	group, _, grouped := strings.Cut(version, "/")
	if !grouped {
		group = ""
	}
	return version == "" || group == w.group || group == "extensions" && w.group == "apps" || group == "apps" &&
		w.group == "extensions"
}

// maxReplicas returns the maximum number of replicas of a workload: its own or the limit of an autoscaler
// in the file, and the reasons why it is unknown.
func (w *workload) maxReplicas(n int) (int, []string, error) {
	var unknown []string
	for _, s := range w.scalers {
		if !s.scales(w) {
			continue
		}
		s.applied = true
		for _, path := range [][]string{
			s.of.most, {"minReplicas"}, {"minReplicaCount"}, {"replicas", "min"}, {"fallback", "replicas"},
		} {
			most, err := s.number(s.body, 0, path...)
			if err != nil {
				return 0, nil, err
			}
			n = max(n, most)
		}
		if s.get(s.body, s.of.most...) != nil {
			continue
		}
		if n = max(n, s.of.defaultMax); s.of.defaultMax == 0 {
			unknown = append(unknown, "how many replicas it grows to: "+s.kind.name+" "+s.name+" has no "+
				strings.Join(s.of.most, "."))
		}
	}
	return n, unknown, nil
}

// scaledJob reads a KEDA ScaledJob: jobs started while there is work, at most 100 at once by
// default (https://keda.sh/docs/latest/reference/scaledjob-spec).
func (w *workload) scaledJob(body ast.Node) ([]*Spec, error) {
	most, err := w.number(body, kedaDefaultMax, "maxReplicaCount")
	if err != nil {
		return nil, err
	}
	specs, err := w.job(w.root, w.get(body, "jobTargetRef"))
	if err != nil {
		return nil, err
	}
	for _, s := range specs {
		if s.Resources.Nodes *= max(1, most); s.Resources.Nodes > maxCount {
			return nil, w.At(body, "a ScaledJob has more than %d pods", maxCount)
		}
	}
	return w.boundToMonth(specs, nil)
}

// maxScale returns Knative's limit of a service's replicas: the annotation max-scale, unlimited if
// 0 or absent (https://knative.dev/docs/serving/autoscaling/scale-bounds).
func (w *workload) maxScale(nodes ...ast.Node) (most int, bounded bool, err error) {
	for _, n := range nodes {
		for _, name := range []string{
			"max-scale", "maxScale", "min-scale", "minScale", "initial-scale", "initialScale",
		} {
			v, err := w.number(n, 0, "metadata", "annotations", "autoscaling.knative.dev/"+name)
			if err != nil {
				return 0, false, err
			}
			most, bounded = max(most, v), bounded || v > 0 && strings.HasPrefix(name, "max")
		}
	}
	return most, bounded, nil
}

// knative reads a Knative Service or Configuration: pods of one template that scale with the
// requests.
func (w *workload) knative(body ast.Node) ([]*Spec, error) {
	template := w.get(body, "template")
	if w.kind.name == "Revision" {
		template = w.root
	}
	n, bounded, err := w.maxScale(w.root, template)
	if err != nil {
		return nil, err
	}
	var unknown []string
	if !bounded {
		unknown = []string{"how many replicas it grows to: it has no annotation autoscaling.knative.dev/max-scale"}
	}
	return w.boundToMonth(w.several([]replicas{{count: max(1, n), template: template, unknown: unknown}}))
}
