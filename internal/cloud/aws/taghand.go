package aws

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
)

// KeepByHand returns the AWS CLI command that keeps a resource until a time by the tag
// curfew:keep-until; empty if no command writes a single tag, as for buckets.
func KeepByHand(r *inventory.Resource, until time.Time) string {
	p := &place{region: r.Region, account: &account{id: r.Account}}
	service, name := p.tagService(r)
	return tagCommand(service, name, r.Region, map[string]string{
		inventory.TagKeepUntil: until.UTC().Format(time.RFC3339),
	})
}

// tagCommand returns the AWS CLI command that adds tags of a service's resource; empty if there is
// none.
func tagCommand(service, name, region string, tags map[string]string) string {
	calls := map[string]string{
		"ec2": "ec2 create-tags --resources %s --tags %s", "ecr": "ecr tag-resource --resource-arn %s --tags %s",
		"logs":           "logs tag-resource --resource-arn %s --tags %s",
		"sagemaker":      "sagemaker add-tags --resource-arn %s --tags %s",
		"elb":            "elb add-tags --load-balancer-names %s --tags %s",
		"elbv2":          "elbv2 add-tags --resource-arns %s --tags %s",
		"efs":            "efs tag-resource --resource-id %s --tags %s",
		"fsx":            "fsx tag-resource --resource-arn %s --tags %s",
		"rds":            "rds add-tags-to-resource --resource-name %s --tags %s",
		"es":             "opensearch add-tags --arn %s --tag-list %s",
		"secretsmanager": "secretsmanager tag-resource --secret-id %s --tags %s",
		"tagging":        "resourcegroupstaggingapi tag-resources --resource-arn-list %s --tags %s",
	}
	command := ""
	switch call, known := calls[service]; {
	case service == "autoscaling":
		command = "autoscaling create-or-update-tags --tags " + tagWords(tags, func(k, v string) any {
			return groupTagWord{name, "auto-scaling-group", false, k, v}
		}, "ResourceId="+name+",ResourceType=auto-scaling-group,PropagateAtLaunch=false,")
	case !known:
		return ""
	case service == "logs" || service == "tagging":
		command = fmt.Sprintf(call, plain.Shell(name), tagMap(tags))
	default:
		command = fmt.Sprintf(call, plain.Shell(name), tagWords(tags, func(k, v string) any {
			return tagWord{k, v}
		}, ""))
	}
	return "aws " + command + " --region " + plain.Shell(region)
}

// tagWord and groupTagWord are tags in JSON for the AWS CLI.
type tagWord struct{ Key, Value string }

type groupTagWord struct {
	ResourceID        string `json:"ResourceId"`
	ResourceType      string
	PropagateAtLaunch bool
	Key, Value        string
}

// plainWord matches values that the shorthand of the AWS CLI takes verbatim; others are written in
// JSON.
var plainWord = lazyregexp.New(`^[\w.:/@+-]([\w.:/@+ -]*[\w.:/@+-])?$`)

func plainTags(tags map[string]string) bool {
	for k, v := range tags {
		if !plainWord.MatchString(k) || !plainWord.MatchString(v) {
			return false
		}
	}
	return true
}

// tagWords formats a list of tags as shell words; before precedes each in the shorthand.
func tagWords(tags map[string]string, one func(key, value string) any, before string) string {
	var list []any
	var words []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, one(k, tags[k]))
		words = append(words, plain.Shell(before+"Key="+k+",Value="+tags[k]))
	}
	if plainTags(tags) {
		return strings.Join(words, " ")
	}
	return plain.Shell(encoded(list))
}

// tagMap formats tags as the single word of an AWS CLI map.
func tagMap(tags map[string]string) string {
	if !plainTags(tags) {
		return plain.Shell(encoded(tags))
	}
	var words []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		words = append(words, k+"="+tags[k])
	}
	return plain.Shell(strings.Join(words, ","))
}
