package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/plain"
)

func (a *app) newWhoami() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "whoami",
		Short: "Show your identity, how it is proven, and what you may approve",
		Long: `Shows the name under which you give commands and how it is proven. AWS credentials
prove an identity by GetCallerIdentity, asked of STS itself; a name in curfew.yaml or
CURFEW_IDENTITY is self-declared and opens no fix unless approvals.accept says so.`,
		Example: "  curfew whoami\n  curfew whoami -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "table", "json"); err != nil {
				return err
			}
			return a.whoami(c.Context(), output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

func (a *app) whoami(ctx context.Context, output string) error {
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
	opens := cfg.Approvals.Accepts(who.Proof.Kind)
	if output == "json" {
		doc := map[string]any{"schema": "curfew.whoami/v1", "name": who.Name, "declared": declared.Name, "proof": string(who.Proof.Kind), "verified": who.Proof.Verified(),
			"subject": who.Proof.Subject, "verified_by": who.Proof.Detail, "in_people": who.Proof.Mapped, "roles": append([]string{}, who.Roles...), "opens_fixes": opens, "unverified_because": nil, "settings": by}
		if failed != nil {
			doc["unverified_because"] = failed.Error()
		}
		return a.printJSON(doc)
	}
	row := func(label, text string) { plain.Fprintf(a.Stdout, "%-10s %s\n", label, text) }
	row("name", who.Name)
	row("proof", who.Proof.String())
	if failed != nil {
		row("", "AWS: "+failed.Error())
	} else if declared.Name != who.Name {
		row("declared", declared.Name+" (self-declared, not verified)")
	}
	roles := strings.Join(who.Roles, ", ")
	where := "curfew.yaml"
	if !by.Advisory {
		where = fmt.Sprintf("the shared settings (version %d)", by.Version)
	}
	row("roles", first(roles, "none: the approvers section of "+where+" does not name you"))
	if roles != "" && !by.Advisory {
		row("", "by "+where)
	}
	switch {
	case opens && roles != "":
		row("approves", "gate requests and fixes that others asked for")
	case roles != "":
		row("approves", "gate requests that others asked for; fixes need AWS credentials")
	}
	return nil
}
