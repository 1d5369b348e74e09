package approval

import (
	"context"
	"testing"

	"github.com/curfew-dev/curfew/internal/money"
)

// TestApprovesLessThanRequested checks that only a job can be approved for less than it requests.
func TestApprovesLessThanRequested(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name, kind string
		amount     money.Amount
		rule       Rule
	}{
		{"a job for less", "job", 400 * money.USD, ""},
		{"a job for what it asks", "job", 656 * money.USD, ""},
		{"a fix for what it asks", "fix", 656 * money.USD, ""},
		{"a fix for less", "fix", 400 * money.USD, RuleAmount},
		{"a session for less", "session", 400 * money.USD, RuleAmount},
		{"more than was asked", "job", 656*money.USD + 1, RuleAmount},
		{"nothing", "job", 0, RuleAmount},
		{"less than nothing", "job", -1, RuleAmount},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Desk{Store: &memory{}}
			r, err := d.Ask(ctx, Request{
				Kind: tc.kind, PlanHash: "h1", Amount: 656 * money.USD, AskedBy: "ana",
				Plan: `{"schema":"` + PlanSchema + `","most_usd":"656.00"}`,
			}, now)
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.ApproveUpTo(ctx, r.ID, boss, tc.amount, "", now)
			if tc.rule != "" {
				refused(t, err, tc.rule)
				if kept, _ := d.Store.Request(ctx, r.ID); kept.State != Pending || kept.Amount != r.Amount {
					t.Errorf("it is kept as %+v", kept)
				}
				return
			}
			if err != nil || got.State != Approved || got.Amount != tc.amount || got.AskedAmount() != 656*money.USD {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
