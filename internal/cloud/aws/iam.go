package aws

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	"arn:aws:s3:::*/????-??-??T??-??Z/manifest.json",
	"arn:aws:s3:::*/data/????????-????-????-????-????????????.csv.gz",
	"arn:aws:s3:::*/data/????????-????-????-????-????????????.parquet",
}

// PolicyJSON returns the IAM policy that an audit needs, no more and no less, as
// indented JSON with a newline at its end. Of objects it allows only S3 Inventory's own
// files. Assuming roles in other accounts also needs sts:AssumeRole on those roles;
// fetching prices is not in it.
func PolicyJSON() []byte { return policyJSON(scanStatements()...) }

func scanStatements() []statement {
	return []statement{{Sid: "CurfewScan", Effect: "Allow", Action: reads(func(o Operation) bool { return o.Scan }), Resource: "*"},
		{Sid: "CurfewInventories", Effect: "Allow", Action: index["s3:GetObject"].IAM(), Resource: inventoryObjects}}
}

// The conditions by tag (IAM User Guide, "AWS global condition context keys").
const (
	tagIs   = "aws:ResourceTag/"
	tagKeys = "aws:TagKeys"
	// ignoringCase is how curfew compares the values of its own tags as well.
	ignoringCase = "StringEqualsIgnoreCase"
)

// ActionPolicyJSON returns the IAM policy that acting needs, with the reading of
// [PolicyJSON], as indented JSON with a newline at its end. What is tagged curfew:lifetime=persistent
// it denies to stop or to destroy, and to be called anything else, wherever IAM
// decides by the tags of a resource; the lifecycle of buckets it cannot deny so. What takes
// resources away or ends work is allowed where curfew:managed=true is on them, and where
// all tags of an entry of governed are; the value "*" is any.
func ActionPolicyJSON(governed []map[string]string) []byte {
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
	gentle := of(func(m Mutation) bool { return m.Harm == Harmless && m.Service != "s3" })
	untold := of(func(m Mutation) bool { return m.Service == "s3" })
	harmful := of(func(m Mutation) bool { return m.Harm != Harmless && m.Tagged })
	writesTags := of(func(m Mutation) bool { return m.Tagged && strings.Contains(strings.ToLower(m.Name), "tag") })
	persistent := map[string]any{tagIs + inventory.TagLifetime: string(inventory.Persistent)}
	statements := append(scanStatements(),
		statement{Sid: "CurfewReadToAct", Effect: "Allow", Action: reads(func(o Operation) bool { return o.Act }), Resource: "*"},
		statement{Sid: "CurfewKeepAndDescribe", Effect: "Allow", Action: gentle, Resource: "*"},
		statement{Sid: "CurfewBuckets", Effect: "Allow", Action: untold, Resource: "*"},
		statement{Sid: "CurfewAct", Effect: "Allow", Action: harmful, Resource: "*", Condition: carries(map[string]string{inventory.TagManaged: "true"})})
	for i, tags := range governed {
		statements = append(statements, statement{Sid: fmt.Sprintf("CurfewActGoverned%d", i+1), Effect: "Allow", Action: harmful, Resource: "*", Condition: carries(tags)})
	}
	return policyJSON(append(statements,
		statement{Sid: "CurfewNeverPersistent", Effect: "Deny", Action: harmful, Resource: "*", Condition: map[string]map[string]any{ignoringCase: persistent}},
		// Otherwise one would only have to call it ephemeral first.
		statement{Sid: "CurfewNeverRenamePersistent", Effect: "Deny", Action: writesTags, Resource: "*", Condition: map[string]map[string]any{
			ignoringCase: persistent, "ForAnyValue:StringEqualsIgnoreCase": {tagKeys: []string{inventory.TagLifetime, inventory.TagManaged}}}},
	)...)
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
