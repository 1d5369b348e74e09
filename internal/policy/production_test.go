package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/usage"
)

// TestProductionSpellings checks that every spelling of production in a policy matches every
// spelling in a tag.
func TestProductionSpellings(t *testing.T) {
	for _, tc := range []struct {
		policy, environment string
		want                usage.Tristate
	}{
		{`where: resource.environment != "production"`, "prod", usage.False},
		{`where: resource.environment != "production"`, "live", usage.False},
		{`where: resource.environment != "prod"`, "production", usage.False},
		{`where: resource.environment != "prod"`, "prod", usage.False},
		{`where: '"prd" != resource.environment'`, "prod", usage.False},
		{`where: resource.environment == "prod"`, "prd", usage.True},
		{`where: '!(resource.environment in ["prod", "staging"])'`, "live", usage.False},
		{`where: '!(resource.environment in ["prod", "staging"])'`, "dev", usage.True},
		{`where: resource.environment != "production"`, "preprod", usage.True},
		{`where: resource.environment != "production"`, "prod-eu", usage.False},
		{`where: resource.environment != "prod"`, "eu_west_1.prd", usage.False},
		{`where: '!("live" == resource.environment)'`, "production-2", usage.False},
		{`where: '!(resource.environment in ["staging", "prod"])'`, "prod2", usage.False},
		{`where: resource.environment != "production"`, "non-prod", usage.True},
		{`where: resource.environment != "production"`, "reproduction", usage.True},
		{`where: resource.environment == "prod-eu"`, "prod-eu", usage.True},
		{`where: resource.environment == "prod-eu"`, "prod-us", usage.False},
		{`where: resource.environment == "prod-eu" || resource.environment == "prod"`, "prod-us", usage.True},
		{`where: resource.environment.startsWith("prod-")`, "prod-us", usage.True},
		{`where: '!resource.production'`, "PRD", usage.False},
		{`where: '!resource.production'`, "dev", usage.True},
		{`where: '!resource.production'`, "", usage.Unknown},
		{`where: resource.production`, "", usage.Unknown},
		{`where: '!has(resource.production) || !resource.production'`, "", usage.True},
		{`where: '!has(resource.production) || !resource.production'`, "live-eu", usage.False},
		{"select: {environment: production}\nwhere: resource.kind == 'instance'", "prod-eu", usage.True},
		{"select: {environment: prod-eu}\nwhere: resource.kind == 'instance'", "prod-us", usage.False},
		{"select: {environment: prod-eu}\nwhere: resource.kind == 'instance'", "prod-eu", usage.True},
		{"select: {environment: prod}\nwhere: resource.kind == 'instance'", "production", usage.True},
		{"select: {environment: [live, dev]}\nwhere: resource.kind == 'instance'", "prod", usage.True},
		{"select: {environment: dev}\nwhere: resource.kind == 'instance'", "prod", usage.False},
	} {
		p, f := policyOf(t, tc.policy), machine()
		f.Resource.Owner.Environment = tc.environment
		if got := p.Evaluate(f).Answer; got != tc.want {
			t.Errorf("%s of %q = %s, want %s", tc.policy, tc.environment, got, tc.want)
		}
	}
	for text, want := range map[string]bool{
		`where: resource.environment != "prod"`:                            false,
		`where: resource.environment != "dev"`:                             true,
		`where: '!resource.production'`:                                    false,
		`where: resource.production`:                                       true,
		"select: {environment: [prd]}\nwhere: resource.kind == 'instance'": true,
		"select: {environment: [dev]}\nwhere: resource.kind == 'instance'": false,
	} {
		if got := policyOf(t, text).canMatch("resource.environment", "production"); got != want {
			t.Errorf("%s can match production: %v, want %v", text, got, want)
		}
	}
}

// TestExplainsProduction checks that explanations show the environment under its own name.
func TestExplainsProduction(t *testing.T) {
	for where, want := range map[string]string{
		`resource.environment != "production"`: `resource.environment is "production"`,
		`!resource.production`:                 `resource.environment is "prod-eu"`,
	} {
		p, f := policyOf(t, "where: '"+where+"'"), machine()
		f.Resource.Owner.Environment = "prod-eu"
		parts := p.Explain(f).Parts
		if got := parts[len(parts)-1].Why; !strings.Contains(got, want) || strings.Contains(got, "@") {
			t.Errorf("%s: %q, want %q", where, got, want)
		}
	}
}

// TestChecksUntagged checks the caution that a destructive policy that accepts resources without an
// environment can act on untagged production.
func TestChecksUntagged(t *testing.T) {
	for where, want := range map[string]bool{
		`!has(resource.environment) || resource.environment != "production"`:                         true,
		`!has(resource.production) || !resource.production`:                                          true,
		`resource.gpus > 0 && (!has(resource.environment) || resource.environment != "production")`:  true,
		`has(resource.environment) ? resource.environment != "production" : true`:                    true,
		`resource.environment != "production" || resource.gpus > 0`:                                  true,
		`!(has(resource.environment) && resource.environment == "production")`:                       true,
		`resource.environment != "production"`:                                                       false,
		`!resource.production`:                                                                       false,
		`!(resource.environment == "production")`:                                                    false,
		`has(resource.environment) && resource.environment != "production"`:                          false,
		`(!has(resource.environment) || resource.environment != "prod") && has(resource.production)`: false,
		`has(resource.environment) ? resource.environment != "production" : false`:                   false,
		`resource.gpus > 0 && resource.environment != "production"`:                                  false,
		`resource.environment in ["dev", "staging"]`:                                                 false,
	} {
		p := policyOf(t, "select: {kind: instance, lifetime: ephemeral}\nwhere: '"+where+
			"'\nwhen: duty.lasting > duration(\"1h\")\nthen: [{warn: {grace: 15m}}, {do: stop}]")
		got := slices.ContainsFunc(Check(&Set{Policies: []*Policy{p}}, nil), func(c Caution) bool {
			return c.Rule == "untagged" || c.Rule == "production"
		})
		if got != want {
			t.Errorf("%s: warns %v, want %v", where, got, want)
		}
		f := machine()
		f.Resource.Owner.Environment = ""
		if p.where.answer(evaluation{facts: f, resource: f.Resource}) == usage.True != want {
			t.Errorf("%s of a resource without an environment: %s", where,
				p.where.answer(evaluation{facts: f, resource: f.Resource}))
		}
	}
	telling := policyOf(t, "when: duty.lasting > duration(\"1h\")\nthen: [{do: notify}]")
	if telling.canMatchUntagged() != true || slices.ContainsFunc(Check(&Set{Policies: []*Policy{telling}}, nil),
		func(c Caution) bool { return c.Rule == "untagged" }) {
		t.Error("a policy that only tells people is warned of")
	}
}
