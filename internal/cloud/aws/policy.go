package aws

import (
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Operation is one read call of this package. Reading clients refuse calls that are not in
// [Operations] before they are sent, so that they cannot change an account.
type Operation struct {
	// Service is the prefix of the service's IAM actions, Name the API operation:
	// "ec2", "DescribeInstances".
	Service, Name string
	// Actions are the IAM actions that allow it, without the prefix, often named differently from
	// the operation. Empty if it needs none.
	Actions []string
	// Scan is true for calls of an audit, Act for additional reads before an action; the others
	// fetch prices or roles.
	Scan, Act bool
	// Kinds are unread if the call fails.
	Kinds []inventory.Kind
	// Effect describes the consequence of a failure in the user's terms.
	Effect string
	// Item is the subject of a call made per resource: "bucket".
	Item string
	// Charge is the price of one unit: a request, or for GetMetricData a metric. Zero is free.
	Charge money.Rate
}

// Prices of calls, dollars a unit in us-east-1, from the public price pages of Amazon
// CloudWatch, Amazon S3 and AWS Cost Explorer. Free tiers are not counted.
const (
	// 0.01 a 1,000 metrics of GetMetricData, or requests of ListMetrics
	chargeMetric   = 10_000_000 * money.PicoUSD
	chargeS3List   = 5_000_000 * money.PicoUSD      // 0.005 a 1,000 LIST requests
	chargeS3Get    = 400_000 * money.PicoUSD        // 0.0004 a 1,000 GET and other requests
	chargeExplorer = 10_000_000_000 * money.PicoUSD // 0.01 a request
)

var (
	unknownTags = "their tags are not known: no owner, and no keep-until"
	// unknownLaunchers is the effect of an unreadable launcher.
	unknownLaunchers = "what would start machines from images is not known there: no image or snapshot is known to be " +
		"unused"
	onlyMachines = []inventory.Kind{inventory.KindInstance}
)

// operations are all read calls of this package.
var operations = []Operation{
	{
		Service: "sts", Name: "GetCallerIdentity", Actions: []string{"GetCallerIdentity"}, Scan: true,
		Effect: "nothing of the account can be read",
	},
	{Service: "sts", Name: "AssumeRole", Effect: "nothing of the account can be read"},

	{
		Service: "ec2", Name: "DescribeRegions", Actions: []string{"DescribeRegions"}, Scan: true,
		Effect: "the names of regions are not checked",
	},
	{
		Service: "ec2", Name: "DescribeInstances", Actions: []string{"DescribeInstances"},
		Scan: true, Kinds: onlyMachines,
		Effect: "no machine is seen, priced or judged there",
	},
	{
		Service: "ec2", Name: "DescribeVolumes", Actions: []string{"DescribeVolumes"}, Scan: true,
		Kinds:  []inventory.Kind{inventory.KindVolume},
		Effect: "volumes are not seen there, nor what stopped machines still pay for",
	},
	{
		Service: "ec2", Name: "DescribeSnapshots", Actions: []string{"DescribeSnapshots"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindSnapshot}, Effect: "snapshots are not seen there",
	},
	{
		Service: "ec2", Name: "DescribeLockedSnapshots", Actions: []string{"DescribeLockedSnapshots"}, Scan: true,
		Effect: "savings on snapshots are upper bounds there: locks may keep them",
	},
	{
		Service: "ec2", Name: "DescribeImages", Actions: []string{"DescribeImages"}, Scan: true,
		Kinds:  []inventory.Kind{inventory.KindImage},
		Effect: "images are not seen there, and no snapshot is known to be unused",
	},
	{
		Service: "ec2", Name: "DescribeAddresses", Actions: []string{"DescribeAddresses"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindAddress}, Effect: "public addresses are not seen there",
	},
	{
		Service: "ec2", Name: "DescribeNatGateways", Actions: []string{"DescribeNatGateways"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindNATGateway}, Effect: "NAT gateways are not seen there",
	},
	{
		Service: "ec2", Name: "DescribeVpcEndpoints", Actions: []string{"DescribeVpcEndpoints"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindVPCEndpoint}, Effect: "interface endpoints are not seen there",
	},
	{
		Service: "ec2", Name: "DescribeRouteTables", Actions: []string{"DescribeRouteTables"}, Scan: true,
		Effect: "whether anything is routed to a NAT gateway is not known there",
	},
	{
		Service: "ec2", Name: "DescribeCapacityReservations", Actions: []string{"DescribeCapacityReservations"},
		Scan: true, Kinds: []inventory.Kind{inventory.KindCapacityReservation},
		Effect: "capacity reservations are not seen there",
	},
	{
		Service: "ec2", Name: "DescribeLaunchTemplateVersions", Actions: []string{"DescribeLaunchTemplateVersions"},
		Scan: true, Effect: unknownLaunchers,
	},
	{
		Service: "ec2", Name: "DescribeFleets", Actions: []string{"DescribeFleets"}, Scan: true,
		Effect: unknownLaunchers,
	},
	{
		Service: "ec2", Name: "DescribeSpotFleetRequests", Actions: []string{"DescribeSpotFleetRequests"}, Scan: true,
		Effect: unknownLaunchers,
	},
	{
		Service: "ec2", Name: "DescribeReservedInstances", Actions: []string{"DescribeReservedInstances"}, Scan: true,
		Kinds:  []inventory.Kind{inventory.KindCommitment},
		Effect: "savings on machines are upper bounds: reserved instances may cover them",
	},
	{
		Service: "ec2", Name: "DescribeSpotPriceHistory", Actions: []string{"DescribeSpotPriceHistory"},
		Effect: "spot prices are not updated",
	},
	{
		Service: "ec2", Name: "GetSpotPlacementScores", Actions: []string{"GetSpotPlacementScores"},
		Effect: "the placement scores of plan spot are not known",
	},

	{
		Service: "ec2", Name: "DescribeInstanceAttribute", Actions: []string{"DescribeInstanceAttribute"}, Act: true,
		Item: "machine", Effect: "whether they are protected is not known, and they are left alone",
	},
	{
		Service: "ec2", Name: "DescribeInstanceTypes", Actions: []string{
			"DescribeInstanceTypes",
		}, Scan: true, Act: true,
		Effect: "what machines have is known from the price book alone",
	},
	{
		Service: "ec2", Name: "DescribeSpotInstanceRequests", Actions: []string{"DescribeSpotInstanceRequests"},
		Scan: true, Act: true, Item: "machine",
		Effect: "whether spot machines can be stopped is not known, and they are left alone",
	},

	{
		Service: "cloudtrail", Name: "LookupEvents", Actions: []string{"LookupEvents"}, Act: true, Item: "resource",
		Effect: "the creators of unowned resources are unknown",
	},

	{
		Service: "elasticloadbalancing", Name: "DescribeLoadBalancers", Actions: []string{"DescribeLoadBalancers"},
		Scan: true, Kinds: []inventory.Kind{inventory.KindLoadBalancer}, Effect: "load balancers are not seen there",
	},
	{
		Service: "elasticloadbalancing", Name: "DescribeTags", Actions: []string{"DescribeTags"}, Scan: true,
		Item: "load balancer", Effect: unknownTags,
	},
	{
		Service: "elasticloadbalancing", Name: "DescribeTargetGroups", Actions: []string{"DescribeTargetGroups"},
		Scan: true, Effect: "the targets of load balancers are unknown there",
	},
	{
		Service: "elasticloadbalancing", Name: "DescribeTargetHealth", Actions: []string{"DescribeTargetHealth"},
		Scan: true, Item: "target group",
		Effect: "whether anything healthy is behind their load balancers is not known",
	},
	{
		Service: "elasticloadbalancing", Name: "DescribeInstanceHealth", Actions: []string{"DescribeInstanceHealth"},
		Scan: true, Item: "load balancer", Effect: "whether anything healthy is behind them is not known",
	},

	{
		Service: "autoscaling", Name: "DescribeAutoScalingGroups", Actions: []string{"DescribeAutoScalingGroups"},
		Scan: true, Kinds: []inventory.Kind{inventory.KindAutoScalingGroup},
		Effect: "Auto Scaling groups are not seen there, nor what images they start machines from",
	},
	{
		Service: "autoscaling", Name: "DescribeLaunchConfigurations", Actions: []string{
			"DescribeLaunchConfigurations",
		},
		Scan: true, Effect: unknownLaunchers,
	},
	{
		Service: "application-autoscaling", Name: "DescribeScalableTargets",
		Actions: []string{"DescribeScalableTargets"}, Act: true, Item: "endpoint",
		Effect: "whether something else sets the size of endpoints is not known there: they are not resized",
	},
	{
		Service: "autoscaling", Name: "DescribePolicies", Actions: []string{"DescribePolicies"}, Scan: true,
		Effect: "whether Auto Scaling groups scale down by themselves is not known there",
	},
	{
		Service: "autoscaling", Name: "DescribeScheduledActions", Actions: []string{"DescribeScheduledActions"},
		Scan: true, Effect: "whether Auto Scaling groups follow a schedule is not known there",
	},

	{
		Service: "s3", Name: "ListBuckets", Actions: []string{"ListAllMyBuckets"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindBucket}, Effect: "no bucket is seen", Charge: chargeS3List,
	},
	{
		Service: "s3", Name: "HeadBucket", Actions: []string{"ListBucket"}, Scan: true, Item: "bucket",
		Effect: "their region is not known, and they are left out", Charge: chargeS3Get,
	},
	{
		Service: "s3", Name: "GetBucketVersioning", Actions: []string{"GetBucketVersioning"},
		Scan: true, Item: "bucket",
		Effect: "whether they keep old versions is not known", Charge: chargeS3Get,
	},
	{
		Service: "s3", Name: "GetObjectLockConfiguration", Actions: []string{"GetBucketObjectLockConfiguration"},
		Scan: true, Item: "bucket",
		Effect: "whether Object Lock keeps their versions is not known", Charge: chargeS3Get,
	},
	{
		Service: "s3", Name: "GetBucketReplication", Actions: []string{"GetReplicationConfiguration"}, Scan: true,
		Item: "bucket", Effect: "where their objects are copied to is not known", Charge: chargeS3Get,
	},
	{
		Service: "s3", Name: "GetBucketLifecycleConfiguration", Actions: []string{
			"GetLifecycleConfiguration",
		}, Scan: true,
		Item: "bucket", Effect: "lifecycle rules not evaluated for them", Charge: chargeS3Get,
	},
	{
		Service: "s3", Name: "GetBucketTagging", Actions: []string{"GetBucketTagging"}, Scan: true, Item: "bucket",
		Effect: unknownTags, Charge: chargeS3Get,
	},
	{
		Service: "s3", Name: "ListMultipartUploads", Actions: []string{"ListBucketMultipartUploads"}, Scan: true,
		Item: "bucket", Effect: "what incomplete uploads hold is not known", Charge: chargeS3List,
	},
	{
		Service: "s3", Name: "ListParts", Actions: []string{"ListMultipartUploadParts"}, Scan: true, Item: "bucket",
		Effect: "the size of incomplete uploads is not known", Charge: chargeS3List,
	},
	{
		Service: "s3", Name: "ListObjectsV2", Actions: []string{"ListBucket"}, Scan: true, Item: "bucket",
		Effect: "prefixes and their ages are not known: no lifecycle proposal by prefix", Charge: chargeS3List,
	},
	{
		Service: "s3", Name: "ListBucketInventoryConfigurations", Actions: []string{"GetInventoryConfiguration"},
		Scan: true, Item: "bucket",
		Effect: "their S3 Inventory is not looked for: ages of objects are known from listings", Charge: chargeS3Get,
	},
	{
		Service: "s3", Name: "ListBucketAnalyticsConfigurations", Actions: []string{"GetAnalyticsConfiguration"},
		Scan: true, Item: "bucket",
		Effect: "their Storage Class Analysis is not looked for: ages of objects are known from listings",
		Charge: chargeS3Get,
	},
	{
		Service: "s3", Name: "GetBucketLogging", Actions: []string{"GetBucketLogging"}, Scan: true, Item: "bucket",
		Effect: "their access log is not looked for: reads that it records are not known", Charge: chargeS3Get,
	},
	{
		Service: "s3", Name: "ListObjectVersions", Actions: []string{"ListBucketVersions"}, Scan: true, Item: "bucket",
		Effect: "what replaced and deleted versions hold is not known", Charge: chargeS3List,
	},
	{
		Service: "s3", Name: "GetObject", Actions: []string{"GetObject"}, Item: "object",
		Effect: "bills stored there are not read", Charge: chargeS3Get,
	},

	{
		Service: "ecr", Name: "DescribeRepositories", Actions: []string{"DescribeRepositories"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindRepository}, Effect: "image repositories are not seen there",
	},
	{
		Service: "ecr", Name: "DescribeImages", Actions: []string{"DescribeImages"}, Scan: true, Item: "repository",
		Effect: "what they hold is not known",
	},
	{
		Service: "ecr", Name: "GetLifecyclePolicy", Actions: []string{"GetLifecyclePolicy"}, Scan: true,
		Item: "repository", Effect: "whether they have a lifecycle policy is not known",
	},
	{
		Service: "ecr", Name: "ListTagsForResource", Actions: []string{"ListTagsForResource"}, Scan: true,
		Item: "repository", Effect: unknownTags,
	},

	{
		Service: "logs", Name: "DescribeLogGroups", Actions: []string{"DescribeLogGroups"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindLogGroup}, Effect: "log groups are not seen there",
	},
	{
		Service: "logs", Name: "ListTagsForResource", Actions: []string{"ListTagsForResource"}, Scan: true,
		Item: "log group", Effect: unknownTags,
	},

	{
		Service: "sagemaker", Name: "ListNotebookInstances", Actions: []string{"ListNotebookInstances"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindNotebook}, Effect: "notebook instances are not seen there",
	},
	{
		Service: "sagemaker", Name: "DescribeNotebookInstance", Actions: []string{
			"DescribeNotebookInstance",
		}, Scan: true,
		Item: "notebook", Effect: "the cost of their disks is left out",
	},
	{
		Service: "sagemaker", Name: "ListApps", Actions: []string{"ListApps"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindNotebook}, Effect: "studio applications are not seen there",
	},
	{
		Service: "sagemaker", Name: "DescribeApp", Actions: []string{"DescribeApp"}, Scan: true,
		Item: "studio application", Effect: "when they were last used is not known, nor are their tags",
	},
	{
		Service: "sagemaker", Name: "ListEndpoints", Actions: []string{"ListEndpoints"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindEndpoint}, Effect: "inference endpoints are not seen there",
	},
	{
		Service: "sagemaker", Name: "DescribeEndpoint", Actions: []string{"DescribeEndpoint"}, Scan: true,
		Item: "endpoint", Effect: "the machines behind them are not known: no price, no verdict",
	},
	{
		Service: "sagemaker", Name: "DescribeEndpointConfig", Actions: []string{"DescribeEndpointConfig"}, Scan: true,
		Item: "endpoint", Effect: "the machines behind them are not known: no price, no verdict",
	},
	{
		Service: "sagemaker", Name: "ListTrainingJobs", Actions: []string{"ListTrainingJobs"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindTrainingJob}, Effect: "training jobs are not seen there",
	},
	{
		Service: "sagemaker", Name: "DescribeTrainingJob", Actions: []string{"DescribeTrainingJob"}, Scan: true,
		Item: "training job", Effect: "their machines are not known: no price, no verdict",
	},
	{
		Service: "sagemaker", Name: "ListClusters", Actions: []string{"ListClusters"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindHyperPod}, Effect: "clusters of SageMaker HyperPod are not seen there",
	},
	{
		Service: "sagemaker", Name: "DescribeCluster", Actions: []string{"DescribeCluster"},
		Scan: true, Item: "cluster",
		Effect: "their machines are not known: no price",
	},
	{
		Service: "sagemaker", Name: "ListTags", Actions: []string{"ListTags"}, Scan: true, Item: "resource",
		Effect: unknownTags,
	},

	{
		Service: "elasticfilesystem", Name: "DescribeFileSystems", Actions: []string{
			"DescribeFileSystems",
		}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindFileSystem}, Effect: "EFS file systems are not seen there",
	},
	{
		Service: "fsx", Name: "DescribeFileSystems", Actions: []string{"DescribeFileSystems"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindFileSystem}, Effect: "FSx file systems are not seen there",
	},
	{
		Service: "rds", Name: "DescribeDBInstances", Actions: []string{"DescribeDBInstances"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindDatabase}, Effect: "databases are not seen there",
	},
	{
		Service: "es", Name: "ListDomainNames", Actions: []string{"ListDomainNames"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindDatabase}, Effect: "search clusters are not seen there",
	},
	{
		Service: "es", Name: "DescribeDomains", Actions: []string{"DescribeDomains"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindDatabase}, Effect: "search clusters are not seen there",
	},
	{
		Service: "es", Name: "ListTags", Actions: []string{"ListTags"}, Scan: true, Item: "search cluster",
		Effect: unknownTags,
	},
	{
		Service: "elasticache", Name: "DescribeCacheClusters", Actions: []string{"DescribeCacheClusters"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindCache}, Effect: "caches are not seen there",
	},
	{
		Service: "elasticache", Name: "ListTagsForResource", Actions: []string{"ListTagsForResource"}, Scan: true,
		Item: "cache", Effect: unknownTags,
	},
	{
		Service: "redshift", Name: "DescribeClusters", Actions: []string{"DescribeClusters"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindWarehouse}, Effect: "warehouses are not seen there",
	},
	{
		Service: "eks", Name: "ListClusters", Actions: []string{"ListClusters"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindCluster}, Effect: "control planes of EKS are not seen there",
	},
	{
		Service: "eks", Name: "DescribeCluster", Actions: []string{"DescribeCluster"}, Scan: true, Item: "cluster",
		Effect: "their versions are not known, nor their tags",
	},
	{
		Service: "dynamodb", Name: "ListTables", Actions: []string{"ListTables"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindTable}, Effect: "tables of DynamoDB are not seen there",
	},
	{
		Service: "dynamodb", Name: "DescribeTable", Actions: []string{"DescribeTable"}, Scan: true, Item: "table",
		Effect: "their capacity is not known",
	},
	{
		Service: "dynamodb", Name: "ListTagsOfResource", Actions: []string{"ListTagsOfResource"}, Scan: true,
		Item: "table", Effect: unknownTags,
	},
	{
		Service: "secretsmanager", Name: "ListSecrets", Actions: []string{"ListSecrets"}, Scan: true,
		Kinds: []inventory.Kind{inventory.KindSecret}, Effect: "secrets are not seen there",
	},

	{
		Service: "savingsplans", Name: "DescribeSavingsPlans", Actions: []string{"DescribeSavingsPlans"}, Scan: true,
		Kinds:  []inventory.Kind{inventory.KindCommitment},
		Effect: "savings on machines are upper bounds: savings plans may cover them",
	},
	{
		Service: "ce", Name: "GetCostAndUsage", Actions: []string{"GetCostAndUsage"}, Scan: true,
		Effect: "what the account was billed is not shown", Charge: chargeExplorer,
	},

	{
		Service: "cloudwatch", Name: "ListMetrics", Actions: []string{"ListMetrics"}, Scan: true,
		Effect: "each GPU on its own is not seen", Charge: chargeMetric,
	},
	{
		Service: "cloudwatch", Name: "GetMetricData", Actions: []string{"GetMetricData"}, Scan: true,
		Effect: "idle rules not evaluated", Charge: chargeMetric,
	},

	{
		Service: "organizations", Name: "ListAccounts", Actions: []string{"ListAccounts"},
		Effect: "accounts of the organization are not found",
	},

	{Service: "pricing", Name: "GetProducts", Actions: []string{"GetProducts"}, Effect: "list prices are not updated"},
}

// index maps "service:Name" to operations.
var index = func() map[string]*Operation {
	m := make(map[string]*Operation, len(operations))
	for i := range operations {
		m[operations[i].API()] = &operations[i]
	}
	return m
}()

// API returns "ec2:DescribeInstances".
func (o Operation) API() string { return o.Service + ":" + o.Name }

// IAM returns the IAM actions with their prefix: "s3:ListAllMyBuckets".
func (o Operation) IAM() []string {
	out := make([]string, len(o.Actions))
	for i, a := range o.Actions {
		out[i] = o.Service + ":" + a
	}
	return out
}
