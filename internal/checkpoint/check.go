package checkpoint

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of names, as on Linux, and of nesting.
const (
	maxPath  = 4096
	maxName  = 255
	maxDepth = 256
)

// check refuses a manifest that is not safe to restore. Save checks its own manifests too.
func (m *Manifest) check(k manifestKey) error {
	if m.Schema != Schema {
		return fmt.Errorf("schema %q is not %s", m.Schema, Schema)
	}
	if err := m.State.check(m.Finished); err != nil {
		return err
	}
	switch {
	case m.decodedSize() > maxDecoded:
		return fmt.Errorf("it takes more than %d MiB of memory: save the folder in several runs", maxDecoded>>20)
	case (m.Rank != nil) != (k.rank >= 0), m.Rank != nil && (*m.Rank != k.rank || m.Ranks != k.ranks):
		return fmt.Errorf("its rank is not that of its key")
	case len(m.Nodes) > 0 && (len(m.Entries) > 0 || len(m.Parts) > 0 || m.Rank != nil || m.Ranks != len(m.Nodes)):
		return fmt.Errorf("a manifest over ranks has entries of its own")
	case m.NewBytes < 0 || m.BytesPerSecond < 0:
		return fmt.Errorf("new_bytes %d and bytes_per_second %d are out of bounds", m.NewBytes, m.BytesPerSecond)
	}
	for i, n := range m.Nodes {
		if rk, ok := parseManifestKey(n.Manifest); !ok || rk.rank != i ||
			rk.ranks != len(m.Nodes) || rk.sum != n.SHA256 ||
			rk.seq != m.Seq || rk.attempt != m.Attempt {
			return fmt.Errorf("rank %d: manifest %q does not fit", i, n.Manifest)
		}
	}
	if err := m.checkParts(); err != nil {
		return err
	}
	seen := make(map[string]*Entry, len(m.Entries))
	for i := range m.Entries {
		e := &m.Entries[i]
		if err := m.checkEntry(e, seen); err != nil {
			return fmt.Errorf("entry %.200q: %w", e.Path, err)
		}
		seen[e.Path] = e
	}
	return m.checkCoverage()
}

// checkParts refuses duplicate parts, parts outside the run and parts of a later attempt.
func (m *Manifest) checkParts() error {
	keys := make(map[string]bool, len(m.Parts))
	for i, p := range m.Parts {
		form := partForm.FindStringSubmatch(p.Key)
		switch {
		case form == nil || form[3] != p.SHA256 || p.Size < 1 || p.Size > MaxPart || len(p.CRC32C) != 8:
			return fmt.Errorf("part %d: %.200q of %d bytes does not fit", i, p.Key, p.Size)
		case epochOf(p.Key) > m.Epoch:
			return fmt.Errorf("part %d: %q is of a later epoch than %d", i, p.Key, m.Epoch)
		case keys[p.Key]:
			return fmt.Errorf("part %d: %q is there twice", i, p.Key)
		}
		keys[p.Key] = true
	}
	return nil
}

// checkCoverage refuses overlapping chunks and unused parts, so that reading a part decompresses no
// more than it holds.
func (m *Manifest) checkCoverage() error {
	var n int
	for i := range m.Entries {
		n += len(m.Entries[i].Chunks)
	}
	all := make([]*Chunk, 0, n)
	for i := range m.Entries {
		for j := range m.Entries[i].Chunks {
			all = append(all, &m.Entries[i].Chunks[j])
		}
	}
	slices.SortFunc(all, func(x, y *Chunk) int {
		return cmp.Or(cmp.Compare(x.Part, y.Part), cmp.Compare(x.Offset, y.Offset))
	})
	next := 0
	for i, c := range all {
		switch {
		case c.Part > next:
			return fmt.Errorf("part %d: no chunk is in it", next)
		case c.Part == next:
			next++
			continue
		}
		if before := all[i-1]; *c != *before && c.Offset < before.Offset+before.Stored {
			return fmt.Errorf("part %d: two chunks overlap at byte %d", c.Part, c.Offset)
		}
	}
	if next < len(m.Parts) {
		return fmt.Errorf("part %d: no chunk is in it", next)
	}
	return nil
}

// checkPath refuses paths that could leave the folder.
func checkPath(p string) error {
	switch {
	case p == "" || p == "." || path.IsAbs(p) || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../"):
		return fmt.Errorf("this is no clean path in a folder")
	case strings.ContainsRune(p, 0) || !utf8.ValidString(p) || len(p) > maxPath:
		return fmt.Errorf("this is no path")
	case strings.Count(p, "/") >= maxDepth:
		return fmt.Errorf("it is in more than %d folders", maxDepth)
	}
	for name := range strings.SplitSeq(p, "/") {
		if len(name) > maxName {
			return fmt.Errorf("a name is longer than %d bytes", maxName)
		}
	}
	return nil
}

// checkEntry checks an entry against the entries before it.
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
	// A folder precedes its content, so that nothing is written through a link.
	if parent := path.Dir(e.Path); parent != "." && (seen[parent] == nil || seen[parent].Kind != Folder) {
		return fmt.Errorf("%q is no folder before it", parent)
	}
	if e.Mode > 0o777 || e.Size < 0 {
		return fmt.Errorf("mode %o and size %d are out of bounds", e.Mode, e.Size)
	}
	if (e.Kind != File && (len(e.Chunks) > 0 || e.Size != 0)) ||
		(e.Target != "") != (e.Kind == Symlink || e.Kind == Hardlink) {
		return fmt.Errorf("a %s with size %d, %d chunks and target %q", e.Kind, e.Size, len(e.Chunks), e.Target)
	}
	switch e.Kind {
	case Folder, Symlink:
		if strings.ContainsRune(e.Target, 0) || len(e.Target) > maxPath {
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
		if c.Part < 0 || c.Part >= len(m.Parts) || c.Offset < 0 || c.Stored < 1 || c.Size < 1 || c.Size > chunkMax ||
			c.Stored > MaxPart ||
			c.Offset > m.Parts[c.Part].Size-c.Stored || !isSum(c.SHA256) || (!c.Zstd && c.Stored != c.Size) {
			return fmt.Errorf("chunk %d does not fit its part", i)
		}
		size += c.Size
	}
	if size != e.Size {
		return fmt.Errorf("its chunks are %d bytes of %d", size, e.Size)
	}
	return nil
}

// isSum reports whether a text is a hexadecimal SHA-256.
func isSum(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
