package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

func (a *app) newApprove() *cobra.Command {
	return a.newDecision(true, &cobra.Command{
		Use:   "approve REQUEST",
		Short: "Allow what somebody else asked for",
		Long: `Approves a request by its id or the beginning of it. An approval is for exactly that
plan at no more than that amount, expires, and is used once. Nobody approves their own
request; who may is the approvers section of curfew.yaml.`,
		Example: "  curfew approvals\n  curfew approve 4f1c",
	})
}

func (a *app) newDeny() *cobra.Command {
	return a.newDecision(false, &cobra.Command{
		Use:     "deny REQUEST --reason TEXT",
		Short:   "Refuse what somebody else asked for",
		Example: `  curfew deny 4f1c --reason "use the reserved machines"`,
	})
}

func (a *app) newDecision(allow bool, c *cobra.Command) *cobra.Command {
	var reason, proof string
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError("%s takes the id of one request; `curfew approvals` lists them", c.CommandPath())
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if !allow && strings.TrimSpace(reason) == "" {
			return usageError("curfew deny %s: give --reason", args[0])
		}
		if err := oneOf("proof", proof, "auto", "aws", "none"); err != nil {
			return err
		}
		return a.decide(c.Context(), args[0], allow, reason, proof)
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for whoever asked")
	c.Flags().StringVar(&proof, "proof", "auto", "how to prove who you are: aws (your AWS credentials), none (a name alone), auto (aws for fixes)")
	return c
}

func (a *app) decide(ctx context.Context, id string, allow bool, reason, proof string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	s, err := a.open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	if cfg, _, err = a.governed(ctx, cfg, s); err != nil {
		return err
	}
	r, err := s.Approvals().Request(ctx, id)
	if err != nil {
		return approvalFailure(id, err)
	}
	who, err := a.rt.Approver(ctx, cfg, r, proof, allow)
	if err != nil {
		return err
	}
	now, err := a.inTime(ctx, s)
	if err != nil {
		return err
	}
	desk := approval.Desk{Store: s.Approvals()}
	r, err = desk.Decide(ctx, r.ID, who, allow, action.Redact(reason), now)
	if err != nil {
		return approvalFailure(id, err)
	}
	entry := auditEntry(now, who.Name, string(r.State), r)
	if err := s.Actions().Record(ctx, entry); err != nil {
		return fmt.Errorf("record the decision on %s: %w", r.ID, err)
	}
	if allow {
		plain.Fprintf(a.Stdout, "%s approved: %s, at most %s %s, until %s; by %s (%s)\n", r.ID, r.Subject, r.Amount.Exact(), r.AmountUnit(), plain.When(r.ExpiresAt, a.Now()), who.Name, who.Proof)
	} else {
		plain.Fprintf(a.Stdout, "%s denied: %s\n", r.ID, r.Subject)
	}
	return nil
}

// approvalFailure gives what a desk refuses its exit code.
func approvalFailure(id string, err error) error {
	var refusal *approval.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Rule == "state" && strings.Contains(refusal.Why, "waits"):
		return &failure{exit: ExitHeld, code: "needs_approval", err: err, hint: "another person runs `curfew approve " + plain.Shell(id) + "`"}
	case errors.As(err, &refusal):
		return &failure{exit: ExitDenied, code: "not_approved", err: err}
	case errors.Is(err, approval.ErrNotFound):
		return &failure{exit: ExitError, code: "not_found", err: fmt.Errorf("there is no request whose id begins with %q", id), hint: "`curfew approvals` lists them"}
	}
	return err
}

func (a *app) newApprovals() *cobra.Command {
	var all bool
	var output string
	c := &cobra.Command{
		Use:   "approvals [REQUEST]",
		Short: "Show what waits for an approval, with its plan",
		Long: `Lists the requests that wait for an approval or can be used. Under each stands the plan
that an approval is for: every resource, the exact change as the difference of documents,
the commands, the dollars with their units, what is lost and how far it can be undone.`,
		Example: `  curfew approvals
  curfew approvals 4f1c
  curfew approvals --all -o json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError("%s takes the id of one request at most", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("output", output, "table", "json"); err != nil {
				return err
			}
			return a.approvals(c.Context(), strings.Join(args, ""), all || len(args) > 0, output)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "those decided, used and expired as well")
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

// requestView is a request in a document.
type requestView struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// AmountUnit is what AmountUSD is for: "an hour", "a month", "in all".
	AmountUnit string `json:"amount_unit"`
	// Plan is what would be done, whole; null where an older version kept none.
	Plan      *approval.Plan `json:"plan"`
	Subject   string         `json:"subject"`
	State     string         `json:"state"`
	AmountUSD string         `json:"amount_usd"`
	PlanHash  string         `json:"plan_hash"`
	Roles     []string       `json:"roles"`
	// Approvers are who has one of the roles, by the settings that decide.
	Approvers []string  `json:"approvers"`
	AskedBy   string    `json:"asked_by"`
	AskedAt   time.Time `json:"asked_at"`
	ExpiresAt time.Time `json:"expires_at"`
	DecidedBy string    `json:"decided_by,omitempty"`
	// Proof and AskedProof say how they were identified.
	Proof      *proofView `json:"proof,omitempty"`
	AskedProof *proofView `json:"asked_proof,omitempty"`
	DecidedAt  *time.Time `json:"decided_at,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	UsedAt     *time.Time `json:"used_at,omitempty"`
}

// proofView is a proof in a document, without what was signed.
type proofView struct {
	Kind     string `json:"kind"`
	Subject  string `json:"subject"`
	By       string `json:"verified_by,omitempty"`
	Verified bool   `json:"verified"`
}

func proofOf(who string, p approval.Proof) *proofView {
	if who == "" {
		return nil
	}
	return &proofView{Kind: first(string(p.Kind), string(approval.SelfDeclared)), Subject: first(p.Subject, who), By: p.Detail, Verified: p.Verified()}
}

func planView(r approval.Request) *approval.Plan {
	if p, ok := r.Shown(); ok {
		return &p
	}
	return nil
}

func (a *app) approvals(ctx context.Context, id string, all bool, output string) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	cfg, by, err := a.rt.People(ctx, cfg, s)
	if err != nil {
		return err
	}
	requests, err := s.Approvals().Requests(ctx, "")
	if err != nil {
		return fmt.Errorf("list the requests: %w", err)
	}
	now, err := a.stateTime(ctx, s)
	if err != nil {
		return err
	}
	waits := approval.Sum(requests, now)
	decided := slices.ContainsFunc(requests, func(r approval.Request) bool { return !r.DecidedAt.IsZero() })
	views := []requestView{}
	var shown []approval.Request
	for _, r := range requests {
		if state := r.At(now); all || state == approval.Pending || state == approval.Approved {
			if id != "" && !strings.HasPrefix(r.ID, id) {
				continue
			}
			shown = append(shown, r)
			views = append(views, requestView{ID: r.ID, Kind: r.Kind, AmountUnit: r.AmountUnit(), Plan: planView(r), Subject: r.Subject, State: string(state), AmountUSD: r.Amount.Cents(),
				PlanHash: r.PlanHash, Roles: r.Roles, Approvers: append([]string{}, approval.Approvers(cfg.Approvers, r.Roles, r.AskedBy)...), AskedBy: r.AskedBy, AskedAt: r.AskedAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
				DecidedBy: r.DecidedBy, Proof: proofOf(r.DecidedBy, r.Proof), AskedProof: proofOf(r.AskedBy, r.AskedProof), DecidedAt: optionalTime(r.DecidedAt), Reason: r.Reason, UsedAt: optionalTime(r.UsedAt)})
		}
	}
	if output == "json" {
		doc := map[string]any{"schema": "curfew.approvals/v1", "requests": views,
			"asked": waits.Asked, "approved": waits.Approved, "denied": waits.Denied, "expired": waits.Expired, "pending": waits.Pending, "settings": by,
			"median_wait_seconds": nil, "longest_wait_seconds": nil}
		if decided {
			doc["median_wait_seconds"], doc["longest_wait_seconds"] = waits.Median.Seconds(), waits.Longest.Seconds()
		}
		return a.printJSON(doc)
	}
	if len(views) == 0 {
		plain.Fprintln(a.Stdout, "nothing waits for an approval")
	}
	for i, v := range views {
		plain.Fprintf(a.Stdout, "%s  %s  %s  %s %s  asked by %s  until %s  %s\n", v.ID, v.State, v.Subject, money.ForPeople(v.AmountUSD), v.AmountUnit, v.AskedBy, plain.When(v.ExpiresAt, a.Now()), strings.TrimSpace(v.DecidedBy+" "+v.Reason))
		for _, line := range planLines(shown[i]) {
			plain.Fprintf(a.Stdout, "    %s\n", line)
		}
		plain.Fprintf(a.Stdout, "    asked by: %s (%s)\n", v.AskedBy, shown[i].AskedProof)
		if v.DecidedBy == "" {
			plain.Fprintf(a.Stdout, "    may approve: %s\n", first(strings.Join(v.Approvers, ", "), "nobody: approvers names nobody else with the role "+strings.Join(v.Roles, " or ")))
		}
		if v.DecidedBy != "" {
			plain.Fprintf(a.Stdout, "    decided by: %s (%s)\n", v.DecidedBy, shown[i].Proof)
		}
	}
	if waits.Asked > 0 {
		wait := "nobody has decided any"
		if decided {
			wait = "half were decided within " + plain.Duration(waits.Median)
		}
		plain.Fprintf(a.Stdout, "\n%s asked, %d approved, %d denied; %s\n", plain.Count(waits.Asked, "request"), waits.Approved, waits.Denied, wait)
	}
	return nil
}
