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

// Equivalent reports whether two documents mean the same: white space, comments and the order of
// rules and of their elements do not matter. Unreadable documents are equivalent only if they are
// equal.
func Equivalent(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := Canonical(a)
	y, errY := Canonical(b)
	return errX == nil && errY == nil && x == y
}

// Canonical returns the canonical form of a document: the lifecycle of a bucket (XML) or of a
// repository (JSON). An empty document stays empty.
func Canonical(document string) (string, error) {
	text := strings.TrimSpace(document)
	switch {
	case text == "":
		return "", nil
	case text[0] != '<':
		return canonicalJSON(text)
	}
	root, err := parseElement(text)
	if err != nil {
		return "", err
	}
	return root.canonical(), nil
}

// canonicalJSON writes a policy with sorted keys and rules sorted by priority.
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

// element is an element of an XML document without attributes, which have no meaning in a
// lifecycle.
type element struct {
	name, text string
	children   []*element
}

// parseElement parses a document and returns its root.
func parseElement(text string) (*element, error) {
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
				parent.children = append(parent.children, e)
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
	if e.name == "Filter" && len(e.children) == 1 && e.children[0].name == "Prefix" && e.children[0].text == "" {
		return "<Filter></Filter>" // an empty prefix matches everything
	}
	text := escapeXML(e.text)
	if len(e.children) > 0 {
		parts := make([]string, len(e.children))
		for i, k := range e.children {
			parts[i] = k.canonical()
		}
		slices.Sort(parts)
		text = strings.Join(parts, "")
	} else if e.name != "Prefix" && e.name != "Key" && e.name != "Value" && e.name != "ID" {
		text = strings.TrimSpace(text)
	}
	return "<" + e.name + ">" + text + "</" + e.name + ">"
}

// listNames are the repeatable elements, with their names in JSON (Amazon S3 API reference,
// "LifecycleRule"; AWS CLI reference, s3api put-bucket-lifecycle-configuration).
var listNames = map[string]string{
	"Rule": "Rules", "Transition": "Transitions", "NoncurrentVersionTransition": "NoncurrentVersionTransitions",
	"Tag": "Tags",
}

// textElements and numberElements have a value, structureElements have children.
var (
	textElements   = []string{"ID", "Prefix", "Status", "Date", "StorageClass", "Key", "Value"}
	numberElements = []string{
		"Days", "NoncurrentDays", "NewerNoncurrentVersions", "DaysAfterInitiation", "ObjectSizeGreaterThan",
		"ObjectSizeLessThan",
	}
	structureElements = []string{
		lifecycleRoot, "Rule", "Filter", "And", "Tag", "Transition", "Expiration", "NoncurrentVersionTransition",
		"NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload",
	}
)

// LifecycleJSON returns a bucket's lifecycle as JSON for the AWS CLI, which accepts no XML.
// Elements outside the published schema are an error.
func LifecycleJSON(document string) (string, error) {
	root, err := parseElement(document)
	if err != nil {
		return "", err
	}
	v, err := root.jsonValue("")
	if err != nil {
		return "", fmt.Errorf("write a lifecycle as JSON: %w", err)
	}
	out, err := json.Marshal(v)
	return string(out), err
}

// jsonValue returns an element as a JSON value.
func (e *element) jsonValue(in string) (any, error) {
	text := strings.TrimSpace(e.text)
	switch {
	case slices.Contains(textElements, e.name):
		if e.name == "Status" || e.name == "Date" || e.name == "StorageClass" {
			return text, nil
		}
		return e.text, nil
	case slices.Contains(numberElements, e.name):
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err
	case e.name == "ExpiredObjectDeleteMarker":
		return strconv.ParseBool(text)
	case !slices.Contains(structureElements, e.name):
		return nil, fmt.Errorf("an element %s in %s is not known", e.name, in)
	}
	out := map[string]any{}
	for _, k := range e.children {
		v, err := k.jsonValue(e.name)
		if err != nil {
			return nil, err
		}
		list, several := listNames[k.name]
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
