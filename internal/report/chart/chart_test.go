package chart_test

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/chart/charttest"
)

var november = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// name generates labels: short, long, wide, hostile.
func name() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9 -]{1,60}`), rapid.StringMatching(`[W@%m]{1,40}`),
		rapid.StringMatching(`[訓練ノ]{1,30}`),
		rapid.SampledFrom([]string{"", "<script>", "a\nb", "p5.48xlarge", "\x1b[31m"}))
}

func value() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64Range(0, 1), rapid.Float64Range(-1e4, 1e6),
		rapid.SampledFrom([]float64{0, 1e-6, 1e12, math.NaN(), 5}))
}

func marks(t *rapid.T) []chart.Mark {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) chart.Mark {
		return chart.Mark{At: rapid.Float64Range(0, 1e5).Draw(t, "at"), Label: name().Draw(t, "mark")}
	}), 0, 4).Draw(t, "marks")
}

func TestBarsWithRandomData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := chart.Bars{
			Title: "Cost by team", Axis: chart.Axis{Label: name().Draw(t, "axis"), Format: chart.USD},
			Ordered: rapid.Bool().Draw(t, "ordered"), Marks: marks(t),
		}
		if rapid.Bool().Draw(t, "stacked") {
			b.Parts = rapid.SliceOfN(name(), 1, 5).Draw(t, "parts")
		}
		b.Limit, b.Range, b.Band = "limit", "p10 to p90", "usual"
		for range rapid.IntRange(0, 12).Draw(t, "rows") {
			r := chart.Bar{
				Label: name().Draw(t, "label"), Value: value().Draw(t, "value"),
				Note: rapid.SampledFrom([]string{
					"", "$1 of $2 and a long explanation of what it means to the reader",
				}).Draw(t,
					"note"),
			}
			for range b.Parts {
				r.Parts = append(r.Parts, rapid.Float64Range(0, 1e4).Draw(t, "part"))
			}
			r.Low = rapid.Float64Range(0, 1e4).Draw(t, "low")
			r.High, r.Limit = r.Low+rapid.Float64Range(0, 1e4).Draw(t,
				"high"), rapid.Float64Range(0, 1e4).Draw(t, "limit")
			b.Rows = append(b.Rows, r)
		}
		charttest.Check(t, b.SVG())
	})
}

func TestLinesWithRandomData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := chart.Lines{
			Title: "Cost over time", X: chart.Axis{Label: "checkpoint interval, minutes"},
			Y: chart.Axis{Label: "dollars", Format: chart.USD}, Limits: marks(t), Moments: marks(t),
		}
		dated := rapid.Bool().Draw(t, "dated")
		if dated {
			l.Moments = nil
			l.X = chart.Dates(november,
				november.Add(time.Duration(rapid.Int64Range(0, int64(9000*time.Hour)).Draw(t, "length"))))
		}
		l.X.Log = !dated && rapid.Bool().Draw(t, "log")
		for i := range rapid.IntRange(0, 5).Draw(t, "series") {
			s := chart.Series{
				Name: name().Draw(t, "name"), Color: chart.Color(i), Step: rapid.Bool().Draw(t, "step"),
				Scatter: rapid.Bool().Draw(t, "scatter"),
			}
			for k := range rapid.IntRange(0, 80).Draw(t, "points") {
				p := chart.Point{X: float64(k), Y: value().Draw(t, "y")}
				if dated {
					p.X = chart.Second(november.Add(time.Duration(k) * time.Hour))
				}
				p.Low, p.High = p.Y, p.Y+rapid.Float64Range(0, 10).Draw(t, "band")
				s.Points = append(s.Points, p)
			}
			l.Series = append(l.Series, s)
		}
		charttest.Check(t, l.SVG())
	})
}

func TestColumnsWithRandomData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := chart.Columns{
			Title: "Cost by day", X: "day (UTC)", Y: chart.Axis{
				Label: "dollars a day", Format: chart.USD,
			}, Limits: marks(t),
		}
		for i := range rapid.IntRange(0, 90).Draw(t, "columns") {
			l.Labels = append(l.Labels, plain.Date(november.AddDate(0, 0, i)))
		}
		for i := range rapid.IntRange(0, 5).Draw(t, "parts") {
			p := chart.Part{Name: name().Draw(t, "name"), Color: chart.Color(i)}
			for range l.Labels {
				p.Values = append(p.Values, value().Draw(t, "value"))
			}
			l.Parts = append(l.Parts, p)
		}
		charttest.Check(t, l.SVG())
	})
}

func TestLanesWithRandomData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := chart.Lanes{
			Title: "Placements", Axis: chart.Axis{Label: "memory slices"},
			Kinds: []chart.Kind{
				{Name: "1g.10gb"}, {Name: name().Draw(t, "kind"), Color: chart.Orange},
			}, Marks: marks(t),
		}
		for i := range rapid.IntRange(0, 10).Draw(t, "lanes") {
			r := chart.Lane{Label: fmt.Sprintf("GPU %d %s", i, name().Draw(t, "label"))}
			at := 0.0
			for range rapid.IntRange(0, 7).Draw(t, "blocks") {
				to := at + rapid.Float64Range(0, 3).Draw(t, "size")
				r.Blocks = append(r.Blocks, chart.Block{
					From: at, To: to, Label: name().Draw(t, "block"), Empty: rapid.Bool().Draw(t, "empty"),
				})
				at = to
			}
			l.Rows = append(l.Rows, r)
		}
		charttest.Check(t, l.SVG())
	})
}

func TestBarsAreSortedAndDescribed(t *testing.T) {
	rows := []chart.Bar{
		{Label: "language", Value: 12311}, {Label: "vision", Value: 39020, Low: 30000, High: 50000, Limit: 45000},
	}
	svg := chart.Bars{
		Title: "Cost by team", Axis: chart.Axis{Label: "dollars a month", Format: chart.USD}, Range: "forecast",
		Limit: "limit", Rows: rows,
	}.SVG()
	for _, want := range []string{
		`<desc id="chart-`, "vision: $39,020, forecast $30,000 to $50,000, limit $45,000; language: $12,311",
		`role="img"`,
		`tabindex="0"`, ">dollars a month</text>", ">$20,000</text>",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("there is no %q in\n%s", want, svg)
		}
	}
	if strings.Index(svg, ">vision<") > strings.Index(svg, ">language<") {
		t.Error("the largest is not first")
	}
	if ordered := (chart.Bars{Ordered: true, Rows: rows}).SVG(); strings.Index(ordered, ">vision<") < strings.Index(
		ordered, ">language<") {
		t.Error("the order is not kept")
	}
	if empty := (chart.Bars{Title: "Cost by team"}).SVG(); !strings.Contains(empty, "nothing to draw") {
		t.Errorf("an empty chart says nothing: %s", empty)
	}
}

// TestGapsAreNotZero checks that unknown values interrupt a line.
func TestGapsAreNotZero(t *testing.T) {
	points := []chart.Point{{X: 0, Y: 1}, {X: 1, Y: 2}, {X: 2, Y: math.NaN()}, {X: 3, Y: 2}, {X: 4, Y: 1}}
	svg := chart.Lines{Title: "x", Series: []chart.Series{{Name: "a", Points: points}}}.SVG()
	path := regexp.MustCompile(`<path d="([^"]*)" fill="none"`).FindStringSubmatch(svg)
	if path == nil || strings.Count(path[1], "M") != 2 || strings.Count(path[1], "L") != 2 {
		t.Errorf("the line is %q, want two pieces", path)
	}
	step := chart.Lines{Title: "x", Series: []chart.Series{{Name: "a", Step: true, Points: points[:2]}}}.SVG()
	if path := regexp.MustCompile(`<path d="([^"]*)" fill="none"`).FindStringSubmatch(step); strings.Count(path[1],
		"L") != 2 {
		t.Errorf("the step is %q, want two lines", path)
	}
}

func TestFormats(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{chart.USD(0), "$0"}, {chart.USD(-1200), "-$1,200"}, {chart.USD(0.25), "$0.25"}, {chart.USD(2.5), "$2.50"},
		{chart.USD(50), "$50"}, {chart.USD(1234.5), "$1,234"},
		{chart.Percent(0.425), "42.5%"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

// TestCheckFindsProblems checks pictures with one mistake each.
func TestCheckFindsProblems(t *testing.T) {
	const head = `<svg viewBox="0 0 100 100" role="img" font-size="13" class="least-100"><title>1</title>`
	for name, svg := range map[string]string{
		"overlap":  head + `<text x="10" y="50">hello</text><text x="20" y="52">there</text></svg>`,
		"outside":  head + `<text x="90" y="50">hello</text></svg>`,
		"small":    strings.Replace(head, "least-100", "least-80", 1) + `</svg>`,
		"no title": strings.Replace(head, "<title>1</title>", "<desc>1</desc>", 1) + `</svg>`,
		"no words": strings.Replace(head, "<title>1<", "<title>x<", 1) + `</svg>`,
		"no role":  strings.Replace(head, `role="img"`, "", 1) + `</svg>`,
		"broken":   head + `<g></svg>`,
		"none":     "<p>",
	} {
		found := &counter{TB: t}
		if charttest.Check(found, svg); found.n == 0 {
			t.Errorf("%s: nothing is reported", name)
		}
	}
	fine := &counter{TB: t}
	if charttest.Check(fine, head+`<text x="10" y="50">hello</text></svg>`); fine.n != 0 {
		t.Error("a good picture is reported")
	}
}

type counter struct {
	testing.TB
	n int
}

func (c *counter) Helper()               {}
func (c *counter) Errorf(string, ...any) { c.n++ }

// TestShortTimeAxesHaveTicks checks axes of seconds, minutes and hours.
func TestShortTimeAxesHaveTicks(t *testing.T) {
	begin := time.Date(2026, 11, 27, 22, 36, 25, 0, time.UTC)
	for _, c := range []struct {
		length time.Duration
		first  string
	}{
		{20 * time.Second, "22:36:25"}, {80 * time.Second, "22:36:30"}, {5 * time.Minute, "22:37"},
		{20 * time.Minute, "22:40"}, {80 * time.Minute, "22:45"}, {5 * time.Hour, "23:00"},
	} {
		a := chart.Dates(begin, begin.Add(c.length))
		if n := len(a.Ticks); n < 2 || n > 7 {
			t.Errorf("%s has %d ticks", c.length, n)
			continue
		}
		if got := a.Format(a.Ticks[0]); got != c.first {
			t.Errorf("%s begins at %s, want %s", c.length, got, c.first)
		}
	}
}
