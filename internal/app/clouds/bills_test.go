package clouds

import (
	"path/filepath"
	"testing"
)

// is not kept.
func TestKeptBills(t *testing.T) {
	k := keptBills{dir: t.TempDir()}
	if err := k.KeepBill("123456789012", []byte("a")); err != nil || string(k.Bill("123456789012")) != "a" ||
		k.Bill("210987654321") != nil {
		t.Errorf("kept %q, %v", k.Bill("123456789012"), err)
	}
	k.read = true
	if err := k.KeepBill("123456789012", []byte("b")); err != nil || string(k.Bill("123456789012")) != "a" {
		t.Errorf("a scan that keeps nothing kept %q, %v", k.Bill("123456789012"), err)
	}
	k.read = false
	if err := k.KeepBill("../../x", []byte("a")); err != nil || k.Bill("../../x") != nil {
		t.Errorf("kept outside: %v", err)
	}
	if files, _ := filepath.Glob(filepath.Join(k.dir, "billed", "*")); len(files) != 1 {
		t.Errorf("files %v", files)
	}
}
