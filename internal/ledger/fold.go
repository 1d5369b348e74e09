package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The ages at which a ledger gives up detail. Charges by hour last for the longest window of an
// audit and of `plan commit` (90 days); single passes for the time within which a late one can
// still come.
const (
	HoursAfter = 48 * time.Hour
	DaysAfter  = 90 * 24 * time.Hour
)

// ErrFolded is returned for a round that is older than the time up to which the ledger of its
// account is folded: the observations around it are not kept any more.
var ErrFolded = errors.New("the ledger is folded up to a later time")

// FoldedError is returned for a question about hours of single resources that are kept as days.
type FoldedError struct {
	// Until is the midnight from which on there are hours.
	Until time.Time
}

// Error names the first day that has hours, and the questions that older days answer.
func (e *FoldedError) Error() string {
	day := e.Until.UTC().Format(time.DateOnly)
	return fmt.Sprintf("single resources have hours from %s on and whole UTC days before: ask from %s on, or for "+
		"whole days, or without the resource", day, day)
}

// Folder folds the ledger of an account: of the observations of a resource it keeps the last one of
// each hour, and later of each day, with all that was measured in it, and it adds up charges of one
// line in an hour, and later in a day. Sums by any values are the same before and after,
// but for hours of single resources (see [FoldedError]). What a round that comes next may
// derive again is left as it is.
type Folder interface {
	// Fold makes at most so many transactions, and reports whether more is to be folded. Killed between
	// any two of them it goes on where it stopped.
	Fold(ctx context.Context, a Account, now time.Time, transactions int) (Folded, error)
}

// Folded is the outcome of folding.
type Folded struct {
	// Observations and Entries are the rows that are not kept any more.
	Observations, Entries int
	// More is true where something is left to fold.
	More bool
}
