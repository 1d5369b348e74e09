package round

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestMissingReason: what could not be read is never taken for gone or changed, and
// blind spots are named where they may be why.
func TestMissingReason(t *testing.T) {
	m := machine("i-1", "g6.2xlarge", time.Hour)
	away := m.Ref()
	away.ID = "i-2"
	denied := inventory.BlindSpot{What: "cloudwatch", Why: "denied"}
	throttled := inventory.BlindSpot{What: "ec2", Why: "throttled"}
	verdict := func(s duty.State) map[inventory.Ref]duty.Verdict {
		return map[inventory.Ref]duty.Verdict{m.Ref(): {State: s, Why: "why not"}}
	}
	list := m.Account + "/" + m.Region + "/" + string(m.Kind)
	for name, tc := range map[string]struct {
		ref    inventory.Ref
		change func(r *Result)
		want   MissingReason
		says   string
	}{
		"gone": {away, nil, Gone, "the provider no longer has this resource"},
		"another account": {away, func(r *Result) {
			r.Accounts = []string{"2"}
		}, Unread, "account 1 was not read: neither the credentials nor a role reach it"},
		"another region": {away, func(r *Result) {
			r.Regions = []string{"eu-west-1"}
		}, Unread, "region us-east-1 of account 1 was not read"},
		"a list that failed": {away, func(r *Result) {
			r.Unread = map[string]bool{list: true}
		}, Unread, "the list of kind instance in us-east-1 could not be read"},
		"and why": {away, func(r *Result) {
			r.Unread, r.BlindSpots = map[string]bool{list: true}, []inventory.BlindSpot{throttled}
		}, Unread,
			"the list of kind instance in us-east-1 could not be read: ec2 (throttled)"},
		"blind spots": {m.Ref(), func(r *Result) { r.BlindSpots = []inventory.BlindSpot{denied, throttled} }, Unread,
			"what the finding rests on could not be read: cloudwatch (denied), ec2 (throttled)"},
		"an unknown verdict": {m.Ref(), func(r *Result) {
			r.Verdicts = verdict(duty.Unknown)
		}, Unread, "what the resource does is not known: why not"},
		"a verdict": {m.Ref(), func(r *Result) { r.Verdicts = verdict(duty.Busy) }, Changed,
			"the resource is there (running), and the finding no longer holds: busy, why not"},
		"none": {m.Ref(), nil, Changed, "the resource is there (running), and the finding no longer holds"},
	} {
		r := &Result{
			Observation: Observation{
				Inventory: inventory.Inventory{Resources: []*inventory.Resource{m}}, Cloud: "aws",
				Accounts: []string{"1"},
				Regions:  []string{"us-east-1"},
			},
		}
		if tc.change != nil {
			tc.change(r)
		}
		if got, says := r.MissingReason(Request{Resource: tc.ref}); got != tc.want || says != tc.says {
			t.Errorf("%s: %s, %q, want %s, %q", name, got, says, tc.want, tc.says)
		}
	}
}
