package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

//go:embed backtest.html.tmpl
var backtestTemplate string

//go:embed backtest.css
var backtestStyle string

var backtestPage = template.Must(template.New("backtest").Funcs(template.FuncMap{
	"hours": func(h float64) string { return plain.Number(h, 1) },
	"count": money.Thousands,
	"pct":   func(share float64) string { return plain.Share(share, 1) },
	"usd":   usdText,
	"span":  seconds,
	"add":   func(a, b int) int { return a + b },
}).Parse(backtestTemplate))

// backtestView is what the page shows.
type backtestView struct {
	*view.Backtest
	Style    template.CSS
	Title    string
	Headline string
	Scope    string
	// Rule is the result that the page is about; Oracle is nil without baselines.
	Rule, Oracle *backtest.Result
	Whole        []segment
	WholeLabel   string
	Rows         []drawnRow
	Ticks        []tick
	Curve        *curve
	Owners       []ownerBar
	OwnersMore   int
	Covered      float64
}

// BacktestHTML writes a replay as one self-contained page: it refers to no other host and
// runs no script. Pictures of when resources were let go need [backtest.Params.Draw], those of
// thresholds the baselines.
func BacktestHTML(w io.Writer, r view.Backtest) error {
	if len(r.Results) == 0 {
		return fmt.Errorf("render the backtest of %s as HTML: nothing was replayed", r.Trace.Name)
	}
	v := backtestView{Backtest: &r, Style: template.CSS(backtestStyle), Rule: r.Headline(), Oracle: r.Named(backtest.PerfectForesight)}
	v.Headline = saying(v.Rule, v.Oracle)
	v.Title = "curfew backtest: " + r.Trace.Name
	v.Scope = fmt.Sprintf("%s · %s resources · %s to %s", r.Trace.Name, money.Thousands(int64(r.Trace.Resources)),
		r.Trace.First.Format("2 Jan 2006 15:04"), r.Trace.Last.Format("2 Jan 2006 15:04 UTC"))
	v.Whole, v.WholeLabel = whole(v.Rule)
	v.Rows, v.Ticks = drawnRows(r.Timeline)
	v.Curve = newCurve(&r.Report)
	v.Owners, v.OwnersMore = ownerBars(&r.Report, v.Rule.Name)
	if all := v.Rule.ResourceHours + v.Rule.UnknownHours; all > 0 {
		v.Covered = v.Rule.ResourceHours / all
	}
	var b bytes.Buffer
	if err := backtestPage.Execute(&b, v); err != nil {
		return fmt.Errorf("render the backtest as HTML: %w", err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the backtest as HTML: %w", err)
	}
	return nil
}

// saying is what a busy person takes away.
func saying(r, oracle *backtest.Result) string {
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
		s = fmt.Sprintf("%s would have saved %s of %s, %s", who, usdText(r.SavedUSD), usdText(r.CostUSD), plain.Share(r.NetSavedShare, 1))
	}
	s += ", for " + times
	if oracle != nil && r.OfForesight != nil && r.Name != oracle.Name {
		s += fmt.Sprintf(": %s of what foresight could", plain.Share(*r.OfForesight, 1))
	}
	return s + "."
}

func usdText(usd *string) string {
	if usd == nil {
		return "not priced"
	}
	return money.ForPeople(*usd)
}

// seconds prints a time span.
func seconds(s float64) string { return plain.Duration(time.Duration(s * float64(time.Second))) }
