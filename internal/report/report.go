// Package report draws documents (internal/view) for people: each becomes a sheet
// (internal/report/layout), which is written as text for terminals, Markdown or HTML; some are
// written as CSV for spreadsheets. All outputs of a document use the same value, so that they
// cannot disagree.
package report

import "github.com/curfew-dev/curfew/internal/report/layout"

// Sheet is a document in a form that every output can show.
type Sheet = layout.Sheet
