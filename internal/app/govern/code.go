package govern

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/code"
	"github.com/curfew-dev/curfew/internal/plain"
)

// ignoreFile names patterns of files that are not copied, one a line.
const ignoreFile = ".curfewignore"

// PackCode returns the archive and the hash of the code in a folder, without the state folder: it
// is not code, and a process that reads its own database's file loses its locks.
func PackCode(ctx context.Context, dir, state string) ([]byte, string, error) {
	names, err := codeFiles(ctx, dir, state)
	if err != nil {
		return nil, "", runtime.Invalid("read the code in %s: %w", dir, err)
	}
	archive, sum, err := code.Pack(dir, names)
	if errors.Is(err, code.ErrTooLarge) {
		return nil, "", &runtime.Error{
			Class: runtime.Usage, Code: "code_too_large",
			Err:  fmt.Errorf("copy the code in %s: its files have more than %s", dir, plain.Size(int64(code.MaxBytes))),
			Hint: "leave data and outputs out by " + ignoreFile + " or .gitignore, or name a smaller workdir"}
	}
	if err != nil {
		return nil, "", runtime.Invalid("copy the code in %s: %w", dir, err)
	}
	return archive, sum, nil
}

// codeFiles lists the files of a folder by their slash-separated names: in a repository those that
// git does not ignore, and never those that the ignore file matches.
func codeFiles(ctx context.Context, dir, state string) ([]string, error) {
	named, err := readIgnore(filepath.Join(dir, ignoreFile))
	if err != nil {
		return nil, err
	}
	own, err := below(dir, state)
	if err != nil {
		return nil, err
	}
	ignored := func(name string) bool {
		return own != "" && (own == "." || name == own || strings.HasPrefix(name, own+"/")) || named(name)
	}
	names, err := gitFiles(ctx, dir)
	if err != nil {
		if names, err = allFiles(dir, ignored); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(names, ignored), nil
}

// below returns the slash-separated name of the state folder in a folder; empty if it is elsewhere.
func below(dir, state string) (string, error) {
	if state == "" {
		return "", nil
	}
	for _, at := range []*string{&dir, &state} {
		abs, err := filepath.Abs(*at)
		if err != nil {
			return "", err
		}
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			abs = real
		}
		*at = abs
	}
	rel, err := filepath.Rel(dir, state)
	if err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel), nil
	}
	if inside, err := filepath.Rel(state, dir); err == nil && filepath.IsLocal(inside) {
		return "", fmt.Errorf("it is in the data directory of curfew, %s", state)
	}
	return "", nil
}

// gitFiles lists the files of a repository that git tracks or does not ignore.
func gitFiles(ctx context.Context, dir string) ([]string, error) {
	c := exec.CommandContext(ctx, "git", "-C", dir, "ls-files", "-z", "--cached", "--others",
		"--exclude-standard", ".")
	out, err := c.Output()
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(out, []byte{0}) {
		if len(name) == 0 {
			continue
		}
		info, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(string(name))))
		if err == nil && !info.IsDir() { // it may be deleted, or a submodule
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// leftOut are folders that never contain code.
var leftOut = []string{".git", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache"}

// allFiles lists the files of a folder outside of a repository.
func allFiles(dir string, ignored func(string) bool) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, at)
		if err != nil || rel == "." {
			return err
		}
		name := filepath.ToSlash(rel)
		switch {
		case d.IsDir() && (slices.Contains(leftOut, d.Name()) || ignored(name)):
			return filepath.SkipDir
		case !d.IsDir() && (d.Type().IsRegular() || d.Type()&fs.ModeSymlink != 0):
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// readIgnore returns a function that selects the paths that an ignore file names: by a pattern of
// the whole path, of its last element, or of a folder above it.
func readIgnore(file string) (func(string) bool, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return func(string) bool { return false }, nil
	}
	if err != nil {
		return nil, err
	}
	var patterns []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		p := strings.TrimSuffix(strings.TrimSpace(lines.Text()), "/")
		if p == "" || strings.HasPrefix(p, "#") {
			continue
		}
		if _, err := path.Match(p, "x"); err != nil {
			return nil, fmt.Errorf("%s: pattern %q: %w", ignoreFile, p, err)
		}
		patterns = append(patterns, strings.TrimPrefix(p, "/"))
	}
	return func(name string) bool {
		for at := name; at != "." && at != "/"; at = path.Dir(at) {
			for _, p := range patterns {
				whole, _ := path.Match(p, at) // the pattern is valid
				last, _ := path.Match(p, path.Base(at))
				if whole || last {
					return true
				}
			}
		}
		return false
	}, nil
}
