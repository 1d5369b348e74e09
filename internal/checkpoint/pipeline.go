package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/klauspost/compress/zstd"
)

// stored is a part, which is named once it is stored.
type stored struct {
	Part
	done bool
}

// pipeline takes files apart, hashes and compresses their chunks, and stores the parts. One
// goroutine reads, several hash and compress, one fills parts in the order that was read,
// several store them. Every buffer comes from a fixed set, so the memory is bounded.
type pipeline struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	a      *Attempt
	split  *splitter

	// free are the jobs that carry no chunk, jobs those to be hashed, ordered all in order.
	free, jobs, ordered chan *job
	// buffers are for parts.
	buffers chan []byte
	// index guards the attempt's.
	index   sync.RWMutex
	workers sync.WaitGroup
	packed  chan struct{}
	uploads sync.WaitGroup

	open       *stored
	buf        []byte
	read, sent atomic.Int64
}

// job is a chunk on its way.
type job struct {
	of *content
	// buf and out are whole buffers; chunk is in buf, packed in out or nil.
	buf, out      []byte
	chunk, packed []byte
	sum           [32]byte
	ready         chan struct{}
}

func newPipeline(ctx context.Context, a *Attempt, workers, uploads int) (*pipeline, error) {
	split, err := newSplitter()
	if err != nil {
		return nil, err
	}
	count := 2*workers + 2
	p := &pipeline{
		a: a, split: split, free: make(chan *job, count), jobs: make(chan *job, count), ordered: make(chan *job, count),
		buffers: make(chan []byte, uploads+1), packed: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	for range count {
		p.free <- &job{ready: make(chan struct{}, 1)}
	}
	for range uploads + 1 {
		p.buffers <- nil
	}
	for range workers {
		z, err := newEncoder()
		if err != nil {
			return nil, fmt.Errorf("set up compression: %w", err)
		}
		p.workers.Go(func() { p.work(z) })
	}
	go p.fillParts()
	return p, nil
}

// file reads a file of the size that it was seen with into chunks of c.
func (p *pipeline) file(ctx context.Context, at string, size int64, c *content, progress func()) error {
	// What was a file when it was listed may be a link or a pipe by now.
	f, err := os.OpenFile(at, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	err = p.split.split(io.LimitReader(f, size), func(chunk []byte) error {
		var j *job
		select {
		case j = <-p.free:
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
		if j.buf == nil {
			j.buf = make([]byte, chunkMax)
		}
		j.of, j.chunk, j.packed = c, j.buf[:copy(j.buf, chunk)], nil
		p.jobs <- j
		p.ordered <- j
		c.size += int64(len(chunk))
		p.read.Add(int64(len(chunk)))
		progress()
		return nil
	})
	c.whole = err == nil && c.size == size
	return err
}

func (p *pipeline) work(z *zstd.Encoder) {
	for j := range p.jobs {
		j.sum = sha256.Sum256(j.chunk)
		p.index.RLock()
		_, known := p.a.index[j.sum]
		p.index.RUnlock()
		if !known {
			if j.packed = pack(z, j.chunk, j.out); j.packed != nil {
				j.out = j.packed
			}
		}
		j.ready <- struct{}{}
	}
}

// fillParts puts chunks into parts in the order in which they were read.
func (p *pipeline) fillParts() {
	defer close(p.packed)
	for j := range p.ordered {
		<-j.ready
		if p.ctx.Err() == nil {
			p.put(j)
		}
		p.free <- j
	}
	if p.ctx.Err() == nil {
		p.flush()
	}
}

func (p *pipeline) put(j *job) {
	p.index.RLock()
	at, known := p.a.index[j.sum]
	p.index.RUnlock()
	if !known {
		if p.open == nil {
			select {
			case p.buf = <-p.buffers:
			case <-p.ctx.Done():
				return
			}
			if p.buf == nil {
				p.buf = make([]byte, 0, MaxPart)
			}
			p.buf, p.open = p.buf[:0], &stored{}
		}
		data := j.chunk
		if j.packed != nil {
			data = j.packed
		}
		at = place{
			p.open,
			Chunk{
				SHA256: hex.EncodeToString(j.sum[:]), Size: int64(len(j.chunk)), Offset: int64(len(p.buf)),
				Stored: int64(len(data)), Zstd: j.packed != nil,
			},
		}
		p.buf = append(p.buf, data...)
		p.index.Lock()
		p.a.index[j.sum] = at
		p.index.Unlock()
	}
	j.of.chunks = append(j.of.chunks, at)
	if len(p.buf) >= PartSize {
		p.flush()
	}
}

// flush stores the open part.
func (p *pipeline) flush() {
	if p.open == nil {
		return
	}
	part, buf := p.open, p.buf
	p.open, p.buf = nil, nil
	p.uploads.Go(func() {
		defer func() { p.buffers <- buf }()
		part.Size, part.SHA256, part.CRC32C = int64(len(buf)), hash(buf), crc(buf)
		part.Key = partKey(p.a.head.Attempt, part.SHA256)
		// The key is of this attempt alone and says the content: what is there is this part.
		if err := p.a.run.Store.Create(p.ctx, part.Key, buf); err != nil && !errors.Is(err, ErrExists) {
			p.cancel(fmt.Errorf("store %s: %w", part.Key, err))
			return
		}
		part.done = true
		p.sent.Add(part.Size)
	})
}

// stop ends the pipeline, once everything that was read is stored or something failed. What
// was not stored is not found again.
func (p *pipeline) stop() error {
	close(p.jobs)
	close(p.ordered)
	p.workers.Wait()
	<-p.packed
	p.uploads.Wait()
	err := context.Cause(p.ctx)
	if err != nil {
		for sum, at := range p.a.index {
			if !at.part.done {
				delete(p.a.index, sum)
			}
		}
	}
	p.cancel(nil)
	return err
}

// wornOut is the share of a part that has to be in use for its chunks to be used again, in
// percent. The chunks of other parts are stored again, so that the old part can go.
const wornOut = 50

// hold makes a manifest the newest, and finds its chunks again from now on.
func (a *Attempt) hold(m *Manifest, parts []*stored) {
	a.newest, a.parts, a.index = m, parts, map[[32]byte]place{}
	used := make([]int64, len(parts))
	seen := map[string]bool{}
	for _, e := range m.Entries {
		for _, c := range e.Chunks {
			if !seen[c.SHA256] {
				seen[c.SHA256] = true
				used[c.Part] += c.Stored
			}
		}
	}
	for _, e := range m.Entries {
		for _, c := range e.Chunks {
			var sum [32]byte
			if n, err := hex.Decode(sum[:], []byte(c.SHA256)); err != nil || n != len(sum) ||
				used[c.Part]*100 < parts[c.Part].Size*wornOut {
				continue
			}
			a.index[sum] = a.held(c)
		}
	}
}

// held returns the place of a chunk of the newest manifest.
func (a *Attempt) held(c Chunk) place { return place{a.parts[c.Part], c} }

// storedParts are the parts of a manifest that was read.
func (m *Manifest) storedParts() []*stored {
	parts := make([]*stored, len(m.Parts))
	for i, p := range m.Parts {
		parts[i] = &stored{p, true}
	}
	return parts
}
