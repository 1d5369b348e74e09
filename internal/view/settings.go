package view

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
)

// The schemas of shared settings and identities.
const (
	SettingsSchema = "curfew.settings/v1"
	WhoamiSchema   = "curfew.whoami/v1"
	AuditSchema    = "curfew.audit/v1"
	VerifiedSchema = "curfew.audit-verified/v1"
	ClockSchema    = "curfew.clock/v1"
	// SettingsSetSchema names the shape of [SettingsSet].
	SettingsSetSchema = "curfew.settings-set/v1"
)

// Settings are the shared settings of a state with all their versions.
type Settings struct {
	Schema   string            `json:"schema"`
	Versions []SettingsVersion `json:"versions"`
	// Body is the newest version as it was set; null if there is none, and then each local
	// configuration is advisory.
	Body *string `json:"body"`
	// Advisory reports whether a local configuration decided, which the person who asks can change.
	Advisory bool `json:"advisory"`
}

// SettingsVersion is one version of the settings, or of the prices.
type SettingsVersion struct {
	Kind    string `json:"kind"`
	Version int64  `json:"version"`
	At      string `json:"at"`
	Who     string `json:"who"`
	Reason  string `json:"reason"`
	Hash    string `json:"hash"`
}

// SettingsSet are the versions that `settings set` made.
type SettingsSet struct {
	Schema   string            `json:"schema"`
	Versions []SettingsVersion `json:"versions"`
	By       string            `json:"by"`
	Proof    string            `json:"proof"`
}

// Audit are entries of the audit log, oldest first.
type Audit struct {
	Schema  string       `json:"schema"`
	Entries []AuditEntry `json:"entries"`
}

// AuditEntry is an entry of the audit log with its evidence as audits show it. The log
// itself, and so its hashes, is as it was written.
type AuditEntry struct {
	action.Entry
	Evidence []Evidence `json:"evidence,omitempty"`
}

// NewAuditEntry makes the document of an entry.
func NewAuditEntry(e action.Entry) AuditEntry {
	seen := e.Evidence
	e.Evidence = nil
	d := AuditEntry{Entry: e}
	for _, seen := range seen {
		d.Evidence = append(d.Evidence, newEvidence(seen))
	}
	return d
}

// Verified is the result of checking the audit log: how many entries it has, the hash of the last,
// and the anchor that it holds; null if none was given.
type Verified struct {
	Schema  string `json:"schema"`
	Entries int64  `json:"entries"`
	Hash    string `json:"hash"`
	// Anchor is the anchor that the log holds.
	Anchor *action.Anchor `json:"anchor"`
}

// InitSchema names the shape of [Init].
const InitSchema = "curfew.init/v1"

// Init lists the files that `init` wrote, and the mode of their policies.
type Init struct {
	Schema string   `json:"schema"`
	Files  []string `json:"files"`
	Mode   string   `json:"mode"`
}

// Clock is the answer to setting the time of a state.
type Clock struct {
	Schema string    `json:"schema"`
	Now    time.Time `json:"now"`
	Was    time.Time `json:"was"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// Whoami is an identity, how it is proven, and what it may approve.
type Whoami struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	// Declared is the name that was declared.
	Declared string `json:"declared"`
	// Proof is the proof of the answer.
	Proof string `json:"proof"`
	// Verified reports whether a provider vouches for the identity.
	Verified bool   `json:"verified"`
	Subject  string `json:"subject"`
	// VerifiedBy is the authority that vouches for the identity.
	VerifiedBy string `json:"verified_by"`
	// InPeople reports whether people of the configuration names the identity.
	InPeople bool     `json:"in_people"`
	Roles    []string `json:"roles"`
	// OpensFixes reports whether the identity approves fixes.
	OpensFixes bool `json:"opens_fixes"`
	// UnverifiedBecause is why the identity is not verified; null if it is.
	UnverifiedBecause *string `json:"unverified_because"`
	// Settings is the configuration that gives the roles.
	Settings Decider `json:"settings"`
}

// ProofText is the proof for people.
func (w Whoami) ProofText() string {
	return approval.Proof{Kind: approval.ProofKind(w.Proof), Subject: w.Subject, Detail: w.VerifiedBy}.String()
}

// From names the configuration that gives the roles, for people.
func (w Whoami) From() string {
	if w.Settings.Advisory {
		return "curfew.yaml"
	}
	return fmt.Sprintf("the shared settings (version %d)", w.Settings.Version)
}
