package aws

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// lifecycleParams is the document that is put, and what it adds.
type lifecycleParams struct {
	Adds     []string `json:"adds"`
	Document string   `json:"document"`
	// MinimumSize is S3's setting of which small objects move at all. It belongs to the
	// document but is not in it: a document that is put without it sets it anew.
	MinimumSize string `json:"transition_default_minimum_object_size,omitempty"`
}

// bucketLifecycle is a bucket's lifecycle as it is.
type bucketLifecycle struct {
	text    []byte
	minimum string
}

// planBucketLifecycle adds rules to a bucket's lifecycle.
func planBucketLifecycle(ctx context.Context, s *site, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	fresh, err := s.bucketNow(ctx, r)
	if err != nil {
		return nil, err
	}
	now, err := s.lifecycleNow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	doc, err := parseLifecycle(now.text)
	if err != nil {
		return nil, refusal("unknown", "bucket %s: %s", r.ID, err)
	}
	rules := doc.lacking(s.lifecycle(fresh, do))
	if len(rules) == 0 {
		return nil, refusal("nothing-to-do", "the lifecycle of bucket %s does already what would be added", r.ID)
	}
	merged, err := doc.with(rules)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", r.ID, err)
	}
	params := lifecycleParams{Document: string(merged), MinimumSize: now.minimum}
	for _, x := range rules {
		params.Adds = append(params.Adds, x.String())
	}
	return []action.Step{{Name: stepLifecycle, Params: encoded(params), Undo: string(now.text)}}, nil
}

// bucketNow reads what of a bucket decides on its rules, and refuses another bucket under
// the same name.
func (s *site) bucketNow(ctx context.Context, r *inventory.Resource) (*inventory.Resource, error) {
	made, err := s.bucketMade(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(made.CreationDate)); err != nil {
		return nil, err
	}
	versioned, err := s.versioned(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	fresh := *r
	fresh.Detail = &inventory.Bucket{Versioned: inventory.Known(versioned)}
	return &fresh, nil
}

// bucketMade reads a bucket's entry in the list of buckets; inventory.ErrNotFound where
// there is none.
func (p *place) bucketMade(ctx context.Context, name string) (types.Bucket, error) {
	return listed(ctx, "bucket "+name, func(token *string) ([]types.Bucket, *string, error) {
		out, err := p.s3.ListBuckets(ctx, &s3.ListBucketsInput{Prefix: &name, MaxBuckets: awssdk.Int32(bucketsPage), ContinuationToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.Buckets, out.ContinuationToken, nil
	}, func(b types.Bucket) bool { return awssdk.ToString(b.Name) == name })
}

// versioned says whether a bucket keeps, or kept, versions.
func (p *place) versioned(ctx context.Context, name string) (bool, error) {
	out, err := p.s3.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &name})
	if err != nil {
		return false, failed("read whether bucket "+name+" keeps versions", err)
	}
	return out.Status != "", nil
}

// lifecycleNow reads a bucket's lifecycle as the bytes that S3 sends; none is no text.
func (p *place) lifecycleNow(ctx context.Context, name string) (bucketLifecycle, error) {
	var now bucketLifecycle
	out, err := p.s3.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &name},
		s3.WithAPIOptions(captured(&now.text)))
	switch {
	case is(err, "NoSuchLifecycleConfiguration"):
		return bucketLifecycle{}, nil
	case err != nil:
		return bucketLifecycle{}, failed("read the lifecycle of bucket "+name, err)
	}
	now.minimum = string(out.TransitionDefaultMinimumObjectSize)
	return now, nil
}

// captured keeps the body of a good answer beside what the SDK reads from it.
func captured(into *[]byte) func(*middleware.Stack) error {
	capture := func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (
		middleware.DeserializeOutput, middleware.Metadata, error,
	) {
		out, meta, err := next.HandleDeserialize(ctx, in)
		answer, ok := out.RawResponse.(*smithyhttp.Response)
		if err != nil || !ok || answer.StatusCode != http.StatusOK {
			return out, meta, err
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return out, meta, fmt.Errorf("read the answer: %w", err)
		}
		*into = body
		answer.Body = struct {
			io.Reader
			io.Closer
		}{bytes.NewReader(body), answer.Body}
		return out, meta, nil
	}
	return func(stack *middleware.Stack) error {
		return stack.Deserialize.Insert(middleware.DeserializeMiddlewareFunc("CurfewCapture", capture), "OperationDeserializer", middleware.After)
	}
}

// sending puts these bytes into the place of what the SDK would write, before it adds
// checksum and signature.
func sending(body []byte) func(*middleware.Stack) error {
	send := func(ctx context.Context, in middleware.SerializeInput, next middleware.SerializeHandler) (
		middleware.SerializeOutput, middleware.Metadata, error,
	) {
		request, ok := in.Request.(*smithyhttp.Request)
		if !ok {
			return middleware.SerializeOutput{}, middleware.Metadata{}, fmt.Errorf("send a document: the request is a %T", in.Request)
		}
		request, err := request.SetStream(bytes.NewReader(body))
		if err != nil {
			return middleware.SerializeOutput{}, middleware.Metadata{}, fmt.Errorf("send a document: %w", err)
		}
		request.Header.Set("Content-Type", "application/xml")
		in.Request = request
		return next.HandleSerialize(ctx, in)
	}
	return func(stack *middleware.Stack) error {
		return stack.Serialize.Insert(middleware.SerializeMiddlewareFunc("CurfewSend", send), "OperationSerializer", middleware.After)
	}
}

// putLifecycle puts a document byte for byte, or takes the lifecycle away where it is
// empty.
func (s *site) putLifecycle(ctx context.Context, name string, l bucketLifecycle) error {
	if len(l.text) == 0 {
		_, err := s.hands.s3.DeleteBucketLifecycle(ctx, &s3.DeleteBucketLifecycleInput{Bucket: &name})
		return failed("take the lifecycle of bucket "+name+" away", err)
	}
	_, err := s.hands.s3.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{Bucket: &name,
		TransitionDefaultMinimumObjectSize: types.TransitionDefaultMinimumObjectSize(l.minimum)}, s3.WithAPIOptions(sending(l.text)))
	return failed("put the lifecycle of bucket "+name, err)
}

// lifecycleTask is a task on a bucket's lifecycle, with the bucket as it is now.
type lifecycleTask struct {
	params  lifecycleParams
	now     bucketLifecycle
	current *lifecycleDoc
	former  *lifecycleDoc
	// adds are the rules that the task adds.
	adds []LifecycleRule
}

func (s *site) lifecycleTask(ctx context.Context, t action.Task) (*lifecycleTask, error) {
	params, err := decoded[lifecycleParams](t, t.Step.Params)
	if err != nil {
		return nil, err
	}
	made, err := s.bucketMade(ctx, t.Ref.ID)
	if err != nil {
		return nil, err
	}
	if err := identical(t, utc(made.CreationDate)); err != nil {
		return nil, err
	}
	now, err := s.lifecycleNow(ctx, t.Ref.ID)
	if err != nil {
		return nil, err
	}
	x := &lifecycleTask{params: params, now: now}
	var put *lifecycleDoc
	for _, doc := range []struct {
		text []byte
		into **lifecycleDoc
	}{{now.text, &x.current}, {[]byte(t.Step.Undo), &x.former}, {[]byte(params.Document), &put}} {
		if *doc.into, err = parseLifecycle(doc.text); err != nil {
			return nil, fmt.Errorf("bucket %s: %w", t.Ref.ID, err)
		}
	}
	x.adds = slices.DeleteFunc(put.own(), func(r LifecycleRule) bool { return x.former.holds(r) })
	return x, nil
}

// done says whether all that the task adds is there.
func (x *lifecycleTask) done() bool {
	return !slices.ContainsFunc(x.adds, func(r LifecycleRule) bool { return !x.current.holds(r) })
}

func putBucketLifecycle(ctx context.Context, s *site, t action.Task) (string, error) {
	x, err := s.lifecycleTask(ctx, t)
	switch {
	case err != nil || x.done():
		return "", err
	case string(x.now.text) != t.Step.Undo || x.now.minimum != x.params.MinimumSize:
		return "", refusal("changed", "the lifecycle of bucket %s is another one than when this was planned", t.Ref.ID)
	}
	return "", s.putLifecycle(ctx, t.Ref.ID, bucketLifecycle{[]byte(x.params.Document), x.params.MinimumSize})
}

func lookBucketLifecycle(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	x, err := s.lifecycleTask(ctx, t)
	if err != nil || !x.done() {
		return action.NotDone, "", err
	}
	return action.Complete, "", nil
}

// restoreBucketLifecycle puts the former document back, byte for byte, where nobody has
// changed the lifecycle since. What has expired meanwhile stays gone.
func restoreBucketLifecycle(ctx context.Context, s *site, t action.Task) error {
	x, err := s.lifecycleTask(ctx, t)
	switch {
	case err != nil || string(x.now.text) == t.Step.Undo:
		return err
	// A document that there was not has no setting of its own.
	case !x.done() || x.params.MinimumSize != "" && x.now.minimum != x.params.MinimumSize || !slices.Equal(x.current.without(x.adds), x.former.without(x.adds)):
		return refusal("changed", "somebody else has changed the lifecycle of bucket %s since; take the rules that begin with %s out by hand", t.Ref.ID, ruleMark)
	}
	return s.putLifecycle(ctx, t.Ref.ID, bucketLifecycle{[]byte(t.Step.Undo), x.params.MinimumSize})
}
