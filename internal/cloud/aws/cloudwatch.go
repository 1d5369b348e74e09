package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"golang.org/x/sync/errgroup"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Bounds of GetMetricData: CloudWatch API reference.
const (
	maxQueries    = 500
	maxDatapoints = 100_800
	// parallelData is the number of concurrent GetMetricData calls per place.
	parallelData = 4
)

// The statistics in use.
const (
	average = "Average"
	maximum = "Maximum"
	sum     = "Sum"
)

// metric identifies one metric of one resource.
type metric struct {
	namespace, name string
	dims            []types.Dimension
}

func dim(name, value string) types.Dimension {
	return types.Dimension{Name: &name, Value: &value}
}

// statistic is one statistic of a metric.
type statistic struct {
	metric
	stat string
}

// point is one value in one period.
type point struct {
	at    time.Time
	value float64
}

// series combines several statistics of a resource, queried in one call.
type series struct {
	resource   *inventory.Resource
	statistics []statistic
	// fold receives the points of each statistic; calls do not overlap.
	fold func(data [][]point)
}

// batch holds series over the same time with the same period.
type batch struct {
	from, to time.Time
	period   time.Duration
	series   []series
}

// perCall returns the number of statistics whose response fits one page, at most CloudWatch's
// maximum.
func (b *batch) perCall() int {
	periods := int((b.to.Sub(b.from) + b.period - 1) / b.period)
	return min(maxQueries, max(1, maxDatapoints/max(1, periods)))
}

// calls divides the series among calls.
func (b *batch) calls() [][]series {
	limit := b.perCall()
	var out [][]series
	n := 0
	for _, s := range b.series {
		if len(out) == 0 || n+len(s.statistics) > limit {
			out = append(out, nil)
			n = 0
		}
		n += len(s.statistics)
		out[len(out)-1] = append(out[len(out)-1], s)
	}
	return out
}

// measured is the result of reading batches: the unread parts with their reasons.
type measured struct {
	mu     sync.Mutex
	err    error
	failed map[*inventory.Resource]bool
}

func (m *measured) fail(err error, ss []series) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
	for _, s := range ss {
		m.failed[s.resource] = true
	}
}

// read reads all statistics of the batches and folds the responses as they arrive, so that only a
// few calls' points are in memory. A failed call loses only its own series; after denied or
// unanswered calls no more are made.
func (p *place) read(ctx context.Context, batches ...batch) *measured {
	m := &measured{failed: map[*inventory.Resource]bool{}}
	var folding sync.Mutex
	var hopeless sync.Once
	stopped := make(chan struct{})
	var g errgroup.Group
	g.SetLimit(parallelData)
	for _, b := range batches {
		for _, call := range b.calls() {
			g.Go(func() error {
				select {
				case <-stopped:
					m.fail(nil, call)
					return nil
				default:
				}
				data, err := p.metricData(ctx, b, call)
				if err != nil {
					m.fail(err, call)
					if errors.Is(kindOf(err), inventory.ErrDenied) || errors.As(err, new(*slowError)) {
						hopeless.Do(func() { close(stopped) })
					}
					return nil
				}
				folding.Lock()
				defer folding.Unlock()
				at := 0
				for _, s := range call {
					own := data[at : at+len(s.statistics)]
					at += len(s.statistics)
					if slices.ContainsFunc(own, func(d answer) bool { return d.err != nil }) {
						m.fail(firstError(own), []series{s})
						continue
					}
					points := make([][]point, len(own))
					for i := range own {
						points[i] = own[i].points
					}
					s.fold(points)
				}
				return nil
			})
		}
	}
	_ = g.Wait() // the goroutines return no error
	return m
}

// answer is the response for one statistic.
type answer struct {
	points []point
	err    error
}

func firstError(answers []answer) error {
	for _, a := range answers {
		if a.err != nil {
			return a.err
		}
	}
	return nil
}

// metricData makes one call, with all pages of its response, and returns the points of each
// statistic in the order of the series.
func (p *place) metricData(ctx context.Context, b batch, call []series) ([]answer, error) {
	in := &cloudwatch.GetMetricDataInput{StartTime: &b.from, EndTime: &b.to, ScanBy: types.ScanByTimestampAscending}
	for _, s := range call {
		for _, q := range s.statistics {
			in.MetricDataQueries = append(in.MetricDataQueries, types.MetricDataQuery{
				Id: awssdk.String("q" + strconv.Itoa(len(in.MetricDataQueries))),
				MetricStat: &types.MetricStat{
					Metric: &types.Metric{Namespace: &q.namespace, MetricName: &q.name, Dimensions: q.dims},
					Period: awssdk.Int32(int32(b.period / time.Second)), Stat: &q.stat,
				},
			})
		}
	}
	out := make([]answer, len(in.MetricDataQueries))
	answered := make([]bool, len(out))
	err := pages(ctx, func(token *string) (*string, error) {
		in.NextToken = token
		page, err := cloudwatchClient(p.reading).GetMetricData(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, r := range page.MetricDataResults {
			i, err := strconv.Atoi(trimFirst(awssdk.ToString(r.Id)))
			if err != nil || i < 0 || i >= len(out) || len(r.Timestamps) != len(r.Values) {
				return nil, fmt.Errorf(
					"read the result %q: it is not an answer to what was asked", awssdk.ToString(r.Id))
			}
			answered[i] = true
			switch r.StatusCode {
			case types.StatusCodeInternalError, types.StatusCodeForbidden:
				out[i].err = fmt.Errorf("%s for %s", r.StatusCode,
					awssdk.ToString(in.MetricDataQueries[i].MetricStat.Metric.MetricName))
			}
			for j, t := range r.Timestamps {
				out[i].points = append(out[i].points, point{t.UTC(), r.Values[j]})
			}
		}
		return page.NextToken, nil
	})
	// CloudWatch returns a result for each query, possibly without points.
	if i := slices.Index(answered, false); err == nil && i >= 0 {
		err = fmt.Errorf("the answer has no result for %s",
			awssdk.ToString(in.MetricDataQueries[i].MetricStat.Metric.MetricName))
	}
	return out, err
}

func trimFirst(s string) string {
	if s == "" {
		return s
	}
	return s[1:]
}

// moment holds the values of several statistics in one period; missing values are absent.
type moment struct {
	at     time.Time
	values []float64
	given  []bool
}

// moments joins the points of several statistics by time.
func moments(data [][]point) []moment {
	byTime := map[int64]int{}
	var out []moment
	for i, points := range data {
		for _, pt := range points {
			k := pt.at.UnixNano()
			j, ok := byTime[k]
			if !ok {
				j = len(out)
				byTime[k] = j
				out = append(out, moment{
					at: pt.at, values: make([]float64, len(data)), given: make([]bool, len(data)),
				})
			}
			out[j].values[i], out[j].given[i] = pt.value, true
		}
	}
	slices.SortFunc(out, func(a, b moment) int { return a.at.Compare(b.at) })
	return out
}

// listMetrics lists the metrics with a name; an empty namespace matches any.
func (p *place) listMetrics(ctx context.Context, namespace, name string, visit func(types.Metric)) error {
	in := &cloudwatch.ListMetricsInput{MetricName: &name}
	if namespace != "" {
		in.Namespace = &namespace
	}
	return pages(ctx, func(token *string) (*string, error) {
		in.NextToken = token
		out, err := cloudwatchClient(p.reading).ListMetrics(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, m := range out.Metrics {
			visit(m)
		}
		return out.NextToken, nil
	})
}

// tellUnmeasured reports the resources that were not measured.
func (p *place) tellUnmeasured(ctx context.Context, m *measured) {
	if m.err == nil {
		return
	}
	machines, others := 0, 0
	for r := range m.failed {
		switch r.Kind {
		case inventory.KindInstance, inventory.KindEndpoint, inventory.KindTrainingJob:
			machines++
		default:
			others++
		}
	}
	op := index["cloudwatch:GetMetricData"]
	what := ""
	switch {
	case machines > 0 && others > 0:
		what = plain.Count(machines, "machine") + " and " + plain.Count(others, "other resource")
	case machines > 0:
		what = plain.Count(machines, "machine")
	default:
		what = plain.Count(others, "resource")
	}
	p.explain(ctx, op, m.err, op.Effect+" for "+what)
	code, _ := reason(m.err)
	p.scan.leaveUnmeasured(maps.Keys(m.failed), code+": "+op.API())
}

// ceil returns the first multiple of d at or after t.
func ceil(t time.Time, d time.Duration) time.Time {
	floor := t.Truncate(d)
	if floor.Before(t) {
		return floor.Add(d)
	}
	return floor
}
