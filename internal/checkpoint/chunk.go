package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers the method
	"github.com/klauspost/compress/zstd"
)

// The bounds of chunks in bytes: docs/decisions/0010-chunks-and-parts.md has what they
// were measured against. They decide what is found again, never what is right.
const (
	chunkMin    = 64 << 10
	chunkNormal = 256 << 10
	chunkMax    = 1 << 20
)

// splitter cuts content into chunks where the content says so, so that what was inserted
// moves no later cut.
type splitter struct{ c *chunkers.Chunker }

func newSplitter() (*splitter, error) {
	c, err := chunkers.NewChunker("fastcdc", nil, &chunkers.ChunkerOpts{
		MinSize: chunkMin, NormalSize: chunkNormal, MaxSize: chunkMax,
	})
	if err != nil {
		return nil, fmt.Errorf("set up chunks: %w", err)
	}
	return &splitter{c}, nil
}

// split calls each with every chunk of what is read. The chunk is only valid until each
// returns.
func (s *splitter) split(r io.Reader, each func([]byte) error) error {
	s.c.Reset(r)
	for {
		chunk, err := s.c.Next()
		if len(chunk) > 0 {
			if err := each(chunk); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pays is how large a compressed chunk may be, in 64ths of its content.
const pays = 60

// sample is how many bytes of a chunk are tried first.
const sample = 16 << 10

// pack compresses a chunk where it pays, into buf. It returns nil where it does not.
func pack(z *zstd.Encoder, chunk, buf []byte) []byte {
	if len(chunk) > 4*sample {
		middle := chunk[len(chunk)/2:][:sample]
		if tried := z.EncodeAll(middle, buf[:0]); len(tried)*64 > len(middle)*pays {
			return nil
		}
	}
	if packed := z.EncodeAll(chunk, buf[:0]); len(packed)*64 <= len(chunk)*pays {
		return packed
	}
	return nil
}

func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(chunkMax))
}

func newDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(chunkMax),
		zstd.WithDecoderMaxWindow(chunkMax), zstd.WithDecodeAllCapLimit(true))
}

// unpack returns the content of a chunk of a part, verified, in buf where it needs one.
func unpack(z *zstd.Decoder, c *Chunk, part, buf []byte) ([]byte, error) {
	stored := part[c.Offset : c.Offset+c.Stored]
	content := stored
	if c.Zstd {
		var err error
		if content, err = z.DecodeAll(stored, buf[:0:min(int64(cap(buf)), c.Size)]); err != nil {
			return nil, fmt.Errorf("chunk %s: %w: %w", c.SHA256, err, ErrDamaged)
		}
	}
	if sum := sha256.Sum256(content); int64(len(content)) != c.Size || hex.EncodeToString(sum[:]) != c.SHA256 {
		return nil, fmt.Errorf("chunk %s does not fit its SHA-256: %w", c.SHA256, ErrDamaged)
	}
	return content, nil
}

// decoder takes chunks out of parts; each worker has one.
type decoder struct {
	z   *zstd.Decoder
	buf []byte
}

// chunk returns a chunk's content, valid until the next.
func (d *decoder) chunk(c *Chunk, part []byte) ([]byte, error) { return unpack(d.z, c, part, d.buf) }
