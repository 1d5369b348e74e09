package checkpoint_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

// TestReportsFullDisk checks that a full disk is reported by the store and by a restore, and that
// neither leaves incomplete files in place.
func TestReportsFullDisk(t *testing.T) {
	if what := os.Getenv("CHECKPOINT_LIMITED"); what != "" {
		runLimited(t, what)
		return
	}
	child := func(what string, dirs ...string) {
		t.Helper()
		c := exec.Command(os.Args[0], "-test.run", "^TestReportsFullDisk$", "-test.v")
		c.Env = append(os.Environ(), "CHECKPOINT_LIMITED="+what, "CHECKPOINT_DIRS="+strings.Join(dirs, ":"))
		said, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(said), "refused: ") {
			t.Fatalf("%s: %v\n%s", what, err, said)
		}
	}
	store, dir, back := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "back")
	r := run(t, store)
	write(t, dir, "weights", random(1, 3<<20))
	child("save", store, dir)
	if _, err := r.Restore(t.Context(), back, checkpoint.RestoreOptions{}); !errors.Is(err, checkpoint.ErrNoSnapshot) {
		t.Errorf("restore after a save that failed: %v", err)
	}
	save(t, claim(t, r), dir, checkpoint.SaveOptions{})
	child("restore", store, back)
	if got := names(t, filepath.Dir(back)); got != "" {
		t.Errorf("left %s", got)
	}
	to, _ := restore(t, r, checkpoint.RestoreOptions{})
	same(t, dir, to)
}

// runLimited runs a process whose files may not exceed 1 MiB.
func runLimited(t *testing.T, what string) {
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	dirs := strings.Split(os.Getenv("CHECKPOINT_DIRS"), ":")
	r := run(t, dirs[0])
	var err error
	if what == "save" {
		_, err = claim(t, r).Save(t.Context(), dirs[1], checkpoint.SaveOptions{})
	} else {
		_, err = r.Restore(t.Context(), dirs[1], checkpoint.RestoreOptions{})
	}
	if errors.Is(err, syscall.EFBIG) {
		fmt.Println("refused:", err)
	} else {
		t.Fatal(err)
	}
}

func TestReportsUnreadableFile(t *testing.T) {
	if os.Getuid() == 0 { // root reads everything
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestReportsUnreadableFile$", "-test.v")
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestReportsUnreadableFile") {
			t.Errorf("as a user without rights: %v\n%s", err, out)
		}
		return
	}
	dir, r := t.TempDir(), run(t, t.TempDir())
	write(t, dir, "secret", []byte("x"))
	if err := os.Chmod(filepath.Join(dir, "secret"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(t, r).Save(t.Context(), dir, checkpoint.SaveOptions{}); err == nil ||
		!strings.Contains(err.Error(), "secret") {
		t.Errorf("a file that cannot be read: %v", err)
	}
}
