// Package otheruser provides Unix users other than the one that runs the tests. Tests that need
// them have OtherUser in their name, so that a run without root may skip them (test/skips.txt).
package otheruser

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// User is an unprivileged Unix user.
type User struct {
	Name     string
	UID, GID int
	// Home is the user's folder, which only the user can access.
	Home string
}

// One returns a user; the test is skipped where the process is not root.
func One(t testing.TB) User {
	t.Helper()
	return named(t, "curfew-test-1")
}

// Two returns two users; the test is skipped where the process is not root.
func Two(t testing.TB) (first, second User) {
	t.Helper()
	return named(t, "curfew-test-1"), named(t, "curfew-test-2")
}

// named returns a user of this machine, creating it if necessary.
func named(t testing.TB, name string) User {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs other users, and root to be them")
	}
	found, err := user.Lookup(name)
	if err != nil {
		out, failed := exec.Command("useradd", "--system", "--user-group", "--no-create-home", "--shell", "/bin/sh",
			name).CombinedOutput()
		if found, err = user.Lookup(name); err != nil { // another process may have been faster
			t.Fatalf("add the user %s: %v: %s", name, failed, out)
		}
	}
	u := User{Name: name}
	if u.UID, err = strconv.Atoi(found.Uid); err != nil {
		t.Fatal(err)
	}
	if u.GID, err = strconv.Atoi(found.Gid); err != nil {
		t.Fatal(err)
	}
	u.Home = u.Dir(t)
	return u
}

// Shared returns a folder that every user can enter and only root can write.
func Shared(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "curfew-shared-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Dir returns a new folder that only the user can access.
func (u User) Dir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(Shared(t), u.Name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, u.UID, u.GID); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Program returns a copy of a program that every user can run.
func Program(t testing.TB, path string) string {
	t.Helper()
	from, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	copied := filepath.Join(Shared(t), filepath.Base(path))
	to, err := os.OpenFile(copied, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if closed := to.Close(); err == nil {
		err = closed
	}
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

// Command returns a command that runs as the user in their home folder, with the environment of a
// login and additional variables.
func (u User) Command(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = u.Home
	cmd.Env = append([]string{"HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name,
		"PATH=/usr/local/bin:/usr/bin:/bin", "TMPDIR=" + u.Home}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: uint32(u.UID), Gid: uint32(u.GID)}}
	return cmd
}

// Sh runs a shell command as the user and returns its output and exit code.
func (u User) Sh(t testing.TB, line string) (out string, code int) {
	t.Helper()
	cmd := u.Command(t.Context(), nil, "/bin/sh", "-c", line)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("run %q as %s: %v", line, u.Name, err)
	}
	return strings.TrimSpace(printed.String()), cmd.ProcessState.ExitCode()
}
