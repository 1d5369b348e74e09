package report

import (
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/internal/view/viewtest"
)

func TestTableFitsEveryWidth(t *testing.T) {
	viewtest.Each(t, func(t *testing.T, a *round.Result) {
		widths := []int{60, 61, 72, 80, 83, 84, 100, 123, 124, 160, 250}
		if len(a.Findings) > 1000 {
			widths = []int{60, 100}
		}
		for _, width := range widths {
			for _, all := range []bool{false, true} {
				for i, line := range strings.Split(text(t, Table, a, Options{Width: width, All: all}), "\n") {
					if w := layout.Width(line); w > width {
						t.Fatalf("width %d: line %d has %d columns: %q", width, i+1, w, line)
					}
				}
			}
		}
	})
}

func TestTableEscapesControlCharacters(t *testing.T) {
	viewtest.Each(t, func(t *testing.T, a *round.Result) {
		for _, color := range []bool{false, true} {
			out := text(t, Table, a, Options{Color: color, All: true})
			if color {
				out = ansi.Strip(out)
			}
			for _, r := range out {
				if r != '\n' && (unicode.IsControl(r) || (unicode.Is(unicode.Cf, r) && r != 0x200d)) {
					t.Fatalf("color %t: %U is in the output", color, r)
				}
			}
		}
	})
}

func TestColorKeepsText(t *testing.T) {
	viewtest.Each(t, func(t *testing.T, a *round.Result) {
		without, with := text(t, Table, a, Options{}), text(t, Table, a, Options{Color: true})
		if diff := cmp.Diff(without, ansi.Strip(with)); diff != "" {
			t.Errorf("the colored table says something else (-plain +color):\n%s", diff)
		}
	})
}

func TestTableWithAnyName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		w := viewtest.NewWorld()
		r := w.Resource(inventory.KindInstance, "i-1", "g5.xlarge", name, inventory.Owner{Team: name, User: name})
		w.Charge(r, "compute", ledger.Compute,
			rapid.SampledFrom([]string{"0", "0.001", "734.38", "9000000000"}).Draw(t,
				"cost"))
		w.Verdict(r, duty.Unknown, name)
		w.Find(r, viewtest.Found{
			Rule: "telemetry-missing", Step: finding.StepMeasure, Saving: finding.Saving{Why: name}, Because: name,
			Fix: finding.Fix{Command: name},
		})
		w.Result.BlindSpots = []inventory.BlindSpot{{What: name, Why: name, Effect: name}}
		width := rapid.IntRange(0, 200).Draw(t, "width")
		var b strings.Builder
		if err := Table(&b, view.NewScan(w.Audit(), view.ScanOptions{}), Options{Width: width}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(b.String(), "\n") {
			if layout.Width(line) > (Options{Width: width}).width() {
				t.Fatalf("too wide: %q", line)
			}
		}
	})
}

func TestTableOfManyFindings(t *testing.T) {
	a := viewtest.Many(5000)
	if n := strings.Count(text(t, Table, a, Options{Width: 140}), "\n"); n > 41 {
		t.Errorf("the table has %d lines, want a screenful", n)
	}
	if n := strings.Count(text(t, Table, a, Options{Width: 140, All: true}), "volume-gp2"); n != 5000 {
		t.Errorf("--all shows %d findings, want 5000", n)
	}
}

func TestCSV(t *testing.T) {
	viewtest.Each(t, func(t *testing.T, a *round.Result) {
		rows, err := csv.NewReader(strings.NewReader(text(t, CSV, a, Options{}))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(rows), len(a.Findings)+1; got != want {
			t.Errorf("got %d rows, want %d", got, want)
		}
		numbers := map[int]bool{}
		for i, c := range columns {
			numbers[i] = c.name == "step" || strings.HasSuffix(c.name, "_usd")
		}
		for _, row := range rows {
			for i, v := range row {
				if !numbers[i] && v != "" && strings.ContainsRune("=+-@\t\r", rune(v[0])) {
					t.Errorf("a cell begins like a formula: %q", v)
				}
			}
		}
	})
}

func TestCSVHeaderIsStable(t *testing.T) {
	header, _, _ := strings.Cut(text(t, CSV, viewtest.NothingFound(), Options{}), "\n")
	want := "id,rule,step,kind,resource,name,type,cloud,account,region,team,project,user,environment,cost_center,lifetime,purpose," +
		"monthly_cost_usd,monthly_waste_usd,monthly_savings_usd,savings_upper_bound_usd,savings_unknown,confidence,because,evidence," +
		"action,command,risk,undo,note,overlaps"
	if header != want {
		t.Errorf("got %s\nwant %s", header, want)
	}
}

func TestMarkdownEscapesCells(t *testing.T) {
	viewtest.Each(t, func(t *testing.T, a *round.Result) {
		cells := 0
		for line := range strings.SplitSeq(text(t, Markdown, a, Options{All: true}), "\n") {
			if !strings.HasPrefix(line, "|") {
				cells = 0
				continue
			}
			n := strings.Count(strings.ReplaceAll(strings.ReplaceAll(line, `\\`, ""), `\|`, ""), "|")
			if cells != 0 && n != cells {
				t.Errorf("a row has %d bars, its table has %d: %s", n, cells, line)
			}
			cells = n
		}
	})
}

// TestHTMLIsSelfContained checks every element of every page: they nest, run no script, refer to no
// other host, and have unique IDs.
func TestHTMLIsSelfContained(t *testing.T) {
	viewtest.Each(t, func(t *testing.T, a *round.Result) {
		page := text(t, HTML, a, Options{})
		if limit := 4 << 20; len(page) > limit {
			t.Errorf("the page has %d bytes, want at most %d", len(page), limit)
		}
		dec := xml.NewDecoder(strings.NewReader(page))
		dec.AutoClose = []string{"meta", "link", "br"}
		dec.Entity = xml.HTMLEntity
		dec.Strict = false
		ids, links := map[string]bool{}, []string{}
		for {
			token, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			e, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			if slices.Contains([]string{"script", "iframe", "object", "embed", "img", "form", "base"}, e.Name.Local) {
				t.Errorf("the page has an element %s", e.Name.Local)
			}
			for _, at := range e.Attr {
				switch name := at.Name.Local; {
				case name == "href" && strings.HasPrefix(at.Value, "#"):
					links = append(links, at.Value[1:])
				case name == "href" && at.Value == "data:,":
				case name == "href", name == "src", name == "action", strings.HasPrefix(name, "on"):
					t.Errorf("the page has %s=%q", name, at.Value)
				case name == "id":
					if ids[at.Value] {
						t.Errorf("two elements have the id %q", at.Value)
					}
					ids[at.Value] = true
				}
			}
		}
		for _, l := range links {
			if !ids[l] {
				t.Errorf("a link leads to %q, which is not on the page", l)
			}
		}
	})
}

func TestSparksShowGaps(t *testing.T) {
	w := viewtest.NewWorld()
	r := w.Resource(inventory.KindInstance, "i-1", "g5.xlarge", "", viewtest.Ana)
	// Six hours per part: parts 0 and 1 measured as zero, part 2 missing, part 3 busy, none after.
	w.Window(r, 0, 1, func(h, _ int) float64 {
		switch {
		case h < 12:
			return 0
		case h >= 18 && h < 24:
			return 50
		}
		return -1
	})
	list := view.SamplesOf(w.Windows[r.Ref()])
	if len(list) != 1 {
		t.Fatalf("got %d pictures, want 1", len(list))
	}
	s := draw(&list[0])
	if want := "M0 32h3v-1.5h-3zM4 32h3v-1.5h-3zM12 32h3v-16.0h-3z"; s.Bars != want {
		t.Errorf("bars: got %s, want %s", s.Bars, want)
	}
	if n := strings.Count(s.Gaps, "M"); n != 53 || !strings.HasPrefix(s.Gaps, "M8 ") {
		t.Errorf("gaps: got %d from %.10s, want 53 from M8", n, s.Gaps)
	}
	if want := "95% of the time not measured"; s.Missing != want {
		t.Errorf("missing: got %q, want %q", s.Missing, want)
	}
}

func TestSparksWithoutSamples(t *testing.T) {
	if got := view.SamplesOf(nil); got != nil {
		t.Errorf("got %d pictures of a machine that was not measured", len(got))
	}
}

func TestPlain(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"text stays", "p4d.24xlarge viewtest.Ana – 日本語", "p4d.24xlarge viewtest.Ana – 日本語"},
		{"escape sequences lose their escape", "\x1b[31mred", "[31mred"},
		{"lines become one", "a\r\nb\tc", "a b c"},
		{"other line ends", "a\u2028b\u0085c", "a b c"},
		{"text is not turned round", "\u202eabc", "abc"},
		{"emoji stay whole", "👩‍🔬", "👩‍🔬"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := plain.Line(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestHeadline(t *testing.T) {
	tests := []struct {
		name  string
		audit *round.Result
		want  string
	}{
		{"waste", viewtest.Realistic(), "21% of what runs now is wasted, $16,338 a month"},
		{"none", viewtest.NothingFound(), "$734 a month, and no waste in what could be judged"},
		{"no prices", viewtest.AllUnpriced(), "nothing that runs has a price"},
		{"nothing there", viewtest.NewWorld().Audit(), "no resources in what could be read"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newAudit(view.NewScan(tt.audit, view.ScanOptions{}), Options{})
			if got := headline(d); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func BenchmarkOutputs(b *testing.B) {
	d := view.NewScan(viewtest.Many(5000), view.ScanOptions{})
	for name, r := range outputs() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var out strings.Builder
				if err := r(&out, d, Options{All: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
