package aws

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/price"
)

// License models of RDS (RDS API, DBInstance, LicenseModel).
const (
	licenseOwn         = "bring-your-own-license"
	licenseMarketplace = "marketplace-license"
)

// DatabaseService returns the price book's service for the hours of an RDS database, by engine and
// by whether the license is included.
func DatabaseService(engine, license string) string {
	service := "rds:" + strings.TrimSuffix(engine, "-cdb") // multitenant Oracle costs the same
	switch engine {
	case "":
		service = "rds"
	case "aurora": // MySQL, as RDS named its first version
		service = "rds:aurora-mysql"
	case "docdb", "neptune": // RDS lists them, other services bill them
		service = engine
	}
	if license == licenseOwn {
		service += ":byol"
	}
	return service
}

// Baselines of gp3 storage of RDS. From a size on, which depends on the engine, RDS stripes the
// storage over four volumes.
//
// Source: RDS User Guide, "Amazon RDS DB instance storage", "gp3 storage": the threshold is
// 200 GiB for Oracle and 400 GiB for Db2, MariaDB, MySQL and PostgreSQL; SQL Server has none.
const (
	stripes            = 4
	stripedGiB         = 400
	stripedGiBOfOracle = 200
)

// DatabaseGP3Free returns the IOPS and MiB/s that are included in a database's gp3 storage.
func DatabaseGP3Free(engine string, gib int64) (iops, mibps int64) {
	from := int64(stripedGiB)
	switch {
	case strings.HasPrefix(engine, "sqlserver"):
		return GP3FreeIOPS, GP3FreeMiBps
	case strings.HasPrefix(engine, "oracle"):
		from = stripedGiBOfOracle
	}
	if gib < from {
		return GP3FreeIOPS, GP3FreeMiBps
	}
	return stripes * GP3FreeIOPS, stripes * GP3FreeMiBps
}

// clusterVolume reports whether an engine stores its data in the volume of its cluster.
func clusterVolume(engine string) bool {
	return strings.HasPrefix(engine, "aurora") || engine == "docdb" || engine == "neptune"
}

// database meters databases, caches, warehouses and search clusters.
func (m *meter) database(d *inventory.Database) {
	switch {
	case m.resource.Kind == inventory.KindCache:
		m.nodes("elasticache:"+d.Engine, d)
	case m.resource.Kind == inventory.KindWarehouse:
		m.nodes("redshift", d)
	case d.Engine == "opensearch" || d.Engine == "elasticsearch":
		m.searchCluster(d)
	default:
		m.relational(d)
	}
}

// nodes meters the machines of a service without other meters.
func (m *meter) nodes(service string, d *inventory.Database) {
	if m.serves() {
		m.managed("compute", inventory.CategoryStorage, service, m.resource.Type, max(d.Count, 1))
	}
}

// serves reports whether a database's machines run.
func (m *meter) serves() bool {
	return m.resource.State == inventory.StateRunning || m.resource.State == inventory.StateAvailable
}

// searchCluster meters the machines of OpenSearch and their storage. IOPS and throughput of gp3
// storage are free up to a limit by size (Amazon OpenSearch Service pricing).
func (m *meter) searchCluster(d *inventory.Database) {
	m.nodes("opensearch", d)
	for _, g := range d.Nodes {
		if m.serves() && g.Count > 0 {
			m.managed("compute:"+g.Name, inventory.CategoryStorage, "opensearch", g.Type, g.Count)
		}
	}
	if d.StorageGiB == 0 {
		return
	}
	kind, copies := cmp.Or(d.StorageType, "gp2"), max(d.Count, 1)
	m.sizedGiB(d.StorageGiB*copies, price.Item("opensearch:storage:"+kind))
	switch {
	case kind == "io1":
		m.rate("iops", inventory.CategoryStorage, d.IOPS*copies, "opensearch:iops:io1")
	case kind == "gp3" && (d.IOPS > GP3FreeIOPS || d.ThroughputMiBps > GP3FreeMiBps):
		c := m.item("iops", inventory.CategoryStorage, "opensearch:iops:gp3")
		c.UnpricedReason = fmt.Sprintf("how much of %d IOPS and %d MiB/s is free depends on the machine", d.IOPS,
			d.ThroughputMiBps)
		m.add(c)
	}
}

// relational meters an RDS database. A standby costs the same as its primary.
func (m *meter) relational(d *inventory.Database) {
	copies := max(d.Count, 1)
	if d.MultiAZ {
		copies *= 2
	}
	several := ""
	if d.Cluster != "" && !clusterVolume(d.Engine) {
		several = "a Multi-AZ DB cluster has prices of its own, which the price book does not hold"
	}
	if m.serves() {
		c := m.hours("compute", inventory.CategoryStorage, DatabaseService(d.Engine, d.License),
			m.resource.Type, copies)
		switch {
		case several != "":
			c.UnpricedReason = several
		case m.resource.Type == "db.serverless":
			c.UnpricedReason = "a serverless database is charged by the capacity that it uses"
		case d.License == licenseMarketplace:
			c.UnpricedReason = "its license is charged by AWS Marketplace in addition to its hours"
		case strings.HasSuffix(d.StorageType, "-iopt1"):
			c.UnpricedReason = "I/O-Optimized machines have prices of their own, which the price book does not hold"
		}
		m.add(c)
	}
	switch {
	case clusterVolume(d.Engine):
		m.unpriced("storage", "its cluster's volume is charged by the bytes in it, which are not read")
	case several != "":
		m.unpriced("storage", several)
	default:
		m.databaseStorage(d, copies)
	}
}

// databaseStorage meters provisioned storage with its IOPS and throughput: all IOPS of io1 and
// io2, and of gp3 what exceeds the baseline (Amazon RDS pricing, "Database storage").
func (m *meter) databaseStorage(d *inventory.Database, copies int64) {
	kind := cmp.Or(d.StorageType, "gp2")
	m.sizedGiB(d.StorageGiB*copies, price.Item("rds:storage:"+kind))
	switch kind {
	case "gp3":
		iops, mibps := DatabaseGP3Free(d.Engine, d.StorageGiB)
		if extra := d.IOPS - iops; extra > 0 {
			m.rate("iops", inventory.CategoryStorage, extra*copies, price.ItemRDSGP3IOPS)
		}
		if extra := d.ThroughputMiBps - mibps; extra > 0 {
			m.rate("throughput", inventory.CategoryStorage, extra*copies, price.ItemRDSGP3Throughput)
		}
	case "io1", "io2":
		m.provisioned(d.IOPS*copies, price.Item("rds:iops:"+kind))
	}
}

// provisioned meters IOPS of a storage type that always has some, so that zero means unknown.
func (m *meter) provisioned(iops int64, item price.Item) {
	if iops > 0 {
		m.rate("iops", inventory.CategoryStorage, iops, item)
		return
	}
	m.unpriced("iops", "its provisioned IOPS are not known")
}

// unpriced adds a meter of storage without a price.
func (m *meter) unpriced(name, why string) {
	m.add(inventory.Meter{Name: name, Category: inventory.CategoryStorage, UnpricedReason: why})
}
