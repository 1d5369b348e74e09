package act

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// BackupState copies the database of the state to a new file while a service continues to use it.
func BackupState(ctx context.Context, req *runtime.Request, path string) (view.StateBackup, error) {
	doc := view.StateBackup{Schema: view.StateBackupSchema, File: req.Path(path)}
	cfg, err := req.Config()
	if err != nil {
		return doc, err
	}
	if cfg.DatabaseURL != "" {
		return doc, &runtime.Error{
			Class: runtime.Usage, Code: "not_a_file", Err: store.ErrNoFile,
			Hint: "back it up with pg_dump --format=custom --file=FILE and the URL of the database",
		}
	}
	if !req.Storage.Exists(cfg) { // opening it would create an empty one
		return doc, &runtime.Error{
			Class: runtime.Usage, Code: "no_state", Err: fmt.Errorf("there is no state in %q to back up", cfg.DataDir),
			Hint: "give the --data-dir of the service",
		}
	}
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	now, err := req.StateTime(ctx, s)
	if err != nil {
		return doc, err
	}
	doc.At = now.UTC()
	doc.Bytes, err = s.Backup(ctx, doc.File)
	if errors.Is(err, fs.ErrExist) {
		return doc, &runtime.Error{
			Class: runtime.Usage, Code: "file_exists", Err: err, Hint: "a backup replaces no file: give another name",
		}
	}
	if err == nil {
		sizes := openSizes(req)
		sizes.Backup = &doc
		sizes.save()
	}
	return doc, err
}
