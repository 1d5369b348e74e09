package aws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// statement is one statement of an IAM policy.
type statement struct {
	Sid, Effect string
	Action      []string
	Resource    any                       // a string, or a list of them
	Condition   map[string]map[string]any `json:",omitempty"`
}

// inventoryObjects are the objects that S3 writes for an inventory: its manifest in a folder
// named by the minute, and its files, each named by a UUID (Amazon S3 User Guide,
// "Locating your inventory list"). No other object is asked for.
var inventoryObjects = []string{
	"*/????-??-??T??-??Z/manifest.json",
	"*/data/????????-????-????-????-????????????.csv.gz",
	"*/data/????????-????-????-????-????????????.parquet",
}

// Partitions are the partitions of AWS whose ARNs a policy can be written with: "aws", "aws-cn",
// "aws-us-gov".
func Partitions() []string {
	names := make([]string, len(partitions))
	for i := range partitions {
		names[i] = partitions[i].name
	}
	return names
}

// PolicyJSON returns the IAM policy that an audit in a partition needs, no more and no less, as
// indented JSON with a newline at its end. Of objects it allows only S3 Inventory's own
// files. Assuming roles in other accounts also needs sts:AssumeRole on those roles;
// fetching prices is not in it.
func PolicyJSON(partition string) []byte { return policyJSON(scanStatements(partition)...) }

func scanStatements(partition string) []statement {
	return []statement{
		{Sid: "CurfewScan", Effect: "Allow", Action: reads(func(o Operation) bool { return o.Scan }), Resource: "*"},
		{
			Sid: "CurfewInventories", Effect: "Allow", Action: index["s3:GetObject"].IAM(),
			Resource: bucketARNs(partition, inventoryObjects),
		},
	}
}

// bucketARNs are the ARNs of buckets, or of objects with their buckets.
func bucketARNs(partition string, names []string) []string {
	arns := make([]string, len(names))
	for i, name := range names {
		arns[i] = "arn:" + partition + ":s3:::" + name
	}
	return arns
}

// The conditions by tag (IAM User Guide, "AWS global condition context keys").
const (
	tagIs   = "aws:ResourceTag/"
	tagKeys = "aws:TagKeys"
	// createAction is the call that creates the tagged resource; only ec2:CreateTags knows it, and
	// only then (EC2 User Guide, "Grant permission to tag EC2 resources during creation").
	createAction = "ec2:CreateAction"
	// ignoringCase is how curfew compares the values of its own tags as well.
	ignoringCase = "StringEqualsIgnoreCase"
)

// Grants are the changes that the acting role may make.
type Grants struct {
	// Partition is the account's partition: "aws", "aws-cn" or "aws-us-gov".
	Partition string
	// Governed are tags besides curfew:managed=true: a resource with all tags of an element may be
	// ended. The value "*" is any.
	Governed []map[string]string
	// Buckets are the names of buckets whose lifecycle and tags may be changed. IAM knows no tags
	// of most buckets, and never which of them PutBucketTagging writes.
	Buckets []string
}

// deciding are the tags by which IAM decides which resources may be ended, or who may connect. The
// acting role can write none of them, nor those of [Grants.Governed], on existing resources.
var deciding = []string{
	inventory.TagInstallation, inventory.TagLifetime, inventory.TagManaged, TagPerson, inventory.TagScale,
	inventory.TagSession,
}

// resizes are the actions that set the size of a serving fleet.
var resizes = []string{
	"autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup",
	"sagemaker:UpdateEndpointWeightsAndCapacities",
}

// keys are the deciding tags, with those that g adds.
func (g Grants) keys() []string {
	all := slices.Clone(deciding)
	for _, tags := range g.Governed {
		for _, key := range slices.Sorted(maps.Keys(tags)) {
			if !slices.Contains(all, key) {
				all = append(all, key)
			}
		}
	}
	return all
}

// ActionPolicyJSON returns the IAM policy that acting needs, with the reading of
// [PolicyJSON], as indented JSON with a newline at its end. What ends work, takes resources away
// or takes an action back is allowed where curfew:managed=true is on a resource, and where all tags
// of an element of g.Governed are; ending is denied where curfew:lifetime=persistent is. The size of a
// fleet may be set where curfew:scale=true is, by which its owner consents whatever its lifetime. Writing
// those tags is denied, except on a snapshot that the same call makes: otherwise one would only
// have to write them first. EC2 takes DeleteTags without keys as all tags (API reference,
// DeleteTags), so that a call without keys is not allowed.
func ActionPolicyJSON(g Grants) []byte {
	of := func(wanted func(Mutation) bool) []string {
		var actions []string
		for _, m := range mutations {
			if wanted(m) {
				for _, a := range m.Actions {
					actions = append(actions, m.Service+":"+a)
				}
			}
		}
		return sorted(actions)
	}
	saves := of(func(m Mutation) bool { return m.Harm == Saves })
	describes := of(func(m Mutation) bool { return m.Harm == Describes && m.Tagged })
	governed := of(func(m Mutation) bool { return m.Harm >= Restores && m.Tagged })
	ends := of(func(m Mutation) bool { return m.Harm >= Halts && m.Tagged })
	others := slices.DeleteFunc(slices.Clone(ends), func(a string) bool { return slices.Contains(resizes, a) })
	statements := append(scanStatements(g.Partition),
		statement{
			Sid: "CurfewReadToAct", Effect: "Allow", Action: reads(func(o Operation) bool {
				return o.Act
			}), Resource: "*",
		},
		statement{Sid: "CurfewSave", Effect: "Allow", Action: saves, Resource: "*"},
		statement{Sid: "CurfewTag", Effect: "Allow", Action: describes, Resource: "*",
			Condition: map[string]map[string]any{"Null": {tagKeys: "false"}}})
	// A start is asked for these as well where a machine has them, and they end nothing (Service
	// Authorization Reference, ec2:StartInstances).
	statements = append(statements, statement{
		Sid: "CurfewStartWith", Effect: "Allow", Action: []string{"ec2:StartInstances"}, Resource: []string{
			"arn:" + g.Partition + ":license-manager:*:*:license-configuration:*",
			"arn:" + g.Partition + ":resource-groups:*:*:group/*"}})
	if len(g.Buckets) > 0 {
		byName := of(func(m Mutation) bool { return m.Harm >= Describes && !m.Tagged })
		statements = append(statements, statement{
			Sid: "CurfewBuckets", Effect: "Allow", Action: byName, Resource: bucketARNs(g.Partition, g.Buckets),
		})
	}
	for i, tags := range append([]map[string]string{{inventory.TagManaged: "true"}}, g.Governed...) {
		sid := "CurfewAct"
		if i > 0 {
			sid = fmt.Sprintf("CurfewActGoverned%d", i)
		}
		statements = append(statements, statement{
			Sid: sid, Effect: "Allow", Action: governed, Resource: "*", Condition: carries(tags),
		})
	}
	scale, neverScale := scaleStatements()
	return policyJSON(append(statements,
		scale,
		statement{Sid: "CurfewNeverPersistent", Effect: "Deny", Action: others, Resource: "*",
			Condition: map[string]map[string]any{
				ignoringCase: {tagIs + inventory.TagLifetime: string(inventory.Persistent)},
			}},
		neverScale,
		statement{
			Sid: "CurfewNeverRetag", Effect: "Deny", Action: taggings(describes), Resource: "*",
			Condition: map[string]map[string]any{
				"ForAnyValue:" + ignoringCase: {tagKeys: g.keys()}, "Null": {createAction: "true"}}},
	)...)
}

// scaleStatements allow to set the size of fleets by consent, and deny it for persistent ones without.
func scaleStatements() (allow, deny statement) {
	return statement{
			Sid: "CurfewScale", Effect: "Allow", Action: resizes, Resource: "*",
			Condition: carries(map[string]string{inventory.TagScale: "true"}),
		},
		statement{Sid: "CurfewNeverScalePersistent", Effect: "Deny", Action: resizes, Resource: "*",
			Condition: map[string]map[string]any{
				ignoringCase:                {tagIs + inventory.TagLifetime: string(inventory.Persistent)},
				"StringNotEqualsIgnoreCase": {tagIs + inventory.TagScale: "true"},
			}}
}

// taggings returns a pattern for each service with a tagging action. A denial may be wide, because calls
// without tag keys are not concerned, and the patterns keep the policy within IAM's quota.
func taggings(actions []string) []string {
	var out []string
	for _, a := range actions {
		service, _, _ := strings.Cut(a, ":")
		out = append(out, service+":*Tag*")
	}
	return slices.Compact(out)
}

// carries is the condition that a resource has all these tags.
func carries(tags map[string]string) map[string]map[string]any {
	c := map[string]map[string]any{}
	for key, value := range tags {
		operator, operand := ignoringCase, value
		if value == "*" {
			operator, operand = "Null", "false"
		}
		if c[operator] == nil {
			c[operator] = map[string]any{}
		}
		c[operator][tagIs+key] = operand
	}
	return c
}

// reads returns the IAM actions of the operations that are wanted.
func reads(wanted func(Operation) bool) []string {
	var actions []string
	for _, o := range operations {
		if wanted(o) {
			actions = append(actions, o.IAM()...)
		}
	}
	return sorted(actions)
}

func sorted(actions []string) []string {
	slices.Sort(actions)
	return slices.Compact(actions)
}

func policyJSON(statements ...statement) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", statements}); err != nil {
		panic("encode the policy: " + err.Error()) // strings always encode
	}
	return b.Bytes()
}
