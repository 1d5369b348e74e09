package iam

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
)

// Role is a role that a template creates: who may assume it, and what it may do.
type Role struct {
	Trust  map[string]any
	Policy *Policy
}

// Template reads the roles of a CloudFormation template with these parameters, by their
// logical names. It resolves what curfew's own templates use, and nothing else.
func Template(file string, parameters map[string]string) (map[string]Role, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Parameters map[string]struct{ Default *string }
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
	r := resolver{map[string]string{}, doc.Conditions}
	for name, p := range doc.Parameters {
		value, given := parameters[name]
		if !given && p.Default == nil {
			return nil, fmt.Errorf("parameter %s has no value", name)
		}
		if !given {
			value = *p.Default
		}
		r.parameters[name] = value
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
	parameters map[string]string
	conditions map[string]any
}

// noValue is what AWS::NoValue resolves to: the element or key is left out.
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
