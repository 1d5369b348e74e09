package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/money"
)

// Parse reads one file of policies; name is the file's, for errors. Every mistake is an
// *Error with its line and column: unknown and repeated keys, wrong types, a second
// document, conditions that do not compile, verbs, modes and values that do not exist,
// and a destructive action without an explicit grace.
func Parse(name string, src []byte) (*Set, error) {
	d, root, err := openDocument(name, src)
	if err != nil {
		return nil, err
	}
	if err := d.version(root, APIVersion); err != nil {
		return nil, err
	}
	set := &Set{}
	_, err = d.mapping(root, "the file",
		entry{"apiVersion", true, checked},
		entry{"policies", true, func(n ast.Node) error {
			return d.items(n, "policies", func(item ast.Node) error {
				p, err := d.policy(item)
				if err != nil {
					return err
				}
				if first := set.named(p.Name); first != nil {
					return d.at(item, "policy %q is defined already, in line %d", p.Name, first.Line)
				}
				set.Policies = append(set.Policies, p)
				return nil
			})
		}})
	if err != nil {
		return nil, err
	}
	if len(set.Policies) == 0 {
		return nil, d.at(root, "the file has no policy")
	}
	return set, nil
}

// Merge joins the policies of several files. Two policies of one name are an *Error.
func Merge(sets ...*Set) (*Set, error) {
	out := &Set{}
	for _, s := range sets {
		for _, p := range s.Policies {
			if first := out.named(p.Name); first != nil {
				return nil, &Error{File: p.File, Line: p.Line, Column: 1,
					Message: fmt.Sprintf("policy %q is defined already, in %s:%d", p.Name, first.File, first.Line)}
			}
			out.Policies = append(out.Policies, p)
		}
	}
	return out, nil
}

func (s *Set) named(name string) *Policy {
	for _, p := range s.Policies {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// version checks the version of a file before anything else of it is read.
func (d *document) version(root ast.Node, want string) error {
	return d.pairs(root, "the file", func(key string, _, v ast.Node) error {
		if key != "apiVersion" {
			return nil
		}
		got, err := d.text(v, key)
		if err == nil && got != want {
			err = d.at(v, "apiVersion is %s, not %q", want, got)
		}
		return err
	})
}

// checked reads a key whose value was looked at before.
func checked(ast.Node) error { return nil }

// policyName is what a policy may be called, in logs and in commands.
var policyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

func (d *document) policy(n ast.Node) (*Policy, error) {
	p := &Policy{File: d.file, Line: d.at(n, "").Line}
	var where, when ast.Node
	given, err := d.mapping(n, "a policy",
		entry{"name", true, func(n ast.Node) (err error) {
			if p.Name, err = d.text(n, "name"); err == nil && !policyName.MatchString(p.Name) {
				err = d.at(n, "name %q: letters, digits, dots, dashes and underscores are allowed, 100 at most", p.Name)
			}
			return err
		}},
		entry{"select", false, func(n ast.Node) error { return d.selection(n, "select", &p.Select) }},
		entry{"where", false, func(n ast.Node) (err error) { where = n; p.Where, err = d.text(n, "where"); return err }},
		entry{"when", false, func(n ast.Node) (err error) { when = n; p.When, err = d.text(n, "when"); return err }},
		entry{"schedule", false, func(n ast.Node) (err error) { p.Schedule, p.hours, err = d.schedule(n); return err }},
		entry{"then", true, func(n ast.Node) error { return d.then(n, p) }},
		entry{"limits", false, func(n ast.Node) error { return d.limits(n, &p.Limits) }},
		entry{"mode", false, func(n ast.Node) (err error) { p.Mode, err = d.mode(n); return err }},
	)
	if err != nil {
		return nil, err
	}
	if p.Where == "" && p.When == "" && p.Schedule == nil {
		return nil, d.at(given["name"], "policy %q has no condition: give it where, when or schedule", p.Name)
	}
	if p.where, err = d.condition(where, p.Where, p.Schedule != nil); err != nil {
		return nil, err
	}
	p.when, err = d.condition(when, p.When, p.Schedule != nil)
	return p, err
}

// condition compiles a condition and puts its mistakes where they are in the file.
func (d *document) condition(n ast.Node, text string, schedule bool) (*condition, error) {
	if text == "" {
		return nil, nil
	}
	c, f := compile(text, schedule)
	if f != nil {
		e := d.at(n, "%s", f.message)
		e.Line, e.Column = d.inside(n, f.line, f.column)
		return nil, e
	}
	return c, nil
}

func (d *document) selection(n ast.Node, what string, s *Select, more ...entry) error {
	entries := more
	for i := range fields {
		f := &fields[i]
		entries = append(entries, entry{f.name, false, func(n ast.Node) error { return d.wanted(n, f, f.wanted(s)) }})
	}
	entries = append(entries, entry{"tags", false, func(n ast.Node) (err error) { s.Tags, err = d.tags(n); return err }})
	_, err := d.mapping(n, what, entries...)
	return err
}

// wanted reads the values of one field of a selection.
func (d *document) wanted(n ast.Node, f *field, out *[]string) (err error) {
	if number, ok := n.(*ast.IntegerNode); ok && f.name == "account" {
		*out = []string{number.GetToken().Value} // account numbers are written without quotes
		return nil
	}
	*out, err = d.texts(n, f.name, func(v string) error {
		switch {
		case f.values != nil && !slices.Contains(f.values, v):
			return fmt.Errorf("%s %q does not exist; it is %s", f.name, v, oneOf(f.values))
		case f.lower && v != strings.ToLower(v):
			return fmt.Errorf("%s %q: its letters are small: %q", f.name, v, strings.ToLower(v))
		}
		return nil
	})
	return err
}

func (d *document) tags(n ast.Node) (map[string]string, error) {
	out := map[string]string{}
	err := d.pairs(n, "tags", func(key string, k, v ast.Node) error {
		if s, ok := v.(*ast.StringNode); ok && s.Value == "" {
			out[key] = "" // an empty tag is a value like others
			return nil
		}
		s, err := d.text(v, "tag "+key)
		out[key] = s
		return err
	})
	if err == nil && len(out) == 0 {
		err = d.at(n, "tags are empty")
	}
	return out, err
}

func (d *document) schedule(n ast.Node) (*Schedule, *hours, error) {
	s := &Schedule{Location: time.UTC}
	var trial hours
	_, err := d.mapping(n, "schedule",
		entry{"timezone", false, func(n ast.Node) error {
			name, err := d.text(n, "timezone")
			if err != nil {
				return err
			}
			if s.Location, err = time.LoadLocation(name); err != nil || name == "Local" {
				return d.at(n, "timezone %q is not known; it is a name such as Europe/Berlin or UTC", name)
			}
			return nil
		}},
		entry{"off", false, func(n ast.Node) (err error) { s.Off, err = d.texts(n, "off", trial.addOff); return err }},
		entry{"at", false, func(n ast.Node) (err error) { s.At, err = d.texts(n, "at", trial.addTick); return err }},
	)
	if err != nil {
		return nil, nil, err
	}
	if len(s.Off)+len(s.At) == 0 {
		return nil, nil, d.at(n, "schedule needs off or at")
	}
	h, err := newHours(s)
	return s, h, err
}

// then reads at most one warning and exactly one action, in that order.
func (d *document) then(n ast.Node, p *Policy) error {
	grace := false
	err := d.items(n, "then", func(item ast.Node) error {
		has := func(key string) bool {
			found := false
			_ = d.pairs(item, "", func(k string, _, _ ast.Node) error { found = found || k == key; return nil })
			return found
		}
		switch {
		case p.Do.Verb != "":
			return d.at(item, "then ends with its do: one action for a policy")
		case has("do"):
			return d.do(item, &p.Do)
		case has("warn") && p.Warn != nil:
			return d.at(item, "then has one warn at most")
		case has("warn"):
			_, err := d.mapping(item, "a step with warn", entry{"warn", true, func(n ast.Node) (err error) {
				p.Warn, grace, err = d.warning(n)
				return err
			}})
			return err
		}
		return d.at(item, "a step of then is warn or do; this is neither")
	})
	if err != nil {
		return err
	}
	switch {
	case p.Do.Verb == "":
		return d.at(n, "then needs a do: what to do")
	case p.Do.Verb.Destructive() && !grace:
		return d.at(n, "do: %s takes something away, so it needs a warning with an explicit grace before it, as in - warn: {grace: 30m}", p.Do.Verb)
	}
	return nil
}

// maxGrace is the longest grace. A longer one is a mistake in the unit.
const maxGrace = 90 * 24 * time.Hour

func (d *document) warning(n ast.Node) (*Warning, bool, error) {
	w := &Warning{}
	given, err := d.mapping(n, "warn",
		entry{"notify", false, func(n ast.Node) (err error) { w.Notify, err = d.texts(n, "notify", nil); return err }},
		entry{"grace", false, func(n ast.Node) error {
			s, err := d.text(n, "grace")
			if err != nil {
				return err
			}
			if w.Grace, err = parseDuration(s); err != nil || w.Grace < 0 || w.Grace > maxGrace {
				return d.at(n, "grace %q is not a duration from 0s to 90d such as 30m", s)
			}
			return nil
		}})
	return w, given["grace"] != nil, err
}

// options are the keys beside do, and the verbs that they belong to. Where required,
// those verbs need them.
var options = []struct {
	name     string
	verbs    []string
	required bool
}{
	{"even_if_busy", []string{string(Suspend), string(Scale), string(Stop), string(Hibernate), string(Terminate), string(Delete)}, false},
	{"scratch_disks", []string{string(Stop), string(Hibernate), string(Terminate)}, false},
	{"save_disks", []string{string(Stop), string(Terminate)}, false},
	{"tags", []string{string(Tag)}, true},
	{"retention_days", []string{string(PutRetention)}, true},
	{"to", []string{string(Scale)}, true},
}

// verbs are those that a policy may use. A lifecycle comes with a finding, which knows
// the bucket's other rules.
var verbs = []string{
	string(Notify), string(Tag), string(Checkpoint), string(Suspend), string(Scale), string(Stop), string(Hibernate),
	string(Terminate), string(Delete), string(Release), string(PutRetention),
}

func (d *document) do(n ast.Node, do *Do) error {
	given, err := d.mapping(n, "a step with do",
		entry{"do", true, func(n ast.Node) error {
			s, err := d.text(n, "do")
			do.Verb = Verb(s)
			if err == nil && !slices.Contains(verbs, s) {
				err = d.at(n, "do %q does not exist; it is %s", s, oneOf(verbs))
			}
			return err
		}},
		entry{"even_if_busy", false, func(n ast.Node) (err error) { do.EvenIfBusy, err = d.flag(n, "even_if_busy"); return err }},
		entry{"scratch_disks", false, func(n ast.Node) (err error) { do.ScratchDisks, err = d.flag(n, "scratch_disks"); return err }},
		entry{"save_disks", false, func(n ast.Node) (err error) { do.SaveDisks, err = d.flag(n, "save_disks"); return err }},
		entry{"tags", false, func(n ast.Node) (err error) { do.Tags, err = d.tags(n); return err }},
		entry{"retention_days", false, func(n ast.Node) (err error) {
			do.RetentionDays, err = d.count(n, "retention_days", 1)
			return err
		}},
		entry{"to", false, func(n ast.Node) (err error) { do.To, err = d.count(n, "to", 0); return err }},
	)
	if err != nil {
		return err
	}
	for _, o := range options {
		key, belongs := given[o.name], slices.Contains(o.verbs, string(do.Verb))
		switch {
		case key != nil && !belongs:
			return d.at(key, "%s belongs to %s, not to %s", o.name, oneOf(o.verbs), do.Verb)
		case key == nil && belongs && o.required:
			return d.at(n, "do: %s needs %s", do.Verb, o.name)
		}
	}
	return nil
}

// count reads a whole number.
func (d *document) count(n ast.Node, what string, least int) (int, error) {
	v, err := strconv.ParseUint(scalar(n), 10, 31)
	if _, ok := n.(*ast.IntegerNode); !ok || err != nil || v < uint64(least) {
		return 0, d.at(n, "%s is a whole number from %d", what, least)
	}
	return int(v), nil
}

func (d *document) limits(n ast.Node, l *Limits) error {
	_, err := d.mapping(n, "limits",
		entry{"per_hour", false, func(n ast.Node) (err error) { l.PerHour, err = d.count(n, "per_hour", 1); return err }},
		entry{"share", false, func(n ast.Node) error {
			share, ok := parseShare(scalar(n))
			if !ok {
				return d.at(n, "share is a percentage over 0 and up to 100 with at most two decimals, such as 20%%")
			}
			l.Share = share
			return nil
		}},
		entry{"dollars_per_hour", false, func(n ast.Node) error {
			amount, err := money.ParseAmount(scalar(n))
			if err != nil || amount <= 0 {
				return d.at(n, "dollars_per_hour is an amount of dollars over 0, such as 200 or 12.50")
			}
			l.DollarsPerHour = amount
			return nil
		}})
	return err
}

// percentage is digits with at most two decimals and a percent sign.
var percentage = regexp.MustCompile(`^([0-9]{1,3})(?:\.([0-9]{1,2}))?%$`)

// parseShare reads "20%" or "12.5%" as a share over 0 and up to 1.
func parseShare(s string) (float64, bool) {
	m := percentage.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	points, err := strconv.Atoi(m[1] + (m[2] + "00")[:2])
	return float64(points) / 10_000, err == nil && points > 0 && points <= 10_000
}

func (d *document) mode(n ast.Node) (Mode, error) {
	s, err := d.text(n, "mode")
	if err != nil {
		return Observe, err
	}
	switch s {
	case "observe":
		return Observe, nil
	case string(Warn), string(Enforce):
		return Mode(s), nil
	}
	return Observe, d.at(n, "mode %q does not exist; it is observe, warn or enforce", s)
}
