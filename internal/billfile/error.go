package billfile

import (
	"strconv"
	"strings"
)

// Error is a bill that cannot be read, with its place. Nothing of the bill is imported.
type Error struct {
	File string
	// Line and Column are those of a CSV file, Row that of a Parquet file, from 1; 0 is
	// the whole file, or the whole line.
	Line, Column, Row int
	// Reason names the value found and the one expected; empty if Err has both.
	Reason string
	// Err is the cause, where there is one.
	Err error
}

// Error returns `september.csv:12:40: BilledCost "1,5" is not a decimal number` or
// `september.parquet: row 12: …`.
func (e *Error) Error() string {
	at := e.File
	if e.Line > 0 {
		at += ":" + strconv.Itoa(e.Line)
		if e.Column > 0 {
			at += ":" + strconv.Itoa(e.Column)
		}
	}
	said := []string{at}
	if e.Row > 0 {
		said = append(said, "row "+strconv.Itoa(e.Row))
	}
	if e.Reason != "" {
		said = append(said, e.Reason)
	}
	if e.Err != nil {
		said = append(said, e.Err.Error())
	}
	return strings.Join(said, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
