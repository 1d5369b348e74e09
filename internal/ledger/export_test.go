package ledger

// MaxConflicts is for tests from outside.
const MaxConflicts = maxConflicts
