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

// Limits of decoding, independent of the document.
const (
	// maxDecoded bounds the memory of a decoded manifest in bytes. It suffices for four million
	// chunks, about 1 TiB.
	maxDecoded = 512 << 20
	// maxJSON is the largest uncompressed manifest in bytes.
	maxJSON = 2 << 30
	// expandBase and expandFactor bound the expansion of gzip, which can reach 1,000, to a base
	// plus a multiple of the compressed size.
	expandBase   = 16 << 20
	expandFactor = 16
	// maxValue is the longest text in bytes, as written.
	maxValue = 64 << 10
	// maxKeys is the most keys of an object.
	maxKeys = 32
)

// maxExpanded returns the largest uncompressed size of a manifest with a compressed size.
func maxExpanded(compressed int64) int64 {
	return min(expandBase+expandFactor*compressed, maxJSON)
}

// Memory of decoded values in bytes: struct, fixed-length strings and bookkeeping.
const (
	chunkCost    = 144
	entryCost    = 320
	partCost     = 360
	nodeCost     = 360
	leftOutCost  = 128
	snapshotCost = 512
)

// jsonReader reads a JSON document value by value with bounded memory. Unlike encoding/json it
// matches keys exactly, refuses duplicates and refuses invalid UTF-8.
type jsonReader struct {
	r *bufio.Reader
	// budget is the memory that decoded values may still take, in bytes.
	budget int64
}

func newJSONReader(r io.Reader, size, decoded int64) *jsonReader {
	return &jsonReader{bufio.NewReaderSize(&limitedReader{r, size}, maxValue), decoded}
}

// limitedReader fails when a document exceeds its limit.
type limitedReader struct {
	r    io.Reader
	left int64
}

var errLarge = errors.New("it is larger than its bounds allow")

// Read implements io.Reader.
func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, errLarge
	}
	return n, err
}

// spend charges a value to the budget.
func (s *jsonReader) spend(bytes int) error {
	if s.budget -= int64(bytes); s.budget < 0 {
		return errLarge
	}
	return nil
}

// peek returns the first byte of the next token without consuming it.
func (s *jsonReader) peek() (byte, error) {
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

// delim reads one of the given bytes.
func (s *jsonReader) delim(of string) (byte, error) {
	c, err := s.peek()
	if err != nil {
		return 0, err
	}
	if strings.IndexByte(of, c) < 0 {
		return 0, fmt.Errorf("%q is none of %s", c, of)
	}
	_, err = s.r.ReadByte()
	return c, err
}

// end refuses trailing content.
func (s *jsonReader) end() error {
	c, err := s.peek()
	if err == nil {
		return fmt.Errorf("there is more after the document: %q", c)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// object reads an object and calls each for the value of every key. Missing, duplicate and unknown
// keys are errors.
func (s *jsonReader) object(required []string, each func(key string) error) error {
	if _, err := s.delim("{"); err != nil {
		return err
	}
	var keys [maxKeys]string
	n := 0
	for c := byte(','); c == ','; {
		if first, err := s.peek(); err != nil {
			return err
		} else if n == 0 && first == '}' {
			_, _ = s.r.ReadByte() // peeked before
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

// list reads a list or null and calls each for every value.
func (s *jsonReader) list(each func() error) error {
	if null, err := s.null(); null || err != nil {
		return err
	}
	if _, err := s.delim("["); err != nil {
		return err
	}
	for n := 0; ; n++ {
		if first, err := s.peek(); err != nil {
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

func unknownKey(key string) error { return fmt.Errorf("key %.100q is unknown", key) }

// text reads a text.
func (s *jsonReader) text() (string, error) {
	if _, err := s.delim(`"`); err != nil {
		return "", err
	}
	quoted := []byte{'"'} // used only for texts with escaped quotes
	for {
		some, err := s.r.ReadSlice('"')
		if errors.Is(err, bufio.ErrBufferFull) || len(quoted)+len(some) > maxValue {
			return "", fmt.Errorf("a text is longer than %d bytes", maxValue)
		}
		if err != nil {
			return "", errors.Join(err, io.ErrUnexpectedEOF)
		}
		if len(quoted) == 1 && isPlain(some[:len(some)-1]) {
			return string(some[:len(some)-1]), nil
		}
		quoted = append(quoted, some...)
		if !isEscaped(quoted[1:]) {
			break
		}
	}
	var t string
	if !utf8.Valid(quoted) {
		return "", errors.New("a text is not UTF-8")
	}
	return t, json.Unmarshal(quoted, &t)
}

// isPlain reports whether a text has no escapes and only ASCII.
func isPlain(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isEscaped reports whether the quote at the end of a text is part of it.
func isEscaped(text []byte) bool {
	n := 0
	for i := len(text) - 2; i >= 0 && text[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// literal reads a number, true, false or null.
func (s *jsonReader) literal() (string, error) {
	if _, err := s.peek(); err != nil {
		return "", err
	}
	var word [24]byte // numbers have up to 20 bytes
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

// null reads null if it is next.
func (s *jsonReader) null() (bool, error) {
	c, err := s.peek()
	if err != nil || c != 'n' {
		return false, err
	}
	w, err := s.literal()
	if err == nil && w != "null" {
		err = fmt.Errorf("%q is no value", w)
	}
	return true, err
}

// readText reads a text and charges its length.
func readText[T ~string](s *jsonReader, to *T) error {
	v, err := s.text()
	for _, known := range commonTexts { // common texts are shared
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

var commonTexts = []string{
	"", string(File), string(Folder), string(Symlink), string(Hardlink), string(Declared), string(Renamed),
	string(Marked),
	string(Exited), string(Quiescent), string(Complete), string(Partial), string(Unsettled)}

func readNumber[T int | int64 | uint32](s *jsonReader, to *T) error {
	w, err := s.literal()
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

// readOptional reads a number or null.
func readOptional[T int | int64](s *jsonReader, to **T) error {
	if null, err := s.null(); null || err != nil {
		return err
	}
	*to = new(T)
	return readNumber(s, *to)
}

func readBool(s *jsonReader, to *bool) error {
	w, err := s.literal()
	if err == nil && w != "true" && w != "false" {
		err = fmt.Errorf("%q is neither true nor false", w)
	}
	*to = w == "true"
	return err
}

func readTime(s *jsonReader, to *time.Time) error {
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
	// Keys of a snapshot in HEAD.
	snapshotKeys = []string{
		"seq", "epoch", "at", "state", "finished", "manifest", "sha256", "files", "bytes", "new_bytes",
	}
)

func (s *jsonReader) head() (h Head, err error) {
	err = s.object(nil, func(key string) error {
		switch key {
		case "schema":
			return readText(s, &h.Schema)
		case "revision":
			return readNumber(s, &h.Revision)
		case "epoch":
			return readNumber(s, &h.Epoch)
		case "attempt":
			return readText(s, &h.Attempt)
		case "generation":
			return readNumber(s, &h.Generation)
		case "writer":
			return readText(s, &h.Writer)
		case "claimed_at":
			return readTime(s, &h.ClaimedAt)
		case "snapshots":
			return s.list(func() error {
				n, err := s.snapshot()
				h.Snapshots = append(h.Snapshots, n)
				return err
			})
		}
		return unknownKey(key)
	})
	if err == nil {
		err = s.end()
	}
	return h, err
}

func (s *jsonReader) snapshot() (n Snapshot, err error) {
	if err := s.spend(snapshotCost); err != nil {
		return n, err
	}
	return n, s.object(snapshotKeys, func(key string) error {
		switch key {
		case "seq":
			return readNumber(s, &n.Seq)
		case "epoch":
			return readNumber(s, &n.Epoch)
		case "at":
			return readTime(s, &n.At)
		case "state":
			return readText(s, &n.State)
		case "finished":
			return readText(s, &n.Finished)
		case "step":
			return readOptional(s, &n.Step)
		case "manifest":
			return readText(s, &n.Manifest)
		case "sha256":
			return readText(s, &n.SHA256)
		case "files":
			return readNumber(s, &n.Files)
		case "bytes":
			return readNumber(s, &n.Bytes)
		case "new_bytes":
			return readNumber(s, &n.NewBytes)
		}
		return unknownKey(key)
	})
}

func (s *jsonReader) manifest() (m Manifest, err error) {
	err = s.object(nil, func(key string) error {
		switch key {
		case "schema":
			return readText(s, &m.Schema)
		case "seq":
			return readNumber(s, &m.Seq)
		case "epoch":
			return readNumber(s, &m.Epoch)
		case "attempt":
			return readText(s, &m.Attempt)
		case "writer":
			return readText(s, &m.Writer)
		case "started_at":
			return readTime(s, &m.StartedAt)
		case "at":
			return readTime(s, &m.At)
		case "state":
			return readText(s, &m.State)
		case "finished":
			return readText(s, &m.Finished)
		case "step":
			return readOptional(s, &m.Step)
		case "rank":
			return readOptional(s, &m.Rank)
		case "ranks":
			return readNumber(s, &m.Ranks)
		case "bytes_per_second":
			return readNumber(s, &m.BytesPerSecond)
		case "new_bytes":
			return readNumber(s, &m.NewBytes)
		case "nodes":
			return s.list(func() error { return appendValue(s, &m.Nodes, nodeCost, s.node) })
		case "parts":
			return s.list(func() error { return appendValue(s, &m.Parts, partCost, s.part) })
		case "entries":
			return s.list(func() error { return appendValue(s, &m.Entries, entryCost, s.entry) })
		case "left_out":
			return s.list(func() error { return appendValue(s, &m.LeftOut, leftOutCost, s.leftOut) })
		}
		return unknownKey(key)
	})
	if err == nil {
		err = s.end()
	}
	return m, err
}

// appendValue reads one more value of a list.
func appendValue[T any](s *jsonReader, list *[]T, cost int, read func(*T) error) error {
	if err := s.spend(cost); err != nil {
		return err
	}
	var zero T
	*list = append(*list, zero)
	return read(&(*list)[len(*list)-1])
}

func (s *jsonReader) node(n *Node) error {
	return s.object(nodeKeys, func(key string) error {
		switch key {
		case "manifest":
			return readText(s, &n.Manifest)
		case "sha256":
			return readText(s, &n.SHA256)
		}
		return unknownKey(key)
	})
}

func (s *jsonReader) part(p *Part) error {
	return s.object(partKeys, func(key string) error {
		switch key {
		case "key":
			return readText(s, &p.Key)
		case "size":
			return readNumber(s, &p.Size)
		case "sha256":
			return readText(s, &p.SHA256)
		case "crc32c":
			return readText(s, &p.CRC32C)
		}
		return unknownKey(key)
	})
}

func (s *jsonReader) entry(e *Entry) error {
	return s.object(entryKeys, func(key string) error {
		switch key {
		case "path":
			return readText(s, &e.Path)
		case "kind":
			return readText(s, &e.Kind)
		case "mode":
			return readNumber(s, &e.Mode)
		case "modified":
			return readTime(s, &e.Modified)
		case "size":
			return readNumber(s, &e.Size)
		case "target":
			return readText(s, &e.Target)
		case "sparse":
			return readBool(s, &e.Sparse)
		case "finished":
			return readText(s, &e.Finished)
		case "stale":
			return readBool(s, &e.Stale)
		case "chunks":
			return s.list(func() error { return appendValue(s, &e.Chunks, chunkCost, s.chunk) })
		}
		return unknownKey(key)
	})
}

func (s *jsonReader) chunk(c *Chunk) error {
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
			return readNumber(s, &c.Size)
		case "part":
			return readNumber(s, &c.Part)
		case "offset":
			return readNumber(s, &c.Offset)
		case "stored":
			return readNumber(s, &c.Stored)
		case "zstd":
			return readBool(s, &c.Zstd)
		}
		return unknownKey(key)
	})
}

func (s *jsonReader) leftOut(l *LeftOut) error {
	return s.object(leftKeys, func(key string) error {
		switch key {
		case "path":
			return readText(s, &l.Path)
		case "bytes":
			return readNumber(s, &l.Bytes)
		case "why":
			return readText(s, &l.Why)
		}
		return unknownKey(key)
	})
}

// decodedSize returns the memory of a manifest as jsonReader counts it.
func (m *Manifest) decodedSize() int64 {
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
