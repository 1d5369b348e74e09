package snapshot_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/snapshot"
)

// TestFoldCase: texts are folded to the same one exactly where strings.EqualFold says that they
// are alike, signs with several forms and broken text included.
func TestFoldCase(t *testing.T) {
	letters := []rune("aAbBkK\u212asS\u017fßẞσςΣåÅ\u212bıIiİ-_1 \uFFFD")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringOfN(rapid.SampledFrom(letters), 0, 4, -1), rapid.String())
		a := text.Draw(t, "a")
		b := rapid.OneOf(rapid.Just(strings.ToUpper(a)), rapid.Just(strings.ToLower(a)), text).Draw(t, "b")
		if got, want := snapshot.FoldCase(a) == snapshot.FoldCase(b), strings.EqualFold(a, b); got != want {
			t.Errorf("%q and %q are alike: %t, want %t", a, b, got, want)
		}
	})
}
