package gate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

func TestKeyIdentifiesRun(t *testing.T) {
	for _, dollars := range []int64{40, 400} {
		t.Run(fmt.Sprint(dollars), func(t *testing.T) {
			ctx, h := context.Background(), newMemoryStores(t, team)
			a := job(dollars)
			a.Key = "build 7"
			if dollars > 100 {
				h.approve(t, decide(t, h, a, now).ApprovalID, now)
			}
			first := decide(t, h, a, now)
			again := decide(t, h, a, now.Add(time.Hour))
			want(t, again, Allow, `the run "build 7" was admitted at 2026-11-21T12:30:00Z`)
			if again.HoldID != first.HoldID || len(h.liveHolds(t, now)) != 1 {
				t.Errorf("one key made two holds: %s, %s", first.HoldID, again.HoldID)
			}
			costlier := a
			costlier.P95++
			if _, err := Decide(ctx, costlier, h.params(now)); err == nil ||
				!strings.Contains(err.Error(), "was admitted for") {
				t.Errorf("a costlier run was let in by its key: %v", err)
			}
			edited := a
			edited.SpecHash, edited.P95 = "ed17", 500*money.USD
			want(t, decide(t, h, edited, now), Held, "")
			if _, err := h.params(now).Budgets.Settle(ctx, first.HoldID, money.USD, "ana", now); err != nil {
				t.Fatal(err)
			}
			if _, err := Decide(ctx, a, h.params(now)); err == nil || !strings.Contains(err.Error(), "settled") {
				t.Errorf("a run that is over was let in again: %v", err)
			}
		})
	}
}

// TestFinishedRunDoesNotBlockOtherKeys checks that the next run of the same plan asks again.
func TestFinishedRunDoesNotBlockOtherKeys(t *testing.T) {
	h := newMemoryStores(t, team)
	a := job(400)
	a.Key = "build 7"
	h.approve(t, decide(t, h, a, now).ApprovalID, now)
	if _, err := h.params(now).Budgets.Settle(context.Background(), decide(t, h, a, now).HoldID, money.USD, "ana",
		now); err != nil {
		t.Fatal(err)
	}
	a.Key = "build 8"
	want(t, decide(t, h, a, now), Held, "")
}

// TestReleasedKeyIsDecidedAgain checks that a key whose hold was released or expired is decided
// like a new run.
func TestReleasedKeyIsDecidedAgain(t *testing.T) {
	for _, gone := range []string{"released", "expired"} {
		for _, dollars := range []int64{40, 400} {
			t.Run(fmt.Sprintf("%s, %d", gone, dollars), func(t *testing.T) {
				ctx, h := context.Background(), newMemoryStores(t,
					`budgets: [{id: vision, team: vision, purpose: training, amount: 10000}]`)
				a, at := job(dollars), now
				a.Key = "build 7"
				seen := map[string]bool{}
				for range 3 {
					if dollars > 100 {
						d := decide(t, h, a, at)
						want(t, d, Held, "")
						h.approve(t, d.ApprovalID, at)
					}
					d := decide(t, h, a, at)
					want(t, d, Allow, "")
					if again := decide(t, h, a, at); again.HoldID != d.HoldID {
						t.Errorf("asked again, hold %s became %s", d.HoldID, again.HoldID)
					}
					if seen[d.HoldID] || len(h.liveHolds(t, at)) != 1 {
						t.Fatalf("hold %s of %v, live %d", d.HoldID, seen, len(h.liveHolds(t, at)))
					}
					seen[d.HoldID] = true
					if gone == "expired" {
						at = at.Add(14 * time.Hour)
					} else if _, err := h.params(at).Budgets.Release(ctx, d.HoldID, "ana", at); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}
