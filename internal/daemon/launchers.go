package daemon

import (
	"context"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/session"
)

// launchers are the providers that sessions can be started at here, with what they may be
// waited for.
func (rt *Runtime) launchers(ctx context.Context, cfg config.Config) (map[string]session.Launcher, map[string]session.Timing, error) {
	_ = ctx
	return map[string]session.Launcher{}, map[string]session.Timing{ProviderAWS: {Grace: cfg.Sessions.Grace}}, nil
}
