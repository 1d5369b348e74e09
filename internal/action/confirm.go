package action

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
)

const (
	// alarmAfter and alarmAttempts are when a call that the provider does not confirm
	// becomes an alarm. It is looked at, or made again, all the same.
	alarmAfter    = time.Hour
	alarmAttempts = 3
)

// resume looks up at the provider how far an item is that is under way.
func (s *pass) resume(ctx context.Context, it Item, p *Proposal) error {
	if !s.Enforce {
		s.line(it, ResultActed, it.Steps[it.Step].Name+" is under way")
		return nil
	}
	// A call that is confirmed has a next one that was not made yet.
	if !it.Steps[it.Step].ConfirmedAt.IsZero() {
		if s.lost(it) {
			return s.putBack(ctx, it, p, "no pass has checked it since "+it.Steps[it.Step].Name+" was confirmed")
		}
		s.again(candidate{it: it})
		return nil
	}
	progress, receipt, err := s.look(ctx, it)
	if err != nil {
		return err
	}
	if progress != NotDone {
		return s.settle(ctx, it, p, progress, receipt)
	}
	if age := s.r.Now.Sub(it.Steps[it.Step].IntentAt); age < 0 || age > freshFor || s.lost(it) {
		return s.putBack(ctx, it, p, fmt.Sprintf("%s was meant %s ago and not carried out", it.Steps[it.Step].Name, plain.Duration(age)))
	}
	s.again(candidate{it: it, again: true})
	return nil
}

// look asks the provider how far an item's call is.
func (s *pass) look(ctx context.Context, it Item) (Progress, string, error) {
	progress, receipt, err := bounded{s.Cloud}.look(ctx, task(it))
	if err != nil {
		return "", "", unread{ResultActed, fmt.Errorf("look up %s at the provider: %w", it.Steps[it.Step].Name, err)}
	}
	return progress, receipt, nil
}

// lost says whether no round vouches for the time since the item was last checked.
func (s *pass) lost(it Item) bool { return s.r.Restart || s.jumped(it.clock()) }

// again makes an item's next call due, if this round may make it.
func (s *pass) again(c candidate) {
	switch {
	case s.report.Frozen != nil:
		s.line(c.it, ResultFrozen, s.report.Frozen.String())
	case !s.speaksFor(c.it.Source):
		s.line(c.it, ResultActed, "its next call waits for a round of "+c.it.Source)
	default:
		s.due = append(s.due, c)
	}
}

// putBack returns an item to the first step, where it is warned about again.
func (s *pass) putBack(ctx context.Context, it Item, p *Proposal, why string) error {
	calls := it.Steps[it.Step].Attempts
	it = it.unwarned()
	it.Alarm = Redact(why)
	it, err := s.save(ctx, it, s.entry(it, p, EventPutBack, why))
	if err != nil {
		return err
	}
	if calls > 0 {
		s.alarm(ctx, it, p)
	}
	if !s.covers(it.Source, it.Ref) {
		s.say(it, Line{Result: ResultObserved, Why: why, NextAt: s.soon()})
		return nil
	}
	return s.climb(ctx, it, p)
}

// settle writes down what the provider says of an item's call.
func (s *pass) settle(ctx context.Context, it Item, p *Proposal, progress Progress, receipt string) error {
	now := s.Clock().Wall
	it.Steps = slices.Clone(it.Steps)
	st := &it.Steps[it.Step]
	st.Receipt = cmp.Or(receipt, st.Receipt)
	if st.AcceptedAt.IsZero() && progress != NotDone {
		st.AcceptedAt = now
	}
	if progress == InProgress || progress == Complete {
		s.underway[subject{it.Ref, it.Source}] = true
	}
	switch progress {
	case Complete:
		return s.confirm(ctx, it, p, now)
	case Impossible:
		it.Phase, it.Alarm = Failed, "the provider gave up "+st.Name
		it, err := s.save(ctx, it, s.entry(it, p, EventFailed, it.Alarm+" "+st.Receipt))
		if err != nil {
			return err
		}
		s.alarm(ctx, it, p)
		s.fail(it, Line{Result: ResultFailed, Why: it.Alarm})
		return nil
	}
	var entries []Entry
	if progress == InProgress && it.Phase == Acting {
		it.Phase = Confirming
		entries = append(entries, s.entry(it, p, EventOutcome, st.Name+" is under way "+st.Receipt))
	}
	alarmed := it.Alarm == "" && (now.Sub(st.IntentAt) > alarmAfter || st.Attempts >= alarmAttempts)
	if alarmed {
		it.Alarm = fmt.Sprintf("%s is not confirmed after %s and %d calls; it costs until then", st.Name, plain.Duration(now.Sub(st.IntentAt)), st.Attempts)
		entries = append(entries, s.entry(it, p, EventAlarm, it.Alarm))
	}
	if len(entries) > 0 {
		var err error
		if it, err = s.save(ctx, it, entries...); err != nil {
			return err
		}
		st = &it.Steps[it.Step]
	}
	if alarmed {
		s.alarm(ctx, it, p)
	}
	why := st.Name + " is under way"
	if progress == NotDone {
		why = "the provider shows no trace of " + st.Name + " yet"
	}
	if it.Alarm != "" {
		why = it.Alarm
	}
	next := now.Add(time.Minute)
	if st.Error != "" {
		s.fail(it, Line{Result: ResultFailed, Why: st.Name + ": " + st.Error, NextAt: next})
		return nil
	}
	s.say(it, Line{Result: ResultActed, Why: why, NextAt: next})
	return nil
}

// confirm writes down that the provider confirmed a call.
func (s *pass) confirm(ctx context.Context, it Item, p *Proposal, now time.Time) error {
	st := &it.Steps[it.Step]
	st.ConfirmedAt, st.Error, it.Phase = now, "", Confirming
	last := it.Step == len(it.Steps)-1
	if last {
		it.Phase, it.Alarm = Done, ""
	}
	it, err := s.save(ctx, it, s.entry(it, p, EventConfirmed, it.Steps[it.Step].Name+" "+it.Steps[it.Step].Receipt))
	if err != nil {
		return err
	}
	if !last {
		s.say(it, Line{Result: ResultActed, Why: it.Steps[it.Step].Name + " is confirmed; next is " + it.Steps[it.Step+1].Name, NextAt: now})
		return nil
	}
	s.line(it, ResultConfirmed, it.Because)
	s.announce(ctx, "acted", it, p)
	return nil
}

// alarm tells people and the log what an item's alarm is.
func (s *pass) alarm(ctx context.Context, it Item, p *Proposal) {
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "alarm", slog.String("item", it.ID), slog.String("resource", it.Ref.String()), slog.String("why", it.Alarm))
	}
	s.announce(ctx, "alarm", it, p)
}

// announce tells people what was done or goes wrong, as far as it is known who they
// are; nothing depends on it.
func (s *pass) announce(ctx context.Context, kind string, it Item, p *Proposal) {
	if p == nil || it.Do.Verb == policy.Tag {
		return
	}
	m := s.message(kind, it, *p)
	if kind == "alarm" {
		m.Because = it.Alarm
	}
	if accepted, err := s.tell(ctx, p.Notify, m); len(accepted) == 0 && s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "notification failed", slog.String("item", it.ID), slog.String("kind", kind), slog.String("why", Redact(err.Error())))
	}
}
