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

// RuleMark begins the name of every rule that curfew adds to a lifecycle.
const RuleMark = "curfew-"

// maxRules is how many rules a bucket's lifecycle has at most (Amazon S3 User
// Guide, "Lifecycle configuration elements").
const maxRules = 1000

// Rule is a rule that is added to a bucket's lifecycle. A field that is zero is not in the
// rule. Ages are in days.
type Rule struct {
	// ID names the rule.
	ID string
	// Prefix is empty for the whole bucket.
	Prefix string
	// LargerThan leaves objects of that many bytes and less out.
	LargerThan int64
	// AbortDays is the age at which incomplete uploads are aborted, NoncurrentDays the
	// time after which a version that was replaced is deleted, ExpireDays the age at
	// which objects are deleted.
	AbortDays, NoncurrentDays, ExpireDays int
	// Transitions move objects by age, in the order of their ages.
	Transitions []Transition
}

// Transition moves objects of an age in days to a storage class.
type Transition struct {
	Days  int
	Class string
}

// String says what the rule does, for people.
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

// Adds says in words what rules a change adds to the lifecycle of a bucket; nothing for
// other changes.
func (c Change) Adds() []string {
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

// lifecycleRule is what is read of a rule of a document.
type lifecycleRule struct {
	ID     string    `xml:"ID"`
	Status string    `xml:"Status"`
	Prefix *string   `xml:"Prefix"` // of rules of before 2016
	Filter *struct { // what narrows the rule
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

// competes says whether a rule of the document does something to what another one would act on. A
// rule that tags or sizes narrow counts as one for its whole prefix.
//
// Where rules overlap, S3 takes the shortest expiration and the cheapest class, and deletes
// permanently rather than move or mark (Amazon S3 User Guide, "Examples of S3 Lifecycle
// configurations", overlapping filters and conflicting actions). So a rule that is added wins
// wherever it is shorter or colder, and the rule that was there cannot keep anything from it.
// What expires also becomes a replaced version before its time.
func (r *lifecycleRule) competes(other Rule) bool {
	under := r.plain().Prefix
	overlaps := strings.HasPrefix(under, other.Prefix) || strings.HasPrefix(other.Prefix, under)
	current := len(r.Transitions) > 0 || r.Expire > 0 || r.ExpireDate != ""
	replaced := r.Noncurrent != nil || len(r.NoncurrentTransitions) > 0
	return r.Status == "Enabled" && overlaps &&
		(other.AbortDays > 0 && r.Abort > 0 ||
			(other.NoncurrentDays > 0 || other.ExpireDays > 0) && replaced ||
			(other.ExpireDays > 0 || len(other.Transitions) > 0) && current)
}

// Competing returns the rules of the lifecycle whose objects another rule would make expire sooner,
// move or lose as well, but for one of the same name, which that replaces.
func (l *Lifecycle) Competing(with Rule) []Rule {
	var out []Rule
	for i := range l.rules {
		if r := &l.rules[i].lifecycleRule; r.ID != with.ID && r.competes(with) {
			out = append(out, r.plain())
		}
	}
	return out
}

// HasFilters says whether the lifecycle takes rules that sizes narrow: one of before 2016 has
// prefixes without filters, and S3 takes no document with both.
func (l *Lifecycle) HasFilters() bool {
	return !slices.ContainsFunc(l.rules, func(r ruleSpan) bool { return r.Prefix != nil && r.Filter == nil })
}

// plain returns the rule as curfew writes one.
func (r *lifecycleRule) plain() Rule {
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

// WithRules returns a bucket's lifecycle with rules added and nothing else changed: every
// byte of other rules stays. A rule with the name of one that is added is replaced; names
// begin with [RuleMark]. An empty document is a bucket without a lifecycle.
func WithRules(document string, rules []Rule) (string, error) {
	doc, err := ParseLifecycle(document)
	if err != nil {
		return "", err
	}
	out, err := doc.with(rules)
	return string(out), err
}

// Rules returns the rules of a bucket's lifecycle, as far as [Rule] says what they do.
func Rules(document string) ([]Rule, error) {
	doc, err := ParseLifecycle(document)
	if err != nil {
		return nil, err
	}
	out := make([]Rule, len(doc.rules))
	for i, r := range doc.rules {
		out[i] = r.plain()
	}
	return out, nil
}

// WriteRules writes a lifecycle that has these rules and no others.
func WriteRules(rules []Rule) string {
	if len(rules) == 0 {
		return ""
	}
	return xml.Header + "<" + lifecycleRoot + ` xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` + written(rules,
		false) + "</" + lifecycleRoot + ">"
}

// Lifecycle is a bucket's lifecycle as S3 returned it, with where its rules are. Its bytes are
// never encoded again. The zero Lifecycle is that of a bucket without one.
type Lifecycle struct {
	text  []byte
	rules []ruleSpan
	// end is where the root ends: further rules go before it.
	end int
}

type ruleSpan struct {
	from, to int
	lifecycleRule
}

// lifecycleRoot is the document's element.
const lifecycleRoot = "LifecycleConfiguration"

// ParseLifecycle reads a document; an empty one is a bucket without a lifecycle.
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
				doc.end, closed = before, true
			case depth == 1 && t.Name.Local == "Rule":
				r := ruleSpan{from: started, to: int(d.InputOffset())}
				if err := xml.Unmarshal(text[r.from:r.to], &r.lifecycleRule); err != nil {
					return nil, fmt.Errorf("read a rule of the lifecycle: %w", err)
				}
				doc.rules = append(doc.rules, r)
			}
		}
	}
}

// with returns the document with rules added and nothing else changed: every byte of
// other rules stays. A rule of curfew's with the same name is replaced.
func (l *Lifecycle) with(rules []Rule) ([]byte, error) {
	for _, r := range rules {
		if !strings.HasPrefix(r.ID, RuleMark) {
			return nil, fmt.Errorf("add rule %q to a lifecycle: its name does not begin with %s", r.ID, RuleMark)
		}
	}
	if len(l.text) == 0 {
		return []byte(WriteRules(rules)), nil
	}
	var out bytes.Buffer
	at, kept, old := 0, 0, false
	for _, x := range l.rules {
		if slices.ContainsFunc(rules, func(r Rule) bool { return r.ID == x.ID }) {
			out.Write(l.text[at:x.from])
			at = x.to
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
	out.Write(l.text[at:l.end])
	out.WriteString(written(rules, old))
	out.Write(l.text[l.end:])
	return out.Bytes(), nil
}

// written writes rules as XML. A lifecycle of before 2016 has prefixes without a filter,
// and S3 takes no document with both.
func written(rules []Rule, old bool) string {
	var b strings.Builder
	for _, r := range rules {
		b.WriteString("<Rule><ID>" + escaped(r.ID) + "</ID>")
		prefix := "<Prefix>" + escaped(r.Prefix) + "</Prefix>"
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
				t.Days, escaped(t.Class))
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

func escaped(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		panic("escape a text: " + err.Error()) // a builder takes everything
	}
	return b.String()
}
