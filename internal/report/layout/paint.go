package layout

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// Paint gives text its meaning in color: waste is red, what needs attention
// yellow, savings green, what is secondary dim.
type Paint struct{ Dim, Waste, Attention, Saving func(string) string }

// NewPaint returns the colors of a terminal, or none.
func NewPaint(color bool) Paint {
	if !color {
		return Paint{same, same, same, same}
	}
	style := func(s lipgloss.Style) func(string) string {
		return func(text string) string {
			if text == "" {
				return ""
			}
			return s.Render(text)
		}
	}
	base := lipgloss.NewStyle
	return Paint{
		Dim:   style(base().Faint(true)),
		Waste: style(base().Foreground(lipgloss.Red)), Attention: style(base().Foreground(lipgloss.Yellow)),
		Saving: style(base().Foreground(lipgloss.Green)),
	}
}

// same is no color.
func same(s string) string { return s }

// tone returns the color of a figure; nil leaves it as it is.
func (p Paint) tone(t Tone) func(string) string {
	switch t {
	case ToneWaste:
		return p.Waste
	case ToneSaving:
		return p.Saving
	}
	return nil
}

// good, open and bad are the words for decisions and states that have a color. The word
// says it; the color only repeats it.
var (
	good = words(
		"allow allowed approved busy done confirmed live settled used valid ok passed yes true settled within",
	)
	open = words(
		"ask asks pending held warming warned warn unknown unmeasured waiting deferred frozen expired approval " +
			"unobserved medium warning open",
	)
	bad = words(
		"deny denied refused rejected idle stalled starved exceeded failed alarm high over blocked error no fail",
	)
)

func words(list string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(list) {
		out[w] = true
	}
	return out
}

// stateWord returns the first word of a text, which is a decision or a state.
func stateWord(text string) string {
	word, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(text)), " ")
	return strings.TrimRight(word, ",:;")
}

// decided colors the decision with which a headline begins: "Denied: budget …".
func (p Paint) decided(line string) string {
	head, rest, ok := strings.Cut(line, ":")
	word := strings.TrimPrefix(head, "Needs ")
	if color := p.State(word); ok && color != nil && !strings.Contains(word, " ") {
		return color(head) + ":" + rest
	}
	return line
}

// State returns the color of a decision or a state; nil where it has none.
func (p Paint) State(text string) func(string) string {
	switch word := stateWord(text); {
	case good[word]:
		return p.Saving
	case open[word]:
		return p.Attention
	case bad[word]:
		return p.Waste
	}
	return nil
}
