package aws

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/smithy-go/middleware"
	"golang.org/x/time/rate"

	"github.com/curfew-dev/curfew/internal/round"
)

// RefusedError is a call that is not in [Operations] and was therefore not made.
type RefusedError struct{ API string }

// Error returns "ec2:TerminateInstances is not among the calls that read an account; it was not made".
func (e *RefusedError) Error() string {
	return e.API + " is not among the calls that read an account; it was not made"
}

// tally counts calls and what the provider charges for.
type tally struct {
	mu    sync.Mutex
	calls map[*Operation]*round.Calls
}

func newTally() *tally { return &tally{calls: map[*Operation]*round.Calls{}} }

func (t *tally) add(op *Operation, units int) {
	t.mu.Lock()
	defer t.mu.Unlock()
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

// units is what the provider charges for in a call.
func units(input any) int {
	if in, ok := input.(*cloudwatch.GetMetricDataInput); ok {
		return len(in.MetricDataQueries)
	}
	return 1
}

// guard returns what every client's calls pass through: an operation that is not
// known to only read is refused before anything is sent, the others are counted,
// and each attempt waits for its turn under the limit.
func guard(service string, t *tally, limit *rate.Limiter) func(*middleware.Stack) error {
	check := func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
		middleware.InitializeOutput, middleware.Metadata, error,
	) {
		api := service + ":" + awsmiddleware.GetOperationName(ctx)
		op := index[api]
		if op == nil {
			return middleware.InitializeOutput{}, middleware.Metadata{}, &RefusedError{API: api}
		}
		t.add(op, units(in.Parameters))
		return next.HandleInitialize(ctx, in)
	}
	wait := func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
		middleware.FinalizeOutput, middleware.Metadata, error,
	) {
		if err := limit.Wait(ctx); err != nil {
			return middleware.FinalizeOutput{}, middleware.Metadata{}, fmt.Errorf("wait for a turn to call %s: %w", service, err)
		}
		return next.HandleFinalize(ctx, in)
	}
	return func(stack *middleware.Stack) error {
		// After the SDK's own first steps, which say which operation this is.
		if err := stack.Initialize.Add(middleware.InitializeMiddlewareFunc("CurfewReadOnly", check), middleware.After); err != nil {
			return err
		}
		// After the retries, so that each attempt waits.
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("CurfewRateLimit", wait), "Retry", middleware.After)
	}
}
