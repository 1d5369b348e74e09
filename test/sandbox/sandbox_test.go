package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/test/sandbox"
)

// account is the sandbox that the tests share, with its seeded resources.
var (
	account *sandbox.Sandbox
	truth   *sandbox.Truth
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	if account, err = sandbox.Start(ctx, sandbox.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer account.Close()
	if truth, err = account.Seed(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// steps lists the rules that inventory and metrics are sufficient to decide.
var steps = []string{"tag-missing", "telemetry-missing",
	"gpu-instance-idle", "gpu-held", "instance-idle", "instance-overdue", "instance-stopped", "endpoint-idle",
	"notebook-idle",
	"load-balancer-idle", "nat-gateway-idle", "address-unused", "training-overrun", "training-stalled", "always-on",
	"volume-unattached", "volume-gp2", "snapshot-old", "image-unused", "bucket-no-lifecycle", "bucket-multipart",
	"bucket-noncurrent",
	"checkpoint-stale", "log-group-no-retention", "repository-no-lifecycle", "repository-untagged",
	"compute-away-from-data", "training-on-demand",
	"gpu-underutilized", "gpu-count-over", "gpu-memory-over", "inference-overprovisioned", "autoscaling-sticky",
	"generation-old", "commitment-unused", "reservation-unused",
	"database-idle", "database-oversized", "cache-idle", "table-idle", "table-overprovisioned", "vpc-endpoint-idle",
	"cluster-extended-support"}

func TestEveryRuleIsPlanted(t *testing.T) {
	for _, rule := range steps {
		if len(truth.Find(rule)) == 0 {
			t.Errorf("nothing is planted for %s", rule)
		}
	}
	for _, p := range truth.Planted {
		if !slices.Contains(steps, p.Rule) {
			t.Errorf("%s is planted for %s, which is no rule here", p.ID, p.Rule)
		}
	}
}

func TestTruthDoesNotContradictItself(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range truth.Resources {
		key := r.Region + "/" + string(r.Kind) + "/" + r.ID
		if seen[key] {
			t.Errorf("%s is in the books twice", key)
		}
		seen[key] = true
	}
	known := func(r sandbox.Resource) bool { return seen[r.Region+"/"+string(r.Kind)+"/"+r.ID] }
	not := map[string]bool{}
	for _, l := range truth.LookAlikes {
		for _, rule := range l.Not {
			not[l.ID+" "+rule] = true
		}
		if len(l.Not) == 0 || l.Note == "" && !slices.ContainsFunc(truth.Planted, func(p sandbox.Planted) bool {
			return p.ID == l.ID
		}) {
			t.Errorf("the look-alike %s says no rule or no reason", l.ID)
		}
	}
	for _, p := range truth.Planted {
		if !known(p.Resource) {
			t.Errorf("%s %s is planted and not in the books", p.Kind, p.ID)
		}
		if not[p.ID+" "+p.Rule] {
			t.Errorf("%s must be and must not be reported for %s", p.Rule, p.ID)
		}
		for _, usd := range []string{p.SavingsUSD, p.WasteUSD, p.UpperBoundUSD} {
			if usd == "" {
				continue
			}
			if a, err := money.ParseAmount(usd); err != nil || a.Cents() != usd {
				t.Errorf("%s of %s: %q is not dollars and cents (%v)", p.Rule, p.ID, usd, err)
			}
		}
		if p.Unknown && p.SavingsUSD != "" {
			t.Errorf("%s of %s is unknown and %s", p.Rule, p.ID, p.SavingsUSD)
		}
	}
}

func TestEveryKindIsSeeded(t *testing.T) {
	for _, k := range []inventory.Kind{
		inventory.KindAddress, inventory.KindAutoScalingGroup, inventory.KindBucket, inventory.KindCapacityReservation,
		inventory.KindCommitment, inventory.KindDatabase, inventory.KindEndpoint, inventory.KindFileSystem,
		inventory.KindImage, inventory.KindInstance,
		inventory.KindLoadBalancer, inventory.KindLogGroup, inventory.KindNATGateway, inventory.KindNotebook,
		inventory.KindRepository,
		inventory.KindSecret, inventory.KindSnapshot, inventory.KindTrainingJob, inventory.KindVolume} {
		if !slices.ContainsFunc(truth.Resources, func(r sandbox.Resource) bool { return r.Kind == k }) {
			t.Errorf("no %s is seeded", k)
		}
	}
}

// Properties that moto cannot store are visible through the endpoint: ages, sizes, and the purchase
// option of a machine.
func TestAgesAndSizesAreSeen(t *testing.T) {
	api := ec2.NewFromConfig(account.Config("us-east-1"))
	for _, p := range []struct {
		rule string
		age  time.Duration
	}{{"gpu-held", 6*24*time.Hour + 4*time.Hour}, {"instance-overdue", 20 * time.Hour}} {
		id := truth.Find(p.rule)[0].ID
		out, err := api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
		if err != nil {
			t.Fatal(err)
		}
		i := out.Reservations[0].Instances[0]
		if got := truth.Now.Sub(*i.LaunchTime); got != p.age {
			t.Errorf("%s is %s old, want %s", id, got, p.age)
		}
		if aws.ToString(i.PlatformDetails) != "Linux/UNIX" {
			t.Errorf("%s runs %q", id, aws.ToString(i.PlatformDetails))
		}
	}
	volume, err := api.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{
		VolumeIds: []string{truth.Find("volume-unattached")[0].ID},
	})
	if err != nil {
		t.Fatal(err)
	}
	if v := volume.Volumes[0]; *v.Size != 500 || *v.Iops != 6000 || *v.Throughput != 250 ||
		truth.Now.Sub(*v.CreateTime) != 60*24*time.Hour {
		t.Errorf("volume %+v", v)
	}
	objects, err := s3.NewFromConfig(account.Config("us-east-1")).ListObjectsV2(t.Context(),
		&s3.ListObjectsV2Input{Bucket: aws.String("acme-vision-datasets")})
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	for _, o := range objects.Contents {
		bytes += *o.Size
	}
	if bytes != 10<<40 {
		t.Errorf("the bucket holds %d bytes, want 10 TiB", bytes)
	}
}

func TestTheOtherAccountIsAnother(t *testing.T) {
	mine, err := ec2.NewFromConfig(account.Config("us-east-1")).DescribeAddresses(t.Context(),
		&ec2.DescribeAddressesInput{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := ec2.NewFromConfig(account.OtherConfig("us-east-1")).DescribeAddresses(t.Context(),
		&ec2.DescribeAddressesInput{})
	if err != nil {
		t.Fatal(err)
	}
	if len(other.Addresses) != 1 || *other.Addresses[0].AllocationId != truth.Other[1].ID || len(mine.Addresses) < 2 {
		t.Errorf("%d addresses here, %d there", len(mine.Addresses), len(other.Addresses))
	}
	if got := account.Wire.Recorder.Calls(); !slices.ContainsFunc(got, func(r wireRecord) bool {
		return r.Account == truth.OtherAccount
	}) {
		t.Error("no call was recorded for the other account")
	}
}
