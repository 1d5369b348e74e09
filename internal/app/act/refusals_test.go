package act_test

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/alert"
	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

// refusal is a machine in a round of the test that a policy would stop.
type refusal struct {
	id    string
	duty  duty.State
	rule  string
	mode  policy.Mode
	other string // a second policy
}

// roundOf returns a round of account aws/1 in which actions were refused.
func roundOf(at time.Time, all ...refusal) *round.Result {
	r := &round.Result{StartedAt: at}
	r.Cloud, r.Accounts = "aws", []string{"1"}
	report := action.Report{At: at}
	for _, x := range all {
		machine := &inventory.Resource{
			Cloud: "aws", Account: "1", Region: "us-east-1", Kind: inventory.KindInstance,
			ID: x.id, Name: "train-" + x.id, Owner: inventory.Owner{User: "ana", Team: "vision"},
		}
		r.Facts = append(r.Facts, &policy.Facts{
			Now: at, Resource: machine, Hourly: inventory.Known(10 * money.USD),
			Duty: &duty.Verdict{State: x.duty, Why: "92% utilization"},
		})
		for _, source := range []string{"overdue", x.other} {
			if source == "" {
				continue
			}
			r.Proposals = append(r.Proposals, action.Proposal{Source: source, Resource: machine, Mode: x.mode})
			report.Lines = append(report.Lines, action.Line{
				Resource: machine.Ref(), Source: source, Verb: policy.Stop, Result: action.ResultRefused, Rule: x.rule,
			})
		}
	}
	r.Reports = []action.Report{report}
	return r
}

// TestReportsBusyRefusals follows machines that only their work protects from being stopped: people
// are told once, and again after a day with the cost since then; nothing is resolved while no round
// knows, and then it is. Refusals for other reasons, of machines without measured work, and of
// rehearsals are not reported.
func TestReportsBusyRefusals(t *testing.T) {
	now := apptest.Now
	req := apptest.RequestAt(t, "", func() time.Time { return now })
	cfg, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := act.AlertLadder(req, cfg, s)
	if err != nil {
		t.Fatal(err)
	}
	var people told
	l.Notifier = &people
	l.Clock = func() action.Clock { return action.Clock{Wall: now} }
	var rounds act.Refusals
	watch := func(want ...string) {
		t.Helper()
		people = nil
		if _, err := act.Watch(t.Context(), cfg, s, l, &rounds, now); err != nil {
			t.Fatal(err)
		}
		if len(people) != len(want) {
			t.Fatalf("at %s: told %q, want %q", now, people, want)
		}
		for i := range want {
			if !strings.Contains(people[i], want[i]) {
				t.Errorf("at %s: told %q, want %q", now, people, want[i])
			}
		}
	}
	busy := refusal{id: "i-1", duty: duty.Busy, rule: action.RuleBusy, mode: policy.Enforce, other: "nightly"}
	rounds.Add(roundOf(now, busy,
		refusal{id: "i-2", duty: duty.Unknown, rule: action.RuleBusy, mode: policy.Enforce},
		refusal{id: "i-3", duty: duty.Busy, rule: "kept", mode: policy.Enforce},
		refusal{id: "i-4", duty: duty.Busy, rule: action.RuleBusy, mode: policy.Warn},
	))
	watch("notice owner: overdue and nightly would stop train-i-1, which is at work for $10.00 an hour: 92% utilization")
	now = now.Add(time.Hour)
	rounds.Add(roundOf(now, busy))
	watch()
	now = now.Add(24 * time.Hour)
	rounds.Add(roundOf(now, busy))
	watch("$10.00 an hour and cost $250 since 2026")

	alerts, err := act.Alerts(t.Context(), req)
	if err != nil || len(alerts.Alerts) != 1 || alerts.Alerts[0].What != alert.RefusedAsBusy ||
		alerts.Alerts[0].SpentUSD.Or(0) != 250*money.USD ||
		alerts.Alerts[0].Next != "curfew policy explain i-1 --cloud aws" {
		t.Errorf("listed: %+v, %v", alerts.Alerts, err)
	}
	partial := roundOf(now)
	partial.BlindSpots = []inventory.BlindSpot{{}}
	rounds.Add(partial)
	watch() // it was not read
	rounds = act.Refusals{}
	watch() // nothing was read since the start
	rounds.Add(roundOf(now.Add(-4 * time.Hour)))
	watch() // the newest round is too old
	rounds.Add(roundOf(now))
	watch("resolved owner: overdue and nightly would stop train-i-1")
}
