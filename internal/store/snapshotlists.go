package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/snapshot"
)

// numbered is an account with its number.
type numbered struct {
	Number  int64  `db:"id"`
	Cloud   string `db:"cloud"`
	Account string `db:"cloud_account"`
}

// accountsIn returns the accounts of a scope, sorted.
func (s snapshots) accountsIn(ctx context.Context, q snapshot.Query) ([]numbered, error) {
	f := &filter{dialect: &s.dialect}
	f.account(q)
	var out []numbered
	err := s.list(ctx, &out, "SELECT id, cloud, cloud_account FROM snapshot_accounts"+f.where()+
		" ORDER BY cloud, cloud_account", f.args...)
	return out, err
}

// account adds a scope's conditions on the account.
func (f *filter) account(q snapshot.Query) {
	if q.Cloud != "" {
		f.and("cloud = ?", q.Cloud)
	}
	if q.Account != "" {
		f.and("cloud_account = ?", q.Account)
	}
}

// keepable reports whether rows with the texts of a query can exist: texts that a database would
// alter are never stored.
func keepable(q snapshot.Query, texts ...string) bool {
	return exact(append(texts, q.Cloud, q.Account, q.Region, string(q.Kind))...) == nil
}

// scope adds a scope's conditions on a table, except cloud and account; current is the column with
// the end of a row's validity.
func (f *filter) scope(q snapshot.Query, current, unknownTeam string, args ...any) {
	if q.Region != "" {
		f.and("region = ?", q.Region)
	}
	if q.Kind != "" {
		f.and("kind = ?", q.Kind)
	}
	if !q.IncludeGone {
		f.and(current + " IS NULL")
	}
	if q.Teams != nil {
		folded := make([]string, len(q.Teams))
		for i, t := range q.Teams {
			folded[i] = prose(snapshot.FoldCase(t))
		}
		f.and("(team IN (SELECT value FROM "+f.elements+") OR "+unknownTeam+")",
			append([]any{document[[]string]{folded}}, args...)...)
	}
}

// limited ends a query with a row limit; 0 for none.
func (f *filter) limited(n int) string {
	if n <= 0 {
		return ""
	}
	f.args = append(f.args, n)
	return " LIMIT ?"
}

// Resources returns the resources that a query selects. Accounts are read in turn, so that a page
// reads only its rows along an index.
func (s snapshots) Resources(ctx context.Context, q snapshot.Query) ([]snapshot.Resource, error) {
	out, err := s.resources(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("read the observed resources: %w", err)
	}
	return out, nil
}

func (s snapshots) resources(ctx context.Context, q snapshot.Query) ([]snapshot.Resource, error) {
	if !keepable(q, q.ID, q.IDOrName, q.Ref.String(), q.After.String()) {
		return nil, nil
	}
	if q.Ref != (inventory.Ref{}) {
		if q.Cloud != "" && q.Cloud != q.Ref.Cloud || q.Account != "" && q.Account != q.Ref.Account {
			return nil, nil
		}
		q.Cloud, q.Account = q.Ref.Cloud, q.Ref.Account
	}
	accounts, err := s.accountsIn(ctx, q)
	if err != nil {
		return nil, err
	}
	after := q.After != (inventory.Ref{})
	if after {
		accounts = slices.DeleteFunc(accounts, func(a numbered) bool {
			return inventory.CompareRefs(inventory.Ref{Cloud: a.Cloud, Account: a.Account},
				inventory.Ref{Cloud: q.After.Cloud, Account: q.After.Account}) < 0
		})
	}
	if q.ID != "" || q.IDOrName != "" {
		if accounts, err = s.having(ctx, q, accounts); err != nil {
			return nil, err
		}
	}
	out := []snapshot.Resource{}
	for _, a := range accounts {
		f := &filter{dialect: &s.dialect}
		f.and("account = ?", a.Number)
		if after && a.Cloud == q.After.Cloud && a.Account == q.After.Account {
			f.and("(region, kind, resource_id) > (?, ?, ?)", q.After.Region, q.After.Kind, q.After.ID)
		}
		f.named(q)
		f.scope(q, "gone_at", "team_by <> ?", q.TeamMapping)
		left := 0
		if q.Limit > 0 {
			if left = q.Limit - len(out); left <= 0 {
				break
			}
		}
		if out, err = s.resourcesOf(ctx, a, f, left, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// named adds conditions on the ID or name of resources.
func (f *filter) named(q snapshot.Query) {
	if q.Ref != (inventory.Ref{}) {
		f.and("region = ? AND kind = ? AND resource_id = ?", q.Ref.Region, q.Ref.Kind, q.Ref.ID)
	}
	if q.ID != "" {
		f.and("resource_id = ?", q.ID)
	}
	if q.IDOrName != "" {
		f.and("(resource_id = ? OR name = ?)", q.IDOrName, q.IDOrName)
	}
}

// having returns those of the accounts that have a resource with that ID or name, found by index.
func (s snapshots) having(ctx context.Context, q snapshot.Query, accounts []numbered) ([]numbered, error) {
	f := &filter{dialect: &s.dialect}
	f.named(q)
	if !q.IncludeGone {
		f.and("gone_at IS NULL")
	}
	var found []int64
	if err := s.list(ctx, &found, "SELECT DISTINCT account FROM snapshot_resources"+f.where(), f.args...); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(accounts, func(a numbered) bool { return !slices.Contains(found, a.Number) }), nil
}

// resourcesOf appends the selected resources of an account in order, up to a limit.
func (s snapshots) resourcesOf(ctx context.Context, a numbered, f *filter, limit int, out []snapshot.Resource) (
	[]snapshot.Resource, error) {
	var rows []struct {
		Region    string         `db:"region"`
		Kind      inventory.Kind `db:"kind"`
		ID        string         `db:"resource_id"`
		Name      string         `db:"name"`
		State     string         `db:"state"`
		Duty      string         `db:"duty"`
		DutySince instant        `db:"duty_since"`
		Body      string         `db:"body"`
		First     instant        `db:"first_at"`
		Seen      instant        `db:"seen_at"`
		Gone      instant        `db:"gone_at"`
		Part      instant        `db:"part_at"`
	}
	query := "SELECT r.region, r.kind, r.resource_id, r.name, r.state, r.duty, r.duty_since, r.body, r.first_at, " +
		"r.seen_at, r.gone_at," +
		" (SELECT p.at FROM snapshot_parts p WHERE p.account = r.account AND p.region = r.region AND p.kind = " +
		"r.kind) AS " +
		"part_at" +
		" FROM snapshot_resources r" + f.where() + " ORDER BY r.region, r.kind, r.resource_id" + f.limited(limit)
	if err := s.list(ctx, &rows, query, f.args...); err != nil {
		return nil, err
	}
	for _, r := range rows {
		if r.Gone.IsZero() && r.Part.After(r.Seen.Time) {
			r.Seen = r.Part
		}
		ref := inventory.Ref{Cloud: a.Cloud, Account: a.Account, Region: r.Region, Kind: r.Kind, ID: r.ID}
		out = append(out, snapshot.Resource{
			Ref: ref, Name: r.Name, State: r.State, Duty: r.Duty, DutySince: r.DutySince.Time, Body: []byte(r.Body),
			FirstAt: r.First.Time, SeenAt: r.Seen.Time, GoneAt: r.Gone.Time})
	}
	return out, nil
}

// Findings returns the findings that a query selects.
func (s snapshots) Findings(ctx context.Context, q snapshot.Query) ([]snapshot.Finding, error) {
	if !keepable(q, q.ID, q.AfterFinding) {
		return nil, nil
	}
	var rows []struct {
		refRow
		Finding string  `db:"id"`
		Rule    string  `db:"rule"`
		Body    string  `db:"body"`
		Gist    string  `db:"gist"`
		First   instant `db:"first_at"`
		Last    instant `db:"last_at"`
		Ended   instant `db:"ended_at"`
	}
	f := &filter{dialect: &s.dialect}
	f.account(q)
	if q.ID != "" {
		f.and("f.id = ?", q.ID)
	}
	if q.AfterFinding != "" {
		f.and("f.id > ?", q.AfterFinding)
	}
	f.scope(q, "ended_at", "team IS NULL")
	query := "SELECT a.cloud, a.cloud_account, f.region, f.kind, f.resource_id, f.id, f.rule, f.body, f.gist, " +
		"f.first_at, f.last_at, f.ended_at" +
		" FROM snapshot_findings f JOIN snapshot_accounts a ON a.id = f.account" + f.where() + " ORDER BY f.id" +
		f.limited(q.Limit)
	if err := s.list(ctx, &rows, query, f.args...); err != nil {
		return nil, fmt.Errorf("read the findings: %w", err)
	}
	out := make([]snapshot.Finding, len(rows))
	for i, r := range rows {
		out[i] = snapshot.Finding{
			ID: r.Finding, Rule: r.Rule, Ref: r.ref(), Summary: r.Gist, Body: []byte(r.Body), FirstAt: r.First.Time,
			LastAt: r.Last.Time, EndedAt: r.Ended.Time,
		}
	}
	return out, nil
}
