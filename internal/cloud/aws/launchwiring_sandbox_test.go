package aws_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// TestAgentIsChecked checks that a machine runs a downloaded program only if its SHA-256 is the
// configured one, and shuts down otherwise.
func TestAgentIsChecked(t *testing.T) {
	backbone(t)
	program := "#!/bin/sh\necho \"$*\" > \"$CURFEW_ROOT/started\"\n"
	sum := sha256.Sum256([]byte(program))
	right := hex.EncodeToString(sum[:])
	for _, tc := range []struct {
		name  string
		agent aws.Agent
		runs  bool
		says  string
	}{
		{"over HTTPS", aws.Agent{URL: "https://example.com/curfew", SHA256: right}, true, ""},
		{"from S3", aws.Agent{URL: "s3://sessions/bin/curfew", SHA256: right}, true, ""},
		{
			"another program", aws.Agent{URL: "https://example.com/curfew", SHA256: strings.Repeat("0", 64)}, false,
			"another SHA-256",
		},
		{"no program", aws.Agent{URL: "s3://sessions/bin/none", SHA256: right}, false, "another SHA-256"},
		{"not in the image", aws.Agent{}, false, "set sessions.agent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLauncher(t, func(o *aws.LaunchOptions) { o.Agent = tc.agent })
			id := "agent-" + strings.ReplaceAll(tc.name, " ", "-")
			machines, err := l.Launch(t.Context(),
				launchOf(id, session.Pool{
					Type: "g6.xlarge", Region: launchRegion, Zone: zones[0], Image: launchImage,
				}, 1))
			if err != nil {
				t.Fatal(err)
			}
			defer end(t, l, id)
			api := ec2.NewFromConfig(scratch.Config(launchRegion))
			out, err := api.DescribeInstanceAttribute(t.Context(), &ec2.DescribeInstanceAttributeInput{
				InstanceId: awssdk.String(machines[0].ID), Attribute: types.InstanceAttributeNameUserData,
			})
			if err != nil || out.UserData == nil {
				t.Fatal(out, err)
			}
			script, err := base64.StdEncoding.DecodeString(awssdk.ToString(out.UserData.Value))
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			bin, boot := filepath.Join(root, "bin"), filepath.Join(root, "var", "lib", "cloud", "scripts", "per-boot")
			for _, d := range []string{bin, boot} {
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			give := "cat > \"$to\" <<'PROGRAM'\n" + program + "PROGRAM\n"
			for name, text := range map[string]string{
				"curl": "#!/bin/sh\nto=''; for a; do case $before in -o) to=$a;; esac; before=$a; done\ncase \"$*\" in " +
					"*api/token) echo t;; *ami-launch-index) printf 0;; *example.com/curfew) " + give +
					";; *) exit 22;; esac\n",
				"aws": "#!/bin/sh\nfor to; do :; done\ncase \"$*\" in *sessions/bin/curfew*) " + give +
					";; *) exit 1;; esac\n",
				"sleep":    "#!/bin/sh\n",
				"shutdown": "#!/bin/sh\necho \"$*\" > \"$CURFEW_ROOT/shut-down\"\n",
			} {
				if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			// No other curfew of this machine is on the path.
			for _, name := range []string{
				"sh", "mkdir", "dirname", "base64", "cat", "chmod", "mv", "date", "sha256sum",
			} {
				at, err := exec.LookPath(name)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(at, filepath.Join(bin, name)); err != nil {
					t.Fatal(err)
				}
			}
			run := exec.CommandContext(t.Context(), filepath.Join(bin, "sh"), "-c", string(script))
			run.Env = []string{"PATH=" + bin, "CURFEW_ROOT=" + root}
			said, err := run.CombinedOutput()
			if (err == nil) != tc.runs || !strings.Contains(string(said), tc.says) {
				t.Fatalf("%v: %s", err, said)
			}
			started, _ := os.ReadFile(filepath.Join(root, "started"))
			_, off := os.Stat(filepath.Join(root, "shut-down"))
			if want := "agent host " + root + "/etc/curfew/host.json\n"; tc.runs &&
				(string(started) != want || off == nil) ||
				!tc.runs && (len(started) > 0 || off != nil) {
				t.Errorf("it started %q and shut down: %v", started, off == nil)
			}
			if !tc.runs {
				return
			}
			// Restarted, it runs the installed program without a call.
			if err := errors.Join(os.Remove(filepath.Join(root, "started")), os.Remove(filepath.Join(bin, "curl")),
				os.Remove(filepath.Join(bin, "aws"))); err != nil {
				t.Fatal(err)
			}
			again := exec.CommandContext(t.Context(), filepath.Join(bin, "sh"), filepath.Join(boot, "curfew"))
			again.Env = run.Env
			if said, err := again.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			if again, err := os.ReadFile(filepath.Join(root, "started")); err != nil ||
				string(again) != string(started) {
				t.Errorf("at the next start: %q, %v", again, err)
			}
		})
	}
}

// TestRegionsWithoutBackbone checks that they are skipped if another region has a backbone.
func TestRegionsWithoutBackbone(t *testing.T) {
	backbone(t)
	l := newLauncher(t, func(o *aws.LaunchOptions) { o.Regions = []string{"sa-east-1", launchRegion} })
	pools, err := l.Pools(t.Context(), oneMachine("g6.xlarge"))
	if err != nil || slices.ContainsFunc(pools, func(p session.Pool) bool { return p.Region != launchRegion }) {
		t.Errorf("pools %v, %v", pools, err)
	}
	only := oneMachine("g6.xlarge")
	only.Regions = []string{"sa-east-1"}
	if _, err := l.Pools(t.Context(), only); err == nil || !strings.Contains(err.Error(), "sa-east-1") ||
		!strings.Contains(err.Error(), "terraform/backbone") {
		t.Errorf("in a region without one: %v", err)
	}
}

// TestImagesByType checks that each type gets its image.
func TestImagesByType(t *testing.T) {
	backbone(t)
	l := newLauncher(t, func(o *aws.LaunchOptions) {
		o.Image = func(_ *spec.Spec, machineType string) string {
			return "ami-" + strings.ReplaceAll(machineType, ".", "")
		}
		o.Types = func(*spec.Spec) ([]string, error) { return []string{"g6.xlarge", "g5.xlarge"}, nil }
	})
	s := oneMachine("")
	s.Resources.GPU = "L4"
	pools, err := l.Pools(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pools {
		if p.Image != "ami-"+strings.ReplaceAll(p.Type, ".", "") {
			t.Errorf("%s starts from %s", p.Type, p.Image)
		}
	}
}

// TestWatchedRegions checks that machines in a region that is no longer configured are found and
// ended.
func TestWatchedRegions(t *testing.T) {
	backbone(t)
	l := newLauncher(t, nil)
	if _, err := l.Launch(t.Context(),
		launchOf("watched", session.Pool{Type: "g6.xlarge", Region: launchRegion, Zone: zones[0], Image: launchImage},
			1)); err != nil {
		t.Fatal(err)
	}
	moved := newLauncher(t, func(o *aws.LaunchOptions) { o.Regions = []string{"sa-east-1"} })
	if found, err := moved.Find(t.Context(), "launches", "watched"); err != nil || len(found) > 0 {
		t.Fatalf("found %v, %v", found, err)
	}
	moved = newLauncher(t, func(o *aws.LaunchOptions) {
		o.Regions = []string{"sa-east-1"}
		o.Watched = func(context.Context) ([]string, error) { return []string{launchRegion}, nil }
	})
	if found, err := moved.Find(t.Context(), "launches", "watched"); err != nil || len(found) != 1 ||
		found[0].Pool.Region != launchRegion {
		t.Errorf("found %v, %v", found, err)
	}
	end(t, moved, "watched")
}

// TestAccountOfCredentials checks the account of the credentials, also after they change.
func TestAccountOfCredentials(t *testing.T) {
	l := newLauncher(t, nil)
	account, person, err := l.Account(t.Context())
	if err != nil || account != "123456789012" || person == "" {
		t.Fatalf("%q %q, %v", account, person, err)
	}
	before := scratch.Wire.Recorder.Count("sts:GetCallerIdentity")
	if _, _, err := l.Account(t.Context()); err != nil ||
		scratch.Wire.Recorder.Count("sts:GetCallerIdentity") != before {
		t.Errorf("it is asked again for the same credentials: %v", err)
	}
	out, err := sts.NewFromConfig(scratch.Config(launchRegion)).AssumeRole(t.Context(),
		&sts.AssumeRoleInput{
			RoleArn: awssdk.String("arn:aws:iam::222222222222:role/other"), RoleSessionName: awssdk.String("ben"),
		})
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]*string{
		"AWS_ACCESS_KEY_ID": out.Credentials.AccessKeyId, "AWS_SECRET_ACCESS_KEY": out.Credentials.SecretAccessKey,
		"AWS_SESSION_TOKEN": out.Credentials.SessionToken,
	} {
		t.Setenv(k, *v)
	}
	c, err := aws.New(t.Context(), aws.Options{Regions: []string{launchRegion}})
	if err != nil {
		t.Fatal(err)
	}
	other := c.Launcher(aws.LaunchOptions{Regions: []string{launchRegion}})
	if account, _, err := other.Account(t.Context()); err != nil || account != "222222222222" {
		t.Errorf("%q, %v", account, err)
	}
}

// TestRemovesAddressesAndRequests checks that addresses and spot requests of a session are removed with
// it, and those of another session stay.
func TestRemovesAddressesAndRequests(t *testing.T) {
	backbone(t)
	api := ec2.NewFromConfig(scratch.Config(launchRegion))
	made := map[string]string{}
	for _, id := range []string{"gone", "stays"} {
		tags := []types.Tag{
			{Key: awssdk.String(inventory.TagSession), Value: awssdk.String("rest-" + id)},
			{Key: awssdk.String(inventory.TagInstallation), Value: awssdk.String("launches")},
		}
		address, err := api.AllocateAddress(t.Context(), &ec2.AllocateAddressInput{
			Domain:            types.DomainTypeVpc,
			TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeElasticIp, Tags: tags}},
		})
		if err != nil {
			t.Fatal(err)
		}
		request, err := api.RequestSpotInstances(t.Context(), &ec2.RequestSpotInstancesInput{
			SpotPrice: awssdk.String("0.1"), LaunchSpecification: &types.RequestSpotLaunchSpecification{
				ImageId: awssdk.String(launchImage), InstanceType: "g6.xlarge"},
			TagSpecifications: []types.TagSpecification{
				{ResourceType: types.ResourceTypeSpotInstancesRequest, Tags: tags},
			}})
		if err != nil {
			t.Fatal(err)
		}
		made["address "+id], made["request "+id] = awssdk.ToString(address.AllocationId), awssdk.ToString(
			request.SpotInstanceRequests[0].SpotInstanceRequestId)
		t.Cleanup(func() {
			for _, r := range request.SpotInstanceRequests {
				if r.InstanceId != nil {
					_, _ = api.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{
						InstanceIds: []string{*r.InstanceId},
					})
				}
			}
		})
	}
	l := newLauncher(t, nil)
	for end := time.Now().Add(time.Minute); ; { // canceling may take a while
		left, err := l.Leftovers(t.Context(), "launches", "rest-gone")
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it leaves %v", left)
		}
	}
	addresses, err := api.DescribeAddresses(t.Context(), &ec2.DescribeAddressesInput{})
	if err != nil {
		t.Fatal(err)
	}
	requests, err := api.DescribeSpotInstanceRequests(t.Context(), &ec2.DescribeSpotInstanceRequestsInput{})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, a := range addresses.Addresses {
		have[awssdk.ToString(a.AllocationId)] = true
	}
	for _, r := range requests.SpotInstanceRequests {
		have[awssdk.ToString(r.SpotInstanceRequestId)] = r.State == types.SpotInstanceStateOpen ||
			r.State == types.SpotInstanceStateActive
	}
	for what, id := range made {
		if want := strings.HasSuffix(what, "stays"); have[id] != want {
			t.Errorf("%s %s is there: %t, want %t (%s)", what, id, have[id], want, fmt.Sprint(have))
		}
	}
}
