package policy

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/goccy/go-yaml"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// owned returns a resource with tags and the owner that they name.
func owned(tags map[string]string) *inventory.Resource {
	r := &inventory.Resource{
		ID: "i-1", Name: "vision/train-7", Kind: inventory.KindInstance, Cloud: "aws",
		Account: "1", Region: "us-east-1",
		Tags: tags,
	}
	_ = inventory.DefaultTagMapping().Apply(r)
	return r
}

func TestMissingTags(t *testing.T) {
	required := []string{"team", "project"}
	owners := Owners{
		Rules: OwnerRules{
			{
				Name: "vision/*", Select: Select{Region: []string{"us-east-1"}},
				Set:    map[string]string{"team": "vision"},
				Reason: "ticket 7",
			},
			{Select: Select{Kind: []string{"instance"}}, Set: map[string]string{"team": "language", "stage": "dev"}},
			{Select: Select{Kind: []string{"volume"}}, Set: map[string]string{"project": "disks"}},
		},
		Defaults: map[string]string{"Cost-Center": "4711"},
	}
	cost := OwnerTag{Key: "Cost-Center", Value: "4711", Source: "owners.defaults"}
	dev := OwnerTag{Key: "stage", Value: "dev", Source: "owners.rules[1]"}
	for _, tc := range []struct {
		name string
		tags map[string]string
		add  []OwnerTag
		left []string
	}{
		{
			"nothing is tagged", map[string]string{},
			[]OwnerTag{
				cost, dev, {Key: "team", Value: "vision", Source: "owners.rules[0] (ticket 7)"},
			}, []string{"project"},
		},
		{
			"a value under another key stays", map[string]string{"Squad": "x", "ENV": "prod", "app": "y"},
			[]OwnerTag{cost, dev}, nil,
		},
		{
			"an empty tag gets a value under its own key", map[string]string{
				"Team": " ", "stage": "qa", "cost_center": "1", "project": "p",
			},
			[]OwnerTag{{Key: "Team", Value: "vision", Empty: true, Source: "owners.rules[0] (ticket 7)"}}, nil},
		{
			"everything is tagged", map[string]string{"team": "a", "project": "b", "stage": "c", "cost-center": "d"},
			nil, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			add, left, known := owners.MissingTags(owned(tc.tags), required, inventory.DefaultTagMapping())
			if diff := cmp.Diff(tc.add, add); diff != "" || !known {
				t.Errorf("known: %v, tags (-want +got):\n%s", known, diff)
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
	if add, left, known := owners.MissingTags(owned(nil), required, inventory.DefaultTagMapping()); known ||
		add != nil ||
		left != nil {
		t.Errorf("unreadable tags: add %v, left %v, known %v", add, left, known)
	}
}

// TestTagValues checks the map by key; it is nil for no tags.
func TestTagValues(t *testing.T) {
	if got := TagValues(nil); got != nil {
		t.Errorf("of no tags: %v", got)
	}
	got := TagValues([]OwnerTag{{Key: "team", Value: "vision"}, {Key: "stage", Value: "dev"}})
	if want := map[string]string{"team": "vision", "stage": "dev"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestOwnersKeepExistingValues checks for any rules and tags that no value is replaced, no tag is
// written twice, and afterwards only the reported tags are missing.
func TestOwnersKeepExistingValues(t *testing.T) {
	keys := []string{"team", "Team", "squad", "group", "project", "env", "Cost-Center", "note"}
	some := rapid.MapOf(rapid.SampledFrom(keys), rapid.SampledFrom([]string{"", " ", "a", "b"}))
	values := rapid.MapOf(rapid.SampledFrom(keys), rapid.SampledFrom([]string{"x", "y"}))
	rapid.Check(t, func(t *rapid.T) {
		before := some.Draw(t, "tags")
		owners := Owners{
			Rules: OwnerRules{{Name: "*", Set: values.Draw(t, "rule")}}, Defaults: values.Draw(t, "defaults"),
		}
		r := owned(maps.Clone(before))
		add, left, _ := owners.MissingTags(r, []string{"team", "project"}, inventory.DefaultTagMapping())
		after := maps.Clone(before)
		for _, tag := range add {
			if strings.TrimSpace(after[tag.Key]) != "" {
				t.Fatalf("%s was %q and becomes %q", tag.Key, after[tag.Key], tag.Value)
			}
			after[tag.Key] = tag.Value
		}
		again, still, _ := owners.MissingTags(owned(after), []string{"team", "project"}, inventory.DefaultTagMapping())
		if now := owned(after).Owner; !extends(now, r.Owner) {
			t.Fatalf("the owner was %+v and becomes %+v", r.Owner, now)
		}
		if len(again) > 0 || cmp.Diff(left, still) != "" {
			t.Fatalf("after %v: %v is added again, and %v is left, it was %v", add, again, still, left)
		}
	})
}

func TestValidateOwners(t *testing.T) {
	for key, value := range map[string]string{
		"aws:team": "x", "": "x", strings.Repeat("k", 129): "x", "team": " ", "project": strings.Repeat("v", 257),
		inventory.TagManaged: "true", inventory.TagLifetime: "ephemeral", "Purpose": "transient-ml-training",
		inventory.TagKeepUntil: "2030-01-01",
		"curfew_lease_until":   "2030-01-01", inventory.TagHold: "h", inventory.TagGang: "g",
	} {
		if where, err := (Owners{
			Defaults: map[string]string{key: value},
		}).Validate(inventory.DefaultTagMapping()); err ==
			nil || where != "defaults" {
			t.Errorf("%q=%q: %v at %s, want a mistake", key, value, err, where)
		}
	}
	mapping := inventory.DefaultTagMapping()
	mapping.Team = []string{"squad"}
	rules := Owners{
		Rules: OwnerRules{
			{Name: "a", Set: map[string]string{"squad": "x"}}, {Name: "b", Set: map[string]string{"team": "x"}},
		},
	}
	if where, err := rules.Validate(mapping); err == nil || where != "rules[1].set" ||
		!strings.Contains(err.Error(), "tags.team") {
		t.Errorf("a key that names no person: %v at %s", err, where)
	}
	if _, err := rules.Validate(inventory.DefaultTagMapping()); err != nil {
		t.Errorf("usual keys: %v", err)
	}
}

func TestRejectsInvalidOwnerRules(t *testing.T) {
	for src, want := range map[string]string{
		"- {name: a, set: {team: x}}":                                      "",
		"- {region: [us-east-1], kind: volume, set: {team: x}, reason: r}": "",
		"- {set: {team: x}}":                                               "needs a name or a value",
		"- {name: a}":                                                      "needs set",
		"- {name: a, sets: {team: x}}":                                     `no key "sets"`,
		"- {name: a, set: {}}":                                             "tags are empty",
		"- {name: '[', set: {team: x}}":                                    "is not a pattern",
		"- {kind: instnace, set: {team: x}}":                               "does not exist",
	} {
		var rules OwnerRules
		err := yaml.Unmarshal([]byte(src), &rules)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", src, err, want)
		}
	}
}
