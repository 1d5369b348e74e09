package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/witness"
)

const (
	// StateSchema names the document of a state and its witness.
	StateSchema = "curfew.state/v1"
	// StateBackupSchema names the document of a written backup.
	StateBackupSchema = "curfew.state-backup/v1"
)

// StateBackup is a copy of a state that was written to a file.
type StateBackup struct {
	Schema string `json:"schema"`
	// At is the time of the state before the copy was made: it holds every change up to then.
	At   time.Time `json:"at"`
	File string    `json:"file"`
	// Bytes is the size of the file.
	Bytes int64 `json:"bytes"`
}

// State is how far a state is, and what its witness knows of it.
type State struct {
	Schema string `json:"schema"`
	// Identity is random, and made with the state.
	Identity string `json:"identity"`
	// Epoch counts how often an operator has accepted an older state.
	Epoch int64 `json:"epoch"`
	// Generation counts the changes of what actions depend on.
	Generation int64 `json:"generation"`
	// AuditEntries are the entries of the audit log.
	AuditEntries int64 `json:"audit_entries"`
	// NewestAt is the time of the newest entry; absent without any.
	NewestAt time.Time `json:"newest_at,omitzero"`
	// Quarantine is the reason why nothing acts by the state; absent unless it is older than its
	// witness.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
	// Witness is the witness of the state; absent where this process has none.
	Witness *Witness `json:"witness,omitempty"`
	// Lost are the changes that a state in quarantine does not know; absent if there are none or it
	// is unknown.
	Lost *LostChanges `json:"lost,omitempty"`
	// Restored are the changes that an acceptance brought back.
	Restored *Restored `json:"restored,omitempty"`
}

// Quarantine is why nothing acts by a state until an operator accepts it.
type Quarantine struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	// Generation is how far the state was then, and NewestAt the time of the newest entry of its
	// audit log.
	Generation int64     `json:"generation"`
	NewestAt   time.Time `json:"newest_at,omitzero"`
}

// Witness is the record of a state that is kept outside of it.
type Witness struct {
	// Place is where it is.
	Place string `json:"place"`
	// Problem is why it cannot be used; nothing acts by the state then.
	Problem string `json:"problem,omitempty"`
	// Generation is the newest one that was seen; absent where nothing has acted by the state.
	Generation *int64 `json:"generation,omitempty"`
	// SeenAt is when that was.
	SeenAt time.Time `json:"seen_at,omitzero"`
}

// LostChanges are the changes that a state in quarantine does not know.
type LostChanges struct {
	Changes int64     `json:"changes"`
	From    time.Time `json:"from,omitzero"`
	To      time.Time `json:"to"`
}

// Restored are the changes that an acceptance brought back from the witness.
type Restored struct {
	// Freeze is the freeze that holds again; absent where there was none.
	Freeze *action.Freeze `json:"freeze,omitempty"`
	Keeps  []Keep         `json:"keeps"`
}

// NewState makes the document of a state.
func NewState(m witness.Mark, newest time.Time) State {
	return State{
		Schema: StateSchema, Identity: m.Identity, Epoch: m.Epoch, Generation: m.Generation, AuditEntries: m.Entry,
		NewestAt: newest.UTC(),
	}
}

// Seen adds what the witness knows.
func (d *State) Seen(place string, r *witness.Record, problem error) {
	w := &Witness{Place: place}
	d.Witness = w
	switch {
	case problem != nil:
		w.Problem = problem.Error()
	case r != nil:
		w.Generation, w.SeenAt = &r.Generation, r.SeenAt.UTC()
		q := d.Quarantine
		switch {
		case q == nil:
		case r.Identity != d.Identity:
			d.Lost = &LostChanges{Changes: r.Generation, To: w.SeenAt}
		case r.Generation > q.Generation:
			d.Lost = &LostChanges{Changes: r.Generation - q.Generation, From: q.NewestAt, To: w.SeenAt}
		}
	}
}
