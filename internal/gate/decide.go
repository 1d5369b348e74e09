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

// errRetry means that a concurrent decision about the same run won.
var errRetry = errors.New("another decision about the same was made meanwhile")

// maxRetries bounds the restarts of a decision after concurrent ones.
const maxRetries = 8

// defaultHoldTime is the time of a hold without runtime and hourly rate.
const defaultHoldTime = 24 * time.Hour

// Decide decides about an ask: deny if a budget or quota would be exceeded, ask if a required
// approval is missing, allow otherwise with a hold taken in the same transaction.
//
// An approval is used for exactly one hold. One transaction makes the hold pending under the
// approval's id, uses the approval, records the decision and makes the hold live. A process that
// crashes before it returns may have admitted the run; repeating the call with the same Key returns
// its hold. Older versions took these steps separately, so a used approval with a pending hold is
// still recovered.
func Decide(ctx context.Context, ask Ask, p Params) (Decision, error) {
	if err := ask.check(); err != nil {
		return Decision{}, fmt.Errorf("decide about %s: %w", ask, err)
	}
	for range maxRetries {
		d, err := (&decision{Ask: ask, Params: p, hash: ask.PlanHash()}).decide(ctx)
		if errors.Is(err, errRetry) {
			continue
		}
		if err != nil {
			return Decision{}, fmt.Errorf("decide about %s: %w", ask, err)
		}
		return d, nil
	}
	return Decision{}, fmt.Errorf("decide about %s: %w, %d times; try again", ask, errRetry, maxRetries)
}

// String returns the ask for people: "job resnet50".
func (a Ask) String() string { return a.Kind + " " + a.Name }

func (a Ask) check() error {
	switch {
	case a.Kind == "" || a.Name == "" || a.SpecHash == "":
		return errors.New("it needs a kind, a name and the hash of its specification")
	case strings.TrimSpace(a.AskedBy) == "":
		return errors.New("it is not known who asks; give an identity")
	case a.P50 < 0 || a.P95 < a.P50 || a.Hourly < 0 || a.Machines < 0 || a.MaxRuntime < 0:
		return fmt.Errorf("its estimate is no estimate: %s to %s, %s an hour, %d machines, %s",
			a.P50.Exact(), a.P95.Exact(),
			a.Hourly.Exact(), a.Machines, a.MaxRuntime)
	}
	return nil
}

// PlanHash is the hash that an approval is bound to: specification, name, owner, purpose and
// requester, because an approval is valid only for the person who asked.
func (a Ask) PlanHash() string {
	return hashOf("curfew.gate/v1", a.Kind, a.Name, a.SpecHash, a.Owner, a.Purpose,
		strings.ToLower(strings.TrimSpace(a.AskedBy)))
}

func hashOf(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings and structs of strings always encode
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// decision is a decision in progress.
type decision struct {
	Ask
	Params
	hash string
	// previousHoldID is the released or expired hold of the same key; empty if there is none.
	previousHoldID string
	reasons        []string
	lines          []Line
	// replaced are holds of the same key for another spec, duplicates holds of the same spec.
	// Nothing was charged under either.
	replaced, duplicates []budget.Hold
}

func (d *decision) decide(ctx context.Context) (Decision, error) {
	switch h, ok, err := d.previousHold(ctx); {
	case err != nil:
		return Decision{}, err
	case ok:
		return d.previousDecision(h), nil
	}
	approved, err := d.usableApproval(ctx)
	if err != nil {
		return Decision{}, err
	}
	d.bound(approved)
	h := d.newHold(approved)
	if own, err := d.Budgets.Store.Keyed(ctx, h.Key); err == nil {
		h.ID = own.ID // ignore the hold that a crashed process left behind
	} else if !errors.Is(err, budget.ErrNotFound) {
		return Decision{}, err
	}
	if err := d.findDuplicates(ctx, h.ID); err != nil {
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

// bound lowers what a run that keeps to its limit may cost to what was approved.
func (d *decision) bound(approved *approval.Request) {
	if approved != nil && d.covers(*approved) && approved.Amount < d.P95 {
		d.P50, d.P95 = min(d.P50, approved.Amount), approved.Amount
	}
}

// covers reports whether an approval is for enough. For a run that keeps to its limit, less than was
// asked for is enough, as long as the price is not over what was asked for.
func (d *decision) covers(r approval.Request) bool {
	state := r.At(d.Now)
	return r.Amount >= d.P95 ||
		d.Bounded && r.Amount > 0 && r.AskedAmount() >= d.P95 && (state == approval.Approved || state == approval.Used)
}

// judge returns the budget or quota that a hold exceeds, and the reasons for an approval.
func (d *decision) judge(ctx context.Context, h budget.Hold) (over *budget.Overdrawn, asks []string, err error) {
	desk := d.Budgets
	desk.Store = filteredStore{desk.Store, d.replaced}
	standings, err := desk.Check(ctx, h, d.Now)
	if err != nil && !errors.As(err, &over) {
		return nil, nil, err
	}
	asks, err = d.checkBudgets(standings)
	return over, asks, err
}

// newHold returns the hold to reserve, with or without an approval.
func (d *decision) newHold(approved *approval.Request) budget.Hold {
	length := d.MaxRuntime
	switch {
	case length == 0 && d.Hourly > 0:
		hours := min(int64(d.P95/d.Hourly)+1, int64(budget.MaxRun/time.Hour))
		length = time.Duration(hours) * time.Hour
	case length == 0:
		length = defaultHoldTime
	}
	h := budget.Hold{
		Key: "run/" + hashOf(d.hash, d.Key, d.previousHoldID), Run: d.Key,
		Kind: d.Kind, Name: d.Name, SpecHash: d.SpecHash, Owner: d.Owner, Purpose: d.Purpose,
		Amount: d.P95, Hourly: d.Hourly, GPUs: d.GPUs, Machines: d.Machines,
		From: d.Now.UTC(), Until: d.Now.Add(length).UTC(), AskedBy: d.AskedBy,
	}
	if approved != nil {
		h.Key, h.Approval = approvalKey(approved.ID), approved.ID
	}
	return h
}

// approvalKey returns the key of the hold of an approval.
func approvalKey(id string) string { return "approval/" + id }

// previousHold returns the hold that a run with the ask's key got before. After a release or expiry
// the run is decided again under a key derived from that hold's; a settled run did run and is not
// repeated.
func (d *decision) previousHold(ctx context.Context) (h budget.Hold, ok bool, err error) {
	if d.Key == "" {
		return budget.Hold{}, false, nil
	}
	requests, err := d.Desk.Store.Requests(ctx, d.hash)
	if err != nil {
		return budget.Hold{}, false, err
	}
	for _, r := range requests {
		h, found, err := d.holdOfKey(ctx, approvalKey(r.ID))
		if err != nil {
			return budget.Hold{}, false, err
		}
		if found && h.Run == d.Key && h.At(d.Now) == budget.Live {
			return h, true, d.checkCovers(h)
		}
		if found && h.Run == d.Key && h.State == budget.Settled {
			return budget.Hold{}, false, d.finishedError(h)
		}
	}
	for {
		h, found, err := d.holdOfKey(ctx, d.newHold(nil).Key)
		switch {
		case err != nil:
			return budget.Hold{}, false, err
		case !found || h.State == budget.Pending:
			return budget.Hold{}, false, nil
		case h.State == budget.Settled:
			return budget.Hold{}, false, d.finishedError(h)
		case h.At(d.Now) == budget.Live:
			return h, true, d.checkCovers(h)
		}
		d.previousHoldID = h.ID
	}
}

// holdOfKey returns the hold of a key.
func (d *decision) holdOfKey(ctx context.Context, key string) (h budget.Hold, found bool, err error) {
	h, err = d.Budgets.Store.Keyed(ctx, key)
	if errors.Is(err, budget.ErrNotFound) {
		return h, false, nil
	}
	return h, err == nil, err
}

// checkCovers returns an error if the live hold of the key is smaller than the ask.
func (d *decision) checkCovers(h budget.Hold) error {
	if h.Amount < d.P95 && !d.Bounded || h.Hourly < d.Hourly {
		return fmt.Errorf("the key %q was admitted for %s, not %s (hold %s); release that hold or give another key",
			d.Key,
			h.Amount.Exact(), d.P95.Exact(), h.ID)
	}
	return nil
}

// finishedError returns the error for a key whose run is over.
func (d *decision) finishedError(h budget.Hold) error {
	return fmt.Errorf("the key %q was for a run that is over (hold %s is settled); give the next one another", d.Key,
		h.ID)
}

// previousDecision returns the decision of an existing hold.
func (d *decision) previousDecision(h budget.Hold) Decision {
	return Decision{Decision: Allow, HoldID: h.ID, ApprovalID: h.Approval, Reserved: h.Amount, Budget: []Line{},
		Reasons: []string{
			fmt.Sprintf("the run %q was admitted at %s and holds %s", d.Key, h.CreatedAt.Format(time.RFC3339),
				h.Amount.Exact()),
		}}
}

// usableApproval returns an approval to use, or one that was used for a hold that is not live yet.
// Requests for a smaller amount are voided, because they were about another price.
func (d *decision) usableApproval(ctx context.Context) (*approval.Request, error) {
	requests, err := d.Desk.Store.Requests(ctx, d.hash)
	if err != nil {
		return nil, fmt.Errorf("look for an approval: %w", err)
	}
	var found *approval.Request
	for i, r := range requests {
		state := r.At(d.Now)
		switch {
		case !d.covers(r) && (state == approval.Approved || state == approval.Pending):
			why := fmt.Sprintf("request %s was for %s; it now costs up to %s and needs a new approval", r.ID,
				r.Amount.Exact(),
				d.P95.Exact())
			if state == approval.Approved && !d.Bounded && r.Bounded() {
				why += "; curfew run keeps a job to what was approved"
			}
			if err := d.voidRequest(ctx, r, why); err != nil {
				return nil, err
			}
			d.reasons = append(d.reasons, why)
		case state == approval.Denied && i == 0:
			d.reasons = append(d.reasons,
				strings.TrimSuffix(fmt.Sprintf("request %s was denied by %s: %s", r.ID, r.DecidedBy, r.Reason), ": "))
		case found != nil || !d.covers(r):
		case state == approval.Approved:
			err := d.Desk.Proven(ctx, r)
			var refusal *approval.Refusal
			switch {
			case errors.As(err, &refusal): // a new request is needed
				d.reasons = append(d.reasons, refusal.Why)
				if err := d.voidRequest(ctx, r, refusal.Why); err != nil {
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

// transact runs one step of the decision in a transaction.
func (d *decision) transact(ctx context.Context, do func(*decision) (Decision, error)) (out Decision, err error) {
	err = d.Transact(ctx, func(in Stores) error {
		step := *d // a retry starts from the same state
		step.Desk.Store, step.Budgets.Store, step.Store = in.Approvals, in.Budgets, in.Decisions
		var err error
		out, err = do(&step)
		return err
	})
	return out, err
}

// voidRequest voids a request about something else.
func (d *decision) voidRequest(ctx context.Context, r approval.Request, why string) error {
	if d.DryRun {
		return nil
	}
	err := d.Desk.Void(ctx, r, approval.Event{At: d.Now, By: d.AskedBy, Why: why})
	if errors.Is(err, approval.ErrConflict) {
		return errRetry
	}
	return err
}

// checkBudgets fills in the lines and returns the reasons for an approval.
func (d *decision) checkBudgets(standings []budget.Standing) (asks []string, err error) {
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
			asks = append(asks, fmt.Sprintf("budget %s: %.1f resource hours are unpriced, so the remainder is unknown",
				s.Budget, s.Unbounded.Hours()))
		case state == budget.Gate || state == budget.Over:
			asks = append(asks, fmt.Sprintf("%s; from %d%% on it needs approval", what, b.Thresholds.Gate))
		case state == budget.Warn:
			d.reasons = append(d.reasons, what)
		}
	}
	if len(covered) == 0 && d.P95 > 0 && len(d.Budgets.Set.Budgets()) > 0 {
		asks = append(asks, fmt.Sprintf("no budget covers %s", describeSpender(d.Owner, d.Purpose)))
	}
	return asks, nil
}

// describeSpender describes the owner and purpose for people.
func describeSpender(o inventory.Owner, p inventory.Purpose) string {
	var parts []string
	for _, f := range [][2]string{
		{
			"team", o.Team,
		}, {"project", o.Project}, {"user", o.User}, {"environment", o.Environment}, {"purpose", string(p)},
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

// deny records and returns a denial, replacing the record with the given id.
func (d *decision) deny(ctx context.Context, over *budget.Overdrawn, id string) (Decision, error) {
	if id == "" {
		id = hashOf(d.hash, d.Now.UTC().Format(time.RFC3339Nano))[:24]
	}
	ways, err := d.ways(ctx, over)
	if err != nil {
		return Decision{}, err
	}
	return d.record(ctx, id, d.Now, Decision{
		Decision: Denied, Reasons: append([]string{over.Error()}, d.duplicateReasons()...), WouldPass: ways,
	})
}

// ask files a request or finds the open one.
func (d *decision) ask(ctx context.Context, asks []string) (Decision, error) {
	reasons := slices.Concat(asks, d.reasons, d.duplicateReasons())
	if d.DryRun {
		id, err := d.pendingRequest(ctx)
		return Decision{
			Decision: Held, Reasons: reasons, ApprovalID: id, Budget: append([]Line{}, d.lines...),
			Unused: d.duplicateIDs(),
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
			return Decision{}, errRetry // approved in the meantime
		}
		return d.record(ctx, r.ID, r.AskedAt, Decision{Decision: Held, Reasons: reasons, ApprovalID: r.ID})
	})
}

// admit takes the hold, uses the required approval, and makes the hold live.
func (d *decision) admit(ctx context.Context, approved *approval.Request) (Decision, error) {
	if d.DryRun {
		return d.dryRunAdmission(approved), nil
	}
	id := "" // the hold's id once it is reserved
	out, err := d.transact(ctx, func(d *decision) (Decision, error) { return d.reserve(ctx, approved, &id) })
	if over := (*budget.Overdrawn)(nil); errors.As(err, &over) {
		return d.deny(ctx, over, id)
	}
	return out, err
}

// reserve is [decision.admit] in one transaction. It returns a *budget.Overdrawn if the run does
// not fit.
func (d *decision) reserve(ctx context.Context, approved *approval.Request, id *string) (Decision, error) {
	*id = ""
	if err := d.replaceHolds(ctx); err != nil {
		return Decision{}, err
	}
	h, err := d.Budgets.Reserve(ctx, d.newHold(approved), d.Now)
	switch {
	case errors.Is(err, budget.ErrConflict):
		return Decision{}, errRetry
	case err != nil:
		return Decision{}, err
	case h.State == budget.Released && approved != nil:
		return Decision{}, fmt.Errorf(
			"its hold %s was released while approval %s was being used; deny that request and ask again", h.ID,
			approved.ID)
	case h.State != budget.Pending:
		return Decision{}, errRetry
	}
	*id = h.ID
	h.Run = d.Key // decides between several runs that found one approval
	if approved != nil {
		if err := d.useApproval(ctx, approved); err != nil {
			return Decision{}, err
		}
	} else if d.Key == "" {
		h.Key = "done/" + h.ID // frees the key for the next run
	}
	d.reasons = slices.Concat(d.reasons, d.admissionReasons(approved), d.duplicateReasons())
	out, err := d.record(ctx, h.ID, d.Now, Decision{
		Decision: Allow, Reasons: d.reasons, ApprovalID: h.Approval, HoldID: h.ID, Reserved: h.Amount,
	})
	if err != nil {
		return Decision{}, err
	}
	switch _, err := d.Budgets.Admit(ctx, h, d.Now); {
	case errors.Is(err, budget.ErrConflict):
		return Decision{}, errRetry
	case err != nil:
		return Decision{}, err
	}
	return out, nil
}

// useApproval uses an approval for its pending hold, once.
func (d *decision) useApproval(ctx context.Context, r *approval.Request) error {
	if r.State == approval.Used {
		return nil // already used, by a process that crashed before it activated the hold
	}
	_, err := d.Desk.Use(ctx, *r, d.AskedBy, d.Now)
	if errors.Is(err, approval.ErrConflict) {
		return errRetry
	}
	return err
}

func (d *decision) record(ctx context.Context, id string, at time.Time, out Decision) (Decision, error) {
	out.Budget, out.Unused = append([]Line{}, d.lines...), d.duplicateIDs()
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
