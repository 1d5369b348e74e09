package price

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// listedProduct returns a Price List document of Oregon with one price from the first unit on.
func listedProduct(service, family, usage, attributes, unit, usd string) string {
	return listedTiers(service, family, usage, attributes,
		fmt.Sprintf(`"p":{"unit":%q,"beginRange":"0","pricePerUnit":{"USD":%q}}`, unit, usd))
}

func listedTiers(service, family, usage, attributes, dimensions string) string {
	if attributes != "" {
		attributes = "," + attributes
	}
	return fmt.Sprintf(
		`{"product":{"productFamily":%q,"attributes":{"servicecode":%q,"regionCode":"us-west-2","locationType":"AWS Region","usagetype":%q%s}},
	"serviceCode":%q,"terms":{"OnDemand":{"t":{"effectiveDate":"2026-10-01T00:00:00Z","priceDimensions":{%s}}}}}`, family, service, usage, attributes, service, dimensions)
}

// rdsStorage are the attributes of storage of RDS.
func rdsStorage(engine, option string) string {
	return fmt.Sprintf(`"databaseEngine":%q,"deploymentOption":%q`, engine, option)
}

func rdsMachine(class, engine, edition, license string) string {
	return fmt.Sprintf(
		`"instanceType":%q,"databaseEngine":%q,"databaseEdition":%q,"licenseModel":%q,"deploymentOption":"Single-AZ"`,
		class,
		engine, edition, license)
}

// priceListProducts are documents of each part of the Price List, by their expected prices.
var priceListProducts = []struct{ document, want string }{
	{listedProduct("AmazonEC2", "Storage", "USW2-EBS:VolumeUsage.gp2", "", "GB-Mo", "0.11"), "ebs:gp2 0.11"},
	{listedProduct("AmazonEC2", "Storage", "USW2-EBS:VolumeUsage.gp3", "", "GB-Mo", "0.081"), "ebs:gp3 0.081"},
	{listedProduct("AmazonEC2", "Storage", "USW2-EBS:VolumeUsage.piops", "", "GB-Mo", "0.126"), "ebs:io1 0.126"},
	{listedProduct("AmazonEC2", "Storage", "USW2-EBS:VolumeUsage.io2", "", "GB-Mo", "0.127"), "ebs:io2 0.127"},
	{listedProduct("AmazonEC2", "Storage", "USW2-EBS:VolumeUsage.st1", "", "GB-Mo", "0.046"), "ebs:st1 0.046"},
	{listedProduct("AmazonEC2", "Storage", "USW2-EBS:VolumeUsage.sc1", "", "GB-Mo", "0.016"), "ebs:sc1 0.016"},
	{listedProduct("AmazonEC2", "Storage", "USW2-EBS:VolumeUsage", "", "GB-Mo", "0.051"), "ebs:standard 0.051"},
	{
		listedProduct("AmazonEC2", "System Operation", "USW2-EBS:VolumeP-IOPS.gp3", "", "IOPS-Mo", "0.0051"),
		"ebs:gp3:iops 0.0051",
	},
	{
		listedProduct("AmazonEC2", "System Operation", "USW2-EBS:VolumeP-IOPS.piops", "", "IOPS-Mo", "0.066"),
		"ebs:io1:iops 0.066",
	},
	{
		listedProduct("AmazonEC2", "System Operation", "USW2-EBS:VolumeP-IOPS.io2", "", "IOPS-Mo", "0.064"),
		"ebs:io2:iops 0.064",
	},
	{
		listedProduct("AmazonEC2", "System Operation", "USW2-EBS:VolumeP-IOPS.io2.tier2", "", "IOPS-Mo", "0.0448"),
		"ebs:io2:iops above 32000 0.0448",
	},
	{
		listedProduct("AmazonEC2", "System Operation", "USW2-EBS:VolumeP-IOPS.io2.tier3", "", "IOPS-Mo", "0.031"),
		"ebs:io2:iops above 64000 0.031",
	},
	{
		listedProduct("AmazonEC2", "Provisioned Throughput", "USW2-EBS:VolumeP-Throughput.gp3",
			"", "GiBps-mo", "43.008"),
		"ebs:gp3:throughput 0.042",
	},
	{listedProduct("AmazonEC2", "Storage Snapshot", "USW2-EBS:SnapshotUsage", "", "GB-Mo", "0.052"), "snapshot 0.052"},
	{
		listedProduct("AmazonEC2", "Storage Snapshot", "USW2-EBS:SnapshotArchiveStorage", "", "GB-Mo", "0.0126"),
		"snapshot:archive 0.0126",
	},
	{listedProduct("AmazonEC2", "NAT Gateway", "USW2-NatGateway-Hours", "", "Hrs", "0.046"), "nat 0.046"},
	{listedProduct("AmazonEC2", "NAT Gateway", "USW2-NatGateway-Bytes", "", "GB", "0.047"), "nat:data 0.047"},
	{
		listedProduct("AmazonVPC", "", "USW2-PublicIPv4:InUseAddress",
			`"group":"VPCPublicIPv4Address"`, "Hrs", "0.006"),
		"address 0.006",
	},
	{listedProduct("AmazonVPC", "VpcEndpoint", "USW2-VpcEndpoint-Hours", "", "Hours", "0.011"), "vpc-endpoint 0.011"},
	{
		listedProduct("AWSELB", "Load Balancer-Application", "USW2-LoadBalancerUsage", "", "Hrs", "0.0226"),
		"lb:application 0.0226",
	},
	{
		listedProduct("AWSELB", "Load Balancer-Network", "USW2-LoadBalancerUsage", "", "Hrs", "0.0227"),
		"lb:network 0.0227",
	},
	{
		listedProduct("AWSELB", "Load Balancer-Gateway", "USW2-LoadBalancerUsage", "", "Hrs", "0.0126"),
		"lb:gateway 0.0126",
	},
	{listedProduct("AWSELB", "Load Balancer", "USW2-LoadBalancerUsage", "", "Hrs", "0.026"), "lb:classic 0.026"},

	{listedProduct("AmazonS3", "Storage", "USW2-TimedStorage-ByteHrs", "", "GB-Mo", "0.024"), "s3:STANDARD 0.024"},
	{
		listedProduct("AmazonS3", "Storage", "USW2-TimedStorage-SIA-ByteHrs", "", "GB-Mo", "0.0126"),
		"s3:STANDARD_IA 0.0126",
	},
	{
		listedProduct("AmazonS3", "Storage", "USW2-TimedStorage-ZIA-ByteHrs", "", "GB-Mo", "0.0101"),
		"s3:ONEZONE_IA 0.0101",
	},
	{
		listedProduct("AmazonS3", "Storage", "USW2-TimedStorage-INT-FA-ByteHrs", "", "GB-Mo", "0.0231"),
		"s3:INTELLIGENT_TIERING 0.0231",
	},
	{
		listedProduct("AmazonS3", "Storage", "USW2-TimedStorage-GIR-ByteHrs", "", "GB-Mo", "0.0041"),
		"s3:GLACIER_IR 0.0041",
	},
	{
		listedProduct("AmazonS3", "Storage", "USW2-TimedStorage-GlacierByteHrs", "", "GB-Mo", "0.0037"),
		"s3:GLACIER 0.0037",
	},
	{
		listedProduct("AmazonS3GlacierDeepArchive", "Storage", "USW2-TimedStorage-GDA-ByteHrs",
			"", "GB-Mo", "0.00098"),
		"s3:DEEP_ARCHIVE 0.00098",
	},
	{
		listedProduct("AmazonS3", "Storage", "USW2-TimedStorage-RRS-ByteHrs", "", "GB-Mo", "0.0242"),
		"s3:REDUCED_REDUNDANCY 0.0242",
	},
	{
		listedProduct("AmazonS3", "Storage", "USW2-TimedStorage-XZ-ByteHrs", "", "GB-Mo", "0.11"),
		"s3:EXPRESS_ONEZONE 0.11",
	},
	{
		listedProduct("AmazonS3", "API Request", "USW2-Requests-Tier1", "", "Requests", "0.0000051"),
		"s3:list 0.0000051",
	},
	{listedProduct("AmazonS3", "API Request", "USW2-Requests-Tier4", `"operation":""`, "Requests", "0.0000102"),
		"s3:transition:STANDARD_IA 0.0000102, s3:transition:ONEZONE_IA 0.0000102, s3:transition:INTELLIGENT_TIERING " +
			"0.0000102"},
	{
		listedProduct("AmazonS3", "API Request", "USW2-Requests-Tier3",
			`"operation":"S3-GlacierTransition"`, "Requests",
			"0.00003"),
		"s3:transition:GLACIER 0.00003",
	},
	{
		listedProduct("AmazonS3", "API Request", "USW2-Requests-Tier3", `"operation":"S3-GDATransition"`, "Requests",
			"0.00005"),
		"s3:transition:DEEP_ARCHIVE 0.00005",
	},

	{
		listedProduct("AmazonECR", "EC2 Container Registry", "USW2-TimedStorage-ByteHrs", "", "GB-Mo", "0.11"),
		"ecr 0.11",
	},
	{
		listedProduct("AmazonCloudWatch", "Data Payload", "USW2-DataProcessing-Bytes", "", "GB", "0.51"),
		"logs:ingest 0.51",
	},
	{
		listedProduct("AmazonCloudWatch", "Data Payload", "USW2-DataProcessingIA-Bytes", "", "GB", "0.26"),
		"logs:ingest:infrequent 0.26",
	},
	{
		listedProduct("AmazonCloudWatch", "Storage Snapshot", "USW2-TimedStorage-ByteHrs", "", "GB-Mo", "0.031"),
		"logs:storage 0.031",
	},
	{listedProduct("AmazonEFS", "Storage", "USW2-TimedStorage-ByteHrs", "", "GB-Mo", "0.31"), "efs:STANDARD 0.31"},
	{listedProduct("AmazonEFS", "Storage", "USW2-IATimedStorage-ByteHrs", "", "GB-Mo", "0.017"), "efs:IA 0.017"},
	{
		listedProduct("AmazonEFS", "Storage", "USW2-ArchiveTimedStorage-ByteHrs", "", "GB-Mo", "0.0081"),
		"efs:ARCHIVE 0.0081",
	},
	{listedProduct("AmazonEKS", "Compute", "USW2-AmazonEKS-Hours:perCluster", "", "hours", "0.11"), "eks 0.11"},
	// The free allowance applies to the account as a whole.
	{listedTiers("AmazonDynamoDB", "Provisioned IOPS", "USW2-ReadCapacityUnit-Hrs", `"group":"DDB-ReadUnits"`,
		`"a":{"unit":"ReadCapacityUnit-Hrs","beginRange":"0","pricePerUnit":{"USD":"0"}},"b":{"unit":"ReadCapacityUnit-Hrs","beginRange":"18600","pricePerUnit":{"USD":"0.000131"}}`),
		"dynamodb:read 0.000131"},
	{
		listedProduct("AmazonDynamoDB", "Provisioned IOPS", "USW2-WriteCapacityUnit-Hrs", `"group":"DDB-WriteUnits"`,
			"WriteCapacityUnit-Hrs", "0.00066"),
		"dynamodb:write 0.00066",
	},
	{
		listedProduct("AmazonSageMaker", "Storage", "USW2-Notebk:VolumeUsage.gp2", "", "GB-Mo", "0.15"),
		"sagemaker:storage 0.15",
	},
	{
		listedProduct("AmazonES", "Amazon OpenSearch Service Volume", "USW2-ES:GP2-Storage", "", "GB-Mo", "0.136"),
		"opensearch:storage:gp2 0.136",
	},
	{
		listedProduct("AmazonES", "Amazon OpenSearch Service Volume", "USW2-ES:GP3-Storage", "", "GB-Mo", "0.123"),
		"opensearch:storage:gp3 0.123",
	},
	{
		listedProduct("AmazonES", "Amazon OpenSearch Service Volume", "USW2-ES:PIOPS-Storage", "", "GB-Mo", "0.17"),
		"opensearch:storage:io1 0.17",
	},
	{
		listedProduct("AmazonES", "Amazon OpenSearch Service Volume", "USW2-ES:PIOPS", "", "IOPS-Mo", "0.089"),
		"opensearch:iops:io1 0.089",
	},

	{
		listedProduct("AmazonRDS", "Database Storage", "USW2-RDS:StorageUsage",
			rdsStorage("Any", "Single-AZ"), "GB-Mo",
			"0.101"),
		"rds:storage:standard 0.101",
	},
	{
		listedProduct("AmazonRDS", "Database Storage", "USW2-RDS:GP2-Storage", rdsStorage("Any", "Single-AZ"), "GB-Mo",
			"0.116"),
		"rds:storage:gp2 0.116",
	},
	{
		listedProduct("AmazonRDS", "Database Storage", "USW2-RDS:GP3-Storage", rdsStorage("Any", "Single-AZ"), "GB-Mo",
			"0.117"),
		"rds:storage:gp3 0.117",
	},
	{
		listedProduct("AmazonRDS", "Database Storage", "USW2-RDS:PIOPS-Storage",
			rdsStorage("Any", "Single-AZ"), "GB-Mo",
			"0.128"),
		"rds:storage:io1 0.128",
	},
	{
		listedProduct("AmazonRDS", "Database Storage", "USW2-RDS:PIOPS-Storage-IO2",
			rdsStorage("Any", "Single-AZ"), "GB-Mo",
			"0.129"),
		"rds:storage:io2 0.129",
	},
	{
		listedProduct("AmazonRDS", "Provisioned IOPS", "USW2-RDS:PIOPS",
			rdsStorage("Any", "Single-AZ"), "IOPS-Mo", "0.105"),
		"rds:iops:io1 0.105",
	},
	{
		listedProduct("AmazonRDS", "Provisioned IOPS", "USW2-RDS:GP3-PIOPS", rdsStorage("Any", "Single-AZ"), "IOPS-Mo",
			"0.021"),
		"rds:iops:gp3 0.021",
	},
	{
		listedProduct("AmazonRDS", "Provisioned IOPS", "USW2-RDS:IO2-PIOPS", rdsStorage("Any", "Single-AZ"), "IOPS-Mo",
			"0.106"),
		"rds:iops:io2 0.106",
	},
	{
		listedProduct("AmazonRDS", "Provisioned Throughput", "USW2-RDS:GP3-Throughput", rdsStorage("Any", "Single-AZ"),
			"MBPS-Mo", "0.083"),
		"rds:throughput:gp3 0.083",
	},
}

// priceListMachines are documents of managed services' machines.
var priceListMachines = []struct{ document, want string }{
	{
		listedProduct("AmazonRDS", "Database Instance", "USW2-InstanceUsage:db.m6g.large",
			rdsMachine("db.m6g.large", "PostgreSQL", "", "No license required"), "Hrs", "0.16"),
		"rds:postgres db.m6g.large 0.16"},
	{
		listedProduct("AmazonRDS", "Database Instance", "USW2-InstanceUsage:db.m5.large",
			rdsMachine("db.m5.large", "Oracle", "Standard Two", "Bring your own license"), "Hrs", "0.171"),
		"rds:oracle-se2:byol db.m5.large 0.171"},
	{
		listedProduct("AmazonRDS", "Database Instance", "USW2-InstanceUsage:db.m5.large",
			rdsMachine("db.m5.large", "SQL Server", "Enterprise", "License included"), "Hrs", "1.7"),
		"rds:sqlserver-ee db.m5.large 1.70"},
	{
		listedProduct("AmazonRDS", "Database Instance", "USW2-InstanceUsage:db.r5.large",
			rdsMachine("db.r5.large", "Aurora MySQL", "", "No license required"), "Hrs", "0.29"),
		"rds:aurora-mysql db.r5.large 0.29"},
	{
		listedProduct("AmazonDocDB", "Database Instance", "USW2-InstanceUsage:db.r6g.large",
			`"instanceType":"db.r6g.large"`,
			"Hrs", "0.27"),
		"docdb db.r6g.large 0.27",
	},
	{
		listedProduct("AmazonNeptune", "Database Instance", "USW2-InstanceUsage:db.r6g.large",
			`"instanceType":"db.r6g.large"`, "Hrs", "0.33"),
		"neptune db.r6g.large 0.33",
	},
	{
		listedProduct("AmazonES", "Amazon OpenSearch Service Instance", "USW2-ESInstance:r6g.large",
			`"instanceType":"r6g.large.search"`, "Hrs", "0.168"),
		"opensearch r6g.large.search 0.168"},
}

// described returns the prices of items or machines in a document.
func described(t *testing.T, document string) string {
	t.Helper()
	found, err := ParseProduct([]byte(document))
	if err != nil {
		t.Errorf("%s: %v", document, err)
	}
	var parts []string
	for _, e := range found {
		part := string(e.Item)
		if e.Service != Rates {
			part = e.Service + " " + e.Type
		}
		if e.Above > 0 {
			part += fmt.Sprintf(" above %d", e.Above)
		}
		parts = append(parts, part+" "+e.Price.Rate.String())
		if e.Region != "us-west-2" {
			t.Errorf("%s is in %q", part, e.Region)
		}
	}
	return strings.Join(parts, ", ")
}

// TestUpdatableItemsAreInPriceList checks that every item that an error says an update reads
// has a product that passes the filters of a list.
func TestUpdatableItemsAreInPriceList(t *testing.T) {
	items := map[string]bool{}
	for _, p := range slices.Concat(priceListProducts, priceListMachines) {
		if got := described(t, p.document); got != p.want {
			t.Errorf("got %q, want %q", got, p.want)
		}
		for _, part := range strings.Split(p.want, ", ") {
			name, _, _ := strings.Cut(part, " ")
			items[name] = true
		}
	}
	empty := &Book{}
	for _, l := range listed {
		for _, item := range l.items {
			if !items[string(item)] {
				t.Errorf("no product of the test is %s", item)
			}
			if _, err := empty.Rate(item, "us-west-2"); err == nil ||
				!strings.Contains(err.Error(), "`curfew price update --from aws --regions us-west-2`") {
				t.Errorf("%s: %v", item, err)
			}
		}
	}
	for service := range map[string]bool{
		"rds:postgres": true, "rds:oracle-se2:byol": true, "opensearch": true, "docdb": true,
	} {
		if _, err := empty.Price(AWS, service, "x", "us-west-2", ""); err == nil ||
			!strings.Contains(err.Error(), "--from aws --regions us-west-2") || !items[service] {
			t.Errorf("%s: %v", service, err)
		}
	}
	asked := Lists()
	for _, p := range slices.Concat(priceListProducts, priceListMachines) {
		if !slices.ContainsFunc(asked, func(l List) bool { return holds(l, p.document) }) {
			t.Errorf("no list that is read holds %s", p.want)
		}
	}
}

// holds reports whether a document passes a list's filters.
func holds(l List, document string) bool {
	attributes := maps.Clone(l.Attributes)
	family, ok := attributes["productFamily"]
	delete(attributes, "productFamily")
	return strings.Contains(document, fmt.Sprintf(`"servicecode":%q`, l.Service)) && len(attributes) == 0 &&
		(!ok || strings.Contains(document, fmt.Sprintf(`"productFamily":%q`, family)))
}

// TestErrorOfUnlistedItems checks that the error about an item in no list suggests another way.
func TestErrorOfUnlistedItems(t *testing.T) {
	for _, name := range []struct{ cloud, service, sku string }{
		{AWS, Rates, "fsx:ontap:ssd"}, {AWS, Rates, string(ItemClusterExtended)}, {AWS, "rds:rust", "db.m5.large"},
		{"gcp", Compute, "a2-highgpu-1g"},
	} {
		_, err := (&Book{}).Price(name.cloud, name.service, name.sku, "us-west-2", "")
		if !errors.Is(err, ErrUnpriced) || !strings.Contains(err.Error(), "`curfew price update FILE`") ||
			strings.Contains(err.Error(), "--from") {
			t.Errorf("%v: %v", name, err)
		}
	}
}

// TestSkipsSimilarProducts checks that products with similar names are skipped.
func TestSkipsSimilarProducts(t *testing.T) {
	for _, document := range []string{
		listedProduct("AWSELB", "Load Balancer-Application", "USW2-TS-LoadBalancerUsage", "", "Hrs", "0.0055"),
		listedProduct("AmazonRDS", "Database Storage", "USW2-RDS:Multi-AZ-GP3-Storage", rdsStorage("Any", "Multi-AZ"),
			"GB-Mo", "0.23"),
		listedProduct("AmazonRDS", "Database Storage", "USW2-RDS:Mirror-PIOPS-Storage-IO2",
			rdsStorage("SQL Server", "Multi-AZ (SQL Server Mirror)"), "GB-Mo", "0.25"),
		listedProduct("AmazonRDS", "Provisioned IOPS", "USW2-RDS:PIOPS",
			rdsStorage("SQL Server", "Single-AZ"), "IOPS-Mo",
			"0.1"),
		listedProduct("AmazonRDS", "Database Instance", "USW2-InstanceUsageIOOptimized:db.r5.large",
			rdsMachine("db.r5.large", "Aurora MySQL", "", ""), "Hrs", "0.38"),
		listedProduct("AmazonRDS", "Database Instance", "USW2-InstanceUsage:db.m5.large",
			rdsMachine("db.m5.large", "Oracle", "Enterprise", "Bring your own license")+`,"deploymentModel":"Custom"`,
			"Hrs",
			"0.2"),
		listedProduct("AmazonDynamoDB", "Provisioned IOPS", "USW2-ReadCapacityUnit-Hrs", `"group":"DDB-ReadUnitsIA"`,
			"ReadCapacityUnit-Hrs", "0.00016"),
		listedProduct("AmazonS3", "API Request", "USW2-Requests-Tier3", `"operation":""`, "Requests", "0.00003"),
		listedProduct("AmazonGlacier", "Storage", "USW2-TimedStorage-ByteHrs", "", "GB-Mo", "0.0036"),
	} {
		if found, err := ParseProduct([]byte(document)); !errors.Is(err, ErrNotHeld) {
			t.Errorf("%s: got %v, %v", document, found, err)
		}
	}
	if _, err := ParseProduct([]byte(listedProduct("AmazonEC2", "Provisioned Throughput", "EBS:VolumeP-Throughput.gp3",
		"", "MiBps-mo", "0.04"))); !errors.Is(err, ErrRefused) {
		t.Errorf("a price by the MiB/s is taken for one by the GiB/s: %v", err)
	}
}

// TestUpdateJoinsTiers checks that tiers listed as separate products become tiers of one item in
// any order, and that a tier without the first price is refused.
func TestUpdateJoinsTiers(t *testing.T) {
	var entries []Entry
	for _, i := range []int{11, 9, 10} { // the third, first and second tier of io2
		found, err := ParseProduct([]byte(priceListProducts[i].document))
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, found...)
	}
	next, accepted, refused := (&Book{}).Update(slices.Values(entries))
	p, err := next.Rate(ItemIO2IOPS, "us-west-2")
	if err != nil || len(accepted) != 1 || len(refused) != 0 {
		t.Fatalf("%d accepted, refused %v, %v", len(accepted), refused, err)
	}
	// 32,000 × 0.064 + 32,000 × 0.0448 + 6,000 × 0.031
	if cost, err := p.Cost(70_000, 1); err != nil || cost.Cents() != "3667.60" {
		t.Errorf("got %s, %v", cost.Cents(), err)
	}
	_, accepted, refused = (&Book{}).Update(slices.Values(entries[:1]))
	if len(accepted) != 0 || len(refused) != 1 || !strings.Contains(refused[0].Reason, "above 64000") {
		t.Errorf("accepted %v, refused %v", accepted, refused)
	}
}
