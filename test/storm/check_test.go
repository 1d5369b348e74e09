package storm

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/money"
)

// check reads the provider and the state, and returns violations.
func (w *world) check(ctx context.Context) (wrong []string, err error) {
	db, err := w.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	bad := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	w.checkCalls(bad)
	if w.restored > 0 {
		// Decisions and charges since the copy are lost with the replaced state.
		return wrong, nil
	}
	for _, do := range []func(context.Context, *sql.DB, func(string, ...any)) error{
		w.checkOutcomes, w.checkFixes, w.checkBudget, w.checkExtensions, w.checkCharges, w.checkSnapshots,
	} {
		if err := do(ctx, db, bad); err != nil {
			return wrong, err
		}
	}
	return wrong, nil
}

// checkCalls checks every call that ended a machine against the state of the machine at that time.
func (w *world) checkCalls(bad func(string, ...any)) {
	ended := map[string]call{}
	saved := map[string]time.Time{} // the cap admits an action at its first call
	var admitted []time.Time
	for _, c := range w.calls {
		if c.action == "CreateSnapshots" {
			for _, id := range c.ids {
				saved[id] = c.at
			}
		}
		if !ends(c.action) || c.again {
			continue
		}
		for _, id := range c.ids {
			i := slices.IndexFunc(w.machines, func(m *machine) bool { return m.id == id })
			if i < 0 {
				bad("%s of %s, which does not exist", c.action, id)
				continue
			}
			if before, twice := ended[id]; twice && before.command != c.command && c.staled == 0 && !c.running[id] {
				bad("#%d %s of %s, which #%d had done", c.command, c.action, id, before.command)
			}
			if _, twice := ended[id]; !twice {
				ended[id] = c
				at, did := saved[id]
				if !did {
					at = c.at
				}
				admitted = append(admitted, at)
				w.checkEnd(w.machines[i], c, bad)
			}
		}
	}
	slices.SortFunc(admitted, time.Time.Compare)
	for i, at := range admitted {
		// An hour by clocks that may differ by half a minute.
		if j := i + w.perHour; w.restored == 0 && j < len(admitted) && admitted[j].Sub(at) < time.Hour-2*time.Minute {
			bad("more than %d were ended in the hour from %s", w.perHour, at.Format(time.TimeOnly))
		}
	}
}

// checkEnd checks the call that ended a machine against the actual state of the machine.
func (w *world) checkEnd(m *machine, c call, bad func(string, ...any)) {
	say := func(format string, a ...any) {
		bad("#%d on %s ended %s %s at %s: %s", c.command, c.host.name, m.name, m.id, c.at.Format(time.TimeOnly),
			fmt.Sprintf(format, a...))
	}
	if m.never {
		say("nothing may end it")
	}
	if m.kept > 0 && m.kept < c.command && (m.keptBy == "command" || c.staled == 0) {
		say("it was kept by %s after #%d", m.keptBy, m.kept)
	}
	if by := w.frozen(c.command); by != 0 {
		say("everything was frozen by #%d", by)
	}
	for _, o := range w.olds {
		if o.from < c.command && (o.to == 0 || c.command < o.to) {
			say("the state was put back after #%d and not accepted", o.from)
		}
	}
	warned := slices.ContainsFunc(w.warned[m.id], func(at time.Time) bool { return c.at.Sub(at) >= grace-time.Minute })
	if !warned {
		say("no warning %s before: %v", grace, w.warned[m.id])
	}
	now := int(c.at.Sub(w.began) / time.Minute)
	for t := now - int((idleFor+grace)/time.Minute) + 2; t < now-2; t++ {
		if m.busy[t] {
			say("it worked %d minutes before", now-t)
			break
		}
	}
}

// climb is the audit log of the actions on a resource. A restored item begins at the first step
// again, and repeats all of its calls.
type climb struct {
	// times is the number of times that calls began.
	times int
	// confirmed is the maximum number of confirmed calls of an item since it last began.
	confirmed int
}

// climbs reads the audit log by resource.
func (w *world) climbs(ctx context.Context, db *sql.DB) (map[string]climb, error) {
	rows, err := db.QueryContext(ctx, "SELECT resource, item, what FROM audit WHERE item <> '' ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	confirmed, begun, of := map[string]int{}, map[string]bool{}, map[string]string{}
	all := map[string]climb{}
	for rows.Next() {
		var resource, item, what string
		if err := rows.Scan(&resource, &item, &what); err != nil {
			return nil, err
		}
		of[item] = resource
		switch what {
		case "put-back":
			begun[item], confirmed[item] = false, 0
		case "intent":
			if c := all[resource]; !begun[item] {
				c.times++
				all[resource], begun[item] = c, true
			}
		case "confirmed":
			confirmed[item]++
		}
	}
	for item, n := range confirmed {
		c := all[of[item]]
		c.confirmed = max(c.confirmed, n)
		all[of[item]] = c
	}
	return all, rows.Err()
}

// frozen returns the command that froze everything before a command, or 0.
func (w *world) frozen(command int64) int64 {
	for _, f := range w.freezes {
		if f.from < command && (f.to == 0 || command <= f.to) {
			return f.from
		}
	}
	return 0
}

// checkFixes checks that fixes are carried out once, after a warning and with the approval of
// another person, and that a scan changes nothing.
func (w *world) checkFixes(ctx context.Context, db *sql.DB, bad func(string, ...any)) error {
	for _, c := range w.calls {
		if slices.Contains(w.scans, c.command) {
			bad("#%d scans, and calls %s", c.command, c.action)
		}
	}
	all, err := w.climbs(ctx, db)
	if err != nil {
		return err
	}
	for _, x := range w.wastes {
		var done *call
		for i, c := range w.calls {
			if c.action != x.fixing || !slices.Contains(c.ids, x.id) || c.again {
				continue
			}
			say := func(format string, a ...any) {
				bad("#%d on %s at %s: %s of %s: %s", c.command, c.host.name,
					c.at.Format(time.TimeOnly), c.action, x.name,
					fmt.Sprintf(format, a...))
			}
			if done != nil && done.command != c.command && c.staled == 0 {
				say("#%d had done it", done.command)
			}
			if done != nil {
				continue
			}
			if c.status == http.StatusOK {
				done = &w.calls[i]
			}
			if by := w.frozen(c.command); by != 0 {
				say("everything was frozen by #%d", by)
			}
			if x.kept > 0 && x.kept < c.command && (x.keptBy == "command" || c.staled == 0) {
				say("it was kept by %s after #%d", x.keptBy, x.kept)
			}
			if !slices.ContainsFunc(w.warned[x.id], func(at time.Time) bool {
				return c.at.Sub(at) >= grace-time.Minute
			}) {
				say("no warning %s before: %v", grace, w.warned[x.id])
			}
			approved, err := w.approvals(ctx, db, x.verb+" "+x.ref, c.command)
			if err != nil {
				return err
			}
			if approved == 0 {
				say("no other person approved it before")
			}
		}
		fixed, err := w.fixed(ctx, x)
		if err != nil {
			return err
		}
		got := all[x.ref]
		switch {
		case got.confirmed > 0 && !fixed:
			bad("%s %s is confirmed, and as it was", x.name, x.id)
		case fixed && (done == nil || got.times == 0):
			bad("%s %s is fixed without a call or an intent", x.name, x.id)
		case got.confirmed > 1:
			bad("%s %s is confirmed %d times", x.name, x.id, got.confirmed)
		}
		if fixed {
			w.base.fixes.Add(1)
		}
	}
	return nil
}

// approvals counts the used approvals about a subject that another person gave with a command
// before this one.
func (w *world) approvals(ctx context.Context, db *sql.DB, subject string, before int64) (n int, err error) {
	rows, err := db.QueryContext(ctx,
		"SELECT id FROM requests WHERE subject = $1 AND state = 'used' AND asked_by = 'ana' AND decided_by = 'bo'",
		subject)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return 0, err
		}
		if by := w.approved[id]; by != 0 && by < before {
			n++
		}
	}
	return n, rows.Err()
}

// fixed asks the provider whether something is fixed.
func (w *world) fixed(ctx context.Context, x *waste) (bool, error) {
	if x.fixing == "ReleaseAddress" {
		out, err := w.direct.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(out.Addresses, func(a types.Address) bool {
			return aws.ToString(a.AllocationId) == x.id
		}), nil
	}
	out, err := w.logs.DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: &x.id})
	if err != nil || len(out.LogGroups) != 1 {
		return false, fmt.Errorf("read the log group: %d, %w", len(out.LogGroups), err)
	}
	return out.LogGroups[0].RetentionInDays != nil, nil
}

// checkExtensions checks that amounts held over the threshold have an approval of another person
// for at least that amount.
func (w *world) checkExtensions(ctx context.Context, db *sql.DB, bad func(string, ...any)) error {
	rows, err := db.QueryContext(ctx, "SELECT h.id, h.amount, h.approval, COALESCE(r.amount, 0), "+
		"COALESCE(r.decided_by, ''), COALESCE(r.state, '') FROM holds h LEFT JOIN requests r ON r.id = h.approval WHERE "+
		"h.state <> 'pending'")
	if err != nil {
		return err
	}
	defer rows.Close()
	by := map[string]string{}
	for rows.Next() {
		var id, approval, who, state string
		var amount, most int64
		if err := rows.Scan(&id, &amount, &approval, &most, &who, &state); err != nil {
			return err
		}
		if amount <= int64(askOver*money.USD) {
			continue
		}
		if w.approved[approval] == 0 || who != "bo" || state != "used" || most < amount {
			bad("hold %s of %s rests on request %q for %s, which is %s by %q", id,
				money.Amount(amount).Cents(), approval,
				money.Amount(most).Cents(), state, who)
		}
		if other := by[approval]; other != "" {
			bad("holds %s and %s rest on one approval, %s", id, other, approval)
		}
		by[approval] = id
		w.base.approvals.Add(1)
	}
	return rows.Err()
}

// checkOutcomes checks that confirmed outcomes are true, and that true outcomes have an intent.
func (w *world) checkOutcomes(ctx context.Context, db *sql.DB, bad func(string, ...any)) error {
	all, err := w.climbs(ctx, db)
	if err != nil {
		return err
	}
	for _, m := range w.machines {
		state, got := w.state(m.id), all[m.ref]
		ended := state != "running"
		steps := 1
		if m.name == "unsaved" && strings.Contains(w.verb, "terminate") {
			steps = 2
		}
		switch {
		case got.confirmed >= steps && !ended:
			bad("%s %s is confirmed and %s", m.name, m.id, state)
		case ended && got.times == 0:
			bad("%s %s is %s without an intent", m.name, m.id, state)
		case ended && got.confirmed != steps:
			bad("%s %s is %s, confirmed %d times of %d", m.name, m.id, state, got.confirmed, steps)
		}
		called := slices.ContainsFunc(w.calls, func(c call) bool {
			return slices.Contains(c.ids, m.id) && ends(c.action)
		})
		if ended && !called {
			bad("%s %s is %s without a call", m.name, m.id, state)
		}
		if ended {
			w.base.ended.Add(1)
		}
	}
	return nil
}

// checkBudget checks that the sum of held and settled amounts is within the budget, and that
// admitted work is held.
func (w *world) checkBudget(ctx context.Context, db *sql.DB, bad func(string, ...any)) error {
	var held int64
	var n int
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*), CAST(COALESCE(SUM(CASE WHEN state = 'held' THEN amount WHEN "+
		"state = 'settled' THEN actual ELSE 0 END), 0) AS BIGINT) FROM holds").Scan(&n, &held); err != nil {
		return err
	}
	if amount := money.Amount(held); amount > budgetUSD*money.USD {
		bad("%s is held and spent of a budget of $%d", amount.Cents(), budgetUSD)
	}
	if n < w.allowed {
		bad("%d were let in, and %d are held", w.allowed, n)
	}
	w.base.holds.Add(int64(n))
	return nil
}

// checkCharges checks that a machine is charged for the time in which it ran and was observed.
func (w *world) checkCharges(ctx context.Context, db *sql.DB, bad func(string, ...any)) error {
	rows, err := db.QueryContext(ctx, "SELECT r.resource_id, CAST(SUM(e.seconds) AS BIGINT), CAST(SUM(e.amount) AS "+
		"BIGINT) FROM ledger_entries e JOIN ledger_resources r ON r.id = e.resource GROUP BY r.resource_id")
	if err != nil {
		return err
	}
	defer rows.Close()
	charged := map[string]float64{}
	for rows.Next() {
		var id string
		var seconds, amount int64
		if err := rows.Scan(&id, &seconds, &amount); err != nil {
			return err
		}
		charged[id] = float64(amount) / float64(money.USD)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	const hourly, slack = 0.42, 2.0 / 60 * 0.42
	for _, m := range w.machines {
		until := w.clock()
		for _, c := range w.calls {
			if ends(c.action) && slices.Contains(c.ids, m.id) {
				until = c.at
				break
			}
		}
		most := until.Sub(w.began.Add(-age)).Hours() * hourly
		least := 0.0
		if last := w.lastOK; !w.firstOK.IsZero() {
			if until.Before(last) {
				last = until
			}
			least = math.Max(0, last.Sub(w.firstOK).Hours()*hourly)
		}
		if got := charged[m.id]; got > most+slack || got < least-slack {
			bad("%s %s is charged $%.4f, it is between $%.4f and $%.4f", m.name, m.id, got, least, most)
		}
	}
	return nil
}

// checkSnapshots checks that each disk that is deleted with its machine is saved first, once for
// each climb of the ladder so far.
func (w *world) checkSnapshots(ctx context.Context, db *sql.DB, bad func(string, ...any)) error {
	all, err := w.climbs(ctx, db)
	if err != nil {
		return err
	}
	climbed := all[w.named("unsaved").ref].times
	out, err := w.direct.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{
		OwnerIds: []string{
			"self",
		}, Filters: []types.Filter{{Name: aws.String("tag-key"), Values: []string{"curfew:*"}}},
	})
	if err != nil {
		return err
	}
	repeated := slices.ContainsFunc(w.calls, func(c call) bool {
		return c.again && strings.HasPrefix(c.action, "CreateSnapshot")
	})
	byVolume := map[string]int{}
	for _, s := range out.Snapshots {
		byVolume[*s.VolumeId]++
	}
	for volume, n := range byVolume {
		if n > climbed && !repeated {
			bad("%s was saved %d times of %d", volume, n, climbed)
		}
	}
	for _, m := range w.machines {
		if m.name == "unsaved" && strings.Contains(w.verb, "terminate") &&
			w.state(m.id) != "running" && len(byVolume) == 0 {
			bad("%s %s is gone, and its disk was not saved", m.name, m.id)
		}
	}
	return nil
}
