package policy

import (
	"fmt"
	"maps"
	glob "path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Owners is the section of the configuration with tags for resources that lack them. Existing tags
// are never changed.
type Owners struct {
	// Rules are applied in order; the first matching one that sets a key gives its value.
	Rules OwnerRules `yaml:"rules"`
	// Defaults are the values of keys that no rule sets.
	Defaults map[string]string `yaml:"defaults"`
}

// OwnerRules are the rules of [Owners].
type OwnerRules []OwnerRule

// OwnerRule sets tags of the resources that match all of its values.
type OwnerRule struct {
	Select Select
	// Name is a pattern of the resource's name or id: * matches any text and ? one letter; empty
	// matches all.
	Name string
	// Set are the tags.
	Set    map[string]string
	Reason string
}

// OwnerTag is a tag that a resource is to get, with the source of its value.
type OwnerTag struct {
	Key, Value string
	// Empty is set if the tag exists without a value.
	Empty bool
	// Source is "owners.rules[0]", with the rule's reason, or "owners.defaults".
	Source string
}

// The bounds of tags (AWS Tagging Best Practices, "Tag naming limits").
const (
	maxTagKey   = 128
	maxTagValue = 256
)

// MissingTags returns the tags that a resource is to get: those of the rules and defaults for which
// it has no value. left are the required tags without a value even then. A tag that would change a
// known owner is omitted. known is false if the resource's tags are unknown.
func (o Owners) MissingTags(r *inventory.Resource, required []string, m inventory.TagMapping) (add []OwnerTag,
	left []string, known bool) {
	if r.Tags == nil {
		return nil, nil, false
	}
	given := map[string]OwnerTag{}
	offer := func(set map[string]string, from string) {
		for _, k := range slices.Sorted(maps.Keys(set)) {
			if _, taken := find(given, k); !taken {
				given[k] = OwnerTag{Key: k, Value: set[k], Source: from}
			}
		}
	}
	for i := range o.Rules {
		if rule := &o.Rules[i]; rule.match(r) {
			from := "owners.rules[" + strconv.Itoa(i) + "]"
			if rule.Reason != "" {
				from += " (" + rule.Reason + ")"
			}
			offer(rule.Set, from)
		}
	}
	offer(o.Defaults, "owners.defaults")
	after := inventory.Resource{Tags: maps.Clone(r.Tags), Owner: r.Owner}
	missing, _ := r.MissingFields(slices.Collect(maps.Keys(given)))
	for _, k := range slices.Sorted(slices.Values(missing)) {
		tag := given[k]
		for have, value := range r.Tags {
			if inventory.SameTagKey(have, k) && strings.TrimSpace(value) == "" {
				tag.Key, tag.Empty = have, true
			}
		}
		with := inventory.Resource{Tags: maps.Clone(after.Tags)}
		with.Tags[tag.Key] = tag.Value
		_ = m.Apply(&with) // an unreadable keep-until does not matter here
		if extends(with.Owner, r.Owner) {
			add, after = append(add, tag), with
		}
	}
	left, _ = after.MissingFields(required)
	return add, left, true
}

// TagValues returns the values of tags by key; nil for none.
func TagValues(tags []OwnerTag) map[string]string {
	if len(tags) == 0 {
		return nil
	}
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		out[t.Key] = t.Value
	}
	return out
}

// extends reports whether an owner agrees with all known fields of another.
func extends(o, known inventory.Owner) bool {
	same := func(is, was string) bool { return was == "" || is == was }
	return same(o.Team, known.Team) && same(o.Project, known.Project) && same(o.User, known.User) &&
		same(o.Environment, known.Environment) && same(o.CostCenter, known.CostCenter)
}

// find looks up a key with the comparison of tag keys.
func find(given map[string]OwnerTag, key string) (OwnerTag, bool) {
	for k, t := range given {
		if inventory.SameTagKey(k, key) {
			return t, true
		}
	}
	return OwnerTag{}, false
}

func (o *OwnerRule) match(r *inventory.Resource) bool {
	if o.Select.match(r) != usage.True {
		return false
	}
	if o.Name == "" {
		return true
	}
	for _, name := range []string{r.Name, r.ID} {
		// Treat a slash like any letter.
		if ok, err := glob.Match(strings.ReplaceAll(o.Name, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00")); ok &&
			err == nil {
			return true
		}
	}
	return false
}

// Validate returns the first invalid tag and its position: tags that a provider rejects, tags that
// change what policies may do, and tags that the mapping does not use for an owner.
func (o Owners) Validate(m inventory.TagMapping) (where string, err error) {
	for i, rule := range o.Rules {
		if err := checkTags(rule.Set, m); err != nil {
			return "rules[" + strconv.Itoa(i) + "].set", err
		}
	}
	return "defaults", checkTags(o.Defaults, m)
}

func checkTags(set map[string]string, m inventory.TagMapping) error {
	for _, k := range slices.Sorted(maps.Keys(set)) {
		v := set[k]
		switch {
		case k == "" || utf8.RuneCountInString(k) > maxTagKey || strings.HasPrefix(strings.ToLower(k), "aws:"):
			return fmt.Errorf("tag %q: a key has 1 to %d letters, and the prefix aws: is not allowed", k, maxTagKey)
		case strings.TrimSpace(v) == "" || utf8.RuneCountInString(v) > maxTagValue:
			return fmt.Errorf("tag %q: a value has 1 to %d letters", k, maxTagValue)
		}
		one := map[string]string{k: v}
		if m.AffectsPolicies(one) {
			return fmt.Errorf("tag %q decides what policies may do to a resource: write it yourself", k)
		}
		who := m.Owner(one)
		owner := map[string]string{
			"team": who.Team, "project": who.Project, "user": who.User, "environment": who.Environment,
			"cost-center": who.CostCenter,
		}
		for field, value := range owner {
			if inventory.SameTagKey(field, k) && value == "" {
				return fmt.Errorf("tag %q names no owner: tags.%s of the configuration does not list it", k,
					strings.ReplaceAll(field, "-", "_"))
			}
		}
	}
	return nil
}

// UnmarshalYAML reads the list strictly. Errors are a *document.Error without a file.
func (o *OwnerRules) UnmarshalYAML(n ast.Node) error {
	d := &reader{&document.File{}}
	return d.Items(n, "owners.rules", func(item ast.Node) error {
		var rule OwnerRule
		err := d.selection(item, "an owner rule", &rule.Select,
			document.Optional("name", "pattern of the name or id: * is any text, ? one character",
				func(n ast.Node) (err error) {
					if rule.Name, err = d.Text(n, "name"); err == nil {
						if _, bad := glob.Match(rule.Name, ""); bad != nil {
							err = d.At(n, "name %q is not a pattern", rule.Name)
						}
					}
					return err
				}),
			document.Required("set", "tags to give", func(n ast.Node) (err error) {
				rule.Set, err = d.tags(n)
				return err
			}),
			document.Optional("reason", "where the values come from", func(n ast.Node) (err error) {
				rule.Reason, err = d.Text(n, "reason")
				return err
			}))
		if err == nil && rule.Name == "" && rule.Select.isEmpty() {
			err = d.At(item, "an owner rule needs a name or a value to select by; owners.defaults are for all")
		}
		*o = append(*o, rule)
		return err
	})
}
