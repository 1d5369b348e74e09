package cli

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// newApp returns what the commands of a process share.
func newApp(p *Process) *app {
	a := &app{Process: p, rt: daemon.NewProcess(daemon.Host{Now: p.Now, Uptime: p.Uptime, FileTime: p.FileTime, Lookup: p.Lookup,
		Dir: p.Dir, ConfigDir: p.ConfigDir, DataDir: p.DataDir, Log: p.Stderr}).Request()}
	a.rt.Progress = a.newProgress
	a.at = &ops.Place{Local: &ops.Call{RT: a.rt, Local: true}}
	return a
}

// The wiring that commands use most, by short names.

func (a *app) config() (config.Config, error) { return a.rt.Config() }

func (a *app) path(p string) string { return a.rt.Path(p) }

func (a *app) prices(cfg config.Config) (*price.Book, error) { return a.rt.PriceBook(cfg) }

func (a *app) open(ctx context.Context, cfg config.Config) (*store.Store, error) {
	return a.rt.Open(ctx, cfg)
}

func (a *app) inTime(ctx context.Context, s *store.Store) (time.Time, error) {
	return a.rt.InTime(ctx, s)
}

func (a *app) setting(ctx context.Context, cfg config.Config, f sourceFlags) (round.Setting, error) {
	return a.rt.Setting(ctx, cfg, f.Source)
}
