package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// scratchTag is what the owner of a machine writes on it to consent.
var scratchTag = map[string]string{inventory.TagDisks: "scratch"}

func (a *app) newConsent() *cobra.Command {
	var f sourceFlags
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
			return a.consent(c.Context(), f, args[0], reason)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why nothing on the disks matters")
	c.Flags().StringArrayVar(&f.AssumeRoles, "assume-role", nil, "`ARN` of a role in the machine's account; repeatable")
	c.Flags().StringVar(&f.Profile, "profile", "", "AWS profile")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) consent(ctx context.Context, f sourceFlags, name, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return usageError("curfew consent %s: give --reason, so that others know why its disks may be lost", name)
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	who, err := a.rt.Person(cfg)
	if err != nil {
		return err
	}
	ref, err := a.rt.Resolve(cfg, name)
	if err != nil {
		return err
	}
	if ref.Kind != inventory.KindInstance || ref.Cloud != "aws" {
		return usageError("curfew consent %s: it is about machines of AWS, and this is of kind %s", ref, ref.Kind)
	}
	book, err := a.prices(cfg)
	if err != nil {
		return err
	}
	f.Regions = []string{ref.Region}
	lister, err := a.rt.Lister(ctx, f.Source, cfg, book, a.Now().UTC())
	if err != nil {
		return err
	}
	cloud, ok := lister.(*daemon.AWS)
	if !ok {
		return usageError("curfew consent %s: nothing is carried out there", ref)
	}
	seen, err := cloud.List(ctx, round.Query{Now: a.Now().UTC(), Only: map[inventory.Ref]bool{ref: true}})
	if err != nil {
		return daemon.CloudError(err)
	}
	byHand := fmt.Sprintf("by hand: aws ec2 create-tags --region %s --resources %s --tags Key=%s,Value=scratch",
		plain.Shell(ref.Region), plain.Shell(ref.ID), inventory.TagDisks)
	if len(seen.Resources) != 1 {
		return &failure{exit: ExitError, code: "not_found", err: fmt.Errorf("consent %s: the machine could not be read", ref), hint: byHand}
	}
	r := seen.Resources[0]
	book.Fill(r)
	s, err := a.open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	now, err := a.inTime(ctx, s)
	if err != nil {
		return err
	}
	lost := lossesOf(r)
	entry := action.Entry{At: now, Account: ref.Cloud + "/" + ref.Account, Actor: who, What: "consent", Resource: ref.String(),
		Because: action.Redact(reason), Outcome: "may lose " + strings.Join(lost, "; ")}
	if err := s.Actions().Record(ctx, entry); err != nil {
		return fmt.Errorf("record the consent: %w", err)
	}
	if err := daemon.WriteTags(ctx, cloud.Actions(), r, scratchTag, "consent-"+ref.ID); err != nil {
		return &failure{exit: ExitError, code: "not_tagged", err: fmt.Errorf("consent %s: %w", ref, err), hint: byHand}
	}
	if a.format == "json" {
		return a.printJSON(view.Consent{Schema: view.ConsentSchema, Resource: ref.String(), Loses: lost, Reason: action.Redact(reason), By: who})
	}
	_, err = plain.Fprintf(a.Stdout, "Policies may end %s. Lost then: %s\n", ref, first(strings.Join(lost, "; "), "nothing that is known"))
	return err
}

// lossesOf are the disks that a machine loses if policies terminate it.
func lossesOf(r *inventory.Resource) []string {
	out := []string{}
	for _, l := range action.Losses(r, policy.Do{Verb: policy.Terminate}) {
		out = append(out, l.String())
	}
	return out
}
