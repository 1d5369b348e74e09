package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

// Parse parses a file of policies; name is used in errors. Every error is a *document.Error with
// line and column, several are a [document.Errors]: unknown and repeated keys, wrong types, a
// second document, conditions that do not compile, unknown verbs, modes and values, and a
// destructive action without an explicit grace.
func Parse(name string, src []byte) (*Set, error) {
	d, root, err := openFile(name, src, APIVersion)
	if err != nil {
		return nil, err
	}
	d.EveryMistake = true
	set, err := d.set(root)
	var all document.Errors
	if errors.As(err, &all) {
		slices.SortStableFunc(all, func(a, b *document.Error) int { return cmp.Compare(a.Line, b.Line) })
	}
	return set, err
}

// Shape returns the schema of a file of policies.
func Shape() *document.Shape {
	d := &reader{&document.File{}}
	return document.Describe(func(n ast.Node) error { _, err := d.set(n); return err })
}

func (d *reader) set(root ast.Node) (*Set, error) {
	set := &Set{}
	_, err := d.Mapping(root, "the file",
		document.Required("apiVersion", "version of the language", version(APIVersion)),
		document.Required("policies", "the policies; each name once", func(n ast.Node) error {
			return d.Items(n, "policies", func(item ast.Node) error {
				p, err := d.policy(item)
				if err != nil {
					return err
				}
				if first := set.named(p.Name); first != nil {
					return d.At(item, "policy %q is defined already, in line %d", p.Name, first.Line)
				}
				set.Policies = append(set.Policies, p)
				return nil
			})
		}))
	if err != nil {
		return nil, err
	}
	if len(set.Policies) == 0 {
		return nil, d.At(root, "the file has no policy")
	}
	return set, nil
}

// Merge joins the policies of several files. A repeated name is a *document.Error.
func Merge(sets ...*Set) (*Set, error) {
	out := &Set{}
	for _, s := range sets {
		for _, p := range s.Policies {
			if first := out.named(p.Name); first != nil {
				return nil, &document.Error{File: p.File, Line: p.Line, Column: 1,
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

// reader reads a file of policies or of policy tests.
type reader struct{ *document.File }

// openFile parses a file and checks its version before the rest.
func openFile(name string, src []byte, version string) (*reader, ast.Node, error) {
	f, err := document.Parse(name, src)
	if err != nil {
		return nil, nil, err
	}
	root, err := f.Body()
	if err != nil {
		return nil, nil, err
	}
	err = f.Pairs(root, "the file", func(key string, _, v ast.Node) error {
		if key != "apiVersion" {
			return nil
		}
		got, err := f.Text(v, key)
		if err == nil && got != version {
			err = f.At(v, "apiVersion is %s, not %q", version, got)
		}
		return err
	})
	return &reader{f}, root, err
}

// version reads apiVersion, which openFile has checked.
func version(v string) func(ast.Node) error {
	return func(n ast.Node) error {
		document.Note(n, document.Shape{Type: document.String, Enum: []string{v}})
		return nil
	}
}

// policyName matches valid policy names, which logs and commands use.
var policyName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

func (d *reader) policy(n ast.Node) (*Policy, error) {
	p := &Policy{File: d.Name, Line: d.At(n, "").Line}
	var where, when ast.Node
	given, err := d.Mapping(n, "a policy",
		document.Required("name", "letters, digits, dots, dashes and underscores, 100 at most; unique over all files",
			func(n ast.Node) (err error) {
				document.Note(n, document.Shape{Pattern: policyName.String()})
				if p.Name, err = d.Text(n, "name"); err == nil && !policyName.MatchString(p.Name) {
					err = d.At(n, "name %q: letters, digits, dots, dashes and underscores are allowed, 100 at most",
						p.Name)
				}
				return err
			}),
		document.Optional("select", "resources by plain values; all keys must match", func(n ast.Node) error {
			return d.selection(n, "select", &p.Select)
		}),
		document.Optional("where",
			"condition on the facts of a resource, in CEL; unknown and false leave the resource out",
			func(n ast.Node) (err error) { where = n; p.Where, err = d.Text(n, "where"); return err }),
		document.Optional("when", "condition on what the resource does now, in CEL; only true proposes",
			func(n ast.Node) (err error) { when = n; p.When, err = d.Text(n, "when"); return err }),
		document.Optional("schedule", "when the policy applies by the clock", func(n ast.Node) (err error) {
			p.Schedule, p.compiled, err = d.schedule(n)
			return err
		}),
		document.Required("then", "at most one warning, then exactly one action", func(n ast.Node) error {
			return d.then(n, p)
		}),
		document.Optional("limits", "caps of this policy", func(n ast.Node) error { return d.limits(n, &p.Limits) }),
		document.Optional("mode", "observe proposes, warn also warns, enforce also acts if the run enforces",
			func(n ast.Node) (err error) { p.Mode, err = d.mode(n); return err }),
	)
	if err != nil {
		_, whereErr := d.condition(where, p.Where, true)
		_, whenErr := d.condition(when, p.When, true)
		return nil, document.Join(err, whereErr, whenErr)
	}
	if p.IsFleet() {
		if err := p.checkFleet(given); err != nil {
			return nil, d.At(given["then"], "%s", err)
		}
		return p, nil
	}
	if p.Where == "" && p.When == "" && p.Schedule == nil {
		return nil, d.At(given["name"], "policy %q has no condition: give it where, when or schedule", p.Name)
	}
	if p.Do.Verb == Scale {
		if err := p.checkScale(); err != nil {
			return nil, d.At(given["then"], "%s", err)
		}
	}
	var whenErr error
	p.where, err = d.condition(where, p.Where, p.Schedule != nil)
	p.when, whenErr = d.condition(when, p.When, p.Schedule != nil)
	return p, document.Join(err, whenErr)
}

// checkScale returns an error for an invalid scale action. Groups and endpoints need a size; a
// machine ends through its group, which shrinks by one.
func (p *Policy) checkScale() error {
	machines := slices.Equal(p.Select.Kind, []string{string(inventory.KindInstance)})
	sized := len(p.Select.Kind) > 0 && !slices.ContainsFunc(p.Select.Kind, func(k string) bool {
		return k != string(inventory.KindAutoScalingGroup) && k != string(inventory.KindEndpoint)
	})
	switch {
	case !machines && !sized:
		return errors.New(
			"do: scale needs fleet, or select: {kind: …}: autoscaling-group or endpoint with to, or instance without it")
	case machines && p.Do.To != ThroughGroup:
		return errors.New("do: scale of machines has no to: each ends through its group, which becomes one smaller")
	case sized && p.Do.To == ThroughGroup:
		return errors.New("do: scale needs to: how many machines are left")
	}
	return nil
}

// condition compiles a condition and returns errors at their position in the file.
func (d *reader) condition(n ast.Node, text string, schedule bool) (*condition, error) {
	if text == "" {
		return nil, nil
	}
	c, f := compile(text, schedule)
	if f != nil {
		e := d.At(n, "%s", f.message)
		e.Line, e.Column = d.position(n, f.line, f.column)
		return nil, e
	}
	return c, nil
}

func (d *reader) selection(n ast.Node, what string, s *Select, more ...document.Key) error {
	entries := more
	for i := range fields {
		f := &fields[i]
		entries = append(entries, document.Optional(f.name, f.doc, func(n ast.Node) error {
			return d.selectedValues(n, f, f.selected(s))
		}))
	}
	entries = append(entries, document.Optional("tags", `tags that the resource has; "*" is any value`,
		func(n ast.Node) (err error) { s.Tags, err = d.tags(n); return err }))
	_, err := d.Mapping(n, what, entries...)
	return err
}

// selectedValues reads the values of one field of a selection.
func (d *reader) selectedValues(n ast.Node, f *field, out *[]string) (err error) {
	texts := func(n ast.Node) error { return d.selectedTexts(n, f, out) }
	if f.name != "account" {
		return texts(n)
	}
	return document.Forms(n, document.IfInteger(func(n ast.Node) error {
		*out = []string{n.GetToken().Value} // account numbers may be unquoted
		return nil
	}), document.Otherwise(texts))
}

func (d *reader) selectedTexts(n ast.Node, f *field, out *[]string) (err error) {
	document.Note(n, document.Shape{Enum: f.values})
	*out, err = d.Texts(n, f.name, func(v string) error {
		switch {
		case f.values != nil && !slices.Contains(f.values, v):
			return fmt.Errorf("%s %q does not exist; it is %s%s", f.name, v, document.OneOf(f.values),
				document.DidYouMean(v, f.values))
		case f.lowerCase && v != strings.ToLower(v):
			return fmt.Errorf("%s %q: its letters are small: %q", f.name, v, strings.ToLower(v))
		}
		return nil
	})
	return err
}

func (d *reader) tags(n ast.Node) (map[string]string, error) {
	out := map[string]string{}
	document.Note(n, document.Shape{LeastItems: 1})
	err := d.Pairs(n, "tags", func(key string, k, v ast.Node) error {
		return document.Forms(v,
			document.IfWord("", func(ast.Node) error { out[key] = ""; return nil }), // empty is a value like others
			document.Otherwise(func(v ast.Node) (err error) { out[key], err = d.Text(v, "tag "+key); return err }))
	})
	if err == nil && len(out) == 0 {
		err = d.At(n, "tags are empty")
	}
	return out, err
}

func (d *reader) schedule(n ast.Node) (*Schedule, *compiledSchedule, error) {
	s := &Schedule{Location: time.UTC}
	var trial compiledSchedule
	_, err := d.Mapping(n, "schedule",
		document.Optional("timezone", "place by whose clocks the schedule counts", func(n ast.Node) error {
			document.Note(n, document.Shape{Default: "UTC"})
			name, err := d.Text(n, "timezone")
			if err != nil {
				return err
			}
			if s.Location, err = time.LoadLocation(name); err != nil || name == "Local" {
				return d.At(n, "timezone %q is not known; it is a name such as Europe/Berlin or UTC", name)
			}
			return nil
		}),
		document.Optional("off", `spans in which the policy applies: "Mon-Fri 20:00-07:00", Sat-Sun, "22:00-06:00"`,
			func(n ast.Node) (err error) { s.Off, err = d.Texts(n, "off", trial.addOff); return err }),
		document.Optional("at",
			`times from which the policy applies to machines that ran before: "Fri 18:00", "20:00"`,
			func(n ast.Node) (err error) { s.At, err = d.Texts(n, "at", trial.addTick); return err }),
	)
	if err != nil {
		return nil, nil, err
	}
	if len(s.Off)+len(s.At) == 0 {
		return nil, nil, d.At(n, "schedule needs off or at")
	}
	h, err := newHours(s)
	return s, h, err
}

// then reads at most one warning, followed by exactly one action.
func (d *reader) then(n ast.Node, p *Policy) error {
	grace := false
	document.Note(n, document.Shape{LeastItems: 1})
	err := d.Items(n, "then", func(item ast.Node) error {
		if p.Do.Verb != "" {
			return d.At(item, "then ends with its do: one action for a policy")
		}
		return document.Forms(item,
			document.IfKey("do", func(item ast.Node) error { return d.do(item, &p.Do) }),
			document.IfKey("warn", func(item ast.Node) error {
				if p.Warn != nil {
					return d.At(item, "then has one warn at most")
				}
				_, err := d.Mapping(item, "a step with warn", document.Required("warn", "warning before the action",
					func(n ast.Node) (err error) {
						p.Warn, grace, err = d.warning(n)
						return err
					}))
				return err
			}),
			document.Otherwise(func(item ast.Node) error {
				return d.At(item, "a step of then is warn or do; this is neither")
			}))
	})
	if err != nil {
		return err
	}
	switch {
	case p.Do.Verb == "":
		return d.At(n, "then needs a do: what to do")
	case p.Do.Verb.IsDestructive() && !grace && !p.IsFleet():
		return d.At(n, "do: %s takes something away, so it needs a warning with an explicit grace before it, as in - "+
			"warn: {grace: 30m}", p.Do.Verb)
	}
	return nil
}

// durationForm is the pattern of durations that [plain.ParseDuration] accepts.
const durationForm = `^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|w|d|h|m|s))+$`

// maxGrace is the longest grace; a longer one is probably a mistaken unit.
const maxGrace = 90 * 24 * time.Hour

func (d *reader) warning(n ast.Node) (*Warning, bool, error) {
	w := &Warning{}
	given, err := d.Mapping(n, "warn",
		document.Optional("notify", "who is warned: owner, team, or recipients of notify.names",
			func(n ast.Node) (err error) { w.Notify, err = d.Texts(n, "notify", nil); return err }),
		document.Optional("grace",
			"time between the warning and the action; required before an action that takes something away",
			func(n ast.Node) error {
				document.Note(n, document.Shape{Pattern: durationForm})
				s, err := d.Text(n, "grace")
				if err != nil {
					return err
				}
				if w.Grace, err = plain.ParseDuration(s); err != nil || w.Grace < 0 || w.Grace > maxGrace {
					return d.At(n, "grace %q is not a duration from 0s to 90d such as 30m", s)
				}
				return nil
			}))
	return w, given["grace"] != nil, err
}

// options are the keys next to do, with the verbs that accept them, and need them if required is
// set.
var options = []struct {
	name     string
	verbs    []string
	required bool
}{
	{
		"even_if_busy",
		[]string{string(Suspend), string(Scale), string(Stop), string(Hibernate), string(Terminate), string(Delete)},
		false,
	},
	{
		"even_if_unknown",
		[]string{string(Suspend), string(Scale), string(Stop), string(Hibernate), string(Terminate), string(Delete)},
		false,
	},
	{"disks", []string{string(Scale), string(Stop), string(Hibernate), string(Terminate)}, false},
	{"scratch_disks", []string{string(Scale), string(Stop), string(Hibernate), string(Terminate)}, false},
	{"save_disks", []string{string(Stop), string(Terminate)}, false},
	{"tags", []string{string(Tag)}, true},
	{"retention_days", []string{string(PutRetention)}, true},
	{"to", []string{string(Scale)}, false},
	{"fleet", []string{string(Scale)}, false},
	{"min", []string{string(Scale)}, false},
	{"max", []string{string(Scale)}, false},
	{"zero", []string{string(Scale)}, false},
	{"target", []string{string(Scale)}, false},
}

// Verbs returns all verbs of actions, from the least to the most harmful.
func Verbs() []Verb {
	out := make([]Verb, 0, len(verbs)+1)
	for _, v := range verbs {
		out = append(out, Verb(v))
	}
	return append(out, PutLifecycle)
}

// verbs are the verbs of policies. put-lifecycle needs a finding, which knows the bucket's other
// rules.
var verbs = []string{
	string(Notify), string(Tag), string(Checkpoint), string(Suspend), string(Scale), string(Stop), string(Hibernate),
	string(Terminate), string(Delete), string(Release), string(PutRetention),
}

func (d *reader) do(n ast.Node, do *Do) error {
	given, err := d.Mapping(n, "a step with do",
		document.Required("do", "the action, from the least harm to the most", func(n ast.Node) error {
			return document.Choice(d.File, n, "do", verbs, &do.Verb)
		}),
		document.Optional("even_if_busy", "act on a resource that is at work as well", func(n ast.Node) (err error) {
			do.EvenIfBusy, err = d.Flag(n, "even_if_busy")
			return err
		}),
		document.Optional("even_if_unknown", "act where the duty is unknown as well", func(n ast.Node) (err error) {
			do.EvenIfUnknown, err = d.Flag(n, "even_if_unknown")
			return err
		}),
		document.Optional("disks", "what happens to disks that the action takes along", func(n ast.Node) error {
			return d.disks(n, do)
		}),
		document.Optional("scratch_disks", "older form of disks: the content of all these disks may be lost",
			func(n ast.Node) (err error) { do.ScratchDisks, err = d.Flag(n, "scratch_disks"); return err }),
		document.Optional("save_disks", "older form of disks: {root: snapshot}", func(n ast.Node) (err error) {
			do.SaveDisks, err = d.Flag(n, "save_disks")
			return err
		}),
		document.Optional("tags", "tags to write", func(n ast.Node) (err error) {
			do.Tags, err = d.tags(n)
			return err
		}),
		document.Optional("retention_days", "days after which a log group deletes events",
			func(n ast.Node) (err error) {
				do.RetentionDays, err = d.Count(n, "retention_days", 1, math.MaxInt32)
				return err
			}),
		document.Optional("to", "how many machines are left of a group or endpoint", func(n ast.Node) (err error) {
			do.To, err = d.Count(n, "to", 0, math.MaxInt32)
			return err
		}),
		document.Optional("fleet", "serving fleet to keep at the size that its demand needs: asg/NAME, endpoint/NAME or custom/NAME",
			func(n ast.Node) error { return d.readFleet(n, do) }),
		document.Optional("min", "least replicas of the fleet", func(n ast.Node) (err error) {
			do.Min, err = d.Count(n, "min", 0, fleet.MaxReplicas)
			return err
		}),
		document.Optional("max", "most replicas of the fleet", func(n ast.Node) (err error) {
			do.Max, err = d.Count(n, "max", 1, fleet.MaxReplicas)
			return err
		}),
		document.Optional("zero", "let the fleet have no replica without requests; min is 0 then",
			func(n ast.Node) (err error) { do.Zero, err = d.Flag(n, "zero"); return err }),
		document.Optional("target", "utilization of the replicas to aim for, over 0 to 1",
			func(n ast.Node) error { return d.readTarget(n, do) }),
	)
	if err != nil {
		return err
	}
	if do.Verb == Scale && given["to"] == nil {
		do.To = ThroughGroup
	}
	if err := d.fleetKeys(n, given); err != nil {
		return err
	}
	for _, old := range []string{"scratch_disks", "save_disks"} {
		if key := given[old]; key != nil && given["disks"] != nil {
			return d.At(key, "%s and disks say the same thing: give disks alone", old)
		}
	}
	for _, o := range options {
		key, belongs := given[o.name], slices.Contains(o.verbs, string(do.Verb))
		switch {
		case key != nil && !belongs:
			return d.At(key, "%s belongs to %s, not to %s", o.name, document.OneOf(o.verbs), do.Verb)
		case key == nil && belongs && o.required:
			return d.At(n, "do: %s needs %s", do.Verb, o.name)
		}
	}
	return nil
}

// Treatments of disks.
const (
	scratch  = "scratch"
	snapshot = "snapshot"
)

// disks reads the treatment of disks that are lost with a machine.
func (d *reader) disks(n ast.Node, do *Do) error {
	given, err := d.Mapping(n, "disks",
		document.Optional("instance_store", "scratch: the content of instance-store disks may be lost",
			func(n ast.Node) (err error) {
				do.ScratchInstanceStore, err = d.scratchOnly(n)
				return err
			}),
		document.Optional("root",
			"snapshot: volumes that are deleted with the machine are saved first; scratch: the root volume may be lost",
			func(n ast.Node) error {
				var fate string
				err := document.Choice(d.File, n, "root", []string{scratch, snapshot}, &fate)
				do.ScratchRoot, do.SaveDisks = fate == scratch, fate == snapshot
				return err
			}))
	if err == nil && len(given) == 0 {
		err = d.At(n, "disks needs instance_store or root")
	}
	return err
}

// scratchOnly reads the treatment of instance-store disks.
func (d *reader) scratchOnly(n ast.Node) (bool, error) {
	document.Note(n, document.Shape{Enum: []string{scratch}})
	v, err := d.Text(n, "instance_store")
	switch {
	case err != nil:
		return false, err
	case v == snapshot:
		return false, d.At(n,
			"instance_store: no snapshot can save instance-store disks; declare them scratch, or leave the key out")
	case v != scratch:
		return false, d.At(n, "instance_store %q does not exist; it is scratch", v)
	}
	return true, nil
}

func (d *reader) limits(n ast.Node, l *Limits) error {
	_, err := d.Mapping(n, "limits",
		document.Optional("per_hour", "most actions of the policy in an hour", func(n ast.Node) (err error) {
			l.PerHour, err = d.Count(n, "per_hour", 1, math.MaxInt32)
			return err
		}),
		document.Optional("share", "most actions as a share of the resources that the policy selects",
			func(n ast.Node) error {
				document.Note(n, document.Shape{Type: document.String, Pattern: percentage.String()})
				share, ok := parseShare(document.Scalar(n))
				if !ok {
					return d.At(n,
						"share is a percentage over 0 and up to 100 with at most two decimals, such as 20%%")
				}
				l.Share = share
				return nil
			}),
		document.Optional("dollars_per_hour", "most dollars an hour of list price that the actions of an hour end",
			func(n ast.Node) error {
				document.Note(n, document.Shape{Type: document.Decimal, Over: true})
				amount, err := money.ParseAmount(document.Scalar(n))
				if err != nil || amount <= 0 {
					return d.At(n, "dollars_per_hour is an amount of dollars over 0, such as 200 or 12.50")
				}
				l.DollarsPerHour = amount
				return nil
			}))
	return err
}

// percentage matches digits with at most two decimals and a percent sign.
var percentage = lazyregexp.New(`^([0-9]{1,3})(?:\.([0-9]{1,2}))?%$`)

// parseShare parses "20%" or "12.5%" as a share over 0 and up to 1.
func parseShare(s string) (float64, bool) {
	m := percentage.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	points, err := strconv.Atoi(m[1] + (m[2] + "00")[:2])
	return float64(points) / 10_000, err == nil && points > 0 && points <= 10_000
}

func (d *reader) mode(n ast.Node) (Mode, error) {
	document.Note(n, document.Shape{Enum: modes, Default: modes[0]})
	s, err := d.Text(n, "mode")
	if err != nil {
		return Observe, err
	}
	switch s {
	case "observe":
		return Observe, nil
	case string(Warn), string(Enforce):
		return Mode(s), nil
	}
	return Observe, d.At(n, "mode %q does not exist; it is %s%s", s, document.OneOf(modes),
		document.DidYouMean(s, modes))
}

// modes are the names of modes in files.
var modes = []string{"observe", string(Warn), string(Enforce)}
