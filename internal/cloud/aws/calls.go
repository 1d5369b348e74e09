package aws

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/smithy-go/middleware"
	"golang.org/x/time/rate"

	"github.com/curfew-dev/curfew/internal/round"
)

// RefusedError is returned for a call that was not made because the client must not make it: one
// missing in [Operations] for a reading client, or in mutations for an acting client.
type RefusedError struct {
	API string
	// Acting is true for an acting client.
	Acting bool
}

// Error returns "ec2:TerminateInstances is not among the calls that read an account; it was not made".
func (e *RefusedError) Error() string {
	if e.Acting {
		return e.API + " is not among the calls that act on an account; it was not made"
	}
	return e.API + " is not among the calls that read an account; it was not made"
}

// tally counts calls and charged units.
type tally struct {
	mu    sync.Mutex
	calls map[*Operation]*round.Calls
	// clock is the latest date of a response.
	clock time.Time
}

func newTally() *tally { return &tally{calls: map[*Operation]*round.Calls{}} }

func (t *tally) add(op *Operation, units int, answered time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if answered.After(t.clock) {
		t.clock = answered.UTC()
	}
	c := t.calls[op]
	if c == nil {
		c = &round.Calls{API: op.API()}
		t.calls[op] = c
	}
	c.Count++
	c.Units += units
}

// list returns the calls by name with their cost, each rounded once.
func (t *tally) list() ([]round.Calls, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []round.Calls
	for op, c := range maps.All(t.calls) {
		var err error
		if c.Cost, err = op.Charge.Times(int64(c.Units)); err != nil {
			return nil, fmt.Errorf("price the calls of %s: %w", c.API, err)
		}
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b round.Calls) int { return cmp.Compare(a.API, b.API) })
	return out, nil
}

// units returns the number of charged units of a call.
func units(input any) int {
	if in, ok := input.(*cloudwatch.GetMetricDataInput); ok {
		return len(in.MetricDataQueries)
	}
	return 1
}

// guard returns the middleware of every reading client: operations not known to be read-only are
// refused before anything is sent. Each attempt waits for the rate limit and is counted, because
// the provider sees and charges retries too.
func guard(service string, t *tally, limit limit) func(*middleware.Stack) error {
	return guarded(service, limit, "CurfewReadOnly", func(ctx context.Context, input any) (func(time.Time), error) {
		api := service + ":" + awsmiddleware.GetOperationName(ctx)
		op := index[api]
		if op == nil {
			return nil, &RefusedError{API: api}
		}
		n := units(input)
		return func(answered time.Time) { t.add(op, n, answered) }, nil
	})
}

// attemptsKey is the context key of the observer of attempts.
type attemptsKey struct{}

// guarded returns middleware that admits a call only if check does, and makes each attempt wait for
// the rate limit. The observer returned by check, which may be nil, is called for each attempt with
// the date of its response, zero for none.
func guarded(service string, limit limit, name string, check func(ctx context.Context, input any) (func(time.Time),
	error)) func(*middleware.Stack) error {
	pass := func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
		middleware.InitializeOutput, middleware.Metadata, error,
	) {
		attempt, err := check(ctx, in.Parameters)
		if err != nil {
			return middleware.InitializeOutput{}, middleware.Metadata{}, err
		}
		return next.HandleInitialize(context.WithValue(ctx, attemptsKey{}, attempt), in)
	}
	wait := func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
		middleware.FinalizeOutput, middleware.Metadata, error,
	) {
		if err := limit.Wait(ctx); err != nil {
			return middleware.FinalizeOutput{}, middleware.Metadata{}, fmt.Errorf(
				"wait for a turn to call %s: %w", service,
				err)
		}
		out, meta, err := attempted(ctx, limit.attempt, in, next)
		if told, _ := ctx.Value(attemptsKey{}).(func(time.Time)); told != nil {
			answered, _ := awsmiddleware.GetServerTime(meta)
			told(answered)
		}
		return out, meta, err
	}
	return func(stack *middleware.Stack) error {
		if err := genuine(stack); err != nil {
			return err
		}
		// After the SDK's first steps, which set the operation's name.
		if err := stack.Initialize.Add(middleware.InitializeMiddlewareFunc(name, pass), middleware.After); err != nil {
			return err
		}
		// After the retries, so that each attempt waits.
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("CurfewRateLimit", wait),
			"Retry", middleware.After)
	}
}

// limit bounds the calls of a client: the rate per second, and the time of one attempt.
type limit struct {
	*rate.Limiter
	attempt time.Duration
}

// limits holds one limit per service, region and account.
type limits struct {
	perSecond float64
	attempt   time.Duration
	mu        sync.Mutex
	byName    map[string]*rate.Limiter
}

func newLimits(perSecond float64) *limits {
	return &limits{perSecond: perSecond, attempt: attemptTimeout, byName: map[string]*rate.Limiter{}}
}

// limits returns fresh limits from the options.
func (c *Cloud) limits() *limits {
	l := newLimits(c.options.RequestsPerSecond)
	l.attempt = cmp.Or(c.options.AttemptTimeout, attemptTimeout)
	return l
}

// of returns the limit of a service in a region of an account.
func (l *limits) of(account, region, service string) limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := account + "/" + region + "/" + service
	if l.byName[key] == nil {
		perSecond := l.perSecond
		if service == "s3" {
			perSecond *= s3Factor
		}
		l.byName[key] = rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond)))
	}
	return limit{l.byName[key], l.attempt}
}
