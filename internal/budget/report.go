package budget

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Report is where budgets stand, for people (curfew.budget/v1).
type Report struct {
	Schema string    `json:"schema"`
	At     time.Time `json:"at"`
	// Title is the answer in one sentence.
	Title         string   `json:"-"`
	Budgets       []Status `json:"budgets"`
	Assumptions   []string `json:"assumptions"`
	CoverageNotes []string `json:"coverage_notes"`
	Changes       []string `json:"changes"`
}

// NewReport makes the report of statuses at a time.
func NewReport(all []Status, at time.Time) Report {
	r := Report{Schema: "curfew.budget/v1", At: at.UTC(), Title: "no budget has a period that holds this time", Budgets: all,
		Assumptions: []string{
			"spent is what the ledger has charged; held is what holds reserve beyond their own charges",
			"what a child spends and holds counts against its parent as well, once",
			"a run past the end of a period counts in both, in each with the most that it can spend there",
			"a forecast draws each day that is left from the days of the last eight weeks; its range holds four futures in five",
		},
		CoverageNotes: []string{}, Changes: []string{}}
	count := map[State]int{}
	for _, s := range all {
		count[s.State]++
		r.note(s)
	}
	if len(all) > 0 {
		r.Title = fmt.Sprintf("%d of %d budgets are in order", count[OK], len(all))
		for _, part := range []struct {
			state State
			says  string
		}{{Warn, "near the end"}, {Gate, "ask for every run"}, {Over, "spent"}} {
			if n := count[part.state]; n > 0 {
				r.Title += fmt.Sprintf(", %d %s", n, part.says)
			}
		}
	}
	return r
}

func (r *Report) note(s Status) {
	cover := func(format string, args ...any) {
		r.CoverageNotes = append(r.CoverageNotes, s.Budget.ID+": "+fmt.Sprintf(format, args...))
	}
	if s.Unobserved > 0 {
		cover("%s is held by runs that are over and were never charged; `curfew budget holds` lists them as unobserved", s.Unobserved.Exact())
		r.Changes = append(r.Changes, s.Budget.ID+": settle the unobserved holds, or run `curfew scan` where their machines are, to free what they did not spend")
	}
	if s.Unknown > 0 {
		counted := "not counted"
		if s.Budget.CountUnknown {
			counted = "counted"
		}
		cover("unpriced charges of at most %s, %s", s.Unknown.Exact(), counted)
	}
	if s.Unbounded > 0 {
		cover("%.1f resource hours have no price at all and are in no figure", s.Unbounded.Hours())
	}
	if s.NoForecast != "" {
		cover("%s", s.NoForecast)
	}
	if f, ok := s.Forecast.Get(); ok && f.Median > s.Budget.Amount {
		r.Changes = append(r.Changes, fmt.Sprintf("%s: at this rate the period ends at %s of %s; spend less, or raise the amount",
			s.Budget.ID, f.Median.Exact(), s.Budget.Amount.Exact()))
	}
	if s.Left < 0 {
		r.Changes = append(r.Changes, fmt.Sprintf("%s: %s more is spent and held than allowed; releasing holds that did not start gives some back",
			s.Budget.ID, (-s.Left).Exact()))
	}
}

// MarshalJSON writes amounts as strings, and what is unknown as null with its reason.
func (s Status) MarshalJSON() ([]byte, error) {
	doc := map[string]any{
		"id": s.Budget.ID, "parent": s.Budget.Parent, "match": s.Budget.Match, "from": s.Window.From, "until": s.Window.To,
		"amount_usd": s.Budget.Amount, "used_usd": s.Used, "held_usd": s.Held, "unobserved_usd": s.Unobserved, "unknown_usd": s.Unknown, "unbounded_hours": s.Unbounded.Hours(),
		"left_usd": s.Left, "hourly_usd": s.Hourly, "per_hour_usd": nil, "state": s.State, "forecast": nil, "ledger_until": nil,
	}
	if s.Budget.PerHour > 0 {
		doc["per_hour_usd"] = s.Budget.PerHour
	}
	if f, ok := s.Forecast.Get(); ok {
		doc["forecast"] = f
	} else {
		doc["forecast_reason"] = s.NoForecast
	}
	if !s.Through.IsZero() {
		doc["ledger_until"] = s.Through.UTC()
	}
	return json.Marshal(doc)
}

// SVG draws a bar for each budget: spent, held, the range of its forecast, and a line
// where the amount ends.
func (r Report) SVG() string {
	const width, left, row = 720.0, 180.0, 28.0
	height := row*float64(len(r.Budgets)) + 8
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="Spent, held and forecast of each budget">`, width, height)
	for i, s := range r.Budgets {
		y := row*float64(i) + 4
		most := max(s.Budget.Amount, s.Used+s.Held, 1)
		f, known := s.Forecast.Get()
		if known {
			most = max(most, f.High)
		}
		x := func(a money.Amount) float64 { return left + (width-left-12)*money.Ratio(max(0, a), most) }
		bar := func(from, to money.Amount, top, high, opacity float64, color string) {
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%g" fill="%s" fill-opacity="%g"/>`, x(from), top, max(0, x(to)-x(from)), high, color, opacity)
		}
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end" font-size="12" fill="currentColor">%s</text>`, left-8, y+12, escape(s.Budget.ID))
		color := map[State]string{OK: "#1f7f57", Warn: "#d98e04", Gate: "#d9660b", Over: "#c5432d"}[s.State]
		bar(0, s.Used, y, 14, 1, color)
		bar(s.Used, s.Used+s.Held, y, 14, 0.5, color)
		if known {
			bar(f.Low, f.High, y+16, 4, 1, "#6b7a8f")
		}
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="currentColor"/>`, x(s.Budget.Amount), y-2, x(s.Budget.Amount), y+22)
	}
	b.WriteString(`</svg>`)
	return b.String()
}

// escape makes a name of the configuration safe in XML.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
