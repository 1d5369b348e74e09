package aws_test

import (
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// listed returns what the scratch account has of some kinds, by its id, with the blind spots.
func listed(t *testing.T, kinds ...inventory.Kind) (map[string]*inventory.Resource, []inventory.BlindSpot) {
	t.Helper()
	c, err := aws.New(t.Context(), aws.Options{Regions: []string{"us-east-1"}, RequestsPerSecond: 10_000, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	asked := map[inventory.Kind]bool{}
	for _, k := range kinds {
		asked[k] = true
	}
	o, err := c.List(t.Context(), round.Query{Now: time.Now().UTC(), Kinds: asked})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*inventory.Resource{}
	for _, r := range o.Resources {
		out[r.ID] = r
	}
	return out, o.BlindSpots
}

// TestManagersOfDisks: volumes that Kubernetes made for claims and snapshots that AWS Backup made
// say so by their tags.
func TestManagersOfDisks(t *testing.T) {
	environOf(t, scratch)
	api := ec2.NewFromConfig(scratch.Config("us-east-1"))
	volume := func(tags ...string) *string {
		t.Helper()
		out, err := api.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: awssdk.String("us-east-1a"), Size: awssdk.Int32(8),
			TagSpecifications: tagged(ec2types.ResourceTypeVolume, tags)})
		if err != nil {
			t.Fatal(err)
		}
		return out.VolumeId
	}
	snapshot := func(of *string, tags ...string) *string {
		t.Helper()
		out, err := api.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{VolumeId: of, TagSpecifications: tagged(ec2types.ResourceTypeSnapshot, tags)})
		if err != nil {
			t.Fatal(err)
		}
		return out.SnapshotId
	}
	plain := volume("Name", "mine")
	claim := volume("kubernetes.io/created-for/pvc/name", "data-db-0", "kubernetes.io/created-for/pvc/namespace", "ml", "ebs.csi.aws.com/cluster", "true")
	bare := volume("CSIVolumeName", "pvc-17", "kubernetes.io/cluster/prod", "owned")
	own, backup := snapshot(plain, "Name", "mine"), snapshot(plain, "aws:backup:source-resource", "arn:aws:ec2:us-east-1:123456789012:volume/vol-1")
	got, _ := listed(t, inventory.KindVolume, inventory.KindSnapshot)
	for _, want := range []struct {
		id      *string
		manager inventory.Manager
		claim   string
	}{
		{plain, inventory.Manager{}, ""},
		{claim, inventory.Manager{Kind: inventory.ManagerKubernetes}, "ml/data-db-0"},
		{bare, inventory.Manager{Kind: inventory.ManagerKubernetes, Name: "prod"}, "pvc-17"},
		{own, inventory.Manager{}, ""},
		{backup, inventory.Manager{Kind: inventory.ManagerBackup}, ""},
	} {
		r := got[*want.id]
		if r == nil {
			t.Fatalf("%s was not listed", *want.id)
		}
		of := ""
		if v, ok := r.Detail.(*inventory.Volume); ok {
			of = v.Claim
		}
		if r.Manager != want.manager || of != want.claim {
			t.Errorf("%s with tags %v: manager %v, claim %q; want %v, %q", r.ID, r.Tags, r.Manager, of, want.manager, want.claim)
		}
	}
}

// tagged gives a new resource tags, which are named in pairs.
func tagged(of ec2types.ResourceType, pairs []string) []ec2types.TagSpecification {
	spec := ec2types.TagSpecification{ResourceType: of}
	for i := 0; i < len(pairs); i += 2 {
		spec.Tags = append(spec.Tags, ec2types.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}
	return []ec2types.TagSpecification{spec}
}
