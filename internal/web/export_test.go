package web

import (
	"maps"
	"slices"
)

// FormActions are the names of all forms.
func FormActions() []string { return slices.Sorted(maps.Keys(actions)) }
