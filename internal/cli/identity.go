package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newWhoami() *cobra.Command {
	c := &cobra.Command{
		Use:   "whoami",
		Short: "Show your identity, how it is proven, and what you may approve",
		Long: `Shows the name under which you give commands and how it is proven. AWS credentials
prove an identity by GetCallerIdentity, asked of STS itself; a name in curfew.yaml or
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
	cfg, err := a.config()
	if err != nil {
		return err
	}
	cfg, by, err := a.rt.PeopleHere(ctx, cfg)
	if err != nil {
		return err
	}
	declared, err := a.declared(cfg)
	if err != nil {
		return err
	}
	who, failed := a.rt.SignedIn(ctx, cfg, "curfew whoami")
	if failed != nil {
		who = declared
	}
	doc := view.Whoami{Schema: view.WhoamiSchema, Name: who.Name, Declared: declared.Name, Proof: string(who.Proof.Kind), Verified: who.Proof.Verified(),
		Subject: who.Proof.Subject, VerifiedBy: who.Proof.Detail, InPeople: who.Proof.Mapped, Roles: append([]string{}, who.Roles...),
		OpensFixes: cfg.Approvals.Accepts(who.Proof.Kind), Settings: by, ProofText: who.Proof.String(), From: "curfew.yaml", Advisory: by.Advisory}
	if failed != nil {
		why := failed.Error()
		doc.UnverifiedBecause = &why
	}
	if !by.Advisory {
		doc.From = fmt.Sprintf("the shared settings (version %d)", by.Version)
	}
	return a.show(doc, func() report.Sheet { return report.WhoamiSheet(doc) })
}
