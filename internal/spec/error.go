package spec

import "fmt"

// Error is a mistake in a file.
type Error struct {
	// File and the 1-based Line and Column of the mistake, the column in characters.
	File         string
	Line, Column int
	Message      string
}

// Error returns "job.yaml:7:11: message".
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}
