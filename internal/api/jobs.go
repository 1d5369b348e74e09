package api

import (
	"context"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/view"
)

// asked is the body of a new backtest.
type asked struct {
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

func (a asked) of() view.BacktestAsked {
	b := a.Body
	return view.BacktestAsked{Trace: b.Trace, From: b.From, Since: b.Since, Until: b.Until, Columns: b.Map, Step: b.Step, Resource: b.Resource, Price: b.Price,
		RestartCost: b.RestartCost, IdleBelow: b.IdleBelow, Policies: b.Policies, Caps: b.Caps, Baselines: b.Baselines == nil || *b.Baselines, Every: b.Every}
}

// registerJobs adds replays, bills and settings.
func (s *server) registerJobs() {
	add(s, operation{ID: "list-backtests", Method: get, Path: "/api/v1/backtests", Role: approval.RoleViewer, Summary: "List the backtests, the newest first", Schema: view.BacktestsSchema},
		func(ctx context.Context, c *call, in *Paging) (answer, error) {
			doc, err := c.rt.Backtests(ctx)
			if err != nil {
				return answer{}, err
			}
			var next string
			doc.Backtests, next, err = page(*in, doc.Backtests, func(b view.BacktestJob) string { return b.ID })
			return answer{doc: doc, next: next}, err
		})
	add(s, operation{ID: "create-backtest", Method: post, Path: "/api/v1/backtests", Role: approval.RoleUser, Summary: "Ask what policies would have done on recorded history; the service replays it in the background", Schema: view.BacktestsSchema,
		Example: map[string]any{"trace": "gpus.csv.gz", "price": "3.06", "every": "5m"}},
		func(ctx context.Context, c *call, in *asked) (answer, error) {
			doc, err := c.rt.CreateBacktest(ctx, in.of())
			if err != nil {
				return answer{}, unestimated(err)
			}
			return answer{doc: doc}, nil
		})
	add(s, operation{ID: "get-backtest", Method: get, Path: "/api/v1/backtests/{id}", Role: approval.RoleViewer, Summary: "Show how far one backtest is", Schema: view.BacktestsSchema},
		func(ctx context.Context, c *call, in *ByID) (answer, error) {
			doc, err := c.rt.Backtest(ctx, in.ID)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "get-backtest-result", Method: get, Path: "/api/v1/backtests/{id}/result", Role: approval.RoleViewer, Summary: "Show what a backtest that is done came to", Schema: view.BacktestSchema},
		func(ctx context.Context, c *call, in *ByID) (answer, error) {
			doc, err := c.rt.BacktestResult(ctx, in.ID)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "cancel-backtest", Method: post, Path: "/api/v1/backtests/{id}/cancel", Role: approval.RoleUser, Summary: "Cancel a backtest that you asked for; an operator cancels any", Schema: view.BacktestsSchema},
		func(ctx context.Context, c *call, in *ByID) (answer, error) {
			_, operates := c.teams(approval.RoleOperator)
			doc, err := c.rt.CancelBacktest(ctx, in.ID, operates)
			return answer{doc: doc}, err
		})
	s.registerBills()
	s.registerShown()
	add(s, operation{ID: "set-settings", Method: post, Path: "/api/v1/settings", Role: approval.RoleAdmin, Summary: "Set the next version of the shared settings, of prices, or of both", Schema: view.SettingsSetSchema,
		Example: map[string]any{"settings": "approvers: {ana: [admin, approver]}\nbudgets: [{id: vision, team: vision, purpose: any, amount: 100000}]", "reason": "a new team"}},
		func(ctx context.Context, c *call, in *struct {
			Body struct {
				Settings *string `json:"settings,omitempty" maxLength:"500000" example:"approvers: {ana: [admin, approver]}" doc:"The text of the settings, as curfew settings set takes it."`
				Prices   *string `json:"prices,omitempty" maxLength:"900000" doc:"The text of a price overlay (CSV)."`
				Name     string  `json:"name,omitempty" maxLength:"400" default:"settings" doc:"What the text of the settings is called, for messages."`
				PricesOf string  `json:"prices_name,omitempty" maxLength:"400" default:"prices" doc:"What the text of the prices is called, for messages."`
				Last     *int64  `json:"last,omitempty" minimum:"0" doc:"The version of the settings that was read; where another one holds by now, the answer is 409."`
				Reason   string  `json:"reason" minLength:"1" maxLength:"1000" example:"a new team" doc:"Why, for the audit log."`
			}
		}) (answer, error) {
			doc, err := c.rt.PutSettings(ctx, daemon.SettingsText{Settings: in.Body.Settings, Prices: in.Body.Prices, Name: in.Body.Name, PricesName: in.Body.PricesOf, Last: in.Body.Last}, in.Body.Reason)
			return answer{doc: doc}, err
		})
}

func (s *server) registerBills() {
	add(s, operation{ID: "list-bill-periods", Method: get, Path: "/api/v1/bills/periods", Role: approval.RoleViewer, Summary: "List the billing periods that were imported", Schema: view.BillPeriodsSchema},
		func(ctx context.Context, c *call, in *Paging) (answer, error) {
			doc, err := c.rt.BillPeriods(ctx)
			if err != nil {
				return answer{}, err
			}
			var next string
			doc.Periods, next, err = page(*in, doc.Periods, func(p view.BillPeriod) string { return p.ID })
			return answer{doc: doc, next: next}, err
		})
	add(s, operation{ID: "import-bill", Method: post, Path: "/api/v1/bills", Role: approval.RoleAdmin, Summary: "Import a bill from an allowed path, or the text of one", Schema: view.BillSchema,
		Example: map[string]any{"path": "focus-2026-10.csv"}},
		func(ctx context.Context, c *call, in *struct {
			Body struct {
				Path    string `json:"path,omitempty" maxLength:"1000" example:"focus-2026-10.csv" doc:"A file, a folder or s3://bucket/prefix under serve.bill_paths."`
				Content string `json:"content,omitempty" maxLength:"900000" doc:"In place of a path: the text of a bill in CSV."`
				Name    string `json:"name,omitempty" maxLength:"100" doc:"With content: what it is called, such as focus-2026-10.csv. An import of the same name replaces it."`
				DryRun  bool   `json:"dry_run,omitempty" doc:"Keep nothing, and say what would be replaced."`
			}
		}) (answer, error) {
			doc, err := c.rt.ImportBill(ctx, daemon.BillUpload{Path: in.Body.Path, Content: in.Body.Content, Name: in.Body.Name, DryRun: in.Body.DryRun})
			return answer{doc: doc}, err
		})
}
