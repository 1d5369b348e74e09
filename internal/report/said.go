package report

import (
	"io"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// State is a decision or state in a message, colored if colors are on.
type State string

// Say writes a short message for a terminal of a width in columns; 0 for no terminal. Lines are
// wrapped at spaces, never within a word or command.
func Say(w io.Writer, width int, color bool, format string, args ...any) error {
	p := layout.NewPaint(color)
	for i, arg := range args {
		s, ok := arg.(State)
		if !ok {
			continue
		}
		args[i] = string(s)
		if paint := p.State(string(s)); paint != nil {
			args[i] = plain.Text(paint(plain.Line(string(s))))
		}
	}
	var b strings.Builder
	_, err := plain.Fprintf(&b, format+"\n", args...)
	if err != nil {
		return err
	}
	text := b.String()
	if width > 0 {
		text = ""
		for line := range strings.Lines(b.String()) {
			indent := strings.Repeat(" ", len(line)-len(strings.TrimLeft(line, " ")))
			text += indent + strings.Join(layout.Wrap(line, width-len(indent)-indentOfRest),
				"\n"+indent+strings.Repeat(" ", indentOfRest)) + "\n"
		}
	}
	_, err = io.WriteString(w, text)
	return err
}

// YAML writes a YAML document for a terminal of a width in columns; 0 for no terminal. Long lines
// continue indented, which is equivalent.
func YAML(w io.Writer, width int, text string) error {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		indent := strings.Repeat(" ", len(line)-len(strings.TrimLeft(line, " ")))
		if width <= 0 || layout.Width(line) <= width || strings.ContainsAny(line, "#\t") ||
			strings.Contains(strings.TrimSpace(line), "  ") {
			b.WriteString(line + "\n")
			continue
		}
		b.WriteString(indent + strings.Join(layout.Wrap(line, width-len(indent)-6),
			"\n"+indent+strings.Repeat(" ", 6)) +
			"\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// indentOfRest is the indentation of continuation lines.
const indentOfRest = 2
