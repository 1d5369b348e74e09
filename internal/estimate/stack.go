package estimate

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
	tfjson "github.com/hashicorp/terraform-json"

	"github.com/curfew-dev/curfew/internal/document"
)

//go:embed free.txt
var freeText string

// freeTypes are the reviewed types of resources that cost nothing; see free.txt.
var freeTypes = func() (types []string) {
	for line := range strings.Lines(freeText) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			types = append(types, line)
		}
	}
	return types
}()

// isFree reports whether a type of resource was reviewed and costs nothing.
func isFree(kind string) bool {
	return slices.ContainsFunc(freeTypes, func(pattern string) bool {
		matched, err := path.Match(pattern, kind)
		return err == nil && matched
	})
}

// stackType is a type of CloudFormation that is metered as one of Terraform.
type stackType struct {
	kind string
	// renamed are the properties whose names in Terraform are not their own in snake case.
	renamed map[string]string
}

// stackTypes are the CloudFormation types that are priced (AWS CloudFormation template
// reference).
var stackTypes = map[string]stackType{
	"AWS::EC2::Instance":                        {kind: "aws_instance"},
	"AWS::EC2::CapacityReservation":             {kind: "aws_ec2_capacity_reservation"},
	"AWS::EC2::Volume":                          {"aws_ebs_volume", map[string]string{"VolumeType": "type"}},
	"AWS::EC2::EIP":                             {kind: "aws_eip"},
	"AWS::EC2::NatGateway":                      {kind: "aws_nat_gateway"},
	"AWS::ElasticLoadBalancing::LoadBalancer":   {kind: "aws_elb"},
	"AWS::ElasticLoadBalancingV2::LoadBalancer": {"aws_lb", map[string]string{"Type": "load_balancer_type"}},
	"AWS::SageMaker::NotebookInstance": {
		"aws_sagemaker_notebook_instance", map[string]string{"VolumeSizeInGB": "volume_size"},
	},
	"AWS::RDS::DBInstance": {
		"aws_db_instance", map[string]string{"DBInstanceClass": "instance_class", "MultiAZ": "multi_az"},
	},
}

// stack adds the resources in the template of a CloudFormation stack, if the plan has the template.
// A condition of a resource counts as true.
func (m *meter) stack() {
	body, state := m.at.text("template_body")
	switch {
	case state == unknownValue:
		m.open("its template is known only after the plan is applied")
		return
	case body == "":
		m.open("its template is not in the plan, and its resources are unknown")
		return
	}
	template, err := readTemplate(body)
	if err != nil {
		m.open("its template cannot be read: %s", err)
		return
	}
	if template["Transform"] != nil {
		m.open("its template has a transform, and what that creates is not known")
	}
	given, _ := m.at.values["parameters"].(map[string]any)
	declared, _ := template["Parameters"].(map[string]any)
	p := properties{given: given, declared: declared, late: m.at.unknown["parameters"]}
	resources, ok := template["Resources"].(map[string]any)
	if !ok || len(resources) == 0 {
		m.open("its template has no Resources that can be read")
	}
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		r, _ := resources[name].(map[string]any)
		kind, _ := r["Type"].(string)
		known, priced := stackTypes[kind]
		switch {
		case kind == "":
			m.open("%s in its template has no type that can be read", name)
		case priced:
			m.merge(name, kind, p.of(r["Properties"], known.renamed))
			m.unreadProperties(name, kind, r["Properties"])
		case !isFree(kind):
			m.open("%s in its template: what a resource of type %s costs is not known", name, kind)
		}
		if m.err != nil {
			return
		}
	}
}

// merge adds one resource of a template.
func (m *meter) merge(name, kind string, at attributes) {
	// No resource of the configuration belongs to it.
	x := &meter{
		planner: m.planner, change: &tfjson.ResourceChange{}, readsCurrent: m.readsCurrent,
		kind:    stackTypes[kind].kind,
		address: m.address + "/" + name, at: at, region: m.region, gpus: map[string]int{},
	}
	meters[x.kind](x)
	m.lines, m.hourly = append(m.lines, x.lines...), append(m.hourly, x.hourly...)
	m.unknown, m.unpriced = append(m.unknown, x.unknown...), append(m.unpriced, x.unpriced...)
	m.machines, m.err = m.machines+x.machines, x.err
	for gpu, n := range x.gpus {
		m.gpus[gpu] += n
	}
}

// properties turns properties of CloudFormation into attributes of Terraform.
type properties struct {
	given, declared map[string]any
	// late names the given parameters that are known only after the plan is applied.
	late any
}

func (p properties) of(v any, renamed map[string]string) attributes {
	values, unknown := p.resolve(v, renamed)
	list, _ := values.([]any)
	late, _ := unknown.([]any)
	if len(list) == 0 || len(late) == 0 {
		return attributes{}
	}
	out, _ := list[0].(map[string]any)
	open, _ := late[0].(map[string]any)
	return attributes{out, open}
}

// resolve returns a value with the names of Terraform, and its unknown parts: a block of properties
// is a list of one, as Terraform has it.
func (p properties) resolve(v any, renamed map[string]string) (value, unknown any) {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["Ref"].(string); ok && len(v) == 1 {
			return p.parameter(ref)
		}
		out, open := map[string]any{}, map[string]any{}
		for key, item := range v {
			if strings.HasPrefix(key, "Fn::") || key == unreadable || key == "Ref" {
				return nil, true // an intrinsic function
			}
			name := renamed[key]
			if name == "" {
				name = snake(key)
			}
			out[name], open[name] = p.resolve(item, nil)
		}
		return []any{out}, []any{open}
	case []any:
		var out, open []any
		for _, item := range v {
			value, unknown := p.resolve(item, nil)
			if unknown == true {
				return nil, true
			}
			if block, ok := value.([]any); ok && len(block) == 1 {
				inner, _ := unknown.([]any)
				value, unknown = block[0], nil
				if len(inner) == 1 {
					unknown = inner[0]
				}
			}
			out, open = append(out, value), append(open, unknown)
		}
		return out, open
	case bool, string, json.Number:
		return v, nil
	}
	return nil, v != nil
}

// parameter is the value of a parameter of the stack: the given one, or the default.
func (p properties) parameter(name string) (value, unknown any) {
	late, _ := p.late.(map[string]any)
	declared, _ := p.declared[name].(map[string]any)
	kind, _ := declared["Type"].(string)
	switch given := p.given[name]; {
	// the name of a value
	case p.late == true || late[name] == true || declared == nil || strings.HasPrefix(kind, "AWS::SSM::"):
		return nil, true
	case given != nil:
		return given, nil
	case declared["Default"] != nil:
		return declared["Default"], nil
	}
	return nil, true
}

// snake is a name of CloudFormation in snake case: "InstanceType" is "instance_type".
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// maxTemplate is the longest template that CloudFormation takes inline or from a bucket,
// in bytes.
const maxTemplate = 1_000_000

// readTemplate reads a template in JSON or YAML. A function in YAML's short form other
// than !Ref becomes a mapping with the key unreadable.
func readTemplate(body string) (map[string]any, error) {
	if len(body) > maxTemplate {
		return nil, fmt.Errorf("it is over %d bytes", maxTemplate)
	}
	var v any
	if strings.HasPrefix(strings.TrimSpace(body), "{") {
		if err := document.CheckJSON("the template", []byte(body), maxTemplate); err != nil {
			return nil, err
		}
		in := json.NewDecoder(strings.NewReader(body))
		in.UseNumber()
		if err := in.Decode(&v); err != nil {
			return nil, err
		}
	} else {
		f, err := document.ParseForeign("the template", []byte(body))
		if err != nil {
			return nil, err
		}
		node, err := f.Body()
		if err != nil {
			return nil, err
		}
		v = fromYAML(node)
	}
	template, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it is no mapping")
	}
	return template, nil
}

// unreadable is the key of a mapping that stands for a value that is not in the template.
const unreadable = "!"

// fromYAML is a node of YAML as JSON would have it.
func fromYAML(n ast.Node) any {
	switch n := n.(type) {
	case *ast.MappingNode:
		out := map[string]any{}
		for _, v := range n.Values {
			out[v.Key.GetToken().Value] = fromYAML(v.Value)
		}
		return out
	case *ast.SequenceNode:
		out := []any{}
		for _, v := range n.Values {
			out = append(out, fromYAML(v))
		}
		return out
	case *ast.TagNode:
		if n.Start.Value == "!Ref" {
			return map[string]any{"Ref": fromYAML(n.Value)}
		}
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode:
		return json.Number(n.GetToken().Value)
	case *ast.BoolNode:
		return n.Value
	case *ast.NullNode, nil:
		return nil
	}
	return map[string]any{unreadable: true} // a function, or an alias, which templates cannot have
}
