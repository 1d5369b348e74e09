package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newToken() *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke tokens of the service",
		Long: `Tokens open the HTTP API of the service (docs/api.md). A token belongs to a person or a
program and has at most the roles that it is given, limited to the roles of the person where
people or approvers of curfew.yaml name one. Only its SHA-256 is kept.`,
		Example: "  curfew token create dashboard --role viewer\n  curfew token list",
		Args:    noSuchVerb,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var in ops.TokenInput
	create := &cobra.Command{
		Use:   "create NAME --role ROLE",
		Short: "Create a token and show it, once",
		Long: `Creates a token for a person or a program and prints it. It is not shown again.
Roles are viewer, user, approver, operator and admin; approver@vision is limited to the
team vision. Only the person of a token with the role approver can create it, with a verified
identity. Under shared settings it needs the role admin.`,
		Example: "  curfew token create dashboard --role viewer\n  curfew token create ci --role user@vision --for 30d",
		Args:    oneArg("the name of the person or program of the token"),
		RunE: func(c *cobra.Command, args []string) error {
			in.Body.Name = args[0]
			doc, err := ops.CreateToken.Call(c.Context(), a.at, in)
			if err != nil {
				return err
			}
			return a.say(doc, "%s\nThe token of %s expires %s and is not shown again.", doc.Secret, doc.Name,
				plain.Time(doc.ExpiresAt))
		},
	}
	ops.CreateToken.AddFlags(create.Flags(), &in)
	a.outputs(create, tableJSON...)
	list := &cobra.Command{
		Use: "list", Short: "List the tokens, without their secrets",
		Example: "  curfew token list\n  curfew token list -o json", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return shown(a, func(d view.Tokens) report.Sheet {
				return report.TokensSheet(d, a.Now())
			})(ops.ListTokens.Call(c.Context(), a.at, ops.Paging{}))
		},
	}
	a.outputs(list, tableJSON...)
	revoke := &cobra.Command{
		Use: "revoke TOKEN", Short: "End a token, by its id or the beginning of it",
		Example: "  curfew token revoke 4f1c",
		Args:    oneArg("the id of one token; `curfew token list` lists them"),
		RunE: func(c *cobra.Command, args []string) error {
			doc, err := ops.RevokeToken.Call(c.Context(), a.at, ops.ByID{ID: args[0]})
			if err != nil {
				return err
			}
			return a.say(doc, "Token %s of %s is %s.", doc.ID, doc.Name, report.State(doc.State))
		},
	}
	a.outputs(revoke, tableJSON...)
	c.AddCommand(create, list, revoke)
	return c
}
