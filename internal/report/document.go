// Package report draws documents (internal/view) for people: text for terminals,
// Markdown, HTML, and CSV for spreadsheets. Each output of a document is drawn from the
// same value, so that they cannot disagree.
package report

import (
	"time"

	"github.com/curfew-dev/curfew/internal/view"
)

// Options are how an audit is shown.
type Options struct {
	// Width is the columns of the terminal: 100 when zero, and at least 60.
	Width int
	// Color says that the terminal shows colors.
	Color bool
	// All shows every finding, not only the largest.
	All bool
	// Again is the command that shows this audit in another form; empty: scan, with the
	// account of the document.
	Again string
	// Globals are flags of every command that the user gave, with a leading space: they
	// follow suggested commands.
	Globals string
	// Age is how old a kept audit is; 0 for one that was just made.
	Age time.Duration
	// Top is how many of the largest findings are shown: 10 when zero.
	Top int
}

func (o Options) width() int {
	if o.Width <= 0 {
		return 100
	}
	return max(o.Width, 60)
}

func (o Options) top() int {
	if o.Top <= 0 {
		return 10
	}
	return o.Top
}

// audit is the document of an audit with what drawing it needs.
type audit struct {
	*view.Scan
	o Options
}

func newAudit(d view.Scan, o Options) *audit { return &audit{&d, o} }
