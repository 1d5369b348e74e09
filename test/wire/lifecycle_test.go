package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/aws/smithy-go"
)

func TestLifecyclesAreKept(t *testing.T) {
	s := New(Options{})
	api := s3.NewFromConfig(serve(t, s), func(o *s3.Options) { o.UsePathStyle = true })
	bucket := aws.String("b")
	rule := func(prefix string) s3types.LifecycleRule {
		return s3types.LifecycleRule{
			ID: aws.String("r" + prefix), Status: s3types.ExpirationStatusEnabled,
			Filter: &s3types.LifecycleRuleFilter{Prefix: &prefix, ObjectSizeGreaterThan: aws.Int64(7)},
			NoncurrentVersionExpiration: &s3types.NoncurrentVersionExpiration{
				NoncurrentDays: aws.Int32(3), NewerNoncurrentVersions: aws.Int32(2),
			}}
	}
	put := func(rules ...s3types.LifecycleRule) error {
		_, err := api.PutBucketLifecycleConfiguration(t.Context(), &s3.PutBucketLifecycleConfigurationInput{
			Bucket: bucket, TransitionDefaultMinimumObjectSize: "varies_by_storage_class",
			LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{Rules: rules}})
		return err
	}
	if err := put(rule("a"), rule("b")); err != nil {
		t.Fatal(err)
	}
	got, err := api.GetBucketLifecycleConfiguration(t.Context(), &s3.GetBucketLifecycleConfigurationInput{
		Bucket: bucket,
	})
	if err != nil || len(got.Rules) != 2 || *got.Rules[0].Filter.ObjectSizeGreaterThan != 7 ||
		*got.Rules[1].NoncurrentVersionExpiration.NewerNoncurrentVersions != 2 ||
		got.TransitionDefaultMinimumObjectSize != "varies_by_storage_class" {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, code := range map[string]string{
		"twice": "InvalidArgument", "both forms": "InvalidRequest", "no prefix": "MalformedXML",
	} {
		var err error
		switch name {
		case "twice":
			err = put(rule("a"), rule("a"))
		case "both forms":
			//nolint:staticcheck // it is the old form that is refused
			old := s3types.LifecycleRule{Status: s3types.ExpirationStatusEnabled, Prefix: aws.String("x")}
			err = put(rule("a"), old)
		default:
			err = put(s3types.LifecycleRule{Status: s3types.ExpirationStatusEnabled})
		}
		var api smithy.APIError
		if !errors.As(err, &api) || api.ErrorCode() != code {
			t.Errorf("%s: got %v, want %s", name, err, code)
		}
	}
	if _, err := api.DeleteBucketLifecycle(t.Context(), &s3.DeleteBucketLifecycleInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	if text, _ := s.State.Lifecycle(DefaultAccount, "b"); text != "" ||
		s.Recorder.Count("s3:DeleteBucketLifecycle") != 1 {
		t.Errorf("after it was deleted: %q, calls %v", text, s.Recorder.Counts())
	}
}

// TestLifecyclesNeedTheirChecksum puts documents that were modified in transit.
func TestLifecyclesNeedTheirChecksum(t *testing.T) {
	const document = `<LifecycleConfiguration><Rule><Filter/><Status>Enabled</Status></Rule></LifecycleConfiguration>`
	for name, header := range map[string]string{"none": "", "of another document": "AAAAAA=="} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/b?lifecycle", strings.NewReader(document))
		req.Header.Set("Authorization",
			"AWS4-HMAC-SHA256 Credential=testing/20261121/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0")
		if header != "" {
			req.Header.Set("X-Amz-Checksum-Crc32", header)
		}
		w := httptest.NewRecorder()
		New(Options{}).ServeHTTP(w, req)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: answered %d", name, w.Code)
		}
	}
}

// upstream replaces moto.
func upstream(t *testing.T, answer func(action string) string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		fmt.Fprint(w,
			answer(r.FormValue("Action")+" "+r.FormValue("DisableApiTermination.Value")+r.Header.Get("X-Amz-Target")))
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestPending(t *testing.T) {
	s := New(Options{Upstream: upstream(t, func(action string) string {
		if strings.HasPrefix(action, "CreateSnapshot ") {
			return `<CreateSnapshotResponse><snapshotId>snap-1</snapshotId><status>completed</status></CreateSnapshotResponse>`
		}
		if strings.Contains(action, "TrainingJob") {
			return `{"TrainingJobSummaries":[{"TrainingJobName":"j","TrainingJobStatus":"Completed"}]}`
		}
		return `<DescribeSnapshotsResponse><snapshotSet><item><snapshotId>snap-1</snapshotId><status>completed</status></item></snapshotSet></DescribeSnapshotsResponse>`
	})})
	cfg := serve(t, s)
	api, jobs := ec2.NewFromConfig(cfg), sagemaker.NewFromConfig(cfg)
	state := func() string {
		out, err := api.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{})
		if err != nil {
			t.Fatal(err)
		}
		return string(out.Snapshots[0].State)
	}
	job := func() string {
		out, err := jobs.ListTrainingJobs(t.Context(), &sagemaker.ListTrainingJobsInput{})
		if err != nil {
			t.Fatal(err)
		}
		return string(out.TrainingJobSummaries[0].TrainingJobStatus)
	}
	create := func() {
		if _, err := api.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{
			VolumeId: aws.String("vol-1"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	if create(); state() != "completed" {
		t.Errorf("a snapshot is %s at once, want it completed as moto has it", state())
	}
	s.Pending.Snapshots(true)
	create()
	if _, err := jobs.StopTrainingJob(t.Context(), &sagemaker.StopTrainingJobInput{
		TrainingJobName: aws.String("j"),
	}); err != nil {
		t.Fatal(err)
	}
	if state() != "pending" || job() != "Stopping" {
		t.Errorf("the snapshot is %s, the job %s; want them on their way", state(), job())
	}
	s.Pending.Settle()
	if state() != "completed" || job() != "Stopped" {
		t.Errorf("the snapshot is %s, the job %s after they settled", state(), job())
	}
}

func TestMachinesAreLaunchedProtected(t *testing.T) {
	var asked []string
	s := New(Options{Upstream: upstream(t, func(action string) string {
		asked = append(asked, action)
		return `<RunInstancesResponse><instancesSet><item><instanceId>i-1</instanceId></item></instancesSet></RunInstancesResponse>`
	})})
	api := ec2.NewFromConfig(serve(t, s))
	for _, protected := range []bool{false, true} {
		if _, err := api.RunInstances(t.Context(), &ec2.RunInstancesInput{
			MinCount: aws.Int32(1), MaxCount: aws.Int32(1), DisableApiTermination: &protected,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if want := "[RunInstances  RunInstances  ModifyInstanceAttribute true]"; fmt.Sprint(asked) != want {
		t.Errorf("asked %v, want %s", asked, want)
	}
}

// TestDeaf checks that changes are confirmed but not carried out.
func TestDeaf(t *testing.T) {
	passed := 0
	s := New(Options{Upstream: upstream(t, func(string) string { passed++; return "" })})
	s.Inject(Fault{Kind: Deaf})
	cfg := serve(t, s)
	for name, call := range map[string]func(context.Context) error{
		"ec2": func(ctx context.Context) error {
			_, err := ec2.NewFromConfig(cfg).TerminateInstances(ctx, &ec2.TerminateInstancesInput{
				InstanceIds: []string{"i-1"},
			})
			return err
		},
		"json": func(ctx context.Context) error {
			_, err := cloudwatchlogs.NewFromConfig(cfg).PutRetentionPolicy(ctx,
				&cloudwatchlogs.PutRetentionPolicyInput{
					LogGroupName: aws.String("g"), RetentionInDays: aws.Int32(7),
				})
			return err
		},
	} {
		if err := call(t.Context()); err != nil || passed > 0 {
			t.Errorf("%s: %v, %d calls passed on", name, err, passed)
		}
	}
}

func TestSpotRequests(t *testing.T) {
	s := New(Options{})
	s.State.At(DefaultAccount, "us-east-1", func(p *Place) {
		p.SpotRequests = []SpotRequest{
			{ID: "sir-1", Type: "persistent", State: "active", Instance: "i-1"},
			{ID: "sir-2", Type: "one-time", State: "closed"},
		}
	})
	out, err := ec2.NewFromConfig(serve(t, s)).DescribeSpotInstanceRequests(t.Context(),
		&ec2.DescribeSpotInstanceRequestsInput{SpotInstanceRequestIds: []string{"sir-2"}})
	if err != nil || len(out.SpotInstanceRequests) != 1 || out.SpotInstanceRequests[0].Type != "one-time" ||
		out.SpotInstanceRequests[0].State != "closed" {
		t.Errorf("got %+v, %v", out, err)
	}
}
