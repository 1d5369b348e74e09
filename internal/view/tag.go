package view

import (
	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// TagSchema names the shape of a [Tags].
const TagSchema = "curfew.tag/v1"

// Tags are the tags that resources lack, and those that they get.
type Tags struct {
	Schema string `json:"schema"`
	// DryRun reports whether nothing was changed.
	DryRun   bool     `json:"dry_run"`
	Accounts []string `json:"accounts"`
	// Read is how many resources were read.
	Read      int      `json:"resources_read"`
	Resources []Tagged `json:"resources"`
	// BlindSpots are the sources that could not be read, each with its effect.
	BlindSpots []inventory.BlindSpot `json:"blind_spots"`
}

// Tagged is a resource that lacks tags.
type Tagged struct {
	Resource string `json:"resource"`
	Name     string `json:"name,omitempty"`
	// Add are the tags that it gets.
	Add []AddedTag `json:"add"`
	// Left are required tags for which no rule has a value.
	Left []string `json:"left"`
	// State is preview, unread, or the result of the ladder; Item is the id for undo.
	State string `json:"state"`
	Item  string `json:"item,omitempty"`
	Why   string `json:"why,omitempty"`
}

// The states of resources whose tags were not written.
const (
	TagPreview = "preview"
	TagUnread  = "unread"
)

// AddedTag is a tag that a resource gets. Before is null if it has none of this key.
type AddedTag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Before is the earlier value.
	Before *string `json:"before"`
	From   string  `json:"from"`
}

// NewTags makes the document of a pass over tags.
func NewTags(out *round.Result, dryRun bool) Tags {
	lines := map[inventory.Ref]action.Line{}
	for _, l := range out.Lines() {
		lines[l.Resource] = l
	}
	d := Tags{
		TagSchema, dryRun, append([]string{}, out.Accounts...), len(out.Resources), []Tagged{},
		append([]inventory.BlindSpot{}, out.BlindSpots...),
	}
	for _, u := range out.Untagged {
		v := Tagged{
			Resource: u.Resource.Ref().String(), Name: u.Resource.Name, Add: []AddedTag{},
			Left: append([]string{}, u.Left...), State: TagPreview,
		}
		for _, t := range u.Add {
			added := AddedTag{Key: t.Key, Value: t.Value, From: t.Source}
			if t.Empty {
				added.Before = new(string)
			}
			v.Add = append(v.Add, added)
		}
		l, done := lines[u.Resource.Ref()]
		switch {
		case u.Unknown:
			v.State, v.Why = TagUnread, "its tags could not be read"
		case done:
			v.State, v.Item = string(l.Result), l.Item
			if l.Result != action.ResultConfirmed {
				v.Why = l.Why
			}
		}
		d.Resources = append(d.Resources, v)
	}
	return d
}
