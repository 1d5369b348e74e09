package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/round"
)

// TestWrongClockPreventsPass checks that nothing is read or charged.
func TestWrongClockPreventsPass(t *testing.T) {
	wrong := &action.SkewError{Ahead: 15 * time.Minute}
	// an engine would be called, and there is none
	a := &accountRounds{begin: func(context.Context) error { return wrong }}
	if _, err := a.Round(t.Context()); !errors.Is(err, wrong) {
		t.Errorf("the round ended with %v", err)
	}
}

// TestPaceCountsRequestedMetrics checks that GPUs with metrics from elsewhere cost nothing, and
// that an incomplete round does not change the estimate.
func TestPaceCountsRequestedMetrics(t *testing.T) {
	p := &pace{
		log: slog.New(slog.DiscardHandler), per: map[string]asks{}, interval: time.Minute, limit: 50 * money.USD,
	}
	var machines []*inventory.Resource
	for i := range 100 {
		machines = append(machines, &inventory.Resource{
			ID: fmt.Sprint("i-", i), Account: "1", Kind: inventory.KindInstance, State: inventory.StateRunning,
			Size: inventory.Size{GPUs: inventory.Known(1)},
		})
	}
	saw := func(calls []inventory.Calls, blind ...inventory.BlindSpot) time.Duration {
		t.Helper()
		r := &round.Result{
			Observation: round.Observation{
				Accounts: []string{
					"1",
				}, Calls: calls, Inventory: inventory.Inventory{Resources: machines, BlindSpots: blind},
			},
		}
		if err := p.saw(r); err != nil {
			t.Fatal(err)
		}
		return p.every()
	}
	// 43,800 minutes of 909 metrics and lists at $0.01 per 1,000 are $398.14, of 400 $175.20.
	const guessed, asked = 477 * time.Second, 210 * time.Second
	if got := saw(nil); got != guessed {
		t.Errorf("by an estimate: every %s, want %s", got, guessed)
	}
	metrics := []inventory.Calls{
		{API: "cloudwatch:GetMetricData", Count: 1, Units: 400, Cost: 400 * 10_000},
		{API: "ce:GetCostAndUsage", Count: 1, Units: 1, Cost: money.Cent},
	}
	if got := saw(metrics); got != asked {
		t.Errorf("by what was asked: every %s, want %s", got, asked)
	}
	if got := saw(metrics[:1], inventory.BlindSpot{What: "cloudwatch"}); got != guessed {
		t.Errorf("with a blind spot: every %s, want %s", got, guessed)
	}
}
