package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newPolicy() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Write, check, test, explain and tune policies",
		Args:  noSuchVerb,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.newInit("init"), a.newPolicyCheck(), a.newPolicyTest(), a.newPolicyExplain(), a.newPolicyTune())
	return c
}

// readPolicies reads files, and the *.yaml files of directories, as one set.
func (a *app) readPolicies(names []string) (*policy.Set, error) {
	files, err := a.yamlFiles(names)
	if err != nil {
		return nil, err
	}
	var sets []*policy.Set
	for _, f := range files {
		src, err := a.read(f, document.MaxBytes)
		if err != nil {
			return nil, err
		}
		set, err := policy.Parse(f.name, src)
		if err != nil {
			return nil, policyFailure(err)
		}
		sets = append(sets, set)
	}
	set, err := policy.Merge(sets...)
	return set, policyFailure(err)
}

// policyFailure gives a mistake in a policy file its exit code.
func policyFailure(err error) error {
	if err == nil {
		return nil
	}
	return &failure{exit: ExitUsage, code: "invalid_file", err: err, hint: "docs/policies.md has the language"}
}

// namedFile is a file as the user named it, and where it is.
type namedFile struct{ name, path string }

// yamlFiles lists files, and those of directories (not of their sub-directories).
func (a *app) yamlFiles(names []string) ([]namedFile, error) {
	var out []namedFile
	for _, name := range names {
		path := a.path(name)
		st, err := os.Stat(path)
		if err != nil {
			return nil, &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read %s: %w", name, daemon.Cause(err))}
		}
		if !st.IsDir() {
			out = append(out, namedFile{name, path})
			continue
		}
		var found []string
		for _, pattern := range []string{"*.yaml", "*.yml"} {
			m, err := filepath.Glob(filepath.Join(path, pattern))
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", name, err)
			}
			found = append(found, m...)
		}
		if len(found) == 0 {
			return nil, &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read %s: no *.yaml file is in it", name)}
		}
		slices.Sort(found)
		for _, f := range found {
			out = append(out, namedFile{filepath.Join(name, filepath.Base(f)), f})
		}
	}
	return out, nil
}

// policyArgs are the files of arguments, or those of the configuration.
func (a *app) policyArgs(args []string) ([]string, error) {
	if len(args) > 0 {
		return args, nil
	}
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	if len(cfg.Policies) == 0 {
		return nil, usageError("no policy is given: name files or directories, or set policies in curfew.yaml")
	}
	return a.configured(cfg)
}

// configured lists the policy files of the configuration.
func (a *app) configured(cfg config.Config) ([]string, error) {
	files, err := a.yamlFiles(cfg.Policies)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		if err := cfg.TrustPolicy(f.path); err != nil {
			return nil, &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("the policies are not read: %w", err),
				hint: "read it, then name it with --policy, or `chmod go-w` it if it is yours"}
		}
		if rel, err := filepath.Rel(a.Dir, f.path); err == nil && filepath.IsLocal(rel) {
			f.path = rel
		}
		names = append(names, f.path)
	}
	return names, nil
}

func (a *app) newPolicyCheck() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "check [FILE…]",
		Short: "Validate policies and warn about dangerous ones",
		Long: `Reads policies strictly (file:line:column of every mistake) and warns of valid but
dangerous policies: one that can match inference or production, that acts on resources
that are not ephemeral, that does not ask for the duty, or that declares disks scratch.
--strict makes warnings fail. --against last counts the resources of the last scan that
each policy selects, could act on once its condition holds, and would be refused, by rule.`,
		Example: `  curfew policy check examples/policies
  curfew policy check --against last
  curfew policy check --strict examples/policies/idle-ephemeral.yaml   # exit code 1: it has a warning`,
	}
	var strict bool
	var against string
	c.Flags().StringVar(&against, "against", "", "count what policies could act on in the `last` scan")
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json, html or md")
	c.Flags().BoolVar(&strict, "strict", false, "exit with 1 when there are warnings")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := oneOf("output", output, planOutputs...); err != nil {
			return err
		}
		cfg, err := a.config()
		if err != nil {
			return err
		}
		names, err := a.policyArgs(args)
		if err != nil {
			return err
		}
		set, err := a.readPolicies(names)
		if err != nil {
			return err
		}
		var reach *view.PolicyReach
		if against != "" {
			if err := oneOf("against", against, lastScan); err != nil {
				return err
			}
			seen, err := newestInventory(cfg.DataDir)
			if err != nil {
				return err
			}
			reach = &view.PolicyReach{Cloud: seen.Cloud, At: seen.At, Resources: len(seen.Resources),
				Policies: round.Reaches(set, seen.Priced(cfg.Tags), seen.At, cfg.Governance, a.Now().UTC())}
		}
		doc := view.NewPolicyCheck(set, policy.Check(set, cfg.Governance), reach)
		if output == "table" {
			err = report.PolicyCheckText(a.Stdout, doc, a.Width)
		} else {
			err = a.show(output, doc, func() report.Sheet { return report.PolicyCheck(doc, checked(args, against)) })
		}
		if err == nil && strict && len(doc.Warnings) > 0 {
			return &failure{exit: ExitError, code: "warnings", err: errors.New("the policies have warnings, and --strict is given")}
		}
		return err
	}
	return c
}

// checked are the commands after a check.
func checked(files []string, against string) []string {
	var names, policies string
	for _, f := range files {
		names += " " + plain.Shell(f)
		policies += " --policy " + plain.Shell(f)
	}
	if against == "" {
		return []string{"curfew scan", "curfew policy check --against last" + names}
	}
	return []string{"curfew enforce --once" + policies}
}

func (a *app) newPolicyTest() *cobra.Command {
	var policies []string
	var output string
	c := &cobra.Command{
		Use:   "test FILE…",
		Short: "Run test cases of policies: samples in, proposals out",
		Long: `Runs cases (curfew.policytest/v1): resources and samples go in, and what the policies
propose at a time is compared with the expectation of the case. The engine is the one that
enforce uses. With --policy, a file of cases that names its policies tests the given
policies from files of the same names. Exit code 1 when a case fails.`,
		Example: `  curfew policy test examples/policies/tests
  curfew policy test --policy examples/policies examples/policies/tests`,
	}
	c.Flags().StringArrayVar(&policies, "policy", nil, "policy `file` or directory under test; repeatable (default: those that the cases name, else policies in curfew.yaml)")
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json, html or md")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := oneOf("output", output, planOutputs...); err != nil {
			return err
		}
		if len(args) == 0 {
			return usageError("curfew policy test takes files of cases, or directories of them")
		}
		return a.policyTest(c.Context(), policies, args, output)
	}
	return c
}

// underTest returns the policies that a file of cases is for. Of given policies these are
// the ones in files of the names that the cases name, where there are any: a case without
// the name of a policy is about those alone.
func (a *app) underTest(given []string, tests *policy.Tests, file namedFile) (*policy.Set, error) {
	names := given
	if len(names) == 0 {
		for _, p := range tests.Policies {
			names = append(names, filepath.Join(filepath.Dir(file.name), p))
		}
	}
	names, err := a.policyArgs(names)
	if err != nil {
		return nil, err
	}
	set, err := a.readPolicies(names)
	if err != nil || len(given) == 0 {
		return set, err
	}
	return set.Of(tests.Policies), nil
}

func (a *app) policyTest(ctx context.Context, policies, args []string, output string) error {
	files, err := a.yamlFiles(args)
	if err != nil {
		return err
	}
	cfg, book, err := a.priced()
	if err != nil {
		return err
	}
	doc := view.NewPolicyTest()
	for _, f := range files {
		src, err := a.read(f, document.MaxBytes)
		if err != nil {
			return err
		}
		tests, err := policy.ParseTests(f.name, src)
		if err != nil {
			return policyFailure(err)
		}
		tests.Tags, tests.Duty = cfg.Tags, cfg.Duty
		set, err := a.underTest(policies, tests, f)
		if err != nil {
			return err
		}
		doc.Add(f.name, round.Test(ctx, round.Setting{Prices: book}, set, tests))
	}
	if len(doc.Cases) == 0 {
		return usageError("no case is in these files")
	}
	if output == "table" {
		err = report.PolicyTestText(a.Stdout, doc, a.Width)
	} else {
		err = a.show(output, doc, func() report.Sheet { return report.PolicyTest(doc) })
	}
	if err == nil && doc.Failed > 0 {
		err = &failure{exit: ExitError, code: "failed_tests", err: fmt.Errorf("%s of policies failed", plain.Count(doc.Failed, "test"))}
	}
	return err
}

func (a *app) newPolicyExplain() *cobra.Command {
	var f enforceFlags
	var trace, at string
	c := &cobra.Command{
		Use:   "explain RESOURCE",
		Short: "Show why a policy matches a resource, or does not",
		Long: `Reads the account as enforce does and shows for one resource, by id or name, the answer of
every policy: true, false or unknown, part by part, with the fact that decided.`,
		Example: `  curfew policy explain llm-playground --demo --policy examples/policies
  curfew policy explain train-a --trace examples/data/gpus.csv.gz --at 2026-10-07T08:00:00Z --policy examples/policies`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("%s takes the id or name of one resource", c.CommandPath())
			}
			return nil
		},
	}
	f.add(c.Flags())
	c.Flags().StringArrayVar(&f.policies, "policy", nil, "policy `file` or directory; repeatable (default: policies in curfew.yaml)")
	c.Flags().StringVar(&f.window, "window", "", "how far back usage is read (default: enforce.window in curfew.yaml)")
	c.Flags().StringVar(&trace, "trace", "", "explain a resource of recorded usage: CSV, CSV.gz or Parquet `file`")
	c.Flags().StringVar(&at, "at", "", "the RFC 3339 `time` within the trace (default: its end)")
	c.Flags().StringVarP(&f.output, "output", "o", "table", "table, json, html or md")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := oneOf("output", f.output, planOutputs...); err != nil {
			return err
		}
		if err := f.check(); err != nil {
			return err
		}
		return a.explain(c.Context(), args[0], f, trace, at)
	}
	return c
}

func (a *app) explain(ctx context.Context, name string, f enforceFlags, trace, at string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	set, err := a.policies(cfg, f.policies)
	if err != nil {
		return err
	}
	setting, err := a.observingAt(ctx, cfg, f, set, trace, at)
	if err != nil {
		return err
	}
	bar := a.newProgress(f.cloud)
	setting.Query.Progress = bar.report
	pass, err := round.New(setting).Round(ctx)
	bar.finish()
	if err != nil {
		return daemon.CloudError(err)
	}
	var match []*policy.Facts
	for _, facts := range pass.Facts {
		if r := facts.Resource; r.ID == name || r.Name == name || r.Ref().String() == name {
			match = append(match, facts)
		}
	}
	switch len(match) {
	case 1:
	case 0:
		return &failure{exit: ExitError, code: "not_found", err: fmt.Errorf("no resource of the kinds that the policies select has the id or name %q", name),
			hint: "curfew scan shows what there is"}
	default:
		return usageError("%q is the name of %d resources: give the id", name, len(match))
	}
	doc := view.NewPolicyExplain(set, match[0])
	if f.output == "table" {
		return report.PolicyExplainText(a.Stdout, doc, a.Width)
	}
	return a.show(f.output, doc, func() report.Sheet { return report.PolicyExplain(doc) })
}

// observingAt wires what is explained: the account now, or a trace at a time.
func (a *app) observingAt(ctx context.Context, cfg config.Config, f enforceFlags, set *policy.Set, trace, at string) (round.Setting, error) {
	if trace == "" {
		return a.observing(ctx, cfg, f, set)
	}
	s, _, err := a.present(ctx, cfg, f.sourceFlags, trace, at, set)
	return s, err
}

// wrapped makes text one line, breaks it at the terminal's width and indents what
// follows the first line.
func (a *app) wrapped(text string, indent int) plain.Text {
	width := a.Width
	if width <= 0 {
		width = 100
	}
	return plain.Text(strings.ReplaceAll(ansi.Wordwrap(plain.Line(text), max(width-indent, 40), ""), "\n", "\n"+strings.Repeat(" ", indent)))
}
