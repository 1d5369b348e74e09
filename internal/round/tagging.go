package round

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TagSource is the source of a person's proposals to write tags.
const TagSource = "tag:owner"

// Tagging configures the tags that a person wants written on resources that lack them.
type Tagging struct {
	Owners   policy.Owners
	Required []string
	// Tags maps tags to owners.
	Tags inventory.TagMapping
	// Declared are additional tags of resources by a person, besides Owners and Required; nil if
	// there is none.
	Declared map[inventory.Ref]map[string]string
	// Wanted reports whether a resource is included; nil includes all.
	Wanted func(*inventory.Resource) bool
}

// Untagged is a resource that lacks tags.
type Untagged struct {
	Resource *inventory.Resource
	// Add are the tags to write; Left are the required ones without a value from a rule or default.
	Add  []policy.OwnerTag
	Left []string
	// Unknown is set if its tags could not be read, so that nothing is written.
	Unknown bool
}

// untagged finds the resources that lack tags, and proposes to write the known ones. Writing tags
// removes nothing, so the limits of policies do not apply.
func (e *Engine) untagged(r *Result, now time.Time) {
	for _, res := range r.Resources {
		if res.State == inventory.StateDeleting || res.Kind == inventory.KindCommitment || e.Tagging.Wanted != nil &&
			!e.Tagging.Wanted(res) {
			continue
		}
		add, left, known := e.Tagging.Owners.MissingTags(res, e.Tagging.Required, e.Tagging.Tags)
		for _, key := range slices.Sorted(maps.Keys(e.Tagging.Declared[res.Ref()])) {
			if v := e.Tagging.Declared[res.Ref()][key]; res.Tags[key] != v {
				add = append(add, policy.OwnerTag{Key: key, Value: v, Source: "who asked"})
			}
		}
		if known && len(add) == 0 && len(left) == 0 {
			continue
		}
		r.Untagged = append(r.Untagged, Untagged{Resource: res, Add: add, Left: left, Unknown: !known})
		if len(add) == 0 {
			continue
		}
		do := policy.Do{Verb: policy.Tag, Tags: policy.TagValues(add)}
		var because []string
		for _, t := range add {
			because = append(because, t.Key+"="+t.Value+" by "+t.Source)
		}
		r.Proposals = append(r.Proposals, action.Proposal{
			Source: TagSource, Resource: res, Do: do, Mode: policy.Enforce, Governed: true, ByPerson: true,
			Condition: usage.True, ReadAt: now,
			Limits:  policy.Limits{PerHour: math.MaxInt32, Share: 1, DollarsPerHour: math.MaxInt64},
			Class:   policy.ClassState,
			Because: "no tag " + strings.Join(because, ", "), Hourly: e.subjects[res.Ref()].hourly,
		})
	}
}
