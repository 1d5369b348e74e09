package policy

import (
	"maps"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Governance is the section of the configuration that says which resources policies may
// act on. What no entry matches needs the tag curfew:managed=true; what a policy selects
// is not governed by that. Empty, it governs nothing.
type Governance []Governed

// Governed is one entry: resources, and why policies may act on them.
type Governed struct {
	Select Select
	Reason string
	// ScratchInstanceStore declares that the instance-store disks of these machines hold
	// nothing that matters (instance_store: scratch).
	ScratchInstanceStore bool
}

// Governs says whether policies may act on a resource: it carries curfew:managed=true,
// or an entry matches it. What is not known of it does not match.
func (g Governance) Governs(r *inventory.Resource) bool {
	return r != nil && (r.Managed || g.matches(r, func(*Governed) bool { return true }))
}

// Tags are the tags by which a cloud's permissions can tell what the entries govern: each
// element is true of a resource that has all of its tags ("*" is any value). They are never
// narrower than the entries, given the keys by which a lifetime is known: policies act only
// on what is ephemeral, so that this tag is enough where an entry names no tags.
func (g Governance) Tags(lifetime []string) []map[string]string {
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

// ScratchInstanceStore says whether an entry that matches a resource declares its
// instance-store disks to hold nothing that matters.
func (g Governance) ScratchInstanceStore(r *inventory.Resource) bool {
	return r != nil && g.matches(r, func(e *Governed) bool { return e.ScratchInstanceStore })
}

// matches says whether an entry that has something matches a resource.
func (g Governance) matches(r *inventory.Resource, has func(*Governed) bool) bool {
	for i := range g {
		if has(&g[i]) && !g[i].Select.isEmpty() && g[i].Select.match(r) == usage.True {
			return true
		}
	}
	return false
}

// UnmarshalYAML reads the list strictly. Mistakes are a *document.Error without a file.
func (g *Governance) UnmarshalYAML(n ast.Node) error {
	d := &reader{&document.File{}}
	return d.Items(n, "governance", func(item ast.Node) error {
		var entry Governed
		if err := d.governed(item, &entry); err != nil {
			return err
		}
		*g = append(*g, entry)
		return nil
	})
}

func (d *reader) governed(n ast.Node, g *Governed) error {
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
