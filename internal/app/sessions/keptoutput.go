package sessions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/session"
)

// OutputRetention is the time that the output of a local session is kept after its end.
const OutputRetention = 90 * 24 * time.Hour

// outputPartForm is the form of the names of parts, as [clouds.OwnMachine.OutputFile] makes them.
var outputPartForm = lazyregexp.New(`^[0-9]+-[0-9]+\.log\.gz$`)

// removeOldOutput removes the kept output of local sessions that ended long ago. What it does not know stays:
// folders of sessions without a record in this state, of open ones and of those of other providers, and files
// that are no parts of output.
func (a *Sessions) removeOldOutput(ctx context.Context, dir string, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the kept output: %w", err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < OutputRetention {
			continue
		}
		s, err := a.store.Sessions().Session(ctx, e.Name())
		if errors.Is(err, session.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if !outputExpired(&s, now) {
			continue
		}
		if err := removeParts(filepath.Join(dir, e.Name()), now); err != nil {
			return fmt.Errorf("remove the output of %s: %w", s.Name, err)
		}
	}
	return nil
}

// outputExpired reports whether the output of a session is no longer kept.
func outputExpired(s *session.Session, now time.Time) bool {
	return s.Provider == clouds.ProviderLocal && s.State.IsFinal() && !s.EndedAt.IsZero() &&
		now.Sub(s.EndedAt) >= OutputRetention
}

// removeParts removes old parts of output, and their folder if nothing else is in it.
func removeParts(dir string, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !outputPartForm.MatchString(e.Name()) ||
			now.Sub(info.ModTime()) < OutputRetention {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		return err
	}
	return os.Remove(dir)
}
