package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/snapshot"
)

// snapshots stores observations of resources.
type snapshots struct{ *database }

// Snapshots returns the store of the newest observations.
func (s *Store) Snapshots() snapshot.Store { return snapshots{s.db} }

// Save writes observations and the audit that they belong to.
func (s snapshots) Save(ctx context.Context, audit *snapshot.Audit, looks ...snapshot.Observation) error {
	err := s.transact(ctx, func(t *tx) error {
		// Concurrent transactions lock accounts in the same order, to avoid deadlocks.
		ordered := slices.SortedFunc(slices.Values(looks), func(a, b snapshot.Observation) int {
			return strings.Compare(a.Cloud+"/"+a.Account, b.Cloud+"/"+b.Account)
		})
		for _, l := range ordered {
			if err := t.look(ctx, l); err != nil {
				return fmt.Errorf("account %s/%s: %w", l.Cloud, l.Account, err)
			}
		}
		if audit == nil {
			return nil
		}
		accounts := slices.Sorted(slices.Values(audit.Accounts))
		return t.exec(ctx, "INSERT INTO snapshot_audits (cloud, accounts, at, body) VALUES (?, ?, ?, ?)"+
			" ON CONFLICT (cloud, accounts) DO UPDATE SET at = excluded.at, body = excluded.body",
			audit.Cloud, strings.Join(accounts, ","), at(audit.At), string(audit.Body))
	})
	return attempted(err, "keep what was observed")
}

// seenRow has the fields of a stored resource by which a change is detected.
type seenRow struct {
	Region    string         `db:"region"`
	Kind      inventory.Kind `db:"kind"`
	ID        string         `db:"resource_id"`
	Digest    string         `db:"digest"`
	State     string         `db:"state"`
	Duty      string         `db:"duty"`
	DutySince instant        `db:"duty_since"`
	Seen      instant        `db:"seen_at"`
}

type partAt struct {
	Region string         `db:"region"`
	Kind   inventory.Kind `db:"kind"`
	At     instant        `db:"at"`
	Judged instant        `db:"judged_at"`
}

// place is a resource within its account.
type place struct {
	snapshot.Part
	id string
}

// look writes one account's part of [snapshots.Save].
func (t *tx) look(ctx context.Context, l snapshot.Observation) error {
	if l.Cloud == "" || l.Account == "" || l.At.IsZero() {
		return errors.New("it needs a cloud, an account and a time")
	}
	if err := exact(l.Cloud, l.Account); err != nil {
		return err
	}
	account, err := t.lockSnapshot(ctx, l)
	if err != nil {
		return err
	}
	var parts []partAt
	if err := t.list(ctx, &parts, "SELECT region, kind, at, judged_at FROM snapshot_parts WHERE account = ?",
		account); err != nil {
		return err
	}
	before, judged := make(map[snapshot.Part]time.Time, len(parts)), make(map[snapshot.Part]time.Time, len(parts))
	for _, p := range parts {
		part := snapshot.Part{Region: p.Region, Kind: p.Kind}
		before[part], judged[part] = p.At.Time, p.Judged.Time
	}
	whole := partsAt(l, before)
	l.Resources = slices.DeleteFunc(slices.Clone(l.Resources), func(r snapshot.Resource) bool {
		return before[snapshot.PartOf(r.Ref)].After(l.At)
	})
	// Passes may observe the same resources during an audit, which takes minutes: its findings are
	// outdated only for resources that a later audit judged.
	l.Findings = slices.DeleteFunc(slices.Clone(l.Findings), func(f snapshot.Finding) bool {
		return judged[snapshot.PartOf(f.Ref)].After(l.At)
	})
	if err := t.lookResources(ctx, account, l, before, whole); err != nil {
		return err
	}
	if l.FindingsComplete {
		if err := t.lookFindings(ctx, account, l, partsAt(l, judged)); err != nil {
			return err
		}
	}
	into := t.bulk("snapshot_parts", []string{"account", "region", "kind", "at"},
		" ON CONFLICT (account, region, kind) DO UPDATE SET at = excluded.at")
	for p := range whole {
		if err := into.add(ctx, account, p.Region, p.Kind, at(l.At)); err != nil {
			return err
		}
	}
	if err := into.flush(ctx); err != nil || !l.FindingsComplete {
		return err
	}
	into = t.bulk("snapshot_parts", []string{"account", "region", "kind", "at", "judged_at"},
		" ON CONFLICT (account, region, kind) DO UPDATE SET judged_at = excluded.judged_at")
	for p := range partsAt(l, judged) {
		if err := into.add(ctx, account, p.Region, p.Kind, at(l.At), at(l.At)); err != nil {
			return err
		}
	}
	return into.flush(ctx)
}

// partsAt returns the parts of an observation that no later one listed.
func partsAt(l snapshot.Observation, last map[snapshot.Part]time.Time) map[snapshot.Part]bool {
	out := map[snapshot.Part]bool{}
	for _, p := range l.Parts {
		if !last[p].After(l.At) {
			out[p] = true
		}
	}
	return out
}

// lockSnapshot returns the number of an account and locks it until the end of the transaction. The
// access method is that of the newest observation.
func (t *tx) lockSnapshot(ctx context.Context, l snapshot.Observation) (int64, error) {
	regions := slices.Clone(l.Reach.Regions)
	err := t.exec(ctx,
		"INSERT INTO snapshot_accounts (cloud, cloud_account, at, profile, role, regions) VALUES (?, ?, ?, ?, ?, ?)"+
			" ON CONFLICT (cloud, cloud_account) DO UPDATE SET at = excluded.at, profile = excluded.profile, role = "+
			"excluded.role, regions = excluded.regions"+
			" WHERE snapshot_accounts.at <= excluded.at",
		l.Cloud, l.Account, at(l.At), prose(l.Reach.Profile), prose(l.Reach.Role), document[[]string]{regions})
	if err != nil {
		return 0, err
	}
	var id int64
	err = t.get(ctx, &id, "SELECT id FROM snapshot_accounts WHERE cloud = ? AND cloud_account = ?"+t.forUpdate,
		l.Cloud,
		l.Account)
	return id, err
}

// lookResources writes the new, changed and disappeared resources.
func (t *tx) lookResources(ctx context.Context, account int64, l snapshot.Observation,
	before map[snapshot.Part]time.Time,
	whole map[snapshot.Part]bool) error {
	var kept []seenRow
	if err := t.list(ctx, &kept, "SELECT region, kind, resource_id, digest, state, duty, duty_since, seen_at FROM "+
		"snapshot_resources WHERE account = ? AND gone_at IS NULL", account); err != nil {
		return err
	}
	missing := make(map[place]seenRow, len(kept))
	for _, k := range kept {
		missing[place{snapshot.Part{Region: k.Region, Kind: k.Kind}, k.ID}] = k
	}
	resources := t.bulk("snapshot_resources", []string{
		"account", "region", "kind", "resource_id", "name", "state", "duty", "duty_since", "body", "digest", "team",
		"team_by", "first_at", "seen_at",
	},
		" ON CONFLICT (account, region, kind, resource_id) DO UPDATE SET name = excluded.name, state = "+
			"excluded.state, "+
			"duty = excluded.duty, duty_since = excluded.duty_since,"+
			" body = excluded.body, digest = excluded.digest, team = excluded.team, team_by = excluded.team_by, seen_at = "+
			"excluded.seen_at, gone_at = NULL")
	changes := t.changes()
	seen := make(map[place]bool, len(l.Resources))
	again := map[snapshot.Part][]string{} // unchanged ones in parts that were not listed completely
	for _, r := range l.Resources {
		part := snapshot.PartOf(r.Ref)
		at1 := place{part, r.Ref.ID}
		if seen[at1] {
			continue
		}
		seen[at1] = true
		was, known := missing[at1]
		delete(missing, at1)
		if r.Duty == "" {
			r.Duty, r.DutySince = was.Duty, was.DutySince.Time
		}
		name, body, team := prose(r.Name), string(r.Body), prose(snapshot.FoldCase(r.Team))
		key, err := digest([]any{name, body, team, r.TeamMapping})
		if err != nil {
			return err
		}
		last := was.Seen.Time
		if before[part].After(last) {
			last = before[part]
		}
		// An interval that began after the resource was seen last is another.
		moved := r.Duty != was.Duty || known && r.Duty != "" && r.DutySince.After(last) && !was.DutySince.IsZero()
		if !known || r.State != was.State {
			if err := changes.add(ctx, account, part.Region, part.Kind, r.Ref.ID, at(l.At), snapshot.State, instant{},
				r.State); err != nil {
				return err
			}
		}
		if moved {
			if err := changes.add(ctx, account, part.Region, part.Kind, r.Ref.ID, at(l.At),
				snapshot.Duty, at(r.DutySince),
				r.Duty); err != nil {
				return err
			}
		}
		earlier := false
		if known && !moved {
			if earlier, err = t.beganEarlier(ctx, account, part, &r, was); err != nil {
				return err
			}
		}
		switch {
		case !known || moved || earlier || r.State != was.State || key != was.Digest:
			if !moved && known && !earlier {
				r.DutySince = was.DutySince.Time
			}
			if err := resources.add(ctx, account, part.Region, part.Kind, r.Ref.ID, name, r.State,
				r.Duty, at(r.DutySince),
				body, key, team, r.TeamMapping, at(l.At), at(l.At)); err != nil {
				return err
			}
		case !whole[part]:
			again[part] = append(again[part], r.Ref.ID)
		}
	}
	if err := errors.Join(resources.flush(ctx), changes.flush(ctx)); err != nil {
		return err
	}
	const where = " WHERE account = ? AND region = ? AND kind = ? AND resource_id IN (SELECT value FROM "
	for part, ids := range again {
		if err := t.exec(ctx, "UPDATE snapshot_resources SET seen_at = ?"+where+t.elements+")", at(l.At), account,
			part.Region, part.Kind, document[[]string]{ids}); err != nil {
			return err
		}
	}
	gone := map[snapshot.Part][]string{}
	for p := range missing {
		if whole[p.Part] {
			gone[p.Part] = append(gone[p.Part], p.id)
		}
	}
	for part, ids := range gone {
		slices.Sort(ids)
		last := at(before[part])
		if err := t.exec(ctx,
			"UPDATE snapshot_resources SET gone_at = ?, seen_at = CASE WHEN seen_at < ? THEN ? ELSE seen_at END"+where+
				t.elements+")",
			at(l.At), last, last, account, part.Region, part.Kind, document[[]string]{ids}); err != nil {
			return err
		}
		for _, id := range ids {
			if err := changes.add(ctx, account, part.Region, part.Kind, id, at(l.At), snapshot.State, instant{},
				snapshot.Gone); err != nil {
				return err
			}
		}
	}
	return changes.flush(ctx)
}

// beganEarlier reports whether an observation shows an earlier beginning of the duty that a resource was already
// in, and corrects the interval: an audit reads more of the past than a pass. A beginning before another known
// duty was observed is not believed.
func (t *tx) beganEarlier(ctx context.Context, account int64, part snapshot.Part, r *snapshot.Resource, was seenRow) (
	bool, error) {
	if r.Duty == "" || r.DutySince.IsZero() || was.DutySince.IsZero() || !r.DutySince.Before(was.DutySince.Time) {
		return false, nil
	}
	const of = " WHERE account = ? AND region = ? AND kind = ? AND resource_id = ? AND what = ?"
	keys := []any{account, part.Region, part.Kind, r.Ref.ID, snapshot.Duty}
	var intervals []struct {
		At    instant `db:"at"`
		Value string  `db:"value"`
	}
	err := t.list(ctx, &intervals, "SELECT at, value FROM snapshot_changes"+of+" ORDER BY at DESC", keys...)
	if err != nil {
		return false, err
	}
	for i, c := range intervals {
		if i > 0 && c.Value != unknownDuty && !c.At.Time.Before(r.DutySince) {
			return false, nil
		}
	}
	if len(intervals) == 0 {
		return true, nil
	}
	return true, t.exec(ctx, "UPDATE snapshot_changes SET since = ?"+of+" AND at = ?",
		append(append([]any{at(r.DutySince)}, keys...), intervals[0].At)...)
}

// unknownDuty is the duty that says nothing of what a resource does.
const unknownDuty = "unknown"

// changes begins to write intervals.
func (t *tx) changes() *bulk {
	return t.bulk("snapshot_changes", []string{
		"account", "region", "kind", "resource_id", "at", "what", "since", "value",
	},
		" ON CONFLICT (account, region, kind, resource_id, at, what) DO UPDATE SET since = excluded.since, value = "+
			"excluded.value")
}

// Audits returns the newest audit of every set of accounts, newest last.
func (s snapshots) Audits(ctx context.Context) ([]snapshot.Audit, error) {
	var rows []struct {
		Cloud    string  `db:"cloud"`
		Accounts string  `db:"accounts"`
		At       instant `db:"at"`
		Body     string  `db:"body"`
	}
	if err := s.list(ctx, &rows,
		"SELECT cloud, accounts, at, body FROM snapshot_audits ORDER BY at, cloud, accounts"); err != nil {
		return nil, fmt.Errorf("read the kept audits: %w", err)
	}
	out := make([]snapshot.Audit, len(rows))
	for i, r := range rows {
		out[i] = snapshot.Audit{
			Cloud: r.Cloud, Accounts: strings.Split(r.Accounts, ","), At: r.At.Time, Body: []byte(r.Body),
		}
	}
	return out, nil
}

// Accounts returns the accounts that were observed.
func (s snapshots) Accounts(ctx context.Context) ([]snapshot.Account, error) {
	var rows []struct {
		Cloud   string             `db:"cloud"`
		ID      string             `db:"cloud_account"`
		At      instant            `db:"at"`
		Profile string             `db:"profile"`
		Role    string             `db:"role"`
		Regions document[[]string] `db:"regions"`
	}
	if err := s.list(ctx, &rows,
		"SELECT cloud, cloud_account, at, profile, role, regions FROM snapshot_accounts ORDER BY cloud, cloud_account"); err != nil {
		return nil, fmt.Errorf("read the observed accounts: %w", err)
	}
	out := make([]snapshot.Account, len(rows))
	for i, r := range rows {
		out[i] = snapshot.Account{
			Cloud: r.Cloud, ID: r.ID, At: r.At.Time,
			Reach: snapshot.Reach{Profile: r.Profile, Role: r.Role, Regions: r.Regions.of},
		}
	}
	return out, nil
}

// Changes returns the intervals of a resource, oldest first.
func (s snapshots) Changes(ctx context.Context, ref inventory.Ref) ([]snapshot.Change, error) {
	var rows []struct {
		At    instant `db:"at"`
		Since instant `db:"since"`
		What  string  `db:"what"`
		Value string  `db:"value"`
	}
	const query = "SELECT c.at, c.since, c.what, c.value FROM snapshot_changes c JOIN snapshot_accounts a ON a.id = " +
		"c.account" +
		" WHERE a.cloud = ? AND a.cloud_account = ? AND c.region = ? AND c.kind = ? AND c.resource_id = ? ORDER BY c.at, " +
		"c.what"
	if err := s.list(ctx, &rows, query, ref.Cloud, ref.Account, ref.Region, ref.Kind, ref.ID); err != nil {
		return nil, fmt.Errorf("read the changes of %s: %w", ref, err)
	}
	out := make([]snapshot.Change, len(rows))
	for i, r := range rows {
		out[i] = snapshot.Change{At: r.At.Time, Since: r.Since.Time, Aspect: r.What, Value: r.Value}
	}
	return out, nil
}
