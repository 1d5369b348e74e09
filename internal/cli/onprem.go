package cli

import (
	"context"
	"maps"

	"github.com/curfew-dev/curfew/internal/cloud/onprem"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
)

// newFleet returns the machines that the configuration lists.
func newFleet(cfg config.Config, book *price.Book) (*onprem.Fleet, error) {
	if len(cfg.Machines) == 0 {
		return nil, usageError("--cloud onprem: no machine is listed; write them under machines in curfew.yaml (docs/configuration.md)")
	}
	fleet, err := onprem.New(onprem.Options{Machines: cfg.Machines, Rates: cfg.Rates, Tags: cfg.Tags, Prices: book})
	if err != nil {
		return nil, usageError("%w", err)
	}
	return fleet, nil
}

// keepFleet does what keepBooks does, at the rates and by the sizes of a fleet.
func (a *app) keepFleet(fleet *onprem.Fleet) func(context.Context, config.Config, *price.Book, string, *round.Observation, round.Query) error {
	return func(ctx context.Context, cfg config.Config, book *price.Book, source string, o *round.Observation, q round.Query) error {
		s, err := a.open(ctx, cfg)
		if err != nil {
			return err
		}
		defer s.Close()
		for _, seen := range (round.Books{Source: source, Prices: book, Duty: cfg.Duty}).Seen(o, q) {
			fleet.Charge(seen.Resources, seen.Rates)
			maps.Copy(seen.Verdicts, fleet.Present(o, q.Now, cfg.Duty))
			r, observations := ledger.Observe(seen)
			if _, err := ledger.Post(ctx, s.Ledger(), r, observations); err != nil {
				return err
			}
		}
		return nil
	}
}
