package sandbox

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/efs"
	efstypes "github.com/aws/aws-sdk-go-v2/service/efs/types"
	"github.com/aws/aws-sdk-go-v2/service/fsx"
	fsxtypes "github.com/aws/aws-sdk-go-v2/service/fsx/types"
	"github.com/aws/aws-sdk-go-v2/service/opensearch"
	ostypes "github.com/aws/aws-sdk-go-v2/service/opensearch/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	smgrtypes "github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

func (b *seeder) fileSystems(ctx context.Context) error {
	var et []efstypes.Tag
	for k, v := range tags(bo, "corpus") {
		et = append(et, efstypes.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	e, err := efs.NewFromConfig(b.Config(east)).CreateFileSystem(ctx, &efs.CreateFileSystemInput{
		CreationToken: aws.String("corpus"), Tags: et,
	})
	if err != nil {
		return fmt.Errorf("efs: %w", err)
	}
	b.Wire.Patch(wire.Patch{
		Service: "elasticfilesystem", Operation: "DescribeFileSystems", IDField: "FileSystemId", ID: *e.FileSystemId,
		Set: map[string]any{
			"CreationTime": b.ago(days(300)), "SizeInBytes": map[string]any{
				"Value": 300 * gib, "ValueInStandard": 100 * gib,
				"ValueInIA": 200 * gib, "ValueInArchive": 0}}})
	b.record(inventory.KindFileSystem, *e.FileSystemId, east, bo)

	var ft []fsxtypes.Tag
	for k, v := range tags(ana, "scratch") {
		ft = append(ft, fsxtypes.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	f, err := fsx.NewFromConfig(b.Config(east)).CreateFileSystem(ctx, &fsx.CreateFileSystemInput{
		FileSystemType:  fsxtypes.FileSystemTypeLustre,
		StorageCapacity: aws.Int32(1200), StorageType: fsxtypes.StorageTypeSsd,
		SubnetIds: []string{b.nets[east].subnet},
		Tags:      ft,
		LustreConfiguration: &fsxtypes.CreateFileSystemLustreConfiguration{
			DeploymentType: fsxtypes.LustreDeploymentTypeScratch2,
		}})
	if err != nil {
		return fmt.Errorf("fsx: %w", err)
	}
	b.Wire.Patch(wire.Patch{
		Service: "fsx", Operation: "DescribeFileSystems", IDField: "FileSystemId", ID: *f.FileSystem.FileSystemId,
		Add: map[string]any{
			"CreationTime": b.ago(days(30)), "Lifecycle": "AVAILABLE", "OwnerId": wire.DefaultAccount,
		}})
	b.record(inventory.KindFileSystem, *f.FileSystem.FileSystemId, east, ana)
	return nil
}

func (b *seeder) databases(ctx context.Context) error {
	var rt []rdstypes.Tag
	for k, v := range tags(chen, "") {
		rt = append(rt, rdstypes.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	name := "feature-store"
	if _, err := rds.NewFromConfig(b.Config(east)).CreateDBInstance(ctx, &rds.CreateDBInstanceInput{
		DBInstanceIdentifier: &name,
		DBInstanceClass:      aws.String("db.m5.large"), Engine: aws.String("postgres"),
		AllocatedStorage: aws.Int32(100),
		StorageType:      aws.String("gp3"),
		MasterUsername:   aws.String("feature"), MasterUserPassword: aws.String("only-a-test"),
		Tags: rt}); err != nil {
		return fmt.Errorf("rds: %w", err)
	}
	b.age("rds", "DBInstanceIdentifier", name, b.ago(days(200)), "InstanceCreateTime")
	b.record(inventory.KindDatabase, name, east, chen)

	var ot []ostypes.Tag
	for k, v := range tags(bo, "") {
		ot = append(ot, ostypes.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	domain := "embeddings"
	if _, err := opensearch.NewFromConfig(b.Config(east)).CreateDomain(ctx,
		&opensearch.CreateDomainInput{DomainName: &domain,
			EngineVersion: aws.String("OpenSearch_2.11"), TagList: ot,
			ClusterConfig: &ostypes.ClusterConfig{InstanceType: "r6g.large.search", InstanceCount: aws.Int32(2)},
			EBSOptions: &ostypes.EBSOptions{
				EBSEnabled: aws.Bool(true), VolumeSize: aws.Int32(100), VolumeType: ostypes.VolumeTypeGp3,
			}}); err != nil {
		return fmt.Errorf("opensearch: %w", err)
	}
	b.record(inventory.KindDatabase, domain, east, bo)
	return nil
}

func (b *seeder) secrets(ctx context.Context) error {
	var t []smgrtypes.Tag
	for k, v := range tags(dana, "") {
		t = append(t, smgrtypes.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	out, err := secretsmanager.NewFromConfig(b.Config(east)).CreateSecret(ctx,
		&secretsmanager.CreateSecretInput{Name: aws.String("assistant/api-key"),
			SecretString: aws.String("only a test"), Tags: t})
	if err != nil {
		return err
	}
	b.age("secretsmanager", "ARN", *out.ARN, b.ago(days(100)), "CreatedDate", "LastChangedDate")
	b.record(inventory.KindSecret, *out.Name, east, dana)
	return nil
}

// Commitments: the hourly cost of a reserved m5.xlarge (one year, no upfront; AWS price list) and
// the number of unused ones.
const (
	reservedHourly = "0.121"
	reservedUnused = 3
)

// commitments creates objects that moto lacks: reservations, reserved machines, and a savings plan
// that the account's legitimate work uses completely.
func (b *seeder) commitments(context.Context) error {
	year := days(365)
	at := func(region string, change func(*wire.Place)) { b.Wire.State.At(wire.DefaultAccount, region, change) }
	at(west, func(p *wire.Place) {
		p.ReservedInstances = append(p.ReservedInstances, wire.ReservedInstances{
			ID: "0ri-feed-unused", InstanceType: "m5.xlarge",
			OfferingType: "No Upfront", Zone: west + "b", Count: reservedUnused,
			Start: b.ago(days(100)), Duration: year,
			FixedPrice: "0.0", UsagePrice: "0.0",
			RecurringUSD: reservedHourly, Tags: tags(chen, "")})
	})
	unused := b.record(inventory.KindCommitment, "0ri-feed-unused", west, chen)
	lost := new(big.Rat).Mul(rat(reservedHourly), big.NewRat(reservedUnused*hoursAMonth, 1))
	b.plant(unused, "commitment-unused", Planted{
		WasteUSD: dollars(lost), Unknown: true, UpperBoundUSD: dollars(lost), Note: "no m5.xlarge runs in its zone",
	})

	at(east, func(p *wire.Place) {
		p.ReservedInstances = append(p.ReservedInstances, wire.ReservedInstances{
			ID: "0ri-api-used", InstanceType: "c5.xlarge",
			OfferingType: "All Upfront", Count: 1, Start: b.ago(days(30)), Duration: year, FixedPrice: "876.0",
			UsagePrice: "0.0", Tags: tags(dana, "")})
		p.SavingsPlans = append(p.SavingsPlans, wire.SavingsPlan{
			ID: "sp-compute", Type: "Compute", Commitment: "2.0", PaymentOption: "No Upfront",
			Upfront: "0.0", Recurring: "2.0", Start: b.ago(days(200)),
			End: b.ago(days(200)).Add(year), Tags: tags(dana, "")})
		p.CapacityReservations = append(p.CapacityReservations,
			wire.CapacityReservation{
				ID: "cr-0000000000000001", InstanceType: "g5.2xlarge", Zone: east + "a",
				Platform: "Linux/UNIX", Total: 4,
				Available: 3,
				Created:   b.ago(days(50)), Tags: tags(ben, "segmentation-capacity")},
			wire.CapacityReservation{
				ID: "cr-0000000000000002", InstanceType: "p4d.24xlarge", Zone: east + "a",
				Platform: "Linux/UNIX", Total: 1,
				Available: 0,
				Created:   b.ago(days(50)), Tags: tags(bo, "pretrain-capacity")})
	})
	b.innocent(b.record(inventory.KindCommitment, "0ri-api-used", east, dana), "machines of the type run",
		"commitment-unused")
	b.record(inventory.KindCommitment, "sp-compute", east, dana)
	for _, x := range []struct {
		id    string
		owner inventory.Owner
		used  float64
		rule  bool
	}{{"cr-0000000000000001", ben, 1, true}, {"cr-0000000000000002", bo, 1, false}} {
		b.steady(east, "AWS/EC2CapacityReservations", "UsedInstanceCount", dims("CapacityReservationId", x.id),
			b.ago(days(15)),
			func(t time.Time) wire.Datum { return gauge(t, x.used, x.used) })
		r := b.record(inventory.KindCapacityReservation, x.id, east, x.owner)
		if x.rule {
			b.plant(r, "reservation-unused", Planted{
				SavingsUSD: month("g5.2xlarge", east, 3), Note: "three of four machines unused",
			})
		} else {
			b.innocent(r, "used in full", "reservation-unused")
		}
	}
	b.prices()
	b.bill()
	return nil
}

// bill sets the provider's costs of the account, with the long fractions that it prints.
func (b *seeder) bill() {
	costs := []wire.ServiceCost{
		{Service: "Amazon Elastic Compute Cloud - Compute", USD: "58210.1234567891"},
		{Service: "EC2 - Other", USD: "812.0049999999"},
		{Service: "Amazon Simple Storage Service", USD: "301.5"},
		{Service: "Amazon SageMaker", USD: "4120.75"},
		{Service: "AmazonCloudWatch", USD: "44.0000000001"},
		{Service: "Tax", USD: "0"},
	}
	sum := new(big.Rat)
	for _, c := range costs {
		sum.Add(sum, rat(c.USD))
	}
	b.Wire.State.Bill(wire.DefaultAccount, costs...)
	b.truth.BilledUSD = dollars(sum)
}

// prices fills the spot price history and the Price List with a few true entries.
func (b *seeder) prices() {
	for region, prices := range map[string]map[string]string{
		east: {"g5.xlarge": "0.436", "g6.xlarge": "0.38205", "p4d.24xlarge": "8.0001"},
		west: {"g5.xlarge": "0.4857", "g6.xlarge": "0.43935", "p4d.24xlarge": "8.35265"},
	} {
		for kind, usd := range prices {
			for _, zone := range []string{"a", "b"} {
				b.Wire.State.AddSpotPrices(wire.SpotPrice{
					Region: region, InstanceType: kind, Zone: region + zone, Product: "Linux/UNIX",
					Price: usd, Time: b.ago(time.Hour)})
			}
		}
	}
	for i, kind := range []string{"g5.xlarge", "g6.xlarge", "p4d.24xlarge"} {
		b.Wire.State.SetPlacementScores(kind, wire.PlacementScore{Region: east, ZoneID: "use1-az1", Score: 9 - 3*i},
			wire.PlacementScore{Region: east, ZoneID: "use1-az4", Score: 7 - 3*i})
		b.Wire.State.AddProducts(wire.Machine(kind, east, hourly[kind+"/"+east]))
	}
}
