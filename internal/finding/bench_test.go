package finding

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/usage"
)

// synthetic fills an account with n resources of every common kind. Machines share a few windows,
// one for each behavior.
func synthetic(f *fixture, n int) {
	gpu := []*usage.Window{}
	for _, u := range []float64{0, 5, 20, 50, 80, 95} {
		r := f.running("i-model", "g6.2xlarge")
		gpu = append(gpu, f.measured(r, 14*day, 1, always(u), always(u/4)))
	}
	cpu := []*usage.Window{}
	for _, u := range []func(time.Time) float64{always(0), always(40), nineToSix} {
		r := f.running("i-model", "m5.large")
		cpu = append(cpu, f.measured(r, 14*day, 0, always(0), u))
	}
	f.Resources = nil
	clear(f.Windows)
	owned := func(r *inventory.Resource, i int) *inventory.Resource {
		if i%3 > 0 {
			r.Owner = inventory.Owner{Team: "vision", Project: "ranking", Environment: "dev", CostCenter: "42"}
		}
		return r
	}
	regions := []string{"us-east-1", "us-west-2", "eu-west-1"}
	types := []string{"g6.2xlarge", "g5.xlarge", "g4dn.xlarge", "p3.2xlarge"}
	for i := range n / 10 {
		region := func(r *inventory.Resource, d *inventory.Instance) {
			r.Region = regions[i%3]
			d.Disks = []inventory.Disk{{VolumeID: fmt.Sprintf("vol-%d", 4*i)}}
			if i%4 == 0 {
				r.Purpose, r.Lifetime = inventory.Training, inventory.Ephemeral
			}
		}
		accelerated := owned(f.running(fmt.Sprintf("i-g%d", i), types[i%len(types)], region), i)
		f.Windows[accelerated.Ref()] = gpu[i%len(gpu)]
		plain := owned(f.running(fmt.Sprintf("i-c%d", i), "m5.large", region), i)
		f.Windows[plain.Ref()] = cpu[i%len(cpu)]
		for j := range 4 {
			v := owned(f.volume(fmt.Sprintf("vol-%d", 4*i+j), []string{"gp2", "gp3"}[j%2], int64(100+j),
				func(r *inventory.Resource, d *inventory.Volume) {
					r.Region = regions[i%3]
					if j < 3 {
						r.State, d.AttachedTo = inventory.StateInUse, []string{fmt.Sprintf("i-g%d", i)}
					}
				}), j)
			if v.State == inventory.StateAvailable {
				f.window(v, 14*day)
			}
		}
		for j := range 3 {
			owned(f.snapshot(fmt.Sprintf("snap-%d-%d", i, j), fmt.Sprintf("vol-%d", 4*i), time.Duration(40*j+30)*day,
				func(r *inventory.Resource, _ *inventory.Snapshot) { r.Region = regions[i%3] }), j)
		}
		switch i % 4 {
		case 0:
			owned(f.bucket(fmt.Sprintf("bucket-%d", i), func(b *inventory.Bucket) {
				b.Prefixes = inventory.Known([]inventory.Prefix{
					prefix("imagenet/", bigSize, 10_000, all(bigSize, 10_000)),
				})
			}), i)
		case 1:
			owned(f.add(inventory.Resource{ID: fmt.Sprintf("log-%d", i), Kind: inventory.KindLogGroup,
				Detail: &inventory.LogGroup{
					StoredBytes: inventory.Known(int64(gib)), RetentionDays: inventory.Known(0),
				}}), i)
		case 2:
			owned(f.add(inventory.Resource{
				ID: fmt.Sprintf("eip-%d", i), Kind: inventory.KindAddress, Detail: &inventory.Address{},
			}), i)
		case 3:
			owned(f.add(inventory.Resource{
				ID: fmt.Sprintf("ami-%d", i), Kind: inventory.KindImage, CreatedAt: ago(200 * day),
				Detail: &inventory.Image{
					SnapshotIDs: []string{fmt.Sprintf("snap-%d-0", i)}, Launchers: inventory.Known([]string{}),
				}}), i)
		}
	}
	for i := range 20 {
		f.reserve(types[i%len(types)], int64(i+1), func(r *inventory.Resource, _ *inventory.Commitment) {
			r.ID = fmt.Sprintf("ri-%d", i)
		})
	}
	f.plan(inventory.ComputeSavingsPlan, 10_000, "")
	f.Charges = ledger.RunRates(f.Resources, f.Prices)
	for _, r := range f.Resources {
		if r.Kind == inventory.KindInstance {
			gpus := 1
			if r.Type == "m5.large" {
				gpus = 0
			}
			f.Verdicts[r.Ref()] = duty.Judge(f.Windows[r.Ref()], gpus, now, duty.DefaultThresholds())
		}
	}
}

// BenchmarkEvaluate runs all rules over 100,000 resources (target: under 2 s and
// under 500 MiB on two cores). peak-MiB is the most memory that was in use, the
// inventory included.
func BenchmarkEvaluate(b *testing.B) {
	f := newFixture(b)
	synthetic(f, 100_000)
	runtime.GC()
	var peak atomic.Uint64
	done := make(chan struct{})
	go func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
				metrics.Read(sample)
				peak.Store(max(peak.Load(), sample[0].Value.Uint64()))
			}
		}
	}()
	b.ReportAllocs()
	var found []Finding
	for b.Loop() {
		var err error
		if found, err = Evaluate(&f.Account, Thresholds{}, requiredTags); err != nil {
			b.Fatal(err)
		}
	}
	close(done)
	var savings money.Amount
	for _, x := range found {
		savings += x.Savings.Amount
	}
	b.ReportMetric(float64(peak.Load())/(1<<20), "peak-MiB")
	b.ReportMetric(float64(len(f.Resources)), "resources")
	b.ReportMetric(float64(len(found)), "findings")
}

// TestScaleIsLinear checks that four times the resources take about four times as long; a quadratic
// scan would take sixteen times.
func TestScaleIsLinear(t *testing.T) {
	if testing.Short() {
		t.Log("measured without -short only")
		return
	}
	cost := func(n int) float64 {
		f := newFixture(t)
		synthetic(f, n)
		return testing.AllocsPerRun(1, func() {
			if _, err := Evaluate(&f.Account, Thresholds{}, requiredTags); err != nil {
				t.Fatal(err)
			}
		})
	}
	small, large := cost(2000), cost(8000)
	if large > 5*small {
		t.Errorf("2,000 resources take %.0f allocations, 8,000 take %.0f", small, large)
	}
}
