package usage

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/bits"
	"time"
)

// Read calls each for every sample of recorded usage, in the order of the file. It reads CSV, CSV
// compressed with gzip, the output of nvidia-smi --format=csv, and Parquet, recognized by their
// first bytes and their header. Parquet is read through io.ReaderAt if r is a regular file, a
// bytes.Reader or the like, and is otherwise buffered in memory, up to 256 MiB.
//
// CSV is streamed: memory grows with the number of resources, not with the file. Lines are at most
// 256 KiB, columns 4,096, different names a million, and gzip unpacks to at most 200 times its
// length. The *Sample is reused and valid only within the call.
//
// An empty field is not measured, and so are "[N/A]", "NaN" and the sentinels of unsupported meters
// (see [Signal.Check] and [Metric.Read]). A row that repeats the resource, GPU and time of the
// previous row counts once. Times of a resource need not be in order.
//
// Bad rows and impossible values are skipped and counted, and the first are reported with their
// lines. A truncated last line is skipped in any file. If more than 1% of the rows are bad, and
// more than one of at least ten, Read returns an error after reading: the samples must not be used
// then.
//
// An error of the file is a *FileError with the line; an error of each, or of ctx, stops reading.
// The summary covers the rows read until then.
func Read(ctx context.Context, r io.Reader, f Format, each func(*Sample) error) (Summary, error) {
	d := newDecoder(ctx, f, nil, each)
	err := read(d, r)
	sum := d.finish()
	if err == nil && f.OnSummary != nil {
		f.OnSummary(sum)
	}
	return sum, err
}

func read(d *decoder, r io.Reader) error {
	if at, size, ok := readerAt(r); ok {
		var magic [4]byte
		if n, _ := at.ReadAt(magic[:], 0); isParquet(magic[:n]) {
			return readParquet(d, at, size)
		}
	}
	packed := &countingReader{Reader: r}
	in := bufio.NewReaderSize(packed, maxLine)
	magic, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		e := d.format.fail(0, 0, "the file cannot be read")
		e.Err = err
		return e
	}
	switch {
	case isParquet(magic):
		whole, err := io.ReadAll(io.LimitReader(in, maxBufferedParquet+1))
		if err != nil {
			e := d.format.fail(0, 0, "the file cannot be read")
			e.Err = err
			return e
		}
		if len(whole) > maxBufferedParquet {
			return d.format.fail(0, 0,
				"Parquet over %d MiB is read only from a file, not from a stream", maxBufferedParquet>>20)
		}
		return readParquet(d, bytes.NewReader(whole), int64(len(whole)))
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(in)
		if err != nil {
			e := d.format.fail(0, 0, "the file begins like gzip and is not")
			e.Err = err
			return e
		}
		inner := bufio.NewReaderSize(&boundedGzip{plain: plain, packed: packed, format: d.format}, maxLine)
		if magic, _ := inner.Peek(4); isParquet(magic) {
			return d.format.fail(0, 0, "Parquet is read only without gzip around it")
		}
		return readCSV(d, inner)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}), bytes.HasPrefix(magic,
		[]byte("BZh")), bytes.HasPrefix(
		magic, []byte{0xfd, '7', 'z'}),
		bytes.HasPrefix(magic, []byte("PK\x03\x04")):
		return d.format.fail(0, 0, "of the compressed formats only gzip is read")
	}
	return readCSV(d, in)
}

// maxBufferedParquet is the largest Parquet stream that is buffered in memory, in bytes.
const maxBufferedParquet = 256 << 20

func isParquet(magic []byte) bool { return string(magic) == "PAR1" }

// readerAt returns r as an io.ReaderAt with its size, if it is one.
func readerAt(r io.Reader) (io.ReaderAt, int64, bool) {
	at, ok := r.(io.ReaderAt)
	if !ok {
		return nil, 0, false
	}
	switch s := r.(type) {
	case interface{ Size() int64 }:
		return at, s.Size(), true
	case interface{ Stat() (fs.FileInfo, error) }:
		info, err := s.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return nil, 0, false
		}
		return at, info.Size(), true
	}
	return nil, 0, false
}

// InferStep returns the sampling step of recorded usage: the median time between
// neighboring samples of one meter in the first few thousand of them. It returns
// ErrNoSamples when no meter has two.
func InferStep(ctx context.Context, r io.Reader, f Format) (time.Duration, error) {
	d := newDecoder(ctx, f, nil, nil)
	enough := errors.New("enough")
	d.emit = func(*Sample) error {
		if len(d.steps.steps) >= maxSteps {
			return enough
		}
		return nil
	}
	if err := read(d, r); err != nil && !errors.Is(err, enough) {
		return 0, err
	}
	if step := d.steps.median(); step > 0 {
		return step, nil
	}
	return 0, ErrNoSamples
}

// Preview reports what the first rows of a file reveal: ignored columns, and whether times lack a
// zone. It reads up to the second sample, and leaves errors to Read.
func Preview(ctx context.Context, r io.Reader, f Format) Summary {
	enough := errors.New("enough")
	f.OnSummary = nil
	sum, _ := Read(ctx, r, f, func(*Sample) error { return enough })
	return sum
}

// Collect adds recorded usage to sinks. It calls resolve once for each resource; a nil sink ignores
// the resource.
//
// If the rows of several GPUs repeat a signal of the whole machine, only those of the first GPU are
// used.
func Collect(ctx context.Context, r io.Reader, f Format, resolve func(resource string) Sink) (Summary, error) {
	type target struct {
		sink Sink
		// from is the GPU whose rows supply a signal of the machine.
		from [numSignals]string
		has  uint32
	}
	targets := map[string]*target{}
	last, current := "", (*target)(nil)
	return Read(ctx, r, f, func(s *Sample) error {
		if current == nil || s.Resource != last {
			t, ok := targets[s.Resource]
			if !ok {
				t = &target{sink: resolve(s.Resource)}
				targets[s.Resource] = t
			}
			last, current = s.Resource, t
		}
		w := current.sink
		if w == nil {
			return nil
		}
		for left := s.has; left != 0; left &= left - 1 {
			sig := Signal(bits.TrailingZeros32(left))
			if !sig.PerGPU() {
				if current.has&(1<<sig) == 0 {
					current.from[sig] = s.GPU
					current.has |= 1 << sig
				} else if current.from[sig] != s.GPU {
					continue
				}
			}
			v := s.values[sig]
			w.Add(s.GPU, sig, Point{Time: s.Time, Mean: v, Max: v})
		}
		return nil
	})
}
