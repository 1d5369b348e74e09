// Command release writes what a release has besides binaries into a folder: completions for
// shells, manual pages, a bill of materials (CycloneDX) for each binary with the licenses of
// its modules, which have to be allowed, and the checksums of all files that are there. Run it
// from the root of the repository after the binaries are built: go run ./test/release -version v1.2.3 dist
//
// It is a program of its own because cobra's documentation brings packages that the binary is
// better off without.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/curfew-dev/curfew/internal/cli"
)

// checksums is the file of SHA-256 sums, in the form that `sha256sum --check` reads.
const checksums = "SHA256SUMS"

func main() {
	version := flag.String("version", "devel", "version that the manual pages name")
	flag.Parse()
	if err := run(flag.Args(), *version, os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, version, epoch string) error {
	if len(args) != 1 {
		return errors.New("name one folder to write to")
	}
	date := time.Now()
	if epoch != "" { // the same source gives the same files: https://reproducible-builds.org/specs/source-date-epoch
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
		}
		date = time.Unix(seconds, 0)
	}
	return write(args[0], version, date.UTC())
}

// write writes the files of a release into a folder.
func write(dir, version string, date time.Time) error {
	root := cli.Commands()
	if err := writeCompletions(root, filepath.Join(dir, "completions")); err != nil {
		return fmt.Errorf("write completions: %w", err)
	}
	if err := writePages(root, filepath.Join(dir, "man", "man1"), version, date); err != nil {
		return fmt.Errorf("write manual pages: %w", err)
	}
	if err := writeSBOMs(dir, version, date); err != nil {
		return fmt.Errorf("write bills of materials: %w", err)
	}
	if err := writeChecksums(dir); err != nil {
		return fmt.Errorf("write %s: %w", checksums, err)
	}
	return nil
}

// writeCompletions writes a file for each shell, with the name that the shell expects.
func writeCompletions(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(dir, "curfew.bash"), true),
		root.GenZshCompletionFile(filepath.Join(dir, "_curfew")),
		root.GenFishCompletionFile(filepath.Join(dir, "curfew.fish"), true),
	)
}

// writePages writes a manual page for each command.
func writePages(root *cobra.Command, dir, version string, date time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true // it contains the day of the build
	return doc.GenManTree(root, &doc.GenManHeader{
		Section: "1",
		Date:    &date,
		Source:  "curfew " + version,
		Manual:  "curfew",
	}, dir)
}

// writeChecksums writes the SHA-256 sums of all files below a folder, in path order.
func writeChecksums(dir string) error {
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == checksums {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // it was only read
		sum := sha256.New()
		if _, err := io.Copy(sum, file); err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sum.Sum(nil), filepath.ToSlash(name)))
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[2*sha256.Size:], b[2*sha256.Size:]) })
	return os.WriteFile(filepath.Join(dir, checksums), []byte(strings.Join(lines, "")), 0o644)
}
