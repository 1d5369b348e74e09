package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// errAgain says that another decision about the same was faster.
var errAgain = errors.New("another decision about the same was made meanwhile")

// tries is how often a decision starts over because another was faster.
const tries = 8

// unbounded is for how long a run is held that neither says how long it takes nor what
// an hour of it costs.
const unbounded = 24 * time.Hour

// Decide decides about an ask, in that order: deny where a budget or a quota would be
// exceeded, ask where an approval is needed and missing, allow otherwise, with a
// hold that was taken in one transaction.
//
// An approval is used up for exactly one hold: in one transaction the hold is made, as
// pending and under the approval's id, the approval is used, the decision is recorded and
// the hold is made live. A process that dies before it answers may have admitted the run;
// asking again with the same Key tells which hold it has. Older versions took these steps
// one by one: an approval that is used up and whose hold is pending is found again.
func Decide(ctx context.Context, ask Ask, p Params) (Decision, error) {
	if err := ask.check(); err != nil {
		return Decision{}, fmt.Errorf("decide about %s: %w", ask, err)
	}
	for range tries {
		d, err := (&decision{Ask: ask, Params: p, hash: ask.PlanHash()}).decide(ctx)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			return Decision{}, fmt.Errorf("decide about %s: %w", ask, err)
		}
		return d, nil
	}
	return Decision{}, fmt.Errorf("decide about %s: %w, %d times; try again", ask, errAgain, tries)
}

// String names an ask for people: "job resnet50".
func (a Ask) String() string { return a.Kind + " " + a.Name }

func (a Ask) check() error {
	switch {
	case a.Kind == "" || a.Name == "" || a.SpecHash == "":
		return errors.New("it needs a kind, a name and the hash of its specification")
	case strings.TrimSpace(a.AskedBy) == "":
		return errors.New("it is not known who asks; give an identity")
	case a.P50 < 0 || a.P95 < a.P50 || a.Hourly < 0 || a.Machines < 0 || a.MaxRuntime < 0:
		return fmt.Errorf("its estimate is no estimate: %s to %s, %s an hour, %d machines, %s", a.P50.Exact(), a.P95.Exact(),
			a.Hourly.Exact(), a.Machines, a.MaxRuntime)
	}
	return nil
}

// PlanHash is the hash that an approval is bound to: of the specification, its name,
// owner and purpose, and of who asks, because an approval is valid only for the person
// who asked.
func (a Ask) PlanHash() string {
	return hashOf("curfew.gate/v1", a.Kind, a.Name, a.SpecHash, a.Owner, a.Purpose,
		strings.ToLower(strings.TrimSpace(a.AskedBy)))
}

func hashOf(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // texts and structs of texts always encode
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// decision is one decision on its way.
type decision struct {
	Ask
	Params
	hash string
	// after is the hold of the same key that was given back or expired before; empty:
	// none.
	after   string
	reasons []string
	lines   []Line
	// replaced are holds of the same key for another spec, unused holds of the same spec.
	// Nothing was charged under either.
	replaced, unused []budget.Hold
}

func (d *decision) decide(ctx context.Context) (Decision, error) {
	switch h, ok, err := d.earlier(ctx); {
	case err != nil:
		return Decision{}, err
	case ok:
		return d.replay(h), nil
	}
	approved, err := d.approved(ctx)
	if err != nil {
		return Decision{}, err
	}
	h := d.hold(approved)
	if own, err := d.Budgets.Store.Keyed(ctx, h.Key); err == nil {
		h.ID = own.ID // left by a process that died: it must not stand in its own way
	} else if !errors.Is(err, budget.ErrNotFound) {
		return Decision{}, err
	}
	if err := d.alike(ctx, h.ID); err != nil {
		return Decision{}, err
	}
	over, asks, err := d.judge(ctx, h)
	switch {
	case err != nil:
		return Decision{}, err
	case over != nil:
		return d.deny(ctx, over, "")
	case len(asks) == 0:
		approved = nil
	case approved == nil:
		return d.ask(ctx, asks)
	}
	return d.admit(ctx, approved)
}

// judge says where a hold does not fit, and why an approval is needed.
func (d *decision) judge(ctx context.Context, h budget.Hold) (over *budget.Overdrawn, asks []string, err error) {
	desk := d.Budgets
	desk.Store = without{desk.Store, d.replaced}
	standings, err := desk.Look(ctx, h, d.Now)
	if err != nil && !errors.As(err, &over) {
		return nil, nil, err
	}
	asks, err = d.weigh(standings)
	return over, asks, err
}

// hold is what is to be reserved, by an approval or without one.
func (d *decision) hold(approved *approval.Request) budget.Hold {
	length := d.MaxRuntime
	switch {
	case length == 0 && d.Hourly > 0:
		hours := min(int64(d.P95/d.Hourly)+1, int64(budget.MaxRun/time.Hour))
		length = time.Duration(hours) * time.Hour
	case length == 0:
		length = unbounded
	}
	h := budget.Hold{
		Key: "run/" + hashOf(d.hash, d.Key, d.after), Run: d.Key,
		Kind: d.Kind, Name: d.Name, SpecHash: d.SpecHash, Owner: d.Owner, Purpose: d.Purpose,
		Amount: d.P95, Hourly: d.Hourly, GPUs: d.GPUs, Machines: d.Machines,
		From: d.Now.UTC(), Until: d.Now.Add(length).UTC(), AskedBy: d.AskedBy,
	}
	if approved != nil {
		h.Key, h.Approval = approvalKey(approved.ID), approved.ID
	}
	return h
}

// approvalKey is the key of the one hold that an approval is used up for.
func approvalKey(id string) string { return "approval/" + id }

// earlier returns the hold that a run with the ask's key was given before. A hold that was
// released or expired does not bind: the run is decided about again, under a key
// that follows from that hold's. What was settled did run, and does not run again.
func (d *decision) earlier(ctx context.Context) (h budget.Hold, ok bool, err error) {
	if d.Key == "" {
		return budget.Hold{}, false, nil
	}
	requests, err := d.Desk.Store.Requests(ctx, d.hash)
	if err != nil {
		return budget.Hold{}, false, err
	}
	for _, r := range requests {
		h, found, err := d.keyed(ctx, approvalKey(r.ID))
		if err != nil {
			return budget.Hold{}, false, err
		}
		if found && h.Run == d.Key && h.At(d.Now) == budget.Live {
			return h, true, d.covers(h)
		}
		if found && h.Run == d.Key && h.State == budget.Settled {
			return budget.Hold{}, false, d.over(h)
		}
	}
	for {
		h, found, err := d.keyed(ctx, d.hold(nil).Key)
		switch {
		case err != nil:
			return budget.Hold{}, false, err
		case !found || h.State == budget.Pending:
			return budget.Hold{}, false, nil
		case h.State == budget.Settled:
			return budget.Hold{}, false, d.over(h)
		case h.At(d.Now) == budget.Live:
			return h, true, d.covers(h)
		}
		d.after = h.ID
	}
}

// keyed returns the hold of a key, and whether there is one.
func (d *decision) keyed(ctx context.Context, key string) (h budget.Hold, found bool, err error) {
	h, err = d.Budgets.Store.Keyed(ctx, key)
	if errors.Is(err, budget.ErrNotFound) {
		return h, false, nil
	}
	return h, err == nil, err
}

// covers says that a live hold of the key is for less than the ask.
func (d *decision) covers(h budget.Hold) error {
	if h.Amount < d.P95 || h.Hourly < d.Hourly {
		return fmt.Errorf("the key %q was admitted for %s, not %s (hold %s); release that hold or give another key", d.Key,
			h.Amount.Exact(), d.P95.Exact(), h.ID)
	}
	return nil
}

// over says that the run of the key is over.
func (d *decision) over(h budget.Hold) error {
	return fmt.Errorf("the key %q was for a run that is over (hold %s is settled); give the next one another", d.Key,
		h.ID)
}

// replay gives the answer that was given.
func (d *decision) replay(h budget.Hold) Decision {
	return Decision{Decision: Allow, HoldID: h.ID, ApprovalID: h.Approval, Budget: []Line{},
		Reasons: []string{
			fmt.Sprintf("the run %q was admitted at %s and holds %s", d.Key, h.CreatedAt.Format(time.RFC3339),
				h.Amount.Exact()),
		}}
}

// approved returns an approval to use, or one that was used up for a hold that is not
// live yet. Requests for less than the ask are void: they were about another price.
func (d *decision) approved(ctx context.Context) (*approval.Request, error) {
	requests, err := d.Desk.Store.Requests(ctx, d.hash)
	if err != nil {
		return nil, fmt.Errorf("look for an approval: %w", err)
	}
	var found *approval.Request
	for i, r := range requests {
		state := r.At(d.Now)
		switch {
		case r.Amount < d.P95 && (state == approval.Approved || state == approval.Pending):
			why := fmt.Sprintf("request %s was for %s; it now costs up to %s and needs a new approval", r.ID, r.Amount.Exact(),
				d.P95.Exact())
			if err := d.void(ctx, r, why); err != nil {
				return nil, err
			}
			d.reasons = append(d.reasons, why)
		case state == approval.Denied && i == 0:
			d.reasons = append(d.reasons,
				strings.TrimSuffix(fmt.Sprintf("request %s was denied by %s: %s", r.ID, r.DecidedBy, r.Reason), ": "))
		case found != nil || r.Amount < d.P95:
		case state == approval.Approved:
			err := d.Desk.Proven(ctx, r)
			var refusal *approval.Refusal
			switch {
			case errors.As(err, &refusal): // it has to be asked again
				d.reasons = append(d.reasons, refusal.Why)
				if err := d.void(ctx, r, refusal.Why); err != nil {
					return nil, err
				}
			case err != nil:
				return nil, err
			default:
				found = &r
			}
		case state == approval.Used:
			h, err := d.Budgets.Store.Keyed(ctx, approvalKey(r.ID))
			if err != nil && !errors.Is(err, budget.ErrNotFound) {
				return nil, err
			}
			if err == nil && h.State == budget.Pending {
				found = &r
			}
		}
	}
	return found, nil
}

// transact carries out one step of the decision in one transaction.
func (d *decision) transact(ctx context.Context, do func(*decision) (Decision, error)) (out Decision, err error) {
	err = d.Transact(ctx, func(in Stores) error {
		step := *d // so that a second call begins where the first one did
		step.Desk.Store, step.Budgets.Store, step.Store = in.Approvals, in.Budgets, in.Decisions
		var err error
		out, err = do(&step)
		return err
	})
	return out, err
}

// void ends a request that was about something else.
func (d *decision) void(ctx context.Context, r approval.Request, why string) error {
	if d.DryRun {
		return nil
	}
	err := d.Desk.Void(ctx, r, approval.Event{At: d.Now, By: d.AskedBy, Why: why})
	if errors.Is(err, approval.ErrConflict) {
		return errAgain
	}
	return err
}

// weigh fills in the lines and returns why an approval is needed.
func (d *decision) weigh(standings []budget.Standing) (asks []string, err error) {
	if d.P95 > d.Threshold {
		asks = append(asks, fmt.Sprintf("it may cost up to %s, and over %s it needs approval", d.P95.Exact(),
			d.Threshold.Exact()))
	}
	for _, u := range d.Unknown {
		asks = append(asks, "costs that cannot be estimated are in no amount: "+u)
	}
	covered := map[string]bool{}
	for _, s := range standings {
		covered[s.Budget] = true
		before, err := s.Committed()
		if err != nil {
			return nil, err
		}
		after, err := before.Add(s.Asked)
		if err != nil {
			return nil, err
		}
		b, _ := d.Budgets.Set.Budget(s.Budget)
		state, err := b.State(after)
		if err != nil {
			return nil, err
		}
		d.lines = append(d.lines, Line{
			Budget: s.Budget, Window: s.Window, Amount: b.Amount, Used: s.Used, Held: s.Held, Unknown: s.Unknown,
			Asked: s.Asked, LeftBefore: s.Limit - before, LeftAfter: s.Limit - after, State: state})
		what := fmt.Sprintf("budget %s: with %s for this, %s of %s is spent or reserved", s.Budget, s.Asked.Exact(),
			after.Exact(), b.Amount.Exact())
		switch {
		case s.Asked == 0:
		case s.CountUnknown && s.Unbounded > 0:
			asks = append(asks, fmt.Sprintf("budget %s: %.1f resource hours have no price, so what is left is unknown",
				s.Budget, s.Unbounded.Hours()))
		case state == budget.Gate || state == budget.Over:
			asks = append(asks, fmt.Sprintf("%s; from %d%% on it needs approval", what, b.Thresholds.Gate))
		case state == budget.Warn:
			d.reasons = append(d.reasons, what)
		}
	}
	if len(covered) == 0 && d.P95 > 0 && len(d.Budgets.Set.Budgets()) > 0 {
		asks = append(asks, fmt.Sprintf("no budget covers %s", spender(d.Owner, d.Purpose)))
	}
	return asks, nil
}

// spender names whose spend it is.
func spender(o inventory.Owner, p inventory.Purpose) string {
	var parts []string
	for _, f := range [][2]string{
		{"team", o.Team}, {"project", o.Project}, {"user", o.User}, {"environment", o.Environment}, {"purpose", string(p)},
	} {
		if f[1] != "" {
			parts = append(parts, f[0]+" "+f[1])
		}
	}
	if len(parts) == 0 {
		return "work without an owner"
	}
	return strings.Join(parts, ", ")
}

// deny records and returns a denial; id replaces what was recorded under it.
func (d *decision) deny(ctx context.Context, over *budget.Overdrawn, id string) (Decision, error) {
	if id == "" {
		id = hashOf(d.hash, d.Now.UTC().Format(time.RFC3339Nano))[:24]
	}
	ways, err := d.ways(ctx, over)
	if err != nil {
		return Decision{}, err
	}
	return d.record(ctx, id, d.Now, Decision{
		Decision: Denied, Reasons: append([]string{over.Error()}, d.unusedReasons()...), WouldPass: ways,
	})
}

// ask files a request, or finds the open one.
func (d *decision) ask(ctx context.Context, asks []string) (Decision, error) {
	reasons := slices.Concat(asks, d.reasons, d.unusedReasons())
	if d.DryRun {
		id, err := d.pending(ctx)
		return Decision{
			Decision: Held, Reasons: reasons, ApprovalID: id, Budget: append([]Line{}, d.lines...), Unused: d.unusedIDs(),
		}, err
	}
	plan, err := json.Marshal(d.plan(reasons))
	if err != nil {
		return Decision{}, fmt.Errorf("write the plan: %w", err)
	}
	request := approval.Request{
		Kind: d.Kind, Subject: d.String(), PlanHash: d.hash, Plan: string(plan), Amount: d.P95, Team: d.Owner.Team,
		Roles: d.Roles, Run: d.Key, AskedBy: d.AskedBy, AskedProof: d.Ask.AskedProof,
	}
	if d.Expiry > 0 {
		request.ExpiresAt = d.Now.Add(d.Expiry).UTC()
	}
	return d.transact(ctx, func(d *decision) (Decision, error) {
		if err := d.replaceRequests(ctx); err != nil {
			return Decision{}, err
		}
		r, err := d.Desk.Ask(ctx, request, d.Now)
		if err != nil {
			return Decision{}, err
		}
		if r.State == approval.Approved {
			return Decision{}, errAgain // approved since it was looked for
		}
		return d.record(ctx, r.ID, r.AskedAt, Decision{Decision: Held, Reasons: reasons, ApprovalID: r.ID})
	})
}

// admit takes the hold, uses the approval up where one is needed, and makes the hold
// live.
func (d *decision) admit(ctx context.Context, approved *approval.Request) (Decision, error) {
	if d.DryRun {
		return d.wouldAdmit(approved), nil
	}
	id := "" // of the hold, once it is reserved
	out, err := d.transact(ctx, func(d *decision) (Decision, error) { return d.reserve(ctx, approved, &id) })
	if over := (*budget.Overdrawn)(nil); errors.As(err, &over) {
		return d.deny(ctx, over, id)
	}
	return out, err
}

// reserve carries out [decision.admit] in one transaction. It returns an
// *budget.Overdrawn where the run does not fit.
func (d *decision) reserve(ctx context.Context, approved *approval.Request, id *string) (Decision, error) {
	*id = ""
	if err := d.replaceHolds(ctx); err != nil {
		return Decision{}, err
	}
	h, err := d.Budgets.Reserve(ctx, d.hold(approved), d.Now)
	switch {
	case errors.Is(err, budget.ErrConflict):
		return Decision{}, errAgain
	case err != nil:
		return Decision{}, err
	case h.State == budget.Released && approved != nil:
		return Decision{}, fmt.Errorf(
			"its hold %s was released while approval %s was being used; deny that request and ask again", h.ID, approved.ID)
	case h.State != budget.Pending:
		return Decision{}, errAgain
	}
	*id = h.ID
	h.Run = d.Key // of several runs that found one approval, whose hold it is to be
	if approved != nil {
		if err := d.use(ctx, approved); err != nil {
			return Decision{}, err
		}
	} else if d.Key == "" {
		h.Key = "done/" + h.ID // the next one is a run of its own
	}
	d.reasons = slices.Concat(d.reasons, d.because(approved), d.unusedReasons())
	out, err := d.record(ctx, h.ID, d.Now, Decision{
		Decision: Allow, Reasons: d.reasons, ApprovalID: h.Approval, HoldID: h.ID,
	})
	if err != nil {
		return Decision{}, err
	}
	switch _, err := d.Budgets.Admit(ctx, h, d.Now); {
	case errors.Is(err, budget.ErrConflict):
		return Decision{}, errAgain
	case err != nil:
		return Decision{}, err
	}
	return out, nil
}

// use uses an approval up for the pending hold of its own, once.
func (d *decision) use(ctx context.Context, r *approval.Request) error {
	if r.State == approval.Used {
		return nil // already used, by a process that crashed before it activated the hold
	}
	_, err := d.Desk.Use(ctx, *r, d.AskedBy, d.Now)
	if errors.Is(err, approval.ErrConflict) {
		return errAgain
	}
	return err
}

func (d *decision) record(ctx context.Context, id string, at time.Time, out Decision) (Decision, error) {
	out.Budget, out.Unused = append([]Line{}, d.lines...), d.unusedIDs()
	if d.DryRun {
		return out, nil
	}
	err := d.Store.PutDecision(ctx, Record{
		ID: id, At: at.UTC(), Kind: d.Kind, Name: d.Name, PlanHash: d.hash, AskedBy: d.AskedBy, Owner: d.Owner,
		Purpose: d.Purpose, Decision: out.Decision, Amount: d.P95, ApprovalID: out.ApprovalID, HoldID: out.HoldID,
		Reasons: out.Reasons, Settings: d.Settings})
	if err != nil {
		return Decision{}, fmt.Errorf("record the decision: %w", err)
	}
	return out, nil
}
