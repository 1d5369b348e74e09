package policy

import (
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestHasOfTaggedFact checks that with readable tags it is known that a fact is untagged, so that a
// policy can exclude production without excluding untagged resources.
func TestHasOfTaggedFact(t *testing.T) {
	const where = `!has(resource.environment) || resource.environment != "production"`
	for _, tc := range []struct {
		name string
		set  func(*Facts)
		want usage.Tristate
		why  string
	}{
		{"no tag says it", func(f *Facts) {
			f.Resource.Owner.Environment = ""
		}, usage.True, "has(resource.environment) is false: no tag says resource.environment"},
		{"another one", func(f *Facts) {
			f.Resource.Owner.Environment = "dev"
		}, usage.True, `resource.environment is "dev"`},
		{"production", func(f *Facts) { f.Resource.Owner.Environment = "production" }, usage.False, ""},
		{"another spelling of production", func(f *Facts) { f.Resource.Owner.Environment = "prd" }, usage.False, ""},
		{"tags could not be read", func(f *Facts) {
			f.Resource.Owner.Environment, f.Resource.Tags = "", nil
		}, usage.Unknown,
			"resource.environment is unknown: no tag says it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, f := policyOf(t, "where: '"+where+"'"), machine()
			tc.set(f)
			if got := p.Evaluate(f).Answer; got != tc.want {
				t.Errorf("Evaluate = %s, want %s", got, tc.want)
			}
			parts := p.Explain(f).Parts
			got := parts[len(parts)-1]
			if got.Answer != tc.want || tc.why != "" && !strings.HasPrefix(got.Why, tc.why) {
				t.Errorf("Explain = %s: %s, want %s: %s", got.Answer, got.Why, tc.want, tc.why)
			}
		})
	}
	if p := policyOf(t, "select: {kind: instance, lifetime: ephemeral}\nwhere: '"+where+
		"'\nwhen: duty.lasting > duration(\"1h\")"); p.canMatch("resource.environment", inventory.Production) {
		t.Error("a policy that leaves production out is said to match it")
	}
}
