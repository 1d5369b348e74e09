package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// metered lists the resources that internal/estimate prices, as folders of each provider's package.
var metered = map[string][]string{
	"aws": {
		"alb", "autoscaling-group", "autoscaling-policy", "cloudformation-stack", "db-instance", "ebs-volume",
		"ec2-capacity-reservation",
		"eip", "eks-node-group", "elb", "instance", "launch-template", "lb", "nat-gateway",
		"sagemaker-endpoint-configuration",
		"sagemaker-notebook-instance", "spot-instance-request", "vpc"},
	"google":  {"compute-instance"},
	"azurerm": {"linux-virtual-machine"},
}

// attributes lists the attributes of metered resources in folders of unpacked packages, one per
// line: "aws_instance ami". Attributes of nested blocks have a dotted path:
// "root_block_device.iops".
func attributes(dirs []string) (string, error) {
	var lines []string
	for _, dir := range dirs {
		p, err := provider(dir)
		if err != nil {
			return "", err
		}
		name := p.Name[strings.LastIndexByte(p.Name, '/')+1:]
		lines = append(lines, fmt.Sprintf("# %s %s", p.Name, p.Version))
		var of []string
		for _, folder := range metered[name] {
			kind, r, err := read(filepath.Join(dir, "lib", folder))
			if err != nil {
				return "", fmt.Errorf("%s: %w", folder, err)
			}
			for _, path := range paths(r.Block) {
				of = append(of, kind+" "+path)
			}
		}
		if len(of) == 0 {
			return "", fmt.Errorf("%s: no resource of provider %s is metered", dir, name)
		}
		slices.Sort(of)
		lines = append(lines, of...)
	}
	return strings.Join(lines, "\n") + "\n", nil
}

// paths returns the attributes of a block and of its nested blocks.
func paths(b Block) []string {
	var out []string
	for name, a := range b.Attributes {
		if inner := objectOf(a.Type); inner != nil {
			for _, path := range inner {
				out = append(out, name+"."+path)
			}
			continue
		}
		out = append(out, name)
	}
	for name, n := range b.BlockTypes {
		for _, path := range paths(n.Block) {
			out = append(out, name+"."+path)
		}
	}
	return out
}

// objectOf returns the attributes of a collection of objects; nil for other types.
func objectOf(t any) []string {
	list, _ := t.([]any)
	if len(list) != 2 {
		return nil
	}
	fields, isObject := list[1].(map[string]any)
	if list[0] != "object" || !isObject {
		return objectOf(list[1])
	}
	var out []string
	for name, of := range fields {
		inner := objectOf(of)
		if inner == nil {
			out = append(out, name)
		}
		for _, path := range inner {
			out = append(out, name+"."+path)
		}
	}
	return out
}

// writeAttributes writes the list.
func writeAttributes(dirs []string, out string) error {
	text, err := attributes(dirs)
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644)
}
