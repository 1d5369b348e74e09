package wire

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/costexplorer"
	cetypes "github.com/aws/aws-sdk-go-v2/service/costexplorer/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/efs"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/fsx"
	"github.com/aws/aws-sdk-go-v2/service/opensearch"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
)

// serve starts a server and returns an SDK configuration for it without retries.
func serve(t *testing.T, s *Server) aws.Config {
	t.Helper()
	if err := s.Listen(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(s.URL()), RetryMaxAttempts: 1, HTTPClient: Client{},
		Credentials: credentials.NewStaticCredentialsProvider("testing", "testing", "")}
}

// reads contains a read call of every service and protocol.
var reads = []struct {
	name string
	call func(context.Context, aws.Config) error
}{
	{"ec2:DescribeInstances", func(ctx context.Context, c aws.Config) error {
		_, err := ec2.NewFromConfig(c).DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
		return err
	}},
	{"autoscaling:DescribeAutoScalingGroups", func(ctx context.Context, c aws.Config) error {
		_, err := autoscaling.NewFromConfig(c).DescribeAutoScalingGroups(ctx,
			&autoscaling.DescribeAutoScalingGroupsInput{})
		return err
	}},
	{"elasticloadbalancing:DescribeLoadBalancers", func(ctx context.Context, c aws.Config) error {
		_, err := elb.NewFromConfig(c).DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{})
		return err
	}},
	{"elasticloadbalancing:DescribeTargetGroups", func(ctx context.Context, c aws.Config) error {
		_, err := elbv2.NewFromConfig(c).DescribeTargetGroups(ctx, &elbv2.DescribeTargetGroupsInput{})
		return err
	}},
	{"rds:DescribeDBInstances", func(ctx context.Context, c aws.Config) error {
		_, err := rds.NewFromConfig(c).DescribeDBInstances(ctx, &rds.DescribeDBInstancesInput{})
		return err
	}},
	{"sts:GetCallerIdentity", func(ctx context.Context, c aws.Config) error {
		out, err := sts.NewFromConfig(c).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
		if err == nil && aws.ToString(out.Account) != DefaultAccount {
			return errors.New("account " + aws.ToString(out.Account))
		}
		return err
	}},
	{"sagemaker:ListNotebookInstances", func(ctx context.Context, c aws.Config) error {
		_, err := sagemaker.NewFromConfig(c).ListNotebookInstances(ctx, &sagemaker.ListNotebookInstancesInput{})
		return err
	}},
	{"ecr:DescribeRepositories", func(ctx context.Context, c aws.Config) error {
		_, err := ecr.NewFromConfig(c).DescribeRepositories(ctx, &ecr.DescribeRepositoriesInput{})
		return err
	}},
	{"logs:DescribeLogGroups", func(ctx context.Context, c aws.Config) error {
		_, err := cloudwatchlogs.NewFromConfig(c).DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{})
		return err
	}},
	{"fsx:DescribeFileSystems", func(ctx context.Context, c aws.Config) error {
		_, err := fsx.NewFromConfig(c).DescribeFileSystems(ctx, &fsx.DescribeFileSystemsInput{})
		return err
	}},
	{"secretsmanager:ListSecrets", func(ctx context.Context, c aws.Config) error {
		_, err := secretsmanager.NewFromConfig(c).ListSecrets(ctx, &secretsmanager.ListSecretsInput{})
		return err
	}},
	{"ce:GetCostAndUsage", func(ctx context.Context, c aws.Config) error {
		_, err := costexplorer.NewFromConfig(c).GetCostAndUsage(ctx, &costexplorer.GetCostAndUsageInput{
			Granularity: cetypes.GranularityMonthly, Metrics: []string{"UnblendedCost"},
			TimePeriod: &cetypes.DateInterval{Start: aws.String("2026-10-01"), End: aws.String("2026-11-01")}})
		return err
	}},
	{"pricing:GetProducts", func(ctx context.Context, c aws.Config) error {
		_, err := pricing.NewFromConfig(c).GetProducts(ctx, &pricing.GetProductsInput{
			ServiceCode: aws.String("AmazonEC2"),
		})
		return err
	}},
	{"elasticfilesystem:DescribeFileSystems", func(ctx context.Context, c aws.Config) error {
		_, err := efs.NewFromConfig(c).DescribeFileSystems(ctx, &efs.DescribeFileSystemsInput{})
		return err
	}},
	{"eks:ListClusters", func(ctx context.Context, c aws.Config) error {
		_, err := eks.NewFromConfig(c).ListClusters(ctx, &eks.ListClustersInput{})
		return err
	}},
	{"eks:DescribeCluster", func(ctx context.Context, c aws.Config) error {
		_, err := eks.NewFromConfig(c).DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String("a")})
		return err
	}},
	{"es:ListDomainNames", func(ctx context.Context, c aws.Config) error {
		_, err := opensearch.NewFromConfig(c).ListDomainNames(ctx, &opensearch.ListDomainNamesInput{})
		return err
	}},
	{"es:DescribeDomains", func(ctx context.Context, c aws.Config) error {
		_, err := opensearch.NewFromConfig(c).DescribeDomains(ctx, &opensearch.DescribeDomainsInput{
			DomainNames: []string{"a-domain"},
		})
		return err
	}},
	{"es:ListTags", func(ctx context.Context, c aws.Config) error {
		_, err := opensearch.NewFromConfig(c).ListTags(ctx, &opensearch.ListTagsInput{
			ARN: aws.String("arn:aws:es:us-east-1:123456789012:domain/a"),
		})
		return err
	}},
	{"savingsplans:DescribeSavingsPlans", func(ctx context.Context, c aws.Config) error {
		_, err := savingsplans.NewFromConfig(c).DescribeSavingsPlans(ctx, &savingsplans.DescribeSavingsPlansInput{})
		return err
	}},
	{"cloudwatch:ListMetrics", func(ctx context.Context, c aws.Config) error {
		_, err := cloudwatch.NewFromConfig(c).ListMetrics(ctx, &cloudwatch.ListMetricsInput{})
		return err
	}},
	{"s3:ListBuckets", func(ctx context.Context, c aws.Config) error {
		_, err := s3.NewFromConfig(c).ListBuckets(ctx, &s3.ListBucketsInput{})
		return err
	}},
	{"s3:ListObjectsV2", func(ctx context.Context, c aws.Config) error {
		_, err := s3.NewFromConfig(c).ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String("data")})
		return err
	}},
	{"s3:ListObjectVersions", func(ctx context.Context, c aws.Config) error {
		_, err := s3.NewFromConfig(c).ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: aws.String("data")})
		return err
	}},
	{"s3:ListMultipartUploads", func(ctx context.Context, c aws.Config) error {
		_, err := s3.NewFromConfig(c).ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{
			Bucket: aws.String("data"),
		})
		return err
	}},
	{"s3:ListParts", func(ctx context.Context, c aws.Config) error {
		_, err := s3.NewFromConfig(c).ListParts(ctx, &s3.ListPartsInput{
			Bucket: aws.String("data"), Key: aws.String("a"), UploadId: aws.String("u"),
		})
		return err
	}},
	{"s3:GetBucketLifecycleConfiguration", func(ctx context.Context, c aws.Config) error {
		_, err := s3.NewFromConfig(c).GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{
			Bucket: aws.String("data"),
		})
		return err
	}},
	{"s3:GetBucketVersioning", func(ctx context.Context, c aws.Config) error {
		_, err := s3.NewFromConfig(c).GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{
			Bucket: aws.String("data"),
		})
		return err
	}},
	{"s3:GetBucketTagging", func(ctx context.Context, c aws.Config) error {
		_, err := s3.NewFromConfig(c).GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: aws.String("data")})
		return err
	}},
	{"s3:GetBucketLocation", func(ctx context.Context, c aws.Config) error {
		_, err := s3.NewFromConfig(c).GetBucketLocation(ctx, &s3.GetBucketLocationInput{Bucket: aws.String("data")})
		return err
	}},
}

func TestEveryServiceIsNamedAndAnswered(t *testing.T) {
	s := New(Options{})
	c := serve(t, s)
	for _, r := range reads {
		s.Recorder.Reset()
		if err := r.call(t.Context(), c); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
		if got := s.Recorder.Names(); len(got) != 1 || got[0] != r.name {
			t.Errorf("recorded %q, want %q", got, r.name)
		}
		if m := s.Recorder.Mutating(); len(m) != 0 {
			t.Errorf("%s counts as a change", r.name)
		}
	}
}

func TestChangesAreSeen(t *testing.T) {
	s := New(Options{})
	c := serve(t, s)
	_, err := ec2.NewFromConfig(c).TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{
		InstanceIds: []string{"i-1"},
	})
	if err == nil {
		t.Error("a server with nothing behind it carried out a change")
	}
	if m := s.Recorder.Mutating(); len(m) != 1 || m[0].Name() != "ec2:TerminateInstances" ||
		m[0].Region != "us-east-1" {
		t.Errorf("recorded %+v, want one ec2:TerminateInstances", m)
	}
}

func TestFaultsSpeakEveryProtocol(t *testing.T) {
	special := map[FaultKind]map[string]string{
		AccessDenied: {"ec2": "UnauthorizedOperation"},
		Throttling:   {"ec2": "RequestLimitExceeded", "s3": "SlowDown"},
		ExpiredToken: {"ec2": "RequestExpired", "s3": "ExpiredToken"},
	}
	usual := map[FaultKind][2]string{ // json, others
		AccessDenied: {"AccessDeniedException", "AccessDenied"},
		Throttling:   {"ThrottlingException", "Throttling"},
		ExpiredToken: {"ExpiredTokenException", "ExpiredToken"},
	}
	s := New(Options{})
	c := serve(t, s)
	for _, r := range reads {
		service, _, _ := strings.Cut(r.name, ":")
		for kind, codes := range usual {
			remove := s.Inject(Fault{Service: service, Kind: kind})
			err := r.call(t.Context(), c)
			remove()
			var api smithy.APIError
			if !errors.As(err, &api) {
				t.Errorf("%s with fault %d: %v, want an API error", r.name, kind, err)
				continue
			}
			if want, ok := special[kind][service]; ok && api.ErrorCode() != want ||
				!ok && api.ErrorCode() != codes[0] &&
					api.ErrorCode() != codes[1] {
				t.Errorf("%s with fault %d: code %s", r.name, kind, api.ErrorCode())
			}
			if api.ErrorMessage() == "" {
				t.Errorf("%s with fault %d: no message", r.name, kind)
			}
		}
		for _, kind := range []FaultKind{ServerError, Reset} {
			remove := s.Inject(Fault{Service: service, Kind: kind})
			if err := r.call(t.Context(), c); err == nil {
				t.Errorf("%s with fault %d: no error", r.name, kind)
			}
			remove()
		}
		if err := r.call(t.Context(), c); err != nil {
			t.Errorf("%s after the faults: %v", r.name, err)
		}
	}
}

func TestThrottlingPassesWithRetries(t *testing.T) {
	s := New(Options{})
	c := serve(t, s)
	c.RetryMaxAttempts = 4
	c.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = 4, time.Millisecond })
	}
	s.Inject(Fault{Service: "ec2", Operation: "DescribeVolumes", Kind: Throttling, Times: 2})
	if _, err := ec2.NewFromConfig(c).DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{}); err != nil {
		t.Fatal(err)
	}
	var statuses []int
	for _, r := range s.Recorder.Calls() {
		statuses = append(statuses, r.Status)
	}
	if len(statuses) != 3 || statuses[0] != 503 || statuses[2] != 200 {
		t.Errorf("statuses %v, want 503 503 200", statuses)
	}
}

func TestFaultsHitWhatTheyName(t *testing.T) {
	call := Call{Service: "ec2", Operation: "DescribeVolumes", Region: "us-east-1", Account: "1"}
	for _, c := range []struct {
		name  string
		fault Fault
		hits  []bool // of three calls
	}{
		{"everything", Fault{}, []bool{true, true, true}},
		{"another service", Fault{Service: "s3"}, []bool{false, false, false}},
		{"another region", Fault{Service: "ec2", Region: "eu-west-1"}, []bool{false, false, false}},
		{"another account", Fault{Account: "2"}, []bool{false, false, false}},
		{"the first only", Fault{Operation: "DescribeVolumes", Times: 1}, []bool{true, false, false}},
		{"the second only", Fault{Times: 1, After: 1}, []bool{false, true, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(Options{})
			c.fault.Kind = AccessDenied
			s.Inject(c.fault)
			for i, want := range c.hits {
				if _, hit := s.faults.next(&call); hit != want {
					t.Errorf("call %d: hit %v, want %v", i, hit, want)
				}
			}
		})
	}
}

func TestUnsignedRequestsAreRefused(t *testing.T) {
	s := New(Options{})
	for name, authorization := range map[string]string{
		"nothing": "", "another scheme": "Bearer abc", "a short scope": "AWS4-HMAC-SHA256 Credential=a/b/c, x",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", authorization)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusNotImplemented {
			t.Errorf("%s: status %d, want 501", name, w.Code)
		}
	}
}

// FuzzIdentify checks that parsing a request never panics, and that a parsed one has a service, a
// region and an operation.
func FuzzIdentify(f *testing.F) {
	f.Add("POST", "/", "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/ec2/aws4_request, x",
		"application/x-www-form-urlencoded", "", "Action=DescribeVolumes")
	f.Add("GET", "/bucket/key?uploads", "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request", "", "", "")
	f.Add("POST", "/", "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/ecr/aws4_request", "", "A.B", `{"a":1}`)
	f.Fuzz(func(t *testing.T, method, path, authorization, content, target, body string) {
		r, err := http.NewRequest(method, "http://127.0.0.1/", bytes.NewReader([]byte(body)))
		if err != nil {
			return
		}
		r.URL.Path, r.URL.RawQuery, _ = strings.Cut(path, "?")
		r.Header.Set("Authorization", authorization)
		r.Header.Set("Content-Type", content)
		r.Header.Set("X-Amz-Target", target)
		c, err := identify(r)
		if err == nil && c.Operation == "" {
			t.Errorf("named without an operation: %+v", c)
		}
	})
}

// FuzzCBOR checks that decoded values survive encoding and decoding.
func FuzzCBOR(f *testing.F) {
	f.Add([]byte{0xa1, 0x61, 'a', 0x01})
	f.Add([]byte{0xbf, 0x61, 'a', 0xc1, 0xfb, 0x41, 0xd9, 0, 0, 0, 0, 0, 0, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeCBOR(b)
		if err != nil || len(m) == 0 {
			return
		}
		var again bytes.Buffer
		again.Write(encodePlain(m))
		n, err := decodeCBOR(again.Bytes())
		if err != nil {
			t.Fatalf("encoded %v: %v", m, err)
		}
		if len(n) != len(m) {
			t.Errorf("%v became %v", m, n)
		}
	})
}
