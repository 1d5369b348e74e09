package clouds

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/session"
)

// Launchers returns the providers at which sessions can be started here, with their delays.
func Launchers(_ context.Context, req *runtime.Request, cfg config.Config) (map[string]session.Launcher,
	map[string]session.Timeouts, error) {
	timings := map[string]session.Timeouts{
		ProviderAWS:       {Grace: cfg.Sessions.Grace, End: cfg.Sessions.EndLimit},
		ProviderSimulated: {Grace: cfg.Sessions.Grace, End: cfg.Sessions.EndLimit},
		// This machine lists immediately what it launched, and keeps the files of sessions that
		// ended unsaved.
		ProviderLocal: {
			Grace: cfg.Sessions.Grace, End: cfg.Sessions.EndLimit, VisibilityDelay: time.Millisecond,
			LookupInterval: 100 * time.Millisecond,
			TerminateRetry: 30 * time.Second, PollInterval: 100 * time.Millisecond, ChargeInterval: time.Minute,
			KeepsFiles: true},
	}
	if req.Simulated != nil {
		return map[string]session.Launcher{ProviderSimulated: req.Simulated.Launcher}, timings, nil
	}
	own, dir, err := thisMachine(req, cfg)
	if own == nil {
		return nil, timings, err
	}
	return map[string]session.Launcher{ProviderLocal: OwnMachine{own, filepath.Join(dir, "control")}}, timings, nil
}

// defaultSessionsDir is the folder for the files of sessions that run as other users.
const defaultSessionsDir = "/var/lib/curfew-sessions"

// thisMachine returns this machine as a provider of sessions, with the folder for their files; nil
// without a data directory.
func thisMachine(req *runtime.Request, cfg config.Config) (*local.Provider, string, error) {
	if cfg.DataDir == "" {
		return nil, "", nil
	}
	dir, err := filepath.Abs(req.Path(cfg.DataDir))
	if err != nil {
		return nil, "", err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("find this program: %w", err)
	}
	book, err := req.PriceBook(cfg)
	if err != nil {
		return nil, "", err
	}
	limits, err := cfg.Local.Limits.Options()
	if err != nil {
		return nil, "", err
	}
	dir = SessionsDir(dir)
	own, err := local.NewProvider(local.ProviderOptions{
		Dir: filepath.Join(dir, "local"), Sessions: cmp.Or(cfg.Local.Dir, defaultSessionsDir), Limits: limits,
		Name: runtime.HostName(), Machines: cfg.Machines, Rates: cfg.Rates, Tags: cfg.Tags, Prices: book,
		GPUs: cfg.Local.GPUs, Agent: []string{self, "agent", "host"}, Helper: []string{self, "cage"}, Now: req.Now,
		Log: req.Logger(false)})
	if err != nil {
		return nil, "", &runtime.Error{
			Class: runtime.Usage, Code: "invalid_file",
			Err: fmt.Errorf("this machine as a provider of sessions: %w", err),
		}
	}
	return own, dir, nil
}

// SessionsDir returns the folder of a data directory that holds all of local sessions.
func SessionsDir(dataDir string) string { return filepath.Join(dataDir, "sessions") }

// OwnMachine is this machine as a provider, with the folder of the documents that the keeper and
// the agents exchange.
type OwnMachine struct {
	*local.Provider
	control string
}

// Leftovers implements session.Launcher.
func (o OwnMachine) Leftovers(ctx context.Context, installation, id string) ([]string, error) {
	left, err := o.Provider.Leftovers(ctx, installation, id)
	if err != nil || len(left) > 0 || id == "" || id != filepath.Base(id) {
		return left, err
	}
	if err := local.RemoveTree(ctx, filepath.Join(o.control, id)); err != nil {
		left = append(left, err.Error())
	}
	return left, nil
}

// OutputFile returns the file that holds a part of the output of a local session; false for others,
// whose documents are kept.
func (o OwnMachine) OutputFile(s *session.Session, node int, n int64) (string, bool) {
	if s.Provider != ProviderLocal || s.ID == "" || s.ID != filepath.Base(s.ID) {
		return "", false
	}
	return filepath.Join(o.OutputDir(), s.ID, fmt.Sprintf("%d-%d.log.gz", node, n)), true
}
