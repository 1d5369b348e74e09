package duty

import (
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// Progress is the record of the progress of a machine's work: a training step higher than any
// before, another complete checkpoint, or another declared event. Steps that begin again and stay
// below the highest are a loop, and no progress, until the machine has rested: what works after that is another run.
type Progress struct {
	// From is since when the machine is known to have worked without a rest; zero while it rests.
	From time.Time
	// Since is when the work last made progress; zero is never.
	Since time.Time
	// Step is the highest step, Checkpoints the newest value of the counter of complete checkpoints, and
	// Events that of declared events; 0 where none was measured.
	Step, Checkpoints, Events float64
	// Reported says that a counter of progress was measured at all.
	Reported bool
}

// add takes a value of a counter of progress. Values of an earlier run, and those that are not newer
// than the last progress, are read again and change nothing.
func (p *Progress) add(s usage.Signal, at time.Time, value float64) {
	if !s.Counter() || !at.After(p.Since) || at.Before(p.From) {
		return
	}
	p.Reported = true
	switch {
	case s == usage.Step && value > p.Step:
		p.Step, p.Since = value, at
	case s == usage.Checkpoints && value != p.Checkpoints:
		// A counter that begins again with its process has saved as many as it says.
		if p.Checkpoints = value; value > 0 {
			p.Since = at
		}
	case s == usage.Events && value != p.Events:
		if p.Events = value; value > 0 {
			p.Since = at
		}
	}
}

// Or returns the record with the progress of another machine of its run: one reports for all.
func (p Progress) Or(o Progress) Progress {
	if o.Since.After(p.Since) {
		p.Since, p.Step, p.Checkpoints, p.Events = o.Since, o.Step, o.Checkpoints, o.Events
	}
	p.Reported = p.Reported || o.Reported
	return p
}

// Progress returns the record of progress of all samples so far, those before the look-back
// among them, which verdicts no longer know. The nil Tracker has none.
func (k *Tracker) Progress() Progress {
	if k == nil {
		return Progress{}
	}
	return k.progress
}

// UpdateProgress tells the record the verdict at now: a machine at rest has ended its run.
func (k *Tracker) UpdateProgress(now time.Time, v Verdict, m Machine) {
	if k == nil {
		return
	}
	switch v.State {
	case Idle, Held:
		k.progress.From, k.progress.Step = time.Time{}, 0
	case Busy, Stalled, Starved:
		if k.progress.From.IsZero() {
			work := v
			work.State = Busy // stalled work has worked since before it stalled
			if k.progress.From = k.StateSince(now, work, m); k.progress.From.IsZero() {
				k.progress.From = now
			}
		}
	}
}

// RestoreProgress goes on from a record that was kept earlier. It has to come before the samples.
func (k *Tracker) RestoreProgress(p Progress) { k.progress = p }
