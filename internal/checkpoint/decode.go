package checkpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what decoding a document takes, whatever the document says.
const (
	// maxDecoded is how much memory a decoded manifest takes at most, in bytes. It is enough for
	// four million chunks, which are about 1 TiB.
	maxDecoded = 512 << 20
	// maxJSON is the largest uncompressed manifest in bytes.
	maxJSON = 2 << 30
	// expandBase and expandFactor bound it further, to so many bytes and so many for each
	// compressed one: gzip could make 1,000 bytes of one.
	expandBase   = 16 << 20
	expandFactor = 16
	// maxValue is the longest text in bytes, as it is written.
	maxValue = 64 << 10
	// maxKeys is how many keys an object has at most.
	maxKeys = 32
)

// maxExpanded is the size that a manifest of so many compressed bytes may have.
func maxExpanded(compressed int64) int64 {
	return min(expandBase+expandFactor*compressed, maxJSON)
}

// What a decoded value takes in memory, in bytes: at least its struct, its strings without
// those of any length, and what is kept to check it.
const (
	chunkCost    = 144
	entryCost    = 320
	partCost     = 360
	nodeCost     = 360
	leftOutCost  = 128
	snapshotCost = 512
)

// stream reads one JSON document value by value, so that no more of it is in memory than what
// is kept. Unlike encoding/json it takes names of keys exactly and each once, and no text that
// is not UTF-8.
type stream struct {
	r *bufio.Reader
	// left is how many bytes the decoded values may still take.
	left int64
}

func newStream(r io.Reader, size, decoded int64) *stream {
	return &stream{bufio.NewReaderSize(&limited{r, size}, maxValue), decoded}
}

// limited fails where a document is larger than so many bytes.
type limited struct {
	r    io.Reader
	left int64
}

var errLarge = errors.New("it is larger than its bounds allow")

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, errLarge
	}
	return n, err
}

// spend counts what a value takes.
func (s *stream) spend(bytes int) error {
	if s.left -= int64(bytes); s.left < 0 {
		return errLarge
	}
	return nil
}

// next returns the first byte of the next token, and leaves it there.
func (s *stream) next() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		if errors.Is(err, io.EOF) {
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, s.r.UnreadByte()
		}
	}
}

// delim reads one of some bytes.
func (s *stream) delim(of string) (byte, error) {
	c, err := s.next()
	if err != nil {
		return 0, err
	}
	if strings.IndexByte(of, c) < 0 {
		return 0, fmt.Errorf("%q is none of %s", c, of)
	}
	_, err = s.r.ReadByte()
	return c, err
}

// end refuses what follows the document.
func (s *stream) end() error {
	c, err := s.next()
	if err == nil {
		return fmt.Errorf("there is more after the document: %q", c)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// object reads an object: each reads the value of a key. Keys that are not there, twice there
// or unknown to each are mistakes.
func (s *stream) object(required []string, each func(key string) error) error {
	if _, err := s.delim("{"); err != nil {
		return err
	}
	var keys [maxKeys]string
	n := 0
	for c := byte(','); c == ','; {
		if first, err := s.next(); err != nil {
			return err
		} else if n == 0 && first == '}' {
			_, _ = s.r.ReadByte() // it was read before
			break
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		if n == maxKeys || slices.Contains(keys[:n], key) {
			return fmt.Errorf("key %.100q is there twice, or is one of too many", key)
		}
		keys[n] = key
		n++
		if _, err = s.delim(":"); err == nil {
			err = each(key)
		}
		if err != nil {
			return fmt.Errorf("%.100s: %w", key, err)
		}
		if c, err = s.delim(",}"); err != nil {
			return err
		}
	}
	for _, key := range required {
		if !slices.Contains(keys[:n], key) {
			return fmt.Errorf("key %q is not there", key)
		}
	}
	return nil
}

// list reads a list or null: each reads one value.
func (s *stream) list(each func() error) error {
	if null, err := s.null(); null || err != nil {
		return err
	}
	if _, err := s.delim("["); err != nil {
		return err
	}
	for n := 0; ; n++ {
		if first, err := s.next(); err != nil {
			return err
		} else if n == 0 && first == ']' {
			_, err = s.r.ReadByte()
			return err
		}
		if err := each(); err != nil {
			return err
		}
		if c, err := s.delim(",]"); err != nil || c == ']' {
			return err
		}
	}
}

func unknown(key string) error { return fmt.Errorf("key %.100q is unknown", key) }

// text reads a text.
func (s *stream) text() (string, error) {
	if _, err := s.delim(`"`); err != nil {
		return "", err
	}
	quoted := []byte{'"'} // only of a text with escaped quotes
	for {
		some, err := s.r.ReadSlice('"')
		if errors.Is(err, bufio.ErrBufferFull) || len(quoted)+len(some) > maxValue {
			return "", fmt.Errorf("a text is longer than %d bytes", maxValue)
		}
		if err != nil {
			return "", errors.Join(err, io.ErrUnexpectedEOF)
		}
		if len(quoted) == 1 && plain(some[:len(some)-1]) {
			return string(some[:len(some)-1]), nil
		}
		quoted = append(quoted, some...)
		if !escaped(quoted[1:]) {
			break
		}
	}
	var t string
	if !utf8.Valid(quoted) {
		return "", errors.New("a text is not UTF-8")
	}
	return t, json.Unmarshal(quoted, &t)
}

// plain says whether a text has neither escapes nor bytes that need a check.
func plain(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// escaped says whether the quote at the end of a text belongs to it.
func escaped(text []byte) bool {
	n := 0
	for i := len(text) - 2; i >= 0 && text[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// word reads a number, true, false or null.
func (s *stream) word() (string, error) {
	if _, err := s.next(); err != nil {
		return "", err
	}
	var word [24]byte // the longest number has 20
	for n := 0; ; n++ {
		c, err := s.r.ReadByte()
		if err != nil {
			return "", errors.Join(err, io.ErrUnexpectedEOF)
		}
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' && c != '+' && c != '.' && c != 'E' {
			return string(word[:n]), s.r.UnreadByte()
		}
		if n == len(word) {
			return "", errors.New("a number is too long")
		}
		word[n] = c
	}
}

// null reads null, if it is there.
func (s *stream) null() (bool, error) {
	c, err := s.next()
	if err != nil || c != 'n' {
		return false, err
	}
	w, err := s.word()
	if err == nil && w != "null" {
		err = fmt.Errorf("%q is no value", w)
	}
	return true, err
}

// text reads a text into to, and counts it where it may be long.
func text[T ~string](s *stream, to *T) error {
	v, err := s.text()
	for _, known := range words { // most are one of them: it is in memory once
		if v == known {
			*to = T(known)
			return err
		}
	}
	*to = T(v)
	if err == nil {
		err = s.spend(len(v))
	}
	return err
}

var words = []string{
	"", string(File), string(Folder), string(Symlink), string(Hardlink), string(Declared), string(Renamed),
	string(Marked),
	string(Exited), string(Quiescent), string(Complete), string(Partial), string(Unsettled)}

func number[T int | int64 | uint32](s *stream, to *T) error {
	w, err := s.word()
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(w, 10, 64)
	if err != nil || int64(T(n)) != n || w != strconv.FormatInt(n, 10) {
		return fmt.Errorf("%q is no whole number in range", w)
	}
	*to = T(n)
	return nil
}

// optional reads a number or null.
func optional[T int | int64](s *stream, to **T) error {
	if null, err := s.null(); null || err != nil {
		return err
	}
	*to = new(T)
	return number(s, *to)
}

func yesNo(s *stream, to *bool) error {
	w, err := s.word()
	if err == nil && w != "true" && w != "false" {
		err = fmt.Errorf("%q is neither true nor false", w)
	}
	*to = w == "true"
	return err
}

func moment(s *stream, to *time.Time) error {
	v, err := s.text()
	if err == nil {
		*to, err = time.Parse(time.RFC3339, v)
	}
	return err
}

var (
	entryKeys = []string{"path", "kind", "mode", "modified", "size", "finished"}
	chunkKeys = []string{"sha256", "size", "part", "offset", "stored"}
	partKeys  = []string{"key", "size", "sha256", "crc32c"}
	nodeKeys  = []string{"manifest", "sha256"}
	leftKeys  = []string{"path", "bytes", "why"}
	// Of a snapshot in HEAD.
	snapshotKeys = []string{
		"seq", "epoch", "at", "state", "finished", "manifest", "sha256", "files", "bytes", "new_bytes",
	}
)

func (s *stream) head() (h Head, err error) {
	err = s.object(nil, func(key string) error {
		switch key {
		case "schema":
			return text(s, &h.Schema)
		case "revision":
			return number(s, &h.Revision)
		case "epoch":
			return number(s, &h.Epoch)
		case "attempt":
			return text(s, &h.Attempt)
		case "generation":
			return number(s, &h.Generation)
		case "writer":
			return text(s, &h.Writer)
		case "claimed_at":
			return moment(s, &h.ClaimedAt)
		case "snapshots":
			return s.list(func() error {
				n, err := s.snapshot()
				h.Snapshots = append(h.Snapshots, n)
				return err
			})
		}
		return unknown(key)
	})
	if err == nil {
		err = s.end()
	}
	return h, err
}

func (s *stream) snapshot() (n Snapshot, err error) {
	if err := s.spend(snapshotCost); err != nil {
		return n, err
	}
	return n, s.object(snapshotKeys, func(key string) error {
		switch key {
		case "seq":
			return number(s, &n.Seq)
		case "epoch":
			return number(s, &n.Epoch)
		case "at":
			return moment(s, &n.At)
		case "state":
			return text(s, &n.State)
		case "finished":
			return text(s, &n.Finished)
		case "step":
			return optional(s, &n.Step)
		case "manifest":
			return text(s, &n.Manifest)
		case "sha256":
			return text(s, &n.SHA256)
		case "files":
			return number(s, &n.Files)
		case "bytes":
			return number(s, &n.Bytes)
		case "new_bytes":
			return number(s, &n.NewBytes)
		}
		return unknown(key)
	})
}

func (s *stream) manifest() (m Manifest, err error) {
	err = s.object(nil, func(key string) error {
		switch key {
		case "schema":
			return text(s, &m.Schema)
		case "seq":
			return number(s, &m.Seq)
		case "epoch":
			return number(s, &m.Epoch)
		case "attempt":
			return text(s, &m.Attempt)
		case "writer":
			return text(s, &m.Writer)
		case "started_at":
			return moment(s, &m.StartedAt)
		case "at":
			return moment(s, &m.At)
		case "state":
			return text(s, &m.State)
		case "finished":
			return text(s, &m.Finished)
		case "step":
			return optional(s, &m.Step)
		case "rank":
			return optional(s, &m.Rank)
		case "ranks":
			return number(s, &m.Ranks)
		case "bytes_per_second":
			return number(s, &m.BytesPerSecond)
		case "new_bytes":
			return number(s, &m.NewBytes)
		case "nodes":
			return s.list(func() error { return grow(s, &m.Nodes, nodeCost, s.node) })
		case "parts":
			return s.list(func() error { return grow(s, &m.Parts, partCost, s.part) })
		case "entries":
			return s.list(func() error { return grow(s, &m.Entries, entryCost, s.entry) })
		case "left_out":
			return s.list(func() error { return grow(s, &m.LeftOut, leftOutCost, s.leftOut) })
		}
		return unknown(key)
	})
	if err == nil {
		err = s.end()
	}
	return m, err
}

// grow reads one more value of a list.
func grow[T any](s *stream, list *[]T, cost int, read func(*T) error) error {
	if err := s.spend(cost); err != nil {
		return err
	}
	var zero T
	*list = append(*list, zero)
	return read(&(*list)[len(*list)-1])
}

func (s *stream) node(n *Node) error {
	return s.object(nodeKeys, func(key string) error {
		switch key {
		case "manifest":
			return text(s, &n.Manifest)
		case "sha256":
			return text(s, &n.SHA256)
		}
		return unknown(key)
	})
}

func (s *stream) part(p *Part) error {
	return s.object(partKeys, func(key string) error {
		switch key {
		case "key":
			return text(s, &p.Key)
		case "size":
			return number(s, &p.Size)
		case "sha256":
			return text(s, &p.SHA256)
		case "crc32c":
			return text(s, &p.CRC32C)
		}
		return unknown(key)
	})
}

func (s *stream) entry(e *Entry) error {
	return s.object(entryKeys, func(key string) error {
		switch key {
		case "path":
			return text(s, &e.Path)
		case "kind":
			return text(s, &e.Kind)
		case "mode":
			return number(s, &e.Mode)
		case "modified":
			return moment(s, &e.Modified)
		case "size":
			return number(s, &e.Size)
		case "target":
			return text(s, &e.Target)
		case "sparse":
			return yesNo(s, &e.Sparse)
		case "finished":
			return text(s, &e.Finished)
		case "stale":
			return yesNo(s, &e.Stale)
		case "chunks":
			return s.list(func() error { return grow(s, &e.Chunks, chunkCost, s.chunk) })
		}
		return unknown(key)
	})
}

func (s *stream) chunk(c *Chunk) error {
	return s.object(chunkKeys, func(key string) error {
		switch key {
		case "sha256":
			var err error
			c.SHA256, err = s.text()
			if err == nil && len(c.SHA256) != 64 {
				err = errors.New("it is no SHA-256")
			}
			return err
		case "size":
			return number(s, &c.Size)
		case "part":
			return number(s, &c.Part)
		case "offset":
			return number(s, &c.Offset)
		case "stored":
			return number(s, &c.Stored)
		case "zstd":
			return yesNo(s, &c.Zstd)
		}
		return unknown(key)
	})
}

func (s *stream) leftOut(l *LeftOut) error {
	return s.object(leftKeys, func(key string) error {
		switch key {
		case "path":
			return text(s, &l.Path)
		case "bytes":
			return number(s, &l.Bytes)
		case "why":
			return text(s, &l.Why)
		}
		return unknown(key)
	})
}

// cost is what a manifest takes in memory, as the stream counts it.
func (m *Manifest) cost() int64 {
	n := len(m.Nodes)*nodeCost + len(m.Parts)*partCost + len(m.Entries)*entryCost + len(m.LeftOut)*leftOutCost
	for _, p := range m.Parts {
		n += len(p.Key) + len(p.SHA256) + len(p.CRC32C)
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		n += len(e.Chunks)*chunkCost + len(e.Path) + len(e.Kind) + len(e.Target) + len(e.Finished)
	}
	for _, l := range m.LeftOut {
		n += len(l.Path) + len(l.Why)
	}
	for _, k := range m.Nodes {
		n += len(k.Manifest) + len(k.SHA256)
	}
	return int64(n)
}
