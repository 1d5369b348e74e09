// Package policy implements the policy language: strict YAML with CEL conditions over facts that
// may be unknown. Evaluating a policy has no side effects; it gives true, false or unknown, and
// only true proposes an action.
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

// Verb is a kind of action on a resource.
type Verb string

// The verbs, from the least to the most harmful.
const (
	Notify     Verb = "notify"     // tell people, change nothing
	Tag        Verb = "tag"        // write tags
	Checkpoint Verb = "checkpoint" // save the work
	Suspend    Verb = "suspend"    // hold a job or workload
	Scale      Verb = "scale"      // change the size of a group or endpoint
	Stop       Verb = "stop"       // keeps the disks
	Hibernate  Verb = "hibernate"  // keeps disks and memory
	Terminate  Verb = "terminate"  // deletes the machine
	Delete     Verb = "delete"     // deletes the resource; a volume is snapshotted first
	Release    Verb = "release"    // gives an address back
	// PutRetention and PutLifecycle make a service delete or move data by age.
	PutRetention Verb = "put-retention"
	PutLifecycle Verb = "put-lifecycle"
)

// IsDestructive reports whether the verb can destroy work or data, so that it needs an explicit
// grace and takes every step of the ladder. An unknown verb is.
func (v Verb) IsDestructive() bool { return v != Notify && v != Tag && v != Checkpoint }

// Mode limits what a policy does. The zero Mode observes.
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

// FromFiles returns the policies of the files with the given base names; all policies if no file
// matches.
func (s *Set) FromFiles(files []string) *Set {
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

// Policy is one rule: which resources, under which condition, after which warning, and which
// action.
type Policy struct {
	Name string
	// Select selects resources by plain values, all of which must match.
	Select Select
	// Where and When are CEL conditions; empty is true. Where is about properties of the resource,
	// When about its current activity.
	Where, When string
	// Schedule restricts the times; nil is always.
	Schedule *Schedule
	// Warn is the warning before the action; nil only if the action is not destructive.
	Warn *Warning
	Do   Do
	// Limits bound the actions of one run and of one hour. Zero fields take the defaults of the
	// caller.
	Limits Limits
	Mode   Mode

	// File and Line are the position of the policy.
	File string
	Line int

	where, when *condition
	compiled    *compiledSchedule
}

// Select selects resources. An empty field matches all.
type Select struct {
	Cloud, Account, Region, Kind, Type, Lifetime, Purpose []string
	Team, Project, User, Environment                      []string
	// Tags must have these values ("*" is any value).
	Tags map[string]string
}

// Warning is the warning step of the ladder: its recipients, and the time without action after
// their channel accepted it.
type Warning struct {
	// Notify are recipients: "owner", "team", or a name that the configuration routes. Empty means
	// owner.
	Notify []string
	Grace  time.Duration
}

// Do is the action of a policy.
type Do struct {
	Verb Verb
	// EvenIfBusy allows ending machines that are busy or of unknown duty, EvenIfUnknown only those
	// of unknown duty.
	EvenIfBusy, EvenIfUnknown bool
	// ScratchDisks declares instance-store and delete-on-termination disks disposable. SaveDisks
	// takes snapshots of the latter before a machine is terminated.
	ScratchDisks, SaveDisks bool
	// ScratchInstanceStore declares only the instance-store disks disposable, ScratchRoot only the
	// root disk.
	ScratchInstanceStore, ScratchRoot bool
	// Tags are the tags to write with the verb tag.
	Tags map[string]string
	// RetentionDays is for put-retention; To is the size for scale, at least 0, or ThroughGroup.
	RetentionDays, To int
	// Fleet is the serving fleet, such as "asg/embed", that scale keeps between Min and Max by
	// demand; if empty, scale reduces resources to To. Zero allows a Min of 0. Target is the target
	// utilization, over 0 to 1; 0 means the planner's default.
	Fleet    string
	Min, Max int
	Zero     bool
	Target   float64
	// Change is the fix priced by a finding; zero for policies.
	Change change.Change
	// Members are the machines to end instead of setting a size; To is ThroughGroup then. Policies
	// never set them. If nil, the group shrinks to To and chooses the machines.
	Members []string
}

// Equal reports whether two actions are the same.
func (d *Do) Equal(o *Do) bool {
	return d.Verb == o.Verb && d.EvenIfBusy == o.EvenIfBusy && d.EvenIfUnknown == o.EvenIfUnknown &&
		d.ScratchDisks == o.ScratchDisks && d.SaveDisks == o.SaveDisks &&
		d.ScratchInstanceStore == o.ScratchInstanceStore &&
		d.ScratchRoot == o.ScratchRoot && d.RetentionDays == o.RetentionDays && d.To == o.To &&
		d.Fleet == o.Fleet && d.Min == o.Min && d.Max == o.Max && d.Zero == o.Zero && d.Target == o.Target &&
		maps.Equal(d.Tags, o.Tags) && slices.Equal(d.Members, o.Members) && d.Change.Equal(o.Change)
}

// FromChange returns the action that carries out a finding's fix; false if only a person can. The
// cloud decides for which kinds it can.
func FromChange(c change.Change) (Do, bool) {
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
		default: // a missing size never means 0
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

// ThroughGroup is the value of Do.To for machines: a machine has no size, and ends through its
// group.
const ThroughGroup = -1

// LosesInstanceStore reports whether the content of instance-store disks may be lost.
func (d Do) LosesInstanceStore() bool { return d.ScratchDisks || d.ScratchInstanceStore }

// MayLoseDisk reports whether the content of a disk that is deleted with its machine may be lost
// without a snapshot; root is set for the root disk.
func (d Do) MayLoseDisk(root bool) bool {
	return !d.SaveDisks && (d.ScratchDisks || d.ScratchRoot && root)
}

// Limits are the caps of a policy (docs/safety.md, rule 5).
type Limits struct {
	// PerHour limits the resources that one run, and all runs of one hour, may act on.
	PerHour int
	// Share limits the part of the resources that the policy selects, 0 to 1.
	Share float64
	// DollarsPerHour limits the total hourly cost of the resources acted on.
	DollarsPerHour money.Amount
}

// DefaultLimits returns the limits of policies without limits.
func DefaultLimits() Limits {
	return Limits{PerHour: 10, Share: 0.2, DollarsPerHour: 200 * money.USD}
}

// Schedule restricts a policy to times in a time zone.
type Schedule struct {
	Location *time.Location
	// Off are weekly spans in which the policy applies: "Mon-Fri 20:00-07:00", "Sat-Sun". At are
	// weekly ticks: "Mon-Fri 20:00"; a tick is due for a resource that has been running since
	// before it, so that a missed tick is caught up.
	Off, At []string
}
