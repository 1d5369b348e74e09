package server

import (
	"log/slog"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestAuditsStayWithinLimit checks that rounds and audits together cost at most the limit, audits
// at most half of it, and that rounds may use all of it without audits.
func TestAuditsStayWithinLimit(t *testing.T) {
	for _, machines := range []int{0, 1, 20, 500, 100_000} {
		for _, skip := range []bool{false, true} {
			p := &pace{log: slog.New(slog.DiscardHandler), per: map[string]asks{}}
			if err := p.estimate("aws/1", map[int]int{8: machines}); err != nil {
				t.Fatal(err)
			}
			cfg := config.Default()
			cfg.Serve.SkipAudits = skip
			if err := p.configure(cfg); err != nil {
				t.Fatal(err)
			}
			pass, err := clouds.WatchingPass(machines, 8)
			if err != nil {
				t.Fatal(err)
			}
			month := func(every time.Duration) float64 {
				return float64(pass.Cost) / float64(money.USD) * float64(money.Month) / float64(every)
			}
			rounds, audits := month(p.every()), 0.0
			if every := p.auditEvery(); !skip {
				audits = month(every)
				if every < cfg.Serve.AuditInterval || audits > 25.01 {
					t.Errorf("%d machines: audits every %s for $%.2f a month", machines, every, audits)
				}
			}
			if rounds+audits > 50.5 || p.every() < cfg.Serve.Interval || p.slowed() && rounds+audits < 45 {
				t.Errorf("%d machines, audits skipped %v: rounds every %s for $%.2f a month, audits for $%.2f",
					machines, skip,
					p.every(), rounds, audits)
			}
		}
	}
}
