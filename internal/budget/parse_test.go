package budget_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

const complete = `
budgets:
  - {id: company, purpose: any, amount: 100000, time_zone: Europe/Berlin}
  - id: vision
    parent: company
    team: vision
    amount: 20000.50
    per_hour: 200
    thresholds: {warn: 70%, gate: 95%}
    split: {training: 60%, evaluation: 10%}
    count_unknown: true
    period: quarterly
  - id: sprint
    team: speech
    purpose: [training, evaluation]
    environment: staging
    amount: 5000
    time_zone: Europe/Berlin
    period: {from: 2026-11-01, until: 2026-12-16}
quotas:
  - {id: h100, purpose: training, gpus: {H100: 16, "A100": 0}, machines: 4}
`

func TestParse(t *testing.T) {
	s := set(t, complete)
	var ids []string
	for _, b := range s.Budgets() {
		ids = append(ids, b.ID)
	}
	if got, want := strings.Join(ids, " "), "company sprint vision vision/evaluation vision/training"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	part, _ := s.Budget("vision/training")
	if part.Amount != 12000*money.USD+30*money.Cent || part.PerHour != 0 || part.Parent != "vision" ||
		part.Team != "vision" ||
		part.Thresholds != (budget.Thresholds{Warn: 70, Gate: 95, Deny: 100}) || !part.CountUnknown ||
		!reflect.DeepEqual(part.Purposes, []inventory.Purpose{inventory.Training}) {
		t.Errorf("got %+v", part)
	}
	sprint, _ := s.Budget("sprint")
	w, err := sprint.Period.Window(now)
	if err != nil || w.From.Format(time.RFC3339) != "2026-10-31T23:00:00Z" ||
		w.To.Format(time.RFC3339) != "2026-12-15T23:00:00Z" {
		t.Errorf("got %v, %v", w, err)
	}
	if _, err := sprint.Period.Window(w.To); !errors.Is(err, budget.ErrOutside) {
		t.Errorf("the period goes on: %v", err)
	}
	if q := s.Quotas()[0]; *q.Machines != 4 || q.GPUs["H100"] != 16 || q.GPUs["A100"] != 0 || len(q.GPUs) != 2 {
		t.Errorf("got %+v", q)
	}
	if empty, err := budget.Parse("b", nil); err != nil || len(empty.Budgets()) != 0 {
		t.Errorf("an empty file gave %+v, %v", empty, err)
	}
}

// TestConfigDecodes decodes the sections like curfew.yaml, with positions of mistakes.
func TestConfigDecodes(t *testing.T) {
	var c budget.Config
	decode := func(src string) error {
		f, err := document.Parse("curfew.yaml", []byte(src))
		if err != nil {
			return err
		}
		return f.Decode(f.Bodies[0], &c)
	}
	if err := decode(complete); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Check(); err != nil || len(s.Budgets()) != 5 {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := decode("budgets:\n  - {id: a, amount: 1, color: red}\n"); err == nil ||
		!strings.HasPrefix(err.Error(), `curfew.yaml:2:24: a budget has no key "color"`) {
		t.Errorf("got %v, want a mistake in line 2", err)
	}
}

func TestErrorsHavePositions(t *testing.T) {
	for _, tc := range []struct{ name, src, want string }{
		{"an unknown key", "budgets:\n  - id: a\n    amuont: 1\n", `3:5: a budget has no key "amuont"`},
		{"an unknown section", "budget: []\n", `1:1: the file has no key "budget"`},
		{"no amount", "budgets:\n  - id: a\n    purpose: any\n", "2:5: a budget needs amount"},
		{"no id", "budgets:\n  - {purpose: any, amount: 1}\n", "2:5: a budget needs id"},
		{
			"a negative amount", "budgets:\n  - {id: a, purpose: any, amount: -1}\n",
			`2:35: amount is dollars such as 20000 or 12.50, not "-1"`,
		},
		{"an amount with a sign", "budgets:\n  - {id: a, purpose: any, amount: $5}\n", `not "$5"`},
		{"an exponent", "budgets:\n  - {id: a, purpose: any, amount: 1e3}\n", `not "1e3"`},
		{"no purpose", "budgets:\n  - id: a\n    amount: 1\n", `2:9: budget "a" names no purpose`},
		{"a purpose that is none", "budgets:\n  - {id: a, purpose: fun, amount: 1}\n", `"fun" is no purpose`},
		{"a purpose twice", "budgets:\n  - {id: a, purpose: [data, data], amount: 1}\n", `"data" is given twice`},
		{
			"two of one id", "budgets:\n  - {id: a, purpose: any, amount: 1}\n  - {id: a, purpose: any, amount: 2}\n",
			`3:10: there are two budgets "a"`,
		},
		{
			"a parent that is none", "budgets:\n  - {id: a, purpose: any, amount: 1, parent: b}\n",
			`2:46: budget "a": there is no budget "b" to be a part of`,
		},
		{
			"its own parent", "budgets:\n  - {id: a, purpose: any, amount: 1, parent: a}\n",
			`budget "a" is a part of itself: a in a`,
		},
		{
			"a cycle",
			"budgets:\n  - {id: a, purpose: any, amount: 1, parent: b}\n  - {id: b, purpose: any, amount: 1, " +
				"parent: c}\n  - " +
				"{id: c, purpose: any, amount: 1, parent: a}\n",
			"a part of itself: a in b in c in a",
		},
		{
			"a child of another team",
			"budgets:\n  - {id: a, purpose: any, amount: 1, team: x}\n  - {id: b, purpose: any, amount: 1, team: y, parent: " +
				"a}\n",
			`budget "b" is no part of "a": its team is y, not x`,
		},
		{
			"a child of another purpose",
			"budgets:\n  - {id: a, purpose: data, amount: 1}\n  - {id: b, purpose: training, amount: 1, parent: a}\n",
			"training is none of its purposes",
		},
		{
			"thresholds that fall", "budgets:\n  - {id: a, purpose: any, amount: 1, thresholds: {warn: 95%}}\n",
			"thresholds rise",
		},
		{
			"a threshold without %", "budgets:\n  - {id: a, purpose: any, amount: 1, thresholds: {warn: 0.8}}\n",
			`warn is a share such as 80%, not "0.8"`,
		},
		{
			"a whole number without %", "budgets:\n  - {id: a, purpose: any, amount: 1, thresholds: {warn: 80}}\n",
			`warn is a share such as 80%, not "80"`,
		},
		{
			"a threshold of nothing", "budgets:\n  - {id: a, purpose: any, amount: 1, thresholds: {warn: 0%}}\n",
			`not "0%"`,
		},
		{
			"a threshold over all bounds",
			"budgets:\n  - {id: a, purpose: any, amount: 1, thresholds: {deny: 1001%}}\n",
			`not "1001%"`,
		},
		{
			"a split of more than all", "budgets:\n  - {id: a, amount: 1, split: {training: 60%, data: 41%}}\n",
			"gives away 101%",
		},
		{
			"a split with a purpose", "budgets:\n  - {id: a, amount: 1, purpose: any, split: {training: 60%}}\n",
			"leave out purpose",
		},
		{
			"a period of its own making", "budgets:\n  - {id: a, purpose: any, amount: 1, period: yearly}\n",
			`not "yearly"`,
		},
		{
			"a period backwards",
			"budgets:\n  - {id: a, purpose: any, amount: 1, period: {from: 2026-02-01, until: 2026-01-01}}\n",
			"ends before it begins",
		},
		{
			"half a period", "budgets:\n  - {id: a, purpose: any, amount: 1, period: {from: 2026-02-01}}\n",
			"a period needs until",
		},
		{
			"a zone that is none", "budgets:\n  - {id: a, purpose: any, amount: 1, time_zone: Mars}\n",
			`"Mars" is no time zone`,
		},
		{"a key twice", "budgets:\n  - {id: a, id: b, purpose: any, amount: 1}\n", "already defined"},
		{"a key without a value", "budgets:\n  - {id: a, purpose: any, amount: 1, team: }\n", "team has no value"},
		{"a number for a team", "budgets:\n  - {id: a, purpose: any, amount: 1, team: 7}\n", "write it in quotes"},
		{"no list", "budgets: {a: 1}\n", "budgets is a list"},
		{"a quota of nothing", "quotas:\n  - {id: a}\n", `quota "a" limits nothing`},
		{"a quota of one type twice", "quotas:\n  - {id: a, gpus: {H100: 1, h100: 2}}\n", "each once"},
		{"a quota below nothing", "quotas:\n  - {id: a, machines: -1}\n", "at least 0"},
		{
			"two quotas of one id", "quotas:\n  - {id: a, machines: 1}\n  - {id: a, machines: 1}\n",
			`3:10: there are two quotas "a"`,
		},
		{"two documents", "budgets: []\n---\nbudgets: []\n", "a second document"},
		{"no text", "\xff", "not UTF-8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := budget.Parse("b.yaml", []byte(tc.src))
			var e *document.Error
			if !errors.As(err, &e) || e.Line < 1 || e.Column < 1 || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(complete)
	f.Add(nested)
	f.Add("budgets:\n  - {id: a, purpose: any, amount: 1, parent: a}\n")
	f.Fuzz(func(t *testing.T, src string) {
		s, err := budget.Parse("b", []byte(src))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("an error of several lines: %q", err)
			}
			return
		}
		for _, b := range s.Budgets() {
			if b.ID == "" || b.Amount < 0 || b.PerHour < 0 || len(b.Purposes) == 0 && !b.Shared {
				t.Fatalf("accepted %+v", b)
			}
			for up := b; up.Parent != ""; {
				p, ok := s.Budget(up.Parent)
				if !ok || p.ID == b.ID {
					t.Fatalf("%s has no way up", b.ID)
				}
				if p.Team != "" && !strings.EqualFold(p.Team, b.Team) {
					t.Fatalf("%s of team %q is in %s of team %q", b.ID, b.Team, p.ID, p.Team)
				}
				up = p
			}
		}
		// Accepted budgets are accepted again.
		if _, err := budget.NewSet(s.Budgets(), s.Quotas()); err != nil {
			t.Fatal(err)
		}
	})
}
