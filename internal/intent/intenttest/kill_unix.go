//go:build unix

package intenttest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// Environment variables of a process that runs a story in a directory and is killed at the n-th
// boundary of its external calls.
const (
	killStory = "CURFEW_TEST_KILL_STORY"
	killDir   = "CURFEW_TEST_KILL_DIR"
	killAt    = "CURFEW_TEST_KILL_AT"
)

// everyBoundary, if set in the environment, kills at every boundary instead of every fifth.
const everyBoundary = "CURFEW_SLOW"

// Mortal counts boundaries and ends its process with SIGKILL at one of them.
type Mortal struct{ left int }

// Boundary marks a point at which the process may be killed: before and after each external call.
func (m *Mortal) Boundary() {
	if m.left--; m.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// Between makes a call between two boundaries.
func Between[T any](m *Mortal, call func() (T, error)) (T, error) {
	m.Boundary()
	defer m.Boundary()
	return call()
}

// Story is the work of a process that is killed at any of its boundaries.
type Story struct {
	Name string
	// Prepare sets up the story in an empty directory.
	Prepare func(t testing.TB, dir string)
	// Tell runs the story.
	Tell func(dir string, m *Mortal) error
	// End lets other processes continue after the kill, and checks the final state.
	End func(t testing.TB, dir string, killed bool)
	// Boundaries is the minimum number of boundaries of the story.
	Boundaries int
}

// Main returns the exit code for TestMain of a package with stories: it runs its tests or, in a
// process started by [Story.KilledAnywhere], a story.
func Main(m *testing.M, stories ...Story) int {
	name, dir := os.Getenv(killStory), os.Getenv(killDir)
	if dir == "" {
		return m.Run()
	}
	at, err := strconv.Atoi(os.Getenv(killAt))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, s := range stories {
		if s.Name == name {
			if err := s.Tell(dir, &Mortal{left: at}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			return 0
		}
	}
	fmt.Fprintf(os.Stderr, "there is no story %q\n", name)
	return 1
}

// KilledAnywhere runs the story in processes that are each killed at another boundary, until one
// completes.
func (s Story) KilledAnywhere(t *testing.T) {
	t.Helper()
	stride, first := 5, 1+len(s.Name)%5
	if os.Getenv(everyBoundary) != "" {
		stride, first = 1, 1
	}
	for n := first; ; n += stride {
		dir := memoryDir(t)
		s.Prepare(t, dir)
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), killStory+"="+s.Name, killDir+"="+dir, killAt+"="+strconv.Itoa(n))
		out, err := child.CombinedOutput()
		if err == nil {
			if s.End(t, dir, false); n-1 < s.Boundaries {
				t.Errorf("only %d boundaries: the story does not reach its end", n-1)
			}
			return
		}
		status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || status.Signal() != syscall.SIGKILL {
			t.Fatalf("boundary %d: %v: %s", n, err, out)
		}
		if s.End(t, dir, true); t.Failed() {
			t.Fatalf("killed at boundary %d", n)
		}
	}
}

// memoryDir returns a directory that survives a process but not necessarily the machine: in memory
// if possible.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "story")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
