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

// inventoryObjects are the objects that S3 writes for an inventory: its manifest in a folder named
// by the minute, and its files, each named by a UUID (Amazon S3 User Guide, "Locating your
// inventory list"). No other object is read.
var inventoryObjects = []string{
	"*/????-??-??T??-??Z/manifest.json",
	"*/data/????????-????-????-????-????????????.csv.gz",
	"*/data/????????-????-????-????-????????????.parquet",
}

// Partitions returns the AWS partitions for which a policy can be written: "aws", "aws-cn",
// "aws-us-gov".
func Partitions() []string {
	names := make([]string, len(partitions))
	for i := range partitions {
		names[i] = partitions[i].name
	}
	return names
}

// PolicyJSON returns the exact IAM policy of an audit in a partition, as indented JSON with a final
// newline. Of objects it allows only S3 Inventory's own files. Assuming roles in other accounts
// also needs sts:AssumeRole on those roles; fetching prices is not included.
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

// bucketARNs returns the ARNs of buckets, or of objects with their buckets.
func bucketARNs(partition string, names []string) []string {
	arns := make([]string, len(names))
	for i, name := range names {
		arns[i] = "arn:" + partition + ":s3:::" + name
	}
	return arns
}

// Condition keys for tags (IAM User Guide, "AWS global condition context keys").
const (
	tagIs   = "aws:ResourceTag/"
	tagKeys = "aws:TagKeys"
	// createAction is the call that creates the tagged resource; only ec2:CreateTags supports it,
	// during creation (EC2 User Guide, "Grant permission to tag EC2 resources during creation").
	createAction = "ec2:CreateAction"
	// ignoringCase matches curfew's own comparison of its tags.
	ignoringCase = "StringEqualsIgnoreCase"
)

// Grants are the changes allowed to the acting role.
type Grants struct {
	// Partition is the account's partition: "aws", "aws-cn" or "aws-us-gov".
	Partition string
	// Governed are tags besides curfew:managed=true: a resource with all tags of an element may be
	// ended. The value "*" matches any.
	Governed []map[string]string
	// Buckets are the buckets whose lifecycle and tags may be changed. IAM cannot use the tags of
	// most buckets, nor see which tags PutBucketTagging writes.
	Buckets []string
}

// deciding are the tags by which IAM decides which resources may be ended, or who may connect. The
// acting role cannot write them, nor those of [Grants.Governed], on existing resources.
var deciding = []string{
	inventory.TagInstallation, inventory.TagLifetime, inventory.TagManaged, TagPerson, inventory.TagScale,
	inventory.TagSession,
}

// resizes are the actions that resize a serving fleet.
var resizes = []string{
	"autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup",
	"sagemaker:UpdateEndpointWeightsAndCapacities",
}

// keys returns the deciding tags and those added by g.
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

// ActionPolicyJSON returns the IAM policy for acting, to be used with that of [PolicyJSON], as
// indented JSON with a final newline. Ending work, removing resources and undoing actions are
// allowed on resources with curfew:managed=true, or with all tags of an element of g.Governed;
// ending is denied with curfew:lifetime=persistent. Resizing a fleet is allowed with
// curfew:scale=true, the owner's consent for any lifetime. Writing those tags is denied, except on
// a snapshot created by the same call: otherwise the role could grant itself access. EC2 treats
// DeleteTags without keys as all tags (API reference, DeleteTags), so a call without keys is not
// allowed.
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
	// A start also requires these if a machine has them; they end nothing (Service Authorization
	// Reference, ec2:StartInstances).
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

// scaleStatements allow resizing fleets with consent, and deny it for persistent ones without.
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

// taggings returns a pattern for each service with a tagging action. The denial may be wide,
// because calls without tag keys are not affected, and patterns keep the policy within IAM's quota.
func taggings(actions []string) []string {
	var out []string
	for _, a := range actions {
		service, _, _ := strings.Cut(a, ":")
		out = append(out, service+":*Tag*")
	}
	return slices.Compact(out)
}

// carries returns the condition that a resource has all the given tags.
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

// reads returns the IAM actions of the selected operations.
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
