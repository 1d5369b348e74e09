package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/smithy-go"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func fixed() time.Time { return noon }

func query(id, namespace, name, stat string, period int32, dims ...string) cwtypes.MetricDataQuery {
	var d []cwtypes.Dimension
	for i := 0; i+1 < len(dims); i += 2 {
		d = append(d, cwtypes.Dimension{Name: &dims[i], Value: &dims[i+1]})
	}
	return cwtypes.MetricDataQuery{Id: &id, MetricStat: &cwtypes.MetricStat{Period: &period, Stat: &stat,
		Metric: &cwtypes.Metric{Namespace: &namespace, MetricName: &name, Dimensions: d}}}
}

func TestPutAndGetMetricData(t *testing.T) {
	s := New(Options{Now: fixed})
	c := serve(t, s)
	api := cloudwatch.NewFromConfig(c)
	dims := []cwtypes.Dimension{{Name: aws.String("InstanceId"), Value: aws.String("i-1")}}
	at := func(minutes int) *time.Time { return aws.Time(noon.Add(time.Duration(minutes) * time.Minute)) }
	if _, err := api.PutMetricData(t.Context(), &cloudwatch.PutMetricDataInput{
		Namespace: aws.String("CWAgent"), MetricData: []cwtypes.MetricDatum{
			{MetricName: aws.String("u"), Dimensions: dims, Timestamp: at(-120), Value: aws.Float64(10)},
			{
				MetricName: aws.String("u"), Dimensions: dims, Timestamp: at(-90), Values: []float64{20, 40},
				Counts: []float64{1, 3},
			},
			{
				MetricName: aws.String("u"), Dimensions: dims, Timestamp: at(-30),
				StatisticValues: &cwtypes.StatisticSet{
					Sum: aws.Float64(60), SampleCount: aws.Float64(4), Minimum: aws.Float64(5),
					Maximum: aws.Float64(30),
				},
			},
		}}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		stat string
		want []float64 // 10:00, 11:00
	}{
		{"Average", []float64{30, 15}}, {"Sum", []float64{150, 60}}, {"Minimum", []float64{10, 5}},
		{"Maximum", []float64{40, 30}}, {"SampleCount", []float64{5, 4}},
	} {
		out, err := api.GetMetricData(t.Context(), &cloudwatch.GetMetricDataInput{
			StartTime: at(-180), EndTime: at(0), ScanBy: cwtypes.ScanByTimestampAscending,
			MetricDataQueries: []cwtypes.MetricDataQuery{
				query("q", "CWAgent", "u", x.stat, 3600, "InstanceId", "i-1"),
			}})
		if err != nil {
			t.Fatal(err)
		}
		r := out.MetricDataResults[0]
		if !slices.Equal(r.Values, x.want) || len(r.Timestamps) != 2 || !r.Timestamps[0].Equal(*at(-120)) {
			t.Errorf("%s: %v at %v, want %v", x.stat, r.Values, r.Timestamps, x.want)
		}
	}
	list, err := api.ListMetrics(t.Context(), &cloudwatch.ListMetricsInput{
		Namespace: aws.String("CWAgent"), Dimensions: []cwtypes.DimensionFilter{{Name: aws.String("InstanceId")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Metrics) != 1 || *list.Metrics[0].MetricName != "u" {
		t.Errorf("listed %v, want u", list.Metrics)
	}
	for name, q := range map[string]cwtypes.MetricDataQuery{
		"other dimensions": query("q", "CWAgent", "u", "Sum", 3600, "InstanceId", "i-2"),
		"no dimensions":    query("q", "CWAgent", "u", "Sum", 3600),
		"other namespace":  query("q", "AWS/EC2", "u", "Sum", 3600, "InstanceId", "i-1"),
	} {
		out, err := api.GetMetricData(t.Context(), &cloudwatch.GetMetricDataInput{
			StartTime: at(-180), EndTime: at(0), MetricDataQueries: []cwtypes.MetricDataQuery{q},
		})
		if err != nil || len(out.MetricDataResults[0].Values) != 0 {
			t.Errorf("%s: %v, %v; want no values", name, out, err)
		}
	}
}

func TestGetMetricDataRefuses(t *testing.T) {
	s := New(Options{Now: fixed})
	api := cloudwatch.NewFromConfig(serve(t, s))
	many := func(n int) (out []cwtypes.MetricDataQuery) {
		for i := range n {
			out = append(out, query(fmt.Sprintf("q%d", i), "n", "m", "Sum", 60))
		}
		return out
	}
	ok := query("q", "n", "m", "Sum", 60)
	for _, x := range []struct {
		name    string
		from    time.Time
		queries []cwtypes.MetricDataQuery
		token   *string
	}{
		{"no query", noon.Add(-time.Hour), nil, nil},
		{"501 queries", noon.Add(-time.Hour), many(501), nil},
		{"the same id twice", noon.Add(-time.Hour), []cwtypes.MetricDataQuery{ok, ok}, nil},
		{"an id in capitals", noon.Add(-time.Hour), []cwtypes.MetricDataQuery{query("Q", "n", "m", "Sum", 60)}, nil},
		{"a percentile", noon.Add(-time.Hour), []cwtypes.MetricDataQuery{query("q", "n", "m", "p99", 60)}, nil},
		{"half a minute", noon.Add(-time.Hour), []cwtypes.MetricDataQuery{query("q", "n", "m", "Sum", 30)}, nil},
		{"an end before its start", noon.Add(time.Hour), []cwtypes.MetricDataQuery{ok}, nil},
		{"an unknown token", noon.Add(-time.Hour), []cwtypes.MetricDataQuery{ok}, aws.String("x")},
	} {
		in := &cloudwatch.GetMetricDataInput{
			StartTime: &x.from, EndTime: aws.Time(noon), MetricDataQueries: x.queries, NextToken: x.token,
		}
		if x.queries == nil {
			in.MetricDataQueries = []cwtypes.MetricDataQuery{}
		}
		_, err := api.GetMetricData(t.Context(), in)
		var e smithy.APIError
		if !errors.As(err, &e) || e.ErrorCode() != "ValidationError" {
			t.Errorf("%s: %v, want ValidationError", x.name, err)
		}
	}
}

func TestListMetricsForgetsOldOnes(t *testing.T) {
	s := New(Options{Now: fixed})
	put := func(name string, age time.Duration) {
		s.Metrics.Put(DefaultAccount, "us-east-1", "n", name, nil, Datum{
			Time: noon.Add(-age), Sum: 1, Min: 1, Max: 1, Count: 1,
		})
	}
	put("old", 15*24*time.Hour)
	put("recent", 13*24*time.Hour)
	put("now", time.Hour)
	api := cloudwatch.NewFromConfig(serve(t, s))
	for _, x := range []struct {
		recently cwtypes.RecentlyActive
		want     int
	}{{"", 2}, {cwtypes.RecentlyActivePt3h, 1}} {
		out, err := api.ListMetrics(t.Context(), &cloudwatch.ListMetricsInput{RecentlyActive: x.recently})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Metrics) != x.want {
			t.Errorf("recently %q: %d metrics, want %d", x.recently, len(out.Metrics), x.want)
		}
	}
}

// Pages of any size contain the same values as a single one.
func TestMetricDataPagesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(0, 30), 1, 8).Draw(t, "lengths")
		limit := rapid.IntRange(1, 40).Draw(t, "limit")
		var queries []any
		for i := range lengths {
			queries = append(queries, map[string]any{
				"Id": fmt.Sprintf("q%d", i), "MetricStat": map[string]any{"Period": int64(60), "Stat": "Sum",
					"Metric": map[string]any{"Namespace": "n", "MetricName": fmt.Sprint(i)}}})
		}
		read := func(q metricQuery) (times []time.Time, values []float64) {
			n := lengths[atoi(q.name)]
			for i := range n {
				times, values = append(times, noon.Add(time.Duration(i)*time.Minute)), append(values, float64(i))
			}
			return times, values
		}
		got := map[string][]float64{}
		token, calls := "", 0
		for {
			if calls++; calls > 1000 {
				t.Fatal("the pages do not end")
			}
			c := &Call{
				Input: map[string]any{
					"StartTime": noon, "EndTime": noon.Add(time.Hour), "MetricDataQueries": queries,
					"MaxDatapoints": int64(limit),
					"NextToken":     token,
					"ScanBy":        "TimestampAscending"}}
			r, err := getMetricData(c, read)
			if err != nil {
				t.Fatal(err)
			}
			onPage := 0
			for _, x := range asList(r.Fields["MetricDataResults"]) {
				m := asMap(x)
				v := m["Values"].([]float64)
				onPage += len(v)
				got[asString(m["Id"])] = append(got[asString(m["Id"])], v...)
			}
			if onPage > limit {
				t.Fatalf("%d values on a page of %d", onPage, limit)
			}
			if token = asString(r.Fields["NextToken"]); token == "" {
				break
			}
		}
		for i, n := range lengths {
			v := got[fmt.Sprintf("q%d", i)]
			if len(v) != n {
				t.Fatalf("query %d: %d values, want %d", i, len(v), n)
			}
			for j := range v {
				if v[j] != float64(j) {
					t.Fatalf("query %d: value %d is %v", i, j, v[j])
				}
			}
		}
	})
}

// For every period, the sums and counts of the periods add up to those of the data.
func TestPeriodsKeepTheSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMetrics(fixed)
		minutes := rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 50).Draw(t, "minutes")
		period := time.Duration(rapid.IntRange(1, 200).Draw(t, "period")) * time.Minute
		want := 0.0
		for i, at := range minutes {
			v := float64(i + 1)
			want += v
			m.Put("a", "r", "n", "m", nil, Datum{noon.Add(time.Duration(at) * time.Minute), v, v, v, 1})
		}
		s := m.places["a/r"][seriesKey("n", "m", nil)]
		times, sums := s.periods("Sum", noon, noon.Add(3001*time.Minute), period)
		_, counts := s.periods("SampleCount", noon, noon.Add(3001*time.Minute), period)
		got, n := 0.0, 0.0
		for i := range sums {
			got, n = got+sums[i], n+counts[i]
			if i > 0 && !times[i].After(times[i-1]) {
				t.Fatalf("period %d begins at %s, after %s", i, times[i], times[i-1])
			}
		}
		if math.Abs(got-want) > 1e-9 || n != float64(len(minutes)) {
			t.Fatalf("sum %v of %v values, want %v of %d", got, n, want, len(minutes))
		}
	})
}

func TestFleet(t *testing.T) {
	f := Fleet{Machines: 2300, Now: noon}
	s := NewFleet(f)
	api := cloudwatch.NewFromConfig(serve(t, s))
	ids := map[string]bool{}
	listing := cloudwatch.NewListMetricsPaginator(api, &cloudwatch.ListMetricsInput{
		Namespace: aws.String("CWAgent"), MetricName: aws.String("nvidia_smi_utilization_gpu"),
	})
	for listing.HasMorePages() {
		page, err := listing.NextPage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Metrics {
			ids[*m.Dimensions[0].Value] = true
		}
	}
	if got, want := s.Recorder.Count("cloudwatch:ListMetrics"), 5; len(ids) != f.Machines || got != want {
		t.Errorf("%d machines with metrics in %d calls, want %d in %d", len(ids), got, f.Machines, want)
	}
	var queries []cwtypes.MetricDataQuery
	for n := range MaxQueries {
		queries = append(queries,
			query(fmt.Sprintf("q%d", n), "CWAgent", "nvidia_smi_utilization_gpu", "Maximum", 3600,
				"InstanceId", f.InstanceID(n), "index", "0", "name", "NVIDIA L4", "arch", "Ada Lovelace"))
	}
	values := map[string]int{}
	data := cloudwatch.NewGetMetricDataPaginator(api, &cloudwatch.GetMetricDataInput{
		StartTime: aws.Time(noon.Add(-14 * 24 * time.Hour)), EndTime: aws.Time(noon), MetricDataQueries: queries,
	})
	for data.HasMorePages() {
		page, err := data.NextPage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.MetricDataResults {
			values[*r.Id] += len(r.Values)
			for _, v := range r.Values {
				var n int
				fmt.Sscanf(*r.Id, "q%d", &n)
				if idle := v == 0; idle != f.Idle(n) {
					t.Fatalf("machine %d was at %v, idle is %v", n, v, f.Idle(n))
				}
			}
		}
	}
	for id, n := range values {
		if n != 14*24 {
			t.Errorf("%s has %d values, want %d", id, n, 14*24)
		}
	}
	if got := s.Recorder.Count("cloudwatch:GetMetricData"); len(values) != MaxQueries || got != 2 {
		t.Errorf("%d series in %d calls, want %d in 2 (168,000 values at 100,800 a call)",
			len(values), got, MaxQueries)
	}
}
