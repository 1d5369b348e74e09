package checkpoint_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/objectstore"
	"github.com/curfew-dev/curfew/test/faultproxy"
	"github.com/curfew-dev/curfew/test/versitygw"
)

// s3 is a real S3 server for this process.
type s3 struct {
	*versitygw.Server
	runs int
}

func s3Server(t *testing.T) *s3 {
	s := &s3{Server: versitygw.Start(t)}
	s.Use(t)
	return s
}

// url is that of a fresh run.
func (s *s3) url(*testing.T) string {
	s.runs++
	return fmt.Sprintf("s3://%s/run-%d", versitygw.Bucket, s.runs)
}

func (s *s3) run(t testing.TB, url string) checkpoint.Run {
	t.Helper()
	b, err := objectstore.Open(context.Background(), url, objectstore.Options{Stall: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint.Run{Store: b, Now: time.Now}
}

// dir is where the server keeps a run, as files.
func (s *s3) dir(url string) string {
	return filepath.Join(s.Dir, strings.TrimPrefix(url, "s3://"))
}

// before stands between the SDK and the server.
func (s *s3) before(t *testing.T, handler func(next http.Handler) http.Handler) {
	t.Helper()
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.Address()})
	behind.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	behind.ErrorLog = nil
	p := faultproxy.NewHTTP(handler(behind))
	t.Cleanup(p.Close)
	versitygw.Use(t, strings.TrimPrefix(p.URL(), "http://"))
}

// TestOneWriterWins checks that at most one of several concurrent claims wins, and that the newest
// snapshot is one that was reported as saved.
func TestOneWriterWins(t *testing.T) {
	s := s3Server(t)
	at := s.url(t)
	rounds, writers := 15, 6
	if slow() {
		rounds = 200
	}
	epoch := int64(0)
	for round := range rounds {
		var won atomic.Int64
		var newest atomic.Int64
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				r := s.run(t, at)
				a, err := r.Claim(t.Context(), fmt.Sprintf("writer %d", w))
				if errors.Is(err, checkpoint.ErrFenced) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "weights"), random(round*10+w, 100_000), 0o644); err != nil {
					t.Error(err)
				}
				got, err := a.Save(t.Context(), dir, checkpoint.SaveOptions{
					Evidence: checkpoint.Evidence{WriterExited: true},
				})
				if errors.Is(err, checkpoint.ErrFenced) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				won.Add(1)
				newest.Store(max(newest.Load(), got.Snapshot.Seq))
			})
		}
		all.Wait()
		h, _, err := s.run(t, at).ReadHead(t.Context())
		if err != nil || h.Epoch <= epoch {
			t.Fatalf("round %d: epoch %d after %d, %v", round, h.Epoch, epoch, err)
		}
		epoch = h.Epoch
		if won.Load() > 0 && h.Snapshots[0].Seq != newest.Load() {
			t.Fatalf("round %d: the newest snapshot is %d, saved were up to %d", round,
				h.Snapshots[0].Seq, newest.Load())
		}
	}
	if v, err := s.run(t, at).Verify(t.Context(), 0, 2, nil); err != nil || len(v.Damage) > 0 {
		t.Fatalf("verify: %+v, %v", v.Damage, err)
	}
}

// TestSurvivesServerKill kills the server before or after requests and restarts it.
func TestSurvivesServerKill(t *testing.T) {
	s := s3Server(t)
	every := int64(20)
	if slow() {
		every = 1
	}
	var n, at atomic.Int64
	var after atomic.Bool
	var mu sync.RWMutex
	crash := func() {
		mu.Lock() // requests under way end when the server does
		defer mu.Unlock()
		s.Kill()
		if err := s.Restart(); err != nil {
			t.Error(err)
		}
	}
	s.before(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hit := n.Add(1) == at.Load()
			if hit && !after.Load() {
				go crash()
				time.Sleep(2 * time.Millisecond)
			}
			next.ServeHTTP(w, r)
			if hit && after.Load() {
				crash()
				panic(http.ErrAbortHandler)
			}
		})
	})
	for call := int64(1); call <= 45; call++ {
		for _, late := range []bool{false, true} {
			if call%every != 0 {
				continue
			}
			t.Run(fmt.Sprintf("call %d after %v", call, late), func(t *testing.T) {
				url := s.url(t)
				n.Store(0)
				at.Store(call)
				after.Store(late)
				var seq int64
				var step int
				// it may fail, and must say so
				_ = runWriter(s.run(t, url), t.TempDir(), func(s int64, n int) { seq, step = s, n })
				at.Store(-1)
				mu.RLock()
				defer mu.RUnlock()
				checkRun(t, s.run(t, url), seq, step)
			})
		}
	}
}

// TestSurvivesBadNetwork loses, cuts, repeats, delays and falsifies responses.
func TestSurvivesBadNetwork(t *testing.T) {
	s := s3Server(t)
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.Address()})
	behind.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	p := faultproxy.NewHTTP(behind)
	t.Cleanup(p.Close)
	seeds := 2
	if slow() {
		seeds = 60
	}
	done, failed := 0, 0
	for seed := range seeds {
		at := s.url(t)
		versitygw.Use(t, strings.TrimPrefix(p.URL(), "http://"))
		p.Forget()
		p.Storm(uint64(seed+1), 0.15)
		var seq int64
		var step int
		if err := runWriter(s.run(t, at), t.TempDir(), func(s int64, n int) { seq, step = s, n }); err != nil {
			failed++
		} else {
			done++
		}
		p.Calm()
		s.Use(t)
		checkRun(t, s.run(t, at), seq, step)
	}
	t.Logf("%d writers got through, %d failed", done, failed)
}

// TestRetriesStalledRequest checks that a stalled request is given up and retried.
func TestRetriesStalledRequest(t *testing.T) {
	s := s3Server(t)
	var n atomic.Int64
	release := make(chan struct{})
	defer close(release)
	s.before(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && n.Add(1)%2 == 0 {
				<-release
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	dir := t.TempDir()
	write(t, dir, "weights", random(1, 1<<20))
	r := s.run(t, s.url(t))
	started := time.Now()
	save(t, claim(t, r), dir, checkpoint.SaveOptions{Evidence: checkpoint.Evidence{WriterExited: true}})
	if n.Load() < 4 || time.Since(started) > 2*time.Minute {
		t.Errorf("%d requests in %s", n.Load(), time.Since(started))
	}
	to, _ := restore(t, r, checkpoint.RestoreOptions{})
	same(t, dir, to)
}

func TestWrongClockIsHarmless(t *testing.T) {
	s := s3Server(t)
	r := s.run(t, s.url(t))
	dir := t.TempDir()
	for i, at := range []time.Time{
		time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Now(),
	} {
		r.Now = func() time.Time { return at }
		write(t, dir, "weights", random(i, 300_000))
		a := claim(t, r)
		save(t, a, dir, checkpoint.SaveOptions{})
		got, err := a.Collect(t.Context(), checkpoint.Retention{Keep: 1})
		if err != nil || got.Deleted != 0 {
			t.Fatalf("collected %+v, %v: nothing is a day old by the store's clock", got, err)
		}
	}
	checkRun(t, r, 3, 2)
}

// TestScriptFindsSameDamage checks that a script written from the format's document agrees with
// Verify.
func TestScriptFindsSameDamage(t *testing.T) {
	python := versitygw.Python(t)
	s := s3Server(t)
	at := s.url(t)
	r := s.run(t, at)
	dir := t.TempDir()
	fillFolder(t, dir)
	a := claim(t, r)
	for i := range 3 {
		write(t, dir, "new", random(50+i, 200_000))
		save(t, a, dir, checkpoint.SaveOptions{Evidence: checkpoint.Evidence{WriterExited: true}})
	}
	prefix := strings.TrimPrefix(at, "s3://"+versitygw.Bucket+"/")
	script := func(folder ...string) (said struct {
		Whole  []int64
		Damage map[string]string
	}) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), python,
			append([]string{"testdata/verify.py", versitygw.Bucket, prefix},
				folder...)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &said); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return said
	}
	back := t.TempDir()
	if got := script(back); !cmp.Equal(got.Whole, []int64{3, 2, 1}) || len(got.Damage) != 0 {
		t.Fatalf("the script says %+v", got)
	}
	for name, e := range tree(t, dir) {
		if e.SHA != "" && tree(t, back)[name].SHA != e.SHA && e.Same == "" {
			t.Errorf("the script's %s is another", name)
		}
	}
	h := a.Head()
	m, err := r.ReadManifest(t.Context(), h.Snapshots[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(s.dir(at), m.Parts[len(m.Parts)-1].Key), 1000)
	if got := script(); !cmp.Equal(got.Whole, []int64{2, 1}) || len(got.Damage) != 1 {
		t.Errorf("the script says %+v of a flipped bit", got)
	}
}

// flip changes one bit of a file.
func flip(t testing.TB, at string, bit int64) {
	t.Helper()
	f, err := os.OpenFile(at, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, bit/8); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	b[0] ^= 1 << (bit % 8)
	if _, err := f.WriteAt(b, bit/8); err != nil {
		t.Fatal(err)
	}
}
