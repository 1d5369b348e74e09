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

// DefaultRole is the required role of a request without roles.
const DefaultRole = "approver"

// DefaultExpiry is the time in which a request can be approved and its approval used.
const DefaultExpiry = 24 * time.Hour

// Refusal is the reason why a request cannot be decided or used. It is a result, not a failure.
type Refusal struct {
	// Rule is one of the rules.
	Rule Rule
	Why  string
}

// Rule is the rule behind a refusal.
type Rule string

// The rules.
const (
	RuleSelf    Rule = "self"    // the requester cannot decide
	RuleRole    Rule = "role"    // the approver has none of the roles
	RuleState   Rule = "state"   // it is already decided, used or void
	RuleWaits   Rule = "waits"   // not decided yet
	RuleDenied  Rule = "denied"  // an approver denied it
	RuleExpired Rule = "expired" // it was not decided or used in time
	RulePlan    Rule = "plan"    // no request matches this plan
	RuleAmount  Rule = "amount"  // it costs more than the approved amount
	RuleProof   Rule = "proof"   // the approver's identity cannot be verified here
)

// Error gives the reason.
func (r *Refusal) Error() string { return r.Why }

func refuse(rule Rule, format string, a ...any) error {
	return &Refusal{Rule: rule, Why: fmt.Sprintf(format, a...)}
}

// Desk handles requests, decisions and uses. Random is the source of IDs; nil means crypto/rand.
type Desk struct {
	Store  Store
	Random io.Reader
	// Known returns a person under the currently configured name, so that several accounts of one
	// person count as one; nil leaves names unchanged.
	Known func(Person) Person
	// Check returns a *Refusal if the proof of an approved request cannot be accepted; nil accepts
	// stored proofs.
	Check func(ctx context.Context, r Request) error
}

// Ask files a request, or returns the open request with the same plan and requester. A used,
// denied, expired or void request does not count as open.
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

// Person is an approver with the configured roles.
type Person struct {
	Name  string
	Roles []string
	Proof Proof
}

// Asker returns the requester.
func (r Request) Asker() Person { return Person{Name: r.AskedBy, Proof: r.AskedProof} }

// Decider returns the approver, without roles.
func (r Request) Decider() Person { return Person{Name: r.DecidedBy, Proof: r.Proof} }

// Same reports whether two names belong to one person: letter case is ignored, and so is the domain
// if only one of them has one.
func Same(a, b string) bool {
	a, b = strings.ToLower(strings.TrimSpace(a)), strings.ToLower(strings.TrimSpace(b))
	la, da, _ := strings.Cut(a, "@")
	lb, db, _ := strings.Cut(b, "@")
	return la == lb && (da == db || da == "" || db == "")
}

// MaybeSame reports whether two names may belong to one person, so that neither can decide for the
// other. Unlike Same it also ignores invisible characters, the prefix of an unmapped GitHub login,
// and similar letters.
func MaybeSame(a, b string) bool {
	return Same(normalizeName(a), normalizeName(b)) || Same(Skeleton(a), Skeleton(b))
}

// normalizeName reduces a name to the characters that distinguish people.
func normalizeName(name string) string {
	name = strings.Map(func(r rune) rune {
		if unseen(r) || unicode.IsSpace(r) {
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(r)) // letters with two lower-case forms become one
	}, name)
	return strings.TrimPrefix(name, "github:")
}

// unseen reports whether a character is invisible.
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

// Decide approves or denies a request. It returns a *Refusal for the requester, for a person
// without one of the roles, and if the request is decided or expired.
func (d Desk) Decide(ctx context.Context, id string, by Person, allow bool, reason string, now time.Time) (Request,
	error) {
	return d.decide(ctx, id, by, allow, 0, reason, now)
}

// ApproveUpTo approves a request like [Desk.Decide], but for at most a given part of the requested
// amount. Only a job can keep within less than its estimate.
func (d Desk) ApproveUpTo(ctx context.Context, id string, by Person, amount money.Amount, reason string,
	now time.Time) (Request, error) {
	if amount <= 0 {
		return Request{}, refuse(RuleAmount, "an approval is for more than $0")
	}
	return d.decide(ctx, id, by, true, amount, reason, now)
}

// decide approves or denies a request. An amount of 0 means the requested one.
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

// Bounded reports whether the run of a request can keep within less than its estimate: a job ends,
// with its work saved, before it exceeds the approved amount.
func (r Request) Bounded() bool { return r.Kind == "job" }

// AskedAmount returns the originally requested amount.
func (r Request) AskedAmount() money.Amount {
	if p, ok := r.Shown(); ok && p.Most != nil {
		return max(*p.Most, r.Amount)
	}
	return r.Amount
}

// Approved returns an approval for a plan hash and amount that can be used with [Request.Use], or a
// *Refusal: the newest request of the plan determines the reason.
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

// Use returns the request marked as used at a time, for a write conditional on its version, so that
// of two concurrent uses one gets ErrConflict.
func (r Request) Use(now time.Time) Request {
	r.State, r.UsedAt, r.Proof.Signed = Used, now.UTC(), ""
	return r
}

// Use records the use of an approval returned by [Desk.Approved]. It returns ErrConflict if the
// request changed since.
func (d Desk) Use(ctx context.Context, r Request, by string, now time.Time) (Request, error) {
	return d.Store.PutRequest(ctx, r.Use(now), Event{At: now, By: by})
}

// Proven returns a *Refusal if the proof of an approved request is not accepted here.
func (d Desk) Proven(ctx context.Context, r Request) error {
	if d.Check == nil {
		return nil
	}
	return d.Check(ctx, r)
}

// Void ends a request that cannot be used as approved, and records who ended it and why.
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

// Counts counts requests by state.
type Counts struct {
	Asked    int `json:"asked"`
	Approved int `json:"approved"`
	Denied   int `json:"denied"`
	Expired  int `json:"expired"`
	// Pending counts undecided requests.
	Pending int `json:"pending"`
}

// Waits summarizes the decisions of requests.
type Waits struct {
	Counts
	// Median and Longest are the times from request to decision; zero if nothing was decided.
	Median, Longest time.Duration
}

// Sum summarizes requests.
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
