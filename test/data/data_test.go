package data

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestPath(t *testing.T) {
	const name = "traces/one.csv"
	root := t.TempDir()
	path := filepath.Join(root, "shared", "data", "traces", "one.csv")
	for _, dir := range []string{filepath.Dir(path), filepath.Join(root, "repository", "internal", "x")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(root, "repository", "internal", "x"))
	for _, tc := range []struct{ name, ci, file, want string }{
		{"present", "", name, "found"},
		{"present on CI", "true", name, "found"},
		{"missing", "", "traces/two.csv", "skipped"},
		{"missing on CI", "true", "traces/two.csv", "failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("CI", tc.ci)
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				want, _ := filepath.EvalSymlinks(path)
				if got, _ := filepath.EvalSymlinks(Path(r, tc.file)); got == want {
					r.outcome = "found"
				}
			}()
			if <-done; r.outcome != tc.want {
				t.Errorf("%q, want %q", r.outcome, tc.want)
			}
		})
	}
}

// recorder records the result of a test.
type recorder struct {
	testing.TB
	outcome string
}

func (r *recorder) Skipf(string, ...any) {
	r.outcome = "skipped"
	runtime.Goexit()
}

func (r *recorder) Fatalf(string, ...any) {
	r.outcome = "failed"
	runtime.Goexit()
}
