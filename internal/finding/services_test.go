package finding

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

func TestManagedServices(t *testing.T) {
	database := func(kind inventory.Kind, class string, d inventory.Database, metrics func(w *usage.Window)) func(
		f *fixture) {
		return func(f *fixture) {
			r := f.add(inventory.Resource{
				ID: "db", Kind: kind, Type: class, State: inventory.StateRunning, CreatedAt: ago(90 * day), Detail: &d,
			})
			if metrics != nil {
				metrics(f.window(r, 14*day))
			}
		}
	}
	uses := func(connections, cpu float64) func(w *usage.Window) {
		return func(w *usage.Window) {
			series(w, "", usage.Sessions, always(connections))
			series(w, "", usage.CPUUtil, always(cpu))
		}
	}
	requests := func(n float64) func(w *usage.Window) {
		return func(w *usage.Window) {
			series(w, "", usage.CPUUtil, always(2))
			if n >= 0 {
				series(w, "", usage.Requests, always(n))
			}
		}
	}
	postgres := inventory.Database{Engine: "postgres", Count: 1, StorageGiB: 100, StorageType: "gp3"}
	redis := inventory.Database{Engine: "redis", Count: 2}
	cluster := func(since time.Time) func(f *fixture) {
		return func(f *fixture) {
			f.add(inventory.Resource{ID: "k8s", Kind: inventory.KindCluster, State: inventory.StateRunning,
				Detail: &inventory.Cluster{Version: "1.29", ExtendedSince: since}})
		}
	}
	table := func(d inventory.Table, consumed, provisioned float64) func(f *fixture) {
		return func(f *fixture) {
			r := f.add(inventory.Resource{
				ID: "items", Kind: inventory.KindTable, State: inventory.StateRunning,
				CreatedAt: ago(90 * day), Detail: &d,
			})
			w := f.window(r, 14*day)
			if consumed >= 0 {
				w.Add("", usage.Requests, usage.Point{Time: ago(3 * day), Mean: consumed, Max: consumed})
			}
			if provisioned >= 0 {
				series(w, "", usage.Capacity, always(provisioned))
			}
		}
	}
	endpoint := func(bytes float64, window time.Duration) func(f *fixture) {
		return func(f *fixture) {
			r := f.add(inventory.Resource{
				ID: "vpce-1", Kind: inventory.KindVPCEndpoint, State: inventory.StateAvailable,
				CreatedAt: ago(90 * day),
				Detail:    &inventory.VPCEndpoint{Service: "com.amazonaws.us-east-1.sqs", Zones: 3}})
			series(f.window(r, window), "", usage.NetBytes, always(bytes))
		}
	}
	forty := inventory.Table{ReadUnits: 100, WriteUnits: 40}
	runScenarios(t, []scenario{
		// db.m5.large costs 0.178 an hour; its storage still costs.
		{
			name:  "a database without a connection",
			build: database(inventory.KindDatabase, "db.m5.large", postgres, uses(0, 2)),
			want:  []string{"database-idle db 129.94"},
		},
		{
			name: "a database with one connection on one day",
			build: database(inventory.KindDatabase, "db.m5.large", postgres,
				func(w *usage.Window) {
					series(w, "", usage.Sessions, func(at time.Time) float64 {
						if at.After(ago(3*day)) && at.Before(ago(2*day)) {
							return 1
						}
						return 0
					})
				})},
		{
			name:  "a database that was not measured",
			build: database(inventory.KindDatabase, "db.m5.large", postgres, nil),
		},
		{
			name: "connections measured for half of the time",
			build: database(inventory.KindDatabase, "db.m5.large", postgres,
				func(w *usage.Window) {
					series(w, "", usage.Sessions, func(at time.Time) float64 {
						if at.Before(ago(7 * day)) {
							return -1
						}
						return 0
					})
				})},
		{
			name: "a warehouse without a connection has no price here",
			build: database(inventory.KindWarehouse, "ra3.xlplus", inventory.Database{Engine: "redshift", Count: 2},
				uses(0, 1)),
			want: []string{"database-idle db ?"},
		},
		// db.m5.xlarge costs 0.356, db.m5.large 0.178.
		{
			name:  "a database of which the CPU does little: a bound",
			build: database(inventory.KindDatabase, "db.m5.xlarge", postgres, uses(4, 12)),
			want:  []string{"database-oversized db <=129.94"},
		},
		{
			name:  "a database whose CPU works",
			build: database(inventory.KindDatabase, "db.m5.xlarge", postgres, uses(4, 35)),
		},
		{name: "the smallest size", build: database(inventory.KindDatabase, "db.m5.large", postgres, uses(4, 12))},
		{
			name:  "a cache that nothing asks",
			build: database(inventory.KindCache, "cache.m6g.large", redis, requests(0)),
			want:  []string{"cache-idle db ?"},
		},
		{
			name:  "a cache whose requests are not published",
			build: database(inventory.KindCache, "cache.m6g.large", redis, requests(-1)),
			want:  []string{"cache-idle db ?"},
		},
		{name: "a cache in use", build: database(inventory.KindCache, "cache.m6g.large", redis, requests(3))},
		{name: "a cache that was not measured", build: database(inventory.KindCache, "cache.m6g.large", redis, nil)},
		// 0.60 less 0.10 an hour.
		{
			name: "a control plane in extended support", build: cluster(ago(100 * day)),
			want: []string{"cluster-extended-support k8s 365.00"},
		},
		{name: "a control plane in standard support", build: cluster(time.Time{})},
		// 100 × 0.00013 and 40 × 0.00065 an hour.
		{
			name: "a table of which nothing is used", build: table(forty, -1, 100),
			want: []string{"table-idle items 28.47"},
		},
		// A peak of 216,000 units an hour is 60 a second of 140; 72,000 is 20.
		{name: "a table that is used", build: table(forty, 216_000, 100)},
		{
			name: "a table provisioned far over its use", build: table(forty, 72_000, 100),
			want: []string{"table-overprovisioned items <=26.10"},
		},
		{name: "a table that scales by itself", build: func(f *fixture) {
			table(forty, 72_000, -1)(f)
			series(f.Windows[f.Resources[0].Ref()], "", usage.Capacity, func(at time.Time) float64 {
				return 50 + 50*float64(at.Day()%2)
			})
		}},
		{name: "a table whose consumption was not measured to its end", build: table(forty, 72_000, -1)},
		{name: "a table that was not measured", build: table(forty, -1, -1)},
		{name: "a table on demand", build: table(inventory.Table{OnDemand: true}, -1, 0)},
		// Three zones at 0.01 an hour.
		{
			name: "an interface endpoint without a byte", build: endpoint(0, 30*day),
			want: []string{"vpc-endpoint-idle vpce-1 21.90"},
		},
		{name: "an interface endpoint in use", build: endpoint(10, 30*day)},
		{name: "an interface endpoint measured for two weeks", build: endpoint(0, 14*day)},
	})
}
