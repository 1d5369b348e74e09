package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/money"
)

// approvals are the requests for approval.
type approvals struct{ *database }

// requestRow is a request.
type requestRow struct {
	ID        string                   `db:"id"`
	Kind      string                   `db:"kind"`
	Subject   string                   `db:"subject"`
	PlanHash  string                   `db:"plan_hash"`
	Plan      string                   `db:"plan"`
	Amount    money.Amount             `db:"amount"`
	Roles     document[[]string]       `db:"roles"`
	Run       string                   `db:"run"`
	Team      string                   `db:"team"`
	AskedBy   string                   `db:"asked_by"`
	AskedHow  document[approval.Proof] `db:"asked_proof"`
	Proof     document[approval.Proof] `db:"proof"`
	AskedAt   instant                  `db:"asked_at"`
	ExpiresAt instant                  `db:"expires_at"`
	State     approval.State           `db:"state"`
	DecidedBy string                   `db:"decided_by"`
	Reason    string                   `db:"reason"`
	DecidedAt instant                  `db:"decided_at"`
	UsedAt    instant                  `db:"used_at"`
	Version   int64                    `db:"version"`
}

var requests = describe("requests", requestRow{})

func (r requestRow) request() approval.Request {
	return approval.Request{
		ID: r.ID, Kind: r.Kind, Subject: r.Subject, PlanHash: r.PlanHash, Plan: r.Plan,
		Amount: r.Amount, Roles: r.Roles.of,
		Team: r.Team,
		Run:  r.Run, AskedBy: r.AskedBy, AskedProof: r.AskedHow.of, Proof: r.Proof.of, AskedAt: r.AskedAt.Time,
		ExpiresAt: r.ExpiresAt.Time, State: r.State,
		DecidedBy: r.DecidedBy, Reason: r.Reason, DecidedAt: r.DecidedAt.Time,
		UsedAt: r.UsedAt.Time, Version: r.Version,
	}
}

// PutRequest writes a request if its version is unchanged, and records it.
func (a approvals) PutRequest(ctx context.Context, r approval.Request, e approval.Event) (approval.Request, error) {
	var kept approval.Request
	err := a.transact(ctx, func(t *tx) (err error) {
		kept, err = t.putRequest(ctx, r, e)
		return err
	})
	if err != nil {
		return approval.Request{}, fmt.Errorf("write request %s: %w", r.ID, err)
	}
	return kept, nil
}

// putRequest writes a request and records the actor.
func (t *tx) putRequest(ctx context.Context, r approval.Request, e approval.Event) (approval.Request, error) {
	row := requestRow{
		ID: r.ID, Kind: r.Kind, Subject: prose(r.Subject), PlanHash: r.PlanHash, Plan: r.Plan, Amount: r.Amount,
		Roles: document[[]string]{r.Roles}, Run: prose(r.Run), Team: prose(r.Team),
		AskedHow: document[approval.Proof]{r.AskedProof}, Proof: document[approval.Proof]{r.Proof},
		AskedBy: r.AskedBy, AskedAt: at(r.AskedAt), ExpiresAt: at(r.ExpiresAt), State: r.State,
		DecidedBy: r.DecidedBy, Reason: prose(r.Reason), DecidedAt: at(r.DecidedAt), UsedAt: at(r.UsedAt),
		Version: r.Version + 1,
	}
	if r.ID == "" {
		return approval.Request{}, errors.New("it has no id")
	}
	if err := exact(r.ID, r.PlanHash, r.Plan); err != nil {
		return approval.Request{}, err
	}
	if err := t.put(ctx, requests(), row, r.Version, approval.ErrConflict); err != nil {
		return approval.Request{}, err
	}
	return row.request(), t.record(requestEntry(r, e))
}

// requestEntry returns the audit entry about a change of a request.
func requestEntry(r approval.Request, e approval.Event) action.Entry {
	what := string(r.State) // the other events are named after their states
	if r.State == approval.Pending {
		what = action.EventAsked
	}
	outcome := "request " + r.ID + ", at most " + r.Amount.Exact()
	if e.Why != "" {
		outcome += ": " + e.Why
	}
	return action.Entry{At: e.At, Actor: e.By, What: what, Because: r.Subject, Outcome: outcome}
}

// Request returns the request with an ID or a unique prefix of one; ErrNotFound otherwise.
func (a approvals) Request(ctx context.Context, id string) (approval.Request, error) {
	row, err := prefixed(ctx, a.database, requests(), id, func(r requestRow) string {
		return r.ID
	}, approval.ErrNotFound)
	if err != nil {
		return approval.Request{}, fmt.Errorf("read request %q: %w", id, err)
	}
	return row.request(), nil
}

// Requests returns the requests with a plan hash, or all if it is empty, newest first.
func (a approvals) Requests(ctx context.Context, planHash string) ([]approval.Request, error) {
	query, args := requests().query, []any(nil)
	if planHash != "" {
		query, args = query+" WHERE plan_hash = ?", []any{planHash}
	}
	var rows []requestRow
	if err := a.list(ctx, &rows, query+" ORDER BY COALESCE(asked_at, 0) DESC, id DESC", args...); err != nil {
		return nil, fmt.Errorf("read the requests: %w", err)
	}
	return convert(rows, requestRow.request), nil
}
