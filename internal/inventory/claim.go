package inventory

import "slices"

// Claims say who a machine belongs to, from elsewhere than its tags.
type Claims struct {
	// Machine is what is said of the machine itself, such as by the labels of its node.
	Machine Owner
	// Tenants is what is said of each of those who hold it now, such as by the labels of
	// their pods.
	Tenants []Owner
}

// Dispute is a field of an owner about which two sources differ.
type Dispute struct {
	// Field is team, project, user, environment or cost-center.
	Field string `json:"field"`
	// Tag is what the tags say; empty: nothing.
	Tag string `json:"tag,omitempty"`
	// Claims are what is said elsewhere, in order.
	Claims []string `json:"claims"`
}

// ownerFields are the fields of an owner, by name.
var ownerFields = []struct {
	name string
	of   func(*Owner) *string
}{
	{"team", func(o *Owner) *string { return &o.Team }},
	{"project", func(o *Owner) *string { return &o.Project }},
	{"user", func(o *Owner) *string { return &o.User }},
	{"environment", func(o *Owner) *string { return &o.Environment }},
	{"cost-center", func(o *Owner) *string { return &o.CostCenter }},
}

// Learn fills the fields of the owner that the tags leave empty: with what is said of the
// machine, else with what is said of all of its tenants alike. What differs is returned and
// not used: tags stay, and a machine that two share belongs to neither.
func (r *Resource) Learn(c Claims) []Dispute {
	var out []Dispute
	for _, f := range ownerFields {
		has, said := f.of(&r.Owner), *f.of(&c.Machine)
		claims := []string{said}
		if said == "" {
			claims = claims[:0]
			for _, t := range c.Tenants {
				if v := *f.of(&t); !slices.Contains(claims, v) {
					claims = append(claims, v)
				}
			}
		}
		slices.Sort(claims)
		known := slices.DeleteFunc(slices.Clone(claims), func(v string) bool { return v == "" })
		switch {
		case len(known) == 0:
		case *has != "" && (len(known) > 1 || known[0] != *has), *has == "" && len(known) > 1:
			out = append(out, Dispute{f.name, *has, known})
		case len(claims) == 1: // all say so
			*has = known[0]
		}
	}
	return out
}
