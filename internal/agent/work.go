package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/wait"
)

// saveRequest is a request to save the work folder.
type saveRequest struct {
	// final marks the last save before the session ends.
	final bool
	// processesEnded reports that no process of the session can write any more.
	processesEnded bool
	// writerKilled reports that the command of a job was killed.
	writerKilled bool
	// deadline is when the machine is taken away; zero if never.
	deadline time.Time
	// timeout bounds the save; 0 means no limit.
	timeout time.Duration
	// orderSave is the Order.SaveRequest that the save answers.
	orderSave int64
	// startedAt is the start by the clock of decisions.
	startedAt time.Time
}

// saveResult is the result of a save.
type saveResult struct {
	saveRequest
	snapshot session.Snapshot
	number   int64 // sequence number of the snapshot
	// steps are the declared steps of the snapshots that are kept.
	steps []int64
	// fingerprint identifies the content of the saved folder; empty if the folder changed during the save.
	fingerprint string
	// incomplete describes what the snapshot lacks; empty if nothing.
	incomplete string
	err        error
}

// saver saves the work folder, one save at a time.
type saver struct {
	options *Options
	// dir is the folder that is saved. workDir is the working folder of commands, which resolves what
	// they declare in runDir.
	dir, workDir, runDir string
	quietTime            time.Duration
	store                checkpoint.Backend
	attempt              *checkpoint.Attempt
	// round is added to the epoch of the session, so that machines of earlier rounds write nothing. restoreStep
	// is the step that is restored; nil takes the newest.
	round       int64
	restoreStep *int64
	// left are the snapshots that the last restore left behind: what follows is another work than theirs.
	left snapshotRange
	// restoredSteps are the declared steps of the snapshots that the last restore found.
	restoredSteps []int64
	saves         int
}

// retention selects the snapshots to keep.
var retention = checkpoint.Retention{Keep: 6, KeepFor: 24 * time.Hour}

// openRun opens the store of this node's snapshots.
func (s *saver) openRun(ctx context.Context) (checkpoint.Run, error) {
	if s.store == nil {
		store, err := s.options.Work(ctx, workURL(&s.options.Host))
		if err != nil {
			return checkpoint.Run{}, err
		}
		s.store = store
	}
	run := checkpoint.Run{Store: s.store, Now: s.options.Now}
	if seen := s.options.Host.NewestSnapshot; seen != "" {
		var err error
		if run.NewestSeen, err = checkpoint.MarkOf(seen); err != nil {
			return run, fmt.Errorf("read which snapshot was seen before: %w", err)
		}
	}
	return run, nil
}

// epoch returns the number that fences the snapshots of earlier starts and rounds.
func (s *saver) epoch() int64 { return s.options.Host.Epoch + s.round }

// workURL returns the URL of a node's snapshots.
func workURL(h *session.HostConfig) string {
	return strings.TrimSuffix(h.Work, "/") + fmt.Sprintf("/node-%d", h.Node)
}

// save saves the folder and confirms that the store lists the snapshot.
func (s *saver) save(ctx context.Context, w saveRequest) saveResult {
	done := saveResult{saveRequest: w}
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	before, err := fingerprint(s.dir)
	if err == nil {
		err = s.saveSnapshot(ctx, w, &done)
	}
	if err != nil {
		if errors.Is(err, checkpoint.ErrFenced) || errors.Is(err, checkpoint.ErrDamaged) {
			s.attempt = nil // the claim is lost, or stored data must not be reused
		}
		done.err = err
		return done
	}
	if after, err := fingerprint(s.dir); err == nil && after == before && done.snapshot.Complete {
		done.fingerprint = after
	}
	return done
}

func (s *saver) saveSnapshot(ctx context.Context, w saveRequest, done *saveResult) error {
	run, err := s.openRun(ctx)
	if err != nil {
		return err
	}
	if s.attempt == nil {
		writer := fmt.Sprintf("session %s, start %d, node %d", s.options.Host.Name, s.epoch(), s.options.Host.Node)
		if s.attempt, err = run.ClaimFor(ctx, writer, s.epoch()); err != nil {
			return err
		}
	}
	o := checkpoint.SaveOptions{Quiet: s.quietTime, Wait: wait.For, Deadline: w.deadline}
	o.Evidence.WriterExited, o.Evidence.WriterKilled = w.processesEnded && !w.writerKilled, w.writerKilled
	if events, err := checkpoint.ReadEvents(s.runDir); err == nil {
		o.Evidence.Declared = events.DeclaredIn(s.dir, s.workDir)
	}
	if c := s.options.Host.Command; c != nil {
		o.Evidence.DonePattern = c.Done
	}
	r, err := s.attempt.Save(ctx, s.dir, o)
	if err != nil {
		return err
	}
	// Only a snapshot listed in HEAD counts.
	head, _, err := run.ReadHead(ctx)
	if err != nil {
		return fmt.Errorf("confirm the snapshot: %w", err)
	}
	if !slices.ContainsFunc(head.Snapshots, func(n checkpoint.Snapshot) bool {
		return n.Manifest == r.Snapshot.Manifest
	}) {
		return fmt.Errorf("confirm the snapshot: HEAD of the run does not name it: %w", checkpoint.ErrFenced)
	}
	done.snapshot = session.Snapshot{Manifest: r.Snapshot.Manifest, At: r.Snapshot.At, Epoch: s.epoch(),
		Complete: r.Snapshot.State == checkpoint.Complete, Bytes: r.Snapshot.Bytes, Step: r.Snapshot.Step}
	done.snapshot.Until = w.startedAt.UTC()
	for _, d := range o.Evidence.Declared {
		if step := r.Snapshot.Step; step != nil && d.Step != nil && *d.Step == *step {
			done.snapshot.Until = d.At.UTC()
		}
	}
	done.steps = s.savedSteps(head.Snapshots)
	done.number, done.incomplete = r.Snapshot.Seq, incompleteReason(&r.Manifest)
	if s.saves++; s.saves%6 == 0 && !w.final && w.deadline.IsZero() && done.snapshot.Complete {
		// Failing to delete old snapshots costs money, not work.
		if _, err := s.attempt.Collect(ctx, retention); err != nil {
			s.attempt = nil
		}
	}
	return nil
}

// incompleteReason describes what a snapshot lacks.
func incompleteReason(m *checkpoint.Manifest) string {
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

// fingerprint returns a hash of the names, modes, sizes and times in a folder: if it is unchanged,
// nothing was written in between.
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
			size = 0 // the size of a folder depends on the file system
		}
		// writing to a hash cannot fail
		_, _ = fmt.Fprintf(h, "%q %v %d %d\n", at, i.Mode(), size, i.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read the work folder: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// knownComplete returns the number of the newest snapshot of checkpoints that are known to be
// complete, because the work declared or marked them; 0 if there is none.
func knownComplete(list []checkpoint.Snapshot) int64 {
	for _, n := range list {
		known := n.Step != nil || n.Finished == checkpoint.Declared || n.Finished == checkpoint.Marked
		if known && n.State != checkpoint.Unsettled {
			return n.Seq
		}
	}
	return 0
}

// seqOfStep returns the number of the newest snapshot of a step; 0 if there is none.
func seqOfStep(list []checkpoint.Snapshot, step int64) int64 {
	for _, n := range list {
		if n.Step != nil && *n.Step == step && n.State != checkpoint.Unsettled {
			return n.Seq
		}
	}
	return 0
}

// snapshotRange are the snapshots with numbers over After, up to Last.
type snapshotRange struct {
	After int64 `json:"after,omitempty"`
	Last  int64 `json:"last,omitempty"`
}

// savedSteps returns the declared steps of snapshots of this work, the newest ones.
func (s *saver) savedSteps(list []checkpoint.Snapshot) (steps []int64) {
	for _, n := range list {
		if left := s.left; n.Seq > left.After && n.Seq <= left.Last {
			continue
		}
		if n.Step != nil && n.State != checkpoint.Unsettled && !slices.Contains(steps, *n.Step) &&
			len(steps) < session.MaxSavedSteps {
			steps = append(steps, *n.Step)
		}
	}
	return steps
}

// setAside moves what is in a folder to another next to it, named by the newest snapshot, which holds
// the same.
func setAside(dir string, seq int64) error {
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(found) == 0 {
		return nil
	}
	if err == nil {
		err = os.Rename(dir, fmt.Sprintf("%s.unfinished-%d", dir, seq))
	}
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("set unfinished checkpoints aside: %w", err)
	}
	return nil
}

// restore restores the newest snapshot into the work folder and returns a message for the journal.
// Existing files are someone's work and stay, unless a restore was interrupted.
func (s *saver) restore(ctx context.Context, cutOff bool) (session.Snapshot, string, error) {
	none := session.Snapshot{}
	if s.options.Host.Work == "" {
		return none, "", nil
	}
	run, err := s.openRun(ctx)
	if err != nil {
		return none, "", err
	}
	list, _, err := run.Snapshots(ctx)
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		return none, "", fmt.Errorf("read the snapshots: %w", err)
	}
	defer func() { s.restoredSteps = s.savedSteps(list) }()
	if err := run.CheckRolledBack(list); err != nil {
		return none, "", fmt.Errorf(
			"%w: find out who changed %s; a session of another name begins without this work, "+
				"and `curfew checkpoint restore` brings back an older snapshot by its number", err,
			workURL(&s.options.Host))
	}
	if len(list) == 0 { // first start
		return none, "", nil
	}
	o := checkpoint.RestoreOptions{Replace: cutOff}
	settled := func(n checkpoint.Snapshot) bool { return n.State != checkpoint.Unsettled }
	unsettled := !slices.ContainsFunc(list, settled)
	switch {
	case s.options.Host.Command != nil && s.restoreStep != nil:
		// The other nodes go on from this step too.
		o.Replace, o.Seq = true, seqOfStep(list, *s.restoreStep)
		if o.Seq == 0 && s.round == 0 {
			o.Seq = knownComplete(list)
		}
		if o.Seq == 0 {
			return none, "", fmt.Errorf("no snapshot of step %d is kept, from which the other nodes go on", *s.restoreStep)
		}
	case s.options.Host.Command != nil && unsettled:
		// Half-written checkpoints are worse than none: a training may load them.
		if err := setAside(s.dir, list[0].Seq); err != nil {
			return none, "", err
		}
		return none, "no snapshot holds whole checkpoints, so nothing is restored and the command begins from the " +
			"beginning: declare each save (curfew.save_done)", nil
	case s.options.Host.Command != nil:
		// The folder belongs to the job: an earlier attempt may have left unfinished files in it.
		o.Replace, o.Seq = true, knownComplete(list)
	case unsettled:
		o.Seq = list[0].Seq // files that changed while being read are better than none
	}
	r, err := run.Restore(ctx, s.dir, o)
	if errors.Is(err, checkpoint.ErrNotEmpty) {
		return none, "the work folder has files, which stay as they are; nothing is restored", nil
	}
	if err != nil {
		return none, "", err
	}
	n := r.Snapshot
	s.left = snapshotRange{n.Seq, list[0].Seq}
	said := fmt.Sprintf("restored snapshot %d of %s: %s, %s", n.Seq, plain.Time(n.At), plain.Count(n.Files, "file"),
		plain.Size(n.Bytes))
	if n.Step != nil {
		said += fmt.Sprintf(", step %d", *n.Step)
	}
	for _, k := range r.Skipped {
		said += fmt.Sprintf("; snapshot %d is newer and not restored: %s", k.Snapshot.Seq, k.Why)
	}
	return session.Snapshot{
		Manifest: n.Manifest, At: n.At, Epoch: s.epoch(), Complete: n.State == checkpoint.Complete,
		Bytes: n.Bytes, Step: n.Step,
	}, said, nil
}
