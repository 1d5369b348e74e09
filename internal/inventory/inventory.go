// Package inventory describes resources that cost money: their kind, owner, intended lifetime and
// known properties.
//
// Unread values are unknown, explicitly: a [Fact] holds a value only once it was read, a zero time
// is an unknown time, nil tags are unreadable tags. Unknown is never taken for "none" or "no".
package inventory

import (
	"cmp"
	"reflect"
	"slices"
	"time"
)

// Kind is the kind of a resource; its values are part of the scan document.
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

// KindService is the part of a bill that belongs to no listed resource, by region. Findings about
// bills have it, and policies do not select it.
const KindService Kind = "service"

// State is the provider's state in a common vocabulary. The zero State is unknown.
type State string

// The states.
const (
	StateUnknown   State = ""
	StatePending   State = "pending"   // being created; may already cost
	StateRunning   State = "running"   // instance, notebook, endpoint, job, database: serving or able to
	StateStopping  State = "stopping"  // about to be stopped
	StateStopped   State = "stopped"   // kept, not running; its disks still cost
	StateAvailable State = "available" // exists; of a volume: not attached
	StateInUse     State = "in-use"    // attached, associated
	StateDisabled  State = "disabled"  // an image that cannot be launched
	StateFailed    State = "failed"
	StateDeleting  State = "deleting" // being deleted; not reported any more
)

// Lifetime tells whether a resource may be destroyed. The zero value is unknown and is treated as
// Persistent everywhere.
type Lifetime string

// The lifetimes.
const (
	LifetimeUnknown Lifetime = ""
	Ephemeral       Lifetime = "ephemeral"  // may be destroyed: sessions, training machines
	Persistent      Lifetime = "persistent" // long-lived: data, images, logs, secrets
)

// Purpose is the use of a resource, on which budgets, capacity and policies depend. The zero value
// is unknown.
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

// Owner identifies who is responsible for a resource, from tags by a [TagMapping]. An empty field
// is unknown.
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

// Known reports whether the value is known.
func (f Fact[T]) Known() bool { return f.known }

// Equal reports whether both have the same value, or both are unknown.
func (f Fact[T]) Equal(other Fact[T]) bool {
	return f.known == other.known && reflect.DeepEqual(f.value, other.value)
}

// Or returns the value, or otherwise if it is unknown.
func (f Fact[T]) Or(otherwise T) T {
	if f.known {
		return f.value
	}
	return otherwise
}

// Resource is anything that costs money while it exists or runs.
type Resource struct {
	// ID is the provider's identifier (i-0abc…, vol-…, the name of a bucket or group), unique with
	// Cloud, Account, Region and Kind.
	ID string
	// Name is the Name tag, or a readable form of the ID; may be empty.
	Name                         string
	Kind                         Kind
	Cloud, Account, Region, Zone string
	// Type is the machine type, volume type, database class or similar; empty if the kind has none.
	Type  string
	State State
	// CreatedAt is the time of creation; of an instance, of its last launch. Zero is unknown.
	CreatedAt time.Time
	// StateSince is the start of State. Zero is unknown.
	StateSince time.Time
	// Tags are nil if they could not be read, unlike an empty map.
	Tags map[string]string
	// Owner, Lifetime, Purpose, Managed, ScratchDisks, KeepUntil, LeaseUntil, IdleLimit and
	// Gang are derived from Tags by [TagMapping.Apply].
	Owner    Owner
	Lifetime Lifetime
	Purpose  Purpose
	// Managed is true only with curfew:managed=true.
	Managed bool
	// ScratchDisks is true only with curfew:disks=scratch: the owner accepts the loss of the
	// machine's disks.
	ScratchDisks bool
	// KeepUntil exempts the resource until then (curfew:keep-until). Zero is no exemption.
	KeepUntil time.Time
	// LeaseUntil is the end of the lease (curfew:lease-until). Zero is no known lease.
	LeaseUntil time.Time
	// IdleLimit is the idle period after which the resource is to end (curfew:idle), at most
	// MaxIdle. Zero is unknown.
	IdleLimit time.Duration
	// Gang names the run whose machines work together (curfew:gang, or the launcher's cluster name)
	// and are judged together. Empty is unknown.
	Gang string
	// Size is the number of accelerators, CPUs and the memory of a machine.
	Size Size
	// Meters are the resource's current charges.
	Meters []Meter
	// Manager is the service that would recreate or change it; zero is no manager.
	Manager Manager
	// Aliases are names besides ID and Name in metrics: a private DNS name or address, a node's or
	// provider's id, a host name. They are not unique across networks.
	Aliases []string
	// Incarnation distinguishes resources that reuse a name, if the adapter has more than CreatedAt
	// for that; empty otherwise.
	Incarnation string
	// Detail holds the properties of the kind: *Instance for KindInstance and so on. It may be nil.
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

// Age returns the time since the resource was created, or launched, and whether it is known. A
// creation time in the future is unknown.
func (r *Resource) Age(now time.Time) (time.Duration, bool) {
	if r.CreatedAt.IsZero() || r.CreatedAt.After(now) {
		return 0, false
	}
	return now.Sub(r.CreatedAt), true
}

// BlindSpot is something that could not be read, with its effect on the result.
type BlindSpot struct {
	// What could not be read: "cloudwatch us-east-1".
	What string `json:"what"`
	// Why, in the provider's words: "AccessDenied: cloudwatch:GetMetricData".
	Why string `json:"why"`
	// Effect on the result: "idle GPU rules not evaluated".
	Effect string `json:"effect"`
}

// Inventory is the result of listing resources.
type Inventory struct {
	Resources  []*Resource
	BlindSpots []BlindSpot
}

// Sort sorts the resources by identity, so that equal inventories compare equal.
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
