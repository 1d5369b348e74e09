package checkpoint

import "time"

// clockMargin is the least time from the last change of a file to its reading: then a later change
// has another time even where the file system's clock is coarse: FAT counts in steps of 2 seconds.
const clockMargin = 3 * time.Second

// FileState identifies the content of a file on its machine: whoever changes the content changes
// one of these values too.
type FileState struct {
	Dev, Ino uint64
	Size     int64
	// Modified and Changed are in nanoseconds since 1970, by the clock of the file system. Changed
	// is of data or metadata and cannot be set by a program.
	Modified, Changed int64
}

// FileStates are the files of one folder whose content a snapshot has.
type FileStates struct {
	// Manifest is the key of the snapshot's manifest, or of the rank's share of it.
	Manifest string
	// Files are by path. A file that changed shortly before it was read is not among them.
	Files map[string]FileState
}

// state returns the state of a listed file, and false if the system has no inodes and times of
// change.
func (f foundEntry) state() (FileState, bool) {
	return FileState{f.dev, f.ino, f.Size, f.Modified.UnixNano(), f.changed.UnixNano()}, f.ino != 0
}

// readBefore takes the content of a file from the newest snapshot, and reports whether that has it:
// the file has the state in which it was read for it. It has not where a chunk is damaged, or in a
// part of which little is in use.
func (s *saveRun) readBefore(f foundEntry) bool {
	now, ok := f.state()
	if before, known := s.a.known.Files[f.Path]; s.o.Full || s.o.ReadAll || !ok || !known || before != now {
		return false
	}
	e, ok := s.before[f.Path]
	if !ok || e.Kind != File || e.Size != f.Size || e.Stale || e.Finished == "" {
		return false
	}
	c := &fileContent{seen: f, size: f.Size, complete: true, unread: true}
	c.chunks = make([]chunkLocation, len(e.Chunks))
	for i, chunk := range e.Chunks {
		sum, _ := chunk.sum()
		if c.chunks[i], ok = s.a.index[sum]; !ok {
			return false
		}
	}
	s.read[f.Path] = c
	return true
}

// states returns the files of a manifest that need not be read again as long as they stay the same.
func (s *saveRun) states(m *Manifest) map[string]FileState {
	all := map[string]FileState{}
	for _, e := range m.Entries {
		c := s.read[e.Path]
		if e.Kind != File || e.Stale || e.Finished == "" || c == nil || !c.complete || s.kept[e.Path] {
			continue
		}
		now, ok := c.seen.state()
		if ok && (c.unread || !c.seen.changed.Add(clockMargin).After(c.at)) {
			all[e.Path] = now
		}
	}
	return all
}
