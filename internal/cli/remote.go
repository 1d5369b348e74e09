package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/view"
)

// remote is a service that has the state, over its API.
type remote struct {
	c *client.Client
	// rt reads the files that are sent.
	rt *daemon.Runtime
}

var _ service = (*remote)(nil)

// body is what a call sends.
type body map[string]any

// with adds a value that is not empty.
func (b body) with(key, value string) body {
	if value != "" {
		b[key] = value
	}
	return b
}

// query are parameters; empty ones are left out.
func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// got reads a document.
func got[T any](ctx context.Context, r *remote, schema string, q url.Values, path ...string) (T, error) {
	doc, _, err := client.Get[T](ctx, r.c, schema, client.Path(path...), q)
	return doc, r.asked(ctx, err)
}

// posted carries something out.
func posted[T any](ctx context.Context, r *remote, schema string, in any, path ...string) (T, error) {
	doc, err := client.Post[T](ctx, r.c, schema, client.Path(path...), in)
	return doc, r.asked(ctx, err)
}

// collected reads all pages of a collection into one document.
func collected[T any](ctx context.Context, r *remote, schema string, q url.Values, add func(whole *T, page T), path ...string) (T, time.Time, error) {
	var whole T
	first := true
	meta, err := client.Pages(ctx, r.c, schema, client.Path(path...), q, func(page T) error {
		if first {
			whole, first = page, false
			return nil
		}
		add(&whole, page)
		return nil
	})
	return whole, meta.At, r.asked(ctx, err)
}

// Keeps implements keeper.
func (r *remote) Keeps(ctx context.Context) (view.Keeps, error) {
	doc, _, err := collected(ctx, r, view.KeepsSchema, nil, func(w *view.Keeps, p view.Keeps) { w.Keeps = append(w.Keeps, p.Keeps...) }, "keeps")
	return doc, err
}

// Exempt implements keeper.
func (r *remote) Exempt(ctx context.Context, _ daemon.Source, name, duration, reason string) (view.Keep, error) {
	if err := daemon.CheckKeep(name, duration, reason); err != nil {
		return view.Keep{}, err
	}
	return posted[view.Keep](ctx, r, view.KeepSchema, body{"for": duration, "reason": reason}, "resources", name, "keep")
}

// Freeze implements freezer.
func (r *remote) Freeze(ctx context.Context, reason string, on bool) (view.Freeze, error) {
	if err := daemon.CheckReason(reason); err != nil {
		return view.Freeze{}, err
	}
	path := []string{"freezes"}
	if !on {
		path = append(path, "lift")
	}
	doc, err := posted[view.Freeze](ctx, r, view.FreezeSchema, body{"reason": reason}, path...)
	var silent *client.Unreached
	if on && ctx.Err() == nil && errors.As(err, &silent) {
		return doc, &failure{exit: ExitError, code: "no_server", err: err, hint: action.FreezeByHand}
	}
	return doc, err
}

// Fuses implements fuser.
func (r *remote) Fuses(ctx context.Context) (view.Fuses, error) {
	return got[view.Fuses](ctx, r, view.FusesSchema, nil, "alerts")
}

// Confirm implements fuser.
func (r *remote) Confirm(ctx context.Context, policy, account, duration, reason string) (view.Fuses, error) {
	if err := daemon.CheckConfirm(policy, reason); err != nil {
		return view.Fuses{}, err
	}
	return posted[view.Fuses](ctx, r, view.FusesSchema, body{"reason": reason}.with("account", account).with("for", duration), "alerts", policy, "confirm")
}

// Approvals implements decider.
func (r *remote) Approvals(ctx context.Context, id string, all bool) (view.Approvals, time.Time, error) {
	q := query("id", id)
	if all {
		q.Set("all", "true")
	}
	return collected(ctx, r, view.ApprovalsSchema, q, func(w *view.Approvals, p view.Approvals) { w.Requests = append(w.Requests, p.Requests...) }, "approvals")
}

// Decide implements decider. The server knows who signs in.
func (r *remote) Decide(ctx context.Context, id string, allow bool, reason, _ string) (view.Decision, error) {
	verb := "deny"
	if allow {
		verb = "approve"
	}
	return posted[view.Decision](ctx, r, view.DecisionSchema, body{}.with("reason", reason), "approvals", id, verb)
}

// Whoami implements decider.
func (r *remote) Whoami(ctx context.Context) (view.Whoami, error) {
	return got[view.Whoami](ctx, r, view.WhoamiSchema, nil, "people", "me")
}

// Budgets implements holder.
func (r *remote) Budgets(ctx context.Context) (view.Budgets, error) {
	doc, err := got[view.Budgets](ctx, r, view.BudgetSchema, nil, "budgets")
	if err == nil && len(doc.Budgets) == 0 {
		err = daemon.NoBudgets()
	}
	return doc, err
}

// Holds implements holder.
func (r *remote) Holds(ctx context.Context, period daemon.Period) (view.Holds, time.Time, error) {
	return collected(ctx, r, view.HoldsSchema, query("since", period.Since, "until", period.Until), func(w *view.Holds, p view.Holds) { w.Holds = append(w.Holds, p.Holds...) }, "holds")
}

// ChangeHold implements holder.
func (r *remote) ChangeHold(ctx context.Context, id string, do holdChange) (view.OneHold, error) {
	in := body{}
	switch {
	case do.verb == "settle" && do.actual != nil:
		in["actual_usd"] = do.actual.String()
	case do.verb == "extend":
		in["amount_usd"], in["for"] = do.amount.String(), do.length.String()
	}
	if do.verb == "release" {
		return posted[view.OneHold](ctx, r, view.HoldSchema, nil, "holds", id, do.verb)
	}
	return posted[view.OneHold](ctx, r, view.HoldSchema, in, "holds", id, do.verb)
}

// costsQuery are the parameters of costs.
func costsQuery(f daemon.CostsQuery) url.Values {
	q := query("since", f.Since, "until", f.Until, "by", f.By, "granularity", f.Granularity)
	q["where"] = f.Where
	return q
}

// Costs implements accountant.
func (r *remote) Costs(ctx context.Context, f daemon.CostsQuery) (view.Costs, error) {
	if err := f.Check(r.rt.Now()); err != nil {
		return view.Costs{}, err
	}
	return got[view.Costs](ctx, r, view.CostsSchema, costsQuery(f), "costs")
}

// Units implements accountant.
func (r *remote) Units(ctx context.Context, f daemon.UnitsQuery, names []string) (view.Units, error) {
	if err := f.Check(r.rt.Now()); err != nil {
		return view.Units{}, err
	}
	q := costsQuery(f.CostsQuery)
	if f.Counts != "" {
		q.Set("counts", f.Counts)
		q.Set("per", strconv.FormatInt(f.Per, 10))
		if f.Target != "" {
			q.Set("target", f.Target)
		}
		names = append([]string{cmp.Or(f.Name, "GPU-hour")}, names...)
	}
	q["unit"] = names
	return got[view.Units](ctx, r, view.UnitsSchema, q, "costs", "units")
}

// Shares implements accountant.
func (r *remote) Shares(ctx context.Context, name, _ string, period daemon.Period) (view.Shares, error) {
	if _, _, err := period.Bounds(r.rt.Now()); err != nil {
		return view.Shares{}, err
	}
	in, err := r.rt.Input(name)
	if err != nil {
		return view.Shares{}, err
	}
	text, err := sent(name, in)
	if err = errors.Join(err, in.Close()); err != nil {
		return view.Shares{}, err
	}
	return posted[view.Shares](ctx, r, view.SharesSchema, body{"content": text, "name": name}.with("since", period.Since).with("until", period.Until), "costs", "shares")
}

// TenantShares implements accountant. The servers are those of the service.
func (r *remote) TenantShares(ctx context.Context, _ daemon.Source, period daemon.Period, by string) (view.Shares, error) {
	if _, _, err := period.Bounds(r.rt.Now()); err != nil {
		return view.Shares{}, err
	}
	return got[view.Shares](ctx, r, view.SharesSchema, query("since", period.Since, "until", period.Until, "by", by), "costs", "shares")
}

// BillImport implements biller. A bucket is read by the service, a file is sent to it.
func (r *remote) BillImport(ctx context.Context, path, _ string, dry bool) (view.Bill, error) {
	in := body{"dry_run": dry}
	if strings.HasPrefix(path, "s3://") {
		in["path"] = path
	} else {
		text, err := r.billText(path)
		if err == nil {
			err = r.rt.CheckBill(ctx, path) // what is wrong with it is said by its name here
		}
		if err != nil {
			return view.Bill{}, err
		}
		in["content"], in["name"] = text, strings.TrimSuffix(filepath.Base(path), ".gz")
	}
	return posted[view.Bill](ctx, r, view.BillSchema, in, "bills")
}

// billText is the text of a bill that is sent: one file of CSV.
func (r *remote) billText(path string) (string, error) {
	unsent := func(why string) error {
		return &failure{exit: ExitUsage, code: "not_sent", err: fmt.Errorf("bill import %s: %s, and a server takes one file of CSV of at most %d bytes", path, why, maxText),
			hint: "put it under serve.bill_paths of the server, or give --data-dir DIR for a state here"}
	}
	if st, err := os.Stat(r.rt.Path(path)); err == nil && st.IsDir() {
		return "", unsent("it is a folder")
	}
	file, err := r.rt.Input(path)
	if err != nil {
		return "", nil //nolint:nilerr // reading it as a bill says what is wrong
	}
	defer file.Close() //nolint:errcheck // it was only read
	head := bufio.NewReader(file)
	magic, _ := head.Peek(4)
	if bytes.HasPrefix(magic, []byte("PAR1")) {
		return "", unsent("it is Parquet")
	}
	text, err := io.ReadAll(io.LimitReader(head, maxText+1))
	switch {
	case err != nil:
		return "", &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read %s: %w", path, err)}
	case len(text) > maxText:
		return "", unsent("it is longer")
	}
	return string(text), nil
}

// BillShow implements biller.
func (r *remote) BillShow(ctx context.Context, f daemon.Period, by bill.Dimension, basis bill.Basis) (view.BillShow, error) {
	return got[view.BillShow](ctx, r, view.BillShowSchema, query("since", f.Since, "until", f.Until, "by", string(by), "basis", string(basis)), "bills")
}

// Reconcile implements biller.
func (r *remote) Reconcile(ctx context.Context, f daemon.Period, basis bill.Basis, post bool) (view.Reconciliation, error) {
	if post {
		return posted[view.Reconciliation](ctx, r, view.ReconciliationSchema, body{"since": f.Since, "basis": basis}.with("until", f.Until), "bills", "reconciliation")
	}
	return got[view.Reconciliation](ctx, r, view.ReconciliationSchema, query("since", f.Since, "until", f.Until, "basis", string(basis)), "bills", "reconciliation")
}

// maxText bounds a file that is sent, as the service does.
const maxText = 900_000

// file is the text of a file, in the form in which it is sent.
func (r *remote) file(name string, f daemon.EstimateOptions) (string, error) {
	src, err := r.rt.Read(name, f.In, estimate.MaxPlan)
	if err == nil && len(src) > maxText {
		err = tooLong(name)
	}
	return string(src), err
}

func tooLong(name string) error {
	return usageError("%s is longer than the %d bytes that a server takes", name, maxText)
}

// sent is the text of an open file.
func sent(name string, in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxText+1))
	if err != nil {
		return "", &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read %s: %w", name, daemon.Cause(err))}
	}
	if len(text) > maxText {
		return "", tooLong(name)
	}
	return string(text), nil
}

// work is the body about a file of work.
func (r *remote) work(name string, f daemon.EstimateOptions) (body, error) {
	text, err := r.file(name, f)
	if err != nil {
		return nil, err
	}
	in := body{"content": text, "name": name}
	if len(f.Regions) > 0 {
		in["regions"] = f.Regions
	}
	for key, from := range map[string]string{"nodes": f.Nodes, "history": f.History} {
		if from == "" {
			continue
		}
		if in[key], err = r.file(from, f); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// Estimated implements gatekeeper.
func (r *remote) Estimated(ctx context.Context, name string, f daemon.EstimateOptions) (view.Estimate, error) {
	in, err := r.work(name, f)
	if err != nil {
		return view.Estimate{}, err
	}
	return posted[view.Estimate](ctx, r, view.EstimateSchema, in, "estimates")
}

// Gate implements gatekeeper.
func (r *remote) Gate(ctx context.Context, name string, f daemon.GateOptions) (view.Gate, error) {
	in, err := r.work(name, f.EstimateOptions)
	if err != nil {
		return view.Gate{}, err
	}
	in["dry_run"] = f.DryRun
	return posted[view.Gate](ctx, r, view.GateSchema, in.with("key", f.Key), "gate")
}

// GateReport implements gatekeeper.
func (r *remote) GateReport(ctx context.Context, period daemon.Period) (view.GateReport, error) {
	return got[view.GateReport](ctx, r, view.GateReportSchema, query("since", period.Since, "until", period.Until), "gate")
}

// Settings implements settler.
func (r *remote) Settings(ctx context.Context) (view.Settings, error) {
	return got[view.Settings](ctx, r, view.SettingsSchema, nil, "settings")
}

// SetSettings implements settler.
func (r *remote) SetSettings(ctx context.Context, name, prices, reason string) (view.SettingsSet, error) {
	t, err := r.rt.SettingsOf(name, prices)
	if err != nil {
		return view.SettingsSet{}, err
	}
	in := body{"reason": reason}.with("name", name).with("prices_name", prices)
	for key, text := range map[string]*string{"settings": t.Settings, "prices": t.Prices} {
		if text == nil {
			continue
		}
		if len(*text) > maxText {
			return view.SettingsSet{}, tooLong(cmp.Or(map[string]string{"settings": name, "prices": prices}[key], key))
		}
		in[key] = *text
	}
	return posted[view.SettingsSet](ctx, r, view.SettingsSetSchema, in, "settings")
}

// CreateToken implements tokener. Its answer holds a secret, so it is sent once.
func (r *remote) CreateToken(ctx context.Context, o daemon.TokenOptions) (view.NewToken, error) {
	if err := o.Check(); err != nil {
		return view.NewToken{}, err
	}
	doc, err := client.PostOnce[view.NewToken](ctx, r.c, view.NewTokenSchema, client.Path("tokens"), body{"name": o.Name, "roles": o.Roles}.with("for", o.For))
	return doc, r.asked(ctx, err)
}

// Tokens implements tokener.
func (r *remote) Tokens(ctx context.Context) (view.Tokens, error) {
	doc, _, err := collected(ctx, r, view.TokensSchema, nil, func(w *view.Tokens, p view.Tokens) { w.Tokens = append(w.Tokens, p.Tokens...) }, "tokens")
	return doc, err
}

// RevokeToken implements tokener.
func (r *remote) RevokeToken(ctx context.Context, id string) (view.OneToken, error) {
	return posted[view.OneToken](ctx, r, view.TokenSchema, nil, "tokens", id, "revoke")
}

// Entries implements auditor.
func (r *remote) Entries(ctx context.Context, q action.Query, each func(view.AuditEntry) error) error {
	asked := query("actor", q.Actor, "what", q.What, "resource", q.Resource, "item", q.Item)
	for key, t := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !t.IsZero() {
			asked.Set(key, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if q.Limit > 0 {
		asked.Set("newest", strconv.Itoa(q.Limit))
	}
	_, err := client.Pages(ctx, r.c, view.AuditSchema, client.Path("audit"), asked, func(page view.Audit) error {
		for _, e := range page.Entries {
			if err := each(e); err != nil {
				return err
			}
		}
		return nil
	})
	return r.asked(ctx, err)
}

// VerifyAudit implements auditor.
func (r *remote) VerifyAudit(ctx context.Context, _, _ string) (view.Verified, error) {
	return got[view.Verified](ctx, r, view.VerifiedSchema, nil, "audit", "verification")
}

// FixPreviews implements fixer.
func (r *remote) FixPreviews(ctx context.Context, ids []string, o daemon.FixOptions) ([]view.Fix, error) {
	q := url.Values{}
	if o.Scratch {
		q.Set("scratch_disks", "true")
	}
	if o.Save {
		q.Set("save_disks", "true")
	}
	var all []view.Fix
	for _, id := range ids {
		doc, err := got[view.Fixes](ctx, r, view.FixSchema, q, "findings", id, "fix")
		if err != nil {
			return nil, err
		}
		all = append(all, doc.Fixes...)
	}
	return all, nil
}

// CarryOut implements fixer.
func (r *remote) CarryOut(ctx context.Context, ids []string, f daemon.FixOptions, show func(view.Fixes) error) error {
	doc, err := posted[view.Fixes](ctx, r, view.FixSchema, body{"ids": ids, "grace": f.Grace.String(), "scratch_disks": f.Scratch, "save_disks": f.Save}, "findings", "fix")
	return inPart(doc, err, show)
}

// Undo implements fixer.
func (r *remote) Undo(ctx context.Context, ids []string, _ daemon.Source, enforce bool, show func(view.Undo) error) error {
	doc, err := posted[view.Undo](ctx, r, view.UndoSchema, body{"ids": ids, "enforce": enforce}, "actions", "undo")
	return inPart(doc, err, show)
}

// inPart shows what was done, also where that ended in an error.
func inPart[T any](doc T, err error, show func(T) error) error {
	var said *client.Error
	if errors.As(err, &said) && len(said.Document) > 0 {
		if bad := json.Unmarshal(said.Document, &doc); bad != nil {
			return errors.Join(err, bad)
		}
	} else if err != nil {
		return err
	}
	if shown := show(doc); shown != nil {
		return shown
	}
	return err
}

// PolicyCheck implements policer.
func (r *remote) PolicyCheck(ctx context.Context, _ []string, against string) (view.PolicyCheck, error) {
	return got[view.PolicyCheck](ctx, r, view.PolicyCheckSchema, query("against", against), "policies")
}

// LastScan implements policer.
func (r *remote) LastScan(ctx context.Context, _ config.Config, cloud string) (view.Scan, error) {
	return got[view.Scan](ctx, r, view.ScanSchema, query("cloud", cloud, "samples", "true"), "scans", "last")
}
