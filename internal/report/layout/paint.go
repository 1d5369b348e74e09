package layout

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// Paint colors text by meaning: used is blue, wasted orange, saved green, an error red, attention
// yellow, secondary dim.
type Paint struct{ Dim, Used, Waste, Error, Attention, Saving func(string) string }

// NewPaint returns the colors of a terminal, or no colors.
func NewPaint(color bool) Paint {
	if !color {
		return Paint{same, same, same, same, same, same}
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
		Dim:  style(base().Faint(true)),
		Used: style(base().Foreground(lipgloss.Blue)), Waste: style(base().Foreground(orange)),
		Error: style(base().Foreground(lipgloss.Red)), Attention: style(base().Foreground(lipgloss.Yellow)),
		Saving: style(base().Foreground(lipgloss.Green)),
	}
}

// orange is from the 256-color palette: the basic colors lack it.
var orange = lipgloss.Color("208")

// same returns text without color.
func same(s string) string { return s }

// tone returns the color function of a tone; nil for none.
func (p Paint) tone(t Tone) func(string) string {
	switch t {
	case ToneUsed:
		return p.Used
	case ToneWaste:
		return p.Waste
	case ToneSaving:
		return p.Saving
	case ToneUnmeasured, ToneOther:
		return p.Dim
	}
	return nil
}

// Words of decisions and states with a color. Color only repeats the word.
var (
	worked = words("busy starved warming used")
	idle   = words("idle held stalled wasted")
	good   = words("allow allowed approved done confirmed live settled valid ok passed yes true within")
	open   = words(
		"ask asks pending warned warn unknown unmeasured waiting deferred frozen expired approval " +
			"unobserved medium warning open",
	)
	bad = words("deny denied refused rejected exceeded failed alarm high over blocked error no fail")
)

func words(list string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(list) {
		out[w] = true
	}
	return out
}

// stateWord returns the first word of a text.
func stateWord(text string) string {
	word, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(text)), " ")
	return strings.TrimRight(word, ",:;")
}

// decided colors the decision at the start of a headline: "Denied: budget …".
func (p Paint) decided(line string) string {
	head, rest, ok := strings.Cut(line, ":")
	word := strings.TrimPrefix(head, "Needs ")
	if color := p.State(word); ok && color != nil && !strings.Contains(word, " ") {
		return color(head) + ":" + rest
	}
	return line
}

// State returns the color function of a decision or state; nil for none.
func (p Paint) State(text string) func(string) string {
	switch word := stateWord(text); {
	case worked[word]:
		return p.Used
	case idle[word]:
		return p.Waste
	case good[word]:
		return p.Saving
	case open[word]:
		return p.Attention
	case bad[word]:
		return p.Error
	}
	return nil
}
