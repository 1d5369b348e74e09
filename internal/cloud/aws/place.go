package aws

import (
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
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
	"github.com/aws/aws-sdk-go-v2/service/opensearch"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/redshift"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/smithy-go/middleware"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// place is one region of one account, with the clients that read it.
type place struct {
	scan    *scan
	account *account
	region  string

	autoscaling  *autoscaling.Client
	classic      *elasticloadbalancing.Client
	cloudwatch   *cloudwatch.Client
	costs        *costexplorer.Client
	ec2          *ec2.Client
	redshift     *redshift.Client
	elasticache  *elasticache.Client
	eks          *eks.Client
	dynamodb     *dynamodb.Client
	ecr          *ecr.Client
	efs          *efs.Client
	elb          *elbv2.Client
	fsx          *fsx.Client
	logs         *cloudwatchlogs.Client
	opensearch   *opensearch.Client
	rds          *rds.Client
	s3           *s3.Client
	sagemaker    *sagemaker.Client
	savingsplans *savingsplans.Client
	secretsman   *secretsmanager.Client
	trail        *cloudtrail.Client

	// hosts maps the private DNS names of machines to their ids, for metrics that name
	// the host only; a name that several machines have maps to none. It is complete once
	// the machines are listed.
	hosts map[string]string
	// targetGroups maps the ARNs of load balancers to the names that their target groups
	// have in metrics. It is complete once the load balancers are listed.
	targetGroups map[string][]string
	// components are the names of the endpoints whose requests are counted by inference
	// component. It is complete once the endpoints are listed.
	components map[string]bool
}

// place returns a region of an account, ready to be read.
func (s *scan) place(a *account, region string) *place {
	p := &place{scan: s, account: a, region: region, hosts: map[string]string{}, targetGroups: map[string][]string{}, components: map[string]bool{}}
	cfg := func(service string) awssdk.Config {
		return p.configured(guard(service, s.tally, s.limits.of(a.id, region, service)))
	}
	p.autoscaling = autoscaling.NewFromConfig(cfg("autoscaling"))
	p.classic = elasticloadbalancing.NewFromConfig(cfg("elasticloadbalancing"))
	p.cloudwatch = cloudwatch.NewFromConfig(cfg("cloudwatch"))
	p.costs = costexplorer.NewFromConfig(cfg("ce"))
	p.dynamodb = dynamodb.NewFromConfig(cfg("dynamodb"))
	p.eks = eks.NewFromConfig(cfg("eks"))
	p.elasticache = elasticache.NewFromConfig(cfg("elasticache"))
	p.redshift = redshift.NewFromConfig(cfg("redshift"))
	p.ec2 = ec2.NewFromConfig(cfg("ec2"))
	p.ecr = ecr.NewFromConfig(cfg("ecr"))
	p.efs = efs.NewFromConfig(cfg("elasticfilesystem"))
	p.elb = elbv2.NewFromConfig(cfg("elasticloadbalancing"))
	p.fsx = fsx.NewFromConfig(cfg("fsx"))
	p.logs = cloudwatchlogs.NewFromConfig(cfg("logs"))
	p.opensearch = opensearch.NewFromConfig(cfg("es"))
	p.rds = rds.NewFromConfig(cfg("rds"))
	p.s3 = s3.NewFromConfig(cfg("s3"), pathStyle)
	p.sagemaker = sagemaker.NewFromConfig(cfg("sagemaker"))
	p.savingsplans = savingsplans.NewFromConfig(cfg("savingsplans"))
	p.secretsman = secretsmanager.NewFromConfig(cfg("secretsmanager"))
	p.trail = cloudtrail.NewFromConfig(cfg("cloudtrail"))
	return p
}

// configured returns the configuration of a client whose calls pass through a guard.
func (p *place) configured(guard func(*middleware.Stack) error) awssdk.Config {
	c := p.account.cfg.Copy()
	c.Region = p.region
	c.APIOptions = append(c.APIOptions[:len(c.APIOptions):len(c.APIOptions)], guard)
	return c
}

// pathStyle names a bucket in the path where the endpoint is not Amazon's: stand-ins for
// S3 seldom answer to a host for each bucket.
func pathStyle(o *s3.Options) { o.UsePathStyle = o.BaseEndpoint != nil }

// wants says whether a resource is among what is read.
func (p *place) wants(kind inventory.Kind, id string) bool {
	only := p.scan.only
	return only == nil || only[inventory.Ref{Cloud: cloudName, Account: p.account.id, Region: p.region, Kind: kind, ID: id}]
}

// String returns the region, with the account when there are several.
func (p *place) String() string { return p.in(p.region) }

// in adds the account to what is said of regions, when there are several accounts.
func (p *place) in(regions string) string {
	if p.scan.many {
		return regions + " in " + p.account.id
	}
	return regions
}

// resource starts a resource of this place.
func (p *place) resource(kind inventory.Kind, id string) *inventory.Resource {
	return &inventory.Resource{ID: id, Kind: kind, Account: p.account.id, Region: p.region}
}

// utc returns a time of an answer; zero when it has none.
func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// now is the time of the observation.
func (p *place) now() time.Time { return p.scan.query.Now }

// known returns the fact that an answer gives, or that it does not.
func known[T any](v *T) inventory.Fact[T] {
	if v == nil {
		return inventory.Fact[T]{}
	}
	return inventory.Known(*v)
}

// tagged returns the tags of an answer as a map that is never nil: they were read.
func tagged[T any](tags []T, pair func(T) (key, value *string)) map[string]string {
	m := make(map[string]string, len(tags))
	for _, t := range tags {
		k, v := pair(t)
		m[awssdk.ToString(k)] = awssdk.ToString(v)
	}
	return m
}
