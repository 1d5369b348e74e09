package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestApplyClaims(t *testing.T) {
	vision, search := Owner{Team: "vision"}, Owner{Team: "search"}
	for _, tc := range []struct {
		name     string
		tags     Owner
		claims   Claims
		want     Owner
		disputes []Dispute
	}{
		{"nothing is said", vision, Claims{}, vision, nil},
		{"the node's labels", Owner{}, Claims{Machine: vision}, vision, nil},
		{
			"the node's labels, before those of pods", Owner{}, Claims{Machine: vision, Tenants: []Owner{search}},
			vision, nil,
		},
		{
			"all tenants alike", Owner{User: "ana"}, Claims{Tenants: []Owner{vision, vision}},
			Owner{Team: "vision", User: "ana"}, nil,
		},
		{"the tags say the same", vision, Claims{Tenants: []Owner{vision}}, vision, nil},
		{"a tenant without a label", Owner{}, Claims{Tenants: []Owner{vision, {}}}, Owner{}, nil},
		{
			"two teams share it", Owner{}, Claims{Tenants: []Owner{vision, search}}, Owner{},
			[]Dispute{{"team", "", []string{"search", "vision"}}},
		},
		{
			"tags and the node differ", vision, Claims{Machine: search}, vision,
			[]Dispute{{"team", "vision", []string{"search"}}},
		},
		{
			"tags and a tenant differ", vision, Claims{Tenants: []Owner{search, {}}}, vision,
			[]Dispute{{"team", "vision", []string{"search"}}},
		},
		{
			"each field by itself", Owner{
				Team: "vision",
			}, Claims{
				Machine: Owner{Team: "search", CostCenter: "42"},
				Tenants: []Owner{{Project: "p", User: "ana"}, {Project: "p", User: "bo"}},
			},
			Owner{
				Team: "vision", Project: "p", CostCenter: "42",
			}, []Dispute{{"team", "vision", []string{"search"}}, {"user", "", []string{"ana", "bo"}}}},
	} {
		r := &Resource{Owner: tc.tags}
		disputes := r.ApplyClaims(tc.claims)
		if diff := cmp.Diff(tc.want, r.Owner) + cmp.Diff(tc.disputes, disputes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
