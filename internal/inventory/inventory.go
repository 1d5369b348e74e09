// Package inventory describes everything with a running meter: what it is, whose
// it is, how long it is meant to live, and what is known of it.
//
// What could not be read is unknown and says so: a [Fact] holds a value only once
// it was read, a zero time is an unknown time, nil tags are unreadable tags.
// Unknown is never taken for "none" or "no".
package inventory

import (
	"cmp"
	"reflect"
	"slices"
	"time"
)

// Kind is what a resource is; its values are part of the scan document.
type Kind string

// The kinds of resource.
const (
	KindAddress             Kind = "address"
	KindAutoScalingGroup    Kind = "autoscaling-group"
	KindBucket              Kind = "bucket"
	KindCache               Kind = "cache"
	KindCapacityReservation Kind = "capacity-reservation"
	KindCluster             Kind = "cluster"
	KindCommitment          Kind = "commitment"
	KindDatabase            Kind = "database"
	KindEndpoint            Kind = "endpoint"
	KindFileSystem          Kind = "file-system"
	KindHyperPod            Kind = "hyperpod-cluster"
	KindImage               Kind = "image"
	KindInstance            Kind = "instance"
	KindLoadBalancer        Kind = "load-balancer"
	KindLogGroup            Kind = "log-group"
	KindNATGateway          Kind = "nat-gateway"
	KindNode                Kind = "node"
	KindNotebook            Kind = "notebook"
	KindPod                 Kind = "pod"
	KindRepository          Kind = "repository"
	KindSecret              Kind = "secret"
	KindSnapshot            Kind = "snapshot"
	KindTable               Kind = "table"
	KindTrainingJob         Kind = "training-job"
	KindVolume              Kind = "volume"
	KindVPCEndpoint         Kind = "vpc-endpoint"
	KindWarehouse           Kind = "warehouse"
)

// KindService is what a bill charges in a region for nothing that is listed; findings
// about bills have it, and policies do not select it.
const KindService Kind = "service"

// State is the provider's state in one vocabulary. The zero State is unknown.
type State string

// The states.
const (
	StateUnknown   State = ""
	StatePending   State = "pending"   // being made; may already cost
	StateRunning   State = "running"   // instance, notebook, endpoint, job, database: serving or able to
	StateStopping  State = "stopping"  // on its way to stopped
	StateStopped   State = "stopped"   // kept, not running; its disks still cost
	StateAvailable State = "available" // exists; for a volume: unattached
	StateInUse     State = "in-use"    // attached, associated
	StateDisabled  State = "disabled"  // an image that cannot be launched
	StateFailed    State = "failed"
	StateDeleting  State = "deleting" // on its way out; not a finding any more
)

// Lifetime says whether a resource may be destroyed. The zero value is unknown
// and is treated as Persistent everywhere.
type Lifetime string

// The lifetimes.
const (
	LifetimeUnknown Lifetime = ""
	Ephemeral       Lifetime = "ephemeral"  // may be destroyed: sessions, training machines
	Persistent      Lifetime = "persistent" // the backbone: data, images, logs, secrets
)

// Purpose is what a resource is for; budgets, capacity and policies differ by it.
// The zero value is unknown.
type Purpose string

// The purposes.
const (
	PurposeUnknown  Purpose = ""
	Training        Purpose = "training"
	Evaluation      Purpose = "evaluation"
	Experimentation Purpose = "experimentation"
	Inference       Purpose = "inference"
	Data            Purpose = "data"
)

// Owner says who answers for a resource, read from tags by a [TagMapping]. An
// empty field is not known.
type Owner struct {
	Team        string `json:"team,omitempty"`
	Project     string `json:"project,omitempty"`
	User        string `json:"user,omitempty"`
	Environment string `json:"environment,omitempty"`
	CostCenter  string `json:"cost_center,omitempty"`
}

// Fact is a value that may not be known. Its zero value is unknown.
type Fact[T any] struct {
	value T
	known bool
}

// Known returns the fact that the value is v.
func Known[T any](v T) Fact[T] { return Fact[T]{value: v, known: true} }

// Get returns the value and whether it is known.
func (f Fact[T]) Get() (T, bool) { return f.value, f.known }

// Known says whether the value is known.
func (f Fact[T]) Known() bool { return f.known }

// Equal says whether both have the same value, or none.
func (f Fact[T]) Equal(other Fact[T]) bool {
	return f.known == other.known && reflect.DeepEqual(f.value, other.value)
}

// Or returns the value, or otherwise where it is not known.
func (f Fact[T]) Or(otherwise T) T {
	if f.known {
		return f.value
	}
	return otherwise
}

// Resource is anything with a running meter.
type Resource struct {
	// ID is the provider's identifier (i-0abc…, vol-…, a bucket's or group's
	// name). It is unique with Cloud, Account, Region and Kind.
	ID string
	// Name is the Name tag, or the ID's own readable form; may be empty.
	Name                         string
	Kind                         Kind
	Cloud, Account, Region, Zone string
	// Type is the machine type, volume type, database class or similar; empty
	// where the kind has none.
	Type  string
	State State
	// CreatedAt is when it was made; for an instance when it was last launched.
	// Zero is unknown.
	CreatedAt time.Time
	// StateSince is when State was entered. Zero is unknown.
	StateSince time.Time
	// Tags are nil when they could not be read, which is not the same as empty.
	Tags map[string]string
	// Owner, Lifetime, Purpose, Managed, ScratchDisks, KeepUntil, LeaseUntil, IdleLimit and
	// Gang are derived from Tags by [TagMapping.Apply].
	Owner    Owner
	Lifetime Lifetime
	Purpose  Purpose
	// Managed is true only with curfew:managed=true.
	Managed bool
	// ScratchDisks is true only with curfew:disks=scratch: its owner consents that the
	// disks of this machine are lost.
	ScratchDisks bool
	// KeepUntil exempts the resource until then (curfew:keep-until). Zero: no
	// exemption.
	KeepUntil time.Time
	// LeaseUntil is the end of the right to run (curfew:lease-until). Zero: no lease
	// is known.
	LeaseUntil time.Time
	// IdleLimit is the idle period after which it is to end (curfew:idle), at most MaxIdle.
	// Zero: none is known.
	IdleLimit time.Duration
	// Gang names the run whose machines work together (curfew:gang, or what the
	// launcher calls its cluster); they are judged together. Empty: none is known.
	Gang string
	// Size is what it has of accelerators, CPUs and memory, where it is a machine.
	Size Size
	// Meters are what it is charged for as it runs now.
	Meters []Meter
	// Manager is what would bring it back or change it; zero is no manager.
	Manager Manager
	// Aliases are names besides ID and Name by which metrics may know it: a private DNS
	// name or address, a node's or provider's id, a host name. Other resources may have the
	// same ones, in other networks.
	Aliases []string
	// Incarnation tells the resource from another one under the same name, where the
	// adapter knows better than by CreatedAt; empty is that it does not.
	Incarnation string
	// Detail holds what only this kind has: *Instance for KindInstance and so on.
	// It may be nil.
	Detail Detail
}

// Ref identifies a resource across accounts and kinds.
type Ref struct {
	Cloud, Account, Region string
	Kind                   Kind
	ID                     string
}

// Ref returns the resource's identity.
func (r *Resource) Ref() Ref {
	return Ref{Cloud: r.Cloud, Account: r.Account, Region: r.Region, Kind: r.Kind, ID: r.ID}
}

// String returns "aws/123456789012/us-east-1/instance/i-0abc".
func (r Ref) String() string {
	return r.Cloud + "/" + r.Account + "/" + r.Region + "/" + string(r.Kind) + "/" + r.ID
}

// Age returns how long ago the resource was made, or launched, and whether that
// is known. A creation time in the future is not known.
func (r *Resource) Age(now time.Time) (time.Duration, bool) {
	if r.CreatedAt.IsZero() || r.CreatedAt.After(now) {
		return 0, false
	}
	return now.Sub(r.CreatedAt), true
}

// BlindSpot is something that could not be read, and what that costs the answer.
type BlindSpot struct {
	// What could not be read: "cloudwatch us-east-1".
	What string `json:"what"`
	// Why, in the provider's words: "AccessDenied: cloudwatch:GetMetricData".
	Why string `json:"why"`
	// Effect on the result: "idle GPU rules not evaluated".
	Effect string `json:"effect"`
}

// Inventory is what an observation found.
type Inventory struct {
	Resources  []*Resource
	BlindSpots []BlindSpot
}

// Sort puts the resources in the order of their identities, so that equal
// observations are equal.
func (inv *Inventory) Sort() {
	slices.SortFunc(inv.Resources, func(a, b *Resource) int { return CompareRefs(a.Ref(), b.Ref()) })
	slices.SortFunc(inv.BlindSpots, func(a, b BlindSpot) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Why, b.Why), cmp.Compare(a.Effect, b.Effect))
	})
}

// CompareRefs orders identities by cloud, account, region, kind and id.
func CompareRefs(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Cloud, b.Cloud), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Region, b.Region),
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
}
