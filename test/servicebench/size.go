package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the look at the size
)

// sizeOf is how large the files of a folder are.
func sizeOf(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if st, err := d.Info(); err == nil {
				n += st.Size()
			}
		}
		return nil
	})
	return n
}

// sizeOfDatabase is how large a database is, 0 where it does not answer.
func sizeOfDatabase(ctx context.Context, at string) (n int64) {
	db, err := sql.Open("pgx", at)
	if err != nil {
		return 0
	}
	defer db.Close()
	_ = db.QueryRowContext(ctx, "SELECT pg_database_size(current_database())").Scan(&n)
	return n
}
