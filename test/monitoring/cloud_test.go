package monitoring

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/organizations"
	orgtypes "github.com/aws/aws-sdk-go-v2/service/organizations/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

const region = "us-east-1"

// The accounts, each with its own faults.
const (
	acting     = "111111111111" // machines are warned about and stopped
	unmeasured = "222222222222" // machines do not report GPU use
	reading    = "333333333333" // calls fail
	other      = "444444444444" // read by the second service
)

func role(account string) string   { return "arn:aws:iam::" + account + ":role/curfew" }
func source(account string) string { return "aws/" + account + ":role/curfew" }

// history is how far back newly launched machines have measurements.
const history = 2 * time.Hour

// cloud is the provider's accounts, and the measurements of their machines each minute.
type cloud struct {
	box *sandbox.Sandbox
	api map[string]*ec2.Client // moto itself, by account

	mu       sync.Mutex
	measured time.Time
	machines []machine
}

// machine is a machine of an account; load is the utilization of its GPU in percent.
type machine struct {
	id, account string
	load        float64
	// reports is true if its GPU is measured.
	reports bool
}

// newCloud starts the provider with an organization and a working machine in each account.
func newCloud(t *testing.T) *cloud {
	t.Helper()
	box, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &cloud{
		box: box, api: map[string]*ec2.Client{}, measured: time.Now().UTC().Truncate(time.Minute).Add(-history),
	}
	all := &organizations.CreateOrganizationInput{FeatureSet: orgtypes.OrganizationFeatureSetAll}
	if _, err := organizations.NewFromConfig(box.Config(region)).CreateOrganization(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for _, account := range []string{acting, unmeasured, reading, other} {
		cfg := box.Config(region)
		in := &sts.AssumeRoleInput{RoleArn: aws.String(role(account)), RoleSessionName: aws.String("test")}
		out, err := sts.NewFromConfig(cfg).AssumeRole(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		cfg.BaseEndpoint = aws.String(box.MotoURL())
		k := out.Credentials
		cfg.Credentials = credentials.NewStaticCredentialsProvider(*k.AccessKeyId, *k.SecretAccessKey, *k.SessionToken)
		c.api[account] = ec2.NewFromConfig(cfg)
		if err := c.launch(t.Context(), account, 3, machine{load: 92, reports: true}); err != nil {
			t.Fatal(err)
		}
	}
	c.measure()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
				c.measure()
			}
		}
	})
	t.Cleanup(func() { stop(); wg.Wait() })
	return c
}

// launch launches machines that curfew governs, with past measurements.
func (c *cloud) launch(ctx context.Context, account string, count int32, as machine) error {
	tags := map[string]string{
		"team": "vision", "project": "detector", "owner": "ana", "environment": "research",
		inventory.TagManaged:  "true",
		inventory.TagLifetime: string(inventory.Ephemeral),
		inventory.TagPurpose:  string(inventory.Experimentation),
	}
	var list []types.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	disk := &types.EbsBlockDevice{
		VolumeSize: aws.Int32(100), VolumeType: types.VolumeTypeGp3, DeleteOnTermination: aws.Bool(false),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := c.api[account].RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: aws.String("ami-0000000000000base"), MinCount: &count, MaxCount: &count, InstanceType: "g5g.xlarge",
		BlockDeviceMappings: []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/sda1"), Ebs: disk}},
		TagSpecifications:   []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: list}},
	})
	if err != nil {
		return fmt.Errorf("launch machines: %w", err)
	}
	for _, i := range out.Instances {
		m := as
		m.id, m.account = *i.InstanceId, account
		c.box.Wire.Patch(wire.Patch{
			Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: m.id,
			Set: map[string]any{"launchTime": time.Now().UTC().Truncate(time.Second).Add(-4 * history)},
			Add: map[string]any{"platformDetails": "Linux/UNIX", "usageOperation": "RunInstances"},
		})
		c.recall(m)
		c.machines = append(c.machines, m)
	}
	return nil
}

// first returns the id of the first machine of an account.
func (c *cloud) first(account string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machines[slices.IndexFunc(c.machines, func(m machine) bool { return m.account == account })].id
}

// recall publishes all measurements of a machine up to now.
func (c *cloud) recall(m machine) {
	for at := time.Now().UTC().Truncate(time.Minute).Add(-history); at.Before(c.measured); at = at.Add(time.Minute) {
		c.report(m, at)
	}
}

// report publishes the measurements of a machine for a minute.
func (c *cloud) report(m machine, at time.Time) {
	host := wire.Dimension{Name: "InstanceId", Value: m.id}
	card := []wire.Dimension{host, {Name: "index", Value: "0"}, {Name: "name", Value: "NVIDIA T4G"}}
	put := func(namespace, name string, value float64, dims ...wire.Dimension) {
		v := wire.Datum{Time: at, Sum: value, Min: value, Max: value, Count: 1}
		c.box.Wire.Metrics.Put(m.account, region, namespace, name, dims, v)
	}
	if at.Minute()%5 == 0 {
		put("AWS/EC2", "CPUUtilization", 0.8+m.load/3, host)
		put("AWS/EC2", "NetworkIn", 1800+m.load*1e6, host)
		put("AWS/EC2", "NetworkOut", 1800+m.load*1e6, host)
	}
	if !m.reports {
		return
	}
	put("CWAgent", "nvidia_smi_utilization_gpu", m.load, card...)
	put("CWAgent", "nvidia_smi_memory_used", 3+m.load*130, card...)
	put("CWAgent", "nvidia_smi_memory_total", 15360, card...)
	put("CWAgent", "nvidia_smi_power_draw", 10+0.6*m.load, card...)
}

// measure publishes the measurements of all machines up to now.
func (c *cloud) measure() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for now := time.Now().UTC().Truncate(time.Minute); c.measured.Before(
		now); c.measured = c.measured.Add(time.Minute) {
		for _, m := range c.machines {
			c.report(m, c.measured)
		}
	}
}

// measureGPUs publishes GPU measurements of an account from now on, as after the installation of
// the agent.
func (c *cloud) measureGPUs(account string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.machines {
		if m := &c.machines[i]; m.account == account && !m.reports {
			m.reports = true
			c.recall(*m)
		}
	}
}
