package aws

import (
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// serviceMetrics are the metrics of a managed service's resource: connections, or requests if the
// service has connections of its own.
type serviceMetrics struct {
	namespace, dimension, connections string
	requests                          []string
}

// databaseMetrics returns the metrics of a database, cache or warehouse, or nil.
func databaseMetrics(r *inventory.Resource) *serviceMetrics {
	d, ok := r.Detail.(*inventory.Database)
	switch {
	case !ok:
		return nil
	case r.Kind == inventory.KindWarehouse:
		return &serviceMetrics{
			namespace: "AWS/Redshift", dimension: "ClusterIdentifier", connections: "DatabaseConnections",
		}
	case r.Kind == inventory.KindCache && d.Engine == "memcached":
		return &serviceMetrics{
			namespace: "AWS/ElastiCache", dimension: "CacheClusterId", requests: []string{
				"GetHits", "GetMisses", "CmdSet",
			},
		}
	case r.Kind == inventory.KindCache:
		return &serviceMetrics{
			namespace: "AWS/ElastiCache", dimension: "CacheClusterId",
			requests: []string{"CacheHits", "CacheMisses", "SetTypeCmds"},
		}
	case d.Engine == "opensearch" || d.Engine == "elasticsearch":
		return nil
	}
	return &serviceMetrics{namespace: "AWS/RDS", dimension: "DBInstanceIdentifier", connections: "DatabaseConnections"}
}

func (m *meters) database(r *inventory.Resource) {
	x := databaseMetrics(r)
	s := m.subject(r, &m.usual, r.CreatedAt)
	if s == nil || x == nil {
		return
	}
	of := func(name string) metric { return metric{x.namespace, name, dims(x.dimension, r.ID)} }
	s.level("", usage.CPUUtil, 1, true, of("CPUUtilization"))
	if x.connections != "" {
		s.level("", usage.Sessions, 1, true, of(x.connections))
	}
	if len(x.requests) > 0 {
		requests := make([]metric, len(x.requests))
		for i, name := range x.requests {
			requests[i] = of(name)
		}
		s.counterOf(usage.Requests, 1, requests...)
	}
}

// table reads the consumption of a table and its indexes, which is published only if positive, and
// their provisioned capacity, which is always published.
func (m *meters) table(r *inventory.Resource, d *inventory.Table) {
	s := m.subject(r, &m.usual, r.CreatedAt)
	if s == nil {
		return
	}
	of := func(name string, extra ...string) metric {
		return metric{"AWS/DynamoDB", name, dims(append([]string{"TableName", r.ID}, extra...)...)}
	}
	consumed := []metric{of("ConsumedReadCapacityUnits"), of("ConsumedWriteCapacityUnits")}
	for _, index := range d.Indexes {
		consumed = append(consumed, of("ConsumedReadCapacityUnits", "GlobalSecondaryIndexName", index),
			of("ConsumedWriteCapacityUnits", "GlobalSecondaryIndexName", index))
	}
	s.counter(usage.Requests, consumed...)
	s.level("", usage.Capacity, 1, true, of("ProvisionedReadCapacityUnits"))
}

func (m *meters) vpcEndpoint(r *inventory.Resource, d *inventory.VPCEndpoint) {
	if s := m.subject(r, &m.daily, r.CreatedAt); s != nil {
		s.counter(usage.NetBytes, metric{"AWS/PrivateLinkEndpoints", "BytesProcessed",
			dims("Endpoint Type", "Interface", "Service Name", d.Service, "VPC Endpoint Id", r.ID, "VPC Id", d.VPC)})
	}
}
