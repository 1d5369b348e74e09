package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/snapshot"
	"github.com/curfew-dev/curfew/internal/store"
)

// decision is a decision by a person or the program, with its entries in the audit log and in the
// gate's records.
type decision struct {
	name string
	// prepare creates the subject of the decision; nil if there is none. The ID is unique per
	// attempt.
	prepare func(ctx context.Context, s *store.Store, id string) error
	decide  func(ctx context.Context, s *store.Store, id string) error
	// entries is the number of entries after each transaction of the decision, in order. The last
	// number is final; if it is 0, nothing else changes either.
	entries []int
	// again are the errors of a repeated decision, refused is the rule that refuses it, and taken
	// means that any error is one.
	again   []error
	refused approval.Rule
	taken   bool
	// repeats is true if the decision can be made any number of times.
	repeats bool
	// onlyFile is true if a database server does not support it.
	onlyFile bool
}

// at returns a time unique to an attempt, so that no two attempts write the same.
func at(id string) time.Time {
	sum := sha256.Sum256([]byte(id))
	return noon.Add(
		time.Duration(sum[0])*time.Hour + time.Duration(sum[1])*time.Minute + time.Duration(sum[2])*time.Second,
	)
}

// random returns the same IDs in each attempt with an ID.
func random(id string) *bytes.Reader {
	sum := sha256.Sum256([]byte(id))
	return bytes.NewReader(bytes.Repeat(sum[:], 8))
}

var approver = approval.Person{Name: "bo", Roles: []string{approval.DefaultRole}}

func approvals(s *store.Store, id string) approval.Desk {
	return approval.Desk{Store: s.Approvals(), Random: random(id)}
}

// request returns the request of an attempt.
func request(id string) approval.Request {
	return approval.Request{
		Kind:     "fix",
		Subject:  "delete vol-" + id,
		PlanHash: "plan " + id,
		Amount:   3 * money.USD,
		AskedBy:  "ana",
	}
}

// requested files the request of an attempt.
func requested(ctx context.Context, s *store.Store, id string) error {
	_, err := approvals(s, id).Ask(ctx, request(id), at(id))
	return err
}

// approved files and approves the request of an attempt.
func approved(ctx context.Context, s *store.Store, id string) error {
	if err := requested(ctx, s, id); err != nil {
		return err
	}
	return answer(ctx, s, id, "plan "+id, true)
}

// of returns the newest request of a plan.
func of(ctx context.Context, s *store.Store, plan string) (approval.Request, error) {
	all, err := s.Approvals().Requests(ctx, plan)
	if err == nil && len(all) == 0 {
		err = approval.ErrNotFound
	}
	if err != nil {
		return approval.Request{}, err
	}
	return all[0], nil
}

// answer decides the newest request of a plan.
func answer(ctx context.Context, s *store.Store, id, plan string, allow bool) error {
	r, err := of(ctx, s, plan)
	if err == nil {
		_, err = approvals(s, id).Decide(ctx, r.ID, approver, allow, "", at(id))
	}
	return err
}

func holds(s *store.Store, id string) budget.Desk {
	return budget.Desk{Store: s.Budgets(), Random: random(id)}
}

// live creates the live hold of an attempt.
func live(ctx context.Context, s *store.Store, id string) error {
	h, err := holds(
		s,
		id,
	).Reserve(
		ctx,
		budget.Hold{
			Key:      "hold " + id,
			Kind:     "job",
			Name:     id,
			SpecHash: id,
			Owner:    inventory.Owner{Team: "vision"},
			Amount:   40 * money.USD,
			Hourly:   4 * money.USD,
			From:     at(id),
			Until:    at(id).Add(10 * time.Hour),
			AskedBy:  "ana",
		},
		at(id),
	)
	if err == nil {
		_, err = holds(s, id).Admit(ctx, h, at(id))
	}
	return err
}

// keyed returns the ID of the hold of an attempt.
func keyed(ctx context.Context, s *store.Store, id string) string {
	h, err := s.Budgets().Keyed(ctx, "hold "+id)
	if err != nil {
		return "none"
	}
	return h.ID
}

// params returns the parameters of a gate decision.
func params(s *store.Store, id string) gate.Params {
	return gate.Params{
		Desk: approvals(
			s,
			id,
		), Budgets: holds(s, id+" hold"), Store: s.Gate(), Threshold: gate.DefaultThreshold, Now: at(id),
		Transact: func(ctx context.Context, do func(gate.Stores) error) error {
			return s.Transact(ctx, func(in *store.Store) error {
				return do(gate.Stores{Approvals: in.Approvals(), Budgets: in.Budgets(), Decisions: in.Gate()})
			})
		},
	}
}

// job is a run with a maximum cost in dollars.
func job(id string, dollars int64) gate.Ask {
	p95 := money.Amount(dollars) * money.USD
	return gate.Ask{
		Kind:       "job",
		Name:       id,
		SpecHash:   fmt.Sprint(id, dollars),
		Owner:      inventory.Owner{Team: "vision"},
		Purpose:    inventory.Training,
		P50:        p95 / 2,
		P95:        p95,
		Hourly:     p95 / 10,
		Machines:   1,
		MaxRuntime: 10 * time.Hour,
		AskedBy:    "ana",
		Key:        "run " + id,
	}
}

// gated lets the gate decide on the job of an attempt.
func gated(dollars int64, want gate.Verdict) func(context.Context, *store.Store, string) error {
	return func(ctx context.Context, s *store.Store, id string) error {
		d, err := gate.Decide(ctx, job(id, dollars), params(s, id))
		if err == nil && d.Decision != want {
			err = fmt.Errorf("the gate answers %s, not %s: %q", d.Decision, want, d.Reasons)
		}
		return err
	}
}

// allowed lets the gate ask about the job of an attempt, and approves it.
func allowed(ctx context.Context, s *store.Store, id string) error {
	if err := gated(400, gate.Held)(ctx, s, id); err != nil {
		return err
	}
	return answer(ctx, s, id, job(id, 400).PlanHash(), true)
}

// inOrder runs several decisions in order.
func inOrder(
	all ...func(context.Context, *store.Store, string) error,
) func(context.Context, *store.Store, string) error {
	return func(ctx context.Context, s *store.Store, id string) error {
		for _, do := range all {
			if err := do(ctx, s, id); err != nil {
				return err
			}
		}
		return nil
	}
}

// extended lets the gate extend the hold of an attempt.
func extended(want gate.Verdict) func(context.Context, *store.Store, string) error {
	return func(ctx context.Context, s *store.Store, id string) error {
		d, err := gate.Extend(ctx, keyed(ctx, s, id), 400*money.USD, at(id).Add(12*time.Hour), "ana", params(s, id))
		if err == nil && d.Decision != want {
			err = fmt.Errorf("the gate answers %s, not %s: %q", d.Decision, want, d.Reasons)
		}
		return err
	}
}

// fixed returns the action of an attempt, at its first step.
func fixed(id string) action.Item {
	return action.Item{
		ID:         id,
		Account:    "aws/123456789012",
		Source:     "finding:" + id,
		Phase:      action.Observed,
		FirstRound: 1,
		FirstAt:    at(id),
		UpdatedAt:  at(id),
		Ref: inventory.Ref{
			Cloud:   "aws",
			Account: "123456789012",
			Region:  "us-east-1",
			Kind:    inventory.KindVolume,
			ID:      "vol-" + id,
		},
		Do: policy.Do{Verb: policy.Delete},
	}
}

// entryOf returns an entry about an attempt.
func entryOf(what, id string) action.Entry {
	return action.Entry{At: at(id), Actor: "ana", What: what, Item: id}
}

// lookAt returns an observation with one finding.
func lookAt(id string) snapshot.Observation {
	ref := inventory.Ref{Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindVolume, ID: "vol-" + id}
	return snapshot.Observation{
		Cloud:            "aws",
		Account:          "1 " + id,
		At:               at(id),
		Parts:            []snapshot.Part{{Region: ref.Region, Kind: ref.Kind}},
		FindingsComplete: true,
		AuditFindings:    true,
		Findings: []snapshot.Finding{
			{ID: id, Rule: "volume-unattached", Ref: ref, Summary: "it saves $3", Body: []byte("{}")},
		},
	}
}

func fuseOf(id string) action.Fuse {
	return action.Fuse{Account: "aws/" + id, Source: "idle", At: at(id), Due: 6, Selected: 11, Items: []string{id}}
}

func token(id string) store.Token {
	return store.Token{
		ID:        id,
		Hash:      fmt.Sprintf("%x", sha256.Sum256([]byte(id))),
		Name:      "ana",
		Roles:     []string{"viewer"},
		CreatedBy: "ana",
		CreatedAt: at(id),
		ExpiresAt: at(id).Add(time.Hour),
	}
}

func backtestOf(ctx context.Context, s *store.Store, id string) error {
	return s.Backtests().Create(
		ctx,
		store.Backtest{ID: id, CreatedBy: "ana", CreatedAt: at(id), Spec: "{}"},
		1000,
		1000,
		entryOf(action.EventBacktest, id),
	)
}

// decisions are the kinds of decisions with audit entries.
var decisions = []decision{
	{name: "a request is filed", decide: requested, entries: []int{1}},
	{name: "a request is approved", prepare: requested, entries: []int{1}, refused: approval.RuleState,
		decide: func(ctx context.Context, s *store.Store, id string) error {
			return answer(ctx, s, id, "plan "+id, true)
		}},
	{name: "a request is denied", prepare: requested, entries: []int{1}, refused: approval.RuleState,
		decide: func(ctx context.Context, s *store.Store, id string) error {
			return answer(ctx, s, id, "plan "+id, false)
		}},
	{name: "an approval is voided", prepare: approved, entries: []int{1},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			r, err := of(ctx, s, "plan "+id)
			if err != nil || r.State == approval.Void {
				return err
			}
			return approvals(
				s,
				id,
			).Void(
				ctx,
				r,
				approval.Event{At: at(id), By: "ana", Why: "its review was dismissed"},
			)
		}},
	{name: "a fix uses its approval up", entries: []int{2}, refused: approval.RuleState,
		prepare: inOrder(approved, func(ctx context.Context, s *store.Store, id string) error {
			_, err := s.Actions().Save(ctx, fixed(id), entryOf(action.EventObserved, id))
			return err
		}),
		decide: func(ctx context.Context, s *store.Store, id string) error {
			r, err := approvals(s, id).Approved(ctx, "plan "+id, 3*money.USD, at(id))
			if err != nil {
				return err
			}
			it, err := s.Actions().Item(ctx, id)
			if err != nil {
				return err
			}
			it.Phase, it.Steps = action.Acting, []action.Step{{Name: "delete-volume", Key: id, IntentAt: at(id)}}
			_, err = s.Actions().Admit(
				ctx,
				action.Batch{
					Account:  it.Account,
					Source:   it.Source,
					Round:    2,
					Now:      at(id),
					Selected: 1,
					Admissions: []action.Admission{{
						Item: it, Approval: &action.Approval{
							Request: r.Use(at(id)), Event: approval.Event{At: at(id), By: "ana"},
						},
						Entries: []action.Entry{entryOf(action.EventIntent, id)},
					}},
				},
			)
			return err
		}},
	{
		name:    "a hold is settled",
		prepare: live,
		entries: []int{1},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			_, err := holds(s, id).Settle(ctx, keyed(ctx, s, id), money.USD, "ana", at(id))
			return err
		},
	},
	{
		name:    "a hold is released",
		prepare: live,
		entries: []int{1},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			_, err := holds(s, id).Release(ctx, keyed(ctx, s, id), "ana", at(id))
			return err
		},
	},
	{name: "the gate allows", decide: gated(40, gate.Allow), entries: []int{1}},
	{name: "the gate asks", decide: gated(400, gate.Held), entries: []int{2}},
	{name: "the gate uses an approval up", prepare: allowed, decide: gated(400, gate.Allow), entries: []int{2}},
	{
		name:    "a run replaces its hold",
		prepare: gated(40, gate.Allow),
		decide:  gated(50, gate.Allow),
		entries: []int{2},
	},
	{name: "a higher price voids an approval", prepare: func(ctx context.Context, s *store.Store, id string) error {
		if err := allowed(ctx, s, id); err != nil {
			return err
		}
		r, err := of(ctx, s, job(id, 400).PlanHash())
		if err != nil {
			return err
		}
		r.Amount = 300 * money.USD
		_, err = s.Approvals().PutRequest(ctx, r, approval.Event{At: at(id), By: "ana"})
		return err
	}, entries: []int{1, 3}, decide: func(ctx context.Context, s *store.Store, id string) error {
		p := params(s, id)
		p.Desk.Random = random(id + " again")
		d, err := gate.Decide(ctx, job(id, 400), p)
		if err == nil && d.Decision != gate.Held {
			err = fmt.Errorf("the gate answers %s", d.Decision)
		}
		return err
	}},
	{
		name:    "a vote approves",
		prepare: gated(400, gate.Held),
		entries: []int{1, 3},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			c := gate.Counter{
				Ask:    job(id, 400),
				Params: params(s, id),
				Ballots: []gate.Ballot{func(context.Context, string) ([]gate.Vote, []string, error) {
					return []gate.Vote{{By: approver, Allow: true}}, nil, nil
				}},
			}
			d, err := c.Decide(ctx)
			if err == nil && d.Decision != gate.Allow {
				err = fmt.Errorf("the gate answers %s: %q", d.Decision, d.Reasons)
			}
			return err
		},
	},
	{name: "an approval extends a hold", entries: []int{3}, repeats: true,
		prepare: inOrder(live, extended(gate.Held), func(ctx context.Context, s *store.Store, id string) error {
			all, err := s.Approvals().Requests(ctx, "")
			for _, r := range all {
				if r.State == approval.Pending && strings.Contains(r.Subject, "hold "+keyed(ctx, s, id)) {
					_, err = approvals(s, id).Decide(ctx, r.ID, approver, true, "", at(id))
				}
			}
			return err
		}), decide: extended(gate.Allow)},
	{
		name:    "a bill is imported",
		entries: []int{1},
		again:   []error{bill.ErrChanged},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			p := pastBooks.Periods[0]
			p.Account = id
			return s.Transact(ctx, func(in *store.Store) error {
				if err := in.Bills().Replace(ctx, []bill.Replacement{
					{Period: p, Content: slices.Values(pastBooks.Rows)},
				}); err !=
					nil {
					return err
				}
				return in.Actions().Record(ctx, entryOf(action.EventBill, id))
			})
		},
	},
	{
		name:    "settings and prices are set",
		entries: []int{2},
		again:   []error{store.ErrSettingConflict},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			set := func(kind string) store.SettingChange {
				return store.SettingChange{
					Setting: store.Setting{Kind: kind + id, Version: 1, At: at(id), Who: "root", Body: "x"},
					Entry:   entryOf(action.EventSettings, id),
				}
			}
			return s.Settings().Put(ctx, set("settings"), set("prices"))
		},
	},
	{
		name:    "an action is saved",
		entries: []int{1},
		again:   []error{action.ErrConflict},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			_, err := s.Actions().Save(ctx, fixed(id), entryOf(action.EventObserved, id))
			return err
		},
	},
	{
		name:    "all is frozen",
		entries: []int{1},
		repeats: true,
		decide: func(ctx context.Context, s *store.Store, id string) error {
			return s.Actions().Freeze(ctx, action.Freeze{At: at(id), By: "ana", Reason: id})
		},
	},
	{
		name:    "the freeze ends",
		entries: []int{1},
		repeats: true,
		prepare: func(ctx context.Context, s *store.Store, id string) error {
			return s.Actions().Freeze(ctx, action.Freeze{At: at(id), By: "ana", Reason: id})
		},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			return s.Actions().Unfreeze(ctx, "ana", id, at(id))
		},
	},
	{
		name:    "a resource is kept",
		entries: []int{1},
		repeats: true,
		decide: func(ctx context.Context, s *store.Store, id string) error {
			return s.Actions().PutKeep(
				ctx,
				action.Keep{Ref: fixed(id).Ref, Until: at(id).Add(time.Hour), Reason: id, By: "ana", At: at(id)},
			)
		},
	},
	{name: "a fuse blows", entries: []int{1}, decide: func(ctx context.Context, s *store.Store, id string) error {
		return s.Actions().Blow(ctx, fuseOf(id))
	}},
	{
		name:    "a fuse is confirmed",
		entries: []int{1},
		again:   []error{action.ErrConflict},
		prepare: func(ctx context.Context, s *store.Store, id string) error {
			return s.Actions().Blow(ctx, fuseOf(id))
		},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			f := fuseOf(id)
			f.ConfirmedAt, f.By, f.Reason, f.Until = at(id), "ana", id, at(id).Add(time.Hour)
			return s.Actions().Confirm(ctx, f)
		},
	},
	{
		name:    "a token is created",
		entries: []int{1},
		taken:   true,
		decide: func(ctx context.Context, s *store.Store, id string) error {
			return s.Callers().Create(ctx, token(id), entryOf(action.EventToken, id))
		},
	},
	{
		name:    "a token is revoked",
		entries: []int{1},
		prepare: func(ctx context.Context, s *store.Store, id string) error {
			return s.Callers().Create(ctx, token(id), entryOf(action.EventToken, id))
		},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			_, err := s.Callers().Revoke(
				ctx,
				id,
				at(id),
				func(store.Token) action.Entry { return entryOf(action.EventToken, id) },
			)
			return err
		},
	},
	{name: "a backtest is asked for", entries: []int{1}, taken: true, decide: backtestOf},
	{
		name:    "a backtest is canceled",
		prepare: backtestOf,
		entries: []int{1},
		again:   []error{store.ErrBacktestEnded},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			return s.Backtests().Cancel(ctx, id, "no", at(id), entryOf(action.EventBacktest, id))
		},
	},
	{
		name:    "a session is asked for",
		entries: []int{1},
		again:   []error{session.ErrNameTaken, session.ErrConflict},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			_, err := s.Sessions().Put(
				ctx,
				session.Session{ID: id, Name: id, State: session.Requested, RequestedAt: at(id)},
				[]session.Event{{At: at(id), Kind: "requested"}},
				entryOf(action.EventSession, id),
			)
			return err
		},
	},
	{
		name:    "an audit finds something",
		entries: []int{1},
		decide: func(ctx context.Context, s *store.Store, id string) error {
			return s.Snapshots().Save(ctx, nil, lookAt(id))
		},
	},
	{
		name:     "the clock is set",
		entries:  []int{1},
		repeats:  true,
		onlyFile: true,
		decide: func(ctx context.Context, s *store.Store, id string) error {
			return s.SetClock(ctx, entryOf(action.EventClock, id))
		},
	},
}
