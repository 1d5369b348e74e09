package host_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/host"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/checkpoint"
)

func TestCheckpointIsRestored(t *testing.T) {
	req := apptest.Request(t, "")
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "restored")
	text := bytes.Repeat([]byte("weights"), 1000)
	name := filepath.Join(from, "model.bin")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	settled := apptest.Now.Add(-time.Hour)
	if err := os.Chtimes(name, settled, settled); err != nil {
		t.Fatal(err)
	}
	at := host.CheckpointStore{URL: "file://" + t.TempDir()}
	saved, err := host.CheckpointSave(t.Context(), req, from, at, host.CheckpointSaveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := host.CheckpointVerify(t.Context(), req, at, 0, 1)
	if err != nil || len(whole.Damage) > 0 || whole.Restorable == nil {
		t.Errorf("the run is damaged: %+v, %v", whole, err)
	}
	back, err := host.CheckpointRestore(t.Context(), req, at, to, checkpoint.RestoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if back.Snapshot == nil || back.Snapshot.Seq != saved.Snapshot.Seq {
		t.Errorf("restored is %+v, want snapshot %d", back.Snapshot, saved.Snapshot.Seq)
	}
	if got, err := os.ReadFile(filepath.Join(to, "model.bin")); err != nil || !bytes.Equal(got, text) {
		t.Errorf("the file has %d bytes, %v, want %d", len(got), err, len(text))
	}
}

func TestCheckpointsOfEmptyStore(t *testing.T) {
	_, err := host.CheckpointRestore(t.Context(), apptest.Request(t, ""), host.CheckpointStore{
		URL: "file://" + t.TempDir(),
	}, t.TempDir(), checkpoint.RestoreOptions{})
	var f *runtime.Error
	if !errors.As(err, &f) {
		t.Errorf("got %v, want an error of the application", err)
	}
}
