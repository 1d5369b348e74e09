package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/store"
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
		Short: "Before something starts: allow, ask or deny, by estimate, budget and quota",
		Long: `Estimates a file as ` + "`curfew estimate`" + ` does, holds it against the budgets and quotas that
its owner falls under, and decides: allow (exit 0, the money is held), ask (exit 3,
somebody else has to approve), deny (exit 4). An approval is for exactly this file at no
more than that amount, expires, and is used once. A denial says what would pass.

--dry-run decides and writes nothing: no money is held, nobody is asked. With --key the
run has one request and one hold, however often it asks; without one every admission
holds money again, and holds of the same work that are unused are reported.`,
		Example: `  curfew gate job.yaml --dry-run                       would it pass?
  curfew gate job.yaml
  curfew approve 4f1c && curfew gate job.yaml          after somebody else approved
  curfew gate job.yaml --key "$CI_PIPELINE_ID" -o json  a run asked for again is the same run
  curfew gate job.yaml --github                        in a workflow: comment, and count reviews
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

// gateDoc is what gate says: the estimate, and what was decided.
type gateDoc struct {
	*estimate.Estimate
	Schema   string   `json:"schema"`
	Decision string   `json:"decision"`
	Reasons  []string `json:"reasons"`
	// ApprovalID is the request that waits or was used, HoldID what is held; null: none.
	ApprovalID *string `json:"approval_id"`
	HoldID     *string `json:"hold_id"`
	DryRun     bool    `json:"dry_run"`
	// WouldPass is what passes in place of what is denied.
	WouldPass []gate.Way `json:"would_pass"`
	// UnusedHolds are holds of the same work under which nothing was charged.
	UnusedHolds []string `json:"unused_holds"`
	// Approvers are who may approve what is asked for.
	Approvers []string `json:"approvers"`
	// Settings is which configuration decided.
	Settings daemon.Decider `json:"settings"`

	Budget []gate.Line `json:"budget"`
}

// orNull is a text of a document, null where there is none.
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// counter is where one file is decided about.
type counter struct {
	app    *app
	store  *store.Store
	ask    gate.Ask
	params gate.Params
	// ballots are where votes of approvers come from beside the command line.
	ballots []ballot
}

// ballot returns the votes on a request, and who else spoke and why that is no vote.
type ballot func(ctx context.Context, request string) (votes []vote, aside []string, err error)

// vote is what an approver said somewhere else than on the command line.
type vote struct {
	by     approval.Person
	allow  bool
	reason string
	// at is when it was given; zero where it names its request.
	at time.Time
	// once says that its reason names it alone: it decides one request of a plan.
	once bool
	// text is what a review says.
	text string
}

// stale says why a vote that allows is about another request of the same plan than r;
// empty where it is about r, or about one for as much that was denied and is asked anew.
// A denial is never stale: it can only stop.
func (v vote) stale(r approval.Request, all []approval.Request, now time.Time) string {
	if !v.allow {
		return ""
	}
	asked := r.AskedAt
	for _, o := range all {
		switch {
		case o.ID == r.ID:
		case v.once && o.Reason == v.reason && o.State != approval.Denied && !o.DecidedAt.IsZero():
			return "it was used for request " + o.ID
		case o.State == approval.Denied && o.Amount >= r.Amount && now.Before(o.ExpiresAt) && o.AskedAt.Before(asked):
			asked = o.AskedAt
		}
	}
	if !v.at.IsZero() && v.at.Before(asked.Truncate(time.Second)) { // hosts give whole seconds
		return fmt.Sprintf("it is of %s, before request %s was made at %s", v.at.Format(time.RFC3339), r.ID, r.AskedAt.UTC().Format(time.RFC3339))
	}
	return ""
}

func (a *app) gate(ctx context.Context, name string, f gateFlags) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	s, err := a.open(ctx, cfg)
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
	c := &counter{app: a, store: s, ask: askOf(e, who, f.key), params: params}
	if hub != nil && !f.dryRun {
		c.ballots = append(c.ballots, hub.ballot)
	}
	if f.votes != "" && !f.dryRun {
		list, err := a.readVotes(f.votes, cfg)
		if err != nil {
			return err
		}
		c.ballots = append(c.ballots, list.ballot)
	}
	d, err := c.decide(ctx)
	if err != nil {
		return daemon.StateError(err)
	}
	if !f.dryRun {
		if r, err := c.request(ctx, d); err == nil && r != nil && r.AskedAt.Equal(params.Now) {
			a.tellApprovers(ctx, cfg, *r)
		}
	}
	if hub != nil && !f.dryRun {
		r, err := c.request(ctx, d)
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
	doc := gateDoc{Estimate: e, Schema: "curfew.gate/v1", Decision: string(d.Decision), Reasons: d.Reasons, Budget: append([]gate.Line{}, d.Budget...), ApprovalID: orNull(d.ApprovalID), HoldID: orNull(d.HoldID),
		DryRun: f.dryRun, WouldPass: append([]gate.Way{}, d.WouldPass...), UnusedHolds: append([]string{}, d.Unused...), Approvers: approvers, Settings: by}
	if err := a.show(f.output, doc, func() report.Sheet { return gateSheet(e, d, approvers, by, f.dryRun) }); err != nil {
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
func (a *app) gateParams(ctx context.Context, cfg config.Config, by daemon.Decider, s *store.Store) (gate.Params, error) {
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

// askOf is what the gate is asked about an estimate.
func askOf(e *estimate.Estimate, who approval.Person, key string) gate.Ask {
	ask := gate.Ask{Kind: e.Kind, Name: e.Name, SpecHash: e.SpecHash, Owner: e.Owner, Purpose: e.Purpose, P50: e.P50, P95: e.P95, Hourly: e.Hourly,
		GPUs: e.GPUs, Machines: e.Machines, AskedBy: who.Name, AskedProof: who.Proof, Unknown: e.Open, Key: key}
	unit := approval.Request{Kind: e.Kind}.AmountUnit()
	for _, l := range e.Lines {
		ask.Costs = append(ask.Costs, approval.Cost{What: strings.TrimPrefix(l.Resource+": "+l.What, ": ") + " (" + l.QuantityP95 + " " + l.Unit + " at $" + l.UnitPrice.String() + ")", Amount: &l.P95, Unit: unit + " at p95"})
	}
	for _, alt := range e.Alternatives {
		other := gate.Alternative{What: fmt.Sprintf("%d × %s %s in %s", alt.Count, alt.Type, alt.Capacity, alt.Region), P50: alt.P50, P95: alt.P95, Hourly: alt.Hourly, Machines: alt.Count}
		if alt.GPU != "" {
			other.GPUs = map[string]int{alt.GPU: alt.GPUs * alt.Count}
		}
		if alt.Unknown == 0 {
			ask.Instead = append(ask.Instead, other)
		}
	}
	// What is held does not expire before the last of it is done.
	ask.MaxRuntime = min(e.Longest(), budget.MaxRun)
	return ask
}

// decide decides, lets votes decide a request that waits, and decides again.
func (c *counter) decide(ctx context.Context) (gate.Decision, error) {
	d, err := gate.Decide(ctx, c.ask, c.params)
	if err != nil || d.Decision != gate.Held {
		return d, err
	}
	var votes []vote
	var aside []string
	for _, b := range c.ballots {
		more, others, err := b(ctx, d.ApprovalID)
		if err != nil {
			return d, err
		}
		votes, aside = append(votes, more...), append(aside, others...)
	}
	denialsFirst(votes)
	for _, v := range votes {
		r, why, err := c.cast(ctx, d.ApprovalID, v)
		switch {
		case errors.Is(err, approval.ErrConflict): // decided meanwhile: see what it is now
			return gate.Decide(ctx, c.ask, c.params)
		case err != nil:
			return d, err
		case why != "":
			aside = append(aside, fmt.Sprintf("%s does not count: %s", v.by.Name, why))
		case !v.allow:
			d.Decision, d.Reasons = gate.Denied, []string{fmt.Sprintf("%s denied request %s: %s", v.by.Name, r.ID, v.reason)}
			return d, nil
		default:
			return gate.Decide(ctx, c.ask, c.params)
		}
	}
	d.Reasons = append(d.Reasons, aside...)
	return d, nil
}

// denialsFirst puts who denies before who allows.
func denialsFirst(votes []vote) {
	slices.SortStableFunc(votes, func(a, b vote) int {
		switch {
		case a.allow == b.allow:
			return 0
		case b.allow:
			return -1
		}
		return 1
	})
}

// cast lets a vote decide a request; why says why it does not count, such as somebody's
// own request, which goes on waiting.
func (c *counter) cast(ctx context.Context, id string, v vote) (r approval.Request, why string, err error) {
	all, err := c.store.Approvals().Requests(ctx, c.ask.PlanHash())
	if err != nil {
		return r, "", fmt.Errorf("list the requests: %w", err)
	}
	if i := slices.IndexFunc(all, func(o approval.Request) bool { return o.ID == id }); i >= 0 {
		if why = v.stale(all[i], all, c.params.Now); why != "" {
			return r, why, nil
		}
	}
	r, err = c.params.Desk.Decide(ctx, id, v.by, v.allow, v.reason, c.params.Now)
	var refusal *approval.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Rule == "state":
		return r, "", approval.ErrConflict
	case errors.As(err, &refusal):
		return r, err.Error(), nil
	case err != nil:
		return r, "", err
	}
	if v.by.Proof.Kind == approval.GitHubReview {
		c.app.seen(r.ID)
	}
	if err := c.store.Actions().Record(ctx, auditEntry(c.params.Now, v.by.Name, string(r.State), r)); err != nil {
		return r, "", fmt.Errorf("record the decision on %s: %w", r.ID, err)
	}
	return r, "", nil
}

// request is the request that waits, nil where none does.
func (c *counter) request(ctx context.Context, d gate.Decision) (*approval.Request, error) {
	if d.Decision != gate.Held {
		return nil, nil
	}
	r, err := c.store.Approvals().Request(ctx, d.ApprovalID)
	return &r, err
}

func gateSheet(e *estimate.Estimate, d gate.Decision, approvers []string, decided daemon.Decider, dryRun bool) report.Sheet {
	s := estimateSheet("gate", e)
	if decided.Advisory {
		s.Assumptions = append(s.Assumptions[:len(s.Assumptions):len(s.Assumptions)], "advisory: budgets, thresholds, approvers and prices come from the local configuration, which whoever asks can change; `curfew settings set` binds everybody")
	} else {
		s.Assumptions = append(s.Assumptions[:len(s.Assumptions):len(s.Assumptions)], "decided by the shared settings: "+decided.String())
	}
	s.Title = map[gate.Verdict]string{gate.Allow: "ALLOW  ", gate.Held: "ASK  ", gate.Denied: "DENY  "}[d.Decision] + s.Title
	s.Because = d.Reasons
	var tables []report.Grid
	if len(d.Budget) > 0 {
		g := report.Grid{Title: "budgets", Head: []string{"budget", "until", "amount", "spent", "held", "this", "left after", "state"}, Right: []bool{false, false, true, true, true, true, true, false}}
		for _, l := range d.Budget {
			g.Rows = append(g.Rows, []string{l.Budget, l.Window.To.Format(time.DateOnly), l.Amount.Exact(), l.Used.Exact(), l.Held.Exact(), l.Asked.Exact(), l.LeftAfter.Exact(), string(l.State)})
		}
		tables = append(tables, g)
	}
	by := "somebody else"
	if len(approvers) > 0 {
		by = strings.Join(approvers, " or ")
	}
	if len(d.WouldPass) > 0 {
		g := report.Grid{Title: "would pass", Head: []string{"how", "what", "p95", "decision"}, Right: []bool{false, false, true, false}}
		for _, w := range d.WouldPass {
			decision := "allow"
			switch {
			case w.Kind == "raise":
				decision = "by whoever sets the budget"
			case w.Decision == gate.Held:
				decision = "ask: approved by " + by
			}
			g.Rows = append(g.Rows, []string{w.Kind, w.What, w.P95.Exact(), decision})
		}
		tables = append(tables, g)
	}
	s.Tables = append(tables, s.Tables...)
	switch {
	case dryRun:
		s.Title += "   (dry run: nothing is held or asked)"
	case d.Decision == gate.Held:
		s.Commands = []string{"curfew approve " + d.ApprovalID + "   # by " + by + "; then the gate lets it pass once"}
	case d.HoldID != "":
		s.Commands = []string{"curfew budget settle " + d.HoldID + "   # when it is done", "curfew budget release " + d.HoldID + "   # if it does not start"}
	}
	return s
}

func (a *app) newGateReport() *cobra.Command {
	var f periodFlags
	var output string
	c := &cobra.Command{
		Use:     "report",
		Short:   "How many runs had to ask, and how long people waited",
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
	r := gate.Sum(records, requests, since, until, now)
	share, known := r.AskedShare()
	doc := map[string]any{"schema": "curfew.gate.report/v1", "from": r.From, "to": r.To, "runs": r.Runs, "asked": r.Asked, "denied": r.Denied, "waiting": r.Waiting,
		"answered": r.Answered, "asked_share": nil, "wait_p50_seconds": nil, "wait_p95_seconds": nil}
	if known {
		doc["asked_share"] = share
	}
	if r.Answered > 0 {
		doc["wait_p50_seconds"], doc["wait_p95_seconds"] = r.WaitP50.Seconds(), r.WaitP95.Seconds()
	}
	return a.show(output, doc, func() report.Sheet {
		sheet := report.Sheet{Verb: "gate report", Title: "nothing was asked in this time", Picture: r.SVG(), Caption: "Runs that passed at once, that had to ask, and that were refused.",
			Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes}
		if known {
			sheet.Title = fmt.Sprintf("%s of %s had to ask", plain.Share(share, 1), plain.Count(r.Runs, "run"))
		}
		sheet.Figures = []report.Figure{{Label: "asked", Value: fmt.Sprint(r.Asked), Note: fmt.Sprintf("%d wait", r.Waiting)}, {Label: "denied", Value: fmt.Sprint(r.Denied)}}
		if r.Answered > 0 {
			sheet.Figures = append(sheet.Figures, report.Figure{Label: "waited", Value: plain.Duration(r.WaitP50), Note: "half of them; " + plain.Duration(r.WaitP95) + " at most in nineteen of twenty"})
		}
		return sheet
	})
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
