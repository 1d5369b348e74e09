package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// tables lists the tables of DynamoDB.
func (p *place) tables(ctx context.Context) {
	var names []string
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := dynamodbClient(p.reading).ListTables(ctx, &dynamodb.ListTablesInput{
			ExclusiveStartTableName: token,
		})
		if err != nil {
			return nil, err
		}
		names = append(names, out.TableNames...)
		return out.LastEvaluatedTableName, nil
	})
	p.failed(ctx, "dynamodb:ListTables", err)
	each(ctx, names, func(name string) {
		r := p.resource(inventory.KindTable, name)
		r.Name = name
		d := &inventory.Table{}
		r.Detail = d
		out, err := dynamodbClient(p.reading).DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
		p.missed(ctx, "dynamodb:DescribeTable", name, err)
		if err == nil && out.Table != nil {
			t := out.Table
			r.CreatedAt, r.State = utc(t.CreationDateTime), tableStates[t.TableStatus]
			fillTable(d, t)
			tags, err := dynamodbClient(p.reading).ListTagsOfResource(ctx, &dynamodb.ListTagsOfResourceInput{
				ResourceArn: t.TableArn,
			})
			p.missed(ctx, "dynamodb:ListTagsOfResource", name, err)
			if err == nil {
				r.Tags = tagged(tags.Tags, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
			}
		}
		p.scan.add(r)
	})
}

// fillTable reads the provisioned capacity, with that of the indexes. A table on demand has none.
func fillTable(d *inventory.Table, t *types.TableDescription) {
	d.OnDemand = t.BillingModeSummary != nil && t.BillingModeSummary.BillingMode == types.BillingModePayPerRequest
	if d.OnDemand {
		return
	}
	provisioned := []*types.ProvisionedThroughputDescription{t.ProvisionedThroughput}
	for i := range t.GlobalSecondaryIndexes {
		provisioned = append(provisioned, t.GlobalSecondaryIndexes[i].ProvisionedThroughput)
		d.Indexes = append(d.Indexes, awssdk.ToString(t.GlobalSecondaryIndexes[i].IndexName))
	}
	for _, u := range provisioned {
		if u != nil {
			d.ReadUnits += awssdk.ToInt64(u.ReadCapacityUnits)
			d.WriteUnits += awssdk.ToInt64(u.WriteCapacityUnits)
		}
	}
}

var tableStates = map[types.TableStatus]inventory.State{
	types.TableStatusCreating: inventory.StatePending, types.TableStatusActive: inventory.StateRunning,
	types.TableStatusUpdating: inventory.StateRunning, types.TableStatusDeleting: inventory.StateDeleting,
	types.TableStatusArchived: inventory.StateStopped, types.TableStatusArchiving: inventory.StateStopping,
	types.TableStatusInaccessibleEncryptionCredentials: inventory.StateFailed,
}
