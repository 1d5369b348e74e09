package money

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestDollarsJSON(t *testing.T) {
	tests := []struct {
		name string
		in   Dollars
		want string
	}{
		{"unknown", Dollars{}, `null`},
		{"zero is known", Known(0), `"0.00"`},
		{"two decimals at least", Known(12_500_000_000), `"12.50"`},
		{"no trailing zeros", Known(200_000), `"0.0002"`},
		{"nothing is rounded", Known(135_000_001), `"0.135000001"`},
		{"large", Known(9_223_372_036_850_000_000), `"9223372036.85"`},
		{"negative", Known(-12_500_000_000), `"-12.50"`},
		{"less than a cent has its sign", Known(-1_000_000), `"-0.001"`},
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
		{"zero", Known(0), "$0.00"},
		{"negative nothing", Known(-1), "$0.00"},
		{"cents", Known(3_650_000_000), "$3.65"},
		{"half a cent to even, down", Known(125_000_000), "$0.12"},
		{"half a cent to even, up", Known(135_000_000), "$0.14"},
		{"thousands", Known(12_311_400_000_000), "$12,311"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.in.String(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestDollarsPlus(t *testing.T) {
	tests := []struct {
		name string
		in   Dollars
		add  Amount
		want Dollars
	}{
		{"known", Known(1), 2, Known(3)},
		{"unknown stays unknown", Dollars{}, 2, Dollars{}},
		{"out of range", Known(1<<63 - 1), 1, Dollars{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.in.Plus(tt.add); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDollarsRejectsOtherSpellings(t *testing.T) {
	for _, in := range []string{
		`12.5`, `0`, `""`, `"12.5"`, `"12.500"`, `"0.000200000"`, `"0.1234567891"`, `"-0.00"`,
		`"1e3"`, `" 1.00"`, `"01.00"`,
		`"99999999999.00"`, `{}`, `[]`, `true`,
	} {
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
		in := Known(Amount(rapid.Int64().Draw(t, "nano")))
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out Dollars
		if err := json.Unmarshal(b, &out); err != nil || out != in {
			t.Fatalf("%s came back as %s, %v", b, out.Or(0), err)
		}
	})
}
