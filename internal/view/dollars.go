package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/curfew-dev/curfew/internal/money"
)

// Dollars is an amount in a document: a decimal string rounded half to even to
// cents ("713.65"), or null where it is not known. The zero value is not known,
// which is never the same as "0.00".
type Dollars struct {
	amount money.Amount
	known  bool
}

// USD returns a known amount.
func USD(a money.Amount) Dollars { return Dollars{amount: a, known: true} }

// Get returns the amount and whether it is known.
func (d Dollars) Get() (money.Amount, bool) { return d.amount, d.known }

// Known says whether the amount is known.
func (d Dollars) Known() bool { return d.known }

// Or returns the amount, or otherwise where it is not known.
func (d Dollars) Or(otherwise money.Amount) money.Amount {
	if d.known {
		return d.amount
	}
	return otherwise
}

// Cents returns the amount in cents as documents hold it, and "" where it is not
// known.
func (d Dollars) Cents() string {
	if !d.known {
		return ""
	}
	return d.amount.Cents()
}

// String returns the amount for people, as [money.Amount.Dollars] prints it, and
// "unknown" where it is not known.
func (d Dollars) String() string {
	if !d.known {
		return "unknown"
	}
	if d.amount > -money.Cent && d.amount < 0 && d.amount.Cents() == money.Amount(0).Cents() {
		return money.Amount(0).Dollars()
	}
	return d.amount.Dollars()
}

// MarshalJSON writes a string of dollars and cents, or null.
func (d Dollars) MarshalJSON() ([]byte, error) {
	if !d.known {
		return []byte("null"), nil
	}
	return []byte(`"` + d.amount.Cents() + `"`), nil
}

// UnmarshalJSON reads what MarshalJSON writes and nothing else: numbers, other
// spellings of an amount and fractions of a cent are errors.
func (d *Dollars) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		*d = Dollars{}
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("read %s as dollars: an amount is a string such as \"12.50\", or null", b)
	}
	a, err := money.ParseAmount(s)
	if err != nil {
		return err
	}
	if a.Cents() != s {
		return fmt.Errorf("read %q as dollars: %w", s, errNotCents)
	}
	*d = USD(a)
	return nil
}

var errNotCents = errors.New("not whole cents with two digits after the point")
