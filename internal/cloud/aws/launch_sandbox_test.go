package aws_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/test/wire"
)

// launchRegion is the region in which sessions are launched.
const launchRegion = "ap-south-1"

// launchImage is the machine image found by backbone.
var launchImage string

// zones are the zones of the backbone.
var zones = []string{launchRegion + "a", launchRegion + "b"}

// backbone creates the shared resources of sessions, as terraform/backbone does, and returns its
// security group.
func backbone(tb testing.TB) string {
	tb.Helper()
	api := ec2.NewFromConfig(scratch.Config(launchRegion))
	subnets, err := api.DescribeSubnets(tb.Context(), &ec2.DescribeSubnetsInput{})
	if err != nil {
		tb.Fatal(err)
	}
	groups, err := api.DescribeSecurityGroups(tb.Context(), &ec2.DescribeSecurityGroupsInput{})
	if err != nil || len(groups.SecurityGroups) == 0 {
		tb.Fatal(groups, err)
	}
	group := awssdk.ToString(groups.SecurityGroups[0].GroupId)
	image, err := api.RegisterImage(tb.Context(), &ec2.RegisterImageInput{
		Name: awssdk.String("sessions-" + tb.Name()), RootDeviceName: awssdk.String("/dev/sda1"),
		BlockDeviceMappings: []types.BlockDeviceMapping{
			{DeviceName: awssdk.String("/dev/sda1"), Ebs: &types.EbsBlockDevice{VolumeSize: awssdk.Int32(15)}},
		}})
	if err != nil {
		tb.Fatal(err)
	}
	launchImage = awssdk.ToString(image.ImageId)
	policy, err := scratch.MachinePolicy(tb.Context(), launchRegion, "sessions")
	if err != nil {
		tb.Fatal(err)
	}
	var pairs []string
	for _, s := range subnets.Subnets {
		if zone := awssdk.ToString(s.AvailabilityZone); slices.Contains(zones, zone) {
			pairs = append(pairs, awssdk.ToString(s.SubnetId)+"="+zone)
		}
	}
	parameters := ssm.NewFromConfig(scratch.Config(launchRegion))
	for name, value := range map[string]string{
		"version": aws.BackboneVersion, "bucket": "sessions", "subnets": strings.Join(pairs, ","),
		"security-group": group,
		"machine-policy": policy,
		"log-group":      "/curfew/sessions", "kms-key": "arn:aws:kms:us-east-1:123456789012:key/1",
		"session-document": "curfew-shell"} {
		if _, err := parameters.PutParameter(tb.Context(), &ssm.PutParameterInput{
			Name: awssdk.String("/curfew/backbone/" + name), Value: awssdk.String(value),
			Type: ssmtypes.ParameterTypeString, Overwrite: awssdk.Bool(true)}); err != nil {
			tb.Fatal(err)
		}
	}
	return group
}

// rates returns hourly prices of machines in dollars.
func rates(machineType, _ string, spot bool) *money.Rate {
	r := map[string]money.Rate{"g6.xlarge": 8000 * money.PicoUSD, "g6.2xlarge": 9000 * money.PicoUSD}[machineType]
	switch {
	case r == 0:
		return nil
	case spot:
		r /= 2
	}
	return &r
}

func newLauncher(tb testing.TB, change func(*aws.LaunchOptions)) *aws.Launcher {
	tb.Helper()
	environOf(tb, scratch)
	c, err := aws.New(tb.Context(), aws.Options{Regions: []string{launchRegion}, RequestsPerSecond: 10_000})
	if err != nil {
		tb.Fatal(err)
	}
	o := aws.LaunchOptions{Regions: []string{launchRegion}, Rate: rates, Image: func(*spec.Spec, string) string {
		return launchImage
	},
		Types: func(*spec.Spec) ([]string, error) { return []string{"g6.2xlarge", "g6.xlarge"}, nil }}
	if change != nil {
		change(&o)
	}
	return c.Launcher(o)
}

// oneMachine asks for a type by its name.
func oneMachine(machineType string) *spec.Spec {
	return &spec.Spec{
		Kind: spec.Session, Name: "demo", Resources: spec.Resources{InstanceType: machineType, Nodes: 1},
		Capacity: spec.OnDemand, DiskGiB: 100,
	}
}

// left returns the resources of a session in EC2.
func left(tb testing.TB, id string) map[string]map[string]string {
	tb.Helper()
	api := ec2.NewFromConfig(scratch.Config(launchRegion))
	filters := []types.Filter{{Name: awssdk.String("tag:" + inventory.TagSession), Values: []string{id}}}
	tags := func(all []types.Tag) map[string]string {
		out := map[string]string{}
		for _, t := range all {
			out[awssdk.ToString(t.Key)] = awssdk.ToString(t.Value)
		}
		return out
	}
	out := map[string]map[string]string{}
	instances, err := api.DescribeInstances(tb.Context(), &ec2.DescribeInstancesInput{Filters: filters})
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range instances.Reservations {
		for _, i := range r.Instances {
			if i.State.Name != types.InstanceStateNameTerminated &&
				i.State.Name != types.InstanceStateNameShuttingDown {
				out[awssdk.ToString(i.InstanceId)] = tags(i.Tags)
			}
		}
	}
	volumes, err := api.DescribeVolumes(tb.Context(), &ec2.DescribeVolumesInput{Filters: filters})
	if err != nil {
		tb.Fatal(err)
	}
	for _, v := range volumes.Volumes {
		out[awssdk.ToString(v.VolumeId)] = tags(v.Tags)
	}
	interfaces, err := api.DescribeNetworkInterfaces(tb.Context(), &ec2.DescribeNetworkInterfacesInput{
		Filters: filters,
	})
	if err != nil {
		tb.Fatal(err)
	}
	for _, x := range interfaces.NetworkInterfaces {
		out[awssdk.ToString(x.NetworkInterfaceId)] = tags(x.TagSet)
	}
	return out
}

// withRoles also returns the session's role and instance profile, which have other tags.
func withRoles(tb testing.TB, id string) map[string]map[string]string {
	tb.Helper()
	out := left(tb, id)
	api := iam.NewFromConfig(scratch.Config(launchRegion))
	roles, err := api.ListRoles(tb.Context(), &iam.ListRolesInput{PathPrefix: awssdk.String(aws.RolePath)})
	if err != nil {
		tb.Fatal(err)
	}
	profiles, err := api.ListInstanceProfiles(tb.Context(), &iam.ListInstanceProfilesInput{
		PathPrefix: awssdk.String(aws.RolePath),
	})
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range roles.Roles {
		if strings.HasSuffix(awssdk.ToString(r.Path), "/"+id+"/") {
			out["role "+awssdk.ToString(r.RoleName)] = nil
		}
	}
	for _, p := range profiles.InstanceProfiles {
		if strings.HasSuffix(awssdk.ToString(p.Path), "/"+id+"/") {
			out["instance profile "+awssdk.ToString(p.InstanceProfileName)] = nil
		}
	}
	return out
}

// TestLauncherConforms runs the conformance suite of launchers on EC2.
func TestLauncherConforms(t *testing.T) {
	backbone(t)
	cloudtest.TestLauncher(t, func(tb testing.TB) cloudtest.LauncherCase {
		scratch.Wire.Launches.Show()
		return cloudtest.LauncherCase{
			Launcher: newLauncher(tb, nil), Nodes: 4,
			Again: func(tb testing.TB) session.Launcher { return newLauncher(tb, nil) },
			Spec:  oneMachine("g6.xlarge"), Impossible: oneMachine("x9.huge"),
			Host: session.HostConfig{Control: "s3://documents/control", WorkDir: "~/work", Setup: "true"},
			Pass: func(testing.TB) { scratch.Wire.Launches.Show() },
			Left: withRoles,
			Inject: func(tb testing.TB, f cloudtest.LaunchFault) bool {
				refuse := func(code string) {
					scratch.Wire.Launches.Refuse(wire.LaunchRefusal{Code: code, Type: "g6.xlarge", Times: 1})
				}
				fault := wire.Fault{Service: "ec2", Operation: "RunInstances", Region: launchRegion}
				switch f {
				case cloudtest.NoCapacity:
					refuse("InsufficientInstanceCapacity")
				case cloudtest.OverQuota:
					refuse("VcpuLimitExceeded")
				case cloudtest.NotOffered:
					refuse("Unsupported")
				case cloudtest.Late:
					scratch.Wire.Launches.Late()
				case cloudtest.Lost:
					fault.Kind, fault.Times = wire.Lost, 3 // as often as the SDK retries
					tb.Cleanup(scratch.Wire.Inject(fault))
				case cloudtest.Broken:
					fault.Kind, fault.Times = wire.ServerError, 3 // as above
					tb.Cleanup(scratch.Wire.Inject(fault))
				}
				return true
			},
		}
	})
}

// launchOf returns a launch of machines for a new session.
func launchOf(id string, p session.Pool, nodes int) session.Launch {
	s := oneMachine(p.Type)
	s.Resources.Nodes = nodes
	return session.Launch{
		Token: "token-" + id, Session: session.Session{ID: id, Name: "demo"}, Spec: s, Pool: p, Nodes: nodes,
		Host: session.HostConfig{
			Schema: session.HostSchema, Session: id, Name: "demo", Nodes: nodes,
			Control: "s3://sessions/sessions/control/" + id, WorkDir: "~/work", Setup: "echo \"@ it's $HOME\"\n",
		},
		Tags: map[string]string{
			inventory.TagInstallation: "launches", inventory.TagSession: id, inventory.TagManaged: "true",
			inventory.TagIntent: "token-" + id, "curfew:owner": "ana",
		}}
}

// end removes the machines of a test.
func end(t *testing.T, l *aws.Launcher, id string) {
	t.Helper()
	found, err := l.Find(t.Context(), "launches", id)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, f := range found {
		ids = append(ids, f.ID)
	}
	if err := l.End(t.Context(), id, ids); err != nil {
		t.Error(err)
	}
	if named, err := l.Leftovers(t.Context(), "launches", id); err != nil || len(named) > 0 || len(left(t, id)) > 0 {
		t.Errorf("left: %v, %v, %v", named, err, left(t, id))
	}
}

// TestPoolsByPrice checks the order of pools: zones of the backbone that offer a type, spot before
// on demand if both are allowed, cheapest first, unpriced last.
func TestPoolsByPrice(t *testing.T) {
	backbone(t)
	l := newLauncher(t, func(o *aws.LaunchOptions) {
		o.Types = func(*spec.Spec) ([]string, error) { return []string{"g5.xlarge", "g6.2xlarge", "g6.xlarge"}, nil }
	})
	for _, tc := range []struct {
		capacity spec.Capacity
		want     string
	}{
		{spec.OnDemand, "g6.xlarge/a g6.xlarge/b g6.2xlarge/a g6.2xlarge/b g5.xlarge/a g5.xlarge/b"},
		{
			spec.Auto,
			"g6.xlarge/a spot g6.xlarge/b spot g6.2xlarge/a spot g6.2xlarge/b spot g6.xlarge/a g6.xlarge/b " +
				"g6.2xlarge/a " +
				"g6.2xlarge/b g5.xlarge/a spot g5.xlarge/a g5.xlarge/b spot g5.xlarge/b",
		},
	} {
		s := oneMachine("")
		s.Resources.GPU, s.Capacity = "L4", tc.capacity
		pools, err := l.Pools(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range pools {
			name := p.Type + "/" + strings.TrimPrefix(p.Zone, launchRegion)
			if p.Spot {
				name += " spot"
			}
			got = append(got, name)
			if p.Region != launchRegion || p.Image != launchImage {
				t.Errorf("pool %+v", p)
			}
		}
		if text := strings.Join(got, " "); text != tc.want {
			t.Errorf("%s: %s, want %s", tc.capacity, text, tc.want)
		}
	}
	elsewhere := oneMachine("g6.xlarge")
	elsewhere.Regions = []string{"eu-west-1"}
	if pools, err := l.Pools(t.Context(), elsewhere); !errors.Is(err, session.ErrUnsupported) {
		t.Errorf("of a region without backbone: %v, %v", pools, err)
	}
}

// TestImageIsPinned checks that a public parameter's image is resolved when the pool is chosen, and
// not again at launch.
func TestImageIsPinned(t *testing.T) {
	backbone(t)
	const name = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
	l := newLauncher(t, func(o *aws.LaunchOptions) { o.Image = func(*spec.Spec, string) string { return name } })
	pools, err := l.Pools(t.Context(), oneMachine("g6.xlarge"))
	if err != nil || !strings.HasPrefix(pools[0].Image, "ami-") {
		t.Fatal(pools, err)
	}
	missing := newLauncher(t, func(o *aws.LaunchOptions) {
		o.Image = func(*spec.Spec, string) string { return "/aws/service/never" }
	})
	if _, err := missing.Pools(t.Context(), oneMachine("g6.xlarge")); err == nil ||
		!strings.Contains(err.Error(), "/aws/service/never") {
		t.Errorf("of a parameter that is not there: %v", err)
	}
	want := launchOf("pinned", pools[0], 1)
	want.Pool.Image = ""
	if _, err := l.Launch(t.Context(), want); err == nil {
		t.Error("a launch chose its own image")
	}
}

// TestMachinesOfSessions checks the requests to EC2 and the resulting machines.
func TestMachinesOfSessions(t *testing.T) {
	group := backbone(t)
	l := newLauncher(t, nil)
	for _, spot := range []bool{false, true} {
		id := fmt.Sprintf("machines-%t", spot)
		want := launchOf(id, session.Pool{
			Type: "g6.xlarge", Region: launchRegion, Zone: zones[1], Spot: spot, Image: launchImage,
		}, 2)
		scratch.Wire.Recorder.Reset()
		machines, err := l.Launch(t.Context(), want)
		if err != nil || len(machines) != 2 {
			t.Fatal(machines, err)
		}
		if n := scratch.Wire.Recorder.Count("ec2:RunInstances"); n != 1 {
			t.Errorf("%d calls of RunInstances for two machines", n)
		}
		// Parameters that moto accepts without showing them on machines.
		asked := scratch.Wire.Launches.Last()
		for k, v := range map[string]string{
			"MinCount": "2", "MaxCount": "2", "ClientToken": "token-" + id,
			"IamInstanceProfile.Arn": "arn:aws:iam::123456789012:instance-profile/curfew/sessions/launches/" + id +
				"/curfew-" +
				id + "-" + launchRegion, "MetadataOptions.HttpTokens": "required",
			"MetadataOptions.HttpPutResponseHopLimit": "1", "MetadataOptions.InstanceMetadataTags": "", "KeyName": "",
			"BlockDeviceMapping.1.Ebs.Encrypted": "true"} {
			if got := asked.Get(k); got != v {
				t.Errorf("it asks for %s=%q, want %q", k, got, v)
			}
		}
		kinds := []string{"instance", "volume", "network-interface"}
		if spot {
			kinds = append(kinds, "spot-instances-request")
		}
		for n, kind := range kinds {
			if got := asked.Get(fmt.Sprintf("TagSpecification.%d.ResourceType", n+1)); got != kind {
				t.Errorf("it tags %q, want %q", got, kind)
			}
		}
		api := ec2.NewFromConfig(scratch.Config(launchRegion))
		out, err := api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{
			InstanceIds: []string{machines[0].ID, machines[1].ID},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range out.Reservations[0].Instances {
			if i.MetadataOptions == nil || i.MetadataOptions.HttpTokens != types.HttpTokensStateRequired {
				t.Errorf("its metadata service takes %+v", i.MetadataOptions)
			}
			for _, m := range i.BlockDeviceMappings {
				if !awssdk.ToBool(m.Ebs.DeleteOnTermination) {
					t.Errorf("its disk stays: %+v", m.Ebs)
				}
			}
			if zone := awssdk.ToString(i.Placement.AvailabilityZone); zone != zones[1] {
				t.Errorf("it is in %s", zone)
			}
			if got := i.InstanceLifecycle == types.InstanceLifecycleTypeSpot; got != spot {
				t.Errorf("spot: %t", got)
			}
			attribute, err := api.DescribeInstanceAttribute(t.Context(), &ec2.DescribeInstanceAttributeInput{
				InstanceId: i.InstanceId, Attribute: types.InstanceAttributeNameInstanceInitiatedShutdownBehavior,
			})
			if err != nil || attribute.InstanceInitiatedShutdownBehavior == nil ||
				awssdk.ToString(attribute.InstanceInitiatedShutdownBehavior.Value) != "terminate" {
				t.Errorf("when it shuts down: %+v, %v", attribute, err)
			}
			for _, n := range i.NetworkInterfaces {
				if len(n.Groups) != 1 || awssdk.ToString(n.Groups[0].GroupId) != group ||
					!awssdk.ToBool(n.Attachment.DeleteOnTermination) {
					t.Errorf("its interface: %+v", n)
				}
			}
		}
		volumes, err := api.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{
			Filters: []types.Filter{{Name: awssdk.String("tag:" + inventory.TagSession), Values: []string{id}}},
		})
		if err != nil || len(volumes.Volumes) != 2 {
			t.Fatalf("volumes: %+v, %v", volumes, err)
		}
		for _, v := range volumes.Volumes {
			if !awssdk.ToBool(v.Encrypted) || awssdk.ToInt32(v.Size) != 100 || v.VolumeType != types.VolumeTypeGp3 {
				t.Errorf("its disk: %+v", v)
			}
		}
		told(t, api, machines, want.Host)
		end(t, l, id)
	}
}

// told runs the user data of machines against a fake metadata service, and checks the start of each
// agent.
func told(t *testing.T, api *ec2.Client, machines []session.Machine, host session.HostConfig) {
	t.Helper()
	for _, m := range machines {
		out, err := api.DescribeInstanceAttribute(t.Context(), &ec2.DescribeInstanceAttributeInput{
			InstanceId: awssdk.String(m.ID), Attribute: types.InstanceAttributeNameUserData,
		})
		if err != nil || out.UserData == nil {
			t.Fatal(out, err)
		}
		script, err := base64.StdEncoding.DecodeString(awssdk.ToString(out.UserData.Value))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for name, text := range map[string]string{
			"curl": "#!/bin/sh\ncase \"$*\" in *api/token) echo secret-token;; *'token: " +
				"secret-token'*ami-launch-index) " +
				"printf %s " + fmt.Sprint(m.Node) + ";; *) exit 22;; esac\n",
			"shutdown": "#!/bin/sh\necho \"$*\" > \"$(dirname \"$0\")/shut\"\n",
			"curfew":   "#!/bin/sh\necho \"$*\" > \"$(dirname \"$0\")/started\"\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(dir, "etc", "host.json")
		run := exec.CommandContext(t.Context(), "sh", "-c", string(script))
		run.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "CURFEW_HOST=" + file, "CURFEW_ROOT=" + dir}
		if text, err := run.CombinedOutput(); err != nil {
			t.Fatalf("the user data of node %d: %v: %s", m.Node, err, text)
		}
		started, err := os.ReadFile(filepath.Join(dir, "started"))
		if err != nil || strings.TrimSpace(string(started)) != "agent host "+file {
			t.Errorf("started %q, %v", started, err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("its mode is %v, %v", info.Mode(), err)
		}
		var got session.HostConfig
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		want := host
		want.Node, want.WholeMachine = m.Node, true
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("node %d is told %s, want %s", m.Node, a, b)
		}
	}
}

// TestUserDataIsBounded checks that user data too large for EC2 is refused before the call.
func TestUserDataIsBounded(t *testing.T) {
	backbone(t)
	want := launchOf("long", session.Pool{
		Type: "g6.xlarge", Region: launchRegion, Zone: zones[0], Image: launchImage,
	}, 1)
	want.Host.Setup = strings.Repeat("x", 16<<10)
	if _, err := newLauncher(t, nil).Launch(t.Context(), want); err == nil ||
		!strings.Contains(err.Error(), "shorten setup") {
		t.Errorf("launched with much to be told: %v", err)
	}
	if got := left(t, "long"); len(got) != 0 {
		t.Errorf("there is %v", slices.Collect(maps.Keys(got)))
	}
}

// TestNoBackbone checks that without a backbone nothing is launched, and that the error suggests a
// remedy.
func TestNoBackbone(t *testing.T) {
	l := newLauncher(t, func(o *aws.LaunchOptions) { o.Regions = []string{"sa-east-1"} })
	if _, err := l.Pools(t.Context(), oneMachine("g6.xlarge")); err == nil ||
		!strings.Contains(err.Error(), "terraform/backbone") {
		t.Errorf("pools without a backbone: %v", err)
	}
}

// TestTerminatesInvisibleMachines checks that a machine that is not listed yet is terminated too.
func TestTerminatesInvisibleMachines(t *testing.T) {
	backbone(t)
	l := newLauncher(t, nil)
	scratch.Wire.Launches.Late()
	machines, err := l.Launch(t.Context(),
		launchOf("hidden", session.Pool{
			Type: "g6.xlarge", Region: launchRegion, Zone: zones[0], Image: launchImage,
		}, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.End(t.Context(), "hidden", []string{machines[0].ID}); err != nil {
		t.Error(err)
	}
	scratch.Wire.Launches.Show()
	if roles, err := l.Leftovers(t.Context(), "launches", "hidden"); err != nil || len(roles) > 0 {
		t.Errorf("its role stays: %q, %v", roles, err)
	}
	if got := left(t, "hidden"); len(got) != 0 {
		t.Errorf("there is %v", slices.Collect(maps.Keys(got)))
	}
}
