package estimate

import (
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

var (
	// regionOfZone is the region that begins the name of a zone: us-east-1a,
	// us-west-2-lax-1a.
	regionOfZone = lazyregexp.New(`^[a-z]{2}(-[a-z]+)+-[0-9]+`)
	instanceKey  = lazyregexp.New(`\[[^\]]*\]`)
)

// where returns the region of a resource of AWS: its own, its zone's, its provider's, or
// else the first of the defaults; "" where none is known.
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

// providerRegion returns the region of the provider that a resource is configured with,
// and whether the configuration names one; "" where its value is not in the plan.
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
	if provider == nil || provider.Expressions["region"] == nil || provider.Expressions["region"].ExpressionData == nil {
		return "", false
	}
	e := provider.Expressions["region"]
	if s, ok := e.ConstantValue.(string); ok {
		return s, true
	}
	for _, ref := range e.References {
		name, isVariable := strings.CutPrefix(ref, "var.")
		if v := c.plan.Variables[name]; isVariable && v != nil && provider.ModuleAddress == "" {
			s, _ := v.Value.(string)
			return s, true
		}
	}
	return "", true
}

// configured is the configuration of a resource; nil where the plan has none.
func (c *planner) configured(change *tfjson.ResourceChange) *tfjson.ConfigResource {
	if c.plan.Config == nil {
		return nil
	}
	module := c.plan.Config.RootModule
	for _, step := range strings.Split(instanceKey.ReplaceAllString(change.ModuleAddress, ""), ".") {
		if step == "" || step == "module" || module == nil {
			continue
		}
		call := module.ModuleCalls[step]
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

// template returns the launch template of a group or instance, found by its id or name
// or by the reference in the configuration, as it is after the plan.
func (c *planner) template(change *tfjson.ResourceChange, at attributes) (attributes, bool) {
	wanted := map[string]bool{}
	for _, b := range at.block("launch_template") {
		for _, key := range []string{"id", "name"} {
			if v, _ := b.text(key); v != "" {
				wanted[key+"="+v] = true
			}
		}
	}
	if r := c.configured(change); r != nil && r.Expressions["launch_template"] != nil && r.Expressions["launch_template"].ExpressionData != nil {
		prefix := ""
		if change.ModuleAddress != "" {
			prefix = change.ModuleAddress + "."
		}
		for _, b := range r.Expressions["launch_template"].NestedBlocks {
			for _, e := range b {
				if e == nil || e.ExpressionData == nil {
					continue
				}
				for _, ref := range e.References {
					wanted["address="+prefix+ref] = true
				}
			}
		}
	}
	for _, other := range c.plan.ResourceChanges {
		if other == nil || other.Change == nil || other.Type != "aws_launch_template" {
			continue
		}
		values, _ := other.Change.After.(map[string]any)
		unknown, _ := other.Change.AfterUnknown.(map[string]any)
		found := attributes{values, unknown}
		id, _ := found.text("id")
		name, _ := found.text("name")
		if id != "" && wanted["id="+id] || name != "" && wanted["name="+name] || wanted["address="+other.Address] {
			return found, values != nil
		}
	}
	return attributes{}, false
}
