package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/price/aws"
)

func book(t testing.TB) *price.Book {
	t.Helper()
	b, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rates returns the run rates of AWS resources.
func rates(resources []*inventory.Resource, b *price.Book) map[inventory.Ref][]Charge {
	aws.Attach(resources)
	return RunRates(resources, b)
}

func resource(kind inventory.Kind, typ string, state inventory.State, d inventory.Detail) *inventory.Resource {
	return &inventory.Resource{
		ID: "x", Kind: kind, Cloud: "aws", Account: "1", Region: "us-east-1", Type: typ, State: state, Detail: d,
	}
}

func linux(m inventory.Market) *inventory.Instance {
	return &inventory.Instance{Market: m, Platform: inventory.LinuxPlatform, Tenancy: inventory.SharedTenancy}
}

func TestRunRates(t *testing.T) {
	const tib = 1 << 40
	for _, tc := range []struct {
		name string
		r    *inventory.Resource
		want string // meter=dollars or meter?reason, in order
	}{
		{
			"a running machine",
			resource(inventory.KindInstance, "g6.2xlarge", inventory.StateRunning, linux(inventory.OnDemand)),
			"compute=713.648",
		},
		{
			"a stopped machine has no meter of its own",
			resource(inventory.KindInstance, "g6.2xlarge", inventory.StateStopped, linux(inventory.OnDemand)), "",
		},
		{
			"a machine that did not come up costs nothing",
			resource(inventory.KindInstance, "p4d.24xlarge", inventory.StatePending, linux(inventory.OnDemand)), "",
		},
		{
			"a machine that failed costs nothing",
			resource(inventory.KindInstance, "p4d.24xlarge", inventory.StateFailed, linux(inventory.OnDemand)), "",
		},
		{
			"a machine without a price is unpriced",
			resource(inventory.KindInstance, "zz9.large", inventory.StateRunning, linux(inventory.OnDemand)),
			"compute?on-demand price of zz9.large in us-east-1",
		},
		{
			"a Windows machine is not priced as Linux",
			resource(inventory.KindInstance, "g6.2xlarge", inventory.StateRunning,
				&inventory.Instance{
					Market: inventory.OnDemand, Platform: "windows", Tenancy: inventory.SharedTenancy,
				}),
			`compute?the price book holds Linux prices and this machine's platform is "windows"`,
		},
		{
			"dedicated tenancy is not priced as shared",
			resource(inventory.KindInstance, "g6.2xlarge", inventory.StateRunning,
				&inventory.Instance{
					Market: inventory.OnDemand, Platform: inventory.LinuxPlatform, Tenancy: "dedicated",
				}),
			"compute?the price book holds shared tenancy",
		},
		{
			"a capacity block is not free",
			resource(inventory.KindInstance, "p5.48xlarge", inventory.StateRunning, linux(inventory.CapacityBlock)),
			"compute?a capacity block is paid up front",
		},
		{
			"an unknown market has no price",
			resource(inventory.KindInstance, "g6.2xlarge", inventory.StateRunning, linux(inventory.MarketUnknown)),
			"compute?how the machine's capacity was bought is not known",
		},
		{
			"a gp2 volume", resource(inventory.KindVolume, "gp2", inventory.StateInUse,
				&inventory.Volume{SizeGiB: 500}),
			"storage=50.00",
		},
		{
			"a gp3 volume within what is free",
			resource(inventory.KindVolume, "gp3", inventory.StateInUse, &inventory.Volume{
				SizeGiB: 500, IOPS: 3000, ThroughputMiBps: 125,
			}),
			"storage=40.00",
		},
		{
			"a fast gp3 volume",
			resource(inventory.KindVolume, "gp3", inventory.StateInUse, &inventory.Volume{
				SizeGiB: 500, IOPS: 4000, ThroughputMiBps: 225,
			}),
			"storage=40.00 iops=5.00 throughput=4.00",
		},
		{
			"a volume on its way out",
			resource(inventory.KindVolume, "gp2", inventory.StateDeleting, &inventory.Volume{SizeGiB: 500}), "",
		},
		{
			"a volume of an unknown type",
			resource(inventory.KindVolume, "gp9", inventory.StateInUse, &inventory.Volume{SizeGiB: 1}),
			"storage?rate of ebs:gp9",
		},
		{
			"an address", resource(inventory.KindAddress, "", inventory.StateAvailable, &inventory.Address{}),
			"hours=3.65",
		},
		{
			"a NAT gateway", resource(inventory.KindNATGateway, "public", inventory.StateAvailable,
				&inventory.NATGateway{}),
			"hours=32.85",
		},
		{
			"a failed NAT gateway",
			resource(inventory.KindNATGateway, "public", inventory.StateFailed, &inventory.NATGateway{}), "",
		},
		{
			"a bucket by class",
			resource(inventory.KindBucket, "", inventory.StateAvailable, &inventory.Bucket{
				Sizes: inventory.Known(map[string]int64{"STANDARD": tib, "GLACIER": tib, "STANDARD_IA": 0}),
			}),
			"storage:GLACIER=3.6864 storage:STANDARD=23.552",
		},
		{
			"a bucket of unknown size",
			resource(inventory.KindBucket, "", inventory.StateAvailable, &inventory.Bucket{}),
			"storage?the bucket's size could not be read",
		},
		{
			"an empty bucket",
			resource(inventory.KindBucket, "", inventory.StateAvailable, &inventory.Bucket{
				Sizes: inventory.Known(map[string]int64{}),
			}),
			"",
		},
		{
			"a log group",
			resource(inventory.KindLogGroup, "", inventory.StateAvailable, &inventory.LogGroup{
				StoredBytes: inventory.Known[int64](100 << 30),
			}),
			"storage=3.00",
		},
		{
			"a repository",
			resource(inventory.KindRepository, "", inventory.StateAvailable, &inventory.Repository{
				Bytes: inventory.Known[int64](50 << 30),
			}),
			"storage=5.00",
		},
		{
			"a serverless endpoint has no machine",
			resource(inventory.KindEndpoint, "", inventory.StateRunning, &inventory.Endpoint{
				Variants: []inventory.Variant{{Serverless: true}},
			}),
			"",
		},
		{
			"a used reservation",
			resource(inventory.KindCapacityReservation, "g6.2xlarge", inventory.StateAvailable,
				&inventory.CapacityReservation{
					Total: 2, Platform: inventory.LinuxPlatform, Tenancy: inventory.SharedTenancy,
				}),
			"",
		},
		{
			"a half used reservation",
			resource(inventory.KindCapacityReservation, "g6.2xlarge", inventory.StateAvailable,
				&inventory.CapacityReservation{
					Total: 2, Available: 1, Platform: inventory.LinuxPlatform, Tenancy: inventory.SharedTenancy,
				}),
			"unused=713.648",
		},
		{
			"a commitment",
			resource(inventory.KindCommitment, "", inventory.StateRunning, &inventory.Commitment{
				Hourly: inventory.Known(2 * money.USD),
			}),
			"commitment=1460.00",
		},
		{
			"a commitment of unknown cost",
			resource(inventory.KindCommitment, "", inventory.StateRunning, &inventory.Commitment{}),
			"commitment?what the commitment costs",
		},
		{"a secret", resource(inventory.KindSecret, "", inventory.StateAvailable, &inventory.Secret{}), "months=0.40"},
		{
			"a snapshot alone",
			resource(inventory.KindSnapshot, "", inventory.StateAvailable, &inventory.Snapshot{
				VolumeID: "vol-1", VolumeSizeGiB: 100,
			}),
			"storage=5.00",
		},
		{
			"a snapshot of known size",
			resource(inventory.KindSnapshot, "", inventory.StateAvailable, &inventory.Snapshot{
				VolumeID: "vol-1", VolumeSizeGiB: 100, FullBytes: inventory.Known[int64](10 << 30),
			}),
			"storage=0.50",
		},
		{
			"a file system in one zone",
			resource(inventory.KindFileSystem, "fsx-windows", inventory.StateAvailable,
				&inventory.FileSystem{CapacityGiB: 100, StorageType: "SSD", Deployment: "SINGLE_AZ_2"}),
			"storage=13.00",
		},
		{
			"a file system in two zones",
			resource(inventory.KindFileSystem, "fsx-windows", inventory.StateAvailable,
				&inventory.FileSystem{CapacityGiB: 100, StorageType: "SSD", Deployment: "MULTI_AZ_1"}),
			"storage=23.00",
		},
		{"a resource without detail", resource(inventory.KindInstance, "g6.2xlarge", inventory.StateRunning, nil), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, c := range rates([]*inventory.Resource{tc.r}, book(t))[tc.r.Ref()] {
				if c.Unpriced != "" {
					got = append(got, c.Meter+"?"+c.Unpriced)
					continue
				}
				if c.Source == "" || (c.AsOf.IsZero() && c.Category != Committed) ||
					c.Unit == "" || c.UnitPrice == "" {
					t.Errorf("charge %+v lacks where its price is from", c)
				}
				got = append(got, c.Meter+"="+c.ListCost.String())
			}
			if s := strings.Join(got, " "); s != tc.want &&
				!(strings.Contains(tc.want, "?") && strings.HasPrefix(s, tc.want)) {
				t.Errorf("got %q, want %q", s, tc.want)
			}
		})
	}
}

// TestSnapshotChain checks that only the oldest snapshot of a volume is charged for its size, so
// that thirty daily snapshots do not count as thirty volumes.
func TestSnapshotChain(t *testing.T) {
	var all []*inventory.Resource
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 30 {
		r := resource(inventory.KindSnapshot, "", inventory.StateAvailable, &inventory.Snapshot{
			VolumeID: "vol-1", VolumeSizeGiB: 1000,
		})
		r.ID, r.CreatedAt = fmt.Sprintf("snap-%02d", i), start.AddDate(0, 0, 29-i)
		all = append(all, r)
	}
	charges := rates(all, book(t))
	for i, r := range all {
		got := charges[r.Ref()]
		if len(got) != 1 {
			t.Fatalf("%s has %d charges", r.ID, len(got))
		}
		if base := i == 29; base != (got[0].Unpriced == "") {
			t.Errorf("%s of %s: unpriced %q, want a price only for the oldest", r.ID, r.CreatedAt, got[0].Unpriced)
		}
	}
	if total := charges[all[29].Ref()][0].ListCost; total.String() != "50.00" {
		t.Errorf("the chain costs %s, want 50.00", total)
	}
	copies := resource(inventory.KindSnapshot, "", inventory.StateAvailable,
		&inventory.Snapshot{VolumeID: "vol-ffffffff", VolumeSizeGiB: 10})
	other := *copies
	other.ID = "y"
	if got := rates([]*inventory.Resource{copies, &other}, book(t)); len(got[copies.Ref()]) != 1 ||
		got[copies.Ref()][0].Unpriced != "" || got[other.Ref()][0].Unpriced != "" {
		t.Errorf("copied snapshots hold their own blocks; got %+v", got)
	}
}

// TestNeverZeroForUnknown checks that a running machine of any type has a positive price or a
// reason why it has none.
func TestNeverZeroForUnknown(t *testing.T) {
	b := book(t)
	types := []string{"", "p9.48xlarge"}
	for _, m := range b.Machines() {
		types = append(types, m.Type)
	}
	rapid.Check(t, func(t *rapid.T) {
		r := resource(inventory.KindInstance, rapid.SampledFrom(types).Draw(t, "type"), inventory.StateRunning,
			linux(rapid.SampledFrom([]inventory.Market{
				inventory.OnDemand, inventory.Spot, inventory.CapacityBlock, inventory.DedicatedHost,
				inventory.MarketUnknown}).Draw(t, "market")))
		r.Region = rapid.SampledFrom([]string{"us-east-1", "ap-southeast-2", "mars-north-1"}).Draw(t, "region")
		charges := rates([]*inventory.Resource{r}, b)[r.Ref()]
		if len(charges) != 1 {
			t.Fatalf("%d charges, want 1", len(charges))
		}
		if c := charges[0]; (c.Unpriced == "") != (c.ListCost > 0) {
			t.Fatalf("%s in %s costs %s, unpriced %q", r.Type, r.Region, c.ListCost, c.Unpriced)
		}
	})
}

// TestAssumedPlatformIsEstimate checks that a machine of unknown platform is priced as Linux and
// marked as an estimate.
func TestAssumedPlatformIsEstimate(t *testing.T) {
	d := linux(inventory.OnDemand)
	d.PlatformAssumed = true
	r := resource(inventory.KindInstance, "g6.2xlarge", inventory.StateRunning, d)
	charges := rates([]*inventory.Resource{r}, book(t))[r.Ref()]
	if len(charges) != 1 || charges[0].ListCost <= 0 || !strings.Contains(charges[0].Estimate, "Linux is assumed") {
		t.Errorf("charges %+v", charges)
	}
}
