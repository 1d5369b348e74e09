// Package storm injects all faults at once: schedules of passes, scans, fixes, approvals, gates,
// extensions, keeps, freezes and kills on hosts with wrong clocks, with network faults in front of
// the provider and the database. Afterwards it checks the provider and the state directly.
package storm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// side is the number of concurrent schedules, which mostly wait.
const side = 10

// number reads an environment variable.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestStorm checks that whatever fails, nothing that worked or was kept is ended, nothing is done
// twice or without its approval, a scan changes nothing, no budget is overspent, and no charge is
// lost or invented. STORM_SCHEDULES and STORM_SEED say how many schedules from which seed; without
// them it is some fixed ones and some that are never the same. With STORM_LOG set it says what was
// done in each.
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes its time")
	}
	schedules, seed := number(t, "STORM_SCHEDULES", 0), number(t, "STORM_SEED", rand.Uint64N(1<<40))
	var seeds []uint64
	if schedules == 0 {
		for i := range uint64(8) {
			seeds = append(seeds, 1+i, seed+i)
		}
	}
	for i := range schedules {
		seeds = append(seeds, seed+i)
	}
	fmt.Printf("storm: seed %d\n", seed)
	s := newStand(t)
	began := time.Now()
	next := make(chan uint64)
	var all sync.WaitGroup
	var failed atomic.Int64
	for range side {
		all.Go(func() {
			for n := range next {
				if !schedule(t, s, n) {
					failed.Add(1)
				}
			}
		})
	}
	for i, n := range seeds {
		if schedules == 0 && time.Since(began) > 12*time.Second {
			break
		}
		next <- n
		if i++; i%100 == 0 {
			fmt.Printf("storm: %d schedules, %s, %s\n", i, time.Since(began).Round(time.Second), s)
		}
		if failed.Load() > 20 {
			break
		}
	}
	close(next)
	all.Wait()
	t.Logf("%s in %s", s, time.Since(began).Round(time.Second))
	if schedules >= 100 && min(s.ended.Load(), s.fixes.Load(), s.holds.Load(), s.approvals.Load(), s.restored.Load(),
		s.stalled.Load()) == 0 {
		t.Error("something was never done: the schedules show nothing of it")
	}
}

// String describes the schedule.
func (s *stand) String() string {
	return fmt.Sprintf("%d machines ended, %d fixes, %d holds, %d of them by approvals, %d states put back, %d "+
		"processes stopped, %d attempts of another user",
		s.ended.Load(), s.fixes.Load(), s.holds.Load(), s.approvals.Load(), s.restored.Load(), s.stalled.Load(),
		s.meddled.Load())
}

// schedule plays one schedule and reports whether it passed; an odd seed uses a shared PostgreSQL,
// an even one a file.
func schedule(t *testing.T, s *stand, seed uint64) bool {
	w, err := newWorld(t.Context(), s, seed)
	if w != nil {
		defer s.close(w)
	}
	if err == nil && seed%2 == 1 {
		err = s.share(t.Context(), w)
	}
	if err == nil {
		err = w.play(t.Context())
	}
	var wrong []string
	if err == nil {
		wrong, err = w.check(t.Context())
	}
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	log := ""
	if w != nil {
		s.restored.Add(int64(w.restored))
		log = strings.Join(w.log, "\n")
	}
	if os.Getenv("STORM_LOG") != "" {
		t.Logf("schedule %d:\n%s", seed, log)
	}
	if len(wrong) > 0 && t.Context().Err() == nil {
		t.Errorf("STORM_SEED=%d STORM_SCHEDULES=1:\n%s\n%s", seed, strings.Join(wrong, "\n"), log)
	}
	return len(wrong) == 0
}
