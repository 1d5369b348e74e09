package round

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Recording is usage that was recorded outside the account.
type Recording interface {
	// Name is the file's, for people.
	Name() string
	// Collect adds the samples to the windows that resolve returns for a resource;
	// samples of a resource without a window are left out.
	Collect(ctx context.Context, resolve func(resource string, step time.Duration) *usage.Window) (usage.Summary, error)
}

// Params are the settings of an audit.
type Params struct {
	Observer   Observer
	Query      Query
	Recordings []Recording
	Prices     *price.Book
	Thresholds finding.Thresholds
	Duty       duty.Thresholds
	// Required are the tags without which spend cannot be attributed.
	Required []string
	// Bill is what was billed; nil where no bill was supplied.
	Bill *Bill
	// Clock tells when the audit began and ended; Query.Now is what it judges by.
	Clock func() time.Time
}

// Run makes one round that stops before act: observe, judge, charge, decide. It
// changes nothing.
func Run(ctx context.Context, p Params) (*Audit, error) {
	audit := &Audit{StartedAt: p.Clock().UTC()}
	observed, err := p.Observer.Observe(ctx, p.Query)
	if err != nil {
		return nil, err
	}
	audit.Observation = *observed
	if err := record(ctx, &audit.Observation, p, nil); err != nil {
		return nil, err
	}
	audit.Sort()
	fill(&audit.Observation, p.Prices)
	for _, r := range audit.Resources {
		if w := audit.Windows[r.Ref()]; w != nil && w.GPUMemory == 0 {
			w.GPUMemory = float64(r.Size.GPUMemory.Or(0))
		}
	}
	audit.Verdicts = judge(&audit.Observation, p)
	audit.Charges = ledger.RunRates(audit.Resources, p.Prices)
	account := &finding.Account{
		Now: p.Query.Now, Resources: audit.Resources, Windows: audit.Windows, Verdicts: audit.Verdicts,
		Charges: audit.Charges, Prices: p.Prices, Unread: audit.Unread, CommitmentsKnown: audit.CommitmentsKnown, Advice: audit.Advice,
	}
	if p.Bill != nil {
		account.Bill = &p.Bill.Bill
	}
	audit.Findings, err = finding.Evaluate(account, p.Thresholds, p.Required)
	if err != nil {
		return nil, fmt.Errorf("judge the findings: %w", err)
	}
	if audit.Totals, err = sum(audit); err != nil {
		return nil, fmt.Errorf("add up the audit: %w", err)
	}
	if p.Bill != nil {
		if audit.Billing, err = billing(p.Bill, audit.Totals); err != nil {
			return nil, err
		}
	}
	audit.FinishedAt = p.Clock().UTC()
	return audit, ctx.Err()
}

// record merges recorded usage into the observation: for the signals that a
// recording has, it takes the place of what the account's metrics said. A name is of
// nobody that two machines have, be they of the observation or of others that are known.
func record(ctx context.Context, o *Observation, p Params, known []*inventory.Resource) error {
	if len(p.Recordings) == 0 {
		return nil
	}
	byName := map[string]*inventory.Resource{}
	ambiguous := map[string]bool{}
	here := map[*inventory.Resource]bool{}
	for _, r := range o.Resources {
		here[r] = true
	}
	for _, r := range slices.Concat(o.Resources, known) {
		if !measurable(r.Kind) {
			continue
		}
		for _, key := range append([]string{r.ID, r.Name}, r.Aliases...) {
			prev := byName[key]
			if prev == nil {
				byName[key] = r
			} else if prev.Ref() != r.Ref() {
				ambiguous[key] = true
			}
		}
	}
	for _, rec := range p.Recordings {
		windows := map[*inventory.Resource]*usage.Window{}
		unmatched := map[string]bool{}
		resolve := func(name string, step time.Duration) *usage.Window {
			r := byName[name]
			if name == "" || r == nil || ambiguous[name] {
				if len(unmatched) < maxNamed {
					unmatched[name] = true
				}
				return nil
			}
			if !here[r] {
				return nil
			}
			w := windows[r]
			if w == nil {
				from, to := WindowStart(r, p.Query), p.Query.Now
				if cloud := o.Windows[r.Ref()]; cloud != nil {
					from, to = cloud.From, cloud.To
				}
				w = usage.NewWindow(from, to, step, "recorded", p.Query.Floors)
				windows[r] = w
			}
			return w
		}
		if _, err := rec.Collect(ctx, resolve); err != nil {
			return err
		}
		for r, w := range windows {
			if o.Windows == nil {
				o.Windows = map[inventory.Ref]*usage.Window{}
			}
			if cloud := o.Windows[r.Ref()]; cloud != nil {
				w.Merge(cloud)
			}
			o.Windows[r.Ref()] = w
		}
		if len(unmatched) > 0 {
			o.BlindSpots = append(o.BlindSpots, inventory.BlindSpot{
				What:   "recorded usage " + rec.Name(),
				Why:    "no single running resource has the id or name " + names(unmatched),
				Effect: "their samples were not used",
			})
		}
	}
	return nil
}

// WindowStart is where a resource's window begins: as far back as is read, or when
// it was made.
func WindowStart(r *inventory.Resource, q Query) time.Time {
	from := q.Now.Add(-q.Window)
	if r.CreatedAt.After(from) && r.CreatedAt.Before(q.Now) {
		return r.CreatedAt
	}
	return from
}

// measurable says whether duty is judged of a kind.
func measurable(k inventory.Kind) bool { return k.Traits().Measured }

// judge gives every running machine its duty.
func judge(o *Observation, p Params) map[inventory.Ref]duty.Verdict {
	verdicts := map[inventory.Ref]duty.Verdict{}
	for _, r := range o.Resources {
		if !measurable(r.Kind) || r.State != inventory.StateRunning {
			continue
		}
		ref := r.Ref()
		verdicts[ref] = duty.Judge(o.Windows[ref], gpus(r), p.Query.Now, p.Duty)
	}
	return verdicts
}

// gpus is the number of accelerators whose telemetry a verdict needs; negative
// where it is not known, so that a machine is never judged by its CPU that may have
// accelerators.
func gpus(r *inventory.Resource) int { return r.Size.GPUs.Or(-1) }

// fill completes the sizes of what was observed from the price book.
func fill(o *Observation, book *price.Book) {
	for _, r := range o.Resources {
		book.Fill(r)
	}
}
