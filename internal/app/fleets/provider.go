package fleets

import (
	"context"
	"errors"
	"sync"
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

	mu    sync.Mutex
	found *Provider
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
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found == nil {
		if r.locate == nil {
			return fleet.Served{}, errors.New("no account is read here")
		}
		finding, stop := context.WithTimeout(context.WithoutCancel(ctx), findTimeout)
		defer stop()
		p, err := r.locate(finding, &r.do)
		if err != nil {
			return fleet.Served{}, err
		}
		r.found = p
	}
	cloud, ok := r.found.Cloud.(demandCloud)
	if !ok {
		return fleet.Served{}, errors.New("its provider measures no demand")
	}
	out, err := cloud.Demand(ctx, r.found.Ref, now)
	if errors.Is(err, inventory.ErrNotFound) {
		r.found = nil // it may have been made again in another place
	}
	return out, err
}
