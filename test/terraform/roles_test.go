package terraform

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"unicode"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/test/iam"
)

// person is the id of the person who connects in the tests.
const person = "AIDAANA"

// documents are the IAM documents of an applied backbone.
type documents struct {
	of    map[string]*iam.Policy // by the address of the resource that contains it
	text  map[string]string
	names *strings.Replacer // placeholders in the table of calls
	// limits is the session policy of terraform/session.
	limits *iam.Policy
}

func read(t *testing.T, s *State) documents {
	t.Helper()
	d := documents{of: map[string]*iam.Policy{}, text: map[string]string{}}
	for _, r := range s.Resources {
		if r.Type != "aws_iam_policy" && r.Type != "aws_iam_role_policy" {
			continue
		}
		p, err := iam.Parse([]byte(r.Values["policy"].(string)))
		if err != nil {
			t.Fatalf("%s: %v", r.Address, err)
		}
		d.of[r.Address], d.text[r.Address] = p, r.Values["policy"].(string)
	}
	d.names = strings.NewReplacer("{partition}", "aws", "{region}", "us-east-1", "{account}",
		"111122223333", "{session}",
		"s-1", "{person}", person,
		"{image}", "ami-1", "{instance}", "i-1", "{volume}", "vol-1", "{network-interface}", "eni-1",
		"{spot-instances-request}", "sir-1", "{elastic-ip}", "eipalloc-1",
		"{bucket}", s.Text(`aws_s3_bucket.this["sessions"]`, "bucket"), "{data-bucket}",
		s.Text(`aws_s3_bucket.this["data"]`, "bucket"),
		"{subnet}", first(s.Outputs["subnets"].Value.(map[string]any)), "{security-group}",
		s.Text("aws_security_group.sessions", "id"),
		"{machine-policy}", s.Text("aws_iam_policy.machine", "arn"), "{installation}", "a", "{name}", "demo",
		"{log-group}", s.Text(`aws_cloudwatch_log_group.this["sessions"]`, "name"), "{kms-key}",
		s.Text("aws_kms_key.logs", "arn"),
		"{repository}", s.Text("aws_ecr_repository.sessions", "arn"), "{session-document}",
		s.Text("aws_ssm_document.session", "name"))
	return d
}

func first(m map[string]any) string {
	for _, v := range m {
		return v.(string)
	}
	return ""
}

// by returns the documents that apply to a caller's calls, all of which must allow them.
func (d documents) by(c aws.SessionCaller) []*iam.Policy {
	boundary := d.of["aws_iam_policy.boundary"]
	return map[aws.SessionCaller][]*iam.Policy{
		aws.ByLauncher: {d.of["aws_iam_role_policy.launch"], boundary},
		aws.ByMachine:  {d.of["aws_iam_policy.machine"]}, // its own boundary
		aws.ByPerson:   {d.of["aws_iam_policy.connect"]},
	}[c]
}

// tags are the tags of a session's resources.
var tags = map[string]string{
	"curfew:installation": "a", "curfew:session": "s-1", "curfew:session-name": "demo", "curfew:owner": person,
	"curfew:lifetime": "ephemeral",
}

// principal adds the tags of the role of the session's machines, as IAM knows them.
func principal(keys map[string]string) {
	for _, tag := range []string{"curfew:installation", "curfew:session", "curfew:session-name"} {
		keys["aws:PrincipalTag/"+tag] = tags[tag]
	}
}

// request returns the IAM request that AWS makes for a call of the table.
func (d documents) request(a aws.SessionAsk) iam.Request {
	r := iam.Request{
		Action: a.Action, Resource: d.names.Replace(a.Resource), Keys: map[string]string{"aws:userid": person},
	}
	principal(r.Keys)
	for k, v := range a.Keys {
		r.Keys[k] = d.names.Replace(v)
	}
	if a.Makes {
		r.RequestTags = tags
	}
	if a.Has {
		r.Tags = tags
	}
	return r
}

func allowed(t *testing.T, policies []*iam.Policy, r iam.Request) bool {
	t.Helper()
	for _, p := range policies {
		ok, err := p.Allows(r)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		if !ok {
			return false
		}
	}
	return len(policies) > 0
}

// TestRoles applies both modules and evaluates the resulting documents.
func TestRoles(t *testing.T) {
	slow(t)
	w := New(t)
	w.Local("backbone")
	s := w.Apply("backbone", with(whole, map[string]any{"installations": []string{"a", "b"}}))
	d := read(t, s)
	w.Local("session")
	limits := w.Apply("session", session(map[string]any{"installation": "a"})).Outputs["limits"].Value.(string)
	p, err := iam.Parse([]byte(limits))
	if err != nil {
		t.Fatal(err)
	}
	d.limits = p
	if n := len([]rune(limits)); n > 2048 {
		t.Errorf("the session policy has %d characters, AWS takes 2,048", n)
	}
	t.Run("calls", d.calls)
	t.Run("runners", d.runners)
	t.Run("refusals", d.refusals)
	t.Run("never persistent", d.neverPersistent)
	t.Run("printed", d.printed)
	t.Run("paths", func(t *testing.T) { d.paths(t, s) })
	t.Run("state", d.state)
	t.Run("trust", func(t *testing.T) { trust(t, s) })
}

// calls evaluates the documents for every call of sessions: its callers are allowed, depending on
// the conditions that AWS evaluates, and no one else is if it changes something.
func (d documents) calls(t *testing.T) {
	changes := func(a string) bool {
		for _, word := range []string{
			"Describe", "Get", "List", "GenerateDataKey", "Decrypt", "BatchGet", "OpenDataChannel",
		} {
			if strings.Contains(a, word) {
				return false
			}
		}
		return true
	}
	for _, c := range aws.SessionCalls() {
		for _, a := range c.Asks {
			r := d.request(a)
			if !allowed(t, d.by(c.By), r) {
				t.Errorf("%s: %s:%s is refused: %+v", c.By, c.Service, c.Name, r)
			}
			if strings.ContainsAny(r.Resource, "{}") || strings.ContainsAny(fmt.Sprint(r.Keys), "{}") {
				t.Errorf("%s:%s has a name that is not known: %+v", c.Service, c.Name, r)
			}
			for _, other := range []aws.SessionCaller{aws.ByLauncher, aws.ByMachine, aws.ByPerson} {
				if other == c.By || !changes(a.Action) || strings.HasPrefix(a.Action, "s3:") && other != aws.ByPerson {
					continue
				}
				if allowed(t, d.by(other), r) {
					t.Errorf("%s may make the call of %s: %+v", other, c.By, r)
				}
			}
			// terraform/session launches with its session policy.
			ends := c.Service == "iam" && !strings.HasPrefix(c.Name, "List") || c.Service == "ec2" &&
				(c.Name == "RunInstances" || c.Name == "TerminateInstances" || !changes(a.Action))
			if c.By == aws.ByLauncher && ends && !allowed(t, append(d.by(c.By), d.limits), r) {
				t.Errorf("terraform/session may not %s: %+v", c.Name, r)
			}
		}
	}
	for _, name := range []string{
		"ec2:DescribeInstanceAttribute", "ec2:DescribeInstanceCreditSpecifications", "ec2:DescribeTags",
		"ec2:DescribeVpcs",
	} {
		if !allowed(t, append(d.by(aws.ByLauncher), d.limits), iam.Request{Action: name}) {
			t.Errorf("Terraform may not %s, which AWS's provider calls for a machine", name)
		}
	}
}

// changed returns the request of a call with a change.
func (d documents) changed(t *testing.T, caller aws.SessionCaller, call, resource string,
	change func(*iam.Request)) iam.Request {
	t.Helper()
	for _, c := range aws.SessionCalls() {
		for _, a := range c.Asks {
			if c.By == caller && a.Action == call && strings.Contains(a.Resource, resource) {
				r := d.request(a)
				r.Tags, r.RequestTags, r.Keys = maps.Clone(r.Tags), maps.Clone(r.RequestTags), maps.Clone(r.Keys)
				change(&r)
				return r
			}
		}
	}
	t.Fatalf("%s never asks for %s on %s", caller, call, resource)
	return iam.Request{}
}

// refusals changes one property of an allowed call, which must then be refused.
func (d documents) refusals(t *testing.T) {
	set := func(m func(*iam.Request) *map[string]string, key, value string) func(*iam.Request) {
		return func(r *iam.Request) {
			if value == "" {
				delete(*m(r), key)
				return
			}
			(*m(r))[key] = value
		}
	}
	made := func(r *iam.Request) *map[string]string { return &r.RequestTags }
	has := func(r *iam.Request) *map[string]string { return &r.Tags }
	keys := func(r *iam.Request) *map[string]string { return &r.Keys }
	on := func(resource string) func(*iam.Request) {
		return func(r *iam.Request) { r.Resource = d.names.Replace(resource) }
	}
	type refusal struct {
		name           string
		caller         aws.SessionCaller
		call, resource string
		change         func(*iam.Request)
	}
	const bucket = "arn:aws:s3:::{bucket}/"
	cases := []refusal{
		{
			"a machine with IMDSv1", aws.ByLauncher, "ec2:RunInstances", "instance/",
			set(keys, "ec2:MetadataHttpTokens", "optional"),
		},
		{
			"a machine that does not say", aws.ByLauncher, "ec2:RunInstances", "instance/",
			set(keys, "ec2:MetadataHttpTokens", ""),
		},
		{
			"a machine with another profile", aws.ByLauncher, "ec2:RunInstances", "instance/",
			set(keys, "ec2:InstanceProfile", "arn:aws:iam::111122223333:instance-profile/admin"),
		},
		{
			"a machine with the profile of another installation", aws.ByLauncher, "ec2:RunInstances", "instance/",
			set(keys, "ec2:InstanceProfile", "arn:aws:iam::111122223333:instance-profile/curfew/sessions/other/s-1/x"),
		},
		{
			"a role without the boundary", aws.ByLauncher, "iam:CreateRole", "",
			set(keys, "iam:PermissionsBoundary", ""),
		},
		{
			"a role with another boundary", aws.ByLauncher, "iam:CreateRole", "",
			set(keys, "iam:PermissionsBoundary", "arn:aws:iam::aws:policy/AdministratorAccess"),
		},
		{"a role elsewhere", aws.ByLauncher, "iam:CreateRole", "", on("arn:aws:iam::{account}:role/admin")},
		{
			"the tags of another installation's role", aws.ByLauncher, "iam:TagRole", "",
			on("arn:aws:iam::{account}:role/curfew/sessions/other/s-1/x"),
		},
		{
			"the role of another installation", aws.ByLauncher, "iam:PassRole", "",
			on("arn:aws:iam::{account}:role/curfew/sessions/other/s-1/x"),
		},
		{"a role without session", aws.ByLauncher, "iam:TagRole", "", set(made, "curfew:session", "")},
		{
			"the end of another installation's role", aws.ByLauncher, "iam:DeleteRole", "",
			on("arn:aws:iam::{account}:role/curfew/sessions/other/s-1/x"),
		},
		{
			"another installation's profile", aws.ByLauncher, "iam:AddRoleToInstanceProfile", "",
			on("arn:aws:iam::{account}:instance-profile/curfew/sessions/other/s-1/x"),
		},
		{
			"another policy for a role", aws.ByLauncher, "iam:AttachRolePolicy", "",
			set(keys, "iam:PolicyARN", "arn:aws:iam::aws:policy/AdministratorAccess"),
		},
		{
			"the policy for another role", aws.ByLauncher, "iam:AttachRolePolicy", "",
			on("arn:aws:iam::{account}:role/admin"),
		},
		{
			"the end of another role", aws.ByLauncher, "iam:DeleteRole", "",
			on("arn:aws:iam::{account}:role/curfew-backbone-launch"),
		},
		{
			"the role of another in a profile", aws.ByLauncher, "iam:AddRoleToInstanceProfile", "",
			on("arn:aws:iam::{account}:instance-profile/admin"),
		},
		{
			"a machine without a profile", aws.ByLauncher, "ec2:RunInstances", "instance/",
			set(keys, "ec2:InstanceProfile", ""),
		},
		{
			"a disk that is not encrypted", aws.ByLauncher, "ec2:RunInstances", "volume/",
			set(keys, "ec2:Encrypted", "false"),
		},
		{
			"an interface in another network", aws.ByLauncher, "ec2:RunInstances", "network-interface/",
			set(keys, "ec2:Subnet", "arn:aws:ec2:us-east-1:111122223333:subnet/subnet-other"),
		},
		{
			"another subnet", aws.ByLauncher, "ec2:RunInstances", "subnet/",
			on("arn:aws:ec2:{region}:{account}:subnet/subnet-other"),
		},
		{
			"another security group", aws.ByLauncher, "ec2:RunInstances", "security-group/",
			on("arn:aws:ec2:{region}:{account}:security-group/sg-other"),
		},
		{
			"a key for SSH", aws.ByLauncher, "ec2:RunInstances", "subnet/",
			on("arn:aws:ec2:{region}:{account}:key-pair/ana"),
		},
		{
			"another region", aws.ByLauncher, "ec2:RunInstances", "instance/",
			on("arn:aws:ec2:eu-west-1:{account}:instance/*"),
		},
		{"another role", aws.ByLauncher, "iam:PassRole", "", on("arn:aws:iam::{account}:role/admin")},
		{
			"the role to another service", aws.ByLauncher, "iam:PassRole", "",
			set(keys, "iam:PassedToService", "lambda.amazonaws.com"),
		},
		{"tags of what is there", aws.ByLauncher, "ec2:CreateTags", "instance/", set(keys, "ec2:CreateAction", "")},
		{
			"tags of an image", aws.ByLauncher, "ec2:CreateTags", "instance/",
			set(keys, "ec2:CreateAction", "CreateImage"),
		},
		{
			"the end of another installation's machine", aws.ByLauncher, "ec2:TerminateInstances", "instance/",
			set(has, "curfew:installation", "other"),
		},
		{
			"the end of a machine without installation", aws.ByLauncher, "ec2:TerminateInstances", "instance/",
			set(has, "curfew:installation", ""),
		},
		{
			"the end of what is no session", aws.ByLauncher, "ec2:TerminateInstances", "instance/",
			set(has, "curfew:session", ""),
		},
		{
			"the end of what stays", aws.ByLauncher, "ec2:TerminateInstances", "instance/",
			set(has, "curfew:lifetime", "Persistent"),
		},
		{"a disk that is no session's", aws.ByLauncher, "ec2:DeleteVolume", "volume/", set(has, "curfew:session", "")},
		{
			"an object of data", aws.ByLauncher, "s3:PutObject", "sessions/",
			on("arn:aws:s3:::{data-bucket}/imagenet/0001.tar"),
		},
		{
			"an object elsewhere in the bucket", aws.ByLauncher, "s3:PutObject", "sessions/",
			on(bucket + "sessionsold/a"),
		},
		{"a list of the whole bucket", aws.ByLauncher, "s3:ListBucket", "", set(keys, "s3:prefix", "")},
		{
			"a parameter of another program", aws.ByLauncher, "ssm:GetParameters", "parameter/",
			on("arn:aws:ssm:{region}:{account}:parameter/payroll/key"),
		},

		{"another's machine", aws.ByPerson, "ssm:StartSession", "instance/", set(has, "curfew:owner", "AIDABEN")},
		{"a machine without owner", aws.ByPerson, "ssm:StartSession", "instance/", set(has, "curfew:owner", "")},
		{
			"a name that begins alike", aws.ByPerson, "ssm:StartSession", "instance/",
			set(has, "curfew:owner", person+"2"),
		},
		{
			"a machine that is no session", aws.ByPerson, "ssm:StartSession", "instance/",
			set(has, "curfew:session", ""),
		},
		{
			"without naming a document", aws.ByPerson, "ssm:StartSession", "instance/",
			set(keys, "ssm:SessionDocumentAccessCheck", "false"),
		},
		{
			"the account's own document, which need not record", aws.ByPerson, "ssm:StartSession", "document/",
			on("arn:aws:ssm:{region}:{account}:document/SSM-SessionManagerRunShell"),
		},
		{
			"a document that runs commands", aws.ByPerson, "ssm:StartSession", "document/",
			on("arn:aws:ssm:{region}::document/AWS-StartNonInteractiveCommand"),
		},
		{
			"another's connection", aws.ByPerson, "ssm:TerminateSession", "session/",
			on("arn:aws:ssm:{region}:{account}:session/AIDABEN-0a1b"),
		},
		{
			"another's connection, resumed", aws.ByPerson, "ssm:ResumeSession", "session/",
			on("arn:aws:ssm:{region}:{account}:session/AIDABEN-0a1b"),
		},

		{
			"an order to another session", aws.ByMachine, "s3:PutObject", "status-0",
			on(bucket + "sessions/control/s-2/order.json"),
		},
		{
			"an order to itself", aws.ByMachine, "s3:PutObject", "status-0",
			on(bucket + "sessions/control/s-1/order.json"),
		},
		{
			"the end of an order", aws.ByMachine, "s3:DeleteObject", "parts",
			on(bucket + "sessions/control/s-1/order.json"),
		},
		{
			"the end of its own status", aws.ByMachine, "s3:DeleteObject", "parts",
			on(bucket + "sessions/control/s-1/status-0.json"),
		},
		{
			"an object of data from a machine", aws.ByMachine, "s3:PutObject", "parts",
			on("arn:aws:s3:::{data-bucket}/imagenet/0001.tar"),
		},
		{
			"an object of a dataset bucket", aws.ByMachine, "s3:PutObject", "parts",
			on("arn:aws:s3:::imagenet-mirror/a"),
		},
		{"an object elsewhere from a machine", aws.ByMachine, "s3:PutObject", "parts", on(bucket + "a")},
		{"the program that machines run", aws.ByMachine, "s3:PutObject", "parts", on(bucket + "sessions/bin/curfew")},
		{"another bucket", aws.ByMachine, "s3:GetObject", "parts", on("arn:aws:s3:::payroll/sessions/a")},
		{
			"a parameter of another program from a machine", aws.ByMachine, "ssm:GetParameters", "parameter/",
			on("arn:aws:ssm:{region}:{account}:parameter/payroll/key"),
		},
		{
			"a parameter of another session", aws.ByMachine, "ssm:GetParameters", "parameter/",
			on("arn:aws:ssm:{region}:{account}:parameter/curfew/sessions/names/demo2/token"),
		},
		{
			"a secret of another session", aws.ByMachine, "secretsmanager:GetSecretValue", "",
			on("arn:aws:secretsmanager:{region}:{account}:secret:curfew/sessions/names/other/token-a1b2c3"),
		},
		{
			"another log group", aws.ByMachine, "logs:PutLogEvents", "log-group",
			on("arn:aws:logs:{region}:{account}:log-group:/payroll:log-stream:a"),
		},
	}
	for _, tag := range aws.SessionTags {
		for _, noun := range []string{"instance/", "volume/", "spot-instances-request/"} {
			cases = append(cases, refusal{
				noun + " without " + tag, aws.ByLauncher, "ec2:RunInstances", noun, set(made, tag, ""),
			})
		}
		cases = append(cases, refusal{
			"tags without " + tag, aws.ByLauncher, "ec2:CreateTags", "instance/", set(made, tag, ""),
		})
	}
	cases = append(cases, refusal{
		"a machine of another installation", aws.ByLauncher, "ec2:RunInstances", "instance/",
		set(made, "curfew:installation", "other"),
	})
	// Similar names, other installations, and their common prefixes.
	for _, key := range []string{
		"sessions/control/s-12/", "sessions/control/s-1", "sessions/control/", "sessions/work/a/demo2/",
		"sessions/work/b/demo/", "sessions/work/a/", "sessions/work/", "sessions/", "",
	} {
		cases = append(cases,
			refusal{"a list of " + key, aws.ByMachine, "s3:ListBucket", "{bucket}", set(keys, "s3:prefix", key)},
			refusal{"an object below " + key, aws.ByMachine, "s3:GetObject", "status-0", on(bucket + key + "x")},
			refusal{
				"a status below " + key, aws.ByMachine, "s3:PutObject", "status-0", on(bucket + key + "status-0.json"),
			},
			refusal{"work below " + key, aws.ByMachine, "s3:PutObject", "parts", on(bucket + key + "node-0/HEAD")},
			refusal{
				"the end of work below " + key, aws.ByMachine, "s3:DeleteObject", "parts",
				on(bucket + key + "node-0/HEAD"),
			})
	}
	for _, c := range cases {
		if same := d.changed(t, c.caller, c.call, c.resource, func(*iam.Request) {}); !allowed(
			t, d.by(c.caller), same) {
			t.Errorf("%s: refused before anything was changed: %+v", c.name, same)
		}
		// The document itself refuses it, not only the boundary.
		if r := d.changed(t, c.caller, c.call, c.resource, c.change); allowed(t, d.by(c.caller)[:1], r) {
			t.Errorf("%s: allowed to %s: %+v", c.name, c.caller, r)
		}
	}
	// An owner is compared, never matched, because a tag or an id may contain an asterisk.
	if !strings.Contains(d.text["aws_iam_policy.connect"],
		`"StringEquals":{"ssm:resourceTag/curfew:owner":"${aws:userid}"}`) {
		t.Errorf("owners are not compared for equality: %s", d.text["aws_iam_policy.connect"])
	}
	// A named dataset bucket can be read.
	if !allowed(t, d.by(aws.ByMachine), iam.Request{
		Action: "s3:GetObject", Resource: "arn:aws:s3:::imagenet-mirror/a",
	}) {
		t.Error("a machine may not read the dataset bucket")
	}
}

// open returns a policy with an additional statement that allows everything, so that only denials
// remain.
func open(p *iam.Policy) *iam.Policy {
	everything := iam.Statement{Effect: "Allow", Action: iam.Strings{"*"}, Resource: iam.Strings{"*"}}
	return &iam.Policy{Version: p.Version, Statement: append([]iam.Statement{everything}, p.Statement...)}
}

// neverPersistent evaluates the documents for changes to permanent resources, and for orders to
// machines: the boundary, the roles and the session policy each deny them, even if the role were
// allowed everything.
func (d documents) neverPersistent(t *testing.T) {
	persistent := map[string]string{
		"curfew:lifetime": "persistent", "curfew:installation": "a", "curfew:session": "s-1",
	}
	never := []iam.Request{
		{Action: "s3:DeleteBucket"}, {Action: "s3:PutLifecycleConfiguration"}, {Action: "s3:PutBucketPolicy"},
		{Action: "s3:DeleteBucketPolicy"}, {Action: "s3:PutBucketVersioning"},
		{Action: "s3:DeleteObjectVersion"}, {Action: "ecr:DeleteRepository"}, {Action: "ecr:BatchDeleteImage"},
		{Action: "ecr:PutLifecyclePolicy"},
		{Action: "logs:DeleteLogGroup"}, {Action: "logs:DeleteLogStream"}, {Action: "logs:PutRetentionPolicy"},
		{Action: "kms:ScheduleKeyDeletion"}, {Action: "kms:DisableKey"},
		{Action: "ssm:PutParameter"}, {Action: "ssm:DeleteParameter"}, {Action: "ec2:DeleteVpc"},
		{Action: "ec2:DeleteSubnet"}, {Action: "ec2:DeleteSecurityGroup"},
		{Action: "ec2:AuthorizeSecurityGroupIngress"}, {Action: "ec2:AuthorizeSecurityGroupEgress"},
		{Action: "ec2:DeleteSnapshot"}, {Action: "ec2:DeregisterImage"},
		{Action: "ec2:DeleteNatGateway"}, {Action: "ec2:CreateRoute"}, {Action: "secretsmanager:DeleteSecret"},
		{Action: "ec2:TerminateInstances", Tags: persistent}, {Action: "ec2:StopInstances", Tags: persistent},
		{Action: "ec2:DeleteVolume", Tags: persistent},
		{Action: "ec2:TerminateInstances", Tags: map[string]string{"Curfew:Lifetime": "PERSISTENT"}},
	}
	orders := []iam.Request{
		{Action: "ssm:SendCommand"}, {Action: "ssm:StartSession"}, {Action: "ssm:StartAutomationExecution"},
		{Action: "ssm:CreateAssociation"},
	}
	for name, tc := range map[string]struct {
		p     *iam.Policy
		never []iam.Request
	}{
		"aws_iam_policy.boundary":    {d.of["aws_iam_policy.boundary"], append(never, orders...)},
		"aws_iam_role_policy.launch": {d.of["aws_iam_role_policy.launch"], append(never, orders...)},
		"aws_iam_policy.machine": {
			d.of["aws_iam_policy.machine"], append(orders, iam.Request{Action: "sts:AssumeRole"},
				iam.Request{Action: "ec2:TerminateInstances"},
				iam.Request{Action: "ec2:StopInstances"}, iam.Request{Action: "ec2:CreateTags"},
				iam.Request{Action: "iam:PassRole"}, iam.Request{Action: "iam:PutRolePolicy"},
				iam.Request{Action: "iam:TagRole"})},
		"limits of terraform/session": {
			d.limits, append(append(never, orders...), iam.Request{Action: "iam:CreateRole"},
				iam.Request{Action: "iam:PutRolePolicy"}, iam.Request{Action: "s3:PutObject"},
				iam.Request{Action: "s3:DeleteObject"}, iam.Request{Action: "rds:DeleteDBInstance"},
				iam.Request{Action: "dynamodb:DeleteTable"}, iam.Request{Action: "sts:AssumeRole"})},
	} {
		for _, r := range tc.never {
			r.Resource = "arn:aws:any:us-east-1:111122223333:thing"
			if allowed(t, []*iam.Policy{open(tc.p)}, r) {
				t.Errorf("%s does not deny %+v", name, r)
			}
		}
	}
	// The boundary is effective regardless of a role's other permissions.
	for _, action := range []string{
		"iam:CreateRole", "iam:PutRolePolicy", "iam:AttachRolePolicy", "sts:AssumeRole",
		"organizations:LeaveOrganization",
		"rds:DeleteDBInstance", "lambda:CreateFunction",
	} {
		if allowed(t, []*iam.Policy{
			d.of["aws_iam_policy.boundary"],
		}, iam.Request{Action: action, Resource: "arn:aws:any:us-east-1:111122223333:thing"}) {
			t.Errorf("the boundary allows %s", action)
		}
	}
	if by := d.by(aws.ByLauncher); len(by) != 2 || by[1] == nil {
		t.Error("the launcher has no boundary")
	}
}

// runners evaluates the document of runners for every call that launches, keeps and ends sessions
// and connects to them: each is allowed for the runner's own machines, and none for others.
func (d documents) runners(t *testing.T) {
	document := []*iam.Policy{d.of["aws_iam_role_policy.runner[0]"]}
	if document[0] == nil {
		t.Fatal("runners have no document")
	}
	asked := 0
	for _, c := range aws.SessionCalls() {
		if c.By != aws.ByLauncher && c.By != aws.ByPerson {
			continue
		}
		for _, ask := range c.Asks {
			asked++
			r := d.request(ask)
			if !allowed(t, document, r) {
				t.Errorf("%s: runners may not %+v", c.Name, r)
			}
			if r.Action == "ssm:StartSession" && ask.Has {
				r.Tags = maps.Clone(r.Tags)
				r.Tags["curfew:owner"] = "AROABEN:run"
				if allowed(t, document, r) {
					t.Errorf("runners may connect to another's machine: %+v", r)
				}
			}
		}
	}
	if asked < 20 {
		t.Errorf("only %d requests were asked about", asked)
	}
	for _, action := range []string{
		"ssm:SendCommand", "ssm:PutParameter", "s3:DeleteObjectVersion", "ec2:CreateSubnet",
	} {
		if allowed(t, document, iam.Request{Action: action, Resource: "*"}) {
			t.Errorf("runners may %s", action)
		}
	}
}

// trust returns who may assume the roles of curfew and of machines.
func trust(t *testing.T, s *State) {
	for name, want := range map[string]string{
		"aws_iam_role.read":      `{"Statement":[{"Action":"sts:AssumeRole","Condition":{"StringEquals":{"sts:ExternalId":"x1"}},"Effect":"Allow","Principal":{"AWS":["arn:aws:iam::111122223333:role/platform"]}}],"Version":"2012-10-17"}`,
		"aws_iam_role.runner[0]": `{"Statement":[{"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{"token.actions.githubusercontent.com:aud":"sts.amazonaws.com"},"StringLike":{"token.actions.githubusercontent.com:sub":["repo:acme/vision:ref:refs/heads/main"]}},"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::111122223333:oidc-provider/token.actions.githubusercontent.com"}}],"Version":"2012-10-17"}`,
	} {
		if got := s.Text(name, "assume_role_policy"); got != want {
			t.Errorf("%s trusts %s, want %s", name, got, want)
		}
	}
	for _, name := range []string{"aws_iam_role.launch", "aws_iam_role.act[0]"} {
		if got, want := s.Text(name, "assume_role_policy"), s.Text("aws_iam_role.read",
			"assume_role_policy"); got != want {
			t.Errorf("%s trusts %s, want %s", name, got, want)
		}
	}
	boundary := s.Text("aws_iam_policy.boundary", "arn")
	for name, want := range map[string]string{"aws_iam_role.launch": boundary} {
		if got := s.Text(name, "permissions_boundary"); got == "" || got != want {
			t.Errorf("%s has the boundary %q, want %q", name, got, want)
		}
	}
}

// paths tries every sequence of writes by curfew's roles, a runner, a person and a machine, each
// alone and all together: none can end, or enter, what it could not before.
func (d documents) paths(t *testing.T, s *State) {
	all := map[string][]*iam.Policy{
		"read": {d.of["aws_iam_role_policy.read"]}, "act": {d.of["aws_iam_role_policy.act[0]"]},
		"launch": d.by(aws.ByLauncher),
		"runner": {d.of["aws_iam_role_policy.runner[0]"]}, "person": d.by(aws.ByPerson),
		"machine": d.by(aws.ByMachine),
	}
	in := iam.Account{
		Partition: "aws", Region: "us-east-1", ID: "111122223333", Bucket: s.Text(`aws_s3_bucket.this["sessions"]`,
			"bucket"),
		Policies: map[string]*iam.Policy{s.Text("aws_iam_policy.machine", "arn"): d.of["aws_iam_policy.machine"]}}
	var together []iam.Principal
	for name, documents := range all {
		if documents[0] == nil {
			t.Fatalf("%s has no document", name)
		}
		p := iam.Principal{Name: name, Policies: documents, Keys: map[string]string{"aws:userid": person}}
		if name == "machine" {
			principal(p.Keys)
		}
		together = append(together, p)
		if paths, err := iam.Widened([]iam.Principal{p}, in); err != nil || len(paths) > 0 {
			t.Errorf("%s: %v\n%s", name, err, strings.Join(paths, "\n"))
		}
	}
	if paths, err := iam.Widened(together, in); err != nil || len(paths) > 0 {
		t.Errorf("together: %v\n%s", err, strings.Join(paths, "\n"))
	}
}

// printed compares the roles that read and act with the policies that curfew prints, and all
// documents with the size limits of IAM: 6,144 characters for a managed policy, 10,240 for the
// inline policies of a role, without white space.
func (d documents) printed(t *testing.T) {
	for name, printed := range map[string][]byte{"aws_iam_role_policy.read": aws.PolicyJSON("aws"),
		"aws_iam_role_policy.act[0]": aws.ActionPolicyJSON(aws.Grants{
			Partition: "aws", Governed: []map[string]string{{"curfew:lifetime": "ephemeral"}},
			Buckets: []string{"models"},
		})} {
		var got, want any
		if err := json.Unmarshal([]byte(d.text[name]), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(printed, &want); err != nil {
			t.Fatal(err)
		}
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			t.Errorf("%s is\n%s\nwant\n%s", name, g, w)
		}
	}
	for name, text := range d.text {
		size, most := 0, 6144
		for _, r := range text {
			if !unicode.IsSpace(r) {
				size++
			}
		}
		if strings.HasPrefix(name, "aws_iam_role_policy.") {
			most = 10240
		}
		if size > most {
			t.Errorf("%s has %d characters, IAM takes %d", name, size, most)
		}
	}
}

// TestOwnersByTag checks access by a tag of the person instead of their id.
func TestOwnersByTag(t *testing.T) {
	slow(t)
	w := New(t)
	w.Local("backbone")
	d := read(t, w.Apply("backbone", with(plain, map[string]any{"owner_identity": "aws:PrincipalTag/curfew:owner"})))
	for tag, want := range map[string]bool{"ana@example.com": true, "ben@example.com": false, "": false} {
		r := d.changed(t, aws.ByPerson, "ssm:StartSession", "instance/", func(r *iam.Request) {
			r.Tags["curfew:owner"] = "ana@example.com"
			if tag != "" {
				r.Keys["aws:PrincipalTag/curfew:owner"] = tag
			}
		})
		if got := allowed(t, d.by(aws.ByPerson), r); got != want {
			t.Errorf("a person tagged %q on ana's machine: %v, want %v", tag, got, want)
		}
	}
	// Without a list of installations, every installation with a name may launch.
	for installation, want := range map[string]bool{"anything": true, "": false} {
		r := d.changed(t, aws.ByLauncher, "ec2:RunInstances", "instance/", func(r *iam.Request) {
			if r.RequestTags["curfew:installation"] = installation; installation == "" {
				delete(r.RequestTags, "curfew:installation")
			}
		})
		if got := allowed(t, d.by(aws.ByLauncher), r); got != want {
			t.Errorf("installation %q launches: %v, want %v", installation, got, want)
		}
	}
}

// state evaluates the policy of people who apply terraform/session: the backbone's state is
// read-only.
func (d documents) state(t *testing.T) {
	p := d.of["aws_iam_policy.session_state[0]"]
	if p == nil {
		t.Fatal("there is no policy for the states")
	}
	const backbone, own = "arn:aws:s3:::states/curfew/backbone.tfstate",
		"arn:aws:s3:::states/curfew/sessions/ana.tfstate"
	for _, tc := range []struct {
		action, resource string
		want             bool
	}{
		{"s3:GetObject", backbone, true}, {"s3:PutObject", backbone, false}, {"s3:DeleteObject", backbone, false},
		{"s3:PutObject", backbone + ".tflock", false},
		{"s3:GetObject", own, true}, {"s3:PutObject", own, true}, {"s3:PutObject", own + ".tflock", true},
		{"s3:DeleteObject", own + ".tflock", true},
		{"s3:GetObject", "arn:aws:s3:::states/payroll.tfstate", false},
		{"s3:DeleteBucket", "arn:aws:s3:::states", false},
		{"sts:AssumeRole", "arn:aws:iam::111122223333:role/curfew-backbone-launch", true},
		{"sts:AssumeRole", "arn:aws:iam::111122223333:role/curfew-backbone-act", false},
	} {
		if got := allowed(t, []*iam.Policy{p}, iam.Request{Action: tc.action, Resource: tc.resource}); got != tc.want {
			t.Errorf("%s of %s: %v, want %v", tc.action, tc.resource, got, tc.want)
		}
	}
	// Changes to the state of the backbone are denied, regardless of other permissions.
	for _, action := range []string{"s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion"} {
		if allowed(t, []*iam.Policy{open(p)}, iam.Request{Action: action, Resource: backbone}) {
			t.Errorf("%s of the backbone's state is not denied", action)
		}
	}
}
