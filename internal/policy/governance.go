package policy

import (
	"maps"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Governance is the section of the configuration that defines the resources on which policies may
// act. Others need the tag curfew:managed=true; the select of a policy grants nothing. An empty
// Governance governs nothing.
type Governance []GovernanceEntry

// GovernanceEntry is a selection of resources on which policies may act.
type GovernanceEntry struct {
	Select Select
	Reason string
	// ScratchInstanceStore declares the instance-store disks of these machines disposable
	// (instance_store: scratch).
	ScratchInstanceStore bool
}

// Governs reports whether policies may act on a resource: it carries curfew:managed=true, or an
// entry matches it. Unknown properties do not match.
func (g Governance) Governs(r *inventory.Resource) bool {
	return r != nil && (r.Managed || g.matches(r, func(*GovernanceEntry) bool { return true }))
}

// PermissionTags returns tags by which a cloud's permissions can select the governed resources: an
// element matches resources with all of its tags ("*" is any value). Together they are never
// narrower than the entries, given the tag keys of the lifetime: policies act only on ephemeral
// resources, so that tag is enough for an entry without tags.
func (g Governance) PermissionTags(lifetime []string) []map[string]string {
	var all []map[string]string
	add := func(tags map[string]string) {
		if !slices.ContainsFunc(all, func(other map[string]string) bool { return maps.Equal(tags, other) }) {
			all = append(all, tags)
		}
	}
	for i := range g {
		if tags := g[i].Select.Tags; len(tags) > 0 {
			add(maps.Clone(tags))
			continue
		}
		for _, key := range lifetime {
			add(map[string]string{key: string(inventory.Ephemeral)})
		}
	}
	return all
}

// ScratchInstanceStore reports whether a matching entry declares the resource's instance-store
// disks disposable.
func (g Governance) ScratchInstanceStore(r *inventory.Resource) bool {
	return r != nil && g.matches(r, func(e *GovernanceEntry) bool { return e.ScratchInstanceStore })
}

// matches reports whether an entry with a property matches a resource.
func (g Governance) matches(r *inventory.Resource, has func(*GovernanceEntry) bool) bool {
	for i := range g {
		if has(&g[i]) && !g[i].Select.isEmpty() && g[i].Select.match(r) == usage.True {
			return true
		}
	}
	return false
}

// UnmarshalYAML reads the list strictly. Errors are a *document.Error without a file.
func (g *Governance) UnmarshalYAML(n ast.Node) error {
	d := &reader{&document.File{}}
	return d.Items(n, "governance", func(item ast.Node) error {
		var entry GovernanceEntry
		if err := d.governed(item, &entry); err != nil {
			return err
		}
		*g = append(*g, entry)
		return nil
	})
}

func (d *reader) governed(n ast.Node, g *GovernanceEntry) error {
	err := d.selection(n, "an entry of governance", &g.Select,
		document.Optional("reason", "why policies may act on these resources", func(n ast.Node) (err error) {
			g.Reason, err = d.Text(n, "reason")
			return err
		}),
		document.Optional("instance_store",
			"scratch: instance-store disks of these machines hold nothing that matters",
			func(n ast.Node) (err error) { g.ScratchInstanceStore, err = d.scratchOnly(n); return err }))
	if err == nil && g.Select.isEmpty() {
		err = d.At(n,
			"an entry of governance needs at least one value to select by; an empty one would govern everything")
	}
	return err
}
