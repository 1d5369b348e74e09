package price

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// List is a part of the AWS Price List to read for one region: a service, filtered by attributes of
// its products. Without attributes all products are read.
type List struct {
	Service    string
	Attributes map[string]string
}

// Lists returns the parts of the Price List that hold prices of the book. The attributes of
// machines select Linux on shared tenancy without a license, and exclude reservations.
func Lists() []List {
	family := func(name string) map[string]string { return map[string]string{"productFamily": name} }
	lists := []List{
		{
			"AmazonEC2",
			map[string]string{
				"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used",
			},
		},
		{"AmazonSageMaker", family("ML Instance")},
		{"AmazonRedshift", family("Compute Instance")},
		{"AmazonElastiCache", family("Cache Instance")},
		{"AmazonRDS", family("Database Instance")},
		{"AmazonDocDB", family("Database Instance")},
		{"AmazonNeptune", family("Database Instance")},
	}
	have := map[string]bool{}
	for _, p := range listed {
		if key := p.service + "\x00" + p.family; !have[key] {
			have[key] = true
			l := List{Service: p.service}
			if p.family != "" {
				l.Attributes = family(p.family)
			}
			lists = append(lists, l)
		}
	}
	return lists
}

// listedItem maps a product of the Price List to items of the book.
type listedItem struct {
	// service is the service code. family is the product family, or empty for services that are
	// read completely.
	service, family string
	// usage is the usage type without the region prefix.
	usage string
	// where holds required values of other attributes.
	where map[string]string
	// unit is the list's unit and the number of the book's units in it; 0 means one.
	unit string
	per  int64
	// free is true if the first units may be free for the account as a whole.
	free bool
	// above is the quantity above which the price applies, if the list has a product for each tier.
	above int64
	items []Item
}

// Units of the Price List.
const (
	listHours   = "Hrs"
	listStorage = "GB-Mo"
	listIOPS    = "IOPS-Mo"
	listBytes   = "GB"
)

// mibPerGiB is the number of MiB/s in the unit of gp3 throughput prices.
const mibPerGiB = 1024

// listed maps products of the Price List to items.
//
// Source: AWS Price List of the services; usage types as in the Cost and Usage Report.
var listed = slices.Concat(volumes(), []listedItem{
	{
		service: "AmazonEC2", family: "System Operation", usage: "EBS:VolumeP-IOPS.gp3", unit: listIOPS,
		items: []Item{ItemGP3IOPS},
	},
	{
		service: "AmazonEC2", family: "System Operation", usage: "EBS:VolumeP-IOPS.piops", unit: listIOPS,
		items: []Item{ItemIO1IOPS},
	},
	{
		service: "AmazonEC2", family: "System Operation", usage: "EBS:VolumeP-IOPS.io2", unit: listIOPS,
		items: []Item{ItemIO2IOPS},
	},
	{
		service: "AmazonEC2", family: "System Operation", usage: "EBS:VolumeP-IOPS.io2.tier2", unit: listIOPS,
		above: 32_000, items: []Item{ItemIO2IOPS},
	},
	{
		service: "AmazonEC2", family: "System Operation", usage: "EBS:VolumeP-IOPS.io2.tier3", unit: listIOPS,
		above: 64_000, items: []Item{ItemIO2IOPS},
	},
	{
		service: "AmazonEC2", family: "Provisioned Throughput", usage: "EBS:VolumeP-Throughput.gp3", unit: "GiBps-mo",
		per: mibPerGiB, items: []Item{ItemGP3Throughput},
	},
	{
		service: "AmazonEC2", family: "Storage Snapshot", usage: "EBS:SnapshotUsage", unit: listStorage,
		items: []Item{ItemSnapshot},
	},
	{
		service: "AmazonEC2", family: "Storage Snapshot", usage: "EBS:SnapshotArchiveStorage", unit: listStorage,
		items: []Item{ItemSnapshotArchive},
	},
	{service: "AmazonEC2", family: "NAT Gateway", usage: "NatGateway-Hours", unit: listHours, items: []Item{ItemNAT}},
	{
		service: "AmazonEC2", family: "NAT Gateway", usage: "NatGateway-Bytes", unit: listBytes,
		items: []Item{ItemNATData},
	},
	// Products of public addresses have no family.
	{service: "AmazonVPC", usage: "PublicIPv4:InUseAddress", unit: listHours, items: []Item{ItemAddress}},
	{service: "AmazonVPC", usage: "VpcEndpoint-Hours", unit: listHours, items: []Item{ItemVPCEndpoint}},
	{
		service: "AWSELB", family: "Load Balancer-Application", usage: "LoadBalancerUsage", unit: listHours,
		items: []Item{ItemLBApplication},
	},
	{
		service: "AWSELB", family: "Load Balancer-Network", usage: "LoadBalancerUsage", unit: listHours,
		items: []Item{ItemLBNetwork},
	},
	{
		service: "AWSELB", family: "Load Balancer-Gateway", usage: "LoadBalancerUsage", unit: listHours,
		items: []Item{ItemLBGateway},
	},
	{
		service: "AWSELB", family: "Load Balancer", usage: "LoadBalancerUsage", unit: listHours,
		items: []Item{ItemLBClassic},
	},

	{
		service: "AmazonS3", family: "Storage", usage: "TimedStorage-ByteHrs", unit: listStorage,
		items: []Item{ItemS3Standard},
	},
	{
		service: "AmazonS3", family: "Storage", usage: "TimedStorage-SIA-ByteHrs", unit: listStorage,
		items: []Item{ItemS3StandardIA},
	},
	{
		service: "AmazonS3", family: "Storage", usage: "TimedStorage-ZIA-ByteHrs", unit: listStorage,
		items: []Item{ItemS3OneZoneIA},
	},
	{
		service: "AmazonS3", family: "Storage", usage: "TimedStorage-INT-FA-ByteHrs", unit: listStorage,
		items: []Item{ItemS3IntelligentTiering},
	},
	{
		service: "AmazonS3", family: "Storage", usage: "TimedStorage-GIR-ByteHrs", unit: listStorage,
		items: []Item{ItemS3GlacierIR},
	},
	{
		service: "AmazonS3", family: "Storage", usage: "TimedStorage-GlacierByteHrs", unit: listStorage,
		items: []Item{ItemS3Glacier},
	},
	{
		service: "AmazonS3", family: "Storage", usage: "TimedStorage-GDA-ByteHrs", unit: listStorage,
		items: []Item{ItemS3DeepArchive},
	},
	{
		service: "AmazonS3GlacierDeepArchive", family: "Storage", usage: "TimedStorage-GDA-ByteHrs", unit: listStorage,
		items: []Item{ItemS3DeepArchive},
	},
	{
		service: "AmazonS3", family: "Storage", usage: "TimedStorage-RRS-ByteHrs", unit: listStorage,
		items: []Item{ItemS3ReducedRedundancy},
	},
	{
		service: "AmazonS3", family: "Storage", usage: "TimedStorage-XZ-ByteHrs", unit: listStorage,
		items: []Item{ItemS3ExpressOneZone},
	},
	{service: "AmazonS3", family: "API Request", usage: "Requests-Tier1", unit: "Requests", items: []Item{ItemS3List}},
	{
		service: "AmazonS3", family: "API Request", usage: "Requests-Tier4", unit: "Requests",
		where: map[string]string{"operation": ""},
		items: []Item{ItemS3ToStandardIA, ItemS3ToOneZoneIA, ItemS3ToIntelligentTiering}},
	{
		service: "AmazonS3", family: "API Request", usage: "Requests-Tier3", unit: "Requests",
		where: map[string]string{"operation": "S3-GlacierTransition"},
		items: []Item{ItemS3ToGlacier}},
	{
		service: "AmazonS3", family: "API Request", usage: "Requests-Tier3", unit: "Requests",
		where: map[string]string{"operation": "S3-GDATransition"},
		items: []Item{ItemS3ToDeepArchive}},

	{service: "AmazonECR", usage: "TimedStorage-ByteHrs", unit: listStorage, free: true, items: []Item{ItemECR}},
	{
		service: "AmazonCloudWatch", family: "Data Payload", usage: "DataProcessing-Bytes",
		unit: listBytes, free: true,
		items: []Item{ItemLogsIngest},
	},
	{
		service: "AmazonCloudWatch", family: "Data Payload", usage: "DataProcessingIA-Bytes",
		unit: listBytes, free: true,
		items: []Item{ItemLogsIngestInfrequent},
	},
	{
		service: "AmazonCloudWatch", family: "Storage Snapshot", usage: "TimedStorage-ByteHrs", unit: listStorage,
		free: true, items: []Item{ItemLogsStorage},
	},
	{
		service: "AmazonEFS", family: "Storage", usage: "TimedStorage-ByteHrs", unit: listStorage, free: true,
		items: []Item{ItemEFSStandard},
	},
	{
		service: "AmazonEFS", family: "Storage", usage: "IATimedStorage-ByteHrs", unit: listStorage,
		items: []Item{ItemEFSIA},
	},
	{
		service: "AmazonEFS", family: "Storage", usage: "ArchiveTimedStorage-ByteHrs", unit: listStorage,
		items: []Item{ItemEFSArchive},
	},
	{service: "AmazonEKS", usage: "AmazonEKS-Hours:perCluster", unit: listHours, items: []Item{ItemCluster}},
	{
		service: "AmazonDynamoDB", family: "Provisioned IOPS", usage: "ReadCapacityUnit-Hrs",
		unit:  "ReadCapacityUnit-Hrs",
		free:  true,
		where: map[string]string{"group": "DDB-ReadUnits"}, items: []Item{ItemTableRead}},
	{
		service: "AmazonDynamoDB", family: "Provisioned IOPS", usage: "WriteCapacityUnit-Hrs",
		unit:  "WriteCapacityUnit-Hrs",
		free:  true,
		where: map[string]string{"group": "DDB-WriteUnits"}, items: []Item{ItemTableWrite}},
	{
		service: "AmazonSageMaker", family: "Storage", usage: "Notebk:VolumeUsage.gp2", unit: listStorage,
		items: []Item{ItemSageMakerStorage},
	},
	{service: "AmazonES", usage: "ES:GP2-Storage", unit: listStorage, items: []Item{"opensearch:storage:gp2"}},
	{service: "AmazonES", usage: "ES:GP3-Storage", unit: listStorage, items: []Item{ItemOpenSearchGP}},
	{service: "AmazonES", usage: "ES:PIOPS-Storage", unit: listStorage, items: []Item{"opensearch:storage:io1"}},
	{service: "AmazonES", usage: "ES:PIOPS", unit: listIOPS, items: []Item{"opensearch:iops:io1"}},
}, databaseStorage())

// volumes returns the volume types of EBS.
func volumes() (all []listedItem) {
	for _, kind := range []struct {
		usage string
		item  Item
	}{
		{"EBS:VolumeUsage.gp2", ItemGP2}, {"EBS:VolumeUsage.gp3", ItemGP3}, {"EBS:VolumeUsage.piops", ItemIO1},
		{"EBS:VolumeUsage.io2", ItemIO2}, {"EBS:VolumeUsage.st1", ItemST1}, {"EBS:VolumeUsage.sc1", ItemSC1},
		{"EBS:VolumeUsage", ItemMagnetic},
	} {
		all = append(all, listedItem{
			service: "AmazonEC2", family: "Storage", usage: kind.usage, unit: listStorage, items: []Item{kind.item},
		})
	}
	return all
}

// databaseStorage returns single-zone storage of RDS, for engines without a storage price of their
// own.
func databaseStorage() (all []listedItem) {
	for _, kind := range []struct {
		family, usage, unit string
		item                Item
	}{
		{"Database Storage", "RDS:StorageUsage", listStorage, ItemRDSMagnetic},
		{"Database Storage", "RDS:GP2-Storage", listStorage, ItemRDSGP2},
		{"Database Storage", "RDS:GP3-Storage", listStorage, ItemRDSGP3},
		{"Database Storage", "RDS:PIOPS-Storage", listStorage, ItemRDSIO1},
		{"Database Storage", "RDS:PIOPS-Storage-IO2", listStorage, ItemRDSIO2},
		{"Provisioned IOPS", "RDS:PIOPS", listIOPS, ItemRDSIO1IOPS},
		{"Provisioned IOPS", "RDS:GP3-PIOPS", listIOPS, ItemRDSGP3IOPS},
		{"Provisioned IOPS", "RDS:IO2-PIOPS", listIOPS, ItemRDSIO2IOPS},
		{"Provisioned Throughput", "RDS:GP3-Throughput", "MBPS-Mo", ItemRDSGP3Throughput},
	} {
		all = append(all, listedItem{service: "AmazonRDS", family: kind.family, usage: kind.usage, unit: kind.unit,
			where: map[string]string{"databaseEngine": "Any", "deploymentOption": "Single-AZ"},
			items: []Item{kind.item}})
	}
	return all
}

// regionPrefix matches the region at the start of a usage type: "USW2-BoxUsage:m5.large".
var regionPrefix = lazyregexp.New(`^(EU|[A-Z]{3,4}\d)-`)

// bareUsage returns a usage type without its region prefix.
func bareUsage(usage string) string {
	return strings.TrimPrefix(usage, regionPrefix.FindString(usage))
}

// listedAs returns the listed item of a product.
func (p product) listedAs() (listedItem, bool) {
	a := p.Product.Attributes
	usage, code := bareUsage(a["usagetype"]), cmp.Or(a["servicecode"], p.ServiceCode)
	for _, l := range listed {
		differs := func(key string) bool { return a[key] != l.where[key] }
		if l.usage == usage && l.service == code && (l.family == "" || l.family == p.Product.ProductFamily) &&
			!slices.ContainsFunc(slices.Collect(maps.Keys(l.where)), differs) {
			return l, true
		}
	}
	return listedItem{}, false
}

// databaseEngines maps the list's engine and edition to the prefix of RDS engine names.
var databaseEngines = map[[2]string]string{
	{"PostgreSQL", ""}: "postgres", {"MySQL", ""}: "mysql", {"MariaDB", ""}: "mariadb",
	{"Aurora PostgreSQL", ""}: "aurora-postgresql", {"Aurora MySQL", ""}: "aurora-mysql",
	{"Oracle", "Standard Two"}: "oracle-se2", {"Oracle", "Enterprise"}: "oracle-ee",
	{"SQL Server", "Express"}: "sqlserver-ex", {"SQL Server", "Web"}: "sqlserver-web",
	{"SQL Server", "Standard"}: "sqlserver-se", {"SQL Server", "Enterprise"}: "sqlserver-ee",
	{"Db2", "Standard"}: "db2-se", {"Db2", "Advanced"}: "db2-ae",
}

// database identifies the single-zone database of a product and its license model.
func (p product) database() (service string, ok bool) {
	a := p.Product.Attributes
	if p.Product.ProductFamily != "Database Instance" || a["instanceType"] == "" ||
		bareUsage(a["usagetype"]) != "InstanceUsage:"+a["instanceType"] {
		return "", false
	}
	switch cmp.Or(a["servicecode"], p.ServiceCode) {
	case "AmazonDocDB":
		return "docdb", true
	case "AmazonNeptune":
		return "neptune", true
	case "AmazonRDS":
	default:
		return "", false
	}
	engine := databaseEngines[[2]string{a["databaseEngine"], a["databaseEdition"]}]
	if engine == "" || a["deploymentOption"] != "Single-AZ" || a["deploymentModel"] != "" {
		return "", false
	}
	service = "rds:" + engine
	if a["licenseModel"] == "Bring your own license" {
		service += ":byol"
	}
	return service, true
}

// listedServices are the managed services with machine prices in the lists.
var listedServices = []string{"sagemaker", "redshift", "opensearch", "docdb", "neptune"}

// Updates reports whether [Lists] and the spot price history cover a price: of a cloud's service,
// or of an item if the service is [Rates].
func Updates(cloud, service, sku string) bool {
	if cloud != AWS {
		return false
	}
	engine, isDatabase := strings.CutPrefix(service, "rds:")
	switch {
	case service == Rates:
		return slices.ContainsFunc(listed, func(l listedItem) bool { return slices.Contains(l.items, Item(sku)) })
	case isDatabase:
		return slices.Contains(slices.Collect(maps.Values(databaseEngines)), strings.TrimSuffix(engine, ":byol"))
	}
	return service == Compute || strings.HasPrefix(service, cachePrefix) || slices.Contains(listedServices, service)
}

// updateHint returns the command that adds a price to the book.
func updateHint(cloud, service, sku, region string, term Term) string {
	from := "aws"
	if term == Spot {
		from = "spot"
	}
	switch {
	case !Updates(cloud, service, sku):
		return "no price list is read for it: give its price in a file, `curfew price update FILE`"
	case region == "":
		return fmt.Sprintf("run `curfew price update --from %s`", from)
	}
	return fmt.Sprintf("run `curfew price update --from %s --regions %s`", from, region)
}
