package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/price/aws"
)

// meterRegion is the region for the prices on the page.
const meterRegion = "us-east-1"

// sampleResources returns AWS resources of every kind, in all shapes with different meters. The
// page lists what they are charged for.
func sampleResources() []*inventory.Resource {
	var all []*inventory.Resource
	add := func(kind inventory.Kind, machine string, state inventory.State, d inventory.Detail) {
		all = append(all, &inventory.Resource{
			ID: fmt.Sprintf("%s-%d", kind, len(all)), Kind: kind, Cloud: price.AWS, Account: "111122223333",
			Region: meterRegion, Type: machine, State: state, Detail: d})
	}
	running, stopped, available := inventory.StateRunning, inventory.StateStopped, inventory.StateAvailable
	linux := inventory.Instance{
		Market: inventory.OnDemand, Platform: inventory.LinuxPlatform, Tenancy: inventory.SharedTenancy,
		PublicAddresses: 1,
	}
	add(inventory.KindInstance, "m5.large", running, &linux)
	for _, change := range []func(*inventory.Instance){
		func(i *inventory.Instance) {
			i.Market = inventory.Spot
		}, func(i *inventory.Instance) { i.Market = inventory.CapacityBlock },
		func(i *inventory.Instance) {
			i.Market = inventory.DedicatedHost
		}, func(i *inventory.Instance) { i.Market = inventory.MarketUnknown },
		func(i *inventory.Instance) { i.Platform = "windows" }, func(i *inventory.Instance) { i.Platform = "" },
		func(i *inventory.Instance) { i.Tenancy = "dedicated" }, func(i *inventory.Instance) { i.Tenancy = "" },
	} {
		i := linux
		change(&i)
		machine := "m5.large"
		if i.Market == inventory.Spot {
			machine = "g5.xlarge"
		}
		add(inventory.KindInstance, machine, running, &i)
	}
	for _, kind := range []string{"gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"} {
		add(inventory.KindVolume, kind, inventory.StateInUse, &inventory.Volume{
			SizeGiB: 100, IOPS: 4000, ThroughputMiBps: 500,
		})
	}
	add(inventory.KindVolume, "io2", inventory.StateInUse, &inventory.Volume{SizeGiB: 100})
	for i, s := range []inventory.Snapshot{{FullBytes: inventory.Known(int64(1 << 30))}, {}, {Archived: true}} {
		s.VolumeID, s.VolumeSizeGiB = "vol-1", 10
		if i == 0 {
			s.VolumeID = "vol-0"
		}
		add(inventory.KindSnapshot, "", available, &s)
	}
	add(inventory.KindSnapshot, "", available, &inventory.Snapshot{VolumeID: "vol-1", VolumeSizeGiB: 10})
	add(inventory.KindImage, "", available, &inventory.Image{})
	add(inventory.KindAddress, "", available, &inventory.Address{})
	add(inventory.KindAddress, "", available, &inventory.Address{Pool: "ipam-pool-1"})
	add(inventory.KindNATGateway, "public", available, &inventory.NATGateway{})
	for _, kind := range []string{"application", "network", "gateway", "classic"} {
		add(inventory.KindLoadBalancer, kind, running, &inventory.LoadBalancer{})
	}
	classes := map[string]int64{}
	for _, class := range []string{
		"STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE",
		"EXPRESS_ONEZONE", "REDUCED_REDUNDANCY",
	} {
		classes[class] = 1 << 40
	}
	add(inventory.KindBucket, "", available, &inventory.Bucket{Sizes: inventory.Known(classes)})
	add(inventory.KindBucket, "", available, &inventory.Bucket{})
	add(inventory.KindRepository, "", available, &inventory.Repository{Bytes: inventory.Known(int64(1 << 40))})
	add(inventory.KindRepository, "", available, &inventory.Repository{})
	add(inventory.KindLogGroup, "", available, &inventory.LogGroup{StoredBytes: inventory.Known(int64(1 << 40))})
	add(inventory.KindLogGroup, "", available, &inventory.LogGroup{})
	add(inventory.KindNotebook, "t3.medium", running, &inventory.Notebook{VolumeGiB: 20})
	add(inventory.KindEndpoint, "g5.xlarge", running, &inventory.Endpoint{
		Variants: []inventory.Variant{{Name: "a", Type: "m5.large", Count: 1}, {Name: "b", Serverless: true}},
	})
	add(inventory.KindTrainingJob, "m5.large", running, &inventory.TrainingJob{Count: 2, VolumeGiB: 50})
	add(inventory.KindTrainingJob, "m5.large", running, &inventory.TrainingJob{Count: 2, Spot: true})
	groups := []inventory.HyperPodGroup{
		{NodeGroup: inventory.NodeGroup{Name: "a", Type: "m5.large", Count: 1}, VolumeGiB: 100},
	}
	for _, g := range []inventory.HyperPodGroup{{TrainingPlan: true}, {Spot: true}} {
		g.NodeGroup = groups[0].NodeGroup
		groups = append(groups, g)
	}
	add(inventory.KindHyperPod, "", running, &inventory.HyperPod{Groups: inventory.Known(groups)})
	add(inventory.KindHyperPod, "", running, &inventory.HyperPod{})
	add(inventory.KindAutoScalingGroup, "", running, &inventory.AutoScalingGroup{})
	reserved := inventory.CapacityReservation{
		Total: 2, Available: 1, Platform: inventory.LinuxPlatform, Tenancy: inventory.SharedTenancy,
	}
	add(inventory.KindCapacityReservation, "m5.large", available, &reserved)
	block, windows := reserved, reserved
	block.Block, windows.Platform = true, "windows"
	add(inventory.KindCapacityReservation, "m5.large", available, &block)
	add(inventory.KindCapacityReservation, "m5.large", available, &windows)
	add(inventory.KindCommitment, "m5.large", running, &inventory.Commitment{Hourly: inventory.Known(money.USD)})
	add(inventory.KindCommitment, "m5.large", running, &inventory.Commitment{})
	add(inventory.KindFileSystem, "efs", available, &inventory.FileSystem{
		Sizes: inventory.Known(map[string]int64{"STANDARD": 1 << 40, "IA": 1 << 40, "ARCHIVE": 1 << 40}),
	})
	add(inventory.KindFileSystem, "efs", available, &inventory.FileSystem{})
	add(inventory.KindFileSystem, "fsx-lustre", available, &inventory.FileSystem{
		CapacityGiB: 1200, StorageType: "SSD", ThroughputMBpsPerTiB: 125,
	})
	for _, kind := range []string{"fsx-windows", "fsx-ontap", "fsx-openzfs"} {
		add(inventory.KindFileSystem, kind, available, &inventory.FileSystem{
			CapacityGiB: 1200, StorageType: "SSD", Deployment: "MULTI_AZ_1",
		})
	}
	for _, d := range []inventory.Database{
		{
			Engine: "postgres", StorageType: "gp2",
		}, {Engine: "mysql", StorageType: "gp3", IOPS: 13_000, ThroughputMiBps: 600},
		{Engine: "mariadb", StorageType: "io1", IOPS: 1000},
		{Engine: "postgres", StorageType: "io2", IOPS: 1000}, {Engine: "postgres", StorageType: "io2"},
		{Engine: "postgres", StorageType: "standard"},
		{Engine: "oracle-se2", License: "license-included"}, {Engine: "oracle-ee", License: "bring-your-own-license"},
		{Engine: "sqlserver-se", License: "license-included"},
		{
			Engine: "db2-se", License: "marketplace-license",
		}, {Engine: "aurora-postgresql", Cluster: "c", StorageType: "aurora"},
		{Engine: "aurora-mysql", Cluster: "c", StorageType: "aurora-iopt1"}, {Engine: "mysql", Cluster: "c"},
		{Engine: "docdb", Cluster: "c"}, {Engine: "neptune", Cluster: "c"},
	} {
		d.Count, d.StorageGiB = 1, 500
		add(inventory.KindDatabase, "db.m5.large", running, &d)
	}
	add(inventory.KindDatabase, "db.serverless", running, &inventory.Database{Engine: "aurora-mysql", Cluster: "c"})
	add(inventory.KindDatabase, "db.m5.large", stopped, &inventory.Database{Engine: "mysql", StorageGiB: 20})
	masters := []inventory.NodeGroup{{Name: "masters", Type: "m5.large.search", Count: 3}}
	for _, kind := range []string{"gp2", "gp3", "io1"} {
		add(inventory.KindDatabase, "m5.large.search", running, &inventory.Database{
			Engine: "opensearch", StorageGiB: 500, StorageType: kind, IOPS: 9000, Nodes: masters,
		})
	}
	add(inventory.KindCache, "cache.m6g.large", available, &inventory.Database{Engine: "redis", Count: 2})
	add(inventory.KindWarehouse, "ra3.xlplus", available, &inventory.Database{Engine: "redshift", Count: 2})
	add(inventory.KindCluster, "", running, &inventory.Cluster{})
	add(inventory.KindCluster, "", running, &inventory.Cluster{ExtendedSince: time.Unix(1, 0)})
	add(inventory.KindTable, "", running, &inventory.Table{ReadUnits: 5, WriteUnits: 5})
	add(inventory.KindVPCEndpoint, "", available, &inventory.VPCEndpoint{Zones: 2})
	add(inventory.KindSecret, "", available, &inventory.Secret{})
	return all
}

// meterRow is one meter of a kind with its prices: items and services of the book.
type meterRow struct {
	kind       inventory.Kind
	name, unit string
	// by lists items, or services of machines. Of these, missing have no price in the shipped book
	// for the machine of the page, and unlisted are in no price list that is read.
	by, missing, unlisted []string
	// own is true if the meter has its own price.
	own      bool
	unpriced []string
}

// meterName returns a meter's name without that of a part of the resource.
func meterName(name string) string {
	name, _, _ = strings.Cut(name, ":")
	return name
}

// pricedBy returns the entry of the book that prices a meter.
func pricedBy(m *inventory.Meter) string {
	switch {
	case m.Service == "":
		return "the commitment itself"
	case m.Service == price.Rates:
		return m.SKU
	case m.Service == price.Compute && m.Term == string(price.Spot):
		return "machines on spot"
	case m.Service == price.Compute:
		return "machines on demand"
	}
	return "machines of " + m.Service
}

// meterRows returns the meters of resources, by kind and name.
func meterRows(resources []*inventory.Resource, book *price.Book) []*meterRow {
	aws.Attach(resources)
	var rows []*meterRow
	for _, r := range resources {
		for i := range r.Meters {
			m := &r.Meters[i]
			at := slices.IndexFunc(rows, func(x *meterRow) bool {
				return x.kind == r.Kind && x.name == meterName(m.Name)
			})
			if at < 0 {
				at = len(rows)
				rows = append(rows, &meterRow{kind: r.Kind, name: meterName(m.Name)})
			}
			x := rows[at]
			x.unit = cmp.Or(x.unit, m.Unit)
			if m.UnpricedReason != "" {
				if !slices.Contains(x.unpriced, m.UnpricedReason) {
					x.unpriced = append(x.unpriced, m.UnpricedReason)
				}
				continue
			}
			by := pricedBy(m)
			if slices.Contains(x.by, by) {
				continue
			}
			x.by = append(x.by, by)
			if m.Price != nil {
				x.own = true
				continue
			}
			if _, err := book.Price(m.Cloud, m.Service, m.SKU, m.Region, price.Term(m.Term)); err != nil {
				x.missing = append(x.missing, by)
			}
			if !price.Updates(m.Cloud, m.Service, m.SKU) {
				x.unlisted = append(x.unlisted, by)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b *meterRow) int { return cmp.Compare(a.kind, b.kind) })
	return rows
}

// meters writes the meters of each kind, and those without a price.
func (p *book) meters() error {
	prices, err := price.Embedded()
	if err != nil {
		return err
	}
	rows := meterRows(sampleResources(), prices)
	// but describes whether all of a meter's items are present.
	but := func(x *meterRow, not []string) string {
		switch {
		case x.own:
			return "not needed"
		case len(not) == 0:
			return "yes"
		case len(not) == len(x.by):
			return "no"
		}
		return "all but " + codes(not)
	}
	p.text("What curfew prices of each kind of resource on AWS, and what not. A meter without a price is listed as " +
		"unpriced with its reason, and never costs zero. " +
		"Prices are those of the [price book](../prices.md). The columns at the right say what of it the shipped book has " +
		"in " + meterRegion +
		", of machines for a usual type, and what `curfew price update` reads.")
	p.heading(2, "Meters")
	var priced, unpriced [][]string
	for _, x := range rows {
		if len(x.by) > 0 {
			priced = append(priced, []string{
				code(string(x.kind)), x.name, x.unit, codes(x.by), but(x, x.missing), but(x, x.unlisted),
			})
		}
		for _, why := range x.unpriced {
			unpriced = append(unpriced, []string{code(string(x.kind)), x.name, why})
		}
	}
	p.table([]string{"kind", "meter", "unit", "priced by", "shipped", "read by an update"}, priced)
	p.heading(2, "Meters without a price")
	p.text("Resources in these states are listed as unpriced, with this reason.")
	p.table([]string{"kind", "meter", "reason"}, unpriced)
	p.heading(2, "Not metered")
	p.text("What AWS charges in addition and curfew has no meter for. Traffic is not metered of any kind. Services " +
		"that curfew does not read are named with their billed dollars as not covered.")
	var without [][]string
	for _, kind := range inventory.Kinds() {
		what := strings.Join(aws.NotMetered(kind), "; ")
		if !kind.Traits().Metered {
			what = "it has no cost of its own: it consists of other resources"
		}
		if kind == inventory.KindNode || kind == inventory.KindPod {
			what = "priced by the machine that it runs on, or by the rates of on-premises machines"
		}
		without = append(without, []string{code(string(kind)), cmp.Or(what, "nothing more")})
	}
	p.table([]string{"kind", "not metered"}, without)
	return nil
}
