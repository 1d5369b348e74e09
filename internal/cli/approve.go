package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
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
	var reason string
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
		return a.decide(c.Context(), args[0], allow, reason)
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for whoever asked")
	return c
}

func (a *app) decide(ctx context.Context, id string, allow bool, reason string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	who, err := a.person(cfg)
	if err != nil {
		return err
	}
	s, err := a.open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	now := a.Now().UTC()
	desk := approval.Desk{Store: s.Approvals()}
	r, err := desk.Decide(ctx, id, approval.Person{Name: who, Roles: rolesOf(cfg.Approvers, who)}, allow, action.Redact(reason), now)
	if err != nil {
		return approvalFailure(id, err)
	}
	entry := auditEntry(now, who, string(r.State), r)
	if err := s.Actions().Record(ctx, entry); err != nil {
		return fmt.Errorf("record the decision on %s: %w", r.ID, err)
	}
	if allow {
		plain.Fprintf(a.Stdout, "%s approved: %s, at most %s, until %s\n", r.ID, r.Subject, exact(r.Amount), a.when(r.ExpiresAt))
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
		Use:   "approvals",
		Short: "What waits for an approval, and how long people waited",
		Example: `  curfew approvals
  curfew approvals --all -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "table", "json"); err != nil {
				return err
			}
			return a.approvals(c.Context(), all, output)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "those decided, used and expired as well")
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

// requestView is a request in a document.
type requestView struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	Subject   string     `json:"subject"`
	State     string     `json:"state"`
	AmountUSD string     `json:"amount_usd"`
	PlanHash  string     `json:"plan_hash"`
	Roles     []string   `json:"roles"`
	AskedBy   string     `json:"asked_by"`
	AskedAt   time.Time  `json:"asked_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	DecidedBy string     `json:"decided_by,omitempty"`
	DecidedAt *time.Time `json:"decided_at,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	UsedAt    *time.Time `json:"used_at,omitempty"`
}

func (a *app) approvals(ctx context.Context, all bool, output string) error {
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	requests, err := s.Approvals().Requests(ctx, "")
	if err != nil {
		return fmt.Errorf("list the requests: %w", err)
	}
	now := a.Now().UTC()
	waits := approval.Sum(requests, now)
	decided := slices.ContainsFunc(requests, func(r approval.Request) bool { return !r.DecidedAt.IsZero() })
	views := []requestView{}
	for _, r := range requests {
		if state := r.At(now); all || state == approval.Pending || state == approval.Approved {
			views = append(views, requestView{ID: r.ID, Kind: r.Kind, Subject: r.Subject, State: string(state), AmountUSD: r.Amount.Cents(),
				PlanHash: r.PlanHash, Roles: r.Roles, AskedBy: r.AskedBy, AskedAt: r.AskedAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
				DecidedBy: r.DecidedBy, DecidedAt: optionalTime(r.DecidedAt), Reason: r.Reason, UsedAt: optionalTime(r.UsedAt)})
		}
	}
	if output == "json" {
		doc := map[string]any{"schema": "curfew.approvals/v1", "requests": views,
			"asked": waits.Asked, "approved": waits.Approved, "denied": waits.Denied, "expired": waits.Expired, "pending": waits.Pending,
			"median_wait_seconds": nil, "longest_wait_seconds": nil}
		if decided {
			doc["median_wait_seconds"], doc["longest_wait_seconds"] = waits.Median.Seconds(), waits.Longest.Seconds()
		}
		return a.printJSON(doc)
	}
	if len(views) == 0 {
		plain.Fprintln(a.Stdout, "nothing waits for an approval")
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	for _, v := range views {
		plain.Fprintf(w, "%s\t%s\t%s\t$%s\tasked by %s\tuntil %s\t%s\n", v.ID, v.State, v.Subject, v.AmountUSD, v.AskedBy, a.when(v.ExpiresAt), strings.TrimSpace(v.DecidedBy+" "+v.Reason))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if waits.Asked > 0 {
		wait := "nobody has decided any"
		if decided {
			wait = "half were decided within " + usage.Span(waits.Median)
		}
		plain.Fprintf(a.Stdout, "\n%s asked, %d approved, %d denied; %s\n", plural(int64(waits.Asked), "request", "requests"), waits.Approved, waits.Denied, wait)
	}
	return nil
}

// roles of a person are those of the configuration, by any spelling of the name.
func rolesOf(approvers map[string][]string, who string) []string {
	var roles []string
	for name, has := range approvers {
		if approval.Same(name, who) {
			roles = append(roles, has...)
		}
	}
	return roles
}

// approversOf are who has one of the roles, in order; whoever asks is not among them.
func approversOf(approvers map[string][]string, roles []string, asker string) (names []string) {
	if len(roles) == 0 {
		roles = []string{approval.DefaultRole}
	}
	for name, has := range approvers {
		if !approval.MaybeSame(name, asker) && slices.ContainsFunc(has, func(r string) bool { return slices.Contains(roles, r) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
