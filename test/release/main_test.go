package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/cli"
)

// binaryName is the binary of the tests' releases.
const binaryName = "curfew_v1_linux_amd64"

var released = time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)

// releaseFiles writes a release next to a binary and returns its files by their paths.
func releaseFiles(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	binary, err := os.Executable() // one that Go built, with what it is made of
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(dir, binaryName)); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, "v1", released); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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
		if title := fmt.Sprintf(".TH \"%s\" \"1\" \"Nov 2026\" \"curfew v1\"", strings.ToUpper(name)); !bytes.Contains(
			files[page], []byte(title)) {
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

func TestEveryBinaryHasBillOfMaterials(t *testing.T) {
	var b bom
	if err := json.Unmarshal(releaseFiles(t)[binaryName+".cdx.json"], &b); err != nil {
		t.Fatal(err)
	}
	names := map[string]component{}
	for _, c := range b.Components {
		names[c.Name] = c
		if len(c.Licenses) == 0 || c.Version == "" || !strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@") {
			t.Errorf("%+v", c)
		}
	}
	if got := names["github.com/spf13/cobra"]; got.Licenses[0].License.ID != "Apache-2.0" ||
		!strings.HasPrefix(got.Properties[0].Value, "h1:") {
		t.Errorf("cobra is %+v", got)
	}
	if _, ok := names["std"]; !ok || b.Metadata.Component.Version != "v1" ||
		b.Metadata.Timestamp != "2026-11-26T00:00:00Z" {
		t.Errorf("it is of %+v", b.Metadata)
	}
}

// TestLicensesAreAllowed checks the modules of the binary for every system that has a release.
func TestLicensesAreAllowed(t *testing.T) {
	seen := map[string]bool{}
	var modules []*debug.Module
	for _, system := range []string{"linux", "darwin"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
			"{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./cmd/curfew")
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			path, version, ok := strings.Cut(strings.TrimSpace(line), " ")
			if ok && !seen[path] {
				seen[path] = true
				modules = append(modules, &debug.Module{Path: path, Version: version})
			}
		}
	}
	if len(modules) < 50 {
		t.Fatalf("the binary has %d modules", len(modules))
	}
	if _, err := billOf(&debug.BuildInfo{Deps: modules}, "v1", released); err != nil {
		t.Error(err)
	}
}

func TestRefusesLicenses(t *testing.T) {
	for name, text := range map[string]string{
		"none": "",
		"GPL": "GNU GENERAL PUBLIC LICENSE Version 3, 29 June " +
			"2007\nhttps://www.gnu.org/licenses/gpl-3.0.html\nSPDX-License-Identifier: GPL-3.0-only\n",
		"unknown": "Ask us first.\n",
	} {
		dir := t.TempDir()
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if ids, err := licensesIn(dir); err == nil {
			t.Errorf("%s: %v", name, ids)
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
