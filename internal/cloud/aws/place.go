package aws

import (
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/costexplorer"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/efs"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/fsx"
	"github.com/aws/aws-sdk-go-v2/service/opensearch"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/aws/aws-sdk-go-v2/service/savingsplans"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

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
	cfg := func(service string) awssdk.Config {
		c := a.cfg.Copy()
		c.Region = region
		c.APIOptions = append(c.APIOptions[:len(c.APIOptions):len(c.APIOptions)], guard(service, s.tally, s.limiter(a.id, region, service)))
		return c
	}
	return &place{
		scan: s, account: a, region: region, hosts: map[string]string{}, targetGroups: map[string][]string{}, components: map[string]bool{},
		autoscaling: autoscaling.NewFromConfig(cfg("autoscaling")),
		classic:     elasticloadbalancing.NewFromConfig(cfg("elasticloadbalancing")),
		cloudwatch:  cloudwatch.NewFromConfig(cfg("cloudwatch")),
		costs:       costexplorer.NewFromConfig(cfg("ce")),
		ec2:         ec2.NewFromConfig(cfg("ec2")),
		ecr:         ecr.NewFromConfig(cfg("ecr")),
		efs:         efs.NewFromConfig(cfg("elasticfilesystem")),
		elb:         elbv2.NewFromConfig(cfg("elasticloadbalancing")),
		fsx:         fsx.NewFromConfig(cfg("fsx")),
		logs:        cloudwatchlogs.NewFromConfig(cfg("logs")),
		opensearch:  opensearch.NewFromConfig(cfg("es")),
		rds:         rds.NewFromConfig(cfg("rds")),
		s3: s3.NewFromConfig(cfg("s3"), func(o *s3.Options) {
			// Stand-ins for S3 seldom answer to a host for each bucket.
			o.UsePathStyle = o.BaseEndpoint != nil
		}),
		sagemaker:    sagemaker.NewFromConfig(cfg("sagemaker")),
		savingsplans: savingsplans.NewFromConfig(cfg("savingsplans")),
		secretsman:   secretsmanager.NewFromConfig(cfg("secretsmanager")),
	}
}

// String returns the region, and the account beside it when there are several.
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
