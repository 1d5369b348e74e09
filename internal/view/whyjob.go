package view

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// JobFigure begins the ids of the figures of jobs.
const JobFigure = "job."

// CutJobFigure divides the id of a figure of a job into the job's name or id and the name of the figure.
func CutJobFigure(figure string) (job, name string, ok bool) {
	rest, isJob := strings.CutPrefix(figure, JobFigure)
	i := strings.LastIndexByte(rest, '.')
	if !isJob || i <= 0 {
		return "", "", false
	}
	return rest[:i], rest[i+1:], true
}

// NewJobWhy explains a figure of a job at a time: cost, useful, repeated or waiting.
func NewJobWhy(r Run, name string, at time.Time) (Why, error) {
	id := JobFigure + cmp.Or(r.Name, r.ID)
	w := Why{
		Schema: WhySchema, At: at.UTC(), Figure: id + "." + name, Rows: []WhyRow{}, Prices: []PriceSource{},
		Excluded: []string{}, Command: "curfew explain " + plain.Shell(cmp.Or(r.Name, r.ID)),
		Basis: "the time of its machines at the price of their launch, to the second",
	}
	if r.Unpriced != "" {
		w.Excluded = append(w.Excluded, r.Unpriced)
	}
	part := map[string]struct {
		label string
		value money.Dollars
		of    func(*RunAttempt) money.Dollars
	}{
		"cost": {"cost of job " + r.Name + " so far", r.CostUSD,
			func(a *RunAttempt) money.Dollars { return a.CostUSD }},
		"useful": {"for work of job " + r.Name + " that is saved", r.Job.UsefulUSD,
			func(a *RunAttempt) money.Dollars { return a.UsefulUSD }},
		"repeated": {"for work of job " + r.Name + " that was lost", r.Job.RepeatedUSD,
			func(a *RunAttempt) money.Dollars { return a.RepeatedUSD }},
		"waiting": {"for the start and the end of machines of job " + r.Name, r.Job.WaitingUSD,
			func(a *RunAttempt) money.Dollars { return a.WaitingUSD }},
	}
	p, ok := part[name]
	if !ok {
		var ids []string
		for _, known := range []string{"cost", "useful", "repeated", "waiting"} {
			ids = append(ids, id+"."+known)
		}
		return w, &ErrNoFigure{w.Figure, document.DidYouMean(w.Figure, ids)}
	}
	w.Label, w.ValueUSD = p.label, p.value
	left := p.value.Or(0)
	running := ""
	for i := range r.Job.Attempts {
		a := &r.Job.Attempts[i]
		amount, known := p.of(a).Get()
		if !known {
			if a.EndedAt == nil && a.LaunchedAt != nil {
				running = "attempt " + strconv.Itoa(a.Number) + " in " + a.Pool + ", which runs"
			}
			continue
		}
		left -= amount
		w.Rows = append(w.Rows, WhyRow{
			Label: "attempt " + strconv.Itoa(a.Number) + " in " + a.Pool, AmountUSD: p.of(a), Note: attemptNote(a),
		})
	}
	if left != 0 && running != "" {
		w.Rows = append(w.Rows, WhyRow{Label: running, AmountUSD: money.Known(left)})
	}
	return w, nil
}

// attemptNote says how an attempt ended and what it lost.
func attemptNote(a *RunAttempt) string {
	note := a.EndedBy
	if a.LostSeconds > 0 {
		note += "; " + plain.Duration(time.Duration(a.LostSeconds)*time.Second) + " of work lost"
	}
	return note
}
