package cli

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/plan"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newPlan() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan",
		Short: "Plan machine types, MIG slices, commitments, spot use and replicas",
		Long: `Planners read files, or with --from a scan of the account, its ledger or imported bills.
They change nothing. Each plan lists its assumptions, the data that it covers, and what
would change the answer.`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.newPlanRightsize(), a.newPlanMIG(), a.newPlanCommit(), a.newPlanCapacity(), a.newPlanSpot(),
		a.newPlanCheckpoint(), a.newPlanMarket(), a.newPlanTCO())
	return c
}

// show writes a planner's result: its document as JSON, or its sheet for people.
func (a *app) show(doc any, sheet func() report.Sheet) error {
	switch a.format {
	case "json":
		return a.printJSON(doc)
	case "html":
		return sheet().HTML(a.Stdout)
	case "md":
		return sheet().Markdown(a.Stdout)
	}
	return a.draw(sheet())
}

// draw writes a report for the terminal.
func (a *app) draw(s report.Sheet) error {
	s.Color = a.color()
	return s.Text(a.Stdout, a.Width)
}

// input opens a file of a planner, and unpacks it where its name ends in .gz.
func (a *app) input(name string) (io.ReadCloser, error) {
	file, err := os.Open(a.path(name))
	if err != nil {
		return nil, &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read %s: %w", name, daemon.Cause(err))}
	}
	if !strings.HasSuffix(name, ".gz") {
		return file, nil
	}
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, &failure{exit: ExitUsage, code: "invalid_file", err: errors.Join(fmt.Errorf("unpack %s: %w", name, err), file.Close())}
	}
	return unpacked{z, file}, nil
}

// unpacked is a compressed file and what it is read from.
type unpacked struct {
	*gzip.Reader
	file *os.File
}

func (u unpacked) Close() error { return errors.Join(u.Reader.Close(), u.file.Close()) }

// planFailure gives an error of a planner its exit code: that of a usage error for a
// malformed file.
func planFailure(err error) error {
	if err == nil {
		return nil
	}
	var file *plan.FileError
	if errors.As(err, &file) {
		return &failure{exit: ExitUsage, code: "invalid_file", err: err}
	}
	return &failure{exit: ExitError, code: "error", err: err}
}
