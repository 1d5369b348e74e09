package aws

import (
	"context"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const (
	repositoriesPage = 1000
	// unpulled is the time without a pull after which a tagged image counts as unused,
	// as is usual for registries.
	unpulled = 90 * 24 * time.Hour
)

func (p *place) repositories(ctx context.Context) {
	var repos []types.Repository
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ecrClient(p.reading).DescribeRepositories(ctx, &ecr.DescribeRepositoriesInput{
			MaxResults: awssdk.Int32(repositoriesPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, r := range out.Repositories {
			if p.wants(inventory.KindRepository, awssdk.ToString(r.RepositoryName)) {
				repos = append(repos, r)
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "ecr:DescribeRepositories", err)
	each(ctx, repos, func(repo types.Repository) { p.scan.add(p.repository(ctx, repo)) })
}

func (p *place) repository(ctx context.Context, repo types.Repository) *inventory.Resource {
	r := p.resource(inventory.KindRepository, awssdk.ToString(repo.RepositoryName))
	r.Name, r.CreatedAt, r.State = r.ID, utc(repo.CreatedAt), inventory.StateAvailable
	var images imageSum
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ecrClient(p.reading).DescribeImages(ctx, &ecr.DescribeImagesInput{
			RepositoryName: repo.RepositoryName,
			MaxResults:     awssdk.Int32(repositoriesPage),
			NextToken:      token,
		})
		if err != nil {
			return nil, err
		}
		for _, i := range out.ImageDetails {
			images.add(i, p.now())
		}
		return out.NextToken, nil
	})
	p.missed(ctx, "ecr:DescribeImages", r.ID, err)
	d := &inventory.Repository{}
	if err == nil {
		images.fill(d)
	}
	lifecycle, err := ecrClient(p.reading).GetLifecyclePolicy(ctx, &ecr.GetLifecyclePolicyInput{
		RepositoryName: repo.RepositoryName,
	})
	switch {
	case err == nil:
		d.LifecyclePolicy, d.LifecycleDocument = inventory.Known(true), inventory.Known(
			awssdk.ToString(lifecycle.LifecyclePolicyText))
	case is(err, "LifecyclePolicyNotFoundException"):
		d.LifecyclePolicy, d.LifecycleDocument = inventory.Known(false), inventory.Known("")
	default:
		p.missed(ctx, "ecr:GetLifecyclePolicy", r.ID, err)
	}
	out, err := ecrClient(p.reading).ListTagsForResource(ctx, &ecr.ListTagsForResourceInput{
		ResourceArn: repo.RepositoryArn,
	})
	p.missed(ctx, "ecr:ListTagsForResource", r.ID, err)
	if err == nil {
		r.Tags = tagged(out.Tags, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
	}
	r.Detail = d
	return r
}

// imageSum sums a repository's images. Layers shared by images are stored once but counted in each,
// so the bytes are an upper bound.
type imageSum struct {
	images, untagged, unpulled                int
	bytes, untaggedBytes, unpulledBytes       int64
	unsized, untaggedUnsized, unpulledUnsized bool
	digests                                   []string // of images without a tag
	// lists is true if some image is an index of other images, which are untagged but in use.
	lists bool
}

func (s *imageSum) add(i types.ImageDetail, now time.Time) {
	s.images++
	size := awssdk.ToInt64(i.ImageSizeInBytes)
	sized := i.ImageSizeInBytes != nil
	media := awssdk.ToString(i.ImageManifestMediaType)
	if strings.Contains(media, "image.index") || strings.Contains(media, "manifest.list") {
		s.lists = true // its size is that of its largest image, which is counted separately
	} else {
		s.bytes += size
		s.unsized = s.unsized || !sized
	}
	last := utc(i.ImagePushedAt)
	if t := utc(i.LastRecordedPullTime); t.After(last) {
		last = t
	}
	switch {
	case len(i.ImageTags) == 0 && awssdk.ToString(i.SubjectManifestDigest) == "": // not a signature of another image
		s.untagged++
		s.digests = append(s.digests, awssdk.ToString(i.ImageDigest))
		s.untaggedBytes += size
		s.untaggedUnsized = s.untaggedUnsized || !sized
	case len(i.ImageTags) > 0 && !last.IsZero() && now.Sub(last) >= unpulled:
		s.unpulled++
		s.unpulledBytes += size
		s.unpulledUnsized = s.unpulledUnsized || !sized
	}
}

func (s *imageSum) fill(d *inventory.Repository) {
	d.Images, d.UnpulledImages = s.images, s.unpulled
	if !s.unsized {
		d.Bytes = inventory.Known(s.bytes)
	}
	if !s.unpulledUnsized {
		d.UnpulledBytes = inventory.Known(s.unpulledBytes)
	}
	if s.lists {
		return // the untagged images of an index are unknown without reading it
	}
	slices.Sort(s.digests)
	d.UntaggedImages, d.UntaggedDigests = s.untagged, s.digests
	if !s.untaggedUnsized {
		d.UntaggedBytes = inventory.Known(s.untaggedBytes)
	}
}
