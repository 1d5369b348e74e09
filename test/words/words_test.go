package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name, file, text string
		want             []string
	}{
		{
			"a comment and a string, each with its place", "a.go",
			"package a\n\n// A machine that nobody\n// owns, kept for ever.\nconst b = \"cannot judge\"\n",
			[]string{"a.go:3:19 nobody", "a.go:4:15 for ever", "a.go:5:12 cannot judge"}},
		{"a name, by its parts", "a.go", "package a\n\nfunc wishList() {}\n\nvar wishes, crewed int\n",
			[]string{"a.go:3:6 wish", "a.go:5:5 wishes"}},
		{
			"a figure in a string, not in a test's", "a.go", "package a\n\nconst b = \"42 %\"\n",
			[]string{"a.go:3:13 2 %"},
		},
		{"a figure in a test", "a_test.go", "package a\n\nconst b = \"42 %\"\n", nil},
		{"a verb of a format is no figure", "a.go", "package a\n\nconst b = \"%d %s\"\n", nil},
		{
			"a document", "a.md", "It is 42%.\nThe file lies in a folder beside it.\n",
			[]string{"a.md:2:27 beside", "a.md:2:10 lies in"},
		},
		{"plain words", "a.go", "package a\n\n// An unowned machine is one without an owner tag.\nconst b = 1\n", nil},
	} {
		var got []string
		for _, m := range check(test.file, []byte(test.text)) {
			place, rest, _ := strings.Cut(m, ": \"")
			said, _, _ := strings.Cut(rest, "\"")
			got = append(got, place+" "+said)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
