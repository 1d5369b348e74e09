package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// tagFlags are the flags of tag.
type tagFlags struct {
	sourceFlags
	enforce bool
	kinds   []string
}

func (a *app) newTag() *cobra.Command {
	var f tagFlags
	var dryRun bool
	c := &cobra.Command{
		Use:   "tag [RESOURCE…]",
		Args:  cobra.ArbitraryArgs,
		Short: "Write missing owner tags by the rules of curfew.yaml, or show them",
		Long: `Reads an account and shows which tags each resource lacks and gets: those of
required_tags and of owners in curfew.yaml. RESOURCE is an id, a name, or the whole
identity cloud/account/region/kind/id; without it all resources are meant. That is all
without --enforce.

With --enforce it writes them, one resource after the other, and reads each back. It
never changes a tag that has a value, and no rule can write tags that control policies.
Each line has an id: ` + "`curfew fix --undo ID`" + ` reverts it.`,
		Example: `  curfew tag --regions us-east-1
  curfew tag i-0f3a --enforce
  curfew tag --kind instance,volume --enforce
  curfew tag --demo`,
		RunE: func(c *cobra.Command, names []string) error {
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
	a.outputs(c, tableJSON...)
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
	setting.Sources = nil // tagging needs no usage
	if len(f.kinds) > 0 {
		setting.Query.Kinds = map[inventory.Kind]bool{}
	}
	for _, k := range f.kinds {
		if !inventory.Kind(k).Valid() {
			var names []string
			for _, k := range inventory.Kinds() {
				names = append(names, string(k))
			}
			return usageError("--kind %q does not exist; it is one of %v%s", k, inventory.Kinds(),
				document.DidYouMean(k, names))
		}
		setting.Query.Kinds[inventory.Kind(k)] = true
	}
	named := map[string]bool{}
	setting.Tagging = &round.Tagging{
		Owners: cfg.Owners, Required: cfg.RequiredTags, Tags: cfg.Tags, Wanted: func(r *inventory.Resource) bool {
			is := len(names) == 0
			for _, n := range names {
				if n == r.ID || n == r.Name || n == r.Ref().String() {
					named[n], is = true, true
				}
			}
			return is
		}}
	if f.enforce {
		cloud, ok := setting.Lister.(*clouds.AWS)
		if !ok {
			return usageError("--cloud %s: nothing is carried out there", f.Cloud)
		}
		s, err := a.open(ctx, cfg)
		if err != nil {
			return err
		}
		defer s.Close()
		if _, err := a.inTime(ctx, s); err != nil {
			return err
		}
		if setting.Ladder, err = clouds.Ladders(a.req, cfg, s, cloud.Actions(), true); err != nil {
			return err
		}
	}
	bar := a.newProgress(f.Cloud)
	setting.Query.Progress = bar.Report
	out, err := round.New(setting).Round(ctx)
	bar.Finish()
	if out == nil {
		return runtime.StateError(clouds.CloudError(err))
	}
	broken := err // earlier results are shown all the same
	doc := view.NewTags(out, !f.enforce)
	if err := a.show(doc, func() report.Sheet {
		return report.TagSheet(doc, a.binding(), reaching(f.sourceFlags)+a.globals(), f.again(names)+a.globals())
	}); err != nil {
		return err
	}
	if broken != nil {
		return runtime.StateError(clouds.CloudError(runtime.CutShort(broken, out.Lines())))
	}
	for _, n := range names {
		if !named[n] {
			return &failure{
				exit: ExitError, code: "not_found",
				err:  fmt.Errorf("no resource that was read has the id or name %q", n),
				hint: "give --regions and --assume-role, or the whole identity"}
		}
	}
	return tagExit(out)
}

// tagExit returns the exit code: refusals come before failed reads and writes.
func tagExit(out *round.Result) error {
	partial := out.IsPartial()
	for _, l := range out.Lines() {
		if l.Result == action.ResultRefused || l.Result == action.ResultFrozen || l.Result == action.ResultOverCap {
			return &failure{
				exit: ExitDenied, code: "refused", err: errors.New(l.Resource.ID + ": " + l.Why),
				hint: "docs/safety.md explains every rule",
			}
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

// again is the command that writes the tags; empty for a cloud on which nothing is
// carried out.
func (f tagFlags) again(names []string) string {
	if f.Cloud != "aws" {
		return ""
	}
	words := []string{"curfew tag"}
	for _, n := range names {
		words = append(words, plain.Shell(n))
	}
	words = append(words, "--enforce")
	if len(f.Regions) > 0 {
		words = append(words, "--regions", plain.Shell(strings.Join(f.Regions, ",")))
	}
	if len(f.kinds) > 0 {
		words = append(words, "--kind", plain.Shell(strings.Join(f.kinds, ",")))
	}
	return strings.Join(words, " ") + reaching(f.sourceFlags)
}

// reaching are the flags by which an account is reached, to follow a command.
func reaching(f sourceFlags) string {
	var words []string
	for _, role := range f.AssumeRoles {
		words = append(words, "--assume-role", plain.Shell(role))
	}
	if f.Profile != "" {
		words = append(words, "--profile", plain.Shell(f.Profile))
	}
	for _, url := range f.Metrics {
		words = append(words, "--metrics-source", plain.Shell(url))
	}
	return strings.Join(slices.Insert(words, 0, ""), " ")
}
