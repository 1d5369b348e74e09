package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	cachetypes "github.com/aws/aws-sdk-go-v2/service/elasticache/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"
	"github.com/aws/aws-sdk-go-v2/service/redshift"
	redshifttypes "github.com/aws/aws-sdk-go-v2/service/redshift/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

// dataServices creates used and unused databases, caches, a warehouse, tables, a control plane and
// interface endpoints.
func (b *seeder) dataServices(ctx context.Context) error {
	for _, seed := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"databases in use", b.usedDatabases}, {"cache", b.cache}, {"warehouse", b.warehouse},
		{"control plane", b.cluster}, {"tables", b.tables}, {"interface endpoints", b.interfaceEndpoints},
	} {
		if err := seed.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", seed.name, err)
		}
	}
	return nil
}

// level adds a value that has been constant for two weeks and a day.
func (b *seeder) level(namespace, name string, d []wire.Dimension, v float64) {
	b.steady(east, namespace, name, d, b.ago(days(15)), func(t time.Time) wire.Datum { return gauge(t, v, v) })
}

func (b *seeder) usedDatabases(ctx context.Context) error {
	for _, x := range []struct {
		name        string
		connections float64
		cpu         float64
		rule        string
		want        Planted
	}{
		{"reports-2024", 0, 3, "database-idle", Planted{SavingsUSD: "259.88", Note: "db.m5.xlarge at 0.356 an hour"}},
		{
			"label-store", 6, 12, "database-oversized",
			Planted{Unknown: true, UpperBoundUSD: "129.94", Note: "db.m5.large costs half"},
		},
		{"ranking-features", 40, 70, "", Planted{}},
	} {
		var t []rdstypes.Tag
		for k, v := range tags(chen, "") {
			t = append(t, rdstypes.Tag{Key: aws.String(k), Value: aws.String(v)})
		}
		if _, err := rds.NewFromConfig(b.Config(east)).CreateDBInstance(ctx, &rds.CreateDBInstanceInput{
			DBInstanceIdentifier: &x.name,
			DBInstanceClass:      aws.String("db.m5.xlarge"), Engine: aws.String("postgres"),
			AllocatedStorage:   aws.Int32(20),
			StorageType:        aws.String("gp3"),
			MasterUsername:     aws.String("owner"),
			MasterUserPassword: aws.String("only-a-test"), Tags: t}); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		b.age("rds", "DBInstanceIdentifier", x.name, b.ago(days(200)), "InstanceCreateTime")
		d := dims("DBInstanceIdentifier", x.name)
		b.level("AWS/RDS", "DatabaseConnections", d, x.connections)
		b.level("AWS/RDS", "CPUUtilization", d, x.cpu)
		r := b.record(inventory.KindDatabase, x.name, east, chen)
		if x.rule != "" {
			b.plant(r, x.rule, x.want)
		} else {
			b.innocent(r, "in use", "database-idle", "database-oversized")
		}
	}
	return nil
}

func (b *seeder) cache(ctx context.Context) error {
	name := "feed-cache-old"
	var t []cachetypes.Tag
	for k, v := range tags(chen, "") {
		t = append(t, cachetypes.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	if _, err := elasticache.NewFromConfig(b.Config(east)).CreateCacheCluster(ctx,
		&elasticache.CreateCacheClusterInput{CacheClusterId: &name,
			CacheNodeType: aws.String("cache.m6g.large"), Engine: aws.String("redis"), NumCacheNodes: aws.Int32(1),
			Tags: t}); err != nil {
		return err
	}
	b.age("elasticache", "CacheClusterId", name, b.ago(days(120)), "CacheClusterCreateTime")
	b.level("AWS/ElastiCache", "CPUUtilization", dims("CacheClusterId", name), 1)
	b.plant(b.record(inventory.KindCache, name, east, chen), "cache-idle",
		Planted{Unknown: true, Note: "its nodes have no price"})
	return nil
}

func (b *seeder) warehouse(ctx context.Context) error {
	name := "clicks"
	var t []redshifttypes.Tag
	for k, v := range tags(emil, "") {
		t = append(t, redshifttypes.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	if _, err := redshift.NewFromConfig(b.Config(east)).CreateCluster(ctx,
		&redshift.CreateClusterInput{ClusterIdentifier: &name,
			NodeType: aws.String("ra3.xlplus"), NumberOfNodes: aws.Int32(2), ClusterType: aws.String("multi-node"),
			MasterUsername:     aws.String("owner"),
			MasterUserPassword: aws.String("Only1test"), DBName: aws.String("clicks"), Tags: t}); err != nil {
		return err
	}
	b.age("redshift", "ClusterIdentifier", name, b.ago(days(120)), "ClusterCreateTime")
	b.level("AWS/Redshift", "DatabaseConnections", dims("ClusterIdentifier", name), 8)
	b.level("AWS/Redshift", "CPUUtilization", dims("ClusterIdentifier", name), 30)
	b.innocent(b.record(inventory.KindWarehouse, name, east, emil), "in use", "database-idle")
	return nil
}

func (b *seeder) cluster(ctx context.Context) error {
	name := "training"
	if _, err := eks.NewFromConfig(b.Config(east)).CreateCluster(ctx, &eks.CreateClusterInput{
		Name: &name, RoleArn: sagemakerRole,
		Version: aws.String("1.29"), Tags: tags(ana, ""), ResourcesVpcConfig: &ekstypes.VpcConfigRequest{
			SubnetIds: []string{b.nets[east].subnet},
		}}); err != nil {
		return err
	}
	b.age("eks", "name", name, b.ago(days(500)), "createdAt")
	b.plant(b.record(inventory.KindCluster, name, east, ana), "cluster-extended-support",
		Planted{SavingsUSD: "365.00", Note: "0.60 an hour in place of 0.10"})
	return nil
}

func (b *seeder) tables(ctx context.Context) error {
	api := dynamodb.NewFromConfig(b.Config(east))
	for _, x := range []struct {
		name     string
		consumed float64
	}{{"sessions-2023", 0}, {"leases", 400}} {
		var t []ddbtypes.Tag
		for k, v := range tags(dana, "") {
			t = append(t, ddbtypes.Tag{Key: aws.String(k), Value: aws.String(v)})
		}
		if _, err := api.CreateTable(ctx, &dynamodb.CreateTableInput{
			TableName: &x.name, BillingMode: ddbtypes.BillingModeProvisioned, Tags: t,
			AttributeDefinitions: []ddbtypes.AttributeDefinition{
				{AttributeName: aws.String("id"), AttributeType: ddbtypes.ScalarAttributeTypeS},
			},
			KeySchema: []ddbtypes.KeySchemaElement{
				{AttributeName: aws.String("id"), KeyType: ddbtypes.KeyTypeHash},
			},
			ProvisionedThroughput: &ddbtypes.ProvisionedThroughput{
				ReadCapacityUnits: aws.Int64(100), WriteCapacityUnits: aws.Int64(40),
			}}); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		b.age("dynamodb", "TableName", x.name, b.ago(days(300)), "CreationDateTime")
		d := dims("TableName", x.name)
		b.level("AWS/DynamoDB", "ProvisionedReadCapacityUnits", d, 100)
		r := b.record(inventory.KindTable, x.name, east, dana)
		if x.consumed > 0 {
			b.steady(east, "AWS/DynamoDB", "ConsumedReadCapacityUnits", d, b.ago(days(15)),
				func(t time.Time) wire.Datum {
					return counter(t, x.consumed)
				})
			b.innocent(r, "in use", "table-idle")
			b.plant(r, "table-overprovisioned", Planted{
				Unknown: true, UpperBoundUSD: "27.90",
				Note: "99 × 0.00013 and 39 × 0.00065 an hour at most: 400 units an hour need one of each",
			})
		} else {
			b.plant(r, "table-idle", Planted{SavingsUSD: "28.47", Note: "100 × 0.00013 and 40 × 0.00065 an hour"})
		}
	}
	return nil
}

func (b *seeder) interfaceEndpoints(ctx context.Context) error {
	api := ec2.NewFromConfig(b.Config(east))
	service := "com.amazonaws.us-east-1.sqs"
	for _, bytes := range []float64{0, 5000} {
		out, err := api.CreateVpcEndpoint(ctx, &ec2.CreateVpcEndpointInput{
			ServiceName: &service, VpcId: aws.String(b.nets[east].vpc),
			VpcEndpointType: ec2types.VpcEndpointTypeInterface, SubnetIds: []string{b.nets[east].subnet},
			TagSpecifications: tagSpec(ec2types.ResourceTypeVpcEndpoint, tags(bo, "queue"))})
		if err != nil {
			return err
		}
		id := *out.VpcEndpoint.VpcEndpointId
		b.age("ec2", "vpcEndpointId", id, b.ago(days(90)), "creationTimestamp")
		b.steady(east, "AWS/PrivateLinkEndpoints", "BytesProcessed", dims("Endpoint Type", "Interface", "Service Name",
			service, "VPC Endpoint Id", id, "VPC Id", b.nets[east].vpc),
			b.ago(days(31)), func(t time.Time) wire.Datum { return counter(t, bytes) })
		r := b.record(inventory.KindVPCEndpoint, id, east, bo)
		if bytes > 0 {
			b.innocent(r, "in use", "vpc-endpoint-idle")
		} else {
			b.plant(r, "vpc-endpoint-idle", Planted{SavingsUSD: "7.30", Note: "one zone at 0.01 an hour"})
		}
	}
	return nil
}
