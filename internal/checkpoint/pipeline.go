package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/klauspost/compress/zstd"
)

// storedPart is a part with its key, set once it is stored.
type storedPart struct {
	Part
	done bool
}

// pipeline splits files into chunks, hashes and compresses them, and stores parts. One goroutine
// reads, several hash and compress, one fills parts in reading order, several store. All buffers
// come from a fixed pool, which bounds the memory.
type pipeline struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	a      *Attempt
	split  *splitter

	// free holds unused jobs, jobs those to be hashed, ordered all in reading order.
	free, jobs, ordered chan *job
	// buffers holds buffers for parts.
	buffers chan []byte
	// index guards the attempt's index.
	index   sync.RWMutex
	workers sync.WaitGroup
	packed  chan struct{}
	uploads sync.WaitGroup

	open       *storedPart
	buf        []byte
	read, sent atomic.Int64
}

// job is a chunk in the pipeline.
type job struct {
	of *fileContent
	// buf and out are whole buffers; chunk is inside buf, packed inside out or nil.
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
		a: a, split: split, free: make(chan *job, count), jobs: make(chan *job, count),
		ordered: make(chan *job, count),
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
		p.workers.Go(func() { p.hashChunks(z) })
	}
	go p.fillParts()
	return p, nil
}

// readFile reads a file of a known size into chunks.
func (p *pipeline) readFile(ctx context.Context, at string, size int64, c *fileContent, progress func()) error {
	// The file may have been replaced by a link or pipe since it was listed.
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
	c.complete = err == nil && c.size == size
	return err
}

func (p *pipeline) hashChunks(z *zstd.Encoder) {
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

// fillParts adds chunks to parts in reading order.
func (p *pipeline) fillParts() {
	defer close(p.packed)
	for j := range p.ordered {
		<-j.ready
		if p.ctx.Err() == nil {
			p.addToPart(j)
		}
		p.free <- j
	}
	if p.ctx.Err() == nil {
		p.storePart()
	}
}

func (p *pipeline) addToPart(j *job) {
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
			p.buf, p.open = p.buf[:0], &storedPart{}
		}
		data := j.chunk
		if j.packed != nil {
			data = j.packed
		}
		at = chunkLocation{
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
		p.storePart()
	}
}

// storePart stores the open part.
func (p *pipeline) storePart() {
	if p.open == nil {
		return
	}
	part, buf := p.open, p.buf
	p.open, p.buf = nil, nil
	p.uploads.Go(func() {
		defer func() { p.buffers <- buf }()
		part.Size, part.SHA256, part.CRC32C = int64(len(buf)), hash(buf), crc(buf)
		part.Key = partKey(p.a.head.Attempt, part.SHA256)
		if err := p.a.createPart(p.ctx, part.Part, buf); err != nil {
			p.cancel(fmt.Errorf("store %s: %w", part.Key, err))
			return
		}
		part.done = true
		p.sent.Add(part.Size)
	})
}

// finish waits until everything is stored or something failed. Chunks that were not stored are
// removed from the index.
func (p *pipeline) finish() error {
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

// minPartUse is the share of a part, in percent, that has to be in use for its chunks to be reused.
// Chunks of other parts are stored again, so that the old part can be deleted.
const minPartUse = 50

// setNewest makes a manifest the newest and its chunks reusable.
func (a *Attempt) setNewest(m *Manifest, key string, parts []*storedPart) {
	a.newest, a.newestKey, a.parts, a.index = m, key, parts, map[[32]byte]chunkLocation{}
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
			if sum, ok := c.sum(); ok && used[c.Part]*100 >= parts[c.Part].Size*minPartUse {
				a.index[sum] = a.newestChunk(c)
			}
		}
	}
}

// sum returns the SHA-256 of the content in binary.
func (c Chunk) sum() (sum [32]byte, ok bool) {
	n, err := hex.Decode(sum[:], []byte(c.SHA256))
	return sum, err == nil && n == len(sum)
}

// newestChunk returns the location of a chunk of the newest manifest.
func (a *Attempt) newestChunk(c Chunk) chunkLocation { return chunkLocation{a.parts[c.Part], c} }

// storedParts returns the parts of a manifest that was read.
func (m *Manifest) storedParts() []*storedPart {
	parts := make([]*storedPart, len(m.Parts))
	for i, p := range m.Parts {
		parts[i] = &storedPart{p, true}
	}
	return parts
}
