package store_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/test/postgres"
)

// logged writes audit entries until it is stopped, and counts the committed ones.
func logged(t *testing.T, s *store.Store, written *atomic.Int64) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			err := s.Actions().Record(t.Context(), action.Entry{At: wall, Actor: "ana", What: "test"})
			if err != nil {
				t.Error(err)
				return
			}
			written.Add(1)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// TestBackupWhileOthersWrite checks that a backup is consistent and holds everything committed
// before it began.
func TestBackupWhileOthersWrite(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Options{Dir: filepath.Join(dir, "state")})
	var written atomic.Int64
	stop := logged(t, s, &written)
	defer stop()
	for n := 0; n < 3 || written.Load() < 100; n++ {
		before := written.Load()
		restored := filepath.Join(dir, "restored", strconv.Itoa(n))
		if err := os.MkdirAll(restored, 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(restored, store.FileName)
		size, err := s.Backup(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(file)
		if err != nil || st.Size() != size || st.Mode().Perm() != 0o600 {
			t.Fatalf("the file has %d bytes and the mode %v, %v; want %d bytes", st.Size(), st.Mode(), err, size)
		}
		copied := open(t, store.Options{Dir: restored})
		verified, err := copied.VerifyAudit(t.Context())
		if err != nil || verified.Entry < before {
			t.Fatalf("of %d entries the copy holds %d, %v", before, verified.Entry, err)
		}
	}
}

func TestBackupReplacesNoFile(t *testing.T) {
	s := open(t, store.Options{Dir: t.TempDir()})
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, []byte("an older backup"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backup(t.Context(), file); !errors.Is(err, fs.ErrExist) {
		t.Errorf("it returns %v", err)
	}
	if text, err := os.ReadFile(file); string(text) != "an older backup" || err != nil {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

func TestInterruptedBackupLeavesNoFile(t *testing.T) {
	s := open(t, store.Options{Dir: t.TempDir()})
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Backup(ctx, filepath.Join(dir, "backup")); !errors.Is(err, context.Canceled) {
		t.Errorf("it returns %v", err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// TestRefusesBackupOfDamagedState checks that one flipped bit anywhere prevents a backup, so that
// older backups stay the newest.
func TestRefusesBackupOfDamagedState(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Options{Dir: dir})
	for range 300 {
		if err := s.Actions().Record(t.Context(), action.Entry{
			At: wall, Actor: "ana", What: "test", Because: strings.Repeat("reason ", 60),
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil { // merges the log into the file
		t.Fatal(err)
	}
	file := filepath.Join(dir, store.FileName)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-2048] ^= 1
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := open(t, store.Options{Dir: dir})
	backup := filepath.Join(t.TempDir(), "backup")
	if _, err := damaged.Backup(t.Context(), backup); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("it returns %v", err)
	}
	if _, err := os.Stat(backup); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a backup: %v", err)
	}
}

func TestRefusesBackupOfPostgreSQL(t *testing.T) {
	s := open(t, store.Options{URL: postgres.Start(t)})
	if _, err := s.Backup(t.Context(), filepath.Join(t.TempDir(), "backup")); !errors.Is(err, store.ErrNoFile) {
		t.Errorf("it returns %v", err)
	}
}
