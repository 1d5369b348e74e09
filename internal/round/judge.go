package round

import (
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// gangOf names a gang, whose machines are in one account; empty where there is none.
func gangOf(r *inventory.Resource) string {
	if r.Gang == "" || !r.Kind.Traits().Measured {
		return ""
	}
	return r.Cloud + "/" + r.Account + "/" + r.Gang
}

// judge gives a verdict to every subject of which something was learned, or whose
// verdict or answers change by themselves by now, and returns those in the order of the
// resources. A gang is judged as a whole, in the number of its machines.
func (e *Engine) judge(now time.Time) []*subject {
	var woken []*subject
	gangs := map[string]bool{}
	for _, s := range e.listed {
		if !e.stands && !s.due(now) {
			continue
		}
		id := gangOf(s.Resource)
		if id == "" {
			e.verdict(s, now)
			s.does = s.own
			woken = append(woken, s)
		} else if !gangs[id] {
			gangs[id] = true
			e.whole(e.gangs[id], now)
			woken = append(woken, e.gangs[id]...)
		}
	}
	return woken
}

// due says whether a subject is to be looked at.
func (s *subject) due(now time.Time) bool {
	if s.news || s.open {
		return true
	}
	if v := s.does; v != nil && !v.Next.IsZero() && !v.Next.After(now) {
		return true
	}
	for i := range s.answers {
		if next := s.answers[i].next; !next.IsZero() && !next.After(now) {
			return true
		}
	}
	return false
}

// verdict judges what a subject does by itself. Machines that are stopped, or on their
// way there, do nothing that could be judged; of one that begins to run, or whose state
// is not known, it is unknown what it does.
func (e *Engine) verdict(s *subject, now time.Time) {
	s.news = false
	switch {
	case s.Resource == nil || !s.Kind.Traits().Measured:
		s.own = nil
	case s.State == inventory.StateRunning:
		if e.lean {
			s.kept = s.tracker.Verdict(now, duty.MachineOf(s.Resource))
			s.tracker.UpdateProgress(now, s.kept, duty.MachineOf(s.Resource))
			s.own = &s.kept
			return
		}
		v := duty.Verdict{Why: "nothing was measured"}
		if s.tracker != nil {
			v = s.tracker.Explain(now, duty.MachineOf(s.Resource))
			s.tracker.UpdateProgress(now, v, duty.MachineOf(s.Resource))
		}
		explainUnread(&v, s.unmeasured)
		s.own = &v
	case s.Gang != "" && (s.State == inventory.StatePending || s.State == inventory.StateUnknown):
		s.own = &duty.Verdict{Why: "the duty of " + s.ID + " is unknown: it is still starting"}
	default:
		s.own = nil
	}
}

// explainUnread says of an unknown duty that metrics which could tell it could not be read,
// where that is so: otherwise they would seem not to exist.
func explainUnread(v *duty.Verdict, unread string) {
	if v.State == duty.Unknown && unread != "" {
		v.Why = "metrics could not be read (" + unread + ")"
	}
}

// whole judges the machines of one run together. Where not all of an account's machines
// could be read, some may be missing, and it is unknown what the gang does.
func (e *Engine) whole(members []*subject, now time.Time) {
	var verdicts []duty.Verdict
	var running []*subject
	for _, s := range members {
		e.verdict(s, now)
		s.does = s.own
		if s.own != nil {
			verdicts = append(verdicts, *s.own)
			running = append(running, s)
		}
	}
	missing := false
	for _, s := range running {
		missing = missing || s.missing
	}
	if len(running) < 2 && !missing {
		return
	}
	if missing {
		verdicts = append(verdicts, duty.Verdict{
			Why: fmt.Sprintf("%d machines of it were seen, and not every region could be read", len(running)),
		})
	}
	whole := duty.Gang(verdicts)
	for _, s := range running {
		s.does = &whole
	}
}

// unreadIn says whether a kind could not be listed somewhere in an account.
func unreadIn(unread map[string]bool, account string, kind inventory.Kind) bool {
	for key, yes := range unread {
		if yes && strings.HasPrefix(key, account+"/") && strings.HasSuffix(key, "/"+string(kind)) {
			return true
		}
	}
	return false
}
