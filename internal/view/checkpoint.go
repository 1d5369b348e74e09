package view

import (
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

// The schemas of the documents of the checkpoint commands. The format of stored snapshots is
// checkpoint.Schema.
const (
	CheckpointSaveSchema    = "curfew.checkpoint-save/v1"
	CheckpointRestoreSchema = "curfew.checkpoint-restore/v1"
	CheckpointListSchema    = "curfew.checkpoint-list/v1"
	CheckpointVerifySchema  = "curfew.checkpoint-verify/v1"
	CheckpointGCSchema      = "curfew.checkpoint-gc/v1"
)

// CheckpointSave is the result of a save.
type CheckpointSave struct {
	Schema   string              `json:"schema"`
	Dir      string              `json:"dir"`
	URL      string              `json:"url"`
	Attempt  string              `json:"attempt"`
	Snapshot checkpoint.Snapshot `json:"snapshot"`
	// ReadBytes is the amount read, SentBytes the amount stored; the rest is already in the store.
	ReadBytes int64 `json:"read_bytes"`
	SentBytes int64 `json:"sent_bytes"`
	// UnreadFiles were not read again: their size, inode and times are those of the last save.
	UnreadFiles int64   `json:"unread_files"`
	Seconds     float64 `json:"seconds"`
	// LeftOut are the files that the snapshot lacks or contains in another state than the folder.
	LeftOut []checkpoint.LeftOut `json:"left_out"`
	// Unsettled are files that changed while they were read.
	Unsettled []string `json:"unsettled"`
	Notes     []string `json:"notes"`
	// Collected is set if the save collected snapshots beyond the retention.
	Collected *CheckpointCollected `json:"collected"`
}

// CheckpointCollected is the result of a collection.
type CheckpointCollected struct {
	DroppedSnapshots []int64 `json:"dropped_snapshots"`
	DeletedObjects   int     `json:"deleted_objects"`
	DeletedBytes     int64   `json:"deleted_bytes"`
	AbortedUploads   int     `json:"aborted_uploads"`
	// TooYoung is the number of unneeded objects younger than 24 hours.
	TooYoung int `json:"too_young"`
}

// CheckpointRestore is the result of a restore.
type CheckpointRestore struct {
	Schema   string               `json:"schema"`
	URL      string               `json:"url"`
	Dir      string               `json:"dir"`
	Snapshot *checkpoint.Snapshot `json:"snapshot"`
	Skipped  []CheckpointSkipped  `json:"skipped"`
	// LeftOut are the files that the save left out.
	LeftOut []checkpoint.LeftOut `json:"left_out"`
	Notes   []string             `json:"notes"`
	Seconds float64              `json:"seconds"`
}

// CheckpointSkipped is a snapshot that was not restored.
type CheckpointSkipped struct {
	Seq int64     `json:"seq"`
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

// CheckpointList are the snapshots of a run, the newest first.
type CheckpointList struct {
	Schema    string                `json:"schema"`
	URL       string                `json:"url"`
	Epoch     int64                 `json:"epoch"`
	Attempt   string                `json:"attempt"`
	Writer    string                `json:"writer"`
	ClaimedAt time.Time             `json:"claimed_at"`
	Snapshots []checkpoint.Snapshot `json:"snapshots"`
	Notes     []string              `json:"notes"`
}

// CheckpointVerify is the result of a verification.
type CheckpointVerify struct {
	Schema    string  `json:"schema"`
	URL       string  `json:"url"`
	Snapshots []int64 `json:"snapshots"`
	// Restorable is the newest snapshot that is whole and complete; null if there is none.
	Restorable *int64              `json:"restorable"`
	Parts      int                 `json:"parts"`
	Bytes      int64               `json:"bytes"`
	Damage     []checkpoint.Damage `json:"damage"`
	// RolledBack is true if a newer snapshot was seen earlier than the run has now.
	RolledBack bool     `json:"rolled_back"`
	Notes      []string `json:"notes"`
}

// CheckpointGC is the result of a garbage collection.
type CheckpointGC struct {
	Schema string `json:"schema"`
	URL    string `json:"url"`
	CheckpointCollected
	Kept  int      `json:"kept_snapshots"`
	Notes []string `json:"notes"`
}

// NewCheckpointCollected makes the document of a collection.
func NewCheckpointCollected(c checkpoint.CollectResult) CheckpointCollected {
	d := CheckpointCollected{[]int64{}, c.Deleted, c.Bytes, c.Aborted, c.TooYoung}
	for _, s := range c.Dropped {
		d.DroppedSnapshots = append(d.DroppedSnapshots, s.Seq)
	}
	return d
}

// NewCheckpointVerify makes the document of a verification.
func NewCheckpointVerify(url string, v checkpoint.VerifyResult) CheckpointVerify {
	d := CheckpointVerify{
		Schema: CheckpointVerifySchema, URL: url, Snapshots: []int64{}, Parts: v.Parts, Bytes: v.Bytes,
		Damage: append([]checkpoint.Damage{}, v.Damage...), RolledBack: v.RolledBack, Notes: Lines(v.Notes),
	}
	broken := map[int64]bool{}
	for _, x := range v.Damage {
		for _, seq := range x.Seqs {
			broken[seq] = true
		}
	}
	for _, s := range v.Snapshots {
		d.Snapshots = append(d.Snapshots, s.Seq)
		if d.Restorable == nil && !broken[s.Seq] && s.State != checkpoint.Unsettled {
			d.Restorable = &s.Seq
		}
	}
	return d
}

// Lines returns a list that is never null.
func Lines(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
