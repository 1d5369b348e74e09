package cli

import (
	"cmp"
)

// first returns the first text that is not empty.
func first(texts ...string) string { return cmp.Or(texts...) }
