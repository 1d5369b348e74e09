package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// decisions stores the gate's decisions.
type decisions struct{ *database }

// decisionRow is a decision.
type decisionRow struct {
	ID       string  `db:"id"`
	At       instant `db:"at"`
	Kind     string  `db:"kind"`
	Name     string  `db:"name"`
	PlanHash string  `db:"plan_hash"`
	AskedBy  string  `db:"asked_by"`
	ownerRow
	Purpose  inventory.Purpose  `db:"purpose"`
	Decision gate.Verdict       `db:"decision"`
	Amount   money.Amount       `db:"amount"`
	Approval string             `db:"approval"`
	Hold     string             `db:"hold"`
	Reasons  document[[]string] `db:"reasons"`
	Settings string             `db:"settings"`
}

var decisionTable = describe("decisions", decisionRow{})

// PutDecision writes a decision, replacing one with the same ID.
func (d decisions) PutDecision(ctx context.Context, r gate.Record) error {
	reasons := make([]string, len(r.Reasons))
	for i, reason := range r.Reasons {
		reasons[i] = prose(reason)
	}
	o := r.Owner
	row := decisionRow{
		ID: r.ID, At: at(r.At), Kind: r.Kind, Name: prose(r.Name), PlanHash: r.PlanHash, AskedBy: prose(r.AskedBy),
		ownerRow: ownerRow{prose(o.Team), prose(o.Project), prose(o.User), prose(o.Environment), prose(o.CostCenter)},
		Purpose:  inventory.Purpose(prose(string(r.Purpose))), Decision: r.Decision, Amount: r.Amount,
		Approval: r.ApprovalID, Hold: r.HoldID,
		Reasons: document[[]string]{reasons}, Settings: prose(r.Settings),
	}
	err := exact(r.ID, r.Kind, r.PlanHash, string(r.Decision), r.ApprovalID, r.HoldID)
	if r.ID == "" || r.At.IsZero() {
		err = errors.New("it needs an id and a time")
	}
	if err == nil {
		err = d.transact(ctx, func(t *tx) error {
			columns := tags(reflect.TypeFor[decisionRow]())
			set := make([]string, len(columns))
			for i, c := range columns {
				set[i] = c + " = excluded." + c
			}
			into := t.bulk("decisions", columns, " ON CONFLICT (id) DO UPDATE SET "+strings.Join(set, ", "))
			return errors.Join(into.add(ctx, fields(row)...), into.flush(ctx))
		})
	}
	return attempted(err, "write decision %s", r.ID)
}

// Decisions returns the decisions in [from, to), oldest first and then by ID.
func (d decisions) Decisions(ctx context.Context, from, to time.Time) ([]gate.Record, error) {
	f := &filter{dialect: &d.dialect}
	f.span("at", from, to)
	var rows []decisionRow
	if err := d.list(ctx, &rows, decisionTable().query+f.where()+" ORDER BY at, id", f.args...); err != nil {
		return nil, fmt.Errorf("read the decisions of the gate: %w", err)
	}
	return convert(rows, func(r decisionRow) gate.Record {
		return gate.Record{
			ID: r.ID, At: r.At.Time, Kind: r.Kind, Name: r.Name, PlanHash: r.PlanHash, AskedBy: r.AskedBy,
			Owner:   inventory.Owner(r.ownerRow),
			Purpose: r.Purpose, Decision: r.Decision, Amount: r.Amount, ApprovalID: r.Approval, HoldID: r.Hold,
			Reasons: r.Reasons.of, Settings: r.Settings,
		}
	}), nil
}
