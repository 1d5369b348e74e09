package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newWhoami() *cobra.Command {
	c := &cobra.Command{
		Use:   "whoami",
		Short: "Show your identity, how it is proven, and what you may approve",
		Long: `Shows your name and how it is proven. AWS credentials
prove an identity by GetCallerIdentity, verified with STS; a name in curfew.yaml or
CURFEW_IDENTITY is self-declared and opens no fix unless approvals.accept says so.`,
		Example: "  curfew whoami\n  curfew whoami -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.whoami(c.Context())
		},
	}
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) whoami(ctx context.Context) error {
	doc, err := ops.Whoami.Call(ctx, a.at, ops.None{})
	if err != nil {
		return err
	}
	return a.show(doc, func() report.Sheet { return report.WhoamiSheet(doc) })
}
