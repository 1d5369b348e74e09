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
	// alarmDelay and alarmAttempts are the limits after which an unconfirmed call becomes an alarm.
	// It is still looked up and repeated.
	alarmDelay    = time.Hour
	alarmAttempts = 3
	// unconfirmed is the part of the alarm's text about calls without a confirmation.
	unconfirmed = " is not confirmed after "
)

// itemStep is an item whose step is being carried out: it saves the results with entries of the
// audit log.
type itemStep struct {
	*pass
	item     Item
	proposal *Proposal
}

// calls returns the runner of the ladder's calls. A cloud's calls are idempotent by their key.
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

// step returns the current step.
func (c *itemStep) step() Step { return c.item.Steps[c.item.Step] }

// Keep implements [intent.Subject].
func (c *itemStep) Keep(ctx context.Context, st Step, what intent.Event) error {
	it := c.item
	it.Steps = slices.Clone(it.Steps)
	it.Steps[it.Step] = st
	var entries []Entry
	owed := "" // the kind of its notice
	switch what {
	case intent.EventIntended, intent.EventRepeated:
		it.Phase = Acting
		entries = append(entries, c.intentEntry(it, c.proposal))
	case intent.EventUnanswered:
		entries = append(entries, c.entry(it, c.proposal, EventOutcome, st.Name+": "+st.Error))
		if it.Alarm == "" { // notified once; calls continue
			it.Alarm, owed = st.Name+" failed: "+st.Error, noticeAlarm
		}
	case intent.EventAccepted:
		it.Phase = Confirming
		entries = append(entries, c.entry(it, c.proposal, EventOutcome, st.Name+" accepted "+st.Receipt))
	case intent.EventFound:
		if it.Phase == Acting {
			it.Phase = Confirming
			entries = append(entries, c.entry(it, c.proposal, EventOutcome, st.Name+" is under way "+st.Receipt))
		}
	case intent.EventConfirmed:
		if it.Phase = Confirming; it.Step == len(it.Steps)-1 {
			it.Phase, it.Alarm, owed = Done, "", noticeActed
			if it.Do.IsFleet() {
				owed = "" // sizes that follow demand change all day
			}
		}
		entries = append(entries, c.entry(it, c.proposal, EventConfirmed, st.Name+" "+st.Receipt))
	case intent.EventGivenUp:
		it.Phase, it.Alarm, owed = Failed, "the provider gave up "+st.Name, noticeAlarm
		entries = append(entries, c.entry(it, c.proposal, EventFailed, it.Alarm+" "+st.Receipt))
	case intent.EventRefused:
		var e Entry
		it, e = c.closedItem(it, EventRefused, refused(st).Why)
		entries = append(entries, e)
	}
	var err error
	if owed == "" {
		it, err = c.save(ctx, it, entries...)
	} else {
		it, err = c.saveWithNotices(ctx, owed, it, c.proposal, entries...)
	}
	if err == nil {
		c.item = it
	}
	return err
}

// Call implements [intent.Subject].
func (c *itemStep) Call(ctx context.Context, st Step) (string, error) {
	receipt, err := c.Cloud.Do(ctx, c.task(st))
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return "", refusal
	}
	return receipt, err
}

// Scope implements [intent.Subject].
func (c *itemStep) Look(ctx context.Context, st Step) (Progress, string, error) {
	return c.Cloud.Look(ctx, c.task(st))
}

// task returns the call of a step in the form of a cloud.
func (c *itemStep) task(st Step) Task {
	t := task(c.item)
	t.Step = st
	return t
}

// refused returns the line of an item whose call the provider refuses.
func refused(st Step) Line {
	return Line{Result: ResultRefused, Rule: st.Refused, Why: st.Refused + ": " + st.Error}
}

// resume looks up the progress of an item under way at the provider.
func (s *pass) resume(ctx context.Context, it Item, p *Proposal) error {
	name := it.Steps[it.Step].Name
	if !s.Enforce {
		s.reportResult(it, ResultActed, name+" is under way")
		return nil
	}
	// A confirmed call has a next one that was not made yet.
	if it.Steps[it.Step].State() == intent.Confirmed {
		if s.isUnconfirmed(it) {
			return s.putBack(ctx, it, p, "no pass has checked it since "+name+" was confirmed")
		}
		s.scheduleCall(candidate{item: it})
		return nil
	}
	c := &itemStep{pass: s, item: it, proposal: p}
	st, out, err := s.calls().Resume(ctx, c, c.step())
	if err != nil {
		return s.wrapUnread(ResultActed, err)
	}
	untraced := out == intent.Due || out == intent.Unseen
	switch {
	case out == intent.Lapsed || untraced && s.isUnconfirmed(c.item):
		return s.putBack(ctx, c.item, p, fmt.Sprintf("%s was meant %s ago and not carried out", name,
			plain.Duration(s.Clock().Wall.Sub(st.IntentAt))))
	case out == intent.Due:
		s.scheduleCall(candidate{item: c.item, isRepeat: true})
		return nil
	}
	return s.finishStep(ctx, c, out)
}

// wrapUnread converts a failed look-up into an error of one item.
func (s *pass) wrapUnread(result Result, err error) error {
	var u *intent.Unread
	if errors.As(err, &u) {
		return unreadError{result, err}
	}
	return err
}

// isUnconfirmed reports whether the time since the item was last checked is not confirmed.
func (s *pass) isUnconfirmed(it Item) bool { return s.round.Restart || s.clockJumped(it.clock()) }

// scheduleCall makes an item's next call due, if this round may make it.
func (s *pass) scheduleCall(c candidate) {
	switch {
	case s.report.Frozen != nil:
		s.reportResult(c.item, ResultFrozen, s.report.Frozen.String())
	case !s.includesSource(c.item.Source):
		s.reportResult(c.item, ResultActed, "its next call waits for a pass of "+c.item.Source)
	default:
		s.due = append(s.due, c)
	}
}

// putBack resets an item to the first phase, in which it is warned again.
func (s *pass) putBack(ctx context.Context, it Item, p *Proposal, why string) error {
	calls := it.Steps[it.Step].Attempts
	it = it.withoutWarning()
	it.Alarm = Redact(why)
	var err error
	if e := s.entry(it, p, EventPutBack, why); calls > 0 {
		it, err = s.saveWithNotices(ctx, noticeAlarm, it, p, e)
		s.deliver(ctx)
	} else {
		it, err = s.save(ctx, it, e)
	}
	if err != nil {
		return err
	}
	if !s.covers(it.Source, it.Ref) {
		s.reportItem(it, Line{Result: ResultObserved, Why: why, NextAt: s.retryAt()})
		return nil
	}
	return s.advance(ctx, it, p)
}

// finishStep reports the result of a step that is saved already.
func (s *pass) finishStep(ctx context.Context, c *itemStep, out intent.Outcome) error {
	if s.hasNewNotices {
		s.deliver(ctx)
	}
	now, st := s.Clock().Wall, c.step()
	if out == intent.UnderWay || out == intent.Done {
		s.callsInProgress[itemKey{c.item.Ref, c.item.Source}] = true
	}
	switch out {
	case intent.Done:
		s.reportConfirmed(c, now)
		return nil
	case intent.Failed:
		s.reportFailure(c.item, Line{Result: ResultFailed, Why: c.item.Alarm})
		return nil
	case intent.Rejected:
		s.reportItem(c.item, refused(st))
		return nil
	}
	// People were notified of failing calls at the first failure.
	late := now.Sub(st.IntentAt) > alarmDelay || st.Attempts >= alarmAttempts && c.item.Alarm == ""
	if late && !strings.Contains(c.item.Alarm, unconfirmed) {
		it := c.item
		it.Alarm = fmt.Sprintf("%s%s%s and %d calls; it costs until then", st.Name, unconfirmed,
			plain.Duration(now.Sub(st.IntentAt)), st.Attempts)
		if st.Error != "" {
			it.Alarm += "; the newest failed: " + st.Error
		}
		it, err := s.saveWithNotices(ctx, noticeAlarm, it, c.proposal, s.entry(it, c.proposal, EventAlarm, it.Alarm))
		if err != nil {
			return err
		}
		c.item = it
		s.deliver(ctx)
	}
	why := st.Name + " is under way"
	if out != intent.UnderWay {
		why = "the provider shows no trace of " + st.Name + " yet"
	}
	if c.item.Alarm != "" {
		why = c.item.Alarm
	}
	next := now.Add(time.Minute)
	if st.Error != "" {
		s.reportFailure(c.item, Line{Result: ResultFailed, Why: st.Name + ": " + st.Error, NextAt: next})
		return nil
	}
	s.reportItem(c.item, Line{Result: ResultActed, Why: why, NextAt: next})
	return nil
}

// reportConfirmed reports a confirmed call.
func (s *pass) reportConfirmed(c *itemStep, now time.Time) {
	if c.item.Phase != Done {
		s.reportItem(c.item, Line{
			Result: ResultActed, Why: c.step().Name + " is confirmed; next is " + c.item.Steps[c.item.Step+1].Name,
			NextAt: now,
		})
		return
	}
	s.reportResult(c.item, ResultConfirmed, c.item.Because)
}
