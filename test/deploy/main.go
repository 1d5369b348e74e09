// Command deploy writes the permissions in deploy/cloudformation, deploy/terraform and
// terraform/backbone from the IAM policies that curfew prints, and the prices in
// terraform/backbone from the price book. Run it from the root of the repository:
// go run ./test/deploy
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/price"
)

const (
	template = "deploy/cloudformation/curfew-member-role.yaml"
	module   = "deploy/terraform/member-roles/policies.tf"
	backbone = "terraform/backbone/policies.tf"
	prices   = "terraform/backbone/prices.tf"
)

func main() {
	files, err := generate(".")
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(name, text, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
}

// statement is one statement, its values as JSON.
type statement struct {
	Sid, Effect string
	Action      []string
	Resource    any
	Condition   map[string]map[string]any
}

// Statements that depend on parameters: governed is present if an account governs by further tags,
// buckets if it names buckets, and retag also denies the keys of the further tags.
const (
	governed = "CurfewActGoverned1"
	buckets  = "CurfewBuckets"
	retag    = "CurfewNeverRetag"
)

// conditions maps statements of the template to their conditions.
var conditions = map[string]string{governed: "GovernsEphemeral", buckets: "NamesBuckets"}

// grants returns the permissions that the template and the module offer in a partition, in addition
// to those for curfew:managed=true. The module takes other tags; both take other buckets.
func grants(partition string) aws.Grants {
	return aws.Grants{
		Partition: partition,
		Governed:  []map[string]string{{inventory.TagLifetime: string(inventory.Ephemeral)}},
		Buckets:   []string{"named"},
	}
}

// The partition expressions of the template and of the modules.
const (
	templatePartition = "${AWS::Partition}"
	modulePartition   = "${local.partition}"
)

// generate returns the files with the current permissions, by their paths from root.
func generate(root string) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, template))
	if err != nil {
		return nil, err
	}
	hcl := "# Written by go run ./test/deploy from what curfew prints with --print-iam-policy.\nlocals {\n"
	for _, p := range []struct {
		name  string
		print func(partition string) []byte
	}{
		{"scan", aws.PolicyJSON},
		{"enforce", func(partition string) []byte { return aws.ActionPolicyJSON(grants(partition)) }},
	} {
		var inTemplate, inModule struct{ Statement []statement }
		if err := json.Unmarshal(p.print(templatePartition), &inTemplate); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(p.print(modulePartition), &inModule); err != nil {
			return nil, err
		}
		if text, err = section(text, p.name, yamlOf(inTemplate.Statement)); err != nil {
			return nil, err
		}
		hcl += hclOf(p.name, inModule.Statement)
	}
	policies := []byte(strings.TrimSuffix(hcl, "\n") + "}\n")
	rates, err := pricesOf()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		template: text, module: policies, backbone: policies, prices: rates, machineFile: machineHCL(),
	}, nil
}

// charged lists the rates that make up the backbone's costs, by their names there.
var charged = []struct {
	name string
	item price.Item
}{
	{"address", price.ItemAddress}, {"nat", price.ItemNAT}, {"nat-data", price.ItemNATData},
	{"s3", price.ItemS3Standard},
	{"s3-infrequent", price.ItemS3StandardIA},
	{"ecr", price.ItemECR}, {"logs-ingest", price.ItemLogsIngest}, {"logs-storage", price.ItemLogsStorage},
}

// pricesOf writes the rates of every region for which the price book is complete. Other regions
// have no prices there.
func pricesOf() ([]byte, error) {
	book, err := price.Embedded()
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString(
		"# Written by go run ./test/deploy from the price book, internal/price/data/rates.csv.\nlocals {\n  " +
			"prices = {\n")
	for _, region := range book.Regions() {
		var lines strings.Builder
		whole := true
		for _, c := range charged {
			p, err := book.Rate(c.item, region)
			if whole = whole && err == nil; whole {
				fmt.Fprintf(&lines, "      %-15s = { usd = %s, unit = %q, source = %q, as_of = %q }\n", quote(c.name),
					p.Rate,
					p.Unit, p.Source, p.AsOf.Format(time.DateOnly))
			}
		}
		if whole {
			fmt.Fprintf(&b, "    %q = {\n%s    }\n", region, lines.String())
		}
	}
	b.WriteString("  }\n}\n")
	return []byte(b.String()), nil
}

// section replaces the text between the named markers.
func section(text []byte, name, with string) ([]byte, error) {
	begin, end := []byte("            # Begin of "+name+", written by go run ./test/deploy\n"), []byte(
		"            # End of "+name+"\n")
	i, j := bytes.Index(text, begin), bytes.Index(text, end)
	if i < 0 || j < i {
		return nil, fmt.Errorf("%s has no marks of %s", template, name)
	}
	return bytes.Join([][]byte{text[:i+len(begin)], []byte(with), text[j:]}, nil), nil
}

// quote returns a value as JSON, which is also valid YAML and HCL.
func quote(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // lists of strings can always be encoded
	}
	return string(raw)
}

// yamlOf writes statements as the document of a policy in the template.
func yamlOf(all []statement) string {
	const base = "            "
	var b strings.Builder
	b.WriteString(base + "Version: \"2012-10-17\"\n" + base + "Statement:\n")
	for _, s := range all {
		first, indent := base+"  - ", base+"    "
		if conditions[s.Sid] != "" {
			b.WriteString(first + "Fn::If:\n" + indent + "  - " + conditions[s.Sid] + "\n")
			first, indent = indent+"  - ", indent+"    "
		}
		fmt.Fprintf(&b, "%sSid: %s\n%sEffect: %s\n%sAction:\n", first, s.Sid, indent, s.Effect, indent)
		for _, a := range s.Action {
			b.WriteString(indent + "  - " + a + "\n")
		}
		list, ok := s.Resource.([]any)
		switch {
		case s.Sid == buckets:
			b.WriteString(indent + "Resource: {Ref: GovernedBuckets}\n")
		case ok:
			b.WriteString(indent + "Resource:\n")
			for _, r := range list {
				b.WriteString(indent + "  - Fn::Sub: " + quote(r) + "\n")
			}
		default:
			b.WriteString(indent + "Resource: " + quote(s.Resource) + "\n")
		}
		if len(s.Condition) > 0 {
			b.WriteString(indent + "Condition:\n")
			for _, operator := range keys(s.Condition) {
				name := operator
				if name == "Null" {
					name = quote(name) // unquoted, YAML would not read it as a string
				}
				b.WriteString(indent + "  " + name + ":\n")
				for _, key := range keys(s.Condition[operator]) {
					b.WriteString(indent + "    " + key + ": " + quote(s.Condition[operator][key]) + "\n")
				}
			}
		}
		if conditions[s.Sid] != "" {
			b.WriteString(base + "      - {Ref: AWS::NoValue}\n")
		}
	}
	return b.String()
}

// hclOf writes statements as a local value. Variables enable those that depend on parameters.
func hclOf(name string, all []statement) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s = jsonencode({\n    Version = \"2012-10-17\"\n    Statement = concat([\n", name)
	for _, s := range all {
		sid, end := quote(s.Sid), "},\n"
		open := "      {\n"
		switch s.Sid {
		case governed:
			sid, open, end = `"CurfewActGoverned${i + 1}"`, "      ], [\n      for i, tags in var.governed_tags : {\n",
				"}\n      ], [\n"
		case buckets:
			open, end = "      ], [\n      for names in [var.governed_buckets] : {\n",
				"} if length(names) > 0\n      ], [\n"
		}
		fmt.Fprintf(&b, "%s        Sid    = %s\n        Effect = %q\n        Action = [\n", open, sid, s.Effect)
		for _, a := range s.Action {
			b.WriteString("          " + quote(a) + ",\n")
		}
		b.WriteString("        ]\n        Resource = ")
		list, ok := s.Resource.([]any)
		switch {
		case s.Sid == buckets:
			b.WriteString("[for name in names : \"arn:" + modulePartition + ":s3:::${name}\"]\n")
		case ok:
			b.WriteString("[\n")
			for _, r := range list {
				b.WriteString("          " + quote(r) + ",\n")
			}
			b.WriteString("        ]\n")
		default:
			b.WriteString(quote(s.Resource) + "\n")
		}
		switch {
		case s.Sid == governed:
			b.WriteString("        Condition = {\n          StringEqualsIgnoreCase = { for key, value in tags : " +
				"\"aws:ResourceTag/${key}\" => value }\n        }\n")
		case len(s.Condition) > 0:
			b.WriteString("        Condition = {\n")
			for _, operator := range keys(s.Condition) {
				b.WriteString("          " + quote(operator) + " = {\n")
				for _, key := range keys(s.Condition[operator]) {
					value := strings.ReplaceAll(quote(s.Condition[operator][key]), `","`, `", "`)
					if s.Sid == retag && key == "aws:TagKeys" {
						value = "distinct(concat(" + value +
							", flatten([for tags in var.governed_tags : keys(tags)])))"
					}
					b.WriteString("            " + quote(key) + " = " + value + "\n")
				}
				b.WriteString("          }\n")
			}
			b.WriteString("        }\n")
		}
		b.WriteString("      " + end)
	}
	b.WriteString("    ])\n  })\n\n")
	return b.String()
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// machineFile contains the statements of the machine policy.
const machineFile = "terraform/backbone/machine.tf"

// machineHCL writes the statements of the machine policy as a local value. access.tf adds those of
// the datasets in variables.
func machineHCL() []byte {
	// Values for Terraform are in double braces, so that policy variables can be escaped.
	fill := strings.NewReplacer("${", "$${", "{{", "${", "}}", "}")
	all := aws.MachinePolicy(aws.MachineNames{
		Partition:  "{{local.partition}}",
		Region:     "{{local.region}}",
		Account:    "{{local.account}}",
		Sessions:   "{{local.sessions}}",
		Repository: "{{aws_ecr_repository.sessions.arn}}",
		Key:        "{{aws_kms_key.logs.arn}}",
		Logs: []string{
			"{{aws_cloudwatch_log_group.this[\"sessions\"].arn}}:*",
			"{{aws_cloudwatch_log_group.this[\"terminals\"].arn}}:*",
		},
	})
	list := func(b *strings.Builder, indent, name string, values []string) {
		b.WriteString(indent + name + " = [\n")
		for _, v := range values {
			text := strings.ReplaceAll(fill.Replace(quote(v)), `\"`, `"`)
			b.WriteString(indent + "  " + text + ",\n")
		}
		b.WriteString(indent + "]\n")
	}
	var b strings.Builder
	b.WriteString("# Written by go run ./test/deploy from the machine policy, " +
		"internal/cloud/aws/sessionroles.go.\nlocals {\n  machine = [\n")
	for _, s := range all {
		fmt.Fprintf(&b, "    {\n      Sid    = %q\n      Effect = %q\n", s.Sid, s.Effect)
		list(&b, "      ", "Action", s.Action)
		list(&b, "      ", "Resource", s.Resource)
		if len(s.Condition) > 0 {
			b.WriteString("      Condition = {\n")
			for _, operator := range keys(s.Condition) {
				b.WriteString("        " + quote(operator) + " = {\n")
				for _, key := range keys(s.Condition[operator]) {
					values, _ := s.Condition[operator][key].([]string)
					list(&b, "          ", quote(key), values)
				}
				b.WriteString("        }\n")
			}
			b.WriteString("      }\n")
		}
		b.WriteString("    },\n")
	}
	b.WriteString("  ]\n}\n")
	return []byte(b.String())
}
