package policy

import (
	"reflect"
	"testing"

	"github.com/curfew-dev/curfew/internal/change"
)

// TestEqualComparesEveryField sets each field of an action in turn: no two of the
// results are the same action.
func TestEqualComparesEveryField(t *testing.T) {
	var all []Do
	of := reflect.TypeFor[Do]()
	for i := range of.NumField() {
		var d Do
		switch f := reflect.ValueOf(&d).Elem().Field(i); f.Interface().(type) {
		case Verb:
			f.SetString("stop")
		case bool:
			f.SetBool(true)
		case int:
			f.SetInt(1)
		case string:
			f.SetString("asg/a")
		case float64:
			f.SetFloat(0.5)
		case map[string]string:
			f.Set(reflect.ValueOf(map[string]string{"a": "b"}))
		case []string:
			f.Set(reflect.ValueOf([]string{"a"}))
		case change.Change:
			f.Set(reflect.ValueOf(change.Change{Verb: change.Stop}))
		default:
			t.Fatalf("no value is known for %s", of.Field(i).Name)
		}
		all = append(all, d)
	}
	all = append(all, Do{Change: change.Change{Verb: change.Stop, Arguments: change.Arguments{Type: "gp3"}}}, Do{})
	for i := range all {
		for j := range all {
			if got := all[i].Equal(&all[j]); got != (i == j) {
				t.Errorf("%+v and %+v are the same action: %t", all[i], all[j], got)
			}
		}
	}
}
