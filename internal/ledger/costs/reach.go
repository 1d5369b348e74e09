package costs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
)

// reached is the recorded time of several parts, from the earliest first round to the latest last
// one.
type reached struct{ first, last time.Time }

func (r reached) with(p ledger.Reach) reached {
	if r.first.IsZero() || p.First.Before(r.first) {
		r.first = p.First
	}
	return reached{r.first, latest(r.last, p.Last)}
}

// maxReachNotes is the number of notes on unrecorded time; maxKindNames the number of kinds that
// one of them names.
const maxReachNotes, maxKindNames = 8, 3

// limits notes the unrecorded parts of the requested time: before the first round of an account or
// region, and more than [MaxGap] after the last.
func (c *Costs) limits(ctx context.Context, s ledger.Store, f ledger.Filter) error {
	accounts, err := s.Accounts(ctx)
	if err != nil {
		return fmt.Errorf("read what is recorded: %w", err)
	}
	var notes []string
	for _, a := range accounts {
		parts, err := s.Reach(ctx, a)
		if err != nil {
			return fmt.Errorf("read what is recorded of %s: %w", a, err)
		}
		parts = slices.DeleteFunc(parts, func(p ledger.Reach) bool {
			return !f.Covers(ledger.ByAccount, a.String()) || !f.Covers(ledger.ByRegion, p.Region) ||
				!f.Covers(ledger.ByKind, string(p.Kind))
		})
		notes = append(notes, c.unrecorded(a.String(), parts)...)
	}
	if more := len(notes) - maxReachNotes; more > 0 {
		notes = append(notes[:maxReachNotes], fmt.Sprintf("%d more accounts or regions are recorded in part", more))
	}
	if c.Recorded = c.Recorded || len(c.Rows) > 0; !c.Recorded && len(notes) == 0 {
		notes = append(notes,
			"nothing was recorded in this time; passes fill the ledger: curfew scan, or curfew enforce --once from cron")
	}
	c.CoverageNotes = append(c.CoverageNotes, notes...)
	return nil
}

// unrecorded returns the unrecorded parts of an account: the whole account, else some regions, else
// some kinds.
func (c *Costs) unrecorded(account string, parts []ledger.Reach) []string {
	var all reached
	regions, kinds := map[string]reached{}, map[string]reached{}
	for _, p := range parts {
		all, regions[p.Region] = all.with(p), regions[p.Region].with(p)
	}
	if len(parts) == 0 {
		return nil
	}
	c.Recorded = c.Recorded || (all.first.Before(all.last) && all.first.Before(c.Until) && all.last.After(c.Since))
	if c.Days != nil {
		for d := latest(all.first, c.Since).UTC().Truncate(day); d.Before(all.last) && d.Before(c.Until) &&
			all.first.Before(all.last); d = d.Add(day) {
			c.Days[d] = true
		}
	}
	if all.first.Equal(all.last) && !all.first.Before(c.Since) && all.first.Before(c.Until) {
		return []string{
			fmt.Sprintf("%s was read once, on %s: what runs since then is charged by the next pass", account,
				stamp(all.first)),
		}
	}
	var notes []string
	note := func(what string, r, whole reached) {
		if r.first.After(c.Since) && r.first.After(whole.first) {
			notes = append(notes, fmt.Sprintf("%s is recorded since %s; what ran before is not in the figures", what,
				stamp(r.first)))
		}
		if c.stale(r) && !c.stale(whole) {
			notes = append(notes,
				fmt.Sprintf("the newest pass over %s was on %s; what ran since is not in the figures", what,
					stamp(r.last)))
		}
	}
	note(account, all, reached{last: c.Until})
	for _, region := range slices.Sorted(maps.Keys(regions)) {
		note(region+" of "+account, regions[region], all)
	}
	for _, p := range parts {
		if !c.stale(regions[p.Region]) {
			kinds[string(p.Kind)] = kinds[string(p.Kind)].with(p)
		}
	}
	var names []string
	var oldest time.Time
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if r := kinds[kind]; c.stale(r) {
			if names = append(names, kind); oldest.IsZero() || r.last.Before(oldest) {
				oldest = r.last
			}
		}
	}
	if len(names) > 0 {
		what := strings.Join(names, ", ")
		if more := len(names) - maxKindNames; more > 0 {
			what = fmt.Sprintf("%s and %d kinds more", strings.Join(names[:maxKindNames], ", "), more)
		}
		notes = append(notes, fmt.Sprintf("%s of %s: listed on %s; what they cost since is not in the figures", what,
			account, stamp(oldest)))
	}
	return notes
}

// stale reports whether the requested time continues after the recorded one.
func (c *Costs) stale(r reached) bool { return c.Until.Sub(r.last) > ledger.MaxGap }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }
