package aws

import (
	"sync"
	"unsafe"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/applicationautoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudtrail"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/costexplorer"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/efs"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/fsx"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/opensearch"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/redshift"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// clients holds one client of each service, with one retryer, for one region of one account.
// Clients are created on first use. It is safe for concurrent use.
//
// Clients are fetched by functions: a method that returns a client, or a field that holds one, ties
// the client's type to every interface that the struct around it reaches, and the linker then keeps
// all methods of the client (2,437 of EC2) once anything looks a method up by name.
type clients struct {
	// config returns the configuration of a service's client, with its guard.
	config func(service string) awssdk.Config

	appscaling, autoscaling, classic, cloudwatch, costs, dynamodb, ec2, ecr, efs, eks, elasticache, elb, fsx, iam,
	logs, metadata, opensearch, rds, redshift, s3, sagemaker, savingsplans, secrets, ssm, sts, trail slot
}

// slot holds a client as an untyped pointer, invisible to the linker. Anything with run-time type
// information would reveal the type: an interface, a channel or map of it, a type parameter.
type slot struct {
	once   sync.Once
	client unsafe.Pointer
}

// get returns the client, created on first use.
func (s *slot) get(create func() unsafe.Pointer) unsafe.Pointer {
	s.once.Do(func() { s.client = create() })
	return s.client
}

func appscalingClient(c *clients) *applicationautoscaling.Client {
	return (*applicationautoscaling.Client)(c.appscaling.get(func() unsafe.Pointer {
		return unsafe.Pointer(applicationautoscaling.NewFromConfig(c.config("application-autoscaling")))
	}))
}

func autoscalingClient(c *clients) *autoscaling.Client {
	return (*autoscaling.Client)(c.autoscaling.get(func() unsafe.Pointer {
		return unsafe.Pointer(autoscaling.NewFromConfig(c.config("autoscaling")))
	}))
}

func classicClient(c *clients) *elasticloadbalancing.Client {
	return (*elasticloadbalancing.Client)(c.classic.get(func() unsafe.Pointer {
		return unsafe.Pointer(elasticloadbalancing.NewFromConfig(c.config("elasticloadbalancing")))
	}))
}

func cloudwatchClient(c *clients) *cloudwatch.Client {
	return (*cloudwatch.Client)(c.cloudwatch.get(func() unsafe.Pointer {
		return unsafe.Pointer(cloudwatch.NewFromConfig(c.config("cloudwatch"), metricsProtocol))
	}))
}

func costsClient(c *clients) *costexplorer.Client {
	return (*costexplorer.Client)(c.costs.get(func() unsafe.Pointer {
		return unsafe.Pointer(costexplorer.NewFromConfig(c.config("ce")))
	}))
}

func dynamodbClient(c *clients) *dynamodb.Client {
	return (*dynamodb.Client)(c.dynamodb.get(func() unsafe.Pointer {
		return unsafe.Pointer(dynamodb.NewFromConfig(c.config("dynamodb")))
	}))
}

func ec2Client(c *clients) *ec2.Client {
	return (*ec2.Client)(c.ec2.get(func() unsafe.Pointer {
		return unsafe.Pointer(ec2.NewFromConfig(c.config("ec2")))
	}))
}

func ecrClient(c *clients) *ecr.Client {
	return (*ecr.Client)(c.ecr.get(func() unsafe.Pointer {
		return unsafe.Pointer(ecr.NewFromConfig(c.config("ecr")))
	}))
}

func efsClient(c *clients) *efs.Client {
	return (*efs.Client)(c.efs.get(func() unsafe.Pointer {
		return unsafe.Pointer(efs.NewFromConfig(c.config("elasticfilesystem")))
	}))
}

func eksClient(c *clients) *eks.Client {
	return (*eks.Client)(c.eks.get(func() unsafe.Pointer {
		return unsafe.Pointer(eks.NewFromConfig(c.config("eks")))
	}))
}

func elasticacheClient(c *clients) *elasticache.Client {
	return (*elasticache.Client)(c.elasticache.get(func() unsafe.Pointer {
		return unsafe.Pointer(elasticache.NewFromConfig(c.config("elasticache")))
	}))
}

func elbClient(c *clients) *elbv2.Client {
	return (*elbv2.Client)(c.elb.get(func() unsafe.Pointer {
		return unsafe.Pointer(elbv2.NewFromConfig(c.config("elasticloadbalancing")))
	}))
}

func fsxClient(c *clients) *fsx.Client {
	return (*fsx.Client)(c.fsx.get(func() unsafe.Pointer {
		return unsafe.Pointer(fsx.NewFromConfig(c.config("fsx")))
	}))
}

func iamClient(c *clients) *iam.Client {
	return (*iam.Client)(c.iam.get(func() unsafe.Pointer {
		return unsafe.Pointer(iam.NewFromConfig(c.config("iam")))
	}))
}

func logsClient(c *clients) *cloudwatchlogs.Client {
	return (*cloudwatchlogs.Client)(c.logs.get(func() unsafe.Pointer {
		return unsafe.Pointer(cloudwatchlogs.NewFromConfig(c.config("logs")))
	}))
}

func metadataClient(c *clients) *imds.Client {
	return (*imds.Client)(c.metadata.get(func() unsafe.Pointer {
		return unsafe.Pointer(imds.NewFromConfig(c.config("imds")))
	}))
}

func opensearchClient(c *clients) *opensearch.Client {
	return (*opensearch.Client)(c.opensearch.get(func() unsafe.Pointer {
		return unsafe.Pointer(opensearch.NewFromConfig(c.config("es")))
	}))
}

func rdsClient(c *clients) *rds.Client {
	return (*rds.Client)(c.rds.get(func() unsafe.Pointer {
		return unsafe.Pointer(rds.NewFromConfig(c.config("rds")))
	}))
}

func redshiftClient(c *clients) *redshift.Client {
	return (*redshift.Client)(c.redshift.get(func() unsafe.Pointer {
		return unsafe.Pointer(redshift.NewFromConfig(c.config("redshift")))
	}))
}

func s3Client(c *clients) *s3.Client {
	return (*s3.Client)(c.s3.get(func() unsafe.Pointer {
		return unsafe.Pointer(s3.NewFromConfig(c.config("s3"), pathStyle))
	}))
}

func sagemakerClient(c *clients) *sagemaker.Client {
	return (*sagemaker.Client)(c.sagemaker.get(func() unsafe.Pointer {
		return unsafe.Pointer(sagemaker.NewFromConfig(c.config("sagemaker")))
	}))
}

func savingsplansClient(c *clients) *savingsplans.Client {
	return (*savingsplans.Client)(c.savingsplans.get(func() unsafe.Pointer {
		return unsafe.Pointer(savingsplans.NewFromConfig(c.config("savingsplans")))
	}))
}

func secretsClient(c *clients) *secretsmanager.Client {
	return (*secretsmanager.Client)(c.secrets.get(func() unsafe.Pointer {
		return unsafe.Pointer(secretsmanager.NewFromConfig(c.config("secretsmanager")))
	}))
}

func ssmClient(c *clients) *ssm.Client {
	return (*ssm.Client)(c.ssm.get(func() unsafe.Pointer {
		return unsafe.Pointer(ssm.NewFromConfig(c.config("ssm")))
	}))
}

func stsClient(c *clients) *sts.Client {
	return (*sts.Client)(c.sts.get(func() unsafe.Pointer {
		return unsafe.Pointer(sts.NewFromConfig(c.config("sts")))
	}))
}

func trailClient(c *clients) *cloudtrail.Client {
	return (*cloudtrail.Client)(c.trail.get(func() unsafe.Pointer {
		return unsafe.Pointer(cloudtrail.NewFromConfig(c.config("cloudtrail")))
	}))
}

// clientCache holds the clients of each region, or other key K. The zero cache is empty. It is safe
// for concurrent use.
type clientCache[K comparable] struct {
	mu sync.Mutex
	by map[K]*clients
}

// get returns the clients of a key, configured by config if new.
func (c *clientCache[K]) get(key K, config func(service string) awssdk.Config) *clients {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.by[key]; have != nil {
		return have
	}
	if c.by == nil {
		c.by = map[K]*clients{}
	}
	made := &clients{config: config}
	c.by[key] = made
	return made
}
