package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// looking chooses a time of a trace, its end by default, and the cadence of the passes before it,
// by default that of the passes made in this state. A pass counts for later ones, and sees the
// versions that were released by its time.
type looking struct {
	trace, at, every string
	pass             bool
}

// present reads a trace as the account that it is at a time.
func (a *app) present(ctx context.Context, cfg config.Config, f sourceFlags, l looking, set *policy.Set) (
	round.Setting, *backtest.Present, error) {
	fail := func(err error) (round.Setting, *backtest.Present, error) { return round.Setting{}, nil, err }
	p, err := backtestFlags{
		trace: l.trace, columns: f.Columns, step: f.Step, restartCost: "0s", resource: f.Resource, tz: f.TZ,
	}.params()
	if err != nil {
		return fail(err)
	}
	if p, err = replay.Replayed(a.req, cfg, p, set); err != nil {
		return fail(err)
	}
	if l.every != "" {
		if p.Every, err = config.ParseDuration(l.every); err != nil || p.Every <= 0 {
			return fail(usageError("--every %q: it is a duration such as 5m", l.every))
		}
	}
	file, err := replay.OpenTrace(ctx, a.req, l.trace, &p.Format)
	if err != nil {
		return fail(err)
	}
	defer file.Close()
	account, err := backtest.Read(ctx, file, p)
	if err != nil {
		return fail(replay.TraceError(l.trace, err))
	}
	now := account.Summary().Last.Add(p.Format.Step)
	if l.at != "" {
		if now, err = time.Parse(time.RFC3339, l.at); err != nil {
			return fail(usageError("--at %q: it is an RFC 3339 time", l.at))
		}
	}
	clock := func() time.Time { return now }
	kept := filepath.Join(cfg.DataDir, "traces", traceKey(a.path(l.trace)))
	var operations []backtest.Operation
	var rounds []time.Time
	if err := errors.Join(readKept(kept+".json", &operations), readKept(kept+".rounds.json", &rounds)); err != nil {
		return fail(err)
	}
	if l.pass {
		if !slices.ContainsFunc(rounds, now.Equal) {
			if err := writeKept(kept+".rounds.json", append(rounds, now)); err != nil {
				return fail(err)
			}
		}
	} else {
		operations = slices.DeleteFunc(operations, func(o backtest.Operation) bool { return !o.At.Before(now) })
	}
	present := account.Present(clock, operations, func(all []backtest.Operation) error {
		return writeKept(kept+".json", all)
	})
	if !l.pass && (p.Every > 0 || !slices.ContainsFunc(rounds, now.After)) {
		rounds = present.Rounds(p.Every)
	}
	s := p.Setting
	s.Clock, s.Lister, s.Sources, s.Duty, s.Policies, s.Source = clock, present, []usage.Source{
		present,
	}, cfg.Duty, set, "enforce"
	s.AddFacts = present.Know
	s, err = present.Charged(ctx, s, p.Budgets, rounds)
	return s, present, err
}

// traceKey returns the cache key of a trace.
func traceKey(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Base(path) + "-" + hex.EncodeToString(sum[:6])
}

// readKept reads the cache of a trace that earlier processes wrote: nothing, if none did.
func readKept(path string, to any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("read what is kept of the trace: %w", err)
	}
	return nil
}

func writeKept(path string, value any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keep what is done with the trace: %w", err)
	}
	return durable.Replace(path, 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(value) })
}

// ladderOf is the ladder of a trace: no person is warned, and only the trace changes.
func ladderOf(s action.Store, on *backtest.Present, now time.Time, gap time.Duration, enforce bool) func(
	string) *action.Ladder {
	return func(account string) *action.Ladder {
		return &action.Ladder{
			Store: s, Cloud: on.Cloud(), Notifier: backtest.Everybody{}, Account: account,
			Actor: "trace", Enforce: enforce,
			Clock: func() action.Clock { return backtest.ClockAt(now) }, MaxRoundGap: gap, Assume: backtest.Allowed}
	}
}
