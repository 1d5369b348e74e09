package github

import (
	"strings"
	"testing"
	"time"
)

func request() Request {
	return Request{
		ID: "0123456789ab", Subject: "delete vol-1", PlanHash: "ffff", AskedBy: "ana", Unit: "an hour",
		Until: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC),
		Plan:  []string{"delete vol-1", "    + {\"a\":  \"``` | @octocat\"}", "by hand: a\nb"}}
}

// TestARequestIsPostedWholeOnce checks that a comment contains the whole plan, that it is posted
// once, and that a plan that does not fit is refused rather than truncated.
func TestARequestIsPostedWholeOnce(t *testing.T) {
	h := newHub(t)
	c, _ := h.client(t)
	r := request()
	for range 2 {
		p, err := c.Ask(t.Context(), r)
		if err != nil || p.Changed != "" || p.At.IsZero() {
			t.Fatalf("posted %+v, %v", p, err)
		}
	}
	if len(h.comments) != 1 {
		t.Fatalf("%d comments", len(h.comments))
	}
	for _, want := range []string{
		"\n````text\ndelete vol-1\n    + {\"a\":  \"``` | @octocat\"}\n\"by hand: a\\nb\"\n````\n",
		"curfew approve " + r.ID, "plan `ffff`",
	} {
		if !strings.Contains(h.comments[0].body, want) {
			t.Errorf("the comment does not show %q:\n%s", want, h.comments[0].body)
		}
	}
	r.ID, r.Plan = "aaaaaaaaaaaa", []string{strings.Repeat("x", maxBody)}
	if _, err := c.Ask(t.Context(), r); err == nil || len(h.comments) != 1 {
		t.Errorf("a plan that no comment can hold: %v, %d comments", err, len(h.comments))
	}
}

// TestNames checks that a review approves a request with a separate line.
func TestNames(t *testing.T) {
	for text, want := range map[string]bool{
		"curfew approve 0123456789ab":                      true,
		"fine\r\n`curfew approve 0123456789ab`\r\nbye":     true,
		"curfew approve ffff\ncurfew approve 0123456789ab": true,
		"LGTM":                                                  false,
		"curfew approve 0123456789":                             false,
		"curfew approve 0123456789abc":                          false,
		"do not curfew approve 0123456789ab":                    false,
		"> curfew approve 0123456789ab":                         false,
		"curfew approve 0123456789ab only if the disk is empty": false,
	} {
		if got := request().Names(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
