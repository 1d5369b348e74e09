package money

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Dollars is an amount in a document that may be unknown: the exact decimal as a string ("713.648",
// "2.00"), or null. The zero value is unknown, which differs from "0.00".
type Dollars struct {
	amount Amount
	known  bool
}

// Known returns an amount as known dollars.
func Known(a Amount) Dollars { return Dollars{amount: a, known: true} }

// Get returns the amount and reports whether it is known.
func (d Dollars) Get() (Amount, bool) { return d.amount, d.known }

// Known reports whether the amount is known.
func (d Dollars) Known() bool { return d.known }

// Or returns the amount, or the given one if it is unknown.
func (d Dollars) Or(otherwise Amount) Amount {
	if d.known {
		return d.amount
	}
	return otherwise
}

// Plus returns the sum of the dollars and an amount. The sum is unknown if the dollars are, or if
// it is out of range.
func (d Dollars) Plus(a Amount) Dollars {
	sum, err := d.amount.Add(a)
	if err != nil || !d.known {
		return Dollars{}
	}
	return Known(sum)
}

// Cents returns the amount rounded as [Amount.Cents] does, or "" if it is unknown.
func (d Dollars) Cents() string {
	if !d.known {
		return ""
	}
	return d.amount.Cents()
}

// String returns the amount as [Amount.Dollars] prints it, or "unknown".
func (d Dollars) String() string {
	if !d.known {
		return "unknown"
	}
	if d.amount < 0 && d.amount.Cents() == Amount(0).Cents() {
		return Amount(0).Dollars()
	}
	return d.amount.Dollars()
}

// MarshalJSON writes every digit as a string, or null if the amount is unknown.
func (d Dollars) MarshalJSON() ([]byte, error) {
	if !d.known {
		return []byte("null"), nil
	}
	return []byte(`"` + d.amount.String() + `"`), nil
}

// UnmarshalJSON reads only the output of MarshalJSON: numbers and other spellings of an amount are
// errors.
func (d *Dollars) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		*d = Dollars{}
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("read %s as dollars: an amount is a string such as \"12.50\", or null", b)
	}
	a, err := ParseAmount(s)
	if err != nil {
		return err
	}
	if a.String() != s {
		return fmt.Errorf("read %q as dollars: it is spelled %q", s, a)
	}
	*d = Known(a)
	return nil
}
