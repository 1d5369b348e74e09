package aws

import (
	"fmt"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/price"
)

// priced attaches the meters of a resource and describes each by its name, with its monthly cost or
// why it is unknown.
func priced(t *testing.T, r *inventory.Resource) string {
	t.Helper()
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	r.Cloud, r.Region = price.AWS, "us-east-1"
	Attach([]*inventory.Resource{r})
	var parts []string
	for _, m := range r.Meters {
		part := m.Name + " "
		p, err := book.Price(m.Cloud, m.Service, m.SKU, m.Region, price.Term(m.Term))
		switch {
		case m.UnpricedReason != "":
			part += "? " + m.UnpricedReason
		case err != nil:
			part += "? " + err.Error()
		default:
			cost, err := p.Cost(m.Quantity, m.Per)
			if err != nil {
				t.Fatal(err)
			}
			part += cost.Cents()
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// TestDatabaseMeters compares with sums worked out by hand from AWS's price pages of us-east-1.
func TestDatabaseMeters(t *testing.T) {
	database := func(d inventory.Database) *inventory.Resource {
		return &inventory.Resource{
			Kind: inventory.KindDatabase, Type: "db.m5.large", State: inventory.StateRunning, Detail: &d,
		}
	}
	for _, tc := range []struct {
		name string
		in   *inventory.Resource
		want string
	}{
		{
			"IOPS of io1",
			database(inventory.Database{Engine: "mysql", StorageGiB: 200, StorageType: "io1", IOPS: 10_000}),
			"compute 124.83; storage 25.00; iops 1000.00",
		},
		{
			"a standby doubles them",
			database(inventory.Database{
				Engine: "mysql", MultiAZ: true, StorageGiB: 200, StorageType: "io1", IOPS: 10_000,
			}),
			"compute 249.66; storage 50.00; iops 2000.00"},
		{
			"io2 costs what io1 does",
			database(inventory.Database{Engine: "mysql", StorageGiB: 200, StorageType: "io2", IOPS: 2_500}),
			"compute 124.83; storage 25.00; iops 250.00",
		},
		{
			"IOPS of io1 that were not read",
			database(inventory.Database{Engine: "mysql", StorageGiB: 200, StorageType: "io1"}),
			"compute 124.83; storage 25.00; iops ? its provisioned IOPS are not known"},
		{
			"gp3 at the baseline of a small volume",
			database(inventory.Database{
				Engine: "postgres", StorageGiB: 399, StorageType: "gp3", IOPS: 3_000, ThroughputMiBps: 125,
			}),
			"compute 129.94; storage 45.88"},
		{
			"gp3 at the baseline of four volumes",
			database(inventory.Database{
				Engine: "postgres", StorageGiB: 400, StorageType: "gp3", IOPS: 12_000, ThroughputMiBps: 500,
			}),
			"compute 129.94; storage 46.00"},
		{
			"gp3 over it", database(inventory.Database{
				Engine: "postgres", StorageGiB: 400, StorageType: "gp3", IOPS: 15_000, ThroughputMiBps: 500,
			}),
			"compute 129.94; storage 46.00; iops 60.00"},
		{
			"SQL Server has one volume",
			database(inventory.Database{
				Engine: "sqlserver-se", License: "license-included", StorageGiB: 1_000,
				StorageType: "gp3", IOPS: 4_000,
			}),
			"compute ? rds:sqlserver-se price of db.m5.large in us-east-1: run `curfew price update --from aws --regions " +
				"us-east-1`: no price; storage 115.00; iops 20.00"},
		{
			"Oracle has four from 200 GiB on",
			database(inventory.Database{
				Engine: "oracle-ee-cdb", License: licenseOwn, StorageGiB: 200, StorageType: "gp3", IOPS: 12_500,
			}),
			"compute ? rds:oracle-ee:byol price of db.m5.large in us-east-1: run `curfew price update --from aws --regions " +
				"us-east-1`: no price; storage 23.00; iops 10.00"},
		{
			"throughput without a price",
			database(inventory.Database{
				Engine: "postgres", StorageGiB: 500, StorageType: "gp3", IOPS: 12_000, ThroughputMiBps: 700,
			}),
			"compute 129.94; storage 57.50; throughput ? rate of rds:throughput:gp3 in us-east-1: run `curfew price update " +
				"--from aws --regions us-east-1`: no price"},
		{
			"Aurora", database(inventory.Database{
				Engine: "aurora-mysql", Cluster: "c", StorageGiB: 1, StorageType: "aurora-iopt1",
			}),
			"compute ? I/O-Optimized machines have prices of their own, which the price book does not hold; storage ? its " +
				"cluster's volume is charged by the bytes in it, which are not read"},
		{
			"a member of a Multi-AZ cluster",
			database(inventory.Database{Engine: "mysql", Cluster: "c", StorageGiB: 100, StorageType: "gp3"}),
			"compute ? a Multi-AZ DB cluster has prices of its own, which the price book does not hold; storage ? a Multi-AZ " +
				"DB cluster has prices of its own, which the price book does not hold"},
		{
			"a stopped database keeps its storage", &inventory.Resource{
				Kind: inventory.KindDatabase, Type: "db.m5.large", State: inventory.StateStopped,
				Detail: &inventory.Database{Engine: "mysql", StorageGiB: 200, StorageType: "io1", IOPS: 1_000}},
			"storage 25.00; iops 100.00"},
		{
			"masters of a search cluster", &inventory.Resource{
				Kind: inventory.KindDatabase, Type: "r5.large.search", State: inventory.StateRunning,
				Detail: &inventory.Database{
					Engine: "opensearch", Count: 2, StorageGiB: 10, StorageType: "gp3",
					IOPS: 3_000, ThroughputMiBps: 125,
					Nodes: []inventory.NodeGroup{{Name: "masters", Type: "m5.large.search", Count: 3}}}},
			"compute 271.56; compute:masters 310.98; storage 2.44"},
		{
			"a cache", &inventory.Resource{
				Kind: inventory.KindCache, Type: "cache.r6g.large", State: inventory.StateAvailable,
				Detail: &inventory.Database{Engine: "redis", Count: 2},
			},
			"compute ? elasticache:redis price of cache.r6g.large in us-east-1: run `curfew price update --from aws " +
				"--regions us-east-1`: no price"},
	} {
		if got := priced(t, tc.in); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

func TestAddressMeters(t *testing.T) {
	machine := func(state inventory.State, platform string, addresses int64) *inventory.Resource {
		return &inventory.Resource{
			Kind: inventory.KindInstance, Type: "m5.large", State: state, Detail: &inventory.Instance{
				Market:   inventory.OnDemand,
				Platform: platform, Tenancy: inventory.SharedTenancy, PublicAddresses: addresses}}
	}
	address := func(pool string) *inventory.Resource {
		return &inventory.Resource{
			Kind: inventory.KindAddress, State: inventory.StateAvailable, Detail: &inventory.Address{Pool: pool},
		}
	}
	for _, tc := range []struct {
		name string
		in   *inventory.Resource
		want string
	}{
		{
			"two addresses for 730 hours", machine(inventory.StateRunning, inventory.LinuxPlatform, 2),
			"compute 70.08; address 7.30",
		},
		{"none", machine(inventory.StateRunning, inventory.LinuxPlatform, 0), "compute 70.08"},
		{
			"a stopped machine gives its addresses back", machine(inventory.StateStopped, inventory.LinuxPlatform, 2),
			"",
		},
		{"a machine whose license has no price", machine(inventory.StateRunning, "windows", 1),
			`compute ? the price book holds Linux prices and this machine's platform is "windows"; address 3.65`},
		{"an address of the account", address(""), "hours 3.65"},
		{
			"an address of IPAM", address("ipam-pool-1"),
			"hours ? it is of IPAM pool ipam-pool-1: addresses that were brought along are free, Amazon's own are not",
		},
	} {
		if got := priced(t, tc.in); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

// TestVolumeMeters covers the tiers of io2 IOPS, which apply to each volume.
func TestVolumeMeters(t *testing.T) {
	for _, tc := range []struct {
		kind        string
		iops, mibps int64
		want        string
	}{
		{"gp3", 3_000, 125, "storage 8.00"},
		{"gp3", 10_000, 500, "storage 8.00; iops 35.00; throughput 15.00"},
		{"io1", 10_000, 0, "storage 12.50; iops 650.00"},
		{"io2", 70_000, 0, fmt.Sprintf("storage 12.50; iops %.2f", 32_000*0.065+32_000*0.0455+6_000*0.032)},
		{"io2", 0, 0, "storage 12.50; iops ? its provisioned IOPS are not known"},
		{"gp2", 0, 0, "storage 10.00"},
	} {
		r := &inventory.Resource{Kind: inventory.KindVolume, Type: tc.kind, State: inventory.StateInUse,
			Detail: &inventory.Volume{SizeGiB: 100, IOPS: tc.iops, ThroughputMiBps: tc.mibps}}
		if got := priced(t, r); got != tc.want {
			t.Errorf("%s with %d IOPS:\n got %s\nwant %s", tc.kind, tc.iops, got, tc.want)
		}
	}
}

func TestHyperPodMeters(t *testing.T) {
	cluster := func(groups inventory.Fact[[]inventory.HyperPodGroup]) *inventory.Resource {
		return &inventory.Resource{
			Kind: inventory.KindHyperPod, State: inventory.StateRunning, Detail: &inventory.HyperPod{Groups: groups},
		}
	}
	of := func(name string, count int64) inventory.NodeGroup {
		return inventory.NodeGroup{Name: name, Type: "m5.xlarge", Count: count}
	}
	for _, tc := range []struct {
		name string
		in   *inventory.Resource
		want string
	}{
		// Two ml.m5.xlarge at 0.23 an hour.
		{"machines", cluster(inventory.Known([]inventory.HyperPodGroup{{NodeGroup: of("a", 2), VolumeGiB: 100}})),
			"compute:a 335.80; storage:a ? the price book does not hold volumes of HyperPod"},
		{
			"no machines yet",
			cluster(inventory.Known([]inventory.HyperPodGroup{{NodeGroup: of("a", 0), VolumeGiB: 100}})),
			"",
		},
		{
			"machines that are bought otherwise",
			cluster(inventory.Known([]inventory.HyperPodGroup{
				{NodeGroup: of("a", 1), TrainingPlan: true}, {NodeGroup: of("b", 1), Spot: true},
			})),
			"compute:a ? its machines are paid up front by a training plan; compute:b ? spot machines of HyperPod " +
				"are billed " +
				"at a price that is known afterwards"},
		{
			"machines that were not read", cluster(inventory.Fact[[]inventory.HyperPodGroup]{}),
			"compute ? the cluster's machines could not be read",
		},
	} {
		if got := priced(t, tc.in); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}
