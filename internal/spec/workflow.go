package spec

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
)

// workflow reads the spec of an Argo Workflow: one Spec for each template with GPUs that
// is reached from the entry point, with as many nodes as it is begun; one more where it is
// begun with other arguments.
func (w *workload) workflow(body ast.Node) ([]*Spec, error) {
	if n := w.get(body, "workflowTemplateRef"); n != nil {
		return nil, w.At(n, "a workflow runs the template %s of another document, which may ask for GPUs: put its spec here to estimate it", w.word(n, "name"))
	}
	templates, order := map[string]ast.Node{}, []string{}
	for _, t := range w.items(body, "templates") {
		name := w.word(t, "name")
		if _, twice := templates[name]; !twice {
			order = append(order, name)
		}
		templates[name] = t
	}
	run := &invocations{workload: w, templates: templates, begun: map[string]*invocation{}, open: map[string]bool{}}
	for _, start := range []string{w.word(body, "entrypoint"), w.word(body, "onExit")} {
		if err := run.begin(start, nil, 1, body); err != nil {
			return nil, err
		}
	}
	if w.word(body, "entrypoint") == "" { // a library of templates: each is taken once
		for _, name := range order {
			if !run.named[name] {
				run.count(name, run.inputs(templates[name], nil), 1)
			}
		}
	}
	var out []*Spec
	same := map[string]int{}
	for _, i := range run.order {
		w.parameters = i.inputs
		specs, err := run.specs(body, i)
		w.parameters = nil
		if err != nil {
			return nil, err
		}
		if len(specs) > 0 {
			same[i.template]++
		}
		for _, s := range specs {
			if n := same[i.template]; n > 1 { // with other arguments
				s.Name += "-" + strconv.Itoa(n)
			}
			out = append(out, s)
		}
	}
	for _, s := range out {
		s.Unknown = append(s.Unknown, run.unknown...)
	}
	if len(out) == 0 && run.elsewhere != nil {
		return nil, w.At(run.elsewhere, "all that may ask for GPUs is in another document: put its template here to estimate it")
	}
	return out, nil
}

// specs reads what one invocation asks for: a pod, or the manifest that it creates.
func (v *invocations) specs(body ast.Node, i *invocation) ([]*Spec, error) {
	t := v.templates[i.template]
	if r := v.get(t, "resource"); r != nil {
		return v.created(r, i)
	}
	s, err := v.template(body, t, i.template, i.times)
	if s == nil || err != nil {
		return nil, err
	}
	return []*Spec{s}, nil
}

// created reads the manifest that a step creates; nil where that asks for no GPU. Parts
// that are known at run time only are said.
func (v *invocations) created(r ast.Node, i *invocation) ([]*Spec, error) {
	if action := v.word(r, "action"); action != "create" && action != "apply" && action != "replace" {
		return nil, nil // it begins nothing
	}
	text := v.word(r, "manifest")
	if block, ok := v.get(r, "manifest").(*ast.LiteralNode); ok {
		text = block.Value.Value
	}
	text = v.resolve(text)
	if strings.TrimSpace(text) == "" || v.get(r, "manifestFrom") != nil {
		v.unknown, v.elsewhere = append(v.unknown, "what the manifest of template "+strconv.Quote(i.template)+" costs, which is in another document"), r
		return nil, nil
	}
	inner, err := open(v.Name, []byte(text))
	var specs []*Spec
	if err == nil {
		specs, err = inner.manifests()
	}
	switch {
	case err != nil && strings.Contains(text, "{{"):
		v.unknown, v.elsewhere = append(v.unknown, "what the manifest of template "+strconv.Quote(i.template)+" costs: parts of it are known only at run time"), r
		return nil, nil
	case err != nil:
		return nil, v.At(r, "its manifest: %s", err)
	}
	for _, s := range specs {
		if s.Resources.Nodes *= i.times; s.Resources.Nodes > maxCount {
			return nil, v.At(r, "the manifest is created more than %d times", maxCount)
		}
		s.File, s.Line, s.Digest = v.Name, v.At(r, "").Line, v.digest
	}
	return specs, nil
}

// template reads one template that runs a pod.
func (w *workload) template(body, t ast.Node, name string, begun int) (*Spec, error) {
	var containers []ast.Node
	for _, key := range []string{"container", "script"} {
		if c := w.get(t, key); c != nil {
			containers = append(containers, c)
		}
	}
	containers = append(containers, w.items(t, "containerSet", "containers")...)
	containers = append(containers, w.items(t, "sidecars")...)
	total := 0
	for _, c := range containers {
		n, err := w.limit(c)
		if err != nil {
			return nil, err
		}
		total += n
	}
	if total == 0 {
		return nil, nil
	}
	s, err := w.named(total, begun, "."+name, t)
	if err != nil {
		return nil, err
	}
	s.MaxRuntime = cmp.Or(w.deadline(t), w.deadline(body))
	w.place(s, t, body)
	if s.Retries.Errors, err = w.number(w.get(t, "retryStrategy"), 0, "limit"); err != nil {
		return nil, err
	}
	if w.deadline(body) == 0 && s.MaxRuntime > 0 {
		s.begunAgain("activeDeadlineSeconds of the workflow")
	}
	return s, nil
}

// maxInvocations is how many templates with arguments of their own are read.
const maxInvocations = 500

// invocation is a template with its arguments, and how often it is begun.
type invocation struct {
	template string
	inputs   map[string]string
	times    int
}

// invocations counts how often the templates of a workflow are begun.
type invocations struct {
	*workload
	templates map[string]ast.Node
	// begun are the invocations by template and arguments, order the same in their order,
	// named their templates.
	begun map[string]*invocation
	order []*invocation
	named map[string]bool
	// open are the templates that are being followed, against a circle.
	open    map[string]bool
	unknown []string
	// elsewhere is a step whose template is in another document.
	elsewhere ast.Node
	steps     int
}

// inputs are the parameters of a template: the arguments that it is given, or what it says
// itself. One whose value is not known has none.
func (v *invocations) inputs(t ast.Node, arguments map[string]string) map[string]string {
	out := map[string]string{}
	for _, p := range v.items(t, "inputs", "parameters") {
		name := v.word(p, "name")
		value, given := arguments[name]
		if !given {
			value = v.resolve(cmp.Or(v.word(p, "value"), v.word(p, "default")))
		}
		if value != "" && !strings.Contains(value, "{{") {
			out[name] = value
		}
	}
	return out
}

// count counts an invocation.
func (v *invocations) count(name string, inputs map[string]string, times int) int {
	key := name
	for _, k := range slices.Sorted(maps.Keys(inputs)) {
		key += "\x00" + k + "\x00" + inputs[k]
	}
	i := v.begun[key]
	if i == nil {
		i = &invocation{template: name, inputs: inputs}
		v.begun[key], v.order = i, append(v.order, i)
	}
	if v.named == nil {
		v.named = map[string]bool{}
	}
	v.named[name] = true
	i.times += times
	return i.times
}

// begin counts a template as often as it is begun with its arguments, and follows its
// steps.
func (v *invocations) begin(name string, arguments map[string]string, times int, at ast.Node) error {
	t := v.templates[name]
	if t == nil {
		return nil
	}
	if v.steps++; v.open[name] || v.steps > maxCount {
		return v.At(at, "template %q begins itself, or %d steps: how often it runs cannot be counted", name, maxCount)
	}
	v.open[name] = true
	defer delete(v.open, name)
	inputs := v.inputs(t, arguments)
	if v.count(name, inputs, times) > maxCount {
		return v.At(at, "template %q is begun more than %d times", name, maxCount)
	}
	if len(v.order) > maxInvocations {
		return v.At(at, "templates are begun with more than %d sets of arguments", maxInvocations)
	}
	var steps []ast.Node
	for _, group := range v.items(t, "steps") {
		if inner := v.items(group); inner != nil {
			steps = append(steps, inner...)
		} else {
			steps = append(steps, group) // a list of steps, as of a task
		}
	}
	for _, step := range append(steps, v.items(t, "dag", "tasks")...) {
		if ref := v.word(step, "templateRef", "name"); ref != "" {
			v.unknown = append(v.unknown, "what template "+ref+" costs, which is in another document")
			v.elsewhere = step
		}
		next := v.word(step, "template")
		if inline := v.get(step, "inline"); inline != nil {
			next = name + "." + v.word(step, "name")
			v.templates[next] = inline
		}
		items, n := v.each(step), times
		if items == nil {
			items, n = []map[string]string{nil}, times*v.fan(step)
		}
		if n > maxCount || len(items) > maxCount {
			return v.At(step, "step %q is begun more than %d times", v.word(step, "name"), maxCount)
		}
		for _, item := range items {
			if err := v.begin(next, v.arguments(step, inputs, item), n, step); err != nil {
				return err
			}
		}
	}
	return nil
}

// arguments are those of a step as far as they are known: literals, parameters of the
// workflow and of the template that the step is in, and the step's item.
func (v *invocations) arguments(step ast.Node, inputs, item map[string]string) map[string]string {
	outer := v.parameters
	v.parameters = maps.Clone(inputs)
	defer func() { v.parameters = outer }()
	out := map[string]string{}
	for _, p := range v.items(step, "arguments", "parameters") {
		value := v.word(p, "value")
		for k, of := range item {
			value = strings.ReplaceAll(strings.ReplaceAll(value, "{{"+k+"}}", of), "{{ "+k+" }}", of)
		}
		out[v.word(p, "name")] = v.resolve(value)
	}
	return out
}

// each are the items of a step whose arguments name them, by the words that stand for them;
// nil where none does.
func (v *invocations) each(step ast.Node) []map[string]string {
	if !slices.ContainsFunc(v.items(step, "arguments", "parameters"), func(p ast.Node) bool { return strings.Contains(v.word(p, "value"), "item") }) {
		return nil
	}
	var out []map[string]string
	for _, n := range v.items(step, "withItems") {
		item := map[string]string{"item": document.Scalar(n)}
		v.workload.each(func(key string, of ast.Node) { item["item."+key] = document.Scalar(of) }, n)
		out = append(out, item)
	}
	return out
}

// fan is how often a step is begun.
func (v *invocations) fan(step ast.Node) int {
	if n := v.get(step, "withItems"); n != nil {
		return max(1, min(len(v.items(n)), maxCount))
	}
	if n := v.get(step, "withSequence", "count"); n != nil {
		if count, ok := whole(n); ok {
			return min(count, maxCount)
		}
	}
	if v.get(step, "withParam") != nil || v.get(step, "withSequence") != nil {
		v.unknown = append(v.unknown, "how often step "+strconv.Quote(v.word(step, "name"))+" runs: it is known only at run time, and is counted once")
	}
	return 1
}
