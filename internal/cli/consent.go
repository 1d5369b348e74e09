package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/clouds"
)

func (a *app) newConsent() *cobra.Command {
	var f clouds.Source
	var reason string
	c := &cobra.Command{
		Use:   "consent MACHINE --reason TEXT",
		Short: "Let the disks of one machine be lost when policies end it",
		Long: `Declares that the disks of one machine hold nothing that matters, so that policies may
end it although its content is lost: instance-store disks when it stops, and disks that
are deleted with it when it is terminated. It writes the tag curfew:disks=scratch on the
machine and an entry in the audit log. Remove the tag to take it back.`,
		Example: `  curfew consent aws/123456789012/us-east-1/instance/i-0f3a --reason "scratch data only"`,
		Args:    oneArg("the id, name or identity of one machine"),
		RunE: func(c *cobra.Command, args []string) error {
			f.Cloud = "aws"
			doc, err := act.Consent(c.Context(), a.req, f, args[0], reason)
			if err != nil {
				return err
			}
			return a.say(doc, "Policies may end %s. Lost then: %s", doc.Resource,
				first(strings.Join(doc.Loses, "; "), "nothing that is known"))
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why nothing on the disks matters")
	c.Flags().StringArrayVar(&f.AssumeRoles, "assume-role", nil,
		"`ARN` of a role in the machine's account; repeatable")
	c.Flags().StringVar(&f.Profile, "profile", "", "AWS profile")
	a.outputs(c, tableJSON...)
	return c
}
