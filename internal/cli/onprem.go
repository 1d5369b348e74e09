package cli

import (
	"github.com/curfew-dev/curfew/internal/cloud/onprem"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/price"
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
