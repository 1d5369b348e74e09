package backtest

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

//go:embed page.html.tmpl
var pageTemplate string

//go:embed page.css
var pageStyle string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"hours": func(h float64) string { return plain.Number(h, 1) },
	"count": money.Thousands,
	"pct":   func(share float64) string { return plain.Share(share, 1) },
	"usd":   dollars,
	"span":  seconds,
	"add":   func(a, b int) int { return a + b },
}).Parse(pageTemplate))

// view is what the page shows.
type view struct {
	*Report
	Style    template.CSS
	Title    string
	Headline string
	Scope    string
	// Rule is the result that the page is about; Oracle is nil without baselines.
	Rule, Oracle *Result
	Whole        []segment
	WholeLabel   string
	Rows         []drawnRow
	Ticks        []tick
	Curve        *curve
	Owners       []ownerBar
	OwnersMore   int
	Covered      float64
}

// HTML writes the report as one self-contained page: it refers to no other host and
// runs no script. Pictures of when resources were let go need [Params.Draw], those of
// thresholds the baselines.
func (r Report) HTML(w io.Writer) error {
	if len(r.Results) == 0 {
		return fmt.Errorf("render the backtest of %s as HTML: nothing was replayed", r.Trace.Name)
	}
	v := view{Report: &r, Style: template.CSS(pageStyle), Rule: r.headline(), Oracle: r.named("oracle")}
	v.Headline = v.Rule.sentence(v.Oracle)
	v.Title = "curfew backtest: " + r.Trace.Name
	v.Scope = fmt.Sprintf("%s · %s resources · %s to %s", r.Trace.Name, money.Thousands(int64(r.Trace.Resources)),
		r.Trace.First.Format("2 Jan 2006 15:04"), r.Trace.Last.Format("2 Jan 2006 15:04 UTC"))
	v.Whole, v.WholeLabel = v.Rule.whole()
	v.Rows, v.Ticks = r.Timeline.rows()
	v.Curve = r.curve()
	v.Owners, v.OwnersMore = r.ownerBars(v.Rule.Name)
	if all := v.Rule.ResourceHours + v.Rule.UnknownHours; all > 0 {
		v.Covered = v.Rule.ResourceHours / all
	}
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		return fmt.Errorf("render the backtest as HTML: %w", err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the backtest as HTML: %w", err)
	}
	return nil
}

// headline returns the result that the page is about: the one that is drawn, else
// the first that is no yardstick.
func (r *Report) headline() *Result {
	if r.Timeline != nil {
		if res := r.named(r.Timeline.Rule); res != nil {
			return res
		}
	}
	if first := &r.Results[0]; first.Name != fixedWaits[0].name {
		return first
	}
	if res := r.named("learned"); res != nil {
		return res
	}
	return &r.Results[0]
}

func (r *Report) named(name string) *Result {
	for i := range r.Results {
		if r.Results[i].Name == name {
			return &r.Results[i]
		}
	}
	return nil
}

// sentence is what a busy person takes away.
func (r *Result) sentence(oracle *Result) string {
	times := money.Thousands(r.Restarts) + " restarts"
	if r.Restarts == 1 {
		times = "1 restart"
	}
	who := "“" + r.Name + "”"
	switch {
	case r.ReleasedHours == 0 && r.IdleHours == 0:
		return "Nothing was idle: there is nothing to let go."
	case r.ReleasedHours == 0:
		return who + " would not have let anything go."
	case r.NetSavedHours == 0:
		return who + " would have saved nothing: its " + times + " cost as much as it let go."
	case r.NetSavedHours < 0:
		return fmt.Sprintf("%s would have lost %s hours: its %s cost more than it let go.", who, plain.Number(-r.NetSavedHours, 1), times)
	}
	s := fmt.Sprintf("%s would have saved %s of %s resource hours, %s", who, plain.Number(r.NetSavedHours, 1), plain.Number(r.ResourceHours, 1), plain.Share(r.NetSavedShare, 1))
	if r.SavedUSD != nil {
		s = fmt.Sprintf("%s would have saved %s of %s, %s", who, dollars(r.SavedUSD), dollars(r.CostUSD), plain.Share(r.NetSavedShare, 1))
	}
	s += ", for " + times
	if oracle != nil && r.OfOracle != nil && r.Name != oracle.Name {
		s += fmt.Sprintf(": %s of what foresight could", plain.Share(*r.OfOracle, 1))
	}
	return s + "."
}

func dollars(usd *string) string {
	if usd == nil {
		return "not priced"
	}
	return money.ForPeople(*usd)
}

// seconds prints a time span.
func seconds(s float64) string { return plain.Duration(time.Duration(s * float64(time.Second))) }
