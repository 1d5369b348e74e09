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

// fault is what happens to a call of a store.
type fault int

const (
	// dies loses every call from one on, as a process does that ends before it.
	dies fault = iota
	// diesAfter carries the call out, and loses the answer and every later call.
	diesAfter
	// refused fails one call, which is not carried out.
	refused
	// unanswered carries one call out and loses its answer.
	unanswered
	// late carries one call out only when the next one comes, and loses its answer.
	late
	// repeated carries one call out twice, and gives the second answer.
	repeated
	faults
)

// never is a call that no writer reaches.
const never = 1 << 60

var errFault = errors.New("the connection broke")

// faulty is a store in which one call goes wrong.
type faulty struct {
	checkpoint.Backend
	at      int64
	fault   fault
	calls   atomic.Int64
	pending atomic.Pointer[func()]
	// kill ends the process instead.
	kill bool
}

func (f *faulty) call(do func() error) error {
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

func (f *faulty) Get(ctx context.Context, key string, limit int64) (o checkpoint.Object, err error) {
	err = f.call(func() (err error) { o, err = f.Backend.Get(ctx, key, limit); return err })
	return o, err
}

func (f *faulty) List(ctx context.Context, prefix string, each func(checkpoint.Info) error) error {
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

func (f *faulty) Create(ctx context.Context, key string, data []byte) error {
	data = append([]byte(nil), data...) // it may be carried out after the buffer is used again
	return f.call(func() error { return f.Backend.Create(context.WithoutCancel(ctx), key, data) })
}

func (f *faulty) Replace(ctx context.Context, key string, data []byte, on string) (v string, err error) {
	err = f.call(func() (err error) {
		v, err = f.Backend.Replace(context.WithoutCancel(ctx), key, data, on)
		return err
	})
	return v, err
}

func (f *faulty) Delete(ctx context.Context, keys []string) error {
	return f.call(func() error { return f.Backend.Delete(ctx, keys) })
}

func (f *faulty) Abandoned(ctx context.Context) (list []checkpoint.Upload, err error) {
	err = f.call(func() (err error) { list, err = f.Backend.Abandoned(ctx); return err })
	return list, err
}

// saves are two contents and what a writer does with them: two attempts, of which the
// second collects. It notes what it was told is saved.
func work(r checkpoint.Run, dir string, saved func(seq int64, step int)) error {
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
				Evidence: checkpoint.Evidence{Exited: true},
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

// sound holds a run against everything that must hold after any fault: HEAD names whole
// snapshots alone, the newest save that was completed can be restored as it was, and the
// next attempt goes on.
func sound(t *testing.T, r checkpoint.Run, seq int64, step int) {
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
	after := save(t, claim(t, r), dir, checkpoint.SaveOptions{Evidence: checkpoint.Evidence{Exited: true}})
	if after.Snapshot.Seq <= seq {
		t.Fatalf("the next snapshot is %d after %d", after.Snapshot.Seq, seq)
	}
	to, _ := restore(t, r, checkpoint.RestoreOptions{})
	same(t, dir, to)
}

// Every call of a writer's life goes wrong in every way.
func TestFaultAtEveryBoundary(t *testing.T) {
	count := &faulty{Backend: run(t, t.TempDir()).Store, at: never}
	if err := work(checkpoint.Run{Store: count, Now: time.Now}, t.TempDir(), func(int64, int) {}); err != nil {
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
				err := work(checkpoint.Run{Store: &faulty{Backend: r.Store, at: at, fault: f}, Now: time.Now}, t.TempDir(),
					func(s int64, n int) { seq, step = s, n })
				if err == nil && (f == dies || f == diesAfter) && at < total {
					t.Fatal("the fault was not noticed")
				}
				sound(t, r, seq, step)
			})
		}
	}
}

// A writer that is killed while it saves to a real S3 server, before or after any of its
// calls, leaves a run as sound as one that was told of the fault.
func TestKilledAnywhere(t *testing.T) {
	if at := os.Getenv("CHECKPOINT_KILLED_AT"); at != "" {
		killed(t, at)
		return
	}
	url := "s3://bucket/run"
	s := server(t)
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
				child := exec.Command(os.Args[0], "-test.run", "^TestKilledAnywhere$")
				child.Env = append(os.Environ(), fmt.Sprintf("CHECKPOINT_KILLED_AT=%d", n), fmt.Sprintf("CHECKPOINT_FAULT=%d", f),
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
				sound(t, s.run(t, url), seq, step)
			})
		}
	}
}

// killed is the writer that ends itself.
func killed(t *testing.T, at string) {
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
	r := checkpoint.Run{Store: &faulty{Backend: b, at: n, fault: fault(f), kill: true}, Now: time.Now}
	if err := work(r, os.Getenv("CHECKPOINT_DIR"), func(seq int64, step int) {
		fmt.Printf("saved %d %d\n", seq, step)
	}); err != nil {
		t.Fatal(err)
	}
}

// slow says that tests that take minutes run as well.
func slow() bool { return os.Getenv("CURFEW_SLOW") != "" }
