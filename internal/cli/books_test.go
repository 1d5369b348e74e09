package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// costsDoc has the fields of costs -o json that the tests read.
type costsDoc struct {
	Rows []struct {
		Key                         []string
		Total, Used, Wasted, Cannot string
	}
	Total struct {
		Total   string `json:"total_usd"`
		Used    string `json:"used_usd"`
		Wasted  string `json:"wasted_usd"`
		Cannot  string `json:"cannot_judge_usd"`
		Other   string `json:"other_usd"`
		Unknown int64  `json:"unknown_seconds"`
	} `json:"total"`
}

func (l *ladderTest) costs(args ...string) costsDoc {
	l.t.Helper()
	var doc costsDoc
	since := l.clock().Add(-48 * time.Hour).Format(time.RFC3339)
	if err := json.Unmarshal(
		[]byte(l.curfew(ExitDone, append([]string{"costs", "--since", since, "-o", "json"}, args...)...)),
		&doc); err != nil {
		l.t.Fatal(err)
	}
	return doc
}

func amount(t *testing.T, text string) money.Amount {
	t.Helper()
	v, err := money.ParseAmount(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestPassesFillLedger lets scans and passes of the policies run on a real AWS API for an hour, and
// finds the cost of the account in the ledger: the same in every division, nothing before the first
// round, and nothing twice.
func TestPassesFillLedger(t *testing.T) {
	l := newLadder(t)
	l.pass(40 * time.Minute)
	scan := func() { l.curfewAny("scan", "--regions", "us-east-1", "--quiet") }
	scan()
	if doc := l.costs(); doc.Total.Total != "0.00" {
		t.Errorf("%s was charged for the time before the first round", doc.Total.Total)
	}
	for range 6 {
		l.pass(10 * time.Minute)
		l.curfewAny("enforce", "--once", "--policy", "policies.yaml")
	}
	scan()
	before := l.costs()
	if amount(t, before.Total.Total) <= 0 || before.Total.Unknown != 0 {
		t.Fatalf("after an hour the ledger has %+v", before.Total)
	}
	scan() // at the same moment: the same round
	if again := l.costs(); again.Total != before.Total {
		t.Errorf("a round twice over made %+v of %+v", again.Total, before.Total)
	}
	sum := func(d costsDoc) money.Amount {
		total, err := money.Sum(amount(t, d.Total.Used), amount(t, d.Total.Wasted), amount(t, d.Total.Cannot),
			amount(t, d.Total.Other))
		if err != nil {
			t.Fatal(err)
		}
		return total
	}
	if got, want := sum(before), amount(t, before.Total.Total); got-want > 2*money.Cent || want-got > 2*money.Cent {
		t.Errorf("used, wasted, unjudged and other come to %s, the total is %s", got, want)
	}
	if amount(t, before.Total.Wasted) <= 0 {
		t.Errorf("machines that idle in plain sight waste nothing: %+v", before.Total)
	}
	for _, by := range []string{
		"team", "purpose", "kind", "duty", "resource", "region,category", "team,purpose,pricing",
	} {
		if doc := l.costs("--by", by); doc.Total.Total != before.Total.Total {
			t.Errorf("by %s it comes to %s, all together to %s", by, doc.Total.Total, before.Total.Total)
		}
	}
	idle := l.costs("--by", "duty", "--where",
		"resource="+"aws/123456789012/us-east-1/instance/"+l.account.IDs[sandbox.Idle])
	if amount(t, idle.Total.Wasted) <= 0 || amount(t, idle.Total.Used) != 0 {
		t.Errorf("the idle machine has %+v", idle.Total)
	}
	if text := l.curfew(ExitDone, "costs", "--by", "team", "--since", "2d", "-o", "html"); !strings.Contains(text,
		"<svg") {
		t.Error("the page has no picture")
	}
	// Ten hours without a round are unknown, except for machines that ran throughout according to
	// the provider.
	l.pass(10 * time.Hour)
	scan()
	after := l.costs()
	if amount(t, after.Total.Total) <= amount(t, before.Total.Total) {
		t.Errorf("ten hours later it is %+v after %+v", after.Total, before.Total)
	}
}

// disc is a volume of 100 GiB, and machine a machine of g5g.xlarge ($0.42 an hour) with
// one of 50 GiB ($0.08 for a GiB and 730 hours), made now.
func (l *ladderTest) disc(size int32) string {
	l.t.Helper()
	out, err := ec2.NewFromConfig(l.sandbox.Config("us-east-1")).CreateVolume(l.t.Context(),
		&ec2.CreateVolumeInput{
			AvailabilityZone: aws.String("us-east-1a"), Size: &size, VolumeType: types.VolumeTypeGp3,
		})
	if err != nil {
		l.t.Fatal(err)
	}
	l.dated("DescribeVolumes", "size", "volumeId", *out.VolumeId, map[string]any{"createTime": l.clock()})
	return *out.VolumeId
}

func (l *ladderTest) machine() (id, disc string) {
	l.t.Helper()
	api := ec2.NewFromConfig(l.sandbox.Config("us-east-1"))
	out, err := api.RunInstances(l.t.Context(), &ec2.RunInstancesInput{
		ImageId: aws.String("ami-0000000000000base"), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		InstanceType: "g5g.xlarge",
		BlockDeviceMappings: []types.BlockDeviceMapping{
			{
				DeviceName: aws.String("/dev/sda1"),
				Ebs: &types.EbsBlockDevice{
					VolumeSize: aws.Int32(50), VolumeType: types.VolumeTypeGp3, DeleteOnTermination: aws.Bool(true),
				},
			},
		}})
	if err != nil {
		l.t.Fatal(err)
	}
	id = *out.Instances[0].InstanceId
	disks, err := api.DescribeVolumes(l.t.Context(), &ec2.DescribeVolumesInput{
		Filters: []types.Filter{{Name: aws.String("attachment.instance-id"), Values: []string{id}}},
	})
	if err != nil || len(disks.Volumes) != 1 {
		l.t.Fatal(disks, err)
	}
	disc = *disks.Volumes[0].VolumeId
	l.sandbox.Wire.Patch(wire.Patch{
		Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: id,
		Add: map[string]any{"platformDetails": "Linux/UNIX", "usageOperation": "RunInstances"}})
	l.dated("DescribeInstances", "launchTime", "instanceId", id, map[string]any{"launchTime": l.clock()})
	l.dated("DescribeVolumes", "size", "volumeId", disc, map[string]any{"createTime": l.clock()})
	return id, disc
}

// dated sets a provider's timestamp by the clock of the test.
func (l *ladderTest) dated(operation, beside, field, id string, set map[string]any) {
	l.sandbox.Wire.Patch(wire.Patch{
		Service: "ec2", Operation: operation, Beside: beside, IDField: field, ID: id, Set: set,
	})
}

// ended gives the reason of a machine's last change of state by the clock of the test.
func (l *ladderTest) ended(id string) {
	l.dated("DescribeInstances", "launchTime", "instanceId", id, map[string]any{
		"reason": "User initiated (" + l.clock().Format(time.DateTime) + " GMT)",
	})
}

// TestCostsMatchManualSums lets a machine be launched, stopped, started and terminated and a disk
// grow on a real AWS API, with rounds that see only a part of the account in between, and compares
// the costs with a computation by hand.
func TestCostsMatchManualSums(t *testing.T) {
	s, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, e := range s.Env() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	start := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
	l := &ladderTest{t: t, sandbox: s, dir: t.TempDir(), now: start}
	l.write("curfew.yaml", noTurns)
	api := ec2.NewFromConfig(s.Config("us-east-1"))
	at := func(hour, minute int) {
		l.jump(start.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute).Sub(l.clock()))
	}
	scan := func(hour int, more ...string) {
		at(hour, 0)
		l.curfewAny(append([]string{"scan", "--quiet", "--regions", "us-east-1"}, more...)...)
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	data := l.disc(100)
	scan(0)
	at(0, 20)
	id, root := l.machine()
	ids := []string{id}
	scan(1)
	at(1, 30)
	must(api.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: ids}))
	l.ended(id)
	scan(2)
	at(2, 40)
	must(api.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: ids}))
	l.dated("DescribeInstances", "launchTime", "instanceId", id, map[string]any{"launchTime": l.clock()})
	scan(3)
	l.dated("DescribeVolumes", "size", "volumeId", data, map[string]any{"size": 200})
	scan(4)
	// A round that may not read disks, and one of machines alone, know nothing of them.
	deny := s.Wire.Inject(wire.Fault{Service: "ec2", Operation: "DescribeVolumes", Kind: wire.AccessDenied})
	scan(5)
	deny()
	at(5, 30)
	l.write("policies.yaml", ladderPolicies)
	l.curfewAny("enforce", "--once", "--policy", "policies.yaml", "--regions", "us-east-1")
	// A round in another region knows nothing of this one.
	at(5, 45)
	l.curfewAny("scan", "--quiet", "--regions", "us-west-2")
	scan(6)
	must(api.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: ids}))
	l.ended(id)
	scan(7)

	page := func(resource string) string {
		var doc struct {
			Total struct {
				Total   string `json:"total_usd"`
				Unknown int64  `json:"unknown_seconds"`
				Most    string `json:"unknown_at_most_usd"`
			} `json:"total"`
		}
		text := l.curfew(ExitDone, "costs", "--since", start.Format(time.DateOnly), "--where",
			"resource=aws/123456789012/us-east-1/"+resource, "-o", "json")
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s, %ds not known at most %s", doc.Total.Total, doc.Total.Unknown, doc.Total.Most)
	}
	for resource, want := range map[string]string{
		// From 0:20 to 1:30 and from 2:40 to 6:00: 270 minutes at $0.42 an hour. It went away
		// in the hour after.
		"instance/" + id: "1.89, 0s not known at most 0.00",
		// 100 GiB to 4:00, then 200 to 7:00: 1,000 GiB-hours at $8 for 73,000.
		"volume/" + data: "0.10958904, 0s not known at most 0.00",
		// 50 GiB from 0:20 to 6:00, without and with it.
		"volume/" + root: "0.031050228, 3600s not known at most 0.005479452",
	} {
		if got := page(resource); got != want {
			t.Errorf("%s costs %s, want %s", resource, got, want)
		}
	}
}

// TestUnitsByHour: rows and pictures of hours are separate, and a picture sums the costs of several
// keys.
func TestUnitsByHour(t *testing.T) {
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	row := func(hour int, key string, dollars money.Amount) costs.UnitCost {
		amount, each := dollars*money.USD, money.Rate(0)
		return costs.UnitCost{
			Period: start.Add(time.Duration(hour) * time.Hour), Key: []string{key}, Basis: costs.AllocatedBasis,
			Amount: &amount, Count: 1000, Cost: &each,
		}
	}
	d := &costs.UnitCosts{
		Unit: "run", Per: 1, Rows: []costs.UnitCost{row(0, "a", 1), row(0, "b", 3), row(1, "a", 5), row(1, "b", 9)},
	}
	sheet := report.Units(view.NewUnits([]*costs.UnitCosts{d}))
	if got := sheet.Tables[0].Rows[3][0]; got != "2026-03-01 01:00" {
		t.Errorf("the last row is of %s", got)
	}
	for _, part := range []string{"2026-03-01", "01:00", "$7"} {
		if !strings.Contains(sheet.Picture, part) {
			t.Errorf("the picture lacks %s: %s", part, sheet.Picture)
		}
	}
}
