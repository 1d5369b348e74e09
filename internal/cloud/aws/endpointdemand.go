package aws

import (
	"context"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

const (
	// demandPeriod is the period of the metrics of endpoints, and demandSpan the time in which the newest one
	// is looked for: CloudWatch has them some minutes late.
	demandPeriod = time.Minute
	demandSpan   = 6 * demandPeriod
)

// Demand returns the demand for a SageMaker endpoint with one variant by its CloudWatch metrics. CloudWatch
// has Invocations only of minutes with some: a minute without them had none where the machines reported
// their CPUs, and the minute before had none either. Requests in flight are those that arrive a second, times
// their mean latency (Little's law).
func (a *Actions) Demand(ctx context.Context, ref inventory.Ref, now time.Time) (fleet.Served, error) {
	if ref.Kind != inventory.KindEndpoint {
		return fleet.Served{}, refusal("no-such-verb", "CloudWatch has no requests of a fleet of kind %s", ref.Kind)
	}
	s, err := a.site(ctx, ref)
	if err != nil {
		return fleet.Served{}, err
	}
	_, size, wanted, err := s.replicasNow(ctx, ref.ID)
	if err != nil {
		return fleet.Served{}, err
	}
	out := fleet.Served{
		Sample: fleet.Sample{Source: "CloudWatch of endpoint " + ref.ID, Step: demandPeriod},
		Ready:  int(size.Count), Starting: int(max(0, wanted-size.Count)),
	}
	of := dims("EndpointName", ref.ID, "VariantName", size.Variant)
	serving := func(name, stat string) statistic { return statistic{metric{"AWS/SageMaker", name, of}, stat} }
	to := now.UTC().Truncate(demandPeriod)
	b := batch{from: to.Add(-demandSpan), to: to, period: demandPeriod}
	answers, err := s.metricData(ctx, b, []series{{statistics: []statistic{
		{metric{"/aws/sagemaker/Endpoints", "CPUUtilization", of}, average},
		serving("Invocations", sum), serving("ModelLatency", average), serving("OverheadLatency", average),
	}}})
	if err == nil {
		err = firstError(answers)
	}
	if err != nil {
		return out, failed("read the demand for endpoint "+ref.ID, err)
	}
	out.Sample.Problem = demandOf(answers, &out.Sample)
	return out, nil
}

// demandOf fills a sample from the points of CPUs, invocations and latencies in microseconds, and returns
// the problem with them.
func demandOf(answers []answer, out *fleet.Sample) (problem string) {
	byMinute := make([]map[time.Time]float64, len(answers))
	var newest time.Time
	for i, a := range answers {
		byMinute[i] = map[time.Time]float64{}
		for _, p := range a.points {
			byMinute[i][p.at] = p.value
			if i == 0 && p.at.After(newest) {
				newest = p.at
			}
		}
	}
	if newest.IsZero() {
		return fmt.Sprintf("its machines reported nothing in %s, so that no request means nothing", demandSpan)
	}
	invocations, asked := byMinute[1][newest]
	if before := newest.Add(-demandPeriod); !asked {
		_, measured := byMinute[0][before]
		late, wasAsked := byMinute[1][before]
		switch {
		case !measured:
			return "its machines have reported for less than two minutes"
		case wasAsked: // those of the newest minute may be still to come
			newest, invocations, asked = before, late, true
		}
	}
	out.At = newest.Add(demandPeriod)
	rate := invocations / demandPeriod.Seconds()
	out.Rate = inventory.Known(rate)
	model, timed := byMinute[2][newest]
	switch {
	case !asked || invocations == 0:
		out.InFlight = inventory.Known(0.0)
	case timed:
		latency := (model + byMinute[3][newest]) / 1e6
		out.InFlight = inventory.Known(rate * latency)
	}
	return ""
}
