package price

import "strings"

// Item is a priced unit other than a machine.
type Item string

// The items. A GiB is 2^30 bytes, which the providers' price lists call GB.
const (
	ItemGP2      Item = "ebs:gp2"
	ItemGP3      Item = "ebs:gp3"
	ItemIO1      Item = "ebs:io1"
	ItemIO2      Item = "ebs:io2"
	ItemST1      Item = "ebs:st1"
	ItemSC1      Item = "ebs:sc1"
	ItemMagnetic Item = "ebs:standard"
	// ItemGP3IOPS is charged above the included 3,000, ItemGP3Throughput above the included 125
	// MiB/s.
	ItemGP3IOPS       Item = "ebs:gp3:iops"
	ItemGP3Throughput Item = "ebs:gp3:throughput"
	ItemIO1IOPS       Item = "ebs:io1:iops"
	// ItemIO2IOPS has tiers for each volume: above 32,000 and above 64,000.
	ItemIO2IOPS         Item = "ebs:io2:iops"
	ItemSnapshot        Item = "snapshot"
	ItemSnapshotArchive Item = "snapshot:archive"

	// ItemAddress is a public IPv4 address, in use or not.
	ItemAddress       Item = "address"
	ItemNAT           Item = "nat"
	ItemNATData       Item = "nat:data"
	ItemLBApplication Item = "lb:application"
	ItemLBNetwork     Item = "lb:network"
	ItemLBGateway     Item = "lb:gateway"
	ItemLBClassic     Item = "lb:classic"

	ItemS3Standard           Item = "s3:STANDARD"
	ItemS3StandardIA         Item = "s3:STANDARD_IA"
	ItemS3OneZoneIA          Item = "s3:ONEZONE_IA"
	ItemS3IntelligentTiering Item = "s3:INTELLIGENT_TIERING" // its frequent tier
	ItemS3GlacierIR          Item = "s3:GLACIER_IR"
	ItemS3Glacier            Item = "s3:GLACIER"
	ItemS3DeepArchive        Item = "s3:DEEP_ARCHIVE"
	ItemS3ReducedRedundancy  Item = "s3:REDUCED_REDUNDANCY"
	ItemS3ExpressOneZone     Item = "s3:EXPRESS_ONEZONE"

	// Transitions are lifecycle requests, one per object.
	ItemS3ToStandardIA         Item = "s3:transition:STANDARD_IA"
	ItemS3ToOneZoneIA          Item = "s3:transition:ONEZONE_IA"
	ItemS3ToIntelligentTiering Item = "s3:transition:INTELLIGENT_TIERING"
	ItemS3ToGlacierIR          Item = "s3:transition:GLACIER_IR"
	ItemS3ToGlacier            Item = "s3:transition:GLACIER"
	ItemS3ToDeepArchive        Item = "s3:transition:DEEP_ARCHIVE"

	ItemS3FromStandardIA  Item = "s3:retrieval:STANDARD_IA"
	ItemS3FromOneZoneIA   Item = "s3:retrieval:ONEZONE_IA"
	ItemS3FromGlacierIR   Item = "s3:retrieval:GLACIER_IR"
	ItemS3FromGlacier     Item = "s3:retrieval:GLACIER"      // standard retrieval
	ItemS3FromDeepArchive Item = "s3:retrieval:DEEP_ARCHIVE" // standard retrieval

	ItemS3List       Item = "s3:list"
	ItemS3Monitoring Item = "s3:monitoring:INTELLIGENT_TIERING"

	ItemLogsIngest           Item = "logs:ingest"
	ItemLogsIngestInfrequent Item = "logs:ingest:infrequent"
	ItemLogsStorage          Item = "logs:storage"
	ItemECR                  Item = "ecr"

	ItemEFSStandard  Item = "efs:STANDARD"
	ItemEFSIA        Item = "efs:IA"
	ItemEFSArchive   Item = "efs:ARCHIVE"
	ItemRDSGP2       Item = "rds:storage:gp2"
	ItemRDSGP3       Item = "rds:storage:gp3"
	ItemRDSIO1       Item = "rds:storage:io1"
	ItemRDSIO2       Item = "rds:storage:io2"
	ItemRDSMagnetic  Item = "rds:storage:standard"
	ItemOpenSearchGP Item = "opensearch:storage:gp3"
	// ItemRDSGP3IOPS and ItemRDSGP3Throughput are charged above a baseline by engine and size.
	ItemRDSGP3IOPS       Item = "rds:iops:gp3"
	ItemRDSGP3Throughput Item = "rds:throughput:gp3"
	ItemRDSIO1IOPS       Item = "rds:iops:io1"
	ItemRDSIO2IOPS       Item = "rds:iops:io2"
	// ItemSageMakerStorage is the volume of a notebook, endpoint or training job.
	ItemSageMakerStorage Item = "sagemaker:storage"

	// ItemCluster is an hour of a control plane of EKS in standard support,
	// ItemClusterExtended one in extended support.
	ItemCluster         Item = "eks"
	ItemClusterExtended Item = "eks:extended"
	// ItemTableRead and ItemTableWrite are an hour of a provisioned capacity unit of
	// DynamoDB.
	ItemTableRead  Item = "dynamodb:read"
	ItemTableWrite Item = "dynamodb:write"
	// ItemVPCEndpoint is an hour of an interface endpoint in one zone.
	ItemVPCEndpoint Item = "vpc-endpoint"

	ItemSecret        Item = "secret"
	ItemGetMetricData Item = "cloudwatch:getmetricdata"
	ItemMetric        Item = "cloudwatch:metric"
	ItemCostExplorer  Item = "costexplorer"

	ItemEgressInternet Item = "egress:internet"
	ItemEgressRegion   Item = "egress:region"
	ItemEgressZone     Item = "egress:zone" // in each direction

	// A cloud's default rates, for machines without a price of their own.
	ItemDefaultVCPU    Item = "default:vcpu"
	ItemDefaultMemory  Item = "default:memory"
	ItemDefaultGPU     Item = "default:gpu"
	ItemDefaultStorage Item = "default:storage"
	ItemDefaultLB      Item = "default:lb"

	ItemDefaultEgressInternet Item = "default:egress:internet"
	ItemDefaultEgressRegion   Item = "default:egress:region"
	ItemDefaultEgressZone     Item = "default:egress:zone"
)

// units maps an item, or the longest matching prefix that ends in a colon, to its unit.
var units = map[Item]string{
	"ebs:": "GiB-month", ItemGP3IOPS: "IOPS-month", ItemGP3Throughput: "MiBps-month", ItemIO1IOPS: "IOPS-month",
	ItemIO2IOPS:  "IOPS-month",
	ItemSnapshot: "GiB-month", ItemSnapshotArchive: "GiB-month",
	ItemAddress: "hour", ItemNAT: "hour", ItemNATData: "GiB", "lb:": "hour",
	"s3:": "GiB-month", "s3:transition:": "request", "s3:retrieval:": "GiB", ItemS3List: "request",
	"s3:monitoring:": "object-month",
	"logs:ingest:":   "GiB", ItemLogsIngest: "GiB", ItemLogsStorage: "GiB-month", ItemECR: "GiB-month",
	"efs:": "GiB-month", "fsx:": "GiB-month", "rds:storage:": "GiB-month", "rds:iops:": "IOPS-month",
	"rds:throughput:":     "MiBps-month",
	"opensearch:storage:": "GiB-month", "opensearch:iops:": "IOPS-month", ItemSageMakerStorage: "GiB-month",
	ItemCluster: "hour", ItemClusterExtended: "hour", ItemTableRead: "unit-hour", ItemTableWrite: "unit-hour",
	ItemVPCEndpoint: "hour",
	ItemSecret:      "month", ItemGetMetricData: "metric", ItemMetric: "month", ItemCostExplorer: "request",
	"egress:":       "GiB",
	ItemDefaultVCPU: "hour", ItemDefaultMemory: "GiB-hour", ItemDefaultGPU: "hour", ItemDefaultStorage: "GiB-hour",
	ItemDefaultLB:     "hour",
	"default:egress:": "GiB",
}

// Unit returns the item's unit: "GiB-month", "hour", "request", "GiB". It is empty for an unknown
// item.
func (i Item) Unit() string {
	if strings.HasSuffix(string(i), ":") {
		return ""
	}
	if u, ok := units[i]; ok {
		return u
	}
	for s := string(i); ; {
		at := strings.LastIndexByte(s, ':')
		if at < 0 {
			return ""
		}
		if u, ok := units[Item(s[:at+1])]; ok {
			return u
		}
		s = s[:at]
	}
}
