package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// demoShown is the number of lines per result in a demonstration.
const demoShown = 6

// Demo writes a demonstration, pass by pass.
type Demo struct {
	w     io.Writer
	width int
	paint layout.Paint
	seen  map[string]bool
}

// NewDemo starts a demonstration for a terminal of a width in columns; 0 for no terminal.
func NewDemo(w io.Writer, width int, color bool) *Demo {
	return &Demo{w: w, width: width, paint: layout.NewPaint(color)}
}

// Pass writes a pass: the number of results, and the new ones.
func (d *Demo) Pass(p view.DemoPass) error {
	if d.seen == nil {
		d.seen = map[string]bool{}
		fmt.Fprintf(d.w, "curfew enforce   %s\n",
			layout.Hanging(fmt.Sprintf("the simulated account, %s, in simulated time",
				plain.Count(len(p.Policies), "policy")),
				d.width, 17, 17))
	}
	fresh, counts := map[string][]view.Line{}, map[string]int{}
	for _, l := range p.Lines {
		counts[l.Result]++
		if key := l.Resource + l.Policy + l.Result; !d.seen[key] {
			d.seen[key] = true
			fresh[l.Result] = append(fresh[l.Result], l)
		}
	}
	var sum []string
	for _, r := range Results {
		if n := counts[string(r)]; n > 0 {
			sum = append(sum, fmt.Sprintf("%d %s", n, r))
		}
	}
	head := cmp.Or(strings.Join(sum, ", "), "nothing to do") + "; " + plain.Count(p.Sent, "message was sent",
		"messages were sent")
	_, err := fmt.Fprintf(d.w, "\n  %s   %s\n", p.At.Format("Mon 15:04"), layout.Hanging(head, d.width, 14, 14))
	for _, r := range Results {
		lines := fresh[string(r)]
		for i, l := range lines {
			state := layout.Pad(l.Result, 10)
			if color := d.paint.State(l.Result); color != nil {
				state = color(l.Result) + state[len(l.Result):]
			}
			if i == demoShown {
				fmt.Fprintf(d.w, "    %s and %d more\n", state, len(lines)-i)
				break
			}
			name := plain.Line(
				strings.TrimSpace(l.Type + " " + cmp.Or(l.Name, l.Resource[strings.LastIndex(l.Resource, "/")+1:])))
			if d.width > 0 && d.width < 100 {
				_, err = fmt.Fprintf(d.w, "    %s %-7s %s\n      %s\n", state, l.Verb, layout.Fit(name, d.width-24),
					d.wrapped(l.Why, 6, 6))
				continue
			}
			_, err = fmt.Fprintf(d.w, "    %s %-7s %s %s\n", state, l.Verb, layout.Pad(layout.Fit(name, 32), 32),
				d.wrapped(l.Why, 55, 55))
		}
	}
	for _, f := range p.Fuses {
		_, err = fmt.Fprintf(d.w, "    %s\n    confirmed by demo\n", d.wrapped(f, 4, 4))
	}
	return err
}

// End prints the number of entries in the audit log.
func (d *Demo) End(entries int64) error {
	_, err := fmt.Fprintf(d.w, "\n  audit log: %s; all of this was simulated\n", plain.Count(entries, "entry"))
	return err
}

// wrapped wraps a text at the terminal's width, or at 100 columns.
func (d *Demo) wrapped(text string, column, indent int) string {
	return layout.Hanging(text, cmp.Or(d.width, 100), column, indent)
}
