package github

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// head is the head commit of the events under testdata.
const head = "827efc6d56897b048c772eb4087f854f46256132"

func payload(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPull(t *testing.T) {
	want := Pull{
		Repository: "acme/train", Number: 7, Head: head, From: "acme/train", Branch: "resnet50", Author: "ana",
	}
	push := payload(t, "pull_request")
	for _, tt := range []struct {
		name           string
		event          string // its name
		body           string
		repo, ref      string
		from, mistaken string // the fork, the error
	}{
		{
			name: "pull_request", event: "pull_request", body: push, repo: "acme/train", ref: "refs/pull/7/merge",
			from: "acme/train",
		},
		{
			name: "pull_request_review", event: "pull_request_review", body: payload(t, "pull_request_review"),
			repo: "acme/train", ref: "refs/pull/7/merge", from: "acme/train",
		},
		{name: "without the environment", event: "pull_request", body: push, from: "acme/train"},
		{
			name: "the repository in other letters", event: "pull_request", body: push, repo: "Acme/Train",
			from: "acme/train",
		},
		{
			name: "a fork", event: "pull_request",
			body: strings.Replace(push, `"full_name": "acme/train"`, `"full_name": "eve/train"`, 1), from: "eve/train",
		},
		{
			name: "a fork that is gone", event: "pull_request",
			body: strings.Replace(push,
				`"repo": {"id": 186853002, "name": "train", "full_name": "acme/train", "private": true, "fork": false, "default_branch": "main"}`, `"repo": null`, 1),
		},
		{
			name: "pull_request_target", event: "pull_request_target", body: push,
			mistaken: "gives secrets to a run for commits that anybody may propose",
		},
		{
			name: "push", event: "push", body: `{"ref":"refs/heads/main"}`,
			mistaken: `a run on "push" is about no pull request`,
		},
		{name: "no name", body: push, mistaken: "GITHUB_EVENT_NAME"},
		{
			name: "another repository", event: "pull_request", body: push, repo: "acme/other",
			mistaken: "GITHUB_REPOSITORY",
		},
		{
			name: "another pull request", event: "pull_request", body: push, ref: "refs/pull/77/merge",
			mistaken: "GITHUB_REF",
		},
		{name: "a branch", event: "pull_request", body: push, ref: "refs/heads/main", mistaken: "GITHUB_REF"},
		{name: "no JSON", event: "pull_request", body: "<html>", mistaken: "not the JSON of pull_request"},
		{name: "empty", event: "pull_request", body: "", mistaken: "not the JSON of pull_request"},
		{
			name: "another event's JSON", event: "pull_request", body: `{"ref":"refs/heads/main"}`,
			mistaken: `repository.full_name is ""`,
		},
		{name: "a number that cannot be", event: "pull_request", body: strings.Replace(push, `"number": 7,
    "state"`, `"number": -7, "state"`, 1), mistaken: "pull_request.number"},
		{
			name: "a repository that is a path", event: "pull_request",
			body: strings.ReplaceAll(push, `"acme/train"`, `"acme/../x/y"`), mistaken: "repository.full_name",
		},
		{
			name: "a commit that is a path", event: "pull_request", body: strings.ReplaceAll(push, head, "../../user"),
			mistaken: "head.sha",
		},
		{
			name: "no author", event: "pull_request", body: strings.ReplaceAll(push, `"login": "ana"`, `"login": ""`),
			mistaken: "user.login",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Workflow{
				EventName: tt.event, Repository: tt.repo, Ref: tt.ref, Event: strings.NewReader(tt.body),
			}.Pull()
			if tt.mistaken != "" {
				if err == nil || !strings.Contains(err.Error(), tt.mistaken) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("Pull = %v, want one line with %q", err, tt.mistaken)
				}
				return
			}
			want := want
			want.From = tt.from
			if err != nil || got != want || got.Fork() != (tt.from != "acme/train") {
				t.Errorf("Pull = %+v, fork %v, %v; want %+v", got, got.Fork(), err, want)
			}
		})
	}
	if _, err := (Workflow{EventName: "pull_request"}).Pull(); err == nil ||
		!strings.Contains(err.Error(), "GITHUB_EVENT_PATH") {
		t.Errorf("without an event: %v", err)
	}
	if _, err := ParseEvent("pull_request", strings.NewReader(strings.Repeat(" ", maxEvent+1))); err == nil ||
		!strings.Contains(err.Error(), "over 25 MB") {
		t.Errorf("a huge event: %v", err)
	}
}

// FuzzParseEvent checks that whatever is read fits into an address as one part of a path, and reads
// the same when it is written out again.
func FuzzParseEvent(f *testing.F) {
	f.Add("pull_request",
		[]byte(`{"pull_request":{"number":7,"user":{"login":"ana"},"head":{"sha":"`+head+
			`","ref":"b","repo":{"full_name":"eve/train"}}},"repository":{"full_name":"acme/train"}}`))
	f.Add("pull_request_review",
		[]byte(`{"pull_request":{"number":7,"user":{"login":"app[bot]"},"head":{"sha":"`+head+
			`","ref":"a/b","repo":null}},"repository":{"full_name":"a/b"}}`))
	f.Add("push", []byte(`{}`))
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		p, err := ParseEvent(name, bytes.NewReader(body))
		if err != nil {
			if p != (Pull{}) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%+v and %q", p, err)
			}
			return
		}
		if p.Number <= 0 || strings.Count(p.Repository, "/") != 1 ||
			strings.ContainsAny(p.Repository+p.From+p.Head+p.Author, "?#% \n") {
			t.Fatalf("%+v", p)
		}
		var e event
		e.Repository.FullName, e.PullRequest.Number, e.PullRequest.User.Login = p.Repository, p.Number, p.Author
		e.PullRequest.Head.SHA, e.PullRequest.Head.Ref = p.Head, p.Branch
		if p.From != "" {
			e.PullRequest.Head.Repo = &struct {
				FullName string `json:"full_name"`
			}{p.From}
		}
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseEvent(name, bytes.NewReader(raw)); err != nil || again != p {
			t.Fatalf("%+v, %v; want %+v", again, err, p)
		}
	})
}
