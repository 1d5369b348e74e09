package budget

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Config is the sections budgets and quotas as a file of their own:
//
//	budgets:
//	  - {id: company, purpose: any, amount: 100000, time_zone: Europe/Berlin}
//	  - id: vision
//	    parent: company
//	    team: vision
//	    amount: 20000
//	    per_hour: 200
//	    thresholds: {warn: 80%, gate: 90%, deny: 100%}
//	    split: {training: 60%, evaluation: 10%, experimentation: 30%}
//	  - {id: sprint, team: speech, purpose: training, amount: 5000, period: {from: 2026-11-01, until: 2026-12-16}}
//	quotas:
//	  - {id: h100, gpus: {H100: 16}, machines: 4}
//
// A budget that is split gives each purpose that it names its share, as a budget of its
// own ("vision/training"), and is for no other purpose.
type Config struct {
	Budgets Budgets `yaml:"budgets"`
	Quotas  Quotas  `yaml:"quotas"`
}

// Budgets is the list budgets of the configuration. It decodes strictly; a mistake is a
// YAML error with its place.
type Budgets []Budget

// Quotas is the list quotas of the configuration. It decodes strictly; a mistake is a
// YAML error with its place.
type Quotas []Quota

// Error is a mistake in a file.
type Error struct {
	// File and the 1-based Line and Column of the mistake.
	File         string
	Line, Column int
	Message      string
}

// Error returns "budgets.yaml:7:11: message".
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Parse reads a file of the sections budgets and quotas, and checks them together.
// Mistakes are an *Error.
func Parse(name string, src []byte) (Set, error) {
	if !utf8.Valid(src) {
		return Set{}, &Error{name, 1, 1, "the file is not UTF-8 text"}
	}
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		return Set{}, place(name, err)
	}
	var c Config
	for i, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.NullType:
		case i > 0:
			return Set{}, place(name, at(doc.Body, "a second document: one file holds one"))
		default:
			if err := c.read(doc.Body); err != nil {
				return Set{}, place(name, err)
			}
		}
	}
	set, err := c.Check()
	if err != nil {
		return Set{}, place(name, err)
	}
	return set, nil
}

// Check checks the sections together, as NewSet does.
func (c Config) Check() (Set, error) { return NewSet(c.Budgets, c.Quotas) }

func (c *Config) read(n ast.Node) error {
	return mapping(n, "the file", fields{
		"budgets": c.Budgets.UnmarshalYAML,
		"quotas":  c.Quotas.UnmarshalYAML,
	})
}

// UnmarshalYAML reads the list and checks the budgets against one another.
func (b *Budgets) UnmarshalYAML(n ast.Node) error {
	var owner []ast.Node // the item that each budget comes from
	err := items(n, "budgets", func(item ast.Node) error {
		made, err := readBudget(item)
		for range made {
			owner = append(owner, item)
		}
		*b = append(*b, made...)
		return err
	})
	if err != nil {
		return err
	}
	_, err = NewSet(*b, nil)
	return misplaced(err, owner)
}

// UnmarshalYAML reads the list and checks the quotas against one another.
func (q *Quotas) UnmarshalYAML(n ast.Node) error {
	var owner []ast.Node
	err := items(n, "quotas", func(item ast.Node) error {
		made, err := readQuota(item)
		owner, *q = append(owner, item), append(*q, made)
		return err
	})
	if err != nil {
		return err
	}
	_, err = NewSet(nil, *q)
	return misplaced(err, owner)
}

// misplaced gives a *FieldError the place of its key, or of its item.
func misplaced(err error, items []ast.Node) error {
	var field *FieldError
	if !errors.As(err, &field) {
		return err
	}
	for _, v := range values(items[field.Index]) {
		if v.Key.GetToken().Value == field.Key {
			return at(v.Value, "%s", field.Message)
		}
	}
	return at(items[field.Index], "%s", field.Message)
}

// readBudget returns a budget, and the parts that it is split into.
func readBudget(n ast.Node) ([]Budget, error) {
	var b Budget
	var zone, period ast.Node
	split := map[inventory.Purpose]int{}
	err := mapping(n, "a budget", b.Match.fields(fields{
		"id":     text(&b.ID, "id"),
		"parent": text(&b.Parent, "parent"),
		"purpose": func(n ast.Node) error {
			if n.GetToken().Value == "any" {
				b.Shared = true
				return nil
			}
			return purposes(n, &b.Purposes)
		},
		"amount":     dollars(&b.Amount, "amount"),
		"per_hour":   dollars(&b.PerHour, "per_hour"),
		"period":     func(n ast.Node) error { period = n; return nil },
		"time_zone":  func(n ast.Node) error { zone = n; return nil },
		"thresholds": b.Thresholds.read,
		"count_unknown": func(n ast.Node) error {
			v, ok := n.(*ast.BoolNode)
			if !ok {
				return at(n, "count_unknown is true or false")
			}
			b.CountUnknown = v.Value
			return nil
		},
		"split": func(n ast.Node) error {
			return pairs(n, "split", func(k, v ast.Node) error {
				p, err := purpose(k)
				if err == nil {
					split[p], err = percent(v, "split")
				}
				return err
			})
		},
	}), "id", "amount")
	if err != nil {
		return nil, err
	}
	if zone != nil {
		if b.Period.Location, err = location(zone); err != nil {
			return nil, err
		}
	}
	if period != nil {
		if err := b.Period.read(period); err != nil {
			return nil, err
		}
	}
	if len(split) == 0 {
		return []Budget{b}, nil
	}
	if b.Shared || len(b.Purposes) > 0 {
		return nil, at(n, "budget %q: split names its purposes; leave out purpose", b.ID)
	}
	return b.split(split, n)
}

// split gives each purpose its share of a budget, as a budget of its own.
func (b Budget) split(shares map[inventory.Purpose]int, n ast.Node) ([]Budget, error) {
	total := 0
	out := []Budget{b}
	for _, p := range allPurposes {
		share, ok := shares[p]
		if !ok {
			continue
		}
		total += share
		part := b
		part.ID, part.Parent, part.Purposes = b.ID+"/"+string(p), b.ID, []inventory.Purpose{p}
		var err error
		if part.Amount, err = b.share(share); err != nil {
			return nil, at(n, "budget %q: %s", b.ID, err)
		}
		out[0].Purposes = append(out[0].Purposes, p)
		// The dollars of an hour are the whole's alone: a share of them would keep a
		// purpose from using the machines that the others leave idle.
		part.PerHour = 0
		out = append(out, part)
	}
	if total > 100 {
		return nil, at(n, "budget %q: its split gives away %d%%", b.ID, total)
	}
	return out, nil
}

var allPurposes = []inventory.Purpose{inventory.Training, inventory.Evaluation, inventory.Experimentation, inventory.Inference, inventory.Data}

func readQuota(n ast.Node) (Quota, error) {
	var q Quota
	return q, mapping(n, "a quota", q.Match.fields(fields{
		"id":      text(&q.ID, "id"),
		"purpose": func(n ast.Node) error { return purposes(n, &q.Purposes) },
		"gpus": func(n ast.Node) error {
			q.GPUs = map[string]int{}
			return pairs(n, "gpus", func(k, v ast.Node) (err error) {
				q.GPUs[k.GetToken().Value], err = whole(v, "a number of GPUs")
				return err
			})
		},
		"machines": func(n ast.Node) error {
			v, err := whole(n, "machines")
			q.Machines = &v
			return err
		},
	}), "id")
}

func (m *Match) fields(more fields) fields {
	more["team"], more["project"] = text(&m.Team, "team"), text(&m.Project, "project")
	more["user"], more["environment"] = text(&m.User, "user"), text(&m.Environment, "environment")
	return more
}

func (t *Thresholds) read(n ast.Node) error {
	share := func(to *int, what string) func(ast.Node) error {
		return func(n ast.Node) (err error) { *to, err = percent(n, what); return err }
	}
	return mapping(n, "thresholds", fields{"warn": share(&t.Warn, "warn"), "gate": share(&t.Gate, "gate"), "deny": share(&t.Deny, "deny")})
}

func (p *Period) read(n ast.Node) error {
	if _, ok := n.(*ast.StringNode); ok {
		p.Every = Every(n.GetToken().Value)
		if !slices.Contains([]Every{Monthly, Weekly, Quarterly}, p.Every) {
			return at(n, "a period is monthly, weekly, quarterly, or {from: 2026-11-01, until: 2026-12-16}; not %q", p.Every)
		}
		return nil
	}
	p.Every = Custom
	day := func(to *time.Time) func(ast.Node) error {
		return func(n ast.Node) (err error) {
			loc := p.Location
			if loc == nil {
				loc = time.UTC
			}
			if *to, err = time.ParseInLocation(time.DateOnly, n.GetToken().Value, loc); err != nil {
				return at(n, "%q is not a day such as 2026-11-01", n.GetToken().Value)
			}
			return nil
		}
	}
	return mapping(n, "a period", fields{"from": day(&p.From), "until": day(&p.Until)}, "from", "until")
}

func location(n ast.Node) (*time.Location, error) {
	name := n.GetToken().Value
	if name == "" || name == "Local" {
		return nil, at(n, "%q is no time zone such as Europe/Berlin", name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, at(n, "%q is no time zone such as Europe/Berlin", name)
	}
	return loc, nil
}

func purposes(n ast.Node, to *[]inventory.Purpose) error {
	list := []ast.Node{n}
	if s, ok := n.(*ast.SequenceNode); ok {
		list = s.Values
	}
	for _, n := range list {
		p, err := purpose(n)
		if err != nil {
			return err
		}
		if slices.Contains(*to, p) {
			return at(n, "%s is given twice", p)
		}
		*to = append(*to, p)
	}
	if len(*to) == 0 {
		return at(n, "purpose names none")
	}
	return nil
}

func purpose(n ast.Node) (inventory.Purpose, error) {
	p := inventory.Purpose(n.GetToken().Value)
	if !slices.Contains(allPurposes, p) {
		return "", at(n, "%q is no purpose; there are training, evaluation, experimentation, inference and data", p)
	}
	return p, nil
}

func dollars(to *money.Amount, what string) func(ast.Node) error {
	return func(n ast.Node) (err error) {
		if *to, err = money.ParseAmount(n.GetToken().Value); err != nil || *to < 0 {
			return at(n, "%s is dollars such as 20000 or 12.50, not %q", what, n.GetToken().Value)
		}
		return nil
	}
}

// percent reads "80%", from 1 to maxPercent.
func percent(n ast.Node, what string) (int, error) {
	digits, ok := strings.CutSuffix(n.GetToken().Value, "%")
	v, err := strconv.Atoi(digits)
	if !ok || err != nil || v < 1 || v > maxPercent {
		return 0, at(n, "%s is a share such as 80%%, not %q", what, n.GetToken().Value)
	}
	return v, nil
}

func whole(n ast.Node, what string) (int, error) {
	v, err := strconv.Atoi(n.GetToken().Value)
	if err != nil || v < 0 {
		return 0, at(n, "%s is a whole number of at least 0, not %q", what, n.GetToken().Value)
	}
	return v, nil
}

func text(to *string, what string) func(ast.Node) error {
	return func(n ast.Node) error {
		s, ok := n.(*ast.StringNode)
		if !ok || strings.TrimSpace(s.Value) != s.Value || s.Value == "" {
			return at(n, "%s is a word; write it in quotes where it is not", what)
		}
		*to = s.Value
		return nil
	}
}

// fields are the keys of a mapping and how each is read.
type fields map[string]func(ast.Node) error

// mapping reads a mapping strictly.
func mapping(n ast.Node, what string, known fields, required ...string) error {
	var given []string
	err := pairs(n, what, func(k, v ast.Node) error {
		key := k.GetToken().Value
		given = append(given, key)
		read, ok := known[key]
		if !ok {
			return at(k, "%s has no key %q", what, key)
		}
		return read(v)
	})
	if err != nil {
		return err
	}
	for _, key := range required {
		if !slices.Contains(given, key) {
			return at(n, "%s needs %s", what, key)
		}
	}
	return nil
}

// pairs visits the keys and values of a mapping; the parser refuses keys that are there
// twice.
func pairs(n ast.Node, what string, visit func(k, v ast.Node) error) error {
	list := values(n)
	if list == nil && n.Type() != ast.MappingType {
		return at(n, "%s has keys and values", what)
	}
	for _, v := range list {
		key := v.Key.GetToken().Value
		switch {
		case v.Value == nil || v.Value.Type() == ast.NullType:
			return at(v.Key, "%s: %s has no value", what, key)
		case v.Value.Type() == ast.AliasType || v.Value.Type() == ast.AnchorType:
			return at(v.Value, "%s: %s: write the value out; anchors are not followed here", what, key)
		}
		if err := visit(v.Key, v.Value); err != nil {
			return err
		}
	}
	return nil
}

func values(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

func items(n ast.Node, what string, visit func(ast.Node) error) error {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		return at(n, "%s is a list", what)
	}
	for _, item := range list.Values {
		if err := visit(item); err != nil {
			return err
		}
	}
	return nil
}

// at is a mistake at a node, as the configuration's decoder reports them.
func at(n ast.Node, format string, args ...any) error {
	t := n.GetToken()
	if v := values(n); len(v) > 0 && v[0].Key != nil {
		t = v[0].Key.GetToken()
	}
	return &yaml.SyntaxError{Message: fmt.Sprintf(format, args...), Token: &token.Token{Position: t.Position, Value: t.Value}}
}

// place gives a YAML error its place in the file.
func place(name string, err error) *Error {
	var ye yaml.Error
	if errors.As(err, &ye) && ye.GetToken() != nil && ye.GetToken().Position != nil {
		p := ye.GetToken().Position
		return &Error{name, p.Line, p.Column, strings.Join(strings.Fields(ye.GetMessage()), " ")}
	}
	return &Error{name, 1, 1, strings.Join(strings.Fields(err.Error()), " ")}
}
