package job

import "time"

// Interruption is one attempt that was taken away, and what that cost.
type Interruption struct {
	// Attempt is the number of the attempt.
	Attempt int
	// At is the end of its machines.
	At time.Time
	// Lost is the time of the work that was lost.
	Lost time.Duration
	// Restart is the time from the end until the command ran again; Restarted reports whether it did.
	Restart   time.Duration
	Restarted bool
}

// LastInterruption returns the newest interruption; false if there was none.
func (j *Job) LastInterruption() (Interruption, bool) {
	for i := len(j.Attempts) - 1; i >= 0; i-- {
		a := j.Attempts[i]
		if !a.Over() || !interruption(a.EndedBy) {
			continue
		}
		out := Interruption{Attempt: a.Number, At: a.EndedAt, Lost: a.Lost}
		for _, next := range j.Attempts[i+1:] {
			if !next.CommandAt.IsZero() {
				out.Restart, out.Restarted = max(0, next.CommandAt.Sub(a.EndedAt)), true
				break
			}
		}
		return out, true
	}
	return Interruption{}, false
}
