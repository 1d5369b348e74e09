package aws

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// actionTag marks the resources created by an action with its key, because EC2 snapshots have no
// idempotency token.
const actionTag = "curfew:action"

// sourceTag is the tag with a snapshot's source.
const sourceTag = "curfew:source"

// maxTags is the maximum number of tags of a resource (EC2 User Guide, "Tag restrictions").
const maxTags = 50

// snapshotParams are the volumes to save.
type snapshotParams struct {
	Volumes []string `json:"volumes"`
}

// planVolume saves and deletes an unattached volume.
func planVolume(ctx context.Context, s *site, r *inventory.Resource, _ policy.Do) ([]action.Step, error) {
	v, err := s.volumeNow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(v.CreateTime)); err != nil {
		return nil, err
	}
	if err := free(v); err != nil {
		return nil, err
	}
	params := encoded(snapshotParams{Volumes: []string{r.ID}})
	return []action.Step{{Name: stepSnapshot, Params: params}, {Name: stepDeleteVolume, Params: params}}, nil
}

// volumeNow reads a volume; inventory.ErrNotFound if it does not exist.
func (p *place) volumeNow(ctx context.Context, id string) (types.Volume, error) {
	attempt := "read volume " + id
	out, err := ec2Client(p.reading).DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	if err != nil {
		return types.Volume{}, failed(attempt, err)
	}
	for _, v := range out.Volumes {
		if awssdk.ToString(v.VolumeId) == id {
			return v, nil
		}
	}
	return types.Volume{}, unclear(attempt)
}

// free refuses a volume in use or managed by something else.
func free(v types.Volume) error {
	id := awssdk.ToString(v.VolumeId)
	if err := unmanaged("volume", id, v.Operator, v.Tags); err != nil {
		return err
	}
	for _, a := range v.Attachments {
		if a.State != types.VolumeAttachmentStateDetached {
			return refusal("in-use", "volume %s is attached to %s", id,
				firstOf(awssdk.ToString(a.InstanceId), "something"))
		}
	}
	switch v.State {
	case types.VolumeStateAvailable, types.VolumeStateError:
		return nil
	case types.VolumeStateDeleting, types.VolumeStateDeleted:
		return refusal("gone", "volume %s is %s", id, v.State)
	}
	return refusal("in-use", "volume %s is %s, not available", id, firstOf(string(v.State), "in an unknown state"))
}

func snapshotVolume(ctx context.Context, s *site, t action.Task) (string, error) {
	if found, err := s.made(ctx, t.Step.Key); err != nil || len(found) > 0 {
		return receipts(found), err
	}
	v, err := s.volumeNow(ctx, t.Ref.ID)
	if err != nil {
		return "", err
	}
	if err := identical(t, utc(v.CreateTime)); err != nil {
		return "", err
	}
	if err := free(v); err != nil {
		return "", err
	}
	out, err := ec2Client(s.acting).CreateSnapshot(ctx, &ec2.CreateSnapshotInput{
		VolumeId: v.VolumeId, Description: awssdk.String("curfew: before deleting " + t.Ref.ID),
		TagSpecifications: snapshotTags(t, v.Tags)}, savedOnce)
	if err != nil {
		return "", failed("save volume "+t.Ref.ID, err)
	}
	return awssdk.ToString(out.SnapshotId), nil
}

// savedOnce prevents retries of a snapshot call.
func savedOnce(o *ec2.Options) { o.Retryer = once{o.Retryer} }

// snapshotMachine saves the disks that are deleted with a machine, at one point in time.
func snapshotMachine(ctx context.Context, s *site, t action.Task) (string, error) {
	if found, err := s.made(ctx, t.Step.Key); err != nil || len(found) > 0 {
		return receipts(found), err
	}
	params, err := decoded[snapshotParams](t, t.Step.Params)
	if err != nil {
		return "", err
	}
	i, err := s.meant(ctx, t)
	if err != nil {
		return "", err
	}
	disks := deleted(i)
	if !slices.Equal(disks, params.Volumes) {
		return "", refusal("changed", "other disks end with machine %s than when this was planned: %s", t.Ref.ID,
			strings.Join(disks, ", "))
	}
	of := &types.InstanceSpecification{InstanceId: &t.Ref.ID}
	for _, m := range i.BlockDeviceMappings {
		switch id := blockID(m); {
		case id == "" || slices.Contains(disks, id):
		case awssdk.ToString(m.DeviceName) == awssdk.ToString(i.RootDeviceName):
			of.ExcludeBootVolume = awssdk.Bool(true)
		default:
			of.ExcludeDataVolumeIds = append(of.ExcludeDataVolumeIds, id)
		}
	}
	out, err := ec2Client(s.acting).CreateSnapshots(ctx, &ec2.CreateSnapshotsInput{InstanceSpecification: of,
		Description:       awssdk.String("curfew: before terminating " + t.Ref.ID),
		TagSpecifications: snapshotTags(t, i.Tags)},
		savedOnce)
	if err != nil {
		return "", failed("save the disks of machine "+t.Ref.ID, err)
	}
	ids := make([]string, len(out.Snapshots))
	for n, x := range out.Snapshots {
		ids[n] = awssdk.ToString(x.SnapshotId)
	}
	slices.Sort(ids)
	return strings.Join(ids, ","), nil
}

func blockID(m types.InstanceBlockDeviceMapping) string {
	if m.Ebs == nil {
		return ""
	}
	return awssdk.ToString(m.Ebs.VolumeId)
}

// snapshotTags returns the owner tags of a snapshot's source, its creator, and the tag that keeps
// it.
func snapshotTags(t action.Task, of []types.Tag) []types.TagSpecification {
	own := map[string]string{
		actionTag: t.Step.Key, sourceTag: t.Ref.ID, inventory.TagLifetime: string(inventory.Persistent),
	}
	inherited := ec2Tags(of)
	for _, k := range slices.Sorted(maps.Keys(inherited)) {
		if len(own) < maxTags && !strings.HasPrefix(k, "aws:") && !strings.HasPrefix(k, "curfew:") {
			own[k] = inherited[k]
		}
	}
	return []types.TagSpecification{{ResourceType: types.ResourceTypeSnapshot, Tags: toEC2(own)}}
}

func toEC2(tags map[string]string) []types.Tag {
	return pairs(tags, func(k, v *string) types.Tag { return types.Tag{Key: k, Value: v} })
}

// made returns the snapshots created with a key.
func (p *place) made(ctx context.Context, key string) ([]types.Snapshot, error) {
	var found []types.Snapshot
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(p.reading).DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{
			OwnerIds: []string{"self"}, NextToken: token,
			Filters: []types.Filter{{Name: awssdk.String("tag:" + actionTag), Values: []string{key}}}})
		if err != nil {
			return nil, err
		}
		found = append(found, out.Snapshots...)
		return out.NextToken, nil
	})
	if err != nil {
		return nil, failed("look for the snapshots of "+key, err)
	}
	return found, nil
}

func receipts(found []types.Snapshot) string {
	ids := make([]string, len(found))
	for i, s := range found {
		ids[i] = awssdk.ToString(s.SnapshotId)
	}
	slices.Sort(ids)
	return strings.Join(ids, ",")
}

// lookSnapshots is complete once every volume has a completed snapshot.
func lookSnapshots(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	params, err := decoded[snapshotParams](t, t.Step.Params)
	if err != nil {
		return action.NotDone, "", err
	}
	found, err := s.made(ctx, t.Step.Key)
	if err != nil || len(found) == 0 {
		return action.NotDone, "", err
	}
	completed := map[string]bool{}
	broken := false
	for _, x := range found {
		switch x.State {
		case types.SnapshotStateCompleted:
			completed[awssdk.ToString(x.VolumeId)] = true
		case types.SnapshotStateError:
			broken = true
		}
	}
	for _, id := range params.Volumes {
		if !completed[id] {
			if broken {
				return action.Impossible, receipts(found), nil
			}
			return action.InProgress, receipts(found), nil
		}
	}
	return action.Complete, receipts(found), nil
}

// saved refuses to continue unless every disk has a completed snapshot from an earlier step.
func (s *site) saved(ctx context.Context, t action.Task, disks []string) error {
	step, ok := earlier(t, stepSnapshot)
	if !ok {
		return refusal("unsaved-disk", "no step before saved %s", strings.Join(disks, ", "))
	}
	asked := t
	asked.Step = step
	asked.Step.Params = encoded(snapshotParams{Volumes: disks})
	switch p, _, err := lookSnapshots(ctx, s, asked); {
	case err != nil:
		return err
	case p != action.Complete:
		return refusal("unsaved-disk", "not all of %s are saved: their snapshots are %s", strings.Join(disks, ", "), p)
	}
	return nil
}

// deleteVolume deletes a volume that is still unattached and has a completed snapshot.
func deleteVolume(ctx context.Context, s *site, t action.Task) (string, error) {
	v, err := s.volumeNow(ctx, t.Ref.ID)
	if err != nil {
		return "", err
	}
	if err := identical(t, utc(v.CreateTime)); err != nil {
		return "", err
	}
	if v.State == types.VolumeStateDeleting || v.State == types.VolumeStateDeleted {
		return string(v.State), nil
	}
	if err := free(v); err != nil {
		return "", err
	}
	if err := s.saved(ctx, t, []string{t.Ref.ID}); err != nil {
		return "", err
	}
	_, err = ec2Client(s.acting).DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &t.Ref.ID})
	return "", failed("delete volume "+t.Ref.ID, err)
}

func lookVolumeGone(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	v, err := twice(ctx, func() (types.Volume, error) { return s.volumeNow(ctx, t.Ref.ID) })
	switch {
	case errors.Is(err, inventory.ErrNotFound):
		return action.Complete, "", nil
	case err != nil:
		return action.NotDone, "", err
	}
	if err := identical(t, utc(v.CreateTime)); err != nil {
		return action.NotDone, "", err
	}
	switch v.State {
	case types.VolumeStateDeleted:
		return action.Complete, string(v.State), nil
	case types.VolumeStateDeleting:
		return action.InProgress, string(v.State), nil
	}
	return action.NotDone, "", nil
}
