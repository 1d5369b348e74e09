package bill

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
)

// Method is how a shared cost is divided.
type Method string

// The methods.
const (
	// Even gives every party the same.
	Even Method = "even"
	// Proportional gives each in proportion to its direct charges.
	Proportional Method = "proportional"
)

// SharedRule says which charges are shared and how.
type SharedRule struct {
	// Name is the name of the rule.
	Name string `yaml:"name" form:"required"`
	// Services are services of the bill whose charges are shared. A charge is shared that
	// is in every list that is not empty.
	Services []string `yaml:"services"`
	// Categories are categories whose charges are shared.
	Categories []Category `yaml:"categories"`
	// Accounts are sub accounts whose charges are shared.
	Accounts []string `yaml:"accounts"`
	// Resources are ids of resources whose charges are shared.
	Resources []string `yaml:"resources"`
	// Untagged reports whether only costs of unowned resources are shared.
	Untagged bool `yaml:"untagged"`
	// Method is even for equal parts, or proportional to direct charges.
	Method Method `yaml:"method" form:"required" enum:"even,proportional"`
	// Among are the parties that pay; empty is all parties with direct charges.
	Among []string `yaml:"among"`
}

// matches reports whether the rule shares a row.
func (s *SharedRule) matches(r *Row, party string) bool {
	in := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	return in(s.Services, r.Service) && in(s.Accounts, r.SubAccount) && in(s.Resources, r.Resource) &&
		(len(s.Categories) == 0 || slices.Contains(s.Categories, r.Category)) && (!s.Untagged || party == "")
}

// Validate returns the first mistake of a rule.
func (s *SharedRule) Validate() error {
	switch {
	case s.Name == "":
		return errors.New("a rule for shared costs needs a name")
	case s.Method != Even && s.Method != Proportional:
		return fmt.Errorf("rule %s: method %q is not known; there are %s and %s", s.Name, s.Method, Even, Proportional)
	case len(s.Services)+len(s.Categories)+len(s.Accounts)+len(s.Resources) == 0 && !s.Untagged:
		return fmt.Errorf(
			"rule %s: nothing says which costs are shared: services, categories, accounts, resources or untagged",
			s.Name)
	}
	var names []string
	for _, p := range usual {
		names = append(names, string(p.Category))
	}
	for _, c := range s.Categories {
		if !slices.ContainsFunc(usual, func(p Part) bool { return p.Category == c }) {
			return fmt.Errorf("rule %s: category %q is not known%s", s.Name, c, document.DidYouMean(string(c), names))
		}
	}
	return nil
}

// Allocation is a bill divided among teams or projects. Its parts add up to its total
// to the nano-dollar.
type Allocation struct {
	By    Dimension    `json:"by"`
	Basis Basis        `json:"basis"`
	Total money.Amount `json:"total_usd"`
	// Parties by name.
	Parties []Party `json:"parties"`
	// Unattributed are costs without an owner and without a rule.
	Unattributed money.Amount `json:"unattributed_usd"`
	// Shared are the shared costs of each rule, in the order of the rules.
	Shared []Shared `json:"shared"`
	// Unknown counts rows that the bill gives no cost on this basis; they are in no sum.
	Unknown int64 `json:"unknown_rows"`
}

// Party is the charge of one team or project: directly by its tags, and by shared costs.
type Party struct {
	Name   string       `json:"name"`
	Direct money.Amount `json:"direct_usd"`
	Shared money.Amount `json:"shared_usd"`
	// Total is both.
	Total money.Amount `json:"total_usd"`
}

// Shared are the costs that one rule shares.
type Shared struct {
	Rule   string       `json:"rule"`
	Amount money.Amount `json:"amount_usd"`
	// Reason says why it was not divided and is unattributed; empty when it was.
	Reason string `json:"reason,omitempty"`
}

// Allocate divides rows among parties: the values of a dimension, which come with the rows. A
// row that a rule shares goes by the first such rule, whoever owns it; any other to its
// party; and what neither names stays unattributed.
func Allocate(rows iter.Seq2[string, Row], by Dimension, basis Basis, rules []SharedRule) (*Allocation, error) {
	for i := range rules {
		if err := rules[i].Validate(); err != nil {
			return nil, err
		}
	}
	a := &Allocation{By: by, Basis: basis, Parties: []Party{}, Shared: make([]Shared, len(rules))}
	direct := map[string]money.Amount{}
	for party, r := range rows {
		amount, known := r.cost(basis)
		if !known {
			a.Unknown++
			continue
		}
		err := addTo(&a.Total, amount)
		switch rule := slices.IndexFunc(rules, func(s SharedRule) bool { return s.matches(&r, party) }); {
		case err != nil:
		case rule >= 0:
			err = addTo(&a.Shared[rule].Amount, amount)
		case party != "":
			sum := direct[party]
			err = addTo(&sum, amount)
			direct[party] = sum
		default:
			err = addTo(&a.Unattributed, amount)
		}
		if err != nil {
			return nil, fmt.Errorf("add up the bill by %s: %w", by, err)
		}
	}
	shared := map[string]money.Amount{}
	for i := range rules {
		if err := a.share(&rules[i], &a.Shared[i], direct, shared); err != nil {
			return nil, fmt.Errorf("share %s: %w", rules[i].Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(direct)) {
		a.Parties = append(a.Parties, Party{Name: name, Direct: direct[name], Shared: shared[name]})
		delete(shared, name)
	}
	for _, name := range slices.Sorted(maps.Keys(shared)) {
		a.Parties = append(a.Parties, Party{Name: name, Shared: shared[name]})
	}
	for i := range a.Parties {
		var err error
		p := &a.Parties[i]
		if p.Total, err = p.Direct.Add(p.Shared); err != nil {
			return nil, fmt.Errorf("add up %s: %w", p.Name, err)
		}
	}
	slices.SortFunc(a.Parties, func(x, y Party) int { return cmp.Compare(x.Name, y.Name) })
	return a, nil
}

// share divides one rule's costs.
func (a *Allocation) share(rule *SharedRule, s *Shared, direct, shared map[string]money.Amount) error {
	s.Rule = rule.Name
	names := slices.Sorted(maps.Keys(direct))
	if len(rule.Among) > 0 {
		names = slices.Compact(slices.Sorted(slices.Values(rule.Among)))
	}
	weights := make([]int64, len(names))
	positive := false
	for i, name := range names {
		weights[i] = 1
		if rule.Method == Proportional {
			weights[i] = max(0, int64(direct[name]))
		}
		positive = positive || weights[i] > 0
	}
	if !positive {
		s.Reason = "no owner has direct costs to divide it by"
		return addTo(&a.Unattributed, s.Amount)
	}
	parts, err := money.Split(s.Amount, weights)
	if err != nil {
		return err
	}
	for i, name := range names {
		sum := shared[name]
		if err := addTo(&sum, parts[i]); err != nil {
			return err
		}
		shared[name] = sum
	}
	return nil
}
