package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// AdoptionSchema names the shape of an [Adoption].
const AdoptionSchema = "curfew.session.adopt/v1"

// Adoption is a machine that a person started and that becomes a session.
type Adoption struct {
	Schema string `json:"schema"`
	// DryRun is true if nothing was changed.
	DryRun bool `json:"dry_run"`
	// State is preview, refused, adopted, or unfinished: its tags are not all confirmed.
	State string `json:"state"`
	// Resource is the identity of the machine.
	Resource string `json:"resource"`
	Type     string `json:"type"`
	Region   string `json:"region"`
	// Session is the name of the session, SessionID its id; the id is empty in a preview.
	Session   string          `json:"session"`
	SessionID string          `json:"session_id,omitempty"`
	Owner     inventory.Owner `json:"owner"`
	// LeaseUntil is the end of its lease, Idle the idle time after which it is to end.
	LeaseUntil time.Time `json:"lease_until"`
	Idle       string    `json:"idle"`
	// HourlyUSD is the hourly list price; null if there is none.
	HourlyUSD money.Dollars `json:"hourly_usd"`
	// Tags are added to the machine.
	Tags []AddedTag `json:"tags"`
	// Refusals are the reasons against the adoption.
	Refusals []Refusal `json:"refusals"`
	// Notes are remarks about its end.
	Notes []string `json:"notes"`
	// Item is the id for undo, once the tags are written.
	Item string `json:"item,omitempty"`
}

// States of an [Adoption].
const (
	AdoptPreview    = "preview"
	AdoptRefused    = "refused"
	AdoptDone       = "adopted"
	AdoptUnfinished = "unfinished"
)
