package terraform

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	ec2 "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ecr "github.com/aws/aws-sdk-go-v2/service/ecr/types"
	s3 "github.com/aws/aws-sdk-go-v2/service/s3/types"
	ssm "github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

// words returns the values of an enumeration of AWS's SDK, which is generated from AWS's own
// models.
func words[T ~string](values []T) []string {
	var out []string
	for _, v := range values {
		out = append(out, string(v))
	}
	return out
}

// enumerations lists the arguments of the modules for which AWS only accepts certain values. A
// schema does not contain them.
var enumerations = map[string][]string{
	"aws_ecr_repository.image_tag_mutability": words(ecr.ImageTagMutability("").Values()),
	"aws_eip.domain": words(ec2.DomainType("").Values()),
	"aws_instance.instance_initiated_shutdown_behavior":        words(ec2.ShutdownBehavior("").Values()),
	"aws_instance.instance_market_options.market_type":         words(ec2.MarketType("").Values()),
	"aws_instance.instance_type":                               words(ec2.InstanceType("").Values()),
	"aws_instance.metadata_options.http_endpoint":              words(ec2.InstanceMetadataEndpointState("").Values()),
	"aws_instance.metadata_options.http_tokens":                words(ec2.HttpTokensState("").Values()),
	"aws_instance.root_block_device.volume_type":               words(ec2.VolumeType("").Values()),
	"aws_s3_bucket_lifecycle_configuration.rule.status":        words(s3.ExpirationStatus("").Values()),
	"aws_s3_bucket_ownership_controls.rule.object_ownership":   words(s3.ObjectOwnership("").Values()),
	"aws_s3_bucket_versioning.versioning_configuration.status": words(s3.BucketVersioningStatus("").Values()),
	"aws_ssm_document.document_format":                         words(ssm.DocumentFormat("").Values()),
	"aws_ssm_document.document_type":                           words(ssm.DocumentType("").Values()),
	"aws_ssm_parameter.tier":                                   words(ssm.ParameterTier("").Values()),
	"aws_ssm_parameter.type":                                   words(ssm.ParameterType("").Values()),
	"aws_vpc_endpoint.vpc_endpoint_type":                       words(ec2.VpcEndpointType("").Values()),

	"aws_s3_bucket_lifecycle_configuration.rule.transition.storage_class":                                           words(s3.TransitionStorageClass("").Values()),
	"aws_instance.instance_market_options.spot_options.spot_instance_type":                                          words(ec2.SpotInstanceType("").Values()),
	"aws_instance.instance_market_options.spot_options.instance_interruption_behavior":                              words(ec2.InstanceInterruptionBehavior("").Values()),
	"aws_s3_bucket_server_side_encryption_configuration.rule.apply_server_side_encryption_by_default.sse_algorithm": words(s3.ServerSideEncryption("").Values()),
	// "-1" is every protocol (API reference of IpPermission); the SDK has no enumeration of it.
	"aws_vpc_security_group_ingress_rule.ip_protocol": {"-1", "tcp", "udp", "icmp", "icmpv6"},
	"aws_vpc_security_group_egress_rule.ip_protocol":  {"-1", "tcp", "udp", "icmp", "icmpv6"},
}

// free lists arguments with arbitrary text, by the last part of their path, and those that name
// another resource.
var free = []string{
	"name", "description", "bucket", "prefix", "path", "policy", "assume_role_policy", "content", "value", "ami",
	"user_data", "service_name", "id",
	"policy_arn",
	"role", "permissions_boundary", "repository", "kms_key_id", "target_key_id", "availability_zone", "cidr_block",
	"destination_cidr_block", "cidr_ipv4",
	"vpc_id", "subnet_id", "route_table_id", "gateway_id", "nat_gateway_id", "allocation_id", "security_group_id",
	"referenced_security_group_id",
	"vpc_security_group_ids", "route_table_ids", "iam_instance_profile",
}

// TestValues checks every text of both modules against the enumerations of AWS's SDK. An argument
// in neither list is an error.
func TestValues(t *testing.T) {
	slow(t)
	raw, err := os.ReadFile("provider/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Resources map[string]struct {
			Block struct {
				Attributes map[string]struct{ Optional, Required bool } `json:"attributes"`
				Blocks     map[string]any                               `json:"block_types"`
			} `json:"block"`
		} `json:"resource_schemas"`
	}
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	w := New(t)
	w.Local("backbone")
	all := w.Apply("backbone", with(whole, map[string]any{"nat_gateway": true})).Resources
	w.Local("session")
	all = append(all, w.Apply("session", session(map[string]any{"spot": true})).Resources...)
	seen := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case string:
			last := path[strings.LastIndex(path, ".")+1:]
			values, known := enumerations[path]
			switch {
			case known:
				seen[path] = true
				if !slices.Contains(values, v) {
					t.Errorf("%s is %q; AWS takes %q", path, v, values)
				}
			case !slices.Contains(free, last):
				t.Errorf("%s is %q, and nothing says which values AWS takes", path, v)
			}
		case []any:
			for _, e := range v {
				walk(path, e)
			}
		case map[string]any:
			for k, e := range v {
				walk(path+"."+k, e)
			}
		}
	}
	for _, r := range all {
		block := schema.Resources[r.Type].Block
		for name, v := range r.Values {
			a, isBlock := block.Attributes[name], block.Blocks[name] != nil
			if name == "tags" || name == "tags_all" || name == "volume_tags" || name == "region" ||
				!isBlock && !a.Optional &&
					!a.Required {
				continue
			}
			walk(r.Type+"."+name, v)
		}
	}
	for path := range enumerations {
		if !seen[path] {
			t.Errorf("no module has %s", path)
		}
	}
}
