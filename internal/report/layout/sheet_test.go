package layout

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

var outside = Sheet{
	Verb: "plan mig", Title: "12 workloads fit on 3 GPUs\x1b[31m",
	Figures: []Figure{{Label: "GPUs used", Value: "3", Note: "the least there can be"}},
	Picture: `<svg viewBox="0 0 1 1"><rect/></svg>`,
	Caption: "Seven slices each",
	Tables: []Grid{
		{
			Title: "placements", Head: []string{"gpu", "workload", "slices"}, Right: []bool{false, false, true},
			Rows: [][]string{{"0", "<script>alert(1)</script>|x", "3"}, {"1", "b", "12"}},
		},
	},
	Assumptions: []string{"memory figures are peaks"}, Coverage: []string{"all of the file"},
	Changes: []string{"one more workload"},
}

func TestSheet(t *testing.T) {
	var text, md, page bytes.Buffer
	for _, err := range []error{outside.Text(&text, 80), outside.Markdown(&md), outside.HTML(&page)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, out := range map[string]string{"text": text.String(), "markdown": md.String(), "HTML": page.String()} {
		if strings.Contains(out, "\x1b") {
			t.Errorf("%s passes control characters on:\n%s", name, out)
		}
		for _, want := range []string{
			"12 workloads fit on 3 GPUs", "the least there can be", "placements", "memory figures are peaks",
			"all of the file", "one more workload",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s has no %q:\n%s", name, want, out)
			}
		}
	}
	if strings.Contains(page.String(), "<script>") || !strings.Contains(page.String(), `<svg viewBox="0 0 1 1">`) {
		t.Errorf("HTML must escape cells and keep the picture:\n%s", page.String())
	}
	if strings.Contains(page.String(), "src=") || strings.Contains(page.String(), `href="http`) {
		t.Errorf("HTML refers to another host:\n%s", page.String())
	}
	if !strings.Contains(md.String(), `\|x`) {
		t.Errorf("Markdown cells must not break the table:\n%s", md.String())
	}
	for _, line := range strings.Split(text.String(), "\n") {
		if Width(line) > 80 {
			t.Errorf("line over 80 columns: %q", line)
		}
	}
	if !strings.Contains(text.String(), "      3\n") || !strings.Contains(text.String(), "     12\n") {
		t.Errorf("numbers are not aligned on the right:\n%s", text.String())
	}
}

// TestWordsAndCommandsAreNotBroken checks that text is wrapped only at spaces, not at hyphens and
// not within a command in backticks. An unpaired backtick has no effect.
func TestWordsAndCommandsAreNotBroken(t *testing.T) {
	for in, want := range map[string][]string{
		"kept in aws/1234/us-east-1/instance/i-0f3a until": {"kept in", "aws/1234/us-east-1/instance/i-0f3a", "until"},
		"then `curfew approve 4f1c` goes on":               {"then", "`curfew approve 4f1c`", "goes on"},
		"an odd ` in a name that ana chose":                {"an odd ` in a", "name that ana", "chose"},
		"":                                                 nil,
	} {
		if got := Wrap(in, 16); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := Hanging("one two-three four", 28, 20, 4); got != "one\n    two-three four" &&
		got != "one two-three four" {
		t.Errorf("%q", got)
	}
	if got := Hanging("", 40, 2, 2); got != "" {
		t.Errorf("%q", got)
	}
}
