package aws

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// TestDetectsAnswerProtocol compares the beginnings of responses with the protocols.
func TestDetectsAnswerProtocol(t *testing.T) {
	const form, json = "application/x-www-form-urlencoded", "application/x-amz-json-1.1"
	for _, tc := range []struct {
		service, operation, kind, body string
		want                           bool
	}{
		{"EC2", "DescribeInstances", form, `<?xml version="1.0"?><DescribeInstancesResponse xmlns="x"/>`, true},
		{"EC2", "DescribeInstances", form, "\n <!-- a --> <DescribeInstancesResponse>", true},
		{"EC2", "DescribeInstances", form, "", false},
		{"EC2", "DescribeInstances", form, "<!doctype html><html>", false},
		{"EC2", "DescribeInstances", form, "<DescribeVolumesResponse/>", false},
		{"EC2", "DescribeInstances", form, "{}", false},
		{"EC2", "TerminateInstances", form, "", false},
		{"SageMaker", "ListEndpoints", json, `{"Endpoints":[]}`, true},
		{"SageMaker", "ListEndpoints", json, "", false},
		{"SageMaker", "ListEndpoints", json, "<html>", false},
		{"SageMaker", "StopNotebookInstance", json, "", true},
		{"SageMaker", "StopNotebookInstance", json, "<html>", false},
		{"S3", "ListBuckets", "", "<ListAllMyBucketsResult/>", true},
		{"S3", "ListBuckets", "", "<HTML><body>", false},
		{"S3", "ListBuckets", "", "", false},
		{"S3", "PutBucketTagging", "", "", true},
		{"S3", "GetObject", "", "", true},
		{"CloudWatch", "GetMetricData", "application/cbor", "\xbf\xff", true},
		{"CloudWatch", "GetMetricData", "application/cbor", "<html>", false},
	} {
		asked := smithyhttp.NewStackRequest().(*smithyhttp.Request)
		asked.Header = http.Header{"Content-Type": {tc.kind}}
		if got := speaks(tc.service, tc.operation, asked,
			bufio.NewReader(strings.NewReader(tc.body))); got != tc.want {
			t.Errorf("%s:%s, %q: %t, want %t", tc.service, tc.operation, tc.body, got, tc.want)
		}
	}
}

// TestAttemptTimesOut checks that a call without a response times out with a clear error and is
// retried.
func TestAttemptTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		never := middleware.FinalizeHandlerFunc(func(ctx context.Context, _ middleware.FinalizeInput) (
			middleware.FinalizeOutput, middleware.Metadata, error) {
			<-ctx.Done()
			return middleware.FinalizeOutput{}, middleware.Metadata{}, ctx.Err()
		})
		_, _, err := attempted(t.Context(), attemptTimeout, middleware.FinalizeInput{}, never)
		var slow *slowError
		if !errors.As(err, &slow) || time.Since(began) != attemptTimeout {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		if !newRetryer().IsErrorRetryable(err) {
			t.Error("it is not asked again")
		}
		if code, detail := reason(err); code != "Timeout" || !strings.Contains(detail, "within 20s") {
			t.Errorf("%s: %s", code, detail)
		}
	})
}
