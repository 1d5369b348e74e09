package spec

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
)

// maxInvocations bounds the templates with different arguments that are read.
const maxInvocations = 500

// invocation is a template with its arguments and the number of its starts.
type invocation struct {
	scope, template string
	inputs          map[string]string
	times           int
	// tries is the maximum number of attempts at one of them, the first included; 0 is unlimited.
	tries   int
	unknown []string
}

// frame is the context in which a template is started.
type frame struct {
	// scope is the WorkflowTemplate that holds the template; empty for the workflow itself.
	scope, name string
	inputs      map[string]string
	times       int
	tries       int
	// unknown is the reason why the number of starts is unknown.
	unknown []string
}

// invocations counts the starts of a workflow's templates.
type invocations struct {
	*workload
	// bodies are the spec of the workflow and that of the WorkflowTemplate that it runs.
	bodies []ast.Node
	// templates are the templates of each scope.
	templates map[string]map[string]ast.Node
	// byKey holds the invocations by template and arguments, order the same in order of their
	// start, named their templates.
	byKey map[string]*invocation
	order []*invocation
	named map[string]bool
	// path holds the templates on the current path, to detect cycles.
	path  map[string]bool
	steps int
}

// workflow reads the spec of an Argo Workflow into one Spec for each template with GPUs that is
// reachable from the entry point or a hook, and for each different set of arguments. Nodes is the
// number of its starts; parallelism does not lower it, because it bounds concurrency and not cost
// (https://argo-workflows.readthedocs.io/en/latest/fields).
func (w *workload) workflow(body ast.Node) ([]*Spec, error) {
	run := &invocations{
		workload:  w,
		bodies:    []ast.Node{body},
		templates: map[string]map[string]ast.Node{},
		byKey:     map[string]*invocation{},
		named:     map[string]bool{},
		path:      map[string]bool{},
	}
	if ref := w.get(body, "workflowTemplateRef"); ref != nil {
		of, err := run.library(ref)
		if err != nil {
			return nil, err
		}
		run.bodies = append(run.bodies, w.get(of.root, "spec"))
	}
	w.arguments = map[string]string{}
	for _, b := range slices.Backward(run.bodies) {
		for _, p := range w.items(b, "arguments", "parameters") {
			if v := cmp.Or(w.text(p, "value"), w.text(p, "default")); v != "" {
				w.arguments[w.word(p, "name")] = v
			}
		}
	}
	order := run.scope("", run.first("templates"))
	top := frame{times: 1, tries: 1}
	entry := document.Scalar(run.first("entrypoint"))
	for _, start := range []string{entry, document.Scalar(run.first("onExit"))} {
		if start != "" {
			if err := run.begin(top, start, w.arguments, body); err != nil {
				return nil, err
			}
		}
	}
	if err := run.hooks(top, run.first("hooks"), nil); err != nil {
		return nil, err
	}
	if entry == "" { // a library of templates: count each once
		for _, name := range order {
			if !run.named["\x00"+name] {
				run.count(frame{name: name, times: 1, tries: 1, inputs: run.inputs(run.templates[""][name], nil)})
			}
		}
	}
	return run.specs()
}

func (w *workload) cronWorkflow(body ast.Node) ([]*Spec, error) {
	specs, err := w.workflow(w.get(body, "workflowSpec"))
	w.scheduled(specs, body, "concurrencyPolicy")
	return specs, err
}

// workflowTemplate reads a WorkflowTemplate as a workflow that runs once, unless another document
// of the file runs it.
func (w *workload) workflowTemplate(body ast.Node) ([]*Spec, error) {
	for _, by := range w.references()[w.name] {
		if by != w {
			return nil, nil
		}
	}
	return w.workflow(body)
}

// references returns the documents that reference each WorkflowTemplate, by its name.
func (m *manifest) references() map[string][]*workload {
	if m.templateRefs == nil {
		m.templateRefs = map[string][]*workload{}
		for _, d := range m.documents {
			for _, n := range ast.Filter(ast.MappingType, d.root) {
				for _, key := range []string{"workflowTemplateRef", "templateRef"} {
					if name := m.word(n, key, "name"); name != "" {
						m.templateRefs[name] = append(m.templateRefs[name], d)
					}
				}
			}
		}
	}
	return m.templateRefs
}

// library finds the WorkflowTemplate of a reference, or fails if it is not in the file.
func (w *workload) library(ref ast.Node) (*workload, error) {
	of := kind{"argoproj.io", "WorkflowTemplate"}
	if w.flag(ref, "clusterScope") {
		of.name = "ClusterWorkflowTemplate"
	}
	found, err := w.find(w.word(ref, "name"), of)
	if found == nil && err == nil {
		err = unreadf("it runs %s %s, which is not in the file", of.name, w.word(ref, "name"))
	}
	return found, err
}

// first returns the value at a path of the workflow, or of the WorkflowTemplate that it runs.
func (v *invocations) first(path ...string) ast.Node {
	for _, b := range v.bodies {
		if n := v.get(b, path...); n != nil {
			return n
		}
	}
	return nil
}

// scope adds the templates of a list and returns their names in order.
func (v *invocations) scope(name string, list ast.Node) (order []string) {
	all := map[string]ast.Node{}
	for _, t := range v.items(list) {
		name := v.word(t, "name")
		if _, twice := all[name]; !twice {
			order = append(order, name)
		}
		all[name] = t
	}
	v.templates[name] = all
	return order
}

// specs reads the requests of all invocations.
func (v *invocations) specs() ([]*Spec, error) {
	var out []*Spec
	same := map[string]int{}
	for _, i := range v.order {
		v.parameters = i.inputs
		specs, err := v.read(i)
		v.parameters = nil
		var unread *unreadError
		if errors.As(err, &unread) {
			v.ask(v.workload, "of template "+i.template+" "+unread.why)
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(specs) > 0 {
			same[i.template]++
		}
		for _, s := range specs {
			if n := same[i.template]; n > 1 { // the same template with other arguments
				s.Name += "-" + strconv.Itoa(n)
			}
			s.Unknown = append(s.Unknown, i.unknown...)
			out = append(out, s)
		}
	}
	return out, nil
}

// read reads the request of one invocation: a pod, or the manifest that it creates.
func (v *invocations) read(i *invocation) ([]*Spec, error) {
	t := v.templates[i.scope][i.template]
	if r := v.get(t, "resource"); r != nil {
		return v.created(r, i)
	}
	for _, key := range []string{"steps", "dag", "suspend", "http", "data"} {
		if v.get(t, key) != nil {
			return nil, nil // its steps are separate invocations; other templates run no pod with GPUs
		}
	}
	s, err := v.template(t, i)
	if s == nil || err != nil {
		return nil, err
	}
	return []*Spec{s}, nil
}

// created reads the manifest that a step creates as a document.
func (v *invocations) created(r ast.Node, i *invocation) ([]*Spec, error) {
	switch action := v.word(r, "action"); action {
	case "get", "delete":
		return nil, nil // a get, delete or patch starts nothing
	case "create", "apply", "replace":
	default:
		v.ask(v.workload, "template "+i.template+" carries out the action "+strconv.Quote(action)+" on a resource")
		return nil, nil
	}
	text := v.resolve(v.text(r, "manifest"))
	if strings.TrimSpace(text) == "" || v.get(r, "manifestFrom") != nil {
		v.ask(v.workload, "the manifest of template "+i.template+" is in another document")
		return nil, nil
	}
	inner, err := open(v.Name, []byte(text))
	var specs []*Spec
	if err == nil {
		specs, err = inner.manifests(v.devices)
	}
	switch {
	case err != nil && strings.Contains(text, "{{"):
		v.ask(v.workload, "parts of the manifest of template "+i.template+" are known only at run time")
		return nil, nil
	case err != nil:
		return nil, v.At(r, "its manifest: %s", err)
	}
	for _, s := range specs {
		if s.Resources.Nodes *= i.times; s.Resources.Nodes > maxCount {
			return nil, v.At(r, "the manifest is created more than %d times", maxCount)
		}
		if i.tries != 1 {
			s.Unknown = append(s.Unknown, "how often template "+i.template+" creates it: it is retried")
		}
		s.File, s.Line, s.Digest = v.Name, v.At(r, "").Line, v.digest
	}
	return specs, nil
}

// template reads one template that runs a pod.
func (v *invocations) template(t ast.Node, i *invocation) (*Spec, error) {
	containers, initial, err := v.templateContainers(t)
	if err != nil {
		return nil, err
	}
	if containers == nil {
		v.ask(v.workload, "template "+i.template+" is of a form that is not read")
		return nil, nil
	}
	patches, err := v.patches(t)
	if err != nil {
		return nil, err
	}
	for _, p := range patches {
		if containers, err = p.apply(containers, "containers"); err != nil {
			return nil, err
		}
		if initial, err = p.apply(initial, "initContainers"); err != nil {
			return nil, err
		}
	}
	q, err := v.together(nil, nil, containers, initial)
	if err != nil {
		return nil, err
	}
	d, err := v.demand(q, t)
	if err != nil {
		return nil, err
	}
	s, err := v.workload.named(d, i.times, "."+i.template, t)
	if s == nil || err != nil {
		return nil, err
	}
	v.bound(s, t, i)
	labels := v.nodeLabels(s, t)
	for _, p := range patches {
		maps.Copy(labels, p.selected(s, p.root))
	}
	v.placeBy(s, labels)
	return s, nil
}

// nodeLabels reads the required node labels of a template. Its node selector and affinity override
// those of the workflow (addSchedulingConstraints of
// github.com/argoproj/argo-workflows/workflow/controller).
func (v *invocations) nodeLabels(s *Spec, t ast.Node) map[string][]string {
	defaults := v.first("templateDefaults")
	labels := v.selector(defaults)
	maps.Copy(labels, v.selector(t))
	if len(labels) == 0 {
		labels = v.selector(v.parent("nodeSelector"))
	}
	affinity := v.parent("affinity")
	for _, n := range []ast.Node{defaults, t} {
		if v.get(n, "affinity") != nil {
			affinity = n
		}
	}
	for key, values := range v.affinity(s, affinity) {
		labels[key] = append(labels[key], values...)
	}
	return labels
}

// parent returns the body of the workflow that has a key.
func (v *invocations) parent(key string) ast.Node {
	for _, b := range v.bodies {
		if v.get(b, key) != nil {
			return b
		}
	}
	return nil
}

// templateContainers returns the containers of a template's pod, or nil if it runs none.
func (v *invocations) templateContainers(t ast.Node) (containers, initial []podContainer, err error) {
	var nodes []ast.Node
	for _, key := range []string{"container", "script"} {
		if c := v.get(t, key); c != nil {
			nodes = append(nodes, c)
		}
	}
	main := len(nodes)
	nodes = append(nodes, v.items(t, "containerSet", "containers")...)
	if len(nodes) == 0 {
		return nil, nil, nil
	}
	nodes = append(nodes, v.items(t, "sidecars")...)
	if containers, err = v.listContainers(nodes); err != nil {
		return nil, nil, err
	}
	for i := range main {
		containers[i].name = "main"
	}
	initial, err = v.listContainers(v.items(t, "initContainers"))
	for _, key := range []string{"container", "script", "containerSet", "sidecars", "initContainers"} {
		if v.get(v.first("templateDefaults"), key) != nil {
			return nil, nil, unreadf("its templateDefaults change the containers of its templates")
		}
	}
	return containers, initial, err
}

// bound limits the run time of a template's pods by the deadline of the workflow, or each attempt
// by that of the template. Unlimited attempts have no bound.
func (v *invocations) bound(s *Spec, t ast.Node, i *invocation) {
	whole, each := time.Duration(0), v.deadline(t)
	for _, b := range v.bodies {
		whole = cmp.Or(whole, v.deadline(b))
	}
	each = cmp.Or(each, v.deadline(v.first("templateDefaults")))
	s.Retries.Errors = max(0, i.tries-1)
	switch {
	case each > 0 && i.tries > 0 && each <= maxDuration/time.Duration(i.tries):
		each *= time.Duration(i.tries)
		if s.MaxRuntime = each; whole > 0 {
			s.MaxRuntime = min(each, whole)
		}
	case whole > 0:
		s.MaxRuntime = whole
	case each > 0:
		s.Unknown = append(s.Unknown, "how often it is begun again: retryStrategy has no limit; "+
			"activeDeadlineSeconds of the workflow would bound all")
	}
}

// inputs returns the parameters of a template: its arguments or its defaults. Unknown values are
// absent.
func (v *invocations) inputs(t ast.Node, arguments map[string]string) map[string]string {
	out := map[string]string{}
	for _, p := range v.items(t, "inputs", "parameters") {
		name := v.word(p, "name")
		value, given := arguments[name]
		if !given {
			value = v.resolve(cmp.Or(v.text(p, "value"), v.text(p, "default")))
		}
		if value != "" && !strings.Contains(value, "{{") {
			out[name] = value
		}
	}
	return out
}

// count records an invocation.
func (v *invocations) count(f frame) int {
	key := f.scope + "\x00" + f.name
	v.named[key] = true
	for _, k := range sortedKeys(f.inputs) {
		key += "\x00" + k + "\x00" + f.inputs[k]
	}
	i := v.byKey[key]
	if i == nil {
		i = &invocation{scope: f.scope, template: f.name, inputs: f.inputs, tries: f.tries}
		v.byKey[key], v.order = i, append(v.order, i)
	}
	if i.tries > 0 {
		i.tries = max(i.tries, f.tries)
		if f.tries == 0 {
			i.tries = 0
		}
	}
	for _, why := range f.unknown {
		if !slices.Contains(i.unknown, why) {
			i.unknown = append(i.unknown, why)
		}
	}
	i.times += f.times
	return i.times
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
