package fleets

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/policy"
)

// measuringGroup is a fleet whose provider measures its demand.
type measuringGroup struct {
	*group
	served fleet.Served
	err    error
}

func (m *measuringGroup) Demand(_ context.Context, ref inventory.Ref, _ time.Time) (fleet.Served, error) {
	if ref != groupRef {
		return fleet.Served{}, inventory.ErrNotFound
	}
	return m.served, m.err
}

// TestProviderMeasuresDemand reads the demand for an endpoint from its provider: before it was found, with
// requests, and while the provider does not answer.
func TestProviderMeasuresDemand(t *testing.T) {
	cfg := config.Default()
	err := config.Decode("curfew.yaml", []byte(`fleets:
  - {id: endpoint/embed, profile: "a=48ms,b=1.74s", max_running: 48, late_after: 4s, demand: [{server: cloudwatch}]}
`), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Parse("p.yaml", []byte("apiVersion: curfew.policy/v1\npolicies:\n"+
		"  - {name: a, then: [{do: scale, fleet: endpoint/embed, min: 1, max: 9}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	configured, err := Configure(apptest.Request(t, ""), cfg, set)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWatcher(apptest.Request(t, "").Logger(false))
	located := 0
	missing := errors.New("no account that curfew reads has it")
	m := &measuringGroup{group: newGroup(2)}
	w.Locate = func(_ context.Context, d *policy.Do) (*Provider, error) {
		if located++; located == 1 {
			return nil, missing
		}
		return &Provider{Ref: groupRef, Cloud: m}, nil
	}
	w.Set(configured)
	look := func(at time.Time) Status {
		w.Look(t.Context(), at)
		return w.All()[0]
	}
	if s := look(start); s.Known {
		t.Errorf("before it was found: %+v", s)
	}
	m.served = fleet.Served{Ready: 2, Starting: 1, Sample: fleet.Sample{
		Source: "CloudWatch", At: start, Step: time.Minute,
		Rate: inventory.Known(30.0), InFlight: inventory.Known(150.0),
	}}
	s := look(start.Add(15 * time.Second))
	if !s.Known || s.Replicas != 3 || s.Target <= 3 || s.Demand.InFlight.Or(0) != 150 {
		t.Errorf("with requests: %+v", s)
	}
	told := s.Target
	m.err = errors.New("throttled")
	if s := look(start.Add(30 * time.Second)); s.Target != told || s.Decision.Known ||
		!strings.Contains(s.Demand.Why, "throttled") {
		t.Errorf("in silence: %+v", s)
	}
	if located != 2 {
		t.Errorf("it was looked for %d times, want 2", located)
	}
}
