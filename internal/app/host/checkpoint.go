package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/objectstore"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/internal/wait"
)

// CheckpointStore locates checkpoints and configures access to them.
type CheckpointStore struct {
	URL string
	objectstore.Options
}

// CheckpointSaveOptions configure the save of a folder.
type CheckpointSaveOptions struct {
	// RunDir is the folder in which the training declares what it saved; empty is CURFEW_RUN_DIR,
	// if set.
	RunDir string
	// Within limits the duration of a final save; 0 is no limit.
	Within time.Duration
	// Retention is applied after the save, by rank 0 alone.
	Retention checkpoint.Retention
	// Patience is how long a rank waits for the others.
	Patience time.Duration
	checkpoint.SaveOptions
}

// run opens the run at a URL.
func run(ctx context.Context, req *runtime.Request, s CheckpointStore) (checkpoint.Run, error) {
	store, err := objectstore.Open(ctx, s.URL, s.Options)
	if err != nil {
		return checkpoint.Run{}, &runtime.Error{Class: runtime.Usage, Code: "usage", Err: err}
	}
	return checkpoint.Run{Store: store, Now: req.Now}, nil
}

// writer returns a name for this process for readers of HEAD.
func writer() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d", host, os.Getpid())
}

// checkpointError classifies an error of a run and adds the next step.
func checkpointError(err error) error {
	hints := []struct {
		is         error
		class      runtime.Class
		code, hint string
	}{
		{
			checkpoint.ErrFenced, runtime.Failed, "fenced",
			"another process saves this run: end one of them, or save to another URL",
		},
		{checkpoint.ErrNoSnapshot, runtime.Failed, "no_snapshot", "curfew checkpoint list shows what the run has"},
		{
			checkpoint.ErrNotEmpty, runtime.Failed, "not_empty",
			"restore to another folder, or replace this one with --replace",
		},
		{
			checkpoint.ErrFull, runtime.Failed, "full",
			"free space: `curfew checkpoint gc URL --keep 1 --now` deletes what no kept snapshot of a run needs",
		},
		{checkpoint.ErrNoTime, runtime.Partial, "no_time", "the snapshot before stays the newest"},
		{
			checkpoint.ErrRanksMissing, runtime.Failed, "ranks_missing",
			"the snapshot before stays the newest: run the save in every rank at the same time",
		},
		{
			checkpoint.ErrUnconditional, runtime.Failed, "unconditional",
			"use a store with conditional writes, such as S3, or a folder (file:///…): without them two writers overwrite " +
				"each other",
		},
		{
			checkpoint.ErrRolledBack, runtime.Failed, "rolled_back",
			"find out who changed the store; --snapshot restores an older one by its number",
		},
		{checkpoint.ErrNotFound, runtime.Failed, "not_found", "the URL is that of one run, as it was saved"},
	}
	for _, h := range hints {
		if errors.Is(err, h.is) {
			return &runtime.Error{Class: h.class, Code: h.code, Err: err, Hint: h.hint}
		}
	}
	return err
}

// bytesBar shows bytes as a progress bar in MiB, and returns the function that ends it.
func bytesBar(req *runtime.Request, what string) (report func(done, total int64), finish func()) {
	bar := req.Progress(what)
	return func(done, total int64) {
		bar.Report(round.Progress{What: what + " (MiB)", Done: int(done >> 20), Total: int(total >> 20)})
	}, bar.Finish
}

// CheckpointSave saves a folder as the next snapshot of a run.
func CheckpointSave(ctx context.Context, req *runtime.Request, dir string, to CheckpointStore,
	o CheckpointSaveOptions) (view.CheckpointSave, error) {
	doc := view.CheckpointSave{Schema: view.CheckpointSaveSchema, Dir: dir, URL: to.URL}
	dir, err := filepath.Abs(req.Path(dir))
	if err != nil {
		return doc, fmt.Errorf("save %s: %w", doc.Dir, err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return doc, runtime.Invalid("save %s: it is no folder", doc.Dir)
	}
	run, err := run(ctx, req, to)
	if err != nil {
		return doc, err
	}
	seen := openSeen(req, &run)
	started := req.Now()
	if o.Within > 0 {
		o.Deadline = started.Add(o.Within)
	}
	notes := seen.notes()
	if runDir, ok := req.Lookup("CURFEW_RUN_DIR"); ok && o.RunDir == "" {
		o.RunDir = runDir
	}
	if o.RunDir != "" {
		events, err := checkpoint.ReadEvents(req.Path(o.RunDir))
		if err != nil {
			return doc, err
		}
		o.Evidence.Declared = events.DeclaredIn(dir, req.Dir)
		if events.InvalidLines > 0 {
			notes = append(notes,
				fmt.Sprintf("%s in %s cannot be read", plain.Count(events.InvalidLines, "declaration"),
					filepath.Join(o.RunDir, checkpoint.EventsFile)))
		}
	}
	o.Wait = wait.For
	known := seen.known(dir, o.Rank)
	o.Known = known.rec.Files
	var finish func()
	o.Progress, finish = bytesBar(req, "saving "+doc.Dir)
	got, a, err := saveOnce(ctx, run, dir, o)
	finish()
	if err != nil {
		return doc, checkpointError(err)
	}
	if a != nil {
		notes = append(notes, a.Notes...)
		seen.probed = true
	}
	known.save(got.Known, req.Now())
	notes = append(notes, got.Notes...)
	notes = append(notes, seen.saved(checkpoint.NewestMark([]checkpoint.Snapshot{got.Snapshot}))...)
	doc.Attempt, doc.Snapshot, doc.ReadBytes, doc.SentBytes = got.Manifest.Attempt, got.Snapshot, got.BytesRead,
		got.BytesStored
	doc.UnreadFiles, doc.Seconds = got.Unread, req.Now().Sub(started).Seconds()
	doc.LeftOut, doc.Notes, doc.Unsettled = append([]checkpoint.LeftOut{}, got.Manifest.LeftOut...), view.Lines(
		notes), []string{}
	for _, e := range got.Manifest.Entries {
		if e.Finished == "" {
			doc.Unsettled = append(doc.Unsettled, e.Path)
		}
	}
	if a != nil && o.Retention != (checkpoint.Retention{}) && o.Within == 0 {
		c, err := a.Collect(ctx, o.Retention)
		if err != nil {
			return doc, checkpointError(fmt.Errorf("snapshot %d is saved: %w", got.Snapshot.Seq, err))
		}
		collected := view.NewCheckpointCollected(c)
		doc.Collected = &collected
	}
	return doc, nil
}

// saveOnce makes the next snapshot, by this process alone or together with other ranks. The attempt
// is nil if another rank holds the run.
func saveOnce(ctx context.Context, run checkpoint.Run, dir string, o CheckpointSaveOptions) (checkpoint.Result,
	*checkpoint.Attempt, error) {
	if o.Ranks > 0 {
		return run.SaveTogether(ctx, writer(), dir, o.SaveOptions, o.Patience)
	}
	a, err := run.Claim(ctx, writer())
	if err != nil {
		return checkpoint.Result{}, nil, err
	}
	got, err := a.Save(ctx, dir, o.SaveOptions)
	return got, a, err
}

// CheckpointRestore restores a snapshot of a run to a folder.
func CheckpointRestore(ctx context.Context, req *runtime.Request, from CheckpointStore, dir string,
	o checkpoint.RestoreOptions) (view.CheckpointRestore, error) {
	doc := view.CheckpointRestore{
		Schema: view.CheckpointRestoreSchema, URL: from.URL, Dir: dir, Skipped: []view.CheckpointSkipped{},
		LeftOut: []checkpoint.LeftOut{}, Notes: []string{},
	}
	run, err := run(ctx, req, from)
	if err != nil {
		return doc, err
	}
	seen := openSeen(req, &run)
	if seen.damaged && o.Seq == 0 {
		return doc, checkpointError(seen.err)
	}
	started := req.Now()
	var finish func()
	o.Progress, finish = bytesBar(req, "restoring "+dir)
	got, err := run.Restore(ctx, req.Path(dir), o)
	finish()
	var whys []string
	for _, s := range got.Skipped {
		doc.Skipped = append(doc.Skipped, view.CheckpointSkipped{Seq: s.Snapshot.Seq, At: s.Snapshot.At, Why: s.Why})
		whys = append(whys, fmt.Sprintf("snapshot %d: %s", s.Snapshot.Seq, s.Why))
	}
	if err != nil {
		if len(whys) > 0 {
			err = fmt.Errorf("%w (%s)", err, strings.Join(whys, "; "))
		}
		return doc, checkpointError(err)
	}
	doc.Snapshot, doc.Notes, doc.LeftOut = &got.Snapshot, view.Lines(
		append(got.Notes, seen.read(got.Newest)...)), append(
		[]checkpoint.LeftOut{}, got.Manifest.LeftOut...)
	doc.Seconds = req.Now().Sub(started).Seconds()
	return doc, nil
}

// CheckpointList lists the snapshots of a run.
func CheckpointList(ctx context.Context, req *runtime.Request, from CheckpointStore) (view.CheckpointList, error) {
	doc := view.CheckpointList{Schema: view.CheckpointListSchema, URL: from.URL, Snapshots: []checkpoint.Snapshot{}}
	run, err := run(ctx, req, from)
	if err != nil {
		return doc, err
	}
	seen := openSeen(req, &run)
	h, _, err := run.ReadHead(ctx)
	if err != nil && !errors.Is(err, checkpoint.ErrDamaged) {
		return doc, seen.gone(checkpointError(err))
	}
	list, notes, err := run.Snapshots(ctx)
	if err != nil {
		return doc, checkpointError(err)
	}
	if len(list) > 0 {
		if err := run.Check(ctx, list[0]); err != nil {
			notes = append(notes, fmt.Sprintf("snapshot %d cannot be restored: %v", list[0].Seq, err))
		}
	}
	if rolled := run.CheckRolledBack(list); rolled != nil {
		notes = append(notes, rolled.Error())
	}
	notes = append(notes, seen.read(checkpoint.NewestMark(list))...)
	doc.Epoch, doc.Attempt, doc.Writer, doc.ClaimedAt = h.Epoch, h.Attempt, h.Writer, h.ClaimedAt
	doc.Snapshots, doc.Notes = append(doc.Snapshots, list...), view.Lines(notes)
	return doc, nil
}

// CheckpointVerify reads and verifies everything that the snapshots of a run need.
func CheckpointVerify(ctx context.Context, req *runtime.Request, from CheckpointStore, seq int64,
	workers int) (view.CheckpointVerify, error) {
	run, err := run(ctx, req, from)
	if err != nil {
		return view.CheckpointVerify{}, err
	}
	seen := openSeen(req, &run)
	progress, finish := bytesBar(req, "verifying")
	got, err := run.Verify(ctx, seq, workers, progress)
	finish()
	if err != nil {
		return view.CheckpointVerify{}, checkpointError(err)
	}
	got.Notes = append(got.Notes, seen.read(got.Newest)...)
	return view.NewCheckpointVerify(from.URL, got), nil
}

// CheckpointGC claims a run, drops snapshots beyond the retention and deletes unneeded objects.
func CheckpointGC(ctx context.Context, req *runtime.Request, at CheckpointStore, keep checkpoint.Retention) (
	view.CheckpointGC, error) {
	doc := view.CheckpointGC{Schema: view.CheckpointGCSchema, URL: at.URL}
	run, err := run(ctx, req, at)
	if err != nil {
		return doc, err
	}
	if _, _, err := run.ReadHead(ctx); errors.Is(err, checkpoint.ErrNotFound) {
		return doc, checkpointError(err) // a claim would create a run at a wrong URL
	}
	seen := openSeen(req, &run)
	a, got, err := run.Reclaim(ctx, writer(), keep)
	if err != nil {
		return doc, checkpointError(err)
	}
	seen.probed = true
	notes := append(a.Notes, seen.read(checkpoint.NewestMark(a.Head().Snapshots))...)
	doc.CheckpointCollected, doc.Kept, doc.Notes = view.NewCheckpointCollected(got), len(
		a.Head().Snapshots), view.Lines(
		notes)
	return doc, nil
}
