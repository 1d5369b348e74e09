package inventory

import (
	"maps"
	"slices"
)

// Traits are the properties of a kind. The zero value belongs to no kind.
type Traits struct {
	// Compute is set if it runs work. Policies may end it only where they govern it and where it is
	// idle.
	Compute bool
	// Measured is set if its usage is read and its duty is judged.
	Measured bool
	// Metered is set if it can have meters. Other kinds cost what the resources they consist of
	// cost.
	Metered bool
	// Stateful is set if its meters run only in some of its states. Others cost as long as they
	// exist.
	Stateful bool
	// SizeChanges is set if its stored size changes slightly all the time.
	SizeChanges bool
	// Attachable is set if it is useful only while attached to something. In StateAvailable it is
	// unused.
	Attachable bool
	// Container is set if it only consists of resources that are listed themselves.
	Container bool
}

// traits is the only list of kinds.
var traits = map[Kind]Traits{
	KindAddress:             {Metered: true, Attachable: true},
	KindAutoScalingGroup:    {Compute: true, Container: true},
	KindBucket:              {Metered: true, SizeChanges: true},
	KindCache:               {Metered: true, Stateful: true},
	KindCapacityReservation: {Metered: true},
	KindCluster:             {Metered: true, Stateful: true},
	KindCommitment:          {Metered: true},
	KindDatabase:            {Metered: true, Stateful: true},
	KindEndpoint:            {Compute: true, Measured: true, Metered: true, Stateful: true},
	KindFileSystem:          {Metered: true, SizeChanges: true},
	KindHyperPod:            {Compute: true, Metered: true, Stateful: true},
	KindImage:               {Container: true},
	KindInstance:            {Compute: true, Measured: true, Metered: true, Stateful: true},
	KindLoadBalancer:        {Metered: true},
	KindLogGroup:            {Metered: true, SizeChanges: true},
	KindNATGateway:          {Metered: true, Stateful: true},
	KindNode:                {Compute: true, Metered: true, Stateful: true},
	KindNotebook:            {Compute: true, Measured: true, Metered: true, Stateful: true},
	KindPod:                 {Compute: true, Metered: true, Stateful: true},
	KindRepository:          {Metered: true, SizeChanges: true},
	KindSecret:              {Metered: true},
	KindSnapshot:            {Metered: true, SizeChanges: true},
	KindTable:               {Metered: true, Stateful: true},
	KindTrainingJob:         {Compute: true, Measured: true, Metered: true, Stateful: true},
	KindVolume:              {Metered: true, Attachable: true},
	KindVPCEndpoint:         {Metered: true, Stateful: true},
	KindWarehouse:           {Metered: true, Stateful: true},
}

// kinds are all kinds in order.
var kinds = slices.Sorted(maps.Keys(traits))

// Traits returns the properties of the kind.
func (k Kind) Traits() Traits { return traits[k] }

// Valid reports whether the kind exists.
func (k Kind) Valid() bool {
	_, ok := traits[k]
	return ok
}

// Kinds returns all kinds in the order of their names, without KindService.
func Kinds() []Kind { return slices.Clone(kinds) }
