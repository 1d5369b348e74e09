package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/notify"
)

func report() Report {
	p50, p95, hourly := 231*money.USD, 412*money.USD+80*money.Cent, 32*money.USD+77*money.Cent
	return Report{
		Key: "jobs/resnet50.yaml", Subject: "job resnet50", Decision: "ask",
		Reasons: []string{"p95 is $412.80, over the $100 that pass by themselves"},
		P50:     &p50, P95: &p95, Hourly: &hourly,
		Lines: []Line{
			{
				"p4d.24xlarge on spot in us-east-1", "12 h", "$32.77", 231 * money.USD, 393 * money.USD,
				"AWS price list, 2026-11-01",
			},
			{"restarts", "2", "$9.90", 0, 19*money.USD + 80*money.Cent, "5% an hour, assumed"},
		},
		Assumptions: []string{"checkpoints every 10m"},
		Unknown:     []string{"egress of s3://datasets/imagenet: its size is not known"},
		Budgets: []Budget{
			{"vision | training", 3100 * money.USD, 3512*money.USD + 80*money.Cent, 5000 * money.USD},
		},
		Approval: "4f1c22aa90b1", Limit: 412*money.USD + 80*money.Cent,
		Until: time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC),
	}
}

const said = `<!-- curfew-gate 940c23d638101503 -->
**curfew: ` + "`job resnet50`" + ` waits for an approval** at ` + "`827efc6d5689`" + `: it costs **$231.00** to **$412.80** (p50 to p95), $32.77 an hour; an approver approves this pull request, or runs ` + "`curfew approve 4f1c22aa90b1`" + `, by Sat 21 Nov 2026, 14:00 UTC.

| budget | before | after | of |
| --- | ---: | ---: | ---: |
| ` + "`vision ¦ training`" + ` | $3,100.00 | $3,512.80 | $5,000.00 |

<details><summary>reasons, 1 unknown, estimate, what to do</summary>

Reasons:

- ` + "`p95 is $412.80, over the $100 that pass by themselves`" + `

Unknown, not counted:

- ` + "`egress of s3://datasets/imagenet: its size is not known`" + `

| what | quantity | unit price | p50 | p95 | source |
| --- | ---: | ---: | ---: | ---: | --- |
| ` + "`p4d.24xlarge on spot in us-east-1` | `12 h` | `$32.77` | $231.00 | $393.00 | `AWS price list, 2026-11-01`" + ` |
| ` + "`restarts` | `2` | `$9.90` | $0.00 | $19.80 | `5% an hour, assumed`" + ` |

Assumed:

- ` + "`checkpoints every 10m`" + `

The approver wrote none of this pull request, and is named in the configuration. After the approval this check is run again. It allows exactly this, once, for at most $412.80.

File: ` + "`jobs/resnet50.yaml`" + `

</details>
`

func TestMarkdown(t *testing.T) {
	if got := report().markdown(head); got != said {
		t.Errorf("got\n%s\nwant\n%s", got, said)
	}
	for _, tt := range []struct{ decision, want string }{
		{"allow", "**curfew: `job resnet50` is allowed** at `827efc6d5689`: it costs"},
		{"deny", "is denied** at `827efc6d5689`: it costs **$231.00** to **$412.80** (p50 to p95), $32.77 an hour; `p95 is $412.80, over the $100 that pass by themselves`.\n"},
		{"deny", "Nothing starts."},
		{"", "**curfew: `job resnet50` is undecided**"},
	} {
		r := report()
		r.Decision = tt.decision
		if got := r.markdown(head); !strings.Contains(got, tt.want) || strings.Contains(got, "curfew approve") {
			t.Errorf("%q says\n%s\nwant %q and no way to approve", tt.decision, got, tt.want)
		}
	}
	r := report()
	r.P50, r.P95 = nil, nil
	if got := r.markdown(head); !strings.Contains(got, "the cost is **not known**") {
		t.Errorf("an unknown estimate says\n%s", got)
	}
}

func TestComment(t *testing.T) {
	other := report()
	other.Key = "jobs/bert.yaml"
	mark := report().marker()
	const someone = "https://github.com/acme/train/pull/7#issuecomment-"
	for _, tt := range []struct {
		name  string
		set   func(*hub)
		calls string // mutating calls
		want  []comment
	}{
		{"the first", nil, "POST", []comment{{101, "curfew-bot", said}}},
		{"edited in place", func(h *hub) {
			h.comments = []comment{{5, "curfew-bot", mark + "\nold"}}
		}, "PATCH", []comment{{5, "curfew-bot", said}}},
		{"the same again", func(h *hub) {
			h.comments = []comment{{5, "curfew-bot", said}}
		}, "", []comment{{5, "curfew-bot", said}}},
		{"found on the second page", func(h *hub) {
			h.comments = []comment{
				{1, "ana", "hi"}, {2, "bo", "ho"}, {3, "ana", "hm"}, {4, "curfew-bot", mark + "\r\nold"},
			}
		}, "PATCH", []comment{{1, "ana", "hi"}, {2, "bo", "ho"}, {3, "ana", "hm"}, {4, "curfew-bot", said}}},
		{"another author's with the marker", func(h *hub) {
			h.comments = []comment{{5, "eve", mark + "\nallowed!"}}
		}, "POST",
			[]comment{{5, "eve", mark + "\nallowed!"}, {101, "curfew-bot", said}}},
		{"one's own that quotes the marker", func(h *hub) {
			h.comments = []comment{{5, "curfew-bot", "see\n" + mark}}
		}, "POST",
			[]comment{{5, "curfew-bot", "see\n" + mark}, {101, "curfew-bot", said}}},
		{"another file's", func(h *hub) { h.comments = []comment{{5, "curfew-bot", other.markdown(head)}} }, "POST",
			[]comment{{5, "curfew-bot", other.markdown(head)}, {101, "curfew-bot", said}}},
		{"surplus ones of an earlier race", func(h *hub) {
			h.comments = []comment{
				{5, "curfew-bot", mark + "\nold"}, {6, "curfew-bot", mark + "\nold"}, {7, "ana", "hi"},
				{8, "curfew-bot", said},
			}
		}, "PATCH DELETE DELETE", []comment{{5, "curfew-bot", said}, {7, "ana", "hi"}}},
		{"a workflow's token", func(h *hub) {
			h.login = ""
			h.comments = []comment{{5, "github-actions[bot]", mark + "\nold"}}
		}, "PATCH",
			[]comment{{5, "github-actions[bot]", said}}},
		{"another app's token finds out who it is", func(h *hub) {
			h.login, h.writes = "", "acme-ci[bot]"
			h.comments = []comment{{5, "acme-ci[bot]", mark + "\nold"}}
		}, "POST PATCH DELETE", []comment{{5, "acme-ci[bot]", said}}},
		{"written, but the server failed", func(h *hub) {
			h.faults = []fault{{"POST", "/comments", refuse(502, "Server Error"), true}}
		}, "POST",
			[]comment{{101, "curfew-bot", said}}},
		{"not written, and the server failed", func(h *hub) {
			h.faults = []fault{{"POST", "/comments", refuse(502, "Server Error"), false}}
		}, "POST POST",
			[]comment{{101, "curfew-bot", said}}},
		{"gone before it is edited", func(h *hub) {
			h.comments = []comment{{5, "curfew-bot", mark + "\nold"}}
			h.faults = []fault{
				{"GET", "/pulls/7", func(w http.ResponseWriter, r *http.Request) { h.serve(w, r) }, false},
				{"PATCH", "", func(w http.ResponseWriter, r *http.Request) {
					h.comments = nil
					refuse(404, "Not Found")(w, r)
				}, false}}
		}, "PATCH POST", []comment{{101, "curfew-bot", said}}},
		{"a surplus one gone before it is deleted", func(h *hub) {
			h.comments = []comment{{5, "curfew-bot", said}, {6, "curfew-bot", said}}
			h.faults = []fault{
				{"DELETE", "", func(w http.ResponseWriter, r *http.Request) {
					h.serve(w, r)
					h.comments = h.comments[:1]
				}, true},
			}
		}, "DELETE", []comment{{5, "curfew-bot", said}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			if tt.set != nil {
				tt.set(h)
			}
			c, _ := h.client(t)
			address, err := c.Comment(t.Context(), report())
			var calls []string
			for _, call := range h.calls {
				if method, _, _ := strings.Cut(call, " "); method != "GET" {
					calls = append(calls, method)
				}
			}
			if err != nil || !strings.HasPrefix(address, someone) || strings.Join(calls, " ") != tt.calls {
				t.Errorf("Comment = %q, %v by %q, want %q", address, err, calls, tt.calls)
			}
			if got, want := fmt.Sprint(h.comments), fmt.Sprint(tt.want); got != want {
				t.Errorf("comments\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestCommentOfAnOlderHeadIsNotWritten(t *testing.T) {
	h := newHub(t)
	h.head = old
	c, _ := h.client(t)
	if _, err := c.Comment(t.Context(), report()); !errors.Is(err, ErrMoved) || h.made("POST") > 0 {
		t.Errorf("Comment = %v with %q", err, h.calls)
	}
}

// TestRace checks that many concurrent runs leave one comment.
func TestRace(t *testing.T) {
	for range 10 {
		h := newHub(t)
		var wg sync.WaitGroup
		for range 6 {
			c, _ := h.client(t)
			wg.Go(func() {
				if _, err := c.Comment(t.Context(), report()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(h.comments) != 1 || h.comments[0].body != said {
			t.Fatalf("%d comments: %v", len(h.comments), h.comments)
		}
	}
}

func TestRefusals(t *testing.T) {
	fork := Pull{Repository: "acme/train", Number: 7, Head: head, From: "eve/train", Branch: "resnet50", Author: "ana"}
	const integration = "Resource not accessible by integration"
	for _, tt := range []struct {
		name      string
		fork      bool
		fault     http.HandlerFunc
		want      string
		temporary bool
	}{
		{
			"may not write", false, refuse(403, integration),
			"comment on acme/train#7: GitHub answered 403 Forbidden: " + integration +
				" (give the job the permissions pull-requests: write and contents: read)",
			false,
		},
		{
			"a fork", true, refuse(403, integration),
			"it comes from the fork eve/train, whose runs get no secrets and may only read", false,
		},
		{
			"a wrong token", false, refuse(401, "Bad credentials"),
			"401 Unauthorized: Bad credentials (the token is not valid)", false,
		},
		{
			"not there", false, refuse(404, "Not Found"),
			"404 Not Found: Not Found (there is no such thing, or the token may not see it)", false,
		},
		{
			"moved", false,
			refuse(301, "Moved Permanently", "Location", "https://api.example.com/repositories/1/issues"),
			"redirects are not followed", false,
		},
		{"invalid", false, refuse(422, "Validation Failed"), "422 Unprocessable Entity: Validation Failed", false},
		{"no longer served", false, refuse(410, "Gone"), "410 Gone", false},
		{
			"a limit for an hour", false,
			refuse(429, "You have exceeded a secondary rate limit", "Retry-After", "3600"),
			"429 Too Many Requests", true,
		},
		{"a proxy's page", false, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<html>Sign in</html>")
		}, "the answer is not that of GitHub's API", false},
		{"later", false, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(202)
		}, "the answer is not that of GitHub's API", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			h.faults = []fault{{"POST", "/comments", tt.fault, false}}
			p := Pull{
				Repository: "acme/train", Number: 7, Head: head, From: "acme/train", Branch: "resnet50", Author: "ana",
			}
			if tt.fork {
				p = fork
			}
			c, _ := h.clientOf(t, p)
			_, err := c.Comment(t.Context(), report())
			var f *notify.Failure
			if err == nil || !errors.As(err, &f) || f.Temporary != tt.temporary ||
				!strings.Contains(err.Error(), tt.want) ||
				strings.Contains(err.Error(), "\n") || h.made("POST") != 1 {
				t.Errorf("Comment = %v after %d tries; want %q after one", err, h.made("POST"), tt.want)
			}
		})
	}
}

func TestNew(t *testing.T) {
	good := Pull{Repository: "acme/train", Number: 7, Head: head, From: "acme/train", Branch: "b", Author: "ana"}
	fork := good
	fork.From = "eve/train"
	for _, tt := range []struct {
		name string
		o    Options
		p    Pull
		want string
	}{
		{"github.com", Options{Token: token}, good, ""},
		{"an enterprise server", Options{Token: token, URL: "https://git.acme.example/api/v3"}, good, ""},
		{"no token", Options{}, good, "connect to GitHub about acme/train#7: the token is missing"},
		{"no token for a fork", Options{}, fork, "the fork eve/train, whose runs get no secrets"},
		{"a token of two lines", Options{Token: token + "\n" + token}, good, "not of one word"},
		{"in the clear", Options{Token: token, URL: "http://git.acme.example/api/v3"}, good, "must begin with https"},
		{"no pull request", Options{Token: token}, Pull{}, "it takes a pull request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := New(tt.o, tt.p)
			if tt.want == "" {
				if err != nil || !strings.HasSuffix(c.api.BaseURL.String(), "/") {
					t.Errorf("New = %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), token) {
				t.Errorf("New = %v, want %q", err, tt.want)
			}
		})
	}
}

// TestAPIBelowAPath checks an enterprise server, whose API has a path.
func TestAPIBelowAPath(t *testing.T) {
	h := newHub(t)
	s := newServer(t, http.StripPrefix("/api/v3", h))
	c, err := New(Options{
		URL: s + "/api/v3/", Token: token,
	}, Pull{Repository: "acme/train", Number: 7, Head: head, From: "acme/train", Branch: "resnet50", Author: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Comment(t.Context(), report()); err != nil || len(h.comments) != 1 {
		t.Errorf("Comment = %v, %d comments", err, len(h.comments))
	}
}

func BenchmarkComment(b *testing.B) {
	h := newHub(b)
	c, _ := h.client(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Comment(context.Background(), report()); err != nil {
			b.Fatal(err)
		}
	}
}
