package host

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/objectstore"
	"github.com/curfew-dev/curfew/internal/trust"
)

// seenDir is the folder in the data directory with a record for each run of checkpoints that was
// read or saved.
const seenDir = "checkpoints"

// probeEvery is how long a store is trusted to refuse conflicting writes.
const probeEvery = 24 * time.Hour

// seen records the newest snapshot of a run that was seen, so that a store that was reset is
// noticed. Each store and address has its own record.
type seen struct {
	file string
	rec  seenRecord
	// probed is true if the store was probed, or needs no probe.
	probed bool
	now    time.Time
	// volume is the configured volume of the data directory.
	volume string
	// err is why the record is unknown; damaged is true if it exists.
	err     error
	damaged bool
}

type seenRecord struct {
	Store  string                  `json:"store"`
	Newest checkpoint.SnapshotMark `json:"newest"`
	// Conditional is when the store last refused a conflicting write.
	Conditional time.Time `json:"conditional"`
}

// openSeen reads the record of a run and passes it to the run.
func openSeen(req *runtime.Request, run *checkpoint.Run) *seen {
	s := &seen{now: req.Now().UTC()}
	s.rec.Store = objectstore.Identity(run.Store)
	cfg, err := req.Config()
	if err == nil && cfg.DataDir == "" {
		err = errors.New("there is no data directory")
	}
	if err == nil {
		s.file = filepath.Join(cfg.DataDir, seenDir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(s.rec.Store))))
		s.volume = filepath.Clean(cfg.DataVolume)
		err = trust.Path(s.file, s.volume)
	}
	if err != nil {
		s.file, s.err = "", fmt.Errorf("which snapshot was seen before is not known: %w", err)
		return s
	}
	data, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return s
	}
	var rec seenRecord
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	if err == nil && rec.Store != s.rec.Store {
		err = errors.New("it is of another store")
	}
	if err != nil {
		s.damaged, s.err = true, fmt.Errorf(
			"which snapshot was seen before is not known: read %s: %w; remove the file to forget it", s.file, err)
		return s
	}
	s.rec = rec
	run.NewestSeen = rec.Newest
	run.Conditional = !rec.Conditional.After(s.now) && s.now.Sub(rec.Conditional) < probeEvery
	return s
}

// notes lists the problems of the record.
func (s *seen) notes() []string {
	if s.err != nil {
		return []string{s.err.Error()}
	}
	return nil
}

// read records what a command saw, if that is newer.
func (s *seen) read(newest checkpoint.SnapshotMark) []string {
	if s.err != nil {
		return s.notes()
	}
	newer := !s.rec.Newest.After(newest) && newest.After(s.rec.Newest)
	if newer {
		s.rec.Newest = newest
	}
	if !newer && !s.probed {
		return nil
	}
	return s.write()
}

// saved records the snapshot that this process made, which is the newest regardless of what was
// seen.
func (s *seen) saved(newest checkpoint.SnapshotMark) []string {
	if newest.Seq > 0 {
		s.rec.Newest = newest
	}
	return s.write()
}

func (s *seen) write() []string {
	if s.file == "" {
		return nil // notes explain why
	}
	if s.probed && s.now.Sub(s.rec.Conditional).Abs() >= probeEvery {
		s.rec.Conditional = s.now
	}
	data, err := json.Marshal(s.rec)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(s.file), 0o700)
	}
	if err == nil {
		err = durable.ReplaceBytes(s.file, 0o600, append(data, '\n'))
	}
	if err != nil {
		return []string{fmt.Sprintf("which snapshot is the newest is not remembered: %v", err)}
	}
	return nil
}

// gone adds to the error of a run without HEAD that it had a snapshot.
func (s *seen) gone(err error) error {
	var e *runtime.Error
	if s.rec.Newest.Seq > 0 && errors.Is(err, checkpoint.ErrNotFound) && errors.As(err, &e) {
		e.Err = fmt.Errorf("snapshot %d was seen here before: %w: %w", s.rec.Newest.Seq,
			checkpoint.ErrRolledBack, e.Err)
	}
	return err
}
