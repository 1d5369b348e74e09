package finding

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// sources name the provider's interface that reported a kind.
var sources = map[inventory.Kind]string{
	inventory.KindAddress: "ec2", inventory.KindCapacityReservation: "ec2", inventory.KindImage: "ec2",
	inventory.KindInstance: "ec2", inventory.KindNATGateway: "ec2", inventory.KindSnapshot: "ec2",
	inventory.KindVolume:       "ec2",
	inventory.KindLoadBalancer: "elasticloadbalancing", inventory.KindBucket: "s3", inventory.KindRepository: "ecr",
	inventory.KindLogGroup: "logs", inventory.KindNotebook: "sagemaker", inventory.KindEndpoint: "sagemaker",
	inventory.KindTrainingJob: "sagemaker", inventory.KindAutoScalingGroup: "autoscaling",
	inventory.KindCommitment: "billing",
	inventory.KindHyperPod:   "sagemaker", inventory.KindCluster: "eks", inventory.KindTable: "dynamodb",
	inventory.KindVPCEndpoint: "ec2", inventory.KindDatabase: "rds",
	inventory.KindCache: "elasticache", inventory.KindWarehouse: "redshift",
}

// Fact returns evidence from the inventory.
func Fact(s *Subject, signal, value string) usage.Evidence {
	source := sources[s.Kind]
	if source == "" || s.Cloud != "aws" {
		source = s.Cloud
	}
	return usage.Fact(signal, value, source)
}

// Aged returns evidence of the time since an event.
func Aged(s *Subject, signal string, d time.Duration) usage.Evidence {
	return Fact(s, signal, plain.Duration(d))
}

// Priced returns evidence in dollars.
func Priced(signal string, a money.Amount, source string) usage.Evidence {
	return usage.Fact(signal, a.String(), source)
}

// Sampled returns evidence measured over a window.
func Sampled(signal, value string, w *usage.Window, st *usage.Stats) usage.Evidence {
	return usage.Evidence{
		Signal: signal, Value: value, Window: w.To.Sub(w.From), Coverage: w.Coverage(st), Source: w.Source,
	}
}

// Risk raises a risk to high if people may depend on the resource.
func Risk(r *inventory.Resource, usual Level) (Level, string) {
	switch {
	case r.Purpose == inventory.Inference:
		return High, "serves inference: warn and scale it, do not end it unasked"
	case r.Owner.InProduction():
		return High, "runs in production: warn its owner, do not end it unasked"
	}
	return usual, ""
}
