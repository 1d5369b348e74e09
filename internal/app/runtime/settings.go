package runtime

import (
	"context"
	"fmt"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// Kinds of settings.
const (
	SettingsKind = "gate"
	PricesKind   = "prices"
)

// Governed returns the configuration under the shared settings of the state: shared values, or
// stricter local ones. A weaker local value is an error. From then on prices are those of the
// store.
func (req *Request) Governed(ctx context.Context, cfg config.Config, s *store.Store) (config.Config, view.Decider,
	error) {
	shared, set, err := req.Shared(ctx, s)
	if err != nil {
		return cfg, view.Decider{}, err
	}
	if set.Version == 0 {
		return cfg, view.Decider{Source: "local", Hash: cfg.SharedHash(), Advisory: true}, nil
	}
	if cfg, err = cfg.Under(shared); err != nil {
		return cfg, view.Decider{}, &Error{
			Class: Denied, Code: "weaker_settings", Err: err,
			Hint: "`curfew settings` shows the shared ones; leave out of curfew.yaml what they set",
		}
	}
	prices, _, err := s.Settings().Newest(ctx, PricesKind)
	if err != nil {
		return cfg, view.Decider{}, err
	}
	req.prices = priceOverlay{text: prices.Body, set: true}
	return cfg, view.Decider{
		Source: "shared", Version: set.Version, Hash: cfg.SharedHash(), Prices: prices.Version,
	}, nil
}

// Shared returns the shared settings of the state; version 0 means that there are none.
func (req *Request) Shared(ctx context.Context, s *store.Store) (config.Shared, store.Setting, error) {
	set, ok, err := s.Settings().Newest(ctx, SettingsKind)
	if err != nil || !ok {
		return config.Shared{}, store.Setting{}, err
	}
	shared, err := config.DecodeShared(fmt.Sprintf("shared settings %d", set.Version), []byte(set.Body))
	if err != nil {
		err = fmt.Errorf("read the shared settings: %w", err)
	}
	return shared, set, err
}
