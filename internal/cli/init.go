package cli

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newInit(use string) *cobra.Command {
	var start config.Start
	var force bool
	c := &cobra.Command{
		Use:   use,
		Short: "Write a curfew.yaml and policies from six answers",
		Long: `Asks six questions and writes curfew.yaml and a directory policies/ with the four ready
policies that the answers are for: idle machines, a longest runtime, machines without an
owner, and work without progress. --all writes every ready policy. A flag answers its question in advance. An empty answer takes the default in
brackets. Existing files are overwritten only with --force.`,
		Example: `  curfew init
  curfew init --tags squad,created-by --govern lifetime=ephemeral --instance-store scratch --notify "#ml-cost" --observe yes`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.start(start, force, c.InOrStdin()) },
	}
	for _, q := range start.Questions() {
		c.Flags().StringVar(q.Answer, q.Flag, "", strings.TrimSuffix(q.Text, "?"))
	}
	a.outputs(c, tableJSON...)
	c.Flags().BoolVar(&start.All, "all", false, "write every ready policy")
	c.Flags().BoolVar(&force, "force", false, "overwrite files that exist")
	return c
}

// start asks, and writes the files once everything in them is valid.
func (a *app) start(s config.Start, force bool, in io.Reader) error {
	a.progress.clear(true) // it waits for answers
	lines := bufio.NewScanner(in)
	for _, q := range s.Questions() {
		for *q.Answer == "" {
			plain.Fprintf(a.Stderr, "%s [%s] ", q.Text, q.Usual)
			said := lines.Scan()
			*q.Answer = first(strings.TrimSpace(lines.Text()), q.Usual)
			if *q.Answer == "" && !said {
				return usageError("curfew init: --%s has no default; give it, or answer the question", q.Flag)
			}
		}
	}
	files, err := s.Files()
	if err != nil {
		return usageError("curfew init: %w", err)
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if _, err := os.Lstat(a.path(name)); err == nil && !force {
			return usageError("curfew init: %s exists; --force overwrites it", name)
		}
	}
	if err := os.MkdirAll(a.path("policies"), 0o755); err != nil {
		return fmt.Errorf("write the policies: %w", runtime.Cause(err))
	}
	for _, name := range names {
		err := durable.ReplaceBytes(a.path(name), 0o600, []byte(files[name]))
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return a.say(view.Init{Schema: view.InitSchema, Files: names, Mode: s.Mode()},
		"Wrote %s and %d policies in policies/ (mode %s).\nNext: curfew policy check, then curfew enforce --once",
		config.FileName, len(files)-1, s.Mode())
}
