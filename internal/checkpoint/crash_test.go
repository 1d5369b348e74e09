package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/objectstore"
)

// fault describes how a call of a store fails.
type fault int

const (
	// dies loses every call from this one on, as in a crash before it.
	dies fault = iota
	// diesAfter executes the call and loses its response and every later call.
	diesAfter
	// refused fails one call without executing it.
	refused
	// unanswered executes one call and loses its response.
	unanswered
	// late executes one call when the next one comes, and loses its response.
	late
	// repeated executes one call twice and returns the second response.
	repeated
	faults
)

// noCall is the number of a call that no writer reaches.
const noCall = 1 << 60

var errFault = errors.New("the connection broke")

// faultyStore is a store in which one call fails.
type faultyStore struct {
	checkpoint.Backend
	at      int64
	fault   fault
	calls   atomic.Int64
	pending atomic.Pointer[func()]
	// kill ends the process instead of failing the call.
	kill bool
}

func (f *faultyStore) call(do func() error) error {
	n := f.calls.Add(1)
	if pending := f.pending.Swap(nil); pending != nil {
		(*pending)()
	}
	die := func() {
		if f.kill {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	switch {
	case n == f.at && f.fault == dies:
		die()
		return errFault
	case n == f.at && f.fault == diesAfter:
		_ = do()
		die()
		return errFault
	case n > f.at && (f.fault == dies || f.fault == diesAfter):
		return errFault
	case n != f.at:
		return do()
	case f.fault == refused:
		return errFault
	case f.fault == unanswered:
		_ = do()
		return errFault
	case f.fault == late:
		carry := func() { _ = do() }
		f.pending.Store(&carry)
		return errFault
	}
	_ = do()
	return do()
}

func (f *faultyStore) Get(ctx context.Context, key string, limit int64) (o checkpoint.Object, err error) {
	err = f.call(func() (err error) { o, err = f.Backend.Get(ctx, key, limit); return err })
	return o, err
}

func (f *faultyStore) List(ctx context.Context, prefix string, each func(checkpoint.Info) error) error {
	var list []checkpoint.Info
	err := f.call(func() error {
		list = nil
		return f.Backend.List(ctx, prefix, func(i checkpoint.Info) error { list = append(list, i); return nil })
	})
	for _, i := range list {
		if err == nil {
			err = each(i)
		}
	}
	return err
}

func (f *faultyStore) Create(ctx context.Context, key string, data []byte) error {
	data = append([]byte(nil), data...) // it may be carried out after the buffer is used again
	return f.call(func() error { return f.Backend.Create(context.WithoutCancel(ctx), key, data) })
}

func (f *faultyStore) Replace(ctx context.Context, key string, data []byte, on string) (v string, err error) {
	err = f.call(func() (err error) {
		v, err = f.Backend.Replace(context.WithoutCancel(ctx), key, data, on)
		return err
	})
	return v, err
}

func (f *faultyStore) Delete(ctx context.Context, keys []string) error {
	return f.call(func() error { return f.Backend.Delete(ctx, keys) })
}

func (f *faultyStore) Abandoned(ctx context.Context) (list []checkpoint.Upload, err error) {
	err = f.call(func() (err error) { list, err = f.Backend.Abandoned(ctx); return err })
	return list, err
}

// saves are two contents and what a writer does with them: two attempts, of which the
// second collects. It notes what it was told is saved.
func runWriter(r checkpoint.Run, dir string, saved func(seq int64, step int)) error {
	for step := range 4 {
		a, err := r.Claim(context.Background(), "worker")
		if err != nil {
			return err
		}
		for range 2 { // a save that failed is tried again, as an agent does
			if err = os.WriteFile(filepath.Join(dir, "weights"), random(step, 300_000), 0o644); err != nil {
				return err
			}
			var got checkpoint.Result
			if got, err = a.Save(context.Background(), dir, checkpoint.SaveOptions{
				Evidence: checkpoint.Evidence{WriterExited: true},
			}); err == nil {
				saved(got.Snapshot.Seq, step)
				break
			}
		}
		if err != nil {
			return err
		}
		if _, err := a.Collect(context.Background(), checkpoint.Retention{Keep: 2}); err != nil {
			return err
		}
	}
	return nil
}

// checkRun checks the invariants after any fault: HEAD names only whole snapshots, the newest
// completed save can be restored, and the next attempt continues.
func checkRun(t *testing.T, r checkpoint.Run, seq int64, step int) {
	t.Helper()
	list, notes, err := r.Snapshots(t.Context())
	if errors.Is(err, checkpoint.ErrNotFound) && seq == 0 {
		return
	}
	if err != nil || len(notes) > 0 {
		t.Fatalf("snapshots: %v, %v", notes, err)
	}
	if len(list) > 0 {
		v, err := r.Verify(t.Context(), 0, 2, nil)
		if err != nil || len(v.Damage) > 0 {
			t.Fatalf("HEAD names what is damaged: %+v, %v", v.Damage, err)
		}
	}
	if seq > 0 {
		to, done := restore(t, r, checkpoint.RestoreOptions{})
		got, err := os.ReadFile(filepath.Join(to, "weights"))
		if err != nil {
			t.Fatal(err)
		}
		// A save that was carried out and not told may be there too.
		if done.Snapshot.Seq < seq || done.Snapshot.Seq == seq && string(got) != string(random(step, 300_000)) ||
			len(done.Skipped) > 0 {
			t.Fatalf("snapshot %d was completed with step %d; restored is snapshot %d", seq, step, done.Snapshot.Seq)
		}
	}
	dir := t.TempDir()
	write(t, dir, "weights", random(99, 300_000))
	after := save(t, claim(t, r), dir, checkpoint.SaveOptions{Evidence: checkpoint.Evidence{WriterExited: true}})
	if after.Snapshot.Seq <= seq {
		t.Fatalf("the next snapshot is %d after %d", after.Snapshot.Seq, seq)
	}
	to, _ := restore(t, r, checkpoint.RestoreOptions{})
	same(t, dir, to)
}

// TestFaultAtEveryCall injects every fault at every call of a writer.
func TestFaultAtEveryCall(t *testing.T) {
	count := &faultyStore{Backend: run(t, t.TempDir()).Store, at: noCall}
	if err := runWriter(checkpoint.Run{Store: count, Now: time.Now}, t.TempDir(), func(int64, int) {}); err != nil {
		t.Fatal(err)
	}
	total := count.calls.Load()
	if total < 30 {
		t.Fatalf("a writer's life has %d calls", total)
	}
	every := int64(23)
	if slow() {
		every = 1
	}
	for f := range faults {
		for at := int64(1); at <= total; at++ {
			if (at+int64(f))%every != 0 {
				continue
			}
			t.Run(fmt.Sprintf("fault %d at call %d", f, at), func(t *testing.T) {
				r := run(t, t.TempDir())
				var seq int64
				var step int
				err := runWriter(checkpoint.Run{
					Store: &faultyStore{Backend: r.Store, at: at, fault: f}, Now: time.Now,
				},
					t.TempDir(),
					func(s int64, n int) { seq, step = s, n })
				if err == nil && (f == dies || f == diesAfter) && at < total {
					t.Fatal("the fault was not noticed")
				}
				checkRun(t, r, seq, step)
			})
		}
	}
}

// TestKilledAtEveryCall kills a writer to a real S3 server before and after each of its calls.
func TestKilledAtEveryCall(t *testing.T) {
	if at := os.Getenv("CHECKPOINT_KILLED_AT"); at != "" {
		runKilledWriter(t, at)
		return
	}
	url := "s3://bucket/run"
	s := s3Server(t)
	count := int64(40)
	every := int64(13)
	if slow() {
		every = 1
	}
	for n := int64(1); n <= count; n++ {
		if n%every != 0 {
			continue
		}
		for _, f := range []fault{dies, diesAfter} {
			t.Run(fmt.Sprintf("call %d fault %d", n, f), func(t *testing.T) {
				url = s.url(t)
				dir := t.TempDir()
				child := exec.Command(os.Args[0], "-test.run", "^TestKilledAtEveryCall$")
				child.Env = append(os.Environ(), fmt.Sprintf("CHECKPOINT_KILLED_AT=%d", n),
					fmt.Sprintf("CHECKPOINT_FAULT=%d", f),
					"CHECKPOINT_DIR="+dir, "CHECKPOINT_URL="+url)
				said, err := child.Output()
				if exit := (*exec.ExitError)(nil); err != nil &&
					(!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
					t.Fatalf("%v: %s", err, said)
				}
				var seq int64
				var step int
				for line := range strings.Lines(string(said)) {
					if rest, ok := strings.CutPrefix(line, "saved "); ok {
						if _, err := fmt.Sscan(rest, &seq, &step); err != nil {
							t.Fatal(err)
						}
					}
				}
				checkRun(t, s.run(t, url), seq, step)
			})
		}
	}
}

// runKilledWriter is the writer process that kills itself.
func runKilledWriter(t *testing.T, at string) {
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	f, err := strconv.Atoi(os.Getenv("CHECKPOINT_FAULT"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := objectstore.Open(t.Context(), os.Getenv("CHECKPOINT_URL"), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := checkpoint.Run{Store: &faultyStore{Backend: b, at: n, fault: fault(f), kill: true}, Now: time.Now}
	if err := runWriter(r, os.Getenv("CHECKPOINT_DIR"), func(seq int64, step int) {
		fmt.Printf("saved %d %d\n", seq, step)
	}); err != nil {
		t.Fatal(err)
	}
}

// slow reports whether tests that take minutes run.
func slow() bool { return os.Getenv("CURFEW_SLOW") != "" }
