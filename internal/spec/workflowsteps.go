package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// begin counts the starts of a template with its arguments, and follows its steps and hooks.
func (v *invocations) begin(from frame, name string, arguments map[string]string, at ast.Node) error {
	key := from.scope + "\x00" + name
	t := v.templates[from.scope][name]
	if t == nil {
		v.ask(v.workload, "it runs template "+strconv.Quote(name)+", which is not in the file")
		return nil
	}
	if v.path[key] {
		v.ask(v.workload, "template "+strconv.Quote(name)+" begins itself: how often is known only at run time")
		return nil
	}
	if v.steps++; v.steps > maxCount {
		return v.At(at, "more than %d steps are begun", maxCount)
	}
	v.path[key] = true
	defer delete(v.path, key)
	in := from
	in.name, in.inputs, in.tries = name, v.inputs(t, arguments), v.tries(t, from.tries)
	if v.count(in) > maxCount {
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
			steps = append(steps, group) // a list of steps, instead of a task
		}
	}
	for _, step := range append(steps, v.items(t, "dag", "tasks")...) {
		if err := v.step(in, step); err != nil {
			return err
		}
	}
	return nil
}

// tries returns the maximum number of attempts at a template under its retryStrategy and those of
// the templates that start it; 0 is unlimited, since limit is optional
// (https://argo-workflows.readthedocs.io/en/latest/retries).
func (v *invocations) tries(t ast.Node, outer int) int {
	strategy := v.get(t, "retryStrategy")
	for _, n := range []ast.Node{v.first("templateDefaults", "retryStrategy"), v.first("retryStrategy")} {
		if strategy == nil {
			strategy = n
		}
	}
	if strategy == nil {
		return outer
	}
	limit, ok := v.workload.count(v.get(strategy, "limit"))
	if !ok || outer == 0 || (limit+1)*outer > maxCount {
		return 0
	}
	return (limit + 1) * outer
}

// step starts the template of a step or task for each of its items, and its hooks.
func (v *invocations) step(in frame, step ast.Node) error {
	outer := v.parameters
	v.parameters = in.inputs
	defer func() { v.parameters = outer }()
	items, known := v.loop(step)
	if len(items) > maxCount {
		return v.At(step, "step %q is begun more than %d times", v.word(step, "name"), maxCount)
	}
	if !known {
		why := "how often step " + strconv.Quote(v.word(step, "name")) +
			" runs: it is known only at run time, and is counted once"
		in.unknown = append(slices.Clone(in.unknown), why)
	}
	if len(items) > 0 && !usesItem(step) {
		if in.times *= len(items); in.times > maxCount {
			return v.At(step, "step %q is begun more than %d times", v.word(step, "name"), maxCount)
		}
		items = items[:1]
	}
	for _, item := range items {
		if err := v.call(in, step, item); err != nil {
			return err
		}
		if exit := v.word(step, "onExit"); exit != "" {
			if err := v.begin(in, exit, nil, step); err != nil {
				return err
			}
		}
		if err := v.hooks(in, v.get(step, "hooks"), item); err != nil {
			return err
		}
	}
	return nil
}

// hooks starts the templates of lifecycle hooks, each once whatever its condition
// (https://argo-workflows.readthedocs.io/en/latest/lifecyclehook).
func (v *invocations) hooks(in frame, hooks ast.Node, item map[string]string) (err error) {
	v.each(func(_ string, hook ast.Node) {
		if err == nil {
			err = v.call(in, hook, item)
		}
	}, hooks)
	return err
}

// call starts the template that a step or hook names: in the same scope, in another
// WorkflowTemplate, or inline.
func (v *invocations) call(in frame, c ast.Node, item map[string]string) error {
	arguments, next, to := v.knownArguments(c, item), v.word(c, "template"), in
	switch ref, inline := v.get(c, "templateRef"), v.get(c, "inline"); {
	case ref != nil:
		of, err := v.library(ref)
		if err != nil {
			v.ask(v.workload, err.Error())
			return nil
		}
		to.scope, next = of.kind.name+"/"+of.name, v.word(ref, "template")
		if v.templates[to.scope] == nil {
			v.scope(to.scope, v.get(of.root, "spec", "templates"))
		}
	case inline != nil:
		next = in.name + "." + v.word(c, "name")
		v.templates[in.scope][next] = inline
	}
	return v.begin(to, next, arguments, c)
}

// knownArguments returns the known arguments of a step: literals, parameters of the workflow and of the
// enclosing template, and the step's item.
func (v *invocations) knownArguments(step ast.Node, item map[string]string) map[string]string {
	out := map[string]string{}
	for _, p := range v.items(step, "arguments", "parameters") {
		value := v.text(p, "value")
		for k, of := range item {
			value = strings.ReplaceAll(strings.ReplaceAll(value, "{{"+k+"}}", of), "{{ "+k+" }}", of)
		}
		out[v.word(p, "name")] = v.resolve(value)
	}
	return out
}

// usesItem reports whether a step's template depends on its item.
func usesItem(step ast.Node) bool { return itemUse.MatchString(step.String()) }

var itemUse = lazyregexp.New(`\{\{=?[^}]*\bitem\b`)

// loop returns the items of a step as substitutions, or one empty substitution if it has no loop.
// known is false if the items are known only at run time (expandStep and expandSequence of
// github.com/argoproj/argo-workflows/workflow/controller).
func (v *invocations) loop(step ast.Node) (items []map[string]string, known bool) {
	once := []map[string]string{nil}
	if list := v.items(step, "withItems"); len(list) > 0 {
		for _, n := range list {
			item := map[string]string{"item": v.resolve(document.Scalar(n))}
			v.each(func(key string, of ast.Node) { item["item."+key] = v.resolve(document.Scalar(of)) }, n)
			items = append(items, item)
		}
		return items, true
	}
	if param := v.get(step, "withParam"); param != nil {
		if items, known = literalList(v.resolve(v.text(param))); !known {
			return once, false
		}
		return items, true
	}
	if sequence := v.get(step, "withSequence"); sequence != nil {
		if items, known = v.sequence(sequence); !known {
			return once, false
		}
		return items, true
	}
	return once, true
}

// literalList reads a JSON list of strings, numbers or objects.
func literalList(text string) (items []map[string]string, ok bool) {
	var list []any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&list); err != nil || list == nil || d.More() {
		return nil, false
	}
	items = []map[string]string{}
	for _, v := range list {
		item := map[string]string{}
		switch v := v.(type) {
		case map[string]any:
			for key, of := range v {
				item["item."+key] = fmt.Sprint(of)
			}
		default:
			item["item"] = fmt.Sprint(v)
		}
		items = append(items, item)
	}
	return items, true
}

// sequence returns the numbers of withSequence: count of them from start, or from start to end,
// descending if end is less.
func (v *invocations) sequence(n ast.Node) (items []map[string]string, ok bool) {
	value := func(key string, otherwise int) (int, bool) {
		if v.get(n, key) == nil {
			return otherwise, true
		}
		i, err := strconv.ParseInt(strings.TrimSpace(v.resolve(v.text(n, key))), 10, 32)
		return int(i), err == nil
	}
	start, ok1 := value("start", 0)
	end, ok2 := value("end", 0)
	count, ok3 := value("count", 0)
	if !ok1 || !ok2 || !ok3 || v.get(n, "end") == nil && v.get(n, "count") == nil {
		return nil, false
	}
	step := 1
	if v.get(n, "end") == nil {
		if count <= 0 {
			return []map[string]string{}, true
		}
		end = start + count - 1
	} else if end < start {
		step = -1
	}
	if (end-start)*step >= maxCount {
		return make([]map[string]string, maxCount+1), true // beyond the limit
	}
	form := v.text(n, "format")
	if !sequenceFormat.MatchString(form) {
		form = "%d"
	}
	for i := start; i != end+step; i += step {
		items = append(items, map[string]string{"item": fmt.Sprintf(form, i)})
	}
	return items, true
}

// sequenceFormat is a format with one number.
var sequenceFormat = lazyregexp.New(`^[^%]*%[-+ 0#]*[0-9]{0,3}[dxXo][^%]*$`)

// patch is a podSpecPatch, which is merged into the pod spec of a template
// (https://argo-workflows.readthedocs.io/en/latest/fields).
type patch struct{ *workload }

// patches returns the patches of the workflow and of a template in the order of merging.
func (v *invocations) patches(t ast.Node) (out []*patch, err error) {
	own := v.get(t, "podSpecPatch")
	if own == nil {
		own = v.first("templateDefaults", "podSpecPatch")
	}
	for _, n := range []ast.Node{v.first("podSpecPatch"), own} {
		if n == nil {
			continue
		}
		r, err := open(v.Name, []byte(v.resolve(v.text(n))))
		if err != nil || len(r.Bodies) != 1 {
			return nil, unreadf("a podSpecPatch of it cannot be read")
		}
		m, w := *v.manifest, *v.workload
		m.reader, m.tree = r, &tree{r.File}
		w.manifest, w.root = &m, r.Bodies[0]
		out = append(out, &patch{&w})
	}
	return out, nil
}

// apply merges the patch into containers by name.
func (p *patch) apply(containers []podContainer, key string) ([]podContainer, error) {
	changes, err := p.listContainers(p.items(p.root, key))
	if err != nil {
		return nil, unreadf("a podSpecPatch of it cannot be read: %s", err)
	}
	out := slices.Clone(containers)
	for _, c := range changes {
		i := slices.IndexFunc(out, func(o podContainer) bool { return o.name == c.name })
		if i < 0 {
			out = append(out, c)
			continue
		}
		asks := maps.Clone(out[i].asks)
		maps.Copy(asks, c.asks)
		out[i].asks, out[i].sidecar = asks, out[i].sidecar || c.sidecar
	}
	return out, nil
}
