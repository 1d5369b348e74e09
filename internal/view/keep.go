package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// The schemas of people's instructions to the ladder.
const (
	KeepSchema    = "curfew.keep/v1"
	KeepsSchema   = "curfew.keeps/v1"
	FusesSchema   = "curfew.fuses/v1"
	ConsentSchema = "curfew.consent/v1"
	FreezeSchema  = "curfew.freeze/v1"
)

// Keep is an exemption of a resource with its expiry and reason.
type Keep struct {
	Schema   string    `json:"schema"`
	Resource string    `json:"resource"`
	Until    time.Time `json:"until"`
	Reason   string    `json:"reason"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	// Tagged is true if the resource's tag exempts it, because this state has never seen it.
	Tagged bool `json:"tagged,omitempty"`
}

// NewKeep makes the document of an exemption.
func NewKeep(k action.Keep) Keep {
	return Keep{
		Schema: KeepSchema, Resource: k.Ref.String(), Until: k.Until.UTC(), Reason: k.Reason, By: k.By, At: k.At.UTC(),
	}
}

// Keeps are the exemptions that hold.
type Keeps struct {
	Schema string `json:"schema"`
	Keeps  []Keep `json:"keeps"`
}

// NewKeeps makes the document of a list of exemptions.
func NewKeeps(all []action.Keep) Keeps {
	d := Keeps{KeepsSchema, []Keep{}}
	for _, k := range all {
		d.Keeps = append(d.Keeps, NewKeep(k))
	}
	return d
}

// Fuses are the fuses of policies.
type Fuses struct {
	Schema string      `json:"schema"`
	Fuses  []BlownFuse `json:"fuses"`
}

// BlownFuse is a fuse that has blown, and who confirmed it.
type BlownFuse struct {
	Policy  string    `json:"policy"`
	Account string    `json:"account"`
	At      time.Time `json:"at"`
	// Due is how many actions were due.
	Due int `json:"due"`
	// Selected is how many resources the policy selects.
	Selected int `json:"selected"`
	// ConfirmedAt is when a person confirmed it.
	ConfirmedAt *time.Time `json:"confirmed_at"`
	By          string     `json:"by,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	Until       *time.Time `json:"until"`
}

// NewFuses makes the document of a list of fuses.
func NewFuses(all []action.Fuse) Fuses {
	d := Fuses{FusesSchema, []BlownFuse{}}
	for _, f := range all {
		d.Fuses = append(d.Fuses, BlownFuse{
			f.Source, f.Account, f.At.UTC(), f.Due, f.Selected, optionalTime(f.ConfirmedAt), f.By, f.Reason,
			optionalTime(f.Until),
		})
	}
	return d
}

// Consent allows policies to end a machine although its disks lose data.
type Consent struct {
	Schema   string `json:"schema"`
	Resource string `json:"resource"`
	// Loses are the disks and data that are lost.
	Loses  []string `json:"loses"`
	Reason string   `json:"reason"`
	By     string   `json:"by"`
}

// Freeze reports whether actions are stopped, since when and why.
type Freeze struct {
	Schema string `json:"schema"`
	// Frozen reports whether actions are stopped.
	Frozen bool `json:"frozen"`
	action.Freeze
}
