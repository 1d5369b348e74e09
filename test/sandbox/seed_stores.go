package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	ecrtypes "github.com/aws/aws-sdk-go-v2/service/ecr/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

// layer is an image of a repository.
type layer struct {
	tag    string // or empty
	gib    int64
	age    time.Duration
	pulled time.Duration // how long ago; 0 is never
}

const keepTen = `{"rules":[{"rulePriority":1,"selection":{"tagStatus":"any","countType":"imageCountMoreThan","countNumber":10},"action":{"type":"expire"}}]}`

func (b *seeder) repositories(ctx context.Context) error {
	for _, x := range []struct {
		name     string
		owner    inventory.Owner
		policy   bool
		images   []layer
		rule     string
		want     Planted
		innocent bool
	}{
		{
			"vision/trainer", ana, false, []layer{{"v1", 12, days(300), days(200)}, {"v2", 12, days(20), days(1)}},
			"repository-no-lifecycle",
			Planted{
				SavingsUSD: "0.00", Note: "one tagged image without a pull for 90 days, which no rule expires",
			}, false},
		{
			"ranking/server", chen, true, []layer{
				{"", 15, days(100), 0}, {"", 25, days(90), 0}, {"v9", 10, days(9), days(1)},
			},
			"repository-untagged",
			Planted{Unknown: true, UpperBoundUSD: cost(term{"40", "ecr"})}, false},
		{"language/api", dana, true, []layer{{"v3", 8, days(10), days(1)}}, "", Planted{}, true},
	} {
		api := ecr.NewFromConfig(b.Config(east))
		var t []ecrtypes.Tag
		for k, v := range tags(x.owner, "") {
			t = append(t, ecrtypes.Tag{Key: aws.String(k), Value: aws.String(v)})
		}
		if _, err := api.CreateRepository(ctx, &ecr.CreateRepositoryInput{
			RepositoryName: &x.name, Tags: t,
		}); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		b.age("ecr", "repositoryName", x.name, b.ago(days(400)), "createdAt")
		if x.policy {
			if _, err := api.PutLifecyclePolicy(ctx, &ecr.PutLifecyclePolicyInput{
				RepositoryName: &x.name, LifecyclePolicyText: aws.String(keepTen),
			}); err != nil {
				return fmt.Errorf("%s: lifecycle policy: %w", x.name, err)
			}
		}
		for i, l := range x.images {
			if err := b.push(ctx, api, x.name, i, l); err != nil {
				return fmt.Errorf("%s: image %d: %w", x.name, i, err)
			}
		}
		r := b.record(inventory.KindRepository, x.name, east, x.owner)
		if x.rule != "" {
			b.plant(r, x.rule, x.want)
		}
		if x.innocent {
			b.innocent(r, "a policy, tags and pulls", storageRules...)
		}
	}
	return nil
}

// push creates an image that appears with its intended size and age.
func (b *seeder) push(ctx context.Context, api *ecr.Client, repository string, n int, l layer) error {
	digest := func(s string) string {
		sum := sha256.Sum256([]byte(repository + strconv.Itoa(n) + s))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json",`+
		`"config":{"mediaType":"application/vnd.docker.container.image.v1+json","size":1000,"digest":%q},`+
		`"layers":[{"mediaType":"application/vnd.docker.image.rootfs.diff.tar.gzip","size":1000,"digest":%q}]}`,
		digest("config"), digest("layer"))
	tag := l.tag
	if tag == "" {
		tag = "passing-" + strconv.Itoa(n)
	}
	out, err := api.PutImage(ctx, &ecr.PutImageInput{
		RepositoryName: &repository, ImageManifest: &manifest, ImageTag: &tag,
	})
	if err != nil {
		return err
	}
	if l.tag == "" {
		if _, err := api.BatchDeleteImage(ctx, &ecr.BatchDeleteImageInput{RepositoryName: &repository,
			ImageIds: []ecrtypes.ImageIdentifier{{ImageTag: &tag}}}); err != nil {
			return fmt.Errorf("untag: %w", err)
		}
		// moto removes an image with its last tag; ECR keeps it.
		if _, err := api.PutImage(ctx, &ecr.PutImageInput{
			RepositoryName: &repository, ImageManifest: &manifest,
		}); err !=
			nil {
			return fmt.Errorf("put back: %w", err)
		}
	}
	add := map[string]any{"imageSizeInBytes": l.gib * gib, "imagePushedAt": b.ago(l.age)}
	if l.pulled > 0 {
		add["lastRecordedPullTime"] = b.ago(l.pulled)
	}
	b.Wire.Patch(wire.Patch{
		Service: "ecr", Operation: "DescribeImages", IDField: "imageDigest",
		ID: *out.Image.ImageId.ImageDigest, Add: add,
	})
	return nil
}

func (b *seeder) logGroups(ctx context.Context) error {
	for _, x := range []struct {
		name      string
		owner     inventory.Owner
		retention int32
		gib       int64
		planted   bool
	}{
		{"/vision/training", ana, 0, 200, true},
		{"/language/api", dana, 30, 50, false},
	} {
		api := cloudwatchlogs.NewFromConfig(b.Config(east))
		if _, err := api.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{
			LogGroupName: &x.name, Tags: tags(x.owner, ""),
		}); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		if x.retention > 0 {
			if _, err := api.PutRetentionPolicy(ctx, &cloudwatchlogs.PutRetentionPolicyInput{
				LogGroupName: &x.name, RetentionInDays: &x.retention,
			}); err != nil {
				return fmt.Errorf("%s: retention: %w", x.name, err)
			}
		}
		b.Wire.Patch(wire.Patch{Service: "logs", IDField: "logGroupName", ID: x.name,
			Set: map[string]any{"storedBytes": x.gib * gib, "creationTime": b.ago(days(500)).UnixMilli()}})
		r := b.record(inventory.KindLogGroup, x.name, east, x.owner)
		if x.planted {
			b.plant(r, "log-group-no-retention", Planted{
				Unknown: true, UpperBoundUSD: cost(term{"200", "logs:storage"}),
			})
		} else {
			b.innocent(r, "it has a retention", "log-group-no-retention")
		}
	}
	return nil
}
