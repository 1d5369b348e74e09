package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/store"
)

// open opens the state that binds every process which acts on an account: the
// database of the configuration, or a file in the data directory.
func (a *app) open(ctx context.Context, cfg config.Config) (*store.Store, error) {
	if cfg.DatabaseURL == "" && cfg.DataDir == "" {
		return nil, &failure{exit: ExitError, code: "no_state", err: errors.New("there is no directory to keep anything in"),
			hint: "give --data-dir or --database-url"}
	}
	s, err := store.Open(ctx, store.Options{Dir: cfg.DataDir, URL: cfg.DatabaseURL, Host: store.Host{Now: a.Now, Uptime: a.Uptime, FileTime: a.FileTime}})
	if err != nil {
		return nil, &failure{exit: ExitError, code: "no_state", err: err}
	}
	return s, nil
}

// state reads the configuration and opens the state that it names.
func (a *app) state(ctx context.Context) (config.Config, *store.Store, error) {
	cfg, err := a.config()
	if err != nil {
		return cfg, nil, err
	}
	s, err := a.open(ctx, cfg)
	return cfg, s, err
}

// stateClock returns clocks that tell the time of the state, which binds everybody who
// uses it, and with them an error where this machine's clock is not to be decided by.
func (a *app) stateClock(ctx context.Context, s *store.Store) (func() time.Time, error) {
	clock, _, err := action.SharedClock(ctx, s.Ledger(), a.clock)
	if err != nil {
		f := &failure{exit: ExitError, code: "clock", err: err}
		if skew := (*action.SkewError)(nil); errors.As(err, &skew) {
			f.hint = "if this clock is right and the state is a file, `curfew settings clock --reason TEXT`"
		}
		err = f
	}
	if clock == nil {
		return nil, err
	}
	return func() time.Time { return clock().Wall }, err
}

// inTime is the time of the state, for what is decided. It is refused to decide by a clock
// that is not that of the state: a hold of others would seem to have expired.
func (a *app) inTime(ctx context.Context, s *store.Store) (time.Time, error) {
	clock, err := a.stateClock(ctx, s)
	if err != nil {
		return time.Time{}, err
	}
	return clock(), nil
}

// stateTime is the time of the state, for what is only shown, whatever this machine's is.
func (a *app) stateTime(ctx context.Context, s *store.Store) (time.Time, error) {
	clock, err := a.stateClock(ctx, s)
	if clock == nil {
		return time.Time{}, err
	}
	return clock(), nil
}

// person is who gives the command: the configured identity, else the user that the
// operating system knows.
func (a *app) person(cfg config.Config) (string, error) {
	if name := strings.TrimSpace(cfg.Identity); name != "" {
		return name, nil
	}
	if cfg.Identity != "" {
		return "", &failure{exit: ExitUsage, code: "no_identity", err: errors.New("the identity is blank"), hint: "set identity in curfew.yaml, or CURFEW_IDENTITY, to a name"}
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username, nil
	}
	return "", &failure{exit: ExitUsage, code: "no_identity", err: errors.New("nobody knows who gives this command"),
		hint: "set identity in curfew.yaml, or CURFEW_IDENTITY"}
}

// clock reads the clocks of this machine. Where the boot cannot be told, only the
// wall clock is known.
func (a *app) clock() action.Clock {
	c := action.Clock{Wall: a.Now().UTC()}
	if a.Uptime != nil {
		c.Boot, c.Uptime = a.Uptime()
	}
	return c
}

// uptime returns the name of the machine's boot and the time since then; an empty
// name where the system does not tell.
func uptime() (boot string, up time.Duration) {
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

// until reads when something ends: a duration from now, or a time.
func until(now time.Time, text string) (time.Time, error) {
	if d, err := config.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil && t.After(now) {
		return t.UTC(), nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration such as 24h or 7d nor an RFC 3339 time to come", text)
}

// stateFailure says what to do when the state cannot be used.
func stateFailure(err error) error {
	if errors.Is(err, action.ErrFrozen) {
		return &failure{exit: ExitDenied, code: "frozen", err: err, hint: "`curfew unfreeze --reason TEXT` lifts it"}
	}
	return err
}

// first returns the first text that is not empty.
func first(texts ...string) string { return cmp.Or(texts...) }

// holdEntry records what became of a hold.
func holdEntry(at time.Time, who, what string, h budget.Hold) action.Entry {
	amount := h.Amount
	if h.State == budget.Settled {
		amount = h.Actual
	}
	return action.Entry{At: at, Actor: who, What: what, Because: h.Kind + " " + h.Name, Outcome: "hold " + h.ID + " " + string(h.State) + ", " + amount.Exact()}
}

// auditEntry records a decision on a request.
func auditEntry(at time.Time, who, what string, r approval.Request) action.Entry {
	return action.Entry{At: at, Actor: who, What: what, Because: r.Subject, Outcome: "request " + r.ID + ", at most " + r.Amount.Exact()}
}
