package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The ages at which the ledger drops detail. Hourly charges cover the longest window of an audit
// and of `plan commit` (90 days); single rounds cover the time within which a late one can arrive.
const (
	HoursAfter = 48 * time.Hour
	DaysAfter  = 90 * 24 * time.Hour
)

// ErrFolded is returned for a round before the time up to which the ledger of its account is
// folded, because the observations around it are gone.
var ErrFolded = errors.New("the ledger is folded up to a later time")

// FoldedError is returned for a query for hours of single resources that are stored only by day.
type FoldedError struct {
	// Until is the midnight from which on hours are stored.
	Until time.Time
}

// Error names the first day with hours and suggests queries that work for older days.
func (e *FoldedError) Error() string {
	day := e.Until.UTC().Format(time.DateOnly)
	return fmt.Sprintf("single resources have hours from %s on and whole UTC days before: ask from %s on, or for "+
		"whole days, or without the resource", day, day)
}

// Folder folds the ledger of an account: of a resource's observations it keeps the last one of each
// hour, and later of each day, with all measurements merged into it, and it sums charges of one
// line by hour, and later by day. Sums by any dimension do not change, except for hours of single
// resources (see [FoldedError]). Entries that a later round may derive again are kept.
type Folder interface {
	// Fold runs at most a number of transactions, and reports whether more remains. If killed
	// between two of them, the next run continues.
	Fold(ctx context.Context, a Account, now time.Time, transactions int) (Folded, error)
}

// Folded is the outcome of folding.
type Folded struct {
	// Observations and Entries count the removed rows.
	Observations, Entries int
	// More is true if more remains to fold.
	More bool
}
