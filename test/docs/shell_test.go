package docs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shell is a bash process that keeps its variables between blocks.
type shell struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
	n   int
}

func newShell(t *testing.T, dir string, env ...string) *shell {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, "bash", "--norc")
	c.Dir = dir
	c.Env = append([]string{
		"HOME=" + dir, "XDG_STATE_HOME=" + filepath.Join(dir, ".witness"), "PATH=" + os.Getenv("PATH"), "USER=ana",
	}, env...)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return &shell{t: t, in: in, out: bufio.NewReader(out)}
}

// run runs a block in the shell and returns its output and the exit code of its last command.
func (s *shell) run(text string) (said, code string) {
	s.t.Helper()
	s.n++
	mark := fmt.Sprintf("--- block %d ended with ", s.n)
	if _, err := fmt.Fprintf(s.in, "%s\necho \"%s$?\"\n", text, mark); err != nil {
		s.t.Fatal(err)
	}
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the shell ended: %v\n%s", err, said)
		}
		if before, after, found := strings.Cut(line, mark); found {
			return said + before, strings.TrimSpace(after)
		}
		said += line
	}
}
