package aws

import (
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type oneBill []byte

func (b *oneBill) Bill(string) []byte { return *b }

func (b *oneBill) KeepBill(_ string, doc []byte) error { *b = doc; return nil }

// TestKeptBills checks that a cached bill is unchanged to the last digit.
func TestKeptBills(t *testing.T) {
	exact, _ := new(big.Rat).SetString("12.345678901234567890123")
	day := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	b := accountBill{
		account: "1", start: day.AddDate(0, 0, -billedDays), end: day,
		byService: map[string]*big.Rat{"Amazon EC2": exact, "Tax": new(big.Rat)}, planned: true,
	}
	var keeper oneBill
	p := &place{account: &account{id: "1"}, scan: &scan{cloud: &Cloud{options: Options{Bills: &keeper}}}}
	p.keep(b)
	got, ok := p.keptBill(b.start, b.end)
	if diff := cmp.Diff(b, got, cmp.AllowUnexported(accountBill{}), cmp.Comparer(func(x, y *big.Rat) bool {
		return x.Cmp(y) == 0
	})); !ok || diff != "" {
		t.Errorf("kept %v (- want, + got):\n%s", ok, diff)
	}
	if _, ok := p.keptBill(b.start.AddDate(0, 0, 1), b.end.AddDate(0, 0, 1)); ok {
		t.Error("yesterday's answer is taken for today's")
	}
}
