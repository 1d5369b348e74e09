package report

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// paint gives text its meaning in color: waste is red, what needs attention
// yellow, savings green, what is secondary dim.
type paint struct{ dim, waste, attention, saving func(string) string }

func newPaint(color bool) paint {
	if !color {
		return paint{same, same, same, same}
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
	return paint{
		dim:   style(base().Faint(true)),
		waste: style(base().Foreground(lipgloss.Red)), attention: style(base().Foreground(lipgloss.Yellow)),
		saving: style(base().Foreground(lipgloss.Green)),
	}
}

// same is no color.
func same(s string) string { return s }

// tone returns the color of a figure; nil leaves it as it is.
func (p paint) tone(t Tone) func(string) string {
	switch t {
	case ToneWaste:
		return p.waste
	case ToneSaving:
		return p.saving
	}
	return nil
}

// good, open and bad are the words for decisions and states that have a color. The word
// says it; the color only repeats it.
var (
	good = words("allow allowed approved busy done confirmed live settled used valid ok passed yes true settled within")
	open = words("ask asks pending held warming warned warn unknown unmeasured waiting deferred frozen expired approval unobserved medium warning open")
	bad  = words("deny denied refused rejected idle stalled starved exceeded failed alarm high over blocked error no fail")
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
func (p paint) decided(line string) string {
	head, rest, ok := strings.Cut(line, ":")
	word := strings.TrimPrefix(head, "Needs ")
	if color := p.state(word); ok && color != nil && !strings.Contains(word, " ") {
		return color(head) + ":" + rest
	}
	return line
}

// state returns the color of a decision or a state; nil where it has none.
func (p paint) state(text string) func(string) string {
	switch word := stateWord(text); {
	case good[word]:
		return p.saving
	case open[word]:
		return p.attention
	case bad[word]:
		return p.waste
	}
	return nil
}
