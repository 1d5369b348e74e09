package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
)

// tagFlags are the flags of tag.
type tagFlags struct {
	sourceFlags
	enforce bool
	kinds   []string
	output  string
}

func (a *app) newTag() *cobra.Command {
	var f tagFlags
	var dryRun bool
	c := &cobra.Command{
		Use:   "tag [RESOURCE…]",
		Short: "Write missing owner tags by the rules of curfew.yaml, or show them",
		Long: `Reads an account and shows which tags each resource lacks and gets: those of
required_tags and of owners in curfew.yaml. RESOURCE is an id, a name, or the whole
identity cloud/account/region/kind/id; without it all resources are meant. That is all
without --enforce.

With --enforce it writes them, one resource after the other, and reads each back. It
never changes a tag that has a value, and no rule can write tags that decide what policies
may do. Each line has an id: ` + "`curfew fix --undo ID`" + ` takes it back.`,
		Example: `  curfew tag --regions us-east-1
  curfew tag i-0f3a --enforce
  curfew tag --kind instance,volume --enforce
  curfew tag --demo`,
		RunE: func(c *cobra.Command, names []string) error {
			if err := oneOf("output", f.output, "table", "json"); err != nil {
				return err
			}
			if err := f.check(); err != nil {
				return err
			}
			if f.enforce && dryRun && c.Flags().Changed("dry-run") {
				return usageError("--dry-run and --enforce say the opposite")
			}
			return a.tag(c.Context(), names, f)
		},
	}
	fl := c.Flags()
	fl.BoolVar(&dryRun, "dry-run", true, "change nothing")
	fl.BoolVar(&f.enforce, "enforce", false, "write the tags")
	fl.StringSliceVar(&f.kinds, "kind", nil, "only these kinds of resources, such as instance,volume")
	f.add(fl)
	fl.StringVarP(&f.output, "output", "o", "table", "table or json")
	return c
}

func (a *app) tag(ctx context.Context, names []string, f tagFlags) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	setting, err := a.setting(ctx, cfg, f.sourceFlags)
	if err != nil {
		return err
	}
	setting.Sources = nil // what anything does is no matter
	if len(f.kinds) > 0 {
		setting.Query.Kinds = map[inventory.Kind]bool{}
	}
	for _, k := range f.kinds {
		if !inventory.Kind(k).Valid() {
			return usageError("--kind %q does not exist; it is one of %v", k, inventory.Kinds())
		}
		setting.Query.Kinds[inventory.Kind(k)] = true
	}
	named := map[string]bool{}
	setting.Tagging = &round.Tagging{Owners: cfg.Owners, Required: cfg.RequiredTags, Tags: cfg.Tags, Wanted: func(r *inventory.Resource) bool {
		is := len(names) == 0
		for _, n := range names {
			if n == r.ID || n == r.Name || n == r.Ref().String() {
				named[n], is = true, true
			}
		}
		return is
	}}
	if f.enforce {
		cloud, ok := setting.Lister.(*daemon.AWS)
		if !ok {
			return usageError("--cloud %s: nothing is carried out there", f.cloud)
		}
		s, err := a.open(ctx, cfg)
		if err != nil {
			return err
		}
		defer s.Close()
		if _, err := a.inTime(ctx, s); err != nil {
			return err
		}
		if setting.Ladder, err = a.rt.Ladders(cfg, s, cloud.Actions(), true); err != nil {
			return err
		}
	}
	bar := a.newProgress(f.cloud)
	setting.Query.Progress = bar.report
	out, err := round.New(setting).Round(ctx)
	bar.finish()
	if out == nil {
		return daemon.StateError(daemon.CloudError(err))
	}
	broken := err // what was done before it is shown all the same
	if err := a.printTags(out, names, f); err != nil {
		return err
	}
	if broken != nil {
		return daemon.StateError(daemon.CloudError(&cutOff{broken, out.Lines()}))
	}
	for _, n := range names {
		if !named[n] {
			return &failure{exit: ExitError, code: "not_found", err: fmt.Errorf("no resource that was read has the id or name %q", n),
				hint: "give --regions and --assume-role, or the whole identity"}
		}
	}
	return tagExit(out)
}

// tagExit is the exit code: what was refused before what could not be read or written.
func tagExit(out *round.Result) error {
	partial := out.Partial()
	for _, l := range out.Lines() {
		if l.Result == action.ResultRefused || l.Result == action.ResultFrozen || l.Result == action.ResultOverCap {
			return &failure{exit: ExitDenied, code: "refused", err: errors.New(l.Resource.ID + ": " + l.Why), hint: "docs/safety.md explains every rule"}
		}
		partial = partial || l.Result != action.ResultConfirmed
	}
	for _, u := range out.Untagged {
		partial = partial || u.Unknown
	}
	if partial {
		return &failure{exit: ExitPartial}
	}
	return nil
}

// tagView is a resource that lacks tags, in a document.
type tagView struct {
	Resource string `json:"resource"`
	Name     string `json:"name,omitempty"`
	// Add are the tags that it gets.
	Add []addedTag `json:"add"`
	// Left are required tags for which nothing has a value.
	Left []string `json:"left"`
	// State is preview, unread, or the result of the ladder; Item is the id for undo.
	State string `json:"state"`
	Item  string `json:"item,omitempty"`
	Why   string `json:"why,omitempty"`
}

// addedTag is a tag that a resource gets. Before is null where it has none of this key.
type addedTag struct {
	Key    string  `json:"key"`
	Value  string  `json:"value"`
	Before *string `json:"before"`
	From   string  `json:"from"`
}

func tagViews(out *round.Result) []tagView {
	lines := map[inventory.Ref]action.Line{}
	for _, l := range out.Lines() {
		lines[l.Resource] = l
	}
	views := []tagView{}
	for _, u := range out.Untagged {
		v := tagView{Resource: u.Resource.Ref().String(), Name: u.Resource.Name, Add: []addedTag{}, Left: append([]string{}, u.Left...), State: "preview"}
		for _, t := range u.Add {
			added := addedTag{Key: t.Key, Value: t.Value, From: t.From}
			if t.Empty {
				added.Before = new(string)
			}
			v.Add = append(v.Add, added)
		}
		l, done := lines[u.Resource.Ref()]
		switch {
		case u.Unknown:
			v.State, v.Why = "unread", "its tags could not be read"
		case done:
			v.State, v.Item = string(l.Result), l.Item
			if l.Result != action.ResultConfirmed {
				v.Why = l.Why
			}
		}
		views = append(views, v)
	}
	return views
}

func (a *app) printTags(out *round.Result, names []string, f tagFlags) error {
	views := tagViews(out)
	if f.output == "json" {
		return a.printJSON(map[string]any{"schema": "curfew.tag/v1", "dry_run": !f.enforce, "accounts": out.Accounts, "resources": views,
			"blind_spots": append([]inventory.BlindSpot{}, out.BlindSpots...)})
	}
	mode := "dry run, nothing is changed"
	if f.enforce {
		mode = "enforcing; " + a.binding()
	}
	plain.Fprintf(a.Stdout, "curfew tag   %s, %s, %s\n", strings.Join(out.Accounts, ", "), plain.Count(len(out.Resources), "resource"), mode)
	resources, tags, without := 0, 0, 0
	for _, v := range views {
		title := v.Resource
		if v.Name != "" && !strings.HasSuffix(v.Resource, "/"+v.Name) {
			title += " (" + v.Name + ")"
		}
		plain.Fprintf(a.Stdout, "\n  %s\n", oneLine(title))
		for _, t := range v.Add {
			sign := "+"
			if t.Before != nil {
				sign = "~" // it is there without a value
			}
			plain.Fprintf(a.Stdout, "    %s %s = %s   by %s\n", sign, oneLine(t.Key), oneLine(t.Value), oneLine(t.From))
		}
		for _, k := range v.Left {
			plain.Fprintf(a.Stdout, "    ? %s   no rule and no default of owners in curfew.yaml has a value\n", oneLine(k))
		}
		if v.State != "preview" {
			plain.Fprintf(a.Stdout, "    %s   %s\n", v.State, oneLine(v.Why))
		}
		if v.Item != "" {
			plain.Fprintf(a.Stdout, "    undo: curfew fix --undo %s%s\n", v.Item, reaching(f.sourceFlags))
		}
		if len(v.Add) > 0 {
			resources, tags = resources+1, tags+len(v.Add)
		}
		if len(v.Left) > 0 {
			without++
		}
	}
	for _, b := range out.BlindSpots {
		plain.Fprintf(a.Stdout, "\n  not seen: %s (%s): %s", b.What, b.Why, b.Effect)
	}
	plain.Fprintf(a.Stdout, "\n  %s on %s; %s without a rule for a required tag\n", plain.Count(tags, "tag"),
		plain.Count(resources, "resource"), plain.Count(without, "resource"))
	if !f.enforce && tags > 0 && f.cloud == "aws" {
		words := []string{"curfew tag"}
		for _, n := range names {
			words = append(words, plain.Shell(n))
		}
		words = append(words, "--enforce")
		if len(f.regions) > 0 {
			words = append(words, "--regions", plain.Shell(strings.Join(f.regions, ",")))
		}
		if len(f.kinds) > 0 {
			words = append(words, "--kind", plain.Shell(strings.Join(f.kinds, ",")))
		}
		plain.Fprintf(a.Stdout, "  next: %s%s\n", strings.Join(words, " "), reaching(f.sourceFlags))
	}
	return nil
}

// reaching are the flags by which an account is reached, to follow a command.
func reaching(f sourceFlags) string {
	var words []string
	for _, role := range f.assumeRoles {
		words = append(words, "--assume-role", plain.Shell(role))
	}
	if f.profile != "" {
		words = append(words, "--profile", plain.Shell(f.profile))
	}
	return strings.Join(slices.Insert(words, 0, ""), " ")
}
