package job

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
)

// TestLastInterruptionEndsWhenTheCommandRunsAgain looks past an attempt that never ran its command.
func TestLastInterruptionEndsWhenTheCommandRunsAgain(t *testing.T) {
	at := time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)
	j := Job{Attempts: []Attempt{
		{Number: 1, EndedAt: at.Add(-time.Hour), EndedBy: session.Interrupted, Lost: time.Minute},
		{
			Number: 2, CommandAt: at.Add(-30 * time.Minute), EndedAt: at, EndedBy: session.Interrupted,
			Lost: 4 * time.Minute,
		},
	}}
	got, ok := j.LastInterruption()
	if want := (Interruption{Attempt: 2, At: at, Lost: 4 * time.Minute}); !ok || got != want {
		t.Errorf("before the restart: %+v, %t", got, ok)
	}
	j.Attempts = append(j.Attempts,
		Attempt{Number: 3, EndedAt: at.Add(time.Minute), EndedBy: session.NoCapacity},
		Attempt{Number: 4, CommandAt: at.Add(3 * time.Minute)})
	got, _ = j.LastInterruption()
	if !got.Restarted || got.Restart != 3*time.Minute || got.Attempt != 2 {
		t.Errorf("after the restart: %+v", got)
	}
	if _, ok := (&Job{Attempts: []Attempt{{EndedAt: at, EndedBy: session.OwnError}}}).LastInterruption(); ok {
		t.Error("an error of the command is no interruption")
	}
}
