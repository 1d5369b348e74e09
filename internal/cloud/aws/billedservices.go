package aws

import (
	"slices"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Cost Explorer services that bill several kinds, or a kind together with others.
const (
	privateCloudService = "Amazon Virtual Private Cloud"
	databaseService     = "Amazon Relational Database Service"
	searchService       = "Amazon OpenSearch Service"
	documentService     = "Amazon DocumentDB (with MongoDB compatibility)"
	graphService        = "Amazon Neptune"
)

// billedKinds maps Cost Explorer services to the listed kinds of their resources. Nothing is listed
// for other services.
var billedKinds = map[string][]inventory.Kind{
	machinesService: {
		inventory.KindInstance, inventory.KindCapacityReservation, inventory.KindCommitment,
	},
	"EC2 - Other": {
		inventory.KindVolume, inventory.KindSnapshot, inventory.KindNATGateway, inventory.KindAddress,
	},
	"Amazon Elastic Load Balancing":       {inventory.KindLoadBalancer},
	privateCloudService:                   {inventory.KindVPCEndpoint, inventory.KindAddress, inventory.KindInstance},
	"Amazon Simple Storage Service":       {inventory.KindBucket},
	"Amazon EC2 Container Registry (ECR)": {inventory.KindRepository},
	"AmazonCloudWatch":                    {inventory.KindLogGroup},
	"Amazon SageMaker":                    sageMakerKinds,
	"Amazon SageMaker AI":                 sageMakerKinds,
	"Amazon Elastic File System":          {inventory.KindFileSystem},
	"Amazon FSx":                          {inventory.KindFileSystem},
	databaseService:                       {inventory.KindDatabase},
	searchService:                         {inventory.KindDatabase},
	documentService:                       {inventory.KindDatabase},
	graphService:                          {inventory.KindDatabase},
	"Amazon Redshift":                     {inventory.KindWarehouse},
	"Amazon ElastiCache":                  {inventory.KindCache},
	"Amazon Elastic Container Service for Kubernetes": {inventory.KindCluster},
	"Amazon Elastic Kubernetes Service":               {inventory.KindCluster},
	"Amazon DynamoDB":                                 {inventory.KindTable},
	"AWS Secrets Manager":                             {inventory.KindSecret},
	"Savings Plans for AWS Compute usage":             {inventory.KindCommitment},
	"Savings Plans for AWS Machine Learning":          {inventory.KindCommitment},
}

var sageMakerKinds = []inventory.Kind{
	inventory.KindNotebook, inventory.KindEndpoint, inventory.KindTrainingJob, inventory.KindHyperPod,
}

// billedUnder reports whether a service bills a resource.
func billedUnder(service string, r *inventory.Resource) bool {
	if !slices.Contains(billedKinds[service], r.Kind) {
		return false
	}
	switch d := r.Detail.(type) {
	case *inventory.Instance:
		return service != privateCloudService || d.PublicAddresses > 0
	case *inventory.FileSystem:
		return (service == "Amazon Elastic File System") == (r.Type == "efs")
	case *inventory.Database:
		if r.Kind == inventory.KindDatabase {
			return databasesUnder(d.Engine) == service
		}
	}
	return true
}

// databasesUnder returns the service that bills databases of an engine.
func databasesUnder(engine string) string {
	switch engine {
	case "opensearch", "elasticsearch":
		return searchService
	case "docdb":
		return documentService
	case "neptune":
		return graphService
	}
	return databaseService
}

// notCovered returns the reason why the charges of a service are not broken down; empty if they
// are.
func (s *scan) notCovered(service string) string {
	kinds, listed := billedKinds[service]
	if !listed {
		return "curfew does not read it"
	}
	for _, r := range s.resources {
		if billedUnder(service, r) {
			return ""
		}
	}
	for _, a := range s.billed {
		for _, p := range s.places {
			if p.account.id == a.account && slices.ContainsFunc(kinds, func(k inventory.Kind) bool {
				return s.unread[unreadKey(a.account, p.region, k)]
			}) {
				return "it could not be read"
			}
		}
	}
	return "nothing of it was found"
}
