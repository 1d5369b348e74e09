package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/price/aws"
)

// drawn draws a resource of a kind, which runs half of the time, with details that do not affect
// the page.
func drawn(t *rapid.T, kind inventory.Kind) *inventory.Resource {
	pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
	count := func(name string) int64 {
		return rapid.SampledFrom([]int64{0, 1, 3, 2999, 3001, 12001, 64001}).Draw(t, name)
	}
	sizes := func(classes ...string) inventory.Fact[map[string]int64] {
		if !rapid.Bool().Draw(t, "sized") {
			return inventory.Fact[map[string]int64]{}
		}
		return inventory.Known(map[string]int64{pick("class", classes...): count("bytes")})
	}
	bytes := func() inventory.Fact[int64] {
		if rapid.Bool().Draw(t, "known") {
			return inventory.Known(count("bytes"))
		}
		return inventory.Fact[int64]{}
	}
	r := &inventory.Resource{ID: "x", Cloud: price.AWS, Region: meterRegion, Kind: kind, State: inventory.StateRunning,
		Type: pick("type", "m5.large", "p5.48xlarge", "x9.huge", "")}
	if rapid.Bool().Draw(t, "any state") {
		r.State = rapid.SampledFrom([]inventory.State{
			inventory.StateUnknown, inventory.StatePending, inventory.StateRunning, inventory.StateStopped,
			inventory.StateAvailable, inventory.StateInUse, inventory.StateFailed,
			inventory.StateDeleting}).Draw(t, "state")
	}
	platform, tenancy := pick("platform", "linux", "windows", "rhel", ""), pick("tenancy",
		"shared", "dedicated", "host",
		"")
	group := inventory.NodeGroup{Name: "g", Type: r.Type, Count: count("nodes")}
	switch r.Kind {
	case inventory.KindInstance:
		r.Detail = &inventory.Instance{Platform: platform, Tenancy: tenancy, PublicAddresses: count("addresses"),
			Market: inventory.Market(pick("market", "", "on-demand", "spot", "capacity-block", "dedicated-host"))}
	case inventory.KindVolume:
		r.Type = pick("volume", "gp2", "gp3", "io1", "io2", "st1", "sc1", "standard")
		r.Detail = &inventory.Volume{SizeGiB: count("size"), IOPS: count("iops"), ThroughputMiBps: count("throughput")}
	case inventory.KindSnapshot:
		r.Detail = &inventory.Snapshot{
			VolumeID: pick("of", "vol-1", "vol-ffffffff", ""), VolumeSizeGiB: count("size"), FullBytes: bytes(),
			Archived: rapid.Bool().Draw(t, "archived"),
		}
	case inventory.KindAddress:
		r.Detail = &inventory.Address{Pool: pick("pool", "", "ipam-pool-7")}
	case inventory.KindNATGateway:
		r.Detail = &inventory.NATGateway{}
	case inventory.KindLoadBalancer:
		r.Type = pick("balancer", "application", "network", "gateway", "classic")
		r.Detail = &inventory.LoadBalancer{}
	case inventory.KindBucket:
		r.Detail = &inventory.Bucket{Sizes: sizes("STANDARD", "GLACIER", "GLACIER_IR", "EXPRESS_ONEZONE")}
	case inventory.KindRepository:
		r.Detail = &inventory.Repository{Bytes: bytes()}
	case inventory.KindLogGroup:
		r.Detail = &inventory.LogGroup{StoredBytes: bytes()}
	case inventory.KindNotebook:
		r.Detail = &inventory.Notebook{VolumeGiB: count("size")}
	case inventory.KindEndpoint:
		r.Detail = &inventory.Endpoint{
			Variants: []inventory.Variant{
				{Name: "v", Type: r.Type, Count: count("machines"), Serverless: rapid.Bool().Draw(t, "serverless")},
			},
		}
	case inventory.KindTrainingJob:
		r.Detail = &inventory.TrainingJob{
			Count: count("machines"), VolumeGiB: count("size"), Spot: rapid.Bool().Draw(t, "spot"),
		}
	case inventory.KindHyperPod:
		d := &inventory.HyperPod{}
		if rapid.Bool().Draw(t, "read") {
			d.Groups = inventory.Known([]inventory.HyperPodGroup{{NodeGroup: group, Spot: rapid.Bool().Draw(t, "spot"),
				TrainingPlan: rapid.Bool().Draw(t, "planned"), VolumeGiB: count("size")}})
		}
		r.Detail = d
	case inventory.KindCapacityReservation:
		r.Detail = &inventory.CapacityReservation{
			Total: 9, Available: count("free"), Block: rapid.Bool().Draw(t, "block"),
			Platform: platform, Tenancy: tenancy,
		}
	case inventory.KindCommitment:
		d := &inventory.Commitment{}
		if rapid.Bool().Draw(t, "read") {
			d.Hourly = inventory.Known(money.USD)
		}
		r.Detail = d
	case inventory.KindFileSystem:
		r.Type = pick("file system", "efs", "fsx-lustre", "fsx-windows", "fsx-ontap", "fsx-openzfs")
		r.Detail = &inventory.FileSystem{
			Sizes: sizes("STANDARD", "IA", "ARCHIVE"), CapacityGiB: count("size"),
			StorageType:          pick("disks", "", "SSD", "HDD"),
			ThroughputMBpsPerTiB: count("throughput"), Deployment: pick("deployment", "", "SCRATCH_2", "MULTI_AZ_1")}
	case inventory.KindDatabase, inventory.KindCache, inventory.KindWarehouse:
		r.Type = pick("class", "db.m5.large", "db.serverless", "m5.large.search", "cache.t3.micro")
		r.Detail = &inventory.Database{
			Engine: pick("engine", "postgres", "mysql", "mariadb", "oracle-ee", "oracle-se2-cdb",
				"sqlserver-web", "db2-ae",
				"aurora", "aurora-mysql", "docdb", "neptune", "opensearch", "redis"),
			License: pick("license", "", "license-included", "bring-your-own-license", "marketplace-license"),
			Cluster: pick("cluster", "", "c"),
			Count:   count("nodes"), MultiAZ: rapid.Bool().Draw(t, "multi"),
			StorageGiB: count("size"), IOPS: count("iops"),
			ThroughputMiBps: count("throughput"),
			StorageType:     pick("storage", "", "standard", "gp2", "gp3", "io1", "io2", "aurora", "aurora-iopt1"),
			Nodes:           []inventory.NodeGroup{group},
		}
	case inventory.KindCluster:
		r.Detail = &inventory.Cluster{}
	case inventory.KindTable:
		r.Detail = &inventory.Table{
			OnDemand: rapid.Bool().Draw(t, "on demand"), ReadUnits: count("reads"), WriteUnits: count("writes"),
		}
	case inventory.KindVPCEndpoint:
		r.Detail = &inventory.VPCEndpoint{Zones: count("zones")}
	case inventory.KindSecret:
		r.Detail = &inventory.Secret{}
	}
	return r
}

// reasonOf returns a reason without the parts that depend on the resource.
func reasonOf(why string) string {
	if at := strings.IndexAny(why, `"0123456789`); at >= 0 {
		why = why[:at]
	}
	why, _, _ = strings.Cut(why, " of IPAM pool ")
	return why
}

// TestMetersAreOnThePage checks that each meter of a random resource has a row on the page, priced
// or with the reason why it is not, and that every kind is listed.
func TestMetersAreOnThePage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/meters.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(text), "## Meters\n")
	priced, rest, _ := strings.Cut(page, "## Meters without a price\n")
	unpriced, not, ok := strings.Cut(rest, "## Not metered\n")
	if !ok {
		t.Fatal("the page has other sections")
	}
	for _, kind := range inventory.Kinds() {
		if !strings.Contains(not, "| `"+string(kind)+"` |") {
			t.Errorf("%s is not on the page", kind)
		}
	}
	row := func(lines string, r *inventory.Resource, m *inventory.Meter, has string) bool {
		begins := "| `" + string(r.Kind) + "` | " + meterName(m.Name) + " |"
		return slices.ContainsFunc(strings.Split(lines, "\n"), func(line string) bool {
			return strings.HasPrefix(line, begins) && strings.Contains(line, has)
		})
	}
	check := func(t *rapid.T, kind inventory.Kind) {
		r := drawn(t, kind)
		aws.Attach([]*inventory.Resource{r})
		for i := range r.Meters {
			m := &r.Meters[i]
			family := pricedBy(m) // of an item, its service, since other items may have a row
			if m.Service == price.Rates {
				family, _, _ = strings.Cut(m.SKU, ":")
			} else if m.Service != "" && m.Service != price.Compute {
				family, _, _ = strings.Cut(family, ":")
			}
			switch {
			case m.UnpricedReason != "" && !row(unpriced, r, m, reasonOf(m.UnpricedReason)):
				t.Errorf("%s %s is unpriced (%s), and the page does not say so", r.Kind, m.Name, m.UnpricedReason)
			case m.UnpricedReason == "" && !row(priced, r, m, family):
				t.Errorf("%s %s is priced by %s, and the page does not say so", r.Kind, m.Name, pricedBy(m))
			}
		}
	}
	for _, kind := range inventory.Kinds() {
		t.Run(string(kind), func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { check(t, kind) }) })
	}
}
