package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// planSpan is the time of the ledger by whose hours a kept plan plans commitments.
const planSpan = 90 * 24 * time.Hour

// PlanInput is the input of PlanAccount: an audit, and the hours of the ledger.
type PlanInput struct {
	Result *round.Result
	Cloud  string
	Book   *price.Book
	// Kept reports that the findings are stored, so that curfew fix knows their ids.
	Kept bool
	// CommitCommand is the command that shows the plan of commitments.
	CommitCommand string
	// Ledger has the hours from Since to Until; nil where none are kept.
	Ledger       ledger.Store
	Since, Until time.Time
	// Offers are those of commitments; nil takes the book's. Existing are the commitments of now.
	Offers   []commit.Offer
	Existing []commit.Existing
}

// PlanAccount puts the findings of an audit into one plan, with commitments for what remains.
func PlanAccount(ctx context.Context, in PlanInput) (accountplan.Account, error) {
	r := in.Result
	out := accountplan.AccountInput{
		At: r.FinishedAt, Cloud: in.Cloud, Resources: r.Resources, Findings: r.Findings, Totals: r.Totals,
		Kept: in.Kept, CommitCommand: in.CommitCommand,
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

// AddPlan adds the plan of the account to an audit that is to be kept. An audit without sums has none.
func AddPlan(ctx context.Context, s *store.Store, r *round.Result, book *price.Book, doc *view.Scan) error {
	if doc.Kept == nil {
		return nil
	}
	plan, err := PlanAccount(ctx, PlanInput{
		Result: r, Cloud: doc.Cloud, Book: book, Ledger: s.Ledger(),
		Since: r.StartedAt.Add(-planSpan), Until: r.StartedAt, Kept: true,
		CommitCommand: "curfew plan commit --from ledger",
	})
	if err != nil {
		return fmt.Errorf("plan the account: %w", err)
	}
	doc.Kept.Plan = &plan
	return nil
}

// KeptPlan returns the plan of the account that an audit keeps.
func KeptPlan(scan view.Scan) (accountplan.Account, error) {
	if scan.Kept == nil || scan.Kept.Plan == nil {
		return accountplan.Account{}, &runtime.Error{
			Code: "no_plan", Err: errors.New("the newest audit keeps no plan of the account"),
			Hint: "the next audit keeps it; `curfew plan account` makes one now",
		}
	}
	return *scan.Kept.Plan, nil
}
