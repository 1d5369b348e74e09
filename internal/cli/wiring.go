package cli

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// newApp returns the shared state of the commands of a process.
func newApp(p *Process) *app {
	a := &app{
		Process: p, req: runtime.NewProcess(runtime.Host{
			Now: p.Now, Uptime: p.Uptime, FileTime: p.FileTime, Lookup: p.Lookup,
			Dir: p.Dir, ConfigDir: p.ConfigDir, DataDir: p.DataDir, WitnessDir: p.WitnessDir,
			Log: p.Stderr, Stdin: p.Stdin}).Request()}
	a.req.Progress = a.newProgress
	a.at = &ops.Place{Local: &ops.Call{Request: a.req, Owner: true}}
	return a
}

// What commands use most, by short names.

func (a *app) config() (config.Config, error) { return a.req.Config() }

func (a *app) path(p string) string { return a.req.Path(p) }

func (a *app) prices(cfg config.Config) (*price.Book, error) { return a.req.PriceBook(cfg) }

func (a *app) open(ctx context.Context, cfg config.Config) (*store.Store, error) {
	return a.req.Open(ctx, cfg)
}

func (a *app) inTime(ctx context.Context, s *store.Store) (time.Time, error) {
	return a.req.InTime(ctx, s)
}

func (a *app) setting(ctx context.Context, cfg config.Config, f sourceFlags) (round.Setting, error) {
	return clouds.Setting(ctx, a.req, cfg, f.Source)
}
