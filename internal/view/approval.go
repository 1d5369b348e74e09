package view

import (
	"cmp"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/money"
)

// ApprovalsSchema names the shape of [Approvals], DecisionSchema that of [Decision].
const (
	ApprovalsSchema = "curfew.approvals/v1"
	DecisionSchema  = "curfew.decision/v1"
)

// Decision is the output of `approve` and `deny`: the request as it was decided.
type Decision struct {
	Schema string `json:"schema"`
	Request
}

// Approvals is the output of `approvals`: requests, and their waiting times.
type Approvals struct {
	Schema   string    `json:"schema"`
	Requests []Request `json:"requests"`
	// The counts are of all requests, shown or not. The waits are null if none is decided.
	approval.Counts
	// MedianWait is the median of the waits in seconds.
	MedianWait *float64 `json:"median_wait_seconds"`
	// LongestWait is the longest wait in seconds.
	LongestWait *float64 `json:"longest_wait_seconds"`
	Settings    Decider  `json:"settings"`
}

// Request is one request for approval.
type Request struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// AmountUnit is the period of AmountUSD: "an hour", "a month", "in all".
	AmountUnit string `json:"amount_unit"`
	// Plan is the whole plan; null if an older version kept none.
	Plan      *approval.Plan `json:"plan"`
	Subject   string         `json:"subject"`
	State     string         `json:"state"`
	AmountUSD money.Amount   `json:"amount_usd"`
	// AskedUSD is the requested amount; AmountUSD is less if less was approved. Bounded reports
	// that the run is limited to its request.
	AskedUSD money.Amount `json:"asked_usd"`
	Bounded  bool         `json:"bounded"`
	// PlanHash is the hash of the plan that an approval is bound to.
	PlanHash string `json:"plan_hash"`
	// Team is the team that it is for; absent where none is known.
	Team  string   `json:"team,omitempty"`
	Roles []string `json:"roles"`
	// Approvers have one of the roles, by the settings that decide.
	Approvers []string `json:"approvers"`
	// AskedBy is the requester.
	AskedBy string `json:"asked_by"`
	// AskedAt is when it was asked.
	AskedAt time.Time `json:"asked_at"`
	// ExpiresAt is when it expires.
	ExpiresAt time.Time `json:"expires_at"`
	// DecidedBy is the approver.
	DecidedBy string `json:"decided_by,omitempty"`
	// Proof and AskedProof are the identity proofs of the approver and the requester.
	Proof      *Proof `json:"proof,omitempty"`
	AskedProof *Proof `json:"asked_proof,omitempty"`
	// DecidedAt is when it was decided.
	DecidedAt *time.Time `json:"decided_at,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	// UsedAt is when the approval was used.
	UsedAt *time.Time `json:"used_at,omitempty"`
	// PlanText is the plan as stored by an older version.
	PlanText string `json:"plan_text,omitempty"`
}

// Lines returns the plan for people.
func (r Request) Lines() []string {
	switch {
	case r.Plan != nil:
		return r.Plan.Lines()
	case r.PlanText != "":
		return strings.Split(r.PlanText, "\n")
	}
	return nil
}

// AtMost returns the amount for people, to the cent.
func (r Request) AtMost() string {
	return r.AmountUSD.Exact()
}

// Proof is a proof of identity without the signed text.
type Proof struct {
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	// By is the authority that vouches for the identity.
	By string `json:"verified_by,omitempty"`
	// Verified reports whether a provider vouches for the identity.
	Verified bool `json:"verified"`
}

// String describes the proof of an identity; a nil proof has none.
func (p *Proof) String() string {
	if p == nil {
		return approval.Proof{}.String()
	}
	return approval.Proof{Kind: approval.ProofKind(p.Kind), Subject: p.Subject, Detail: p.By}.String()
}

// NewRequest makes the document of a request at a time.
func NewRequest(r approval.Request, approvers []string, now time.Time) Request {
	v := Request{
		ID: r.ID, Kind: r.Kind, AmountUnit: r.AmountUnit(), Subject: r.Subject, State: string(r.At(now)),
		AmountUSD: r.Amount, AskedUSD: r.AskedAmount(), Bounded: r.Bounded(),
		PlanHash: r.PlanHash, Team: r.Team, Roles: r.Roles,
		Approvers: append([]string{}, approvers...), AskedBy: r.AskedBy,
		AskedAt: r.AskedAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
		DecidedBy: r.DecidedBy, Proof: newProof(r.DecidedBy, r.Proof), AskedProof: newProof(r.AskedBy, r.AskedProof),
		DecidedAt: optionalTime(r.DecidedAt),
		Reason:    r.Reason, UsedAt: optionalTime(r.UsedAt)}
	if p, ok := r.Shown(); ok {
		v.Plan = &p
	} else {
		v.PlanText = r.Plan
	}
	return v
}

func newProof(who string, p approval.Proof) *Proof {
	if who == "" {
		return nil
	}
	return &Proof{
		Kind: cmp.Or(string(p.Kind), string(approval.SelfDeclared)), Subject: cmp.Or(p.Subject, who), By: p.Detail,
		Verified: p.Verified(),
	}
}

// NewApprovals makes the document of requests; counts and waits are those of all, and shown are
// listed.
func NewApprovals(all []approval.Request, shown []Request, by Decider, now time.Time) Approvals {
	w := approval.Sum(all, now)
	d := Approvals{Schema: ApprovalsSchema, Requests: append([]Request{}, shown...), Counts: w.Counts, Settings: by}
	for _, r := range all {
		if !r.DecidedAt.IsZero() {
			d.MedianWait, d.LongestWait = seconds(w.Median), seconds(w.Longest)
			break
		}
	}
	return d
}
