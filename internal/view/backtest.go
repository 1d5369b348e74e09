package view

import "github.com/curfew-dev/curfew/internal/backtest"

// Schemas of replays.
const (
	BacktestSchema = "curfew.backtest/v1"
	TuneSchema     = "curfew.tune/v1"
)

// Backtest is the outcome of rules simulated on recorded usage.
type Backtest struct {
	Schema string `json:"schema"`
	backtest.Report
}

// NewBacktest returns the document of a replay.
func NewBacktest(r backtest.Report) Backtest { return Backtest{BacktestSchema, r} }

// Tune is how long to wait before resources are released, as learned from recorded usage.
type Tune struct {
	Schema string `json:"schema"`
	backtest.TuneReport
}

// NewTune returns the document of learned waits.
func NewTune(r backtest.TuneReport) Tune { return Tune{TuneSchema, r} }
