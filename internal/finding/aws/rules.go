// Package aws holds the rules for resources that only AWS has: older volume types, storage classes,
// registries, logs, gateways and managed machine learning.
package aws

import (
	"time"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
)

const (
	// day is 24 hours; ages are counted in days.
	day = 24 * time.Hour
	// gib is the unit in which AWS bills storage.
	gib = 1 << 30
)

// Rules returns the rules for an account of AWS, or of a cloud with AWS's offers, in the order of
// the steps.
func Rules() []finding.Rule {
	return []finding.Rule{
		{ID: "training-overrun", About: finding.About{
			Finds:      "a managed training job that runs too long",
			When:       "in progress for thresholds.training_age",
			Saves:      "none: it may be at work",
			Confidence: "high",
			Fix:        "notify; undo full",
		}, Step: finding.StepIdle, Kind: inventory.KindTrainingJob, Judge: trainingOverrun},
		{ID: "endpoint-idle", About: finding.About{
			Finds: "an endpoint that serves nothing",
			When: "0 invocations in 14 days while another metric shows that it was measured (Trusted Advisor; " +
				"thresholds.endpoint_idle)",
			Saves:      "its instances",
			Confidence: "high; low where only its last change is known, and then an upper bound",
			Fix:        "delete; undo partial",
		}, Step: finding.StepIdle, Kind: inventory.KindEndpoint, Judge: endpointIdle},
		{ID: "notebook-idle", About: finding.About{
			Finds: "a notebook in service that is not used",
			When:  "GPU telemetry, else its record of activity, idle for thresholds.notebook_idle",
			Saves: "its instance; its volume is still charged",
			Confidence: "high by telemetry; medium by its record of activity; low by its last change, and then an " +
				"upper bound",
			Fix: "stop; undo full; a studio application is deleted, undo partial",
		}, Step: finding.StepIdle, Kind: inventory.KindNotebook, Judge: notebookIdle},
		{ID: "nat-gateway-idle", About: finding.About{
			Finds:      "a NAT gateway without traffic",
			When:       "0 bytes in 30 days, or no route leads to it (thresholds.nat_window)",
			Saves:      "its hourly price",
			Confidence: "high; medium where no route leads to it",
			Fix:        "delete; undo partial",
		}, Step: finding.StepIdle, Kind: inventory.KindNATGateway, Judge: natGatewayIdle},
		{ID: "database-idle", About: finding.About{
			Finds: "a database or warehouse without connections",
			When: "maximum of DatabaseConnections 0 for 7 days, 90% covered (Trusted Advisor; " +
				"thresholds.database_idle)",
			Saves:      "its compute; its storage is still charged",
			Confidence: "high",
			Fix:        "advise: commands to stop or pause it; undo partial",
		}, Step: finding.StepIdle, Kind: inventory.KindDatabase, Judge: databaseIdle},
		{ID: "database-idle", Step: finding.StepIdle, Kind: inventory.KindWarehouse, Judge: databaseIdle},
		{ID: "cache-idle", About: finding.About{
			Finds: "a cache without requests",
			When: "no hit, miss or write in 7 days while its CPU shows that it was measured " +
				"(thresholds.database_idle)",
			Saves:      "its nodes",
			Confidence: "high",
			Fix:        "advise: commands to snapshot and delete it; undo partial",
		}, Step: finding.StepIdle, Kind: inventory.KindCache, Judge: cacheIdle},
		{ID: "table-idle", About: finding.About{
			Finds:      "a table with provisioned capacity that nothing uses",
			When:       "consumed capacity 0 for thresholds.table_idle, indexes included",
			Saves:      "read units × 730 h × price + write units × 730 h × price",
			Confidence: "high",
			Fix:        "advise: commands to switch it to on-demand; undo full",
		}, Step: finding.StepIdle, Kind: inventory.KindTable, Judge: tableIdle},
		{ID: "vpc-endpoint-idle", About: finding.About{
			Finds:      "an interface endpoint without traffic",
			When:       "0 bytes in 30 days (thresholds.nat_window)",
			Saves:      "zones × 730 h × price",
			Confidence: "high",
			Fix:        "advise: commands to delete it; undo partial",
		}, Step: finding.StepIdle, Kind: inventory.KindVPCEndpoint, Judge: vpcEndpointIdle},
		{ID: "volume-gp2", About: finding.About{
			Finds:      "a gp2 volume that is cheaper as gp3",
			When:       "gp3 with the same IOPS and throughput costs less",
			Saves:      "gp2 price − gp3 price with what has to be bought",
			Confidence: "high",
			Fix:        "modify volume; undo full",
		}, Step: finding.StepStorage, Kind: inventory.KindVolume, Judge: volumeGP2},
		{ID: "bucket-no-lifecycle", About: finding.About{
			Finds:      "objects that stay in the standard class without end",
			When:       "no enabled rule moves or expires them; ages by S3 Inventory, a listing, or Storage Class Analysis",
			Saves:      "bytes by age × difference of classes − transitions; what is known to be read stays; else a lower and an upper bound",
			Confidence: "high with the age of all objects; medium with bounds; low where tags or dates narrow a rule",
			Fix:        "put lifecycle; undo partial, none where it expires",
		}, Step: finding.StepStorage, Kind: inventory.KindBucket, Needs: readersOf,
			Judge: bucketNoLifecycle},
		{ID: "bucket-multipart", About: finding.About{
			Finds:      "uploads that were never completed",
			When:       "begun over 7 days ago, and no rule aborts them (thresholds.multipart_days)",
			Saves:      "their storage",
			Confidence: "high",
			Fix:        "put lifecycle; undo none",
		}, Step: finding.StepStorage, Kind: inventory.KindBucket, Judge: bucketMultipart},
		{ID: "bucket-noncurrent", About: finding.About{
			Finds:      "replaced versions that stay without end",
			When:       "versioned, and no rule ends replaced versions (thresholds.noncurrent_days)",
			Saves:      "at most storage of versions that were replaced before and that Object Lock does not keep",
			Confidence: "high",
			Fix:        "put lifecycle; undo none",
		}, Step: finding.StepStorage, Kind: inventory.KindBucket, Judge: bucketNoncurrent},
		{ID: "checkpoint-stale", About: finding.About{
			Finds:      "checkpoints of work that has ended",
			When:       "no object added for 90 days under a prefix of checkpoints (thresholds.checkpoint_stale)",
			Saves:      "difference of the classes − transitions",
			Confidence: "high",
			Fix:        "put lifecycle: archive; undo partial",
		}, Step: finding.StepStorage, Kind: inventory.KindBucket, Needs: readersOf, Judge: checkpointStale},
		{ID: "log-group-no-retention", About: finding.About{
			Finds:      "a log group that keeps everything",
			When:       "no retention; sure from 1 GiB (thresholds.log_group_gib)",
			Saves:      "at most its storage: how much is old is unknown",
			Confidence: "high from that size with its age known; medium or low",
			Fix:        "put retention (thresholds.log_retention_days); undo none",
		}, Step: finding.StepStorage, Kind: inventory.KindLogGroup, Judge: logGroupNoRetention},
		{ID: "repository-no-lifecycle", About: finding.About{
			Finds:      "images that pile up without a lifecycle policy",
			When:       "no lifecycle policy and untagged images",
			Saves:      "at most the storage of untagged images: images share layers",
			Confidence: "high",
			Fix:        "put lifecycle: untagged images expire after 90 days; undo none",
		}, Step: finding.StepStorage, Kind: inventory.KindRepository, Judge: repositoryNoLifecycle},
		{ID: "repository-untagged", About: finding.About{
			Finds:      "images without a tag",
			When:       "untagged images in the repository",
			Saves:      "at most their storage: images share layers",
			Confidence: "high",
			Fix:        "delete untagged images; undo none",
		}, Step: finding.StepStorage, Kind: inventory.KindRepository, Judge: repositoryUntagged},
		{ID: "database-oversized", About: finding.About{
			Finds:      "a database that uses a small part of its CPU",
			When:       "CPU peak under 30% in its window (thresholds.database_cpu_pct)",
			Saves:      "at most price − price of the next smaller size: memory is not measured",
			Confidence: "medium",
			Fix:        "advise: commands to change its class; undo partial",
		}, Step: finding.StepRightsize, Kind: inventory.KindDatabase, Judge: databaseOversized},
		{ID: "table-overprovisioned", About: finding.About{
			Finds: "a table that uses a small part of its capacity",
			When: "peak consumption under 20% of what is provisioned for 14 days (thresholds.table_used_pct, " +
				"thresholds.table_idle)",
			Saves:      "at most what is left when all of the peak were reads",
			Confidence: "medium",
			Fix:        "advise: commands to lower its capacity; undo full",
		}, Step: finding.StepRightsize, Kind: inventory.KindTable, Judge: tableOverprovisioned},
		{ID: "cluster-extended-support", About: finding.About{
			Finds:      "a cluster that pays for extended support",
			When:       "Kubernetes version past its standard support (Amazon EKS release calendar), not upgraded by itself",
			Saves:      "730 h × (price of extended support − price of standard support)",
			Confidence: "high",
			Fix:        "advise: commands to upgrade it; undo none",
		}, Step: finding.StepCommit, Kind: inventory.KindCluster, Judge: clusterExtendedSupport},
	}
}
