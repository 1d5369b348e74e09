package estimate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

// launchTemplate is the type of launch templates in Terraform.
const launchTemplate = "aws_launch_template"

// template is a launch template of a plan: a resource, or a data source that was read.
type template struct {
	address string
	region  string
	action  string
	// before is its newest version today, after its newest version once the plan is applied.
	// A template that is not there has no values.
	before, after content
}

// content is the content of a version of a launch template, with a key that tells contents apart.
type content struct {
	attributes
	key string
}

func contentOf(at attributes) content { return content{at, contentKey(at)} }

// indexTemplates collects the launch templates of the plan and of the state that it was made
// from. The state has data sources, and resources that the plan does not look at (-target).
func (c *planner) indexTemplates() {
	listed := map[string]bool{}
	for _, change := range c.plan.ResourceChanges {
		if change == nil || change.Change == nil || change.Type != launchTemplate ||
			change.Mode == tfjson.DataResourceMode {
			continue
		}
		t := &template{address: change.Address, action: actionOf(change.Change.Actions)}
		t.before = contentOf(attributesOf(change.Change.Before, nil))
		t.after = contentOf(attributesOf(change.Change.After, change.Change.AfterUnknown))
		if t.action == actionForget {
			t.after = t.before
		}
		t.region, _ = c.providerRegion(change)
		if region := t.text("region"); region != "" {
			t.region = region
		}
		listed[t.address] = true
		c.templates = append(c.templates, t)
	}
	for _, r := range c.plan.PriorState.resources() {
		if r.Type != launchTemplate || listed[r.Address] {
			continue
		}
		values, ok := readObject(r.Values)
		if !ok {
			continue
		}
		at := contentOf(attributes{values: values})
		t := &template{address: r.Address, action: actionNoOp, before: at, after: at}
		t.region = t.text("region")
		c.templates = append(c.templates, t)
	}
}

// text is a value that it has after the plan, or has today.
func (t *template) text(key string) string {
	if v, _ := t.after.text(key); v != "" {
		return v
	}
	v, _ := t.before.text(key)
	return v
}

// at is the template before or after the plan.
func (t *template) at(before bool) content {
	if before {
		return t.before
	}
	return t.after
}

// contents returns the possible contents of a version of the template, and whether they are
// certain. A plan holds the newest version alone, today's and the one that it makes. refs are the
// references of the version's expression.
//
// A change of a template makes a new version, which is the default only with
// update_default_version (hashicorp/aws, aws_launch_template). "$Latest" and "$Default" are
// names of versions, and no version is the default one (EC2 API, LaunchTemplateSpecification).
func (t *template) contents(version string, state state, refs []string, before bool) ([]content, bool) {
	switch {
	case before:
		return []content{t.before}, holdsVersion(t.before, version)
	case t.action == actionCreate || t.action == actionReplace: // its only version is the first
		return []content{t.after}, state == unknownValue || version == "1" || isDefault(version) || version == latest
	}
	if state == unknownValue {
		switch t.versionOf(refs) {
		case "latest_version":
			version = latest
		case "default_version":
			version = defaultVersion
		default:
			return t.newestVersions(), false
		}
	}
	if t.before.key == t.after.key { // no new version
		return []content{t.after}, holdsVersion(t.after, version) || holdsVersion(t.before, version)
	}
	was, will := number(t.before.attributes, "latest_version"), number(t.after.attributes, "latest_version")
	if isDefault(version) {
		if t.after.flag("update_default_version") {
			return []content{t.after}, true
		}
		version = number(t.after.attributes, "default_version")
		if version == "" || t.after.state("update_default_version") == unknownValue {
			return t.newestVersions(), false
		}
	}
	switch n, newest := toNumber(version), toNumber(was); {
	case version == latest, version == will, n > 0 && newest > 0 && n == newest+1: // versions are counted
		return []content{t.after}, true
	case version == was:
		return []content{t.before}, true
	case n > 0 && n < newest: // an older one, which stays
		return []content{t.before}, false
	}
	return t.newestVersions(), false
}

// toNumber is a version's number; 0 if it has none.
func toNumber(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// newestVersions is the newest version of today and the one that the plan makes.
func (t *template) newestVersions() []content { return []content{t.before, t.after} }

// Names of versions.
const (
	latest         = "$Latest"
	defaultVersion = "$Default"
)

func isDefault(version string) bool { return version == "" || version == defaultVersion }

// holdsVersion reports whether the newest version of a template is the one asked for.
func holdsVersion(at content, version string) bool {
	newest := number(at.attributes, "latest_version")
	switch {
	case version == latest:
		return true
	case isDefault(version):
		return newest != "" && newest == number(at.attributes, "default_version")
	}
	return newest != "" && version == newest
}

// number is a whole number as text; empty if it is unknown.
func number(at attributes, key string) string {
	n, state := at.number(key)
	if state != knownValue {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// versionOf is the attribute of the template that an expression is; empty if it is not that
// attribute alone.
func (t *template) versionOf(refs []string) string {
	heads := chains(refs)
	if len(heads) != 1 {
		return ""
	}
	steps, own := splitAddress(heads[0]), splitAddress(withoutKeys(t.address))
	n := len(steps)
	if n < 3 || steps[n-3] != launchTemplate || withoutKey(steps[n-2]) != own[len(own)-1] {
		return ""
	}
	return steps[n-1]
}

// contentKey distinguishes the settings that machines are started with.
func contentKey(at attributes) string {
	keep := func(from map[string]any) map[string]any {
		out := map[string]any{}
		for key, v := range from {
			switch key {
			case "id", "arn", "name", "name_prefix", "latest_version", "default_version", "update_default_version",
				"description", "tags", "tags_all", "tag_specifications", "user_data", "image_id", "key_name",
				"metadata_options", "monitoring", "iam_instance_profile":
			default:
				if given(v) {
					out[key] = v
				}
			}
		}
		return out
	}
	text, err := json.Marshal([]any{keep(at.values), keep(at.unknown)})
	if err != nil {
		panic(err) // decoded JSON always encodes
	}
	return string(text)
}

// launches are the launch templates that a resource may start machines with.
type launches struct {
	contents []content
	// uncertainty is the reason why the content in use is unknown; empty if it is the only one.
	uncertainty string
}

// whichTemplate is the doubt about several templates.
const whichTemplate = "which launch template it uses is known only after the plan is applied"

// maxContents is how many different templates are compared for the most expensive one.
const maxContents = 100

// templateIn returns the launch template that a block of a resource names, whose keys of the id and
// the name are given. exprs is the block in the configuration; nil is unknown.
//
// An id or name that is known decides. What is known only after the plan is applied follows the
// references of the configuration, and where they leave several templates, or could mean another
// value, each template is possible.
func (m *meter) templateIn(block attributes, exprs map[string]*tfjson.Expression, idKey, nameKey string) launches {
	id, idState := block.text(idKey)
	name, nameState := block.text(nameKey)
	byName := isConfigured(exprs, nameKey) && !isConfigured(exprs, idKey)
	if exprs == nil && idState != knownValue {
		// Without the configuration a name with an unknown id may be that of the template before.
		byName = idState == noValue || m.change.Change != nil &&
			m.change.Change.Before == nil && nameState == knownValue
	}
	var found []*template
	complete, what := true, whichTemplate
	switch {
	case !byName && idState == knownValue:
		found = m.identified("id", id)
		what = fmt.Sprintf("its launch template %s is not in the plan", id)
	case byName && nameState == knownValue:
		found = m.identified("name", name)
		what = fmt.Sprintf("its launch template %s is not in the plan", name)
	case idState == noValue && nameState == noValue:
		return launches{uncertainty: "it names no launch template"}
	case byName:
		found, complete = m.resolve(m.change.ModuleAddress, references(exprs[nameKey]), 0)
	default:
		found, complete = m.resolve(m.change.ModuleAddress, references(exprs[idKey]), 0)
	}
	if len(found) == 0 {
		if complete || len(m.planner.templates) == 0 {
			what = strings.Replace(what, whichTemplate, "its launch template is not in the plan", 1)
		}
		return launches{uncertainty: what}
	}
	version, versionState := block.text("version")
	var out launches
	seen := map[string]bool{}
	certain := true
	for _, t := range found {
		contents, sure := t.contents(version, versionState, references(exprs["version"]), m.readsCurrent)
		certain = certain && sure
		for _, content := range contents {
			if !seen[content.key] && content.values != nil && len(seen) <= maxContents {
				seen[content.key] = true
				out.contents = append(out.contents, content)
			}
		}
	}
	switch {
	case !complete || len(out.contents) > 1 && len(found) > 1:
		out.uncertainty = whichTemplate
	case !certain || len(out.contents) != 1:
		out.uncertainty = fmt.Sprintf("what version %s of its launch template %s holds is not in the plan",
			orDefault(version, versionState), found[0].address)
	}
	return out
}

func orDefault(version string, s state) string {
	switch {
	case s == unknownValue:
		return "(known after the plan is applied)"
	case version == "":
		return defaultVersion
	}
	return version
}

// identified are the templates that have an id, or a name in the region of the resource.
func (m *meter) identified(key, value string) (found []*template) {
	for _, t := range m.planner.templates {
		v, _ := t.at(m.readsCurrent).text(key)
		if key == "id" && v == "" && t.action != actionDelete && t.action != actionReplace {
			v, _ = t.before.text(key) // an id stays
		}
		elsewhere := key == "name" && t.region != "" && m.region != "" && t.region != m.region
		if v == value && t.at(m.readsCurrent).values != nil && !elsewhere {
			found = append(found, t)
		}
	}
	return found
}

// resolve returns the templates that an expression of a module may mean by its references,
// and whether it can mean nothing else. depth bounds the modules passed through.
func (c *planner) resolve(module string, refs []string, depth int) (found []*template, complete bool) {
	const maxDepth = 20
	complete = len(refs) > 0 && depth < maxDepth
	add := func(more []*template, all bool) {
		complete = complete && all
		for _, t := range more {
			if !slices.Contains(found, t) {
				found = append(found, t)
			}
		}
	}
	if depth >= maxDepth {
		refs = nil
	}
	for _, ref := range chains(refs) {
		steps := splitAddress(ref)
		switch steps[0] {
		case "count", "path", "terraform":
		case "each":
			complete = complete && ref == "each.key"
		case "var":
			if module == "" || len(steps) < 2 {
				break // a variable of the root module is known
			}
			parent, call := c.call(module)
			if call == nil {
				complete = false
			} else if e := call.Expressions[withoutKey(steps[1])]; e != nil && len(references(e)) > 0 {
				add(c.resolve(parent, references(e), depth+1))
			}
		case "module":
			if len(steps) < 3 {
				complete = false
				break
			}
			child := join(module, "module."+steps[1])
			_, call := c.call(child)
			if call == nil || call.Module == nil || call.Module.Outputs[withoutKey(steps[2])] == nil {
				complete = false
				break
			}
			add(c.resolve(child, references(call.Module.Outputs[withoutKey(steps[2])].Expression), depth+1))
		case launchTemplate, "data":
			name := 2
			if steps[0] == "data" {
				name = 3
			}
			if len(steps) < name || !slices.Contains(steps[:name-1], launchTemplate) {
				complete = false
				break
			}
			more := c.addressed(join(module, strings.Join(steps[:name], ".")))
			whole := len(steps) == name || len(steps) == name+1 && (steps[name] == "id" || steps[name] == "name")
			add(more, len(more) > 0 && whole)
		default:
			complete = false
		}
	}
	if !complete {
		found = found[:0:0]
		for _, t := range c.templates {
			if t.after.values != nil {
				found = append(found, t)
			}
		}
	}
	return found, complete
}

// addressed are the templates of an address, or without such a one those of any key.
func (c *planner) addressed(address string) (found []*template) {
	for _, t := range c.templates {
		if t.address == address {
			return []*template{t}
		}
		if withoutKeys(t.address) == withoutKeys(address) && t.after.values != nil {
			found = append(found, t)
		}
	}
	return found
}

// mostExpensive reads the resource with each of the launches and keeps the most expensive, with the
// largest number of machines and GPUs of any. It returns whether there was one.
func (m *meter) mostExpensive(of launches, read func(x *meter, template attributes)) bool {
	for _, content := range of.contents {
		m.used = append(m.used, content.key)
	}
	if of.uncertainty != "" {
		priced := ""
		if len(of.contents) > 1 {
			priced = fmt.Sprintf("; the most expensive of %d is priced", len(of.contents))
		}
		m.isWorstCase = true
		m.open("%s%s", of.uncertainty, priced)
	}
	var options []func(*meter)
	for _, content := range of.contents {
		options = append(options, func(x *meter) { read(x, content.attributes) })
	}
	m.choose(options)
	return len(options) > 0
}

// choose keeps the most expensive of the options at the worst.
func (m *meter) choose(options []func(*meter)) {
	if len(options) == 1 {
		options[0](m)
		return
	}
	best, machines, gpus := (*meter)(nil), 0, map[string]int{}
	for _, option := range options {
		x := *m
		x.lines, x.hourly, x.unknown, x.unpriced, x.used = nil, nil, nil, nil, nil
		x.machines, x.gpus, x.isTrial = 0, map[string]int{}, true
		option(&x)
		if x.err != nil {
			m.err = x.err
			return
		}
		m.isWorstCase = m.isWorstCase || x.isWorstCase
		m.used = append(m.used, x.used...)
		for _, u := range x.unknown {
			if !slices.Contains(m.unknown, u) {
				m.unknown = append(m.unknown, u)
			}
		}
		for _, u := range x.unpriced {
			m.open("it may start %s, whose price is not known", u)
		}
		machines = max(machines, x.machines)
		for gpu, n := range x.gpus {
			gpus[gpu] = max(gpus[gpu], n)
		}
		if best == nil || x.worst() > best.worst() {
			best = &x
		}
	}
	m.machines += machines
	for gpu, n := range gpus {
		m.gpus[gpu] += n
	}
	if best != nil {
		m.lines, m.hourly = append(m.lines, best.lines...), append(m.hourly, best.hourly...)
	}
}
