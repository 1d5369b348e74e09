package host

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/trust"
)

const (
	// knownSuffix is the file name suffix of the records of saved files, next to those of runs.
	knownSuffix = ".files.json"
	// maxKnown is the size limit of such a record in bytes: about a million files.
	maxKnown = 256 << 20
	// forgetKnown is the age from which an unused record is removed.
	forgetKnown = 30 * 24 * time.Hour
)

// knownFiles is the record of the files of one folder and rank, for one run.
type knownFiles struct {
	file string
	rec  knownRecord
}

type knownRecord struct {
	Store string                `json:"store"`
	Dir   string                `json:"dir"`
	Rank  int                   `json:"rank"`
	Files checkpoint.FileStates `json:"files"`
}

// known returns the record of a folder's files. Without a record a save reads all files.
func (s *seen) known(dir string, rank int) *knownFiles {
	k := &knownFiles{rec: knownRecord{Store: s.rec.Store, Dir: dir, Rank: rank}}
	if s.file == "" {
		return k
	}
	id := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", k.rec.Store, dir, rank))
	k.file = filepath.Join(filepath.Dir(s.file), fmt.Sprintf("%x%s", id, knownSuffix))
	if trust.Path(k.file, s.volume) != nil {
		k.file = ""
		return k
	}
	info, err := os.Stat(k.file)
	if err != nil || info.Size() > maxKnown {
		return k
	}
	data, err := os.ReadFile(k.file)
	var rec knownRecord
	if err == nil && json.Unmarshal(data, &rec) == nil && rec.Store == k.rec.Store &&
		rec.Dir == dir && rec.Rank == rank {
		k.rec = rec
	}
	return k
}

// save records the files of a snapshot and removes old records. A failure only costs time.
func (k *knownFiles) save(files checkpoint.FileStates, now time.Time) {
	if k.file == "" {
		return
	}
	k.rec.Files = files
	data, err := json.Marshal(k.rec)
	if err != nil || len(data) > maxKnown {
		return
	}
	dir := filepath.Dir(k.file)
	if os.MkdirAll(dir, 0o700) != nil {
		return
	}
	_ = durable.ReplaceBytes(k.file, 0o600, append(data, '\n'))
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), knownSuffix) &&
			now.Sub(info.ModTime()) > forgetKnown {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
