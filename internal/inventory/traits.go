package inventory

import (
	"maps"
	"slices"
)

// Traits is what differs by kind. The zero value is that of a kind that does not exist.
type Traits struct {
	// Compute: it runs work. Policies may end it only where they govern it and where it
	// rests.
	Compute bool
	// Measured: usage is read of it and its duty is judged.
	Measured bool
	// Metered: it can have meters. The cost of the other kinds is that of the resources
	// they consist of.
	Metered bool
	// Stateful: its meters run only in some of its states. The others cost for as long as
	// they exist.
	Stateful bool
	// Fills: the amount that it stores changes all the time, a little.
	Fills bool
	// Attaches: it is of use only while it is attached to something. In StateAvailable
	// nothing uses it.
	Attaches bool
	// Container: it consists of resources that are listed themselves, and runs nothing
	// besides them.
	Container bool
}

// traits holds every kind, and nothing else says which kinds there are.
var traits = map[Kind]Traits{
	KindAddress:             {Metered: true, Attaches: true},
	KindAutoScalingGroup:    {Compute: true, Container: true},
	KindBucket:              {Metered: true, Fills: true},
	KindCache:               {Metered: true, Stateful: true},
	KindCapacityReservation: {Metered: true},
	KindCluster:             {Metered: true, Stateful: true},
	KindCommitment:          {Metered: true},
	KindDatabase:            {Metered: true, Stateful: true},
	KindEndpoint:            {Compute: true, Measured: true, Metered: true, Stateful: true},
	KindFileSystem:          {Metered: true, Fills: true},
	KindHyperPod:            {Compute: true, Metered: true, Stateful: true},
	KindImage:               {Container: true},
	KindInstance:            {Compute: true, Measured: true, Metered: true, Stateful: true},
	KindLoadBalancer:        {Metered: true},
	KindLogGroup:            {Metered: true, Fills: true},
	KindNATGateway:          {Metered: true, Stateful: true},
	KindNode:                {Compute: true, Metered: true, Stateful: true},
	KindNotebook:            {Compute: true, Measured: true, Metered: true, Stateful: true},
	KindPod:                 {Compute: true, Metered: true, Stateful: true},
	KindRepository:          {Metered: true, Fills: true},
	KindSecret:              {Metered: true},
	KindSnapshot:            {Metered: true, Fills: true},
	KindTable:               {Metered: true, Stateful: true},
	KindTrainingJob:         {Compute: true, Measured: true, Metered: true, Stateful: true},
	KindVolume:              {Metered: true, Attaches: true},
	KindVPCEndpoint:         {Metered: true, Stateful: true},
	KindWarehouse:           {Metered: true, Stateful: true},
}

// kinds are the kinds in order.
var kinds = slices.Sorted(maps.Keys(traits))

// Traits returns what differs by kind.
func (k Kind) Traits() Traits { return traits[k] }

// Valid says whether there is such a kind.
func (k Kind) Valid() bool {
	_, ok := traits[k]
	return ok
}

// Kinds returns all kinds in the order of their names. KindService is none of them.
func Kinds() []Kind { return slices.Clone(kinds) }
