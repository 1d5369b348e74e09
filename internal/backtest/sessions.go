package backtest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Sessions is the result of running the machines that no one ended as sessions: each ends after a
// time at rest and starts again when its work comes back.
type Sessions struct {
	// IdleSeconds is the time at rest after which a session ends.
	IdleSeconds float64 `json:"idle_seconds"`
	// Launches are the first start of each machine and the restarts.
	Launches int64 `json:"launches"`
	// SessionHours are the hours that ran: those of the trace less those released. What
	// restarts take is not in them.
	SessionHours float64 `json:"session_hours"`
	// CostUSD is the price of the session hours and of the restarts, null when unpriced.
	CostUSD money.Dollars `json:"cost_usd"`
}

// sessionRule is the name of the rule of sessions.
func sessionRule(idle time.Duration) string {
	return "sessions-" + strconv.FormatFloat(idle.Minutes(), 'f', -1, 64) + "m"
}

// SessionRule is the rule by which a session ends: idle or held for so long. The warning
// before it is part of that time. It is one of [Params.Policies] where [Params.AsSessions]
// is set.
func SessionRule(idle time.Duration) (*policy.Set, error) {
	return policy.Parse("sessions", fmt.Appendf(nil, `apiVersion: curfew.policy/v1
policies:
  - name: %q
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("%s")
    then: [{warn: {grace: 0s}}, {do: terminate}]
    mode: enforce
`, sessionRule(idle), idle))
}

// sessions adds the result as sessions.
func (r *Result) sessions(idle time.Duration, machines int) error {
	s := Sessions{
		IdleSeconds: idle.Seconds(), Launches: int64(machines) + r.Restarts,
		SessionHours: r.ResourceHours - r.ReleasedHours,
	}
	cost, priced := r.CostUSD.Get()
	saved, valued := r.SavedUSD.Get()
	if priced && valued {
		spent, err := cost.Add(-saved)
		if err != nil {
			return fmt.Errorf("price the sessions: %w", err)
		}
		s.CostUSD = money.Known(spent)
	}
	r.AsSessions = &s
	return nil
}
