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
	votes := []Vote{
		{Allow: true, Reason: "a"}, {Reason: "b"}, {Allow: true, Reason: "c"}, {Reason: "d"},
		{Allow: true, Reason: "e"},
	}
	DenialsFirst(votes)
	var got []string
	for _, v := range votes {
		got = append(got, v.Reason)
	}
	if !slices.Equal(got, []string{"b", "d", "a", "c", "e"}) {
		t.Errorf("got %v", got)
	}
}

// TestAnApprovalIsAboutItsRequest checks that one from before the request is stale, and so is one
// that decided another; one that names its request and has no time is not, nor is a denial.
func TestAnApprovalIsAboutItsRequest(t *testing.T) {
	asked := now.Add(400 * time.Millisecond)
	r := approval.Request{ID: "r", AskedAt: asked, Amount: 10 * money.USD}
	other := approval.Request{
		ID: "o", AskedAt: asked.Add(-time.Hour), DecidedAt: asked.Add(-time.Minute), ExpiresAt: asked.Add(time.Hour),
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
		{
			"of a denied request", Vote{Allow: true, Once: true, Reason: "review 1"},
			denied(func(*approval.Request) {}), "",
		},
		{"of a denied request for as much", early, denied(func(*approval.Request) {}), ""},
		{
			"of a denied request for less", early, denied(func(d *approval.Request) { d.Amount-- }),
			"before request r was made",
		},
		{
			"of a denied request that is over", early, denied(func(d *approval.Request) { d.ExpiresAt = now }),
			"before request r was made",
		},
		{
			"before the denied request", Vote{Allow: true, At: asked.Add(-2 * time.Hour)},
			denied(func(*approval.Request) {}),
			"before request r was made",
		},
	} {
		if got := tc.vote.staleReason(r, []approval.Request{r, tc.other}, now); !strings.Contains(got, tc.says) ||
			(got == "") != (tc.says == "") {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.says)
		}
	}
}

// TestConflictsAreDecidedAgain: where another process was faster to change the request, the
// decision is made again and comes out the same.
func TestConflictsAreDecidedAgain(t *testing.T) {
	for _, tc := range []struct {
		name string
		ask  Ask
		want Verdict
	}{{"void", job(401), Held}, {"use", job(400), Allow}} {
		h := newMemoryStores(t, team)
		h.approve(t, decide(t, h, job(400), now).ApprovalID, now)
		h.fault = func(point string) error {
			if point != "before request" {
				return nil
			}
			h.fault = nil
			return approval.ErrConflict
		}
		d, err := Decide(context.Background(), tc.ask, h.params(now))
		if err != nil || h.fault != nil || d.Decision != tc.want || (d.HoldID != "") != (tc.want == Allow) {
			t.Errorf("%s: %+v, %v", tc.name, d, err)
		}
	}
}

// TestWhoseVoteCounts checks that the asker's own approval is set aside and the request goes on
// waiting; where the request was decided meanwhile it is read again; an approver's vote decides.
func TestWhoseVoteCounts(t *testing.T) {
	for _, tc := range []struct {
		name     string
		by       approval.Person
		allow    bool
		answered bool // meanwhile
		want     Verdict
		says     string
		told     int
	}{
		{"an approver", bo, true, false, Allow, "bo approved", 1},
		{"a denial", bo, false, false, Denied, "bo denied request", 1},
		{"the asker", approval.Person{Name: "ana", Roles: bo.Roles}, true, false, Held, "ana does not count", 0},
		{"decided meanwhile", bo, true, true, Allow, "bo approved", 0},
	} {
		h, told := newMemoryStores(t, team), 0
		p := h.params(now)
		c := Counter{Ask: job(400), Params: p, Decided: func(Vote, approval.Request) { told++ },
			Ballots: []Ballot{func(_ context.Context, id string) ([]Vote, []string, error) {
				if tc.answered {
					h.approve(t, id, now)
				}
				return []Vote{
					{By: tc.by, Allow: tc.allow, At: now, Reason: "review"},
				}, []string{"a comment says nothing"}, nil
			}}}
		d, err := c.Decide(context.Background())
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		want(t, d, tc.want, tc.says)
		if told != tc.told {
			t.Errorf("%s: %d votes were recorded, want %d", tc.name, told, tc.told)
		}
		if waits, err := c.Waiting(context.Background(), d); err != nil || (waits != nil) != (tc.want == Held) {
			t.Errorf("%s: %+v waits, %v", tc.name, waits, err)
		}
	}
}

// TestADryRunNamesTheRequestThatWaits, and none that is about less.
func TestADryRunNamesTheRequestThatWaits(t *testing.T) {
	h := newMemoryStores(t, team)
	p := h.params(now)
	p.DryRun = true
	asked := decide(t, h, job(400), now).ApprovalID
	for dollars, wanted := range map[int64]string{400: asked, 401: ""} {
		if d, err := Decide(context.Background(), job(dollars), p); err != nil || d.Decision != Held ||
			d.ApprovalID != wanted {
			t.Errorf("for $%d: %+v, %v, want request %q", dollars, d, err, wanted)
		}
	}
	if d, err := Decide(context.Background(), job(400), func() Params {
		q := p
		q.Now = now.Add(1000 * time.Hour)
		return q
	}()); err != nil || d.ApprovalID != "" {
		t.Errorf("once it is over: %+v, %v", d, err)
	}
}
