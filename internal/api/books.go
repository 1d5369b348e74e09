package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// Disks says of a machine's disks what is lost with it.
type Disks struct {
	Scratch bool `json:"scratch_disks,omitempty" doc:"The disks that are lost hold nothing that matters."`
	Save    bool `json:"save_disks,omitempty" doc:"Disks that are deleted with the machine are saved before."`
}

// clockHeader is the name of the header of clock; clients read it.
const clockHeader = "Curfew-Time"

// clock is the header that says the time of the state that an answer is of.
func clock(at time.Time) map[string]string {
	return map[string]string{clockHeader: at.UTC().Format(time.RFC3339Nano)}
}

// uncounted is why unit costs of counts that the caller names cannot be computed: it is the
// caller's.
func uncounted(err error) error {
	var wired *daemon.Error
	if err == nil || errors.As(err, &wired) {
		return err
	}
	return problemOf(http.StatusUnprocessableEntity, "not_counted", plain.Line(action.Redact(err.Error())), "").exits(exits[daemon.Failed])
}

// registerShares adds the costs of workloads on shared machines.
func (s *server) registerShares() {
	add(s, operation{ID: "get-cost-shares", Method: get, Path: "/api/v1/costs/shares", Role: approval.RoleViewer, Summary: "Divide what machines cost among those who held their GPUs, as the configured metrics servers tell", Schema: view.SharesSchema},
		func(ctx context.Context, c *call, in *struct {
			Spanned
			By string `query:"by" enum:"pod,controller,namespace,team,project,user" default:"pod" doc:"What workloads are shown by."`
		}) (answer, error) {
			doc, err := c.rt.TenantShares(ctx, daemon.Source{Cloud: "aws"}, in.period("month"), in.By)
			return answer{doc: doc}, uncounted(err)
		})
	add(s, operation{ID: "divide-costs", Method: post, Path: "/api/v1/costs/shares", Role: approval.RoleUser, Summary: "Divide what machines cost among the workloads of a file", Schema: view.SharesSchema,
		Example: map[string]any{"content": "resource,workload,share,used\ni-0f3a,train,3/8,80%\n", "since": "7d"}},
		func(ctx context.Context, c *call, in *struct {
			Body struct {
				Content string `json:"content" minLength:"1" maxLength:"900000" doc:"The text of a CSV file with resource, workload, share and used."`
				Name    string `json:"name,omitempty" maxLength:"400" default:"shares.csv" doc:"What the text is called, for messages."`
				Since   string `json:"since,omitempty" maxLength:"40" default:"month" doc:"From then on: 7d, month, 2026-11-01."`
				Until   string `json:"until,omitempty" maxLength:"40" doc:"Before then."`
			}
		}) (answer, error) {
			b := in.Body
			doc, err := c.rt.Shares(ctx, b.Name, b.Content, daemon.Period{Since: b.Since, Until: b.Until})
			return answer{doc: doc}, uncounted(err)
		})
}

// registerBooks adds what the command line shows and does besides the collections.
func (s *server) registerBooks() {
	s.registerShares()
	add(s, operation{ID: "get-last-scan", Method: get, Path: "/api/v1/scans/last", Role: approval.RoleViewer, Summary: "Show the newest audit that was kept", Schema: view.ScanSchema},
		func(ctx context.Context, c *call, in *struct {
			Cloud   string `query:"cloud" maxLength:"20" doc:"Only of this cloud: aws, sim, onprem."`
			Samples bool   `query:"samples" doc:"With the samples that pictures are drawn of."`
		}) (answer, error) {
			cfg, err := c.rt.Config()
			if err != nil {
				return answer{}, err
			}
			doc, err := c.rt.LastScan(ctx, cfg, in.Cloud)
			if err != nil {
				return answer{}, err
			}
			if doc.Profile = ""; !in.Samples {
				doc = doc.Public()
			}
			return answer{doc: doc}, nil
		})
}
