package simulation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/config"
)

// companyGateExpiry is the lifetime of requests in simulated time, a day of which passes in minutes.
const companyGateExpiry = 60 * oneDay

// Company adds budgets, counted products, policies and roles of the simulated company to a
// configuration that has none. The user may decide requests.
func Company(cfg *config.Config, dir, user string, now time.Time, length time.Duration) error {
	if len(cfg.Budgets) == 0 {
		set, err := budget.Parse("books.yaml", ownBudgets)
		if err != nil {
			return err
		}
		cfg.Budgets = set.Budgets()
	}
	if len(cfg.Units) == 0 && length > 0 {
		var err error
		if cfg.Units, err = countedUnits(dir, now, length); err != nil {
			return err
		}
	}
	if len(cfg.Policies) == 0 {
		path := filepath.Join(dir, "policies.yaml")
		if err := os.WriteFile(path, ownPolicies, 0o600); err != nil {
			return fmt.Errorf("write the policies of the simulated company: %w", err)
		}
		cfg.Policies = []string{path}
	}
	if len(cfg.Governance) == 0 {
		cfg.Governance = ownGovernance()
	}
	if len(cfg.People) == 0 && len(cfg.Approvers) == 0 {
		cfg.People = map[string]config.Identities{
			user:     {Roles: []string{approval.RoleAdmin, approval.RoleApprover}},
			"ben":    {Roles: []string{approval.RoleUser + "@vision"}},
			"dmitri": {Roles: []string{approval.RoleUser + "@language", approval.RoleApprover + "@language"}},
			"hana":   {Roles: []string{approval.RoleUser + "@ranking"}},
		}
		cfg.Approvals.Accept = []string{string(approval.SelfDeclared)}
		cfg.Gate.Expiry = companyGateExpiry
	}
	return nil
}

// works are jobs that people of the simulated company ask to start, each by its requester.
var works = []struct{ by, file string }{
	{"ben", `apiVersion: curfew.job/v1
name: sdxl-finetune
purpose: training
owner: {team: vision, project: shelf-vision, user: ben}
resources: {instance_type: p4d.24xlarge}
capacity: on-demand
regions: [us-east-1]
run: python train.py --resume
duration: 14h
max_runtime: 20h
`},
	{"dmitri", `apiVersion: curfew.job/v1
name: support-llm-eval
purpose: evaluation
owner: {team: language, project: support-llm, user: dmitri}
resources: {instance_type: p5.4xlarge}
capacity: on-demand
regions: [us-east-1]
run: python eval.py
duration: 20h
max_runtime: 30h
`},
}

// AskToStart asks for permission to start the work of the simulated company's people, unless an
// approver already has the request.
func AskToStart(ctx context.Context, process *runtime.Process) error {
	for _, w := range works {
		req := process.Request()
		req.Caller = runtime.ServedCaller(approval.Person{
			Name:  w.by,
			Proof: approval.Proof{Kind: approval.SelfDeclared, Subject: w.by},
		})
		_, err := govern.Gate(ctx, req, "-", govern.GateOptions{
			EstimateOptions: govern.EstimateOptions{In: strings.NewReader(w.file), Called: "job.yaml"},
			Key:             "demo-" + w.by,
		})
		var decided *runtime.Error
		if errors.As(err, &decided) && (decided.Class == runtime.Held || decided.Class == runtime.Denied) {
			continue // an approver decides, or has decided
		}
		if err != nil {
			return fmt.Errorf("ask for the work of %s: %w", w.by, err)
		}
	}
	return nil
}

// approvalDelay is the time after which the simulated company approves a fix.
const approvalDelay = time.Hour

// ApproveFixes approves the fixes that wait for a second person, as an approver of the simulated
// company. Requests to start work are left to the viewers of the demonstration.
func ApproveFixes(ctx context.Context, s *World) error {
	now := s.Clock.Now()
	all, err := s.Store.Approvals().Requests(ctx, "")
	if err != nil {
		return fmt.Errorf("approve fixes: %w", err)
	}
	desk := approval.Desk{Store: s.Store.Approvals()}
	for _, r := range all {
		if r.Kind != identity.FixKind || r.State != approval.Pending || now.Sub(r.AskedAt) < approvalDelay {
			continue
		}
		second := approval.Person{
			Name: "a simulated approver", Roles: r.Roles, Proof: approval.Proof{Kind: approval.SelfDeclared},
		}
		if _, err := desk.Decide(ctx, r.ID, second, true, "the change is the one of the finding", now); err != nil {
			return fmt.Errorf("approve fix %s: %w", r.ID, err)
		}
	}
	return nil
}
