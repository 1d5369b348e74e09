package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers the algorithm
	"github.com/klauspost/compress/zstd"
)

// Chunk size limits in bytes, measured in docs/decisions/0010-chunks-and-parts.md. They affect
// deduplication only, not correctness.
const (
	chunkMin    = 64 << 10
	chunkNormal = 256 << 10
	chunkMax    = 1 << 20
)

// splitter cuts content at content-defined boundaries, so that an insertion does not move later
// cuts.
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

// split calls each with every chunk of r. A chunk is valid only until each returns.
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

// maxPackedRatio is the largest worthwhile size of a compressed chunk, in 64ths of its content.
const maxPackedRatio = 60

// probeSize is the number of bytes compressed first to estimate compressibility.
const probeSize = 16 << 10

// pack compresses a chunk into buf. It returns nil if compression does not pay.
func pack(z *zstd.Encoder, chunk, buf []byte) []byte {
	if len(chunk) > 4*probeSize {
		middle := chunk[len(chunk)/2:][:probeSize]
		if tried := z.EncodeAll(middle, buf[:0]); len(tried)*64 > len(middle)*maxPackedRatio {
			return nil
		}
	}
	if packed := z.EncodeAll(chunk, buf[:0]); len(packed)*64 <= len(chunk)*maxPackedRatio {
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

// unpack returns the verified content of a chunk, using buf where needed.
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

// decoder unpacks chunks; each worker has one.
type decoder struct {
	z   *zstd.Decoder
	buf []byte
}

// chunk returns a chunk's content, valid until the next call.
func (d *decoder) chunk(c *Chunk, part []byte) ([]byte, error) { return unpack(d.z, c, part, d.buf) }
