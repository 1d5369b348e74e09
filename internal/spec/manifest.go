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

// String names a kind as people write it: "Job (batch)".
func (k kind) String() string {
	if k.group == "" {
		return k.name
	}
	return k.name + " (" + k.group + ")"
}

// manifest is a file of Kubernetes manifests.
type manifest struct {
	*reader
	*tree
	digest  string
	devices Devices
	kinds   map[kind]readFunc
	// documents are those of the file, the items of lists among them, in their order; byName
	// finds them by kind and name.
	documents []*workload
	byName    map[string][]*workload
	scalers   []*scaler
	// limitRanges give containers what they do not ask for themselves.
	limitRanges []*workload
	// templateRefs are the documents that name a WorkflowTemplate, by its name.
	templateRefs map[string][]*workload
	// unread are the documents whose consumption is not known.
	unread []*unreadDocuments
}

// workload is a document of Kubernetes.
type workload struct {
	*manifest
	kind
	root ast.Node
	name string
	// arguments are those of the workflow that is read, parameters those of its template.
	arguments, parameters map[string]string
}

// readFunc reads the spec of a document: one Spec for each group of equal pods.
type readFunc func(w *workload, body ast.Node) ([]*Spec, error)

// unreadDocuments are documents of one kind that are not known for one reason.
type unreadDocuments struct {
	kind  kind
	why   string
	names []string
	first *workload
}

// unreadError is the reason why the resources of a document are not known.
type unreadError struct{ why string }

// Error returns the reason.
func (e *unreadError) Error() string { return e.why }

func unreadf(format string, args ...any) error { return &unreadError{fmt.Sprintf(format, args...)} }

// manifests reads manifests of Kubernetes, one or several documents in a file: one Spec for
// each group of equal pods that asks for GPUs. Documents of [runsNothing] give nothing. One
// whose consumption is not known gives a Spec without resources that names it in Unknown.
//
// Nodes is how many pods run at once, at the most that an autoscaler of the file lets them
// grow to; MaxRuntime is activeDeadlineSeconds, that of a pod times the rounds in which the
// pods of a Job follow one another. GPU, InstanceType, Regions and Capacity come from node
// selectors and required node affinity, Owner and Purpose from the labels, whatever prefix
// they have, by [inventory.DefaultTagMapping]. Digest is that of the whole file, because a
// pod may read what other documents hold.
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

// collect adds a document, or the items of a list, to which apiVersion and kind of the list
// apply where they have none of their own.
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

// find returns the only document of a kind and name that a document may refer to: one of its
// own namespace, where both say it. Several are an error, because any may be meant.
func (w *workload) find(name string, kinds ...kind) (*workload, error) {
	var found *workload
	for _, k := range kinds {
		for _, d := range w.byName[k.name+"/"+name] {
			if d.group != k.group || !w.near(d) {
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

// near reports whether two documents may be in one namespace: one that names none takes that of
// the command which applies the file.
func (w *workload) near(d *workload) bool {
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
		return nil, nil // counted with what it scales
	case w.kind.name == "Kustomization" || w.kind.name == "Component":
		return nil, unreadf("it is not rendered: give what `kustomize build` prints")
	}
	return nil, unreadf("its kind is not read")
}

// ask notes a document whose consumption is not known.
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

// spec is a Spec without resources that says what is not known.
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

// unrendered is a file that is a template still, which no reader of YAML can read.
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

// templateMark matches templates of Helm, which are no YAML.
var templateMark = lazyregexp.New(
	`\{\{-?\s*(\.|if |with |range |include |template |define |end|toYaml |tpl |\$|/\*|lookup |printf |default |quote |not |and |or |eq )`)

// label is a name of a document that a Spec can have.
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

// named begins a Spec of so many pods; its owner is in the labels of the document and of
// the given parts of it. It is nil where the pods ask for nothing, or there are none.
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
	_ = inventory.DefaultTagMapping().Apply(r) // its only error is of an exemption
	s.Owner, s.Purpose = r.Owner, r.Purpose
	return s, nil
}

// begunAgain notes that only each try has a bound, and what would bound all of them.
func (s *Spec) begunAgain(bound string) {
	if s.Retries.Errors > 0 {
		s.Unknown = append(s.Unknown, "how often it is begun again: "+plain.Count(s.Retries.Errors, "more time")+
			" at most, each for as long; "+bound+" would bound all")
	}
}

// placeholder is a parameter of a workflow or of a template.
var placeholder = lazyregexp.New(`\{\{\s*(workflow|inputs)\.parameters\.([A-Za-z0-9_.-]+)\s*\}\}`)

// resolve puts the parameters of the workflow, and of the template that is read, in the
// place of their names. One that is not known stays.
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

// deadline is activeDeadlineSeconds; 0 where it is not there or not a time.
func (w *workload) deadline(n ast.Node, path ...string) time.Duration {
	return w.seconds(n, append(path, "activeDeadlineSeconds")...)
}

// seconds is a time in whole seconds; 0 where it is not there or not a time.
func (w *workload) seconds(n ast.Node, path ...string) time.Duration {
	if v, ok := w.count(w.get(n, path...)); ok && v <= int(maxDuration/time.Second) {
		return time.Duration(v) * time.Second
	}
	return 0
}

// number is a whole number, or otherwise where it is not there. One that is known only once
// a template is rendered or a workflow runs is an [unreadError].
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

// isTemplate reports whether a value is written by something that reads the file before
// Kubernetes does: Argo, Helm, or a shell.
func isTemplate(n ast.Node) bool {
	text := n.String()
	return strings.Contains(text, "{{") || strings.Contains(text, "${") || strings.Contains(text, "$(")
}

// count reads a whole number, or a parameter of a workflow that is given as one.
func (w *workload) count(n ast.Node) (int, bool) {
	if v, ok := whole(n); ok {
		return v, ok
	}
	v, err := strconv.ParseUint(strings.TrimSpace(w.resolve(document.Scalar(n))), 10, 31)
	return int(v), err == nil
}

// flag is true where a key says so.
func (w *workload) flag(n ast.Node, path ...string) bool {
	v := w.get(n, path...)
	b, ok := v.(*ast.BoolNode)
	return ok && b.Value || document.Scalar(v) == "true"
}

// place reads where a pod may run: its node selectors and required node affinity. Those
// of a later part hold where the parts before have none.
func (w *workload) place(s *Spec, parts ...ast.Node) {
	labels := map[string][]string{}
	for _, part := range slices.Backward(parts) {
		for key, values := range w.selected(s, part) {
			labels[key] = values
		}
	}
	w.placeBy(s, labels)
}

// Labels of nodes that choose the machine.
const (
	labelProduct  = "nvidia.com/gpu.product"
	labelType     = "node.kubernetes.io/instance-type"
	labelCapacity = "karpenter.sh/capacity-type"
)

// placeBy chooses the machine by the labels that a node must have.
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

// selected are the values that a pod's node selector and required node affinity admit.
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

// affinity are the values that required node affinity admits. Of several terms any may hold,
// so a label that one of them leaves open is open.
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
