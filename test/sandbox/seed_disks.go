package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

// volume creates an unattached disk.
func (b *seeder) volume(ctx context.Context, region, name string, o inventory.Owner, age time.Duration,
	in ec2.CreateVolumeInput, more ...string) (Resource, error) {
	in.AvailabilityZone = aws.String(b.nets[region].zone)
	in.TagSpecifications = tagSpec(ec2types.ResourceTypeVolume, tags(o, name, more...))
	out, err := ec2.NewFromConfig(b.Config(region)).CreateVolume(ctx, &in)
	if err != nil {
		return Resource{}, fmt.Errorf("volume %s: %w", name, err)
	}
	b.age("ec2", "volumeId", *out.VolumeId, b.ago(age), "createTime", "attachTime")
	set := map[string]any{}
	if in.Iops != nil {
		set["iops"] = *in.Iops
	}
	if in.Throughput != nil {
		set["throughput"] = *in.Throughput
	}
	if in.VolumeType == ec2types.VolumeTypeGp3 && in.Iops == nil {
		set["iops"] = 3000
	}
	if in.VolumeType == ec2types.VolumeTypeGp3 && in.Throughput == nil {
		set["throughput"] = 125
	}
	b.Wire.Patch(wire.Patch{
		Service: "ec2", Operation: "DescribeVolumes", Beside: "size", IDField: "volumeId", ID: *out.VolumeId, Add: set,
	})
	return b.record(inventory.KindVolume, *out.VolumeId, region, o), nil
}

func (b *seeder) disks(ctx context.Context) error {
	gib := aws.Int32
	v, err := b.volume(ctx, east, "detector-scratch", ana, days(60), ec2.CreateVolumeInput{Size: gib(500),
		VolumeType: ec2types.VolumeTypeGp3, Iops: aws.Int32(6000), Throughput: aws.Int32(250)})
	if err != nil {
		return err
	}
	b.plant(v, "volume-unattached", Planted{
		WasteUSD: cost(term{"500", "ebs:gp3"}, term{"3000", "ebs:gp3:iops"}, term{"125", "ebs:gp3:throughput"}),
		SavingsUSD: cost(term{"500", "ebs:gp3"}, term{"3000", "ebs:gp3:iops"}, term{"125", "ebs:gp3:throughput"},
			term{"-500", "snapshot"})})

	if v, err = b.volume(ctx, west, "feed-scratch", chen, days(200), ec2.CreateVolumeInput{
		Size: gib(200), VolumeType: ec2types.VolumeTypeGp2,
	}); err != nil {
		return err
	}
	b.plant(v, "volume-unattached", Planted{
		WasteUSD: cost(term{"200", "ebs:gp2"}), SavingsUSD: cost(term{"200", "ebs:gp2"}, term{"-200", "snapshot"}),
		Note: "its snapshot stays",
	})
	b.plant(v, "volume-gp2", Planted{SavingsUSD: "0.00", Note: "the dollars are counted by volume-unattached"})

	if v, err = b.volume(ctx, east, "tokenizer-data", bo, days(80), ec2.CreateVolumeInput{
		Size: gib(300), VolumeType: ec2types.VolumeTypeGp3,
	}); err != nil {
		return err
	}
	recent := b.ago(days(2)).Truncate(time.Hour)
	for _, name := range []string{"VolumeReadOps", "VolumeWriteOps"} {
		b.put(east, "AWS/EBS", name, dims("VolumeId", v.ID), []wire.Datum{
			counter(recent, 5_000), counter(recent.Add(-time.Hour), 9_000),
		})
	}
	b.innocent(v, "it was in use two days ago", "volume-unattached")

	if v, err = b.volume(ctx, east, "segmentation-new", ben, days(2), ec2.CreateVolumeInput{
		Size: gib(100), VolumeType: ec2types.VolumeTypeGp3,
	}); err != nil {
		return err
	}
	b.innocent(v, "made two days ago", "volume-unattached")

	if v, err = b.volume(ctx, east, "detector-archive", ana, days(90), ec2.CreateVolumeInput{
		Size: gib(100), VolumeType: ec2types.VolumeTypeGp3,
	},
		inventory.TagKeepUntil, b.now.Add(days(30)).Format(time.DateOnly)); err != nil {
		return err
	}
	b.innocent(v, "kept", "volume-unattached")

	if err := b.oldDisk(ctx); err != nil {
		return err
	}
	return b.snapshots(ctx)
}

// oldDisk attaches a gp2 disk to a working machine.
func (b *seeder) oldDisk(ctx context.Context) error {
	v, err := b.volume(ctx, east, "api-data", dana, days(300), ec2.CreateVolumeInput{
		Size: aws.Int32(160), VolumeType: ec2types.VolumeTypeGp2,
	})
	if err != nil {
		return err
	}
	id, err := b.launch(ctx, machine{
		name: "api-replica", kind: "c5.xlarge", region: east, owner: dana, age: days(40), disk: 50,
		lifetime: persistent, purpose: inventory.Inference, does: busy(45, 0, 0, 0), not: idleRules,
		note: "plain honest work"})
	if err != nil {
		return err
	}
	if _, err := ec2.NewFromConfig(b.Config(east)).AttachVolume(ctx, &ec2.AttachVolumeInput{
		Device:     aws.String("/dev/sdf"),
		InstanceId: &id, VolumeId: &v.ID}); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	b.plant(v, "volume-gp2", Planted{SavingsUSD: "3.20", Note: "160 GiB at 0.10 against 0.08"})
	b.innocent(v, "attached", "volume-unattached")
	return nil
}

// snapshot creates a snapshot of a disk with a size and an age.
func (b *seeder) snapshot(ctx context.Context, volume, name string, o inventory.Owner, age time.Duration) (Resource,
	error) {
	out, err := ec2.NewFromConfig(b.Config(east)).CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: &volume,
		TagSpecifications: tagSpec(ec2types.ResourceTypeSnapshot, tags(o, name))})
	if err != nil {
		return Resource{}, fmt.Errorf("snapshot %s: %w", name, err)
	}
	b.age("ec2", "snapshotId", *out.SnapshotId, b.ago(age), "startTime")
	return b.record(inventory.KindSnapshot, *out.SnapshotId, east, o), nil
}

func (b *seeder) snapshots(ctx context.Context) error {
	api := ec2.NewFromConfig(b.Config(east))
	// The disk of the first one no longer exists; moto requires it for the copy.
	gone, err := api.CreateVolume(ctx, &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String(east + "a"), Size: aws.Int32(300),
		VolumeType: ec2types.VolumeTypeGp3})
	if err != nil {
		return err
	}
	alone, err := b.snapshot(ctx, *gone.VolumeId, "detector-2025", ana, days(200))
	if err != nil {
		return err
	}
	if _, err := api.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: gone.VolumeId}); err != nil {
		return err
	}
	b.plant(alone, "snapshot-old", Planted{
		SavingsUSD: cost(term{"300", "snapshot"}), Note: "the only one of its disk",
	})

	disk, err := b.volume(ctx, east, "tokenizer-corpus", bo, days(150), ec2.CreateVolumeInput{
		Size: aws.Int32(400), VolumeType: ec2types.VolumeTypeGp3,
	},
		inventory.TagKeepUntil, b.now.Add(days(90)).Format(time.DateOnly))
	if err != nil {
		return err
	}
	first, err := b.snapshot(ctx, disk.ID, "corpus-1", bo, days(120))
	if err != nil {
		return err
	}
	b.plant(first, "snapshot-old", Planted{Unknown: true, UpperBoundUSD: cost(term{"400", "snapshot"}),
		Note: "a later one of the same disk builds on it"})
	later, err := b.snapshot(ctx, disk.ID, "corpus-2", bo, days(5))
	if err != nil {
		return err
	}
	b.innocent(later, "five days old", "snapshot-old")
	return nil
}

// image registers an image whose disk has a size.
func (b *seeder) image(ctx context.Context, name string, o inventory.Owner, age time.Duration, gib int, disabled bool,
	launched time.Time) (image, snapshot Resource, err error) {
	api := ec2.NewFromConfig(b.Config(east))
	out, err := api.RegisterImage(ctx, &ec2.RegisterImageInput{
		Name: aws.String(name), RootDeviceName: aws.String("/dev/sda1"),
		Architecture: ec2types.ArchitectureValuesX8664, VirtualizationType: aws.String("hvm")})
	if err != nil {
		return Resource{}, Resource{}, fmt.Errorf("register %s: %w", name, err)
	}
	all, err := api.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{*out.ImageId}})
	if err != nil {
		return Resource{}, Resource{}, fmt.Errorf("read %s: %w", name, err)
	}
	if len(all.Images) != 1 || len(all.Images[0].BlockDeviceMappings) != 1 {
		return Resource{}, Resource{}, fmt.Errorf("read %s: no single disk", name)
	}
	snap := *all.Images[0].BlockDeviceMappings[0].Ebs.SnapshotId
	if _, err := api.CreateTags(ctx, &ec2.CreateTagsInput{
		Resources: []string{*out.ImageId, snap}, Tags: ec2Tags(tags(o, name)),
	}); err != nil {
		return Resource{}, Resource{}, fmt.Errorf("tag %s: %w", name, err)
	}
	set := map[string]any{"creationDate": b.ago(age)}
	if disabled {
		set["imageState"] = "disabled"
	}
	p := wire.Patch{Service: "ec2", Operation: "DescribeImages", IDField: "imageId", ID: *out.ImageId, Set: set}
	if !launched.IsZero() {
		p.Add = map[string]any{"lastLaunchedTime": launched}
	}
	b.Wire.Patch(p)
	b.Wire.Patch(wire.Patch{Service: "ec2", IDField: "snapshotId", ID: snap,
		Set: map[string]any{"startTime": b.ago(age), "volumeSize": gib}})
	return b.record(inventory.KindImage, *out.ImageId, east, o), b.record(inventory.KindSnapshot, snap, east, o), nil
}

func (b *seeder) images(ctx context.Context) error {
	img, snap, err := b.image(ctx, "detector-cuda11", ana, days(200), 80, false, b.ago(days(180)))
	if err != nil {
		return err
	}
	b.plant(img, "image-unused", Planted{
		SavingsUSD: cost(term{"80", "snapshot"}), Note: "its disk is a snapshot of 80 GiB",
	})
	b.innocent(snap, "an image needs it", "snapshot-old")

	if _, snap, err = b.image(ctx, "assistant-release-1", dana, days(400), 60, true, b.ago(days(20))); err != nil {
		return err
	}
	b.innocent(snap, "a disabled image needs it", "snapshot-old")

	img, snap, err = b.image(ctx, "feed-base", chen, days(300), 100, false, b.ago(days(2)))
	if err != nil {
		return err
	}
	b.innocent(img, "launched two days ago", "image-unused")
	b.innocent(snap, "an image needs it", "snapshot-old")
	return nil
}
