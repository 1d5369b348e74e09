package ops

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// WorkInput is a file of work: a job, a session, a Kubernetes manifest or a Terraform plan.
type WorkInput struct {
	Body struct {
		Content string   `json:"content" minLength:"1" maxLength:"900000" example:"{apiVersion: curfew.job/v1, name: resnet50, purpose: training, owner: {team: vision, user: ana}, resources: {instance_type: g6.2xlarge}, regions: [us-east-1], run: python train.py, max_runtime: 2h}" doc:"The text of a job, a session, a Kubernetes manifest or a Terraform plan."`
		Regions []string `json:"regions,omitempty" maxItems:"50" example:"[\"us-east-1\"]" doc:"Regions to price where the text names none." flag:"regions" split:"comma" help:"regions to compare where the file names none (default: those of curfew.yaml)"`
		Name    string   `json:"name,omitempty" maxLength:"400" example:"job.yaml" doc:"What the text is called, for messages."`
		Nodes   string   `json:"nodes,omitempty" maxLength:"900000" doc:"The nodes of the cluster, for manifests that name no machine: the text of kubectl get nodes -o json." flag:"nodes" help:"nodes of the cluster, for manifests that name no machine, as JSON <file> of 'kubectl get nodes -o json'"`
		History string   `json:"history,omitempty" maxLength:"900000" doc:"Past runs, to learn durations from: the text of a CSV file." flag:"history" help:"past runs, to learn durations from, as CSV <file>: name, finished, work, machine, machines, spot_time, interruptions, completed"`
		Key     string   `json:"key,omitempty" maxLength:"200" example:"run-7" doc:"The key of the run; only the gate takes it."`
		DryRun  bool     `json:"dry_run,omitempty" doc:"Decide, and reserve nothing; only the gate takes it."`
	}
	// File is a file of the command line; Nodes and History are then files too. The name "-" is
	// Stdin.
	File  string
	Stdin io.Reader
}

// options returns the name of the file and the estimation options.
func (in WorkInput) options() (string, govern.EstimateOptions) {
	b := in.Body
	if in.File != "" {
		return in.File, govern.EstimateOptions{Regions: b.Regions, Nodes: b.Nodes, History: b.History, In: in.Stdin}
	}
	o := govern.EstimateOptions{
		Regions: b.Regions, In: strings.NewReader(b.Content), Called: b.Name,
		NodesText: b.Nodes, HistoryText: b.History,
	}
	if b.Nodes != "" {
		o.Nodes = "nodes"
	}
	if b.History != "" {
		o.History = "history"
	}
	return "-", o
}

// read replaces file names by their content.
func (in *WorkInput) read(c *Call) (err error) {
	b := &in.Body
	if b.Content, err = c.readWork(in.File, in.Stdin); err != nil {
		return err
	}
	for _, file := range []*string{&b.Nodes, &b.History} {
		if *file == "" {
			continue
		}
		if *file, err = c.readWork(*file, in.Stdin); err != nil {
			return err
		}
	}
	b.Name, in.File = in.File, ""
	return nil
}

// Estimate estimates the cost of work.
var Estimate = declare(Operation[WorkInput, view.Estimate]{
	Info: Info{ID: "estimate", Method: post, Path: "estimates", Role: approval.RoleUser, Scoped: true,
		Summary: "Estimate what work will cost", Schema: view.EstimateSchema,
		Command: "estimate", Why: "prices and past costs are those of the state"},
	Send: func(_ context.Context, c *Call, in *WorkInput) error { return in.read(c) },
	Do: func(ctx context.Context, c *Call, in WorkInput) (Reply[view.Estimate], error) {
		name, o := in.options()
		e, err := govern.EstimateInForce(ctx, c.Request, name, o)
		if err != nil {
			return Reply[view.Estimate]{}, inputError("not_estimated", err)
		}
		return reply(view.NewEstimate(e), nil)
	},
})

// GateInput is work that requests to start.
type GateInput struct {
	WorkInput
	// Votes is a file of decisions, and GitHub uses the reviews of the workflow's pull request.
	Votes  string `flag:"votes" help:"decisions of approvers as YAML <file>, for CI whose reviews curfew cannot read"`
	GitHub bool   `flag:"github" help:"comment on the pull request of the workflow, and count its reviews"`
}

// Gate decides whether work may start.
var Gate = declare(Operation[GateInput, view.Gate]{
	Info: Info{ID: "gate", Method: post, Path: "gate", Role: approval.RoleUser, Scoped: true,
		Summary: "Decide whether work may start: allow, ask or deny", Schema: view.GateSchema,
		Command: "gate", Why: "budgets and reservations are in the state",
		Flags: map[string]Location{"github": ByState, "votes": ByState}},
	Send: func(_ context.Context, c *Call, in *GateInput) error { return in.read(c) },
	Do: func(ctx context.Context, c *Call, in GateInput) (Reply[view.Gate], error) {
		if _, all := c.Teams(approval.RoleUser); !all {
			name, o := in.options()
			e, err := govern.EstimateInForce(ctx, c.Request, name, o)
			if err != nil {
				return Reply[view.Gate]{}, inputError("not_estimated", err)
			}
			if !c.Sees(approval.RoleUser, e.Owner.Team) {
				return Reply[view.Gate]{}, denied("forbidden", "the work is of the team "+plain.Line(e.Owner.Team), "")
			}
		}
		name, o := in.options()
		doc, err := govern.Gate(ctx, c.Request, name, govern.GateOptions{
			EstimateOptions: o,
			Key:             in.Body.Key,
			DryRun:          in.Body.DryRun,
			Votes:           in.Votes,
			GitHub:          in.GitHub,
		})
		return reply(doc, inputError("not_estimated", err))
	},
})

// GetGateReport shows how often runs needed approval.
var GetGateReport = declare(Operation[runtime.Period, view.GateReport]{
	Info: Info{ID: "get-gate", Method: get, Path: "gate", Role: approval.RoleViewer,
		Summary: "Show how many runs needed approval in a period, and how long they waited",
		Schema:  view.GateReportSchema,
		Command: "gate report", Why: "decisions are in the state"},
	FlagDefaults: map[string]string{"since": "30d"},
	Do: func(ctx context.Context, c *Call, in runtime.Period) (Reply[view.GateReport], error) {
		return reply(govern.GateReport(ctx, c.Request, in.Or("30d")))
	},
})

// BacktestInput describes a backtest that a service runs.
type BacktestInput struct {
	Body struct {
		Trace       string  `json:"trace,omitempty" maxLength:"600" example:"gpus.csv.gz" doc:"A file with recorded usage under serve.trace_paths."`
		From        string  `json:"from,omitempty" enum:"prometheus,cloudwatch" doc:"In place of a trace: from where the history of the running machines is recorded first."`
		Since       string  `json:"since,omitempty" maxLength:"40" example:"7d" doc:"With from: from then on, at most 31 days; 7d without it."`
		Until       string  `json:"until,omitempty" maxLength:"40" doc:"With from: before then."`
		Map         string  `json:"map,omitempty" maxLength:"600" doc:"Columns of the trace under other names: resource=pod,time=t_s."`
		Step        string  `json:"step,omitempty" maxLength:"20" example:"60s" doc:"The sampling step; without it the one that is seen in the file."`
		Resource    string  `json:"resource,omitempty" maxLength:"600" doc:"The resource that the output of nvidia-smi is about."`
		Price       string  `json:"price,omitempty" maxLength:"20" example:"3.06" doc:"Dollars an hour of a resource."`
		RestartCost string  `json:"restart_cost,omitempty" maxLength:"20" default:"5m" doc:"Time lost when work comes back to a released resource."`
		IdleBelow   float64 `json:"idle_below,omitempty" minimum:"0" maximum:"100" doc:"GPU utilization in percent under which a sample is idle; without it only 0 is."`
		Policies    string  `json:"policies,omitempty" maxLength:"500000" doc:"The text of the policies; without it those of the configuration."`
		Caps        bool    `json:"caps,omitempty" doc:"Apply the limits of the policies."`
		Baselines   *bool   `json:"baselines,omitempty" doc:"Compare with the baselines; true without it."`
		Every       string  `json:"every,omitempty" maxLength:"20" example:"5m" doc:"Make a pass at every multiple of a duration; without it at every sample and deadline."`
	}
}

func (in BacktestInput) request() view.BacktestAsked {
	b := in.Body
	return view.BacktestAsked{
		Trace:       b.Trace,
		From:        b.From,
		Since:       b.Since,
		Until:       b.Until,
		Columns:     b.Map,
		Step:        b.Step,
		Resource:    b.Resource,
		Price:       b.Price,
		RestartCost: b.RestartCost,
		IdleBelow:   b.IdleBelow,
		Policies:    b.Policies,
		Caps:        b.Caps,
		Baselines:   b.Baselines == nil || *b.Baselines,
		Every:       b.Every,
	}
}

// ListBacktests lists the backtests of a service.
var ListBacktests = declare(Operation[Paging, view.Backtests]{
	Info: Info{ID: "list-backtests", Method: get, Path: "backtests", Role: approval.RoleViewer,
		Summary: "List the backtests, the newest first", Schema: view.BacktestsSchema},
	List: listOf(func(d *view.Backtests) *[]view.BacktestJob {
		return &d.Backtests
	}, func(b view.BacktestJob) string { return b.ID }),
	Do: func(ctx context.Context, c *Call, _ Paging) (Reply[view.Backtests], error) {
		return reply(replay.Backtests(ctx, c.Request))
	},
})

// CreateBacktest queues a backtest.
var CreateBacktest = declare(Operation[BacktestInput, view.Backtests]{
	Info: Info{ID: "create-backtest", Method: post, Path: "backtests", Role: approval.RoleUser,
		Summary: "Ask what policies would have done on recorded history; the service replays it in the background",
		Schema:  view.BacktestsSchema,
		Example: map[string]any{"trace": "gpus.csv.gz", "price": "3.06", "every": "5m"}},
	Do: func(ctx context.Context, c *Call, in BacktestInput) (Reply[view.Backtests], error) {
		doc, err := replay.CreateBacktest(ctx, c.Request, in.request())
		return reply(doc, inputError("not_estimated", err))
	},
})

// GetBacktest shows the progress of a backtest.
var GetBacktest = declare(Operation[ByID, view.Backtests]{
	Info: Info{ID: "get-backtest", Method: get, Path: "backtests/{id}", Role: approval.RoleViewer,
		Summary: "Show how far one backtest is", Schema: view.BacktestsSchema},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.Backtests], error) {
		return reply(replay.Backtest(ctx, c.Request, in.ID))
	},
})

// GetBacktestResult shows the result of a backtest.
var GetBacktestResult = declare(Operation[ByID, json.RawMessage]{
	Info: Info{ID: "get-backtest-result", Method: get, Path: "backtests/{id}/result", Role: approval.RoleViewer,
		Summary: "Show what a backtest that is done came to", Schema: view.BacktestSchema},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[json.RawMessage], error) {
		return reply(replay.BacktestResult(ctx, c.Request, in.ID))
	},
})

// CancelBacktest cancels a backtest.
var CancelBacktest = declare(Operation[ByID, view.Backtests]{
	Info: Info{ID: "cancel-backtest", Method: post, Path: "backtests/{id}/cancel", Role: approval.RoleUser,
		Summary: "Cancel a backtest that you asked for; an operator cancels any", Schema: view.BacktestsSchema},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.Backtests], error) {
		_, operates := c.Teams(approval.RoleOperator)
		return reply(replay.CancelBacktest(ctx, c.Request, in.ID, operates))
	},
})
