package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newKeep() *cobra.Command {
	var duration, reason string
	var f sourceFlags
	c := &cobra.Command{
		Use:   "keep RESOURCE --for 24h --reason TEXT",
		Short: "Exempt a resource from every policy, at once",
		Long: `Exempts a resource until a time, at once: no policy acts on it, and a warning that
was given is withdrawn. RESOURCE is an id such as i-0abc, a name, or the whole identity
cloud/account/region/kind/id. A keep ends by itself and is part of the audit log.
Where this state has never seen the resource, another state acts on it: then its tag
curfew:keep-until is written as well, which every curfew reads. If that is denied, the
command exits with 1 and prints the provider's own command for whoever may tag it.
Without RESOURCE the keeps that hold are listed.`,
		Example: `  curfew keep i-0f3a --for 24h --reason "demo on Thursday"
  curfew keep vision-train-7 --for 2026-12-01T08:00:00Z --reason "paper deadline"
  curfew keep`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.keeps(c.Context())
			}
			if len(args) > 1 {
				return usageError("curfew keep takes one resource, got %d", len(args))
			}
			return a.keep(c.Context(), f, args[0], duration, reason)
		},
	}
	c.Flags().StringVar(&duration, "for", "", "how long: `24h`, 7d, or an RFC 3339 time")
	c.Flags().StringVar(&reason, "reason", "", "why, for those who look later")
	c.Flags().StringSliceVar(&f.Regions, "regions", nil, "regions to look in for an id that no scan has, or all (default: the configured region)")
	c.Flags().StringArrayVar(&f.AssumeRoles, "assume-role", nil, "`ARN` of the role that reaches its account; repeatable")
	c.Flags().StringVar(&f.Profile, "profile", "", "AWS profile")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) keep(ctx context.Context, f sourceFlags, name, duration, reason string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	now := a.Now().UTC()
	switch {
	case duration == "":
		return usageError("curfew keep %s: give --for, such as --for 24h", name)
	case strings.TrimSpace(reason) == "":
		return usageError("curfew keep %s: give --reason, so that others know why it runs", name)
	}
	end, err := until(now, duration)
	if err != nil {
		return usageError("--for: %w", err)
	}
	who, err := a.rt.Person(cfg)
	if err != nil {
		return err
	}
	ref, err := a.rt.Resolve(cfg, name)
	if missing := (*daemon.Error)(nil); errors.As(err, &missing) && missing.Code == "not_found" {
		found, failed := a.rt.Find(ctx, cfg, f.Source, name)
		if !errors.Is(failed, inventory.ErrNotFound) {
			ref, err = found, failed
		}
	}
	if err != nil {
		return err
	}
	s, err := a.open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	k := action.Keep{Ref: ref, Until: end, Reason: action.Redact(reason), By: who, At: now}
	seen, err := daemon.HasSeen(ctx, s, ref, now)
	if err != nil {
		return err
	}
	l := action.Ladder{Store: s.Actions(), Account: ref.Cloud + "/" + ref.Account, Actor: who, Clock: a.rt.Clock, KeepMax: cfg.Enforce.KeepMax}
	if err := l.Keep(ctx, k); err != nil {
		return &failure{exit: ExitDenied, code: "not_kept", err: err, hint: "enforce.keep_max in curfew.yaml sets the longest keep; it can be renewed"}
	}
	tagged := !seen && ref.Cloud == "aws"
	if tagged {
		if err := a.rt.KeepTag(ctx, cfg, f.Source, ref, end); err != nil {
			return err
		}
	}
	if a.format == "json" {
		doc := view.NewKeep(k)
		doc.Tagged = tagged
		return a.printJSON(doc)
	}
	by := ""
	if tagged {
		by = ", by its tag " + inventory.TagKeepUntil
	}
	plain.Fprintf(a.Stdout, "%s is kept until %s%s\n", ref, end.Format("2006-01-02 15:04 UTC"), by)
	return nil
}

func (a *app) keeps(ctx context.Context) error {
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	all, err := s.Actions().Keeps(ctx, a.Now().UTC())
	if err != nil {
		return fmt.Errorf("list the keeps: %w", err)
	}
	doc := view.NewKeeps(all)
	return a.show(doc, func() report.Sheet { return report.KeepsSheet(doc) })
}

func (a *app) newFreeze() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "freeze --reason TEXT",
		Short: "Stop all actions at once, until unfreeze",
		Long: `Stops every action of every process that shares this state, at once and across
restarts. What is already under way at the provider is still looked up and recorded;
nothing new is called. Scans, warnings' texts and previews go on.`,
		Example: `  curfew freeze --reason "incident 42"
  curfew unfreeze --reason "over"`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.freeze(c.Context(), reason, true) },
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newUnfreeze() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:     "unfreeze --reason TEXT",
		Short:   "Allow actions again",
		Example: `  curfew unfreeze --reason "over"`,
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return a.freeze(c.Context(), reason, false) },
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	a.outputs(c, tableJSON...)
	return c
}

// freezeWithin is how long the state may take to be opened before a person learns how to
// freeze by hand.
const freezeWithin = 10 * time.Second

func (a *app) freeze(ctx context.Context, reason string, on bool) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	if strings.TrimSpace(reason) == "" {
		return usageError("give --reason, so that others know why")
	}
	who, err := a.rt.Person(cfg)
	if err != nil {
		return err
	}
	opening, stop := context.WithTimeout(ctx, freezeWithin)
	defer stop()
	s, err := a.open(opening, cfg)
	if err != nil {
		if f := (*daemon.Error)(nil); on && errors.As(err, &f) {
			f.Hint = action.FreezeByHand
		}
		return err
	}
	defer s.Close()
	l := action.Ladder{Store: s.Actions(), Actor: who, Clock: a.rt.Clock}
	change, text := l.Unfreeze, "Actions are allowed again."
	if on {
		change, text = l.Freeze, "Frozen: no action starts until `curfew unfreeze`."
	}
	if err := change(ctx, reason); err != nil {
		return err
	}
	if a.format == "json" {
		return a.printJSON(view.Freeze{Schema: view.FreezeSchema, Frozen: on, By: who, At: a.Now().UTC(), Reason: action.Redact(reason)})
	}
	plain.Fprintln(a.Stdout, text)
	return nil
}

func (a *app) newAudit() *cobra.Command {
	var q action.Query
	var since, until string
	var anchor anchorFlags
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
and is what audit.public_key on another machine has to be.`,
		Example: `  curfew audit --since 7d
  curfew audit --resource i-0f3a
  curfew audit --what outcome -o jsonl > audit.jsonl
  curfew audit --anchor s3://my-bucket/curfew/anchor.json
  curfew audit --verify --anchor s3://my-bucket/curfew/anchor.json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if anchor.verify || anchor.at != "" {
				return a.anchored(c.Context(), anchor)
			}
			var err error
			if q.Since, err = past(a.Now().UTC(), since); err != nil {
				return usageError("--since: %w", err)
			}
			if q.Until, err = past(a.Now().UTC(), until); err != nil {
				return usageError("--until: %w", err)
			}
			return a.audit(c.Context(), q)
		},
	}
	fl := c.Flags()
	fl.StringVar(&since, "since", "", "from then on: `7d`, or an RFC 3339 time")
	fl.StringVar(&until, "until", "", "before then: `1h`, or an RFC 3339 time")
	fl.StringVar(&q.Resource, "resource", "", "a part of the resource's identity")
	fl.StringVar(&q.Actor, "actor", "", "who did it")
	fl.StringVar(&q.What, "what", "", "what happened: warned, intent, outcome, refused, keep, freeze, …")
	fl.StringVar(&q.Item, "item", "", "one way up the ladder, by its id")
	fl.IntVar(&q.Limit, "limit", 0, "the newest this many (default: all)")
	fl.BoolVar(&anchor.verify, "verify", false, "check that no entry was changed or taken out")
	fl.StringVar(&anchor.at, "anchor", "", "write the signed end of the log to a `FILE` or s3://bucket/key; with --verify check that the log holds it")
	fl.StringVar(&anchor.profile, "profile", "", "AWS profile, for s3://")
	a.outputs(c, "table", "json", "jsonl")
	return c
}

// past reads a time before now: a duration ago, or a time.
func past(now time.Time, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := config.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC(), nil
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration such as 7d nor a time", text)
}

func (a *app) audit(ctx context.Context, q action.Query) error {
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	doc := view.Audit{Schema: view.AuditSchema, Entries: []view.AuditEntry{}}
	enc := json.NewEncoder(a.Stdout)
	enc.SetEscapeHTML(false)
	terminal := a.Width > 0
	n := 0
	err = s.Actions().Entries(ctx, q, func(e action.Entry) error {
		n++
		switch {
		case a.format == "jsonl":
			return enc.Encode(view.NewAuditEntry(e))
		case a.format == "json" || terminal:
			doc.Entries = append(doc.Entries, view.NewAuditEntry(e))
			return nil
		}
		_, err := plain.Fprintln(a.Stdout, entryLine(e)) // for grep: all of it on one line
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("read the audit log: %w", err)
	case a.format == "jsonl":
		return nil
	case a.format == "json" || terminal:
		return a.show(doc, func() report.Sheet { return report.AuditSheet(doc.Entries) })
	}
	plain.Fprintln(a.Stdout, plain.Count(n, "entry"))
	return nil
}

func entryLine(e action.Entry) string {
	words := []string{e.At.UTC().Format("2006-01-02 15:04:05"), e.What}
	if e.Verb != "" {
		words = append(words, e.Verb)
	}
	if e.Resource != "" {
		words = append(words, e.Resource)
	}
	words = append(words, "by "+e.Actor)
	if e.Item != "" {
		words = append(words, "item "+e.Item)
	}
	if e.Outcome != "" {
		words = append(words, "-> "+e.Outcome)
	}
	if e.Because != "" {
		words = append(words, "("+e.Because+")")
	}
	return strings.Join(words, "  ")
}
