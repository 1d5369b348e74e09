package store

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

func BenchmarkSum(b *testing.B) {
	page := make([]byte, pageSizeOnDisk)
	for i := range page {
		page[i] = byte(i * 7)
	}
	b.SetBytes(pageSizeOnDisk)
	for b.Loop() {
		seal(page, 4096)
	}
}

func TestSumDetectsFlipsAndMisplacedPages(t *testing.T) {
	page := make([]byte, pageSizeOnDisk)
	for i := range page {
		page[i] = byte(i * 7)
	}
	seal(page, 8192)
	if !intact(page, 8192) {
		t.Fatal("a sealed page is not intact")
	}
	if intact(page, 4096) {
		t.Error("a page in the place of another one is taken for it")
	}
	for bit := range pageSizeOnDisk * 8 {
		page[bit/8] ^= 1 << (bit % 8)
		if intact(page, 8192) {
			t.Errorf("bit %d is flipped, and the page is taken", bit)
		}
		page[bit/8] ^= 1 << (bit % 8)
	}
	if intact(make([]byte, pageSizeOnDisk), 0) {
		t.Error("an empty page is taken")
	}
}

// TestOtherProgramsCanCheckpoint checks that another program that closes the file last merges the log
// correctly without computing checksums, and that an unmerged log is recovered after a crash.
func TestOtherProgramsCanCheckpoint(t *testing.T) {
	for _, reader := range []string{"", "?vfs=" + pagesVFS} {
		dir := t.TempDir()
		s, err := Open(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		const entries = 300
		for range entries {
			if err := s.Actions().Record(t.Context(), action.Entry{
				At: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), Actor: "ana", What: action.EventKeep,
				Because: strings.Repeat("demo ", 500),
			}); err != nil {
				t.Fatal(err)
			}
		}
		// As after a crash: the database and its log, opened by no process.
		crashed := filepath.Join(t.TempDir(), FileName)
		for _, end := range []string{"", "-wal"} {
			text, err := os.ReadFile(filepath.Join(dir, FileName) + end)
			if err == nil {
				err = os.WriteFile(crashed+end, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if st, err := os.Stat(crashed + "-wal"); err != nil || st.Size() < 100*pageSizeOnDisk {
			t.Fatalf("the log is short: %v, %v", st, err)
		}
		db, err := sql.Open("sqlite", "file:"+crashed+reader)
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM audit").Scan(&n); err != nil || n != entries {
			t.Errorf("with %q it has %d entries, %v; want %d", reader, n, err, entries)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(crashed + "-wal"); err == nil {
			t.Error("the log was not copied")
		}
		again, err := Open(t.Context(), Options{Dir: filepath.Dir(crashed)})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if head, err := again.VerifyAudit(t.Context()); err != nil || head.Entry != entries {
			t.Errorf("afterwards it has %d entries, %v", head.Entry, err)
		}
	}
}

// TestLargeTransactionIsRecovered checks a transaction larger than the cache, which writes pages to
// the log more than once, so that SQLite recomputes the checksums of frames.
func TestLargeTransactionIsRecovered(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	path := filepath.Join(dir, FileName)
	db, err := sql.Open("sqlite", "file:"+path+"?vfs="+pagesVFS+"&_pragma=cache_size(5)&_pragma=wal_autocheckpoint(0)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	statements := []string{"CREATE TABLE filler (n INTEGER PRIMARY KEY, text TEXT)", "BEGIN"}
	for range 3 {
		statements = append(statements, "INSERT INTO filler (text) SELECT REPLACE(HEX(ZEROBLOB(200)), '0', 'x') FROM "+
			"(SELECT 1 FROM sqlite_master, sqlite_master LIMIT 1000)",
			"UPDATE filler SET text = text || n WHERE n % 3 = 0", "UPDATE filler SET text = text || n WHERE n % 7 = 0")
	}
	for _, statement := range append(statements, "COMMIT") {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	crashed := filepath.Join(t.TempDir(), FileName)
	for _, end := range []string{"", "-wal"} {
		text, err := os.ReadFile(path + end)
		if err == nil {
			err = os.WriteFile(crashed+end, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	recovered, err := sql.Open("sqlite", "file:"+crashed+"?vfs="+pagesVFS)
	if err != nil {
		t.Fatal(err)
	}
	defer recovered.Close()
	var n int
	var sound string
	if err := recovered.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM filler").Scan(&n); err != nil || n != 3000 {
		t.Errorf("it has %d rows, %v", n, err)
	}
	if err := recovered.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&sound); err != nil ||
		sound != "ok" {
		t.Errorf("it is %q, %v", sound, err)
	}
}

// TestLongValuesAreChecked checks that all pages of long values, which SQLite reads in parts
// bypassing its cache, are verified.
func TestLongValuesAreChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	if err := touch(path); err != nil {
		t.Fatal(err)
	}
	if err := makeSQLite(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	read := func() (n int, err error) {
		db, err := sql.Open("sqlite", "file:"+path+"?vfs="+pagesVFS)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var text []byte
		err = db.QueryRowContext(t.Context(), "SELECT text FROM long").Scan(&text)
		return len(text), err
	}
	const length = 1<<20 + 17
	db, err := sql.Open("sqlite", "file:"+path+"?vfs="+pagesVFS)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE TABLE long (text BLOB)",
		"INSERT INTO long SELECT CAST(REPLACE(HEX(ZEROBLOB(524297)), '0', 'x') AS BLOB)",
		"UPDATE long SET text = SUBSTR(text, 1, 1048593)"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := read(); n != length || err != nil {
		t.Fatalf("%d bytes are read, %v; want %d", n, err, length)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndex(string(text), strings.Repeat("x", 2000))
	text[at+1000] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); err == nil {
		t.Error("a value with a flipped bit is read")
	}
}
