package aws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/wire"
)

// readFleet observes a fleet of synthetic machines and returns the recording server.
func readFleet(t testing.TB, f wire.Fleet, passthrough aws.Options) (*round.Observation, *wire.Server) {
	t.Helper()
	s := wire.NewFleet(f)
	s.Recorder.CountOnly()
	if err := s.Listen(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	environ(t)
	t.Setenv("AWS_ENDPOINT_URL", s.URL())
	passthrough.Regions, passthrough.RequestsPerSecond = []string{"us-east-1"}, 100_000
	c, err := aws.New(t.Context(), passthrough)
	if err != nil {
		t.Fatal(err)
	}
	o, err := cloudtest.Observe(t.Context(), c, round.Query{Now: f.Now, Window: 14 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return o, s
}

var oneGPU = aws.Options{Size: func(string) inventory.Size { return inventory.Size{GPUs: inventory.Known(1)} }}

func TestReadsAllPagesOfAFleet(t *testing.T) {
	f := wire.Fleet{Machines: 1100, Now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	o, s := readFleet(t, f, oneGPU)
	if len(o.BlindSpots) != 0 {
		t.Errorf("blind spots %+v", o.BlindSpots)
	}
	machines := map[string]*inventory.Resource{}
	volumes := 0
	for _, r := range o.Resources {
		switch r.Kind {
		case inventory.KindInstance:
			machines[r.ID] = r
		case inventory.KindVolume:
			volumes++
		}
	}
	if len(machines) != f.Machines || volumes != f.Machines {
		t.Fatalf("%d machines and %d volumes, want %d of each", len(machines), volumes, f.Machines)
	}
	for n := range f.Machines {
		r := machines[f.InstanceID(n)]
		w := o.Windows[r.Ref()]
		if w == nil || len(w.GPUs) != 1 || w.GPUs[0].Stats(usage.GPUUtil) == nil ||
			w.Coverage(w.GPUs[0].Stats(usage.GPUUtil)) < 0.99 {
			t.Fatalf("machine %d was not measured", n)
		}
		if idle := w.GPUs[0].Stats(usage.GPUUtil).Max == 0; idle != f.Idle(n) {
			t.Fatalf("machine %d is idle: %v, want %v", n, idle, f.Idle(n))
		}
	}
	// Two pages of 1,000 machines.
	if got := s.Recorder.Count("ec2:DescribeInstances"); got != 2 {
		t.Errorf("%d calls for 1,100 machines, want 2", got)
	}
}

// BenchmarkRecheckFleet reads a hundred machines of ten thousand again.
func BenchmarkRecheckFleet(b *testing.B) {
	f := wire.Fleet{Machines: 10_000, Now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	c, s := fleetCloud(b, f)
	var refs []inventory.Ref
	for n := range 100 {
		refs = append(refs, inventory.Ref{
			Cloud: "aws", Account: wire.DefaultAccount, Region: "us-east-1", Kind: inventory.KindInstance,
			ID: f.InstanceID(n * 100),
		})
	}
	for b.Loop() {
		s.Recorder.Reset()
		seen, err := cloudtest.Recheck(b.Context(), c, refs, round.Query{Now: f.Now, Window: 3 * time.Hour})
		if err != nil || len(seen.Resources) != len(refs) || len(seen.Windows) != len(refs) ||
			len(seen.BlindSpots) != 0 {
			b.Fatalf("%d resources, %d windows, %+v, %v", len(seen.Resources), len(seen.Windows), seen.BlindSpots, err)
		}
	}
	for _, call := range []string{
		"ec2:DescribeInstances", "ec2:DescribeInstanceAttribute", "cloudwatch:ListMetrics", "cloudwatch:GetMetricData",
	} {
		b.ReportMetric(float64(s.Recorder.Count(call)), call[strings.Index(call, ":")+1:]+"/op")
	}
}

// tallied counts opened sinks and delivered samples.
type tallied map[inventory.Ref]int

func (t tallied) open(r *inventory.Resource, _ usage.SourceInfo) usage.Sink {
	t[r.Ref()] += 0
	return counted(func() { t[r.Ref()]++ })
}

type counted func()

func (f counted) Add(string, usage.Signal, usage.Point) bool { f(); return true }

// fleetCloud returns a cloud with a fleet, and the recording server.
func fleetCloud(t testing.TB, f wire.Fleet) (*aws.Cloud, *wire.Server) {
	t.Helper()
	s := wire.NewFleet(f)
	s.Recorder.CountOnly()
	if err := s.Listen(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	environ(t)
	t.Setenv("AWS_ENDPOINT_URL", s.URL())
	o := oneGPU
	o.Regions, o.RequestsPerSecond = []string{"us-east-1"}, 100_000
	c, err := aws.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// TestMeasuresMachinesCompletely lets one of many calls fail: a machine with an unreadable
// part is not opened, and all others are measured completely.
func TestMeasuresMachinesCompletely(t *testing.T) {
	f := wire.Fleet{Machines: 90, GPUs: 8, Now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	c, s := fleetCloud(t, f)
	listed, err := c.List(t.Context(), round.Query{Now: f.Now})
	if err != nil {
		t.Fatal(err)
	}
	iv := usage.Interval{From: f.Now.Add(-2 * time.Hour), To: f.Now, Step: time.Minute}
	whole := tallied{}
	if _, err := c.Measure(t.Context(), listed.Resources, iv, whole.open); err != nil {
		t.Fatal(err)
	}
	each := 120 * (2 + 8*4) // per minute two signals of the machine and four of each GPU
	for ref, n := range whole {
		if n != each {
			t.Fatalf("%s has %d points, want %d", ref, n, each)
		}
	}
	if len(whole) != f.Machines || s.Recorder.Count("cloudwatch:GetMetricData") < 8 {
		t.Fatalf("%d machines in %d calls", len(whole), s.Recorder.Count("cloudwatch:GetMetricData"))
	}
	for after := range 4 {
		remove := s.Inject(wire.Fault{
			Service: "cloudwatch", Operation: "GetMetricData", Kind: wire.NotOffered, After: after, Times: 1,
		})
		some := tallied{}
		m, err := c.Measure(t.Context(), listed.Resources, iv, some.open)
		remove()
		if err != nil {
			t.Fatal(err)
		}
		lost := f.Machines - len(some)
		if want := fmt.Sprintf("for %d machines", lost); lost < 5 || lost > 20 || len(m.BlindSpots) != 1 ||
			!strings.Contains(m.BlindSpots[0].Effect, want) {
			t.Errorf("%d machines were lost with one call, and the blind spots are %+v", lost, m.BlindSpots)
		}
		for ref, n := range some {
			if n != each {
				t.Errorf("of %s %d points were handed over, want %d", ref, n, each)
			}
		}
	}
}

// TestMeasuresWithoutList checks that the credentials are identified once, and that an account
// that they cannot reach is a blind spot.
func TestMeasuresWithoutList(t *testing.T) {
	f := wire.Fleet{Machines: 1, Now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	c, s := fleetCloud(t, f)
	own := inventory.Resource{
		ID: f.InstanceID(0), Kind: inventory.KindInstance, Cloud: "aws",
		Account: wire.DefaultAccount, Region: "us-east-1",
		Type: "g6.2xlarge", State: inventory.StateRunning, Detail: &inventory.Instance{}}
	foreign := own
	foreign.Account = "999999999999"
	for range 2 {
		got := tallied{}
		m, err := c.Measure(t.Context(), []*inventory.Resource{&own, &foreign},
			usage.Interval{From: f.Now.Add(-time.Hour), To: f.Now}, got.open)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[own.Ref()] != 60*6 {
			t.Errorf("measured %v", got)
		}
		if len(m.BlindSpots) != 1 || !strings.Contains(m.BlindSpots[0].What, foreign.Account) {
			t.Errorf("the blind spots are %+v", m.BlindSpots)
		}
	}
	if n := s.Recorder.Count("sts:GetCallerIdentity"); n != 1 {
		t.Errorf("asked %d times whose the credentials are", n)
	}
}

// BenchmarkMeasureFleet reads half a day of a thousand machines by the minute.
func BenchmarkMeasureFleet(b *testing.B) {
	f := wire.Fleet{Machines: 1000, Now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	c, s := fleetCloud(b, f)
	listed, err := c.List(b.Context(), round.Query{Now: f.Now})
	if err != nil {
		b.Fatal(err)
	}
	for _, bc := range []struct {
		name   string
		length time.Duration
	}{{"12h", 12 * time.Hour}, {"15h", 15 * time.Hour}, {"15m", 15 * time.Minute}} {
		b.Run(bc.name, func(b *testing.B) {
			iv := usage.Interval{From: f.Now.Add(-bc.length), To: f.Now, Step: time.Minute}
			for b.Loop() {
				s.Recorder.Reset()
				points := 0
				m, err := c.Measure(b.Context(), listed.Resources, iv,
					func(*inventory.Resource, usage.SourceInfo) usage.Sink {
						return counted(func() { points++ })
					})
				if err != nil || len(m.BlindSpots) > 0 {
					b.Fatal(m.BlindSpots, err)
				}
				for _, call := range m.Calls {
					b.ReportMetric(float64(call.Count), call.API[strings.Index(call.API, ":")+1:]+"/op")
					if call.API == "cloudwatch:GetMetricData" {
						b.ReportMetric(float64(call.Units), "metrics/op")
						b.ReportMetric(float64(call.Cost)/1e9, "$/op")
					}
				}
				b.ReportMetric(float64(points), "points/op")
			}
		})
	}
}

// BenchmarkFleetCalls reports the calls that a scan of n GPU machines makes.
func BenchmarkFleetCalls(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var s *wire.Server
			for b.Loop() {
				_, s = readFleet(b, wire.Fleet{
					Machines: n, Now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
				}, oneGPU)
			}
			all := 0
			for _, k := range s.Recorder.Counts() {
				all += k
			}
			b.ReportMetric(float64(all), "calls/op")
			b.ReportMetric(float64(s.Recorder.Count("ec2:DescribeInstances")), "DescribeInstances/op")
			b.ReportMetric(float64(s.Recorder.Count("cloudwatch:GetMetricData"))*1000/float64(n),
				"GetMetricData/1000machines")
		})
	}
}
