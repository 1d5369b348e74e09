package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ops"
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

func (a *app) newPolicyCheck() *cobra.Command {
	c := &cobra.Command{
		Use:   "check [FILE…]",
		Args:  cobra.ArbitraryArgs,
		Short: "Validate policies and warn about dangerous ones",
		Long: `Reads policies strictly (every mistake with file:line:column) and warns of valid but
dangerous policies: one that can match inference or production, that acts on resources
that are not ephemeral, that does not ask for the duty, or that declares disks scratch.
--strict makes warnings fail. --against last counts the resources of the last scan that
each policy selects, could act on once its condition holds, and would be refused, by rule.`,
		Example: `  curfew policy check examples/policies
  curfew policy check --against last
  curfew policy check --strict examples/policies/idle-ephemeral.yaml   # exit code 1: it has a warning`,
	}
	var strict bool
	var in ops.PoliciesInput
	ops.CheckPolicies.AddFlags(c.Flags(), &in)
	a.outputs(c, reports...)
	c.Flags().BoolVar(&strict, "strict", false, "exit with 1 when there are warnings")
	c.RunE = func(c *cobra.Command, args []string) error {
		in.Files = args
		doc, err := ops.CheckPolicies.Call(c.Context(), a.at, in)
		if err != nil {
			return a.eachMistake(err)
		}
		err = text(a, doc, report.PolicyCheckText, func() report.Sheet {
			return report.PolicyCheck(doc, checked(args, in.Against))
		})
		if err == nil && strict && len(doc.Warnings) > 0 {
			return &failure{
				exit: ExitError, code: "warnings",
				err: errors.New("the policies have warnings, and --strict is given"),
			}
		}
		return err
	}
	return c
}

// eachMistake shows all mistakes of files but the last, and returns that one.
func (a *app) eachMistake(err error) error {
	var all document.Errors
	var wired *runtime.Error
	if !errors.As(err, &all) || !errors.As(err, &wired) {
		return err
	}
	last := len(all) - 1
	for _, one := range all[:last] {
		plain.Fprintf(a.Stderr, "curfew: %s\n", plain.Line(one.Error()))
	}
	return &runtime.Error{Class: wired.Class, Code: wired.Code, Err: all[last], Hint: wired.Hint}
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
	c := &cobra.Command{
		Use:   "test FILE…",
		Args:  cobra.ArbitraryArgs,
		Short: "Run test cases of policies: samples in, proposals out",
		Long: `Runs cases (curfew.policytest/v1): resources and samples go in, and what the policies
propose at a time is compared with the expectation of the case. The engine is the one that
enforce uses. With --policy, a file of cases that names its policies tests the given
policies from files of the same names. Exit code 1 when a case fails.`,
		Example: `  curfew policy test examples/policies/tests
  curfew policy test --policy examples/policies examples/policies/tests`,
	}
	c.Flags().StringArrayVar(&policies, "policy", nil, "policy `file` or directory under test; repeatable (default: "+
		"those that the cases name, else policies in curfew.yaml)")
	a.outputs(c, reports...)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError("curfew policy test takes files of cases, or directories of them")
		}
		doc, err := govern.PolicyTest(c.Context(), a.req, policies, args)
		if err != nil {
			return err
		}
		if err := text(a, doc, report.PolicyTestText, func() report.Sheet {
			return report.PolicyTest(doc)
		}); err != nil {
			return err
		}
		if doc.Failed > 0 {
			return &failure{
				exit: ExitError, code: "failed_tests",
				err: fmt.Errorf("%s of policies failed", plain.Count(doc.Failed, "test")),
			}
		}
		return nil
	}
	return c
}

func (a *app) newPolicyExplain() *cobra.Command {
	var f enforceFlags
	var l looking
	c := &cobra.Command{
		Use:   "explain RESOURCE",
		Short: "Show why a policy matches a resource, or does not",
		Long: `Reads the account as enforce does and shows for one resource, by id or name, the answer of
every policy: true, false or unknown, part by part, with the deciding fact.`,
		Example: `  curfew policy explain llm-playground --demo --policy examples/policies
  curfew policy explain train-a --trace examples/data/gpus.csv.gz --at 2026-10-07T08:00:00Z --policy examples/policies`,
		Args: oneArg("the id or name of one resource"),
	}
	f.add(c.Flags())
	c.Flags().StringArrayVar(&f.policies, "policy", nil,
		"policy `file` or directory; repeatable (default: policies in curfew.yaml)")
	c.Flags().StringVar(&f.window, "window", "", "how far back usage is read (default: enforce.window in curfew.yaml)")
	c.Flags().StringVar(&l.trace, "trace", "", "explain a resource of recorded usage: CSV, CSV.gz or Parquet `file`")
	c.Flags().StringVar(&l.at, "at", "", "the RFC 3339 `time` within the trace (default: its end)")
	c.Flags().StringVar(&l.every, "every", "",
		"charge budgets for the trace at every multiple of a `duration` (default: as enforce did in this state)")
	a.outputs(c, reports...)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.checkAudit(); err != nil {
			return err
		}
		return a.explain(c.Context(), args[0], f, l)
	}
	return c
}

func (a *app) explain(ctx context.Context, name string, f enforceFlags, l looking) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	set, err := govern.Policies(a.req, cfg, f.policies)
	if err != nil {
		return err
	}
	setting, err := a.observingAt(ctx, cfg, f, set, l)
	if err != nil {
		return err
	}
	bar := a.newProgress(f.Cloud)
	setting.Query.Progress = bar.Report
	pass, err := round.New(setting).Round(ctx)
	bar.Finish()
	if err != nil {
		return clouds.CloudError(err)
	}
	var match []*policy.Facts
	var names []string
	for _, facts := range pass.Facts {
		r := facts.Resource
		names = append(names, r.ID, r.Name)
		if r.ID == name || r.Name == name || r.Ref().String() == name {
			match = append(match, facts)
		}
	}
	switch len(match) {
	case 1:
	case 0:
		return &failure{
			exit: ExitError, code: "not_found",
			err: fmt.Errorf("no resource of the kinds that the policies select has the id or name %q%s", name,
				document.DidYouMean(name, names)),
			hint: "curfew scan shows what there is"}
	default:
		return usageError("%q is the name of %d resources: give the id", name, len(match))
	}
	doc := view.NewPolicyExplain(set, match[0])
	if ref := match[0].Resource.Ref(); l.trace == "" && doc.Duty != nil {
		verdicts, _, err := clouds.AuditVerdicts(ctx, setting, pass, cfg.Scan.Window,
			func(r *inventory.Resource) bool { return r.Ref() == ref })
		if err != nil {
			return err
		}
		if v, judged := verdicts[ref]; judged {
			doc.SetAudit(v, cfg.Scan.Window)
		}
	}
	return text(a, doc, report.PolicyExplainText, func() report.Sheet { return report.PolicyExplain(doc) })
}

// observingAt wires the account to explain: as it is now, or a trace at a time.
func (a *app) observingAt(ctx context.Context, cfg config.Config, f enforceFlags, set *policy.Set,
	l looking) (round.Setting, error) {
	if l.trace == "" {
		o, err := f.options()
		if err != nil {
			return round.Setting{}, err
		}
		return act.ObserveSetting(ctx, a.req, cfg, o, set)
	}
	s, _, err := a.present(ctx, cfg, f.sourceFlags, l, set)
	return s, err
}
