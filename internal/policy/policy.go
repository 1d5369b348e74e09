// Package policy is the language in which people say what should happen to which
// resources: strict YAML with conditions in CEL over facts that may be unknown.
// Evaluating a policy changes nothing; it says true, false or unknown, and only true
// proposes.
package policy

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/money"
)

// APIVersion is the version of the language.
const APIVersion = "curfew.policy/v1"

// Verb is what is done to a resource.
type Verb string

// The verbs, from the least harm to the most.
const (
	Notify     Verb = "notify"     // tell people, change nothing
	Tag        Verb = "tag"        // write tags
	Checkpoint Verb = "checkpoint" // save the work
	Suspend    Verb = "suspend"    // hold a job or workload
	Scale      Verb = "scale"      // change the size of a group or endpoint
	Stop       Verb = "stop"       // keeps the disks
	Hibernate  Verb = "hibernate"  // keeps disks and memory
	Terminate  Verb = "terminate"  // the machine is gone
	Delete     Verb = "delete"     // the resource is gone; a volume is snapshotted first
	Release    Verb = "release"    // gives an address back
	// PutRetention and PutLifecycle make a service delete or move data by age.
	PutRetention Verb = "put-retention"
	PutLifecycle Verb = "put-lifecycle"
)

// Destructive says whether the verb can take work or data away, so that it needs an
// explicit grace and climbs the whole ladder. An unknown verb is.
func (v Verb) Destructive() bool { return v != Notify && v != Tag && v != Checkpoint }

// Mode is how far a policy goes. The zero Mode observes.
type Mode string

// The modes.
const (
	Observe Mode = ""        // written "observe": proposals are shown, nothing happens
	Warn    Mode = "warn"    // people are warned
	Enforce Mode = "enforce" // the action is carried out, if the run enforces as well
)

// Set is the policies of one or more files, each name once.
type Set struct {
	Policies []*Policy
}

// Of returns the policies that are in files of the given names, whatever their directories;
// all of them where no file has such a name.
func (s *Set) Of(files []string) *Set {
	out := &Set{}
	for _, p := range s.Policies {
		if slices.ContainsFunc(files, func(f string) bool { return filepath.Base(f) == filepath.Base(p.File) }) {
			out.Policies = append(out.Policies, p)
		}
	}
	if len(out.Policies) == 0 {
		return s
	}
	return out
}

// Policy is one rule: which resources, under which condition, after which warning,
// what is done.
type Policy struct {
	Name string
	// Select narrows to resources by plain values, all of which must match.
	Select Select
	// Where and When are CEL conditions; empty is true. Where is about what the
	// resource is, When about what it does.
	Where, When string
	// Schedule narrows to times; nil is always.
	Schedule *Schedule
	// Warn is whom to warn and how long to wait; nil only where nothing destructive
	// is done.
	Warn *Warning
	Do   Do
	// Limits bound how much one run and one hour may do. Fields that are zero take
	// the defaults of the caller.
	Limits Limits
	Mode   Mode

	// File and Line are where the policy begins.
	File string
	Line int

	where, when *condition
	hours       *hours
}

// Select narrows to resources. An empty field matches all.
type Select struct {
	Cloud, Account, Region, Kind, Type, Lifetime, Purpose []string
	Team, Project, User, Environment                      []string
	// Tags must be there with these values ("*" is any value).
	Tags map[string]string
}

// Warning is a step of the ladder: who is told, and how long nothing happens after
// their channel accepted it.
type Warning struct {
	// Notify are recipients: "owner", "team", or a name that the configuration
	// routes. Empty means owner.
	Notify []string
	Grace  time.Duration
}

// Do is what is carried out.
type Do struct {
	Verb Verb
	// EvenIfBusy allows to end machines that are busy or whose duty is unknown,
	// EvenIfUnknown only those whose duty is unknown.
	EvenIfBusy, EvenIfUnknown bool
	// ScratchDisks declares instance-store and delete-on-termination disks to hold
	// nothing that matters. SaveDisks takes snapshots of the latter before a machine is
	// terminated.
	ScratchDisks, SaveDisks bool
	// ScratchInstanceStore declares the instance-store disks alone, ScratchRoot the root
	// disk alone.
	ScratchInstanceStore, ScratchRoot bool
	// Tags are written by the verb tag.
	Tags map[string]string
	// RetentionDays is for put-retention; To is the size for scale, at least 0, or
	// ThroughGroup.
	RetentionDays, To int
	// Change is the fix that a finding priced; zero where a policy asks.
	Change change.Change
	// Members are the machines that scale ends in place of a size; no policy names them,
	// and To is ThroughGroup. Nil: the group goes down to To and chooses itself.
	Members []string
}

// Equal says whether two actions are one and the same.
func (d *Do) Equal(o *Do) bool {
	return d.Verb == o.Verb && d.EvenIfBusy == o.EvenIfBusy && d.EvenIfUnknown == o.EvenIfUnknown &&
		d.ScratchDisks == o.ScratchDisks && d.SaveDisks == o.SaveDisks &&
		d.ScratchInstanceStore == o.ScratchInstanceStore &&
		d.ScratchRoot == o.ScratchRoot && d.RetentionDays == o.RetentionDays && d.To == o.To &&
		maps.Equal(d.Tags, o.Tags) && slices.Equal(d.Members, o.Members) && d.Change.Equal(o.Change)
}

// Of returns what carries a finding's fix out; false where only a person can. The cloud
// decides for which kinds it can.
func Of(c change.Change) (Do, bool) {
	d := Do{Verb: Verb(c.Verb), Change: c}
	switch d.Verb {
	case Stop, Delete, Release:
	case PutLifecycle:
		if c.Document == "" {
			return Do{}, false
		}
	case Terminate:
		d.SaveDisks = len(c.Arguments.Snapshot) > 0
	case PutRetention:
		d.RetentionDays = c.Arguments.RetentionDays
	case Scale:
		switch a := c.Arguments; {
		case a.Group != "" || len(a.Members) > 0:
			d.To, d.Members = ThroughGroup, a.Members
		case a.Count != nil && *a.Count >= 0 && *a.Count <= math.MaxInt32:
			d.To = int(*a.Count)
		default: // without a size it is never "to 0"
			return Do{}, false
		}
	case Tag:
		if len(c.Arguments.Tags) == 0 {
			return Do{}, false
		}
		d.Tags = c.Arguments.Tags
	default:
		return Do{}, false
	}
	return d, true
}

// ThroughGroup is Do.To where a machine is scaled: there is no size, it ends through its
// group.
const ThroughGroup = -1

// LosesInstanceStore says whether the content of instance-store disks may be lost.
func (d Do) LosesInstanceStore() bool { return d.ScratchDisks || d.ScratchInstanceStore }

// Losable says whether the content of a disk that is deleted with its machine may be lost
// without a snapshot; root says that it is the root disk.
func (d Do) Losable(root bool) bool {
	return !d.SaveDisks && (d.ScratchDisks || d.ScratchRoot && root)
}

// Limits are the caps of safety.md 5.
type Limits struct {
	// PerHour is how many resources one run, and all runs of one hour, may act on.
	PerHour int
	// Share is the part of the machines that the policy selects, 0 to 1.
	Share float64
	// DollarsPerHour is what the resources acted on cost an hour together.
	DollarsPerHour money.Amount
}

// DefaultLimits are on where a policy says nothing.
func DefaultLimits() Limits {
	return Limits{PerHour: 10, Share: 0.2, DollarsPerHour: 200 * money.USD}
}

// Schedule narrows a policy to times of a place.
type Schedule struct {
	Location *time.Location
	// Off are weekly spans in which the policy applies: "Mon-Fri 20:00-07:00",
	// "Sat-Sun". At are weekly ticks: "Mon-Fri 20:00"; a tick is due for a resource
	// that has been running since before it, so that a missed tick is caught up.
	Off, At []string
}
