package aws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/iam"
)

// memberRoles reads the reading and the acting role of the CloudFormation template.
func memberRoles(govern string) (read, act iam.Role, err error) {
	roles, err := iam.Template("../../../deploy/cloudformation/curfew-member-role.yaml", map[string]string{
		"CentralRoleArn": "arn:aws:iam::111122223333:role/curfew", "ExternalId": "x1", "Act": "true", "Govern": govern,
		"GovernedBuckets": bucket})
	return roles["ReadRole"], roles["ActRole"], err
}

// bucket is the bucket that the tests' roles may change.
const bucket = "arn:aws:s3:::models"

var managed = map[string]string{inventory.TagManaged: "true"}

// RefusedByRoles returns the calls, as "service:Operation", that the member roles do not allow:
// reads by the reading role, calls around an action by the acting role, on a managed resource.
func RefusedByRoles(calls []string) ([]string, error) {
	read, act, err := memberRoles("managed")
	if err != nil {
		return nil, err
	}
	var refused []string
	for _, name := range calls {
		role, actions, known := act.Policy, []string(nil), false
		if o := index[name]; o != nil {
			if known = !o.Scan && !o.Act; known {
				continue // prices, bills, and assuming the role
			}
			if o.Scan {
				role = read.Policy
			}
			actions, known = o.IAM(), true
		}
		for _, m := range mutations {
			if m.API() == name {
				for _, a := range m.Actions {
					actions, known = append(actions, m.Service+":"+a), true
				}
			}
		}
		for _, a := range actions {
			r := iam.Request{Action: a, Tags: managed, TagKeys: []string{inventory.TagKeepUntil}}
			if strings.HasPrefix(a, "s3:Put") {
				r.Resource = bucket
			}
			ok, err := role.Allows(r)
			if err != nil {
				return nil, err
			}
			known = known && ok
		}
		if !known {
			refused = append(refused, name)
		}
	}
	return refused, nil
}

// OnlyLaunches reports whether only a launcher or connector makes a call: the reading and acting
// roles refuse it, and the backbone has other documents for it (terraform/backbone).
func OnlyLaunches(name string) bool {
	return (launchable()[name] || connectable()[name]) && index[name] == nil && !mutable()[name]
}

func TestMemberRoles(t *testing.T) {
	read, act, err := memberRoles("managed")
	if err != nil {
		t.Fatal(err)
	}
	_, wide, err := memberRoles("ephemeral")
	if err != nil {
		t.Fatal(err)
	}
	check := func(role string, p *iam.Policy, r iam.Request, want bool) {
		t.Helper()
		if got, err := p.Allows(r); err != nil || got != want {
			t.Errorf("%s, %+v: allowed %v, want %v (%v)", role, r, got, want, err)
		}
	}
	for _, o := range operations {
		if o.API() == "s3:GetObject" {
			continue
		}
		for _, a := range o.IAM() {
			listed := func(which func(Operation) bool) bool {
				return slices.ContainsFunc(operations, func(o Operation) bool {
					return which(o) && slices.Contains(o.IAM(), a)
				})
			}
			scans := listed(func(o Operation) bool { return o.Scan })
			check("read", read.Policy, iam.Request{Action: a}, scans)
			check("act", act.Policy, iam.Request{Action: a}, scans || listed(func(o Operation) bool { return o.Act }))
		}
	}
	for object, want := range map[string]bool{
		"arn:aws:s3:::lists/of/source/2026-11-20T01-00Z/manifest.json": true,
		"arn:aws:s3:::train/data/shard-0001.parquet":                   false,
	} {
		check("read", read.Policy, iam.Request{Action: "s3:GetObject", Resource: object}, want)
	}
	persistent := map[string]string{inventory.TagLifetime: "Persistent", inventory.TagManaged: "true"}
	ephemeral := map[string]string{inventory.TagLifetime: "ephemeral"}
	for _, m := range mutations {
		for _, a := range m.Actions {
			action := m.Service + ":" + a
			check("read", read.Policy, iam.Request{
				Action: action, Tags: managed, TagKeys: []string{"owner"}, Resource: bucket,
			},
				false)
			switch {
			case !m.Tagged && m.Service == "s3":
				for _, p := range []*iam.Policy{act.Policy, wide.Policy} {
					check("act", p, iam.Request{Action: action, Resource: bucket}, true)
					check("act", p, iam.Request{Action: action, Resource: bucket + "-2", Tags: managed}, false)
				}
			case m.Harm == Saves:
				check("act", act.Policy, iam.Request{Action: action}, true)
			case m.Harm == Describes:
				checkTagging(t, check, action, act.Policy, persistent)
				checkTagging(t, check, action, wide.Policy, persistent)
			default:
				check("act", act.Policy, iam.Request{Action: action, Tags: managed}, true)
				check("act", act.Policy, iam.Request{Action: action}, false)
				check("act", act.Policy, iam.Request{Action: action, Tags: ephemeral}, false)
				check("act, ephemeral", wide.Policy, iam.Request{Action: action, Tags: ephemeral}, true)
				check("act, ephemeral", wide.Policy, iam.Request{Action: action}, false)
				for _, p := range []*iam.Policy{act.Policy, wide.Policy} {
					check("act", p, iam.Request{Action: action, Tags: persistent}, m.Harm == Restores)
				}
			}
		}
	}
	if refused, err := RefusedByRoles([]string{
		"ec2:RunInstances", "ec2:StopInstances", "ec2:DescribeInstances",
	}); err !=
		nil || len(refused) != 1 {
		t.Errorf("refused %q, %v; want ec2:RunInstances alone", refused, err)
	}
	for _, role := range []iam.Role{read, act} {
		want := "map[Statement:[map[Action:sts:AssumeRole Condition:map[StringEquals:map[sts:ExternalId:x1]] " +
			"Effect:Allow " +
			"Principal:map[AWS:arn:aws:iam::111122223333:role/curfew]]] Version:2012-10-17]"
		if got := fmt.Sprint(role.Trust); got != want {
			t.Errorf("trust %s, want %s", got, want)
		}
	}
}

// checkTagging checks that any tag may be written except those by which IAM decides, which may be
// written only on resources created by the same call. EC2 treats a call without keys as removing
// all tags.
func checkTagging(t *testing.T, check func(string, *iam.Policy, iam.Request, bool), action string, p *iam.Policy,
	persistent map[string]string) {
	t.Helper()
	for _, tags := range []map[string]string{nil, managed, persistent} {
		check("act", p, iam.Request{
			Action: action, Tags: tags, TagKeys: []string{inventory.TagKeepUntil, "owner"},
		}, true)
		check("act", p, iam.Request{Action: action, Tags: tags}, false)
		for _, key := range []string{
			inventory.TagLifetime, "Curfew:Managed", inventory.TagInstallation, inventory.TagSession, TagPerson,
		} {
			check("act", p, iam.Request{Action: action, Tags: tags, TagKeys: []string{"owner", key}}, false)
		}
	}
	if action == "ec2:CreateTags" {
		r := iam.Request{
			Action: action, TagKeys: []string{inventory.TagLifetime, actionTag},
			Keys: map[string]string{"ec2:CreateAction": "CreateSnapshots"},
		}
		check("act", p, r, true)
	}
}

// TestPolicySizes compares the policies with IAM's quotas, without white space: 6,144 characters
// for a managed policy, 10,240 for all inline policies of a role.
func TestPolicySizes(t *testing.T) {
	for name, tc := range map[string]struct {
		policy []byte
		most   int
	}{
		"scan":    {PolicyJSON("aws-us-gov"), 6144},
		"enforce": {ActionPolicyJSON(Grants{Partition: "aws-us-gov"}), 6144},
		"enforce, governed by five": {ActionPolicyJSON(Grants{
			Partition: "aws-us-gov",
			Governed:  slices.Repeat([]map[string]string{managed}, 5),
			Buckets:   slices.Repeat([]string{strings.Repeat("b", 63)}, 5),
		}), 10240},
	} {
		var b bytes.Buffer
		if err := json.Compact(&b, tc.policy); err != nil {
			t.Fatal(err)
		}
		if b.Len() > tc.most {
			t.Errorf("%s has %d characters, over %d", name, b.Len(), tc.most)
		}
	}
}
