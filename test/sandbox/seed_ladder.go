package sandbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

// The machines of a [Ladder]. All are on-demand g5g.xlarge of team vision with one GPU
// and without instance-store disks, launched eight hours ago, with curfew:managed=true and
// curfew:lifetime=ephemeral but where it says otherwise; their disks outlive them but
// for Unsaved's. The CloudWatch agent reports their GPUs each minute, EC2 their CPUs and
// networks each five minutes.
const (
	// Idle and Turning do nothing; a test can make Turning busy.
	Idle    = "idle"
	Turning = "turning"
	// Persistent is idle with curfew:lifetime=persistent.
	Persistent = "persistent"
	// Protected is idle with termination protection.
	Protected = "protected"
	// Exempt is idle and exempted by curfew:keep-until for a day.
	Exempt = "exempt"
	// Unmeasured has no agent: the duty of its GPU is unknown.
	Unmeasured = "unmeasured"
	// Stale was idle until 33 minutes ago, when its agent stopped reporting.
	Stale = "stale"
	// Grouped is an idle machine of an Auto Scaling group.
	Grouped = "grouped"
	// Unsaved is idle, and its disk would be deleted with it.
	Unsaved = "unsaved"
	// Busy works.
	Busy = "busy"
)

// Gang is the name of eight machines that work together (curfew:gang), and GangIdle is the one that
// is idle while the others work.
const (
	Gang     = "llama-sft"
	GangIdle = "gang-3"
	gangSize = 8
)

const (
	ladderType  = "g5g.xlarge"
	ladderGPU   = "NVIDIA T4G"
	ladderAge   = 8 * time.Hour
	ladderPast  = 7 * time.Hour // duration of its measurements
	silentSince = 33 * time.Minute
	// ec2Period is the reporting interval of EC2 without detailed monitoring.
	ec2Period = 5 * time.Minute
	// maxData is the maximum number of data in one call of PutMetricData.
	maxData = 500
)

// Activity is the activity of a machine: its CPU and GPU use in percent, the GPU's memory in MiB,
// and network bytes per minute.
type Activity struct{ CPU, GPU, Memory, Network float64 }

// The activities of the machines.
var (
	AtRest = Activity{CPU: 0.8, Memory: 3, Network: 720}
	AtWork = Activity{CPU: 30, GPU: 92, Memory: 12_000, Network: 1e8}
)

// Ladder is an account for tests of the ladder.
type Ladder struct {
	// Region is the region of all machines, Now the time of the seeding, to the minute.
	Region string
	Now    time.Time
	// IDs maps names to machines.
	IDs map[string]string

	sandbox *Sandbox
	now     time.Time // end of the measurements
	work    map[string]Activity
	silent  bool // Stale never reports
}

// Ref returns the reference of a machine by its name.
func (l *Ladder) Ref(name string) inventory.Ref {
	return inventory.Ref{
		Cloud: "aws", Account: wire.DefaultAccount, Region: l.Region, Kind: inventory.KindInstance, ID: l.IDs[name],
	}
}

// SeedLadder creates the machines of a ladder in a region, with measurements of the last hours;
// time continues with [Ladder.Advance].
func (s *Sandbox) SeedLadder(ctx context.Context, region string) (*Ladder, error) {
	now := s.now().UTC().Truncate(time.Minute)
	l := &Ladder{Region: region, Now: now, IDs: map[string]string{}, sandbox: s, now: now, work: map[string]Activity{}}
	names := []string{Idle, Turning, Persistent, Protected, Exempt, Unmeasured, Stale, Unsaved, Busy}
	for i := range gangSize {
		names = append(names, "gang-"+strconv.Itoa(i))
	}
	for _, name := range names {
		if err := l.launch(ctx, name); err != nil {
			return nil, fmt.Errorf("seed the machine %s: %w", name, err)
		}
	}
	if err := l.group(ctx); err != nil {
		return nil, fmt.Errorf("seed a group: %w", err)
	}
	for name, id := range l.IDs {
		s.Wire.Patch(wire.Patch{
			Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: id,
			Set: map[string]any{
				"launchTime": now.Add(-ladderAge),
			}, Add: map[string]any{"platformDetails": "Linux/UNIX", "usageOperation": "RunInstances"}})
		l.work[name] = AtRest
		if name == Busy || inGang(name) && name != GangIdle {
			l.work[name] = AtWork
		}
	}
	// The past goes directly into memory, because it is tens of thousands of data.
	for t := now.Add(-ladderPast); t.Before(now); t = t.Add(time.Minute) {
		for _, x := range l.minute(t, now.Add(-silentSince)) {
			s.Wire.Metrics.Put(wire.DefaultAccount, region, x.namespace, x.name, x.dims,
				wire.Datum{Time: t, Sum: x.value, Min: x.value, Max: x.value, Count: 1})
		}
	}
	l.silent = true
	return l, nil
}

// inGang reports whether a machine belongs to the gang: "gang-0" to "gang-7".
func inGang(name string) bool { return strings.HasPrefix(name, "gang-") }

// ladderTags returns a machine's tags.
func (l *Ladder) ladderTags(name string) map[string]string {
	t := tags(ana, name, inventory.TagManaged, "true", inventory.TagLifetime, string(inventory.Ephemeral),
		inventory.TagPurpose, string(inventory.Experimentation))
	switch {
	case name == Persistent:
		t[inventory.TagLifetime] = string(inventory.Persistent)
	case name == Exempt:
		t[inventory.TagKeepUntil] = l.Now.Add(24 * time.Hour).Format(time.RFC3339)
	case inGang(name):
		t[inventory.TagGang] = Gang
	}
	return t
}

func (l *Ladder) launch(ctx context.Context, name string) error {
	api := ec2.NewFromConfig(l.sandbox.Config(l.Region))
	out, err := api.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: aws.String("ami-0000000000000base"), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		InstanceType: ladderType, DisableApiTermination: aws.Bool(name == Protected),
		BlockDeviceMappings: []ec2types.BlockDeviceMapping{
			{DeviceName: aws.String("/dev/sda1"), Ebs: &ec2types.EbsBlockDevice{
				VolumeSize: aws.Int32(100), VolumeType: ec2types.VolumeTypeGp3,
				DeleteOnTermination: aws.Bool(name == Unsaved)}}},
		TagSpecifications: append(tagSpec(ec2types.ResourceTypeInstance, l.ladderTags(name)),
			tagSpec(ec2types.ResourceTypeVolume, tags(ana, name))...)})
	if err != nil {
		return err
	}
	l.IDs[name] = *out.Instances[0].InstanceId
	return nil
}

// group creates an Auto Scaling group of one machine.
func (l *Ladder) group(ctx context.Context) error {
	api, name := autoscaling.NewFromConfig(l.sandbox.Config(l.Region)), aws.String("ladder-workers")
	if _, err := api.CreateLaunchConfiguration(ctx, &autoscaling.CreateLaunchConfigurationInput{
		LaunchConfigurationName: name, ImageId: aws.String("ami-0000000000000base"),
		InstanceType: aws.String(ladderType)}); err != nil {
		return err
	}
	var own []astypes.Tag
	for _, k := range slices.Sorted(maps.Keys(l.ladderTags(Grouped))) {
		own = append(own, astypes.Tag{
			Key: aws.String(k), Value: aws.String(l.ladderTags(Grouped)[k]), PropagateAtLaunch: aws.Bool(true),
			ResourceId: name, ResourceType: aws.String("auto-scaling-group"),
		})
	}
	if _, err := api.CreateAutoScalingGroup(ctx, &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: name, LaunchConfigurationName: name, MinSize: aws.Int32(1), MaxSize: aws.Int32(1),
		AvailabilityZones: []string{l.Region + "a"}, Tags: own}); err != nil {
		return err
	}
	out, err := api.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{*name},
	})
	if err != nil {
		return err
	}
	l.IDs[Grouped] = *out.AutoScalingGroups[0].Instances[0].InstanceId
	return nil
}

// reading is one value of one metric.
type reading struct {
	namespace, name string
	dims            []wire.Dimension
	value           float64
}

// minute returns the reports of all machines for a minute; Stale's agent is silent from a given
// time.
func (l *Ladder) minute(t, silence time.Time) []reading {
	var out []reading
	for _, name := range slices.Sorted(maps.Keys(l.IDs)) {
		id, w := l.IDs[name], l.work[name]
		if t.Truncate(ec2Period).Equal(t) {
			host, bytes := dims("InstanceId", id), w.Network*ec2Period.Minutes()/2
			out = append(out, reading{"AWS/EC2", "CPUUtilization", host, w.CPU},
				reading{"AWS/EC2", "NetworkIn", host, bytes},
				reading{"AWS/EC2", "NetworkOut", host, bytes})
		}
		if name == Unmeasured || name == Stale && (l.silent || !t.Before(silence)) {
			continue
		}
		gpu := dims("InstanceId", id, "index", "0", "name", ladderGPU)
		out = append(out, reading{"CWAgent", "nvidia_smi_utilization_gpu", gpu, w.GPU},
			reading{"CWAgent", "nvidia_smi_memory_used", gpu, w.Memory},
			reading{
				"CWAgent", "nvidia_smi_memory_total", gpu, memT4,
			}, reading{"CWAgent", "nvidia_smi_power_draw", gpu, 10 + 0.6*w.GPU})
	}
	return out
}

// Turn changes the activity of a machine from now on.
func (l *Ladder) Turn(name string, does Activity) { l.work[name] = does }

// Advance publishes the reports of the machines up to a time, with PutMetricData.
func (l *Ladder) Advance(ctx context.Context, to time.Time) error {
	var data []reading
	var times []time.Time
	for ; l.now.Before(to.UTC().Truncate(time.Minute)); l.now = l.now.Add(time.Minute) {
		for _, x := range l.minute(l.now, l.now) {
			data, times = append(data, x), append(times, l.now)
		}
	}
	api := cloudwatch.NewFromConfig(l.sandbox.Config(l.Region))
	for _, namespace := range []string{"AWS/EC2", "CWAgent"} {
		var batch []cwtypes.MetricDatum
		for i, x := range data {
			if x.namespace == namespace {
				batch = append(batch, cwtypes.MetricDatum{
					MetricName: aws.String(x.name), Value: aws.Float64(x.value), Timestamp: aws.Time(times[i]),
					Dimensions: dimensions(x.dims),
				})
			}
		}
		for chunk := range slices.Chunk(batch, maxData) {
			if _, err := api.PutMetricData(ctx, &cloudwatch.PutMetricDataInput{
				Namespace: aws.String(namespace), MetricData: chunk,
			}); err != nil {
				return fmt.Errorf("report to %s: %w", namespace, err)
			}
		}
	}
	return nil
}

func dimensions(of []wire.Dimension) []cwtypes.Dimension {
	out := make([]cwtypes.Dimension, len(of))
	for i, d := range of {
		out[i] = cwtypes.Dimension{Name: aws.String(d.Name), Value: aws.String(d.Value)}
	}
	return out
}
