package gate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestDenialsComeFirst, and votes of one kind stay in their order.
func TestDenialsComeFirst(t *testing.T) {
	votes := []Vote{{Allow: true, Reason: "a"}, {Reason: "b"}, {Allow: true, Reason: "c"}, {Reason: "d"}, {Allow: true, Reason: "e"}}
	DenialsFirst(votes)
	var got []string
	for _, v := range votes {
		got = append(got, v.Reason)
	}
	if !slices.Equal(got, []string{"b", "d", "a", "c", "e"}) {
		t.Errorf("got %v", got)
	}
}

// TestAnApprovalIsAboutItsRequest: one from before the request is stale, and so is one that
// decided another; one that names its request and has no time is not, nor is a denial.
func TestAnApprovalIsAboutItsRequest(t *testing.T) {
	asked := now.Add(400 * time.Millisecond)
	r := approval.Request{ID: "r", AskedAt: asked, Amount: 10 * money.USD}
	other := approval.Request{ID: "o", AskedAt: asked.Add(-time.Hour), DecidedAt: asked.Add(-time.Minute), ExpiresAt: asked.Add(time.Hour),
		Amount: 10 * money.USD, Reason: "review 1", State: approval.Used}
	denied := func(change func(*approval.Request)) approval.Request {
		d := other
		d.State = approval.Denied
		change(&d)
		return d
	}
	early := Vote{Allow: true, At: asked.Add(-time.Minute)}
	for _, tc := range []struct {
		name  string
		vote  Vote
		other approval.Request
		says  string
	}{
		{"at its time", Vote{Allow: true, At: asked}, other, ""},
		{"in its second", Vote{Allow: true, At: now}, other, ""},
		{"before", early, other, "before request r was made"},
		{"a denial from before", Vote{At: early.At}, other, ""},
		{"without a time", Vote{Allow: true}, other, ""},
		{"used", Vote{Allow: true, Once: true, Reason: "review 1"}, other, "it was used for request o"},
		{"another review", Vote{Allow: true, Once: true, Reason: "review 2"}, other, ""},
		{"a reason that is none of a vote", Vote{Allow: true, Reason: "review 1"}, other, ""},
		{"of a denied request", Vote{Allow: true, Once: true, Reason: "review 1"}, denied(func(*approval.Request) {}), ""},
		{"of a denied request for as much", early, denied(func(*approval.Request) {}), ""},
		{"of a denied request for less", early, denied(func(d *approval.Request) { d.Amount-- }), "before request r was made"},
		{"of a denied request that is over", early, denied(func(d *approval.Request) { d.ExpiresAt = now }), "before request r was made"},
		{"before the denied request", Vote{Allow: true, At: asked.Add(-2 * time.Hour)}, denied(func(*approval.Request) {}), "before request r was made"},
	} {
		if got := tc.vote.stale(r, []approval.Request{r, tc.other}, now); !strings.Contains(got, tc.says) || (got == "") != (tc.says == "") {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.says)
		}
	}
}

// TestARequestThatAnotherDecidedMeanwhileIsDecidedAgain: who voids it too late begins anew.
func TestARequestThatAnotherDecidedMeanwhileIsDecidedAgain(t *testing.T) {
	h := newHouse(t, team)
	first := decide(t, h, job(400), now).ApprovalID
	h.approve(t, first, now)
	h.fault = func(point string) error {
		if point != "before request" {
			return nil
		}
		h.fault = nil
		return approval.ErrConflict
	}
	d, err := Decide(context.Background(), job(401), h.params(now))
	if err != nil || d.Decision != Held || d.ApprovalID == first {
		t.Errorf("got %+v, %v", d, err)
	}
	if r, _ := h.Request(context.Background(), first); r.State != approval.Void {
		t.Errorf("the first request is %s", r.State)
	}
}
