package checkpoint

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// Schema names the format.
const Schema = "curfew.checkpoint/v1"

// Keys of a run.
const (
	HeadKey        = "HEAD"
	manifestPrefix = "manifests/"
	partPrefix     = "parts/"
	rankPrefix     = "ranks/"
)

// Limits of what is read.
const (
	// MaxHead is the largest HEAD in bytes.
	MaxHead = 16 << 20
	// MaxManifest is the largest compressed manifest in bytes.
	MaxManifest = 384 << 20
	// PartSize is the size in bytes at which a part is closed.
	PartSize = 8 << 20
	// MaxPart is the largest part in bytes.
	MaxPart = PartSize + chunkMax
	// MaxSnapshots is the most snapshots in a HEAD.
	MaxSnapshots = 10000
)

// State is the completeness of a snapshot.
type State string

// The states of a snapshot.
const (
	// Complete means that all files are finished and included.
	Complete State = "complete"
	// Partial means that a final save ran out of time: each checkpoint is whole, but some are older
	// or missing.
	Partial State = "partial"
	// Unsettled means that files changed while being read. Restore uses such a snapshot only on
	// request.
	Unsettled State = "unsettled"
)

// Finished is the evidence that a file or snapshot is finished; empty if there is none.
type Finished string

// Evidence, strongest first.
const (
	Declared  Finished = "declared"
	Renamed   Finished = "renamed"
	Marked    Finished = "marker"
	Exited    Finished = "exited"
	Quiescent Finished = "quiescent"
)

// Head is the object HEAD of a run.
type Head struct {
	Schema string `json:"schema"`
	// Revision increases with every write, so that no two contents are equal.
	Revision int64 `json:"revision"`
	// Epoch increases with every attempt. Attempt is the epoch with a random suffix.
	Epoch   int64  `json:"epoch"`
	Attempt string `json:"attempt"`
	// Generation is the highest generation that claimed the run ([Run.ClaimFor]); 0 if none.
	Generation int64 `json:"generation,omitempty"`
	// Writer describes the current writer.
	Writer    string    `json:"writer"`
	ClaimedAt time.Time `json:"claimed_at"`
	// Snapshots are the retained snapshots, newest first.
	Snapshots []Snapshot `json:"snapshots"`
}

// Snapshot is HEAD's entry for a manifest.
type Snapshot struct {
	Seq      int64     `json:"seq"`
	Epoch    int64     `json:"epoch"`
	At       time.Time `json:"at"`
	State    State     `json:"state"`
	Finished Finished  `json:"finished"`
	// Step is the newest declared step; nil if unknown.
	Step     *int64 `json:"step"`
	Manifest string `json:"manifest"`
	SHA256   string `json:"sha256"`
	Files    int64  `json:"files"`
	// Bytes is the size of all files, NewBytes the stored size of this save.
	Bytes    int64 `json:"bytes"`
	NewBytes int64 `json:"new_bytes"`
}

// Manifest describes one snapshot, with everything needed to restore it except the parts.
type Manifest struct {
	Schema    string    `json:"schema"`
	Seq       int64     `json:"seq"`
	Epoch     int64     `json:"epoch"`
	Attempt   string    `json:"attempt"`
	Writer    string    `json:"writer"`
	StartedAt time.Time `json:"started_at"`
	At        time.Time `json:"at"`
	State     State     `json:"state"`
	Finished  Finished  `json:"finished"`
	Step      *int64    `json:"step"`
	// Rank and Ranks are set in the manifest of one node of several.
	Rank  *int `json:"rank,omitempty"`
	Ranks int  `json:"ranks,omitempty"`
	// Nodes are the manifests of all ranks in order; such a manifest has no entries.
	Nodes []Node `json:"nodes,omitempty"`
	// BytesPerSecond is the rate of reading, hashing and storing; 0 if unknown.
	BytesPerSecond int64     `json:"bytes_per_second"`
	NewBytes       int64     `json:"new_bytes"`
	Parts          []Part    `json:"parts"`
	Entries        []Entry   `json:"entries"`
	LeftOut        []LeftOut `json:"left_out"`
}

// Node refers to the manifest of one rank.
type Node struct {
	Manifest string `json:"manifest"`
	SHA256   string `json:"sha256"`
}

// Part is a stored object of concatenated chunks.
type Part struct {
	Key    string `json:"key"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	CRC32C string `json:"crc32c"`
}

// Kind is the kind of an entry.
type Kind string

// The kinds of entries.
const (
	File    Kind = "file"
	Folder  Kind = "folder"
	Symlink Kind = "symlink"
	// Hardlink is a further name of an earlier file.
	Hardlink Kind = "hardlink"
)

// Entry is a name in the folder, relative and slash-separated.
type Entry struct {
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	// Mode holds the permission bits, 0 to 0777.
	Mode     uint32    `json:"mode"`
	Modified time.Time `json:"modified"`
	Size     int64     `json:"size"`
	// Target is the target of a link.
	Target string `json:"target,omitempty"`
	// Sparse reports that the file had holes: restore skips chunks of zeros.
	Sparse   bool     `json:"sparse,omitempty"`
	Finished Finished `json:"finished"`
	// Stale reports that the entry comes from an earlier snapshot.
	Stale  bool    `json:"stale,omitempty"`
	Chunks []Chunk `json:"chunks,omitempty"`
}

// Chunk is a piece of a file.
type Chunk struct {
	// SHA256 and Size describe the content.
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	// Part indexes Manifest.Parts; the chunk occupies Stored bytes at Offset.
	Part   int   `json:"part"`
	Offset int64 `json:"offset"`
	Stored int64 `json:"stored"`
	// Zstd reports that the stored bytes are a zstd frame of the content.
	Zstd bool `json:"zstd,omitempty"`
}

// LeftOut is a name that the snapshot does not hold in its current state.
type LeftOut struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Why   string `json:"why"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc(data []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(data, castagnoli)) }

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// encodeHead encodes a HEAD: a line of JSON and a line with its SHA-256.
func encodeHead(h Head) ([]byte, error) {
	line, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", HeadKey, err)
	}
	line = append(line, '\n')
	data := append(line, hash(line)+"\n"...)
	if len(data) > MaxHead {
		return nil, fmt.Errorf("encode %s: %d snapshots need %d bytes, which is over the limit of %d", HeadKey,
			len(h.Snapshots), len(data), MaxHead)
	}
	return data, nil
}

// DecodeHead decodes a HEAD. All its errors are ErrDamaged.
func DecodeHead(data []byte) (Head, error) {
	end := bytes.IndexByte(data, '\n') + 1
	if end == 0 || string(data[end:]) != hash(data[:end])+"\n" {
		return Head{}, fmt.Errorf("read %s: it does not fit its SHA-256: %w", HeadKey, ErrDamaged)
	}
	h, err := newJSONReader(bytes.NewReader(data[:end]), MaxHead, (MaxSnapshots+1)*2*snapshotCost).head()
	if err != nil {
		return Head{}, fmt.Errorf("read %s: %w: %w", HeadKey, err, ErrDamaged)
	}
	if err := h.check(); err != nil {
		return Head{}, fmt.Errorf("read %s: %w: %w", HeadKey, err, ErrDamaged)
	}
	return h, nil
}

func (h Head) check() error {
	switch {
	case h.Schema != Schema:
		return fmt.Errorf("schema %q is not %s", h.Schema, Schema)
	case h.Epoch < 1 || h.Revision < 1 || !attemptForm.MatchString(h.Attempt) ||
		!strings.HasPrefix(h.Attempt, fmt.Sprintf("%d-", h.Epoch)):
		return fmt.Errorf("epoch %d, revision %d and attempt %q do not fit", h.Epoch, h.Revision, h.Attempt)
	case len(h.Snapshots) > MaxSnapshots:
		return fmt.Errorf("%d snapshots are over the limit of %d", len(h.Snapshots), MaxSnapshots)
	}
	for i, s := range h.Snapshots {
		key, ok := parseManifestKey(s.Manifest)
		switch {
		case !ok || key.sum != s.SHA256 || key.seq != s.Seq || key.epoch != s.Epoch || key.rank >= 0:
			return fmt.Errorf("snapshot %d: manifest %q does not fit", s.Seq, s.Manifest)
		case i > 0 && s.Seq >= h.Snapshots[i-1].Seq:
			return fmt.Errorf("snapshot %d stands after snapshot %d", s.Seq, h.Snapshots[i-1].Seq)
		case s.Epoch > h.Epoch || s.Seq < 1 || s.Files < 0 || s.Bytes < 0 || s.NewBytes < 0:
			return fmt.Errorf("snapshot %d is out of bounds", s.Seq)
		}
		if err := s.State.check(s.Finished); err != nil {
			return fmt.Errorf("snapshot %d: %w", s.Seq, err)
		}
	}
	return nil
}

func (s State) check(f Finished) error {
	switch s {
	case Complete, Partial, Unsettled:
	default:
		return fmt.Errorf("state %q is none of %s, %s, %s", s, Complete, Partial, Unsettled)
	}
	return f.check()
}

func (f Finished) check() error {
	switch f {
	case "", Declared, Renamed, Marked, Exited, Quiescent:
		return nil
	}
	return fmt.Errorf("finished %q is unknown", f)
}

// manifestKey holds the parts of a manifest's key.
type manifestKey struct {
	seq     int64
	epoch   int64
	attempt string
	sum     string
	rank    int // -1 without ranks
	ranks   int
}

var (
	attemptForm  = lazyregexp.New(`^[1-9][0-9]{0,17}-[0-9a-f]{16}$`)
	manifestForm = lazyregexp.New(`^manifests/([0-9]{12})-(([1-9][0-9]{0,17})-[0-9a-f]{16})-([0-9a-f]{64})\.json\.gz$`)
	rankForm     = lazyregexp.New(
		`^ranks/([0-9]{12})-(([1-9][0-9]{0,17})-[0-9a-f]{16})/([0-9]{1,6})-of-([0-9]{1,6})-([0-9a-f]{64})\.json\.gz$`)
	partForm = lazyregexp.New(`^parts/(([1-9][0-9]{0,17})-[0-9a-f]{16})/([0-9a-f]{64})$`)
)

func (k manifestKey) String() string {
	if k.rank >= 0 {
		return fmt.Sprintf("%s%012d-%s/%d-of-%d-%s.json.gz", rankPrefix, k.seq, k.attempt, k.rank, k.ranks, k.sum)
	}
	return fmt.Sprintf("%s%012d-%s-%s.json.gz", manifestPrefix, k.seq, k.attempt, k.sum)
}

func parseManifestKey(key string) (manifestKey, bool) {
	k := manifestKey{rank: -1}
	if m := manifestForm.FindStringSubmatch(key); m != nil {
		k.attempt, k.sum = m[2], m[4]
		_, err := fmt.Sscan(strings.TrimLeft(m[1], "0")+" "+m[3], &k.seq, &k.epoch)
		return k, err == nil
	}
	if m := rankForm.FindStringSubmatch(key); m != nil {
		k.attempt, k.sum = m[2], m[6]
		_, err := fmt.Sscan(strings.TrimLeft(m[1], "0")+" "+m[3]+" "+m[4]+" "+m[5], &k.seq,
			&k.epoch, &k.rank, &k.ranks)
		return k, err == nil && k.rank < k.ranks
	}
	return k, false
}

// partKey returns the key of a part. epochOf returns the epoch in the key of a part or manifest, 0
// if unknown.
func partKey(attempt, sum string) string { return partPrefix + attempt + "/" + sum }

func epochOf(key string) int64 {
	var epoch int64
	if m := partForm.FindStringSubmatch(key); m != nil {
		if _, err := fmt.Sscan(m[2], &epoch); err != nil {
			return 0
		}
		return epoch
	}
	k, _ := parseManifestKey(key)
	return k.epoch
}

// encodeManifest encodes a manifest as gzip-compressed JSON, which every language can read.
func encodeManifest(m Manifest) (data []byte, key string, err error) {
	data, size, err := compressed(m, gzip.BestSpeed)
	if err == nil && size > maxExpanded(int64(len(data))) {
		// Repetitive names and chunks compress so well that a reader would refuse the expansion.
		data, size, err = compressed(m, gzip.HuffmanOnly)
	}
	if err != nil {
		return nil, "", fmt.Errorf("encode manifest %d: %w", m.Seq, err)
	}
	if len(data) > MaxManifest || size > maxExpanded(int64(len(data))) {
		return nil, "", fmt.Errorf(
			"encode manifest %d: %d bytes, %d compressed, are over the limit: save the folder in several runs", m.Seq,
			size,
			len(data))
	}
	k := manifestKey{seq: m.Seq, attempt: m.Attempt, sum: hash(data), rank: -1}
	if m.Rank != nil {
		k.rank, k.ranks = *m.Rank, m.Ranks
	}
	return data, k.String(), nil
}

// compressed encodes a manifest at a gzip level and also returns its uncompressed size.
func compressed(m Manifest, level int) (data []byte, size int64, err error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		return nil, 0, err
	}
	n := &counter{w: z}
	if err := errors.Join(json.NewEncoder(n).Encode(m), z.Close()); err != nil {
		return nil, 0, err
	}
	return b.Bytes(), n.n, nil
}

// counter counts written bytes.
type counter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.w.Write(p)
}

// DecodeManifest decodes the manifest stored under a key. All its errors are ErrDamaged, and its
// result is safe to restore.
func DecodeManifest(key string, data []byte) (Manifest, error) {
	damaged := func(err error) (Manifest, error) {
		return Manifest{}, fmt.Errorf("read %s: %w: %w", key, err, ErrDamaged)
	}
	k, ok := parseManifestKey(key)
	if !ok {
		return damaged(fmt.Errorf("this is not the key of a manifest"))
	}
	if hash(data) != k.sum {
		return damaged(fmt.Errorf("it does not fit its SHA-256"))
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return damaged(err)
	}
	m, err := newJSONReader(z, maxExpanded(int64(len(data))), maxDecoded).manifest()
	if err != nil {
		return damaged(err)
	}
	if m.Seq != k.seq || m.Attempt != k.attempt || m.Epoch != k.epoch {
		return damaged(fmt.Errorf("it is manifest %d of attempt %q", m.Seq, m.Attempt))
	}
	if err := m.check(k); err != nil {
		return damaged(err)
	}
	return m, nil
}
