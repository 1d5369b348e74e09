// Package aws holds the rules that only AWS has: what its volumes of an older type, its
// storage classes, registries, logs, gateways and managed machines for learning cost more
// than they have to.
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

// Rules are the rules for an account of AWS, or of a cloud that sells what AWS does, in the
// order of the steps.
func Rules() []finding.Rule {
	return []finding.Rule{
		{ID: "training-overrun", Step: finding.StepIdle, Kind: inventory.KindTrainingJob, Judge: trainingOverrun},
		{ID: "endpoint-idle", Step: finding.StepIdle, Kind: inventory.KindEndpoint, Judge: endpointIdle},
		{ID: "notebook-idle", Step: finding.StepIdle, Kind: inventory.KindNotebook, Judge: notebookIdle},
		{ID: "nat-gateway-idle", Step: finding.StepIdle, Kind: inventory.KindNATGateway, Judge: natGatewayIdle},
		{ID: "database-idle", Step: finding.StepIdle, Kind: inventory.KindDatabase, Judge: databaseIdle},
		{ID: "database-idle", Step: finding.StepIdle, Kind: inventory.KindWarehouse, Judge: databaseIdle},
		{ID: "cache-idle", Step: finding.StepIdle, Kind: inventory.KindCache, Judge: cacheIdle},
		{ID: "table-idle", Step: finding.StepIdle, Kind: inventory.KindTable, Judge: tableIdle},
		{ID: "vpc-endpoint-idle", Step: finding.StepIdle, Kind: inventory.KindVPCEndpoint, Judge: vpcEndpointIdle},
		{ID: "volume-gp2", Step: finding.StepStorage, Kind: inventory.KindVolume, Judge: volumeGP2},
		{ID: "bucket-no-lifecycle", Step: finding.StepStorage, Kind: inventory.KindBucket, Judge: bucketNoLifecycle},
		{ID: "bucket-multipart", Step: finding.StepStorage, Kind: inventory.KindBucket, Judge: bucketMultipart},
		{ID: "bucket-noncurrent", Step: finding.StepStorage, Kind: inventory.KindBucket, Judge: bucketNoncurrent},
		{ID: "checkpoint-stale", Step: finding.StepStorage, Kind: inventory.KindBucket, Judge: checkpointStale},
		{ID: "log-group-no-retention", Step: finding.StepStorage, Kind: inventory.KindLogGroup, Judge: logGroupNoRetention},
		{ID: "repository-no-lifecycle", Step: finding.StepStorage, Kind: inventory.KindRepository, Judge: repositoryNoLifecycle},
		{ID: "repository-untagged", Step: finding.StepStorage, Kind: inventory.KindRepository, Judge: repositoryUntagged},
		{ID: "database-oversized", Step: finding.StepRightsize, Kind: inventory.KindDatabase, Judge: databaseOversized},
		{ID: "table-overprovisioned", Step: finding.StepRightsize, Kind: inventory.KindTable, Judge: tableOverprovisioned},
		{ID: "cluster-extended-support", Step: finding.StepCommit, Kind: inventory.KindCluster, Judge: clusterExtendedSupport},
	}
}
