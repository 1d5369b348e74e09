package govern_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/view"
)

const (
	budgets = `budgets:
  - {id: vision, team: vision, purpose: any, amount: 1000}
gate: {ask_over: 1000000}
`
	settings = `approvals: {accept: [self-declared]}
people:
  ana: {roles: [admin]}
`
	job = `{"apiVersion":"curfew.job/v1","name":"train","purpose":"training","owner":{"team":"vision"},"resources":{"instance_type":"g6.2xlarge"},"regions":["us-east-1"],"run":"python train.py","max_runtime":"2h"}`
)

func ask(t *testing.T, req *runtime.Request, text string) view.Gate {
	t.Helper()
	doc, err := govern.Gate(t.Context(), req, "-", govern.GateOptions{
		EstimateOptions: govern.EstimateOptions{In: strings.NewReader(text)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestGateReservesWithinTheBudget(t *testing.T) {
	req := apptest.Request(t, budgets)
	if doc := ask(t, req, job); doc.Decision != "allow" || doc.HoldID == nil {
		t.Errorf("got %s with hold %v, want it allowed and reserved: %v", doc.Decision, doc.HoldID, doc.Reasons)
	}
}

func TestGateDeniesBeyondTheBudget(t *testing.T) {
	req := apptest.Request(t, strings.Replace(budgets, "1000}", "0.01}", 1))
	if doc := ask(t, req, job); doc.Decision != "deny" || doc.HoldID != nil {
		t.Errorf("got %s with hold %v, want it denied", doc.Decision, doc.HoldID)
	}
}

func TestSettingsRefuseConcurrentChange(t *testing.T) {
	req := apptest.Request(t, settings)
	text, stale := settings, int64(0)
	if _, err := govern.PutSettings(t.Context(), req, govern.SettingsText{
		Settings: &text, Name: "settings", Last: &stale,
	}, "first"); err != nil {
		t.Fatal(err)
	}
	_, err := govern.PutSettings(t.Context(), req, govern.SettingsText{
		Settings: &text, Name: "settings", Last: &stale,
	},
		"second")
	var f *runtime.Error
	if !errors.As(err, &f) || f.Code != "changed" {
		t.Errorf("got %v, want changed", err)
	}
	doc, err := govern.Settings(t.Context(), req)
	if err != nil || len(doc.Versions) != 1 || doc.Advisory {
		t.Errorf("got %d versions, %v, want the first one", len(doc.Versions), err)
	}
	entries := 0
	err = govern.Entries(t.Context(), req, action.Query{}, func(e view.AuditEntry) error {
		entries++
		return nil
	})
	if err != nil || entries != 1 {
		t.Errorf("the audit log has %d entries, %v, want one", entries, err)
	}
}

func TestSettingsRequireAdmin(t *testing.T) {
	text := strings.Replace(settings, "admin", "viewer", 1)
	if _, err := govern.PutSettings(t.Context(), apptest.Request(t, settings),
		govern.SettingsText{Settings: &text, Name: "settings"}, "none"); err == nil {
		t.Error("settings without an admin are taken")
	}
}
