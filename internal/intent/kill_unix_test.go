//go:build unix

package intent_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/intent/intenttest"
)

// stories have one subject whose call shows late, whose response is lost, or that is refused first,
// at a provider with or without keys.
var stories = []intenttest.Story{
	story("with keys", true, nil),
	story("without keys", false, nil),
	story("with keys, an answer lost", true, &intenttest.Fault{On: "launch", Message: "reset", Carried: true}),
	story("without keys, an answer lost", false, &intenttest.Fault{On: "launch", Message: "reset", Carried: true}),
	story("refused", true, &intenttest.Fault{On: "launch", Message: "none", Class: "capacity"}),
}

func TestMain(m *testing.M) { os.Exit(intenttest.Main(m, stories...)) }

// TestKilledAnywhere checks that after a kill at any write, call or look-up the next process
// completes the step, once.
func TestKilledAnywhere(t *testing.T) {
	for _, s := range stories {
		t.Run(s.Name, s.KilledAnywhere)
	}
}

// opened returns the world stored in a directory, at a time after the start.
func opened(dir string, keyed bool, after time.Duration) *world {
	w := &world{now: start.Add(after)}
	w.journal, w.provider = intenttest.OpenJournal(dir, w.clock), intenttest.OpenProvider(dir, w.clock, keyed)
	return w
}

func story(name string, keyed bool, fault *intenttest.Fault) intenttest.Story {
	return intenttest.Story{
		Name: name, Boundaries: 6,
		Prepare: func(_ testing.TB, dir string) {
			w := opened(dir, keyed, 0)
			w.provider.Delay(30*time.Second, 1)
			if fault != nil {
				w.provider.Fail(*fault)
			}
		},
		Tell: func(dir string, m *intenttest.Mortal) error {
			for i := range 4 {
				if _, _, err := opened(dir, keyed, time.Duration(i)*time.Minute).pass(m.Boundary); err != nil {
					return err
				}
			}
			return nil
		},
		End: func(t testing.TB, dir string, killed bool) {
			w := opened(dir, keyed, 4*time.Minute)
			var out intent.Outcome
			for range 10 {
				var err error
				if _, out, err = w.pass(nil); err != nil && !errors.Is(err, intent.ErrConflict) {
					t.Fatal(err)
				}
				w.now = w.now.Add(time.Minute)
			}
			effects := len(w.provider.Effects())
			switch {
			case out == intent.Done && effects == 1:
			case out == intent.Rejected && effects == 0 && fault != nil && fault.Class != "":
			case out == intent.Lapsed && effects == 0 && killed && !keyed:
			default:
				t.Errorf("it ends as %s with %d effects: %+v", out, effects, w.journal.Entries())
			}
		},
	}
}
