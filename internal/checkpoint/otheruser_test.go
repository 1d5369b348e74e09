package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/trust"
	"github.com/curfew-dev/curfew/test/otheruser"
)

// TestRestoreFollowsNoLinkOfOtherUser restores as root into a folder of another user with planted
// links.
func TestRestoreFollowsNoLinkOfOtherUser(t *testing.T) {
	u := otheruser.One(t)
	dir, r := t.TempDir(), run(t, t.TempDir())
	write(t, dir, "weights", random(1, 1000))
	save(t, claim(t, r), dir, checkpoint.SaveOptions{})
	outside := filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600)); err !=
		nil {
		t.Fatal(err)
	}
	if out, code := u.Sh(t, "ln -s "+outside+" link; mkdir full; ln -s "+outside+" full/weights; ln -s "+outside+
		" full/more"); code != 0 {
		t.Fatal(out)
	}
	for _, to := range []string{"link", "link/new", "link/new/x"} {
		_, err := r.Restore(t.Context(), filepath.Join(u.Home, to), checkpoint.RestoreOptions{Replace: true})
		var refused *trust.Error
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", to, err)
		}
	}
	// What is theirs in the folder is replaced, and what it leads to stays.
	for _, to := range []string{"full", "new/folder"} {
		to := filepath.Join(u.Home, to)
		if _, err := r.Restore(t.Context(), to, checkpoint.RestoreOptions{Replace: true}); err != nil {
			t.Fatal(err)
		}
		same(t, dir, to)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 || left[0].Name() != "secret" {
		t.Errorf("outside there is %v, %v", left, err)
	}
	entries, _ := os.ReadDir(u.Home)
	for _, e := range entries {
		if e.Name() != "full" && e.Name() != "new" && e.Name() != "link" {
			t.Errorf("left %s", e.Name())
		}
	}
}

// TestRestoreSurvivesRacesOfOtherUser lets another user rename folders and plant links while root
// restores.
func TestRestoreSurvivesRacesOfOtherUser(t *testing.T) {
	u := otheruser.One(t)
	dir, r := t.TempDir(), run(t, t.TempDir())
	for i, name := range []string{"a/x", "a/y", "b/c/z"} {
		write(t, dir, name, random(i, 1000))
	}
	save(t, claim(t, r), dir, checkpoint.SaveOptions{})
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	racing := u.Command(t.Context(), nil, "/bin/sh", "-c", `mkdir -p p; while :; do
for s in p/.curfew-restore-*; do mv "$s" moved-$$ 2>/dev/null && ln -s `+outside+` "$s"; done
mv p q; ln -s `+outside+` p; rm p; mv q p; rm -rf p/to moved-$$; ln -s `+outside+` p/to; rm -f p/to
done 2>/dev/null`)
	if err := racing.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = racing.Process.Kill()
		_ = racing.Wait()
	}()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		// it may fail, as long as nothing is written elsewhere
		_, _ = r.Restore(t.Context(), filepath.Join(u.Home, "p", "to"), checkpoint.RestoreOptions{Replace: true})
		left, err := os.ReadDir(outside)
		st, looked := os.Stat(outside)
		if err != nil || looked != nil || len(left) > 0 || st.Mode() != fs.ModeDir|0o700 {
			t.Fatalf("outside there is %v with mode %v, %v", left, st.Mode(), err)
		}
	}
}
