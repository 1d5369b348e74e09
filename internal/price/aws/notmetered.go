package aws

import "github.com/curfew-dev/curfew/internal/inventory"

// notMetered lists AWS charges for each kind of resource that have no meter. Traffic is not metered
// for any kind.
//
// Source: AWS's price pages of the services.
var notMetered = map[inventory.Kind][]string{
	inventory.KindBucket: {
		"requests, retrievals and replication",
		"archive tiers of Intelligent-Tiering at their own prices, and its monitoring",
	},
	inventory.KindCache:   {"serverless caches and backups"},
	inventory.KindCluster: {"Auto Mode and Fargate; worker nodes are machines of their own"},
	inventory.KindDatabase: {
		"backups beyond the size of the storage", "requests to magnetic storage and of Aurora",
		"extended support, Performance Insights and proxies",
	},
	inventory.KindEndpoint: {"serverless variants, by request", "volumes of machines without disks of their own"},
	inventory.KindFileSystem: {
		"throughput and IOPS of EFS, FSx for Windows, ONTAP and OpenZFS", "backups",
		"One Zone storage of EFS at its lower price",
	},
	inventory.KindInstance: {
		"software of AWS Marketplace", "CPU credits of burstable machines", "detailed monitoring",
	},
	inventory.KindLoadBalancer: {"capacity units and traffic", "its public IPv4 addresses"},
	inventory.KindLogGroup:     {"ingestion and queries", "the infrequent access class at its lower price"},
	inventory.KindNATGateway:   {"data that passes through it", "zones of a regional gateway beyond the first"},
	inventory.KindRepository:   {"pulls from the Internet and other regions"},
	inventory.KindSecret:       {"calls for its value"},
	inventory.KindSnapshot:     {"fast restores, and retrieval from the archive"},
	inventory.KindTable:        {"stored data and backups", "reads and writes on demand"},
	inventory.KindVPCEndpoint:  {"data that passes through it", "gateway endpoints cost nothing"},
	inventory.KindVolume:       {"requests to magnetic volumes", "multi-attach and fast restores"},
	inventory.KindWarehouse:    {"managed storage of RA3 nodes, serverless workgroups, concurrency scaling"},
}

// NotMetered returns the AWS charges for a kind of resource that its meters do not cover.
func NotMetered(kind inventory.Kind) []string { return notMetered[kind] }
