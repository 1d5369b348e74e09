package iam_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/test/iam"
)

var china = iam.Account{Partition: "aws-cn", Region: "cn-north-1", ID: "111122223333", Bucket: "models"}

func parse(t *testing.T, raw string) *iam.Policy {
	t.Helper()
	p, err := iam.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestWritesNeverWidenTermination tries every sequence of writes by the roles that read and act,
// with the policies that curfew prints for different governance, and with those of the template.
func TestWritesNeverWidenTermination(t *testing.T) {
	roles := map[string]*iam.Policy{"read": parse(t, string(aws.PolicyJSON("aws-cn")))}
	for name, governed := range map[string][]map[string]string{
		"act":                         nil,
		"act, ephemeral":              {{"curfew:lifetime": "ephemeral"}},
		"act, a team and any project": {{"team": "vision", "project": "*"}, {"Stage": "dev"}},
	} {
		for _, buckets := range [][]string{nil, {"models"}} {
			g := aws.Grants{Partition: "aws-cn", Governed: governed, Buckets: buckets}
			roles[fmt.Sprintf("%s, buckets %q", name, buckets)] = parse(t, string(aws.ActionPolicyJSON(g)))
		}
	}
	for _, govern := range []string{"managed", "ephemeral"} {
		template, err := iam.Template("../../deploy/cloudformation/curfew-member-role.yaml", map[string]string{
			"AWS::Partition": "aws-cn",
			"CentralRoleArn": "arn:aws-cn:iam::111122223333:role/curfew", "ExternalId": "x1",
			"Act": "true", "Govern": govern,
			"GovernedBuckets": "arn:aws-cn:s3:::models,arn:aws-cn:s3:::data"})
		if err != nil {
			t.Fatal(err)
		}
		roles["template, "+govern] = template["ActRole"].Policy
	}
	for name, policy := range roles {
		paths, err := iam.Widened([]iam.Principal{{Name: name, Policies: []*iam.Policy{policy}}}, china)
		if err != nil || len(paths) > 0 {
			t.Errorf("%s: %v\n%s", name, err, strings.Join(paths, "\n"))
		}
	}
}

// TestEachGuardIsNeeded removes one protection at a time from the acting policy, and checks that
// this opens a path.
func TestEachGuardIsNeeded(t *testing.T) {
	whole := string(aws.ActionPolicyJSON(aws.Grants{
		Partition: "aws-cn", Governed: []map[string]string{{"team": "vision"}}, Buckets: []string{"models"},
	}))
	for _, tc := range []struct{ without, with, want string }{
		{
			`"curfew:managed",`, "", "ec2:CreateTags by act to map[curfew:managed:true], then act on " +
				"arn:aws-cn:ec2:cn-north-1:111122223333:instance/x-1 " +
				"tagged map[]: may ec2:TerminateInstances"},
		{`"curfew:lifetime",`, "", "tagged map[curfew:lifetime:persistent curfew:managed:true]: may ec2:DeleteVolume"},
		{`"ForAnyValue:StringEqualsIgnoreCase": {`, `"ForAnyValue:StringEquals": {`, "map[CURFEW:MANAGED:true]"},
		{`            "team"`, `            "teams"`, "map[team:vision]"},
		{`"ec2:CreateAction": "true"`, `"ec2:CreateAction": "false"`, "logs:PutRetentionPolicy"},
	} {
		text := strings.ReplaceAll(whole, tc.without, tc.with)
		if text == whole {
			t.Fatalf("the policy has no %s", tc.without)
		}
		paths, err := iam.Widened([]iam.Principal{{Name: "act", Policies: []*iam.Policy{parse(t, text)}}}, china)
		if err != nil || !strings.Contains(strings.Join(paths, "\n"), tc.want) {
			t.Errorf("without %s: %v, no %q in\n%.3000s", tc.without, err, tc.want, strings.Join(paths, "\n"))
		}
	}
}

// TestFindsPaths checks paths through a policy for a role, a passed role, two cooperating
// principals, and the removal of all tags at once. Unknown actions are an error.
func TestFindsPaths(t *testing.T) {
	may := func(action, condition string) *iam.Policy {
		return parse(t, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"`+action+
			`","Resource":"*","Condition":`+condition+`}]}`)
	}
	ends := may("ec2:TerminateInstances",
		`{"Null":{"aws:ResourceTag/stays":"true"},"StringEquals":{"aws:ResourceTag/team":"vision"}}`)
	free := may("ec2:DeleteVolume", `{"Null":{"aws:ResourceTag/stays":"true"}}`)
	for want, by := range map[string][]*iam.Policy{
		"iam:AttachRolePolicy arn:aws-cn:iam::aws:policy/AdministratorAccess on": {may("iam:AttachRolePolicy", `{}`)},
		"iam:PassRole arn:aws-cn:iam::111122223333:role/admin":                   {may("iam:PassRole", `{}`)},
		"sts:AssumeRole arn:aws-cn:iam::111122223333:role/admin":                 {may("sts:AssumeRole", `{}`)},
		"ec2:CreateTags by 1 to map[team:vision]":                                {ends, may("ec2:CreateTags", `{}`)},
		"ec2:DeleteTags by 1 to map[]": {
			free, may("ec2:DeleteTags", `{"Null":{"aws:TagKeys":"true"}}`),
		},
		"iam:TagRole by 1 to map[a:false b:false]": {
			may("iam:DeleteRole", `{"Null":{"aws:ResourceTag/a":"false","aws:ResourceTag/b":"false"}}`),
			may("iam:TagRole", `{"Null":{"aws:RequestTag/a":"false","aws:RequestTag/b":"false"}}`),
		},
		"": {ends, may("ec2:CreateTags", `{"StringEquals":{"ec2:CreateAction":"RunInstances"}}`)},
	} {
		var all []iam.Principal
		for i, p := range by {
			all = append(all, iam.Principal{Name: fmt.Sprint(i), Policies: []*iam.Policy{p}})
		}
		paths, err := iam.Widened(all, china)
		if err != nil || len(paths) > 0 != (want != "") || !strings.Contains(strings.Join(paths, "\n"), want) {
			t.Errorf("want %q, got %v\n%.2000s", want, err, strings.Join(paths, "\n"))
		}
	}
	for _, action := range []string{"ec2:ModifyInstanceAttribute", "ec2:*", "iam:CreatePolicyVersion"} {
		if _, err := iam.Widened([]iam.Principal{{Name: "x", Policies: []*iam.Policy{may(action, `{}`)}}},
			china); err == nil {
			t.Errorf("what %s makes possible was decided", action)
		}
	}
}
