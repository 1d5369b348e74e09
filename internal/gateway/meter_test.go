package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
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
		m := newMeter(nil, time.Now())
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

// TestTokensAreChargedApart: the time up to the first token is that of the input, the rest that of the
// output, and both together cost what the servers cost.
func TestTokensAreChargedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const price = 3600 * money.USD // a dollar a second
		m := newMeter(nil, time.Now())
		start := time.Now()
		m.add("http://a", "p", price, "", start)
		g := &Gateway{meter: m}
		describe := func() stats.Model {
			costs, err := m.pools(time.Now())
			if err != nil {
				t.Fatal(err)
			}
			owners, err := g.describeOwners(costs)
			if err != nil {
				t.Fatal(err)
			}
			one := stats.Model{Pool: "p", Model: "m"}
			g.chargeModel(&one, costs["p"], owners, m.accounts())
			for _, o := range owners {
				if one.PerMillionInputTokens.Reason == "" && o.PerMillionInputTokens.Reason != "" {
					t.Errorf("%s has no cost of input: %s", o.Owner, o.PerMillionInputTokens.Reason)
				}
			}
			return one
		}
		request := func(owner string, stream bool) {
			a := account{"p", "m", owner}
			w := m.begin("http://a", []part{{account: a, rows: 1}}, time.Now())
			time.Sleep(time.Second)
			if stream {
				m.firstToken("http://a", w, time.Now())
			}
			time.Sleep(3 * time.Second)
			m.end("http://a", w, true, time.Now())
			m.tokens(a, w, 1000, 500, true, time.Now())
			time.Sleep(4 * time.Second)
		}
		if u := describe().PerMillionInputTokens; u.Reason != noTokens {
			t.Errorf("without requests: %+v", u)
		}
		request("ana", false)
		if d := describe(); d.PerMillionInputTokens.Reason != noFirstToken ||
			d.PerMillionOutputTokens.Reason != noFirstToken || d.PerMillionInputTokens.UsedUSD.Known() ||
			d.PerMillionTokens.Reason != "" {
			t.Errorf("without a stream: %+v", d)
		}
		for i := range 60 {
			request([]string{"ana", "ben"}[i%2], true)
		}
		d := describe()
		in, out := d.PerMillionInputTokens, d.PerMillionOutputTokens
		// A request uses $1 for 1,000 tokens of input and $3 for 500 of output; as much time is idle.
		for name, got := range map[string][2]money.Dollars{
			"input used":    {in.UsedUSD, money.Known(1000 * money.USD)},
			"input idle":    {in.IdleUSD, money.Known(1000 * money.USD)},
			"output used":   {out.UsedUSD, money.Known(6000 * money.USD)},
			"output in all": {out.AllocatedUSD, money.Known(12_000 * money.USD)},
		} {
			a, _ := got[0].Get()
			b, _ := got[1].Get()
			if abs(a-b) > 1000 {
				t.Errorf("%s: %s, want %s", name, a, b)
			}
		}
		a, _ := in.AllocatedUSD.Get()
		b, _ := out.AllocatedUSD.Get()
		both, _ := a.Mul(d.InputTokens, million)
		rest, _ := b.Mul(d.OutputTokens, million)
		want, _ := price.Mul(int64(time.Since(start)), int64(time.Hour))
		if abs(both+rest-want) > money.Cent {
			t.Errorf("input and output cost %s, the servers %s", both+rest, want)
		}
		for name, p := range map[string]*stats.Split{"p50": in.P50, "p95": in.P95, "output p50": out.P50} {
			if p == nil || !p.AllocatedUSD.Known() {
				t.Errorf("%s: %+v", name, p)
			}
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
	m := newMeter(nil, time.Now())
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
