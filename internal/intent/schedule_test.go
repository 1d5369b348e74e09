package intent_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/intent/intenttest"
)

// died ends a process in these tests.
type died struct{}

// TestSchedules checks for random schedules of two processes, kills, clocks, faults and late
// look-ups that a key has at most one effect, that every call follows a recent intent, and that the
// journal finally matches the provider.
func TestSchedules(t *testing.T) {
	schedules := 500
	if os.Getenv("CURFEW_SLOW") != "" {
		schedules = 20000
	}
	first := rand.Uint64()
	for i := range schedules {
		seed := first + uint64(i)
		if schedule(t, seed); t.Failed() {
			t.Fatalf("schedule of seed %d", seed)
		}
	}
}

func schedule(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 17))
	w := newWorld(rnd.IntN(2) == 0)
	w.provider.Delay(time.Duration(rnd.IntN(45))*time.Second, rnd.IntN(3))
	faults := []intenttest.Fault{
		{On: "launch", Message: "reset", Carried: true}, {On: "launch", Message: "unavailable"}, {On: "launch"},
		{On: "launch", Message: "none", Class: "capacity"}, {On: "look", Message: "throttled"},
	}
	// process runs a pass; at any boundary it may end, be suspended, or be interleaved with another
	// one.
	var process func(depth int)
	process = func(depth int) {
		defer func() {
			if v := recover(); v != nil && v != (died{}) {
				panic(v)
			}
		}()
		_, _, err := w.pass(func() {
			switch rnd.IntN(12) {
			case 0:
				panic(died{})
			case 1:
				if depth < 2 {
					process(depth + 1)
				}
			case 2:
				w.now = w.now.Add(time.Duration(rnd.IntN(1500)) * time.Millisecond) // no call exceeds Patience
			}
		})
		var unread *intent.Unread
		if err != nil && !errors.Is(err, intent.ErrConflict) && !errors.As(err, &unread) {
			t.Errorf("a pass: %v", err)
		}
	}
	for range 1 + rnd.IntN(8) {
		if rnd.IntN(3) == 0 {
			w.provider.Fail(faults[rnd.IntN(len(faults))])
		}
		process(0)
		switch rnd.IntN(6) {
		case 0:
			w.now = w.now.Add(time.Duration(rnd.IntN(8)) * time.Minute)
		case 1:
			w.now = w.now.Add(-time.Duration(rnd.IntN(90)) * time.Second)
		}
	}
	// No more faults occur, and time passes.
	var out intent.Outcome
	for range 40 { // 20 minutes
		var err error
		w.now = w.now.Add(30 * time.Second)
		if _, out, err = w.pass(nil); err != nil {
			var unread *intent.Unread
			if !errors.As(err, &unread) {
				t.Errorf("at last: %v", err)
			}
		}
	}
	calls, effects := w.provider.Calls(), w.provider.Effects()
	if len(effects) > 1 {
		t.Errorf("%d effects of one key: %+v", len(effects), calls)
	}
	switch out {
	case intent.Done:
		if len(effects) != 1 {
			t.Error("it is confirmed, and nothing was done")
		}
	case intent.Rejected, intent.Lapsed:
		if len(effects) != 0 {
			t.Errorf("it is %s, and was done: %+v", out, effects)
		}
	default:
		t.Errorf("it ends as %q: %+v", out, w.journal.Read("demo").Step)
	}
	for _, c := range calls {
		meant := false
		for _, e := range w.journal.Entries() {
			meant = meant || e.Key == c.Key && (e.What == intent.EventIntended || e.What == intent.EventRepeated)
		}
		step := w.journal.Read("demo").Step
		if age := c.At.Sub(step.IntentAt); !meant || age > intent.Fresh {
			t.Errorf("a call %s after its intent (written: %t)", age, meant)
		}
	}
}
