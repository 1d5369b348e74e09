package view

import "time"

// DoctorStateSchema names the document of the problems of a state and the service on it.
const DoctorStateSchema = "curfew.doctor-state/v1"

// DoctorState lists the problems of a state and the service that uses it, with their remedies.
type DoctorState struct {
	Schema string    `json:"schema"`
	At     time.Time `json:"at"`
	// Database is sqlite or postgres, Bytes the size of the state on disk.
	Database string `json:"database"`
	Bytes    int64  `json:"bytes"`
	// GrowthPerDay is its growth a day since GrowthSince, in bytes; null before this machine has seen
	// its size for a day.
	GrowthPerDay *int64    `json:"growth_bytes_per_day"`
	GrowthSince  time.Time `json:"growth_since,omitzero"`
	// OutputBytes is the size of the output of local sessions and jobs that this machine keeps, next to the
	// state, and OutputSessions the number of their sessions; null: it cannot be read.
	OutputBytes    *int64 `json:"output_bytes"`
	OutputSessions *int   `json:"output_sessions"`
	// OldestChargeAt is the time of the oldest row of the ledger; absent without any.
	OldestChargeAt time.Time `json:"oldest_charge_at,omitzero"`
	// Backup is the newest backup that `curfew state backup` wrote from this machine; null without
	// any. Those of other programs are not known.
	Backup *NewestBackup `json:"backup"`
	// Restore has the commands that back up and restore the state.
	Restore string `json:"restore"`
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

// NewestBackup is a backup of the state.
type NewestBackup struct {
	At    time.Time `json:"at"`
	File  string    `json:"file"`
	Bytes int64     `json:"bytes"`
	// Missing is true where the file is no longer there.
	Missing bool `json:"missing"`
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
