package runtime

import (
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// Storage opens the state for requests.
type Storage interface {
	// Open returns the state shared by all processes that act on an account, and the configuration
	// in force there. The caller closes the state.
	Open(ctx context.Context, req *Request, cfg config.Config) (config.Config, *store.Store, error)
	// Exists reports whether the state exists, so that opening it creates nothing.
	Exists(cfg config.Config) bool
	// Serves reports whether the process is a service.
	Serves() bool
}

// OwnStorage is the configured database, or a file in the data directory, opened for each
// operation.
type OwnStorage struct{}

// Open implements Storage.
func (OwnStorage) Open(ctx context.Context, req *Request, cfg config.Config) (config.Config, *store.Store, error) {
	if cfg.DatabaseURL == "" && cfg.DataDir == "" {
		return cfg, nil, &Error{Code: "no_state", Err: errors.New("there is no directory to keep anything in"),
			Hint: "give --data-dir or --database-url"}
	}
	w, err := req.witness(ctx, cfg)
	if err != nil {
		return cfg, nil, err
	}
	s, err := store.Open(ctx, store.Options{
		Dir: cfg.DataDir, URL: cfg.DatabaseURL, Host: store.Host{
			Now: req.Now, Uptime: req.Uptime, FileTime: req.FileTime,
		},
		Witness: w,
	})
	if err != nil {
		return cfg, nil, &Error{Code: "no_state", Err: err}
	}
	return cfg, s, nil
}

// Exists implements Storage.
func (OwnStorage) Exists(cfg config.Config) bool {
	if cfg.DatabaseURL != "" || cfg.DataDir == "" {
		return cfg.DatabaseURL != ""
	}
	_, err := os.Stat(filepath.Join(cfg.DataDir, store.FileName))
	return err == nil
}

// Serves implements Storage.
func (OwnStorage) Serves() bool { return false }

// LentStorage is the open state of a service, which stays open when an operation closes it.
type LentStorage struct{ State *store.Store }

// Open implements Storage.
func (l LentStorage) Open(_ context.Context, _ *Request, cfg config.Config) (config.Config, *store.Store, error) {
	return cfg, l.State.Lend(), nil
}

// Exists implements Storage.
func (LentStorage) Exists(config.Config) bool { return true }

// Serves implements Storage.
func (LentStorage) Serves() bool { return true }

// Open opens the state of a configuration.
func (req *Request) Open(ctx context.Context, cfg config.Config) (*store.Store, error) {
	_, s, err := req.Storage.Open(ctx, req, cfg)
	return s, err
}

// State reads the configuration and opens its state.
func (req *Request) State(ctx context.Context) (config.Config, *store.Store, error) {
	cfg, err := req.Config()
	if err != nil {
		return cfg, nil, err
	}
	return req.Storage.Open(ctx, req, cfg)
}

// InForce opens the state and returns the configuration in force, which includes the shared
// settings if there are any, and who decided it.
func (req *Request) InForce(ctx context.Context) (config.Config, view.Decider, *store.Store, error) {
	cfg, s, err := req.State(ctx)
	if err != nil {
		return cfg, view.Decider{}, nil, err
	}
	cfg, by, err := req.Governed(ctx, cfg, s)
	if err != nil {
		s.Close()
		return cfg, by, nil, err
	}
	return cfg, by, s, nil
}

// StateClock returns clocks with the time of the state, which is binding for all its users, and an
// error if decisions must not rely on this machine's clock.
func (req *Request) StateClock(ctx context.Context, s *store.Store) (func() time.Time, error) {
	clock, _, err := action.SharedClock(ctx, s.Actions(), req.Clock)
	if err != nil {
		err = clockError(err)
	}
	if clock == nil {
		return nil, err
	}
	return func() time.Time { return clock().Wall }, err
}

// InTime returns the time of the state for decisions. It is an error if this machine's clock
// differs, because holds of others would seem to have expired.
func (req *Request) InTime(ctx context.Context, s *store.Store) (time.Time, error) {
	clock, err := req.StateClock(ctx, s)
	if err != nil {
		return time.Time{}, err
	}
	return clock(), nil
}

// StateTime returns the time of the state for display, even if this machine's clock differs.
func (req *Request) StateTime(ctx context.Context, s *store.Store) (time.Time, error) {
	clock, err := req.StateClock(ctx, s)
	if clock == nil {
		return time.Time{}, err
	}
	return clock(), nil
}

// Person returns the caller: the caller of a service, the configured identity, or the user of the
// operating system.
func (req *Request) Person(cfg config.Config) (string, error) {
	if who, served := req.Caller.Served(); served {
		return who.Name, nil
	}
	if name := strings.TrimSpace(cfg.Identity); name != "" {
		return name, nil
	}
	if cfg.Identity != "" {
		return "", &Error{
			Class: Usage, Code: "no_identity", Err: errors.New("the identity is blank"),
			Hint: "set identity in curfew.yaml, or CURFEW_IDENTITY, to a name",
		}
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username, nil
	}
	return "", &Error{
		Class: Usage, Code: "no_identity", Err: errors.New("the person who gives this command is unknown"),
		Hint: "set identity in curfew.yaml, or CURFEW_IDENTITY"}
}

// Clock reads the clocks of this machine. If the boot is unknown, it only has the wall clock.
func (process *Process) Clock() action.Clock {
	c := action.Clock{Wall: process.Now().UTC()}
	c.Boot, c.Uptime = process.Uptime()
	return c
}

// Uptime returns the name of the machine's boot and the time since then; the name is empty if the
// system does not provide it.
func Uptime() (boot string, up time.Duration) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", 0
	}
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return "", 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return "", 0
	}
	return strings.TrimSpace(string(id)), time.Duration(seconds * float64(time.Second))
}

// clockError adds the next step to the error about this machine's clock.
func clockError(err error) error {
	f := &Error{Code: "clock", Err: err}
	if skew := (*action.SkewError)(nil); errors.As(err, &skew) {
		f.Hint = "if this clock is right and the state is a file, `curfew settings clock --reason TEXT`"
	}
	return f
}

// StateError adds the next step to the error of an unusable state.
func StateError(err error) error {
	if skew := (*action.SkewError)(nil); errors.As(err, &skew) {
		return clockError(skew)
	}
	if errors.Is(err, store.ErrQuarantined) {
		return &Error{
			Class: Denied, Code: "old_state", Err: err,
			Hint: "`curfew state` shows the losses, `curfew state accept --reason TEXT` continues with this state",
		}
	}
	if errors.Is(err, action.ErrFrozen) {
		return &Error{Class: Denied, Code: "frozen", Err: err, Hint: "`curfew unfreeze --reason TEXT` lifts it"}
	}
	return err
}

// Declared returns the caller with a self-declared name.
func (req *Request) Declared(cfg config.Config) (approval.Person, error) {
	if who, served := req.Caller.Served(); served {
		return who, nil
	}
	name, err := req.Person(cfg)
	if err != nil {
		return approval.Person{}, err
	}
	subject := name
	name, known := cfg.Named(name)
	for _, of := range cfg.GitHub.Identities {
		known = known || of == name
	}
	return approval.Person{
		Name: name, Roles: approval.Roles(cfg.Holders(), name),
		Proof: approval.Proof{Kind: approval.SelfDeclared, Subject: subject, Mapped: known},
	}, nil
}

// GovernedConfig is a configuration under the shared settings, and who decided those. Each read
// returns its own copy.
type GovernedConfig struct {
	Config  config.Config
	Decider view.Decider
}
