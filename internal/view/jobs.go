package view

import "time"

// The schemas of the documents that the service keeps of replays and imports.
const (
	BacktestsSchema   = "curfew.backtests/v1"
	BillPeriodsSchema = "curfew.bill.periods/v1"
)

// Backtests are replays that callers of the service asked for.
type Backtests struct {
	Schema    string        `json:"schema"`
	Backtests []BacktestJob `json:"backtests"`
}

// BacktestJob is one replay and how far it is. Its result is a document of its own.
type BacktestJob struct {
	ID string `json:"id"`
	// State is queued, running, done, failed or canceled.
	State string `json:"state"`
	// ProgressPercent is how much of it is done, 0 to 100.
	ProgressPercent int64     `json:"progress_percent"`
	CreatedBy       string    `json:"created_by"`
	CreatedAt       time.Time `json:"created_at"`
	// StartedAt is when it was begun last, EndedAt when it ended; null is not yet.
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	// Attempts counts how often it was begun: once more for each process that ended while it
	// ran.
	Attempts int64 `json:"attempts"`
	// Note is the reason for an end without a result, or a remark on the way.
	Note string        `json:"note"`
	Of   BacktestAsked `json:"of"`
}

// BacktestAsked selects the replay.
type BacktestAsked struct {
	// Trace is a file with recorded usage under serve.trace_paths; empty records it from From.
	Trace string `json:"trace"`
	// From is prometheus or cloudwatch, from which the history of the running machines is
	// recorded first, Since and Until its period.
	From  string `json:"from"`
	Since string `json:"since"`
	Until string `json:"until"`
	// Columns are those of the trace under other names, as --map takes them, Step its sampling
	// step, Resource the resource of nvidia-smi's output.
	Columns  string `json:"map"`
	Step     string `json:"step"`
	Resource string `json:"resource"`
	// Price is dollars an hour of a resource, RestartCost the time lost when work comes back.
	Price       string `json:"price"`
	RestartCost string `json:"restart_cost"`
	// IdleBelow is the GPU utilization in percent under which a sample is idle.
	IdleBelow float64 `json:"idle_below"`
	// Policies is the text of the policies that are replayed; empty is those of the
	// configuration.
	Policies string `json:"policies"`
	// Caps applies the limits of the policies, Baselines compares with the baselines.
	Caps      bool `json:"caps"`
	Baselines bool `json:"baselines"`
	// Every makes a pass at every multiple of a duration; empty is at every sample and deadline.
	Every string `json:"every"`
}

// BillPeriods are the billing periods that were imported.
type BillPeriods struct {
	Schema  string       `json:"schema"`
	Periods []BillPeriod `json:"periods"`
}

// BillPeriod is one imported billing period of an account. Amounts have all digits of the bill.
type BillPeriod struct {
	// ID is the account and the beginning: 123456789012/2026-10-01.
	ID      string    `json:"id"`
	Account string    `json:"account"`
	Start   time.Time `json:"start"`
	// End is null if the bill does not say.
	End *time.Time `json:"end"`
	// Source is where it was imported from; an import from there replaces it.
	Source     string    `json:"source"`
	ImportedAt time.Time `json:"imported_at"`
	Lines      int64     `json:"lines"`
	Rows       int64     `json:"rows"`
	BilledCost string    `json:"billed_cost_usd"`
	// EffectiveCost is null if lines lack it.
	EffectiveCost *string `json:"effective_cost_usd"`
}
