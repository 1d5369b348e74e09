package price

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A document of GetProducts, reduced to the fields that are read.
const machineProduct = `{"product":{"productFamily":"Compute Instance","attributes":{
"instanceType":"g6.2xlarge","regionCode":"us-east-1","locationType":"AWS Region","operatingSystem":"Linux","tenancy":"Shared",
"preInstalledSw":"NA","capacitystatus":"Used","marketoption":"OnDemand","usagetype":"BoxUsage:g6.2xlarge","servicecode":"AmazonEC2"},"sku":"X"},
"serviceCode":"AmazonEC2","terms":{"OnDemand":{"X.Y":{"priceDimensions":{"X.Y.Z":{"unit":"Hrs","endRange":"Inf","beginRange":"0",
"pricePerUnit":{"USD":"0.9776000000"}}},"effectiveDate":"2026-10-01T00:00:00Z"}},"Reserved":{}},"version":"1","publicationDate":"2026-11-05T12:00:00Z"}`

// cacheProduct has two dimensions: hours under a reservation are free.
const cacheProduct = `{"product":{"productFamily":"Cache Instance","attributes":{"servicecode":"AmazonElastiCache","locationType":"AWS Region","instanceType":"cache.c7gn.large",
"cacheEngine":"Valkey","usagetype":"NodeUsage:cache.c7gn.large","operation":"CreateCacheCluster:Valkey","regionCode":"us-east-1"}},"publicationDate":"2025-06-24T13:06:39Z",
"terms":{"OnDemand":{"a":{"effectiveDate":"2025-06-24T13:06:47Z","priceDimensions":{"b":{"unit":"Hrs","beginRange":"0","pricePerUnit":{"USD":"0.0000000000"}},
"c":{"unit":"Hrs","beginRange":"0","pricePerUnit":{"USD":"0.2035000000"}}}}}}}`

func storageProduct(attributes, dimensions string) string {
	return `{"product":{"productFamily":"Storage","attributes":{"regionCode":"eu-west-1",` + attributes + `}},
	"terms":{"OnDemand":{"a":{"priceDimensions":{` + dimensions + `},"effectiveDate":"2026-10-01T00:00:00Z"}}}}`
}

func TestParseProduct(t *testing.T) {
	for _, tc := range []struct{ name, in, want, rate, asOf string }{
		{"a machine", machineProduct, "aws g6.2xlarge in us-east-1, on-demand", "0.9776", "2026-11-05"},
		{
			"bare metal",
			strings.NewReplacer("Compute Instance", "Compute Instance (bare metal)",
				"g6.2xlarge", "g4dn.metal").Replace(
				machineProduct),
			"aws g4dn.metal in us-east-1, on-demand", "0.9776", "2026-11-05",
		},
		{
			"SageMaker",
			strings.NewReplacer("Compute Instance", "ML Instance", `"instanceType":"g6.2xlarge"`,
				`"instanceName":"ml.g6.2xlarge"`).Replace(machineProduct),
			"aws sagemaker g6.2xlarge in us-east-1, on-demand", "0.9776", "2026-11-05",
		},
		{
			"SageMaker by component",
			strings.NewReplacer("Compute Instance", "ML Instance", `"instanceType":"g6.2xlarge"`,
				`"instanceType":"ml.p6-b200.48xlarge-Hosting"`).Replace(machineProduct),
			"aws sagemaker p6-b200.48xlarge in us-east-1, on-demand", "0.9776", "2026-11-05",
		},
		{
			"a node of Redshift",
			strings.NewReplacer("AmazonEC2", "AmazonRedshift", "g6.2xlarge", "ra3.xlplus",
				"BoxUsage:", "USE1-Node:").Replace(
				machineProduct),
			"aws redshift ra3.xlplus in us-east-1, on-demand", "0.9776", "2026-11-05",
		},
		{
			"a node of ElastiCache", cacheProduct, "aws elasticache:valkey cache.c7gn.large in us-east-1, on-demand",
			"0.2035", "2025-06-24",
		},
		{
			"a volume",
			storageProduct(`"servicecode":"AmazonEC2","volumeApiName":"gp3","usagetype":"EU-EBS:VolumeUsage.gp3"`,
				`"b":{"unit":"GB-Mo","beginRange":"0","pricePerUnit":{"USD":"0.0880000000"}}`),
			"aws ebs:gp3 in eu-west-1, on-demand", "0.088", "2026-10-01",
		},
		{"a storage class with tiers", storageProduct(`"servicecode":"AmazonS3","usagetype":"EU-TimedStorage-ByteHrs"`,
			`"c":{"unit":"GB-Mo","beginRange":"512000","pricePerUnit":{"USD":"0.021"}},"b":{"unit":"GB-Mo","beginRange":"0","pricePerUnit":{"USD":"0.023"}},"d":{"unit":"GB-Mo","beginRange":"51200","pricePerUnit":{"USD":"0.022"}}`),
			"aws s3:STANDARD in eu-west-1, on-demand", "0.023", "2026-10-01"},
		{
			"a snapshot",
			strings.Replace(storageProduct(`"servicecode":"AmazonEC2","usagetype":"EU-EBS:SnapshotUsage"`,
				`"b":{"unit":"GB-Mo","beginRange":"0","pricePerUnit":{"USD":"0.05"}}`), `"Storage"`,
				`"Storage Snapshot"`, 1),
			"aws snapshot in eu-west-1, on-demand", "0.05", "2026-10-01",
		},
		{
			"a NAT gateway",
			strings.Replace(storageProduct(`"servicecode":"AmazonEC2","usagetype":"EU-NatGateway-Hours"`,
				`"b":{"unit":"Hrs","beginRange":"0","pricePerUnit":{"USD":"0.048"}}`),
				`"Storage"`, `"NAT Gateway"`, 1),
			"aws nat in eu-west-1, on-demand", "0.048", "2026-10-01",
		},
	} {
		found, err := ParseProduct([]byte(tc.in))
		if err != nil || len(found) != 1 {
			t.Errorf("%s: got %v, %v", tc.name, found, err)
			continue
		}
		e := found[0]
		if e.String() != tc.want || e.Price.Rate.String() != tc.rate ||
			e.Price.AsOf.Format(time.DateOnly) != tc.asOf ||
			e.Price.Source == "" {
			t.Errorf("%s: got %s at %s of %s, want %s at %s of %s", tc.name, e, e.Price.Rate,
				e.Price.AsOf, tc.want, tc.rate,
				tc.asOf)
		}
		if strings.Contains(tc.name, "tiers") && (len(e.Price.Tiers) != 2 || e.Price.Tiers[0].Above != 51_200 ||
			e.Price.Tiers[1].Above != 512_000) {
			t.Errorf("%s: got %v", tc.name, e.Price.Tiers)
		}
	}
}

func TestParseProductRefuses(t *testing.T) {
	change := func(old, new string) string { return strings.Replace(machineProduct, old, new, 1) }
	for _, tc := range []struct {
		name, in string
		is       error
		says     string
	}{
		{"Windows", change(`"Linux"`, `"Windows"`), ErrNotHeld, "operatingSystem"},
		{"dedicated tenancy", change(`"Shared"`, `"Dedicated"`), ErrNotHeld, "tenancy"},
		{"a license", change(`"NA"`, `"SQL Std"`), ErrNotHeld, "preInstalledSw"},
		{"an unused reservation", change(`"Used"`, `"UnusedCapacityReservation"`), ErrNotHeld, "capacitystatus"},
		{"a Local Zone", change(`"AWS Region"`, `"AWS Local Zone"`), ErrNotHeld, "not a region"},
		{"another service", storageProduct(`"usagetype":"EU-Tea"`, ""), ErrNotHeld, "EU-Tea"},
		{
			"Redshift in several zones",
			strings.NewReplacer("AmazonEC2", "AmazonRedshift", "BoxUsage:", "Multi-AZ:").Replace(machineProduct),
			ErrNotHeld,
			"Multi-AZ",
		},
		{
			"a cache that costs nothing", strings.Replace(cacheProduct, "0.2035000000", "0.0000000000", 1), ErrRefused,
			"no price from zero",
		},
		{
			"a cache of another kind",
			strings.Replace(cacheProduct, `"NodeUsage:`, `"ExtendedSupport:`, 1), ErrNotHeld,
			"ExtendedSupport",
		},
		{"yuan", change(`"USD"`, `"CNY"`), ErrNotHeld, "USD"},
		{
			"a capacity block", change(`"OnDemand","usagetype"`, `"CapacityBlock","usagetype"`), ErrRefused,
			"capacity block",
		},
		{
			"a price of zero", change("0.9776000000", "0.0000000000"), ErrRefused,
			"g6.2xlarge in us-east-1, on-demand: a price of 0.00",
		},
		{"a price below zero", change("0.9776000000", "-1"), ErrRefused, "-1.00"},
		{"another unit", change(`"Hrs"`, `"Quantity"`), ErrRefused, "Quantity"},
		{
			"a price that begins at ten", change(`"beginRange":"0"`, `"beginRange":"10"`), ErrRefused,
			"no price from zero",
		},
		{"no term", change(`"OnDemand":{"X.Y"`, `"Spot":{"X.Y"`), ErrRefused, "0 on-demand terms"},
		{"not a price", change("0.9776000000", "about a dollar"), nil, "about a dollar"},
		{
			"no date", strings.NewReplacer("2026-11-05T12:00:00Z", "", "2026-10-01T00:00:00Z",
				"").Replace(machineProduct),
			nil, "no date",
		},
		{"not JSON", "<html>", nil, "line 1"},
		{"nothing", "{}", ErrNotHeld, ""},
		{
			"a name that would not print", change(`"instanceType":"g6.2xlarge"`, `"instanceType":"g6\u001b[2J"`), nil,
			"control character",
		},
	} {
		_, err := ParseProduct([]byte(tc.in))
		if err == nil || (tc.is != nil && !errors.Is(err, tc.is)) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want %v with %q", tc.name, err, tc.is, tc.says)
		}
	}
}

func TestSpotEntry(t *testing.T) {
	at := time.Date(2026, 11, 20, 23, 59, 0, 0, time.UTC)
	e, err := SpotEntry("g6.xlarge", "us-east-1", "us-east-1a", "0.382000", at)
	if err != nil || e.String() != "aws g6.xlarge in us-east-1a, spot" || e.Price.Rate.String() != "0.382" ||
		e.Price.AsOf.Day() != 20 {
		t.Errorf("got %s at %s of %s, %v", e, e.Price.Rate, e.Price.AsOf, err)
	}
	if _, err := SpotEntry("g6.xlarge", "us-east-1", "us-east-1a", "", at); err == nil {
		t.Error("no price was read as one")
	}
}

// FuzzParseProduct checks that a product without an error is complete and has a positive price.
func FuzzParseProduct(f *testing.F) {
	f.Add([]byte(machineProduct))
	f.Add([]byte(storageProduct(`"servicecode":"AmazonEC2","volumeApiName":"gp3","usagetype":"EU-EBS:VolumeUsage.gp3"`,
		`"b":{"unit":"GB-Mo","beginRange":"0","pricePerUnit":{"USD":"0.088"}}`)))
	f.Add([]byte(`{"terms":{"OnDemand":null}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		found, err := ParseProduct(in)
		if err == nil && len(found) == 0 {
			t.Fatal("neither a price nor an error")
		}
		for _, e := range found {
			if err := e.checkComplete(); err != nil || e.Cloud != AWS || e.Price.Rate <= 0 {
				t.Fatalf("%+v: %v", e, err)
			}
		}
	})
}
