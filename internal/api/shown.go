package api

import (
	"context"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/view"
)

// registerShown adds the shared settings as they are, and the posting of reconciliations.
func (s *server) registerShown() {
	add(s, operation{ID: "get-settings", Method: get, Path: "/api/v1/settings", Role: approval.RoleAdmin, Summary: "Show the shared settings and all their versions", Schema: view.SettingsSchema},
		func(ctx context.Context, c *call, _ *struct{}) (answer, error) {
			doc, err := c.rt.Settings(ctx)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "post-reconciliation", Method: post, Path: "/api/v1/bills/reconciliation", Role: approval.RoleAdmin, Summary: "Post the difference of billed and accrued costs of a period to the ledger", Schema: view.ReconciliationSchema},
		func(ctx context.Context, c *call, in *struct {
			Body struct {
				Since string `json:"since" minLength:"1" maxLength:"40" example:"2026-10-01" doc:"From then on: 7d, month, 2026-11-01."`
				Until string `json:"until,omitempty" maxLength:"40" example:"2026-11-01" doc:"Before then."`
				Basis string `json:"basis,omitempty" enum:"billed,effective" default:"billed"`
			}
		}) (answer, error) {
			doc, err := c.rt.Reconcile(ctx, daemon.Period{Since: in.Body.Since, Until: in.Body.Until}, bill.Basis(in.Body.Basis), true)
			return answer{doc: doc}, err
		})
}
