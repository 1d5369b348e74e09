package fleets

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/serving"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/policy"
)

// providerKind is the server of a source of demand that is the provider of the fleet.
const providerKind = "cloudwatch"

// demandCloud knows the demand for its fleets.
type demandCloud interface {
	Demand(ctx context.Context, ref inventory.Ref, now time.Time) (fleet.Served, error)
}

// providerReader reads the demand that the provider of a fleet measures.
type providerReader struct {
	do policy.Do
	// locate finds the provider; it is set once the fleet is watched.
	locate func(ctx context.Context, d *policy.Do) (*Provider, error)
	found  atomic.Pointer[Provider]
}

// Read implements reader.
func (r *providerReader) Read(ctx context.Context, now time.Time) serving.Reading {
	out := serving.Reading{Sample: fleet.Sample{Source: "CloudWatch of " + r.do.Fleet, Step: time.Minute}}
	served, err := r.served(ctx, now)
	if err != nil {
		out.Sample.Problem = err.Error()
		return out
	}
	out.Sample, out.Ready, out.Starting, out.Replicas = served.Sample, served.Ready, served.Starting, true
	return out
}

func (r *providerReader) served(ctx context.Context, now time.Time) (fleet.Served, error) {
	p, err := r.provider(ctx)
	if err != nil {
		return fleet.Served{}, err
	}
	cloud, ok := p.Cloud.(demandCloud)
	if !ok {
		return fleet.Served{}, errors.New("its provider measures no demand")
	}
	out, err := cloud.Demand(ctx, p.Ref, now)
	if errors.Is(err, inventory.ErrNotFound) {
		r.found.CompareAndSwap(p, nil) // it may have been made again in another place
	}
	return out, err
}

// provider returns the provider of the fleet, and remembers it.
func (r *providerReader) provider(ctx context.Context) (*Provider, error) {
	if p := r.found.Load(); p != nil {
		return p, nil
	}
	if r.locate == nil {
		return nil, errors.New("no account is read here")
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), findTimeout)
	defer stop()
	p, err := r.locate(ctx, &r.do)
	if err == nil {
		r.found.Store(p)
	}
	return p, err
}
