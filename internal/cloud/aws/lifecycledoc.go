package aws

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// ruleMark begins the name of every rule that curfew adds to a lifecycle.
const ruleMark = "curfew-"

// maxLifecycleRules is how many rules a bucket's lifecycle has at most (Amazon S3 User
// Guide, "Lifecycle configuration elements").
const maxLifecycleRules = 1000

// LifecycleRule is a rule that is added to a bucket's lifecycle. A field that is zero is
// not in the rule.
type LifecycleRule struct {
	// ID names the rule; it begins with "curfew-".
	ID string
	// Prefix is empty for the whole bucket.
	Prefix string
	// AbortDays is the age at which incomplete uploads are aborted, NoncurrentDays the
	// time after which a version that was replaced is deleted.
	AbortDays, NoncurrentDays int
	// Transitions move objects by age, in the order of their ages.
	Transitions []Transition
}

// Transition moves objects of an age in days to a storage class.
type Transition struct {
	Days  int
	Class string
}

// String says what the rule does, for people.
func (r LifecycleRule) String() string {
	var does []string
	if r.AbortDays > 0 {
		does = append(does, fmt.Sprintf("uploads that are incomplete for %d days are aborted", r.AbortDays))
	}
	if r.NoncurrentDays > 0 {
		does = append(does, fmt.Sprintf("versions are deleted %d days after they were replaced", r.NoncurrentDays))
	}
	for _, t := range r.Transitions {
		does = append(does, fmt.Sprintf("objects move to %s after %d days", t.Class, t.Days))
	}
	under := "the whole bucket"
	if r.Prefix != "" {
		under = "under " + r.Prefix
	}
	return r.ID + ": " + under + ": " + strings.Join(does, ", ")
}

// LifecycleFor returns the rules that a bucket gets, by the findings' own thresholds:
// incomplete uploads are aborted, and where the bucket is known to be versioned, replaced
// versions expire. Under the prefixes that are named, and only there, objects move to
// infrequent access and then to the archive.
func LifecycleFor(r *inventory.Resource, _ policy.Do, prefixes ...string) []LifecycleRule {
	t := finding.DefaultThresholds()
	rules := []LifecycleRule{{ID: ruleMark + "incomplete-uploads", AbortDays: t.MultipartDays}}
	if b, ok := r.Detail.(*inventory.Bucket); ok && b.Versioned.Or(false) {
		rules = append(rules, LifecycleRule{ID: ruleMark + "replaced-versions", NoncurrentDays: t.NoncurrentDays})
	}
	for i, p := range prefixes {
		rules = append(rules, LifecycleRule{ID: fmt.Sprintf("%scolder-%d", ruleMark, i+1), Prefix: p,
			Transitions: []Transition{{t.InfrequentDays, "STANDARD_IA"}, {t.ArchiveDays, "GLACIER"}}})
	}
	return rules
}

// lifecycleRule is a rule of a document as far as rules are compared.
type lifecycleRule struct {
	ID     string    `xml:"ID"`
	Status string    `xml:"Status"`
	Prefix *string   `xml:"Prefix"` // of rules of before 2016
	Filter *struct { // what narrows the rule
		Prefix string    `xml:"Prefix"`
		Tag    *struct{} `xml:"Tag"`
		And    *struct {
			Prefix string `xml:"Prefix"`
		} `xml:"And"`
		Greater string `xml:"ObjectSizeGreaterThan"`
		Less    string `xml:"ObjectSizeLessThan"`
	} `xml:"Filter"`
	Transitions []struct {
		Days  int    `xml:"Days"`
		Class string `xml:"StorageClass"`
	} `xml:"Transition"`
	Expiration            *struct{}  `xml:"Expiration"`
	Abort                 int        `xml:"AbortIncompleteMultipartUpload>DaysAfterInitiation"`
	Noncurrent            int        `xml:"NoncurrentVersionExpiration>NoncurrentDays"`
	NoncurrentTransitions []struct{} `xml:"NoncurrentVersionTransition"`
}

// prefix returns the prefix that the rule is for, and whether it is for everything
// under it.
func (r *lifecycleRule) prefix() (prefix string, whole bool) {
	switch f := r.Filter; {
	case f == nil && r.Prefix != nil:
		return *r.Prefix, true
	case f == nil:
		return "", true
	case f.And != nil:
		return f.And.Prefix, false
	default:
		return f.Prefix, f.Tag == nil && f.Greater == "" && f.Less == ""
	}
}

// plain returns what is curfew's form of the rule.
func (r *lifecycleRule) plain() LifecycleRule {
	p, _ := r.prefix()
	out := LifecycleRule{ID: r.ID, Prefix: p, AbortDays: r.Abort, NoncurrentDays: r.Noncurrent}
	for _, t := range r.Transitions {
		out.Transitions = append(out.Transitions, Transition{t.Days, t.Class})
	}
	return out
}

// does says whether the document's rule does already what another one would. A rule that
// moves or expires objects under one of its prefixes leaves no other to be added there:
// they could contradict.
func (r *lifecycleRule) does(other LifecycleRule) bool {
	p, whole := r.prefix()
	switch {
	case r.Status != "Enabled":
		return false
	case other.AbortDays > 0:
		return whole && r.Abort > 0 && strings.HasPrefix(other.Prefix, p)
	case other.NoncurrentDays > 0:
		return whole && (r.Noncurrent > 0 || len(r.NoncurrentTransitions) > 0) && strings.HasPrefix(other.Prefix, p)
	}
	overlaps := strings.HasPrefix(other.Prefix, p) || strings.HasPrefix(p, other.Prefix)
	return overlaps && (len(r.Transitions) > 0 || r.Expiration != nil)
}

// lifecycleDoc is a bucket's lifecycle as S3 returned it, with where its rules are. Its
// bytes are never written anew.
type lifecycleDoc struct {
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

// parseLifecycle reads a document; an empty text is a bucket without a lifecycle.
func parseLifecycle(text []byte) (*lifecycleDoc, error) {
	doc := &lifecycleDoc{text: text}
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

// lacking returns those of the rules that nothing in the document does yet.
func (d *lifecycleDoc) lacking(rules []LifecycleRule) []LifecycleRule {
	return slices.DeleteFunc(slices.Clone(rules), func(r LifecycleRule) bool {
		return slices.ContainsFunc(d.rules, func(x ruleSpan) bool { return !strings.HasPrefix(x.ID, ruleMark) && x.does(r) }) || d.holds(r)
	})
}

// holds says whether a rule is in the document.
func (d *lifecycleDoc) holds(r LifecycleRule) bool {
	return slices.ContainsFunc(d.rules, func(x ruleSpan) bool {
		return x.ID == r.ID && x.Status == "Enabled" && reflect.DeepEqual(x.plain(), r)
	})
}

// with returns the document with rules added and nothing else changed: every byte of
// other rules stays. A rule of curfew's with the same name is replaced.
func (d *lifecycleDoc) with(rules []LifecycleRule) ([]byte, error) {
	for _, r := range rules {
		if !strings.HasPrefix(r.ID, ruleMark) {
			return nil, fmt.Errorf("add rule %q to a lifecycle: its name does not begin with %s", r.ID, ruleMark)
		}
	}
	if len(d.text) == 0 {
		return []byte(xml.Header + "<" + lifecycleRoot + ` xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` + written(rules, false) + "</" + lifecycleRoot + ">"), nil
	}
	var out bytes.Buffer
	at, kept, old := 0, 0, false
	for _, x := range d.rules {
		if slices.ContainsFunc(rules, func(r LifecycleRule) bool { return r.ID == x.ID }) {
			out.Write(d.text[at:x.from])
			at = x.to
			continue
		}
		kept++
		old = old || x.Prefix != nil && x.Filter == nil
	}
	if kept+len(rules) > maxLifecycleRules {
		return nil, fmt.Errorf("add %d rules to a lifecycle of %d: there can be %d", len(rules), kept, maxLifecycleRules)
	}
	out.Write(d.text[at:d.end])
	out.WriteString(written(rules, old))
	out.Write(d.text[d.end:])
	return out.Bytes(), nil
}

// without returns the rules that are not among those, as they are written, in an order
// of their own: whether two documents have the same ones.
func (d *lifecycleDoc) without(rules []LifecycleRule) []string {
	var out []string
	for _, x := range d.rules {
		if !slices.ContainsFunc(rules, func(r LifecycleRule) bool { return r.ID == x.ID }) {
			out = append(out, string(d.text[x.from:x.to]))
		}
	}
	slices.Sort(out)
	return out
}

// own returns curfew's rules in the document.
func (d *lifecycleDoc) own() []LifecycleRule {
	var out []LifecycleRule
	for _, x := range d.rules {
		if strings.HasPrefix(x.ID, ruleMark) {
			out = append(out, x.plain())
		}
	}
	return out
}

// written writes rules as XML. A lifecycle of before 2016 has prefixes without a filter,
// and S3 takes no document with both.
func written(rules []LifecycleRule, old bool) string {
	var b strings.Builder
	for _, r := range rules {
		b.WriteString("<Rule><ID>" + escaped(r.ID) + "</ID>")
		prefix := "<Prefix>" + escaped(r.Prefix) + "</Prefix>"
		if !old {
			prefix = "<Filter>" + prefix + "</Filter>"
		}
		b.WriteString(prefix + "<Status>Enabled</Status>")
		for _, t := range r.Transitions {
			fmt.Fprintf(&b, "<Transition><Days>%d</Days><StorageClass>%s</StorageClass></Transition>", t.Days, escaped(t.Class))
		}
		if r.NoncurrentDays > 0 {
			fmt.Fprintf(&b, "<NoncurrentVersionExpiration><NoncurrentDays>%d</NoncurrentDays></NoncurrentVersionExpiration>", r.NoncurrentDays)
		}
		if r.AbortDays > 0 {
			fmt.Fprintf(&b, "<AbortIncompleteMultipartUpload><DaysAfterInitiation>%d</DaysAfterInitiation></AbortIncompleteMultipartUpload>", r.AbortDays)
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
