package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TestUnitCostsAddUp: over an hour of virtual time, the unit cost of all owners times their
// predictions is the hours of the servers times their price, to the cent.
func TestUnitCostsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const price = 4_096_000_001 * money.NanoUSD
		m := newMeter()
		start := time.Now()
		m.add("http://a", "p", price, "", start)
		m.add("http://b", "p", price, "", start)
		r := rand.New(rand.NewPCG(8, 8))
		for time.Since(start) < time.Hour {
			server := []string{"http://a", "http://b"}[r.IntN(2)]
			var parts []part
			for range 1 + r.IntN(4) {
				owner := fmt.Sprint("team", r.IntN(5))
				parts = append(parts, part{
					account: account{"p", fmt.Sprint("m", r.IntN(2)), owner}, rows: 1 + r.Int64N(9),
				})
			}
			w := m.begin(server, parts, time.Now())
			time.Sleep(time.Duration(r.Int64N(int64(300 * time.Millisecond))))
			m.end(server, w, r.IntN(10) > 0, time.Now())
			time.Sleep(time.Duration(r.Int64N(int64(500 * time.Millisecond))))
		}
		now := time.Now()
		costs, err := m.pools(now)
		if err != nil {
			t.Fatal(err)
		}
		hours := 2 * now.Sub(start)
		want, _ := price.Mul(int64(hours), int64(time.Hour))
		if got := costs["p"].allocatedUSD; abs(got-want) > 2 {
			t.Errorf("allocated %s, want %s", got, want)
		}
		g := &Gateway{meter: m}
		owners, err := g.describeOwners(costs)
		if err != nil {
			t.Fatal(err)
		}
		var sum, used money.Amount
		for _, o := range owners {
			each, _ := o.PerPredictionUSD.Get()
			back, _ := each.Mul(o.Predictions, 1)
			sum += back
			u, _ := o.UsedUSD.Get()
			used += u
		}
		if abs(sum-want) > money.Cent {
			t.Errorf("unit cost times predictions is %s, hours times price %s", sum, want)
		}
		if used != costs["p"].usedUSD || used >= sum {
			t.Errorf("used %s of %s", used, costs["p"].usedUSD)
		}
	})
}

func abs(a money.Amount) money.Amount { return max(a, -a) }

func TestBudgetOfAKey(t *testing.T) {
	now := time.Date(2026, 5, 4, 23, 0, 0, 0, time.UTC)
	l := &limit{usd: 10 * money.USD, tokens: 1000, period: periodDay}
	if refusal, warning, _ := l.check(now); refusal+warning != "" {
		t.Fatal(refusal, warning)
	}
	l.charge(now, 8*money.USD, 0)
	if refusal, warning, _ := l.check(now); refusal != "" || warning == "" {
		t.Errorf("at 80%%: %q %q", refusal, warning)
	}
	l.charge(now, 0, 1000)
	refusal, _, retry := l.check(now)
	if refusal == "" || retry != time.Hour {
		t.Errorf("tokens used up: %q, retry after %s", refusal, retry)
	}
	if refusal, _, _ := l.check(now.Add(-48 * time.Hour)); refusal == "" {
		t.Error("a clock that was set back clears the budget")
	}
	if refusal, _, _ := l.check(now.Add(time.Hour)); refusal != "" {
		t.Errorf("the next day: %s", refusal)
	}
	month := &limit{usd: money.USD, period: periodMonth}
	month.charge(now, money.USD, 0)
	if refusal, _, retry := month.check(now.Add(24 * time.Hour)); refusal == "" || retry != 26*24*time.Hour+time.Hour {
		t.Errorf("month: %q, retry after %s", refusal, retry)
	}
}

// TestUnknownPriceIsNeverZero: a pool without a price has no dollars, but a reason.
func TestUnknownPriceIsNeverZero(t *testing.T) {
	m := newMeter()
	now := time.Now()
	m.add("http://a", "p", 0, "no price is set", now)
	w := m.begin("http://a", []part{{account: account{"p", "m", "o"}, rows: 3}}, now)
	m.end("http://a", w, true, now.Add(time.Second))
	costs, err := m.pools(now.Add(time.Minute))
	if err != nil || costs["p"].noPrice == "" {
		t.Fatal(costs, err)
	}
	owners, err := (&Gateway{meter: m}).describeOwners(costs)
	if err != nil || len(owners) != 1 {
		t.Fatal(owners, err)
	}
	if o := owners[0]; o.UsedUSD.Known() || o.PerPredictionUSD.Known() ||
		o.Reason != "no price is set" || o.Predictions != 3 {
		t.Errorf("%+v", o)
	}
}
