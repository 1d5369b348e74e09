package round

import (
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// gangOf returns the key of a resource's gang, whose machines are in one account; empty without
// one.
func gangOf(r *inventory.Resource) string {
	if r.Gang == "" || !r.Kind.Traits().Measured {
		return ""
	}
	return r.Cloud + "/" + r.Account + "/" + r.Gang
}

// judge judges every subject that changed, or whose verdict or answers may have changed by now, and
// returns them in the order of the resources. A gang is judged as a whole.
func (e *Engine) judge(now time.Time) []*subject {
	var woken []*subject
	gangs := map[string]bool{}
	for _, s := range e.listed {
		if !e.usesCharges && !s.isDue(now) {
			continue
		}
		id := gangOf(s.Resource)
		if id == "" {
			e.judgeOwn(s, now)
			s.groupVerdict = s.ownVerdict
			woken = append(woken, s)
		} else if !gangs[id] {
			gangs[id] = true
			e.judgeGang(e.gangs[id], now)
			woken = append(woken, e.gangs[id]...)
		}
	}
	return woken
}

// isDue reports whether a subject has to be judged.
func (s *subject) isDue(now time.Time) bool {
	if s.dirty || s.hasItem {
		return true
	}
	if v := s.groupVerdict; v != nil && !v.Next.IsZero() && !v.Next.After(now) {
		return true
	}
	for i := range s.answers {
		if next := s.answers[i].next; !next.IsZero() && !next.After(now) {
			return true
		}
	}
	return false
}

// judgeOwn judges a subject by itself. Stopped or stopping machines have no duty; that of a
// starting machine, or of one in an unknown state, is unknown.
func (e *Engine) judgeOwn(s *subject, now time.Time) {
	s.dirty = false
	switch {
	case s.Resource == nil || !s.Kind.Traits().Measured:
		s.ownVerdict = nil
	case s.State == inventory.StateRunning:
		if e.verdictOnly {
			s.ownBuffer = s.tracker.Verdict(now, duty.MachineOf(s.Resource))
			s.tracker.UpdateProgress(now, s.ownBuffer, duty.MachineOf(s.Resource))
			s.ownVerdict = &s.ownBuffer
			return
		}
		v := duty.Verdict{Why: "nothing was measured"}
		if s.tracker != nil {
			v = s.tracker.Explain(now, duty.MachineOf(s.Resource))
			s.tracker.UpdateProgress(now, v, duty.MachineOf(s.Resource))
		}
		explainUnread(&v, s.unreadReason)
		s.ownVerdict = &v
	case s.Gang != "" && (s.State == inventory.StatePending || s.State == inventory.StateUnknown):
		s.ownVerdict = &duty.Verdict{Why: "the duty of " + s.ID + " is unknown: it is still starting"}
	default:
		s.ownVerdict = nil
	}
}

// explainUnread gives unread metrics as the reason of an unknown duty, because they would otherwise
// seem not to exist.
func explainUnread(v *duty.Verdict, unread string) {
	if v.State == duty.Unknown && unread != "" {
		v.Why = "metrics could not be read (" + unread + ")"
	}
}

// judgeGang judges the machines of one run together. If some machines of the account could not be
// read, the gang may be incomplete, and its duty is unknown.
func (e *Engine) judgeGang(members []*subject, now time.Time) {
	var verdicts []duty.Verdict
	var running []*subject
	for _, s := range members {
		e.judgeOwn(s, now)
		s.groupVerdict = s.ownVerdict
		if s.ownVerdict != nil {
			verdicts = append(verdicts, *s.ownVerdict)
			running = append(running, s)
		}
	}
	missing := false
	for _, s := range running {
		missing = missing || s.maybeIncomplete
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
		s.groupVerdict = &whole
	}
}

// unreadAnywhere reports whether a kind could not be listed in some region of an account.
func unreadAnywhere(unread map[string]bool, account string, kind inventory.Kind) bool {
	for key, yes := range unread {
		if yes && strings.HasPrefix(key, account+"/") && strings.HasSuffix(key, "/"+string(kind)) {
			return true
		}
	}
	return false
}
