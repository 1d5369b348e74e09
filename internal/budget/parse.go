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
	_, err = f.Mapping(root, "the file",
		document.Optional("budgets", c.Budgets.UnmarshalYAML), document.Optional("quotas", c.Quotas.UnmarshalYAML))
	if err == nil {
		set, err = c.Check()
	}
	if err != nil {
		return Set{}, f.Placed(err)
	}
	return set, nil
}

// Check checks the sections together, as NewSet does.
func (c Config) Check() (Set, error) { return NewSet(c.Budgets, c.Quotas) }

// reader reads nodes of a file whose name is added later.
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
	return d.misplaced(err, owner)
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
	return d.misplaced(err, owner)
}

// misplaced gives a *FieldError the place of its key, or of its item.
func (d *reader) misplaced(err error, items []ast.Node) error {
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

// budget returns a budget, and the parts that it is split into.
func (d *reader) budget(n ast.Node) ([]Budget, error) {
	var b Budget
	var zone, period ast.Node
	split := map[inventory.Purpose]int{}
	_, err := d.Mapping(n, "a budget", append([]document.Key{
		document.Required("id", d.word(&b.ID, "id")),
		document.Optional("parent", d.word(&b.Parent, "parent")),
		document.Optional("purpose", func(n ast.Node) error {
			if document.Scalar(n) == "any" {
				b.Shared = true
				return nil
			}
			return d.purposes(n, &b.Purposes)
		}),
		document.Required("amount", d.dollars(&b.Amount, "amount")),
		document.Optional("per_hour", d.dollars(&b.PerHour, "per_hour")),
		document.Optional("period", func(n ast.Node) error { period = n; return nil }),
		document.Optional("time_zone", func(n ast.Node) error { zone = n; return nil }),
		document.Optional("thresholds", func(n ast.Node) error { return d.thresholds(n, &b.Thresholds) }),
		document.Optional("count_unknown", func(n ast.Node) (err error) {
			b.CountUnknown, err = d.Flag(n, "count_unknown")
			return err
		}),
		document.Optional("split", func(n ast.Node) error {
			return d.Pairs(n, "split", func(purpose string, k, v ast.Node) (err error) {
				if err := checkPurpose(purpose); err != nil {
					return d.At(k, "%s", err)
				}
				split[inventory.Purpose(purpose)], err = d.percent(v, "split")
				return err
			})
		}),
	}, d.match(&b.Match)...)...)
	if err != nil {
		return nil, err
	}
	if zone != nil {
		if b.Period.Location, err = d.location(zone); err != nil {
			return nil, err
		}
	}
	if period != nil {
		if err := d.period(period, &b.Period); err != nil {
			return nil, err
		}
	}
	if len(split) == 0 {
		return []Budget{b}, nil
	}
	if b.Shared || len(b.Purposes) > 0 {
		return nil, d.At(n, "budget %q: split names its purposes; leave out purpose", b.ID)
	}
	return d.split(b, split, n)
}

// split gives each purpose its share of a budget, as a budget of its own.
func (d *reader) split(b Budget, shares map[inventory.Purpose]int, n ast.Node) ([]Budget, error) {
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
			return nil, d.At(n, "budget %q: %s", b.ID, err)
		}
		out[0].Purposes = append(out[0].Purposes, p)
		// The dollars of an hour are the whole's alone: a share of them would keep a
		// purpose from using the machines that the others leave idle.
		part.PerHour = 0
		out = append(out, part)
	}
	if total > 100 {
		return nil, d.At(n, "budget %q: its split gives away %d%%", b.ID, total)
	}
	return out, nil
}

var allPurposes = []inventory.Purpose{inventory.Training, inventory.Evaluation, inventory.Experimentation, inventory.Inference, inventory.Data}

func (d *reader) quota(n ast.Node) (Quota, error) {
	var q Quota
	_, err := d.Mapping(n, "a quota", append([]document.Key{
		document.Required("id", d.word(&q.ID, "id")),
		document.Optional("purpose", func(n ast.Node) error { return d.purposes(n, &q.Purposes) }),
		document.Optional("gpus", func(n ast.Node) error {
			q.GPUs = map[string]int{}
			return d.Pairs(n, "gpus", func(gpu string, _, v ast.Node) (err error) {
				q.GPUs[gpu], err = d.whole(v, "a number of GPUs")
				return err
			})
		}),
		document.Optional("machines", func(n ast.Node) error {
			v, err := d.whole(n, "machines")
			q.Machines = &v
			return err
		}),
	}, d.match(&q.Match)...)...)
	return q, err
}

func (d *reader) match(m *Match) []document.Key {
	return []document.Key{
		document.Optional("team", d.word(&m.Team, "team")), document.Optional("project", d.word(&m.Project, "project")),
		document.Optional("user", d.word(&m.User, "user")), document.Optional("environment", d.word(&m.Environment, "environment")),
	}
}

func (d *reader) thresholds(n ast.Node, t *Thresholds) error {
	share := func(name string, to *int) document.Key {
		return document.Optional(name, func(n ast.Node) (err error) { *to, err = d.percent(n, name); return err })
	}
	_, err := d.Mapping(n, "thresholds", share("warn", &t.Warn), share("gate", &t.Gate), share("deny", &t.Deny))
	return err
}

func (d *reader) period(n ast.Node, p *Period) error {
	if word := document.Scalar(n); word != "" {
		p.Every = Every(word)
		if !slices.Contains([]Every{Monthly, Weekly, Quarterly}, p.Every) {
			return d.At(n, "a period is monthly, weekly, quarterly, or {from: 2026-11-01, until: 2026-12-16}; not %q", p.Every)
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
			if *to, err = time.ParseInLocation(time.DateOnly, document.Scalar(n), loc); err != nil {
				return d.At(n, "%q is not a day such as 2026-11-01", written(n))
			}
			return nil
		}
	}
	_, err := d.Mapping(n, "a period", document.Required("from", day(&p.From)), document.Required("until", day(&p.Until)))
	return err
}

func (d *reader) location(n ast.Node) (*time.Location, error) {
	name := document.Scalar(n)
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, d.At(n, "%q is no time zone such as Europe/Berlin", written(n))
	}
	return loc, nil
}

func (d *reader) purposes(n ast.Node, to *[]inventory.Purpose) error {
	_, err := d.Texts(n, "purpose", func(name string) error {
		*to = append(*to, inventory.Purpose(name))
		return checkPurpose(name)
	})
	return err
}

func checkPurpose(name string) error {
	if !slices.Contains(allPurposes, inventory.Purpose(name)) {
		return fmt.Errorf("%q is no purpose; there are training, evaluation, experimentation, inference and data", name)
	}
	return nil
}

func (d *reader) dollars(to *money.Amount, what string) func(ast.Node) error {
	return func(n ast.Node) (err error) {
		if *to, err = money.ParseAmount(document.Scalar(n)); err != nil || *to < 0 {
			return d.At(n, "%s is dollars such as 20000 or 12.50, not %q", what, written(n))
		}
		return nil
	}
}

// percent reads "80%", from 1 to maxPercent.
func (d *reader) percent(n ast.Node, what string) (int, error) {
	digits, ok := strings.CutSuffix(document.Scalar(n), "%")
	v, err := strconv.Atoi(digits)
	if !ok || err != nil || v < 1 || v > maxPercent {
		return 0, d.At(n, "%s is a share such as 80%%, not %q", what, written(n))
	}
	return v, nil
}

func (d *reader) whole(n ast.Node, what string) (int, error) {
	v, err := strconv.Atoi(document.Scalar(n))
	if err != nil || v < 0 {
		return 0, d.At(n, "%s is a whole number of at least 0, not %q", what, written(n))
	}
	return v, nil
}

func (d *reader) word(to *string, what string) func(ast.Node) error {
	return func(n ast.Node) error {
		s, ok := n.(*ast.StringNode)
		if !ok || strings.TrimSpace(s.Value) != s.Value || s.Value == "" {
			return d.At(n, "%s is a word; write it in quotes where it is not", what)
		}
		*to = s.Value
		return nil
	}
}

// written is a value as it stands in the file, for errors.
func written(n ast.Node) string {
	if s := document.Scalar(n); s != "" {
		return s
	}
	return document.NodeName(n)
}
