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

// Read hands every sample of recorded usage to each, in the order of the file. It
// reads CSV, CSV compressed with gzip, the output of nvidia-smi --format=csv and
// Parquet, told apart by their first bytes and their header. r is read from its
// beginning; Parquet is read through io.ReaderAt where r is a regular file, a
// bytes.Reader or the like, and is otherwise held in memory, up to 256 MiB.
//
// CSV is streamed: memory grows with the number of resources, not with the file. Lines
// are at most 256 KiB, columns 4,096, different names a million, and gzip unpacks to at
// most 200 times its length.
// The *Sample is reused and valid only within the call.
//
// An empty field is not measured, and so are "[N/A]", "NaN" and the sentinels of
// unsupported meters (see [Signal.Check] and [Meter.Read]). A row that repeats the resource,
// GPU and time of the row before it counts once. Times of a resource need not be in order.
//
// A row that cannot be read is left out, and so is a value that cannot be true; both are
// counted, and the first are told with their lines. A last line that ends in the middle is left
// out of any file. Where more than 1% of the rows are wrong, and more than one of at least ten,
// the file is refused after it was read: its samples must not be used then.
//
// What is wrong with the file is a *FileError with the line; an error of each, or
// of ctx, ends the reading too. The summary covers what was read until then.
func Read(ctx context.Context, r io.Reader, f Format, each func(*Sample) error) (Summary, error) {
	d := newDecoder(ctx, f, nil, each)
	err := read(d, r)
	sum := d.finish()
	if err == nil && f.Left != nil {
		f.Left(sum)
	}
	return sum, err
}

func read(d *decoder, r io.Reader) error {
	if at, size, ok := random(r); ok {
		var magic [4]byte
		if n, _ := at.ReadAt(magic[:], 0); isParquet(magic[:n]) {
			return readParquet(d, at, size)
		}
	}
	packed := &counted{Reader: r}
	in := bufio.NewReaderSize(packed, maxLine)
	magic, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		e := d.format.fail(0, 0, "the file cannot be read")
		e.Err = err
		return e
	}
	switch {
	case isParquet(magic):
		whole, err := io.ReadAll(io.LimitReader(in, maxHeld+1))
		if err != nil {
			e := d.format.fail(0, 0, "the file cannot be read")
			e.Err = err
			return e
		}
		if len(whole) > maxHeld {
			return d.format.fail(0, 0, "Parquet over %d MiB is read only from a file, not from a stream", maxHeld>>20)
		}
		return readParquet(d, bytes.NewReader(whole), int64(len(whole)))
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(in)
		if err != nil {
			e := d.format.fail(0, 0, "the file begins like gzip and is not")
			e.Err = err
			return e
		}
		inner := bufio.NewReaderSize(&unpacked{plain: plain, packed: packed, format: d.format}, maxLine)
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

// maxHeld is the largest Parquet stream that is held in memory, in bytes.
const maxHeld = 256 << 20

func isParquet(magic []byte) bool { return string(magic) == "PAR1" }

// random returns r as a source of random reads with its size, where it is one.
func random(r io.Reader) (io.ReaderAt, int64, bool) {
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
	d.each = func(*Sample) error {
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

// Preview returns what the first rows of a file tell: the columns that Read leaves out, and
// whether times have no zone. It reads as far as the second sample; of a file that is wrong,
// Read tells.
func Preview(ctx context.Context, r io.Reader, f Format) Summary {
	enough := errors.New("enough")
	f.Left = nil
	sum, _ := Read(ctx, r, f, func(*Sample) error { return enough })
	return sum
}

// Collect reads recorded usage. resolve is asked once for each resource, and returns
// where its points go, or nil for a resource of no interest.
//
// A signal of the whole machine that stands in the rows of several GPUs is taken
// from the rows of the GPU that carried it first, so that it counts once.
func Collect(ctx context.Context, r io.Reader, f Format, resolve func(resource string) Sink) (Summary, error) {
	type target struct {
		sink Sink
		// from is the GPU in whose rows a signal of the machine is read.
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
