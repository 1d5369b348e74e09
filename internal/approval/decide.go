package approval

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/curfew-dev/curfew/internal/money"
)

// DefaultRole is the role that an approver needs where a request names none.
const DefaultRole = "approver"

// DefaultExpiry is how long a request can be approved and its approval used.
const DefaultExpiry = 24 * time.Hour

// Refusal is why a request cannot be decided or used. It is an answer, not a failure.
type Refusal struct {
	// Rule is one of the rules.
	Rule Rule
	Why  string
}

// Rule is the rule behind a refusal.
type Rule string

// The rules.
const (
	RuleSelf    Rule = "self"    // whoever asked does not decide
	RuleRole    Rule = "role"    // whoever decides has none of the roles
	RuleState   Rule = "state"   // it was decided, used or voided already
	RuleWaits   Rule = "waits"   // no approver has decided yet
	RuleDenied  Rule = "denied"  // an approver denied it
	RuleExpired Rule = "expired" // it was not decided, or not used, in time
	RulePlan    Rule = "plan"    // no request is for exactly this plan
	RuleAmount  Rule = "amount"  // it costs more than what was approved
	RuleProof   Rule = "proof"   // the approver's identity is not proven here
)

// Error gives the reason.
func (r *Refusal) Error() string { return r.Why }

func refuse(rule Rule, format string, a ...any) error {
	return &Refusal{Rule: rule, Why: fmt.Sprintf(format, a...)}
}

// Desk takes requests, decisions and uses. Random is where ids come from; nil means
// the system's own.
type Desk struct {
	Store  Store
	Random io.Reader
	// Known returns a person under the name that the configuration has for them now, so that
	// two accounts of one person are one; nil takes names as they are.
	Known func(Person) Person
	// Check says, as a *Refusal, why the proof of an approved request does not let it be
	// used; nil takes what stands in the store.
	Check func(ctx context.Context, r Request) error
}

// Ask files a request, or returns the open one for the same plan and asker, so that
// asking twice is one question. A request whose approval was used, denied, expired or
// voided does not count: what is asked again is a new question.
func (d Desk) Ask(ctx context.Context, r Request, now time.Time) (Request, error) {
	if r.PlanHash == "" || strings.TrimSpace(r.AskedBy) == "" {
		return Request{}, errors.New("ask for an approval: it needs a plan's hash and a requester")
	}
	if err := Nameable(r.AskedBy); err != nil {
		return Request{}, fmt.Errorf("ask for an approval: %w", err)
	}
	same, err := d.Store.Requests(ctx, r.PlanHash)
	if err != nil {
		return Request{}, fmt.Errorf("look for earlier requests: %w", err)
	}
	for _, old := range same {
		if at := old.At(now); (at == Pending || at == Approved) && Same(old.AskedBy, r.AskedBy) &&
			old.Amount >= r.Amount {
			return old, nil
		}
	}
	id := make([]byte, 6)
	source := d.Random
	if source == nil {
		source = rand.Reader
	}
	if _, err := io.ReadFull(source, id); err != nil {
		return Request{}, fmt.Errorf("make an id: %w", err)
	}
	r.ID, r.State, r.AskedAt, r.Version = hex.EncodeToString(id), Pending, now.UTC(), 0
	if r.ExpiresAt.IsZero() {
		r.ExpiresAt = now.Add(DefaultExpiry).UTC()
	}
	if len(r.Roles) == 0 {
		r.Roles = []string{DefaultRole}
	}
	return d.Store.PutRequest(ctx, r, Event{At: now, By: r.AskedBy})
}

// Person is an approver, with the roles that the configuration gives.
type Person struct {
	Name  string
	Roles []string
	Proof Proof
}

// Asker returns the requester.
func (r Request) Asker() Person { return Person{Name: r.AskedBy, Proof: r.AskedProof} }

// Decider returns the approver, without roles.
func (r Request) Decider() Person { return Person{Name: r.DecidedBy, Proof: r.Proof} }

// Same reports whether two names are one person's: case, and the domain of an address
// of one of them, make no difference.
func Same(a, b string) bool {
	a, b = strings.ToLower(strings.TrimSpace(a)), strings.ToLower(strings.TrimSpace(b))
	la, da, _ := strings.Cut(a, "@")
	lb, db, _ := strings.Cut(b, "@")
	return la == lb && (da == db || da == "" || db == "")
}

// MaybeSame reports whether two names may be one person's, so that neither decides for the
// other. In addition to what Same looks at, it ignores invisible characters, that a name
// is a login of GitHub which is given no other name, and letters that look alike.
func MaybeSame(a, b string) bool {
	return Same(bare(a), bare(b)) || Same(Skeleton(a), Skeleton(b))
}

// bare is a name without what tells no people apart.
func bare(name string) string {
	name = strings.Map(func(r rune) rune {
		if unseen(r) || unicode.IsSpace(r) {
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(r)) // letters with two small forms become one
	}, name)
	return strings.TrimPrefix(name, "github:")
}

// unseen reports whether a character leaves no mark where it is shown.
func unseen(r rune) bool {
	return !unicode.IsGraphic(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) ||
		unicode.Is(unicode.Variation_Selector, r)
}

// Nameable returns an error for a name with invisible characters.
func Nameable(name string) error {
	if strings.ContainsFunc(name, unseen) {
		return fmt.Errorf("the name %q has invisible characters", name)
	}
	return nil
}

// Decide approves or denies a request. It refuses (a *Refusal) whoever asked, whoever
// has none of the roles, what is decided already, and what has expired.
func (d Desk) Decide(ctx context.Context, id string, by Person, allow bool, reason string, now time.Time) (Request,
	error) {
	return d.decide(ctx, id, by, allow, 0, reason, now)
}

// ApproveUpTo approves a request as [Desk.Decide] does, for at most an amount that is no more than
// was asked for. Only a job keeps to less than its estimate.
func (d Desk) ApproveUpTo(ctx context.Context, id string, by Person, amount money.Amount, reason string,
	now time.Time) (Request, error) {
	if amount <= 0 {
		return Request{}, refuse(RuleAmount, "an approval is for more than $0")
	}
	return d.decide(ctx, id, by, true, amount, reason, now)
}

// decide approves or denies a request. An amount of 0 is the one that was asked for.
func (d Desk) decide(ctx context.Context, id string, by Person, allow bool, amount money.Amount, reason string,
	now time.Time) (Request, error) {
	r, err := d.Store.Request(ctx, id)
	if err != nil {
		return Request{}, err
	}
	asker, decider := r.Asker(), by
	if d.Known != nil {
		asker, decider = d.Known(asker), d.Known(by)
	}
	switch state := r.At(now); {
	case state == Expired:
		return r, refuse(RuleExpired, "request %s expired at %s", r.ID, r.ExpiresAt.Format(time.RFC3339))
	case state != Pending:
		return r, refuse(RuleState, "request %s is %s already", r.ID, state)
	case MaybeSame(by.Name, r.AskedBy), MaybeSame(decider.Name, asker.Name):
		return r, refuse(RuleSelf, "%s asked for %s and cannot decide it", by.Name, r.ID)
	case allow && One(decider, asker) != "":
		return r, refuse(RuleSelf, "request %s: %s", r.ID, One(decider, asker))
	case !May(by.Roles, r.Roles, r.Team):
		return r, refuse(RuleRole, "%s has none of the roles that may decide %s: %s", by.Name, r.ID,
			strings.Join(r.Roles, ", "))
	case amount > r.Amount:
		return r, refuse(RuleAmount, "request %s is for at most %s, which is less than %s", r.ID, r.Amount.Exact(),
			amount.Exact())
	case amount > 0 && amount < r.Amount && !r.Bounded():
		return r, refuse(RuleAmount, "request %s is for a %s, and only a job keeps to less than %s", r.ID, r.Kind,
			r.Amount.Exact())
	}
	r.State, r.DecidedBy, r.DecidedAt, r.Reason, r.Proof = Denied, by.Name, now.UTC(), reason, by.Proof
	if allow {
		r.State = Approved
		if amount > 0 {
			r.Amount = amount
		}
	}
	return d.Store.PutRequest(ctx, r, Event{At: now, By: by.Name})
}

// Bounded reports whether the run of a request can keep to less than its estimate: a job ends, with
// its work saved, before it costs more than was approved.
func (r Request) Bounded() bool { return r.Kind == "job" }

// AskedAmount is the amount that was asked for, also after less was approved.
func (r Request) AskedAmount() money.Amount {
	if p, ok := r.Shown(); ok && p.Most != nil {
		return max(*p.Most, r.Amount)
	}
	return r.Amount
}

// Approved returns the approval of exactly the plan of that hash that can be used for an
// amount, with [Request.Use]. It returns a *Refusal where there is none: the newest request
// of the plan says why.
func (d Desk) Approved(ctx context.Context, planHash string, amount money.Amount, now time.Time) (Request, error) {
	all, err := d.Store.Requests(ctx, planHash)
	if err != nil {
		return Request{}, fmt.Errorf("look for an approval: %w", err)
	}
	if planHash == "" || len(all) == 0 {
		return Request{}, refuse(RulePlan, "no approval covers exactly this")
	}
	for _, r := range all {
		if r.At(now) != Approved {
			continue
		}
		if amount > r.Amount {
			return r, refuse(RuleAmount,
				"%s is over the %s that %s approved; it needs a new approval", amount.Dollars(),
				r.Amount.Dollars(), r.DecidedBy)
		}
		if err := d.Proven(ctx, r); err != nil {
			return r, err
		}
		return r, nil
	}
	switch newest := all[0]; newest.At(now) {
	case Pending:
		return newest, refuse(RuleWaits, "request %s waits for an approver", newest.ID)
	case Denied:
		return newest, refuse(RuleDenied, "request %s was denied by %s: %s", newest.ID,
			newest.DecidedBy, newest.Reason)
	case Expired:
		return newest, refuse(RuleExpired, "request %s expired at %s", newest.ID,
			newest.ExpiresAt.Format(time.RFC3339))
	default:
		return newest, refuse(RuleState, "the approval %s was used at %s", newest.ID,
			newest.UsedAt.Format(time.RFC3339))
	}
}

// Use returns the request as one that is used up at a time, to be written on the condition
// of its version, so that of two uses at once one gets ErrConflict.
func (r Request) Use(now time.Time) Request {
	r.State, r.UsedAt, r.Proof.Signed = Used, now.UTC(), ""
	return r
}

// Use writes that an approval, as [Desk.Approved] returned it, is used up by someone. It
// returns ErrConflict where the request changed since.
func (d Desk) Use(ctx context.Context, r Request, by string, now time.Time) (Request, error) {
	return d.Store.PutRequest(ctx, r.Use(now), Event{At: now, By: by})
}

// Proven says, as a *Refusal, why the proof of an approved request is none here.
func (d Desk) Proven(ctx context.Context, r Request) error {
	if d.Check == nil {
		return nil
	}
	return d.Check(ctx, r)
}

// Void ends a request that cannot be used as it was approved, and records who ended it and why.
func (d Desk) Void(ctx context.Context, r Request, e Event) error {
	r.State = Void
	_, err := d.Store.PutRequest(ctx, r, e)
	return err
}

// At returns the state at a time: a request that expired before it was decided or used is
// expired.
func (r Request) At(now time.Time) State {
	if (r.State == Pending || r.State == Approved) && !now.Before(r.ExpiresAt) {
		return Expired
	}
	return r.State
}

// Counts are how many requests were asked, and what became of them.
type Counts struct {
	Asked    int `json:"asked"`
	Approved int `json:"approved"`
	Denied   int `json:"denied"`
	Expired  int `json:"expired"`
	// Pending is how many wait.
	Pending int `json:"pending"`
}

// Waits sums up how requests went: the gate is for outliers.
type Waits struct {
	Counts
	// Median and Longest are the time between asking and the decision; zero when
	// nothing was decided.
	Median, Longest time.Duration
}

// Sum sums requests up.
func Sum(all []Request, now time.Time) Waits {
	var w Waits
	var waits []time.Duration
	for _, r := range all {
		w.Asked++
		switch r.At(now) {
		case Approved, Used:
			w.Approved++
		case Denied:
			w.Denied++
		case Expired, Void:
			w.Expired++
		case Pending:
			w.Pending++
		}
		if !r.DecidedAt.IsZero() {
			waits = append(waits, r.DecidedAt.Sub(r.AskedAt))
		}
	}
	if len(waits) > 0 {
		slices.Sort(waits)
		w.Median, w.Longest = waits[(len(waits)-1)/2], waits[len(waits)-1]
	}
	return w
}
