package cli

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/money"
)

func TestExact(t *testing.T) {
	for v, want := range map[money.Amount]string{
		0: "$0.00", 5 * money.Cent: "$0.05", 999 * money.USD: "$999.00", 1000 * money.USD: "$1,000.00",
		123456789*money.USD + 10*money.Cent: "$123,456,789.10",
		-1234 * money.USD:                   "-$1,234.00",
	} {
		if got := v.Exact(); got != want {
			t.Errorf("(%d).Exact() = %q, want %q", int64(v), got, want)
		}
	}
}
