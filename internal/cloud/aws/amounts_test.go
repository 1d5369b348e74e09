package aws

import (
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	cetypes "github.com/aws/aws-sdk-go-v2/service/costexplorer/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

func TestParseDollars(t *testing.T) {
	for _, tc := range []struct {
		in, want string
		bad      bool
	}{
		{in: "12.3456789012", want: "12.345678901"},
		{in: "0.0000000005", want: "0.00"}, // half, to even
		{in: "0.0000000015", want: "0.000000002"},
		{in: "-1.5", want: "-1.50"},
		{in: "1.2E-7", want: "0.00000012"},
		{in: "3e2", want: "300.00"},
		{in: "0." + strings.Repeat("3", 300), want: "0.333333333"},
		{in: "9223372036.8547758074", want: "9223372036.854775807"},
		{in: "9223372036.8547758076", bad: true},
		{in: "1e99", bad: true}, {in: "1e100", bad: true}, {in: "", bad: true},
		{in: ".5", bad: true}, {in: "5.", bad: true},
		{in: "1/3", bad: true},
		{in: "0x10", bad: true}, {in: "1,5", bad: true}, {in: "+1", bad: true}, {in: "NaN", bad: true},
		{in: " 1", bad: true}, {in: "1\n", bad: true},
	} {
		got, err := parseDollars(tc.in)
		if (err != nil) != tc.bad || (err == nil && got.String() != tc.want) {
			t.Errorf("%q: got %s, %v; want %s, an error: %v", tc.in, got, err, tc.want, tc.bad)
		}
	}
}

// TestParseDollarsAgreesWithMoney compares the two parsers, and parsing with formatting.
func TestParseDollarsAgreesWithMoney(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := money.Amount(rapid.Int64().Draw(t, "amount"))
		if got, err := parseDollars(a.String()); err != nil || got != a {
			t.Fatalf("%s reads as %s, %v", a, got, err)
		}
	})
}

func FuzzParseDollars(f *testing.F) {
	for _, s := range []string{"0", "-1.5", "1.2E-7", "12.3456789012", "9223372036.854775807", "1e99"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseDollars(s)
		if err != nil {
			if !errors.Is(err, errNotDecimal) && !errors.Is(err, money.ErrOverflow) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		exact, ok := new(big.Rat).SetString(s)
		if !ok {
			t.Fatalf("%q was read as %s and is no number", s, a)
		}
		off := exact.Sub(exact, big.NewRat(int64(a), int64(money.USD)))
		if off.Abs(off).Cmp(big.NewRat(1, 2*int64(money.USD))) > 0 {
			t.Fatalf("%q was read as %s, over half a nano-dollar off", s, a)
		}
	})
}

func group(service, amount, unit string) cetypes.Group {
	return cetypes.Group{
		Keys: []string{service}, Metrics: map[string]cetypes.MetricValue{costMetric: {Amount: &amount, Unit: &unit}},
	}
}

func TestBilledAddsUp(t *testing.T) {
	day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	s := &scan{}
	for range 2 {
		b := accountBill{start: day, end: day.AddDate(0, 0, billedDays), byService: map[string]*big.Rat{}}
		for _, month := range [][]cetypes.Group{
			{group("Amazon EC2", "10.0000000004", "USD"), group("Tax", "1", "USD")},
			{group("Amazon EC2", "2.0000000004", "USD")},
		} {
			if err := b.add([]cetypes.ResultByTime{{Groups: month}}); err != nil {
				t.Fatal(err)
			}
		}
		s.billed = append(s.billed, b)
	}
	got, err := s.total(3)
	if err != nil {
		t.Fatal(err)
	}
	// Two accounts of 12.0000000008 each are 24.0000000016, rounded once.
	if got.Total.String() != "26.000000002" || got.ByService[0].Service != "Amazon EC2" ||
		got.ByService[0].Cost.String() != "24.000000002" {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(got.Source, "2 of 3 accounts") {
		t.Errorf("the source is %q", got.Source)
	}
}

// TestUncoveredServicesAreNamed checks that a billed service is covered if one of its resources is
// listed, and that otherwise the reason is given: not read, unreadable, or nothing found.
func TestUncoveredServicesAreNamed(t *testing.T) {
	const id = "111122223333"
	b := accountBill{account: id, byService: map[string]*big.Rat{}}
	billed := map[string]string{
		machinesService: "", "Amazon Kinesis": "curfew does not read it", "Tax": "curfew does not read it",
		"Amazon Redshift": "nothing of it was found", "Amazon DynamoDB": "it could not be read",
		// A search cluster is not an RDS database, and some services in RDS lists are billed
		// separately.
		databaseService: "nothing of it was found", searchService: "", documentService: "",
		// EFS is no evidence for FSx, nor is a machine without an address for VPC.
		"Amazon Elastic File System": "", "Amazon FSx": "nothing of it was found",
		privateCloudService: "nothing of it was found",
	}
	var groups []cetypes.Group
	for service := range billed {
		groups = append(groups, group(service, "3", "USD"))
	}
	if err := b.add([]cetypes.ResultByTime{{Groups: groups}}); err != nil {
		t.Fatal(err)
	}
	s := &scan{
		cloud: &Cloud{}, billed: []accountBill{b},
		unread: map[string]bool{unreadKey(id, "us-east-1", inventory.KindTable): true},
	}
	s.places = []*place{s.place(&account{id: id}, "us-east-1")}
	s.resources = []*inventory.Resource{
		{
			Kind: inventory.KindInstance, Detail: &inventory.Instance{},
		}, {Kind: inventory.KindFileSystem, Type: "efs", Detail: &inventory.FileSystem{}},
		{Kind: inventory.KindDatabase, Detail: &inventory.Database{Engine: "opensearch"}},
		{Kind: inventory.KindDatabase, Detail: &inventory.Database{Engine: "docdb"}},
	}
	got, err := s.total(1)
	if err != nil || len(got.ByService) != len(billed) {
		t.Fatalf("%v, %v", got, err)
	}
	for _, service := range got.ByService {
		if want := billed[service.Service]; service.NotCovered != want {
			t.Errorf("%s: got %q, want %q", service.Service, service.NotCovered, want)
		}
	}
	s.resources[0].Detail = &inventory.Instance{PublicAddresses: 1}
	if why := s.notCovered(privateCloudService); why != "" {
		t.Errorf("a machine has an address, and VPC says %q", why)
	}
}

func TestUnreadBillIsUnknown(t *testing.T) {
	for _, tc := range []struct {
		name string
		bill []accountBill
	}{{name: "no answer"}, {name: "an answer without services", bill: []accountBill{{}}}} {
		if got, err := (&scan{billed: tc.bill}).total(1); got != nil || err != nil {
			t.Errorf("%s: got %v, %v; want nothing", tc.name, got, err)
		}
	}
	for name, g := range map[string]cetypes.Group{
		"another currency": group("EC2", "1", "CNY"), "no number": group("EC2", "n/a", "USD"),
		"no amount": {Keys: []string{"EC2"}},
	} {
		b := accountBill{byService: map[string]*big.Rat{}}
		if err := b.add([]cetypes.ResultByTime{{Groups: []cetypes.Group{g}}}); err == nil {
			t.Errorf("%s: it was taken as a cost", name)
		}
	}
}

func TestReservedHourly(t *testing.T) {
	year := awssdk.Int64(365 * 24 * 3600)
	for _, tc := range []struct {
		name string
		ri   ec2types.ReservedInstances
		want string
	}{
		{
			"no upfront", ec2types.ReservedInstances{
				InstanceCount: awssdk.Int32(3), Duration: year, FixedPrice: awssdk.Float32(0),
				UsagePrice: awssdk.Float32(0),
				RecurringCharges: []ec2types.RecurringCharge{
					{Amount: awssdk.Float64(0.181), Frequency: ec2types.RecurringChargeFrequencyHourly},
				}}, "0.543"},
		{
			"all upfront",
			ec2types.ReservedInstances{
				InstanceCount: awssdk.Int32(1), Duration: year, FixedPrice: awssdk.Float32(876),
			},
			"0.10",
		},
		{
			"partly upfront",
			ec2types.ReservedInstances{
				InstanceCount: awssdk.Int32(2), Duration: year, FixedPrice: awssdk.Float32(876),
				UsagePrice: awssdk.Float32(0.05),
			},
			"0.30",
		},
	} {
		got, err := reservedHourly(tc.ri)
		if err != nil || got.String() != tc.want {
			t.Errorf("%s: got %s, %v; want %s an hour", tc.name, got, err, tc.want)
		}
	}
	if _, err := reservedHourly(ec2types.ReservedInstances{
		InstanceCount: awssdk.Int32(1), FixedPrice: awssdk.Float32(876),
	}); err == nil {
		t.Error("an upfront price without a term: it has an hourly price")
	}
}
