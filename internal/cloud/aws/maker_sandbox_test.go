package aws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	smtypes "github.com/aws/aws-sdk-go-v2/service/sagemaker/types"

	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

// elsewhere is the region of resources to act on.
const elsewhere = "us-east-2"

// maker makes resources to act on.
type maker struct {
	testing.TB
	n int
}

// name returns a unique name.
func (m *maker) name() string {
	m.n++
	return strings.ToLower(strings.NewReplacer("/", "-", "_", "-", "'",
		"").Replace(fmt.Sprintf("%.30s-%d-%d", m.TB.Name()[len("TestAct"):], m.n, time.Now().UnixNano()%1e6)))
}

func (m *maker) ref(kind inventory.Kind, id *string) inventory.Ref {
	return inventory.Ref{Cloud: "aws", Account: wire.DefaultAccount, Region: elsewhere, Kind: kind, ID: *id}
}

func (m *maker) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *maker) ec2() *ec2.Client { return ec2.NewFromConfig(scratch.Config(elsewhere)) }

// launch starts a machine with one disk that is deleted with it.
func (m *maker) launch(machineType string, change func(*ec2.RunInstancesInput)) inventory.Ref {
	in := &ec2.RunInstancesInput{
		ImageId: awssdk.String("ami-0000000000000base"), MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1),
		InstanceType: ec2types.InstanceType(machineType),
		BlockDeviceMappings: []ec2types.BlockDeviceMapping{
			{
				DeviceName: awssdk.String("/dev/sda1"),
				Ebs: &ec2types.EbsBlockDevice{
					VolumeSize: awssdk.Int32(10), DeleteOnTermination: awssdk.Bool(true),
				},
			},
		},
		TagSpecifications: []ec2types.TagSpecification{
			{
				ResourceType: ec2types.ResourceTypeInstance,
				Tags:         []ec2types.Tag{{Key: awssdk.String("team"), Value: awssdk.String("vision")}},
			},
		}}
	if change != nil {
		change(in)
	}
	out, err := m.ec2().RunInstances(m.Context(), in)
	m.must(err)
	return m.ref(inventory.KindInstance, out.Instances[0].InstanceId)
}

// disk returns the disk of a machine.
func (m *maker) disk(machine inventory.Ref) inventory.Ref {
	out, err := m.ec2().DescribeVolumes(m.Context(), &ec2.DescribeVolumesInput{
		Filters: []ec2types.Filter{{Name: awssdk.String("attachment.instance-id"), Values: []string{machine.ID}}},
	})
	m.must(err)
	return m.ref(inventory.KindVolume, out.Volumes[0].VolumeId)
}

// group creates a group of n machines with a minimum of one, each with a disk that is deleted with
// it.
func (m *maker) group(n int32) inventory.Ref {
	api, name := autoscaling.NewFromConfig(scratch.Config(elsewhere)), m.name()
	_, err := api.CreateLaunchConfiguration(m.Context(), &autoscaling.CreateLaunchConfigurationInput{
		LaunchConfigurationName: &name,
		ImageId:                 awssdk.String("ami-0000000000000base"), InstanceType: awssdk.String("c5.xlarge"),
		BlockDeviceMappings: []astypes.BlockDeviceMapping{
			{
				DeviceName: awssdk.String("/dev/sda1"),
				Ebs:        &astypes.Ebs{VolumeSize: awssdk.Int32(10), DeleteOnTermination: awssdk.Bool(true)},
			},
		}})
	m.must(err)
	_, err = api.CreateAutoScalingGroup(m.Context(), &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: &name, LaunchConfigurationName: &name,
		MinSize: awssdk.Int32(1), MaxSize: &n, DesiredCapacity: &n, AvailabilityZones: []string{elsewhere + "a"}})
	m.must(err)
	return m.ref(inventory.KindAutoScalingGroup, &name)
}

// grouped creates a group of n machines and returns the first.
func (m *maker) grouped(n int32) inventory.Ref {
	api, name := autoscaling.NewFromConfig(scratch.Config(elsewhere)), m.group(n).ID
	out, err := api.DescribeAutoScalingGroups(m.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{name},
	})
	m.must(err)
	return m.ref(inventory.KindInstance, out.AutoScalingGroups[0].Instances[0].InstanceId)
}

// formerLifecycle is the lifecycle of the buckets: a rule with fields unknown to curfew, in a
// format that curfew never writes.
const formerLifecycle = `<?xml version="1.0" encoding="UTF-8"?>
<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Rule><ID>logs &amp; all</ID><Filter><And><Prefix>logs/</Prefix><ObjectSizeGreaterThan>131072</ObjectSizeGreaterThan></And></Filter>
    <Status>Enabled</Status><Expiration><Days>365</Days></Expiration>
    <NoncurrentVersionExpiration><NoncurrentDays>9</NoncurrentDays><NewerNoncurrentVersions>3</NewerNoncurrentVersions></NoncurrentVersionExpiration></Rule>
</LifecycleConfiguration>`

// bucket creates a versioned bucket, with a lifecycle if there is a document.
func (m *maker) bucket(document string) inventory.Ref {
	api, name := s3.NewFromConfig(scratch.Config(elsewhere), func(o *s3.Options) { o.UsePathStyle = true }), m.name()
	_, err := api.CreateBucket(m.Context(), &s3.CreateBucketInput{
		Bucket: &name, CreateBucketConfiguration: &s3types.CreateBucketConfiguration{LocationConstraint: elsewhere},
	})
	m.must(err)
	_, err = api.PutBucketVersioning(m.Context(), &s3.PutBucketVersioningInput{
		Bucket:                  &name,
		VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled},
	})
	m.must(err)
	if document != "" {
		scratch.Wire.State.PutLifecycle(wire.DefaultAccount, name, document, "varies_by_storage_class")
	}
	return m.ref(inventory.KindBucket, &name)
}

func (m *maker) notebook() inventory.Ref {
	name := m.name()
	_, err := sagemaker.NewFromConfig(scratch.Config(elsewhere)).CreateNotebookInstance(m.Context(),
		&sagemaker.CreateNotebookInstanceInput{NotebookInstanceName: &name,
			InstanceType: smtypes.InstanceTypeMlT3Medium,
			RoleArn:      awssdk.String("arn:aws:iam::123456789012:role/sagemaker")})
	m.must(err)
	return m.ref(inventory.KindNotebook, &name)
}

func (m *maker) endpoint(machines int32) inventory.Ref {
	api, name := sagemaker.NewFromConfig(scratch.Config(elsewhere)), m.name()
	_, err := api.CreateModel(m.Context(), &sagemaker.CreateModelInput{
		ModelName: &name, ExecutionRoleArn: awssdk.String("arn:aws:iam::123456789012:role/sagemaker"),
	})
	m.must(err)
	_, err = api.CreateEndpointConfig(m.Context(), &sagemaker.CreateEndpointConfigInput{
		EndpointConfigName: &name, ProductionVariants: []smtypes.ProductionVariant{{
			VariantName: awssdk.String("main"), ModelName: &name, InstanceType: "ml.g4dn.xlarge",
			InitialInstanceCount: &machines}}})
	m.must(err)
	_, err = api.CreateEndpoint(m.Context(), &sagemaker.CreateEndpointInput{
		EndpointName: &name, EndpointConfigName: &name,
	})
	m.must(err)
	return m.ref(inventory.KindEndpoint, &name)
}

// trainingJob creates a running job; moto completes it at once.
func (m *maker) trainingJob() inventory.Ref {
	name := m.name()
	_, err := sagemaker.NewFromConfig(scratch.Config(elsewhere)).CreateTrainingJob(m.Context(),
		&sagemaker.CreateTrainingJobInput{TrainingJobName: &name,
			RoleArn: awssdk.String("arn:aws:iam::123456789012:role/sagemaker"),
			AlgorithmSpecification: &smtypes.AlgorithmSpecification{
				TrainingInputMode: smtypes.TrainingInputModeFile, TrainingImage: awssdk.String("trainer:1"),
			},
			OutputDataConfig: &smtypes.OutputDataConfig{S3OutputPath: awssdk.String("s3://results/")},
			ResourceConfig: &smtypes.ResourceConfig{
				InstanceType: "ml.g4dn.xlarge", InstanceCount: awssdk.Int32(1), VolumeSizeInGB: awssdk.Int32(50),
			},
			StoppingCondition: &smtypes.StoppingCondition{MaxRuntimeInSeconds: awssdk.Int32(3600)}})
	m.must(err)
	scratch.Wire.Patch(wire.Patch{
		Service: "sagemaker", IDField: "TrainingJobName", ID: name, Set: map[string]any{
			"TrainingJobStatus": "InProgress", "SecondaryStatus": "Training",
		},
		Remove: []string{"TrainingEndTime", "ModelArtifacts"}})
	return m.ref(inventory.KindTrainingJob, &name)
}

func (m *maker) make(s cloudtest.Subject) inventory.Ref {
	m.Helper()
	switch s {
	case cloudtest.Machine:
		return m.launch("t3.medium", nil)
	case cloudtest.Protected:
		return m.launch("t3.medium", func(in *ec2.RunInstancesInput) { in.DisableApiTermination = awssdk.Bool(true) })
	case cloudtest.Local:
		return m.launch("g5.xlarge", nil)
	case cloudtest.Grouped:
		return m.grouped(1)
	case cloudtest.Group:
		return m.group(3)
	case cloudtest.Member:
		return m.grouped(3)
	case cloudtest.Attached:
		return m.disk(m.launch("t3.medium", nil))
	case cloudtest.Volume:
		out, err := m.ec2().CreateVolume(m.Context(), &ec2.CreateVolumeInput{
			AvailabilityZone: awssdk.String(elsewhere + "a"), Size: awssdk.Int32(10),
		})
		m.must(err)
		return m.ref(inventory.KindVolume, out.VolumeId)
	case cloudtest.Address:
		out, err := m.ec2().AllocateAddress(m.Context(), &ec2.AllocateAddressInput{Domain: ec2types.DomainTypeVpc})
		m.must(err)
		return m.ref(inventory.KindAddress, out.AllocationId)
	case cloudtest.LogGroup:
		name := "/" + m.name()
		_, err := cloudwatchlogs.NewFromConfig(scratch.Config(elsewhere)).CreateLogGroup(m.Context(),
			&cloudwatchlogs.CreateLogGroupInput{LogGroupName: &name})
		m.must(err)
		return m.ref(inventory.KindLogGroup, &name)
	case cloudtest.Bucket:
		return m.bucket(formerLifecycle)
	case cloudtest.Repository:
		name := m.name()
		_, err := ecr.NewFromConfig(scratch.Config(elsewhere)).CreateRepository(m.Context(),
			&ecr.CreateRepositoryInput{RepositoryName: &name})
		m.must(err)
		return m.ref(inventory.KindRepository, &name)
	case cloudtest.Notebook:
		return m.notebook()
	case cloudtest.Endpoint:
		return m.endpoint(1)
	case cloudtest.Fleet:
		return m.endpoint(3)
	case cloudtest.TrainingJob:
		return m.trainingJob()
	}
	m.Fatalf("no %s can be made", s)
	return inventory.Ref{}
}
