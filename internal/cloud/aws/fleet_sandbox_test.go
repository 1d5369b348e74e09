package aws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/wire"
)

// readFleet observes a fleet of synthetic machines and returns who answered.
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
	o, err := c.Observe(t.Context(), round.Query{Now: f.Now, Window: 14 * 24 * time.Hour})
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
		if w == nil || len(w.GPUs) != 1 || w.GPUs[0].Stats(usage.GPUUtil) == nil || w.Coverage(w.GPUs[0].Stats(usage.GPUUtil)) < 0.99 {
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

// BenchmarkRecheckOfAFleet reads a hundred machines of ten thousand again.
func BenchmarkRecheckOfAFleet(b *testing.B) {
	f := wire.Fleet{Machines: 10_000, Now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	s := wire.NewFleet(f)
	s.Recorder.CountOnly()
	if err := s.Listen(0); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	environ(b)
	b.Setenv("AWS_ENDPOINT_URL", s.URL())
	o := oneGPU
	o.Regions, o.RequestsPerSecond = []string{"us-east-1"}, 100_000
	c, err := aws.New(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	var refs []inventory.Ref
	for n := range 100 {
		refs = append(refs, inventory.Ref{Cloud: "aws", Account: wire.DefaultAccount, Region: "us-east-1", Kind: inventory.KindInstance, ID: f.InstanceID(n * 100)})
	}
	for b.Loop() {
		s.Recorder.Reset()
		seen, err := c.Recheck(b.Context(), refs, round.Query{Now: f.Now, Window: 3 * time.Hour})
		if err != nil || len(seen.Resources) != len(refs) || len(seen.Windows) != len(refs) || len(seen.BlindSpots) != 0 {
			b.Fatalf("%d resources, %d windows, %+v, %v", len(seen.Resources), len(seen.Windows), seen.BlindSpots, err)
		}
	}
	for _, call := range []string{"ec2:DescribeInstances", "ec2:DescribeInstanceAttribute", "cloudwatch:ListMetrics", "cloudwatch:GetMetricData"} {
		b.ReportMetric(float64(s.Recorder.Count(call)), call[strings.Index(call, ":")+1:]+"/op")
	}
}

// BenchmarkCallsOfAFleet reports the calls that a scan of n GPU machines makes.
func BenchmarkCallsOfAFleet(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var s *wire.Server
			for b.Loop() {
				_, s = readFleet(b, wire.Fleet{Machines: n, Now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}, oneGPU)
			}
			all := 0
			for _, k := range s.Recorder.Counts() {
				all += k
			}
			b.ReportMetric(float64(all), "calls/op")
			b.ReportMetric(float64(s.Recorder.Count("ec2:DescribeInstances")), "DescribeInstances/op")
			b.ReportMetric(float64(s.Recorder.Count("cloudwatch:GetMetricData"))*1000/float64(n), "GetMetricData/1000machines")
		})
	}
}
