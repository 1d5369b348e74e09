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

// The keys of a run.
const (
	HeadKey        = "HEAD"
	manifestPrefix = "manifests/"
	partPrefix     = "parts/"
	rankPrefix     = "ranks/"
)

// Bounds of what is read.
const (
	// MaxHead is the largest HEAD in bytes.
	MaxHead = 16 << 20
	// MaxManifest is the largest manifest in bytes, compressed.
	MaxManifest = 384 << 20
	// PartSize is where a part is closed, in bytes.
	PartSize = 8 << 20
	// MaxPart is the largest part in bytes.
	MaxPart = PartSize + chunkMax
	// MaxSnapshots is how many snapshots a HEAD names at most.
	MaxSnapshots = 10000
)

// State says how much of the folder a snapshot holds.
type State string

// The states of a snapshot.
const (
	// Complete is a whole folder of finished files.
	Complete State = "complete"
	// Partial is a final save that ran out of time: each unit is whole, and some are older
	// than others or missing.
	Partial State = "partial"
	// Unsettled is a folder with files that changed while they were read. Restore does not
	// choose it by itself.
	Unsettled State = "unsettled"
)

// Finished says how a file or a snapshot is known to be finished; the empty one says that
// it is not.
type Finished string

// The ways to know, the strongest first.
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
	// Revision rises by one with every write, so that no two contents are equal.
	Revision int64 `json:"revision"`
	// Epoch rises by one with every attempt. Attempt is the epoch with a random suffix.
	Epoch   int64  `json:"epoch"`
	Attempt string `json:"attempt"`
	// Generation is the highest of those who claimed the run as one of a series
	// ([Run.ClaimFor]); 0 is none.
	Generation int64 `json:"generation,omitempty"`
	// Writer is who holds the run, in words.
	Writer    string    `json:"writer"`
	ClaimedAt time.Time `json:"claimed_at"`
	// Snapshots are those within retention, the newest first.
	Snapshots []Snapshot `json:"snapshots"`
}

// Snapshot is what HEAD says of a manifest.
type Snapshot struct {
	Seq      int64     `json:"seq"`
	Epoch    int64     `json:"epoch"`
	At       time.Time `json:"at"`
	State    State     `json:"state"`
	Finished Finished  `json:"finished"`
	// Step is the newest step that the training declared as saved; nil is unknown.
	Step     *int64 `json:"step"`
	Manifest string `json:"manifest"`
	SHA256   string `json:"sha256"`
	Files    int64  `json:"files"`
	// Bytes are the sizes of all files, NewBytes what this save stored.
	Bytes    int64 `json:"bytes"`
	NewBytes int64 `json:"new_bytes"`
}

// Manifest is one snapshot: everything that is needed to restore it, but for the parts.
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
	// Nodes are the manifests of all ranks in order, in a manifest without entries.
	Nodes []Node `json:"nodes,omitempty"`
	// BytesPerSecond is how fast this save read, hashed and stored; 0 is unknown.
	BytesPerSecond int64     `json:"bytes_per_second"`
	NewBytes       int64     `json:"new_bytes"`
	Parts          []Part    `json:"parts"`
	Entries        []Entry   `json:"entries"`
	LeftOut        []LeftOut `json:"left_out"`
}

// Node is the manifest of one rank.
type Node struct {
	Manifest string `json:"manifest"`
	SHA256   string `json:"sha256"`
}

// Part is a stored object: chunks one after the other.
type Part struct {
	Key    string `json:"key"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	CRC32C string `json:"crc32c"`
}

// Kind is what an entry is.
type Kind string

// The kinds of entries.
const (
	File    Kind = "file"
	Folder  Kind = "folder"
	Symlink Kind = "symlink"
	// Hardlink is a further name of a file that stands before it.
	Hardlink Kind = "hardlink"
)

// Entry is one name of the folder, relative to it, with slashes.
type Entry struct {
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	// Mode are the permission bits: 0 to 0777.
	Mode     uint32    `json:"mode"`
	Modified time.Time `json:"modified"`
	Size     int64     `json:"size"`
	// Target is where a link leads.
	Target string `json:"target,omitempty"`
	// Sparse says that the file had holes: restore leaves out chunks of zeros.
	Sparse   bool     `json:"sparse,omitempty"`
	Finished Finished `json:"finished"`
	// Stale says that the entry is as an earlier snapshot has it.
	Stale  bool    `json:"stale,omitempty"`
	Chunks []Chunk `json:"chunks,omitempty"`
}

// Chunk is a piece of a file.
type Chunk struct {
	// SHA256 and Size are of the content.
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	// Part is an index of Manifest.Parts; the chunk is there at Offset, Stored bytes long.
	Part   int   `json:"part"`
	Offset int64 `json:"offset"`
	Stored int64 `json:"stored"`
	// Zstd says that what is stored is one zstd frame; else it is the content.
	Zstd bool `json:"zstd,omitempty"`
}

// LeftOut is something of the folder that the snapshot does not hold as it was.
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

// encodeHead writes a HEAD: a line of JSON and the line of its SHA-256.
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

// DecodeHead reads a HEAD. Whatever is wrong with it is ErrDamaged.
func DecodeHead(data []byte) (Head, error) {
	end := bytes.IndexByte(data, '\n') + 1
	if end == 0 || string(data[end:]) != hash(data[:end])+"\n" {
		return Head{}, fmt.Errorf("read %s: it does not fit its SHA-256: %w", HeadKey, ErrDamaged)
	}
	h, err := newStream(bytes.NewReader(data[:end]), MaxHead, (MaxSnapshots+1)*2*snapshotCost).head()
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

// manifestKey is what the key of a manifest says.
type manifestKey struct {
	seq     int64
	epoch   int64
	attempt string
	sum     string
	rank    int // -1 for none
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
		_, err := fmt.Sscan(strings.TrimLeft(m[1], "0")+" "+m[3]+" "+m[4]+" "+m[5], &k.seq, &k.epoch, &k.rank, &k.ranks)
		return k, err == nil && k.rank < k.ranks
	}
	return k, false
}

// partKey returns the key of a part, and epochOf the epoch that a key of a part or a
// manifest was written in; 0 is unknown.
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

// encodeManifest writes a manifest: JSON, compressed by gzip, which every language reads.
func encodeManifest(m Manifest) (data []byte, key string, err error) {
	data, size, err := compressed(m, gzip.BestSpeed)
	if err == nil && size > maxExpanded(int64(len(data))) {
		// Names and chunks that repeat compress so well that a reader would take it for a bomb.
		data, size, err = compressed(m, gzip.HuffmanOnly)
	}
	if err != nil {
		return nil, "", fmt.Errorf("encode manifest %d: %w", m.Seq, err)
	}
	if len(data) > MaxManifest || size > maxExpanded(int64(len(data))) {
		return nil, "", fmt.Errorf(
			"encode manifest %d: %d bytes, %d compressed, are over the limit: save the folder in several runs", m.Seq, size,
			len(data))
	}
	k := manifestKey{seq: m.Seq, attempt: m.Attempt, sum: hash(data), rank: -1}
	if m.Rank != nil {
		k.rank, k.ranks = *m.Rank, m.Ranks
	}
	return data, k.String(), nil
}

// compressed writes a manifest at a level of gzip, and returns its size before.
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

// counter counts the bytes that pass.
type counter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.w.Write(p)
}

// DecodeManifest reads the manifest that was stored under a key. Whatever is wrong with it
// is ErrDamaged: what it returns is safe to restore.
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
	m, err := newStream(z, maxExpanded(int64(len(data))), maxDecoded).manifest()
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
