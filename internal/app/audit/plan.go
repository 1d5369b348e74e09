package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// planSpan is the time of the ledger by whose hours a kept plan plans commitments.
const planSpan = 90 * 24 * time.Hour

// PlanOptions are the options of the commitments of a plan.
type PlanOptions struct {
	// Since and Until bound the hours of the ledger; zero takes the last [planSpan] before the audit.
	Since, Until time.Time
	// Offers are those of commitments; nil takes the book's. Existing are the commitments of now.
	Offers   []commit.Offer
	Existing []commit.Existing
	// CommitCommand is the command that shows the plan of commitments; empty is that of the defaults.
	CommitCommand string
}

// PlanInput is the input of PlanAccount: an audit, and the hours of the ledger.
type PlanInput struct {
	PlanOptions
	Result *round.Result
	Cloud  string
	Book   *price.Book
	// Kept reports that the findings are stored, so that curfew fix knows their ids.
	Kept bool
	// Ledger has the hours; nil where none are kept.
	Ledger ledger.Store
}

// PlanAccount puts the findings of an audit into one plan, with commitments for what remains.
func PlanAccount(ctx context.Context, in PlanInput) (accountplan.Account, error) {
	r := in.Result
	if in.Since.IsZero() {
		in.Since, in.Until = r.StartedAt.Add(-planSpan), r.StartedAt
	}
	out := accountplan.AccountInput{
		At: r.FinishedAt, Cloud: in.Cloud, Resources: r.Resources, Findings: r.Findings, Totals: r.Totals,
		Kept: in.Kept, CommitCommand: cmp.Or(in.CommitCommand, "curfew plan commit --from ledger"),
	}
	for _, b := range r.BlindSpots {
		out.Notes = append(out.Notes, "not visible: "+b.What+": "+b.Why+"; "+b.Effect)
	}
	var err error
	if out.Commitments, err = planCommitments(ctx, in, &out.Notes); err != nil {
		return accountplan.Account{}, err
	}
	return accountplan.NewAccount(out)
}

// planCommitments plans commitments on the hours of the ledger that the findings leave; nil, with a
// note, where no hours are kept.
func planCommitments(ctx context.Context, in PlanInput, notes *[]string) (*commit.Report, error) {
	if in.Ledger == nil {
		*notes = append(*notes, "no ledger is kept: commitments need the hours of regular scans and are not planned")
		return nil, nil
	}
	leaves := accountplan.NewLeaving(accountplan.FixesOf(in.Result.Findings))
	use, more, err := accountplan.Hours(ctx, in.Ledger, in.Since, in.Until, leaves, in.Book)
	if err != nil {
		return nil, err
	}
	*notes = append(*notes, more...)
	if len(use) == 0 {
		*notes = append(*notes,
			fmt.Sprintf("the ledger has no on-demand machine hour from %s to %s: commitments are not "+
				"planned", in.Since.Format(time.DateOnly), in.Until.Format(time.DateOnly)))
		return nil, nil
	}
	offers := in.Offers
	if offers == nil {
		offers, more, err = commit.BookOffers(in.Book, use)
		if errors.Is(err, commit.ErrNoOffers) {
			*notes = append(*notes, err.Error()+": give --offers FILE")
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		*notes = append(*notes, more...)
	}
	plan, err := commit.Plan(use, offers, in.Existing, commit.Options{
		Leave: commit.LeavingByAge(in.Book, in.Result.FinishedAt),
	})
	if err != nil {
		return nil, runtime.PlanError(err)
	}
	*notes = append(*notes, "machines that leave before commitments are planned: "+leaves.String())
	return &plan, nil
}

// AddPlan adds the plan of the account to an audit that is to be kept, or the reason for its absence,
// which it also returns: an audit without a plan is kept all the same. An audit without sums has neither.
func AddPlan(ctx context.Context, in PlanInput, doc *view.Scan) error {
	if doc.Kept == nil {
		return nil
	}
	in.Kept = true
	plan, err := PlanAccount(ctx, in)
	if err != nil {
		err = fmt.Errorf("plan the account: %w", err)
		doc.Kept.PlanUnavailable = plain.Line(err.Error())
		return err
	}
	doc.Kept.Plan = &plan
	return nil
}

// KeptPlan returns the plan of the account that an audit keeps.
func KeptPlan(scan view.Scan) (accountplan.Account, error) {
	if scan.Kept == nil || scan.Kept.Plan == nil {
		why := "the newest audit keeps no plan of the account"
		if scan.Kept != nil && scan.Kept.PlanUnavailable != "" {
			why += ": " + scan.Kept.PlanUnavailable
		}
		return accountplan.Account{}, &runtime.Error{
			Code: "no_plan", Err: errors.New(why),
			Hint: "the next audit keeps it; `curfew plan account` makes one now",
		}
	}
	return *scan.Kept.Plan, nil
}
