package policy

import (
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

const fleetHead = "apiVersion: curfew.policy/v1\npolicies:\n  - name: embed-fleet\n"

func TestReadsFleet(t *testing.T) {
	set, err := Parse("p.yaml", []byte(fleetHead+"    then: [{do: scale, fleet: asg/embed, min: 1, max: 12, target: 0.7}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := set.Policies[0]
	want := Do{Verb: Scale, To: ThroughGroup, Fleet: "asg/embed", Min: 1, Max: 12, Target: 0.7}
	if !p.Do.Equal(&want) || !p.IsFleet() || p.Mode != Observe {
		t.Errorf("got %+v", p.Do)
	}
	again, err := Parse("p.yaml", set.YAML())
	if err != nil {
		t.Fatalf("%v in\n%s", err, set.YAML())
	}
	if !again.Policies[0].Do.Equal(&want) {
		t.Errorf("written and read: %+v", again.Policies[0].Do)
	}
	zero, err := Parse("p.yaml", []byte(fleetHead+"    then: [{do: scale, fleet: endpoint/embed, max: 2, zero: true}]\n"))
	if err != nil || !zero.Policies[0].Do.Zero || zero.Policies[0].Do.Min != 0 {
		t.Errorf("zero: %v", err)
	}
}

func TestRefusesFleetMistakes(t *testing.T) {
	for _, c := range []struct{ name, rest, want string }{
		{"no bounds", "    then: [{do: scale, fleet: asg/embed}]\n", "needs min and max"},
		{"no maximum", "    then: [{do: scale, fleet: asg/embed, min: 1}]\n", "needs min and max"},
		{"zero unsaid", "    then: [{do: scale, fleet: asg/embed, min: 0, max: 3}]\n", "only with zero: true"},
		{"zero with a minimum", "    then: [{do: scale, fleet: asg/embed, min: 2, max: 3, zero: true}]\n", "needs min 0"},
		{"minimum over maximum", "    then: [{do: scale, fleet: asg/embed, min: 5, max: 3}]\n", "expected 0 to max"},
		{"a target over 1", "    then: [{do: scale, fleet: asg/embed, min: 1, max: 3, target: 70}]\n", "over 0 and up to 1"},
		{"no such kind", "    then: [{do: scale, fleet: vm/embed, min: 1, max: 3}]\n", "not the id of a fleet"},
		{"all groups", "    then: [{do: scale, fleet: asg/, min: 1, max: 3}]\n", "not the id of a fleet"},
		{"with to", "    then: [{do: scale, fleet: asg/embed, min: 1, max: 3, to: 2}]\n", "to does not go with fleet"},
		{"with busy machines", "    then: [{do: scale, fleet: asg/embed, min: 1, max: 3, even_if_busy: true}]\n", "even_if_busy"},
		{"bounds without a fleet", "    select: {kind: endpoint}\n    when: 'true'\n" +
			"    then: [{warn: {grace: 1h}}, {do: scale, to: 1, max: 3}]\n", "max needs fleet"},
		{"a fleet of another verb", "    when: 'true'\n    then: [{warn: {grace: 1h}}, {do: stop, fleet: asg/embed, min: 1, max: 3}]\n",
			"fleet belongs to scale"},
		{"with select", "    select: {kind: endpoint}\n    then: [{do: scale, fleet: asg/embed, min: 1, max: 3}]\n",
			"leave select out"},
		{"with when", "    when: 'true'\n    then: [{do: scale, fleet: asg/embed, min: 1, max: 3}]\n", "leave when out"},
		{"with a warning", "    then: [{warn: {grace: 1h}}, {do: scale, fleet: asg/embed, min: 1, max: 3}]\n", "takes no warn"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("p.yaml", []byte(fleetHead+c.rest))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestFleetProposesNothing checks that no round acts on a fleet, whose demand is not a fact of a
// round.
func TestFleetProposesNothing(t *testing.T) {
	set, err := Parse("p.yaml", []byte(fleetHead+"    mode: enforce\n    then: [{do: scale, fleet: asg/embed, min: 1, max: 12}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := set.Policies[0]
	for _, c := range []struct {
		r    inventory.Resource
		want usage.Tristate
	}{
		{inventory.Resource{ID: "embed", Kind: inventory.KindAutoScalingGroup}, usage.Unknown},
		{inventory.Resource{ID: "embed", Kind: inventory.KindEndpoint}, usage.False},
		{inventory.Resource{ID: "other", Name: "embed", Kind: inventory.KindAutoScalingGroup}, usage.False},
		{inventory.Resource{ID: "i-1", Kind: inventory.KindInstance}, usage.False},
	} {
		f := &Facts{Resource: &c.r}
		if got := p.Evaluate(f).Answer; got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.r.Kind, c.r.ID, got, c.want)
		}
		if out := p.Explain(f); out.Answer != c.want || out.Parts[0].Why == "" {
			t.Errorf("%s %s is explained as %+v", c.r.Kind, c.r.ID, out)
		}
	}
	if cautions := Check(set, nil); len(cautions) != 0 {
		t.Errorf("cautions %+v", cautions)
	}
	if kinds := set.Kinds(); len(kinds) != 1 || !kinds[inventory.KindAutoScalingGroup] {
		t.Errorf("kinds %v", kinds)
	}
}

func TestCheckNamesEndpointsThatKeepAMachine(t *testing.T) {
	set, err := Parse("p.yaml", []byte(fleetHead+"    then: [{do: scale, fleet: endpoint/chat, zero: true, max: 12}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if cautions := Check(set, nil); len(cautions) != 1 || cautions[0].Rule != "unsupported" {
		t.Errorf("cautions %+v", cautions)
	}
}
