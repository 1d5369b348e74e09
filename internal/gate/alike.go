package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
)

// filteredStore is a store whose listing omits some holds.
type filteredStore struct {
	budget.Store
	holds []budget.Hold
}

// Holds returns the holds that are not omitted.
func (w filteredStore) Holds(ctx context.Context, from, to time.Time) ([]budget.Hold, error) {
	all, err := w.Store.Holds(ctx, from, to)
	return slices.DeleteFunc(all, func(h budget.Hold) bool {
		return slices.ContainsFunc(w.holds, func(o budget.Hold) bool { return o.ID == h.ID })
	}), err
}

// findDuplicates finds the live holds, other than own, of the same work and of the same key. A hold
// of the key for another spec is replaced unless something was charged under it, which is an error.
func (d *decision) findDuplicates(ctx context.Context, own string) error {
	live, err := d.Budgets.Store.Holds(ctx, d.Now, d.Now.Add(time.Nanosecond))
	if err != nil {
		return err
	}
	same := func(h budget.Hold) bool {
		return h.SpecHash == d.SpecHash && h.Kind == d.Kind && h.Name == d.Name && h.Owner == d.Owner &&
			h.Purpose == d.Purpose
	}
	live = slices.DeleteFunc(live, func(h budget.Hold) bool {
		return h.ID == own || h.At(d.Now) != budget.Live || !d.isSameRun(h.Run, h.AskedBy) &&
			!(same(h) && (h.Run == "" || d.Key == ""))
	})
	if len(live) == 0 {
		return nil
	}
	from := d.Now
	for _, h := range live {
		from = earlierTime(from, h.From)
	}
	spent, err := d.Budgets.Store.Spent(ctx, budget.Match{}, from.Truncate(time.Hour), d.Now.Add(time.Hour))
	if err != nil {
		return err
	}
	for _, h := range live {
		used := spent.ByHold[h.ID] > 0
		switch {
		case same(h) && !used:
			d.duplicates = append(d.duplicates, h)
		case same(h):
		case used:
			return fmt.Errorf("the key %q names a run that has begun (hold %s); settle that hold or give another key",
				d.Key,
				h.ID)
		default:
			d.replaced = append(d.replaced, h)
			d.reasons = append(d.reasons,
				fmt.Sprintf("it replaces hold %s of the same key, %s, under which nothing was charged",
					h.ID, h.Amount.Exact()))
		}
	}
	return nil
}

func earlierTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// isSameRun reports whether a hold or request with a key belongs to this run.
func (d *decision) isSameRun(key, askedBy string) bool {
	return d.Key != "" && key == d.Key && strings.EqualFold(strings.TrimSpace(askedBy), strings.TrimSpace(d.AskedBy))
}

// duplicateReasons describes the holds that the same work has already.
func (d *decision) duplicateReasons() (out []string) {
	for _, h := range d.duplicates {
		out = append(out,
			fmt.Sprintf("hold %s reserves %s for the same work since %s, and nothing was charged under it; "+
				"`curfew budget release %s` gives it back, `--key` makes repeated requests one run",
				h.ID, h.Amount.Exact(), h.CreatedAt.UTC().Format(time.RFC3339), h.ID))
	}
	return out
}

func (d *decision) duplicateIDs() (out []string) {
	for _, h := range d.duplicates {
		out = append(out, h.ID)
	}
	return out
}

// replaceRequests voids open requests of the same key for another plan.
func (d *decision) replaceRequests(ctx context.Context) error {
	if d.Key == "" {
		return nil
	}
	all, err := d.Desk.Store.Requests(ctx, "")
	if err != nil {
		return err
	}
	for _, r := range all {
		if state := r.At(d.Now); r.PlanHash != d.hash && d.isSameRun(r.Run, r.AskedBy) &&
			(state == approval.Pending || state == approval.Approved) {
			if err := d.voidRequest(ctx, r, "the run "+d.Key+" asks for another plan"); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceHolds releases the replaced holds before the new hold is made.
func (d *decision) replaceHolds(ctx context.Context) error {
	for _, h := range d.replaced {
		if _, err := d.Budgets.Release(ctx, h.ID, d.AskedBy, d.Now); err != nil {
			return fmt.Errorf("release hold %s of the same key: %w", h.ID, err)
		}
	}
	return d.replaceRequests(ctx)
}

// pendingRequest returns the id of the open request for the plan, empty if there is none.
func (d *decision) pendingRequest(ctx context.Context) (string, error) {
	all, err := d.Desk.Store.Requests(ctx, d.hash)
	for _, r := range all {
		if r.At(d.Now) == approval.Pending && r.Amount >= d.P95 {
			return r.ID, err
		}
	}
	return "", err
}

// admissionReasons explains why a run is admitted.
func (d *decision) admissionReasons(approved *approval.Request) []string {
	if approved != nil {
		return []string{
			fmt.Sprintf("%s approved up to %s (%s)", approved.DecidedBy, approved.Amount.Exact(), approved.Proof),
		}
	}
	return []string{
		fmt.Sprintf("allowed: at most %s, of %s that a run may cost (gate.ask_over)",
			d.P95.Exact(), d.Threshold.Exact()),
	}
}

// dryRunAdmission returns the decision that a real run would get.
func (d *decision) dryRunAdmission(approved *approval.Request) Decision {
	out := Decision{
		Decision: Allow, Reasons: slices.Concat(d.reasons, d.admissionReasons(approved), d.duplicateReasons()),
		Budget: append([]Line{}, d.lines...), Unused: d.duplicateIDs(),
	}
	if approved != nil {
		out.ApprovalID = approved.ID
	}
	return out
}
