package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/scheduler"
	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/internal/wait"
)

// BacktestRunner runs the backtests of a state.
type BacktestRunner struct {
	// Store holds the backtests.
	Store *store.Store
	// Sources returns the accounts whose history is recorded; nil is the account of the
	// credentials.
	Sources func() []clouds.Source
	// Holder names this process. TTL is how long it leases a backtest; 0 is the default.
	Holder string
	TTL    time.Duration
	// Poll is the interval between lookups for open backtests; 0 is 2s.
	Poll time.Duration
	// Check is the interval of checks for cancellation and of lease renewals; 0 is an eighth of
	// TTL.
	Check time.Duration
	Log   *slog.Logger
}

const (
	// backtestLease is the name prefix of the leases.
	backtestLease = "backtest/"
	// maxBacktests is the number of processes that may end while they run a backtest before it is
	// given up: it may be what kills them.
	maxBacktests = 3
	// longestBacktest limits the duration of a backtest, largestResult the size of its result.
	longestBacktest = time.Hour
	largestResult   = 32 << 20
)

// RunBacktests carries out the backtests in the state, one at a time, until the context ends. A
// backtest whose process ended is started again.
func RunBacktests(ctx context.Context, req *runtime.Request, o BacktestRunner) {
	if o.TTL <= 0 {
		o.TTL = scheduler.DefaultTTL
	}
	if o.Poll <= 0 {
		o.Poll = 2 * time.Second
	}
	if o.Check <= 0 {
		o.Check = o.TTL / 8
	}
	if o.Holder == "" {
		o.Holder = scheduler.ProcessName()
	}
	if o.Sources == nil {
		o.Sources = func() []clouds.Source { return []clouds.Source{{}} }
	}
	for wait.For(ctx, scheduler.Jitter(o.Poll*9/10, o.Poll)) == nil {
		if err := nextBacktest(ctx, req, o); err != nil && ctx.Err() == nil {
			o.Log.Error("no backtest is carried out", "error", action.Redact(err.Error()))
		}
	}
}

// nextBacktest carries out the oldest backtest that no process runs.
func nextBacktest(ctx context.Context, req *runtime.Request, o BacktestRunner) error {
	open, err := o.Store.Backtests().Open(ctx)
	if err != nil {
		return err
	}
	leases := o.Store.Leases()
	for _, b := range open {
		lease, held, err := leases.Take(ctx, backtestLease+b.ID, o.Holder, o.TTL)
		if err != nil {
			return err
		}
		if !held {
			continue
		}
		err = carryBacktest(ctx, req, o, b, lease)
		bounded, end := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		err = errors.Join(err, leases.Release(bounded, lease))
		end()
		return err
	}
	return leases.Prune(ctx, backtestLease, req.Now().Add(-oneDay))
}

// carryBacktest carries out one backtest under a lease.
func carryBacktest(ctx context.Context, req *runtime.Request, o BacktestRunner, b store.Backtest,
	lease store.Lease) error {
	jobs, note := o.Store.Backtests(), ""
	if b.State == store.BacktestRunning {
		note = "a process ended while it ran this; it is run again"
	}
	if err := jobs.Begin(ctx, b.ID, lease, req.Now().UTC(), note); err != nil {
		return ignoreEnded(err)
	}
	end := func(state store.BacktestState, note, result string) error {
		kept := context.WithoutCancel(ctx)
		err := jobs.End(kept, b.ID, lease, state, note, result, req.Now().UTC(),
			backtestEntry(req, b.CreatedBy, b.ID, string(state)))
		return ignoreEnded(err)
	}
	if b.Attempts >= maxBacktests {
		return end(store.BacktestFailed, fmt.Sprintf("%d processes ended while they ran it", b.Attempts), "")
	}
	bounded, stop := context.WithTimeoutCause(ctx, longestBacktest,
		fmt.Errorf("it took longer than %s", longestBacktest))
	defer stop()
	running, lose := context.WithCancelCause(bounded)
	var done atomic.Int64
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		keepBacktest(running, req, o, b.ID, lease, &done, lose)
	}()
	o.Log.Info("a backtest begins", "backtest", b.ID, "by", b.CreatedBy, "attempt", b.Attempts+1)
	result, unseen, err := replayBacktest(running, req, o, b, done.Store)
	note = strings.TrimPrefix(note+"; "+unseen, "; ")
	note = strings.TrimSuffix(note, "; ")
	cause := context.Cause(running)
	lose(nil)
	<-kept
	switch {
	case err == nil:
		o.Log.Info("a backtest is done", "backtest", b.ID)
		return end(store.BacktestDone, note, result)
	case errors.Is(cause, store.ErrBacktestEnded), errors.Is(cause, store.ErrLeaseLost):
		return nil // canceled, or run by another process by now
	case ctx.Err() != nil:
		bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer stop()
		return ignoreEnded(jobs.Yield(bounded, b.ID, lease, "the service ended while it ran this; it is run again"))
	case bounded.Err() != nil:
		err = context.Cause(bounded)
	}
	o.Log.Warn("a backtest failed", "backtest", b.ID, "error", action.Redact(err.Error()))
	return end(store.BacktestFailed, plain.Line(action.Redact(err.Error())), "")
}

// ignoreEnded returns nil for an error that only states that a backtest has ended.
func ignoreEnded(err error) error {
	if errors.Is(err, store.ErrBacktestEnded) {
		return nil
	}
	return err
}

// keepBacktest renews the lease of a backtest and records its progress, until it is canceled or the
// lease is lost.
func keepBacktest(ctx context.Context, req *runtime.Request, o BacktestRunner, id string, lease store.Lease,
	done *atomic.Int64, lose context.CancelCauseFunc) {
	last := req.Now()
	for wait.For(ctx, o.Check) == nil {
		began := req.Now()
		bounded, end := context.WithTimeout(ctx, o.TTL)
		_, err := o.Store.Leases().Renew(bounded, lease, o.TTL)
		if err == nil {
			err = o.Store.Backtests().Advance(bounded, id, lease, done.Load())
		}
		end()
		switch {
		case err == nil:
			last = began
		case errors.Is(err, store.ErrLeaseLost), errors.Is(err, store.ErrBacktestEnded):
			lose(err)
			return
		case ctx.Err() == nil && req.Now().Sub(last) > o.TTL:
			lose(fmt.Errorf("%w: the database has not answered for %s", store.ErrLeaseLost, o.TTL))
			return
		}
	}
}

// telling is a Bar that passes progress on.
type telling func(round.Progress)

// Report implements Bar.
func (t telling) Report(p round.Progress) { t(p) }

// Finish implements Bar.
func (telling) Finish() {}

// replayBacktest records usage if requested, replays, and returns the document and what could not
// be recorded.
func replayBacktest(ctx context.Context, req *runtime.Request, o BacktestRunner, b store.Backtest,
	tell func(percent int64)) (result, unseen string, err error) {
	silent := *req.Process
	silent.Log = io.Discard
	one := silent.Request()
	cfg, err := one.Config()
	if err != nil {
		return "", "", err
	}
	var of view.BacktestAsked
	if err := json.Unmarshal([]byte(b.Spec), &of); err != nil {
		return "", "", fmt.Errorf("read backtest %s: %w", b.ID, err)
	}
	r, err := newReplayJob(one, cfg, of)
	if err != nil {
		return "", "", err
	}
	from := int64(0) // start of the reading phase, in percent of the whole
	if r.trace == "" {
		dir, err := os.MkdirTemp("", "curfew-backtest-*")
		if err != nil {
			return "", "", fmt.Errorf("keep the recording: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		r.trace, from = filepath.Join(dir, "trace.csv.gz"), 60
		r.record.Output = r.trace
		one.Progress = func(string) runtime.Bar {
			return telling(func(p round.Progress) {
				if p.Total > 0 {
					tell(from * int64(p.Done) / int64(p.Total))
				}
			})
		}
		doc, err := Record(ctx, one, o.Sources(), r.record)
		if err != nil {
			return "", "", err
		}
		if n := len(doc.BlindSpots); n > 0 {
			unseen = "not visible: " + plain.Line(action.Redact(doc.BlindSpots[0].What+": "+doc.BlindSpots[0].Why))
			if n > 1 {
				unseen += fmt.Sprintf(", and %d more", n-1)
			}
		}
	}
	r.params.Format.Name = r.trace
	if of.Trace == "" {
		r.params.Format.Name = of.From
	}
	file, err := OpenTrace(ctx, one, r.trace, &r.params.Format)
	if err != nil {
		return "", "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", "", fmt.Errorf("read %s: %w", r.trace, err)
	}
	const read = 95 // the rest is for adding up
	report, err := backtest.Run(ctx, &progressReader{Reader: file, total: info.Size(), tell: func(percent int64) {
		tell(from + (read-from)*percent/100)
	}}, r.params)
	if err != nil {
		return "", "", TraceError(r.params.Format.Name, err)
	}
	var out strings.Builder
	if err := view.WriteJSON(&out, view.NewBacktest(report)); err != nil {
		return "", "", err
	}
	if out.Len() > largestResult {
		return "", "", fmt.Errorf("the result has %d bytes, over %d: replay fewer resources", out.Len(), largestResult)
	}
	return out.String(), unseen, nil
}
