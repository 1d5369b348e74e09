package estimate

import (
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// regionOfZone is the region that begins the name of a zone: us-east-1a,
// us-west-2-lax-1a.
var regionOfZone = lazyregexp.New(`^[a-z]{2}(-[a-z]+)+-[0-9]+`)

// where returns the region of a resource of AWS: its own, its zone's, its provider's, or else the
// first of the defaults; "" if none is known.
func (c *planner) where(change *tfjson.ResourceChange, at attributes) string {
	if region, _ := at.text("region"); region != "" {
		return region
	}
	if zone, _ := at.text("availability_zone"); zone != "" {
		return regionOfZone.FindString(zone)
	}
	if arn, _ := at.text("arn"); strings.Count(arn, ":") >= 5 {
		if region := strings.Split(arn, ":")[3]; region != "" {
			return region
		}
	}
	region, given := c.providerRegion(change)
	if given {
		return region
	}
	if len(c.params.Defaults.Regions) == 0 {
		return ""
	}
	c.regionless = true
	return c.params.Defaults.Regions[0]
}

// providerRegion returns the region of the provider that a resource is configured with, and whether
// the configuration names one; "" if its value is not in the plan.
func (c *planner) providerRegion(change *tfjson.ResourceChange) (region string, given bool) {
	if c.plan.Config == nil {
		return "", false
	}
	key := "aws"
	if r := c.configured(change); r != nil && r.ProviderConfigKey != "" {
		key = r.ProviderConfigKey
	}
	provider := c.plan.Config.ProviderConfigs[key]
	if provider == nil { // a module that inherits its provider
		provider = c.plan.Config.ProviderConfigs[key[strings.LastIndexByte(key, ':')+1:]]
	}
	if provider == nil || provider.Expressions["region"] == nil ||
		provider.Expressions["region"].ExpressionData == nil {
		return "", false
	}
	e := provider.Expressions["region"]
	if s, ok := e.ConstantValue.(string); ok {
		return s, true
	}
	if heads := chains(e.References); len(heads) == 1 && provider.ModuleAddress == "" {
		name, isVariable := strings.CutPrefix(heads[0], "var.")
		if v := c.plan.Variables[name]; isVariable && v != nil {
			s, _ := v.Value.(string)
			return s, true
		}
	}
	return "", true
}

// configured is the configuration of a resource; nil if the plan has none.
func (c *planner) configured(change *tfjson.ResourceChange) *tfjson.ConfigResource {
	if c.plan.Config == nil {
		return nil
	}
	module := c.plan.Config.RootModule
	if change.ModuleAddress != "" {
		_, call := c.call(change.ModuleAddress)
		if call == nil {
			return nil
		}
		module = call.Module
	}
	if module == nil {
		return nil
	}
	for _, r := range module.Resources {
		if r != nil && r.Mode != tfjson.DataResourceMode && r.Type == change.Type && r.Name == change.Name {
			return r
		}
	}
	return nil
}

// references are those of an expression; none where it is unknown.
func references(e *tfjson.Expression) []string {
	if e == nil || e.ExpressionData == nil {
		return nil
	}
	return e.References
}

// isConfigured reports whether a block of the configuration sets an attribute.
func isConfigured(exprs map[string]*tfjson.Expression, key string) bool {
	e := exprs[key]
	return e != nil && e.ExpressionData != nil
}

// expressions are the attributes and blocks of a resource in the configuration; nil if the plan
// does not have it.
func (c *planner) expressions(change *tfjson.ResourceChange) map[string]*tfjson.Expression {
	r := c.configured(change)
	if r == nil {
		return nil
	}
	if r.Expressions == nil {
		return map[string]*tfjson.Expression{}
	}
	return r.Expressions
}

// nestedBlock is the n-th block of a path of names in the configuration; nil if it is not there, as
// with blocks that are written by "dynamic".
func nestedBlock(exprs map[string]*tfjson.Expression, n int, path ...string) map[string]*tfjson.Expression {
	for i, name := range path {
		e := exprs[name]
		at := 0
		if i == len(path)-1 {
			at = n
		}
		if e == nil || e.ExpressionData == nil || at >= len(e.NestedBlocks) {
			return nil
		}
		exprs = e.NestedBlocks[at]
	}
	return exprs
}

// chains are the longest of the references of an expression. Terraform writes each reference
// and then its beginnings: "aws_launch_template.a[0].id", "aws_launch_template.a[0]",
// "aws_launch_template.a" (internal/command/jsonconfig of Terraform).
func chains(refs []string) (heads []string) {
	last := ""
	for _, ref := range refs {
		if last == "" || !strings.HasPrefix(last, ref+".") && !strings.HasPrefix(last, ref+"[") {
			heads = append(heads, ref)
		}
		last = ref
	}
	return heads
}

// splitAddress splits an address at its points, but not those in keys.
func splitAddress(address string) []string {
	var steps []string
	begin, quoted, depth := 0, false, 0
	for i := 0; i < len(address); i++ {
		switch c := address[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '.' && depth == 0:
			steps = append(steps, address[begin:i])
			begin = i + 1
		}
	}
	return append(steps, address[begin:])
}

// withoutKey is a step of an address without the key of an instance.
func withoutKey(step string) string {
	name, _, _ := strings.Cut(step, "[")
	return name
}

// withoutKeys is an address without keys of instances.
func withoutKeys(address string) string {
	steps := splitAddress(address)
	for i := range steps {
		steps[i] = withoutKey(steps[i])
	}
	return strings.Join(steps, ".")
}

// join is the address of something in a module.
func join(module, rest string) string {
	if module == "" {
		return rest
	}
	return module + "." + rest
}

// call returns the address of the module that calls a module, and the call; nil if the
// configuration is not in the plan.
func (c *planner) call(module string) (parent string, call *tfjson.ModuleCall) {
	if c.plan.Config == nil {
		return "", nil
	}
	at, steps := c.plan.Config.RootModule, splitAddress(module)
	for i := 0; i+1 < len(steps); i += 2 {
		if at == nil || steps[i] != "module" {
			return "", nil
		}
		if call = at.ModuleCalls[withoutKey(steps[i+1])]; call == nil {
			return "", nil
		}
		at = call.Module
	}
	return strings.Join(steps[:max(0, len(steps)-2)], "."), call
}
