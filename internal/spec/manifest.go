package spec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
)

// kind is a kind of Kubernetes: the group of its apiVersion, empty for the core, and its name.
type kind struct{ group, name string }

// String formats a kind for people: "Job (batch)".
func (k kind) String() string {
	if k.group == "" {
		return k.name
	}
	return k.name + " (" + k.group + ")"
}

// manifest is a file of Kubernetes documents.
type manifest struct {
	*reader
	*tree
	digest  string
	devices Devices
	kinds   map[kind]readFunc
	// documents are the documents of the file in order, with lists flattened; byName indexes them
	// by kind and name.
	documents []*workload
	byName    map[string][]*workload
	scalers   []*scaler
	// limitRanges set default requests of containers.
	limitRanges []*workload
	// templateRefs maps a WorkflowTemplate's name to the documents that reference it.
	templateRefs map[string][]*workload
	// unread lists the documents whose consumption is unknown.
	unread []*unreadDocuments
}

// workload is one Kubernetes document.
type workload struct {
	*manifest
	kind
	root ast.Node
	name string
	// arguments are those of the current workflow, parameters those of its current template.
	arguments, parameters map[string]string
}

// readFunc reads the spec of a document into one Spec for each group of equal pods.
type readFunc func(w *workload, body ast.Node) ([]*Spec, error)

// unreadDocuments groups documents of one kind that are unknown for the same reason.
type unreadDocuments struct {
	kind  kind
	why   string
	names []string
	first *workload
}

// unreadError is the reason why the resources of a document are unknown.
type unreadError struct{ why string }

// Error returns the reason.
func (e *unreadError) Error() string { return e.why }

func unreadf(format string, args ...any) error { return &unreadError{fmt.Sprintf(format, args...)} }

// manifests reads a file of Kubernetes documents into one Spec for each group of equal pods that
// requests GPUs. Documents of [runsNothing] are skipped. A document of unknown consumption yields a
// Spec without resources that names it in Unknown.
//
// Nodes is the number of concurrent pods, at the maximum of an autoscaler in the file. MaxRuntime
// is activeDeadlineSeconds; the pods of a Job may run in several rounds, each with its deadline.
// GPU, InstanceType, Regions and Capacity come from node selectors and required node affinity,
// Owner and Purpose from the labels with any prefix, by [inventory.DefaultTagMapping]. Digest
// covers the whole file, because a pod may depend on the other documents.
func (d *reader) manifests(devices Devices) ([]*Spec, error) {
	t := &tree{d.File}
	digest, err := t.digest()
	if err != nil {
		return nil, d.Placed(err)
	}
	m := &manifest{
		reader: d, tree: t, digest: digest, devices: devices, kinds: kinds(), byName: map[string][]*workload{},
	}
	for _, body := range d.Bodies {
		m.collect(body, "", "")
	}
	for _, w := range m.documents {
		if a, ok := autoscalers[w.kind]; ok {
			m.scalers = append(m.scalers, w.scaler(a))
		}
		if w.kind == (kind{"", "LimitRange"}) {
			m.limitRanges = append(m.limitRanges, w)
		}
	}
	var out []*Spec
	for _, w := range m.documents {
		specs, err := w.read()
		var unread *unreadError
		switch {
		case errors.As(err, &unread):
			m.ask(w, unread.why)
		case err != nil:
			return nil, err
		}
		out = append(out, specs...)
	}
	for _, s := range m.scalers {
		if !s.applied {
			m.ask(s.workload, "it scales "+s.target()+", which is not a workload of this file that is read")
		}
	}
	for _, u := range m.unread {
		out = append(out, u.spec())
	}
	return out, nil
}

// collect adds a document, or the items of a list, which inherit the list's apiVersion and kind.
func (m *manifest) collect(body ast.Node, version, name string) {
	body = m.get(body)
	version, name = cmp.Or(m.word(body, "apiVersion"), version), cmp.Or(m.word(body, "kind"), name)
	if _, list := m.get(body, "items").(*ast.SequenceNode); list && strings.HasSuffix(name, "List") || name == "List" {
		for _, item := range m.items(body, "items") {
			m.collect(item, version, strings.TrimSuffix(name, "List"))
		}
		return
	}
	w := &workload{manifest: m, root: body, kind: kind{name: name}, name: m.word(body, "metadata", "name")}
	w.group, _, _ = strings.Cut(version, "/")
	if !strings.Contains(version, "/") {
		w.group = ""
	}
	if version == "" {
		w.group = "?" // matches no kind
	}
	m.documents = append(m.documents, w)
	key := w.kind.name + "/" + w.name
	m.byName[key] = append(m.byName[key], w)
}

// find returns the only document of a kind and name that a document may reference, in the same
// namespace if both have one. Several matches are an error.
func (w *workload) find(name string, kinds ...kind) (*workload, error) {
	var found *workload
	for _, k := range kinds {
		for _, d := range w.byName[k.name+"/"+name] {
			if d.group != k.group || !w.sharesNamespace(d) {
				continue
			}
			if found != nil {
				return nil, unreadf("there are several %s %s", k, name)
			}
			found = d
		}
	}
	return found, nil
}

// sharesNamespace reports whether two documents may be in one namespace: without one, the namespace of the
// kubectl command applies.
func (w *workload) sharesNamespace(d *workload) bool {
	a, b := w.word(w.root, "metadata", "namespace"), d.word(d.root, "metadata", "namespace")
	return a == "" || b == "" || a == b
}

func (w *workload) read() ([]*Spec, error) {
	if _, mapping := w.root.(*ast.MappingNode); !mapping {
		return nil, unreadf("it is %s and not a document of Kubernetes", document.NodeName(w.root))
	}
	if w.group == "?" || w.kind.name == "" {
		return nil, unreadf("it has no apiVersion or no kind")
	}
	body := w.get(w.root, "spec")
	if read := w.kinds[w.kind]; read != nil {
		return read(w, body)
	}
	switch {
	case w.kind == kind{"karpenter.sh", "NodePool"} && w.get(body, "replicas") != nil:
		return nil, unreadf("its replicas keep machines running whatever runs on them")
	case runsNothing()[w.kind]:
		return nil, nil
	case autoscalers[w.kind].target != nil:
		return nil, nil // counted with its target
	case w.kind.name == "Kustomization" || w.kind.name == "Component":
		return nil, unreadf("it is not rendered: give what `kustomize build` prints")
	}
	return nil, unreadf("its kind is not read")
}

// ask records a document of unknown consumption.
func (m *manifest) ask(w *workload, why string) {
	name := cmp.Or(w.name, w.word(w.root, "metadata", "generateName"), "without a name")
	name = fmt.Sprintf("%s (line %d)", name, m.At(w.root, "").Line)
	for _, u := range m.unread {
		if u.kind == w.kind && u.why == why {
			if !slices.Contains(u.names, name) {
				u.names = append(u.names, name)
			}
			return
		}
	}
	m.unread = append(m.unread, &unreadDocuments{kind: w.kind, why: why, names: []string{name}, first: w})
}

// spec returns a Spec without resources that names the unknown documents.
func (u *unreadDocuments) spec() *Spec {
	w := u.first
	k := u.kind
	if k.group == "?" {
		k.group = ""
	}
	label := k.String()
	if k.name == "" {
		label = "the document"
	}
	s := &Spec{
		Kind:     Job,
		Name:     w.label(),
		Capacity: OnDemand,
		Digest:   w.digest,
		File:     w.Name,
		Line:     w.At(w.root, "").Line,
	}
	s.Unknown = []string{"what " + label + " " + plain.Few(u.names) + " runs: " + u.why}
	return s
}

// unrendered returns the Spec of an unrendered template, which is not valid YAML.
func unrendered(name string, src []byte) *Spec {
	sum := sha256.Sum256(src)
	called := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	if !specName.MatchString(called) {
		called = "template"
	}
	return &Spec{
		Kind:     Job,
		Name:     called,
		Capacity: OnDemand,
		Digest:   hex.EncodeToString(sum[:]),
		File:     name,
		Line:     1,
		Unknown: []string{
			"what the file runs: it is a template that is not rendered; give what `helm template` prints",
		},
	}
}

// templateMark matches Helm template syntax, which is not YAML.
var templateMark = lazyregexp.New(
	`\{\{-?\s*(\.|if |with |range |include |template |define |end|toYaml |tpl |\$|/\*|lookup |printf |default |quote |not |and |or |eq )`)

// label returns the document's name if it is a valid name of a Spec.
func (w *workload) label() string {
	for _, name := range []string{
		w.name, strings.Trim(w.word(w.root, "metadata", "generateName"), "-."), strings.ToLower(w.kind.name),
	} {
		if specName.MatchString(name) {
			return name
		}
	}
	return "document"
}

// named makes the Spec of a number of pods; its owner comes from the labels of the document and of
// the given parts. It is nil if there are no pods or they request nothing.
func (w *workload) named(d demand, pods int, suffix string, parts ...ast.Node) (*Spec, error) {
	if d.empty() || pods == 0 {
		return nil, nil
	}
	if pods > maxCount {
		return nil, w.At(w.root, "more than %d pods", maxCount)
	}
	s := &Spec{
		Kind:     Job,
		Capacity: OnDemand,
		Retries:  Retries{Interruptions: DefaultInterruptions},
		Digest:   w.digest,
		File:     w.Name,
		Line:     w.At(w.root, "").Line,
		Unknown:  slices.Clone(d.unknown),
	}
	if d.gpus > 0 {
		s.Resources = Resources{GPU: d.accelerator, GPUs: d.gpus, Nodes: pods}
	}
	s.Name = cmp.Or(w.name, strings.Trim(w.word(w.root, "metadata", "generateName"), "-."),
		strings.ToLower(w.kind.name)) + suffix
	if !specName.MatchString(s.Name) {
		return nil, w.At(w.root, "name %q: letters, digits, dots, dashes and underscores are allowed, 100 at most",
			s.Name)
	}
	r := &inventory.Resource{Tags: map[string]string{}}
	for _, n := range append([]ast.Node{w.root}, parts...) {
		w.each(func(key string, v ast.Node) {
			_, bare, prefixed := strings.Cut(key, "/")
			if r.Tags[key] == "" {
				r.Tags[key] = document.Scalar(v)
			}
			if prefixed && r.Tags[bare] == "" {
				r.Tags[bare] = document.Scalar(v)
			}
		}, n, "metadata", "labels")
	}
	_ = inventory.DefaultTagMapping().Apply(r) // the only possible error is about an exemption
	s.Owner, s.Purpose = r.Owner, r.Purpose
	return s, nil
}

// noteAttempts records that only each attempt is bounded, and what would bound all of them.
func (s *Spec) noteAttempts(bound string) {
	if s.Retries.Errors > 0 {
		s.Unknown = append(s.Unknown, "how often it is begun again: "+plain.Count(s.Retries.Errors, "more time")+
			" at most, each for as long; "+bound+" would bound all")
	}
}

// placeholder matches a parameter of a workflow or template.
var placeholder = lazyregexp.New(`\{\{\s*(workflow|inputs)\.parameters\.([A-Za-z0-9_.-]+)\s*\}\}`)

// resolve replaces the parameters of the workflow and of the current template. Unknown ones stay.
func (w *workload) resolve(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		m := placeholder.FindStringSubmatch(found)
		known := w.arguments
		if m[1] == "inputs" {
			known = w.parameters
		}
		if v, ok := known[m[2]]; ok {
			return v
		}
		return found
	})
}

// deadline returns activeDeadlineSeconds; 0 if absent or not a duration.
func (w *workload) deadline(n ast.Node, path ...string) time.Duration {
	return w.seconds(n, append(path, "activeDeadlineSeconds")...)
}

// seconds returns a duration in whole seconds; 0 if absent or not a duration.
func (w *workload) seconds(n ast.Node, path ...string) time.Duration {
	if v, ok := w.count(w.get(n, path...)); ok && v <= int(maxDuration/time.Second) {
		return time.Duration(v) * time.Second
	}
	return 0
}

// number returns an integer, or otherwise if it is absent. A value that is known only after
// rendering a template or at run time is an [unreadError].
func (w *workload) number(n ast.Node, otherwise int, path ...string) (int, error) {
	v := w.get(n, path...)
	if v == nil || v.Type() == ast.NullType {
		return otherwise, nil
	}
	out, ok := w.count(v)
	switch {
	case !ok && isTemplate(v):
		return 0, unreadf("%s is known only later: %s", path[len(path)-1], plain.Cut(v.String(), 60))
	case !ok || out > maxCount:
		return 0, w.At(v, "%s is a whole number from 0 to %d", path[len(path)-1], maxCount)
	}
	return out, nil
}

// isTemplate reports whether a value is to be substituted before Kubernetes reads the file, by
// Argo, Helm or a shell.
func isTemplate(n ast.Node) bool {
	text := n.String()
	return strings.Contains(text, "{{") || strings.Contains(text, "${") || strings.Contains(text, "$(")
}

// count reads an integer, or a workflow parameter with an integer value.
func (w *workload) count(n ast.Node) (int, bool) {
	if v, ok := whole(n); ok {
		return v, ok
	}
	v, err := strconv.ParseUint(strings.TrimSpace(w.resolve(document.Scalar(n))), 10, 31)
	return int(v), err == nil
}

// flag reports whether a key is true.
func (w *workload) flag(n ast.Node, path ...string) bool {
	v := w.get(n, path...)
	b, ok := v.(*ast.BoolNode)
	return ok && b.Value || document.Scalar(v) == "true"
}

// place reads where a pod may run from its node selectors and required node affinity. Later parts
// apply only where earlier ones are silent.
func (w *workload) place(s *Spec, parts ...ast.Node) {
	labels := map[string][]string{}
	for _, part := range slices.Backward(parts) {
		for key, values := range w.selected(s, part) {
			labels[key] = values
		}
	}
	w.placeBy(s, labels)
}

// Node labels that select the machine.
const (
	labelProduct  = "nvidia.com/gpu.product"
	labelType     = "node.kubernetes.io/instance-type"
	labelCapacity = "karpenter.sh/capacity-type"
)

// placeBy selects the machine by the labels that a node must have.
func (w *workload) placeBy(s *Spec, labels map[string][]string) {
	one := func(key string) string {
		all := labels[key]
		slices.Sort(all)
		if all = slices.Compact(all); len(all) > 1 {
			s.Unknown = append(s.Unknown, "which of "+strings.Join(all, ", ")+" it runs on ("+key+")")
			return ""
		}
		return strings.Join(all, "")
	}
	s.Selector = labels
	if s.Resources.GPUs > 0 {
		s.Resources.GPU = cmp.Or(strings.TrimPrefix(one(labelProduct), "NVIDIA-"), s.Resources.GPU)
		s.Resources.InstanceType = one(labelType)
	}
	for _, capacity := range slices.Concat(labels[labelCapacity], labels["eks.amazonaws.com/capacityType"]) {
		if strings.EqualFold(capacity, string(Spot)) {
			s.Capacity = Spot
		}
	}
	if len(labels[labelCapacity]) > 1 && s.Capacity == Spot {
		s.Capacity = Auto
	}
	regions := labels["topology.kubernetes.io/region"]
	for _, zone := range labels["topology.kubernetes.io/zone"] {
		regions = append(regions, strings.TrimRight(zone, "abcdefghi"))
	}
	for _, region := range regions {
		if regionName.MatchString(region) && !slices.Contains(s.Regions, region) {
			s.Regions = append(s.Regions, region)
		}
	}
}

// selected returns the label values that a pod's node selector and required node affinity admit.
func (w *workload) selected(s *Spec, part ast.Node) map[string][]string {
	labels := w.selector(part)
	for key, values := range w.affinity(s, part) {
		labels[key] = append(labels[key], values...)
	}
	return labels
}

func (w *workload) selector(part ast.Node) map[string][]string {
	labels := map[string][]string{}
	w.each(func(key string, v ast.Node) {
		labels[key] = append(labels[key], w.resolve(document.Scalar(v)))
	}, part, "nodeSelector")
	return labels
}

// affinity returns the label values that required node affinity admits. The terms are alternatives,
// so a label that is missing in one of them is unrestricted.
func (w *workload) affinity(s *Spec, part ast.Node) map[string][]string {
	terms := w.items(part, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
		"nodeSelectorTerms")
	admitted, times := map[string][]string{}, map[string]int{}
	for _, term := range terms {
		here := map[string]bool{}
		for _, e := range w.items(term, "matchExpressions") {
			if key := w.word(e, "key"); w.word(e, "operator") == "In" {
				here[key] = true
				for _, v := range w.items(e, "values") {
					admitted[key] = append(admitted[key], w.resolve(document.Scalar(v)))
				}
			}
		}
		for key := range here {
			times[key]++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(admitted)) {
		if times[key] == len(terms) {
			continue
		}
		delete(admitted, key)
		if key == labelProduct || key == labelType || key == labelCapacity {
			s.Unknown = append(s.Unknown, "which node it runs on: not every term of its node affinity names "+key)
		}
	}
	return admitted
}
