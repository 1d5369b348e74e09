package gate

import (
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
)

// Report counts how often people had to ask and how long they waited.
type Report struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Runs counts admitted and waiting runs.
	Runs int `json:"runs"`
	// Asked counts runs that needed an approval.
	Asked int `json:"asked"`
	// Denied counts different denials that were not admitted later; they are no runs.
	Denied int `json:"denied"`
	// Waiting counts undecided requests.
	Waiting int `json:"waiting"`
	// Answered counts decided requests.
	Answered int `json:"answered"`
	// WaitP50 and WaitP95 are nearest-rank percentiles of the time to an answer; zero without
	// answers.
	WaitP50 time.Duration `json:"-"`
	WaitP95 time.Duration `json:"-"`

	// Assumptions of the counts.
	Assumptions []string `json:"assumptions"`
	// CoverageNotes describe what the data does not cover.
	CoverageNotes []string `json:"coverage_notes"`
	// Changes describe what would change the result.
	Changes []string `json:"changes"`
}

// AskedShare returns Asked over Runs; false without runs.
func (r Report) AskedShare() (share float64, ok bool) {
	if r.Runs == 0 {
		return 0, false
	}
	return float64(r.Asked) / float64(r.Runs), true
}

// highAskShare is the share of asking runs from which the threshold is too low: at one in five the
// gate hinders everyday work.
const highAskShare = 0.2

// NewReport summarizes the decisions in [from, to) and their requests.
func NewReport(records []Record, requests []approval.Request, from, to, now time.Time) Report {
	r := Report{From: from, To: to}
	byID := map[string]approval.Request{}
	for _, q := range requests {
		byID[q.ID] = q
	}
	admitted, asked, denied := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, rec := range records {
		if rec.At.Before(from) || !rec.At.Before(to) || rec.Kind == Extension {
			continue // extensions belong to a counted run
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
		r.WaitP50, r.WaitP95 = percentile(waits, 50), percentile(waits, 95)
	}
	r.explain()
	return r
}

// percentile returns a nearest-rank percentile of sorted values.
func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

func (r *Report) explain() {
	r.Assumptions = []string{
		"a run is admitted or requested work; refusals of a budget are not counted",
		"the wait is from the question to the answer, whatever the answer was",
	}
	r.CoverageNotes = []string{
		fmt.Sprintf("decisions from %s to %s", r.From.UTC().Format(time.RFC3339), r.To.UTC().Format(time.RFC3339)),
	}
	if n := r.Asked - r.Answered - r.Waiting; n > 0 {
		r.CoverageNotes = append(r.CoverageNotes,
			fmt.Sprintf("%d questions expired, became void or are not on record; they are in no wait", n))
	}
	if share, ok := r.AskedShare(); ok && share > highAskShare {
		r.Changes = append(r.Changes,
			"more than one run in five has to ask: a higher threshold would leave the gate to the outliers")
	}
}
