package change

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Same says whether two documents say the same, however they are written: white space,
// comments, the order of rules and of what is in them do not count. Documents that cannot
// be read are the same only byte for byte.
func Same(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := Canonical(a)
	y, errY := Canonical(b)
	return errX == nil && errY == nil && x == y
}

// Canonical returns the one form of a document that says the same: the lifecycle of a
// bucket (XML) or of a repository (JSON). An empty document stays empty.
func Canonical(document string) (string, error) {
	text := strings.TrimSpace(document)
	switch {
	case text == "":
		return "", nil
	case text[0] != '<':
		return canonicalJSON(text)
	}
	root, err := elementOf(text)
	if err != nil {
		return "", err
	}
	return root.canonical(), nil
}

// canonicalJSON writes a policy with sorted keys, and rules by their priority.
func canonicalJSON(text string) (string, error) {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return "", fmt.Errorf("read a document as JSON: %w", err)
	}
	if policy, ok := v.(map[string]any); ok {
		if rules, ok := policy["rules"].([]any); ok {
			slices.SortStableFunc(rules, func(a, b any) int { return int(priority(a) - priority(b)) })
		}
	}
	out, err := json.Marshal(v)
	return string(out), err
}

func priority(rule any) float64 {
	m, _ := rule.(map[string]any)
	n, _ := m["rulePriority"].(float64)
	return n
}

// element is an element of an XML document without its attributes, which say nothing in a
// lifecycle.
type element struct {
	name, text string
	kids       []*element
}

// elementOf reads the root of a document.
func elementOf(text string) (*element, error) {
	d := xml.NewDecoder(strings.NewReader(text))
	var open []*element
	var root *element
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && root != nil {
			return root, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a document as XML: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			e := &element{name: t.Name.Local}
			if len(open) > 0 {
				parent := open[len(open)-1]
				parent.kids = append(parent.kids, e)
			} else {
				root = e
			}
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text += string(t)
			}
		}
	}
}

func (e *element) canonical() string {
	if e.name == "Filter" && len(e.kids) == 1 && e.kids[0].name == "Prefix" && e.kids[0].text == "" {
		return "<Filter></Filter>" // an empty prefix narrows nothing
	}
	text := escaped(e.text)
	if len(e.kids) > 0 {
		parts := make([]string, len(e.kids))
		for i, k := range e.kids {
			parts[i] = k.canonical()
		}
		slices.Sort(parts)
		text = strings.Join(parts, "")
	} else if e.name != "Prefix" && e.name != "Key" && e.name != "Value" && e.name != "ID" {
		text = strings.TrimSpace(text)
	}
	return "<" + e.name + ">" + text + "</" + e.name + ">"
}

// lists are the elements that stand several times, with their names in JSON (Amazon S3 API
// reference, "LifecycleRule"; AWS CLI reference, s3api put-bucket-lifecycle-configuration).
var lists = map[string]string{
	"Rule": "Rules", "Transition": "Transitions", "NoncurrentVersionTransition": "NoncurrentVersionTransitions",
	"Tag": "Tags",
}

// words and numbers are the elements that hold a value, structures those that hold others.
var (
	words   = []string{"ID", "Prefix", "Status", "Date", "StorageClass", "Key", "Value"}
	numbers = []string{
		"Days", "NoncurrentDays", "NewerNoncurrentVersions", "DaysAfterInitiation", "ObjectSizeGreaterThan",
		"ObjectSizeLessThan",
	}
	structures = []string{
		lifecycleRoot, "Rule", "Filter", "And", "Tag", "Transition", "Expiration", "NoncurrentVersionTransition",
		"NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload",
	}
)

// LifecycleJSON returns a bucket's lifecycle as the AWS CLI takes it, which takes no XML.
// A document with anything that is not in the published schema is an error.
func LifecycleJSON(document string) (string, error) {
	root, err := elementOf(document)
	if err != nil {
		return "", err
	}
	v, err := root.value("")
	if err != nil {
		return "", fmt.Errorf("write a lifecycle as JSON: %w", err)
	}
	out, err := json.Marshal(v)
	return string(out), err
}

// value is an element in JSON.
func (e *element) value(in string) (any, error) {
	text := strings.TrimSpace(e.text)
	switch {
	case slices.Contains(words, e.name):
		if e.name == "Status" || e.name == "Date" || e.name == "StorageClass" {
			return text, nil
		}
		return e.text, nil
	case slices.Contains(numbers, e.name):
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err
	case e.name == "ExpiredObjectDeleteMarker":
		return strconv.ParseBool(text)
	case !slices.Contains(structures, e.name):
		return nil, fmt.Errorf("an element %s in %s is not known", e.name, in)
	}
	out := map[string]any{}
	for _, k := range e.kids {
		v, err := k.value(e.name)
		if err != nil {
			return nil, err
		}
		list, several := lists[k.name]
		switch _, twice := out[k.name]; {
		case several && !(k.name == "Tag" && e.name == "Filter"):
			all, _ := out[list].([]any)
			out[list] = append(all, v)
		case twice:
			return nil, fmt.Errorf("two elements %s in %s", k.name, e.name)
		default:
			out[k.name] = v
		}
	}
	return out, nil
}
