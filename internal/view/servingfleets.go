package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// ServingFleetsSchema names the document of the serving fleets whose sizes policies decide.
const ServingFleetsSchema = "curfew.fleets/v1"

// ServingFleets are the serving fleets that policies name, each with its newest decision.
type ServingFleets struct {
	Schema string    `json:"schema"`
	At     time.Time `json:"at"`
	// Reason explains the lack of decisions; empty in a service.
	Reason string         `json:"reason"`
	Fleets []ServingFleet `json:"fleets"`
}

// ServingFleet is one fleet with its newest decision.
type ServingFleet struct {
	// ID is the id of the fleet in policies, such as asg/embed; Mode is that of the policy.
	ID     string `json:"id"`
	Policy string `json:"policy"`
	Mode   string `json:"mode"`
	// Min and Max are the bounds of its owner.
	Min int `json:"min"`
	Max int `json:"max"`
	// Wanted is the size that was decided, and Actual the replicas; null while unknown.
	Wanted *int        `json:"wanted"`
	Actual *int        `json:"actual"`
	Demand FleetDemand `json:"demand"`
	// DecidedAt is the time of the newest decision, Rule and Why its reason; null and empty before the first.
	DecidedAt *time.Time `json:"decided_at"`
	Rule      string     `json:"rule"`
	Why       string     `json:"why"`
	// Next is the next step. Blocked is the reason against carrying the decision out; empty without one.
	Next    string `json:"next"`
	Blocked string `json:"blocked"`
	// AddSeconds is the time to add a replica, the 95th percentile of those measured; null before the first.
	AddSeconds *float64 `json:"add_seconds"`
	// ReplicaHourlyUSD is the price of one replica, and HourlyUSD that of those that run; null without a
	// price, for PriceReason.
	ReplicaHourlyUSD money.Dollars `json:"replica_hourly_usd"`
	HourlyUSD        money.Dollars `json:"hourly_usd"`
	PriceReason      string        `json:"price_reason"`
}

// FleetDemand is the load that callers put on a fleet; each figure is null while unknown.
type FleetDemand struct {
	Known bool `json:"known"`
	// Why names the source that makes the demand unknown.
	Why               string   `json:"why"`
	InFlight          *float64 `json:"in_flight"`
	RequestsPerSecond *float64 `json:"requests_per_second"`
	CacheUse          *float64 `json:"cache_use"`
	// Load is the demand in replicas at full rate, averaged, and Need the size that it asks for.
	Load *float64 `json:"load"`
	Need *int     `json:"need"`
}
