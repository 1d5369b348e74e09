package store

import "testing"

// Pragma returns a setting of SQLite's writing connection.
func Pragma(tb testing.TB, s *Store, name string) string {
	tb.Helper()
	var value string
	if err := s.db.write.GetContext(tb.Context(), &value, "PRAGMA "+name); err != nil {
		tb.Fatal(err)
	}
	return value
}

// Migrations are the embedded files.
var Migrations = migrations
