package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestTagMapping(t *testing.T) {
	day := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, tc := range []struct {
		name string
		tags map[string]string
		want Resource
		err  bool
	}{
		{name: "unread tags say nothing"},
		{name: "empty tags say nothing", tags: map[string]string{}},
		{
			name: "usual spellings",
			tags: map[string]string{
				"Team": "vision", "PROJECT": "ranking", "Owner": "ana", "Env": "Production", "cost_center": "42",
			},
			want: Resource{
				Owner: Owner{
					Team: "vision", Project: "ranking", User: "ana", Environment: "production", CostCenter: "42",
				},
			},
		},
		{
			name: "the first key of the mapping with a value wins",
			tags: map[string]string{"user": " ", "owner": "ben", "creator": "eve"},
			want: Resource{Owner: Owner{User: "ben"}},
		},
		{
			name: "transient training is ephemeral training",
			tags: map[string]string{"Purpose": "transient-ml-training"},
			want: Resource{Lifetime: Ephemeral, Purpose: Training},
		},
		{
			name: "an explicit lifetime beats the convention",
			tags: map[string]string{"Purpose": "transient-ml-training", "curfew:lifetime": "persistent"},
			want: Resource{Lifetime: Persistent, Purpose: Training},
		},
		{
			name: "an unknown lifetime is unknown and not ephemeral",
			tags: map[string]string{"curfew:lifetime": "ephemral"},
		},
		{
			name: "a mistyped lifetime beats the convention as well",
			tags: map[string]string{"Purpose": "transient-ml-training", "curfew:lifetime": "persistant"},
			want: Resource{Purpose: Training},
		},
		{
			name: "managed only by the word true",
			tags: map[string]string{"curfew:managed": "yes"},
		},
		{
			name: "managed",
			tags: map[string]string{"curfew:managed": "true"},
			want: Resource{Managed: true},
		},
		{
			name: "an idle time",
			tags: map[string]string{"Curfew-Idle": "1h30m"},
			want: Resource{IdleLimit: 90 * time.Minute},
		},
		{
			name: "the longest idle time",
			tags: map[string]string{"curfew:idle": "12h"},
			want: Resource{IdleLimit: MaxIdle},
		},
		{
			name: "an idle time that is too long",
			tags: map[string]string{"curfew:idle": "12h1s"},
		},
		{
			name: "an idle time below zero",
			tags: map[string]string{"curfew:idle": "-1h"},
		},
		{
			name: "an idle time that is none",
			tags: map[string]string{"curfew:idle": "soon"},
		},
		{
			name: "keep until a time",
			tags: map[string]string{"curfew:keep-until": "2026-11-30T12:00:00+02:00"},
			want: Resource{KeepUntil: day("2026-11-30T10:00:00Z")},
		},
		{
			name: "keep through a day everywhere",
			tags: map[string]string{"curfew:keep-until": "2026-11-30"},
			want: Resource{KeepUntil: day("2026-12-01T12:00:00Z")},
		},
		{
			name: "a keep that cannot be read keeps",
			tags: map[string]string{"curfew:keep-until": "next tuesday"},
			want: Resource{KeepUntil: KeepForever},
			err:  true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Resource{Tags: tc.tags}
			err := DefaultTagMapping().Apply(&got)
			tc.want.Tags = tc.tags
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported()); diff != "" {
				t.Errorf("Apply (-want +got):\n%s", diff)
			}
			if (err != nil) != tc.err {
				t.Errorf("Apply: error %v, want one: %v", err, tc.err)
			}
		})
	}
}

// TestAffectsPolicies checks which tags decide what policies may do: every one of curfew's own, but
// those that only describe.
func TestAffectsPolicies(t *testing.T) {
	m := DefaultTagMapping()
	for key, value := range map[string]string{
		TagLifetime: "ephemeral", TagManaged: "true", TagKeepUntil: "never", TagLease: "2026-01-01", TagIdle: "1m",
		TagGang: "run", TagDisks: DisksScratch, TagHold: "h1", "Purpose": "transient-ml-training",
	} {
		if !m.AffectsPolicies(map[string]string{"team": "vision", key: value}) {
			t.Errorf("%s=%s does not decide", key, value)
		}
	}
	if m.AffectsPolicies(map[string]string{
		"team": "vision", TagPurpose: "training", TagDataURI: "s3://b/p", TagManaged: "no",
	}) {
		t.Error("what only describes decides")
	}
}

func TestMissingTags(t *testing.T) {
	r := Resource{Tags: map[string]string{"team": "vision", "Env": "dev", "data-class": "secret"}}
	if err := DefaultTagMapping().Apply(&r); err != nil {
		t.Fatal(err)
	}
	missing, known := r.MissingFields([]string{"team", "project", "environment", "cost-center", "data_class", "zone"})
	if diff := cmp.Diff([]string{"project", "cost-center", "zone"}, missing); !known || diff != "" {
		t.Errorf("Missing, known %v (-want +got):\n%s", known, diff)
	}
	if missing, known := (&Resource{}).MissingFields([]string{"team"}); known || missing != nil {
		t.Errorf("Missing of unread tags = %v, %v; want unknown", missing, known)
	}
}

// TestTagSpellingsAreEquivalent checks that spellings of the usual keys do not affect the owner.
func TestTagSpellingsAreEquivalent(t *testing.T) {
	keys := map[string]func(Owner) string{
		"cost-center": func(o Owner) string { return o.CostCenter },
		"team":        func(o Owner) string { return o.Team },
		"project":     func(o Owner) string { return o.Project },
	}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]string{"cost-center", "team", "project"}).Draw(t, "key")
		spelled := ""
		for _, c := range key {
			switch {
			case c == '-':
				spelled += rapid.SampledFrom([]string{"-", "_", " ", ":", ""}).Draw(t, "separator")
			case rapid.Bool().Draw(t, "upper"):
				spelled += string(c - 'a' + 'A')
			default:
				spelled += string(c)
			}
		}
		r := Resource{Tags: map[string]string{spelled: "x"}}
		if err := DefaultTagMapping().Apply(&r); err != nil || keys[key](r.Owner) != "x" {
			t.Fatalf("tag %q gave owner %+v, %v", spelled, r.Owner, err)
		}
	})
}

func FuzzKeepUntil(f *testing.F) {
	for _, s := range []string{"2026-11-30", "2026-11-30T10:00:00Z", "never", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := Resource{Tags: map[string]string{TagKeepUntil: s}}
		err := DefaultTagMapping().Apply(&r)
		if err != nil && !r.KeepUntil.Equal(KeepForever) {
			t.Fatalf("%q cannot be read and yet keeps only until %s", s, r.KeepUntil)
		}
	})
}

func TestUnknownFactHasNoValue(t *testing.T) {
	var f Fact[bool]
	if v, known := f.Get(); known || v {
		t.Errorf("the zero Fact is %v, known %v; want unknown", v, known)
	}
	if v, known := Known(false).Get(); !known || v {
		t.Errorf("Known(false) is %v, known %v", v, known)
	}
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for _, r := range []Resource{{}, {CreatedAt: now.Add(time.Hour)}} {
		if age, known := r.Age(now); known {
			t.Errorf("age of a resource made at %v = %s, want unknown", r.CreatedAt, age)
		}
	}
}

func TestSortIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "n")
		var inv Inventory
		for range n {
			inv.Resources = append(inv.Resources, &Resource{
				ID:     rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id"),
				Kind:   rapid.SampledFrom([]Kind{KindInstance, KindVolume}).Draw(t, "kind"),
				Region: rapid.SampledFrom([]string{"us-east-1", "eu-west-1"}).Draw(t, "region"),
			})
		}
		inv.Sort()
		for i := 1; i < n; i++ {
			if CompareRefs(inv.Resources[i-1].Ref(), inv.Resources[i].Ref()) > 0 {
				t.Fatalf("%s comes before %s", inv.Resources[i-1].Ref(), inv.Resources[i].Ref())
			}
		}
	})
}
