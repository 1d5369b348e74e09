package checkpoint_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/objectstore"
)

// run opens a run in a folder.
func run(t testing.TB, store string) checkpoint.Run {
	t.Helper()
	b, err := objectstore.Open(context.Background(), "file://"+store, objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint.Run{Store: b, Now: time.Now}
}

func claim(t testing.TB, r checkpoint.Run) *checkpoint.Attempt {
	t.Helper()
	a, err := r.Claim(context.Background(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func save(t testing.TB, a *checkpoint.Attempt, dir string, o checkpoint.SaveOptions) checkpoint.Result {
	t.Helper()
	got, err := a.Save(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// random returns incompressible content.
func random(seed, size int) []byte {
	data := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(data)
	return data
}

func write(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	at := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// entry is the expected content under a name after a restore.
type entry struct {
	Mode     fs.FileMode
	Modified time.Time
	Target   string
	SHA      string
	Same     string // the first name of the same file
}

// tree reads a folder independently of the package under test.
func tree(t testing.TB, dir string) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	var files []string
	var infos []fs.FileInfo
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, at)
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := entry{Mode: info.Mode()}
		if info.Mode()&fs.ModeSymlink != 0 {
			e.Target, _ = os.Readlink(at)
		} else {
			e.Modified = info.ModTime().UTC()
		}
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			e.SHA = fmt.Sprintf("%d %x", len(data), bytesSum(data))
			for i, other := range infos {
				if os.SameFile(info, other) {
					e.Same = files[i]
					break
				}
			}
			files, infos = append(files, rel), append(infos, info)
		}
		all[rel] = e
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func same(t testing.TB, want, got string) {
	t.Helper()
	if diff := cmp.Diff(tree(t, want), tree(t, got)); diff != "" {
		t.Fatalf("%s -, %s +\n%s", want, got, diff)
	}
}

func restore(t testing.TB, r checkpoint.Run, o checkpoint.RestoreOptions) (string, checkpoint.RestoreResult) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "back")
	got, err := r.Restore(context.Background(), to, o)
	if err != nil {
		t.Fatal(err)
	}
	return to, got
}

// change overwrites a share of a content at random places, in runs of so many bytes.
func change(data []byte, seed uint64, share float64, length int) []byte {
	data = bytes.Clone(data)
	r := rand.New(rand.NewPCG(seed, 1))
	for range int(share * float64(len(data)) / float64(length)) {
		at := r.IntN(len(data) - length)
		for i := range length {
			data[at+i] ^= byte(r.Uint32() | 1)
		}
	}
	return data
}

// insert puts new runs of so many bytes into a content.
func insert(data []byte, seed uint64, share float64, length int) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range int(share * float64(len(data)) / float64(length)) {
		at := r.IntN(len(data))
		data = append(append(bytes.Clone(data[:at]), random(int(seed)+i, length)...), data[at:]...)
	}
	return data
}
