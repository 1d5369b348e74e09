package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/test/versitygw"
)

// stores are the same suite's subjects.
func stores(t *testing.T, each func(t *testing.T, open func(o Options) checkpoint.Backend)) {
	t.Run("folder", func(t *testing.T) {
		dir := "file://" + t.TempDir() + "/run"
		each(t, opener(t, dir))
	})
	t.Run("S3", func(t *testing.T) {
		versitygw.Start(t).Use(t)
		each(t, opener(t, "s3://"+versitygw.Bucket+"/team/run"))
	})
}

func opener(t *testing.T, url string) func(o Options) checkpoint.Backend {
	return func(o Options) checkpoint.Backend {
		b, err := Open(t.Context(), url, o)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func TestStores(t *testing.T) {
	stores(t, func(t *testing.T, open func(o Options) checkpoint.Backend) {
		ctx, b := t.Context(), open(Options{})
		if _, err := b.Get(ctx, "HEAD", 10); !errors.Is(err, checkpoint.ErrNotFound) {
			t.Fatalf("Get of nothing: %v", err)
		}
		if _, err := b.Replace(ctx, "HEAD", []byte("x"), `"no"`); !errors.Is(err, checkpoint.ErrConflict) {
			t.Fatalf("Replace of nothing: %v", err)
		}
		if err := b.Create(ctx, "parts/1/a", []byte("first")); err != nil {
			t.Fatal(err)
		}
		if err := b.Create(ctx, "parts/1/a", []byte("second")); !errors.Is(err, checkpoint.ErrExists) {
			t.Fatalf("Create of what is there: %v", err)
		}
		got, err := b.Get(ctx, "parts/1/a", 5)
		if err != nil || string(got.Data) != "first" {
			t.Fatalf("Get: %q, %v", got.Data, err)
		}
		if _, err := b.Get(ctx, "parts/1/a", 4); !errors.Is(err, checkpoint.ErrTooLarge) {
			t.Fatalf("Get of what is too large: %v", err)
		}
		v1, err := b.Replace(ctx, "HEAD", []byte("one"), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Replace(ctx, "HEAD", []byte("two"), ""); !errors.Is(err, checkpoint.ErrConflict) {
			t.Fatalf("Replace of what should not be there: %v", err)
		}
		v2, err := b.Replace(ctx, "HEAD", []byte("two"), v1)
		if err != nil || v2 == v1 {
			t.Fatalf("Replace: %q after %q, %v", v2, v1, err)
		}
		if _, err := b.Replace(ctx, "HEAD", []byte("three"), v1); !errors.Is(err, checkpoint.ErrConflict) {
			t.Fatalf("Replace of an old version: %v", err)
		}
		got, err = b.Get(ctx, "HEAD", 100)
		if err != nil || string(got.Data) != "two" || got.Version != v2 {
			t.Fatalf("Get: %q %q, %v; want version %q", got.Data, got.Version, err, v2)
		}
		if want := []string{"HEAD", "parts/1/a"}; !slices.Equal(keys(t, b, ""), want) {
			t.Errorf("List: %v, want %v", keys(t, b, ""), want)
		}
		if want := []string{"parts/1/a"}; !slices.Equal(keys(t, b, "parts/"), want) {
			t.Errorf("List of parts: %v, want %v", keys(t, b, "parts/"), want)
		}
		if err := b.Delete(ctx, []string{"parts/1/a", "parts/1/none"}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"HEAD"}; !slices.Equal(keys(t, b, ""), want) {
			t.Errorf("List after Delete: %v, want %v", keys(t, b, ""), want)
		}
	})
}

func keys(t *testing.T, b checkpoint.Backend, prefix string) (list []string) {
	t.Helper()
	if err := b.List(t.Context(), prefix, func(i checkpoint.Info) error {
		if time.Since(i.Modified).Abs() > time.Hour {
			t.Errorf("%s is of %s", i.Key, i.Modified)
		}
		list = append(list, i.Key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// Of many writers at once, on the same version or none, exactly one wins, in every round.
func TestOneWriterWins(t *testing.T) {
	stores(t, func(t *testing.T, open func(o Options) checkpoint.Backend) {
		const writers, rounds = 8, 150
		b := open(Options{})
		version := ""
		for round := range rounds {
			won := make([]string, writers)
			created := make([]bool, writers)
			var all sync.WaitGroup
			for w := range writers {
				all.Go(func() {
					data := fmt.Appendf(nil, "round %d writer %d", round, w)
					v, err := b.Replace(t.Context(), "HEAD", data, version)
					if err == nil {
						won[w] = v
					} else if !errors.Is(err, checkpoint.ErrConflict) {
						t.Errorf("Replace: %v", err)
					}
					err = b.Create(t.Context(), fmt.Sprintf("parts/%d", round), data)
					if created[w] = err == nil; err != nil && !errors.Is(err, checkpoint.ErrExists) {
						t.Errorf("Create: %v", err)
					}
				})
			}
			all.Wait()
			winners := slices.DeleteFunc(slices.Clone(won), func(v string) bool { return v == "" })
			if len(winners) != 1 {
				t.Fatalf("round %d: %d writers replaced the same version", round, len(winners))
			}
			version = winners[0]
			w := slices.Index(won, version)
			got, err := b.Get(t.Context(), "HEAD", 100)
			if want := fmt.Sprintf("round %d writer %d", round, w); err != nil || string(got.Data) != want ||
				got.Version != version {
				t.Fatalf("HEAD is %q version %q, %v; want %q version %q", got.Data, got.Version, err, want, version)
			}
			if n := len(slices.DeleteFunc(created, func(ok bool) bool { return !ok })); n != 1 {
				t.Fatalf("round %d: %d writers created the same object", round, n)
			}
		}
	})
}

func TestAbandonedUploads(t *testing.T) {
	t.Run("folder", func(t *testing.T) {
		dir := t.TempDir()
		b := opener(t, "file://"+dir)(Options{})
		left := filepath.Join(dir, "parts", "1-a", unfinished+"7")
		if err := os.MkdirAll(filepath.Dir(left), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(left, []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
		abort(t, b, 1)
		if _, err := os.Stat(left); !os.IsNotExist(err) {
			t.Errorf("the file is still there: %v", err)
		}
	})
	t.Run("S3", func(t *testing.T) {
		versitygw.Start(t).Use(t)
		b := opener(t, "s3://"+versitygw.Bucket+"/run")(Options{}).(*bucket)
		if _, err := b.api.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{
			Bucket: &b.name, Key: b.key("parts/x"),
		}); err != nil {
			t.Fatal(err)
		}
		abort(t, b, 1)
	})
}

func abort(t *testing.T, b checkpoint.Backend, want int) {
	t.Helper()
	list, err := b.Abandoned(t.Context())
	if err != nil || len(list) != want {
		t.Fatalf("abandoned: %v, %v; want %d", list, err, want)
	}
	if n := len(keys(t, b, "")); n != 0 {
		t.Errorf("what is unfinished is listed: %d objects", n)
	}
	for _, u := range list {
		if time.Since(u.Begun).Abs() > time.Hour {
			t.Errorf("%s begun %s", u.Key, u.Begun)
		}
		if err := b.Abort(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := b.Abandoned(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("abandoned after abort: %v, %v", list, err)
	}
}

func TestBandwidth(t *testing.T) {
	stores(t, func(t *testing.T, open func(o Options) checkpoint.Backend) {
		const limit, size = 4 << 20, 2 << 20
		b := open(Options{Bandwidth: limit})
		start := time.Now()
		if err := b.Create(t.Context(), "parts/a", bytes.Repeat([]byte{1}, size)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 400*time.Millisecond {
			t.Errorf("%d bytes at %d bytes a second took %s", size, limit, took)
		}
	})
}

func TestURLs(t *testing.T) {
	for _, bad := range []string{
		"", "x", "s3://", "s3://bucket", "s3://bucket/", "file://host/dir", "file:///", "https://bucket/x",
		"s3://bucket/x?y=1", "s3://u@bucket/x",
	} {
		if b, err := Open(context.Background(), bad, Options{}); err == nil {
			t.Errorf("%q is %v", bad, b)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
