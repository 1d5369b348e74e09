package estimate

import (
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/price"
)

// TestUnreviewedTypesAsk checks that a resource whose type has no price and is in no list of free
// ones is an unknown cost, also where it is changed or replaced.
func TestUnreviewedTypesAsk(t *testing.T) {
	for _, tc := range []struct {
		kind, after string
		asks        bool
	}{
		{"aws_fsx_lustre_file_system", `{"storage_capacity":100000}`, true},
		{"aws_msk_cluster", `{"number_of_broker_nodes":30}`, true},
		{"aws_ecs_service", `{"desired_count":100,"launch_type":"FARGATE"}`, true},
		{"aws_cloudformation_stack_set", `{"template_body":"{}"}`, true},
		{"helm_release", `{"chart":"trainer"}`, true},
		{"kubernetes_deployment", `{}`, true},
		{"kubernetes_job_v1", `{}`, true},
		{"kubernetes_manifest", `{}`, true},
		{"aws_autoscaling_schedule", `{"max_size":500}`, true},
		{"aws_iam", `{}`, true},
		{"a_type_of_tomorrow", `{}`, true},
		{"aws_iam_role", `{}`, false},
		{"aws_iam_role_policy_attachment", `{}`, false},
		{"aws_security_group", `{}`, false},
		{"aws_s3_bucket", `{}`, false},
		{"random_id", `{}`, false},
		{"kubernetes_namespace", `{}`, false},
		{"google_project_iam_member", `{}`, false},
	} {
		for _, action := range []string{`"create"`, `"update"`, `"delete","create"`, `"delete"`, `"no-op"`} {
			before := strings.Replace(tc.after, "{", `{"name":"before",`, 1)
			src := change(tc.kind, action, strings.Replace(before, ",}", "}", 1), tc.after, "{}")
			e, err := FromTerraform(strings.NewReader(src), "p.json", testBook(t), Params{Now: now})
			if err != nil {
				t.Fatal(err)
			}
			want := tc.asks && action != `"delete"` && action != `"no-op"`
			if got := len(e.Open) == 1 &&
				strings.Contains(e.Open[0], "what a resource of type "+tc.kind+" costs is not known"); got != want ||
				!want &&
					len(e.Open) > 0 {
				t.Errorf("%s, %s: unknown %q", tc.kind, action, e.Open)
			}
		}
	}
	for i, pattern := range freeTypes {
		if _, err := path.Match(pattern, ""); err != nil || slices.Contains(freeTypes[:i], pattern) ||
			meters[pattern] != nil || stackTypes[pattern].kind != "" {
			t.Errorf("%s: %v, or it is listed twice, or priced", pattern, err)
		}
	}
}

func TestStacks(t *testing.T) {
	stack := func(body, rest string) string {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		return created("aws_cloudformation_stack", `{"name":"s","template_body":`+string(text)+rest+`}`)
	}
	const disk = `"BlockDeviceMappings":[{"DeviceName":"/dev/sda1","Ebs":{"VolumeSize":100,"VolumeType":"gp3"}}]`
	instance := func(kind string) string {
		return `{"Resources":{"Trainer":{"Type":"AWS::EC2::Instance","Properties":{"InstanceType":` + kind + `,` +
			disk +
			`}}}}`
	}
	const short = `
AWSTemplateFormatVersion: 2010-09-09
Parameters:
  Type: {Type: String, Default: g5.xlarge}
  Image: {Type: "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", Default: /aws/ami}
Resources:
  Role: {Type: "AWS::IAM::Role"}
  Trainer:
    Type: AWS::EC2::Instance
    Properties:
      InstanceType: !Ref Type
      ImageId: !Ref Image
      Tags: [{Key: Name, Value: !Sub "${AWS::StackName}"}]
      BlockDeviceMappings:
        - DeviceName: /dev/sda1
          Ebs: {VolumeSize: 100, VolumeType: gp3}
`
	for _, tc := range []struct {
		name, src, p50 string
		unknown        []string
	}{
		{"JSON", stack(instance(`"g5.xlarge"`), ""), "737.30", nil},
		{
			"JSON with a parameter that is given",
			stack(strings.Replace(instance(`{"Ref":"T"}`), `{`,
				`{"Parameters":{"T":{"Type":"String","Default":"g5.xlarge"}},`,
				1), `,"parameters":{"T":"p4d.24xlarge"}`),
			"16067.30", nil,
		},
		{"YAML with a default", stack(short, ""), "737.30", nil},
		{
			"a parameter without a value", stack(instance(`{"Ref":"T"}`), ""), "7.30",
			[]string{"x/Trainer: instance_type is known only after"},
		},
		{
			"a parameter in the parameter store",
			stack(strings.Replace(short, "Default: g5.xlarge", "Default: g5.xlarge, Note: x",
				1)+"  V: {Type: AWS::EC2::Volume, Properties: {Size: !Ref Image, VolumeType: gp3}}\n", ""),
			"737.30", []string{"x/V: the size or type of its volume is not known"},
		},
		{
			"a function", stack(instance(`{"Fn::If":["Big","p5.48xlarge","g5.xlarge"]}`), ""), "7.30",
			[]string{"instance_type is known only after"},
		},
		{
			"a short function", stack(strings.Replace(short, "!Ref Type", "!FindInMap [a, b, c]", 1), ""), "7.30",
			[]string{"instance_type is known only after"},
		},
		{
			"an alias",
			stack(strings.Replace(strings.Replace(short, "Default: g5.xlarge", "Default: &g g5.xlarge", 1),
				"!Ref Type", "*g",
				1), ""),
			"7.30", []string{"instance_type is known only after"},
		},
		{
			"a volume",
			stack(`{"Resources":{"V":{"Type":"AWS::EC2::Volume","Properties":{"Size":"100","VolumeType":"gp3"}}}}`,
				""),
			"7.30", nil,
		},
		{
			"a balancer",
			stack(
				`{"Resources":{"L":{"Type":"AWS::ElasticLoadBalancingV2::LoadBalancer","Properties":{"Type":"network"}}}}`,
				""),
			"16.425", []string{"charged by use"},
		},
		{
			"a notebook",
			stack(
				`{"Resources":{"N":{"Type":"AWS::SageMaker::NotebookInstance","Properties":{"InstanceType":"ml.t3.medium"}}}}`,
				""),
			"37.20", nil,
		},
		{
			"a database in two zones",
			stack(
				`{"Resources":{"D":{"Type":"AWS::RDS::DBInstance","Properties":{"Engine":"postgres","DBInstanceClass":"db.m5.large","AllocatedStorage":"100","StorageType":"gp3","MultiAZ":"true"}}}}`, ""),
			"282.88", nil,
		},
		{
			"a reservation",
			stack(
				`{"Resources":{"C":{"Type":"AWS::EC2::CapacityReservation","Properties":{"InstanceType":"g5.xlarge","InstanceCount":2}}}}`, ""),
			"1460.00", nil,
		},
		{
			"free", stack(`{"Resources":{"R":{"Type":"AWS::IAM::Role"},"B":{"Type":"AWS::S3::Bucket"}}}`, ""), "0.00",
			nil,
		},
		{
			"an unreviewed type", stack(`{"Resources":{"F":{"Type":"AWS::FSx::FileSystem"}}}`, ""), "0.00",
			[]string{"F in its template: what a resource of type AWS::FSx::FileSystem costs is not known"},
		},
		{
			"a stack in the stack", stack(`{"Resources":{"S":{"Type":"AWS::CloudFormation::Stack"}}}`, ""), "0.00",
			[]string{"AWS::CloudFormation::Stack costs is not known"},
		},
		{
			"a transform",
			stack(`{"Transform":"AWS::Serverless-2016-10-31","Resources":{"R":{"Type":"AWS::IAM::Role"}}}`, ""),
			"0.00",
			[]string{"its template has a transform"},
		},
		{
			"a loop", stack(`{"Resources":{"Fn::ForEach::X":["a",["b"],{}]}}`, ""), "0.00",
			[]string{"has no type that can be read"},
		},
		{"no resources", stack(`{"Resources":{}}`, ""), "0.00", []string{"no Resources"}},
		{
			"elsewhere", created("aws_cloudformation_stack", `{"template_url":"https://bucket/t.yaml"}`), "0.00",
			[]string{"its template is not in the plan"},
		},
		{
			"after apply", change("aws_cloudformation_stack", `"create"`, "null", `{}`,
				`{"template_body":true}`), "0.00",
			[]string{"its template is known only after"},
		},
		{"broken", stack("Resources: [", ""), "0.00", []string{"its template cannot be read"}},
		{"broken JSON", stack("{", ""), "0.00", []string{"its template cannot be read"}},
		{"a bomb", stack("a: "+strings.Repeat("[", 40_000), ""), "0.00", []string{"its template cannot be read"}},
		{"text", stack("hello", ""), "0.00", []string{"it is no mapping"}},
	} {
		e, err := FromTerraform(strings.NewReader(tc.src), "p.json", testBook(t), Params{Now: now})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		known := len(e.Open) == len(tc.unknown)
		for i := range tc.unknown {
			known = known && strings.Contains(e.Open[i], tc.unknown[i])
		}
		if e.P50.String() != tc.p50 || !known {
			t.Errorf("%s: %s a month, unknown %q; want %s, %q", tc.name, e.P50, e.Open, tc.p50, tc.unknown)
		}
	}
	e, err := FromTerraform(strings.NewReader(stack(instance(`"p4d.24xlarge"`), "")), "p.json", testBook(t),
		Params{Now: now})
	if err != nil || e.Machines != 1 || e.GPUs["A100"]+e.GPUs["A100-40GB"] != 8 ||
		e.Lines[0].Resource != "aws_cloudformation_stack.x/Trainer" {
		t.Errorf("got %d machines, %v, %+v, %v", e.Machines, e.GPUs, e.Lines, err)
	}
	if _, err := FromTerraform(strings.NewReader(stack(instance(`"x9.large"`), "")), "p.json", testBook(t),
		Params{Now: now}); !errors.Is(err, price.ErrUnpriced) {
		t.Errorf("a machine without a price: %v", err)
	}
}
