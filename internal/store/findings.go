package store

import (
	"context"
	"slices"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/snapshot"
)

// keptFinding has the fields of a stored finding by which a change is detected.
type keptFinding struct {
	ID       string         `db:"id"`
	Region   string         `db:"region"`
	Kind     inventory.Kind `db:"kind"`
	Resource string         `db:"resource_id"`
	Rule     string         `db:"rule"`
	Gist     string         `db:"gist"`
	Digest   string         `db:"digest"`
}

func (k keptFinding) part() snapshot.Part { return snapshot.Part{Region: k.Region, Kind: k.Kind} }

// lookFindings writes the findings of an observation, and ends those missing in the parts that it
// listed.
func (t *tx) lookFindings(ctx context.Context, account int64, l snapshot.Observation,
	whole map[snapshot.Part]bool) error {
	var kept []keptFinding
	if err := t.list(ctx, &kept, "SELECT id, region, kind, resource_id, rule, gist, digest FROM snapshot_findings "+
		"WHERE account = ? AND ended_at IS NULL ORDER BY id", account); err != nil {
		return err
	}
	was := make(map[string]keptFinding, len(kept))
	for _, k := range kept {
		was[k.ID] = k
	}
	var told []action.Entry
	tell := func(what, id, rule, gist string, ref inventory.Ref) {
		if l.AuditFindings {
			told = append(told, action.Entry{
				At: l.At, Account: l.Cloud + "/" + l.Account, Actor: "audit", What: what,
				Resource: ref.String(), Item: id,
				Because: rule, Outcome: gist,
			})
		}
	}
	into := t.bulk("snapshot_findings", []string{
		"id", "account", "region", "kind", "resource_id", "rule", "gist", "team", "body",
		"digest", "first_at", "last_at",
	},
		" ON CONFLICT (account, id) DO UPDATE SET gist = excluded.gist, team = excluded.team, body = excluded.body, "+
			"digest = excluded.digest, last_at = excluded.last_at,"+
			// A finding that had ended begins again.
			" first_at = CASE WHEN snapshot_findings.ended_at IS NULL THEN snapshot_findings.first_at ELSE "+
			"excluded.first_at "+
			"END, ended_at = NULL")
	found, same := map[string]bool{}, []string{}
	for _, f := range l.Findings {
		if found[f.ID] {
			continue
		}
		found[f.ID] = true
		team := prose(snapshot.FoldCase(f.Team))
		key, err := digest([]any{string(f.Body), team})
		if err != nil {
			return err
		}
		old, known := was[f.ID]
		gist := prose(f.Summary)
		switch {
		case !known:
			tell(action.EventFindingNew, f.ID, f.Rule, gist, f.Ref)
		case old.Gist != "" && old.Gist != gist:
			tell(action.EventFindingChanged, f.ID, f.Rule, gist, f.Ref)
		}
		if old.Digest == key && old.Gist == gist {
			same = append(same, f.ID)
			continue
		}
		if err := into.add(ctx, f.ID, account, f.Ref.Region, f.Ref.Kind, f.Ref.ID, f.Rule, gist,
			team, string(f.Body), key,
			at(l.At), at(l.At)); err != nil {
			return err
		}
	}
	if err := into.flush(ctx); err != nil {
		return err
	}
	ended := []string{}
	for _, k := range kept {
		if !found[k.ID] && whole[k.part()] {
			ended = append(ended, k.ID)
			tell(action.EventFindingEnded, k.ID, k.Rule, k.Gist, inventory.Ref{
				Cloud: l.Cloud, Account: l.Account, Region: k.Region, Kind: k.Kind, ID: k.Resource,
			})
		}
	}
	for set, ids := range map[string][]string{"last_at": same, "ended_at": ended} {
		if err := t.exec(ctx,
			"UPDATE snapshot_findings SET "+set+" = ? WHERE account = ? AND id IN (SELECT value FROM "+
				t.elements+")",
			at(l.At), account, document[[]string]{slices.Clone(ids)}); err != nil {
			return err
		}
	}
	return t.record(told...)
}
