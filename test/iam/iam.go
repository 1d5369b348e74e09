// Package iam evaluates IAM policies like AWS, for the features that curfew's own policies use; any
// other feature is an error, so that no test passes by mistake.
package iam

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Policy is a policy document.
type Policy struct {
	Version   string
	Statement []Statement
}

// Statement is one statement of a policy.
type Statement struct {
	Sid, Effect      string
	Action, Resource Strings
	// NotResource lists the excluded resources; the statement has no Resource then.
	NotResource Strings
	Condition   map[string]map[string]Strings
}

// Strings is a string or a list of strings in JSON.
type Strings []string

// UnmarshalJSON reads either form.
func (s *Strings) UnmarshalJSON(raw []byte) error {
	var one string
	if err := json.Unmarshal(raw, &one); err == nil {
		*s = Strings{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(s))
}

// Request is a call to be authorized for a role.
type Request struct {
	// Action is the IAM action, "ec2:StopInstances"; Resource is an ARN, or empty for any.
	Action, Resource string
	// Tags are the tags of the resource; TagKeys are those that the call writes or removes;
	// RequestTags are those that the call gives to what it creates, by key and value.
	Tags        map[string]string
	TagKeys     []string
	RequestTags map[string]string
	// Keys are further condition keys of the call ("ec2:Encrypted", "s3:prefix"), and those of the
	// caller ("aws:userid").
	Keys map[string]string
}

// Parse reads a policy strictly.
func Parse(raw []byte) (*Policy, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var p Policy
	if err := d.Decode(&p); err != nil {
		return nil, err
	}
	if p.Version != "2012-10-17" || len(p.Statement) == 0 {
		return nil, fmt.Errorf("version %q, %d statements", p.Version, len(p.Statement))
	}
	return &p, nil
}

// Allows reports whether the policy allows a request: a statement allows it, and none denies it.
func (p *Policy) Allows(r Request) (bool, error) {
	allowed, denied := false, false
	for _, s := range p.Statement {
		applies, err := s.applies(r)
		if err != nil {
			return false, fmt.Errorf("%s: %w", s.Sid, err)
		}
		switch {
		case s.Effect == "Deny":
			denied = denied || applies
		case s.Effect == "Allow":
			allowed = allowed || applies
		default:
			return false, fmt.Errorf("%s: effect %q", s.Sid, s.Effect)
		}
	}
	return allowed && !denied, nil
}

func (s Statement) applies(r Request) (bool, error) {
	names := func(resources Strings) bool {
		return slices.Contains(resources, "*") || slices.ContainsFunc(resources, func(p string) bool {
			p, known := r.Resolve(p)
			return known && r.Resource != "" && like(p, literal.Replace(r.Resource))
		})
	}
	applies := slices.ContainsFunc(s.Action, func(a string) bool {
		return like(strings.ToLower(a), strings.ToLower(r.Action))
	})
	if len(s.NotResource) > 0 {
		applies = applies && !names(s.NotResource)
	} else {
		applies = applies && names(s.Resource)
	}
	for operator, keys := range s.Condition {
		for key, operands := range keys {
			holds, err := r.holds(operator, key, operands)
			if err != nil {
				return false, err
			}
			applies = applies && holds
		}
	}
	return applies, nil
}

// known lists the condition keys allowed in Keys, besides tags of the caller.
var known = []string{
	"aws:userid", "ec2:CreateAction", "ec2:Encrypted", "ec2:InstanceProfile", "ec2:MetadataHttpTokens", "ec2:Subnet",
	"iam:PassedToService", "iam:PermissionsBoundary",
	"iam:PolicyARN", "s3:prefix",
	"ssm:SessionDocumentAccessCheck",
}

// variable is a policy variable.
var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// Resolve replaces the policy variables of a resource or an operand. A variable without a value
// matches nothing (IAM User Guide, "IAM policy elements: Variables and tags").
func (r Request) Resolve(operand string) (string, bool) {
	all := true
	out := variable.ReplaceAllStringFunc(operand, func(v string) string {
		value, ok := r.Keys[variable.FindStringSubmatch(v)[1]]
		all = all && ok
		// The value is not a pattern.
		return literal.Replace(value)
	})
	return out, all
}

// literal escapes the wildcards of a value, and plain reverts it.
var (
	literal = strings.NewReplacer("*", "\x01", "?", "\x02")
	plain   = strings.NewReplacer("\x01", "*", "\x02", "?")
)

// holds evaluates one condition. A missing key fails it, except for Null, which tests that, and
// IfExists.
func (r Request) holds(operator, key string, operands []string) (bool, error) {
	var values []string
	tags, of := map[string]string(nil), ""
	for prefix, from := range map[string]map[string]string{
		"aws:ResourceTag/": r.Tags, "ssm:resourceTag/": r.Tags, "aws:RequestTag/": r.RequestTags,
	} {
		if tag, ok := strings.CutPrefix(key, prefix); ok {
			tags, of = from, tag
		}
	}
	switch {
	case of != "":
		for k, v := range tags {
			if strings.EqualFold(k, of) {
				values = append(values, v)
			}
		}
	case key == "aws:TagKeys":
		values = r.TagKeys
	case slices.Contains(known, key) || strings.HasPrefix(key, "aws:PrincipalTag/"):
		if v, ok := r.Keys[key]; ok {
			values = []string{v}
		}
	default:
		return false, fmt.Errorf("condition key %q is not known", key)
	}
	any := func(equal func(value, operand string) bool) bool {
		return slices.ContainsFunc(values, func(v string) bool {
			return slices.ContainsFunc(operands, func(o string) bool {
				o, ok := r.Resolve(o)
				return ok && equal(v, o)
			})
		})
	}
	name, ifExists := strings.CutSuffix(operator, "IfExists")
	if ifExists && len(values) == 0 {
		return true, nil
	}
	name, forAny := strings.CutPrefix(name, "ForAnyValue:")
	if forAny != (key == "aws:TagKeys") && name != "Null" {
		return false, fmt.Errorf("%s of %s", operator, key)
	}
	switch name {
	case "StringEqualsIgnoreCase":
		return any(func(value, operand string) bool { return strings.EqualFold(value, plain.Replace(operand)) }), nil
	case "StringNotEqualsIgnoreCase": // also if the key is absent
		return !any(func(value, operand string) bool { return strings.EqualFold(value, plain.Replace(operand)) }), nil
	case "StringEquals", "Bool":
		return any(func(value, operand string) bool { return value == plain.Replace(operand) }), nil
	case "StringLike", "ArnLike", "ArnEquals": // the last two are the same to AWS
		return any(func(value, operand string) bool { return like(operand, literal.Replace(value)) }), nil
	case "Null":
		return slices.Equal(operands, []string{"false"}) == (len(values) > 0), nil
	}
	return false, fmt.Errorf("operator %q is not known", operator)
}

// like matches * and ? of IAM, which both match slashes.
func like(pattern, s string) bool {
	if !strings.ContainsAny(pattern, "*?") {
		return pattern == s
	}
	flat := strings.NewReplacer("/", "\x00")
	ok, err := path.Match(strings.NewReplacer("/", "\x00", "[", `\[`).Replace(pattern), flat.Replace(s))
	return err == nil && ok
}
