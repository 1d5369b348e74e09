package layout

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
)

func TestStyleIsSelfContained(t *testing.T) {
	if strings.Contains(styleElement(), "url(") || strings.Contains(styleElement(), "@import") {
		t.Error("the style refers to something outside")
	}
}

// hostile are names that break out of a text, an attribute, an address, a style or a picture unless
// escaped.
var hostile = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, "javascript:alert(1)",
	"https://evil.example/?a=1&b=2",
	"</style><style>*{display:none}", "x:expression(alert(1))", "url(javascript:alert(1))", "</title><script>",
	"</pre><a href=x>", "</svg><script>alert(1)</script>",
	"<svg onload=alert(1)>", "<!-- ", "]]>", "&lt;script&gt;", "{{.}}", "{ templ }", "\x00<b>\x1b[31m", "\u202e<i>",
	"`code`", "</textarea>",
}

// filled returns a sheet with every external text from a source.
func filled(text func() string) Sheet {
	list := func() []string { return []string{text(), text()} }
	detail := &Detail{
		Table: Grid{Title: text(), Head: list(), Code: []bool{true}, Rows: [][]string{list(), list()}},
		Terms: []Term{{Name: text(), Text: text(), Command: text()}},
	}
	picture := chart.Bars{
		Title: text(),
		Axis:  chart.Axis{Label: text()},
		Parts: list(),
		Limit: text(),
		Rows:  []chart.Bar{{Label: text(), Note: text(), Parts: []float64{1, 2}, Limit: 1}},
	}
	lanes := chart.Lanes{
		Title: text(),
		Rows:  []chart.Lane{{Label: text(), Blocks: []chart.Block{{From: 0, To: 2, Label: text()}}}},
	}
	return Sheet{
		Verb: "scan", Title: text(), Scope: list(), Remarks: list(), Because: list(), Next: list(), Commands: list(),
		Assumptions: list(), Coverage: list(), Changes: list(),
		Figures: []Figure{
			{
				Label: text(),
				Value: text(),
				Note:  text(),
				Unit:  text(),
				Rate:  text(),
				Share: 0.5,
				Whole: text(),
				Tone:  ToneWaste,
			},
			{Label: text(), Value: text()},
		},
		Picture: picture.SVG(), Caption: text(), Pictures: []Picture{
			{Title: text(), SVG: lanes.SVG(), Caption: text()},
		},
		Gaps: []Gap{{Name: text(), Text: text(), Command: text(), Items: list(), Shown: 1}},
		Tables: []Grid{
			{
				Title:  text(),
				Noun:   "row",
				Head:   []string{text(), text(), text(), text(), "why"},
				Right:  []bool{true},
				States: []bool{false, true},
				Code:   []bool{false, false, true},
				Fold:   []int{4},
				Rows: [][]string{
					{text(), text(), text(), text(), text()},
				},
				Notes:    []string{text()},
				Commands: []string{text()},
				Details:  []*Detail{detail},
			},
			{Title: text(), Head: list(), Rows: [][]string{list()}, Folded: true, PageOnly: true},
		},
	}
}

// drawing matches elements of pictures, in which a label is drawn only if it fits.
var drawing = regexp.MustCompile(
	`^(rect|line|path|text|title|desc|g|circle|polyline|polygon)( (id|x|y|x1|y1|x2|y2|d|width|height|rx|r|cx|cy|class|points|` +
		`fill|fill-opacity|stroke|stroke-width|stroke-opacity|stroke-dasharray|text-anchor))*$`,
)

// elements returns the elements of a page with their attribute names in order, and its texts,
// without the spans that keep headline words together and without pictures.
func elements(tb rapid.TB, page string) (shape []string, texts string) {
	dec := xml.NewDecoder(strings.NewReader(page))
	dec.AutoClose, dec.Entity, dec.Strict = []string{"meta", "link"}, xml.HTMLEntity, false
	var all strings.Builder
	inside := 0
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return shape, all.String()
		}
		if err != nil {
			tb.Fatalf("the page is no well-formed markup: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			name := e.Name.Local
			for _, a := range e.Attr {
				name += " " + a.Name.Local
				if a.Name.Local == "aria-label" {
					all.WriteString(a.Value + "\n")
				}
				if a.Name.Local == "class" && a.Value == "unbroken" {
					name = ""
				}
			}
			if inside > 0 || e.Name.Local == "svg" {
				inside++
			}
			if name != "" && (inside < 2 || !drawing.MatchString(name)) {
				shape = append(shape, name)
			}
		case xml.EndElement:
			inside = max(inside-1, 0)
		case xml.Comment, xml.ProcInst:
			shape = append(shape, fmt.Sprintf("%T", e))
		case xml.CharData:
			all.Write(e)
		}
	}
}

// TestNamesAreEscapedInPages compares sheets with hostile and harmless names: both must have
// the same elements and attributes, with all names as text.
func TestNamesAreEscapedInPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.OneOf(rapid.SampledFrom(hostile), rapid.String())
		var drawn []string
		render := func(text func() string) string {
			var b strings.Builder
			if err := filled(text).HTML(&b); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
		got, text := elements(t, render(func() string {
			drawn = append(drawn, "x"+texts.Draw(t, "text"))
			return drawn[len(drawn)-1]
		}))
		want, _ := elements(t, render(func() string { return "name" }))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("names changed the elements of the page (-want +got):\n%s", diff)
		}
		flat := strings.ToLower(strings.ReplaceAll(text, "\u00a0", " "))
		for _, s := range drawn {
			s = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(plain.Line(s))), "\u00a0", " ")
			if !strings.Contains(flat, s) && len(s) < 30 {
				t.Errorf("the page lacks %q", s)
			}
		}
	})
}
