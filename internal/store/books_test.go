package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/store"
)

// books are the charges and reservations of a state.
type books struct {
	Periods   []bill.Period
	Rows      []bill.Row
	Rounds    []ledger.PendingRound
	Histories []ledger.History
	Sums      []ledger.Sum
	Holds     []budget.Hold
	Spend     budget.Spend
	Decisions []gate.Record
}

// booksSchema is the first schema with charges and reservations.
const booksSchema = 5

// pastBooks are the books of every old database that has them.
var pastBooks = func() books {
	entry := fleetHour(noon)[0]
	owner, sums := entry.Owner, entry.Sums
	march := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	cost := bill.Cost{Billed: 12 * money.USD, Effective: 9 * money.USD, List: 15 * money.USD}
	round := ledger.Round{
		Account: benchPayer, At: noon, Source: "scan",
		Complete: []ledger.Part{{Region: "us-east-1", Kind: inventory.KindInstance}},
	}
	return books{
		Periods: []bill.Period{{
			PeriodKey: bill.PeriodKey{Account: benchPayer.ID, Start: march},
			End:       march.AddDate(0, 1, 0), Source: "bill.csv",
			Digest: "d", Lines: 3, Rows: 1,
			Total: cost, Exact: bill.Exact{Billed: "12.0000000001", Effective: "9", List: "15"}, NoContracted: 1,
			ImportedAt: noon,
		}},
		Rows: []bill.Row{{
			Account: benchPayer.ID, Start: march, Day: march, Provider: "AWS",
			Resource: entry.Ref.ID, Service: "Amazon EC2",
			Category:       bill.Compute,
			ChargeCategory: bill.Usage, Owner: owner, Purpose: "training",
			Unknown: bill.ContractedCost, Cost: cost, Lines: 3,
		}},
		Rounds: []ledger.PendingRound{{Round: round, Mark: 1}},
		Histories: []ledger.History{{
			Ref: entry.Ref, Rounds: []time.Time{noon}, Posted: []ledger.Entry{entry},
			Observations: []ledger.Observation{{
				At: noon, Ref: entry.Ref, Attributes: entry.Attributes, State: inventory.StateRunning,
				CreatedAt: noon.Add(-time.Hour),
				Meters: []ledger.Meter{
					{
						Name: "compute", Category: ledger.Compute, Monthly: 730 * money.USD,
						Source: "catalog", AsOf: january,
						MinimumSeconds: 60,
					},
				},
				Duty: []ledger.Span{{From: noon.Add(-time.Hour), To: noon, State: "busy"}},
			}},
		}},
		Sums: []ledger.Sum{
			{Period: noon.AddDate(-1, 0, 0), Key: []string{owner.Team, entry.Ref.String()}, Sums: sums},
		},
		Holds: []budget.Hold{{
			ID: "4f", Key: "key", Kind: "job", Name: "train", SpecHash: "hash", Owner: owner, Purpose: "training",
			Amount: 40 * money.USD, Hourly: money.USD,
			GPUs: map[string]int{"H100": 8}, Machines: 1, From: noon, Until: noon.Add(time.Hour),
			ExpiresAt: noon.Add(2 * time.Hour),
			State:     budget.Live, Approval: "3f", AskedBy: "ana", CreatedAt: noon, UpdatedAt: noon, Version: 1,
		}},
		Spend: budget.Spend{
			Used: sums.Amount, ByHold: map[string]money.Amount{}, Daily: []money.Amount{sums.Amount},
			Through: noon.Add(time.Hour),
		},
		Decisions: []gate.Record{{
			ID: "4f", At: noon, Kind: "job", Name: "train", PlanHash: "hash", AskedBy: "ana",
			Owner: owner, Purpose: "training",
			Decision: "allow", Amount: 40 * money.USD, ApprovalID: "3f", HoldID: "4f", Reasons: []string{"it fits"},
		}},
	}
}()

// booksOf returns the books of an old database, by the schema in its file name.
func booksOf(t *testing.T, file string) books {
	t.Helper()
	var schema int
	if _, err := fmt.Sscanf(filepath.Base(file), "schema-%d.", &schema); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if schema < booksSchema {
		return books{Spend: budget.Spend{ByHold: map[string]money.Amount{}, Daily: []money.Amount{0}}}
	}
	return pastBooks
}

// rememberBooks writes pastBooks into a new state.
func rememberBooks(t *testing.T, s *store.Store) {
	t.Helper()
	ctx, p, h := t.Context(), pastBooks, pastBooks.Holds[0]
	h.Version = 0
	_, reserved := s.Budgets().Reserve(ctx, budget.Reservation{Hold: h, Now: noon})
	err := errors.Join(
		s.Bills().Replace(ctx, []bill.Replacement{{Period: p.Periods[0], Content: slices.Values(p.Rows)}}),
		s.Ledger().Record(ctx, p.Rounds[0].Round, p.Histories[0].Observations),
		reserved, s.Gate().PutDecision(ctx, p.Decisions[0]),
	)
	if err == nil {
		_, err = s.Ledger().Append(ctx, benchPayer, 1, p.Histories[0].Posted)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// recallBooks reads the books of a state.
func recallBooks(t *testing.T, s *store.Store) books {
	t.Helper()
	ctx, b := t.Context(), books{}
	var errs [7]error
	b.Periods, errs[0] = s.Bills().Periods(ctx, time.Time{}, time.Time{})
	for row, err := range s.Bills().Rows(ctx, bill.Query{}) {
		b.Rows, errs[1] = append(b.Rows, row), err
	}
	b.Rounds, errs[2] = s.Ledger().Pending(ctx, benchPayer)
	b.Sums, errs[3] = s.Ledger().Sums(ctx, ledger.SumQuery{
		By: []ledger.Dimension{ledger.ByTeam, ledger.ByResource}, Since: noon.AddDate(-1, 0, 0),
		Until: noon.AddDate(1, 0, 0),
	})
	b.Holds, errs[4] = s.Budgets().Holds(ctx, noon, noon.Add(time.Hour))
	b.Spend, errs[5] = s.Budgets().Spent(ctx, budget.Match{}, noon, noon.Add(time.Hour))
	b.Decisions, errs[6] = s.Gate().Decisions(ctx, noon, noon.Add(time.Hour))
	if len(b.Rounds) > 0 {
		var err error
		b.Histories, _, err = s.Ledger().Histories(ctx, benchPayer, []inventory.Ref{pastBooks.Histories[0].Ref}, noon,
			noon.Add(time.Hour))
		errs[0] = errors.Join(errs[0], err)
	}
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return b
}
