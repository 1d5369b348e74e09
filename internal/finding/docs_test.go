package finding

import (
	"reflect"
	"regexp"
	"testing"
)

// TestEveryRuleIsDescribed checks that every rule has a description and that the keys in it are
// thresholds.
func TestEveryRuleIsDescribed(t *testing.T) {
	keys := map[string]bool{}
	for i := range reflect.TypeFor[Thresholds]().NumField() {
		keys["thresholds."+reflect.TypeFor[Thresholds]().Field(i).Tag.Get("yaml")] = true
	}
	described := map[string]bool{}
	for _, r := range All(registered) {
		a := r.About
		if a == (About{}) {
			if !described[r.ID] {
				t.Errorf("%s has no description", r.ID)
			}
			continue
		}
		described[r.ID] = true
		if a.Finds == "" || a.When == "" || a.Saves == "" || a.Confidence == "" || a.Fix == "" {
			t.Errorf("%s is described by halves: %+v", r.ID, a)
		}
		for _, key := range regexp.MustCompile(`thresholds\.[a-z_]+`).FindAllString(a.When+" "+a.Saves+" "+a.Fix, -1) {
			if !keys[key] {
				t.Errorf("%s names %s, which is no key", r.ID, key)
			}
		}
	}
}
