package scheduler

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/store"
)

// busyTable counts renewals, and blocks the renewal of one lease.
type busyTable struct {
	*table
	mu       sync.Mutex
	together []int
	apart    int
	busy     string
	wait     chan struct{}
}

func (b *busyTable) RenewAll(ctx context.Context, leases []store.Lease, length time.Duration) (lost,
	left []store.Lease, err error) {
	b.mu.Lock()
	b.together = append(b.together, len(leases))
	b.mu.Unlock()
	var free []store.Lease
	for _, l := range leases {
		if l.Name == b.busy {
			left = append(left, l)
		} else {
			free = append(free, l)
		}
	}
	lost, _, err = b.table.RenewAll(ctx, free, length)
	return lost, left, err
}

func (b *busyTable) Renew(ctx context.Context, l store.Lease, length time.Duration) (store.Lease, error) {
	if l.Name == b.busy {
		b.mu.Lock()
		b.apart++
		b.mu.Unlock()
		select {
		case <-b.wait:
		case <-ctx.Done():
			return l, ctx.Err()
		}
	}
	return b.table.Renew(ctx, l, length)
}

// TestRenewsLeasesTogether checks that one call renews all leases, and that a blocked one does not
// prevent the renewal of the others. It is renewed once it is free, or lost if that is too late.
func TestRenewsLeasesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := newDesk(), &busyTable{table: newTable(), busy: "s-07", wait: make(chan struct{})}
		var sources []Source
		for i := range 30 {
			sources = append(sources, d.source(fmt.Sprintf("s-%02d", i)))
		}
		s, end := begin(t, b, "one", sources...)
		time.Sleep(5 * time.Second)
		b.wait <- struct{}{}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		s.mu.Lock()
		held := len(s.held)
		s.mu.Unlock()
		b.mu.Lock()
		if n := len(b.together); n < 60 || n > 130 || b.together[n/2] < 29 {
			t.Errorf("%d renewals, of %v leases", n, b.together)
		}
		if b.apart < 2 {
			t.Errorf("the one that was in the way was renewed %d times", b.apart)
		}
		b.mu.Unlock()
		for i := range 30 {
			name := fmt.Sprintf("s-%02d", i)
			opened := d.opened[name]
			if lost := opened > 1; lost != (name == b.busy) {
				t.Errorf("%s was taken %d times", name, opened)
			}
		}
		if held < 29 {
			t.Errorf("%d sources are held", held)
		}
		end()
		all, _, err := b.All(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			if l.Until.After(time.Unix(0, 0)) && l.Name != b.busy {
				t.Errorf("%s is not given back", l.Name)
			}
		}
	})
}

// TestLimitsConcurrentFirstPasses checks that if many sources are taken at once, only some are read
// for the first time concurrently, and one that hangs does not block the others for long.
func TestLimitsConcurrentFirstPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		d.takes = time.Hour // all hang
		places := 4 * runtime.GOMAXPROCS(0)
		var sources []Source
		for i := range 3 * places {
			sources = append(sources, d.source(fmt.Sprintf("s-%d", i)))
		}
		_, end := begin(t, newTable(), "one", sources...)
		for i := range 3 {
			synctest.Wait()
			time.Sleep(time.Second)
			began := 0
			for _, src := range sources {
				began += len(d.made(src.Name))
			}
			if began != (i+1)*places {
				t.Errorf("after %s %d first rounds began, want %d", time.Duration(i)*beginFor, began, (i+1)*places)
			}
			time.Sleep(beginFor - time.Second)
		}
		end()
	})
}
