// Command schema writes the schema of the stand-in for Terraform's AWS provider, and the list
// of attributes that estimates have to know, from the npm packages @cdktf/provider-aws,
// @cdktf/provider-google and @cdktf/provider-azurerm, which are generated from the schemas of
// the real providers (make terraform-schema).
//
// What it reads: the attributes and blocks that a configuration may have (index.js), which of
// them are required (index.d.ts), and what only the provider sets (index.js). The package does
// not say which optional attributes the provider fills in where they are left out: all may be.
// It leaves out lists of objects that only the provider sets.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// out is the path of the schema, attributesOut that of the list of attributes, from the root of the
// repository.
const (
	out           = "test/terraform/provider/schema.json"
	attributesOut = "internal/estimate/testdata/schema.txt"
)

// resources and data are those used in terraform/, as folders of the package.
var (
	resources = []string{
		"cloudwatch-log-group", "default-security-group", "ecr-lifecycle-policy", "ecr-repository", "eip",
		"iam-instance-profile", "iam-policy",
		"iam-role", "iam-role-policy", "iam-role-policy-attachment", "instance",
		"internet-gateway", "kms-alias", "kms-key",
		"nat-gateway", "route", "route-table",
		"route-table-association", "s3-bucket", "s3-bucket-lifecycle-configuration", "s3-bucket-ownership-controls",
		"s3-bucket-policy",
		"s3-bucket-public-access-block", "s3-bucket-server-side-encryption-configuration", "s3-bucket-versioning",
		"security-group", "ssm-document",
		"ssm-parameter", "subnet", "vpc", "vpc-endpoint", "vpc-security-group-egress-rule",
		"vpc-security-group-ingress-rule",
	}
	data = []string{
		"data-aws-availability-zones", "data-aws-caller-identity", "data-aws-partition", "data-aws-region",
		"data-aws-ssm-parameter",
	}
)

// Schema is one provider in the form of `terraform providers schema -json`.
type Schema struct {
	Source      string              `json:"source"`
	Version     string              `json:"version"`
	Provider    Resource            `json:"provider"`
	Resources   map[string]Resource `json:"resource_schemas"`
	DataSources map[string]Resource `json:"data_source_schemas"`
}

// Resource is the schema of a resource or data source.
type Resource struct {
	Version int   `json:"version"`
	Block   Block `json:"block"`
}

// Block is the content between two braces.
type Block struct {
	Attributes map[string]Attribute `json:"attributes,omitempty"`
	BlockTypes map[string]Nested    `json:"block_types,omitempty"`
}

// Attribute is one argument. Type is Terraform's JSON form of a type.
type Attribute struct {
	Type     any  `json:"type"`
	Required bool `json:"required,omitempty"`
	Optional bool `json:"optional,omitempty"`
	Computed bool `json:"computed,omitempty"`
}

// Nested is a block in a block.
type Nested struct {
	Mode     string `json:"nesting_mode"`
	Block    Block  `json:"block"`
	MinItems int    `json:"min_items,omitempty"`
	MaxItems int    `json:"max_items,omitempty"`
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: schema AWS GOOGLE AZURERM, the folders of the unpacked packages")
		os.Exit(2)
	}
	err := write(os.Args[1], out)
	if err == nil {
		err = writeAttributes(os.Args[1:], attributesOut)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

// packed is the provider that a package was generated from.
type packed struct{ Name, Version string }

// provider returns the provider that a package was generated from.
func provider(dir string) (packed, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return packed{}, err
	}
	var pack struct {
		CDKTF struct{ Provider packed }
	}
	if err := json.Unmarshal(raw, &pack); err != nil {
		return packed{}, err
	}
	if pack.CDKTF.Provider.Version == "" {
		return packed{}, fmt.Errorf("%s/package.json names no provider", dir)
	}
	return pack.CDKTF.Provider, nil
}

func write(dir, out string) error {
	p, err := provider(dir)
	if err != nil {
		return err
	}
	s := Schema{
		Source: p.Name, Version: p.Version, Resources: map[string]Resource{}, DataSources: map[string]Resource{},
	}
	for into, folders := range map[*map[string]Resource][]string{&s.Resources: resources, &s.DataSources: data} {
		for _, f := range folders {
			name, r, err := read(filepath.Join(dir, "lib", f))
			if err != nil {
				return fmt.Errorf("%s: %w", f, err)
			}
			(*into)[name] = r
		}
	}
	if _, s.Provider, err = read(filepath.Join(dir, "lib", "provider")); err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	raw, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(raw, '\n'), 0o644)
}

var (
	kind      = regexp.MustCompile(`terraform(?:Resource|Provider)Type: '(\w+)'`)
	structure = regexp.MustCompile(`(?s)function (\w+)ToHclTerraform\(struct\) \{(.*?)\n\}\n`)
	top       = regexp.MustCompile(`(?s)synthesizeHclAttributes\(\) \{(.*?)\n    \}\n`)
	entry     = regexp.MustCompile(
		`(?m)^            (\w+): \{\n\s+value: (.*),\n\s+isBlock: (true|false),\n\s+type: "(\w+)",\n\s+storageClassType: "(\w+)",\n`)
	nested   = regexp.MustCompile(`^ {8}(\w+): \{$`)
	computed = regexp.MustCompile(
		`(?m)^    // (\w+) - computed: true, optional: false, required: false\n    get \w+\(\) \{\n\s+return (.*);\n`)
	iface    = regexp.MustCompile(`(?s)export interface (\w+)(?: extends [\w.]+)? \{(.*?)\n\}\n`)
	property = regexp.MustCompile(`#(\w+) \w+#\w+\}(?s:.*?)\n    readonly \w+(\??):`)
)

// source is the two files of one resource.
type source struct {
	structs  map[string]string          // body of a structure's mapping, by its name in lower case
	required map[string]map[string]bool // by interface in lower case and argument
	single   map[string]bool            // structures with at most one occurrence, in lower case
	js       string
}

// read parses one folder of the package.
func read(dir string) (string, Resource, error) {
	js, err := os.ReadFile(filepath.Join(dir, "index.js"))
	if err != nil {
		return "", Resource{}, err
	}
	ts, err := os.ReadFile(filepath.Join(dir, "index.d.ts"))
	if err != nil {
		return "", Resource{}, err
	}
	s := source{
		structs: map[string]string{}, required: map[string]map[string]bool{},
		single: map[string]bool{}, js: string(js),
	}
	for _, m := range structure.FindAllStringSubmatch(s.js, -1) {
		s.structs[strings.ToLower(m[1])] = m[2]
	}
	config := ""
	for _, m := range iface.FindAllStringSubmatch(string(ts), -1) {
		if strings.HasSuffix(m[1], "Config") && config == "" {
			config = strings.ToLower(m[1])
		}
		of := map[string]bool{}
		for _, p := range property.FindAllStringSubmatch(m[2], -1) {
			of[p[1]] = p[2] == ""
		}
		s.required[strings.ToLower(m[1])] = of
	}
	name, body := kind.FindStringSubmatch(s.js), top.FindStringSubmatch(s.js)
	if name == nil || config == "" {
		return "", Resource{}, fmt.Errorf("no resource in %s", dir)
	}
	text := ""
	if body != nil {
		text = body[1]
	}
	b, err := s.block(text, s.required[config])
	if err != nil {
		return "", Resource{}, err
	}
	// Attributes that only the provider sets are in the class of the resource, the last one of the
	// file.
	class := s.js[strings.LastIndex(s.js, "\nclass "):]
	for _, m := range computed.FindAllStringSubmatch(class, -1) {
		t, known := getter(m[2])
		if _, there := b.Attributes[m[1]]; known && !there {
			b.Attributes[m[1]] = Attribute{Type: t, Computed: true}
		}
	}
	// Every resource has an id, but some of the package omit it.
	if _, there := b.Attributes["id"]; !there && name[1] != "aws" {
		b.Attributes["id"] = Attribute{Type: "string", Computed: true}
	}
	return name[1], Resource{Block: b}, nil
}

// block parses the mapping of a structure.
func (s source) block(text string, required map[string]bool) (Block, error) {
	b := Block{Attributes: map[string]Attribute{}, BlockTypes: map[string]Nested{}}
	entries := entry.FindAllStringSubmatch(indent(text), -1)
	if want := strings.Count(text, "storageClassType:"); len(entries) != want {
		return b, fmt.Errorf("%d of %d arguments were understood", len(entries), want)
	}
	for _, m := range entries {
		if m[1] == "alias" {
			continue // Terraform's own argument of a provider
		}
		name, value, isBlock, mode, class := m[1], m[2], m[3] == "true", m[4], m[5]
		need, known := required[name]
		if !known {
			return b, fmt.Errorf("index.d.ts has no %s", name)
		}
		if !isBlock {
			t, err := typeOf(class)
			if err != nil {
				return b, fmt.Errorf("%s: %w", name, err)
			}
			if mode == "set" {
				t = []any{"set", t.([]any)[1]}
			}
			b.Attributes[name] = Attribute{Type: t, Required: need, Optional: !need, Computed: !need}
			continue
		}
		of := strings.TrimSuffix(class, "List")
		if _, there := s.structs[strings.ToLower(of)]; !there {
			of = class
		}
		body, there := s.structs[strings.ToLower(of)]
		if !there {
			return b, fmt.Errorf("%s: no structure %s", name, class)
		}
		inner, err := s.block(body, s.required[strings.ToLower(of)])
		if err != nil {
			return b, fmt.Errorf("%s: %w", name, err)
		}
		switch {
		case mode == "struct":
			b.BlockTypes[name] = Nested{Mode: "single", Block: inner}
		case mode != "list" && mode != "set":
			return b, fmt.Errorf("%s: nesting %s", name, mode)
		case strings.HasPrefix(value, "cdktf.listMapperHcl(") && strings.Contains(value, ", false)("):
			// An attribute that may be written as blocks.
			b.Attributes[name] = Attribute{
				Type: []any{mode, object(inner)}, Optional: !need, Required: need, Computed: !need,
			}
		default:
			n := Nested{Mode: mode, Block: inner}
			if need {
				n.MinItems = 1
			}
			if !strings.Contains(s.js, "class "+of+"List extends") {
				n.MaxItems = 1
			}
			b.BlockTypes[name] = n
		}
	}
	return b, nil
}

// indent indents the mapping of a structure like that of a resource.
func indent(text string) string {
	lines := strings.Split(text, "\n")
	for _, l := range lines {
		if nested.MatchString(l) {
			return "    " + strings.Join(lines, "\n    ")
		}
	}
	return text
}

// object returns the type of a block that is an attribute.
func object(b Block) any {
	of := map[string]any{}
	for name, a := range b.Attributes {
		of[name] = a.Type
	}
	return []any{"object", of}
}

// typeOf returns the type of a storage class.
func typeOf(class string) (any, error) {
	scalar := map[string]string{"string": "string", "boolean": "bool", "number": "number"}
	if t, ok := scalar[class]; ok {
		return t, nil
	}
	for suffix, collection := range map[string]string{"List": "list", "Map": "map"} {
		if of, found := strings.CutSuffix(class, suffix); found && scalar[of] != "" {
			return []any{collection, scalar[of]}, nil
		}
	}
	return nil, fmt.Errorf("type %q is not known", class)
}

// getter returns the type of a getter.
func getter(code string) (any, bool) {
	for _, g := range []struct {
		code string
		t    any
	}{
		{"this.getStringAttribute(", "string"}, {"this.getNumberAttribute(", "number"},
		{"this.getBooleanAttribute(", "bool"},
		{
			"this.getListAttribute(", []any{"list", "string"},
		}, {"cdktf.Fn.tolist(this.getListAttribute(", []any{"set", "string"}},
		{"this.getStringMapAttribute(", []any{"map", "string"}},
	} {
		if strings.HasPrefix(code, g.code) {
			return g.t, true
		}
	}
	return nil, false
}
