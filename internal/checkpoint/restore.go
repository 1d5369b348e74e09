package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/curfew-dev/curfew/internal/trust"
)

// RestoreOptions select what to restore. The zero value restores the newest complete snapshot into
// an empty or missing folder.
type RestoreOptions struct {
	// Seq selects a snapshot, even if it is unsettled or older than [Run.NewestSeen]; 0 selects the
	// newest complete one.
	Seq int64
	// Rank selects the node in a snapshot of several nodes.
	Rank int
	// Replace allows replacing a non-empty folder.
	Replace bool
	// Workers is the number of parts read in parallel, about 20 MiB each; 4 by default.
	Workers  int
	Progress func(done, total int64)
}

// SkippedSnapshot is a damaged snapshot that was not restored.
type SkippedSnapshot struct {
	Snapshot Snapshot
	Why      string
}

// RestoreResult is the result of a restore.
type RestoreResult struct {
	Snapshot Snapshot
	Manifest Manifest
	Skipped  []SkippedSnapshot
	// Notes are remarks for people, such as a damaged HEAD.
	Notes []string
	// Newest is the newest snapshot of the run, restored or not.
	Newest SnapshotMark
}

// ErrNotEmpty means that the folder holds files that a restore would replace.
var ErrNotEmpty = errors.New("the folder is not empty")

// Snapshots returns the restorable snapshots, newest first: from HEAD, or from the manifests if
// HEAD is damaged.
func (r Run) Snapshots(ctx context.Context) (list []Snapshot, notes []string, err error) {
	h, _, err := r.ReadHead(ctx)
	if errors.Is(err, ErrDamaged) {
		note := err.Error()
		if h, err = r.rebuildHead(ctx); err == nil {
			return h.Snapshots, []string{note + "; these are the manifests that are in the store"}, nil
		}
	}
	return h.Snapshots, nil, err
}

// Restore restores a snapshot into a folder. Files are moved into place only after all are
// verified; damaged snapshots are skipped and reported.
func (r Run) Restore(ctx context.Context, dir string, o RestoreOptions) (RestoreResult, error) {
	list, notes, err := r.Snapshots(ctx)
	if err != nil {
		return RestoreResult{}, fmt.Errorf("restore %s: %w", dir, err)
	}
	done := RestoreResult{Notes: notes, Newest: NewestMark(list)}
	if rolled := r.CheckRolledBack(list); rolled != nil {
		if o.Seq == 0 {
			return done, fmt.Errorf("restore %s: %w", dir, rolled)
		}
		done.Notes = append(done.Notes, rolled.Error())
	}
	to, err := openTarget(dir, o.Replace)
	if err != nil {
		return done, fmt.Errorf("restore %s: %w", dir, err)
	}
	defer to.close()
	for _, s := range list {
		if o.Seq != 0 && s.Seq != o.Seq {
			continue
		}
		if o.Seq == 0 && s.State == Unsettled {
			done.Skipped = append(done.Skipped, SkippedSnapshot{s, "files changed while they were read"})
			continue
		}
		m, err := r.restore(ctx, to, s, o)
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) {
			done.Skipped = append(done.Skipped, SkippedSnapshot{s, err.Error()})
			continue
		}
		if err != nil {
			return done, fmt.Errorf("restore snapshot %d to %s: %w", s.Seq, dir, err)
		}
		done.Snapshot, done.Manifest = s, m
		return done, nil
	}
	return done, fmt.Errorf("restore %s: %w", dir, ErrNoSnapshot)
}

// restoreTarget is the folder to restore to. It is accessed through open directories only, so that
// another user who owns one of them cannot redirect writes with links.
type restoreTarget struct {
	// parent is the parent directory, or the folder itself if it is a mount point; name is the name
	// in parent, empty for a mount point.
	parent *os.Root
	name   string
	// exists reports that the folder exists, with mode.
	exists bool
	mode   fs.FileMode
}

func (t restoreTarget) close() { _ = t.parent.Close() } // everything is synced already

// openTarget opens and checks the folder to restore to.
func openTarget(dir string, replace bool) (restoreTarget, error) {
	in, name, err := trust.Parent(dir, 0o777)
	if err != nil {
		return restoreTarget{}, err
	}
	t := restoreTarget{parent: in, name: name}
	if t, err = t.check(replace); err != nil {
		return restoreTarget{}, errors.Join(err, in.Close())
	}
	return t, nil
}

func (t restoreTarget) check(replace bool) (restoreTarget, error) {
	info, err := t.parent.Lstat(t.name)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	if !info.IsDir() {
		return t, fmt.Errorf("it is no folder")
	}
	above, err := t.parent.Stat(".")
	if err != nil {
		return t, err
	}
	folder, err := trust.OpenIn(t.parent, t.name)
	if err != nil {
		return t, err
	}
	entries, err := fs.ReadDir(folder.FS(), ".")
	if err == nil && len(entries) > 0 && !replace && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() != "lost+found"
	}) {
		err = ErrNotEmpty
	}
	here, _, _, _, _ := inode(info)
	there, _, _, _, _ := inode(above)
	if err != nil || here == there {
		t.exists, t.mode = true, info.Mode().Perm()
		return t, errors.Join(err, folder.Close())
	}
	return restoreTarget{parent: folder}, t.parent.Close()
}

// manifestOf reads the manifest of a snapshot, or of one rank of it.
func (r Run) manifestOf(ctx context.Context, s Snapshot, rank int) (Manifest, error) {
	m, err := r.snapshotManifest(ctx, s)
	if err != nil || len(m.Nodes) == 0 {
		return m, err
	}
	if rank < 0 || rank >= len(m.Nodes) {
		return m, fmt.Errorf("snapshot %d is of ranks 0 to %d, not %d", s.Seq, len(m.Nodes)-1, rank)
	}
	return r.ReadManifest(ctx, m.Nodes[rank].Manifest)
}

func (r Run) restore(ctx context.Context, to restoreTarget, s Snapshot, o RestoreOptions) (Manifest, error) {
	m, err := r.manifestOf(ctx, s, o.Rank)
	if err != nil {
		return m, err
	}
	stage := stagingPrefix + strings.ToLower(rand.Text())
	if err := to.parent.Mkdir(stage, 0o700); err != nil {
		return m, err
	}
	defer func() { _ = to.parent.RemoveAll(stage) }() // empty once its content is in place
	root, err := trust.OpenIn(to.parent, stage)
	if err != nil {
		return m, err
	}
	defer func() { _ = root.Close() }()
	if st, err := root.Stat("."); err != nil || st.Mode().Perm() != 0o700 || trust.Info(root.Name(), st) != nil {
		return m, fmt.Errorf("%s was replaced while it was made: %w", root.Name(), err)
	}
	if err := r.writeFiles(ctx, root, m, o); err != nil {
		return m, err
	}
	return m, to.moveIntoPlace(root, stage)
}

// writeFiles writes and verifies a manifest's files below a root.
func (r Run) writeFiles(ctx context.Context, root *os.Root, m Manifest, o RestoreOptions) error {
	type spot struct {
		entry  *Entry
		offset int64
		chunk  *Chunk
	}
	spots := make([][]spot, len(m.Parts))
	var total int64
	for i := range m.Entries {
		e := &m.Entries[i]
		switch e.Kind {
		case Folder:
			if err := root.Mkdir(e.Path, 0o700); err != nil {
				return err
			}
		case File:
			f, err := root.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			if err := errors.Join(f.Truncate(e.Size), f.Close()); err != nil {
				return err
			}
			var at int64
			for i := range e.Chunks {
				c := &e.Chunks[i]
				spots[c.Part] = append(spots[c.Part], spot{e, at, c})
				at += c.Size
			}
			total += e.Size
		}
	}
	var mu sync.Mutex
	var done int64
	err := r.eachPart(ctx, m, o.Workers, func(part int, data []byte, d *decoder) error {
		var f *os.File
		var name string
		defer func() { f.Close() }()
		for _, s := range spots[part] {
			content, err := d.chunk(s.chunk, data)
			if err != nil {
				return fmt.Errorf("%s: %w", m.Parts[part].Key, err)
			}
			if f == nil || name != s.entry.Path {
				f.Close()
				if f, err = root.OpenFile(s.entry.Path, os.O_WRONLY, 0); err != nil {
					return err
				}
				name = s.entry.Path
			}
			if !s.entry.Sparse || slices.ContainsFunc(content, func(b byte) bool { return b != 0 }) {
				if _, err := f.WriteAt(content, s.offset); err != nil {
					return err
				}
			}
			if o.Progress != nil {
				mu.Lock()
				done += s.chunk.Size
				o.Progress(done, total)
				mu.Unlock()
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return applyMetadata(root, m)
}

// applyMetadata sets links, modes and times and syncs everything.
func applyMetadata(root *os.Root, m Manifest) error {
	for _, e := range m.Entries {
		var err error
		switch e.Kind {
		case Hardlink:
			err = root.Link(e.Target, e.Path)
		case Symlink:
			err = root.Symlink(e.Target, e.Path)
		case File:
			var f *os.File
			if f, err = root.OpenFile(e.Path, os.O_WRONLY, 0); err == nil {
				err = errors.Join(f.Chmod(fs.FileMode(e.Mode)), f.Sync(), f.Close(),
					root.Chtimes(e.Path, e.Modified, e.Modified))
			}
		}
		if err != nil {
			return err
		}
	}
	for _, e := range slices.Backward(m.Entries) { // innermost first, because each change updates the parent's time
		if e.Kind != Folder {
			continue
		}
		d, err := root.Open(e.Path)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), root.Chtimes(e.Path, e.Modified, e.Modified), d.Chmod(fs.FileMode(e.Mode)),
			d.Close()); err != nil {
			return err
		}
	}
	return nil
}

// moveIntoPlace moves the verified files to the target: entry by entry into a mount point,
// otherwise by swapping the folder.
func (t restoreTarget) moveIntoPlace(root *os.Root, stage string) error {
	old := stage + "-old"
	defer func() { _ = t.parent.RemoveAll(old) }() // empty if it was put back
	if t.name == "" {
		if err := t.parent.Mkdir(old, 0o700); err != nil {
			return err
		}
		if err := moveAll(t.parent, ".", old, stage, old); err != nil {
			return errors.Join(err, moveAll(t.parent, old, "."))
		}
		return errors.Join(moveAll(t.parent, stage, "."), syncFolder(t.parent))
	}
	mode := fs.FileMode(0o755)
	if t.exists {
		mode = t.mode
		if err := t.parent.Rename(t.name, old); err != nil {
			return err
		}
	}
	if err := errors.Join(root.Chmod(".", mode), t.parent.Rename(stage, t.name)); err != nil {
		if t.exists {
			err = errors.Join(err, t.parent.Rename(old, t.name))
		}
		return err
	}
	return syncFolder(t.parent)
}

// moveAll moves the entries of one folder of a root into another, except some names.
func moveAll(in *os.Root, from, to string, but ...string) error {
	entries, err := fs.ReadDir(in.FS(), from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "lost+found" || slices.Contains(but, e.Name()) {
			continue
		}
		if err := in.Rename(path.Join(from, e.Name()), path.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func syncFolder(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// eachPart reads and verifies the parts of a manifest in parallel.
func (r Run) eachPart(ctx context.Context, m Manifest, workers int,
	each func(part int, data []byte, d *decoder) error) error {
	all := make([]int, len(m.Parts))
	for i := range all {
		all[i] = i
	}
	return r.eachPartResult(ctx, m, all, workers, func(part int, data []byte, d *decoder, err error) error {
		if err != nil {
			return err
		}
		return each(part, data, d)
	})
}

// eachPartResult reads parts in parallel and passes each on with its error.
func (r Run) eachPartResult(ctx context.Context, m Manifest, parts []int, workers int,
	each func(part int, data []byte, d *decoder, err error) error) error {
	if workers <= 0 {
		workers = 4
	}
	g, ctx := errgroup.WithContext(ctx)
	next := make(chan int)
	g.Go(func() error {
		defer close(next)
		for _, i := range parts {
			select {
			case next <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range workers {
		g.Go(func() error {
			z, err := newDecoder()
			if err != nil {
				return fmt.Errorf("set up decompression: %w", err)
			}
			defer z.Close()
			d := &decoder{z, make([]byte, 0, chunkMax)}
			for i := range next {
				data, err := r.readPart(ctx, m.Parts[i])
				if err := each(i, data, d, err); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// readPart reads and verifies one part.
func (r Run) readPart(ctx context.Context, p Part) (data []byte, err error) {
	err = retryDamaged(func() error {
		o, err := r.Store.Get(ctx, p.Key, p.Size)
		switch {
		case errors.Is(err, ErrTooLarge):
			return fmt.Errorf("read %s: it is larger than its %d bytes: %w", p.Key, p.Size, ErrDamaged)
		case err != nil:
			return fmt.Errorf("read %s: %w", p.Key, err)
		case int64(len(o.Data)) != p.Size || crc(o.Data) != p.CRC32C || hash(o.Data) != p.SHA256:
			return fmt.Errorf("read %s: it does not fit its size, CRC32C and SHA-256: %w", p.Key, ErrDamaged)
		}
		data = o.Data
		return nil
	})
	return data, err
}
