package cli

import (
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/test/wire"
)

// TestPricesManagedServices checks that the price list's nodes of Redshift and ElastiCache are
// read, of the cache without the hours that a reservation pays, and so are IOPS of RDS and
// addresses.
func TestPricesManagedServices(t *testing.T) {
	l := newLadder(t)
	l.sandbox.Wire.State.AddProducts(wire.WarehouseNode("ra3.xlplus", "us-east-1", "1.0860000000"),
		wire.CacheNode("cache.r6g.large", "Redis", "us-east-1", "0.2060000000"),
		wire.DatabaseIOPS("RDS:PIOPS", "us-east-1", "0.1070000000"), wire.PublicAddress("us-east-1", "0.0062000000"))
	out := l.curfew(ExitDone, "price", "update", "--from", "aws", "--regions", "us-east-1", "--all")
	for _, want := range []string{
		"redshift ra3.xlplus in us-east-1", "1.086", "elasticache:redis cache.r6g.large in us-east-1", "0.206",
		"rds:iops:io1 in us-east-1", "0.107", "address in us-east-1", "0.0062"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
