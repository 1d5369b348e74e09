package bill

import (
	"context"
	"errors"
	"iter"
	"time"
)

// ErrChanged is returned if a period changed since the replacement was planned: another import came
// between. Nothing was replaced; read the periods and try again.
var ErrChanged = errors.New("the billing period was changed by another import meanwhile")

// Store keeps imported periods. Every method is safe for use by many processes at once.
type Store interface {
	// Periods returns the periods with from <= Start < to, ordered by start and account.
	// A zero time is no bound.
	Periods(ctx context.Context, from, to time.Time) ([]Period, error)

	// Replace replaces all the given periods in one transaction: the rows and totals of
	// each are deleted and written again, or only deleted where Content is nil. It is
	// conditional: where the stored digest of any of them is not its Replaces (empty:
	// nothing is stored), it returns an error that is ErrChanged and changes nothing.
	// Keys are distinct. An error, or a crash at any moment, leaves every period as it
	// was. No replacements are no error.
	//
	// It is not idempotent by itself: [Plan] leaves out what is already there, and a
	// repeated call finds the digest changed.
	Replace(ctx context.Context, periods []Replacement) error

	// Rows yields rows ordered by start, account, day, resource and then in the order in
	// which they were given. After an error nothing more is yielded.
	Rows(ctx context.Context, q Query) iter.Seq2[Row, error]
}

// Query chooses rows. Its zero value chooses all. Filters are combined by "and"; a
// nil slice is no filter.
type Query struct {
	// From and To bound the day: From <= Day < To; a zero time is no bound.
	From, To time.Time
	// Starts are billing periods by their beginning, Accounts are billing accounts.
	Starts   []time.Time
	Accounts []string
	// Resources by id.
	Resources  []string
	Categories []Category
}

// Dimension is a column of rows by which costs are shared out.
type Dimension string

// The dimensions.
const (
	ByStart          Dimension = "start"
	ByAccount        Dimension = "account"
	ByDay            Dimension = "day"
	ByProvider       Dimension = "provider"
	BySubAccount     Dimension = "sub_account"
	ByResource       Dimension = "resource"
	ByService        Dimension = "service"
	ByRegion         Dimension = "region"
	ByCategory       Dimension = "category"
	ByChargeCategory Dimension = "charge_category"
	ByCommitment     Dimension = "commitment"
	ByTeam           Dimension = "team"
	ByProject        Dimension = "project"
	ByUser           Dimension = "user"
	ByEnvironment    Dimension = "environment"
	ByCostCenter     Dimension = "cost_center"
	ByPurpose        Dimension = "purpose"
	ByPricing        Dimension = "pricing"
	ByType           Dimension = "type"
)

// The dimensions that no row says: lines of the ledger, to which rows belong, have them.
const (
	ByKind     Dimension = "kind"
	ByState    Dimension = "duty"
	ByLifetime Dimension = "lifetime"
	// ByCostCenters is the ledger's spelling of ByCostCenter.
	ByCostCenters Dimension = "cost-center"
)

// Value returns the row's value in a dimension; a day and a start as RFC 3339 dates ("2024-09-01").
// A value that the bill does not state is empty.
func (r *Row) Value(d Dimension) string {
	switch d {
	case ByStart:
		return r.Start.Format(time.DateOnly)
	case ByAccount:
		return r.Account
	case ByDay:
		return r.Day.Format(time.DateOnly)
	case ByProvider:
		return r.Provider
	case BySubAccount:
		return r.SubAccount
	case ByResource:
		return r.Resource
	case ByService:
		return r.Service
	case ByRegion:
		return r.Region
	case ByCategory:
		return string(r.Category)
	case ByChargeCategory:
		return r.ChargeCategory
	case ByCommitment:
		return r.Commitment
	case ByTeam:
		return r.Owner.Team
	case ByProject:
		return r.Owner.Project
	case ByUser:
		return r.Owner.User
	case ByEnvironment:
		return r.Owner.Environment
	case ByCostCenter:
		return r.Owner.CostCenter
	case ByPurpose:
		return string(r.Purpose)
	case ByPricing:
		return r.PricingCategory
	case ByType:
		return r.Type
	}
	return ""
}

// RowsOf yields the rows of a query; the first error ends them and is put in err.
func RowsOf(ctx context.Context, s Store, q Query, err *error) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for r, e := range s.Rows(ctx, q) {
			if e != nil {
				*err = errors.Join(*err, e)
				return
			}
			if !yield(r) {
				return
			}
		}
	}
}
