package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/cli"
)

var released = time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)

// releaseFiles writes a release next to a binary and returns its files by their paths.
func releaseFiles(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "curfew_v1_linux_amd64"), []byte("a binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, "v1", released); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEveryCommandHasAPage(t *testing.T) {
	files := releaseFiles(t)
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Hidden || !c.IsAvailableCommand() && c.HasParent() || c.IsAdditionalHelpTopicCommand() {
			return
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		page := "man/man1/" + name + ".1"
		if title := fmt.Sprintf(".TH \"%s\" \"1\" \"Nov 2026\" \"curfew v1\"", strings.ToUpper(name)); !bytes.Contains(files[page], []byte(title)) {
			t.Errorf("%s does not have the title %s", page, title)
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(cli.Commands())
}

func TestEveryShellHasCompletions(t *testing.T) {
	files := releaseFiles(t)
	for name, line := range map[string]string{
		"completions/curfew.bash": "complete -o default",
		"completions/_curfew":     "#compdef curfew",
		"completions/curfew.fish": "complete -c curfew",
	} {
		if !bytes.Contains(files[name], []byte(line)) {
			t.Errorf("%s does not have %q", name, line)
		}
	}
}

func TestChecksumsNameEveryFile(t *testing.T) {
	files := releaseFiles(t)
	sums := string(files[checksums])
	delete(files, checksums)
	if got, want := strings.Count(sums, "\n"), len(files); got != want {
		t.Errorf("%d files have a checksum, want %d", got, want)
	}
	for name, content := range files {
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name); !strings.Contains(sums, line) {
			t.Errorf("the checksums lack %q", line)
		}
	}
}

func TestSameSourceGivesSameRelease(t *testing.T) {
	first, second := releaseFiles(t), releaseFiles(t)
	if a, b := first[checksums], second[checksums]; !bytes.Equal(a, b) {
		t.Error("two releases of the same source differ")
	}
}

func TestRefusesSeveralFolders(t *testing.T) {
	if err := run([]string{"a", "b"}, "v1", ""); err == nil {
		t.Error("two folders are taken")
	}
	if err := run([]string{t.TempDir()}, "v1", "yesterday"); err == nil {
		t.Error("a date that is no number is taken")
	}
}
