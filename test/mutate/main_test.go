package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMutants checks the mutations of a small file.
func TestMutants(t *testing.T) {
	source := []byte(`package p

func f(a, b int) (c struct{ n int }, err error) {
	if a < b {
		return c, errBad
	}
	c.n = a + 1
	return c, nil
}
`)
	all, err := mutants("/p.go", source)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, m := range all {
		changed := strings.Split(string(m.apply()), "\n")
		got[m.what+" | "+strings.TrimSpace(changed[m.line-1])] = true
	}
	want := map[string]bool{
		"the condition is negated: a < b | if !(a < b) {":          true,
		"the condition never holds: a < b | if false && (a < b) {": true,
		"< becomes <= | if a <= b {":                               true,
		"returns no error: return c, errBad | return c, nil":       true,
		"not done: c.n = a + 1 | _ = a + 1":                        true,
		"+ becomes - | c.n = a - 1":                                true,
		"1 becomes 2 | c.n = a + 2":                                true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRun checks in a separate module that tested mutants are killed and untested ones survive,
// that a sample only depends on the seed, and that no file is changed.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"m.go": `package m

func Old(age int) bool { return age >= 18 }

func Unchecked(n int) int { return n * 2 }
`,
		"m_test.go": `package m

import "testing"

func TestOld(t *testing.T) {
	if !Old(18) || Old(17) {
		t.Fail()
	}
}
`,
		"user/user_test.go": `package user

import (
	"testing"

	"example.com/m"
)

func TestTwice(t *testing.T) {
	if m.Unchecked(3) != 6 {
		t.Fail()
	}
}
`,
	}
	if err := os.Mkdir(filepath.Join(dir, "user"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-mod=mod")
	var out [2]strings.Builder
	for i := range out {
		err := run(t.Context(), []string{"-n", "10", "-limit", time.Minute.String(), "."}, &out[i])
		if err == nil || err.Error() != "more than 5% survived" {
			t.Fatalf("%v\n%s", err, &out[i])
		}
	}
	if out[0].String() != out[1].String() {
		t.Errorf("not the same twice:\n%s\n%s", &out[0], &out[1])
	}
	for _, line := range []string{
		"survived m.go:5: * becomes /\n", "survived m.go:5: 2 becomes 3\n",
		"example.com/m: 2 of 4 mutants survived (of 4; 0 drawn do not compile)\n", "2 of 4 mutants survived: 50.0%\n",
	} {
		if !strings.Contains(out[0].String(), line) {
			t.Errorf("no %q in\n%s", line, &out[0])
		}
	}
	var further strings.Builder // tests of a package that uses it
	if err := run(t.Context(), []string{"-n", "10", ".,./user"}, &further); err != nil ||
		!strings.Contains(further.String(), "0 of 4 mutants survived") {
		t.Errorf("%v\n%s", err, &further)
	}
	for name, text := range files {
		if now, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(now) != text {
			t.Errorf("%s was changed: %v\n%s", name, err, now)
		}
	}
}
