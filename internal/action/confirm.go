package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/plain"
)

const (
	// alarmAfter and alarmAttempts are when a call that the provider does not confirm
	// becomes an alarm. It is looked at, or made again, all the same.
	alarmAfter    = time.Hour
	alarmAttempts = 3
	// unconfirmed is in the alarm about such a call.
	unconfirmed = " is not confirmed after "
)

// carried is an item whose step is carried out: it keeps what becomes of it, with an entry
// of the audit log.
type carried struct {
	*pass
	it Item
	p  *Proposal
}

// calls is how the ladder makes its calls. A cloud's are safe to make again with their key.
func (s *pass) calls() intent.Run {
	return intent.Run{Now: func() time.Time {
		return s.Clock().Wall
	}, Idempotent: true, Redact: Redact, Class: func(err error) string {
		var refusal *Refusal
		if errors.As(err, &refusal) {
			return refusal.Rule
		}
		return ""
	}}
}

// step is the call that is under way.
func (c *carried) step() Step { return c.it.Steps[c.it.Step] }

// Keep implements [intent.Subject].
func (c *carried) Keep(ctx context.Context, st Step, what intent.Event) error {
	it := c.it
	it.Steps = slices.Clone(it.Steps)
	it.Steps[it.Step] = st
	var entries []Entry
	owed := "" // the kind of the notice about it
	switch what {
	case intent.EventIntended, intent.EventRepeated:
		it.Phase = Acting
		entries = append(entries, c.intent(it, c.p))
	case intent.EventUnanswered:
		entries = append(entries, c.entry(it, c.p, EventOutcome, st.Name+": "+st.Error))
		if it.Alarm == "" { // told once; calls go on
			it.Alarm, owed = st.Name+" failed: "+st.Error, noticeAlarm
		}
	case intent.EventAccepted:
		it.Phase = Confirming
		entries = append(entries, c.entry(it, c.p, EventOutcome, st.Name+" accepted "+st.Receipt))
	case intent.EventFound:
		if it.Phase == Acting {
			it.Phase = Confirming
			entries = append(entries, c.entry(it, c.p, EventOutcome, st.Name+" is under way "+st.Receipt))
		}
	case intent.EventConfirmed:
		if it.Phase = Confirming; it.Step == len(it.Steps)-1 {
			it.Phase, it.Alarm, owed = Done, "", noticeActed
		}
		entries = append(entries, c.entry(it, c.p, EventConfirmed, st.Name+" "+st.Receipt))
	case intent.EventGivenUp:
		it.Phase, it.Alarm, owed = Failed, "the provider gave up "+st.Name, noticeAlarm
		entries = append(entries, c.entry(it, c.p, EventFailed, it.Alarm+" "+st.Receipt))
	case intent.EventRefused:
		var e Entry
		it, e = c.closed(it, EventRefused, refused(st).Why)
		entries = append(entries, e)
	}
	var err error
	if owed == "" {
		it, err = c.save(ctx, it, entries...)
	} else {
		it, err = c.saveOwing(ctx, owed, it, c.p, entries...)
	}
	if err == nil {
		c.it = it
	}
	return err
}

// Call implements [intent.Subject].
func (c *carried) Call(ctx context.Context, st Step) (string, error) {
	receipt, err := c.Cloud.Do(ctx, c.task(st))
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return "", refusal
	}
	return receipt, err
}

// Look implements [intent.Subject].
func (c *carried) Look(ctx context.Context, st Step) (Progress, string, error) {
	return c.Cloud.Look(ctx, c.task(st))
}

// task is the call of a step as a cloud is asked for it.
func (c *carried) task(st Step) Task {
	t := task(c.it)
	t.Step = st
	return t
}

// refused is the line of an item whose call a rule of the provider forbids.
func refused(st Step) Line {
	return Line{Result: ResultRefused, Rule: st.Refused, Why: st.Refused + ": " + st.Error}
}

// resume looks up at the provider how far an item is that is under way.
func (s *pass) resume(ctx context.Context, it Item, p *Proposal) error {
	name := it.Steps[it.Step].Name
	if !s.Enforce {
		s.line(it, ResultActed, name+" is under way")
		return nil
	}
	// A call that is confirmed has a next one that was not made yet.
	if it.Steps[it.Step].State() == intent.Confirmed {
		if s.lost(it) {
			return s.putBack(ctx, it, p, "no pass has checked it since "+name+" was confirmed")
		}
		s.again(candidate{it: it})
		return nil
	}
	c := &carried{pass: s, it: it, p: p}
	st, out, err := s.calls().Resume(ctx, c, c.step())
	if err != nil {
		return s.unread(ResultActed, err)
	}
	untraced := out == intent.Due || out == intent.Unseen
	switch {
	case out == intent.Lapsed || untraced && s.lost(c.it):
		return s.putBack(ctx, c.it, p, fmt.Sprintf("%s was meant %s ago and not carried out", name,
			plain.Duration(s.Clock().Wall.Sub(st.IntentAt))))
	case out == intent.Due:
		s.again(candidate{it: c.it, again: true})
		return nil
	}
	return s.settle(ctx, c, out)
}

// unread is an error of a pass over a step; a look-up that failed concerns one item.
func (s *pass) unread(result Result, err error) error {
	var u *intent.Unread
	if errors.As(err, &u) {
		return unread{result, err}
	}
	return err
}

// lost says whether no round vouches for the time since the item was last checked.
func (s *pass) lost(it Item) bool { return s.r.Restart || s.jumped(it.clock()) }

// again makes an item's next call due, if this round may make it.
func (s *pass) again(c candidate) {
	switch {
	case s.report.Frozen != nil:
		s.line(c.it, ResultFrozen, s.report.Frozen.String())
	case !s.speaksFor(c.it.Source):
		s.line(c.it, ResultActed, "its next call waits for a pass of "+c.it.Source)
	default:
		s.due = append(s.due, c)
	}
}

// putBack returns an item to the first step, where it is warned about again.
func (s *pass) putBack(ctx context.Context, it Item, p *Proposal, why string) error {
	calls := it.Steps[it.Step].Attempts
	it = it.unwarned()
	it.Alarm = Redact(why)
	var err error
	if e := s.entry(it, p, EventPutBack, why); calls > 0 {
		it, err = s.saveOwing(ctx, noticeAlarm, it, p, e)
		s.deliver(ctx)
	} else {
		it, err = s.save(ctx, it, e)
	}
	if err != nil {
		return err
	}
	if !s.covers(it.Source, it.Ref) {
		s.say(it, Line{Result: ResultObserved, Why: why, NextAt: s.soon()})
		return nil
	}
	return s.climb(ctx, it, p)
}

// settle reports what a pass over an item's step came to, which is written down by now.
func (s *pass) settle(ctx context.Context, c *carried, out intent.Outcome) error {
	if s.owing {
		s.deliver(ctx)
	}
	now, st := s.Clock().Wall, c.step()
	if out == intent.UnderWay || out == intent.Done {
		s.underway[subject{c.it.Ref, c.it.Source}] = true
	}
	switch out {
	case intent.Done:
		s.confirmed(c, now)
		return nil
	case intent.Failed:
		s.fail(c.it, Line{Result: ResultFailed, Why: c.it.Alarm})
		return nil
	case intent.Rejected:
		s.say(c.it, refused(st))
		return nil
	}
	// Of calls that fail people were told at the first one.
	late := now.Sub(st.IntentAt) > alarmAfter || st.Attempts >= alarmAttempts && c.it.Alarm == ""
	if late && !strings.Contains(c.it.Alarm, unconfirmed) {
		it := c.it
		it.Alarm = fmt.Sprintf("%s%s%s and %d calls; it costs until then", st.Name, unconfirmed,
			plain.Duration(now.Sub(st.IntentAt)), st.Attempts)
		if st.Error != "" {
			it.Alarm += "; the newest failed: " + st.Error
		}
		it, err := s.saveOwing(ctx, noticeAlarm, it, c.p, s.entry(it, c.p, EventAlarm, it.Alarm))
		if err != nil {
			return err
		}
		c.it = it
		s.deliver(ctx)
	}
	why := st.Name + " is under way"
	if out != intent.UnderWay {
		why = "the provider shows no trace of " + st.Name + " yet"
	}
	if c.it.Alarm != "" {
		why = c.it.Alarm
	}
	next := now.Add(time.Minute)
	if st.Error != "" {
		s.fail(c.it, Line{Result: ResultFailed, Why: st.Name + ": " + st.Error, NextAt: next})
		return nil
	}
	s.say(c.it, Line{Result: ResultActed, Why: why, NextAt: next})
	return nil
}

// confirmed reports a call that the provider confirmed.
func (s *pass) confirmed(c *carried, now time.Time) {
	if c.it.Phase != Done {
		s.say(c.it, Line{
			Result: ResultActed, Why: c.step().Name + " is confirmed; next is " + c.it.Steps[c.it.Step+1].Name,
			NextAt: now,
		})
		return
	}
	s.line(c.it, ResultConfirmed, c.it.Because)
}
