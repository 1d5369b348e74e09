package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// PolicyCheck writes the warnings about policies, and what they could act on.
func PolicyCheck(w io.Writer, doc view.PolicyCheck) error {
	for _, c := range doc.Warnings {
		plain.Fprintf(w, "%s:%d: policy %s: %s\n", c.File, c.Line, c.Policy, c.Message)
	}
	_, err := plain.Fprintf(w, "%s, %s\n", counted(doc.Policies, "policy is valid", "policies are valid"), counted(len(doc.Warnings), "warning", "warnings"))
	if err != nil || doc.Against == nil {
		return err
	}
	r := doc.Against
	plain.Fprintf(w, "\nagainst the scan of %s, %s, %s\n", r.Cloud, r.At.Format("2006-01-02 15:04 UTC"), counted(r.Resources, "resource", "resources"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	plain.Fprintf(t, "policy\tselects\tcould act on\tunknown\t  refused by\n")
	for _, n := range r.Policies {
		var refused []string
		for _, rule := range slices.Sorted(maps.Keys(n.Refused)) {
			refused = append(refused, fmt.Sprintf("%s %d", rule, n.Refused[rule]))
		}
		plain.Fprintf(t, "%s\t%d\t%d\t%d\t  %s\n", n.Policy, n.Selected, n.CouldAct, n.Unknown, strings.Join(refused, ", "))
	}
	return t.Flush()
}

// PolicyTest writes the outcome of every case.
func PolicyTest(w io.Writer, doc view.PolicyTest) error {
	for _, c := range doc.Cases {
		if c.Passed {
			plain.Fprintf(w, "ok    %s: %s\n", c.File, c.Name)
			continue
		}
		plain.Fprintf(w, "FAIL  %s:%d: %s\n", c.File, c.Line, c.Name)
		for _, why := range c.Failures {
			plain.Fprintf(w, "      %s\n", why)
		}
	}
	_, err := plain.Fprintf(w, "%s, %d failed\n", counted(len(doc.Cases), "case", "cases"), doc.Failed)
	return err
}

// PolicyExplain writes what every policy answers about a resource, for a terminal of a
// width in columns; 0 is no terminal.
func PolicyExplain(w io.Writer, doc view.PolicyExplain, width int) error {
	plain.Fprintf(w, "%s %s %s   %s\n", doc.Kind, doc.Type, doc.Name, doc.Region)
	if d := doc.Duty; d != nil {
		plain.Fprintf(w, "  duty: %s for %s: %s\n", d.State, plain.Duration(d.Lasting()), d.Why)
	}
	for _, p := range doc.Policies {
		plain.Fprintf(w, "\n%s: %s", p.Policy, p.Answer)
		if p.Next != nil {
			plain.Fprintf(w, ", may change at %s", p.Next.Format("2006-01-02 15:04 UTC"))
		}
		plain.Fprintln(w)
		for _, part := range p.Parts {
			plain.Fprintf(w, "  %-9s %-8s %s\n", part.Name, part.Answer, wrapped(part.Text, width, 21))
			if part.Why != "" {
				plain.Fprintf(w, "%21s%s\n", "", wrapped(part.Why, width, 21))
			}
		}
	}
	return nil
}

func counted(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// wrapped makes text one line, breaks it at the terminal's width and indents what
// follows the first line.
func wrapped(text string, width, indent int) plain.Text {
	if width <= 0 {
		width = 100
	}
	return plain.Text(strings.Join(wordwrap(plain.Line(text), max(width-indent, 40)), "\n"+strings.Repeat(" ", indent)))
}
