// Package docs carries out documents as a reader would: each command as it is written,
// with the output that the document shows for it.
package docs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// block is a fenced block of a document: what the fence names, and its text.
type block struct {
	line       int
	kind, text string
}

// blocks returns the fenced blocks of a document, in order.
func blocks(document string) []block {
	var all []block
	var open *block
	for i, line := range strings.Split(document, "\n") {
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{line: i + 1, kind: kind}
		case fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return all
}

// pattern matches a line that a document shows. Words with a digit may have another value
// ("7h 5m" for "7h"), because figures, times and ids differ from run to run; so may a bar.
func pattern(line string) *regexp.Regexp {
	const figures = `\S*[0-9█░]\S*(?:\s+\S*[0-9█░]\S*)*`
	var words []string
	for _, w := range strings.Fields(line) {
		switch {
		case !strings.ContainsAny(w, "0123456789█░"):
			words = append(words, regexp.QuoteMeta(w))
		case len(words) == 0 || words[len(words)-1] != figures:
			words = append(words, figures)
		}
	}
	return regexp.MustCompile(`(?m)^\s*` + strings.Join(words, `\s+`) + `\s*$`)
}

func TestPattern(t *testing.T) {
	for _, test := range []struct {
		shown, real string
		want        bool
	}{
		{"  Enforced: 2 refused, 4 warned", "  Enforced: 3 refused, 1 warned", true},
		{"  Enforced: 2 refused, 4 warned", "  Enforced: 2 refused, 4 observed", false},
		{"46 cases, 0 failed", "46 cases, 0 failed and more", false},
		{"1 policy is valid", "x\n1 policy is valid\ny", true},
		{"max 12 over 7h 5m (100% covered)", "  max 11.5 over 7h (99% covered)", true},
		{"max 12 over 7h 5m (100% covered)", "  max over 7h (99% covered)", false},
	} {
		if got := pattern(test.shown).MatchString(test.real); got != test.want {
			t.Errorf("%q for %q: %v, want %v", test.shown, test.real, got, test.want)
		}
	}
}

// TestGettingStarted runs docs/getting-started.md from its second terminal on, with the
// sandbox that its first terminal starts. It takes about three minutes.
func TestGettingStarted(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("slow: make test-slow runs it")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "getting-started.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run(t, root, "go", "build", "-o", filepath.Join(dir, "bin", "curfew"), "./cmd/curfew")
	run(t, root, "go", "build", "-o", filepath.Join(dir, "aws-sandbox"), "./test/aws-sandbox")
	run(t, root, "cp", "-r", "examples", dir)
	messages := sandbox(t, dir)

	shell := newShell(t, dir)
	var said string
	for _, b := range blocks(string(text)) {
		switch b.kind {
		case "yaml":
			if err := os.WriteFile(filepath.Join(dir, "first.yaml"), []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			var code string
			if said, code = shell.run(b.text); code != "0" {
				t.Fatalf("line %d: exit %s of\n%s\n%s", b.line, code, b.text, said)
			}
		case "text":
			for line := range strings.Lines(b.text) {
				if strings.TrimSpace(line) != "" && !pattern(line).MatchString(said) && !pattern(line).MatchString(messages.String()) {
					t.Errorf("line %d shows %q, and the output is\n%s", b.line, strings.TrimSpace(line), said)
				}
			}
		}
	}
}

// terminal is what a terminal shows while others write to it.
type terminal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (m *terminal) add(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text.WriteString(line + "\n")
}

// String implements [fmt.Stringer].
func (m *terminal) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String()
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// sandbox starts the sandbox as `make aws-sandbox > sandbox.env` does and returns what its
// terminal shows.
func sandbox(t *testing.T, dir string) *terminal {
	env, err := os.Create(filepath.Join(dir, "sandbox.env"))
	if err != nil {
		t.Fatal(err)
	}
	messages := &terminal{}
	c := exec.CommandContext(t.Context(), filepath.Join(dir, "aws-sandbox"), "-live")
	c.Stdout, c.Cancel, c.WaitDelay = env, func() error { return c.Process.Signal(syscall.SIGINT) }, 20*time.Second
	notes, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(notes); lines.Scan(); {
			messages.add(lines.Text())
			if strings.HasPrefix(lines.Text(), "serving until interrupted") {
				ready <- true
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGINT)
		<-ended
		_ = c.Wait()
		_ = env.Close()
	})
	select {
	case <-ready:
	case <-ended:
		t.Fatalf("the sandbox ended:\n%s", messages)
	case <-time.After(5 * time.Minute):
		t.Fatal("the sandbox is not ready after 5 minutes")
	}
	return messages
}

// shell is one bash that keeps its variables from block to block.
type shell struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
	n   int
}

func newShell(t *testing.T, dir string) *shell {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, "bash", "--norc", "-e")
	c.Dir = dir
	c.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "USER=ana"}
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

// run gives a block to the shell and returns its output and the exit code of its last
// command.
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
