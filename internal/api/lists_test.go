package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// item has the fields of a resource or finding that lists are filtered by.
type item struct {
	ID, Kind, Account, Region, Team string
}

// items parses a list of resources or findings.
func items(t *testing.T, body string) []item {
	t.Helper()
	var doc struct {
		Resources []struct {
			ID, Kind, Account, Region string
			Owner                     struct{ Team string }
		}
		Findings []struct {
			ID       string
			Resource struct {
				Kind, Account, Region string
				Owner                 struct{ Team string }
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	var out []item
	for _, r := range doc.Resources {
		out = append(out, item{r.ID, r.Kind, r.Account, r.Region, r.Owner.Team})
	}
	for _, f := range doc.Findings {
		out = append(out, item{f.ID, f.Resource.Kind, f.Resource.Account, f.Resource.Region, f.Resource.Owner.Team})
	}
	return out
}

// TestFilteredLists compares every filter of resources and findings, in pages of any size, with a
// plain filter over the whole list, for callers who may see everything or one team. A hidden
// resource is not a valid cursor either.
func TestFilteredLists(t *testing.T) {
	yaml := settings + "serve: {skip_audits: true}\n"
	s := start(t, yaml, true, nil)
	s.curfew("scan", "--demo", "--quiet")
	for _, path := range []string{"/api/v1/resources", "/api/v1/findings"} {
		whole := items(t, s.call("ada", "GET", path+"?limit=1000", "").body)
		values := map[string][]string{"kind": nil, "account": nil, "region": nil, "team": nil}
		for _, i := range whole {
			for name, v := range map[string]string{
				"kind": i.Kind, "account": i.Account, "region": i.Region, "team": i.Team,
			} {
				if !slices.Contains(values[name], v) {
					values[name] = append(values[name], v)
				}
			}
		}
		if len(whole) < 10 || len(values["kind"]) < 2 || len(values["team"]) < 3 {
			t.Fatalf("%s has too little to tell: %d items of %v", path, len(whole), values)
		}
		queries := []url.Values{{}}
		for name, all := range values {
			for _, v := range append(all, "none") {
				if v != "" {
					queries = append(queries, url.Values{
						name: {v},
					}, url.Values{name: {v}, "kind": {values["kind"][0]}})
				}
			}
		}
		for who, sees := range map[string]func(team string) bool{"ada": func(string) bool {
			return true
		}, "vera": func(team string) bool { return strings.EqualFold(team, "vision") }} {
			for _, q := range queries {
				want := []string{}
				for _, i := range whole {
					takes := func(name, has string) bool { return q.Get(name) == "" || q.Get(name) == has }
					if sees(i.Team) && takes("kind", i.Kind) && takes("account", i.Account) &&
						takes("region", i.Region) &&
						takes("team", i.Team) {
						want = append(want, i.ID)
					}
				}
				for _, limit := range []int{1, 7, 1000} {
					if limit == 1 && len(want) > 12 {
						continue
					}
					got := []string{}
					q.Set("limit", fmt.Sprint(limit))
					next := path + "?" + q.Encode()
					for next != "" {
						page := s.call(who, "GET", next, "")
						if page.status != 200 {
							t.Fatalf("%s: %d %s", next, page.status, page.body)
						}
						of := items(t, page.body)
						if len(of) > limit || page.header.Get("ETag") == "" {
							t.Errorf("%s: %d items with the tag %q", next, len(of), page.header.Get("ETag"))
						}
						for _, i := range of {
							got = append(got, i.ID)
						}
						link, _, _ := strings.Cut(strings.TrimPrefix(page.header.Get("Link"), "<"), ">")
						next = link
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("%s %s?%s (-want +got):\n%s", who, path, q.Encode(), diff)
					}
				}
			}
		}
		for _, i := range whole {
			want := 410
			if strings.EqualFold(i.Team, "vision") {
				want = 200
			}
			cursor := base64.RawURLEncoding.EncodeToString([]byte(i.ID))
			if got := s.call("vera", "GET", path+"?cursor="+cursor, ""); got.status != want {
				t.Errorf("vera begins after %s of %q: %d", i.ID, i.Team, got.status)
			}
			want = 404
			if strings.EqualFold(i.Team, "vision") {
				want = 200
			}
			if got := s.call("vera", "GET", path+"/"+url.PathEscape(i.ID), ""); got.status != want {
				t.Errorf("vera looks at %s of %q: %d", i.ID, i.Team, got.status)
			}
		}
		for _, none := range []string{"none", "aws/1/us-east-1/instance/none", whole[0].ID + "x", "a\x00b", "\xff"} {
			if got := s.call("ada", "GET", path+"?cursor="+base64.RawURLEncoding.EncodeToString([]byte(none)),
				""); got.status != 410 || got.code() != "cursor_gone" {
				t.Errorf("after %q: %d %s", none, got.status, got.body)
			}
		}
	}
}
