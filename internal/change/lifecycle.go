package change

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// RulePrefix starts the name of every rule that curfew adds to a lifecycle.
const RulePrefix = "curfew-"

// maxRules is the maximum number of rules in a bucket's lifecycle (Amazon S3 User Guide, "Lifecycle
// configuration elements").
const maxRules = 1000

// Rule is a rule to add to a bucket's lifecycle. Zero fields are omitted. Ages are in days.
type Rule struct {
	// ID names the rule.
	ID string
	// Prefix is empty for the whole bucket.
	Prefix string
	// LargerThan excludes objects of at most that many bytes.
	LargerThan int64
	// AbortDays is the age at which incomplete uploads are aborted, NoncurrentDays the time after
	// which a replaced version is deleted, and ExpireDays the age at which objects are deleted.
	AbortDays, NoncurrentDays, ExpireDays int
	// Transitions move objects by age, sorted by age.
	Transitions []Transition
}

// Transition moves objects of a given age in days to a storage class.
type Transition struct {
	Days  int
	Class string
}

// String describes the rule for people.
func (r Rule) String() string {
	var does []string
	for _, t := range r.Transitions {
		does = append(does, fmt.Sprintf("move objects to %s after %d days", t.Class, t.Days))
	}
	if r.ExpireDays > 0 {
		does = append(does, fmt.Sprintf("delete objects after %d days", r.ExpireDays))
	}
	if r.NoncurrentDays > 0 {
		does = append(does, fmt.Sprintf("delete versions %d days after they were replaced", r.NoncurrentDays))
	}
	if r.AbortDays > 0 {
		does = append(does, fmt.Sprintf("abort uploads that are incomplete for %d days", r.AbortDays))
	}
	under := "the whole bucket"
	if r.Prefix != "" {
		under = "under " + r.Prefix
	}
	if r.LargerThan > 0 {
		under += fmt.Sprintf(", objects over %d bytes", r.LargerThan)
	}
	return r.ID + ": " + under + ": " + strings.Join(does, ", ")
}

// AddedRules describes the rules that a change adds to the lifecycle of a bucket; none for other
// changes.
func (c Change) AddedRules() []string {
	if c.Verb != PutLifecycle || !strings.HasPrefix(c.Document, "<") {
		return nil
	}
	after, err := Rules(c.Document)
	if err != nil {
		return nil
	}
	before, err := Rules(c.Before)
	if err != nil {
		return nil
	}
	var out []string
	for _, r := range after {
		if !slices.ContainsFunc(before, func(b Rule) bool { return b.String() == r.String() }) {
			out = append(out, r.String())
		}
	}
	return out
}

// lifecycleRule is the part of a document's rule that curfew reads.
type lifecycleRule struct {
	ID     string    `xml:"ID"`
	Status string    `xml:"Status"`
	Prefix *string   `xml:"Prefix"` // of rules from before 2016
	Filter *struct { // narrows the rule
		Prefix  string `xml:"Prefix"`
		Greater int64  `xml:"ObjectSizeGreaterThan"`
		And     *struct {
			Prefix  string `xml:"Prefix"`
			Greater int64  `xml:"ObjectSizeGreaterThan"`
		} `xml:"And"`
	} `xml:"Filter"`
	Transitions []struct {
		Days  int    `xml:"Days"`
		Class string `xml:"StorageClass"`
	} `xml:"Transition"`
	Expire     int    `xml:"Expiration>Days"`
	ExpireDate string `xml:"Expiration>Date"`
	Abort      int    `xml:"AbortIncompleteMultipartUpload>DaysAfterInitiation"`
	Noncurrent *struct {
		Days int `xml:"NoncurrentDays"`
	} `xml:"NoncurrentVersionExpiration"`
	NoncurrentTransitions []struct{} `xml:"NoncurrentVersionTransition"`
}

// competesWith reports whether a rule of the document acts on objects of another rule. A rule with
// tag or size filters counts for its whole prefix.
//
// Where rules overlap, S3 takes the shortest expiration and the cheapest class, and prefers
// permanent deletion to moving or marking (Amazon S3 User Guide, "Examples of S3 Lifecycle
// configurations", overlapping filters and conflicting actions). So an added rule wins wherever it
// is shorter or colder, and an existing rule cannot protect anything from it. Expiring objects also
// become noncurrent versions earlier.
func (r *lifecycleRule) competesWith(other Rule) bool {
	under := r.toRule().Prefix
	overlaps := strings.HasPrefix(under, other.Prefix) || strings.HasPrefix(other.Prefix, under)
	current := len(r.Transitions) > 0 || r.Expire > 0 || r.ExpireDate != ""
	replaced := r.Noncurrent != nil || len(r.NoncurrentTransitions) > 0
	return r.Status == "Enabled" && overlaps &&
		(other.AbortDays > 0 && r.Abort > 0 ||
			(other.NoncurrentDays > 0 || other.ExpireDays > 0) && replaced ||
			(other.ExpireDays > 0 || len(other.Transitions) > 0) && current)
}

// Competing returns the rules whose objects the other rule would expire, move or delete earlier,
// except a rule of the same name, which it replaces.
func (l *Lifecycle) Competing(other Rule) []Rule {
	var out []Rule
	for i := range l.rules {
		if r := &l.rules[i].lifecycleRule; r.ID != other.ID && r.competesWith(other) {
			out = append(out, r.toRule())
		}
	}
	return out
}

// HasFilters reports whether the lifecycle accepts rules with size filters. One from before 2016
// has prefixes without filters, and S3 rejects a document with both.
func (l *Lifecycle) HasFilters() bool {
	return !slices.ContainsFunc(l.rules, func(r ruleSpan) bool { return r.Prefix != nil && r.Filter == nil })
}

// toRule converts a rule of the document to a Rule.
func (r *lifecycleRule) toRule() Rule {
	out := Rule{ID: r.ID, AbortDays: r.Abort, ExpireDays: r.Expire}
	if r.Noncurrent != nil {
		out.NoncurrentDays = r.Noncurrent.Days
	}
	switch {
	case r.Filter != nil && r.Filter.And != nil:
		out.Prefix, out.LargerThan = r.Filter.And.Prefix, r.Filter.And.Greater
	case r.Filter != nil:
		out.Prefix, out.LargerThan = r.Filter.Prefix, r.Filter.Greater
	case r.Prefix != nil:
		out.Prefix = *r.Prefix
	}
	for _, t := range r.Transitions {
		out.Transitions = append(out.Transitions, Transition{t.Days, t.Class})
	}
	return out
}

// WithRules returns a bucket's lifecycle with rules added and every byte of other rules unchanged.
// A rule with the name of an added one is replaced; names start with [RulePrefix]. An empty
// document is a bucket without a lifecycle.
func WithRules(document string, rules []Rule) (string, error) {
	doc, err := ParseLifecycle(document)
	if err != nil {
		return "", err
	}
	out, err := doc.withRules(rules)
	return string(out), err
}

// Rules returns the rules of a bucket's lifecycle, as far as [Rule] can express them.
func Rules(document string) ([]Rule, error) {
	doc, err := ParseLifecycle(document)
	if err != nil {
		return nil, err
	}
	out := make([]Rule, len(doc.rules))
	for i, r := range doc.rules {
		out[i] = r.toRule()
	}
	return out, nil
}

// WriteRules returns a lifecycle with exactly these rules.
func WriteRules(rules []Rule) string {
	if len(rules) == 0 {
		return ""
	}
	return xml.Header + "<" + lifecycleRoot + ` xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` + rulesXML(rules,
		false) + "</" + lifecycleRoot + ">"
}

// Lifecycle is a bucket's lifecycle as S3 returned it, with the positions of its rules. Its bytes
// are never encoded again. The zero Lifecycle is that of a bucket without one.
type Lifecycle struct {
	text  []byte
	rules []ruleSpan
	// rootEnd is the position of the root's end tag, before which rules are added.
	rootEnd int
}

type ruleSpan struct {
	start, end int
	lifecycleRule
}

// lifecycleRoot is the name of the root element.
const lifecycleRoot = "LifecycleConfiguration"

// ParseLifecycle parses a document; an empty one is a bucket without a lifecycle.
func ParseLifecycle(document string) (*Lifecycle, error) {
	text := []byte(document)
	doc := &Lifecycle{text: text}
	if len(text) == 0 {
		return doc, nil
	}
	d := xml.NewDecoder(bytes.NewReader(text))
	depth, started := 0, 0
	closed := false
	for {
		before := int(d.InputOffset())
		token, err := d.Token()
		if errors.Is(err, io.EOF) && closed {
			return doc, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the lifecycle as XML: %w", err)
		}
		switch t := token.(type) {
		case xml.Directive:
			return nil, errors.New("read the lifecycle: it begins with a directive, which S3 does not write")
		case xml.StartElement:
			if depth == 0 && (closed || !bytes.HasPrefix(text[before:], []byte("<"+lifecycleRoot))) {
				return nil, fmt.Errorf("read the lifecycle: its root is %s, not %s alone", t.Name.Local, lifecycleRoot)
			}
			if depth == 1 && t.Name.Local == "Rule" {
				started = before
			}
			depth++
		case xml.EndElement:
			depth--
			switch {
			case depth == 0 && int(d.InputOffset()) == before:
				return nil, errors.New("read the lifecycle: it is empty, which S3 does not write")
			case depth == 0:
				doc.rootEnd, closed = before, true
			case depth == 1 && t.Name.Local == "Rule":
				r := ruleSpan{start: started, end: int(d.InputOffset())}
				if err := xml.Unmarshal(text[r.start:r.end], &r.lifecycleRule); err != nil {
					return nil, fmt.Errorf("read a rule of the lifecycle: %w", err)
				}
				doc.rules = append(doc.rules, r)
			}
		}
	}
}

// withRules returns the document with rules added and every byte of other rules unchanged. A rule
// of curfew's with the same name is replaced.
func (l *Lifecycle) withRules(rules []Rule) ([]byte, error) {
	for _, r := range rules {
		if !strings.HasPrefix(r.ID, RulePrefix) {
			return nil, fmt.Errorf("add rule %q to a lifecycle: its name does not begin with %s", r.ID, RulePrefix)
		}
	}
	if len(l.text) == 0 {
		return []byte(WriteRules(rules)), nil
	}
	var out bytes.Buffer
	at, kept, old := 0, 0, false
	for _, x := range l.rules {
		if slices.ContainsFunc(rules, func(r Rule) bool { return r.ID == x.ID }) {
			out.Write(l.text[at:x.start])
			at = x.end
			continue
		}
		kept++
		old = old || x.Prefix != nil && x.Filter == nil
	}
	if old && slices.ContainsFunc(rules, func(r Rule) bool { return r.LargerThan > 0 }) {
		return nil, errors.New("add a rule that sizes narrow to a lifecycle of before 2016: it has no filters")
	}
	if kept+len(rules) > maxRules {
		return nil, fmt.Errorf("add %d rules to a lifecycle of %d: there can be %d", len(rules), kept, maxRules)
	}
	out.Write(l.text[at:l.rootEnd])
	out.WriteString(rulesXML(rules, old))
	out.Write(l.text[l.rootEnd:])
	return out.Bytes(), nil
}

// rulesXML returns rules as XML. A lifecycle from before 2016 has prefixes without a filter, and S3
// rejects a document with both.
func rulesXML(rules []Rule, old bool) string {
	var b strings.Builder
	for _, r := range rules {
		b.WriteString("<Rule><ID>" + escapeXML(r.ID) + "</ID>")
		prefix := "<Prefix>" + escapeXML(r.Prefix) + "</Prefix>"
		switch greater := fmt.Sprintf("<ObjectSizeGreaterThan>%d</ObjectSizeGreaterThan>", r.LargerThan); {
		case r.LargerThan > 0 && r.Prefix == "":
			prefix = "<Filter>" + greater + "</Filter>"
		case r.LargerThan > 0:
			prefix = "<Filter><And>" + prefix + greater + "</And></Filter>"
		case !old:
			prefix = "<Filter>" + prefix + "</Filter>"
		}
		b.WriteString(prefix + "<Status>Enabled</Status>")
		for _, t := range r.Transitions {
			fmt.Fprintf(&b, "<Transition><Days>%d</Days><StorageClass>%s</StorageClass></Transition>",
				t.Days, escapeXML(t.Class))
		}
		if r.ExpireDays > 0 {
			fmt.Fprintf(&b, "<Expiration><Days>%d</Days></Expiration>", r.ExpireDays)
		}
		if r.NoncurrentDays > 0 {
			fmt.Fprintf(&b,
				"<NoncurrentVersionExpiration><NoncurrentDays>%d</NoncurrentDays></NoncurrentVersionExpiration>",
				r.NoncurrentDays)
		}
		if r.AbortDays > 0 {
			fmt.Fprintf(&b,
				"<AbortIncompleteMultipartUpload><DaysAfterInitiation>%d</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
				r.AbortDays)
		}
		b.WriteString("</Rule>")
	}
	return b.String()
}

func escapeXML(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		panic("escape a text: " + err.Error()) // a builder never fails
	}
	return b.String()
}
