package aws

import (
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

func TestExtendedSupport(t *testing.T) {
	at := func(day string) time.Time {
		v, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	standard := &ekstypes.UpgradePolicyResponse{SupportType: ekstypes.SupportTypeStandard}
	for _, tc := range []struct {
		version, now, want string
		policy             *ekstypes.UpgradePolicyResponse
	}{
		{"1.29", "2025-03-22", "", nil}, {"1.29", "2025-03-23", "2025-03-23", nil}, {"1.19", "2026-01-01", "2023-10-11", nil},
		{"1.99", "2026-11-01", "", nil}, {"", "2026-11-01", "", nil}, {"1.x", "2026-11-01", "", nil}, {"1.29", "2026-11-01", "", standard},
	} {
		got := extendedSince(&ekstypes.Cluster{Version: &tc.version, UpgradePolicy: tc.policy}, at(tc.now))
		if (tc.want == "") != got.IsZero() || (tc.want != "" && !got.Equal(at(tc.want))) {
			t.Errorf("%s on %s: %s, want %q", tc.version, tc.now, got, tc.want)
		}
	}
}

func TestProvisionedCapacity(t *testing.T) {
	units := func(read, write int64) *dynamotypes.ProvisionedThroughputDescription {
		return &dynamotypes.ProvisionedThroughputDescription{ReadCapacityUnits: &read, WriteCapacityUnits: &write}
	}
	var d inventory.Table
	fillTable(&d, &dynamotypes.TableDescription{ProvisionedThroughput: units(5, 7), GlobalSecondaryIndexes: []dynamotypes.GlobalSecondaryIndexDescription{
		{IndexName: awssdk.String("by-day"), ProvisionedThroughput: units(10, 20)}}})
	if d.OnDemand || d.ReadUnits != 15 || d.WriteUnits != 27 || len(d.Indexes) != 1 {
		t.Errorf("%+v", d)
	}
	d = inventory.Table{}
	fillTable(&d, &dynamotypes.TableDescription{ProvisionedThroughput: units(0, 0),
		BillingModeSummary: &dynamotypes.BillingModeSummary{BillingMode: dynamotypes.BillingModePayPerRequest}})
	if !d.OnDemand || d.ReadUnits != 0 {
		t.Errorf("%+v", d)
	}
}
