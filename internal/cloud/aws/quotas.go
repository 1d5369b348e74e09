package aws

import (
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/session"
)

// quota is a quota of EC2 on the CPUs of running machines: its name and code in Service Quotas.
type quota struct{ name, code string }

// vcpuQuotas maps the first letters of machine type families to their quotas, on demand and on spot
// (EC2 User Guide, "Amazon EC2 instance type quotas"; Service Quotas, service ec2).
var vcpuQuotas = map[string][2]quota{
	"g": {
		{"Running On-Demand G and VT instances", "L-DB2E81BA"}, {"All G and VT Spot Instance Requests", "L-3819A6DF"},
	},
	"p": {
		{"Running On-Demand P instances", "L-417A185B"}, {"All P4, P3 and P2 Spot Instance Requests", "L-7212CCBC"},
	},
	"p5":  {{"Running On-Demand P instances", "L-417A185B"}, {"All P5 Spot Instance Requests", "L-C4BD4855"}},
	"inf": {{"Running On-Demand Inf instances", "L-1945791B"}, {"All Inf Spot Instance Requests", "L-B5D1601B"}},
	"trn": {{"Running On-Demand Trn instances", "L-2C3B7624"}, {"All Trn Spot Instance Requests", "L-6B0D517C"}},
	"standard": {{"Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "L-1216C47A"},
		{"All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", "L-34B43A08"}},
}

// quotaOf returns the key in vcpuQuotas of a machine type, or "".
func quotaOf(machineType string) string {
	family, _, _ := strings.Cut(machineType, ".")
	letters := family[:max(0, strings.IndexAny(family, "0123456789"))]
	switch {
	case strings.HasPrefix(family, "p5"):
		return "p5"
	case letters == "gr", letters == "vt":
		return "g"
	case letters == "im", letters == "is", len(letters) == 1 && strings.Contains("acdhimrtz", letters):
		return "standard"
	}
	return letters
}

// raise names the quota to raise after a refusal.
func raise(code string, p session.Pool) string {
	q, known := vcpuQuotas[quotaOf(p.Type)]
	if !known || code != "VcpuLimitExceeded" && code != "MaxSpotInstanceCountExceeded" {
		return "raise the quota in Service Quotas of EC2 in " + p.Region
	}
	which := q[0]
	if p.Spot {
		which = q[1]
	}
	return fmt.Sprintf("raise the quota %q: aws service-quotas request-service-quota-increase --service-code ec2 "+
		"--quota-code %s --region %s --desired-value CPUS", which.name, which.code, p.Region)
}
