package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/snapshot"
)

// Values for filters of lists; texts are ordered by bytes.
var (
	listAccounts = []string{"1", "10", "2", "9"}
	listRegions  = []string{"us-east-1", "US-east-1", "eu-west-1"}
	listKinds    = []inventory.Kind{inventory.KindInstance, inventory.KindVolume}
	listTeams    = []string{"vision", "Vision", "language", "straße", ""}
)

func one[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// maybe returns one of some values or, half of the time, none.
func maybe[T any](r *rand.Rand, from []T) (v T) {
	if r.IntN(2) == 0 {
		v = one(r, from)
	}
	return v
}

// scopeOf generates a scope; inScope evaluates it independently.
func scopeOf(r *rand.Rand) snapshot.Query {
	q := snapshot.Query{
		Account: maybe(r, listAccounts), Region: maybe(r, listRegions), Kind: maybe(r, listKinds), TeamMapping: "m",
		IncludeGone: r.IntN(4) == 0, Limit: maybe(r, []int{1, 3, 10}),
	}
	if r.IntN(2) == 0 {
		q.Teams = []string{}
		for range r.IntN(3) {
			q.Teams = append(q.Teams, strings.ToUpper(one(r, listTeams)))
		}
	}
	return q
}

func inScope(q snapshot.Query, ref inventory.Ref, team string, past bool) bool {
	return (q.Account == "" || q.Account == ref.Account) && (q.Region == "" || q.Region == ref.Region) &&
		(q.Kind == "" || q.Kind == ref.Kind) && (q.IncludeGone || !past) &&
		(q.Teams == nil || slices.ContainsFunc(q.Teams, func(t string) bool { return strings.EqualFold(t, team) }))
}

func atMost[T any](all []T, limit int) []T {
	if limit > 0 && len(all) > limit {
		return all[:limit]
	}
	return all
}

// inventoryOf stores resources in several accounts, each with a finding, half of them deleted, and
// returns them.
func inventoryOf(t *testing.T, b *Backend, r *rand.Rand) (resources []snapshot.Resource, gone map[inventory.Ref]bool) {
	t.Helper()
	gone = map[inventory.Ref]bool{}
	for _, account := range listAccounts {
		var all []snapshot.Part
		for _, region := range listRegions {
			for _, kind := range listKinds {
				all = append(all, snapshot.Part{Region: region, Kind: kind})
			}
		}
		first := snapshot.Observation{Cloud: "aws", Account: account, At: noon, Parts: all, FindingsComplete: true}
		for n := range 20 {
			p := one(r, all)
			res := snapshot.Resource{
				Ref: inventory.Ref{
					Cloud: "aws", Account: account, Region: p.Region, Kind: p.Kind,
					ID: fmt.Sprintf("i-%d", r.IntN(12)),
				}, Name: fmt.Sprintf("name %d", n%7),
				State: "running", Team: one(r, listTeams), TeamMapping: "m", Body: []byte("{}")}
			if slices.ContainsFunc(first.Resources, func(x snapshot.Resource) bool { return x.Ref == res.Ref }) {
				continue
			}
			first.Resources = append(first.Resources, res)
			first.Findings = append(first.Findings, snapshot.Finding{
				ID: fmt.Sprintf("%x", r.Uint64()), Rule: "r", Ref: res.Ref, Team: res.Team, Body: []byte("{}"),
			})
		}
		later := first
		later.At, later.Resources, later.Findings = minute(5), nil, nil
		for i, res := range first.Resources {
			if gone[res.Ref] = r.IntN(2) == 0; !gone[res.Ref] {
				later.Resources, later.Findings = append(later.Resources,
					res), append(later.Findings, first.Findings[i])
			}
		}
		no(t, b.Snapshots.Save(t.Context(), nil, first))
		no(t, b.Snapshots.Save(t.Context(), nil, later))
		resources = append(resources, first.Resources...)
	}
	slices.SortFunc(resources, func(a, b snapshot.Resource) int { return inventory.CompareRefs(a.Ref, b.Ref) })
	return resources, gone
}

func resourcePages(t *testing.T, b *Backend) {
	r := rand.New(rand.NewPCG(1, 2))
	all, gone := inventoryOf(t, b, r)
	refs := func(of []snapshot.Resource) (out []string) {
		for _, x := range of {
			out = append(out, x.Ref.String())
		}
		return out
	}
	for range 300 {
		q := scopeOf(r)
		switch r.IntN(4) {
		case 0:
			q.ID = fmt.Sprintf("i-%d", r.IntN(12))
		case 1:
			q.IDOrName = one(r, []string{"name 3", "name 6", "i-3", "none", "i-\x00"})
		case 2:
			q.Ref = one(r, all).Ref
		}
		if r.IntN(2) == 0 {
			q.After = one(r, all).Ref
			if r.IntN(3) == 0 { // one that never existed
				q.After.ID += "-"
			}
		}
		var want []snapshot.Resource
		for _, x := range all {
			if inScope(q, x.Ref, x.Team, gone[x.Ref]) && (q.ID == "" || q.ID == x.Ref.ID) &&
				(q.IDOrName == "" || q.IDOrName == x.Ref.ID || q.IDOrName == x.Name) &&
				(q.Ref == inventory.Ref{} || q.Ref == x.Ref) &&
				(q.After == inventory.Ref{} || inventory.CompareRefs(x.Ref, q.After) > 0) {
				want = append(want, x)
			}
		}
		got := must(b.Snapshots.Resources(t.Context(), q))(t)
		if diff := cmp.Diff(refs(atMost(want, q.Limit)), refs(got)); diff != "" {
			t.Fatalf("%+v (-want +got):\n%s", q, diff)
		}
		for _, x := range got {
			seen := minute(5)
			if gone[x.Ref] {
				seen = noon
			}
			if !x.SeenAt.Equal(seen) || !x.FirstAt.Equal(noon) || x.GoneAt.IsZero() == gone[x.Ref] || x.Team != "" {
				t.Errorf("%+v is %+v", q, x)
			}
		}
	}
}

func findingPages(t *testing.T, b *Backend) {
	r := rand.New(rand.NewPCG(3, 4))
	resources, gone := inventoryOf(t, b, r)
	team := map[inventory.Ref]string{}
	for _, x := range resources {
		team[x.Ref] = x.Team
	}
	all := must(b.Snapshots.Findings(t.Context(), snapshot.Query{IncludeGone: true}))(t)
	if len(all) != len(resources) || !slices.IsSortedFunc(all, func(a, b snapshot.Finding) int {
		return strings.Compare(a.ID, b.ID)
	}) {
		t.Fatalf("%d findings about %d resources, or not in order", len(all), len(resources))
	}
	ids := func(of []snapshot.Finding) (out []string) {
		for _, x := range of {
			out = append(out, x.ID+" "+x.Ref.String())
		}
		return out
	}
	for range 300 {
		q := scopeOf(r)
		if r.IntN(4) == 0 {
			q.ID = one(r, all).ID
		}
		if r.IntN(2) == 0 {
			q.AfterFinding = one(r, all).ID[:8]
		}
		var want []snapshot.Finding
		for _, x := range all {
			if inScope(q, x.Ref, team[x.Ref], gone[x.Ref]) && (q.ID == "" || q.ID == x.ID) && x.ID > q.AfterFinding {
				want = append(want, x)
			}
		}
		if diff := cmp.Diff(ids(atMost(want, q.Limit)),
			ids(must(b.Snapshots.Findings(t.Context(), q))(t))); diff != "" {
			t.Fatalf("%+v (-want +got):\n%s", q, diff)
		}
	}
}

// otherMapping checks owners derived by an outdated tag mapping: the caller must derive them again,
// until the resource is observed with the new mapping.
func otherMapping(t *testing.T, b *Backend) {
	look := func(minutes int, by string) {
		t.Helper()
		l := lookAt(minutes, []snapshot.Part{instances})
		for id, team := range map[string]string{"i-1": "vision", "i-2": "language"} {
			r := sighted(instances, id, "running")
			r.Team, r.TeamMapping = team, by
			l.Resources = append(l.Resources, r)
		}
		no(t, b.Snapshots.Save(t.Context(), nil, l))
	}
	expect := func(by string, want ...string) {
		t.Helper()
		got := []string{}
		for _, r := range must(b.Snapshots.Resources(t.Context(), snapshot.Query{
			Teams: []string{"VISION"}, TeamMapping: by,
		}))(
			t) {
			got = append(got, r.Ref.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("by the mapping %s (-want +got):\n%s", by, diff)
		}
	}
	look(0, "old")
	expect("old", "i-1")
	expect("new", "i-1", "i-2")
	look(1, "new")
	expect("new", "i-1")
	expect("old", "i-1", "i-2")
}
