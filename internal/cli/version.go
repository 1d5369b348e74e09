package cli

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newVersion() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:     "version",
		Short:   "Show the version, the commit and its date, and the Go version",
		Example: "  curfew version\n  curfew version --json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			doc := buildVersion(a.Process)
			if asJSON || a.format == "json" {
				return a.printJSON(doc)
			}
			commit := cmp.Or(doc.Commit, "unknown")
			if doc.Modified {
				commit += " with changes"
			}
			_, err := plain.Fprintf(a.Stdout, "curfew %s\ncommit    %s\ndate      %s\ngo        %s\nplatform  %s\n",
				doc.Version, commit, cmp.Or(doc.Date, "unknown"), doc.Go, doc.Platform)
			return err
		},
	}
	a.outputs(c, tableJSON...)
	c.Flags().BoolVar(&asJSON, "json", false, "the same as -o json")
	return c
}

// buildVersion returns the version of this program. Builds in a checkout record commit and date
// themselves where the linker did not set them.
func buildVersion(p *Process) view.Version {
	doc := view.Version{
		Schema: view.VersionSchema, Version: p.Version, Commit: p.Commit, Date: p.Date,
		Modified: strings.HasSuffix(p.Version, "-dirty"),
		Go:       runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || doc.Commit != "" {
		return doc
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			doc.Commit = s.Value
		case "vcs.time":
			doc.Date = s.Value
		case "vcs.modified":
			doc.Modified = s.Value == "true"
		}
	}
	return doc
}
