package docs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestGettingStarted runs docs/getting-started.md from its second terminal on, with the sandbox of
// the first terminal. It takes about three minutes.
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
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "mkdir", "bin")
	run(t, dir, "ln", "-s", self, "bin/curfew")
	run(t, root, "go", "build", "-o", filepath.Join(dir, "aws-sandbox"), "./test/aws-sandbox")
	run(t, root, "cp", "-r", "examples", dir)
	messages := startSandbox(t, dir)

	shell := newShell(t, dir)
	shell.run("set -e")
	var said string
	for _, b := range blocks(string(text)) {
		switch b.kind {
		case "yaml":
			if err := os.WriteFile(filepath.Join(dir, "first.yaml"), []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			if strings.Contains(b.text, "make aws-sandbox") {
				continue // the first terminal
			}
			var code string
			if said, code = shell.run(b.text); code != "0" {
				t.Fatalf("line %d: exit %s of\n%s\n%s", b.line, code, b.text, said)
			}
		case "text":
			for line := range strings.Lines(b.text) {
				if strings.TrimSpace(line) != "" && !shows(line, said) && !shows(line, messages.String()) {
					t.Errorf("line %d shows %q, and the output is\n%s", b.line, strings.TrimSpace(line), said)
				}
			}
		}
	}
}

// terminal is the visible content of a terminal with concurrent writers.
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

// startSandbox starts the sandbox as `make aws-sandbox > sandbox.env` does, and returns its
// terminal.
func startSandbox(t *testing.T, dir string) *terminal {
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
