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

// machine is a machine to seed.
type machine struct {
	name, kind, region string
	owner              inventory.Owner
	age                time.Duration
	// stopped is how long ago it was stopped; 0 is running.
	stopped time.Duration
	spot    bool
	// disk is the size of the root disk in GiB, data that of another one, or 0.
	disk, data int32
	lifetime   inventory.Lifetime
	purpose    inventory.Purpose
	tags       []string
	// gpu is the GPU's name; memory is that of one GPU in MiB.
	gpu    string
	memory float64
	agent  agent
	does   behavior

	rule string  // planted, if any
	want Planted // expected finding
	// also lists further rules planted for it.
	also map[string]Planted
	// untaggedDisk is true if its disk lacks tags too.
	untaggedDisk bool
	not          []string // must not be reported
	note         string
}

// GPU memory in MiB as nvidia-smi reports it.
const (
	memT4   = 15_360
	memL4   = 23_034
	memA10G = 23_028
	memL40S = 46_068
	memA100 = 40_960
	mem80G  = 81_920
	memV100 = 16_384
)

const (
	ephemeral  = inventory.Ephemeral
	persistent = inventory.Persistent
)

// fleet returns the account's machines.
func (b *seeder) fleet() []machine {
	old := days(40)
	saves := func(kind, region string) Planted { return Planted{SavingsUSD: month(kind, region, 1)} }
	dev, train, serve := inventory.Experimentation, inventory.Training, inventory.Inference
	return []machine{
		// Waste.
		{name: "detector-dev", kind: "g6.2xlarge", region: east, owner: ana, age: old, disk: 100, lifetime: ephemeral,
			purpose: dev, gpu: "NVIDIA L4", memory: memL4, agent: byInstance, does: idle(1),
			rule: "gpu-instance-idle", want: saves("g6.2xlarge", east)},
		{
			name: "segmentation-dev", kind: "g5.2xlarge", region: east, owner: ben, age: days(3), disk: 100,
			lifetime: ephemeral,
			purpose:  dev, gpu: "NVIDIA A10G", memory: memA10G, agent: perGPU, does: idle(1),
			rule: "gpu-instance-idle", want: saves("g5.2xlarge", east),
			note: "younger than the window, older than a day"},
		{
			name: "tokenizer-notebook", kind: "p4d.24xlarge", region: east, owner: bo,
			age: days(6) + 4*time.Hour, disk: 200,
			lifetime: ephemeral, purpose: dev, gpu: "NVIDIA A100-SXM4-40GB", memory: memA100, agent: perGPU,
			does: held(8, 37_683), rule: "gpu-held", want: saves("p4d.24xlarge", east)},
		{
			name: "feed-experiment", kind: "g5.xlarge", region: west, owner: chen, age: old,
			disk: 100, lifetime: ephemeral,
			purpose: dev, agent: noAgent, does: busy(3, 0, 0, 0), rule: "telemetry-missing",
			not: idleRules, note: "CPU alone never proves that a GPU machine is idle"},
		{
			name: "feature-builder", kind: "m5.xlarge", region: ireland, owner: emil, age: old,
			disk: 50, lifetime: ephemeral,
			purpose: dev, does: idle(0), rule: "instance-idle", want: saves("m5.xlarge", ireland)},
		{name: "feed-train", kind: "g5.xlarge", region: east, owner: chen, age: 20 * time.Hour, disk: 100,
			lifetime: ephemeral, purpose: train, tags: []string{
				"Purpose", "transient-ml-training",
			}, gpu: "NVIDIA A10G",
			memory: memA10G, agent: perGPU, does: busy(40, 1, 90, 20_000), rule: "instance-overdue",
			want: Planted{
				SavingsUSD: "0.00",
			}, also: map[string]Planted{"training-on-demand": {SavingsUSD: onSpot("g5.xlarge", east)}},
			not: idleRules, note: "busy: the dead man's switch warns, nothing is wasted"},
		{
			name: "old-workstation", kind: "g4dn.xlarge", region: east, owner: ana, age: days(90),
			stopped: days(45), disk: 100,
			data: 400, lifetime: ephemeral, purpose: dev, rule: "instance-stopped",
			want: Planted{
				WasteUSD:   cost(term{"500", "ebs:gp3"}),
				SavingsUSD: cost(term{"100", "ebs:gp3"}, term{"-100", "snapshot"}),
			},
			note: "its disks still cost; the second one stays when it is terminated"},
		{name: "report-builder", kind: "m5.xlarge", region: west, owner: emil, age: old, disk: 50, lifetime: ephemeral,
			purpose: dev, does: daily(10, 15, busy(60, 0, 0, 0), idle(0)), rule: "always-on",
			note: "five hours of work a day; what a schedule saves depends on how finely it looks",
			not:  []string{"instance-idle"}},
		{name: "detector-eval", kind: "g6e.xlarge", region: east, owner: ana, age: old, disk: 100, lifetime: ephemeral,
			purpose: inventory.Evaluation, gpu: "NVIDIA L40S", memory: memL40S, agent: perGPU,
			does: busy(10, 1, 12, 8_000), rule: "gpu-underutilized",
			want: Planted{SavingsUSD: instead("g6e.xlarge", "g6f.4xlarge", east)}, not: idleRules},
		{
			name: "tokenizer-ablation", kind: "g5.12xlarge", region: east, owner: bo, age: old,
			disk: 200, lifetime: ephemeral,
			purpose: dev, gpu: "NVIDIA A10G", memory: memA10G, agent: perGPU,
			does: firstOf(busy(12, 4, 88, 18_000), 1),
			rule: "gpu-count-over", want: Planted{
				SavingsUSD: instead("g5.12xlarge", "g6.4xlarge", east),
			}, not: idleRules},
		{name: "segmentation-sweep", kind: "p4de.24xlarge", region: east, owner: ben, age: old, disk: 200,
			lifetime: ephemeral, purpose: dev, gpu: "NVIDIA A100-SXM4-80GB", memory: mem80G, agent: perGPU,
			does: busy(45, 8, 85, 20_000), rule: "gpu-memory-over", want: Planted{
				SavingsUSD: instead("p4de.24xlarge", "p4d.24xlarge", east),
			}, not: idleRules},
		{
			name: "legacy-train", kind: "p3.2xlarge", region: east, owner: chen, age: old,
			disk: 100, lifetime: persistent,
			purpose: dev, gpu: "Tesla V100-SXM2-16GB", memory: memV100, agent: perGPU, does: busy(30, 1, 80, 12_000),
			rule: "generation-old", want: Planted{
				SavingsUSD: instead("p3.2xlarge", "g6e.2xlarge", east),
			}, not: idleRules},
		{
			name: "", kind: "g6.xlarge", region: east, owner: nobody, age: old, disk: 100,
			gpu: "NVIDIA L4", memory: memL4,
			agent: perGPU, does: busy(30, 1, 75, 18_000), rule: "tag-missing", want: Planted{SavingsUSD: "0.00"},
			untaggedDisk: true, not: idleRules},

		// Legitimate work that looks like waste.
		{
			name: "detector-train", kind: "g6.xlarge", region: east, owner: ana, age: old,
			disk: 100, lifetime: persistent,
			purpose: dev, gpu: "NVIDIA L4", memory: memL4, agent: perGPU, does: busy(3.8, 1, 95, 20_000),
			not: idleRules, note: "5% CPU with 95% GPU"},
		{name: "fresh-start", kind: "g5.xlarge", region: east, owner: ben, age: 10 * time.Hour, disk: 100,
			lifetime: ephemeral, purpose: dev, gpu: "NVIDIA A10G", memory: memA10G, agent: perGPU, does: idle(1),
			not: idleRules, note: "idle, and ten hours old"},
		{name: "weekend-off", kind: "g4dn.xlarge", region: east, owner: bo, age: days(60), stopped: days(3), disk: 100,
			lifetime: ephemeral, purpose: dev, not: append([]string{"instance-stopped"}, idleRules...),
			note: "stopped three days ago"},
		{
			name: "paper-deadline", kind: "g6.2xlarge", region: east, owner: ana, age: old,
			disk: 100, lifetime: ephemeral,
			purpose: dev, tags: []string{
				inventory.TagKeepUntil, b.now.Add(days(7)).Format(time.RFC3339),
			}, gpu: "NVIDIA L4",
			memory: memL4, agent: byInstance, does: idle(1), not: idleRules, note: "kept"},
		{name: "feed-spot", kind: "g5.xlarge", region: east, owner: chen, age: 8 * time.Hour, disk: 100, spot: true,
			lifetime: ephemeral, purpose: train, gpu: "NVIDIA A10G", memory: memA10G, agent: perGPU,
			does: busy(40, 1, 92, 20_000),
			not:  append([]string{"training-on-demand", "instance-overdue"}, idleRules...),
			note: "training on spot already"},
		{name: "flaky-agent", kind: "g6.xlarge", region: west, owner: dana, age: old, disk: 100, lifetime: ephemeral,
			purpose: dev, gpu: "NVIDIA L4", memory: memL4, agent: perGPU, does: gaps(4, idle(1)),
			rule: "telemetry-missing",
			not:  idleRules, note: "idle where measured, and measured 40% of the time"},
		{name: "single-sample", kind: "g6.xlarge", region: west, owner: dana, age: old, disk: 100, lifetime: ephemeral,
			purpose: dev, gpu: "NVIDIA L4", memory: memL4, agent: perGPU, does: once(b.now, 30, idle(1)),
			rule: "telemetry-missing",
			not:  idleRules, note: "one measurement"},
		{
			name: "idle-then-busy", kind: "g6.xlarge", region: west, owner: dana, age: old,
			disk: 100, lifetime: persistent,
			purpose: serve, gpu: "NVIDIA L4", memory: memL4, agent: perGPU,
			does: b.since(days(13), idle(1), busy(30, 1, 70, 16_000)),
			not:  idleRules, note: "only the first measurements are idle"},
		{name: "tokenizer-pretrain", kind: "p4d.24xlarge", region: east, owner: bo, age: old, disk: 500,
			lifetime: persistent, purpose: dev, gpu: "NVIDIA A100-SXM4-40GB", memory: memA100, agent: perGPU,
			does: firstOf(busy(50, 8, 93, 38_000), 7), not: append([]string{"gpu-count-over"}, idleRules...),
			note: "one idle GPU of eight"},
		{
			name: "dataset-fetch", kind: "g5.2xlarge", region: west, owner: emil, age: days(5),
			disk: 500, lifetime: ephemeral,
			purpose: dev, gpu: "NVIDIA A10G", memory: memA10G, agent: perGPU, does: fetching(1),
			not: []string{"gpu-instance-idle", "instance-idle"}, note: "downloads and prepares data; its GPU waits"},
		{name: "latched", kind: "g6.xlarge", region: east, owner: ben, age: old, disk: 100, lifetime: ephemeral,
			purpose: dev, gpu: "NVIDIA L4", memory: memL4, agent: perGPU, does: latched(),
			not: idleRules, note: "100% without memory is suspect, not idle and not busy"},
		{name: "batch-scorer", kind: "m5.xlarge", region: east, owner: emil, age: old, disk: 50, lifetime: persistent,
			purpose: serve, does: weekly(busy(70, 0, 0, 0), idle(0)), not: []string{"instance-idle"},
			note: "CPU peaks once a week"},
		{
			name: "api", kind: "c5.xlarge", region: east, owner: dana, age: old, disk: 50,
			lifetime: persistent, purpose: serve,
			does: busy(45, 0, 0, 0), not: append([]string{"instance-overdue"}, idleRules...),
			note: "plain honest work"},
	}
}

// since switches from one behavior to another at a time in the past.
func (b *seeder) since(ago time.Duration, before, after behavior) behavior {
	change := b.ago(ago)
	return func(t time.Time, n int) (load, bool) {
		if t.Before(change) {
			return before(t, n)
		}
		return after(t, n)
	}
}

// fetching uses the network and the CPU but not the GPUs.
func fetching(gpus int) behavior {
	work := idle(gpus)
	return func(t time.Time, n int) (load, bool) {
		l, ok := work(t, n)
		l.cpu, l.cpuMax, l.bytes = jitter(55, n), 90, jitter(4e11, n)
		return l, ok
	}
}

// latched reports 100% without used memory, like a faulty board.
func latched() behavior {
	work := idle(1)
	return func(t time.Time, n int) (load, bool) {
		l, ok := work(t, n)
		l.gpus[0].util, l.gpus[0].max = 100, 100
		return l, ok
	}
}

// weekly works for an hour a week, on Wednesdays.
func weekly(work, rest behavior) behavior {
	return func(t time.Time, n int) (load, bool) {
		if t.Weekday() == time.Wednesday && t.Hour() == 3 {
			return work(t, n)
		}
		return rest(t, n)
	}
}

func (b *seeder) machines(ctx context.Context) error {
	for _, m := range b.fleet() {
		if _, err := b.launch(ctx, m); err != nil {
			return fmt.Errorf("%s %s: %w", m.kind, m.name, err)
		}
	}
	return nil
}

// launch creates a machine with its disks and measurements.
func (b *seeder) launch(ctx context.Context, m machine) (string, error) {
	api, net := ec2.NewFromConfig(b.Config(m.region)), b.nets[m.region]
	own := tags(m.owner, m.name, m.tags...)
	if m.lifetime != "" {
		own[inventory.TagLifetime] = string(m.lifetime)
	}
	if _, has := own["Purpose"]; !has && m.purpose != "" {
		own[inventory.TagPurpose] = string(m.purpose)
	}
	disk := func(device string, size int32) ec2types.BlockDeviceMapping {
		return ec2types.BlockDeviceMapping{DeviceName: aws.String(device), Ebs: &ec2types.EbsBlockDevice{
			VolumeSize: aws.Int32(size), VolumeType: ec2types.VolumeTypeGp3,
			DeleteOnTermination: aws.Bool(device == "/dev/sda1")}}
	}
	in := &ec2.RunInstancesInput{
		ImageId: aws.String("ami-0000000000000base"), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		InstanceType: ec2types.InstanceType(m.kind), SubnetId: &net.subnet,
		BlockDeviceMappings: []ec2types.BlockDeviceMapping{disk("/dev/sda1", m.disk)},
		TagSpecifications: append(tagSpec(ec2types.ResourceTypeInstance, own),
			tagSpec(ec2types.ResourceTypeVolume, tags(m.owner, m.name))...)}
	if len(own) == 0 {
		in.TagSpecifications = nil
	}
	if m.data > 0 {
		in.BlockDeviceMappings = append(in.BlockDeviceMappings, disk("/dev/sdb", m.data))
	}
	if m.spot {
		in.InstanceMarketOptions = &ec2types.InstanceMarketOptionsRequest{MarketType: ec2types.MarketTypeSpot}
	}
	out, err := api.RunInstances(ctx, in)
	if err != nil {
		return "", fmt.Errorf("run: %w", err)
	}
	id := *out.Instances[0].InstanceId
	launched := b.ago(m.age)
	b.ageMachine(id, launched)
	if m.spot {
		b.requestSpot(m.region, id)
	}
	if err := b.ageDisks(ctx, api, m, id, launched); err != nil {
		return "", err
	}
	if m.stopped > 0 {
		if _, err := api.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{id}}); err != nil {
			return "", fmt.Errorf("stop: %w", err)
		}
		b.Wire.Patch(wire.Patch{Service: "ec2", IDField: "instanceId", ID: id,
			Set: map[string]any{
				"reason": "User initiated (" + b.ago(m.stopped).Format("2006-01-02 15:04:05") + " GMT)",
			}})
	}
	if m.does != nil {
		b.measure(id, m.region, m.gpu, launched, m.memory, m.agent, m.does)
	}
	b.bookMachine(m, id)
	return id, nil
}

// requestSpot gives a spot machine the one-time request that moto omits.
func (b *seeder) requestSpot(region, id string) {
	request := "sir-" + id[len(id)-8:]
	b.Wire.Patch(wire.Patch{
		Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: id,
		Add: map[string]any{"spotInstanceRequestId": request}})
	b.Wire.State.At(wire.DefaultAccount, region, func(p *wire.Place) {
		p.SpotRequests = append(p.SpotRequests, wire.SpotRequest{
			ID: request, Type: "one-time", State: "active", Instance: id,
		})
	})
}

// ageMachine gives a machine its intended age and the platform details that moto omits: Linux
// without a paid license.
func (b *seeder) ageMachine(id string, launched time.Time) {
	b.Wire.Patch(wire.Patch{
		Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: id,
		Set: map[string]any{
			"launchTime": launched,
		}, Add: map[string]any{"platformDetails": "Linux/UNIX", "usageOperation": "RunInstances"}})
}

// ageDisks gives a machine's disks the age of the machine, and records them.
func (b *seeder) ageDisks(ctx context.Context, api *ec2.Client, m machine, id string, launched time.Time) error {
	volumes, err := api.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: []ec2types.Filter{
		{Name: aws.String("attachment.instance-id"), Values: []string{id}}}})
	if err != nil {
		return fmt.Errorf("read its disks: %w", err)
	}
	for _, v := range volumes.Volumes {
		b.age("ec2", "volumeId", *v.VolumeId, launched, "createTime", "attachTime")
		// moto omits the performance figures of such disks, and gives the root disks of a group's
		// machines another type; gp3 has these.
		b.Wire.Patch(wire.Patch{Service: "ec2", Operation: "DescribeVolumes", IDField: "volumeId", ID: *v.VolumeId,
			Beside: "size", Set: map[string]any{
				"volumeType": "gp3",
			}, Add: map[string]any{"iops": 3000, "throughput": 125}})
		disk := b.record(inventory.KindVolume, *v.VolumeId, m.region, m.owner)
		if m.untaggedDisk {
			b.plant(disk, "tag-missing", Planted{SavingsUSD: "0.00"})
		}
	}
	return nil
}

func (b *seeder) bookMachine(m machine, id string) {
	r := b.record(inventory.KindInstance, id, m.region, m.owner)
	r.Lifetime, r.Purpose = m.lifetime, m.purpose
	b.truth.Resources[len(b.truth.Resources)-1] = r
	if m.rule != "" {
		want := m.want
		want.Note = m.note
		b.plant(r, m.rule, want)
	}
	for rule, want := range m.also {
		b.plant(r, rule, want)
	}
	if len(m.not) > 0 {
		b.innocent(r, m.note, m.not...)
	}
}

// adopt records a machine that a group launched and tags its disks.
func (b *seeder) adopt(ctx context.Context, m machine, id string, launched time.Time, own map[string]string) error {
	api := ec2.NewFromConfig(b.Config(m.region))
	if err := b.ageDisks(ctx, api, m, id, launched); err != nil {
		return err
	}
	volumes, err := api.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: []ec2types.Filter{
		{Name: aws.String("attachment.instance-id"), Values: []string{id}}}})
	if err != nil {
		return fmt.Errorf("read its disks: %w", err)
	}
	for _, v := range volumes.Volumes {
		if _, err := api.CreateTags(ctx, &ec2.CreateTagsInput{
			Resources: []string{*v.VolumeId}, Tags: ec2Tags(own),
		}); err !=
			nil {
			return fmt.Errorf("tag its disk: %w", err)
		}
	}
	b.bookMachine(m, id)
	return nil
}
