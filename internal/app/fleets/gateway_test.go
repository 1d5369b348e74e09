package fleets

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

func told() *stats.Stats {
	number := func(v float64) *float64 { return &v }
	return &stats.Stats{
		Schema: stats.Schema,
		Pools: []stats.Pool{{
			Name: "embed", WaitingRequests: 5, RunningRequests: 7,
			Upstreams: []stats.Upstream{
				{URL: "http://10.0.0.1:8000", Healthy: true, Running: 7},
				{URL: "http://10.0.0.2:8000", Healthy: true},
				{URL: "http://10.0.0.3:8000", Healthy: true, Server: &stats.Load{Running: number(1)}},
				{URL: "http://10.0.0.4:8000", Healthy: true}, {URL: "http://10.0.0.4:8001", Running: 1},
				{URL: "http://10.0.0.5:8000", Healthy: true, Draining: true},
			},
		}, {Name: "other", RunningRequests: 90}},
		Models: []stats.Model{
			{Pool: "embed", Model: "a", Demand: stats.Demand{ArrivalsPerSecond: number(2)}},
			{Pool: "embed", Model: "b", Demand: stats.Demand{ArrivalsPerSecond: number(1.5)}},
			{Pool: "other", Model: "c", Demand: stats.Demand{ArrivalsPerSecond: number(50)}},
		},
	}
}

func TestReadsGateway(t *testing.T) {
	doc := told()
	r := &gatewayReader{name: "gateway", pool: "embed", step: 15 * time.Second,
		ask: func(context.Context) (*stats.Stats, error) { return doc, nil }}
	got := r.Read(t.Context(), start)
	if got.Sample.InFlight.Or(-1) != 12 || got.Sample.Rate.Or(-1) != 3.5 || len(got.Servers) != 4 || !got.Replicas {
		t.Errorf("got %+v", got)
	}
	want := map[string]bool{
		"10.0.0.1": false, "10.0.0.2": true, "10.0.0.3": false, "10.0.0.4": false, "10.0.0.5": true,
		"10.0.0.1:8000": false, "10.0.0.2:8000": true, "10.0.0.3:8000": false, "10.0.0.4:8000": true,
		"10.0.0.4:8001": false, "10.0.0.5:8000": true,
	}
	if !maps.Equal(got.Idle, want) {
		t.Errorf("idle hosts %v, want %v", got.Idle, want)
	}
	doc.Models[1].Demand.ArrivalsPerSecond = nil
	if got := r.Read(t.Context(), start); got.Sample.Rate.Known() {
		t.Errorf("a rate of a gateway that just started: %+v", got)
	}
	r.pool = "none"
	if d := fleet.Sum(start, []fleet.Sample{r.Read(t.Context(), start).Sample}); d.Known {
		t.Errorf("a pool that is not there: %+v", d)
	}
	r.ask = func(context.Context) (*stats.Stats, error) { return nil, errors.New("connection refused") }
	if d := fleet.Sum(start, []fleet.Sample{r.Read(t.Context(), start).Sample}); d.Known {
		t.Errorf("a silent gateway: %+v", d)
	}
}

// TestCountsServersOfTwoGatewaysOnce holds that a server behind several gateways is one replica, whose
// requests add up.
func TestCountsServersOfTwoGatewaysOnce(t *testing.T) {
	ask := func(context.Context) (*stats.Stats, error) { return told(), nil }
	one := &watched{readers: []reader{
		&gatewayReader{name: "a", pool: "embed", step: 15 * time.Second, ask: ask},
		&gatewayReader{name: "b", pool: "embed", step: 15 * time.Second, ask: ask},
	}}
	r, replicas, seen, _ := one.read(t.Context(), start)
	if r.Ready != 4 || replicas != 4 || !seen || r.Demand.InFlight.Or(-1) != 24 {
		t.Errorf("%+v, %d replicas, seen %t", r, replicas, seen)
	}
}

// TestBusyForOneSource holds that a host which one source sees at work is not drained.
func TestBusyForOneSource(t *testing.T) {
	first, second := &stub{}, &stub{}
	first.says(start, 1, 1, 2, 0)
	second.says(start, 1, 1, 2, 0)
	first.reading.Idle = map[string]bool{"10.0.0.1": true, "10.0.0.2": true}
	second.reading.Idle = map[string]bool{"10.0.0.1": false, "10.0.0.2": true}
	one := &watched{readers: []reader{first, second}}
	if _, _, _, idle := one.read(t.Context(), start); len(idle) != 1 || idle[0] != "10.0.0.2" {
		t.Errorf("idle hosts %v", idle)
	}
}
