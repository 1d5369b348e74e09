package price

import (
	"bytes"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/money"
)

// TestQuarantinesOwnPrices checks that an implausible price in the user's file is not used,
// whatever source it cites, and a plausible one is.
func TestQuarantinesOwnPrices(t *testing.T) {
	book, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	machine, err := book.OnDemand("p4d.24xlarge", "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	old := Entry{}
	for k, e := range book.base {
		if e.Type == "p4d.24xlarge" && e.Region == "us-east-1" && e.Term == OnDemand && e.Service == Compute {
			old = book.base[k]
		}
	}
	save := func(rate money.Rate) *bytes.Buffer {
		e := old
		e.Price.Rate = rate
		next := &Book{
			machines: book.machines, catalog: book.catalog, accelerators: book.accelerators, base: book.base,
			overlay: map[key]Entry{e.key(): e},
		}
		var out bytes.Buffer
		if err := next.Save(&out); err != nil {
			t.Fatal(err)
		}
		return &out
	}
	cent, err := money.ParseRate("0.01")
	if err != nil {
		t.Fatal(err)
	}
	for rate, taken := range map[money.Rate]bool{machine.Rate * 9 / 10: true, cent: false, machine.Rate * 50: false} {
		next, refused, err := book.Quarantined(save(rate))
		if err != nil {
			t.Fatal(err)
		}
		got, err := next.OnDemand("p4d.24xlarge", "us-east-1")
		if err != nil || (got.Rate == rate) != taken || (len(refused) == 0) != taken {
			t.Errorf("%s in the user's file: %s is used, %v, %v", rate, got.Rate, refused, err)
		}
	}
	if _, _, err := book.Quarantined(strings.NewReader("no,csv\n")); err == nil {
		t.Error("another file is taken")
	}
}
