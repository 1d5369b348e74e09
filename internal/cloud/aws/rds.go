package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const databasesPage = 100

func (p *place) databases(ctx context.Context) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := rdsClient(p.reading).DescribeDBInstances(ctx, &rds.DescribeDBInstancesInput{
			MaxRecords: awssdk.Int32(databasesPage),
			Marker:     token,
		})
		if err != nil {
			return nil, err
		}
		for _, db := range out.DBInstances {
			p.scan.add(p.database(db))
		}
		return out.Marker, nil
	})
	p.failed(ctx, "rds:DescribeDBInstances", err)
}

func (p *place) database(db types.DBInstance) *inventory.Resource {
	r := p.resource(inventory.KindDatabase, awssdk.ToString(db.DBInstanceIdentifier))
	r.Name, r.Type, r.Zone, r.CreatedAt = r.ID, awssdk.ToString(db.DBInstanceClass), awssdk.ToString(
		db.AvailabilityZone), utc(db.InstanceCreateTime)
	r.Tags = tagged(db.TagList, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
	r.State = databaseState(awssdk.ToString(db.DBInstanceStatus))
	r.Detail = &inventory.Database{
		Engine: awssdk.ToString(db.Engine), Count: 1, MultiAZ: awssdk.ToBool(db.MultiAZ),
		StorageGiB: int64(awssdk.ToInt32(db.AllocatedStorage)), StorageType: awssdk.ToString(db.StorageType),
		IOPS: int64(awssdk.ToInt32(db.Iops)), ThroughputMiBps: int64(awssdk.ToInt32(db.StorageThroughput)),
		License: paidLicense(awssdk.ToString(db.LicenseModel)), Cluster: awssdk.ToString(db.DBClusterIdentifier),
	}
	return r
}

// paidLicense returns a license model, or "" for engines without license cost (RDS API, DBInstance,
// LicenseModel).
func paidLicense(model string) string {
	switch model {
	case "general-public-license", "postgresql-license":
		return ""
	}
	return model
}

// databaseState maps RDS's many states; an unlisted one (backing-up, modifying, upgrading, …)
// counts as running.
func databaseState(s string) inventory.State {
	switch s {
	case "":
		return inventory.StateUnknown
	case "creating":
		return inventory.StatePending
	case "stopping":
		return inventory.StateStopping
	case "stopped":
		return inventory.StateStopped
	case "deleting":
		return inventory.StateDeleting
	case "failed", "inaccessible-encryption-credentials", "incompatible-network",
		"incompatible-restore", "restore-error":
		return inventory.StateFailed
	}
	return inventory.StateRunning
}
