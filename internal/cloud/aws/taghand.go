package aws

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

// KeepByHand returns the AWS CLI command that keeps a resource until a time by its tag
// curfew:keep-until; empty where no command writes one tag and leaves the others alone, as
// of buckets.
func KeepByHand(r *inventory.Resource, until time.Time) string {
	p := &place{region: r.Region, account: &account{id: r.Account}}
	service, name := p.tagService(r)
	key, value := inventory.TagKeepUntil, until.UTC().Format(time.RFC3339)
	pair, name := plain.Shell("Key="+key+",Value="+value), plain.Shell(name)
	aws := func(format string, a ...any) string {
		return "aws " + fmt.Sprintf(format, a...) + " --region " + plain.Shell(r.Region)
	}
	switch service {
	case "ec2":
		return aws("ec2 create-tags --resources %s --tags %s", name, pair)
	case "ecr":
		return aws("ecr tag-resource --resource-arn %s --tags %s", name, pair)
	case "logs":
		return aws("logs tag-resource --resource-arn %s --tags %s", name, plain.Shell(key+"="+value))
	case "sagemaker":
		return aws("sagemaker add-tags --resource-arn %s --tags %s", name, pair)
	case "autoscaling":
		return aws("autoscaling create-or-update-tags --tags %s", plain.Shell("ResourceId="+r.ID+",ResourceType=auto-scaling-group,PropagateAtLaunch=false,Key="+key+",Value="+value))
	case "elb":
		return aws("elb add-tags --load-balancer-names %s --tags %s", name, pair)
	case "elbv2":
		return aws("elbv2 add-tags --resource-arns %s --tags %s", name, pair)
	case "efs":
		return aws("efs tag-resource --resource-id %s --tags %s", name, pair)
	case "fsx":
		return aws("fsx tag-resource --resource-arn %s --tags %s", name, pair)
	case "rds":
		return aws("rds add-tags-to-resource --resource-name %s --tags %s", name, pair)
	case "es":
		return aws("opensearch add-tags --arn %s --tag-list %s", name, pair)
	case "secretsmanager":
		return aws("secretsmanager tag-resource --secret-id %s --tags %s", name, pair)
	}
	return ""
}
