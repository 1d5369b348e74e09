package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

// gib is the unit in which the provider meters storage, whatever its price pages
// call it: 2^30 bytes.
const gib = 1 << 30

// RunRates returns what each resource costs in a month, running as it does now,
// at list price: one charge for each of its meters. Resources without a meter of
// their own (an image is stored in its snapshots, a group is its machines) have no
// entry.
func RunRates(resources []*inventory.Resource, book *price.Book) map[inventory.Ref][]Charge {
	out := make(map[inventory.Ref][]Charge, len(resources))
	bases := chainBases(resources)
	for _, r := range resources {
		m := meter{resource: r, book: book}
		if s, ok := r.Detail.(*inventory.Snapshot); ok {
			m.snapshot(s, bases[r])
		} else {
			m.read()
		}
		if len(m.charges) > 0 {
			out[r.Ref()] = m.charges
		}
	}
	return out
}

// Total adds up charges that have a price, and says whether all had one.
func Total(charges []Charge) (total money.Amount, priced bool) {
	priced = true
	for _, c := range charges {
		if c.Unpriced != "" {
			priced = false
			continue
		}
		sum, err := total.Add(c.ListCost)
		if err != nil {
			return total, false
		}
		total = sum
	}
	return total, priced
}

// chainBases finds the snapshot of each volume's chain that holds all its blocks:
// the oldest. Copies, whose volume is a placeholder, are chains of their own.
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

// meter collects the charges of one resource.
type meter struct {
	resource *inventory.Resource
	book     *price.Book
	charges  []Charge
}

// read adds the charges of a resource by its kind.
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
		m.rate("hours", Network, money.HoursPerMonth, price.ItemAddress)
	case *inventory.NATGateway:
		if r.State == inventory.StateAvailable || r.State == inventory.StateRunning {
			m.rate("hours", Network, money.HoursPerMonth, price.ItemNAT)
		}
	case *inventory.LoadBalancer:
		m.rate("hours", Network, money.HoursPerMonth, price.Item("lb:"+r.Type))
	case *inventory.Bucket:
		m.classes(d.Sizes, "s3:", "the bucket's size")
	case *inventory.Repository:
		m.bytes(d.Bytes, price.ItemECR, "the repository's size", "the sum of its images; layers that they share are stored once")
	case *inventory.LogGroup:
		m.bytes(d.StoredBytes, price.ItemLogsStorage, "the log group's size", "")
	case *inventory.Notebook:
		if r.State == inventory.StateRunning {
			m.managed("compute", Compute, "sagemaker", r.Type, 1)
		}
		m.sizedGiB(d.VolumeGiB, price.ItemSageMakerStorage)
	case *inventory.Endpoint:
		if r.State == inventory.StateRunning {
			for _, v := range d.Variants {
				if !v.Serverless {
					m.managed("compute:"+v.Name, Compute, "sagemaker", v.Type, v.Count)
				}
			}
		}
	case *inventory.TrainingJob:
		m.trainingJob(d)
	case *inventory.CapacityReservation:
		m.reservation(d)
	case *inventory.Commitment:
		m.commitment(d)
	case *inventory.FileSystem:
		m.fileSystem(d)
	case *inventory.Database:
		m.database(d)
	case *inventory.Secret:
		m.rate("months", Overhead, 1, price.ItemSecret)
	}
}

func (m *meter) instance(d *inventory.Instance) {
	r := m.resource
	if r.State != inventory.StateRunning {
		return
	}
	c := Charge{Resource: r, Meter: "compute", Category: Compute, Quantity: strconv.Itoa(money.HoursPerMonth), Unit: "hour"}
	switch {
	case d.Market == inventory.CapacityBlock:
		m.unpriced(c, "a capacity block is paid up front when it is reserved")
	case d.Market == inventory.DedicatedHost:
		m.unpriced(c, "its dedicated host is billed, not the machine")
	case d.Platform != inventory.LinuxPlatform:
		m.unpriced(c, fmt.Sprintf("the price book holds Linux prices and this machine's platform is %q", cmp.Or(d.Platform, "not known")))
	case d.Tenancy != inventory.SharedTenancy:
		m.unpriced(c, fmt.Sprintf("the price book holds shared tenancy and this machine's is %q", cmp.Or(d.Tenancy, "not known")))
	case d.Market == inventory.OnDemand:
		p, err := m.book.OnDemand(r.Type, r.Region)
		m.priced(c, p, err, money.HoursPerMonth, 1)
	case d.Market == inventory.Spot:
		p, err := m.book.Spot(r.Type, r.Region)
		c.Estimate = "spot prices move; this is the price book's"
		if most, err := m.book.OnDemand(r.Type, r.Region); err == nil {
			c.AtMost, _ = most.Cost(money.HoursPerMonth, 1) // no bound where it overflows
		}
		m.priced(c, p, err, money.HoursPerMonth, 1)
	default:
		m.unpriced(c, "how the machine's capacity was bought is not known")
	}
}

// Free parts of a gp3 volume: IOPS and MiB/s that cost nothing.
const (
	gp3FreeIOPS  = 3000
	gp3FreeMiBps = 125
)

func (m *meter) volume(d *inventory.Volume) {
	kind := m.resource.Type
	m.sizedGiB(d.SizeGiB, price.Item("ebs:"+kind))
	switch kind {
	case "gp3":
		if extra := d.IOPS - gp3FreeIOPS; extra > 0 {
			m.rate("iops", Storage, extra, price.ItemGP3IOPS)
		}
		if extra := d.ThroughputMiBps - gp3FreeMiBps; extra > 0 {
			m.rate("throughput", Storage, extra, price.ItemGP3Throughput)
		}
	case "io1", "io2":
		if d.IOPS > 0 {
			m.rate("iops", Storage, d.IOPS, price.Item("ebs:"+kind+":iops"))
		}
	}
}

// snapshot charges the first of a chain with all its blocks; what the later ones
// add is not published.
func (m *meter) snapshot(s *inventory.Snapshot, base bool) {
	item := price.ItemSnapshot
	if s.Archived {
		item, base = price.ItemSnapshotArchive, true
	}
	c := Charge{Resource: m.resource, Meter: "storage", Category: Storage, Unit: item.Unit()}
	if !base {
		c.Estimate = "an incremental snapshot: what it adds to its chain is not published, and the chain's first one holds the volume"
		m.unpriced(c, "incremental snapshot")
		return
	}
	if full, known := s.FullBytes.Get(); known {
		m.quantity(c, full, gib, item)
		return
	}
	c.Estimate = "the volume's size, the most a full snapshot holds"
	m.quantity(c, s.VolumeSizeGiB, 1, item)
}

func (m *meter) trainingJob(d *inventory.TrainingJob) {
	r := m.resource
	if r.State != inventory.StateRunning && r.State != inventory.StateStopping {
		return
	}
	if d.Spot {
		m.unpriced(Charge{Resource: r, Meter: "compute", Category: Compute, Unit: "hour"}, "managed spot training is billed at a price that is known afterwards")
	} else {
		m.managed("compute", Compute, "sagemaker", r.Type, d.Count)
	}
	m.sizedGiB(d.VolumeGiB*max(d.Count, 1), price.ItemSageMakerStorage)
}

// reservation charges the unused part; the used part is the machines' own cost.
func (m *meter) reservation(d *inventory.CapacityReservation) {
	r := m.resource
	c := Charge{Resource: r, Meter: "unused", Category: Compute, Quantity: strconv.FormatInt(d.Available*money.HoursPerMonth, 10), Unit: "hour"}
	switch {
	case d.Available == 0:
	case d.Block:
		m.unpriced(c, "a capacity block is paid up front when it is reserved")
	case d.Platform != inventory.LinuxPlatform || d.Tenancy != inventory.SharedTenancy:
		m.unpriced(c, fmt.Sprintf("the price book holds Linux on shared tenancy and this reservation is %q on %q", d.Platform, d.Tenancy))
	default:
		p, err := m.book.OnDemand(r.Type, r.Region)
		m.priced(c, p, err, d.Available*money.HoursPerMonth, 1)
	}
}

func (m *meter) commitment(d *inventory.Commitment) {
	c := Charge{Resource: m.resource, Meter: "commitment", Category: Committed, Quantity: strconv.Itoa(money.HoursPerMonth), Unit: "hour", Source: "the commitment itself"}
	hourly, known := d.Hourly.Get()
	if !known {
		m.unpriced(c, "what the commitment costs an hour could not be read")
		return
	}
	monthly, err := hourly.Monthly()
	if err != nil {
		m.unpriced(c, err.Error())
		return
	}
	c.ListCost, c.UnitPrice = monthly, hourly.String()
	m.charges = append(m.charges, c)
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

func (m *meter) database(d *inventory.Database) {
	service := "rds"
	if d.Engine == "opensearch" || d.Engine == "elasticsearch" {
		service = "opensearch"
	} else if d.Engine != "" {
		service += ":" + d.Engine
	}
	copies := max(d.Count, 1)
	if d.MultiAZ {
		copies *= 2
	}
	if m.resource.State == inventory.StateRunning || m.resource.State == inventory.StateAvailable {
		m.managed("compute", Storage, service, m.resource.Type, copies)
	}
	storage, _, _ := strings.Cut(service, ":")
	m.sizedGiB(d.StorageGiB*copies, price.Item(storage+":storage:"+cmp.Or(d.StorageType, "gp2")))
}

// managed charges count machines of a managed service.
func (m *meter) managed(name string, category Category, service, machine string, count int64) {
	hours := count * money.HoursPerMonth
	c := Charge{Resource: m.resource, Meter: name, Category: category, Quantity: strconv.FormatInt(hours, 10), Unit: "hour"}
	p, err := m.book.Managed(service, machine, m.resource.Region)
	m.priced(c, p, err, hours, 1)
}

// classes charges bytes by storage class.
func (m *meter) classes(sizes inventory.Fact[map[string]int64], prefix, what string) {
	byClass, known := sizes.Get()
	if !known {
		m.unpriced(Charge{Resource: m.resource, Meter: "storage", Category: Storage, Unit: "GiB-month"}, what+" could not be read")
		return
	}
	for _, class := range slices.Sorted(maps.Keys(byClass)) {
		if byClass[class] > 0 {
			m.quantity(Charge{Resource: m.resource, Meter: "storage:" + class, Category: Storage}, byClass[class], gib, price.Item(prefix+class))
		}
	}
}

func (m *meter) bytes(size inventory.Fact[int64], item price.Item, what, estimate string) {
	c := Charge{Resource: m.resource, Meter: "storage", Category: Storage, Estimate: estimate}
	n, known := size.Get()
	switch {
	case !known:
		m.unpriced(c, what+" could not be read")
	case n > 0:
		m.quantity(c, n, gib, item)
	}
}

// sizedGiB charges provisioned storage.
func (m *meter) sizedGiB(size int64, item price.Item) {
	if size > 0 {
		m.quantity(Charge{Resource: m.resource, Meter: "storage", Category: Storage}, size, 1, item)
	}
}

// rate charges n units of an item.
func (m *meter) rate(name string, category Category, n int64, item price.Item) {
	m.quantity(Charge{Resource: m.resource, Meter: name, Category: category}, n, 1, item)
}

// quantity charges n/d units of an item.
func (m *meter) quantity(c Charge, n, d int64, item price.Item) {
	c.Unit, c.Quantity = item.Unit(), quotient(n, d)
	p, err := m.book.Rate(item, m.resource.Region)
	m.priced(c, p, err, n, d)
}

// quotient prints n/d with up to three digits after the point.
func quotient(n, d int64) string {
	s := strconv.FormatFloat(float64(n)/float64(d), 'f', 3, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func (m *meter) priced(c Charge, p price.Price, err error, n, d int64) {
	if err == nil {
		c.UnitPrice, c.Source, c.AsOf = p.Rate.String(), p.Source, p.AsOf
		c.ListCost, err = p.Cost(n, d)
	}
	if err != nil {
		reason := err.Error()
		if errors.Is(err, price.ErrUnpriced) {
			reason = strings.TrimSuffix(strings.TrimSuffix(reason, price.ErrUnpriced.Error()), ": ")
		}
		m.unpriced(c, reason)
		return
	}
	m.charges = append(m.charges, c)
}

func (m *meter) unpriced(c Charge, reason string) {
	c.Unpriced = reason
	m.charges = append(m.charges, c)
}
