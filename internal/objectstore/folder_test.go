package objectstore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/test/otheruser"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// modes returns what is in a folder with the access that others have to it.
func modes(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	open := map[string]fs.FileMode{}
	must(t, filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err == nil && i.Mode().Perm()&0o077 != 0 {
			open[strings.TrimPrefix(at, dir)] = i.Mode()
		}
		return err
	}))
	return open
}

func TestFolderIsForItsOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "one")
	defer syscall.Umask(syscall.Umask(0))
	b := opener(t, "file://"+dir)(Options{})
	must(t, b.Create(t.Context(), "parts/1-a/x", []byte("x")))
	_, err := b.Replace(t.Context(), checkpoint.HeadKey, []byte("head"), "")
	must(t, err)
	if open := modes(t, filepath.Dir(dir)); len(open) > 0 {
		t.Errorf("others have access: %v", open)
	}
}

// A run that an earlier version saved can be read, and the next write closes it to others.
func TestFolderOfEarlierVersionIsTightened(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	for _, name := range []string{checkpoint.HeadKey, lockName, "parts/1-a/x", "manifests/x"} {
		at := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		must(t, os.WriteFile(at, []byte("old"), 0o644))
	}
	b := opener(t, "file://"+dir)(Options{})
	got, err := b.Get(t.Context(), "parts/1-a/x", 10)
	if err != nil || string(got.Data) != "old" {
		t.Fatalf("%q, %v", got.Data, err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("a read changed the folder: %v, %v", st.Mode(), err)
	}
	must(t, b.Create(t.Context(), "parts/1-b/y", []byte("new")))
	_, err = b.Replace(t.Context(), checkpoint.HeadKey, []byte("new"), version([]byte("old")))
	must(t, err)
	open := modes(t, dir)
	for _, name := range []string{"", "/parts", "/parts/1-b", "/HEAD", "/.lock"} {
		if mode, is := open[name]; is {
			t.Errorf("%q has mode %v", name, mode)
		}
	}
}

// Nothing is read or written through a link, and no other kind of file is an object.
func TestFolderFollowsNoLink(t *testing.T) {
	ctx := t.Context()
	for name, plant := range map[string]func(t *testing.T, dir, outside string){
		"object":      func(t *testing.T, dir, outside string) { link(t, outside+"/secret", dir+"/parts/1-a/x") },
		"folder":      func(t *testing.T, dir, outside string) { link(t, outside, dir+"/parts/1-a") },
		"first":       func(t *testing.T, dir, outside string) { link(t, outside, dir+"/parts") },
		"inside":      func(t *testing.T, dir, _ string) { link(t, "../other", dir+"/parts/1-a/x") },
		"named pipe":  func(t *testing.T, dir, _ string) { must(t, syscall.Mkfifo(dir+"/parts/1-a/x", 0o600)) },
		"only a file": func(t *testing.T, dir, _ string) { must(t, os.WriteFile(dir+"/parts/1-a", nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dir, outside := filepath.Join(base, "run"), filepath.Join(base, "outside")
			must(t, errors.Join(os.Mkdir(outside, 0o700), os.WriteFile(outside+"/secret", []byte("secret"), 0o600),
				os.WriteFile(outside+"/x", []byte("secret"), 0o600), os.MkdirAll(dir+"/parts", 0o700),
				os.WriteFile(dir+"/other", nil, 0o600)))
			switch name {
			case "folder", "only a file":
			case "first":
				must(t, os.Remove(dir+"/parts"))
			default:
				must(t, os.Mkdir(dir+"/parts/1-a", 0o700))
			}
			plant(t, dir, outside)
			b := opener(t, "file://"+dir)(Options{})
			if got, err := b.Get(ctx, "parts/1-a/x", 100); err == nil {
				t.Errorf("read %q", got.Data)
			}
			if err := b.Create(ctx, "parts/1-a/x", []byte("mine")); err == nil {
				t.Error("created")
			}
			if _, err := b.Replace(ctx, "parts/1-a/x", []byte("mine"), version([]byte("secret"))); err == nil {
				t.Error("replaced")
			}
			_ = b.Delete(ctx, []string{"parts/1-a/x"}) // the link itself may go
			for _, key := range keys(t, b, "parts/") {
				if name != "only a file" {
					t.Errorf("lists %s", key)
				}
			}
			for _, file := range []string{"secret", "x"} {
				if data, err := os.ReadFile(outside + "/" + file); err != nil || string(data) != "secret" {
					t.Errorf("outside the store: %s is %q, %v", file, data, err)
				}
			}
		})
	}
}

func link(t *testing.T, target, at string) {
	t.Helper()
	must(t, os.Symlink(target, at))
}

func TestFolderRefusesKeysThatLeadOut(t *testing.T) {
	base := t.TempDir()
	b := opener(t, "file://"+base+"/run")(Options{})
	must(t, b.Create(t.Context(), "x", nil))
	for _, key := range []string{"", ".", "..", "../x", "/x", "a/../../x", "a//b", "a/\x00"} {
		if err := b.Create(t.Context(), key, nil); err == nil {
			t.Errorf("created %q", key)
		}
		if err := b.Delete(t.Context(), []string{key}); err == nil {
			t.Errorf("deleted %q", key)
		}
	}
}

// A process that holds the lock does not keep a writer for longer than its context.
func TestFolderWaitsForLockWithinContext(t *testing.T) {
	dir := t.TempDir()
	lock, err := os.Create(filepath.Join(dir, lockName))
	must(t, err)
	defer lock.Close()
	must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := opener(t, "file://"+dir)(Options{}).Replace(ctx, "x", nil, ""); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestFolderOfOtherUserIsRefused(t *testing.T) {
	u := otheruser.One(t)
	shared := otheruser.Shared(t)
	must(t, os.Chmod(shared, 0o777|fs.ModeSticky))
	for name, plant := range map[string]string{
		"owned":          "mkdir DIR",
		"a link":         "ln -s /root DIR",
		"below theirs":   "mkdir " + u.Home + "/mine; ln -s " + u.Home + "/mine DIR",
		"by all written": "",
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(shared, strings.ReplaceAll(name, " ", "-"))
			if plant == "" {
				must(t, os.Mkdir(dir, 0o700))
				must(t, os.Chmod(dir, 0o777))
			} else if out, code := u.Sh(t, strings.ReplaceAll(plant, "DIR", dir)); code != 0 {
				t.Fatal(out)
			}
			for _, at := range []string{dir, dir + "/run"} {
				b := opener(t, "file://"+at)(Options{})
				err := b.Create(t.Context(), "HEAD", []byte("secret"))
				_, got := b.Get(t.Context(), "HEAD", 10)
				for _, err := range []error{err, got} {
					if err == nil || !strings.Contains(err.Error(), "the store is not used: "+dir) ||
						strings.Contains(err.Error(), "\n") {
						t.Errorf("%s: %v", at, err)
					}
				}
			}
		})
	}
	// One that we made there is ours, and what they make in its place is not.
	dir := filepath.Join(shared, "ours")
	b := opener(t, "file://"+dir)(Options{})
	must(t, b.Create(t.Context(), "parts/x", []byte("secret")))
	if out, code := u.Sh(t, "ls "+dir+" || mv "+dir+" "+shared+"/moved"); code == 0 {
		t.Errorf("the other user reads or moves it: %s", out)
	}
}
