package web

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// policiesDoc is the content of the page Policies.
type policiesDoc struct {
	sheet        *layout.Sheet
	err          error
	actions      []view.Action
	names        map[string]view.Observed
	backtests    []view.BacktestJob
	mayBacktest  bool
	mayBacktests bool
}

// policiesPage shows what policies select and would do, what they did, and backtests of them.
func policiesPage(v *visit) (templ.Component, error) {
	d := policiesDoc{names: map[string]view.Observed{}, mayBacktest: v.may(ops.CreateBacktest.Info)}
	check, err := read(v, ops.CheckPolicies, ops.PoliciesInput{Against: "last"})
	if d.err = err; err == nil {
		sheet := report.PolicyCheck(check, nil)
		d.sheet = &sheet
	}
	if v.may(ops.ListActions.Info) {
		if acts, err := read(v, ops.ListActions, ops.Paging{Limit: 30}); err == nil {
			d.actions = acts.Actions
		}
	}
	if fleet, err := read(v, ops.ListResources, ops.ListInput{}); err == nil {
		for _, r := range fleet.Resources {
			d.names[r.ID] = r
		}
	}
	if d.mayBacktests = v.may(ops.ListBacktests.Info); d.mayBacktests {
		if all, err := read(v, ops.ListBacktests, ops.Paging{}); err == nil {
			d.backtests = all.Backtests
		}
	}
	return policiesContent(v, &d), nil
}

// backtestFields makes the input of a backtest of the form of the page.
func backtestFields(f url.Values) map[string]any {
	in := fields("trace", "from", "since", "price", "restart_cost", "policies", "every")(f)
	if in["trace"] != nil {
		delete(in, "from")
		delete(in, "since")
	}
	return in
}

// backtestDoc is the content of the page of a backtest.
type backtestDoc struct {
	job    view.BacktestJob
	sheet  *layout.Sheet
	result view.Backtest
	// chosen is the wait that the page is about, of those of the curve.
	chosen int
}

// backtestPage shows how far a backtest is, and what it came to.
func backtestPage(v *visit) (templ.Component, error) {
	id := v.r.PathValue("id")
	jobs, err := read(v, ops.GetBacktest, ops.ByID{ID: id})
	if err != nil {
		return nil, err
	}
	d := backtestDoc{job: jobs.Backtests[0], chosen: -1}
	if d.job.State != "done" {
		return backtestContent(v, &d), nil
	}
	raw, err := read(v, ops.GetBacktestResult, ops.ByID{ID: id})
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &d.result); err != nil {
		return nil, err
	}
	sheet := report.Backtest(d.result, nil)
	d.sheet = &sheet
	d.result.Waits = slices.DeleteFunc(d.result.Waits, func(w backtest.Wait) bool { return w.WaitSeconds < 60 })
	for i, w := range d.result.Waits {
		if best := d.result.Waits[max(d.chosen, 0)]; d.chosen < 0 || w.NetSavedHours > best.NetSavedHours {
			d.chosen = i
		}
		if report.WaitText(w) == v.r.URL.Query().Get("wait") {
			d.chosen = i
			break
		}
	}
	return backtestContent(v, &d), nil
}

// alertsPage shows what people were notified of, the fuses that wait, and what is wrong.
func alertsPage(v *visit) (templ.Component, error) {
	alerts, err := read(v, ops.ListAlerts, ops.None{})
	if err != nil {
		return nil, err
	}
	fuses, err := read(v, ops.ListFuses, ops.None{})
	if err != nil {
		return nil, err
	}
	troubles, err := read(v, ops.GetDoctorState, ops.None{})
	if err != nil {
		return nil, err
	}
	return alertsContent(v, alerts, fuses, troubles), nil
}

// auditDoc is the content of the page Audit log.
type auditDoc struct {
	entries                []view.AuditEntry
	event, actor, resource string
	newest                 int
}

// auditPage shows the newest entries of the audit log.
func auditPage(v *visit) (templ.Component, error) {
	q := v.r.URL.Query()
	d := auditDoc{event: q.Get("what"), actor: q.Get("actor"), resource: q.Get("resource"), newest: rowsShown}
	if q.Get("all") != "" {
		d.newest = maxRows
	}
	log, err := read(v, ops.ListAudit, ops.AuditInput{
		What: d.event, Actor: d.actor, Resource: d.resource, Newest: d.newest,
	})
	if err != nil {
		return nil, err
	}
	d.entries = slices.Clone(log.Entries)
	slices.Reverse(d.entries)
	return auditContent(v, &d), nil
}

// settingsDoc is the content of the page Settings.
type settingsDoc struct {
	whoami     view.Whoami
	accounts   []view.Account
	scan       *view.Scan
	rounds     []view.AccountRound
	people     []view.Person
	tokens     []view.Token
	mayTokens  bool
	notifiers  []view.Notifier
	notifyErr  error
	mayNotify  bool
	accountErr error
}

// settingsPage shows accounts and their health, what cannot be seen, tokens, people and roles.
func settingsPage(v *visit) (templ.Component, error) {
	var d settingsDoc
	var err error
	if d.whoami, err = read(v, ops.Whoami, ops.None{}); err != nil {
		return nil, err
	}
	if v.may(ops.ListAccounts.Info) {
		accounts, err := read(v, ops.ListAccounts, ops.Paging{})
		d.accounts, d.accountErr = accounts.Accounts, err
	}
	if v.may(ops.GetLastScan.Info) {
		if scan, err := v.scan(); err == nil {
			d.scan = scan
		}
	}
	if v.may(ops.GetDoctorState.Info) {
		if doctor, err := read(v, ops.GetDoctorState, ops.None{}); err == nil {
			d.rounds = doctor.Rounds
		}
	}
	if v.may(ops.ListPeople.Info) {
		if people, err := read(v, ops.ListPeople, ops.Paging{}); err == nil {
			d.people = people.People
		}
	}
	if d.mayNotify = v.may(ops.ListNotifiers.Info); d.mayNotify {
		var all view.Notifiers
		all, d.notifyErr = read(v, ops.ListNotifiers, ops.Paging{})
		d.notifiers = all.Notifiers
	}
	if d.mayTokens = v.may(ops.ListTokens.Info); d.mayTokens {
		tokens, err := read(v, ops.ListTokens, ops.Paging{})
		if err != nil {
			return nil, err
		}
		d.tokens = tokens.Tokens
	}
	return settingsContent(v, &d), nil
}

// showSecret shows the secret of a new token, once.
func (p *Pages) showSecret(v *visit, doc []byte) {
	var t view.NewToken
	if err := json.Unmarshal(doc, &t); err != nil {
		p.refuse(v, refusalFor(err))
		return
	}
	f := v.frame()
	f.title = "New token"
	p.show(v.w, v.r, http.StatusOK, whole(f, secretContent(t)))
}

// roundOf is the newest pass of an account.
func (d *settingsDoc) roundOf(account string) *view.AccountRound {
	for i := range d.rounds {
		if d.rounds[i].Account == account {
			return &d.rounds[i]
		}
	}
	return nil
}

// identities lists the identities of a person.
func identities(p view.Person) string {
	return strings.Join(slices.Concat(p.Mail, p.OIDC, p.AWS, p.Slack, p.GitHub, p.Linux), ", ")
}

func orNone(s string) string { return cmp.Or(s, "–") }

// historyOf names the history that a backtest replays.
func historyOf(b view.BacktestJob) string {
	if b.Of.Trace != "" {
		return plain.Line(b.Of.Trace)
	}
	return plain.Line(b.Of.From + " since " + cmp.Or(b.Of.Since, "7d"))
}

// blindSpot describes a source that could not be read, with its effect.
func blindSpot(b inventory.BlindSpot) string {
	return plain.Line(layout.Joined(": ", b.What, layout.Joined("; ", b.Why, b.Effect)))
}
