package action

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

var at = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// allowed is a proposal to terminate an idle machine that no rule forbids, and its
// item.
func allowed() (Proposal, Item) {
	r := &inventory.Resource{
		ID: "i-1", Kind: inventory.KindInstance, Cloud: "aws", Account: "1", Region: "r",
		State:     inventory.StateRunning,
		CreatedAt: at.Add(-20 * time.Hour), Tags: map[string]string{}, Lifetime: inventory.Ephemeral,
		Detail: &inventory.Instance{}}
	p := Proposal{
		Source: "idle", Resource: r, Do: policy.Do{Verb: policy.Terminate}, Mode: policy.Enforce, Grace: time.Hour,
		Governed:  true,
		Duty:      &duty.Verdict{State: duty.Idle, Expires: at.Add(time.Minute)},
		Hourly:    inventory.Known(3 * money.USD),
		Condition: usage.True, ReadAt: at, Class: policy.ClassDuty}
	it, _ := Advance(Item{Account: "aws/1"}, &p, Round{Number: 1, Now: at})
	return p, it
}

// smaller makes of a proposal one that ends machines of a group of three.
func smaller(p *Proposal, it *Item, members []string) {
	r := *p.Resource
	r.ID, r.Kind, r.State, r.Detail = "g", inventory.KindAutoScalingGroup, inventory.StateAvailable,
		&inventory.AutoScalingGroup{Min: 1, Desired: 3, Instances: []string{"i-1", "i-2", "i-3"}}
	p.Resource, p.Do = &r, policy.Do{Verb: policy.Scale, To: policy.ThroughGroup, Members: members}
	*it, _ = Advance(Item{Account: "aws/1"}, p, Round{Number: 1, Now: at})
}

// resized makes of a proposal one that sets the size of a persistent fleet of 2 to 9 machines.
func resized(p *Proposal, it *Item, to int) {
	smaller(p, it, nil)
	p.Resource.Lifetime, p.Governed, p.Grace, p.Duty = inventory.Persistent, false, 0, nil
	p.Do, p.Class = policy.Do{Verb: policy.Scale, Fleet: "asg/g", Min: 2, Max: 9, To: to}, ""
	*it, _ = Advance(Item{Account: "aws/1"}, p, Round{Number: 1, Now: at})
}

// forbidden are cases that one rule alone forbids.
var forbidden = []struct {
	rule, name string
	change     func(p *Proposal, it *Item, keeps *[]Keep)
}{
	{"unknown", "a condition that is unknown", func(p *Proposal, _ *Item, _ *[]Keep) { p.Condition = usage.Unknown }},
	{"unknown", "a condition that is false", func(p *Proposal, _ *Item, _ *[]Keep) { p.Condition = usage.False }},
	{"unknown", "tags that could not be read", func(p *Proposal, _ *Item, _ *[]Keep) { p.Resource.Tags = nil }},
	{"unknown", "a machine of which only the name is known", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Resource.Detail = nil
	}},
	{"stale", "facts six minutes old", func(p *Proposal, _ *Item, _ *[]Keep) { p.ReadAt = at.Add(-6 * time.Minute) }},
	{"stale", "facts of unknown age", func(p *Proposal, _ *Item, _ *[]Keep) { p.ReadAt = time.Time{} }},
	{"stale", "facts of the future", func(p *Proposal, _ *Item, _ *[]Keep) { p.ReadAt = at.Add(time.Hour) }},
	{"stale", "a busy rule whose newest sample is too old, even if busy", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Do.EvenIfBusy = true
		p.Duty.Expires = at.Add(-time.Second)
	}},
	{"verb", "an unknown verb", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Do.Verb, it.Do.Verb = "vaporize", "vaporize"
	}},
	{"verb", "no verb at all", func(p *Proposal, it *Item, _ *[]Keep) { p.Do.Verb, it.Do.Verb = "", "" }},
	{"identity", "another machine under the same id", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Resource.CreatedAt = at.Add(-time.Minute)
	}},
	{"identity", "another resource than the item's", func(_ *Proposal, it *Item, _ *[]Keep) { it.Ref.ID = "i-2" }},
	{"identity", "a machine of unknown age", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Resource.CreatedAt, it.Identity = time.Time{}, ""
	}},
	{"kept", "a tag", func(p *Proposal, _ *Item, _ *[]Keep) { p.Resource.KeepUntil = at.Add(time.Second) }},
	{"kept", "a tag that cannot be read", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Resource.KeepUntil = inventory.KeepForever
	}},
	{"kept", "a keep", func(p *Proposal, _ *Item, keeps *[]Keep) {
		*keeps = append(*keeps, Keep{Ref: p.Resource.Ref(), Until: at.Add(time.Second), By: "ana", Reason: "demo"})
	}},
	{"kept", "a keep of a machine that its group would end", func(p *Proposal, it *Item, keeps *[]Keep) {
		smaller(p, it, []string{"i-1", "i-2"})
		*keeps = []Keep{
			{
				Ref:   inventory.Ref{Cloud: "aws", Account: "1", Region: "r", Kind: inventory.KindInstance, ID: "i-2"},
				Until: at.Add(time.Hour),
			},
		}
	}},
	{"kept", "a keep of a machine of a group that chooses", func(p *Proposal, it *Item, keeps *[]Keep) {
		smaller(p, it, nil)
		*keeps = []Keep{
			{
				Ref:   inventory.Ref{Cloud: "aws", Account: "1", Region: "r", Kind: inventory.KindInstance, ID: "i-3"},
				Until: at.Add(time.Hour),
			},
		}
	}},
	{"kept", "a keep against a person", func(p *Proposal, _ *Item, keeps *[]Keep) {
		p.ByPerson = true
		*keeps = append(*keeps, Keep{Ref: p.Resource.Ref(), Until: at.Add(time.Second), By: "ana", Reason: "demo"})
	}},
	{"persistent", "a policy on what is persistent", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Resource.Lifetime = inventory.Persistent
	}},
	{"persistent", "a policy on what has no lifetime", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Resource.Lifetime = ""
	}},
	{"persistent", "a policy that tags what is persistent", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Resource.Lifetime = inventory.Persistent
		p.Do = policy.Do{Verb: policy.Tag, Tags: map[string]string{"team": "x"}}
	}},
	{"bounds", "fewer machines than the minimum", func(p *Proposal, it *Item, _ *[]Keep) { resized(p, it, 1) }},
	{"bounds", "more machines than the maximum", func(p *Proposal, it *Item, _ *[]Keep) { resized(p, it, 10) }},
	{"bounds", "another group than the fleet", func(p *Proposal, it *Item, _ *[]Keep) {
		resized(p, it, 4)
		p.Do.Fleet, it.Do.Fleet = "asg/other", "asg/other"
	}},
	{"kept", "a keep of a fleet", func(p *Proposal, it *Item, keeps *[]Keep) {
		resized(p, it, 4)
		*keeps = append(*keeps, Keep{Ref: p.Resource.Ref(), Until: at.Add(time.Second), By: "ana", Reason: "demo"})
	}},
	{"unknown", "a fleet of unknown demand", func(p *Proposal, it *Item, _ *[]Keep) {
		resized(p, it, 4)
		p.Condition = usage.Unknown
	}},
	{"deletion", "a policy that lets objects expire", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Resource.Kind, it.Ref.Kind, p.Do.Verb = inventory.KindBucket, inventory.KindBucket, policy.PutLifecycle
	}},
	{"deletion", "a policy that shortens retention", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Resource.Kind, it.Ref.Kind, p.Do.Verb = inventory.KindLogGroup, inventory.KindLogGroup, policy.PutRetention
	}},
	{"self-governed", "a policy that writes curfew:managed", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Do = policy.Do{Verb: policy.Tag, Tags: map[string]string{"Curfew-Managed": "true"}}
	}},
	{"self-governed", "a policy that writes a lifetime", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Do = policy.Do{Verb: policy.Tag, Tags: map[string]string{"Purpose": "transient-ml-training"}}
	}},
	{"self-governed", "a policy that writes a lease", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Do = policy.Do{Verb: policy.Tag, Tags: map[string]string{inventory.TagLease: "2027-01-01"}}
		it.Do = p.Do
	}},
	{"self-governed", "a policy that writes an idle time", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Do = policy.Do{Verb: policy.Tag, Tags: map[string]string{inventory.TagIdle: "1m"}}
		it.Do = p.Do
	}},
	{"self-governed", "a policy that overwrites a keep", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Do = policy.Do{Verb: policy.Tag, Tags: map[string]string{inventory.TagKeepUntil: "2026-01-01"}}
	}},
	{"ungoverned", "a machine that no policy governs", func(p *Proposal, _ *Item, _ *[]Keep) { p.Governed = false }},
	{"group-member", "a member of a group", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Resource.Manager = inventory.Manager{Kind: inventory.ManagerAutoScaling, Name: "asg"}
	}},
	{"group-member", "a machine of a manager without a name", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Resource.Manager = inventory.Manager{Kind: inventory.ManagerBatch}
	}},
	{"group-member", "a person at a member of a group", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.ByPerson, p.Resource.Manager = true, inventory.Manager{Kind: inventory.ManagerAutoScaling, Name: "asg"}
	}},
	{"group-member", "a machine of a fleet that is scaled", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Do, p.Resource.Manager = policy.Do{
			Verb: policy.Scale,
		}, inventory.Manager{Kind: inventory.ManagerFleet, Name: "f"}
		it.Do = p.Do
	}},
	{"protected", "a protected machine of a group that is scaled", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Do, p.Resource.Manager = policy.Do{
			Verb: policy.Scale,
		}, inventory.Manager{Kind: inventory.ManagerAutoScaling, Name: "asg"}
		p.Resource.Detail, it.Do = &inventory.Instance{TerminationProtected: inventory.Known(true)}, p.Do
	}},
	{"busy", "a group of unjudged machines", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Resource.Kind, p.Resource.Detail, p.Duty, p.Class, p.Do = inventory.KindAutoScalingGroup, nil, nil, "age",
			policy.Do{Verb: policy.Scale}
		it.Ref, it.Do = p.Resource.Ref(), p.Do
	}},
	{"protected", "termination protection", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Resource.Detail = &inventory.Instance{TerminationProtected: inventory.Known(true)}
	}},
	{"no-grace", "a destructive action without grace", func(p *Proposal, _ *Item, _ *[]Keep) { p.Grace = 0 }},
	{"busy", "a busy machine under a rule of age", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Class, p.Duty.State = "age", duty.Busy
	}},
	{"busy", "a machine that loads its data", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Class, p.Duty.State = "age", duty.Starved
	}},
	{"busy", "a machine of unknown duty", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Class, p.Duty.State = "age", duty.Unknown
	}},
	{"busy", "an unjudged machine", func(p *Proposal, _ *Item, _ *[]Keep) { p.Class, p.Duty = "age", nil }},
	{"busy", "an idle machine whose newest sample is too old", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Class, p.Duty.Expires = "age", at.Add(-time.Second)
	}},
	{"busy", "a checkpoint older than an hour", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Class, p.Duty.State, p.Checkpoint = "age", duty.Busy, inventory.Known(at.Add(-time.Hour-time.Second))
	}},
	{"busy", "a checkpoint of the future", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Class, p.Duty.State, p.Checkpoint = "age", duty.Busy, inventory.Known(at.Add(time.Second))
	}},
	{"gang", "one idle node of eight", func(p *Proposal, _ *Item, _ *[]Keep) { p.Gang = gang(7) }},
	{"gang", "seven of eight", func(p *Proposal, _ *Item, _ *[]Keep) { p.Gang, p.Together = gang(7), gang(6) }},
	{"unsaved-disk", "undeclared instance-store disks", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Do, it.Do = policy.Do{Verb: policy.Stop}, policy.Do{Verb: policy.Stop}
		p.Resource.Size.InstanceStorageGB = inventory.Known[int64](900)
	}},
	{"unsaved-disk", "instance-store disks, and a snapshot of the root disk", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Do.SaveDisks, it.Do.SaveDisks = true, true
		p.Resource.Size.InstanceStorageGB = inventory.Known[int64](900)
	}},
	{"unsaved-disk", "a root disk that is deleted with the machine", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Resource.Detail = disks(inventory.Disk{VolumeID: "vol-1", DeleteOnTermination: true, Root: true})
	}},
	{"unsaved-disk", "a data disk on a machine with a scratch root disk", func(p *Proposal, it *Item, _ *[]Keep) {
		p.Do.ScratchRoot, it.Do.ScratchRoot = true, true
		p.Resource.Detail = disks(inventory.Disk{VolumeID: "vol-1", DeleteOnTermination: true, Root: true},
			inventory.Disk{VolumeID: "vol-2", DeleteOnTermination: true})
	}},
	{"busy", "a busy machine of a rule that spares what works", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Class, p.Duty.State, p.Do.EvenIfUnknown = "age", duty.Busy, true
	}},
	{"self-governed", "a policy that consents to lose disks", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Do = policy.Do{Verb: policy.Tag, Tags: map[string]string{inventory.TagDisks: "scratch"}}
	}},
	{"unpriced", "a machine without a price", func(p *Proposal, _ *Item, _ *[]Keep) {
		p.Hourly = inventory.Fact[money.Amount]{}
	}},
}

func disks(d ...inventory.Disk) *inventory.Instance { return &inventory.Instance{Disks: d} }

// gang are other machines.
func gang(n int) []inventory.Ref {
	out := make([]inventory.Ref, n)
	for i := range out {
		out[i] = inventory.Ref{
			Cloud: "aws", Account: "1", Region: "r", Kind: inventory.KindInstance, ID: "i-g" + string(rune('a'+i)),
		}
	}
	return out
}

// TestRules checks that every rule forbids its cases, and it alone does: without the rule each of
// them would go ahead.
func TestRules(t *testing.T) {
	if p, it := allowed(); Refuse(p, it, at, nil) != nil {
		t.Fatalf("the case to begin with is refused: %v", Refuse(p, it, at, nil))
	}
	all := rules
	t.Cleanup(func() { rules = all })
	covered := map[string]bool{}
	for _, tc := range forbidden {
		covered[tc.rule] = true
		t.Run(tc.rule+"/"+tc.name, func(t *testing.T) {
			p, it := allowed()
			var keeps []Keep
			tc.change(&p, &it, &keeps)
			rules = all
			got := Refuse(p, it, at, keeps)
			if got == nil || got.Rule != tc.rule || got.Why == "" {
				t.Fatalf("Refuse = %+v, want rule %s with a reason", got, tc.rule)
			}
			rules = slices.DeleteFunc(slices.Clone(all), func(r rule) bool { return r.name == tc.rule })
			if got := Refuse(p, it, at, keeps); got != nil {
				t.Errorf("without the rule it is refused by %s as well: the case says nothing about %s", got.Rule,
					tc.rule)
			}
		})
	}
	for _, r := range all {
		if !covered[r.name] {
			t.Errorf("no case for the rule %s", r.name)
		}
	}
}

// TestRulesAllow: what the rules must let through.
func TestRulesAllow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(p *Proposal, keeps *[]Keep)
	}{
		{"a busy machine with a fresh checkpoint", func(p *Proposal, _ *[]Keep) {
			p.Class, p.Duty.State, p.Checkpoint = "age", duty.Busy, inventory.Known(at.Add(-time.Hour))
		}},
		{"a busy machine of a rule that says so", func(p *Proposal, _ *[]Keep) {
			p.Class, p.Duty.State, p.Do.EvenIfBusy = "age", duty.Busy, true
		}},
		{"a machine that ends through its group", func(p *Proposal, _ *[]Keep) {
			p.Do, p.Resource.Manager = policy.Do{
				Verb: policy.Scale,
			}, inventory.Manager{Kind: inventory.ManagerAutoScaling, Name: "asg"}
		}},
		{"an unmeasured machine of a rule that says so", func(p *Proposal, _ *[]Keep) {
			p.Class, p.Duty, p.Do.EvenIfUnknown = "age", nil, true
		}},
		{"a machine whose newest sample is old, of a rule that says so", func(p *Proposal, _ *[]Keep) {
			p.Class, p.Duty.Expires, p.Do.EvenIfUnknown = "age", at.Add(-time.Second), true
		}},
		{"instance-store disks that are scratch", func(p *Proposal, _ *[]Keep) {
			p.Do.ScratchInstanceStore, p.Resource.Size.InstanceStorageGB = true, inventory.Known[int64](900)
		}},
		{"disks that are saved", func(p *Proposal, _ *[]Keep) {
			p.Do.SaveDisks = true
			p.Resource.Detail = disks(inventory.Disk{VolumeID: "vol-1", DeleteOnTermination: true, Root: true},
				inventory.Disk{VolumeID: "vol-2", DeleteOnTermination: true})
		}},
		{"a root disk that is scratch", func(p *Proposal, _ *[]Keep) {
			p.Do.ScratchRoot, p.Resource.Detail = true, disks(inventory.Disk{
				VolumeID: "vol-1", DeleteOnTermination: true, Root: true,
			})
		}},
		{"a root disk that stays when the machine stops", func(p *Proposal, _ *[]Keep) {
			p.Do.Verb, p.Resource.Detail = policy.Stop, disks(inventory.Disk{
				VolumeID: "vol-1", DeleteOnTermination: true, Root: true,
			})
		}},
		{"a disk that outlives its machine", func(p *Proposal, _ *[]Keep) {
			p.Resource.Detail = disks(inventory.Disk{VolumeID: "vol-1"})
		}},
		{"a stalled machine", func(p *Proposal, _ *[]Keep) { p.Duty.State = duty.Stalled }},
		{"a stopped machine", func(p *Proposal, _ *[]Keep) {
			p.Class, p.Resource.State, p.Duty = "age", inventory.StateStopped, nil
		}},
		{"a keep that has ended", func(p *Proposal, keeps *[]Keep) {
			p.Resource.KeepUntil = at
			*keeps = []Keep{{Ref: p.Resource.Ref(), Until: at}}
		}},
		{"a keep of another", func(p *Proposal, keeps *[]Keep) {
			*keeps = []Keep{{Ref: gang(1)[0], Until: at.Add(time.Hour)}}
		}},
		{"the whole gang", func(p *Proposal, _ *[]Keep) { p.Gang, p.Together = gang(7), gang(7) }},
		{"a notice about what is persistent", func(p *Proposal, _ *[]Keep) {
			p.Resource.Lifetime, p.Do.Verb = "", policy.Notify
		}},
		{"a person at what is persistent", func(p *Proposal, _ *[]Keep) {
			p.Resource.Lifetime, p.ByPerson, p.Governed = "", true, false
		}},
		{"a person who tags what is kept", func(p *Proposal, _ *[]Keep) {
			p.ByPerson, p.Do.Verb, p.Resource.KeepUntil = true, policy.Tag, at.Add(time.Hour)
		}},
		{"an ephemeral volume that no policy governs", func(p *Proposal, _ *[]Keep) {
			p.Resource.Kind, p.Resource.Detail, p.Duty, p.Class, p.Governed = inventory.KindVolume, nil, nil, "age",
				false
			p.Do.Verb = policy.Delete
		}},
		{"a fleet that is persistent and not governed, between its bounds", func(p *Proposal, _ *[]Keep) {
			resized(p, &Item{}, 4)
		}},
		{"a protected machine that is stopped", func(p *Proposal, _ *[]Keep) {
			p.Do.Verb, p.Resource.Detail = policy.Stop, &inventory.Instance{
				TerminationProtected: inventory.Known(true),
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, _ := allowed()
			var keeps []Keep
			tc.change(&p, &keeps)
			if got := Refuse(p, Item{}, at, keeps); got != nil {
				t.Errorf("refused by %s: %s", got.Rule, got.Why)
			}
		})
	}
}

// TestRulesAreDocumented checks that every rule that forbids is explained to people, in the order
// in which it is asked, and nothing else is.
func TestRulesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "\n## What is refused\n")
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
	}
	var want []string
	for _, r := range rules {
		want = append(want, r.name)
	}
	want = append(want, "unapproved")
	// What clouds refuse by rules of their own comes after.
	if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("docs/safety.md explains %v, want %v", got, want)
	}
}

// TestNeedsApproval checks that a person's deletion needs one, whatever is deleted, and so does
// every change of what is not explicitly ephemeral.
func TestNeedsApproval(t *testing.T) {
	for _, tc := range []struct {
		verb     policy.Verb
		lifetime inventory.Lifetime
		person   bool
		want     bool
	}{
		{policy.Delete, inventory.Ephemeral, true, true},
		{policy.PutLifecycle, inventory.Ephemeral, true, true},
		{policy.PutRetention, inventory.Ephemeral, true, true},
		{policy.Delete, inventory.Ephemeral, false, false},
		{policy.Delete, inventory.Persistent, false, true},
		{policy.Delete, "", false, true},
		{policy.Terminate, inventory.Ephemeral, true, false},
		{policy.Terminate, inventory.Persistent, true, true},
		{policy.Stop, "", true, true},
		{policy.Stop, inventory.Ephemeral, false, false},
		{policy.Tag, "", true, false},
		{policy.Notify, "", true, false},
	} {
		p := Proposal{
			Resource: &inventory.Resource{Lifetime: tc.lifetime}, Do: policy.Do{Verb: tc.verb}, ByPerson: tc.person,
		}
		if got := NeedsApproval(p); got != tc.want {
			t.Errorf("%s of something %q, by a person %t: %t, want %t", tc.verb, tc.lifetime, tc.person, got, tc.want)
		}
	}
}

// TestResetForgetsApproval checks that an item that starts over has no earlier approval, plan or
// notice.
func TestResetForgetsApproval(t *testing.T) {
	p, it := allowed()
	it = it.Accepted([]string{"ana"}, p, Round{Number: 1, Now: at})
	it.GraceFrom, it.ApprovedAt, it.Steps, it.Step, it.ConditionHeldUntil = time.Time{}, at, []Step{
		{Name: "terminate"},
	}, 1, at
	next, want := Advance(it, &p, Round{Number: 2, Now: at.Add(time.Minute)})
	if want != Warn || next.Phase != Observed || !next.ApprovedAt.IsZero() || next.Steps != nil || next.Step != 0 ||
		next.Recipients != nil ||
		next.WarnedRound != 0 || !next.WarnedAt.IsZero() || next.Grace != 0 || !next.ConditionHeldUntil.IsZero() {
		t.Errorf("%s: %+v", want, next)
	}
}

// TestOffersSnapshotsForTerminationOnly checks that only a termination is preceded by snapshots, so
// that no other refusal names the flag for them.
func TestOffersSnapshotsForTerminationOnly(t *testing.T) {
	r := &inventory.Resource{
		Kind: inventory.KindInstance, Detail: disks(inventory.Disk{VolumeID: "vol-1", DeleteOnTermination: true}),
	}
	for _, tc := range []struct {
		do       policy.Do
		byPerson bool
		want     string
		offered  bool
	}{
		{policy.Do{Verb: policy.Terminate}, true, "--scratch-disks", true},
		{policy.Do{Verb: policy.Terminate}, false, "disks in the policy", true},
		{policy.Do{Verb: policy.Scale, To: policy.ThroughGroup}, true, "scale takes no snapshots", false},
		{policy.Do{Verb: policy.Scale, To: policy.ThroughGroup}, false, "scale takes no snapshots", false},
	} {
		why := unsavedDiskRefusal(&ruleInput{Proposal: Proposal{Resource: r, Do: tc.do, ByPerson: tc.byPerson}})
		if !strings.Contains(why, "vol-1") || !strings.Contains(why, tc.want) ||
			strings.Contains(why, "have them saved") != tc.offered {
			t.Errorf("%s, by a person %v: %q", tc.do.Verb, tc.byPerson, why)
		}
	}
}
