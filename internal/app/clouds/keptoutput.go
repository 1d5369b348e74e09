package clouds

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
)

// outputDir is the name of the folder of kept output, next to the folder of control documents.
const outputDir = "output"

// OutputDir returns the folder in which this machine keeps the output of local sessions, one folder each.
func (o OwnMachine) OutputDir() string { return filepath.Join(filepath.Dir(o.control), outputDir) }

// KeptOutput returns the size of the output of local sessions that this machine keeps, and the number of the
// sessions; zeros if there is none.
func KeptOutput(req *runtime.Request, cfg config.Config) (bytes int64, sessions int, err error) {
	if cfg.DataDir == "" {
		return 0, 0, nil
	}
	dir := filepath.Join(SessionsDir(req.Path(cfg.DataDir)), outputDir)
	of, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	for _, e := range of {
		if !e.IsDir() {
			continue
		}
		sessions++
		parts, err := os.ReadDir(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, 0, err
		}
		for _, p := range parts {
			if i, err := p.Info(); err == nil && i.Mode().IsRegular() {
				bytes += i.Size()
			}
		}
	}
	return bytes, sessions, nil
}
