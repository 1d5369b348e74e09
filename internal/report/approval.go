package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// Approvals writes requests for approval with their plans, at a time.
func Approvals(w io.Writer, d view.Approvals, now time.Time) error {
	var b strings.Builder
	if len(d.Requests) == 0 {
		b.WriteString("No request waits for an approval\n")
	}
	for _, r := range d.Requests {
		decided := strings.TrimSpace(r.DecidedBy + " " + r.Reason)
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(fmt.Sprintf("%s  %s  %s  %s %s  until %s  %s", r.ID, r.State, r.Subject, r.Request.Amount.Exact(), r.AmountUnit, plain.When(r.ExpiresAt, now), decided), " "))
		for _, line := range r.Request.Lines() {
			fmt.Fprintf(&b, "    %s\n", line)
		}
		fmt.Fprintf(&b, "    asked by: %s (%s)\n", r.AskedBy, r.Request.AskedProof)
		if r.DecidedBy == "" {
			approvers := strings.Join(r.Approvers, ", ")
			if approvers == "" {
				approvers = "none: approvers lists no other person with the role " + strings.Join(r.Roles, " or ")
			}
			fmt.Fprintf(&b, "    approvers: %s\n", approvers)
		} else {
			fmt.Fprintf(&b, "    decided by: %s (%s)\n", r.DecidedBy, r.Request.Proof)
		}
	}
	if d.Asked > 0 {
		wait := "none decided yet"
		if d.MedianWait != nil {
			wait = "median wait " + waited(*d.MedianWait)
		}
		fmt.Fprintf(&b, "\n%s, %d approved, %d denied; %s\n", plain.Count(d.Asked, "request"), d.Approved, d.Denied, wait)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
