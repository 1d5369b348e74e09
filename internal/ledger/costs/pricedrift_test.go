package costs

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/money"
)

func TestDrift(t *testing.T) {
	for _, tc := range []struct {
		catalog, paid money.Amount
		want          float64
		known         bool
	}{{100, 110, 0.1, true}, {100, 50, -0.5, true}, {0, 50, 0, false}, {100, 0, 0, false}, {-1, 1, 0, false}} {
		got, known := drift(tc.catalog, tc.paid)
		if known != tc.known || got-tc.want > 1e-9 || tc.want-got > 1e-9 {
			t.Errorf("Drift(%d, %d) = %g, %v; want %g, %v", tc.catalog, tc.paid, got, known, tc.want, tc.known)
		}
	}
}
