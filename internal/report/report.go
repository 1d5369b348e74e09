// Package report draws documents (internal/view) for people: each becomes a sheet
// (internal/report/layout), which writes itself as text for terminals, Markdown or HTML, and
// some are written as CSV for spreadsheets. Each output of a document is drawn from the same
// value, so that they cannot disagree.
package report

import "github.com/curfew-dev/curfew/internal/report/layout"

// Sheet is a document as every output shows it.
type Sheet = layout.Sheet
