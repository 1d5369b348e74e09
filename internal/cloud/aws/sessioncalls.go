package aws

import (
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
)

// TagPerson is the tag with the identity of the person who may connect to a machine, the
// owner_identity of terraform/backbone.
const TagPerson = session.TagAllowedUser

// SessionCaller is the role that makes a session call, which determines the document of
// terraform/backbone that must allow it.
type SessionCaller string

// The callers.
const (
	// ByLauncher is curfew when it starts and ends sessions: the launching role.
	ByLauncher SessionCaller = "launch"
	// ByPerson is a person who connects to a machine: people's policy.
	ByPerson SessionCaller = "connect"
	// ByMachine is a machine of a session, with its host agent and Systems Manager agent: the
	// session's role, limited by the machine policy.
	ByMachine SessionCaller = "machine"
)

// SessionCall is a call that sessions make.
type SessionCall struct {
	By SessionCaller
	// Service is the prefix of the IAM actions, Name the API operation.
	Service, Name string
	// Asks are the IAM checks of the call; all must be allowed.
	Asks []SessionAsk
}

// SessionAsk is one IAM check of a call (Service Authorization Reference).
type SessionAsk struct {
	// Action is the IAM action, "ec2:RunInstances".
	Action string
	// Resource is the ARN, with placeholders in braces for names of the backbone, the session or
	// AWS ("{bucket}", "{instance}"); empty for an action without resources.
	Resource string
	// Makes is true if the call creates the resource with the session's tags, Has if the resource
	// exists and has them.
	Makes, Has bool
	// Keys are further condition keys, with placeholders in braces.
	Keys map[string]string
}

// SessionTags are the tags that the launching role requires for a launch.
var SessionTags = []string{inventory.TagInstallation, inventory.TagSession, TagPerson}

// Parts of ARNs.
const (
	arnEC2      = "arn:{partition}:ec2:{region}:{account}:"
	arnSSM      = "arn:{partition}:ssm:{region}:{account}:"
	arnSessions = "arn:{partition}:s3:::{bucket}/sessions/"
)

// askAll returns a call that only lists and has no resource.
func askAll(by SessionCaller, service, name string) SessionCall {
	return SessionCall{by, service, name, []SessionAsk{{Action: service + ":" + name}}}
}

// askOn returns a call with one IAM check of the same name.
func askOn(by SessionCaller, service, name, resource string) SessionCall {
	return SessionCall{by, service, name, []SessionAsk{{Action: service + ":" + name, Resource: resource}}}
}

// askEnd returns a launcher's call on a resource of a session.
func askEnd(name, noun string) SessionCall {
	return SessionCall{
		ByLauncher, "ec2", name,
		[]SessionAsk{{Action: "ec2:" + name, Resource: arnEC2 + noun + "/{" + noun + "}", Has: true}},
	}
}

// askObjects returns the launcher's calls on objects of a session and the listing of its prefix.
func askObjects(keys ...string) []SessionCall {
	const by = ByLauncher
	var calls []SessionCall
	for _, key := range keys {
		object := arnSessions + key
		calls = append(calls,
			askOn(by, "s3", "GetObject", object), askOn(by, "s3", "PutObject", object),
			SessionCall{by, "s3", "DeleteObjects", []SessionAsk{{Action: "s3:DeleteObject", Resource: object}}},
			askOn(by, "s3", "AbortMultipartUpload", object))
	}
	return append(calls, askList(by, ControlKey),
		SessionCall{
			by, "s3", "ListMultipartUploads",
			[]SessionAsk{{Action: "s3:ListBucketMultipartUploads", Resource: "arn:{partition}:s3:::{bucket}"}},
		})
}

// Prefixes of a session below "sessions/" in the bucket, and the ARNs of its role and instance
// profile.
const (
	ControlKey = "control/{session}/"
	WorkKey    = "work/{installation}/{name}/"
	ofRole     = "arn:{partition}:iam::{account}:role" + RolePath +
		"{installation}/{session}/curfew-{session}-{region}"
	ofInstances = "arn:{partition}:iam::{account}:instance-profile" + RolePath +
		"{installation}/{session}/curfew-{session}-{region}"
)

// askList returns the call that lists a prefix of the sessions' bucket.
func askList(by SessionCaller, key string) SessionCall {
	return SessionCall{
		by, "s3", "ListObjectsV2",
		[]SessionAsk{
			{
				Action: "s3:ListBucket", Resource: "arn:{partition}:s3:::{bucket}",
				Keys: map[string]string{"s3:prefix": "sessions/" + key},
			},
		},
	}
}

// machineObjects returns the calls of a machine on its own documents and work.
func machineObjects() []SessionCall {
	var calls []SessionCall
	for _, key := range []string{
		ControlKey + "order.json", ControlKey + "status-0.json", ControlKey + "events-0/1.jsonl",
		WorkKey + "node-0/HEAD",
		WorkKey + "node-0/parts/1/1",
	} {
		calls = append(calls, askOn(ByMachine, "s3", "GetObject", arnSessions+key))
	}
	for _, key := range []string{
		ControlKey + "status-0.json", ControlKey + "events-0/1.jsonl", WorkKey + "node-0/HEAD",
		WorkKey + "node-0/parts/1/1",
	} {
		calls = append(calls, askOn(ByMachine, "s3", "PutObject", arnSessions+key))
	}
	return append(calls, askOn(ByMachine, "s3", "GetObject", arnSessions+"bin/curfew"),
		SessionCall{
			ByMachine, "s3", "DeleteObjects",
			[]SessionAsk{{Action: "s3:DeleteObject", Resource: arnSessions + WorkKey + "node-0/parts/1/1"}},
		},
		askList(ByMachine, WorkKey+"node-0/"), askList(ByMachine, ControlKey+"order.json"))
}

// askRoles returns the launcher's calls on the role of a session.
func askRoles() []SessionCall {
	policy := map[string]string{"iam:PolicyARN": "{machine-policy}"}
	made := func(name, tag, resource string, keys map[string]string) SessionCall {
		return SessionCall{ByLauncher, "iam", name, []SessionAsk{
			{Action: "iam:" + name, Resource: resource, Makes: true, Keys: keys},
			{Action: "iam:" + tag, Resource: resource, Makes: true},
		}}
	}
	calls := []SessionCall{
		made("CreateRole", "TagRole", ofRole, map[string]string{"iam:PermissionsBoundary": "{machine-policy}"}),
		made("CreateInstanceProfile", "TagInstanceProfile", ofInstances, nil),
		{
			ByLauncher, "iam", "AttachRolePolicy",
			[]SessionAsk{{Action: "iam:AttachRolePolicy", Resource: ofRole, Keys: policy}},
		},
		{
			ByLauncher, "iam", "DetachRolePolicy",
			[]SessionAsk{{Action: "iam:DetachRolePolicy", Resource: ofRole, Keys: policy}},
		},
		{
			ByLauncher, "iam", "AddRoleToInstanceProfile", []SessionAsk{
				{Action: "iam:AddRoleToInstanceProfile", Resource: ofInstances, Has: true},
				{
					Action: "iam:PassRole", Resource: ofRole,
					Keys: map[string]string{"iam:PassedToService": "ec2.amazonaws.com"},
				}}},
		askAll(ByLauncher, "iam", "ListInstanceProfiles"), askAll(ByLauncher, "iam", "ListRoles"),
	}
	for _, c := range []struct{ name, resource string }{
		{"GetRole", ofRole}, {"DeleteRole", ofRole}, {"ListAttachedRolePolicies", ofRole},
		{"GetInstanceProfile", ofInstances}, {"DeleteInstanceProfile", ofInstances},
		{"RemoveRoleFromInstanceProfile", ofInstances},
	} {
		calls = append(calls, SessionCall{
			ByLauncher, "iam", c.name, []SessionAsk{{Action: "iam:" + c.name, Resource: c.resource, Has: true}},
		})
	}
	return calls
}

// askLaunch returns the IAM checks of RunInstances for machines of a session.
func askLaunch() []SessionAsk {
	asks := []SessionAsk{
		{
			Action: "ec2:RunInstances", Resource: arnEC2 + "instance/*", Makes: true,
			Keys: map[string]string{"ec2:MetadataHttpTokens": "required", "ec2:InstanceProfile": ofInstances},
		},
		{
			Action: "ec2:RunInstances", Resource: arnEC2 + "volume/*", Makes: true,
			Keys: map[string]string{"ec2:Encrypted": "true"},
		},
		{
			Action: "ec2:RunInstances", Resource: arnEC2 + "network-interface/*", Makes: true,
			Keys: map[string]string{"ec2:Subnet": arnEC2 + "subnet/{subnet}"},
		},
		{Action: "ec2:RunInstances", Resource: arnEC2 + "spot-instances-request/*", Makes: true},
		{Action: "ec2:RunInstances", Resource: arnEC2 + "subnet/{subnet}"},
		{Action: "ec2:RunInstances", Resource: arnEC2 + "security-group/{security-group}"},
		{Action: "ec2:RunInstances", Resource: "arn:{partition}:ec2:{region}::image/{image}"},
		{
			Action: "iam:PassRole", Resource: ofRole,
			Keys: map[string]string{"iam:PassedToService": "ec2.amazonaws.com"},
		},
	}
	for _, noun := range []string{"instance", "volume", "network-interface", "spot-instances-request"} {
		asks = append(asks, SessionAsk{
			Action: "ec2:CreateTags", Resource: arnEC2 + noun + "/*", Makes: true,
			Keys: map[string]string{"ec2:CreateAction": "RunInstances"},
		})
	}
	return asks
}

// askConnect returns the IAM checks of StartSession with a document.
func askConnect(document string) SessionCall {
	checked := map[string]string{"ssm:SessionDocumentAccessCheck": "true"}
	return SessionCall{ByPerson, "ssm", "StartSession", []SessionAsk{
		{Action: "ssm:StartSession", Resource: arnEC2 + "instance/{instance}", Has: true, Keys: checked},
		{Action: "ssm:StartSession", Resource: document, Keys: checked},
	}}
}

// SessionCalls returns every AWS call of sessions: curfew's calls to launch, find and end machines,
// people's calls to connect, and the agents' calls on machines. Session clients make only these.
// TestRoles of test/terraform checks the documents of terraform/backbone for each of them.
func SessionCalls() []SessionCall {
	calls := []SessionCall{
		{ByLauncher, "ec2", "RunInstances", askLaunch()},
		askEnd("TerminateInstances", "instance"), askEnd("DeleteVolume", "volume"),
		askEnd("DeleteNetworkInterface", "network-interface"),
		askEnd("CancelSpotInstanceRequests", "spot-instances-request"), askEnd("ReleaseAddress", "elastic-ip"),
		{ByLauncher, "sts", "GetCallerIdentity", nil}, // without an IAM check
		askOn(ByLauncher, "ssm", "GetParameter", "arn:{partition}:ssm:{region}::parameter/aws/service/{image}"),
		askOn(ByLauncher, "ssm", "GetParameters", arnSSM+"parameter/curfew/backbone/bucket"),
		askOn(ByLauncher, "ssm", "GetParametersByPath", arnSSM+"parameter/curfew/backbone"),
		askOn(ByLauncher, "logs", "FilterLogEvents",
			"arn:{partition}:logs:{region}:{account}:log-group:{log-group}:*"),
		askOn(ByLauncher, "logs", "GetLogEvents",
			"arn:{partition}:logs:{region}:{account}:log-group:{log-group}:log-stream:{instance}"),

		askConnect(arnSSM + "document/{session-document}"),
		askConnect("arn:{partition}:ssm:{region}::document/AWS-StartPortForwardingSession"),
		askConnect("arn:{partition}:ssm:{region}::document/AWS-StartSSHSession"),
		askOn(ByPerson, "ssm", "ResumeSession", arnSSM+"session/{person}-0a1b"),
		askOn(ByPerson, "ssm", "TerminateSession", arnSSM+"session/{person}-0a1b"),
		askOn(ByPerson, "ssmmessages", "OpenDataChannel", arnSSM+"session/{person}-0a1b"),
		askAll(ByPerson, "ec2", "DescribeInstances"), askAll(ByPerson, "ssm", "GetConnectionStatus"),
		askAll(ByPerson, "ssm", "DescribeSessions"),
		askOn(ByPerson, "ssm", "GetParameters", arnSSM+"parameter/curfew/backbone/session-document"),
		askOn(ByPerson, "kms", "GenerateDataKey", "{kms-key}"),

		askOn(ByMachine, "ssm", "GetParameters", arnSSM+"parameter/curfew/sessions/names/{name}/token"),
		askOn(ByMachine, "ssm", "GetParameter", arnSSM+"parameter/curfew/backbone/bucket"),
		askOn(ByMachine, "secretsmanager", "GetSecretValue",
			"arn:{partition}:secretsmanager:{region}:{account}:secret:curfew/sessions/shared/token-a1b2c3"),
		askOn(ByMachine, "logs", "CreateLogStream",
			"arn:{partition}:logs:{region}:{account}:log-group:{log-group}:log-stream:{instance}"),
		askOn(ByMachine, "logs", "PutLogEvents",
			"arn:{partition}:logs:{region}:{account}:log-group:{log-group}:log-stream:{instance}"),
		askOn(ByMachine, "logs", "DescribeLogStreams",
			"arn:{partition}:logs:{region}:{account}:log-group:{log-group}:log-stream:"),
		askOn(ByMachine, "kms", "Decrypt", "{kms-key}"),
		askOn(ByMachine, "s3", "GetObject", "arn:{partition}:s3:::{data-bucket}/imagenet/0001.tar"),
		{
			ByMachine, "s3", "ListObjectsV2",
			[]SessionAsk{{Action: "s3:ListBucket", Resource: "arn:{partition}:s3:::{data-bucket}"}},
		},
		askOn(ByMachine, "ecr", "BatchGetImage", "{repository}"), askOn(ByMachine, "ecr", "GetDownloadUrlForLayer",
			"{repository}"),
		askAll(ByMachine, "ecr", "GetAuthorizationToken"), askAll(ByMachine, "logs", "DescribeLogGroups"),
		askAll(ByMachine, "ssm", "UpdateInstanceInformation"),
		askAll(ByMachine, "ssmmessages", "CreateControlChannel"),
		askAll(ByMachine, "ssmmessages", "CreateDataChannel"),
		askAll(ByMachine, "ssmmessages", "OpenControlChannel"), askAll(ByMachine, "ssmmessages", "OpenDataChannel"),
	}
	for _, name := range []string{
		"DescribeAddresses", "DescribeImages", "DescribeInstanceStatus", "DescribeInstanceTypeOfferings",
		"DescribeInstanceTypes", "DescribeInstances", "DescribeNetworkInterfaces",
		"DescribeSecurityGroups", "DescribeSpotInstanceRequests", "DescribeSpotPriceHistory", "DescribeSubnets",
		"DescribeVolumes",
	} {
		calls = append(calls, askAll(ByLauncher, "ec2", name))
	}
	calls = append(calls, askAll(ByLauncher, "ssm", "DescribeInstanceInformation"))
	calls = append(calls, askRoles()...)
	calls = append(calls, askObjects(ControlKey+"order.json", ControlKey+"status-0.json", WorkKey+"node-0/0001")...)
	return append(calls, machineObjects()...)
}
