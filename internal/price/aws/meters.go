// Package aws derives the billing meters of AWS resources: for the resource's present state, the
// charged quantities, their items of the price book, and the free allowances.
package aws

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

// gib is the unit in which AWS meters storage, whatever its price pages call it: 2^30 bytes.
const gib = 1 << 30

// minimumSeconds is EC2's minimum charge for each run of a machine.
//
// Source: AWS, "Amazon EC2 On-Demand Pricing": per second, with a minimum of 60 s.
const minimumSeconds = 60

// IOPS and MiB/s that are included in a gp3 volume (Amazon EBS pricing).
const (
	GP3FreeIOPS  = 3000
	GP3FreeMiBps = 125
)

// Attach sets the meters of each resource in its present state. Resources that are charged through
// others (an image through its snapshots, a group through its machines) get none. The resources
// must include all snapshots of a volume, because the first of a chain holds the volume's blocks.
func Attach(resources []*inventory.Resource) {
	bases := chainBases(resources)
	for _, r := range resources {
		m := meter{resource: r}
		if s, ok := r.Detail.(*inventory.Snapshot); ok {
			m.snapshot(s, bases[r])
		} else {
			m.read()
		}
		r.Meters = m.meters
	}
}

// chainBases finds the oldest snapshot of each volume's chain, which holds all of its blocks.
// Copies, whose volume is a placeholder, are separate chains.
func chainBases(resources []*inventory.Resource) map[*inventory.Resource]bool {
	type chain struct{ account, region, volume string }
	oldest := map[chain]*inventory.Resource{}
	bases := map[*inventory.Resource]bool{}
	for _, r := range resources {
		s, ok := r.Detail.(*inventory.Snapshot)
		if !ok {
			continue
		}
		if !s.InChain() {
			bases[r] = true
			continue
		}
		key := chain{r.Account, r.Region, s.VolumeID}
		if o := oldest[key]; o == nil || cmp.Or(r.CreatedAt.Compare(o.CreatedAt), cmp.Compare(r.ID, o.ID)) < 0 {
			oldest[key] = r
		}
	}
	for _, r := range oldest {
		bases[r] = true
	}
	return bases
}

// meter collects the meters of one resource.
type meter struct {
	resource *inventory.Resource
	meters   []inventory.Meter
}

// read adds the meters of a resource by its kind.
func (m *meter) read() {
	r := m.resource
	if r.State == inventory.StateDeleting {
		return
	}
	switch d := r.Detail.(type) {
	case *inventory.Instance:
		m.instance(d)
	case *inventory.Volume:
		m.volume(d)
	case *inventory.Address:
		m.address(d)
	case *inventory.NATGateway:
		if r.State == inventory.StateAvailable || r.State == inventory.StateRunning {
			m.rate("hours", inventory.CategoryNetwork, money.HoursPerMonth, price.ItemNAT)
		}
	case *inventory.LoadBalancer:
		m.rate("hours", inventory.CategoryNetwork, money.HoursPerMonth, price.Item("lb:"+r.Type))
	case *inventory.Bucket:
		m.classes(d.Sizes, "s3:", "the bucket's size")
	case *inventory.Repository:
		m.bytes(d.Bytes, price.ItemECR, "the repository's size",
			"the sum of its images; layers that they share are stored once")
	case *inventory.LogGroup:
		m.bytes(d.StoredBytes, price.ItemLogsStorage, "the log group's size", "")
	case *inventory.Notebook:
		if r.State == inventory.StateRunning {
			m.managed("compute", inventory.CategoryCompute, "sagemaker", r.Type, 1)
		}
		m.sizedGiB(d.VolumeGiB, price.ItemSageMakerStorage)
	case *inventory.Endpoint:
		if r.State == inventory.StateRunning {
			for _, v := range d.Variants {
				if !v.Serverless {
					m.managed("compute:"+v.Name, inventory.CategoryCompute, "sagemaker", v.Type, v.Count)
				}
			}
		}
	case *inventory.TrainingJob:
		m.trainingJob(d)
	case *inventory.HyperPod:
		m.hyperPod(d)
	case *inventory.CapacityReservation:
		m.reservation(d)
	case *inventory.Commitment:
		m.commitment(d)
	case *inventory.FileSystem:
		m.fileSystem(d)
	case *inventory.Database:
		m.database(d)
	case *inventory.Cluster:
		m.cluster(d)
	case *inventory.Table:
		if r.State == inventory.StateRunning && !d.OnDemand {
			m.rate("reads", inventory.CategoryStorage, d.ReadUnits*money.HoursPerMonth, price.ItemTableRead)
			m.rate("writes", inventory.CategoryStorage, d.WriteUnits*money.HoursPerMonth, price.ItemTableWrite)
		}
	case *inventory.VPCEndpoint:
		if r.State == inventory.StateAvailable {
			m.rate("hours", inventory.CategoryNetwork, max(1, d.Zones)*money.HoursPerMonth, price.ItemVPCEndpoint)
		}
	case *inventory.Secret:
		m.rate("months", inventory.CategoryOverhead, 1, price.ItemSecret)
	}
}

// hours returns a meter of a number of machines that run all month.
func (m *meter) hours(name string, category inventory.Category, service, sku string, count int64) inventory.Meter {
	return inventory.Meter{
		Name: name, Category: category, Cloud: price.AWS, Service: service, SKU: sku, Region: m.resource.Region,
		Unit: "hour", Quantity: count * money.HoursPerMonth, Per: 1}
}

func (m *meter) instance(d *inventory.Instance) {
	if m.resource.State != inventory.StateRunning {
		return
	}
	c := m.hours("compute", inventory.CategoryCompute, price.Compute, m.resource.Type, 1)
	c.MinimumSeconds, c.PriceChangesHourly = minimumSeconds, d.Market == inventory.Spot
	switch {
	case d.Market == inventory.CapacityBlock:
		c.UnpricedReason = "a capacity block is paid up front when it is reserved"
	case d.Market == inventory.DedicatedHost:
		c.UnpricedReason = "its dedicated host is billed, not the machine"
	case d.Platform != inventory.LinuxPlatform:
		c.UnpricedReason = fmt.Sprintf("the price book holds Linux prices and this machine's platform is %q",
			cmp.Or(d.Platform, "not known"))
	case d.Tenancy != inventory.SharedTenancy:
		c.UnpricedReason = fmt.Sprintf("the price book holds shared tenancy and this machine's is %q",
			cmp.Or(d.Tenancy, "not known"))
	case d.Market == inventory.OnDemand:
	case d.Market == inventory.Spot:
		c.Term = string(price.Spot)
		c.Estimate = "spot prices move; this is the price book's"
	default:
		c.UnpricedReason = "how the machine's capacity was bought is not known"
	}
	if d.PlatformAssumed && c.UnpricedReason == "" {
		c.Estimate = cmp.Or(c.Estimate, "its platform was not told; Linux is assumed")
	}
	m.add(c)
	if d.PublicAddresses > 0 {
		m.rate("address", inventory.CategoryNetwork, d.PublicAddresses*money.HoursPerMonth, price.ItemAddress)
	}
}

// address meters a public IPv4 address that the account holds, in use or not. Addresses from
// contiguous blocks of Amazon have their own price, and BYOIP addresses are free (Amazon VPC
// pricing, "Public IPv4 Address" and "IPAM").
func (m *meter) address(d *inventory.Address) {
	c := m.item("hours", inventory.CategoryNetwork, price.ItemAddress)
	c.Quantity, c.Per = money.HoursPerMonth, 1
	if d.Pool != "" {
		c.UnpricedReason = "it is of IPAM pool " + d.Pool +
			": addresses that were brought along are free, Amazon's own are not"
	}
	m.add(c)
}

func (m *meter) volume(d *inventory.Volume) {
	kind := m.resource.Type
	m.sizedGiB(d.SizeGiB, price.Item("ebs:"+kind))
	switch kind {
	case "gp3":
		if extra := d.IOPS - GP3FreeIOPS; extra > 0 {
			m.rate("iops", inventory.CategoryStorage, extra, price.ItemGP3IOPS)
		}
		if extra := d.ThroughputMiBps - GP3FreeMiBps; extra > 0 {
			m.rate("throughput", inventory.CategoryStorage, extra, price.ItemGP3Throughput)
		}
	case "io1", "io2":
		m.provisioned(d.IOPS, price.Item("ebs:"+kind+":iops"))
	}
}

// snapshot meters the first snapshot of a chain with all of its blocks; the size of later ones is
// not published.
func (m *meter) snapshot(s *inventory.Snapshot, base bool) {
	item := price.ItemSnapshot
	if s.Archived {
		item, base = price.ItemSnapshotArchive, true
	}
	if !base {
		c := m.item("storage", inventory.CategoryStorage, item)
		c.Estimate = "an incremental snapshot: its share of the chain is not published, and the chain's first one " +
			"holds the volume"
		c.UnpricedReason = "incremental snapshot"
		m.add(c)
		return
	}
	if full, known := s.FullBytes.Get(); known {
		m.quantity("storage", inventory.CategoryStorage, full, gib, item)
		return
	}
	m.quantity("storage", inventory.CategoryStorage, s.VolumeSizeGiB, 1, item)
	m.meters[len(m.meters)-1].Estimate = "the volume's size, the most a full snapshot holds"
}

func (m *meter) trainingJob(d *inventory.TrainingJob) {
	r := m.resource
	if r.State != inventory.StateRunning && r.State != inventory.StateStopping {
		return
	}
	if d.Spot {
		m.add(inventory.Meter{Name: "compute", Category: inventory.CategoryCompute, Unit: "hour",
			UnpricedReason: "managed spot training is billed at a price that is known afterwards"})
	} else {
		m.managed("compute", inventory.CategoryCompute, "sagemaker", r.Type, d.Count)
	}
	m.sizedGiB(d.VolumeGiB*max(d.Count, 1), price.ItemSageMakerStorage)
}

// hyperPod meters the machines of a HyperPod cluster, while they exist, at SageMaker prices, and
// their additional volumes. Each root volume is included in its machine (Amazon SageMaker AI
// pricing, "SageMaker HyperPod").
func (m *meter) hyperPod(d *inventory.HyperPod) {
	groups, known := d.Groups.Get()
	if !known {
		m.add(inventory.Meter{
			Name: "compute", Category: inventory.CategoryCompute, Unit: "hour",
			UnpricedReason: "the cluster's machines could not be read",
		})
		return
	}
	for _, g := range groups {
		if g.Count <= 0 {
			continue
		}
		c := m.hours("compute:"+g.Name, inventory.CategoryCompute, "sagemaker", g.Type, g.Count)
		switch {
		case g.TrainingPlan:
			c.UnpricedReason = "its machines are paid up front by a training plan"
		case g.Spot:
			c.UnpricedReason = "spot machines of HyperPod are billed at a price that is known afterwards"
		}
		m.add(c)
		if g.VolumeGiB > 0 {
			m.unpriced("storage:"+g.Name, "the price book does not hold volumes of HyperPod")
		}
	}
}

// reservation meters the unused part; the used part is paid as the machines' cost.
func (m *meter) reservation(d *inventory.CapacityReservation) {
	if d.Available == 0 {
		return
	}
	c := m.hours("unused", inventory.CategoryCompute, price.Compute, m.resource.Type, d.Available)
	switch {
	case d.Block:
		c.UnpricedReason = "a capacity block is paid up front when it is reserved"
	case d.Platform != inventory.LinuxPlatform || d.Tenancy != inventory.SharedTenancy:
		c.UnpricedReason = fmt.Sprintf("the price book holds Linux on shared tenancy and this reservation is %q on %q",
			d.Platform,
			d.Tenancy)
	}
	m.add(c)
}

func (m *meter) commitment(d *inventory.Commitment) {
	c := m.hours("commitment", inventory.CategoryCommitted, "", "", 1)
	c.Price = &inventory.Price{Source: "the commitment itself"}
	hourly, known := d.Hourly.Get()
	if !known {
		c.UnpricedReason = "what the commitment costs an hour could not be read"
	} else if rate, err := hourly.Rate(); err != nil {
		c.UnpricedReason = err.Error()
	} else {
		c.Price.Rate = rate
	}
	m.add(c)
}

func (m *meter) fileSystem(d *inventory.FileSystem) {
	kind := m.resource.Type
	if kind == "efs" {
		m.classes(d.Sizes, "efs:", "the file system's size")
		return
	}
	item := strings.ReplaceAll(kind, "-", ":")
	if strings.HasPrefix(d.Deployment, "MULTI_AZ") {
		item += ":multi"
	}
	if d.ThroughputMBpsPerTiB > 0 {
		item += ":" + strconv.FormatInt(d.ThroughputMBpsPerTiB, 10)
	}
	m.sizedGiB(d.CapacityGiB, price.Item(item+":"+strings.ToLower(cmp.Or(d.StorageType, "ssd"))))
}

// cluster meters a control plane, at the price of extended support once that begins.
func (m *meter) cluster(d *inventory.Cluster) {
	if m.resource.State != inventory.StateRunning {
		return
	}
	item := price.ItemCluster
	if !d.ExtendedSince.IsZero() {
		item = price.ItemClusterExtended
	}
	m.rate("hours", inventory.CategoryOverhead, money.HoursPerMonth, item)
}

// managed meters a number of machines of a managed service.
func (m *meter) managed(name string, category inventory.Category, service, machine string, count int64) {
	m.add(m.hours(name, category, service, machine, count))
}

// classes meters bytes by storage class.
func (m *meter) classes(sizes inventory.Fact[map[string]int64], prefix, what string) {
	byClass, known := sizes.Get()
	if !known {
		m.add(inventory.Meter{
			Name: "storage", Category: inventory.CategoryStorage, Unit: "GiB-month",
			UnpricedReason: what + " could not be read",
		})
		return
	}
	for _, class := range slices.Sorted(maps.Keys(byClass)) {
		if byClass[class] > 0 {
			m.quantity("storage:"+class, inventory.CategoryStorage, byClass[class], gib, price.Item(prefix+class))
		}
	}
}

func (m *meter) bytes(size inventory.Fact[int64], item price.Item, what, estimate string) {
	n, known := size.Get()
	switch {
	case !known:
		m.add(inventory.Meter{
			Name: "storage", Category: inventory.CategoryStorage, Estimate: estimate,
			UnpricedReason: what + " could not be read",
		})
	case n > 0:
		m.quantity("storage", inventory.CategoryStorage, n, gib, item)
		m.meters[len(m.meters)-1].Estimate = estimate
	}
}

// sizedGiB meters provisioned storage.
func (m *meter) sizedGiB(size int64, item price.Item) {
	if size > 0 {
		m.rate("storage", inventory.CategoryStorage, size, item)
	}
}

// rate meters n units of an item.
func (m *meter) rate(name string, category inventory.Category, n int64, item price.Item) {
	m.quantity(name, category, n, 1, item)
}

// quantity meters n/d units of an item.
func (m *meter) quantity(name string, category inventory.Category, n, d int64, item price.Item) {
	c := m.item(name, category, item)
	c.Quantity, c.Per = n, d
	m.add(c)
}

// item returns a meter of an item of unknown quantity.
func (m *meter) item(name string, category inventory.Category, item price.Item) inventory.Meter {
	return inventory.Meter{
		Name: name, Category: category, Cloud: price.AWS, Service: price.Rates, SKU: string(item),
		Region: m.resource.Region, Unit: item.Unit(),
	}
}

func (m *meter) add(c inventory.Meter) { m.meters = append(m.meters, c) }
