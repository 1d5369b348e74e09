package finding

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

func TestLoadBalancers(t *testing.T) {
	lb := func(targets, healthy int, age time.Duration, metrics func(w *usage.Window)) func(f *fixture) {
		return func(f *fixture) {
			r := f.add(inventory.Resource{
				ID: "lb", Kind: inventory.KindLoadBalancer, Type: "application", State: inventory.StateRunning,
				CreatedAt: ago(age),
				Detail: &inventory.LoadBalancer{
					Targets: inventory.Known(targets), HealthyTargets: inventory.Known(healthy),
				}})
			if metrics != nil {
				metrics(f.window(r, 14*day))
			}
		}
	}
	idle := []string{"load-balancer-idle lb 16.42"}
	runScenarios(t, []scenario{
		{name: "no targets", build: lb(0, 0, 90*day, nil), want: idle},
		{name: "no healthy target", build: lb(2, 0, 90*day, nil), want: idle},
		{name: "no targets yet", build: lb(0, 0, 2*day, nil)},
		{name: "targets, no metrics: unknown", build: lb(2, 2, 90*day, nil)},
		{
			name:  "two requests an hour",
			build: lb(2, 2, 90*day, func(w *usage.Window) { series(w, "", usage.Requests, always(2)) }),
			want:  idle,
		},
		{
			name:  "five requests an hour",
			build: lb(2, 2, 90*day, func(w *usage.Window) { series(w, "", usage.Requests, always(5)) }),
		},
		{
			name:  "busy though its targets are unhealthy",
			build: lb(2, 0, 90*day, func(w *usage.Window) { series(w, "", usage.Requests, always(500)) }),
		},
		{
			name: "no sample of requests, healthy targets measured: zero",
			build: lb(2, 2, 90*day, func(w *usage.Window) {
				series(w, "", usage.Healthy, always(2))
			}),
			want: idle,
		},
		{
			name: "no targets, and it answers by itself in working hours",
			build: lb(0, 0, 90*day, func(w *usage.Window) {
				series(w, "", usage.Requests, func(at time.Time) float64 {
					if at.Hour() < 12 {
						return -1
					}
					return 400
				})
			}),
		},
		{
			name: "requests in one hour only and nothing else measured: unknown",
			build: lb(2, 2, 90*day, func(w *usage.Window) {
				w.Add("", usage.Requests, usage.Point{Time: ago(5 * time.Hour), Mean: 3, Max: 3})
			}),
		},
	})
}

func TestNATGateways(t *testing.T) {
	nat := func(routes inventory.Fact[int], length time.Duration, bytes func(time.Time) float64) func(f *fixture) {
		return func(f *fixture) {
			r := f.add(inventory.Resource{
				ID: "nat-1", Kind: inventory.KindNATGateway, Type: "public", State: inventory.StateAvailable,
				CreatedAt: ago(90 * day), Detail: &inventory.NATGateway{Routes: routes}})
			if bytes != nil {
				w := usage.NewWindow(ago(length), now, day, "test", nil)
				f.Windows[r.Ref()] = w
				series(w, "", usage.NetBytes, bytes)
			}
		}
	}
	runScenarios(t, []scenario{
		{
			name: "0 bytes in 30 days", build: nat(inventory.Known(2), 30*day, always(0)),
			want: []string{"nat-gateway-idle nat-1 32.85"},
		},
		{name: "no route", build: nat(inventory.Known(0), 0, nil), want: []string{"nat-gateway-idle nat-1 32.85"}},
		{name: "routes and no metrics: unknown", build: nat(inventory.Known(2), 0, nil)},
		{name: "0 bytes in 14 days is too short", build: nat(inventory.Known(2), 14*day, always(0))},
		{
			name: "one busy day",
			build: nat(inventory.Known(2), 30*day, func(at time.Time) float64 {
				if at.Equal(ago(20 * day)) {
					return 1e9
				}
				return 0
			}),
		},
		{
			name: "a week without samples",
			build: nat(inventory.Known(2), 30*day, func(at time.Time) float64 {
				if at.After(ago(10*day)) && at.Before(ago(3*day)) {
					return -1
				}
				return 0
			}),
		},
	})
}

func TestAddresses(t *testing.T) {
	address := func(association, instance string) func(f *fixture) {
		return func(f *fixture) {
			f.add(inventory.Resource{
				ID: "eip", Kind: inventory.KindAddress,
				Detail: &inventory.Address{AssociationID: association, InstanceID: instance},
			})
			f.is(f.running("i-1", "m5.large"), duty.Busy)
		}
	}
	runScenarios(t, []scenario{
		{name: "not associated", build: address("", ""), want: []string{"address-unused eip 3.65"}},
		{name: "of a running machine", build: address("a-1", "i-1")},
		{name: "of a gateway", build: address("a-1", "")},
		{name: "of a machine that was not seen", build: address("a-1", "i-9")},
	})
}

func TestEndpoints(t *testing.T) {
	endpoint := func(change func(*inventory.Endpoint), metrics func(w *usage.Window)) func(f *fixture) {
		return func(f *fixture) {
			d := &inventory.Endpoint{Variants: []inventory.Variant{{Name: "a", Type: "g5.xlarge", Count: 2}}}
			if change != nil {
				change(d)
			}
			r := f.add(inventory.Resource{
				ID: "ep", Kind: inventory.KindEndpoint, State: inventory.StateRunning,
				CreatedAt: ago(60 * day), Detail: d,
			})
			if metrics != nil {
				metrics(f.window(r, 14*day))
			}
		}
	}
	twice := managedMonth(t, "g5.xlarge")
	f := newFixture(t)
	p, err := f.Prices.Managed("sagemaker", "g5.xlarge", "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	if both, err := p.Cost(2*730, 1); err == nil {
		twice = both.Cents()
	}
	quiet := func(w *usage.Window) { series(w, "", usage.CPUUtil, always(1)) }
	runScenarios(t, []scenario{
		{
			name:  "no invocation, its CPU was measured",
			build: endpoint(nil, quiet),
			want:  []string{"endpoint-idle ep " + twice},
		},
		{
			name:  "0 invocations, measured",
			build: endpoint(nil, func(w *usage.Window) { series(w, "", usage.Requests, always(0)) }),
			want:  []string{"endpoint-idle ep " + twice},
		},
		{name: "nothing measured: unknown", build: endpoint(nil, nil)},
		{name: "an empty window: unknown", build: endpoint(nil, func(*usage.Window) {})},
		{
			name:  "nothing measured, unchanged for 20 days: at most its cost",
			build: endpoint(func(e *inventory.Endpoint) { e.LastModified = ago(20 * day) }, func(*usage.Window) {}),
			want:  []string{"endpoint-idle ep <=" + twice + " of unknown waste"},
		},
		{
			name:  "unchanged for 20 days, metrics could not be read",
			build: endpoint(func(e *inventory.Endpoint) { e.LastModified = ago(20 * day) }, nil),
		},
		{
			name:  "nothing measured, changed last week",
			build: endpoint(func(e *inventory.Endpoint) { e.LastModified = ago(7 * day) }, func(*usage.Window) {}),
		},
		{
			name: "unchanged for 20 days, invoked",
			build: endpoint(func(e *inventory.Endpoint) { e.LastModified = ago(20 * day) }, func(w *usage.Window) {
				w.Add("", usage.Requests, usage.Point{Time: ago(7 * day), Mean: 1, Max: 1})
			}),
		},
		{
			name: "one invocation a week ago",
			build: endpoint(nil, func(w *usage.Window) {
				quiet(w)
				w.Add("", usage.Requests, usage.Point{Time: ago(7 * day), Mean: 1, Max: 1})
			}),
		},
		{name: "asynchronous", build: endpoint(func(e *inventory.Endpoint) { e.Async = true }, quiet)},
		{name: "serverless", build: endpoint(func(e *inventory.Endpoint) { e.Variants[0].Serverless = true }, quiet)},
		{
			name: "its CPU was measured for half of the time only",
			build: endpoint(nil, func(w *usage.Window) {
				series(w, "", usage.CPUUtil, func(at time.Time) float64 {
					if at.Before(ago(7 * day)) {
						return -1
					}
					return 1
				})
			}),
		},
		{
			name: "its GPU works",
			build: endpoint(nil, func(w *usage.Window) {
				quiet(w)
				series(w, "", usage.GPUUtil, always(40))
			}),
		},
	})
}

func TestNotebooks(t *testing.T) {
	notebook := func(modified time.Duration, activity inventory.Fact[time.Time], s duty.State) func(f *fixture) {
		return func(f *fixture) {
			d := &inventory.Notebook{VolumeGiB: 50, LastActivity: activity}
			if modified > 0 {
				d.LastModified = ago(modified)
			}
			r := f.add(inventory.Resource{
				ID: "nb", Kind: inventory.KindNotebook, Type: "g5.xlarge", State: inventory.StateRunning,
				CreatedAt: ago(90 * day), Detail: d,
			})
			f.is(r, s)
		}
	}
	unknown := inventory.Fact[time.Time]{}
	idle := []string{"notebook-idle nb " + managedMonth(t, "g5.xlarge")}
	runScenarios(t, []scenario{
		{name: "modified 20 days ago", build: notebook(20*day, unknown, duty.Unknown),
			want: []string{"notebook-idle nb <=" + managedMonth(t, "g5.xlarge") + " of unknown waste"}},
		{name: "modified last week", build: notebook(7*day, unknown, duty.Unknown)},
		{
			name:  "modified long ago and used yesterday",
			build: notebook(20*day, inventory.Known(ago(day)), duty.Unknown),
		},
		{name: "no activity for 15 days", build: notebook(0, inventory.Known(ago(15*day)), duty.Unknown), want: idle},
		{
			name:  "modified long ago and its GPU is busy",
			build: notebook(20*day, inventory.Known(ago(20*day)), duty.Busy),
		},
		{
			name: "modified yesterday and its GPU is held for two weeks", build: notebook(day, unknown, duty.Held),
			want: idle,
		},
		{name: "held by a person who types in it", build: notebook(day, inventory.Known(ago(time.Hour)), duty.Held)},
		{name: "nothing known", build: notebook(0, unknown, duty.Unknown)},
	})
	for _, tc := range []struct {
		name     string
		activity inventory.Fact[time.Time]
		duty     duty.State
		want     Level
	}{
		{"modified", unknown, duty.Unknown, Low},
		{"activity", inventory.Known(ago(20 * day)), duty.Unknown, Medium},
		{"telemetry", unknown, duty.Idle, High},
	} {
		f := newFixture(t)
		notebook(20*day, tc.activity, tc.duty)(f)
		if got := only(t, f.evaluate(), "notebook-idle").Confidence; got != tc.want {
			t.Errorf("judged by %s: confidence %s, want %s", tc.name, got, tc.want)
		}
	}
}
