package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Approvals writes requests for approval with their plans for a terminal, as of a time.
func Approvals(w io.Writer, d view.Approvals, now time.Time, o Options) error {
	var b strings.Builder
	p := layout.NewPaint(o.Color)
	if len(d.Requests) == 0 {
		b.WriteString("No request waits for an approval\n")
	}
	line := func(text string) {
		bare := strings.TrimLeft(text, " ")
		lead := 4 + len(text) - len(bare)
		if !approval.IsCommand(bare) {
			bare = laidOut(bare, o.Width, lead, lead+2)
		}
		fmt.Fprintf(&b, "%s%s\n", strings.Repeat(" ", lead), bare)
	}
	for _, r := range d.Requests {
		decided := strings.TrimSpace(r.DecidedBy + " " + r.Reason)
		state := r.State
		if color := p.State(state); color != nil {
			state = color(state)
		}
		what := fmt.Sprintf("%s  %s %s  until %s  %s", r.Subject, r.AtMost(), r.AmountUnit,
			plain.When(r.ExpiresAt, now),
			decided)
		column := len(r.ID) + 2 + len(r.State) + 2
		fmt.Fprintf(&b, "%s  %s  %s\n", r.ID, state, strings.TrimRight(laidOut(what, o.Width, column, 4), " "))
		for _, text := range r.Lines() {
			line(text)
		}
		line(fmt.Sprintf("asked by: %s (%s)", r.AskedBy, r.AskedProof))
		if r.DecidedBy == "" {
			approvers := strings.Join(r.Approvers, ", ")
			if approvers == "" {
				approvers = "none: approvers lists no other person with the role " + strings.Join(r.Roles, " or ")
			}
			line("approvers: " + approvers)
		} else {
			line(fmt.Sprintf("decided by: %s (%s)", r.DecidedBy, r.Proof))
		}
	}
	if d.Asked > 0 {
		wait := "none decided yet"
		if d.MedianWait != nil {
			wait = "median wait " + waited(*d.MedianWait)
		}
		fmt.Fprintf(&b, "\n%s, %d approved, %d denied; %s\n", plain.Count(d.Asked, "request"),
			d.Approved, d.Denied, wait)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// laidOut wraps a text at the width of the terminal; without one it is unchanged.
func laidOut(text string, width, column, indent int) string {
	if width <= 0 {
		return text
	}
	return layout.Hanging(text, width, column, indent)
}
