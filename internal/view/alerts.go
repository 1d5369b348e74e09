package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// AlertsSchema names the document of open alerts.
const AlertsSchema = "curfew.alerts/v1"

// Alerts are the conditions that people are notified of while they last, and the troubles of
// actions and accounts, the most expensive first.
type Alerts struct {
	Schema string    `json:"schema"`
	At     time.Time `json:"at"`
	Alerts []Alert   `json:"alerts"`
}

// Alert is one condition that lasts.
type Alert struct {
	// ID is the id of the item, for `curfew audit --item`; absent for a trouble.
	ID string `json:"id,omitempty"`
	// What is the policy, or the kind of a trouble: fuse, alarm, source and others.
	What string `json:"what"`
	// Resource is the full reference of the resource, ResourceID the provider's id of it; both are
	// absent if the alert is about none.
	Resource   string          `json:"resource,omitempty"`
	ResourceID string          `json:"resource_id,omitempty"`
	Name       string          `json:"name,omitempty"`
	Type       string          `json:"type,omitempty"`
	Owner      inventory.Owner `json:"owner"`
	Because    string          `json:"because"`
	// Since is when the condition was first seen, NotifiedAt when a channel accepted the newest
	// notification; absent where no one was notified.
	Since      time.Time `json:"since,omitzero"`
	NotifiedAt time.Time `json:"notified_at,omitzero"`
	// Recipients accepted it.
	Recipients []string `json:"recipients"`
	// SpentUSD is the cost at the newest notification; null if the alert is about none.
	SpentUSD money.Dollars `json:"spent_usd"`
	// Next is the command to run, or the problem to fix.
	Next string `json:"next"`
}
