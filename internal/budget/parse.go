package budget

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
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
// *document.Error without a file.
type Budgets []Budget

// Quotas is the list quotas of the configuration. It decodes strictly; a mistake is a
// *document.Error without a file.
type Quotas []Quota

// Parse reads a file of the sections budgets and quotas, and checks them together.
// Mistakes are a *document.Error.
func Parse(name string, src []byte) (Set, error) {
	f, err := document.Parse(name, src)
	if err != nil || len(f.Bodies) == 0 {
		return Set{}, err
	}
	root, err := f.Body()
	if err != nil {
		return Set{}, err
	}
	var c Config
	var set Set
	if err = c.read(f, root); err == nil {
		set, err = c.Check()
	}
	if err != nil {
		return Set{}, f.Placed(err)
	}
	return set, nil
}

// Shape returns what a file of budgets and quotas may hold.
func Shape() *document.Shape {
	return document.Describe(func(n ast.Node) error { var c Config; return c.read(&document.File{}, n) })
}

func (c *Config) read(f *document.File, root ast.Node) error {
	_, err := f.Mapping(root, "the file",
		document.Optional("budgets", "what owners may spend", c.Budgets.UnmarshalYAML),
		document.Optional("quotas", "what owners may hold at once", c.Quotas.UnmarshalYAML))
	return err
}

// Check checks the sections together, as NewSet does.
func (c Config) Check() (Set, error) { return NewSet(c.Budgets, c.Quotas) }

// reader reads nodes; the file's name is added later.
type reader struct{ document.File }

// UnmarshalYAML reads the list and checks the budgets against one another.
func (b *Budgets) UnmarshalYAML(n ast.Node) error {
	var d reader
	var owner []ast.Node // the item that each budget comes from
	err := d.Items(n, "budgets", func(item ast.Node) error {
		made, err := d.budget(item)
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
	return d.locate(err, owner)
}

// UnmarshalYAML reads the list and checks the quotas against one another.
func (q *Quotas) UnmarshalYAML(n ast.Node) error {
	var d reader
	var owner []ast.Node
	err := d.Items(n, "quotas", func(item ast.Node) error {
		made, err := d.quota(item)
		owner, *q = append(owner, item), append(*q, made)
		return err
	})
	if err != nil {
		return err
	}
	_, err = NewSet(nil, *q)
	return d.locate(err, owner)
}

// locate gives a *FieldError the position of its key, or of its item.
func (d *reader) locate(err error, items []ast.Node) error {
	var field *FieldError
	if !errors.As(err, &field) {
		return err
	}
	item := items[field.Index]
	if n := document.Value(item, field.Key); n != nil {
		item = n
	}
	return d.At(item, "%s", field.Message)
}

// budget reads a budget and the parts that it is split into.
func (d *reader) budget(n ast.Node) ([]Budget, error) {
	var b Budget
	split := map[inventory.Purpose]int{}
	_, err := d.Mapping(n, "a budget", append([]document.Key{
		document.Required("id", "name of the budget", d.readText(&b.ID, "id")),
		document.Optional("parent", "budget that it belongs to: what counts here counts there as well",
			d.readText(&b.Parent, "parent")),
		document.Optional("purpose", "purposes that it is for, or any", func(n ast.Node) error {
			return document.Forms(n, document.IfWord("any", func(ast.Node) error { b.Shared = true; return nil }),
				document.Otherwise(func(n ast.Node) error { return d.purposes(n, &b.Purposes) }))
		}),
		document.Required("amount", "dollars of a period", d.dollars(&b.Amount, "amount")),
		document.Optional("per_hour", "dollars in one hour", d.dollars(&b.PerHour, "per_hour")),
		document.Optional("time_zone", "place by whose clocks periods begin", func(n ast.Node) (err error) {
			b.Period.Location, err = d.location(n)
			return err
		}),
		document.Optional("period", "period of the amount, or the days that it is for", func(n ast.Node) error {
			return d.period(n, &b.Period)
		}),
		document.Optional("thresholds", "shares of the amount at which something happens", func(n ast.Node) error {
			return d.thresholds(n, &b.Thresholds)
		}),
		document.Optional("count_unknown", "count the most that unpriced charges may be as spent",
			func(n ast.Node) (err error) {
				b.CountUnknown, err = d.Flag(n, "count_unknown")
				return err
			}),
		document.Optional("split", "share of each purpose, as a budget of its own", func(n ast.Node) error {
			var keys []document.Key
			for _, p := range allPurposes {
				keys = append(keys, document.Optional(string(p), "share of the amount", func(n ast.Node) (err error) {
					split[p], err = d.percent(n, "split")
					return err
				}))
			}
			_, err := d.Mapping(n, "split", keys...)
			return err
		}),
	}, d.match(&b.Match)...)...)
	if err != nil {
		return nil, err
	}
	if len(split) == 0 {
		return []Budget{b}, nil
	}
	if b.Shared || len(b.Purposes) > 0 {
		return nil, d.At(n, "budget %q: split names its purposes; leave out purpose", b.ID)
	}
	return d.splitByPurpose(b, split, n)
}

// splitByPurpose makes a budget for each purpose's share.
func (d *reader) splitByPurpose(b Budget, shares map[inventory.Purpose]int, n ast.Node) ([]Budget, error) {
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
		if part.Amount, err = b.percentOf(share); err != nil {
			return nil, d.At(n, "budget %q: %s", b.ID, err)
		}
		out[0].Purposes = append(out[0].Purposes, p)
		// Only the whole has an hourly limit: a share of it would prevent a purpose from using
		// machines that the others leave idle.
		part.PerHour = 0
		out = append(out, part)
	}
	if total > 100 {
		return nil, d.At(n, "budget %q: its split gives away %d%%", b.ID, total)
	}
	return out, nil
}

var allPurposes = []inventory.Purpose{
	inventory.Training, inventory.Evaluation, inventory.Experimentation, inventory.Inference, inventory.Data,
}

func (d *reader) quota(n ast.Node) (Quota, error) {
	var q Quota
	_, err := d.Mapping(n, "a quota", append([]document.Key{
		document.Required("id", "name of the quota", d.readText(&q.ID, "id")),
		document.Optional("purpose", "purposes that it is for", func(n ast.Node) error {
			return d.purposes(n, &q.Purposes)
		}),
		document.Optional("gpus", "most GPUs held at once, by model: {H100: 16}", func(n ast.Node) error {
			q.GPUs = map[string]int{}
			return d.Pairs(n, "gpus", func(gpu string, _, v ast.Node) (err error) {
				q.GPUs[gpu], err = d.readCount(v, "a number of GPUs")
				return err
			})
		}),
		document.Optional("machines", "most machines held at once", func(n ast.Node) error {
			v, err := d.readCount(n, "machines")
			q.Machines = &v
			return err
		}),
	}, d.match(&q.Match)...)...)
	return q, err
}

func (d *reader) match(m *Match) []document.Key {
	return []document.Key{
		document.Optional("team", "team that it is for", d.readText(&m.Team, "team")),
		document.Optional("project", "project that it is for", d.readText(&m.Project, "project")),
		document.Optional("user", "person that it is for", d.readText(&m.User, "user")),
		document.Optional("environment", "environment that it is for", d.readText(&m.Environment, "environment")),
	}
}

func (d *reader) thresholds(n ast.Node, t *Thresholds) error {
	share := func(name, doc string, to *int) document.Key {
		return document.Optional(name, doc, func(n ast.Node) (err error) { *to, err = d.percent(n, name); return err })
	}
	_, err := d.Mapping(n, "thresholds", share("warn", "share spent from which curfew warns", &t.Warn),
		share("gate", "share spent from which new work needs approval", &t.Gate),
		share("deny", "share spent from which new work is denied", &t.Deny))
	return err
}

func (d *reader) period(n ast.Node, p *Period) error {
	document.Note(n, document.Shape{Default: string(Monthly)})
	return document.Forms(n,
		document.IfMapping(func(n ast.Node) error { return d.customPeriod(n, p) }),
		document.Otherwise(func(n ast.Node) error {
			document.Note(n, document.Shape{
				Type: document.String, Enum: []string{string(Monthly), string(Weekly), string(Quarterly)},
			})
			if p.Every = Every(document.Scalar(n)); !slices.Contains([]Every{Monthly, Weekly, Quarterly}, p.Every) {
				return d.At(n,
					"a period is monthly, weekly, quarterly, or {from: 2026-11-01, until: 2026-12-16}; not %q",
					valueText(n))
			}
			return nil
		}))
}

func (d *reader) customPeriod(n ast.Node, p *Period) error {
	p.Every = Custom
	day := func(to *time.Time) func(ast.Node) error {
		return func(n ast.Node) (err error) {
			document.Note(n, document.Shape{Type: document.String, Pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}$`})
			loc := p.Location
			if loc == nil {
				loc = time.UTC
			}
			if *to, err = time.ParseInLocation(time.DateOnly, document.Scalar(n), loc); err != nil {
				return d.At(n, "%q is not a day such as 2026-11-01", valueText(n))
			}
			return nil
		}
	}
	_, err := d.Mapping(n, "a period", document.Required("from", "first day", day(&p.From)),
		document.Required("until", "first day after it", day(&p.Until)))
	return err
}

func (d *reader) location(n ast.Node) (*time.Location, error) {
	document.Note(n, document.Shape{Type: document.String, Default: "UTC"})
	name := document.Scalar(n)
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, d.At(n, "%q is no time zone such as Europe/Berlin", valueText(n))
	}
	return loc, nil
}

func (d *reader) purposes(n ast.Node, to *[]inventory.Purpose) error {
	var known []string
	for _, p := range allPurposes {
		known = append(known, string(p))
	}
	document.Note(n, document.Shape{Enum: known})
	_, err := d.Texts(n, "purpose", func(name string) error {
		*to = append(*to, inventory.Purpose(name))
		return checkPurpose(name)
	})
	return err
}

func checkPurpose(name string) error {
	if !slices.Contains(allPurposes, inventory.Purpose(name)) {
		return fmt.Errorf("%q is no purpose; there are training, evaluation, experimentation, inference and data",
			name)
	}
	return nil
}

func (d *reader) dollars(to *money.Amount, what string) func(ast.Node) error {
	return func(n ast.Node) (err error) {
		document.Note(n, document.Shape{Type: document.Decimal})
		if *to, err = money.ParseAmount(document.Scalar(n)); err != nil || *to < 0 {
			return d.At(n, "%s is dollars such as 20000 or 12.50, not %q", what, valueText(n))
		}
		return nil
	}
}

// percent reads "80%", from 1 to maxPercent.
func (d *reader) percent(n ast.Node, what string) (int, error) {
	document.Note(n, document.Shape{Type: document.String, Pattern: "^[0-9]{1,4}%$"})
	digits, ok := strings.CutSuffix(document.Scalar(n), "%")
	v, err := strconv.Atoi(digits)
	if !ok || err != nil || v < 1 || v > maxPercent {
		return 0, d.At(n, "%s is a share such as 80%%, not %q", what, valueText(n))
	}
	return v, nil
}

func (d *reader) readCount(n ast.Node, what string) (int, error) {
	document.Note(n, document.Shape{Type: document.Integer})
	v, err := strconv.Atoi(document.Scalar(n))
	if err != nil || v < 0 {
		return 0, d.At(n, "%s is a whole number of at least 0, not %q", what, valueText(n))
	}
	return v, nil
}

func (d *reader) readText(to *string, what string) func(ast.Node) error {
	return func(n ast.Node) error {
		document.Note(n, document.Shape{Type: document.String, Pattern: `^\S(.*\S)?$`})
		s, ok := n.(*ast.StringNode)
		if !ok || strings.TrimSpace(s.Value) != s.Value || s.Value == "" {
			return d.At(n, "%s is a word; write it in quotes where it is not", what)
		}
		*to = s.Value
		return nil
	}
}

// valueText returns a value as written in the file, for errors.
func valueText(n ast.Node) string {
	if s := document.Scalar(n); s != "" {
		return s
	}
	return document.NodeName(n)
}
