package view

import "time"

// DoctorStateSchema names the document of what is wrong with a state and the service on it.
const DoctorStateSchema = "curfew.doctor-state/v1"

// DoctorState lists what is wrong with a state and the service that uses it, and what to do.
type DoctorState struct {
	Schema string    `json:"schema"`
	At     time.Time `json:"at"`
	// Database is sqlite or postgres, Bytes what the state takes on disk.
	Database string `json:"database"`
	Bytes    int64  `json:"bytes"`
	// AuditEntries are the entries of the audit log, OldestAt and NewestAt the times of its
	// first and last; absent without any.
	AuditEntries int64     `json:"audit_entries"`
	OldestAt     time.Time `json:"oldest_at,omitzero"`
	NewestAt     time.Time `json:"newest_at,omitzero"`
	// Rounds are the newest rounds that enforced or observed an account for its actions.
	Rounds []AccountRound `json:"rounds"`
	// Troubles are in the order in which to look at them.
	Troubles []Trouble `json:"troubles"`
}

// AccountRound is the newest round of an account.
type AccountRound struct {
	// Account is "cloud/account".
	Account string    `json:"account"`
	Round   int64     `json:"round"`
	At      time.Time `json:"at"`
}

// Trouble is one thing that is wrong.
type Trouble struct {
	// What is its kind, one of the constants below.
	What string `json:"what"`
	// Since is when it began; absent where that is not known.
	Since time.Time `json:"since,omitzero"`
	// Why describes it.
	Why string `json:"why"`
	// Next is the command to run, or the thing to mend.
	Next string `json:"next"`
}

// The kinds of troubles.
const (
	TroubleState         = "state"         // it is older than its witness, or cannot be compared with it
	TroubleFrozen        = "frozen"        // a person holds every action back
	TroubleDatabase      = "database"      // it does not answer the service
	TroubleConfiguration = "configuration" // the newest one has mistakes, and an earlier one is in force
	TroubleSource        = "source"        // an account or server is not read within its interval
	TroubleOrganization  = "organization"  // the accounts of the organization cannot be listed
	TroubleFuse          = "fuse"          // a policy wanted to act on more than usual
	TroubleAlarm         = "alarm"         // an action failed, or is not confirmed
	TroubleNotice        = "notice"        // no channel accepts a message
	TroubleCertificate   = "certificate"   // the certificate of the server expires soon
	TroubleToken         = "token"         // a token of the API expires soon
)
