package wire

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of the CloudWatch API (API reference of GetMetricData, ListMetrics and
// PutMetricData).
const (
	MaxQueries    = 500     // per GetMetricData call
	MaxDatapoints = 100_800 // per response
	metricsPage   = 500     // of ListMetrics
	maxPut        = 1000    // metrics per PutMetricData call
	// listed is how long a metric stays in ListMetrics after its newest value.
	listed = 14 * 24 * time.Hour
)

func (m *Metrics) answers() map[string]Answer {
	return map[string]Answer{
		"cloudwatch:PutMetricData": m.putMetricData,
		"cloudwatch:ListMetrics":   m.listMetrics,
		"cloudwatch:GetMetricData": func(ctx context.Context, c *Call) (*Reply, error) {
			return getMetricData(c, func(q metricQuery) ([]time.Time, []float64) {
				m.mu.RLock()
				defer m.mu.RUnlock()
				s := m.places[c.Account+"/"+c.Region][seriesKey(q.namespace, q.name, q.dims)]
				if s == nil {
					return nil, nil
				}
				return s.periods(q.stat, q.from, q.to, q.period)
			})
		},
	}
}

func dimensions(v any) []Dimension {
	var out []Dimension
	for _, d := range asList(v) {
		m := asMap(d)
		out = append(out, Dimension{asString(m["Name"]), asString(m["Value"])})
	}
	return out
}

func invalid(format string, args ...any) error {
	return &Failure{400, "ValidationError", fmt.Sprintf(format, args...)}
}

// putMetricData accepts what the API does, and for tests also namespaces of AWS and times more than
// two weeks ago.
func (m *Metrics) putMetricData(_ context.Context, c *Call) (*Reply, error) {
	namespace := asString(c.Input["Namespace"])
	data := asList(c.Input["MetricData"])
	if namespace == "" || len(data) == 0 {
		return nil, invalid("The parameters Namespace and MetricData are required.")
	}
	if len(data) > maxPut {
		return nil, invalid("The collection MetricData must not have a size greater than %d.", maxPut)
	}
	for i, x := range data {
		d := asMap(x)
		t, ok := asTime(d["Timestamp"])
		if !ok {
			t = m.now().UTC()
		}
		dims := dimensions(d["Dimensions"])
		if v, ok := asFloat(d["Value"]); ok {
			m.Put(c.Account, c.Region, namespace, asString(d["MetricName"]), dims, Datum{t, v, v, v, 1})
			continue
		}
		if st := asMap(d["StatisticValues"]); st != nil {
			sum, _ := asFloat(st["Sum"])
			lo, _ := asFloat(st["Minimum"])
			hi, _ := asFloat(st["Maximum"])
			n, _ := asFloat(st["SampleCount"])
			if n <= 0 {
				return nil, invalid("The value of MetricData.member.%d.StatisticValues.SampleCount must be positive.",
					i+1)
			}
			m.Put(c.Account, c.Region, namespace, asString(d["MetricName"]), dims, Datum{t, sum, lo, hi, n})
			continue
		}
		values, counts := asList(d["Values"]), asList(d["Counts"])
		if len(values) == 0 {
			return nil, invalid("MetricData.member.%d has no value.", i+1)
		}
		for j, v := range values {
			f, _ := asFloat(v)
			n := 1.0
			if j < len(counts) {
				n, _ = asFloat(counts[j])
			}
			m.Put(c.Account, c.Region, namespace, asString(d["MetricName"]), dims, Datum{t, f * n, f, f, n})
		}
	}
	return &Reply{}, nil
}

func (m *Metrics) listMetrics(_ context.Context, c *Call) (*Reply, error) {
	since := m.now().Add(-listed)
	if asString(c.Input["RecentlyActive"]) == "PT3H" {
		since = m.now().Add(-3 * time.Hour)
	}
	found := m.find(c.Account, c.Region, asString(c.Input["Namespace"]), asString(c.Input["MetricName"]),
		dimensions(c.Input["Dimensions"]), since)
	items, next, err := page(c, found, "", metricsPage)
	if err != nil {
		return nil, err
	}
	out := make([]any, 0, len(items))
	for _, s := range items {
		out = append(out, metricDocument(s.namespace, s.name, s.dims))
	}
	return metricsReply(out, next), nil
}

func metricDocument(namespace, name string, dims []Dimension) map[string]any {
	ds := make([]any, len(dims))
	for i, d := range dims {
		ds[i] = map[string]any{"Name": d.Name, "Value": d.Value}
	}
	return map[string]any{"Namespace": namespace, "MetricName": name, "Dimensions": ds}
}

func metricsReply(metrics []any, next string) *Reply {
	f := map[string]any{"Metrics": metrics}
	if next != "" {
		f["NextToken"] = next
	}
	return &Reply{Fields: f}
}

// metricQuery is one MetricStat of a GetMetricData call, with sorted dimensions.
type metricQuery struct {
	id, label, namespace, name, stat string
	dims                             []Dimension
	from, to                         time.Time
	period                           time.Duration
}

var statistics = []string{"Average", "Sum", "Minimum", "Maximum", "SampleCount"}

func readQueries(c *Call) ([]metricQuery, error) {
	in := asList(c.Input["MetricDataQueries"])
	if len(in) == 0 {
		return nil, invalid("The parameter MetricDataQueries is required.")
	}
	if len(in) > MaxQueries {
		return nil, invalid("The collection MetricDataQueries must not have a size greater than %d.", MaxQueries)
	}
	from, okFrom := asTime(c.Input["StartTime"])
	to, okTo := asTime(c.Input["EndTime"])
	if !okFrom || !okTo || !to.After(from) {
		return nil, invalid("The parameter EndTime must be greater than StartTime.")
	}
	seen := make(map[string]bool, len(in))
	out := make([]metricQuery, 0, len(in))
	for i, x := range in {
		q := asMap(x)
		id := asString(q["Id"])
		if id == "" || id[0] < 'a' || id[0] > 'z' || seen[id] {
			return nil, invalid(
				"The value %q for parameter MetricDataQueries.member.%d.Id is not a unique name that starts "+
					"with a lower-case letter.", id, i+1)
		}
		seen[id] = true
		ms := asMap(q["MetricStat"])
		if ms == nil {
			return nil, invalid(
				"The parameter MetricDataQueries.member.%d.MetricStat is required; metric math is not answered here.",
				i+1)
		}
		metric := asMap(ms["Metric"])
		mq := metricQuery{id: id, label: asString(q["Label"]), namespace: asString(metric["Namespace"]),
			name: asString(metric["MetricName"]), stat: asString(ms["Stat"]),
			dims: sortDims(dimensions(metric["Dimensions"])),
			from: from, to: to, period: time.Duration(asInt(ms["Period"], 0)) * time.Second}
		if mq.label == "" {
			mq.label = mq.name
		}
		if !slices.Contains(statistics, mq.stat) {
			return nil, invalid(
				"The value %s for parameter MetricDataQueries.member.%d.MetricStat.Stat is not supported.",
				mq.stat, i+1)
		}
		if mq.period < time.Minute || mq.period%time.Minute != 0 {
			return nil, invalid(
				"The parameter MetricDataQueries.member.%d.MetricStat.Period must be a multiple of 60.", i+1)
		}
		out = append(out, mq)
	}
	return out, nil
}

// getMetricData responds with the values of read, which returns a query's periods oldest first. A
// response contains at most MaxDatapoints values (or the call's own lower limit); a truncated
// result has the status PartialData and continues with the next token.
func getMetricData(c *Call, read func(metricQuery) ([]time.Time, []float64)) (*Reply, error) {
	queries, err := readQueries(c)
	if err != nil {
		return nil, err
	}
	limit := min(asInt(c.Input["MaxDatapoints"], MaxDatapoints), MaxDatapoints)
	query, offset := 0, 0
	if token := asString(c.Input["NextToken"]); token != "" {
		a, b, _ := strings.Cut(token, ":")
		q, err1 := strconv.Atoi(a)
		o, err2 := strconv.Atoi(b)
		if err1 != nil || err2 != nil || q < 0 || q >= len(queries) || o < 0 {
			return nil, invalid("Invalid nextToken.")
		}
		query, offset = q, o
	}
	ascending := asString(c.Input["ScanBy"]) == "TimestampAscending"
	var results []any
	next, left := "", limit
	for ; query < len(queries); query, offset = query+1, 0 {
		q := queries[query]
		times, values := read(q)
		if !ascending {
			slices.Reverse(times)
			slices.Reverse(values)
		}
		offset = min(offset, len(times))
		times, values = times[offset:], values[offset:]
		status := "Complete"
		if len(times) > left {
			times, values, status = times[:left], values[:left], "PartialData"
			next = fmt.Sprintf("%d:%d", query, offset+left)
		}
		left -= len(times)
		results = append(results, map[string]any{
			"Id": q.id, "Label": q.label, "StatusCode": status, "Timestamps": times,
			"Values": values})
		if next != "" {
			break
		}
		if left == 0 && query+1 < len(queries) {
			next = fmt.Sprintf("%d:0", query+1)
			break
		}
	}
	f := map[string]any{"MetricDataResults": results, "Messages": []any{}}
	if next != "" {
		f["NextToken"] = next
	}
	return &Reply{Fields: f}, nil
}
