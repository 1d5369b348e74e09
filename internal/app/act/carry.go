package act

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// carryRetry is the time until a failed step of a fix is retried.
const carryRetry = 15 * time.Minute

// Carrier continues fixes that people requested once their grace periods are over. It is not safe
// for concurrent use.
type Carrier struct {
	Process *runtime.Process
	Store   *store.Store
	Log     *slog.Logger
	// tried maps steps to the times of their last attempts.
	tried map[string]time.Time
}

// Carry takes the due fixes of an account such as aws/123456789012 one step up the ladder, each in the
// name of its requester: the resource is read and judged again, as if the request were sent again. A
// fix that waits for an approval is left, and so is one that was rejected, or whose requester may not
// fix it any more.
func (c *Carrier) Carry(ctx context.Context, account string, now time.Time) error {
	items, err := c.Store.Actions().Items(ctx, account, action.ItemQuery{})
	if err != nil {
		return fmt.Errorf("carry fixes on: %w", err)
	}
	items = slices.DeleteFunc(items, func(it action.Item) bool { return !c.isDue(it, now) })
	if len(items) == 0 {
		return nil
	}
	requests, err := c.Store.Approvals().Requests(ctx, "")
	if err != nil {
		return fmt.Errorf("carry fixes on: %w", err)
	}
	roles, err := c.rolesNow(ctx, now)
	if err != nil {
		return fmt.Errorf("carry fixes on: %w", err)
	}
	for _, it := range items {
		who, ready, err := c.requester(ctx, it, requests, now)
		if err != nil {
			return err
		}
		if !ready {
			continue
		}
		if c.tried == nil {
			c.tried = map[string]time.Time{}
		}
		c.tried[stepKey(it)] = now
		id := strings.TrimPrefix(it.Source, round.FindingSource(""))
		req := c.Process.Request()
		req.Caller = runtime.ServedCaller(who)
		if err := c.checkRole(ctx, req, roles, who.Name, id); err != nil {
			c.Log.WarnContext(ctx, "a fix was not carried on", "finding", id, "resource", it.Ref.String(),
				"error", err)
			continue
		}
		err = Fix(ctx, req, []string{id}, FixOptions{
			Scratch: it.Do.ScratchDisks, Save: it.Do.SaveDisks, Grace: it.Grace,
		}, func(view.Fixes) error { return nil })
		if err != nil && ctx.Err() == nil {
			c.Log.WarnContext(ctx, "a fix was not carried on", "finding", id, "resource", it.Ref.String(),
				"error", err)
		}
	}
	return ctx.Err()
}

// namedRoles returns the roles of a name; known is false for the user of this machine.
type namedRoles func(name string) (roles []string, known bool)

// rolesNow returns the roles that names have at a time.
func (c *Carrier) rolesNow(ctx context.Context, now time.Time) (namedRoles, error) {
	req := c.Process.Request()
	cfg, _, err := identity.PeopleInForce(ctx, req)
	if err != nil {
		return nil, err
	}
	tokens, err := c.Store.Callers().Tokens(ctx)
	return func(name string) ([]string, bool) { return identity.RolesNow(req, cfg, tokens, name, now) }, err
}

// checkRole refuses a fix whose requester may not ask for it any more.
func (c *Carrier) checkRole(ctx context.Context, req *runtime.Request, roles namedRoles, name, id string) error {
	held, known := roles(name)
	if !known {
		return nil
	}
	operators := approval.AtLeast(approval.RoleOperator)
	teams, all := approval.TeamsOf(held, operators)
	if all {
		return nil
	}
	refused := fmt.Errorf("%s asked for it and is no operator of its team any more; an operator can ask for it again",
		name)
	if len(teams) == 0 {
		return refused
	}
	previews, err := FixPreviews(ctx, req, []string{id}, FixOptions{})
	if err == nil && !approval.May(held, operators, previews[0].Finding.Resource.Owner.Team) {
		err = refused
	}
	return err
}

// stepKey identifies the step of an item that is next.
func stepKey(it action.Item) string { return fmt.Sprint(it.ID, "/", it.Phase, "/", it.Step) }

// isDue reports whether an item is a person's fix whose next call is due: its grace period is over,
// or the previous call is confirmed. Passes of policies confirm calls of fixes but make none.
func (c *Carrier) isDue(it action.Item, now time.Time) bool {
	if last, tried := c.tried[stepKey(it)]; tried && now.Sub(last) < carryRetry ||
		!strings.HasPrefix(it.Source, round.FindingSource("")) {
		return false
	}
	switch it.Phase {
	case action.Warned:
		due := it.DueAt()
		return !due.IsZero() && !now.Before(due)
	case action.Acting, action.Confirming:
		return it.Step < len(it.Steps) && it.Steps[it.Step].State() == intent.Confirmed ||
			now.Sub(it.UpdatedAt) >= carryRetry
	}
	return false
}

// requester returns the person who asked for a fix: by its newest request for an approval, else by
// the audit log. ready is false while an approver has to decide, and after a rejection.
func (c *Carrier) requester(ctx context.Context, it action.Item, requests []approval.Request, now time.Time) (
	who approval.Person, ready bool, err error) {
	var newest *approval.Request
	subject := fixSubject(it)
	for i, r := range requests {
		if r.Kind == identity.FixKind && r.Subject == subject && !r.AskedAt.Before(it.FirstAt) &&
			(newest == nil || r.AskedAt.After(newest.AskedAt)) {
			newest = &requests[i]
		}
	}
	if newest != nil {
		state := newest.At(now)
		return approval.Person{Name: newest.AskedBy, Proof: newest.AskedProof},
			state == approval.Approved || state == approval.Used, nil
	}
	err = c.Store.Actions().Entries(ctx, action.Query{Item: it.ID, What: action.EventWarned},
		func(e action.Entry) error {
			who.Name = e.Actor
			return nil
		})
	return who, who.Name != "", err
}

// fixSubject returns the subject of a request to approve an item.
func fixSubject(it action.Item) string { return string(it.Do.Verb) + " " + it.Ref.String() }
