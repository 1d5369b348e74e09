package aws_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/smithy-go"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
)

// metricsOf returns a client of CloudWatch at an endpoint.
func metricsOf(endpoint string) *cloudwatch.Client {
	cfg := scratch.Config("us-east-1")
	cfg.BaseEndpoint = awssdk.String(endpoint)
	return cloudwatch.NewFromConfig(cfg, aws.MetricsProtocol)
}

// TestReadsMetricsWithoutCBOR writes metrics by a query into another implementation of the API,
// which lacks CBOR, and reads them.
func TestReadsMetricsWithoutCBOR(t *testing.T) {
	at := time.Now().UTC().Truncate(time.Hour).Add(-2 * time.Hour)
	form := url.Values{
		"Action": {"PutMetricData"}, "Version": {"2010-08-01"}, "Namespace": {"Protocols"},
		"MetricData.member.1.MetricName": {"Utilization"}, "MetricData.member.1.Value": {"41.5"},
		"MetricData.member.1.Timestamp": {at.Format(time.RFC3339)},
		"MetricData.member.1.Dimensions.member.1.Name": {
			"InstanceId",
		}, "MetricData.member.1.Dimensions.member.1.Value": {"i-1"},
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, scratch.MotoURL(),
		strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/monitoring/aws4_request, SignedHeaders=host, "+
			"Signature=0")
	put, err := http.DefaultClient.Do(req)
	if err != nil || put.StatusCode != http.StatusOK {
		t.Fatal(put, err)
	}
	put.Body.Close()

	client := metricsOf(scratch.MotoURL())
	metric := &types.Metric{Namespace: awssdk.String("Protocols"), MetricName: awssdk.String("Utilization"),
		Dimensions: []types.Dimension{{Name: awssdk.String("InstanceId"), Value: awssdk.String("i-1")}}}
	got, err := client.GetMetricData(t.Context(), &cloudwatch.GetMetricDataInput{
		StartTime: awssdk.Time(at.Add(-time.Hour)), EndTime: awssdk.Time(at.Add(time.Hour)),
		MetricDataQueries: []types.MetricDataQuery{{Id: awssdk.String("m"), MetricStat: &types.MetricStat{
			Metric: metric, Period: awssdk.Int32(3600), Stat: awssdk.String("Average"),
		}}},
	})
	if err != nil || len(got.MetricDataResults) != 1 || len(got.MetricDataResults[0].Values) != 1 ||
		got.MetricDataResults[0].Values[0] != 41.5 || !got.MetricDataResults[0].Timestamps[0].Equal(at) {
		t.Errorf("got %+v, %v", got, err)
	}
	list, err := client.ListMetrics(t.Context(), &cloudwatch.ListMetricsInput{Namespace: awssdk.String("Protocols")})
	if err != nil || len(list.Metrics) != 1 || *list.Metrics[0].Dimensions[0].Value != "i-1" {
		t.Errorf("lists %+v, %v", list, err)
	}
}

// TestProtocolOfMetrics covers the errors after which a CBOR call is repeated as a query.
func TestProtocolOfMetrics(t *testing.T) {
	const answer = `<ListMetricsResponse><ListMetricsResult><Metrics/></ListMetricsResult></ListMetricsResponse>`
	for _, tc := range []struct {
		name string
		// status and header, with the protocol, are the response to CBOR calls.
		status int
		header string
		kind   string // of the content
		calls  string
		fails  bool
	}{
		{"no such path", http.StatusNotFound, "", "", "cbor query query", false},
		{"no such method", http.StatusMethodNotAllowed, "", "", "cbor query query", false},
		{"not implemented", http.StatusNotImplemented, "", "", "cbor query query", false},
		{"a failure in XML", http.StatusInternalServerError, "", "text/xml", "cbor query query", false},
		{"another failure", http.StatusInternalServerError, "", "text/html", "cbor cbor", true},
		{"a refusal by CloudWatch", http.StatusNotFound, "rpc-v2-cbor", "", "cbor cbor", true},
		{"too many calls", http.StatusTooManyRequests, "", "", "cbor cbor", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var calls []string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Smithy-Protocol") == "" {
					calls = append(calls, "query")
					w.Header().Set("Content-Type", "text/xml")
					fmt.Fprint(w, answer)
					return
				}
				calls = append(calls, "cbor")
				if tc.header != "" {
					w.Header().Set("Smithy-Protocol", tc.header)
					w.Header().Set("Content-Type", "application/cbor")
				}
				if tc.kind != "" {
					w.Header().Set("Content-Type", tc.kind)
				}
				w.WriteHeader(tc.status)
				if tc.header != "" { // {"__type": "ResourceNotFound"}
					fmt.Fprint(w, "\xa1\x66__type\x70ResourceNotFound")
				}
			}))
			t.Cleanup(srv.Close)
			cfg := scratch.Config("us-east-1")
			cfg.BaseEndpoint, cfg.RetryMaxAttempts = awssdk.String(srv.URL), 1
			client := cloudwatch.NewFromConfig(cfg, aws.MetricsProtocol)
			for range 2 {
				_, err := client.ListMetrics(t.Context(), &cloudwatch.ListMetricsInput{})
				var refused smithy.APIError
				switch {
				case (err != nil) != tc.fails:
					t.Errorf("the call fails with %v", err)
				case tc.header != "" && (!errors.As(err, &refused) || refused.ErrorCode() != "ResourceNotFound"):
					t.Errorf("the call fails with %v", err)
				}
			}
			if got := strings.Join(calls, " "); got != tc.calls {
				t.Errorf("calls are %s, want %s", got, tc.calls)
			}
		})
	}
}
