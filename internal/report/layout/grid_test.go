package layout

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"
)

func gridText(g Grid, width int, color bool) string {
	var b strings.Builder
	g.text(&b, width, NewPaint(color))
	return b.String()
}

var fleet = Grid{
	Title: "machines", Head: []string{"machine", "region", "state", "a month", "why"},
	Right: []bool{3: true}, States: []bool{2: true},
	Rows: [][]string{
		{
			"tokenizer-notebook", "us-east-1", "held", "$16,029",
			"8 of 8 GPUs held: 92% of memory held, 0% compute for 8d 11h",
		},
		{"訓練用ノートブック", "ap-northeast-1", "idle", "$713", "0% compute and nothing held for 13d"},
	},
	Commands: []string{"curfew fix f667", ""},
}

func TestGridAtWidths(t *testing.T) {
	for _, tc := range []struct {
		width int
		want  string
	}{
		{120, `  machines
  machine             region          state  a month  why
  tokenizer-notebook  us-east-1       held   $16,029  8 of 8 GPUs held: 92% of memory held, 0% compute for 8d 11h
    curfew fix f667
  訓練用ノートブック  ap-northeast-1  idle      $713  0% compute and nothing held for 13d
`},
		{80, `  machines
  machine             region          state  a month  why
  tokenizer-notebook  us-east-1       held   $16,029  8 of 8 GPUs held: 92% of …
    curfew fix f667
  訓練用ノートブック  ap-northeast-1  idle      $713  0% compute and nothing he…
`},
		{60, `  machines
  machine             region      state  a month  why
  tokenizer-notebook  us-east-1   held   $16,029  8 of 8 GP…
    curfew fix f667
  訓練用ノートブック  ap-northe…  idle      $713  0% comput…
`},
		{40, `  machines
  machine  tokenizer-notebook
    region   us-east-1
    state    held
    a month  $16,029
    why      8 of 8 GPUs held: 92% of m…
    curfew fix f667
  machine  訓練用ノートブック
    region   ap-northeast-1
    state    idle
    a month  $713
    why      0% compute and nothing hel…
`},
	} {
		got := gridText(fleet, tc.width, false)
		if got != tc.want {
			t.Errorf("at %d columns got\n%s\nwant\n%s", tc.width, got, tc.want)
		}
		if colored := gridText(fleet, tc.width, true); ansi.Strip(colored) != got || colored == got {
			t.Errorf("at %d columns the colors change the text, or there are none:\n%s", tc.width, colored)
		}
	}
}

// TestGridFoldsColumnsUnderRow checks that columns move under their row instead of being
// truncated, in the order of Fold, and that columns and rows for other outputs are omitted.
func TestGridFoldsColumnsUnderRow(t *testing.T) {
	g := fleet
	g.Commands, g.Fold, g.Extra, g.Most, g.Noun = nil, []int{4, 3}, 1, 1, "machine"
	g.Head = append(slices.Clone(g.Head), "risk")
	g.Rows = [][]string{append(slices.Clone(g.Rows[0]), "high"), append(slices.Clone(g.Rows[1]), "low")}
	for _, tc := range []struct {
		width int
		want  string
	}{
		{120, `  machines
  machine             region     state  a month  why
  tokenizer-notebook  us-east-1  held   $16,029  8 of 8 GPUs held: 92% of memory held, 0% compute for 8d 11h
  and 1 more machine
`},
		{80, `  machines
  machine             region     state  a month
  tokenizer-notebook  us-east-1  held   $16,029
    8 of 8 GPUs held: 92% of memory held, 0% compute for 8d 11h
  and 1 more machine
`},
	} {
		if got := gridText(g, tc.width, false); got != tc.want {
			t.Errorf("at %d columns got\n%s\nwant\n%s", tc.width, got, tc.want)
		}
	}
	var b Markdown
	b.grid(&g)
	if !strings.Contains(b.String(), "| risk |") || !strings.Contains(b.String(), "8d 11h | high |") ||
		strings.Contains(b.String(), "13d") {
		t.Errorf("Markdown:\n%s", b.String())
	}
}

// TestGridKeepsRows checks for any cells that no line exceeds the terminal, that rows take one line
// if the columns fit, and that numbers and commands are complete.
func TestGridKeepsRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "columns")
		g := Grid{Right: make([]bool, n), States: make([]bool, n), Least: make([]int, n)}
		for i := range n {
			g.Head = append(g.Head, rapid.StringMatching(`[a-z ]{1,14}`).Draw(t, "head"))
			g.Right[i] = rapid.IntRange(0, 3).Draw(t, "right") == 0
			g.Least[i] = rapid.IntRange(0, 12).Draw(t, "least")
		}
		rows := rapid.IntRange(1, 5).Draw(t, "rows")
		for r := range rows {
			var cells []string
			for i := range n {
				if g.Right[i] {
					cells = append(cells, rapid.StringMatching(`\$[0-9]{1,7}`).Draw(t, "figure"))
				} else {
					cells = append(cells,
						rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z訓練]{0,40}`)).Draw(t, "cell"))
				}
			}
			g.Rows = append(g.Rows, cells)
			g.Commands = append(g.Commands, fmt.Sprintf("curfew fix %040d", r))
		}
		width := rapid.SampledFrom([]int{60, 80, 120}).Draw(t, "width")
		out := gridText(g, width, false)
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if _, fits := g.widths(width); fits && len(lines) != 1+2*rows {
			t.Fatalf("%d lines for %d rows:\n%s", len(lines), rows, out)
		}
		for _, l := range lines {
			if Width(l) > width && !strings.HasPrefix(strings.TrimSpace(l), "curfew fix ") {
				t.Fatalf("a line of %d columns at %d: %q", Width(l), width, l)
			}
		}
		for r, cells := range g.Rows {
			if !strings.Contains(out, g.Commands[r]) {
				t.Fatalf("the command %q is cut:\n%s", g.Commands[r], out)
			}
			for i, c := range cells {
				if g.Right[i] && !strings.Contains(out, c) {
					t.Fatalf("the figure %q is cut:\n%s", c, out)
				}
			}
		}
	})
}

func TestStatesHaveColors(t *testing.T) {
	p := NewPaint(true)
	for _, tc := range []struct {
		text string
		like func(string) string
	}{
		{"deny", p.Error}, {"idle for 6d", p.Waste}, {"Ask", p.Attention}, {"allow", p.Saving}, {"busy", p.Used},
		{"g5.xlarge", nil}, {"", nil},
	} {
		got := p.State(tc.text)
		if (got == nil) != (tc.like == nil) || got != nil && got("x") != tc.like("x") {
			t.Errorf("%q has the wrong color", tc.text)
		}
	}
}

// TestHeadlinesColorDecision checks that only a headline that starts with a decision is
// colored, and that nothing changes without colors.
func TestHeadlinesColorDecision(t *testing.T) {
	for title, want := range map[string]string{
		"Denied: budget vision exceeded by $2,176": "\x1b[31mDenied\x1b[m: budget vision exceeded by $2,176",
		"Needs approval: job a costs $407":         "\x1b[33mNeeds approval\x1b[m: job a costs $407",
		"Allowed: job a costs $4.20":               "\x1b[32mAllowed\x1b[m: job a costs $4.20",
		"No machine: the account is empty":         "No machine: the account is empty",
		"3 exemptions in force":                    "3 exemptions in force",
	} {
		if got := NewPaint(true).decided(title); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := NewPaint(false).decided(title); got != title {
			t.Errorf("without colors: %q", got)
		}
	}
}
