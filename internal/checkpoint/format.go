package checkpoint

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"strings"
	"time"
	"unicode/utf8"

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
	// MaxManifest is the largest manifest in bytes, compressed and not.
	MaxManifest    = 512 << 20
	maxUncompacted = 4 << 30
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
		return nil, fmt.Errorf("encode %s: %d snapshots need %d bytes, which is over the limit of %d", HeadKey, len(h.Snapshots), len(data), MaxHead)
	}
	return data, nil
}

// DecodeHead reads a HEAD. Whatever is wrong with it is ErrDamaged.
func DecodeHead(data []byte) (Head, error) {
	var h Head
	end := bytes.IndexByte(data, '\n') + 1
	if end == 0 || string(data[end:]) != hash(data[:end])+"\n" {
		return Head{}, fmt.Errorf("read %s: it does not fit its SHA-256: %w", HeadKey, ErrDamaged)
	}
	if err := strict(bytes.NewReader(data[:end]), &h); err != nil {
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
	case h.Epoch < 1 || h.Revision < 1 || !attemptForm.MatchString(h.Attempt) || !strings.HasPrefix(h.Attempt, fmt.Sprintf("%d-", h.Epoch)):
		return fmt.Errorf("epoch %d, revision %d and attempt %q do not fit", h.Epoch, h.Revision, h.Attempt)
	case len(h.Snapshots) > MaxSnapshots:
		return fmt.Errorf("%d snapshots are over the limit of %d", len(h.Snapshots), MaxSnapshots)
	}
	for i, s := range h.Snapshots {
		key, ok := parseManifestKey(s.Manifest)
		switch {
		case !ok || key.sum != s.SHA256 || key.seq != s.Seq:
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

// strict reads one JSON document without unknown keys.
func strict(r io.Reader, to any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("there is more after the document")
	}
	return nil
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
	rankForm     = lazyregexp.New(`^ranks/([0-9]{12})-(([1-9][0-9]{0,17})-[0-9a-f]{16})/([0-9]{1,6})-of-([0-9]{1,6})-([0-9a-f]{64})\.json\.gz$`)
	partForm     = lazyregexp.New(`^parts/(([1-9][0-9]{0,17})-[0-9a-f]{16})/([0-9a-f]{64})$`)
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
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, "", err
	}
	if err := json.NewEncoder(z).Encode(m); err != nil {
		return nil, "", fmt.Errorf("encode manifest %d: %w", m.Seq, err)
	}
	if err := z.Close(); err != nil {
		return nil, "", fmt.Errorf("encode manifest %d: %w", m.Seq, err)
	}
	if b.Len() > MaxManifest {
		return nil, "", fmt.Errorf("encode manifest %d: %d bytes are over the limit of %d", m.Seq, b.Len(), MaxManifest)
	}
	k := manifestKey{seq: m.Seq, attempt: m.Attempt, sum: hash(b.Bytes()), rank: -1}
	if m.Rank != nil {
		k.rank, k.ranks = *m.Rank, m.Ranks
	}
	return b.Bytes(), k.String(), nil
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
	var m Manifest
	if err := strict(io.LimitReader(z, maxUncompacted), &m); err != nil {
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

func (m *Manifest) check(k manifestKey) error {
	if m.Schema != Schema {
		return fmt.Errorf("schema %q is not %s", m.Schema, Schema)
	}
	if err := m.State.check(m.Finished); err != nil {
		return err
	}
	switch {
	case (m.Rank != nil) != (k.rank >= 0), m.Rank != nil && (*m.Rank != k.rank || m.Ranks != k.ranks):
		return fmt.Errorf("its rank is not that of its key")
	case len(m.Nodes) > 0 && (len(m.Entries) > 0 || len(m.Parts) > 0 || m.Rank != nil || m.Ranks != len(m.Nodes)):
		return fmt.Errorf("a manifest over ranks has entries of its own")
	}
	for i, n := range m.Nodes {
		if rk, ok := parseManifestKey(n.Manifest); !ok || rk.rank != i || rk.ranks != len(m.Nodes) || rk.sum != n.SHA256 || rk.seq != m.Seq || rk.attempt != m.Attempt {
			return fmt.Errorf("rank %d: manifest %q does not fit", i, n.Manifest)
		}
	}
	for i, p := range m.Parts {
		form := partForm.FindStringSubmatch(p.Key)
		if form == nil || form[3] != p.SHA256 || p.Size < 1 || p.Size > MaxPart {
			return fmt.Errorf("part %d: %q of %d bytes does not fit", i, p.Key, p.Size)
		}
	}
	seen := make(map[string]*Entry, len(m.Entries))
	for i := range m.Entries {
		e := &m.Entries[i]
		if err := m.checkEntry(e, seen); err != nil {
			return fmt.Errorf("entry %q: %w", e.Path, err)
		}
		seen[e.Path] = e
	}
	return nil
}

// checkPath refuses every path that could lead out of the folder.
func checkPath(p string) error {
	switch {
	case p == "" || p == "." || path.IsAbs(p) || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../"):
		return fmt.Errorf("this is no clean path in a folder")
	case strings.ContainsRune(p, 0) || !utf8.ValidString(p) || len(p) > 4096:
		return fmt.Errorf("this is no path")
	}
	return nil
}

// checkEntry checks an entry against those that stand before it.
func (m *Manifest) checkEntry(e *Entry, seen map[string]*Entry) error {
	if err := checkPath(e.Path); err != nil {
		return err
	}
	if err := e.Finished.check(); err != nil {
		return err
	}
	if seen[e.Path] != nil {
		return fmt.Errorf("it is there twice")
	}
	// A folder stands before what is in it, so that nothing is written through a link.
	if parent := path.Dir(e.Path); parent != "." && (seen[parent] == nil || seen[parent].Kind != Folder) {
		return fmt.Errorf("%q is no folder before it", parent)
	}
	if e.Mode > 0o777 || e.Size < 0 {
		return fmt.Errorf("mode %o and size %d are out of bounds", e.Mode, e.Size)
	}
	if (e.Kind != File && (len(e.Chunks) > 0 || e.Size != 0)) || (e.Target != "") != (e.Kind == Symlink || e.Kind == Hardlink) {
		return fmt.Errorf("a %s with size %d, %d chunks and target %q", e.Kind, e.Size, len(e.Chunks), e.Target)
	}
	switch e.Kind {
	case Folder, Symlink:
		if strings.ContainsRune(e.Target, 0) {
			return fmt.Errorf("target %q is no path", e.Target)
		}
		return nil
	case Hardlink:
		if t := seen[e.Target]; t == nil || t.Kind != File {
			return fmt.Errorf("%q is no file before it", e.Target)
		}
		return nil
	case File:
	default:
		return fmt.Errorf("kind %q is unknown", e.Kind)
	}
	var size int64
	for i, c := range e.Chunks {
		if c.Part < 0 || c.Part >= len(m.Parts) || c.Offset < 0 || c.Stored < 1 || c.Size < 1 || c.Size > chunkMax || c.Stored > MaxPart ||
			c.Offset > m.Parts[c.Part].Size-c.Stored || len(c.SHA256) != 64 || (!c.Zstd && c.Stored != c.Size) {
			return fmt.Errorf("chunk %d does not fit its part", i)
		}
		size += c.Size
	}
	if size != e.Size {
		return fmt.Errorf("its chunks are %d bytes of %d", size, e.Size)
	}
	return nil
}
