package spec

import (
	"cmp"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// workflow reads the spec of an Argo Workflow: one Spec for each template with GPUs that
// is reached from the entry point, with as many nodes as it is begun.
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
	run := &invocations{workload: w, templates: templates, begun: map[string]int{}, open: map[string]bool{}}
	for _, start := range []string{w.word(body, "entrypoint"), w.word(body, "onExit")} {
		if err := run.begin(start, 1, body); err != nil {
			return nil, err
		}
	}
	if w.word(body, "entrypoint") == "" { // a library of templates: each is taken once
		for _, name := range order {
			run.begun[name] = max(run.begun[name], 1)
		}
	}
	var out []*Spec
	for _, name := range order {
		if run.begun[name] == 0 {
			continue
		}
		s, err := w.template(body, templates[name], run.begun[name])
		if err != nil {
			return nil, err
		}
		if s != nil {
			s.Unknown = append(s.Unknown, run.unknown...)
			out = append(out, s)
		}
	}
	if len(out) == 0 && run.elsewhere != nil {
		return nil, w.At(run.elsewhere, "all that may ask for GPUs is in another document: put its template here to estimate it")
	}
	return out, nil
}

// template reads one template that runs a pod.
func (w *workload) template(body, t ast.Node, begun int) (*Spec, error) {
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
	s, err := w.named(total, begun, "."+w.word(t, "name"), t)
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

// invocations counts how often the templates of a workflow are begun.
type invocations struct {
	*workload
	templates map[string]ast.Node
	begun     map[string]int
	// open are the templates that are being followed, against a circle.
	open    map[string]bool
	unknown []string
	// elsewhere is a step whose template is in another document.
	elsewhere ast.Node
	steps     int
}

// begin counts a template as often as it is begun, and follows its steps.
func (v *invocations) begin(name string, times int, at ast.Node) error {
	t := v.templates[name]
	if t == nil {
		return nil
	}
	if v.steps++; v.open[name] || v.steps > maxCount {
		return v.At(at, "template %q begins itself, or %d steps: how often it runs cannot be counted", name, maxCount)
	}
	v.open[name] = true
	defer delete(v.open, name)
	if v.begun[name] += times; v.begun[name] > maxCount {
		return v.At(at, "template %q is begun more than %d times", name, maxCount)
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
		n := times * v.fan(step)
		if n > maxCount {
			return v.At(step, "step %q is begun more than %d times", v.word(step, "name"), maxCount)
		}
		if err := v.begin(v.word(step, "template"), n, step); err != nil {
			return err
		}
	}
	return nil
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
