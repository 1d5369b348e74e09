package iam

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
)

// Role is a role in a template: who may assume it, and what it may do.
type Role struct {
	Trust  map[string]any
	Policy *Policy
}

// Template reads the roles of a CloudFormation template with parameters, by their logical names;
// AWS::Partition defaults to "aws". It only supports the functions that curfew's templates use.
func Template(file string, parameters map[string]string) (map[string]Role, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Parameters map[string]struct {
			Type    string
			Default *string
		}
		Conditions map[string]any
		Resources  map[string]struct {
			Type, Condition string
			Properties      map[string]any
		}
	}
	if raw, err = yaml.YAMLToJSON(raw); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	r := resolver{map[string]any{"AWS::Partition": "aws"}, doc.Conditions}
	if partition, given := parameters["AWS::Partition"]; given {
		r.parameters["AWS::Partition"] = partition
	}
	for name, p := range doc.Parameters {
		value, given := parameters[name]
		if !given && p.Default == nil {
			return nil, fmt.Errorf("parameter %s has no value", name)
		}
		if !given {
			value = *p.Default
		}
		if r.parameters[name] = value; p.Type == "CommaDelimitedList" {
			list := []any{}
			for _, one := range strings.Split(value, ",") {
				list = append(list, one)
			}
			r.parameters[name] = list
		}
	}
	roles := map[string]Role{}
	for name, res := range doc.Resources {
		if res.Type != "AWS::IAM::Role" {
			return nil, fmt.Errorf("%s is a %s", name, res.Type)
		}
		if res.Condition != "" {
			if wanted, err := r.condition(res.Condition); err != nil || !wanted {
				if err != nil {
					return nil, err
				}
				continue
			}
		}
		properties, err := r.resolve(res.Properties)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		raw, err := json.Marshal(properties)
		if err != nil {
			return nil, err
		}
		var p struct {
			AssumeRolePolicyDocument map[string]any
			Policies                 []struct {
				PolicyName     string
				PolicyDocument json.RawMessage
			}
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, err
		}
		if len(p.Policies) != 1 {
			return nil, fmt.Errorf("%s has %d policies", name, len(p.Policies))
		}
		policy, err := Parse(p.Policies[0].PolicyDocument)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		roles[name] = Role{p.AssumeRolePolicyDocument, policy}
	}
	if len(roles) == 0 {
		return nil, fmt.Errorf("%s has no roles", file)
	}
	return roles, nil
}

// resolver replaces the functions of a template.
type resolver struct {
	parameters map[string]any // strings and lists of strings
	conditions map[string]any
}

// noValue is the value of AWS::NoValue: the element or key is left out.
type noValue struct{}

func (r resolver) resolve(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 1 {
			for name, argument := range v {
				if name == "Ref" || strings.HasPrefix(name, "Fn::") {
					return r.function(name, argument)
				}
			}
		}
		out := map[string]any{}
		for key, value := range v {
			resolved, err := r.resolve(value)
			if err != nil {
				return nil, err
			}
			if _, none := resolved.(noValue); !none {
				out[key] = resolved
			}
		}
		return out, nil
	case []any:
		out := []any{}
		for _, value := range v {
			resolved, err := r.resolve(value)
			if err != nil {
				return nil, err
			}
			if _, none := resolved.(noValue); !none {
				out = append(out, resolved)
			}
		}
		return out, nil
	}
	return v, nil
}

func (r resolver) function(name string, argument any) (any, error) {
	if text, ok := argument.(string); name == "Ref" && ok {
		if text == "AWS::NoValue" {
			return noValue{}, nil
		}
		if value, ok := r.parameters[text]; ok {
			return value, nil
		}
	}
	if text, ok := argument.(string); name == "Fn::Sub" && ok {
		var unknown error
		out := variable.ReplaceAllStringFunc(text, func(v string) string {
			value, ok := r.parameters[variable.FindStringSubmatch(v)[1]].(string)
			if !ok {
				unknown = fmt.Errorf("%s in Fn::Sub is not known", v)
			}
			return value
		})
		return out, unknown
	}
	list, _ := argument.([]any)
	switch {
	case name == "Fn::If" && len(list) == 3:
		condition, _ := list[0].(string)
		holds, err := r.condition(condition)
		if err != nil {
			return nil, err
		}
		if holds {
			return r.resolve(list[1])
		}
		return r.resolve(list[2])
	case name == "Fn::Equals" && len(list) == 2:
		both, err := r.resolve(list)
		if err != nil {
			return nil, err
		}
		return both.([]any)[0] == both.([]any)[1], nil
	case name == "Fn::Not" && len(list) == 1:
		one, err := r.resolve(list[0])
		holds, ok := one.(bool)
		if err == nil && !ok {
			err = fmt.Errorf("%v in Fn::Not is no condition", list[0])
		}
		return !holds, err
	case name == "Fn::Join" && len(list) == 2:
		parts, err := r.resolve(list[1])
		if err != nil {
			return nil, err
		}
		var texts []string
		for _, part := range parts.([]any) {
			texts = append(texts, part.(string))
		}
		return strings.Join(texts, list[0].(string)), nil
	}
	return nil, fmt.Errorf("%s of %v is not known", name, argument)
}

func (r resolver) condition(name string) (bool, error) {
	resolved, err := r.resolve(r.conditions[name])
	holds, ok := resolved.(bool)
	if err == nil && !ok {
		err = fmt.Errorf("condition %q is not known", name)
	}
	return holds, err
}
