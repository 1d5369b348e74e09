package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

// saving is a save that is asked for.
type saving struct {
	// last says that the session ends after it.
	last bool
	// exited says that no process of the session is left, so that nothing writes.
	exited bool
	// deadline is when the machine is taken away; zero: it is not.
	deadline time.Time
	// within is the most that it may take; 0 is no limit.
	within time.Duration
	// asked is the Order.Save that it answers.
	asked int64
	// began is when it began, by the clock of decisions.
	began time.Time
}

// saved is what became of a save.
type saved struct {
	saving
	snapshot session.Snapshot
	number   int64 // of the snapshot in its store
	// seen is the print of the folder as it was saved; empty where it changed.
	seen string
	// why says what the snapshot does not hold as it was; empty where it holds all.
	why string
	err error
}

// saver saves the work folder. It serves one save at a time.
type saver struct {
	o       *Options
	dir     string
	quiet   time.Duration
	store   checkpoint.Backend
	attempt *checkpoint.Attempt
	saves   int
}

// retention is which snapshots of a session's work are kept.
var retention = checkpoint.Retention{Keep: 6, KeepFor: 24 * time.Hour}

// run opens the store of this node's snapshots.
func (s *saver) run(ctx context.Context) (checkpoint.Run, error) {
	if s.store == nil {
		store, err := s.o.Work(ctx, workURL(&s.o.Host))
		if err != nil {
			return checkpoint.Run{}, err
		}
		s.store = store
	}
	run := checkpoint.Run{Store: s.store, Now: s.o.Now}
	if seen := s.o.Host.NewestSnapshot; seen != "" {
		var err error
		if run.Seen, err = checkpoint.MarkOf(seen); err != nil {
			return run, fmt.Errorf("read which snapshot was seen before: %w", err)
		}
	}
	return run, nil
}

// workURL is where a node's snapshots are.
func workURL(h *session.HostConfig) string {
	return strings.TrimSuffix(h.Work, "/") + fmt.Sprintf("/node-%d", h.Node)
}

// save saves the folder and confirms that the store names the snapshot.
func (s *saver) save(ctx context.Context, w saving) saved {
	done := saved{saving: w}
	if w.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.within)
		defer cancel()
	}
	before, err := fingerprint(s.dir)
	if err == nil {
		err = s.put(ctx, w, &done)
	}
	if err != nil {
		if errors.Is(err, checkpoint.ErrFenced) || errors.Is(err, checkpoint.ErrDamaged) {
			s.attempt = nil // else what was stored by then is used again
		}
		done.err = err
		return done
	}
	if after, err := fingerprint(s.dir); err == nil && after == before && done.snapshot.Complete {
		done.seen = after
	}
	return done
}

func (s *saver) put(ctx context.Context, w saving, done *saved) error {
	run, err := s.run(ctx)
	if err != nil {
		return err
	}
	if s.attempt == nil {
		writer := fmt.Sprintf("session %s, start %d, node %d", s.o.Host.Name, s.o.Host.Epoch, s.o.Host.Node)
		if s.attempt, err = run.ClaimFor(ctx, writer, s.o.Host.Epoch); err != nil {
			return err
		}
	}
	o := checkpoint.SaveOptions{Quiet: s.quiet, Wait: pause, Deadline: w.deadline}
	o.Evidence.Exited = w.exited
	r, err := s.attempt.Save(ctx, s.dir, o)
	if err != nil {
		return err
	}
	// It counts once the store names it.
	head, _, err := run.ReadHead(ctx)
	if err != nil {
		return fmt.Errorf("confirm the snapshot: %w", err)
	}
	if !slices.ContainsFunc(head.Snapshots, func(n checkpoint.Snapshot) bool {
		return n.Manifest == r.Snapshot.Manifest
	}) {
		return fmt.Errorf("confirm the snapshot: HEAD of the run does not name it: %w", checkpoint.ErrFenced)
	}
	done.snapshot = session.Snapshot{Manifest: r.Snapshot.Manifest, At: r.Snapshot.At, Epoch: s.o.Host.Epoch,
		Complete: r.Snapshot.State == checkpoint.Complete, Bytes: r.Snapshot.Bytes}
	done.number, done.why = r.Snapshot.Seq, unsettled(&r.Manifest)
	if s.saves++; s.saves%6 == 0 && !w.last && w.deadline.IsZero() && done.snapshot.Complete {
		// Old snapshots that cannot be dropped cost money, not work.
		if _, err := s.attempt.Collect(ctx, retention); err != nil {
			s.attempt = nil
		}
	}
	return nil
}

// unsettled says what a snapshot does not hold as it was.
func unsettled(m *checkpoint.Manifest) string {
	switch m.State {
	case checkpoint.Partial:
		var names []string
		for _, l := range m.LeftOut {
			names = append(names, l.Path)
		}
		return "the time was too short for all of it: " + plain.Few(names)
	case checkpoint.Unsettled:
		var names []string
		for _, e := range m.Entries {
			if e.Kind == checkpoint.File && e.Finished == "" {
				names = append(names, e.Path)
			}
		}
		return "files changed while they were read: " + plain.Few(names)
	}
	return ""
}

// fingerprint is a hash of the names, sizes and times of everything in a folder: where it is
// the same, nothing was written in between.
func fingerprint(dir string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && at != dir {
			return nil // removed since it was listed
		}
		if err != nil {
			return err
		}
		i, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		size := i.Size()
		if d.IsDir() {
			size = 0 // it depends on the file system
		}
		_, _ = fmt.Fprintf(h, "%q %v %d %d\n", at, i.Mode(), size, i.ModTime().UnixNano()) // a hash takes all
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read the work folder: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// restore puts the newest snapshot into the work folder, and returns what to say of it.
// Files that are there already are someone's work, unless a restore was cut off.
func (s *saver) restore(ctx context.Context, cutOff bool) (session.Snapshot, string, error) {
	none := session.Snapshot{}
	if s.o.Host.Work == "" {
		return none, "", nil
	}
	run, err := s.run(ctx)
	if err != nil {
		return none, "", err
	}
	list, _, err := run.Snapshots(ctx)
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		return none, "", fmt.Errorf("read the snapshots: %w", err)
	}
	if err := run.RolledBack(list); err != nil {
		return none, "", fmt.Errorf("%w: find out who changed %s; a session of another name begins without this work, "+
			"and `curfew checkpoint restore` brings back an older snapshot by its number", err, workURL(&s.o.Host))
	}
	if len(list) == 0 { // it is the first start
		return none, "", nil
	}
	o := checkpoint.RestoreOptions{Replace: cutOff}
	if !slices.ContainsFunc(list, func(n checkpoint.Snapshot) bool { return n.State != checkpoint.Unsettled }) {
		o.Seq = list[0].Seq // better files that changed while they were read than none
	}
	r, err := run.Restore(ctx, s.dir, o)
	if errors.Is(err, checkpoint.ErrNotEmpty) {
		return none, "the work folder has files, which stay as they are; nothing is restored", nil
	}
	if err != nil {
		return none, "", err
	}
	n := r.Snapshot
	said := fmt.Sprintf("restored snapshot %d of %s: %s, %s", n.Seq, plain.Time(n.At), plain.Count(n.Files, "file"),
		plain.Size(n.Bytes))
	for _, k := range r.Skipped {
		said += fmt.Sprintf("; snapshot %d is newer and not restored: %s", k.Snapshot.Seq, k.Why)
	}
	return session.Snapshot{
		Manifest: n.Manifest, At: n.At, Epoch: s.o.Host.Epoch, Complete: n.State == checkpoint.Complete, Bytes: n.Bytes,
	}, said, nil
}
