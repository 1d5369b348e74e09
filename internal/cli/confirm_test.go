package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestConfirm checks that a person sees which fuses have blown, and confirms each once, with a
// reason.
func TestConfirm(t *testing.T) {
	d := newDesktop(t)
	d.now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	if code, out, _ := d.run("confirm"); code != ExitDone || !strings.Contains(out, "Nothing waits for confirmation") {
		t.Fatalf("exit %d: %s", code, out)
	}
	blow := func(accounts ...string) {
		t.Helper()
		s, err := store.Open(t.Context(), store.Options{Dir: filepath.Join(d.dir, "data")})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, account := range accounts {
			if err := s.Actions().Blow(t.Context(), action.Fuse{
				Account: account, Source: "nights", At: d.now, Due: 9, Selected: 10, Items: []string{"x"},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	blow("aws/1", "aws/2")
	if _, out, _ := d.run("confirm"); !strings.Contains(out, "nights  aws/1 ") ||
		!strings.Contains(out, "  9        10") {
		t.Errorf("listed are\n%s", out)
	}
	for _, tc := range []struct {
		args []string
		code int
	}{
		{[]string{"confirm", "nights"}, ExitUsage},
		{[]string{"confirm", "nights", "--reason", " "}, ExitUsage},
		{[]string{"confirm", "nights", "--reason", "meant", "--for", "soon"}, ExitUsage},
		{[]string{"confirm", "others", "--reason", "meant"}, ExitError},
		{[]string{"confirm", "nights", "--reason", "meant", "--account", "aws/1"}, ExitDone},
		{[]string{"confirm", "nights", "--reason", "meant", "--account", "aws/1"}, ExitError},
		{[]string{"confirm", "nights", "--reason", "every evening", "--for", "30d"}, ExitDone},
	} {
		if code, out, errs := d.run(tc.args...); code != tc.code {
			t.Errorf("%v: exit %d, want %d: %s%s", tc.args, code, tc.code, out, errs)
		}
	}
	s, err := store.Open(t.Context(), store.Options{Dir: filepath.Join(d.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all, err := s.Actions().Fuses(t.Context())
	if err != nil || len(all) != 2 || slices.ContainsFunc(all, func(f action.Fuse) bool {
		return f.IsBlown() || f.By != "ana"
	}) || !all[0].Until.IsZero() ||
		!all[1].Until.Equal(d.now.Add(30*24*time.Hour)) {
		t.Errorf("kept are %+v, %v", all, err)
	}
	if _, out, _ := d.run("confirm", "-o", "json"); !strings.Contains(out, `"fuses": []`) {
		t.Errorf("none is left: %s", out)
	}
}
