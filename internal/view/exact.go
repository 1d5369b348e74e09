package view

import (
	"errors"
	"reflect"

	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
)

// Exact are the amounts that a document of costs shows in cents, with every digit, in the
// order of the document. Whoever draws a document that came as JSON needs them: what rounds
// to zero cents is not zero.
func Exact(doc any) []money.Amount {
	at := amounts(reflect.ValueOf(doc), nil)
	out := make([]money.Amount, len(at))
	for i, v := range at {
		out[i] = money.Amount(v.Int())
	}
	return out
}

// Restore gives a document, by its pointer, the amounts that [Exact] returned for it.
func Restore(doc any, exact []money.Amount) error {
	at := amounts(reflect.ValueOf(doc), nil)
	if len(at) != len(exact) {
		return errors.New("read the exact amounts: they are those of another document")
	}
	for i, v := range at {
		if exact[i].Cents() != money.Amount(v.Int()).Cents() {
			return errors.New("read the exact amounts: they are those of another document")
		}
		v.SetInt(int64(exact[i]))
	}
	return nil
}

var dollars = reflect.TypeFor[costs.Dollars]()

// amounts finds the amounts in a value, in order.
func amounts(v reflect.Value, found []reflect.Value) []reflect.Value {
	switch {
	case v.IsValid() && v.Type() == dollars:
		return append(found, v)
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return amounts(v.Elem(), found)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			found = amounts(v.Index(i), found)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				found = amounts(v.Field(i), found)
			}
		}
	}
	return found
}
