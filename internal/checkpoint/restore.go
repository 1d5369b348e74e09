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

// RestoreOptions say what is restored. The zero value is the newest complete snapshot, into
// a folder that is empty or not there.
type RestoreOptions struct {
	// Seq is a snapshot, also an unsettled one or one that is older than [Run.Seen]; 0 is the
	// newest that is complete.
	Seq int64
	// Rank is the node of a snapshot of several nodes.
	Rank int
	// Replace replaces a folder that is not empty.
	Replace bool
	// Workers is how many parts are read at a time: 4 unless told, about 20 MiB each.
	Workers  int
	Progress func(done, total int64)
}

// Skipped is a snapshot that was not restored.
type Skipped struct {
	Snapshot Snapshot
	Why      string
}

// Restored is what a restore did.
type Restored struct {
	Snapshot Snapshot
	Manifest Manifest
	Skipped  []Skipped
	// Notes say what a person should know: that HEAD is damaged.
	Notes []string
	// Newest is the newest snapshot of the run, whichever was restored.
	Newest Mark
}

// ErrNotEmpty says that a folder holds something that a restore would replace.
var ErrNotEmpty = errors.New("the folder is not empty")

// Snapshots lists what can be restored, the newest first: from HEAD, or where it is damaged
// from the manifests that are in the store.
func (r Run) Snapshots(ctx context.Context) (list []Snapshot, notes []string, err error) {
	h, _, err := r.ReadHead(ctx)
	if errors.Is(err, ErrDamaged) {
		note := err.Error()
		if h, err = r.rebuild(ctx); err == nil {
			return h.Snapshots, []string{note + "; these are the manifests that are in the store"}, nil
		}
	}
	return h.Snapshots, nil, err
}

// Restore puts a snapshot into a folder. Nothing is in place before all of it is verified;
// a snapshot that is damaged is skipped for the one before it, and said so.
func (r Run) Restore(ctx context.Context, dir string, o RestoreOptions) (Restored, error) {
	list, notes, err := r.Snapshots(ctx)
	if err != nil {
		return Restored{}, fmt.Errorf("restore %s: %w", dir, err)
	}
	done := Restored{Notes: notes, Newest: Newest(list)}
	if rolled := r.RolledBack(list); rolled != nil {
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
			done.Skipped = append(done.Skipped, Skipped{s, "files changed while they were read"})
			continue
		}
		m, err := r.restore(ctx, to, s, o)
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) {
			done.Skipped = append(done.Skipped, Skipped{s, err.Error()})
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

// target is the folder that is restored to. It is reached by open directories alone, so that
// another user who owns one of them can plant no link through which something else is written.
type target struct {
	// in is the directory that the folder is in, or the folder itself if another file system is
	// mounted on it; name is the folder there, empty for a mounted one.
	in   *os.Root
	name string
	// exists says that the folder is there, with the mode.
	exists bool
	mode   fs.FileMode
}

func (t target) close() { _ = t.in.Close() } // everything is synced by then

// openTarget opens and checks the folder to restore to.
func openTarget(dir string, replace bool) (target, error) {
	in, name, err := trust.Parent(dir, 0o777)
	if err != nil {
		return target{}, err
	}
	t := target{in: in, name: name}
	if t, err = t.check(replace); err != nil {
		return target{}, errors.Join(err, in.Close())
	}
	return t, nil
}

func (t target) check(replace bool) (target, error) {
	info, err := t.in.Lstat(t.name)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	if !info.IsDir() {
		return t, fmt.Errorf("it is no folder")
	}
	above, err := t.in.Stat(".")
	if err != nil {
		return t, err
	}
	folder, err := trust.OpenIn(t.in, t.name)
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
	return target{in: folder}, t.in.Close()
}

// manifestOf reads the manifest of a snapshot, or of a rank of it.
func (r Run) manifestOf(ctx context.Context, s Snapshot, rank int) (Manifest, error) {
	m, err := r.manifest(ctx, s)
	if err != nil || len(m.Nodes) == 0 {
		return m, err
	}
	if rank < 0 || rank >= len(m.Nodes) {
		return m, fmt.Errorf("snapshot %d is of ranks 0 to %d, not %d", s.Seq, len(m.Nodes)-1, rank)
	}
	return r.ReadManifest(ctx, m.Nodes[rank].Manifest)
}

func (r Run) restore(ctx context.Context, to target, s Snapshot, o RestoreOptions) (Manifest, error) {
	m, err := r.manifestOf(ctx, s, o.Rank)
	if err != nil {
		return m, err
	}
	stage := staging + strings.ToLower(rand.Text())
	if err := to.in.Mkdir(stage, 0o700); err != nil {
		return m, err
	}
	defer func() { _ = to.in.RemoveAll(stage) }() // nothing is left of it once it is in place
	root, err := trust.OpenIn(to.in, stage)
	if err != nil {
		return m, err
	}
	defer func() { _ = root.Close() }()
	if st, err := root.Stat("."); err != nil || st.Mode().Perm() != 0o700 || trust.Info(root.Name(), st) != nil {
		return m, fmt.Errorf("%s was replaced while it was made: %w", root.Name(), err)
	}
	if err := r.unfold(ctx, root, m, o); err != nil {
		return m, err
	}
	return m, to.place(root, stage)
}

// unfold writes a manifest's files into a root, verified.
func (r Run) unfold(ctx context.Context, root *os.Root, m Manifest, o RestoreOptions) error {
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
	return dress(root, m)
}

// dress gives what was written its links, modes and times, and makes it durable.
func dress(root *os.Root, m Manifest) error {
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
				err = errors.Join(f.Chmod(fs.FileMode(e.Mode)), f.Sync(), f.Close(), root.Chtimes(e.Path, e.Modified, e.Modified))
			}
		}
		if err != nil {
			return err
		}
	}
	for _, e := range slices.Backward(m.Entries) { // from the innermost, as each changes the times around it
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

// place puts what is verified where it belongs. On a mounted folder its entries are moved one
// by one; else the folder changes at once.
func (t target) place(root *os.Root, stage string) error {
	old := stage + "-old"
	defer func() { _ = t.in.RemoveAll(old) }() // empty where it was put back
	if t.name == "" {
		if err := t.in.Mkdir(old, 0o700); err != nil {
			return err
		}
		if err := moveAll(t.in, ".", old, stage, old); err != nil {
			return errors.Join(err, moveAll(t.in, old, "."))
		}
		return errors.Join(moveAll(t.in, stage, "."), syncFolder(t.in))
	}
	mode := fs.FileMode(0o755)
	if t.exists {
		mode = t.mode
		if err := t.in.Rename(t.name, old); err != nil {
			return err
		}
	}
	if err := errors.Join(root.Chmod(".", mode), t.in.Rename(stage, t.name)); err != nil {
		if t.exists {
			err = errors.Join(err, t.in.Rename(old, t.name))
		}
		return err
	}
	return syncFolder(t.in)
}

// moveAll moves what is in a folder of a root into another, but for some names.
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

// eachPart reads and verifies the parts of a manifest, several at a time.
func (r Run) eachPart(ctx context.Context, m Manifest, workers int,
	each func(part int, data []byte, d *decoder) error) error {
	all := make([]int, len(m.Parts))
	for i := range all {
		all[i] = i
	}
	return r.eachWhole(ctx, m, all, workers, func(part int, data []byte, d *decoder, err error) error {
		if err != nil {
			return err
		}
		return each(part, data, d)
	})
}

// eachWhole reads some parts of a manifest, several at a time, and hands each over with what
// is wrong with it.
func (r Run) eachWhole(ctx context.Context, m Manifest, parts []int, workers int,
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
	err = again(func() error {
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
