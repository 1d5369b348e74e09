package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/change"
)

// TestFromChange checks that a finding's change becomes an action of the ladder, and that a change
// without a size never means "to 0".
func TestFromChange(t *testing.T) {
	scale := func(a change.Arguments) change.Change { return change.Change{Verb: change.Scale, Arguments: a} }
	tag := func(a change.Arguments) change.Change { return change.Change{Verb: change.Tag, Arguments: a} }
	for _, tc := range []struct {
		name string
		c    change.Change
		want Do
		ok   bool
	}{
		{"nothing", change.Change{}, Do{}, false},
		{"a scale without a size", scale(change.Arguments{}), Do{}, false},
		{"a scale of a part without a size", scale(change.Arguments{Part: "main"}), Do{}, false},
		{"a size below nothing", scale(change.Arguments{Count: new(int64(-1))}), Do{}, false},
		{"a size that no group has", scale(change.Arguments{Count: new(int64(1 << 40))}), Do{}, false},
		{"down to nothing, said", scale(change.Arguments{Count: new(int64(0))}), Do{Verb: Scale}, true},
		{"an endpoint", scale(change.Arguments{Count: new(int64(2)), Part: "main"}), Do{Verb: Scale, To: 2}, true},
		{"a machine of a group", scale(change.Arguments{Group: "g"}), Do{Verb: Scale, To: ThroughGroup}, true},
		{
			"machines by name", scale(change.Arguments{Count: new(int64(1)), Members: []string{"i-1", "i-2"}}),
			Do{Verb: Scale, To: ThroughGroup, Members: []string{"i-1", "i-2"}}, true,
		},
		{"tags without values", tag(change.Arguments{Keys: []string{"team"}}), Do{}, false},
		{
			"tags", tag(change.Arguments{Tags: map[string]string{"team": "vision"}, Keys: []string{"user"}}),
			Do{Verb: Tag, Tags: map[string]string{"team": "vision"}}, true,
		},
		{"a studio application", change.Change{Verb: change.DeleteApp}, Do{}, false},
	} {
		if tc.ok {
			tc.want.Change = tc.c
		}
		got, ok := FromChange(tc.c)
		if diff := cmp.Diff(tc.want, got); diff != "" || ok != tc.ok {
			t.Errorf("%s: carried out %v (-want +got):\n%s", tc.name, ok, diff)
		}
	}
}
