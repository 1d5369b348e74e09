package aws

import (
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/session"
)

// TestQuotasToRaise checks the quota of each machine type; unknown ones have no code.
func TestQuotasToRaise(t *testing.T) {
	for _, tc := range []struct {
		code, machineType string
		spot              bool
		want              string
	}{
		{"VcpuLimitExceeded", "g6.2xlarge", false, "L-DB2E81BA"},
		{"VcpuLimitExceeded", "gr6.4xlarge", false, "L-DB2E81BA"},
		{"MaxSpotInstanceCountExceeded", "g5g.xlarge", true, "L-3819A6DF"},
		{"VcpuLimitExceeded", "p4d.24xlarge", false, "L-417A185B"},
		{"MaxSpotInstanceCountExceeded", "p4d.24xlarge", true, "L-7212CCBC"},
		{"MaxSpotInstanceCountExceeded", "p5en.48xlarge", true, "L-C4BD4855"},
		{"VcpuLimitExceeded", "inf2.xlarge", false, "L-1945791B"},
		{"VcpuLimitExceeded", "trn1.2xlarge", false, "L-2C3B7624"},
		{"VcpuLimitExceeded", "m7i.large", false, "L-1216C47A"},
		{"MaxSpotInstanceCountExceeded", "im4gn.large", true, "L-34B43A08"},
		{"VcpuLimitExceeded", "mac2.metal", false, ""},
		{"VcpuLimitExceeded", "odd", false, ""},
		{"VolumeLimitExceeded", "g6.2xlarge", false, ""},
	} {
		got := raise(tc.code, session.Pool{Type: tc.machineType, Region: "eu-west-1", Spot: tc.spot})
		if tc.want == "" && strings.Contains(got, "L-") || !strings.Contains(got, tc.want) ||
			!strings.Contains(got, "eu-west-1") {
			t.Errorf("%s of %s, spot %t: %q, want %q", tc.code, tc.machineType, tc.spot, got, tc.want)
		}
	}
}
