// Command terraform-provider-aws stands in for Terraform's AWS provider in the tests of
// terraform/: it has the schema of the real one (schema.json, from the command in ../schema),
// keeps what Terraform plans, and makes up what AWS would answer (ids, ARNs). It reaches no
// network.
package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

//go:embed schema.json
var schemaJSON []byte

const account = "111122223333"

func main() {
	p, err := load(schemaJSON)
	if err == nil {
		err = tf5server.Serve("registry.terraform.io/hashicorp/aws", func() tfprotov5.ProviderServer { return p })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stand-in:", err)
		os.Exit(1)
	}
}

// provider implements Terraform's provider protocol. Methods that it lacks panic through the
// embedded nil interface.
type provider struct {
	tfprotov5.ProviderServer
	schema          *tfprotov5.Schema
	resources, data map[string]*tfprotov5.Schema
	region          string
}

func load(raw []byte) (*provider, error) {
	type resource struct {
		Block json.RawMessage `json:"block"`
	}
	var doc struct {
		Provider  resource            `json:"provider"`
		Resources map[string]resource `json:"resource_schemas"`
		Data      map[string]resource `json:"data_source_schemas"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	p := &provider{
		resources: map[string]*tfprotov5.Schema{}, data: map[string]*tfprotov5.Schema{}, region: "us-east-1",
	}
	b, err := block(doc.Provider.Block)
	if err != nil {
		return nil, err
	}
	// A provider's configuration has no computed attributes.
	for _, a := range b.Attributes {
		a.Computed = false
	}
	p.schema = &tfprotov5.Schema{Block: b}
	for into, from := range map[*map[string]*tfprotov5.Schema]map[string]resource{
		&p.resources: doc.Resources, &p.data: doc.Data,
	} {
		for name, r := range from {
			b, err := block(r.Block)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			(*into)[name] = &tfprotov5.Schema{Block: b}
		}
	}
	return p, nil
}

func block(raw json.RawMessage) (*tfprotov5.SchemaBlock, error) {
	var doc struct {
		Attributes map[string]struct {
			Type                         json.RawMessage `json:"type"`
			Required, Optional, Computed bool
		} `json:"attributes"`
		Blocks map[string]struct {
			Mode  string          `json:"nesting_mode"`
			Block json.RawMessage `json:"block"`
			Min   int64           `json:"min_items"`
			Max   int64           `json:"max_items"`
		} `json:"block_types"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	b := &tfprotov5.SchemaBlock{}
	for _, name := range slices.Sorted(maps.Keys(doc.Attributes)) {
		a := doc.Attributes[name]
		//nolint:staticcheck // the one reader of Terraform's JSON form of types
		t, err := tftypes.ParseJSONType(a.Type)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		b.Attributes = append(b.Attributes, &tfprotov5.SchemaAttribute{
			Name: name, Type: t, Required: a.Required, Optional: a.Optional, Computed: a.Computed,
		})
	}
	modes := map[string]tfprotov5.SchemaNestedBlockNestingMode{
		"list": tfprotov5.SchemaNestedBlockNestingModeList, "set": tfprotov5.SchemaNestedBlockNestingModeSet,
		"single": tfprotov5.SchemaNestedBlockNestingModeSingle,
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Blocks)) {
		n := doc.Blocks[name]
		inner, err := block(n.Block)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		b.BlockTypes = append(b.BlockTypes, &tfprotov5.SchemaNestedBlock{
			TypeName: name, Block: inner, Nesting: modes[n.Mode], MinItems: n.Min, MaxItems: n.Max,
		})
	}
	return b, nil
}

func (p *provider) GetMetadata(context.Context, *tfprotov5.GetMetadataRequest) (*tfprotov5.GetMetadataResponse,
	error) {
	out := &tfprotov5.GetMetadataResponse{ServerCapabilities: &tfprotov5.ServerCapabilities{}}
	for name := range p.resources {
		out.Resources = append(out.Resources, tfprotov5.ResourceMetadata{TypeName: name})
	}
	for name := range p.data {
		out.DataSources = append(out.DataSources, tfprotov5.DataSourceMetadata{TypeName: name})
	}
	return out, nil
}

func (p *provider) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (
	*tfprotov5.GetProviderSchemaResponse, error) {
	return &tfprotov5.GetProviderSchemaResponse{
		ServerCapabilities: &tfprotov5.ServerCapabilities{}, Provider: p.schema, ResourceSchemas: p.resources,
		DataSourceSchemas: p.data,
	}, nil
}

func (p *provider) GetResourceIdentitySchemas(context.Context, *tfprotov5.GetResourceIdentitySchemasRequest) (
	*tfprotov5.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov5.GetResourceIdentitySchemasResponse{}, nil
}

func (p *provider) PrepareProviderConfig(_ context.Context, r *tfprotov5.PrepareProviderConfigRequest) (
	*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: r.Config}, nil
}

func (p *provider) ConfigureProvider(_ context.Context, r *tfprotov5.ConfigureProviderRequest) (
	*tfprotov5.ConfigureProviderResponse, error) {
	config, err := object(r.Config, p.schema)
	if err != nil {
		return nil, err
	}
	if region := text(config["region"]); region != "" {
		p.region = region
	}
	return &tfprotov5.ConfigureProviderResponse{}, nil
}

func (p *provider) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (*tfprotov5.StopProviderResponse,
	error) {
	return &tfprotov5.StopProviderResponse{}, nil
}

func (p *provider) GetFunctions(context.Context, *tfprotov5.GetFunctionsRequest) (*tfprotov5.GetFunctionsResponse,
	error) {
	return &tfprotov5.GetFunctionsResponse{}, nil
}

// ValidateResourceTypeConfig refuses attributes that only AWS sets, which Terraform itself accepts.
func (p *provider) ValidateResourceTypeConfig(_ context.Context, r *tfprotov5.ValidateResourceTypeConfigRequest) (
	*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	schema := p.resources[r.TypeName]
	config, err := object(r.Config, schema)
	if err != nil {
		return nil, err
	}
	out := &tfprotov5.ValidateResourceTypeConfigResponse{}
	for _, a := range schema.Block.Attributes {
		if a.Computed && !a.Optional && !config[a.Name].IsNull() {
			out.Diagnostics = append(out.Diagnostics, &tfprotov5.Diagnostic{
				Severity: tfprotov5.DiagnosticSeverityError, Summary: "Value for unconfigurable attribute",
				Attribute: tftypes.NewAttributePath().WithAttributeName(a.Name),
				Detail:    fmt.Sprintf("%q of %s is decided by AWS.", a.Name, r.TypeName),
			})
		}
	}
	return out, nil
}

func (p *provider) ValidateDataSourceConfig(context.Context, *tfprotov5.ValidateDataSourceConfigRequest) (
	*tfprotov5.ValidateDataSourceConfigResponse, error) {
	return &tfprotov5.ValidateDataSourceConfigResponse{}, nil
}

func (p *provider) UpgradeResourceState(_ context.Context, r *tfprotov5.UpgradeResourceStateRequest) (
	*tfprotov5.UpgradeResourceStateResponse, error) {
	t := p.resources[r.TypeName].ValueType()
	v, err := r.RawState.Unmarshal(t)
	if err != nil {
		return nil, err
	}
	d, err := tfprotov5.NewDynamicValue(t, v)
	return &tfprotov5.UpgradeResourceStateResponse{UpgradedState: &d}, err
}

func (p *provider) ReadResource(_ context.Context, r *tfprotov5.ReadResourceRequest) (*tfprotov5.ReadResourceResponse,
	error) {
	return &tfprotov5.ReadResourceResponse{NewState: r.CurrentState}, nil
}

// PlanResourceChange leaves attributes that only the provider sets, and the id, unknown.
func (p *provider) PlanResourceChange(_ context.Context, r *tfprotov5.PlanResourceChangeRequest) (
	*tfprotov5.PlanResourceChangeResponse, error) {
	schema := p.resources[r.TypeName]
	planned, err := object(r.ProposedNewState, schema)
	if err != nil || planned == nil {
		return &tfprotov5.PlanResourceChangeResponse{
			PlannedState: r.ProposedNewState, UnsafeToUseLegacyTypeSystem: true,
		}, err
	}
	for _, a := range schema.Block.Attributes {
		if a.Computed && (!a.Optional || a.Name == "id") && planned[a.Name].IsNull() {
			planned[a.Name] = tftypes.NewValue(a.Type, tftypes.UnknownValue)
		}
	}
	d, err := dynamic(schema, planned)
	return &tfprotov5.PlanResourceChangeResponse{PlannedState: d, UnsafeToUseLegacyTypeSystem: true}, err
}

// ApplyResourceChange generates the unknown attributes.
func (p *provider) ApplyResourceChange(_ context.Context, r *tfprotov5.ApplyResourceChangeRequest) (
	*tfprotov5.ApplyResourceChangeResponse, error) {
	schema := p.resources[r.TypeName]
	state, err := object(r.PlannedState, schema)
	if err != nil || state == nil {
		return &tfprotov5.ApplyResourceChangeResponse{NewState: r.PlannedState, UnsafeToUseLegacyTypeSystem: true}, err
	}
	made := p.answer(r.TypeName, state)
	for _, a := range schema.Block.Attributes {
		if !state[a.Name].IsKnown() {
			state[a.Name] = invent(a, made)
		}
	}
	d, err := dynamic(schema, state)
	return &tfprotov5.ApplyResourceChangeResponse{NewState: d, UnsafeToUseLegacyTypeSystem: true}, err
}

// ReadDataSource returns the data of AWS in the account of the tests.
func (p *provider) ReadDataSource(_ context.Context, r *tfprotov5.ReadDataSourceRequest) (
	*tfprotov5.ReadDataSourceResponse, error) {
	schema := p.data[r.TypeName]
	state, err := object(r.Config, schema)
	if err != nil {
		return nil, err
	}
	made := map[string]string{"id": hexID("")}
	switch r.TypeName {
	case "aws_caller_identity":
		made = map[string]string{
			"id": account, "account_id": account, "arn": "arn:aws:iam::" + account + ":user/operator",
			"user_id": "AIDAOPERATOR",
		}
	case "aws_partition":
		made = map[string]string{
			"id": "aws", "partition": "aws", "dns_suffix": "amazonaws.com", "reverse_dns_prefix": "com.amazonaws",
		}
	case "aws_region":
		made = map[string]string{"id": p.region, "region": p.region, "name": p.region, "description": p.region}
	case "aws_ssm_parameter":
		made = map[string]string{
			"id": text(state["name"]), "value": "ami-0123456789abcdef0", "insecure_value": "ami-0123456789abcdef0",
			"type": "String",
		}
	}
	for _, a := range schema.Block.Attributes {
		v := state[a.Name]
		switch {
		case r.TypeName == "aws_availability_zones" && a.Name == "names":
			state[a.Name] = listOf(a.Type, p.region+"a", p.region+"b", p.region+"c")
		case a.Computed && v.IsNull() && (!a.Optional || made[a.Name] != ""):
			state[a.Name] = invent(a, made)
		}
	}
	d, err := dynamic(schema, state)
	return &tfprotov5.ReadDataSourceResponse{State: d}, err
}

// answer returns AWS's identifiers of a resource.
func (p *provider) answer(kind string, state map[string]tftypes.Value) map[string]string {
	name := text(state["name"])
	arn := func(service, resource string) string {
		return "arn:aws:" + service + ":" + p.region + ":" + account + ":" + resource
	}
	global := func(resource string) string { return "arn:aws:iam::" + account + ":" + resource }
	ec2 := func(prefix, noun string) map[string]string {
		id := hexID(prefix)
		return map[string]string{"id": id, "arn": arn("ec2", noun+"/"+id)}
	}
	switch kind {
	case "aws_s3_bucket":
		bucket := text(state["bucket"])
		return map[string]string{"id": bucket, "arn": "arn:aws:s3:::" + bucket}
	case "aws_iam_role":
		return map[string]string{
			"id": name, "arn": global("role/" + name), "unique_id": strings.ToUpper(hexID("AROA")),
		}
	case "aws_iam_policy":
		return map[string]string{"id": global("policy/" + name), "arn": global("policy/" + name)}
	case "aws_iam_instance_profile":
		return map[string]string{"id": name, "arn": global("instance-profile/" + name)}
	case "aws_iam_role_policy_attachment":
		return map[string]string{"id": text(state["role"]) + "/" + text(state["policy_arn"])}
	case "aws_iam_role_policy":
		return map[string]string{"id": text(state["role"]) + ":" + name}
	case "aws_kms_key":
		id := hexID("")
		return map[string]string{"id": id, "key_id": id, "arn": arn("kms", "key/"+id)}
	case "aws_cloudwatch_log_group":
		return map[string]string{"id": name, "arn": arn("logs", "log-group:"+name)}
	case "aws_ecr_repository":
		return map[string]string{
			"id": name, "arn": arn("ecr", "repository/"+name),
			"repository_url": account + ".dkr.ecr." + p.region + ".amazonaws.com/" + name,
		}
	case "aws_ssm_document":
		return map[string]string{"id": name, "arn": arn("ssm", "document/"+name)}
	case "aws_ssm_parameter":
		return map[string]string{"id": name, "arn": arn("ssm", "parameter"+name)}
	case "aws_vpc":
		return ec2("vpc-", "vpc")
	case "aws_subnet":
		return ec2("subnet-", "subnet")
	case "aws_security_group":
		return ec2("sg-", "security-group")
	case "aws_instance":
		return ec2("i-", "instance")
	case "aws_eip":
		return ec2("eipalloc-", "elastic-ip")
	case "aws_nat_gateway":
		return ec2("nat-", "natgateway")
	case "aws_internet_gateway":
		return ec2("igw-", "internet-gateway")
	case "aws_route_table":
		return ec2("rtb-", "route-table")
	case "aws_vpc_endpoint":
		return ec2("vpce-", "vpc-endpoint")
	}
	return ec2("", strings.TrimPrefix(kind, "aws_"))
}

// invent generates a value of an attribute's type.
func invent(a *tfprotov5.SchemaAttribute, made map[string]string) tftypes.Value {
	switch {
	case a.Type.Is(tftypes.String):
		if v, ok := made[a.Name]; ok {
			return tftypes.NewValue(a.Type, v)
		}
		return tftypes.NewValue(a.Type, hexID(a.Name+"-"))
	case a.Type.Is(tftypes.Number):
		return tftypes.NewValue(a.Type, 1)
	case a.Type.Is(tftypes.Bool):
		return tftypes.NewValue(a.Type, false)
	}
	return tftypes.NewValue(a.Type, nil)
}

func listOf(t tftypes.Type, values ...string) tftypes.Value {
	var out []tftypes.Value
	for _, v := range values {
		out = append(out, tftypes.NewValue(tftypes.String, v))
	}
	return tftypes.NewValue(t, out)
}

func hexID(prefix string) string {
	b := make([]byte, 9)
	if _, err := rand.Read(b); err != nil {
		panic(err) // crypto/rand never fails
	}
	return prefix + hex.EncodeToString(b)[:17]
}

// object decodes a value of a schema; nil for null.
func object(d *tfprotov5.DynamicValue, s *tfprotov5.Schema) (map[string]tftypes.Value, error) {
	v, err := d.Unmarshal(s.ValueType())
	if err != nil || v.IsNull() {
		return nil, err
	}
	out := map[string]tftypes.Value{}
	return out, v.As(&out)
}

func dynamic(s *tfprotov5.Schema, values map[string]tftypes.Value) (*tfprotov5.DynamicValue, error) {
	d, err := tfprotov5.NewDynamicValue(s.ValueType(), tftypes.NewValue(s.ValueType(), values))
	return &d, err
}

// text returns a string, or empty if it is null or unknown.
func text(v tftypes.Value) string {
	var s *string
	if !v.IsKnown() || v.As(&s) != nil || s == nil {
		return ""
	}
	return *s
}
