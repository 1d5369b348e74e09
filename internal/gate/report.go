package gate

import (
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
)

// Report says how often people had to ask and how long they waited: the gate is for
// outliers, not for everyday experiments.
type Report struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Runs is how many were admitted or waited to be.
	Runs int `json:"runs"`
	// Asked is how many of the runs had to ask.
	Asked int `json:"asked"`
	// Denied is how many different things a budget or quota refused, and were not
	// admitted later; they are no runs.
	Denied int `json:"denied"`
	// Waiting is how many of Asked are undecided.
	Waiting int `json:"waiting"`
	// Answered is how many were answered.
	Answered int `json:"answered"`
	// WaitP50 and WaitP95 are the percentiles (nearest rank) of the time between asking
	// and being answered; zero where Answered is 0.
	WaitP50 time.Duration `json:"-"`
	WaitP95 time.Duration `json:"-"`

	// Assumptions are what the figures take for granted.
	Assumptions []string `json:"assumptions"`
	// CoverageNotes are what the data does not cover.
	CoverageNotes []string `json:"coverage_notes"`
	// Changes are what would change the answer.
	Changes []string `json:"changes"`
}

// AskedShare is Asked over Runs, and whether there was any run.
func (r Report) AskedShare() (share float64, ok bool) {
	if r.Runs == 0 {
		return 0, false
	}
	return float64(r.Asked) / float64(r.Runs), true
}

// often is the share of runs that ask from which the threshold is too low: at one run in
// five the gate stands in the way of everyday work.
const often = 0.2

// Sum makes the report of what was decided in [from, to) from the records of that time
// and the requests for approval.
func Sum(records []Record, requests []approval.Request, from, to, now time.Time) Report {
	r := Report{From: from, To: to}
	byID := map[string]approval.Request{}
	for _, q := range requests {
		byID[q.ID] = q
	}
	admitted, asked, denied := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, rec := range records {
		if rec.At.Before(from) || !rec.At.Before(to) || rec.Kind == Extension {
			continue // an extension is of a run that was counted
		}
		switch rec.Decision {
		case Allow:
			r.Runs++
			admitted[rec.PlanHash] = true
			if rec.ApprovalID != "" {
				asked[rec.ApprovalID] = true
			}
		case Held:
			asked[rec.ApprovalID] = true
		case Denied:
			denied[rec.PlanHash] = true
		}
	}
	used := map[string]bool{}
	for _, rec := range records {
		if rec.Decision == Allow {
			used[rec.ApprovalID] = true
		}
	}
	r.Asked = len(asked)
	var waits []time.Duration
	for id := range asked {
		if !used[id] {
			r.Runs++
		}
		switch q, ok := byID[id]; {
		case !ok:
		case !q.DecidedAt.IsZero():
			waits = append(waits, q.DecidedAt.Sub(q.AskedAt))
		case q.At(now) == approval.Pending:
			r.Waiting++
		}
	}
	for hash := range denied {
		if !admitted[hash] {
			r.Denied++
		}
	}
	slices.Sort(waits)
	if r.Answered = len(waits); r.Answered > 0 {
		r.WaitP50, r.WaitP95 = rank(waits, 50), rank(waits, 95)
	}
	r.explain()
	return r
}

// rank is a percentile of sorted values by nearest rank.
func rank(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

func (r *Report) explain() {
	r.Assumptions = []string{
		"a run is what was admitted, or asked for and not admitted; what a budget refused is none",
		"the wait is from the question to the answer, whatever the answer was",
	}
	r.CoverageNotes = []string{
		fmt.Sprintf("decisions from %s to %s", r.From.UTC().Format(time.RFC3339), r.To.UTC().Format(time.RFC3339)),
	}
	if n := r.Asked - r.Answered - r.Waiting; n > 0 {
		r.CoverageNotes = append(r.CoverageNotes,
			fmt.Sprintf("%d questions expired, became void or are not on record; they are in no wait", n))
	}
	if share, ok := r.AskedShare(); ok && share > often {
		r.Changes = append(r.Changes,
			"more than one run in five has to ask: a higher threshold would leave the gate to the outliers")
	}
}
