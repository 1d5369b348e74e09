package replay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// Limits of the backtests of a state: the number of open ones, and of ended ones that are kept.
const (
	openBacktests = 50
	keptBacktests = 200
)

// longestRecording is the longest history that a backtest records.
const longestRecording = 31 * oneDay

// replayJob is the job of a backtest, validated as far as possible without reading its trace.
type replayJob struct {
	params backtest.Params
	// trace is the file; empty if it is recorded first, as record describes.
	trace  string
	record RecordOptions
}

// newReplayJob validates the request for a backtest.
func newReplayJob(req *runtime.Request, cfg config.Config, of view.BacktestAsked) (replayJob, error) {
	var r replayJob
	name := func(option string) string { return strings.ReplaceAll(option, "-", "_") }
	var err error
	if r.params, err = (TraceOptions{
		Trace: of.Trace, Columns: of.Columns, Step: of.Step, Price: of.Price, RestartCost: of.RestartCost,
		Resource: of.Resource, IdleBelow: of.IdleBelow,
	}).Params(name); err != nil {
		return r, err
	}
	r.params.Baselines, r.params.Caps = of.Baselines, of.Caps
	if of.Every != "" {
		if r.params.Every, err = config.ParseDuration(of.Every); err != nil || r.params.Every < 0 {
			return r, runtime.Invalid("every %q: it is a duration such as 5m", of.Every)
		}
	}
	var set *policy.Set
	if of.Policies != "" {
		set, err = policy.Parse("policies", []byte(of.Policies))
		err = govern.PolicyError(err)
	} else if names, missing := govern.Configured(req, cfg); missing == nil && len(names) > 0 {
		set, err = govern.ReadPolicies(req, names)
	}
	if err != nil {
		return r, err
	}
	if set == nil && !of.Baselines {
		return r, runtime.Invalid("without policies and without baselines nothing is left to replay")
	}
	if r.params, err = Replayed(req, cfg, r.params, set); err != nil {
		return r, err
	}
	if of.Trace != "" {
		if of.From != "" {
			return r, runtime.Invalid("a backtest replays a trace, or records one from %s, not both", of.From)
		}
		r.trace, err = req.AllowedPath(of.Trace, "serve.trace_paths", cfg.Serve.TracePaths)
		return r, err
	}
	switch of.From {
	case FromPrometheus, FromCloud:
	case "":
		return r, runtime.Invalid(
			"name a trace under serve.trace_paths, or from where the history is recorded: from is " +
				"prometheus or cloudwatch")
	default:
		return r, runtime.Invalid("from %q: it is prometheus or cloudwatch", of.From)
	}
	r.record = RecordOptions{
		From: of.From, Period: runtime.Period{Since: of.Since, Until: of.Until}, Step: r.params.Format.Step,
	}
	if r.record.Since == "" {
		r.record.Since = "7d"
	}
	if r.record.Step == 0 {
		r.record.Step = time.Minute
	}
	since, until, err := r.record.Bounds(req.Now())
	if err == nil && until.Sub(since) > longestRecording {
		err = runtime.Invalid("a backtest records %d days at most", longestRecording/oneDay)
	}
	return r, err
}

// CreateBacktest requests a replay, which a process of the service carries out.
func CreateBacktest(ctx context.Context, req *runtime.Request, of view.BacktestAsked) (view.Backtests, error) {
	var none view.Backtests
	cfg, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	if _, err := newReplayJob(req, cfg, of); err != nil {
		return none, err
	}
	by, err := req.Person(cfg)
	if err != nil {
		return none, err
	}
	spec, err := json.Marshal(of)
	if err != nil {
		return none, fmt.Errorf("keep a backtest: %w", err)
	}
	raw := make([]byte, 8)
	_, _ = rand.Read(raw) // it never fails
	b := store.Backtest{ID: hex.EncodeToString(raw), CreatedBy: by, CreatedAt: req.Now().UTC(), Spec: string(spec)}
	err = s.Backtests().Create(ctx, b, openBacktests, keptBacktests, backtestEntry(req, by, b.ID, "asked for"))
	if errors.Is(err, store.ErrTooManyBacktests) {
		err = &runtime.Error{
			Class: runtime.Held, Code: "too_many", Err: fmt.Errorf("%d backtests wait", openBacktests),
			Hint: "cancel one, or wait until one has ended",
		}
	}
	if err != nil {
		return none, err
	}
	return Backtest(ctx, req, b.ID)
}

// backtestEntry returns the audit entry for a backtest.
func backtestEntry(req *runtime.Request, by, id, outcome string) action.Entry {
	return action.Entry{
		At: req.Now().UTC(), Actor: by, What: action.EventBacktest, Item: id,
		Because: "backtest " + id, Outcome: outcome,
	}
}

// Backtests returns all replays in the state, newest first.
func Backtests(ctx context.Context, req *runtime.Request) (view.Backtests, error) {
	doc := view.Backtests{Schema: view.BacktestsSchema, Backtests: []view.BacktestJob{}}
	_, s, err := req.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	all, err := s.Backtests().List(ctx)
	for _, b := range all {
		job, bad := backtestJob(b)
		err = errors.Join(err, bad)
		doc.Backtests = append(doc.Backtests, job)
	}
	return doc, err
}

func backtestJob(b store.Backtest) (view.BacktestJob, error) {
	j := view.BacktestJob{
		ID: b.ID, State: string(b.State), ProgressPercent: b.Progress, CreatedBy: b.CreatedBy,
		CreatedAt: b.CreatedAt.UTC(), Attempts: b.Attempts, Note: b.Note,
	}
	for to, at := range map[**time.Time]time.Time{&j.StartedAt: b.StartedAt, &j.EndedAt: b.EndedAt} {
		if !at.IsZero() {
			utc := at.UTC()
			*to = &utc
		}
	}
	if err := json.Unmarshal([]byte(b.Spec), &j.Of); err != nil {
		return j, fmt.Errorf("read backtest %s: %w", b.ID, err)
	}
	return j, nil
}

// keptBacktest reads one replay.
func keptBacktest(ctx context.Context, req *runtime.Request, id string) (store.Backtest, error) {
	_, s, err := req.State(ctx)
	if err != nil {
		return store.Backtest{}, err
	}
	defer s.Close()
	b, err := s.Backtests().Get(ctx, id)
	if errors.Is(err, store.ErrNoBacktest) {
		err = &runtime.Error{
			Code: "not_found", Err: fmt.Errorf("there is no backtest %s", id),
			Hint: "GET /api/v1/backtests lists them",
		}
	}
	return b, err
}

// Backtest returns one replay.
func Backtest(ctx context.Context, req *runtime.Request, id string) (view.Backtests, error) {
	doc := view.Backtests{Schema: view.BacktestsSchema, Backtests: []view.BacktestJob{}}
	b, err := keptBacktest(ctx, req, id)
	if err != nil {
		return doc, err
	}
	job, err := backtestJob(b)
	doc.Backtests = append(doc.Backtests, job)
	return doc, err
}

// BacktestResult returns the document of a finished replay.
func BacktestResult(ctx context.Context, req *runtime.Request, id string) (json.RawMessage, error) {
	b, err := keptBacktest(ctx, req, id)
	switch {
	case err != nil:
		return nil, err
	case b.State.Open():
		return nil, &runtime.Error{
			Class: runtime.Held, Code: "not_done",
			Err:  fmt.Errorf("backtest %s is %s, at %d%%", id, b.State, b.Progress),
			Hint: "ask again when it is done",
		}
	case b.State != store.BacktestDone:
		return nil, &runtime.Error{
			Code: "not_found", Err: fmt.Errorf("backtest %s has no result: it is %s: %s", id, b.State, b.Note),
		}
	}
	return json.RawMessage(b.Result), nil
}

// CancelBacktest ends an open replay. anyones allows ending the replay of another person.
func CancelBacktest(ctx context.Context, req *runtime.Request, id string, anyones bool) (view.Backtests, error) {
	var none view.Backtests
	b, err := keptBacktest(ctx, req, id)
	if err != nil {
		return none, err
	}
	cfg, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	by, err := req.Person(cfg)
	if err != nil {
		return none, err
	}
	if !anyones && b.CreatedBy != by {
		return none, &runtime.Error{
			Class: runtime.Denied, Code: "forbidden", Err: fmt.Errorf("backtest %s is of %s", id, b.CreatedBy),
			Hint: "an operator may cancel it",
		}
	}
	err = s.Backtests().Cancel(ctx, id, "canceled by "+by, req.Now().UTC(), backtestEntry(req, by, id, "canceled"))
	if errors.Is(err, store.ErrBacktestEnded) {
		err = &runtime.Error{Class: runtime.Held, Code: "ended", Err: fmt.Errorf("backtest %s is %s", id, b.State)}
	}
	if err != nil {
		return none, err
	}
	return Backtest(ctx, req, id)
}

// progressReader reports the share of a file that was read.
type progressReader struct {
	io.Reader
	read  int64
	total int64
	tell  func(percent int64)
}

// Read implements io.Reader.
func (c *progressReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += int64(n)
	if c.total > 0 {
		c.tell(min(c.read*100/c.total, 100))
	}
	return n, err
}

// oneDay is how long policies act in `enforce --demo -o json`, and the length of the previous
// period that it is compared with.
const oneDay = 24 * time.Hour
