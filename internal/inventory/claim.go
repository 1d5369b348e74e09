package inventory

import "slices"

// Claims are statements about a machine's owner from sources other than its tags.
type Claims struct {
	// Machine is the owner of the machine itself, such as by the labels of its node.
	Machine Owner
	// Tenants are the owners of the machine's current workloads, such as by the labels of their
	// pods.
	Tenants []Owner
}

// Dispute is a field of an owner on which sources disagree.
type Dispute struct {
	// Field is team, project, user, environment or cost-center.
	Field string `json:"field"`
	// Tag is the value of the tags; empty if they have none.
	Tag string `json:"tag,omitempty"`
	// Claims are the values of other sources, sorted.
	Claims []string `json:"claims"`
}

// ownerFields are the fields of an owner, by name.
var ownerFields = []struct {
	name  string
	field func(*Owner) *string
}{
	{"team", func(o *Owner) *string { return &o.Team }},
	{"project", func(o *Owner) *string { return &o.Project }},
	{"user", func(o *Owner) *string { return &o.User }},
	{"environment", func(o *Owner) *string { return &o.Environment }},
	{"cost-center", func(o *Owner) *string { return &o.CostCenter }},
}

// ApplyClaims fills the fields of the owner that the tags leave empty: with the claim of the
// machine, or else with the claim that all its tenants share. Disagreements are returned and not
// used: tags stay, and a machine that two teams share belongs to neither.
func (r *Resource) ApplyClaims(c Claims) []Dispute {
	var out []Dispute
	for _, f := range ownerFields {
		value, claimed := f.field(&r.Owner), *f.field(&c.Machine)
		claims := []string{claimed}
		if claimed == "" {
			claims = claims[:0]
			for _, t := range c.Tenants {
				if v := *f.field(&t); !slices.Contains(claims, v) {
					claims = append(claims, v)
				}
			}
		}
		slices.Sort(claims)
		known := slices.DeleteFunc(slices.Clone(claims), func(v string) bool { return v == "" })
		switch {
		case len(known) == 0:
		case *value != "" && (len(known) > 1 || known[0] != *value), *value == "" && len(known) > 1:
			out = append(out, Dispute{f.name, *value, known})
		case len(claims) == 1: // all tenants agree
			*value = known[0]
		}
	}
	return out
}
