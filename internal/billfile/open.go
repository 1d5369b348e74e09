// Package billfile reads bills as they lie in files, folders and buckets: exports of
// FOCUS 1.0 to 1.3 and of the AWS Cost and Usage Report, 2.0 and legacy, in CSV, gzipped
// CSV and Parquet, with the manifests and partitions of AWS Data Exports and the runs of
// exports that write each into a new folder.
//
// Files are streamed, several at a time, and what they hold is known by content, not by
// name. A mistake anywhere is an error with file and row, and then nothing is imported.
package billfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// Bucket is an object store, as far as reading bills needs it.
type Bucket interface {
	// List calls each with the key and the size of every object under a prefix, in the
	// order of keys. An error of each ends it and is returned.
	List(ctx context.Context, prefix string, each func(key string, size int64) error) error
	// Open returns an object's content.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
}

// Options configure how a bill is read.
type Options struct {
	// Mapping maps tags to owners.
	Mapping inventory.TagMapping
	// MaxRows bounds the distinct rows that are held; 0 is bill.DefaultMaxRows.
	MaxRows int
	// ZeroPurchases is that of bill.Options.
	ZeroPurchases bool
	// Workers is how many files, or row groups of Parquet, are read at a time; 0: one for each
	// processor, four at most.
	Workers int
	// Bucket returns the bucket of that name, for "s3://" paths. Nil: there is none.
	Bucket func(ctx context.Context, name string) (Bucket, error)
	// TempDir is where Parquet objects of a bucket are kept while they are read; empty:
	// the system's own.
	TempDir string
}

// Export is a bill that was found: its files, and those left aside.
type Export struct {
	// Source is the normalized path; imports of the same source replace one another.
	Source string
	// Files that will be read, by their full names.
	Files []string
	// Notes name the parts left aside and the reasons, a sentence each.
	Notes []string

	options Options
	store   store
	parts   []part
	starts  []time.Time // of partitions with a manifest
}

// part is a file to read.
type part struct {
	name string
	size int64
	// start of the billing period of the partition that holds it; zero: in none.
	start time.Time
	// delivery is shared by files that one manifest lists; empty for none lists it.
	delivery string
}

// store is where files lie: a folder or a bucket.
type store interface {
	// list returns everything under the path that was asked for, by name.
	list(ctx context.Context) ([]part, error)
	open(ctx context.Context, name string) (io.ReadCloser, error)
}

// Open finds the files of a bill: a file, a folder with all that is under it, or
// "s3://bucket/prefix". Where files lie in partitions of AWS Data Exports
// (data/BILLING_PERIOD=YYYY-MM/), only partitions with a manifest are taken, because the
// manifest is written after all data. Of an export that writes each run into a new folder,
// the newest run counts. Hidden files, files that are neither CSV nor
// Parquet by their names, and links that lead out of the folder are left aside.
func Open(ctx context.Context, at string, o Options) (*Export, error) {
	e := &Export{options: o}
	single := false
	if rest, ok := strings.CutPrefix(at, "s3://"); ok {
		name, prefix, _ := strings.Cut(rest, "/")
		if name == "" {
			return nil, &Error{File: at, Reason: "a bucket is expected, as in s3://bucket/prefix"}
		}
		if o.Bucket == nil {
			return nil, fmt.Errorf("open %s: buckets cannot be read here; give a file or a folder", at)
		}
		b, err := o.Bucket(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", at, err)
		}
		e.Source = strings.TrimRight(at, "/")
		e.store = &bucket{Bucket: b, base: "s3://" + name + "/", prefix: prefix}
	} else {
		info, err := os.Stat(at)
		if err != nil {
			return nil, fmt.Errorf("open the bill: %w", err)
		}
		e.Source = filepath.Clean(at)
		if single = !info.IsDir(); single {
			e.store = lone(e.Source)
		} else {
			e.store = folder{e.Source, func(name string) {
				if isBill(filepath.Base(name)) {
					e.Notes = append(e.Notes,
						name+" left aside: it is a link that leads out of the folder, or nowhere")
				}
			}}
		}
	}
	found, err := e.store.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", at, err)
	}
	if single || (len(found) == 1 && found[0].name == e.Source) {
		e.parts = found
	} else if err := e.choose(ctx, found); err != nil {
		return nil, err
	}
	if len(e.parts) == 0 && len(e.starts) == 0 {
		return nil, &Error{
			File: at, Reason: "there is no bill in it: neither .csv, .csv.gz nor .parquet" + because(e.Notes),
		}
	}
	for _, p := range e.parts {
		e.Files = append(e.Files, p.name)
	}
	return e, nil
}

func because(notes []string) string {
	if len(notes) == 0 {
		return ""
	}
	return " (" + strings.Join(notes, "; ") + ")"
}

// choose takes the bills among the files of a folder.
func (e *Export) choose(ctx context.Context, found []part) error {
	var loose []part
	partitions := map[string]*partition{}
	for _, p := range found {
		dir, file := path.Split(filepath.ToSlash(p.name))
		switch kind, key, start := place(dir); {
		case kind == inMetadata && strings.HasSuffix(strings.ToLower(file), "manifest.json"):
			at := at(partitions, key, start)
			at.manifests = append(at.manifests, p)
		case kind == inMetadata:
		case kind == inData && isBill(file):
			p.start = start
			at := at(partitions, key, start)
			at.parts = append(at.parts, p)
		default:
			loose = append(loose, p)
		}
	}
	loose, months := sortDeliveries(loose)
	if len(partitions)+len(months) == 0 {
		e.parts = loose
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(months)) {
		if err := e.takeMonth(ctx, key, months[key], &loose); err != nil {
			return err
		}
	}
	if len(loose) > 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("%s outside the export's partitions left out: %s", files(len(loose)),
			loose[0].name))
	}
	for _, key := range sorted(partitions) {
		if err := e.take(ctx, partitions[key]); err != nil {
			return err
		}
	}
	return nil
}

// isBill reports whether a file may hold a part of a bill, by its name.
func isBill(file string) bool {
	lower := strings.ToLower(file)
	if strings.HasPrefix(file, ".") || strings.HasPrefix(file, "_") {
		return false
	}
	return slices.ContainsFunc([]string{".csv", ".csv.gz", ".parquet"}, func(end string) bool {
		return strings.HasSuffix(lower, end)
	})
}

// lone is a file that was named.
type lone string

func (f lone) list(context.Context) ([]part, error) {
	info, err := os.Stat(string(f))
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	return []part{{name: string(f), size: info.Size()}}, nil
}

func (f lone) open(_ context.Context, name string) (io.ReadCloser, error) { return os.Open(name) }

// folder is a folder of the file system. What links lead out of it to is no part of it.
type folder struct {
	dir string
	// aside is called with each link that leads out of the folder, or nowhere.
	aside func(name string)
}

func (f folder) list(ctx context.Context) ([]part, error) {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, err
	}
	defer closed(root)
	var found []part
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return ctx.Err()
		}
		at := filepath.Join(f.dir, filepath.FromSlash(name))
		info, err := root.Stat(name) // the target of a link
		switch {
		case err != nil && d.Type()&fs.ModeSymlink != 0:
			f.aside(at)
		case err != nil:
			return err
		case info.Mode().IsRegular():
			found = append(found, part{name: at, size: info.Size()})
		}
		return nil
	})
	return found, err
}

func (f folder) open(_ context.Context, name string) (io.ReadCloser, error) {
	rest, err := filepath.Rel(f.dir, name)
	if err != nil {
		return nil, err
	}
	return os.OpenInRoot(f.dir, rest)
}

// bucket holds the objects under a prefix of a bucket; names are "s3://bucket/key".
type bucket struct {
	Bucket
	base, prefix string
}

func (b *bucket) list(ctx context.Context) ([]part, error) {
	var found []part
	err := b.List(ctx, b.prefix, func(key string, size int64) error {
		// "prefix" does not hold "prefix-2/…".
		if rest := strings.TrimPrefix(key, strings.TrimRight(b.prefix, "/")); b.prefix == "" || rest == "" ||
			rest[0] == '/' {
			found = append(found, part{name: b.base + key, size: size})
		}
		return nil
	})
	return found, err
}

func (b *bucket) open(ctx context.Context, name string) (io.ReadCloser, error) {
	return b.Open(ctx, strings.TrimPrefix(name, b.base))
}

// maxWorkers bounds how many parts are read at a time unless told otherwise: each holds
// rows of its own until they are merged.
const maxWorkers = 4

// workers is how many parts are read at a time.
func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return min(runtime.GOMAXPROCS(0), maxWorkers)
}

// Read reads all files and adds them up. On an error there is no bill.
func (e *Export) Read(ctx context.Context) (*bill.Bill, error) {
	r := &reading{
		export: e, all: bill.NewAggregate(bill.Options{
			Source: e.Source, Mapping: e.options.Mapping, MaxRows: e.options.MaxRows,
			ZeroPurchases: e.options.ZeroPurchases})}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	b, err := r.all.Settle(e.starts...)
	if err != nil {
		return nil, &Error{File: e.Source, Err: err}
	}
	if r.seen == nil && len(e.starts) == 0 {
		return nil, &Error{File: e.Source, Reason: "there is no header of a bill in it"}
	}
	r.describe(b)
	if b.Lines == 0 {
		b.Notes = append(b.Notes, "there is no row in it, which says nothing of any cost")
	}
	return b, nil
}

// files returns "1 file", "2 files".
func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

var errStopped = errors.New("another file could not be read")
