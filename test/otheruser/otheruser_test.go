package otheruser_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/curfew-dev/curfew/test/otheruser"
)

func TestOtherUsersCannotReadEachOther(t *testing.T) {
	first, second := otheruser.Two(t)
	if got, _ := first.Sh(t, "id -u; id -G"); got != strconv.Itoa(first.UID)+"\n"+strconv.Itoa(first.GID) {
		t.Errorf("the first user is %q", got)
	}
	secret := filepath.Join(first.Home, "secret")
	if _, code := first.Sh(t, "echo mine > "+secret); code != 0 {
		t.Error("the first user cannot write at home")
	}
	if out, code := second.Sh(t, "cat "+secret); code == 0 {
		t.Errorf("the second user reads %q", out)
	}
	script := filepath.Join(t.TempDir(), "hello")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho hello\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, code := second.Sh(t, otheruser.Program(t, script)); out != "hello" || code != 0 {
		t.Errorf("the second user runs a copied program: %q, %d", out, code)
	}
}
