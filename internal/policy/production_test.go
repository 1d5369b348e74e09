package policy

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/usage"
)

// TestProductionSpellings holds that a policy means production by each of its spellings,
// however the tag of a resource spells it.
func TestProductionSpellings(t *testing.T) {
	for _, tc := range []struct {
		policy, environment string
		want                usage.Answer
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
		"select: {environment: [prd]}\nwhere: resource.kind == 'instance'": true,
		"select: {environment: [dev]}\nwhere: resource.kind == 'instance'": false,
	} {
		if got := policyOf(t, text).canMatch("resource.environment", "production"); got != want {
			t.Errorf("%s can match production: %v, want %v", text, got, want)
		}
	}
}
