package billfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"hash/maphash"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
)

// reading is one pass over the files of an export.
type reading struct {
	export *Export
	all    *bill.Aggregate

	mu      sync.Mutex
	seen    *layout // of the first file with a header
	version string  // the newest
	missing []string
	notes   []string
	same    map[string]string // files by the digest of their contents
	sizes   map[int64]int     // how many files have a size
	first   int               // the place of the earliest file with an error
	err     error
	// prints are the fingerprints of files by their places, where more than one delivery is
	// read; nil otherwise.
	prints map[int]*bill.Fingerprints
	seed   maphash.Seed
}

// job is a part of the work: a file, or a row group of one.
type job struct {
	at   int // place of the file
	part part
	run  func(into *sink) error
	done func()
}

// run reads all parts, several at a time, and merges their aggregates.
func (r *reading) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan job)
	sinks := make([]*sink, r.export.options.workers())
	var wait sync.WaitGroup
	for i := range sinks {
		sinks[i] = &sink{reading: r, ctx: ctx, into: r.all.Fork()}
		sinks[i].emit = sinks[i].add
		wait.Go(func() {
			for j := range jobs {
				err := context.Cause(ctx)
				if err == nil {
					sinks[i].part = j.part
					sinks[i].prints = sinks[i].printsOf(j.at)
					err = j.run(sinks[i])
				}
				j.done()
				if err != nil {
					r.fail(j.at, err)
					cancel(errStopped)
				}
			}
		})
	}
	r.sizes = map[int64]int{}
	if r.several() {
		r.prints, r.seed = map[int]*bill.Fingerprints{}, maphash.MakeSeed()
	}
	for _, p := range r.export.parts {
		r.sizes[p.size]++
	}
	for i, p := range r.export.parts {
		if ctx.Err() != nil {
			break
		}
		if err := r.offer(ctx, i, p, jobs); err != nil {
			r.fail(i, err)
			cancel(errStopped)
		}
	}
	close(jobs)
	wait.Wait()
	if r.err != nil {
		return r.err
	}
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("read %s: %w", r.export.Source, err)
	}
	for _, s := range sinks {
		r.mergePrints(s.printed)
		if err := r.all.Merge(s.into); err != nil {
			return fmt.Errorf("read %s: %w", r.export.Source, err)
		}
	}
	return r.repeated()
}

// fail keeps the error of the earliest file. That the reading was stopped is no error
// of a file.
func (r *reading) fail(at int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stopped := errors.Is(err, errStopped) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded)
	if stopped || (r.err != nil && at >= r.first) {
		return
	}
	r.first, r.err = at, err
}

// offer opens a file and sends its jobs.
func (r *reading) offer(ctx context.Context, at int, p part, jobs chan<- job) error {
	in, err := r.export.store.open(ctx, p.name)
	if err != nil {
		return fmt.Errorf("open %s: %w", p.name, err)
	}
	buffered := bufio.NewReaderSize(in, 1<<20)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		closed(in)
		return &Error{File: p.name, Reason: "the file cannot be read", Err: err}
	}
	if !bytes.Equal(magic, []byte("PAR1")) {
		jobs <- job{at: at, part: p, run: func(s *sink) error {
			return s.csv(buffered, bytes.HasPrefix(magic, []byte{0x1f, 0x8b}))
		}, done: func() { closed(in) }}
		return nil
	}
	file, size, done, err := r.local(in, buffered, p)
	if err != nil {
		return err
	}
	if r.sizes[p.size] > 1 { // only then can two files of Parquet be the same
		digest := sha256.New()
		if _, err = io.Copy(digest, io.NewSectionReader(file, 0, size)); err != nil {
			err = &Error{File: p.name, Reason: "the file cannot be read", Err: err}
		} else {
			err = r.once(p.name, digest)
		}
		if err != nil {
			done()
			return err
		}
	}
	groups, err := openParquet(file, size, p)
	if err != nil {
		done()
		return err
	}
	var left atomic.Int64
	left.Store(int64(len(groups)))
	if len(groups) == 0 {
		done()
	}
	for _, g := range groups {
		jobs <- job{at: at, part: p, run: func(s *sink) error { return s.parquet(g) }, done: func() {
			if left.Add(-1) == 0 {
				done()
			}
		}}
	}
	return nil
}

// once notes the contents of a file, and refuses another file with the same.
func (r *reading) once(name string, digest hash.Hash) error {
	key := string(digest.Sum(nil))
	r.mu.Lock()
	defer r.mu.Unlock()
	other, twice := r.same[key]
	if !twice {
		if r.same == nil {
			r.same = map[string]string{}
		}
		r.same[key] = name
		return nil
	}
	return &Error{
		File: max(name, other),
		Reason: "it holds the same as " + min(name, other) +
			", and its costs would count twice: leave one of them out",
	}
}

// local returns a file that can be read at any place. What comes from a bucket is kept
// in a temporary file for as long.
func (r *reading) local(in io.ReadCloser, buffered io.Reader, p part) (io.ReaderAt, int64, func(), error) {
	if f, ok := in.(*os.File); ok {
		info, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, 0, nil, fmt.Errorf("read %s: %w", p.name, err)
		}
		return f, info.Size(), func() { f.Close() }, nil
	}
	defer closed(in)
	temp, err := os.CreateTemp(r.export.options.TempDir, "curfew-bill-*.parquet")
	if err != nil {
		return nil, 0, nil, fmt.Errorf("keep %s while it is read: %w", p.name, err)
	}
	drop := func() {
		temp.Close()
		_ = os.Remove(temp.Name()) // a file left in the temporary folder does no harm
	}
	size, err := io.Copy(temp, buffered)
	if err != nil {
		drop()
		return nil, 0, nil, &Error{File: p.name, Reason: "the file cannot be read", Err: err}
	}
	return temp, size, drop, nil
}

// closed closes a file that was only read: a failed close loses nothing.
func closed(c io.Closer) { _ = c.Close() }

// use notes the columns of a file.
func (r *reading) use(p part, l *layout) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = l
	}
	if r.seen.schema != l.schema {
		return &Error{
			File: p.name,
			Reason: fmt.Sprintf(
				"it is %s and other files are %s: import one kind of bill at a time, or costs count twice",
				l.version, r.seen.version),
		}
	}
	r.version = max(r.version, l.version)
	r.missing = append(r.missing, l.missing...)
	r.notes = append(r.notes, l.notes...)
	return nil
}

// note keeps the skipped parts of a file.
func (r *reading) note(of *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = slices.AppendSeq(r.notes, maps.Keys(of.notes))
}

// describe adds the properties of its files to a bill.
func (r *reading) describe(b *bill.Bill) {
	b.Schema = r.version
	slices.Sort(r.missing)
	b.Missing = slices.Compact(r.missing)
	slices.Sort(r.notes)
	b.Notes = slices.Concat(r.export.Notes, slices.Compact(r.notes), b.Notes)
}

// sink takes in the rows of files, one file after the other.
type sink struct {
	reading *reading
	ctx     context.Context // of the reading; a sink lives no longer
	into    *bill.Aggregate
	emit    func(*bill.Line) error // add, bound once
	part    part
	rows    int
	prints  *bill.Fingerprints         // of the file that is read; nil: not needed
	printed map[int]*bill.Fingerprints // by the places of files
}

// take adds a row. The error is without its place.
func (s *sink) take(r *record) error {
	if s.rows++; s.rows%4096 == 0 && s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	r.err = nil
	return r.layout.schema.lines(r, s.emit)
}

// add adds a line.
func (s *sink) add(l *bill.Line) error {
	if start := s.part.start; !start.IsZero() && !l.BillingPeriodStart.Equal(start) {
		return fmt.Errorf("its billing period starts on %s, and the file is in the partition of %s",
			l.BillingPeriodStart.Format(time.DateOnly), start.Format("2006-01"))
	}
	if s.prints != nil {
		s.prints.Add(l)
	}
	return s.into.Add(l)
}

// A file of gzip unpacks to freeUnpacked bytes, and beyond that to maxExpansion times its
// own length. Bills come to 30 times.
const (
	freeUnpacked = 64 << 20
	maxExpansion = 200
)

var errExpands = fmt.Errorf("it unpacks to over %d times its length", maxExpansion)

// unpacked returns the text of a file that may be gzipped, within the bounds above.
func unpacked(in io.Reader, gzipped bool) (io.Reader, error) {
	if !gzipped {
		return in, nil
	}
	packed := &counted{in: in}
	plain, err := gzip.NewReader(packed)
	return &inflated{counted: counted{in: plain}, packed: packed}, err
}

// counted counts the bytes that are read.
type counted struct {
	in io.Reader
	n  int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	return n, err
}

// inflated reads the decompressed bytes of a gzip file.
type inflated struct {
	counted
	packed *counted
}

func (f *inflated) Read(p []byte) (int, error) {
	if f.n > freeUnpacked && f.n > maxExpansion*f.packed.n {
		return 0, errExpands
	}
	return f.counted.Read(p)
}
