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

// What a backend answers besides success.
var (
	// ErrNotFound says that there is no such object.
	ErrNotFound = errors.New("there is no such object")
	// ErrExists says that the object is there already, so that Create wrote nothing.
	ErrExists = errors.New("the object exists already")
	// ErrConflict says that the object is not the version that was read, so that Replace
	// wrote nothing.
	ErrConflict = errors.New("another writer replaced the object")
	// ErrTooLarge says that an object is larger than the limit of the one who reads it.
	ErrTooLarge = errors.New("the object is larger than its limit")
)

// What a run answers.
var (
	// ErrFenced says that a newer attempt holds the run: this one may write nothing more.
	ErrFenced = errors.New("a newer attempt holds the run")
	// ErrNoSnapshot says that the run has no snapshot that can be restored.
	ErrNoSnapshot = errors.New("the run has no snapshot that can be restored")
	// ErrNoTime says that a final save could store nothing new before its deadline: the
	// snapshot before stays the newest.
	ErrNoTime = errors.New("nothing new could be saved in the time that was left")
	// ErrDamaged says that an object is not what was written.
	ErrDamaged = errors.New("damaged")
)

// Object is an object that was read, with its version.
type Object struct {
	Data []byte
	// Version names exactly this content for Replace: an ETag.
	Version string
}

// Info is what a listing says of an object.
type Info struct {
	Key  string
	Size int64
	// Modified is by the clock of the store, never by ours.
	Modified time.Time
}

// Upload is something that a writer began and never ended: a multipart upload, or a
// temporary file.
type Upload struct {
	Key, ID string
	Begun   time.Time
}

// Reader reads the objects of a run. Keys are relative to the run's prefix.
type Reader interface {
	// Get reads an object of at most limit bytes. It returns ErrNotFound or ErrTooLarge.
	Get(ctx context.Context, key string, limit int64) (Object, error)
	// List calls each for every object whose key begins with prefix.
	List(ctx context.Context, prefix string, each func(Info) error) error
}

// Writer writes the objects of a run. What it returned without an error is durable.
type Writer interface {
	// Create writes an object that is not there. It returns ErrExists when it is, which
	// may be because an earlier answer was lost.
	Create(ctx context.Context, key string, data []byte) error
	// Replace writes an object on top of a version, "" for none, and returns the new
	// version. It returns ErrConflict when another version is there, which may be its own
	// after an answer was lost.
	Replace(ctx context.Context, key string, data []byte, version string) (string, error)
}

// Collector deletes objects of a run.
type Collector interface {
	// Delete deletes objects; one that is not there is no error.
	Delete(ctx context.Context, keys []string) error
	// Abandoned lists what was begun and never ended.
	Abandoned(ctx context.Context) ([]Upload, error)
	// Abort removes one of them.
	Abort(ctx context.Context, u Upload) error
}

// Backend is a store with the guarantees that runs need.
type Backend interface {
	Reader
	Writer
	Collector
}

// Run is one series of snapshots in a store.
type Run struct {
	Store Backend
	// Now is the clock for times that people read and for rates; no decision about what is
	// kept or deleted depends on it.
	Now func() time.Time
	// Seen is the newest snapshot that was seen of the run before: a restore refuses an older
	// one unless it is named. The zero value is none.
	Seen Mark
	// Conditional says that the store is known to refuse conflicting writes, so that a claim
	// need not probe it. A store that has a method Conditional knows it of itself.
	Conditional bool
}
