package govern

import (
	"github.com/curfew-dev/curfew/internal/app/fleets"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/view"
)

// Fleets returns the serving fleets that policies name: with their newest decisions in a service, and
// with sizes and demand unknown elsewhere.
func Fleets(req *runtime.Request) (view.ServingFleets, error) {
	if req.Fleets != nil {
		return req.Fleets(), nil
	}
	cfg, err := req.Config()
	if err != nil {
		return view.ServingFleets{}, err
	}
	set := &policy.Set{}
	if len(cfg.Policies) > 0 {
		if set, err = Policies(req, cfg, nil); err != nil {
			return view.ServingFleets{}, err
		}
	}
	return fleets.Planned(req, cfg, set)
}
