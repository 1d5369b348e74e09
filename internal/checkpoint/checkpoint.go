// Package checkpoint makes durable, verified, incremental snapshots of a folder in an
// object store. It owns the format `curfew.checkpoint/v1` (docs/checkpoints.md), the
// protocol by which one writer holds a run, what makes a checkpoint complete, retention
// and restore.
//
// A run is a prefix of a store. Its object HEAD names the writer and all snapshots; only
// a write on the version that was read replaces it. Parts are written before the manifest
// that names them, and manifests before the HEAD that names them. So whatever dies, and
// wherever, HEAD names whole snapshots alone.
package checkpoint

import (
	"context"
	"errors"
	"time"
)

// Errors of a backend.
var (
	// ErrNotFound means that the object does not exist.
	ErrNotFound = errors.New("there is no such object")
	// ErrExists means that the object exists, so that Create wrote nothing.
	ErrExists = errors.New("the object exists already")
	// ErrConflict means that the object has another version, so that Replace wrote nothing.
	ErrConflict = errors.New("another writer replaced the object")
	// ErrTooLarge means that the object exceeds the reader's limit.
	ErrTooLarge = errors.New("the object is larger than its limit")
	// ErrFull means that the store has no space for the object, so that nothing was written.
	ErrFull = errors.New("the store is full")
)

// Errors of a run.
var (
	// ErrFenced means that a newer attempt holds the run: this one may not write.
	ErrFenced = errors.New("a newer attempt holds the run")
	// ErrNoSnapshot means that the run has no restorable snapshot.
	ErrNoSnapshot = errors.New("the run has no snapshot that can be restored")
	// ErrNoTime means that a final save could store nothing new before its deadline; the previous
	// snapshot stays the newest.
	ErrNoTime = errors.New("nothing new could be saved in the time that was left")
	// ErrDamaged means that an object differs from what was written.
	ErrDamaged = errors.New("damaged")
)

// Object is a stored object with its version.
type Object struct {
	Data []byte
	// Version identifies this content for Replace: an ETag.
	Version string
}

// Info is a listed object.
type Info struct {
	Key  string
	Size int64
	// Modified is by the clock of the store, never the local one.
	Modified time.Time
	// Changed is the last change of content or metadata, by the same clock; zero if the store knows
	// no more than Modified.
	Changed time.Time
}

// touched returns the latest time at which an object may have been changed.
func (i Info) touched() time.Time {
	if i.Changed.After(i.Modified) {
		return i.Changed
	}
	return i.Modified
}

// Upload is an unfinished write: a multipart upload or a temporary file.
type Upload struct {
	Key, ID string
	Begun   time.Time
}

// Reader reads objects with keys relative to the run's prefix.
type Reader interface {
	// Get reads an object of at most limit bytes. It returns ErrNotFound or ErrTooLarge.
	Get(ctx context.Context, key string, limit int64) (Object, error)
	// List calls each for every object whose key begins with prefix.
	List(ctx context.Context, prefix string, each func(Info) error) error
}

// Writer writes objects. A write without error is durable.
type Writer interface {
	// Create writes a new object. It returns ErrExists if the object exists, possibly from an
	// earlier call whose response was lost.
	Create(ctx context.Context, key string, data []byte) error
	// Replace overwrites a version, "" for none, and returns the new version. It returns
	// ErrConflict if another version exists, possibly from an earlier call whose response was lost.
	Replace(ctx context.Context, key string, data []byte, version string) (string, error)
}

// Collector deletes objects.
type Collector interface {
	// Delete deletes objects; missing ones are no error.
	Delete(ctx context.Context, keys []string) error
	// Abandoned lists unfinished writes.
	Abandoned(ctx context.Context) ([]Upload, error)
	// Abort removes an unfinished write.
	Abort(ctx context.Context, u Upload) error
}

// Backend is an object store with the guarantees that runs need.
type Backend interface {
	Reader
	Writer
	Collector
}

// Run is a series of snapshots in a store.
type Run struct {
	Store Backend
	// Now is the clock for displayed times and rates; no decision about keeping or deleting depends
	// on it.
	Now func() time.Time
	// NewestSeen is the newest snapshot known from before: a restore refuses an older one unless it
	// is chosen by number. The zero value sets no bound.
	NewestSeen SnapshotMark
	// Conditional skips the probe for conditional writes during a claim. Stores with a method
	// Conditional skip it too.
	Conditional bool
}
