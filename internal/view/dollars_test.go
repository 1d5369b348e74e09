package view

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view/viewtest"
)

func TestDollarsJSON(t *testing.T) {
	tests := []struct {
		name string
		in   Dollars
		want string
	}{
		{"unknown", Dollars{}, `null`},
		{"zero is known", USD(0), `"0.00"`},
		{"half a cent to even, down", USD(viewtest.USD("0.125")), `"0.12"`},
		{"half a cent to even, up", USD(viewtest.USD("0.135")), `"0.14"`},
		{"large", USD(viewtest.USD("9223372036.85")), `"9223372036.85"`},
		{"negative", USD(viewtest.USD("-12.5")), `"-12.50"`},
		{"what rounds to zero has no sign", USD(viewtest.USD("-0.001")), `"0.00"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := json.Marshal(tt.in)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestDollarsString(t *testing.T) {
	tests := []struct {
		name string
		in   Dollars
		want string
	}{
		{"unknown is not zero", Dollars{}, "unknown"},
		{"zero", USD(0), "$0.00"},
		{"negative nothing", USD(-1), "$0.00"},
		{"cents", USD(viewtest.USD("3.65")), "$3.65"},
		{"thousands", USD(viewtest.USD("12311.4")), "$12,311"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.in.String(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestDollarsRefuses(t *testing.T) {
	for _, in := range []string{`12.5`, `0`, `""`, `"12.5"`, `"12.505"`, `"-0.00"`, `"1e3"`, `" 1.00"`, `"01.00"`, `"99999999999.00"`, `{}`, `[]`, `true`} {
		t.Run(in, func(t *testing.T) {
			var d Dollars
			if err := json.Unmarshal([]byte(in), &d); err == nil {
				t.Errorf("%s was read as %s", in, d)
			}
		})
	}
}

func TestDollarsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := USD(money.Amount(rapid.Int64().Draw(t, "nano")))
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out Dollars
		if err := json.Unmarshal(b, &out); err != nil {
			// Amounts within a cent of the range round out of it.
			if v := in.Or(0); v < 9_223_372_036_850_000_000 && v > -9_223_372_036_850_000_000 {
				t.Fatal(err)
			}
			return
		}
		if diff := out.Or(0) - in.Or(0); diff > money.Cent/2 || diff < -money.Cent/2 {
			t.Errorf("%s came back as %s", in.Or(0), out.Or(0))
		}
	})
}
