package sandbox_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/test/wire"
)

type wireRecord = wire.Record

// Where both the wire and moto implement a call, their responses must agree.

// motoConfig returns the configuration of a client of moto itself.
func motoConfig(region string) aws.Config {
	c := account.Config(region)
	c.BaseEndpoint = aws.String(account.MotoURL())
	return c
}

// motoQuery calls CloudWatch at moto in the query protocol, the only one of CloudWatch's that moto
// supports.
func motoQuery(t *testing.T, action string, form url.Values) []byte {
	t.Helper()
	form.Set("Action", action)
	form.Set("Version", "2010-08-01")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, account.MotoURL(),
		strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential=testing/20260101/ap-northeast-1/monitoring/aws4_request, SignedHeaders=host, "+
			"Signature=0")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", action, res.Status, body, err)
	}
	return body
}

// sample is a value put into both.
type sample struct {
	metric, dimension string
	at                time.Time
	values            []float64
	set               *cwtypes.StatisticSet
}

func TestCloudWatchAgreesWithMoto(t *testing.T) {
	const region = "ap-northeast-1"
	start := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	set := func(sum, lo, hi, n float64) *cwtypes.StatisticSet {
		return &cwtypes.StatisticSet{Sum: &sum, Minimum: &lo, Maximum: &hi, SampleCount: &n}
	}
	samples := []sample{
		{"u", "i-1", start.Add(5 * time.Minute), []float64{10}, nil},
		{"u", "i-1", start.Add(40 * time.Minute), []float64{20, 30}, nil},
		{"u", "i-1", start.Add(70 * time.Minute), nil, set(300, 2, 9, 60)},
		{"u", "i-1", start.Add(200 * time.Minute), []float64{0}, nil},
		{"u", "i-2", start.Add(10 * time.Minute), []float64{99}, nil},
		{"m", "i-1", start.Add(10 * time.Minute), nil, set(7, 1, 3, 4)},
	}
	api := cloudwatch.NewFromConfig(account.Config(region))
	for _, s := range samples {
		d := cwtypes.MetricDatum{MetricName: &s.metric, Timestamp: &s.at, Values: s.values, StatisticValues: s.set,
			Dimensions: []cwtypes.Dimension{{Name: aws.String("InstanceId"), Value: &s.dimension}}}
		if _, err := api.PutMetricData(t.Context(), &cloudwatch.PutMetricDataInput{
			Namespace: aws.String("CWAgent"), MetricData: []cwtypes.MetricDatum{d},
		}); err != nil {
			t.Fatal(err)
		}
		form := url.Values{
			"Namespace": {"CWAgent"}, "MetricData.member.1.MetricName": {s.metric},
			"MetricData.member.1.Timestamp": {s.at.Format(time.RFC3339)},
			"MetricData.member.1.Dimensions.member.1.Name": {
				"InstanceId",
			}, "MetricData.member.1.Dimensions.member.1.Value": {s.dimension}}
		for i, v := range s.values {
			form.Set(fmt.Sprintf("MetricData.member.1.Values.member.%d", i+1), fmt.Sprint(v))
		}
		if s.set != nil {
			for name, v := range map[string]*float64{
				"Sum": s.set.Sum, "Minimum": s.set.Minimum, "Maximum": s.set.Maximum, "SampleCount": s.set.SampleCount,
			} {
				form.Set("MetricData.member.1.StatisticValues."+name, fmt.Sprint(*v))
			}
		}
		motoQuery(t, "PutMetricData", form)
	}
	end := start.Add(6 * time.Hour)
	for _, metric := range []string{"u", "m", "absent"} {
		for _, stat := range []string{"Average", "Sum", "Minimum", "Maximum", "SampleCount"} {
			for _, period := range []int32{300, 3600, 7200} {
				got := wireData(t, api, metric, stat, period, start, end)
				want := motoData(t, metric, stat, period, start, end)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s of %s by %d s: moto -, wire +\n%s", stat, metric, period, diff)
				}
			}
		}
	}
	var got []string
	list, err := api.ListMetrics(t.Context(), &cloudwatch.ListMetricsInput{Namespace: aws.String("CWAgent")})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Metrics {
		got = append(got, *m.MetricName+" "+*m.Dimensions[0].Value)
	}
	var answer struct {
		Metrics []struct {
			Name  string `xml:"MetricName"`
			Value string `xml:"Dimensions>member>Value"`
		} `xml:"ListMetricsResult>Metrics>member"`
	}
	if err := xml.Unmarshal(motoQuery(t, "ListMetrics", url.Values{"Namespace": {"CWAgent"}}), &answer); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range answer.Metrics {
		want = append(want, m.Name+" "+m.Value)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("wire lists %q, moto %q", got, want)
	}
}

// value is a statistic of a period.
type value struct {
	At time.Time
	V  float64
}

func wireData(t *testing.T, api *cloudwatch.Client, metric, stat string, period int32, from, to time.Time) []value {
	t.Helper()
	out, err := api.GetMetricData(t.Context(), &cloudwatch.GetMetricDataInput{
		StartTime: &from, EndTime: &to, ScanBy: cwtypes.ScanByTimestampAscending,
		MetricDataQueries: []cwtypes.MetricDataQuery{
			{Id: aws.String("q"), MetricStat: &cwtypes.MetricStat{Period: &period, Stat: &stat,
				Metric: &cwtypes.Metric{
					Namespace: aws.String("CWAgent"), MetricName: &metric,
					Dimensions: []cwtypes.Dimension{{Name: aws.String("InstanceId"), Value: aws.String("i-1")}},
				}}}}})
	if err != nil {
		t.Fatal(err)
	}
	values := []value{}
	for i, v := range out.MetricDataResults[0].Values {
		values = append(values, value{out.MetricDataResults[0].Timestamps[i].UTC(), v})
	}
	return values
}

func motoData(t *testing.T, metric, stat string, period int32, from, to time.Time) []value {
	t.Helper()
	p := "MetricDataQueries.member.1."
	body := motoQuery(t, "GetMetricData", url.Values{
		"StartTime": {from.Format(time.RFC3339)}, "EndTime": {to.Format(time.RFC3339)},
		"ScanBy": {"TimestampAscending"},
		p + "Id": {"q"}, p + "MetricStat.Period": {strconv.Itoa(int(period))}, p + "MetricStat.Stat": {stat},
		p + "MetricStat.Metric.Namespace":  {"CWAgent"},
		p + "MetricStat.Metric.MetricName": {metric}, p + "MetricStat.Metric.Dimensions.member.1.Name": {"InstanceId"},
		p + "MetricStat.Metric.Dimensions.member.1.Value": {"i-1"}})
	var answer struct {
		Times  []time.Time `xml:"GetMetricDataResult>MetricDataResults>member>Timestamps>member"`
		Values []float64   `xml:"GetMetricDataResult>MetricDataResults>member>Values>member"`
	}
	if err := xml.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	values := []value{}
	for i, v := range answer.Values {
		values = append(values, value{answer.Times[i].UTC(), v})
	}
	return values
}

func TestTrainingJobsAgreeWithMoto(t *testing.T) {
	names := func(c aws.Config) []string {
		out, err := sagemaker.NewFromConfig(c).ListTrainingJobs(t.Context(), &sagemaker.ListTrainingJobsInput{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, j := range out.TrainingJobSummaries {
			names = append(names, *j.TrainingJobName+" "+*j.TrainingJobArn)
		}
		slices.Sort(names)
		return names
	}
	if got, want := names(account.Config("us-east-1")), names(motoConfig("us-east-1")); !slices.Equal(got, want) ||
		len(got) == 0 {
		t.Errorf("wire lists %q, moto %q", got, want)
	}
}

// members returns the paths of all elements of a document.
func members(t *testing.T, body []byte) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	var path []string
	d := xml.NewDecoder(bytes.NewReader(body))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := tok.(type) {
		case xml.StartElement:
			path = append(path, x.Name.Local)
			out[strings.Join(path, "/")] = true
		case xml.EndElement:
			path = path[:len(path)-1]
		}
	}
}

// capture is a transport that records the body of the last response.
type capture struct{ body []byte }

func (c *capture) Do(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if c.body, err = io.ReadAll(res.Body); err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(c.body))
	return res, nil
}

// Every member in the responses of the synthetic fleet and of the invented spot prices must also
// exist in moto's.
func TestFormsAgreeWithMoto(t *testing.T) {
	fleet := wire.NewFleet(wire.Fleet{Machines: 3, Now: truth.Now})
	if err := fleet.Listen(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fleet.Close() })
	fleetConfig := account.Config("us-east-1")
	fleetConfig.BaseEndpoint = aws.String(fleet.URL())
	// moto lacks these; EC2 documents them.
	unknown := []string{"deleteOnTermination", "platformDetails", "throughput", "nextToken", "availabilityZoneId"}
	for _, x := range []struct {
		name string
		ours aws.Config
		call func(context.Context, *ec2.Client) error
	}{
		{"DescribeInstances", fleetConfig, func(ctx context.Context, c *ec2.Client) error {
			_, err := c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
			return err
		}},
		{"DescribeVolumes", fleetConfig, func(ctx context.Context, c *ec2.Client) error {
			_, err := c.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{})
			return err
		}},
		{"DescribeSpotPriceHistory", account.Config("us-east-1"), func(ctx context.Context, c *ec2.Client) error {
			_, err := c.DescribeSpotPriceHistory(ctx, &ec2.DescribeSpotPriceHistoryInput{
				InstanceTypes: []ec2types.InstanceType{"g5.xlarge"},
			})
			return err
		}},
	} {
		shapes := make([]map[string]bool, 2)
		for i, c := range []aws.Config{x.ours, motoConfig("us-east-1")} {
			keep := &capture{}
			c.HTTPClient = keep
			if err := x.call(t.Context(), ec2.NewFromConfig(c)); err != nil {
				t.Fatalf("%s: %v", x.name, err)
			}
			shapes[i] = members(t, keep.body)
		}
		for path := range shapes[0] {
			if name := path[strings.LastIndexByte(path, '/')+1:]; !shapes[1][path] && !slices.Contains(unknown, name) {
				t.Errorf("%s: moto shows no %s", x.name, path)
			}
		}
		if len(shapes[0]) < 5 {
			t.Errorf("%s: nothing to compare", x.name)
		}
	}
}
