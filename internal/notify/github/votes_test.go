package github

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

const old = "6dcb09b5b57875f334f61aebed695e2e4193db5e"

// people: bo approves under a name of curfew's, cy by the login, members of a team.
func people() People {
	return People{
		Identities: map[string]string{"bo": "bo@acme.example", "Ana-Home": "ana", "ana": "ana"},
		Approvers: map[string][]string{"bo@acme.example": {"approver"}, "github:cy": {"approver", "finance"},
			"github-team:acme/leads": {"approver"}, "ana": {"approver"}},
	}
}

// say is "login: +" for an approval, "-" for changes, and ": why" for those aside.
func summary(b Ballot) string {
	var s []string
	for _, v := range b.Votes {
		sign := "-"
		if v.Allow {
			sign = "+"
		}
		s = append(s, v.Login+" "+sign+" "+v.By.Name+" "+strings.Join(v.By.Roles, ","))
	}
	for _, a := range b.Aside {
		s = append(s, a.Login+": "+a.Why)
	}
	return strings.Join(s, "\n")
}

func TestVotes(t *testing.T) {
	const (
		wrote = "opened the pull request, or wrote, committed or pushed some of it"
		stale = "the review is of another commit than 827efc6d5689"
	)
	for _, tt := range []struct {
		name    string
		set     func(*hub)
		reviews []review
		want    string
	}{
		{"no reviews", nil, nil, ""},
		{"an approver", nil, []review{{"bo", "APPROVED", head, "", 0, ""}}, "bo + bo@acme.example approver"},
		{
			"an approver by login, in other letters", nil, []review{{"Cy", "APPROVED", head, "", 0, ""}},
			"Cy + github:cy approver,finance",
		},
		{
			"changes are requested", nil, []review{{"bo", "CHANGES_REQUESTED", head, "", 0, ""}},
			"bo - bo@acme.example approver",
		},
		{"only a comment", nil, []review{{"bo", "COMMENTED", head, "", 0, ""}}, ""},
		{"not sent yet", nil, []review{{"bo", "PENDING", head, "", 0, ""}}, ""},
		{"a state that is not documented", nil, []review{{"bo", "LOOKS_GOOD", head, "", 0, ""}}, ""},
		{
			"a comment takes nothing back", nil,
			[]review{{"bo", "APPROVED", head, "", 0, ""}, {"bo", "COMMENTED", head, "", time.Hour, ""}},
			"bo + bo@acme.example approver",
		},
		{
			"the latest counts", nil,
			[]review{{"bo", "APPROVED", head, "", 0, ""}, {"bo", "CHANGES_REQUESTED", head, "", time.Hour, ""}},
			"bo - bo@acme.example approver",
		},
		{
			"the latest by time, not by place", nil,
			[]review{{"bo", "CHANGES_REQUESTED", head, "", time.Hour, ""}, {"bo", "APPROVED", head, "", 0, ""}},
			"bo - bo@acme.example approver",
		},
		{
			"changed to an approval", nil,
			[]review{{"bo", "CHANGES_REQUESTED", head, "", 0, ""}, {"bo", "APPROVED", head, "", time.Hour, ""}},
			"bo + bo@acme.example approver",
		},
		{"dismissed", nil, []review{{"bo", "DISMISSED", head, "", 0, ""}}, "bo: the review was dismissed"},
		{
			"a dismissed one does not bring back the one before", nil,
			[]review{{"bo", "APPROVED", head, "", 0, ""}, {"bo", "DISMISSED", head, "", time.Hour, ""}},
			"bo: the review was dismissed",
		},
		{"of an older commit", nil, []review{{"bo", "APPROVED", old, "", 0, ""}}, "bo: " + stale},
		{
			"of an older commit, after one of the head", nil,
			[]review{{"bo", "APPROVED", head, "", 0, ""}, {"bo", "CHANGES_REQUESTED", old, "", time.Hour, ""}},
			"bo: " + stale,
		},
		{"of no commit", nil, []review{{"bo", "APPROVED", "", "", 0, ""}}, "bo: " + stale},
		{"no approver", nil, []review{{"dee", "APPROVED", head, "", 0, ""}}, "dee: is no approver"},
		{
			"a login like an approver's name", nil, []review{{"bo-acme", "APPROVED", head, "", 0, ""}},
			"bo-acme: is no approver",
		},
		{"a robot", nil, []review{{"cy", "APPROVED", head, "Bot", 0, ""}}, "cy: is not a person"},
		{"an organization", nil, []review{{"cy", "APPROVED", head, "Organization", 0, ""}}, "cy: is not a person"},
		{
			"an account that was taken over from elsewhere", nil, []review{
				{"cy", "APPROVED", head, "Mannequin", 0, ""},
			},
			"cy: is not a person",
		},
		{
			"a robot with the login of an approver", nil, []review{{"cy[bot]", "APPROVED", head, "Bot", 0, ""}},
			"cy[bot]: is not a person",
		},
		{"an approver in letters that look alike", nil, []review{{"сy", "APPROVED", head, "", 0, ""}}, ""},
		{"an unknown reviewer", nil, []review{{"", "APPROVED", head, "", 0, ""}}, ""},
		{"the author", nil, []review{{"ana", "APPROVED", head, "", 0, ""}}, "ana: " + wrote},
		{"the author, in other letters", nil, []review{{"ANA", "APPROVED", head, "", 0, ""}}, "ANA: " + wrote},
		{
			"the author under another login", nil, []review{{"ana-home", "APPROVED", head, "", 0, ""}},
			"ana-home: " + wrote,
		},
		{"a login that is the approver's own name elsewhere", func(h *hub) {
			h.commits[0].committer = "bo@acme.example"
		}, []review{{"bo", "APPROVED", head, "", 0, ""}}, "bo: " + wrote},
		{"who wrote a commit", func(h *hub) {
			h.commits[0].author = "bo"
		}, []review{{"bo", "APPROVED", head, "", 0, ""}}, "bo: " + wrote},
		{"who wrote a commit on the second page", func(h *hub) {
			h.commits = append(h.commits, person{"bo", "web-flow"})
		},
			[]review{{"bo", "APPROVED", head, "", 0, ""}}, "bo: " + wrote},
		{"who committed", func(h *hub) {
			h.commits[0].committer = "bo"
		}, []review{{"bo", "APPROVED", head, "", 0, ""}}, "bo: " + wrote},
		{"who pushed the head", func(h *hub) {
			h.activity = []push{{head, "bo"}}
		}, []review{{"bo", "APPROVED", head, "", 0, ""}}, "bo: " + wrote},
		{"who pushed an earlier commit, on the second page", func(h *hub) {
			h.activity = []push{{head, "ana"}, {old, "cy"}, {strings.Repeat("0", 40), "bo"}}
		}, []review{{"bo", "APPROVED", head, "", 0, ""}, {"cy", "APPROVED", head, "", 0, ""}},
			"cy + github:cy approver,finance\nbo: " + wrote},
		{"a commit whose author GitHub does not know", func(h *hub) {
			h.commits[0] = person{}
		}, []review{{"bo", "APPROVED", head, "", 0, ""}}, "bo + bo@acme.example approver"},
		{"a member of the team", func(h *hub) {
			h.members["acme/leads/eli"] = "active"
		}, []review{{"eli", "APPROVED", head, "", 0, ""}}, "eli + github:eli approver"},
		{"invited to the team", func(h *hub) {
			h.members["acme/leads/eli"] = "pending"
		}, []review{{"eli", "APPROVED", head, "", 0, ""}}, "eli: is no approver"},
		{"a member of another team", func(h *hub) {
			h.members["acme/all/eli"] = "active"
		}, []review{{"eli", "APPROVED", head, "", 0, ""}}, "eli: is no approver"},
		{
			"three pages", nil, []review{
				{"dee", "APPROVED", head, "", 0, ""}, {"dee", "APPROVED", head, "", 1, ""},
				{"dee", "COMMENTED", head, "", 2, ""},
				{"cy", "CHANGES_REQUESTED", head, "", time.Hour, ""}, {"bo", "APPROVED", head, "", 2 * time.Hour, ""}},
			"cy - github:cy approver,finance\nbo + bo@acme.example approver\ndee: is no approver"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			h.reviews = tt.reviews
			if tt.set != nil {
				tt.set(h)
			}
			c, _ := h.client(t)
			b, err := c.Votes(t.Context(), people())
			if got := summary(b); err != nil || got != tt.want {
				t.Errorf("Votes = %v\n%s\nwant\n%s", err, got, tt.want)
			}
		})
	}
}

func TestVoteIsShownWhole(t *testing.T) {
	h := newHub(t)
	h.reviews = []review{{"bo", "APPROVED", head, "", time.Minute, ""}}
	c, _ := h.client(t)
	b, err := c.Votes(t.Context(), people())
	if err != nil {
		t.Fatal(err)
	}
	want := Vote{
		Login: "bo", Allow: true, At: time.Date(2026, 11, 20, 12, 1, 0, 0, time.UTC),
		URL: "https://github.com/acme/train/pull/7#pullrequestreview-80", Text: "Here is the body for the review.",
	}
	want.By.Name, want.By.Roles = "bo@acme.example", []string{"approver"}
	if !reflect.DeepEqual(b.Votes, []Vote{want}) {
		t.Errorf("Votes = %+v; want %+v", b.Votes, want)
	}
}

// TestEditedReviewNamesNoRequest checks edited reviews: whoever may write to the repository can
// insert the line of an approval into the review of another person. Such a review only counts for
// the commits.
func TestEditedReviewNamesNoRequest(t *testing.T) {
	const line = "curfew approve 4f1c"
	for _, tt := range []struct {
		name   string
		text   string
		edited bool
		want   string // of the vote
		aside  string
		asked  int
	}{
		{"as it was sent", line, false, line, "", 1},
		{
			"edited", line, true, "",
			"bo: its text was edited after it was sent, so it names no request; send a new review",
			1,
		},
		{"edited, and names nothing", "LGTM", true, "LGTM", "", 0},
	} {
		h := newHub(t)
		h.reviews = []review{{"bo", "APPROVED", head, "", 0, tt.text}}
		h.edited = map[int]bool{0: tt.edited}
		c, _ := h.client(t)
		b, err := c.Votes(t.Context(), people())
		if err != nil || len(b.Votes) != 1 || b.Votes[0].Text != tt.want {
			t.Errorf("%s: %+v, %v", tt.name, b.Votes, err)
			continue
		}
		b.Votes = nil
		if got := summary(b); got != tt.aside || h.made("POST /graphql") != tt.asked {
			t.Errorf("%s: %q after %d questions", tt.name, got, h.made("POST /graphql"))
		}
	}
	for name, answer := range map[string]any{
		"an error": map[string]any{"errors": []any{map[string]any{"message": "Resource not accessible"}}},
		"nothing":  map[string]any{"data": map[string]any{"node": nil}},
		"another review": map[string]any{
			"data": map[string]any{"node": map[string]any{"id": "PRR_9", "lastEditedAt": nil}},
		},
		"another thing": map[string]any{"data": map[string]any{"node": map[string]any{}}},
	} {
		h := newHub(t)
		h.reviews = []review{{"bo", "APPROVED", head, "", 0, line}}
		h.faults = []fault{
			{"POST", "/graphql", func(w http.ResponseWriter, _ *http.Request) { say(w, 200, answer) }, false},
		}
		c, _ := h.client(t)
		if b, err := c.Votes(t.Context(), people()); err == nil || len(b.Votes) > 0 ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", name, b.Votes, err)
		}
	}
}

// TestEditsAtEnterpriseServer checks that GraphQL is next to the REST API there.
func TestEditsAtEnterpriseServer(t *testing.T) {
	h := newHub(t)
	h.reviews = []review{{"bo", "APPROVED", head, "", 0, "curfew approve 4f1c"}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, isREST := strings.CutPrefix(r.URL.Path, "/api/v3")
		if !isREST && r.URL.Path != "/api/graphql" {
			refuse(404, "Not Found")(w, r)
			return
		}
		if r.URL.Path = rest; !isREST {
			r.URL.Path = "/graphql"
		}
		h.ServeHTTP(w, r)
	}))
	defer front.Close()
	c, err := New(Options{
		URL: front.URL + "/api/v3", Token: token,
	}, Pull{Repository: "acme/train", Number: 7, Head: head, From: "acme/train", Branch: "resnet50", Author: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := c.Votes(t.Context(), people()); err != nil || len(b.Votes) != 1 || b.Votes[0].Text == "" {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestUnknownIsNoVote checks that missing data from GitHub never counts as a vote.
func TestUnknownIsNoVote(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*hub, *Pull)
		want string
	}{
		{"the head has moved", func(h *hub, _ *Pull) {
			h.head = old
		}, "the pull request has moved on: its head is 6dcb09b5b578, and this run checked 827efc6d5689"},
		{"more commits than are listed", func(h *hub, _ *Pull) { h.total = 251 }, "GitHub lists 2 of its 251 commits"},
		{"no commits", func(h *hub, _ *Pull) { h.commits = nil }, "GitHub lists 0 of its 0 commits"},
		{"no push of the head", func(h *hub, _ *Pull) {
			h.activity = []push{{old, "ana"}}
		}, "does not say who pushed 827efc6d5689"},
		{"only an earlier commit has a known push", func(h *hub, _ *Pull) {
			h.activity = []push{{strings.Repeat("0", 40), "ana"}}
		}, "does not say who pushed 827efc6d5689"},
		{"an unknown login pushed it", func(h *hub, _ *Pull) {
			h.activity = []push{{head, ""}}
		}, "does not say who pushed"},
		{"an unknown login pushed a part of it", func(h *hub, _ *Pull) {
			h.activity = []push{{head, "ana"}, {strings.Repeat("0", 40), ""}}
		}, "does not say who pushed"},
		{"its fork is gone", func(_ *hub, p *Pull) { p.From = "" }, "does not say who pushed"},
		{"the activity may not be read", func(h *hub, _ *Pull) {
			h.faults = []fault{{"GET", "/activity", refuse(403, "Resource not accessible by integration"), false}}
		}, "403 Forbidden: Resource not accessible by integration (give the job the permissions"},
		{"the team may not be read", func(h *hub, _ *Pull) {
			h.faults = []fault{{"GET", "/orgs/", refuse(403, "Must have admin rights"), false}}
		}, "look up whether bo is in acme/leads"},
		{"the reviews may not be read", func(h *hub, _ *Pull) {
			h.faults = []fault{{"GET", "/reviews", refuse(404, "Not Found"), false}}
		}, "404 Not Found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			h.reviews = []review{{"bo", "APPROVED", head, "", 0, ""}}
			p := Pull{
				Repository: "acme/train", Number: 7, Head: head, From: "acme/train", Branch: "resnet50", Author: "ana",
			}
			tt.set(h, &p)
			c, _ := h.clientOf(t, p)
			b, err := c.Votes(t.Context(), people())
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") ||
				len(b.Votes) > 0 {
				t.Errorf("Votes = %s, %v; want one line with %q", summary(b), err, tt.want)
			}
			if moved := tt.name == "the head has moved"; errors.Is(err, ErrMoved) != moved {
				t.Errorf("Votes = %v, ErrMoved %v", err, !moved)
			}
		})
	}
}

func TestPeople(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    People
		ok   bool
	}{
		{"empty", People{}, true},
		{"all forms", people(), true},
		{"a team without an organization", People{Approvers: map[string][]string{"github-team:leads": nil}}, false},
		{"a team that is a path", People{Approvers: map[string][]string{"github-team:acme/../x": nil}}, false},
		{"a login twice", People{Identities: map[string]string{"Bo": "a", "bo": "b"}}, false},
		{"no login", People{Identities: map[string]string{"bo@acme.example": "bo"}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.p.Validate(); (err == nil) != tt.ok {
				t.Errorf("Validate = %v", err)
			}
		})
	}
	if got := people().Name("Zoe"); got != "github:zoe" {
		t.Errorf("Name = %q", got)
	}
}
