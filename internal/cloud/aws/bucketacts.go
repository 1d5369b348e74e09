package aws

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// bucketLifecycle is a bucket's current lifecycle.
type bucketLifecycle struct {
	text    []byte
	minimum string
}

// planBucketLifecycle replaces the lifecycle that a finding was based on by the finding's document.
func planBucketLifecycle(ctx context.Context, s *site, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	made, err := s.bucketMade(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(made.CreationDate)); err != nil {
		return nil, err
	}
	now, err := s.lifecycleNow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if len(now.text) > 0 && !now.moves(do.Change) {
		return nil, otherDocument(r.Kind, r.ID)
	}
	return planDocument(r, string(now.text), do.Change)
}

// planDocument returns the step that writes a change's document, provided that the current one is
// still the one the change is based on.
func planDocument(r *inventory.Resource, now string, c change.Change) ([]action.Step, error) {
	switch {
	case c.Document == "":
		return nil, refusal("unknown", "no finding says which lifecycle %s %s is to have", r.Kind, r.ID)
	case change.Equivalent(now, c.Document):
		return nil, refusal("nothing-to-do", "%s %s has this lifecycle already", r.Kind, r.ID)
	case !change.Equivalent(now, c.Before):
		return nil, otherDocument(r.Kind, r.ID)
	}
	return []action.Step{{Name: stepLifecycle, Params: encoded(c), Undo: now}}, nil
}

// otherDocument refuses to replace a modified document.
func otherDocument(kind inventory.Kind, id string) error {
	return refusal("changed", "the lifecycle of %s %s was changed since the fix was priced; scan again", kind, id)
}

// bucketMade reads a bucket's entry in the list of buckets; inventory.ErrNotFound if there is none.
func (p *place) bucketMade(ctx context.Context, name string) (types.Bucket, error) {
	return listed(ctx, "bucket "+name, func(token *string) ([]types.Bucket, *string, error) {
		out, err := s3Client(p.reading).ListBuckets(ctx, &s3.ListBucketsInput{
			Prefix:            &name,
			MaxBuckets:        awssdk.Int32(bucketsPage),
			ContinuationToken: token,
		})
		if err != nil {
			return nil, nil, err
		}
		return out.Buckets, out.ContinuationToken, nil
	}, func(b types.Bucket) bool { return awssdk.ToString(b.Name) == name })
}

// lifecycleNow reads a bucket's lifecycle as sent by S3; empty if there is none.
func (p *place) lifecycleNow(ctx context.Context, name string) (bucketLifecycle, error) {
	var now bucketLifecycle
	out, err := s3Client(p.reading).GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{
		Bucket: &name,
	},
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

// captured keeps the body of a successful response, which the SDK only decodes.
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
		return stack.Deserialize.Insert(middleware.DeserializeMiddlewareFunc("CurfewCapture", capture),
			"OperationDeserializer", middleware.After)
	}
}

// sending replaces the SDK's body by the given bytes before checksum and signature.
func sending(body []byte) func(*middleware.Stack) error {
	send := func(ctx context.Context, in middleware.SerializeInput, next middleware.SerializeHandler) (
		middleware.SerializeOutput, middleware.Metadata, error,
	) {
		request, ok := in.Request.(*smithyhttp.Request)
		if !ok {
			return middleware.SerializeOutput{}, middleware.Metadata{}, fmt.Errorf(
				"send a document: the request is a %T",
				in.Request)
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
		return stack.Serialize.Insert(middleware.SerializeMiddlewareFunc("CurfewSend", send), "OperationSerializer",
			middleware.After)
	}
}

// putLifecycle writes a document byte for byte, or deletes the lifecycle if it is empty.
func (s *site) putLifecycle(ctx context.Context, name string, l bucketLifecycle) error {
	if len(l.text) == 0 {
		_, err := s3Client(s.acting).DeleteBucketLifecycle(ctx, &s3.DeleteBucketLifecycleInput{Bucket: &name})
		return failed("take the lifecycle of bucket "+name+" away", err)
	}
	_, err := s3Client(s.acting).PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{
		Bucket:                             &name,
		TransitionDefaultMinimumObjectSize: types.TransitionDefaultMinimumObjectSize(l.minimum)},
		s3.WithAPIOptions(sending(l.text)))
	return failed("put the lifecycle of bucket "+name, err)
}

// bucketTask reads the change of a task and the current lifecycle of its bucket.
func (s *site) bucketTask(ctx context.Context, t action.Task) (put change.Change, now bucketLifecycle, err error) {
	if put, err = decoded[change.Change](t, t.Step.Params); err != nil {
		return put, now, err
	}
	made, err := s.bucketMade(ctx, t.Ref.ID)
	if err != nil {
		return put, now, err
	}
	if err := identical(t, utc(made.CreationDate)); err != nil {
		return put, now, err
	}
	now, err = s.lifecycleNow(ctx, t.Ref.ID)
	return put, now, err
}

// has reports whether a bucket has the document of a change, with its setting.
func (l bucketLifecycle) has(c change.Change) bool {
	return l.moves(c) && change.Equivalent(string(l.text), c.Document)
}

// moves reports whether the minimum-size setting equals that of a change, if both are known.
func (l bucketLifecycle) moves(c change.Change) bool {
	return l.minimum == c.Arguments.MinimumSize || l.minimum == "" || c.Arguments.MinimumSize == ""
}

func putBucketLifecycle(ctx context.Context, s *site, t action.Task) (string, error) {
	put, now, err := s.bucketTask(ctx, t)
	switch {
	case err != nil || now.has(put):
		return "", err
	case !change.Equivalent(string(now.text), put.Before) || len(now.text) > 0 && !now.moves(put):
		return "", otherDocument(t.Ref.Kind, t.Ref.ID)
	}
	return "", s.putLifecycle(ctx, t.Ref.ID, bucketLifecycle{[]byte(put.Document), put.Arguments.MinimumSize})
}

// lookBucketLifecycle compares the current lifecycle with the written one, as documents.
func lookBucketLifecycle(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	put, now, err := s.bucketTask(ctx, t)
	if err != nil || !now.has(put) {
		return action.NotDone, "", err
	}
	return action.Complete, "", nil
}

// restoreBucketLifecycle writes the former document byte for byte, unless the lifecycle changed
// since. Objects expired meanwhile stay gone.
func restoreBucketLifecycle(ctx context.Context, s *site, t action.Task) error {
	put, now, err := s.bucketTask(ctx, t)
	switch {
	case err != nil || string(now.text) == t.Step.Undo:
		return err
	case !now.has(put):
		return refusal("changed",
			"the lifecycle of bucket %s was changed again since; take the rules that begin with %s out by hand",
			t.Ref.ID,
			change.RulePrefix)
	}
	return s.putLifecycle(ctx, t.Ref.ID, bucketLifecycle{[]byte(t.Step.Undo), put.Arguments.MinimumSize})
}
