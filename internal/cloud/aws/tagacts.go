package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

// tagging is the tagging step of every kind with tags.
var tagging = handler{do: putTags, look: lookTags, undo: restoreTags}

// tagParams are the tags to write, with the service that writes them.
type tagParams struct {
	Set map[string]string `json:"set"`
	// Service and Name identify the resource in the service's own terms.
	Service string `json:"service"`
	Name    string `json:"name"`
}

// formerTags are the former values of the written keys; an absent key did not exist.
type formerTags struct {
	Former map[string]string `json:"former"`
}

// planTags writes tags, after reading their former values.
func planTags(ctx context.Context, s *site, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	for k := range do.Tags {
		if k == "" || strings.HasPrefix(strings.ToLower(k), "aws:") {
			return nil, refusal("not-enabled", "the tag %q cannot be written: the name is empty or Amazon's", k)
		}
	}
	fresh, err := s.tagged(ctx, r.Ref())
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, fresh.CreatedAt); err != nil {
		return nil, err
	}
	service, name := s.tagService(fresh)
	if taggers[service].put == nil {
		return nil, refusal("no-such-verb", "a resource of kind %s has no tags to write", r.Kind)
	}
	set, former := map[string]string{}, map[string]string{}
	for k, v := range do.Tags {
		old, there := fresh.Tags[k]
		if there && old == v {
			continue
		}
		set[k] = v
		if there {
			former[k] = old
		}
	}
	if n := len(fresh.Tags) + len(set) - len(former); n > maxTags {
		return nil, refusal("not-enabled", "%s %s would have %d tags, and has %d at most", r.Kind, r.ID, n, maxTags)
	}
	if len(set) == 0 {
		return nil, refusal("nothing-to-do", "%s %s has these tags already", r.Kind, r.ID)
	}
	return []action.Step{
		{
			Name: stepTag, Params: encoded(tagParams{Set: set, Service: service, Name: name}),
			Undo: encoded(formerTags{former}),
		},
	}, nil
}

// tagged reads a resource with its tags; unreadable tags are a refusal, because they could not be
// restored.
func (s *site) tagged(ctx context.Context, ref inventory.Ref) (*inventory.Resource, error) {
	if ref.Kind == inventory.KindBucket {
		return s.taggedBucket(ctx, ref.ID)
	}
	again := s.scan.cloud.scan(round.Query{}, s.scan.limits)
	if err := again.relist(ctx, []*account{s.account}, []inventory.Ref{ref}); err != nil {
		return nil, err
	}
	switch {
	case again.unread[unreadKey(ref.Account, ref.Region, ref.Kind)]:
		return nil, refusal("unknown", "%s %s cannot be read", ref.Kind, ref.ID)
	case len(again.resources) == 0:
		return nil, failed("read "+string(ref.Kind)+" "+ref.ID, errNotThere)
	case again.resources[0].Tags == nil:
		return nil, refusal("unknown", "the tags of %s %s cannot be read", ref.Kind, ref.ID)
	}
	return again.resources[0], nil
}

// taggedBucket reads only a bucket's tags.
func (p *place) taggedBucket(ctx context.Context, name string) (*inventory.Resource, error) {
	made, err := p.bucketMade(ctx, name)
	if err != nil {
		return nil, err
	}
	r := p.resource(inventory.KindBucket, name)
	r.CreatedAt = utc(made.CreationDate)
	out, err := s3Client(p.reading).GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: &name})
	switch {
	case is(err, "NoSuchTagSet"):
		r.Tags = map[string]string{}
	case err != nil:
		return nil, failed("read the tags of bucket "+name, err)
	default:
		r.Tags = tagged(out.TagSet, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
	}
	return r, nil
}

// tagTask reads a task's resource and its wanted tags.
func (s *site) tagTask(ctx context.Context, t action.Task) (now map[string]string, put tagParams, former formerTags,
	err error) {
	if put, err = decoded[tagParams](t, t.Step.Params); err != nil {
		return nil, put, former, err
	}
	if former, err = decoded[formerTags](t, t.Step.Undo); err != nil {
		return nil, put, former, err
	}
	r, err := s.tagged(ctx, t.Ref)
	if err != nil {
		return nil, put, former, err
	}
	return r.Tags, put, former, identical(t, r.CreatedAt)
}

// holds reports whether tags have these values.
func holds(tags, values map[string]string) bool {
	for k, v := range values {
		if now, there := tags[k]; !there || now != v {
			return false
		}
	}
	return true
}

func putTags(ctx context.Context, s *site, t action.Task) (string, error) {
	now, put, former, err := s.tagTask(ctx, t)
	if err != nil || holds(now, put.Set) {
		return "", err
	}
	for k := range put.Set {
		old, was := former.Former[k]
		value, is := now[k]
		if is != was || value != old {
			return "", refusal("changed",
				"the tag %s of %s %s is another one than when this was planned", k, t.Ref.Kind,
				t.Ref.ID)
		}
	}
	err = failed("tag "+t.Ref.ID, taggers[put.Service].put(ctx, s, put.Name, put.Set))
	return "", notByActing(err, slices.Sorted(maps.Keys(put.Set)))
}

// notByActing adds to a denial that the acting role may never write a tag by which IAM decides.
func notByActing(err error, keys []string) error {
	i := slices.IndexFunc(keys, func(key string) bool {
		return slices.ContainsFunc(deciding, func(d string) bool { return strings.EqualFold(d, key) })
	})
	if i < 0 || !errors.Is(err, inventory.ErrDenied) {
		return err
	}
	return fmt.Errorf("%w; the acting role may not write %s, by which IAM decides what it may end: "+
		"use the credentials of a person who may (--profile)", err, keys[i])
}

func lookTags(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	now, put, _, err := s.tagTask(ctx, t)
	if err != nil || !holds(now, put.Set) {
		return action.NotDone, "", err
	}
	return action.Complete, "", nil
}

// restoreTags writes the former values, and removes tags that did not exist.
func restoreTags(ctx context.Context, s *site, t action.Task) error {
	now, put, former, err := s.tagTask(ctx, t)
	if err != nil {
		return err
	}
	var added []string
	for _, k := range slices.Sorted(maps.Keys(put.Set)) {
		_, was := former.Former[k]
		switch value, is := now[k]; {
		case is && value != put.Set[k] && value != former.Former[k]:
			return refusal("changed", "the tag %s of %s %s was changed by another user or service",
				k, t.Ref.Kind, t.Ref.ID)
		case is && !was:
			added = append(added, k)
		}
	}
	by := taggers[put.Service]
	if !holds(now, former.Former) {
		if err := sent(by.put(ctx, s, put.Name, former.Former)); err != nil {
			return notByActing(failed("restore the tags of "+t.Ref.ID, err), slices.Sorted(maps.Keys(former.Former)))
		}
	}
	if len(added) > 0 {
		return notByActing(failed("take tags of "+t.Ref.ID+" away", by.drop(ctx, s, put.Name, added)), added)
	}
	return nil
}

// bucketOfARN returns the bucket of an ARN in any partition.
func bucketOfARN(arn string) string {
	if _, name, ok := strings.Cut(arn, ":s3:::"); ok {
		return name
	}
	return arn
}

// arn returns a resource's ARN. Bucket ARNs have no region and account.
func (p *place) arn(service, rest string) string {
	partition, region, id := partitionNamed(p.region), p.region, p.account.id
	if service == "s3" {
		region, id = "", ""
	}
	return strings.Join([]string{"arn", partition, service, region, id, rest}, ":")
}

// tagService returns the service that tags a resource, and the resource's name there.
func (p *place) tagService(r *inventory.Resource) (service, name string) {
	arn := p.arn
	switch r.Kind {
	case inventory.KindInstance, inventory.KindVolume, inventory.KindSnapshot, inventory.KindImage,
		inventory.KindNATGateway, inventory.KindCapacityReservation:
		return "ec2", r.ID
	case inventory.KindAddress:
		if allocated(r.ID) {
			return "ec2", r.ID
		}
	case inventory.KindBucket:
		return "s3", r.ID
	case inventory.KindRepository:
		return "ecr", arn("ecr", "repository/"+r.ID)
	case inventory.KindLogGroup:
		return "logs", arn("logs", "log-group:"+r.ID)
	case inventory.KindNotebook:
		if d, ok := r.Detail.(*inventory.Notebook); ok && d.IsApp {
			return "sagemaker", arn("sagemaker", "app/"+lowerKind(r.ID))
		}
		return "sagemaker", arn("sagemaker", "notebook-instance/"+strings.ToLower(r.ID))
	case inventory.KindEndpoint:
		return "sagemaker", arn("sagemaker", "endpoint/"+strings.ToLower(r.ID))
	case inventory.KindTrainingJob:
		return "sagemaker", arn("sagemaker", "training-job/"+strings.ToLower(r.ID))
	case inventory.KindAutoScalingGroup:
		return "autoscaling", r.ID
	case inventory.KindLoadBalancer:
		if r.Type == classicType {
			return "elb", r.ID
		}
		return "elbv2", r.ID
	case inventory.KindFileSystem:
		if r.Type == "efs" {
			return "efs", r.ID
		}
		return "fsx", arn("fsx", "file-system/"+r.ID)
	case inventory.KindDatabase:
		if d, ok := r.Detail.(*inventory.Database); ok && (d.Engine == "opensearch" || d.Engine == "elasticsearch") {
			return "es", arn("es", "domain/"+r.ID)
		}
		return "rds", arn("rds", "db:"+r.ID)
	case inventory.KindSecret:
		return "secretsmanager", r.ID
	}
	return "", ""
}

// lowerKind lowercases the third part of a studio application's name, as in its ARN: "jupyterlab"
// in "domain/user/JupyterLab/default".
func lowerKind(id string) string {
	parts := strings.Split(id, "/")
	if len(parts) > 2 {
		parts[2] = strings.ToLower(parts[2])
	}
	return strings.Join(parts, "/")
}

// bucketTags writes all of a bucket's tags, because S3 replaces them as a whole.
func (s *site) bucketTags(ctx context.Context, name string, change func(map[string]string)) error {
	r, err := s.taggedBucket(ctx, name)
	if err != nil {
		return err
	}
	change(r.Tags)
	if len(r.Tags) == 0 {
		_, err := s3Client(s.acting).DeleteBucketTagging(ctx, &s3.DeleteBucketTaggingInput{Bucket: &name})
		return err
	}
	set := pairs(r.Tags, func(k, v *string) types.Tag { return types.Tag{Key: k, Value: v} })
	_, err = s3Client(s.acting).PutBucketTagging(ctx, &s3.PutBucketTaggingInput{
		Bucket:  &name,
		Tagging: &types.Tagging{TagSet: set},
	})
	return err
}
