package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newKeep() *cobra.Command {
	var in ops.KeepInput
	c := &cobra.Command{
		Use:   "keep RESOURCE --for 24h --reason TEXT",
		Args:  cobra.ArbitraryArgs,
		Short: "Exempt a resource from every policy, at once",
		Long: `Exempts a resource until a time, effective immediately: no policy acts on it, and a pending
warning is withdrawn. RESOURCE is an id such as i-0abc, a name, or the whole identity
cloud/account/region/kind/id. A keep ends by itself and is part of the audit log.
If this state has never seen the resource, another state acts on it: then the tag
curfew:keep-until is written as well, which every curfew reads. If that is denied, the
command exits with 1 and prints the provider's own command for a person who may tag it.
Without RESOURCE the current exemptions are listed.`,
		Example: `  curfew keep i-0f3a --for 24h --reason "demo on Thursday"
  curfew keep vision-train-7 --for 2026-12-01T08:00:00Z --reason "paper deadline"
  curfew keep`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return shown(a, report.KeepsSheet)(ops.ListKeeps.Call(c.Context(), a.at, ops.Paging{}))
			}
			if len(args) > 1 {
				return usageError("curfew keep takes one resource, got %d", len(args))
			}
			in.ID = args[0]
			doc, err := ops.KeepResource.Call(c.Context(), a.at, in)
			if err != nil {
				return err
			}
			by := ""
			if doc.Tagged {
				by = ", by its tag " + inventory.TagKeepUntil
			}
			return a.say(doc, "%s is kept until %s%s", doc.Resource, plain.Time(doc.Until), by)
		},
	}
	ops.KeepResource.AddFlags(c.Flags(), &in)
	c.Flags().StringSliceVar(&in.Source.Regions, "regions", nil,
		"regions to look in for an id that no scan has, or all (default: the configured region)")
	c.Flags().StringArrayVar(&in.Source.AssumeRoles, "assume-role", nil,
		"`ARN` of the role that reaches its account; repeatable")
	c.Flags().StringVar(&in.Source.Profile, "profile", "", "AWS profile")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newFreeze() *cobra.Command {
	var in ops.ReasonInput
	c := &cobra.Command{
		Use:   "freeze --reason TEXT",
		Short: "Stop all actions at once, until unfreeze",
		Long: `Stops every action of every process that shares this state, at once and across
restarts. Calls that the provider is already carrying out are still followed and recorded;
no new call is made. Scans and previews continue.`,
		Example: `  curfew freeze --reason "incident 42"
  curfew unfreeze --reason "over"`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.freeze(c.Context(), in, true) },
	}
	ops.Freeze.AddFlags(c.Flags(), &in)
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newUnfreeze() *cobra.Command {
	var in ops.ReasonInput
	c := &cobra.Command{
		Use:     "unfreeze --reason TEXT",
		Short:   "Allow actions again",
		Example: `  curfew unfreeze --reason "over"`,
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return a.freeze(c.Context(), in, false) },
	}
	ops.Freeze.AddFlags(c.Flags(), &in)
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newAudit() *cobra.Command {
	var in ops.AuditInput
	var since, until string
	var anchor, profile string
	var verify bool
	c := &cobra.Command{
		Use:   "audit",
		Short: "Who did what to which resource, why, and what came of it",
		Long: `Reads the audit log: every warning, intent, outcome, refusal, keep, freeze and
approval, oldest first. It is append-only and each entry holds the hash of the one before
it; --verify checks that chain. -o jsonl prints one entry a line. An item is one
action on one resource: ` + "`curfew fix --undo ITEM`" + ` shows how to take it back.

--anchor writes the end of the log, signed, to a file or an object: its number, hash and
time. --verify --anchor checks that the log still holds it, so that a log which was
cut off or rebuilt is noticed. Keep anchors where writers of the state cannot write.
The key is made on first use, audit.key in the data directory; its public part is printed
and belongs into audit.public_key on other machines.`,
		Example: `  curfew audit --since 7d
  curfew audit --resource i-0f3a
  curfew audit --what outcome -o jsonl > audit.jsonl
  curfew audit --anchor s3://my-bucket/curfew/anchor.json
  curfew audit --verify --anchor s3://my-bucket/curfew/anchor.json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case verify:
				return a.verifyAudit(c.Context(), anchor, profile)
			case anchor != "":
				d, err := govern.Anchor(c.Context(), a.req, anchor, profile)
				if err != nil {
					return err
				}
				return a.say(d, "%s: entry %d of %s, hash %s\nsigned with %s", anchor, d.Entry,
					plain.Time(d.At), d.Hash, d.Key)
			}
			var err error
			if in.Since, err = runtime.Past(a.Now().UTC(), since); err != nil {
				return usageError("--since: %w", err)
			}
			if in.Until, err = runtime.Past(a.Now().UTC(), until); err != nil {
				return usageError("--until: %w", err)
			}
			return a.audit(c.Context(), in)
		},
	}
	fl := c.Flags()
	fl.StringVar(&since, "since", "", "from then on: `7d`, or an RFC 3339 time")
	fl.StringVar(&until, "until", "", "before then: `1h`, or an RFC 3339 time")
	ops.ListAudit.AddFlags(fl, &in)
	fl.BoolVar(&verify, "verify", false, "check that no entry was changed or taken out")
	fl.StringVar(&anchor, "anchor", "",
		"write the signed end of the log to a `FILE` or s3://bucket/key; with --verify check that the log holds it")
	fl.StringVar(&profile, "profile", "", "AWS profile, for s3://")
	a.outputs(c, "table", "json", "jsonl")
	return c
}

// verifyAudit checks the audit log, and that it holds an anchor.
func (a *app) verifyAudit(ctx context.Context, anchor, profile string) error {
	d, err := ops.VerifyAudit.Call(ctx, a.at, ops.VerifyInput{Anchor: anchor, Profile: profile})
	if err != nil {
		return err
	}
	text := plain.Count(d.Entries, "entry") + ", unchanged"
	if held := d.Anchor; held != nil {
		text += fmt.Sprintf("\nentry %d is the one that was anchored on %s with %s", held.Entry, plain.Time(held.At),
			held.Key)
	}
	return a.say(d, "%s", plain.Text(text))
}

// freeze stops all actions, or allows them again.
func (a *app) freeze(ctx context.Context, in ops.ReasonInput, on bool) error {
	op := ops.Unfreeze
	if on {
		op = ops.Freeze
	}
	doc, err := op.Call(ctx, a.at, in)
	var unreached *client.Unreached
	switch {
	case on && ctx.Err() == nil && errors.As(err, &unreached):
		return &failure{exit: ExitError, code: "no_server", err: err, hint: action.FreezeByHand}
	case err != nil:
		return err
	case on:
		return a.say(doc, "%s: no action starts until `curfew unfreeze`.", report.State("Frozen"))
	}
	return a.say(doc, "Actions are %s again.", report.State("allowed"))
}

func (a *app) audit(ctx context.Context, in ops.AuditInput) error {
	doc := view.Audit{Schema: view.AuditSchema, Entries: []view.AuditEntry{}}
	enc := json.NewEncoder(a.Stdout)
	enc.SetEscapeHTML(false)
	n := 0
	whole := a.format == "json" || a.format == "table" && a.Width > 0
	print := func(e view.AuditEntry) error {
		n++
		switch {
		case whole:
			doc.Entries = append(doc.Entries, e)
			return nil
		case a.format == "jsonl":
			return enc.Encode(e)
		}
		return report.AuditLine(a.Stdout, e)
	}
	paged := func(in *ops.AuditInput, p ops.Paging) { in.Paging = p }
	err := ops.ListAudit.Each(ctx, a.at, in, paged, func(page view.Audit) error {
		for _, e := range page.Entries {
			if err := print(e); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil || a.format == "jsonl":
		return err
	case whole:
		return a.show(doc, func() report.Sheet { return report.AuditSheet(doc.Entries) })
	}
	_, err = plain.Fprintln(a.Stdout, plain.Count(n, "entry"))
	return err
}
