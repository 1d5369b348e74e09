package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// gateFlags are the flags of gate.
type gateFlags struct {
	estimateFlags
	key, votes     string
	github, dryRun bool
}

func (a *app) newGate() *cobra.Command {
	var f gateFlags
	c := &cobra.Command{
		Use:   "gate FILE",
		Short: "Decide before a run starts: allow, ask or deny, by estimate, budget and quota",
		Long: `Estimates a file as ` + "`curfew estimate`" + ` does, checks the budgets and quotas of its owner, and
decides: allow (exit 0, budget is reserved), ask (exit 3, an approver has to approve),
deny (exit 4). An approval is for exactly this file at no
more than that amount, expires, and is used once. A denial says what would pass.

--dry-run decides and writes nothing: no budget is reserved, no approver is asked. With
--key the run has one request and one reservation, however often it asks. Without a key
each admission reserves budget again; unused reservations of the same work are reported.`,
		Example: `  curfew gate job.yaml --dry-run                       # would it pass?
  curfew gate job.yaml                                 # exit code 0 allowed, 3 needs an approval, 4 denied
  curfew gate job.yaml --key "$CI_PIPELINE_ID" -o json  # a run asked for again is the same run
  curfew gate job.yaml --github                        # in a workflow: comment, and count reviews
  curfew gate report --since 30d`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("output", f.output, planOutputs...); err != nil {
				return err
			}
			return a.gate(c.Context(), args[0], f)
		},
	}
	f.add(c)
	fl := c.Flags()
	fl.StringVar(&f.key, "key", "", "names the run, so that asking again with it is the same run and not another (with --github: the pull request and the file)")
	fl.StringVar(&f.votes, "votes", "", "decisions of approvers as YAML `file`, for CI whose reviews curfew cannot read")
	fl.BoolVar(&f.github, "github", false, "comment on the pull request of the workflow, and count its reviews")
	fl.BoolVar(&f.dryRun, "dry-run", false, "decide, and hold, ask and record nothing")
	c.AddCommand(a.newGateReport())
	return c
}

// orNull is a text of a document, null where there is none.
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (a *app) gate(ctx context.Context, name string, f gateFlags) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	cfg, by, err := a.governed(ctx, cfg, s)
	if err != nil {
		return err
	}
	var hub *pullRequest
	var who approval.Person
	if f.github {
		if hub, err = a.pullRequest(cfg); err != nil {
			return err
		}
		_, named := hub.people.Identities[hub.pull.Author]
		who = approval.Person{Name: hub.people.Name(hub.pull.Author), Proof: approval.Proof{Kind: approval.GitHubReview, Subject: hub.pull.Author, Detail: "author of " + hub.pull.String(), Mapped: named}}
	} else if who, err = a.rt.Asker(ctx, cfg, by); err != nil {
		return err
	}
	e, err := a.estimate(ctx, cfg, name, f.estimateFlags)
	if err != nil {
		return err
	}
	params, err := a.gateParams(ctx, cfg, by, s)
	if err != nil {
		return err
	}
	if hub != nil && f.key == "" { // checks of one pull request are about one run
		f.key = hub.pull.String() + " " + filepath.ToSlash(name)
	}
	params.DryRun = f.dryRun
	c := &gate.Counter{Ask: gate.AskOf(e, who, f.key), Params: params, Decided: func(ctx context.Context, v gate.Vote, r approval.Request) error {
		if v.By.Proof.Kind == approval.GitHubReview {
			a.seen(r.ID)
		}
		if err := s.Actions().Record(ctx, auditEntry(params.Now, v.By.Name, string(r.State), r)); err != nil {
			return fmt.Errorf("record the decision on %s: %w", r.ID, err)
		}
		return nil
	}}
	if hub != nil && !f.dryRun {
		c.Ballots = append(c.Ballots, hub.ballot)
	}
	if f.votes != "" && !f.dryRun {
		list, err := a.readVotes(f.votes)
		if err != nil {
			return err
		}
		c.Ballots = append(c.Ballots, list.Ballot(cfg.Approvers))
	}
	d, err := c.Decide(ctx)
	if err != nil {
		return daemon.StateError(err)
	}
	if !f.dryRun {
		if r, err := c.Waiting(ctx, d); err == nil && r != nil && r.AskedAt.Equal(params.Now) {
			a.tellApprovers(ctx, cfg, *r)
		}
	}
	if hub != nil && !f.dryRun {
		r, err := c.Waiting(ctx, d)
		if err == nil {
			err = hub.comment(ctx, filepath.ToSlash(name), e, d, r)
		}
		if err != nil {
			plain.Fprintf(a.Stderr, "curfew: the pull request was not told: %v\n", err)
		}
	}
	approvers := []string{}
	if d.Decision == gate.Held || len(d.WouldPass) > 0 {
		approvers = append(approvers, approval.Approvers(cfg.Approvers, params.Roles, who.Name)...)
	}
	doc := view.NewGate(e, d, approvers, by, f.dryRun)
	if err := a.show(f.output, doc, func() report.Sheet { return report.Gate(doc) }); err != nil {
		return err
	}
	switch d.Decision {
	case gate.Allow:
		return nil
	case gate.Held:
		return &failure{exit: ExitHeld}
	}
	return &failure{exit: ExitDenied}
}

// gateParams is what decisions stand on.
func (a *app) gateParams(ctx context.Context, cfg config.Config, by view.Decider, s *store.Store) (gate.Params, error) {
	limit, err := cfg.Gate.Limit()
	if err != nil {
		return gate.Params{}, usageError("gate.ask_over: %w", err)
	}
	budgets, err := desk(cfg, s)
	if err != nil {
		return gate.Params{}, err
	}
	if err := a.checkQuotas(cfg, budgets.Set.Quotas()); err != nil {
		return gate.Params{}, err
	}
	now, err := a.inTime(ctx, s)
	if err != nil {
		return gate.Params{}, err
	}
	return gate.Params{Desk: approval.Desk{Store: s.Approvals(), Check: a.rt.Checked(cfg, by.Advisory || cfg.Approvals.Accepts(approval.SelfDeclared), nil)}, Settings: by.String(), Budgets: budgets, Store: s.Gate(),
		Threshold: limit, Roles: cfg.Gate.Roles, Expiry: cfg.Gate.Expiry, Now: now}, nil
}

// checkQuotas returns an error where a quota is of GPUs that no price book knows, which
// would limit nothing.
func (a *app) checkQuotas(cfg config.Config, quotas []budget.Quota) error {
	book, err := a.prices(cfg)
	if err != nil {
		return err
	}
	for _, q := range quotas {
		for _, kind := range slices.Sorted(maps.Keys(q.GPUs)) {
			if !slices.ContainsFunc(book.Accelerators(), func(g price.Accelerator) bool { return budget.IsGPU(kind, g.Name) }) {
				return usageError("quotas: %s: there is no GPU %q; `curfew price list` shows those there are", q.ID, kind)
			}
		}
	}
	return nil
}

func (a *app) newGateReport() *cobra.Command {
	var f periodFlags
	var output string
	c := &cobra.Command{
		Use:     "report",
		Short:   "Show how many runs needed approval, and how long they waited",
		Example: "  curfew gate report --since 30d",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, planOutputs...); err != nil {
				return err
			}
			return a.gateReport(c.Context(), f, output)
		},
	}
	f.add(c, "30d")
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json, html or md")
	return c
}

func (a *app) gateReport(ctx context.Context, f periodFlags, output string) error {
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	now, err := a.stateTime(ctx, s)
	if err != nil {
		return err
	}
	since, until, err := f.bounds(now)
	if err != nil {
		return err
	}
	records, err := s.Gate().Decisions(ctx, since, until)
	if err != nil {
		return fmt.Errorf("read what was decided: %w", err)
	}
	requests, err := s.Approvals().Requests(ctx, "")
	if err != nil {
		return fmt.Errorf("list the requests: %w", err)
	}
	doc := view.NewGateReport(gate.Sum(records, requests, since, until, now))
	return a.show(output, doc, func() report.Sheet { return report.GateReport(doc) })
}

// env returns a variable of the environment, empty where it is not set.
func (a *app) env(name string) string {
	v, _ := a.Lookup(name)
	return v
}

// openFile opens a file that a flag or the environment names.
func (a *app) openFile(what, name string) (*os.File, error) {
	f, err := os.Open(a.path(name))
	if err != nil {
		return nil, &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read %s %s: %w", what, name, daemon.Cause(err))}
	}
	return f, nil
}
