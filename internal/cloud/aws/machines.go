package aws

import (
	"context"
	"maps"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// typesPage is the maximum number of machine types per call.
const typesPage = 100

// describeTypes sets the size of machines from EC2's description of their types, or from the
// options if that cannot be read.
func (p *place) describeTypes(ctx context.Context, machines []*inventory.Resource) {
	var names []string
	for _, r := range machines {
		names = append(names, r.Type)
	}
	slices.Sort(names)
	sizes := map[string]inventory.Size{}
	for some := range slices.Chunk(slices.Compact(names), typesPage) {
		// Requested by name, a type that EC2 no longer knows would fail the call.
		byName := []types.Filter{{Name: awssdk.String("instance-type"), Values: some}}
		err := pages(ctx, func(token *string) (*string, error) {
			out, err := ec2Client(p.reading).DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{
				Filters:    byName,
				MaxResults: awssdk.Int32(typesPage),
				NextToken:  token,
			})
			if err != nil {
				return nil, err
			}
			for _, t := range out.InstanceTypes {
				sizes[string(t.InstanceType)] = describedSize(t)
			}
			return out.NextToken, nil
		})
		if err != nil {
			p.failed(ctx, "ec2:DescribeInstanceTypes", err)
			break
		}
	}
	for _, r := range machines {
		size, described := sizes[r.Type]
		if !described {
			size = p.scan.cloud.size(r.Type)
		}
		r.Size = size
	}
}

// describeSpot marks spot machines with one-time requests, which cannot be stopped. Machines that
// EC2 does not describe stay unknown.
func (p *place) describeSpot(ctx context.Context, requests map[string]*inventory.Instance) {
	for some := range slices.Chunk(slices.Sorted(maps.Keys(requests)), filterValues) {
		byID := []types.Filter{{Name: awssdk.String("spot-instance-request-id"), Values: some}}
		err := pages(ctx, func(token *string) (*string, error) {
			out, err := ec2Client(p.reading).DescribeSpotInstanceRequests(ctx, &ec2.DescribeSpotInstanceRequestsInput{
				Filters:   byID,
				NextToken: token,
			})
			if err != nil {
				return nil, err
			}
			for _, r := range out.SpotInstanceRequests {
				if in := requests[awssdk.ToString(r.SpotInstanceRequestId)]; in != nil && r.Type != "" {
					in.SpotOnce = inventory.Known(r.Type == types.SpotInstanceTypeOneTime)
				}
			}
			return out.NextToken, nil
		})
		if err != nil {
			p.failed(ctx, "ec2:DescribeSpotInstanceRequests", err)
			return
		}
	}
}

// describeDisks sets the sizes of disks that are deleted with machines, if volumes are not listed
// separately. Unreadable sizes stay unknown.
func (p *place) describeDisks(ctx context.Context, machines []*inventory.Resource) {
	disks := map[string]*inventory.Disk{}
	for _, r := range machines {
		in := r.Detail.(*inventory.Instance)
		for i := range in.Disks {
			if in.Disks[i].DeleteOnTermination {
				disks[in.Disks[i].VolumeID] = &in.Disks[i]
			}
		}
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(disks)), filterValues) {
		out, err := ec2Client(p.reading).DescribeVolumes(ctx, &ec2.DescribeVolumesInput{
			Filters: []types.Filter{{Name: awssdk.String("volume-id"), Values: some}},
		})
		if err != nil {
			return // the size in the warning is then missing
		}
		for _, v := range out.Volumes {
			if d := disks[awssdk.ToString(v.VolumeId)]; d != nil && v.Size != nil {
				d.SizeGiB = inventory.Known(int64(*v.Size))
			}
		}
	}
}

// describedSize converts the description of a machine type. Without accelerators in it the machine
// has none.
func describedSize(t types.InstanceTypeInfo) inventory.Size {
	devices, name, memory := 0, "", int32(0)
	add := func(count *int32, of *string, mib *int32) {
		devices += max(1, int(awssdk.ToInt32(count))) // a part of a device is listed as zero
		name, memory = awssdk.ToString(of), awssdk.ToInt32(mib)
	}
	if g := t.GpuInfo; g != nil {
		for _, d := range g.Gpus {
			if d.MemoryInfo == nil {
				d.MemoryInfo = &types.GpuDeviceMemoryInfo{}
			}
			add(d.Count, d.Name, d.MemoryInfo.SizeInMiB)
		}
	}
	switch n, a := t.NeuronInfo, t.InferenceAcceleratorInfo; {
	case n != nil:
		for _, d := range n.NeuronDevices {
			if d.MemoryInfo == nil {
				d.MemoryInfo = &types.NeuronDeviceMemoryInfo{}
			}
			add(d.Count, d.Name, d.MemoryInfo.SizeInMiB)
		}
	case a != nil: // lists the same devices as NeuronInfo if both are present
		for _, d := range a.Accelerators {
			if d.MemoryInfo == nil {
				d.MemoryInfo = &types.InferenceDeviceMemoryInfo{}
			}
			add(d.Count, d.Name, d.MemoryInfo.SizeInMiB)
		}
	}
	if f := t.FpgaInfo; f != nil {
		for _, d := range f.Fpgas {
			add(d.Count, d.Name, nil)
		}
	}
	if m := t.MediaAcceleratorInfo; m != nil {
		for _, d := range m.Accelerators {
			add(d.Count, d.Name, nil)
		}
	}
	s := inventory.Size{GPUs: inventory.Known(devices), GPU: name}
	if memory > 0 {
		s.GPUMemory = inventory.Known(int64(memory) << 20)
	}
	if v := t.VCpuInfo; v != nil && v.DefaultVCpus != nil {
		s.MilliCPUs = inventory.Known(int64(*v.DefaultVCpus) * 1000)
	}
	if m := t.MemoryInfo; m != nil {
		s.MemoryMiB = known(m.SizeInMiB)
	}
	switch d := t.InstanceStorageInfo; {
	case d != nil:
		s.InstanceStorageGB = known(d.TotalSizeInGB)
		disks := 0
		for _, x := range d.Disks {
			disks += int(awssdk.ToInt32(x.Count))
		}
		if disks > 0 {
			s.InstanceDisks = inventory.Known(disks)
		}
	case t.InstanceStorageSupported != nil && !*t.InstanceStorageSupported:
		s.InstanceStorageGB = inventory.Known(int64(0))
	}
	return s
}

// managers maps tags to the manager that sets them; a tag ending in a colon, slash or dash is a
// prefix.
var managers = []struct{ tag, kind string }{
	{groupTag, inventory.ManagerAutoScaling},
	{"aws:ec2:fleet-id", inventory.ManagerFleet},
	{"aws:ec2spot:fleet-request-id", inventory.ManagerSpotFleet},
	{"aws:elasticmapreduce:", inventory.ManagerEMR},
	{"aws:eks:", inventory.ManagerEKS},
	{"eks:", inventory.ManagerEKS},
	{"kubernetes.io/cluster/", inventory.ManagerKubernetes},
	{"KubernetesCluster", inventory.ManagerKubernetes},
	{"kubernetes.io/created-for/", inventory.ManagerKubernetes},
	{"ebs.csi.aws.com/cluster", inventory.ManagerKubernetes},
	{"CSIVolumeName", inventory.ManagerKubernetes},
	{"karpenter.sh/", inventory.ManagerKarpenter},
	{"aws:ecs:", inventory.ManagerECS},
	{"AmazonECSManaged", inventory.ManagerECS},
	{"AWSBatchServiceTag", inventory.ManagerBatch},
}

// claimTags are tags of volumes for Kubernetes claims (AWS EBS CSI driver, "Volume tagging"; the
// in-tree provisioner wrote the first).
var claimTags = []string{"kubernetes.io/created-for/", "ebs.csi.aws.com/cluster", "CSIVolumeName"}

// claimOf returns the Kubernetes claim of a volume or, if its tags have no more, its persistent
// volume.
func claimOf(tags map[string]string) string {
	const prefix = "kubernetes.io/created-for/"
	if name := tags[prefix+"pvc/name"]; name != "" {
		return firstOf(tags[prefix+"pvc/namespace"], "default") + "/" + name
	}
	return firstOf(tags[prefix+"pv/name"], tags["CSIVolumeName"])
}

// backupTag is on every snapshot and image of AWS Backup (AWS Backup Developer Guide, "Amazon EC2
// and EBS backups"): only AWS Backup can delete them.
const backupTag = "aws:backup:source-resource"

// backupOf returns AWS Backup as the manager of a snapshot or image, or none.
func backupOf(tags map[string]string) inventory.Manager {
	if _, ok := tags[backupTag]; ok {
		return inventory.Manager{Kind: inventory.ManagerBackup}
	}
	return inventory.Manager{}
}

// managerOf returns the manager of a machine or disk: the service that operates it, or the first
// manager whose tag it has.
func managerOf(operator *types.OperatorResponse, tags []types.Tag) inventory.Manager {
	if operator != nil && awssdk.ToBool(operator.Managed) {
		return inventory.Manager{Kind: inventory.ManagerService, Name: awssdk.ToString(operator.Principal)}
	}
	for _, m := range managers {
		for _, t := range tags {
			rest, ok := strings.CutPrefix(awssdk.ToString(t.Key), m.tag)
			switch prefix := strings.ContainsAny(m.tag[len(m.tag)-1:], ":/-"); {
			case !ok || rest != "" && !prefix:
			case m.tag == "kubernetes.io/cluster/":
				return inventory.Manager{Kind: m.kind, Name: rest}
			case slices.Contains(claimTags, m.tag): // its value is not the name of a cluster
				return inventory.Manager{Kind: m.kind}
			default:
				return inventory.Manager{Kind: m.kind, Name: awssdk.ToString(t.Value)}
			}
		}
	}
	return inventory.Manager{}
}
