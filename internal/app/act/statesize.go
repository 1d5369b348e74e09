package act

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/trust"
	"github.com/curfew-dev/curfew/internal/view"
)

const (
	// sizesFile is the file in the data directory that records sizes and the newest backup.
	sizesFile = "state-sizes.json"
	// sizeEvery is the minimum time between two recorded sizes. Growth is reported over growthOver,
	// and only after leastGrowth, because a pass writes in bursts.
	sizeEvery   = time.Hour
	growthOver  = 30 * 24 * time.Hour
	leastGrowth = 24 * time.Hour
)

// stateSizes are the recorded sizes of a state on this machine.
type stateSizes struct {
	file   string
	Sizes  []sizeAt          `json:"sizes"`
	Backup *view.StateBackup `json:"backup"`
}

type sizeAt struct {
	At       time.Time `json:"at"`
	Database string    `json:"database"`
	Bytes    int64     `json:"bytes"`
}

// openSizes reads the recorded sizes; none if the data directory is not trusted.
func openSizes(req *runtime.Request) *stateSizes {
	s := &stateSizes{}
	cfg, err := req.Config()
	if err != nil || cfg.DataDir == "" {
		return s
	}
	file := filepath.Join(cfg.DataDir, sizesFile)
	if trust.Path(file, filepath.Clean(cfg.DataVolume)) != nil {
		return s
	}
	if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, s) != nil {
		*s = stateSizes{}
	}
	s.file = file
	return s
}

// add records a size.
func (s *stateSizes) add(now time.Time, size store.Size) {
	kept := s.Sizes[:0]
	for _, x := range s.Sizes {
		if x.Database == size.Database && !x.At.After(now) && now.Sub(x.At) <= growthOver {
			kept = append(kept, x)
		}
	}
	s.Sizes = kept
	if n := len(kept); n > 0 && now.Sub(kept[n-1].At) < sizeEvery {
		return
	}
	s.Sizes = append(s.Sizes, sizeAt{now.UTC(), size.Database, size.Bytes})
	s.save()
}

// save writes the file if possible; a failure only loses a figure.
func (s *stateSizes) save() {
	data, err := json.Marshal(s)
	if s.file == "" || err != nil {
		return
	}
	_ = durable.ReplaceBytes(s.file, 0o600, append(data, '\n'))
}

// growth returns the bytes per day since the oldest recorded size; nil if less than a day has
// passed.
func (s *stateSizes) growth(now time.Time, bytes int64) (perDay *int64, since time.Time) {
	if len(s.Sizes) == 0 || now.Sub(s.Sizes[0].At) < leastGrowth {
		return nil, time.Time{}
	}
	first := s.Sizes[0]
	days := now.Sub(first.At).Hours() / 24
	n := int64(float64(bytes-first.Bytes) / days)
	return &n, first.At
}
