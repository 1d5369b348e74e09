package report

import (
	"strings"
	"testing"
)

func TestSayWrapsAndColorsText(t *testing.T) {
	var b strings.Builder
	if err := Say(&b, 20, true, "%s is %s until Thursday evening", "4f1c\x1b[2J", State("denied")); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(),
		"\"4f1c\\x1b[2J\" is\n  \x1b[31mdenied\x1b[m until\n  Thursday evening\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
