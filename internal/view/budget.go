package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// BudgetSchema names the shape of [Budgets], HoldsSchema that of [Holds], HoldSchema that
// of [OneHold].
const (
	BudgetSchema = "curfew.budget/v1"
	HoldsSchema  = "curfew.holds/v1"
	HoldSchema   = "curfew.hold/v1"
)

// OneHold is the output of `budget settle`, `release` and `extend`: the updated reservation.
type OneHold struct {
	Schema string `json:"schema"`
	Hold
}

// Budgets is the output of `budget`: the status of each budget.
type Budgets struct {
	Schema  string    `json:"schema"`
	At      time.Time `json:"at"`
	Budgets []Budget  `json:"budgets"`
	// Assumptions are the assumptions of the figures.
	Assumptions []string `json:"assumptions"`
	// CoverageNotes describe gaps in the data.
	CoverageNotes []string `json:"coverage_notes"`
	// Changes would change the answer.
	Changes []string `json:"changes"`
}

// Budget is the status of one budget in its current period.
type Budget struct {
	ID     string       `json:"id"`
	Parent string       `json:"parent"`
	Match  budget.Match `json:"match"`
	From   time.Time    `json:"from"`
	Until  time.Time    `json:"until"`
	Amount money.Amount `json:"amount_usd"`
	budget.Balance
	// UnboundedHours is the time of resources without even an upper bound of their cost.
	UnboundedHours float64 `json:"unbounded_hours"`
	// PerHour is the limit of the hourly spend; null if there is none.
	PerHour *money.Amount `json:"per_hour_usd"`
	// State is ok, warn, gate or over.
	State budget.State `json:"state"`
	// NothingPosted is true if no charge of the period was posted, so that its spending is unknown
	// and not zero.
	NothingPosted bool `json:"nothing_posted,omitempty"`
	// Forecast is the spend at the end of the period; null with a reason.
	Forecast *budget.Forecast `json:"forecast"`
	// ForecastReason is why there is no forecast.
	ForecastReason string `json:"forecast_reason,omitempty"`
	// LedgerUntil is the end of the last hour in the ledger; null if the ledger is empty.
	LedgerUntil *time.Time `json:"ledger_until"`
}

// NewBudgets makes the document of statuses at a time.
func NewBudgets(all []budget.Status, at time.Time) Budgets {
	r := Budgets{Schema: BudgetSchema, At: at.UTC(), Budgets: make([]Budget, 0, len(all)),
		Assumptions: []string{
			"spent is what the ledger has charged; reserved is what approved work has not charged yet",
			"spend of a child budget counts against its parent too, once",
			"a run that crosses the end of a period counts in both periods, in each with the most that it can spend there",
			"the forecast draws a thousand futures from the last eight weeks; its range is meant to hold " +
				"nine of ten outcomes",
		},
		CoverageNotes: []string{}, Changes: []string{}}
	var blank []string
	for _, s := range all {
		r.Budgets = append(r.Budgets, newBudget(s))
		r.note(s)
		if nothingPosted(&s) {
			blank = append(blank, s.Budget.ID)
		}
	}
	if len(blank) > 0 {
		r.CoverageNotes = append(r.CoverageNotes, "nothing posted of "+strings.Join(blank, ", ")+
			": the ledger has no charge of the current period; `curfew scan` or `curfew bill reconcile --post` brings it")
	}
	return r
}

func newBudget(s budget.Status) Budget {
	b := Budget{
		ID: s.Budget.ID, Parent: s.Budget.Parent, Match: s.Budget.Match, From: s.Window.From, Until: s.Window.To,
		Amount:  s.Budget.Amount,
		Balance: s.Balance, UnboundedHours: s.Unbounded.Hours(),
		State: s.State, ForecastReason: s.NoForecast, LedgerUntil: optionalTime(s.Through),
		NothingPosted: nothingPosted(&s)}
	if s.Budget.PerHour > 0 {
		b.PerHour = &s.Budget.PerHour
	}
	if f, ok := s.Forecast.Get(); ok {
		b.Forecast, b.ForecastReason = &f, ""
	}
	return b
}

// nothingPosted reports whether the ledger has no charge of a budget's period.
func nothingPosted(s *budget.Status) bool {
	return s.Used == 0 && s.Unknown == 0 && s.Unbounded == 0
}

// optionalTime returns a time for a document, or nil if it is zero.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// note adds remarks on the omissions of a status, and on changes of its figures.
func (r *Budgets) note(s budget.Status) {
	cover := func(format string, args ...any) {
		r.CoverageNotes = append(r.CoverageNotes, s.Budget.ID+": "+fmt.Sprintf(format, args...))
	}
	if s.Unobserved > 0 {
		cover("%s is reserved by runs that ended without a charge; `curfew budget holds` lists them as unobserved",
			s.Unobserved.Exact())
		r.Changes = append(r.Changes,
			s.Budget.ID+": settle the unobserved reservations, or run `curfew scan` in their "+
				"accounts, to free what they did not spend")
	}
	if s.Unknown > 0 {
		counted := "not counted"
		if s.Budget.CountUnknown {
			counted = "counted"
		}
		cover("unpriced charges of at most %s, %s", s.Unknown.Exact(), counted)
	}
	if s.Unbounded > 0 {
		cover("%s of unpriced resources are not counted", plain.Count(int64(s.Unbounded.Round(time.Hour)/time.Hour),
			"hour"))
	}
	if s.NoForecast != "" {
		cover("%s", s.NoForecast)
	}
	if f, ok := s.Forecast.Get(); ok && f.Median > s.Budget.Amount {
		r.Changes = append(r.Changes,
			fmt.Sprintf("%s: at the current rate the period ends at %s of %s; spend less, or raise the limit",
				s.Budget.ID, f.Median.Dollars(), s.Budget.Amount.Dollars()))
	}
	if s.Left < 0 {
		r.Changes = append(r.Changes,
			fmt.Sprintf("%s: exceeded by %s; release reservations of work that did not start, or raise the limit",
				s.Budget.ID, (-s.Left).Exact()))
	}
}

// Holds is the output of `budget holds`: the reservations of budgets.
type Holds struct {
	Schema string `json:"schema"`
	Holds  []Hold `json:"holds"`
}

// Hold is one reservation.
type Hold struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	// SpecHash is the hash of the specification.
	SpecHash  string          `json:"spec_hash"`
	Owner     inventory.Owner `json:"owner"`
	Purpose   string          `json:"purpose"`
	AmountUSD money.Amount    `json:"amount_usd"`
	// ActualUSD is the dollars that were charged.
	ActualUSD money.Dollars `json:"actual_usd"`
	// AskedBy is the requester.
	AskedBy string `json:"asked_by"`
	// Approval is the id of the request.
	Approval string    `json:"approval_id,omitempty"`
	Run      string    `json:"run,omitempty"`
	From     time.Time `json:"from"`
	Until    time.Time `json:"until"`
	// ExpiresAt is when it expires.
	ExpiresAt time.Time `json:"expires_at"`
	// Uncharged is true if the run ended and the ledger has no charge of it.
	Uncharged bool `json:"uncharged,omitempty"`
}

// NewHolds makes the document of holds at a time. missed contains the ids of holds whose runs ended
// without a charge in the ledger.
func NewHolds(all []budget.Hold, missed map[string]bool, now time.Time) Holds {
	d := Holds{HoldsSchema, make([]Hold, 0, len(all))}
	for _, h := range all {
		d.Holds = append(d.Holds, newHold(h, missed[h.ID], now))
	}
	return d
}

// NewOneHold makes the document of one hold at a time.
func NewOneHold(h budget.Hold, now time.Time) OneHold {
	return OneHold{HoldSchema, newHold(h, false, now)}
}

func newHold(h budget.Hold, missed bool, now time.Time) Hold {
	state := h.At(now)
	if missed && state == budget.Expired {
		state = budget.Unobserved
	}
	v := Hold{
		ID: h.ID, State: string(state), Kind: h.Kind, Name: h.Name, SpecHash: h.SpecHash, Owner: h.Owner,
		Purpose: string(h.Purpose), AmountUSD: h.Amount,
		AskedBy: h.AskedBy, Approval: h.Approval, Run: h.Run, From: h.From.UTC(), Until: h.Until.UTC(),
		ExpiresAt: h.ExpiresAt.UTC(), Uncharged: missed}
	if h.State == budget.Settled {
		v.ActualUSD = money.Known(h.Actual)
	}
	return v
}

// For names the owner and purpose of a hold: "vision/ranking training".
func (h Hold) For() string {
	return strings.Trim(strings.Trim(h.Owner.Team+"/"+h.Owner.Project, "/")+" "+h.Purpose, " ")
}
