package bill

import (
	"cmp"
	"slices"
	"strings"
)

// Category is where a charge belongs among the five parts of an ML bill; compute is
// split into active and idle by duty where the machines were measured.
type Category string

// The categories.
const (
	Storage  Category = "storage"  // objects, volumes, snapshots, registries, databases, kept logs
	Compute  Category = "compute"  // machines, managed training and serving
	Egress   Category = "egress"   // data transfer and NAT
	Overhead Category = "overhead" // monitoring, log ingestion, security, support, tax, addresses, balancers
	Other    Category = "other"
)

// Transfer names the two ends of a data transfer; empty for charges without one.
type Transfer string

// The kinds of transfer.
const (
	NoTransfer    Transfer = ""
	CrossRegion   Transfer = "cross-region"
	CrossZone     Transfer = "cross-zone"
	Internet      Transfer = "internet"
	NATData       Transfer = "nat-data"
	NATHours      Transfer = "nat-hours"
	Inbound       Transfer = "inbound"        // into the provider, mostly free
	OtherTransfer Transfer = "other-transfer" // the bill does not say whereto
)

// class holds the properties of a line apart from its cost.
type class struct {
	category Category
	transfer Transfer
	to       string
	// capacity is Unused where the meter counts reserved capacity that nothing used.
	capacity string
	machine  string // the type of the machine
}

// classify says where a line belongs. The provider's name of the meter decides where
// the bill has it, then the description, then the service and its FOCUS category.
func classify(l *Line) class {
	c := place(l)
	c.machine = cmp.Or(l.MachineType, machineType(l.UsageType))
	if c.capacity = l.CapacityStatus; c.capacity == "" && unusedCapacity(l) {
		c.capacity = Unused
	}
	return c
}

// unusedCapacity reports whether a meter of AWS counts capacity that was reserved and not used:
// Amazon EC2 User Guide, "Capacity Reservation pricing and billing" (usage types UnusedBox and
// UnusedDed; in descriptions "per Unused Reservation Linux p5.48xlarge Instance Hour").
func unusedCapacity(l *Line) bool {
	return strings.Contains(l.UsageType, "UnusedBox") || strings.Contains(l.UsageType, "UnusedDed") ||
		strings.Contains(l.ChargeDescription, " per Unused Reservation ")
}

// machineType returns the type of the machine that a usage type of AWS ends with, after a colon or
// a hyphen ("BoxUsage:p5.48xlarge", "Studio:KernelGateway-ml.g5.xlarge"); empty if it names none.
func machineType(usageType string) string {
	_, name, ok := strings.Cut(usageType, ":")
	if !ok {
		return ""
	}
	if i := strings.Index(name, "-ml."); i >= 0 {
		name = name[i+1:]
	}
	family, size, ok := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(name, "ml."), "db."), ".")
	if !ok || family == "" || strings.ContainsAny(family, " :/") || !strings.ContainsAny(family, "0123456789") {
		return ""
	}
	switch {
	case slices.Contains([]string{"nano", "micro", "small", "medium", "large"}, size), strings.HasSuffix(size,
		"xlarge"), strings.HasPrefix(size, "metal"):
		return name
	}
	return ""
}

// place says where a line belongs.
func place(l *Line) class {
	text := strings.ToLower(l.UsageType + " " + l.ChargeDescription)
	if l.ChargeCategory == Tax {
		return class{category: Overhead}
	}
	if t, to := transferOf(l, text); t != NoTransfer {
		return class{category: Egress, transfer: t, to: to}
	}
	return class{category: categoryOf(l, text)}
}

// meters tells transfers by words of the meter's name or description; the first that
// fits decides. Names of AWS usage types: "Understanding your billing and usage
// reports" (Amazon S3, Amazon EC2 data transfer); Azure: meters of Bandwidth; Google
// Cloud: SKU descriptions of Networking.
var meters = []struct {
	all      []string
	transfer Transfer
}{
	{[]string{"natgateway-bytes"}, NATData},
	{[]string{"natgateway-hours"}, NATHours},
	{[]string{"nat gateway", "processed"}, NATData},
	{[]string{"nat gateway", "hour"}, NATHours},
	{[]string{"nat", "gateway", "data processing"}, NATData},
	{[]string{"cloud nat", "data processing"}, NATData},
	{[]string{"cloud nat", "uptime"}, NATHours},
	{[]string{"aws-in-bytes"}, Inbound},
	{[]string{"aws-out-bytes"}, CrossRegion},
	{[]string{"datatransfer-regional-bytes"}, CrossZone},
	{[]string{"datatransfer-xaz"}, CrossZone},
	{[]string{"datatransfer-in-bytes"}, Inbound},
	{[]string{"datatransfer-out-bytes"}, Internet},
	{[]string{"transitgateway-bytes"}, OtherTransfer},
	{[]string{"vpcendpoint-bytes"}, OtherTransfer},
	{[]string{"to cloudfront"}, OtherTransfer},
	{[]string{"from cloudfront"}, Inbound},
	{[]string{"regional data transfer"}, CrossZone},
	{[]string{"inter-availability zone"}, CrossZone},
	{[]string{"availability zone", "data transfer"}, CrossZone},
	{[]string{"inter zone", "egress"}, CrossZone},
	{[]string{"inter zone", "data transfer"}, CrossZone},
	{[]string{"inter-region"}, CrossRegion},
	{[]string{"inter region"}, CrossRegion},
	{[]string{"inter continent", "data transfer"}, CrossRegion},
	{[]string{"data transfer in"}, Inbound},
	{[]string{"data transfer from"}, Inbound},
	{[]string{"data transfer to"}, CrossRegion},
	{[]string{"network", "internet", "egress"}, Internet},
	{[]string{"network", "internet", "data transfer out"}, Internet},
	{[]string{"data transfer out"}, Internet},
	{[]string{"outbound data transfer"}, Internet},
	{[]string{"vnet peering", "egress"}, CrossRegion},
	{[]string{"network", "egress"}, OtherTransfer},
	{[]string{"data transfer"}, OtherTransfer},
}

// transferOf returns the kind of transfer of a line, and its destination region if the bill states
// it.
func transferOf(l *Line, text string) (Transfer, string) {
	for _, m := range meters {
		if !containsAll(text, m.all) {
			continue
		}
		if m.transfer != CrossRegion {
			return m.transfer, ""
		}
		to := l.ToRegion
		if to == "" {
			to = farEnd(l.UsageType)
		}
		if to == "" {
			_, name, _ := strings.Cut(l.ChargeDescription, " data transfer to ")
			if to = regionNames[name]; to == "" {
				to = name
			}
		}
		return CrossRegion, to
	}
	switch {
	case l.FromRegion != "" && l.ToRegion != "" && l.FromRegion != l.ToRegion:
		return CrossRegion, l.ToRegion
	default:
		return NoTransfer, ""
	}
}

// farEnd reads the second region of an AWS usage type: "USE1-USW2-AWS-Out-Bytes". In
// us-east-1 the first is left out: "USW2-AWS-Out-Bytes".
func farEnd(usageType string) string {
	regions, _, ok := strings.Cut(usageType, "-AWS-Out")
	if !ok {
		return ""
	}
	far := regions[strings.LastIndexByte(regions, '-')+1:]
	if r := usagePrefixes[far]; r != "" {
		return r
	}
	return far
}

// categoryOf says where a charge belongs that moves no data.
func categoryOf(l *Line, text string) Category {
	service := strings.ToLower(l.ServiceName)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	offers := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(service, w) })
	}
	switch {
	case strings.HasSuffix(service, "support") || offers("support (", "premium support", "awssupport"):
		return Overhead
	case offers("defender", "security", "guardduty", "inspector", "key management", "kms", "secret", "waf", "macie",
		"cloudtrail", "awsconfig", "aws config") || has("defender for"):
		return Overhead
	case offers("cloudwatch", "monitor", "logging", "log analytics"):
		// Kept logs are storage; ingestion and monitoring are overhead.
		if has("log storage", "timedstorage", "data retention") {
			return Storage
		}
		return Overhead
	case offers("sagemaker") && has("monitor", "featurestore:readrequest", "featurestore:writerequest"):
		return Overhead // monitoring of models, and requests: not compute
	case has("timedstorage", "ebs:", "volumeusage", "featurestore:storage", "snapshot", "data stored",
		"provisioned storage", "data storage", "managed disk") ||
		offers("container registry", "amazonecr", "artifact registry"):
		return Storage
	}
	switch strings.ToLower(l.ServiceCategory) { // FOCUS's values, in whatever case
	case "storage", "databases":
		return Storage
	case "compute", "ai and machine learning", "containers":
		if has("public ip", "ip address", "load balancer") {
			return Overhead
		}
		return Compute
	case "networking", "management and governance", "security", "identity", "security and identity":
		return Overhead
	}
	for _, g := range services {
		if offers(g.names...) {
			return g.category
		}
	}
	return Other
}

// services tells categories by the names of services where the bill has no FOCUS
// ServiceCategory that decides; product codes of CUR 2.0 among them.
var services = []struct {
	names    []string
	category Category
}{
	{
		[]string{
			"simple storage", "amazons3", "elastic file", "amazonefs", "fsx", "glacier", "backup",
			"block store", "storage",
			"relational database", "amazonrds",
			"dynamodb", "opensearch", "amazones", "elasticache", "redshift", "documentdb", "sql", "cosmos"}, Storage},
	{
		[]string{
			"elastic compute", "amazonec2", "sagemaker", "lambda", "container service", "amazonecs",
			"amazoneks", "kubernetes",
			"fargate", "batch",
			"compute engine", "virtual machine", "machine learning", "vertex", "bedrock", "openshift", "savings plan",
			"computesavingsplans"}, Compute},
	{
		[]string{
			"virtual private cloud", "amazonvpc", "load balancing", "elb", "route 53", "route53",
			"cloudfront", "networking",
		},
		Overhead,
	},
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// usagePrefixes are the abbreviations of regions in AWS usage types: Amazon S3 User
// Guide, "Understanding your AWS billing and usage reports for Amazon S3".
var usagePrefixes = map[string]string{
	"USE1": "us-east-1", "USE2": "us-east-2", "USW1": "us-west-1", "USW2": "us-west-2", "UGW1": "us-gov-west-1",
	"UGE1": "us-gov-east-1",
	"CAN1": "ca-central-1", "SAE1": "sa-east-1", "EU": "eu-west-1", "EUW1": "eu-west-1", "EUW2": "eu-west-2",
	"EUW3": "eu-west-3",
	"EUC1": "eu-central-1", "EUN1": "eu-north-1", "EUS1": "eu-south-1", "APE1": "ap-east-1", "APN1": "ap-northeast-1",
	"APN2": "ap-northeast-2",
	"APN3": "ap-northeast-3", "APS1": "ap-southeast-1", "APS2": "ap-southeast-2", "APS3": "ap-south-1",
	"MES1": "me-south-1", "AFS1": "af-south-1",
}

// regionNames are the names of regions in the descriptions of AWS charges.
var regionNames = map[string]string{
	"US East (Northern Virginia)": "us-east-1", "US East (N. Virginia)": "us-east-1", "US East (Ohio)": "us-east-2",
	"US West (Northern California)": "us-west-1", "US West (N. California)": "us-west-1",
	"US West (Oregon)": "us-west-2",
	"Canada (Central)": "ca-central-1", "South America (Sao Paulo)": "sa-east-1", "EU (Ireland)": "eu-west-1",
	"EU (London)": "eu-west-2",
	"EU (Paris)":  "eu-west-3", "EU (Germany)": "eu-central-1", "EU (Frankfurt)": "eu-central-1",
	"EU (Stockholm)": "eu-north-1", "EU (Milan)": "eu-south-1",
	"Asia Pacific (Hong Kong)": "ap-east-1", "Asia Pacific (Tokyo)": "ap-northeast-1",
	"Asia Pacific (Seoul)": "ap-northeast-2",
	"Asia Pacific (Osaka)": "ap-northeast-3", "Asia Pacific (Singapore)": "ap-southeast-1",
	"Asia Pacific (Sydney)": "ap-southeast-2",
	"Asia Pacific (Mumbai)": "ap-south-1", "Middle East (Bahrain)": "me-south-1", "Africa (Cape Town)": "af-south-1",
}
