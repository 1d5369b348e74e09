package view

import (
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// RunJob holds the fields of a job.
type RunJob struct {
	// Command is the shell command of the job.
	Command string `json:"command"`
	// Step is the highest step that the work declared; null: none.
	Step *int64 `json:"step"`
	// Attempts are the launches, the first one first.
	Attempts []RunAttempt `json:"attempts"`
	// NextAt is the start of the next attempt; null while one runs and after the end.
	NextAt *time.Time `json:"next_at"`
	// ExitCode is that of the command of the last attempt; null: a signal ended it, or it has not ended.
	ExitCode *int `json:"exit_code"`
	// LimitUSD is the most that it may cost; null: there is no price.
	LimitUSD money.Dollars `json:"limit_usd"`
	// MaxRuntime bounds the time of its machines, and Deadline that of its end; empty and null: no such
	// bound.
	MaxRuntime string     `json:"max_runtime"`
	Deadline   *time.Time `json:"deadline"`
	// UsefulUSD, RepeatedUSD and WaitingUSD are the parts of the cost of the attempts that are over:
	// work that was saved, work that was lost, and start and end.
	UsefulUSD   money.Dollars `json:"useful_usd"`
	RepeatedUSD money.Dollars `json:"repeated_usd"`
	WaitingUSD  money.Dollars `json:"waiting_usd"`
	// OnDemandUSD is the cost of the same work on demand, without interruptions; null: it ran on demand,
	// or its price is unknown.
	OnDemandUSD money.Dollars `json:"on_demand_usd"`
	// Interruptions counts the attempts that were taken away, and InterruptionSeconds the time that they
	// cost.
	Interruptions       int   `json:"interruptions"`
	InterruptionSeconds int64 `json:"interruption_seconds"`
	// LastInterruption is the newest interruption; null: there was none.
	LastInterruption *RunInterruption `json:"last_interruption"`
	// Placement is the last choice of a place; null where there was nothing to choose.
	Placement *RunPlacement `json:"placement"`
}

// RunInterruption is one interrupted attempt of a job, and its cost.
type RunInterruption struct {
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	// LostSeconds is the time of the work that was lost, RepeatedUSD its cost; null: no price.
	LostSeconds int64         `json:"lost_seconds"`
	RepeatedUSD money.Dollars `json:"repeated_usd"`
	// RestartSeconds is the time until the command ran again; null: it has not.
	RestartSeconds *int64 `json:"restart_seconds"`
}

// RunPlacement is a choice of places.
type RunPlacement struct {
	At  time.Time `json:"at"`
	Why string    `json:"why"`
	// Options are the places with the figures of that time, the cheapest useful hour first.
	Options []RunOption `json:"options"`
}

// RunOption is a place where a job could run.
type RunOption struct {
	Pool string `json:"pool"`
	// HourlyUSD is the price of an hour of all machines, UsefulUSD that of an hour of saved work: with
	// the restarts that interruptions imply, and the transfer of data at each start.
	HourlyUSD money.Dollars `json:"hourly_usd"`
	UsefulUSD money.Dollars `json:"useful_hour_usd"`
	// InterruptionsPerHour is the expected rate of the place.
	InterruptionsPerHour float64 `json:"interruptions_per_hour"`
	Note                 string  `json:"note"`
}

// newPlacement makes the document of a choice.
func newPlacement(a *job.Advice) *RunPlacement {
	if a == nil {
		return nil
	}
	p := &RunPlacement{At: a.At.UTC(), Why: a.Why, Options: []RunOption{}}
	for _, o := range a.Options {
		p.Options = append(p.Options, RunOption{
			Pool: o.Pool.String(), HourlyUSD: money.Known(o.Hourly), UsefulUSD: money.Known(o.Useful),
			InterruptionsPerHour: o.Interruptions, Note: o.Note,
		})
	}
	return p
}

// RunAttempt is one launch of a job.
type RunAttempt struct {
	Number int    `json:"number"`
	Pool   string `json:"pool"`
	// BeganAt is the time of its decision; LaunchedAt, CommandAt, StoppedAt (of the command) and EndedAt
	// are null before that.
	BeganAt    time.Time  `json:"began_at"`
	LaunchedAt *time.Time `json:"launched_at"`
	CommandAt  *time.Time `json:"command_at"`
	StoppedAt  *time.Time `json:"stopped_at"`
	EndedAt    *time.Time `json:"ended_at"`
	// EndedBy is the class of its end, Evidence the evidence for the class; empty while it runs.
	EndedBy  string `json:"ended_by"`
	Evidence string `json:"evidence"`
	ExitCode *int   `json:"exit_code"`
	// FromStep is the step that it started from, SavedStep that of its newest snapshot; null: none, or
	// not known.
	FromStep  *int64 `json:"from_step"`
	SavedStep *int64 `json:"saved_step"`
	// CostUSD is the sum of the parts; all are null where the machines are unpriced or still run.
	CostUSD     money.Dollars `json:"cost_usd"`
	UsefulUSD   money.Dollars `json:"useful_usd"`
	RepeatedUSD money.Dollars `json:"repeated_usd"`
	WaitingUSD  money.Dollars `json:"waiting_usd"`
	LostSeconds int64         `json:"lost_seconds"`
	// Restarts are the restarts of its nodes after the loss of one, which was replaced.
	Restarts []RunRestart `json:"restarts"`
}

// RunRestart is a restart of all nodes of an attempt, because the machine of one was lost.
type RunRestart struct {
	Node       int    `json:"node"`
	ResourceID string `json:"resource_id"`
	// LostAt is the time since which the machine is missing, CommandAt that at which the command runs again;
	// null: it does not.
	LostAt    time.Time  `json:"lost_at"`
	CommandAt *time.Time `json:"command_at"`
	// FromStep is the step that all nodes went on from; null: not known.
	FromStep *int64 `json:"from_step"`
}

// NewJob makes the document of a job at a time. Current is the session of its current attempt; nil if
// there is none.
func NewJob(j job.Job, current *session.Session, now time.Time) Run {
	r := Run{
		ID: j.ID, Name: j.Name, Kind: "job", State: string(j.State), Why: j.Why, Provider: j.Provider,
		ResourceIDs: []string{}, Attempt: len(j.Attempts), Owner: j.Owner, AskedBy: j.RequestedBy, RunAs: j.RunAs,
		HoldID: j.HoldID, ApprovalID: j.ApprovalID, RequestedAt: j.RequestedAt.UTC(), EndedAt: optionalTime(j.EndedAt),
		Job: &RunJob{Step: j.Step, Attempts: []RunAttempt{}, Placement: newPlacement(j.Placed)},
	}
	if n := j.Snapshot; n.Manifest != "" {
		r.Checkpoint = &RunCheckpoint{Step: n.Step, At: n.At.UTC(), Manifest: n.Manifest}
	}
	if sp, err := spec.Parse(j.Name, j.Spec); err == nil {
		r.Nodes, r.Job.Command = sp.Resources.Nodes, sp.Run
		if sp.MaxRuntime > 0 {
			r.Job.MaxRuntime = session.Duration(sp.MaxRuntime).String()
		}
		if sp.Deadline > 0 {
			r.Job.Deadline = optionalTime(j.RequestedAt.Add(sp.Deadline))
		}
	}
	if j.CostLimit > 0 {
		r.Job.LimitUSD = money.Known(j.CostLimit)
	}
	if j.State == job.Waiting {
		r.Job.NextAt = optionalTime(j.NotBefore)
	}
	total, priced := r.Job.addAttempts(j)
	if current != nil {
		r.Type, r.Region, r.ResourceIDs = current.Pool.Type, current.Region, current.MachineIDs()
		r.LeaseUntil, r.Epoch = current.LeaseUntil.UTC(), current.Epoch
		r.HourlyUSD, r.Image = current.Rate, current.Pool.Image
		cost, known, err := current.Cost(now)
		priced = priced && known && err == nil
		total += cost
	} else if n := len(j.Attempts); n > 0 {
		r.Type, r.Region, r.Epoch = j.Attempts[n-1].Pool.Type, j.Attempts[n-1].Pool.Region, j.Attempts[n-1].Epoch
	}
	if n := len(j.Attempts); n > 0 {
		r.LaunchedAt, r.Job.ExitCode = optionalTime(j.Attempts[0].LaunchedAt), j.Attempts[n-1].ExitCode
	}
	if priced {
		r.CostUSD = money.Known(total)
	} else {
		r.Unpriced = "its machine has no price"
	}
	if all, ok := j.OnDemandCost(); ok {
		r.Job.OnDemandUSD = money.Known(all)
	}
	count, cost := j.Interruptions()
	r.Job.Interruptions, r.Job.InterruptionSeconds = count, int64(cost/time.Second)
	r.Job.addLastInterruption(j)
	return r
}

// addLastInterruption adds the newest interruption of a job.
func (r *RunJob) addLastInterruption(j job.Job) {
	last, ok := j.LastInterruption()
	if !ok {
		return
	}
	r.LastInterruption = &RunInterruption{
		Attempt: last.Attempt, At: last.At.UTC(), LostSeconds: int64(last.Lost / time.Second),
	}
	for _, a := range r.Attempts {
		if a.Number == last.Attempt {
			r.LastInterruption.RepeatedUSD = a.RepeatedUSD
		}
	}
	if last.Restarted {
		restart := int64(last.Restart / time.Second)
		r.LastInterruption.RestartSeconds = &restart
	}
}

// addAttempts adds the attempts of a job, and returns the cost of those that are over.
func (r *RunJob) addAttempts(j job.Job) (total money.Amount, priced bool) {
	priced = true
	var useful, repeated, waiting money.Amount
	for _, a := range j.Attempts {
		doc := RunAttempt{
			Number: a.Number, Pool: strings.TrimSpace(a.Pool.String()), BeganAt: a.BeganAt.UTC(),
			LaunchedAt: optionalTime(a.LaunchedAt), CommandAt: optionalTime(a.CommandAt),
			StoppedAt: optionalTime(a.StoppedAt),
			EndedAt:   optionalTime(a.EndedAt), EndedBy: string(a.EndedBy), Evidence: a.Evidence,
			ExitCode: a.ExitCode, FromStep: a.Start.Step,
			SavedStep: a.Saved.Step, LostSeconds: int64(a.Lost / time.Second),
			Restarts: []RunRestart{},
		}
		for _, r := range a.Restarts {
			doc.Restarts = append(doc.Restarts, RunRestart{
				Node: r.Node, ResourceID: r.Machine, LostAt: r.At.UTC(), CommandAt: optionalTime(r.CommandAt),
				FromStep: r.Step,
			})
		}
		priced = priced && !a.Unpriced
		if a.Over() && !a.Unpriced {
			doc.CostUSD, doc.UsefulUSD = money.Known(a.Cost), money.Known(a.Useful)
			doc.RepeatedUSD, doc.WaitingUSD = money.Known(a.Repeated), money.Known(a.Waiting)
			total, useful, repeated, waiting = total+a.Cost, useful+a.Useful, repeated+a.Repeated, waiting+a.Waiting
		}
		r.Attempts = append(r.Attempts, doc)
	}
	if priced {
		r.UsefulUSD, r.RepeatedUSD, r.WaitingUSD = money.Known(useful), money.Known(repeated), money.Known(waiting)
	}
	return total, priced
}
