package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
)

// Ballot returns the votes on a request, and other statements with the reason why they are not
// votes.
type Ballot func(ctx context.Context, request string) (votes []Vote, aside []string, err error)

// Vote is an approver's decision outside of the command line: a review or a line of a vote file.
type Vote struct {
	By     approval.Person
	Allow  bool
	Reason string
	// At is the time of the vote; zero if it names its request.
	At time.Time
	// Once reports that Reason identifies the vote, which then decides only one request of a plan.
	Once bool
	// Text is the text of a review.
	Text string
}

// DenialsFirst sorts denials before approvals.
func DenialsFirst(votes []Vote) {
	slices.SortStableFunc(votes, func(a, b Vote) int {
		switch {
		case a.Allow == b.Allow:
			return 0
		case b.Allow:
			return -1
		}
		return 1
	})
}

// staleReason explains why an approval is about another request of the plan than r; empty if it
// applies. A repeated request for at most the denied amount counts as the same. A denial is never
// stale.
func (v Vote) staleReason(r approval.Request, all []approval.Request, now time.Time) string {
	if !v.Allow {
		return ""
	}
	asked := r.AskedAt
	for _, o := range all {
		switch {
		case o.ID == r.ID:
		case v.Once && o.Reason == v.Reason && o.State != approval.Denied && !o.DecidedAt.IsZero():
			return "it was used for request " + o.ID
		case o.State == approval.Denied && o.Amount >= r.Amount && now.Before(o.ExpiresAt) && o.AskedAt.Before(asked):
			asked = o.AskedAt
		}
	}
	if !v.At.IsZero() && v.At.Before(asked.Truncate(time.Second)) { // hosts report whole seconds
		return fmt.Sprintf("it is of %s, before request %s was made at %s", v.At.Format(time.RFC3339), r.ID,
			r.AskedAt.UTC().Format(time.RFC3339))
	}
	return ""
}

// Counter decides an ask and lets votes decide the pending request.
type Counter struct {
	Ask     Ask
	Params  Params
	Ballots []Ballot
	// Decided is called for each vote that decided a request; nil ignores them.
	Decided func(v Vote, r approval.Request)
}

// Decide decides, applies votes to the pending request, and decides again.
func (c *Counter) Decide(ctx context.Context) (Decision, error) {
	d, err := Decide(ctx, c.Ask, c.Params)
	if err != nil || d.Decision != Held {
		return d, err
	}
	var votes []Vote
	var aside []string
	for _, ballot := range c.Ballots {
		more, others, err := ballot(ctx, d.ApprovalID)
		if err != nil {
			return d, err
		}
		votes, aside = append(votes, more...), append(aside, others...)
	}
	DenialsFirst(votes)
	for _, v := range votes {
		r, why, err := c.cast(ctx, d.ApprovalID, v)
		switch {
		case errors.Is(err, approval.ErrConflict): // decided meanwhile: read it again
			return Decide(ctx, c.Ask, c.Params)
		case err != nil:
			return d, err
		case why != "":
			aside = append(aside, fmt.Sprintf("%s does not count: %s", v.By.Name, why))
		case !v.Allow:
			d.Decision, d.Reasons = Denied, []string{
				fmt.Sprintf("%s denied request %s: %s", v.By.Name, r.ID, v.Reason),
			}
			return d, nil
		default:
			return Decide(ctx, c.Ask, c.Params)
		}
	}
	d.Reasons = append(d.Reasons, aside...)
	return d, nil
}

// cast lets a vote decide a request; why says why it does not count, such as an approval of
// the voter's own request, which goes on waiting.
func (c *Counter) cast(ctx context.Context, id string, v Vote) (r approval.Request, why string, err error) {
	all, err := c.Params.Desk.Store.Requests(ctx, c.Ask.PlanHash())
	if err != nil {
		return r, "", fmt.Errorf("list the requests: %w", err)
	}
	if i := slices.IndexFunc(all, func(o approval.Request) bool { return o.ID == id }); i >= 0 {
		if why = v.staleReason(all[i], all, c.Params.Now); why != "" {
			return r, why, nil
		}
	}
	r, err = c.Params.Desk.Decide(ctx, id, v.By, v.Allow, v.Reason, c.Params.Now)
	var refusal *approval.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Rule == approval.RuleState:
		return r, "", approval.ErrConflict
	case errors.As(err, &refusal):
		return r, err.Error(), nil
	case err != nil:
		return r, "", err
	}
	if c.Decided != nil {
		c.Decided(v, r)
	}
	return r, "", nil
}

// Waiting is the request that waits for an approval, nil if none does.
func (c *Counter) Waiting(ctx context.Context, d Decision) (*approval.Request, error) {
	if d.Decision != Held {
		return nil, nil
	}
	r, err := c.Params.Desk.Store.Request(ctx, d.ApprovalID)
	return &r, err
}
