package act_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/apptest"
)

// TestDoctorStateReportsGrowthAndBackup asks at three times, with a backup in between.
func TestDoctorStateReportsGrowthAndBackup(t *testing.T) {
	req := apptest.Request(t, "")
	began := apptest.Now
	t.Cleanup(func() { apptest.Now = began })
	doc, err := act.DoctorState(t.Context(), req)
	if err != nil || doc.GrowthPerDay != nil || doc.Backup != nil ||
		doc.Restore == "" || !doc.OldestChargeAt.IsZero() {
		t.Fatalf("a new state: %+v, %v", doc, err)
	}
	apptest.Now = began.Add(12 * time.Hour)
	if doc, err = act.DoctorState(t.Context(), req); err != nil || doc.GrowthPerDay != nil {
		t.Errorf("growth is told after half a day: %+v, %v", doc, err)
	}
	apptest.Now = began.Add(48 * time.Hour)
	file := filepath.Join(t.TempDir(), "backup.db")
	if _, err := act.BackupState(t.Context(), req, file); err != nil {
		t.Fatal(err)
	}
	apptest.Now = apptest.Now.Add(time.Hour)
	doc, err = act.DoctorState(t.Context(), req)
	if err != nil || doc.GrowthPerDay == nil || !doc.GrowthSince.Equal(began) {
		t.Errorf("growth after two days: %+v, %v", doc, err)
	}
	if b := doc.Backup; b == nil || b.File != file || b.Missing || apptest.Now.Sub(b.At) != time.Hour || b.Bytes == 0 {
		t.Errorf("backup: %+v", b)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if doc, err = act.DoctorState(t.Context(), req); err != nil || doc.Backup == nil || !doc.Backup.Missing {
		t.Errorf("a backup that is gone: %+v, %v", doc.Backup, err)
	}
}
