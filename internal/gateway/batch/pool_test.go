package batch

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sleeper is a server whose batch of n rows takes perRow·n + base. It answers each item with its
// own payload, and records the batches.
type sleeper struct {
	perRow, base time.Duration
	mu           sync.Mutex
	batches      [][]*Item
	fail         func(server string, items []*Item) error
}

func (s *sleeper) exchange(ctx context.Context, server string, items []*Item) (any, error) {
	rows := 0
	for _, it := range items {
		rows += it.Rows
	}
	s.mu.Lock()
	s.batches = append(s.batches, items)
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		if err := fail(server, items); err != nil {
			return nil, err
		}
	}
	select {
	case <-time.After(s.perRow*time.Duration(rows) + s.base):
		return server, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *sleeper) options(maxRows int) Options {
	return Options{
		MaxRows: maxRows, MaxBytes: 1 << 20, Aging: time.Second, Timeout: time.Minute, Exchange: s.exchange,
		Divide: func(items []*Item, _ any) ([]any, error) {
			out := make([]any, len(items))
			for i, it := range items {
				out[i] = it.Payload
			}
			return out, nil
		},
	}
}

// request is an item of one row.
func request(payload any) *Item {
	return &Item{Model: "m", Key: "k", Rows: 1, Bytes: 10, Payload: payload}
}

// poisson sends n items at a rate and returns their latencies; a failed one has -1.
func poisson(p *Pool, r *rand.Rand, rate float64, n int, deadline time.Duration) []time.Duration {
	out := make([]time.Duration, n)
	var wg sync.WaitGroup
	for i := range n {
		time.Sleep(time.Duration(r.ExpFloat64() / rate * float64(time.Second)))
		wg.Go(func() {
			it := request(i)
			start := time.Now()
			if deadline > 0 {
				it.Deadline = start.Add(deadline)
			}
			got, err := p.Do(context.Background(), it)
			if out[i] = time.Since(start); err != nil || got != i {
				out[i] = -1
			}
		})
	}
	wg.Wait()
	return out
}

// TestMeanLatencyOfPoissonArrivals holds the scheduler to the known mean of a queue that serves
// all that waits as one batch: 31.7 ms for 1 ms·n + 10 ms at 500 requests a second
// (Inoue, "Queueing analysis of GPU-based inference servers with dynamic batching", 2021).
func TestMeanLatencyOfPoissonArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{perRow: time.Millisecond, base: 10 * time.Millisecond}
		p := New(s.options(1000))
		p.SetServers([]string{"a"}, 1)
		var sum time.Duration
		all := poisson(p, rand.New(rand.NewPCG(1, 2)), 500, 30_000, 0)
		for i, d := range all {
			if d < 0 {
				t.Fatalf("request %d failed", i)
			}
			sum += d
		}
		mean := sum.Seconds() * 1000 / float64(len(all))
		if math.Abs(mean-31.7)/31.7 > 0.05 {
			t.Errorf("the mean latency is %.2f ms, want 31.7 within 5%%", mean)
		}
		line, ok := p.Fits()[0].Line, p.Fits()[0].Fitted
		if !ok || math.Abs(line.PerRow-0.001) > 2e-5 || math.Abs(line.Base-0.010) > 2e-4 {
			t.Errorf("fitted %+v", line)
		}
	})
}

// TestLoneCallerNeverWaits: one caller that waits for each answer gets it after the time of a
// batch of one.
func TestLoneCallerNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{perRow: time.Millisecond, base: 10 * time.Millisecond}
		p := New(s.options(32))
		p.SetServers([]string{"a"}, 1)
		poisson(p, rand.New(rand.NewPCG(5, 5)), 300, 500, 0) // measures the server
		if fits := p.Fits(); !fits[0].Fitted {
			t.Fatal("no line to decide by")
		}
		for range 100 {
			start := time.Now()
			if _, err := p.Do(context.Background(), request(1)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != 11*time.Millisecond {
				t.Fatalf("a lone request took %s, want 11 ms", took)
			}
		}
	})
}

// TestWaitingPaysInBursts: callers that come back together share one batch, although the slot was
// free when the first of them came.
func TestWaitingPaysInBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{perRow: 100 * time.Microsecond, base: 10 * time.Millisecond}
		p := New(s.options(64))
		p.SetServers([]string{"a"}, 1)
		poisson(p, rand.New(rand.NewPCG(5, 5)), 1000, 500, 0)
		burst := func() {
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 50 * time.Microsecond)
					_, _ = p.Do(context.Background(), request(i))
				})
			}
			wg.Wait()
			time.Sleep(time.Second)
			synctest.Wait()
		}
		burst() // shows the gaps within a burst
		before := len(s.batches)
		burst()
		if got := len(s.batches) - before; got != 1 {
			t.Errorf("a burst went out as %d batches", got)
		}
	})
}

// TestAnswersInTimeUnderOverload: at twice the peak with deadlines of 200 ms, at least 0.9 of what
// the server can do is answered in time, and no answer comes late.
func TestAnswersInTimeUnderOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{perRow: time.Millisecond, base: 10 * time.Millisecond}
		p := New(s.options(16))
		p.SetServers([]string{"a"}, 1)
		const peak = 16 / 0.026 // rows a second in batches of 16
		r := rand.New(rand.NewPCG(7, 7))
		poisson(p, r, peak/2, 2000, 0)
		start := time.Now()
		inTime := 0
		for i, d := range poisson(p, r, 2*peak, 20_000, 200*time.Millisecond) {
			if d > 200*time.Millisecond {
				t.Fatalf("request %d was answered after %s", i, d)
			}
			if d >= 0 {
				inTime++
			}
		}
		rate := float64(inTime) / time.Since(start).Seconds()
		if rate < 0.9*peak {
			t.Errorf("%.0f answers a second in time, want at least %.0f", rate, 0.9*peak)
		}
	})
}

func TestShedsOnArrivalWhatCannotBeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{perRow: time.Millisecond, base: 10 * time.Millisecond}
		p := New(s.options(8))
		p.SetServers([]string{"a"}, 1)
		poisson(p, rand.New(rand.NewPCG(9, 9)), 600, 3000, 0)
		for range 40 {
			go func() { _, _ = p.Do(context.Background(), request(0)) }()
		}
		synctest.Wait()
		it := request(1)
		it.Deadline = time.Now().Add(50 * time.Millisecond)
		start := time.Now()
		_, err := p.Do(context.Background(), it)
		var late *LateError
		if !errors.As(err, &late) || late.InQueue || late.Expected < 50*time.Millisecond || time.Since(start) > 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

func TestRowsNeverExceedTheMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{perRow: time.Millisecond, base: 10 * time.Millisecond}
		p := New(s.options(10))
		p.SetServers([]string{"a", "b"}, 1)
		r := rand.New(rand.NewPCG(11, 11))
		var wg sync.WaitGroup
		for i := range 3000 {
			time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
			it := request(i)
			it.Rows = 1 + r.IntN(10)
			wg.Go(func() {
				if got, err := p.Do(context.Background(), it); err != nil || got != i {
					t.Errorf("request %d: %v %v", i, got, err)
				}
			})
		}
		wg.Wait()
		full := 0
		last := map[string]int{}
		for _, items := range s.batches {
			rows := 0
			for _, it := range items {
				rows += it.Rows
			}
			if rows > 10 {
				t.Fatalf("a batch of %d rows", rows)
			}
			if rows == 10 {
				full++
			}
			if n := items[0].Payload.(int); n < last["first"] {
				t.Errorf("request %d was sent after %d", n, last["first"])
			} else {
				last["first"] = n
			}
		}
		if full == 0 {
			t.Error("no batch was full")
		}
	})
}

func TestPriorityAndAging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{base: 100 * time.Millisecond}
		p := New(s.options(1))
		p.SetServers([]string{"a"}, 1)
		send := func(name string, priority int) {
			it := request(name)
			it.Priority = priority
			go func() { _, _ = p.Do(context.Background(), it) }()
			synctest.Wait()
		}
		send("running", 0)
		send("old", 0)
		time.Sleep(50 * time.Millisecond)
		send("urgent", 1)
		send("urgent too", 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		send("running", 0)
		send("waits", 0)
		time.Sleep(2 * time.Millisecond)
		p.Configure(func() Options { o := s.options(1); o.Aging = time.Millisecond; return o }())
		send("urgent but later", 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var order []string
		for _, items := range s.batches {
			order = append(order, items[0].Payload.(string))
		}
		want := []string{"running", "urgent", "urgent too", "old", "running", "waits", "urgent but later"}
		for i := range want {
			if order[i] != want[i] {
				t.Fatalf("%q, want %q", order, want)
			}
		}
	})
}

func TestCanceledCallerLeavesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{base: time.Second}
		p := New(s.options(8))
		p.SetServers([]string{"a"}, 1)
		poisson(p, rand.New(rand.NewPCG(2, 2)), 2, 40, 0)
		s.batches = nil
		ctx, cancel := context.WithCancel(context.Background())
		ctxQueued, cancelQueued := context.WithCancel(context.Background())
		errs := make(chan error, 3)
		go func() { _, err := p.Do(ctx, request("first")); errs <- err }()
		synctest.Wait()
		go func() { _, err := p.Do(ctxQueued, request("queued")); errs <- err }()
		go func() { _, err := p.Do(context.Background(), request("stays")); errs <- err }()
		synctest.Wait()
		cancelQueued()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if n, rows, _ := p.Queued(); n != 0 || rows != 0 {
			t.Errorf("%d items of %d rows are queued: the canceled batch holds its slot", n, rows)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(s.batches) != 2 || len(s.batches[1]) != 1 || s.batches[1][0].Payload != "stays" {
			t.Errorf("batches: %d", len(s.batches))
		}
		failed := 0
		for range 3 {
			if err := <-errs; errors.Is(err, context.Canceled) {
				failed++
			}
		}
		if failed != 2 {
			t.Errorf("%d callers were told of the cancelation", failed)
		}
	})
}

func TestFailedBatchFailsAllUnlessIdempotent(t *testing.T) {
	for _, idempotent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			poison := errors.New("poison")
			s := &sleeper{base: time.Second}
			s.fail = func(_ string, items []*Item) error {
				for _, it := range items {
					if it.Payload == "bad" {
						return poison
					}
				}
				return nil
			}
			o := s.options(8)
			o.Idempotent = idempotent
			p := New(o)
			p.SetServers([]string{"a"}, 1)
			go func() { _, _ = p.Do(context.Background(), request("first")) }()
			synctest.Wait()
			var mu sync.Mutex
			got := map[any]error{}
			for _, name := range []string{"good", "bad", "fine"} {
				go func() {
					v, err := p.Do(context.Background(), request(name))
					if err == nil && v != name {
						err = errors.New("a foreign answer")
					}
					mu.Lock()
					defer mu.Unlock()
					got[name] = err
				}()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, name := range []string{"good", "fine"} {
				if (got[name] == nil) != idempotent {
					t.Errorf("idempotent %v: %s: %v", idempotent, name, got[name])
				}
			}
			if !errors.Is(got["bad"], poison) {
				t.Errorf("bad: %v", got["bad"])
			}
			if want := map[bool]int{false: 2, true: 5}[idempotent]; len(s.batches) != want {
				t.Errorf("idempotent %v: %d exchanges, want %d", idempotent, len(s.batches), want)
			}
		})
	}
}

func TestGoesToAnotherServerOnlyWhatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{base: 10 * time.Millisecond}
		s.fail = func(server string, _ []*Item) error {
			switch server {
			case "down":
				return &NotSentError{errors.New("connection refused")}
			case "broken":
				return errors.New("reset by peer")
			}
			return nil
		}
		p := New(s.options(1))
		p.SetServers([]string{"down", "up"}, 1)
		for range 3 {
			if _, err := p.Do(context.Background(), request(1)); err != nil {
				t.Error(err)
			}
		}
		if len(s.batches) != 4 {
			t.Errorf("%d exchanges, want one in vain and 3", len(s.batches))
		}
		p.SetServers([]string{"broken"}, 1)
		if _, err := p.Do(context.Background(), request(1)); err == nil || len(s.batches) != 5 {
			t.Errorf("%v after %d exchanges", err, len(s.batches))
		}
		p.SetHealthy("broken", false)
		if _, err := p.Do(context.Background(), request(1)); !errors.Is(err, ErrNoServer) {
			t.Error(err)
		}
	})
}

func TestReloadDropsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{perRow: time.Millisecond, base: 10 * time.Millisecond}
		p := New(s.options(4))
		p.SetServers([]string{"a", "b"}, 1)
		go func() {
			for i := range 200 {
				time.Sleep(7 * time.Millisecond)
				p.SetServers([][]string{{"a"}, {"b", "c"}, {"a", "b"}, {"c"}}[i%4], 1+i%2)
				p.Configure(s.options(2 + i%5))
			}
		}()
		for i, d := range poisson(p, rand.New(rand.NewPCG(4, 4)), 400, 600, 0) {
			if d < 0 {
				t.Errorf("request %d failed", i)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := len(p.Servers()); got != 1 {
			t.Errorf("%d servers are left", got)
		}
	})
}

func TestDrainAnswersAllAndRefusesNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{base: time.Second}
		p := New(s.options(2))
		p.SetServers([]string{"a"}, 1)
		errs := make(chan error, 7)
		for i := range 7 {
			go func() { _, err := p.Do(context.Background(), request(i)); errs <- err }()
		}
		synctest.Wait()
		start := time.Now()
		if err := p.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 4*time.Second {
			t.Errorf("closed after %s, before all batches ended", took)
		}
		for range 7 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if _, err := p.Do(context.Background(), request(1)); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

func TestQueueBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{base: time.Second}
		o := s.options(1)
		o.MaxBytes = 25
		p := New(o)
		p.SetServers([]string{"a"}, 1)
		for range 3 {
			go func() { _, _ = p.Do(context.Background(), request(1)) }()
		}
		synctest.Wait()
		if _, err := p.Do(context.Background(), request(1)); !errors.Is(err, ErrQueueFull) {
			t.Errorf("a third queued item of 10 bytes: %v", err)
		}
		big := request(1)
		big.Rows = 2
		if _, err := p.Do(context.Background(), big); !errors.Is(err, ErrTooManyRows) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

func TestStalledServerTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{base: time.Hour}
		p := New(s.options(1))
		p.SetServers([]string{"a"}, 1)
		start := time.Now()
		_, err := p.Do(context.Background(), request(1))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

// TestNextBatchGoesOutBeforeTheAnswerIsDivided: a server has nothing to do while the answers to the last
// batch are divided, so that waits. On one processor a goroutine that is merely started would come second.
func TestNextBatchGoesOutBeforeTheAnswerIsDivided(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const batches = 100
	var mu sync.Mutex
	var sent, divided []int // as numbers of events in their order
	events := 0
	note := func(list *[]int) {
		mu.Lock()
		defer mu.Unlock()
		events++
		*list = append(*list, events)
	}
	s := &sleeper{}
	o := s.options(1)
	divide := o.Divide
	queued := make(chan struct{})
	o.Exchange = func(context.Context, string, []*Item) (any, error) {
		<-queued
		note(&sent)
		return nil, nil
	}
	o.Divide = func(items []*Item, answer any) ([]any, error) {
		note(&divided)
		return divide(items, answer)
	}
	p := New(o)
	p.SetServers([]string{"a"}, 1)
	var wg sync.WaitGroup
	for i := range batches {
		wg.Go(func() {
			if got, err := p.Do(context.Background(), request(i)); err != nil || got != i {
				t.Errorf("request %d: %v, %v", i, got, err)
			}
		})
	}
	for {
		if n, _, _ := p.Queued(); n == batches-1 {
			break
		}
		runtime.Gosched()
	}
	close(queued)
	wg.Wait()
	late := 0
	for i := range batches - 1 {
		if sent[i+1] > divided[i] {
			late++
		}
	}
	if late > batches/10 { // the scheduler may preempt a goroutine anywhere
		t.Errorf("%d of %d batches went out after the answer before them was divided", late, batches-1)
	}
}
