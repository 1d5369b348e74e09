package web
import ("net/url";"github.com/a-h/templ")
func machinesPage(v *visit) (templ.Component, error) { return nil, notFound("machines") }
func machinePage(v *visit) (templ.Component, error) { return nil, notFound("machine") }
func minePage(v *visit) (templ.Component, error) { return nil, notFound("mine") }
func findingsPage(v *visit) (templ.Component, error) { return nil, notFound("findings") }
func findingPage(v *visit) (templ.Component, error) { return nil, notFound("finding") }
func planPage(v *visit) (templ.Component, error) { return nil, notFound("plan") }
func costsPage(v *visit) (templ.Component, error) { return nil, notFound("costs") }
func budgetsPage(v *visit) (templ.Component, error) { return nil, notFound("budgets") }
func approvalsPage(v *visit) (templ.Component, error) { return nil, notFound("approvals") }
func policiesPage(v *visit) (templ.Component, error) { return nil, notFound("policies") }
func backtestPage(v *visit) (templ.Component, error) { return nil, notFound("backtest") }
func gatewaysPage(v *visit) (templ.Component, error) { return nil, notFound("gateways") }
func alertsPage(v *visit) (templ.Component, error) { return nil, notFound("alerts") }
func auditPage(v *visit) (templ.Component, error) { return nil, notFound("audit") }
func settingsPage(v *visit) (templ.Component, error) { return nil, notFound("settings") }
func backtestFields(f url.Values) map[string]any { return nil }
func (p *Pages) showSecret(v *visit, doc []byte) {}
func outcome(doc []byte) string { return "" }
