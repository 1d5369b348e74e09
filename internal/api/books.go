package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// Disks says of a machine's disks what is lost with it.
type Disks struct {
	Scratch bool `json:"scratch_disks,omitempty" doc:"The disks that are lost hold nothing that matters."`
	Save    bool `json:"save_disks,omitempty" doc:"Disks that are deleted with the machine are saved before."`
}

// Exactly asks for amounts to the last digit.
type Exactly struct {
	Exact bool `query:"exact" doc:"With the amounts to the last digit."`
}

// clock is the header that says the time of the state that an answer is of.
func clock(at time.Time) map[string]string {
	return map[string]string{client.ClockHeader: at.UTC().Format(time.RFC3339Nano)}
}

// uncounted is why unit costs of counts that the caller names cannot be computed: it is the
// caller's.
func uncounted(err error) error {
	var wired *daemon.Error
	if errors.As(err, &wired) {
		return err
	}
	return problemOf(http.StatusUnprocessableEntity, "not_counted", plain.Line(action.Redact(err.Error())), "").exits(exits[daemon.Failed])
}

// registerBooks adds what the command line shows and does besides the collections.
func (s *server) registerBooks() {
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
	add(s, operation{ID: "get-settings", Method: get, Path: "/api/v1/settings", Role: approval.RoleViewer, Summary: "Show the shared settings with all their versions", Schema: view.SettingsSchema},
		func(ctx context.Context, c *call, _ *struct{}) (answer, error) {
			doc, err := c.rt.Settings(ctx)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "post-reconciliation", Method: post, Path: "/api/v1/bills/reconciliation", Role: approval.RoleOperator, Summary: "Add the differences between billed and accrued costs of a period to the ledger", Schema: view.ReconciliationSchema},
		func(ctx context.Context, c *call, in *struct {
			Body struct {
				Since string `json:"since" minLength:"1" maxLength:"40" example:"month" doc:"From then on: month, 2026-10-01."`
				Until string `json:"until,omitempty" maxLength:"40" doc:"Before then; without it now."`
				Basis string `json:"basis,omitempty" enum:"billed,effective" default:"billed"`
				Exact bool   `json:"exact,omitempty" doc:"With the amounts to the last digit."`
			}
		}) (answer, error) {
			doc, err := c.rt.Reconcile(ctx, daemon.Period{Since: in.Body.Since, Until: in.Body.Until}, bill.Basis(in.Body.Basis), true)
			if in.Body.Exact {
				doc.ExactUSD = view.Exact(doc)
			}
			return answer{doc: doc}, err
		})
}
