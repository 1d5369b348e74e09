package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

// decide does what is due now. It returns true when the machine is to be given back.
func (h *host) decide(ctx context.Context) (bool, error) {
	h.read()
	h.judge()
	h.kept()
	defer func() { h.told.put(h.status()) }()
	if h.end == nil {
		h.mustEnd()
	}
	if h.end != nil {
		return h.drive(ctx)
	}
	h.atNotice(ctx)
	h.saveWhenDue(ctx)
	if h.phase != session.HostStarting {
		h.idle()
	}
	return false, nil
}

// judge says what the session does: what it tells is of this machine, and what it goes by is
// of all its machines.
func (h *host) judge() {
	v := h.watch.verdict(h.now)
	if h.phase == session.HostStarting {
		v = duty.Verdict{State: duty.Busy, Why: "it is set up"}
	}
	h.verdict = v
	if h.o.Host.Nodes > 1 {
		h.verdict = together(append([]duty.Verdict{v}, h.others...)...)
	}
	is := v.State.String()
	switch v.State {
	case duty.Idle, duty.Held, duty.Unknown, duty.Busy:
	default:
		is = duty.Busy.String() // it computes, or is on its way to
	}
	if is == h.activity {
		return
	}
	old := h.activity
	h.activity, h.since = is, h.now
	resting := v.State == duty.Idle || v.State == duty.Held
	if resting && v.Since.After(h.rests) {
		h.since = v.Since
	} else if resting {
		h.since = h.rests
	}
	if old != "" && !h.watch.newest.IsZero() && h.phase != session.HostStarting {
		kind := "busy"
		if resting {
			kind = "idle"
		}
		h.j.add(kind, is+": "+v.Why)
	}
}

// atRest says whether the session is known to rest.
func (h *host) atRest() bool { return h.verdict.State == duty.Idle || h.verdict.State == duty.Held }

// restSince is since when its rest counts.
func (h *host) restSince() time.Time {
	if h.verdict.Since.After(h.rests) {
		return h.verdict.Since
	}
	return h.rests
}

// kept looks for a touch of the keep file, which counts as work.
func (h *host) kept() {
	at, known := h.keepFile(), h.view().Kept
	if at.IsZero() || at.Equal(known) {
		return
	}
	if err := h.update(func(s *state) { s.Kept = at }); err != nil {
		h.o.Log(err.Error())
		return
	}
	if h.warning == nil && h.end == nil {
		h.j.add("extended", "~/.curfew/keep was touched")
	}
	h.rests = h.now
	h.putBack("~/.curfew/keep was touched")
	if h.end != nil && h.end.Cause == byIdle && !h.end.Killed {
		h.takeBack("~/.curfew/keep was touched")
	}
}

// mustEnd begins the end where an order or the lease says so.
func (h *host) mustEnd() {
	st := h.view()
	lease, _ := h.bounds(st.Order)
	switch {
	case st.Order.End != nil:
		e := st.Order.End
		h.begin(ending{Cause: byOrder, Why: e.Reason(), Discard: e.Discard})
	case !h.now.Before(lease):
		h.begin(ending{Cause: byLease, Why: "its lease ended at " + plain.Time(lease)})
	}
}

// begin begins the end of the session: the last snapshot.
func (h *host) begin(e ending) {
	e.Since = h.now
	h.end, h.warning, h.final, h.gaveUp = &e, nil, nil, false
	h.tries, h.nextTry = 0, time.Time{}
	h.phase, h.why = session.HostSaving, e.Why
	h.j.add("snapshot", "the last snapshot is taken: "+e.Why)
	told := "the session ends: " + e.Why
	if e.Cause != byIdle {
		warn(h.last.terminals, told)
	}
}

// keepEnd writes the end down: from here on no process takes it back.
func (h *host) keepEnd() error {
	e := *h.end
	return h.update(func(s *state) { s.Ending = &e })
}

// takeBack gives up an end that nothing was done for yet.
func (h *host) takeBack(why string) {
	h.end, h.final, h.gaveUp = nil, nil, false
	h.rests = h.now
	h.phase, h.why = h.standing()
	h.j.add("extended", "the session goes on: "+why)
	warn(h.last.terminals, "the session goes on: "+why)
}

// standing is the phase of a session that does not end.
func (h *host) standing() (session.Phase, string) {
	st := h.view()
	switch {
	case st.Failed != "":
		return session.HostFailed, st.Failed
	case st.Ready:
		return session.HostReady, ""
	}
	return session.HostStarting, ""
}

// drive takes an end one step further: save, confirm, look again, give back.
func (h *host) drive(ctx context.Context) (bool, error) {
	e := h.end
	st := h.view()
	lease, idle := h.bounds(st.Order)
	over := !h.now.Before(lease)
	if o := st.Order.End; o != nil {
		e.Discard = e.Discard || o.Discard
		if e.Cause == byIdle {
			e.Cause, e.Why = byOrder, o.Why+", by "+o.By
		}
	}
	if e.Done {
		return true, nil
	}
	if !e.Killed {
		switch {
		case e.Cause == byOrder && st.Order.End == nil && !over:
			h.takeBack("the order to end was taken back")
			return false, nil
		case e.Cause == byLease && st.Order.End == nil && !over:
			h.takeBack("its lease is until " + plain.Time(lease))
			return false, nil
		case e.Cause == byIdle && !over && h.notAtRest(e.Since, idle) != "":
			h.takeBack(h.notAtRest(e.Since, idle))
			return false, nil
		}
	}
	saves := h.o.Host.Work != ""
	switch {
	case e.Discard:
		return h.isOver("what is not saved is given up, as ordered")
	case !saves:
		return h.isOver("the session names no place for snapshots")
	case !h.restored(&st):
		// What is in the folder is less than the newest snapshot.
		return h.isOver("the work folder was not set up: there is nothing to save")
	case !h.now.Before(h.endBy(lease)):
		why := cmp.Or(h.unsaved, "the last snapshot took too long")
		h.unsaved = why
		h.j.add("unsaved", "the time to end is over, and the newest work is not saved: "+why)
		return h.isOver("there is no last snapshot (" + why + ")")
	case h.saving:
		return false, nil
	case h.final != nil && h.final.err == nil && !e.Killed:
		if over, err := h.still(ctx); over || err != nil {
			return over, err
		}
	case h.final != nil && h.final.err == nil && h.final.snapshot.Complete:
		return h.isOver(fmt.Sprintf("the last snapshot is confirmed: number %d", h.final.number))
	}
	if within := time.Duration(h.o.Host.SaveLimit); h.now.Sub(e.Since) >= within && (h.tries > 0 || h.gaveUp) {
		if done, err := h.giveUp(lease, within); done || err != nil || h.end == nil {
			return done, err
		}
	}
	if !h.now.Before(h.nextTry) {
		h.startSave(ctx, saving{last: true, exited: e.Killed, within: time.Duration(h.o.Host.SaveLimit)})
	}
	return false, nil
}

// still ends the processes, so that nothing is written after the last snapshot. Where
// something was, or wrote all the time, another one is taken of the folder that stands still.
func (h *host) still(ctx context.Context) (bool, error) {
	h.end.Killed = true
	if err := h.keepEnd(); err != nil {
		return false, err
	}
	h.stopBoot() // it would run the set-up command again
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := h.o.Cage.Kill(limited); err != nil {
		h.o.Log(err.Error())
	}
	if f := h.final; f.snapshot.Complete && f.seen != "" {
		if now, err := fingerprint(h.work.dir); err == nil && now == f.seen {
			return h.isOver(fmt.Sprintf("the last snapshot is confirmed: number %d", f.number))
		}
	}
	h.j.add("snapshot", "files changed since: the processes are ended and the last snapshot is taken again")
	h.final, h.nextTry = nil, time.Time{}
	return false, nil
}

// notAtRest says why a session that ends because it rests does not any more; empty where it
// still rests since before a time.
func (h *host) notAtRest(since time.Time, idle time.Duration) string {
	switch {
	case h.verdict.State == duty.Unknown:
		return "what it does is unknown: " + h.verdict.Why
	case !h.atRest():
		return "it works: " + h.verdict.Why
	case h.restSince().After(since):
		return "it worked since"
	case idle == 0 || h.now.Sub(h.restSince()) < idle:
		return "the idle time was extended"
	}
	return ""
}

// isOver is the end of a session whose work is safe: from here on nothing takes it back.
func (h *host) isOver(how string) (bool, error) {
	h.end.Done = true
	h.j.add("ended", h.end.Why+"; "+how)
	if err := h.keepEnd(); err != nil {
		return false, err
	}
	h.phase, h.why = session.HostEnding, h.end.Why
	warn(h.last.terminals, "the session ended: "+h.end.Why)
	return true, nil
}

// endBy is when the session ends whatever is unfinished: so long after its lease, or after the end
// began where that was later, because the agent was away.
func (h *host) endBy(lease time.Time) time.Time {
	from := lease
	if h.end.Since.After(from) {
		from = h.end.Since
	}
	return from.Add(time.Duration(h.o.Host.EndLimit()))
}

// giveUp is where the last snapshot could not be taken in its time. Work that is not saved
// keeps its machine: only where nothing is lost with it the session ends all the same, once
// its lease is over. A session that rests goes on until then.
func (h *host) giveUp(lease time.Time, within time.Duration) (bool, error) {
	e := h.end
	if !h.now.Before(lease.Add(within)) {
		if h.o.Ender == nil {
			return h.isOver("there is no last snapshot (" + h.unsaved + "), and the files stay on the machine")
		}
		if seen := h.view().Seen; seen != "" {
			if now, err := fingerprint(h.work.dir); err == nil && now == seen {
				h.unsaved = ""
				return h.isOver("nothing was written since the last snapshot")
			}
		}
	}
	if !h.gaveUp {
		h.gaveUp = true
		said := fmt.Sprintf("the work of this session is not saved: %s. The machine is kept until it is, and until %s at "+
			"most; curfew down --discard gives it up", h.unsaved, plain.Time(h.endBy(lease)))
		h.j.add("unsaved", said)
		warn(h.last.terminals, said)
	}
	if e.Cause == byIdle && h.now.Before(lease) && !e.Killed {
		h.takeBack("its work could not be saved: " + h.unsaved)
	}
	return false, nil
}

// startSave begins a save, where none runs.
func (h *host) startSave(ctx context.Context, w saving) {
	if h.saving || h.o.Host.Work == "" {
		return
	}
	h.saving = true
	w.began, w.asked = h.now, h.view().Order.SaveRequest
	go func() { h.saves <- h.work.save(ctx, w) }()
}

// saveDone takes what became of a save.
func (h *host) saveDone(s *saved) error {
	h.saving = false
	h.tries++
	if s.err != nil {
		h.unsaved = s.err.Error()
		wait := min(h.paces.Retry<<min(h.tries-1, 10), 30*time.Second)
		h.nextTry = h.now.Add(wait)
		if h.tries%20 == 1 {
			h.j.add("unsaved", "the work folder is not saved: "+s.err.Error())
		}
		if s.last {
			h.final = s
		}
		return nil
	}
	h.unsaved, h.lastSave, h.tries, h.nextTry = s.why, s.began, 0, time.Time{}
	if h.notice != nil {
		h.notice.saved = h.now
	}
	if s.last && h.end != nil {
		h.final = s
		if !s.snapshot.Complete && h.end.Killed {
			h.tries, h.nextTry = 1, h.now.Add(h.paces.Retry)
		}
	}
	text := fmt.Sprintf("snapshot confirmed: number %d, %s", s.number, plain.Size(s.snapshot.Bytes))
	if s.why != "" {
		text += "; " + s.why
	}
	h.j.add("snapshot", text)
	return h.update(func(st *state) {
		st.Snapshot, st.Seen, st.Saved = s.snapshot, s.seen, max(st.Saved, s.asked)
	})
}

// saveWhenDue saves when the time has come or the keeper asks.
func (h *host) saveWhenDue(ctx context.Context) {
	st := h.view()
	asked := st.Order.SaveRequest > st.Saved
	if h.o.Host.Work == "" {
		if asked {
			h.unsaved = "the session names no place for snapshots"
			if err := h.update(func(s *state) { s.Saved = s.Order.SaveRequest }); err != nil {
				h.o.Log(err.Error())
			}
		}
		return
	}
	every := time.Duration(h.o.Host.SaveInterval)
	due := every > 0 && h.now.Sub(h.lastSave) >= every
	// Before the restore is done, the folder is not the work.
	if !h.restored(&st) || h.saving || h.now.Before(h.nextTry) || h.notice != nil {
		return
	}
	if asked || due {
		h.startSave(ctx, saving{})
	}
}

// restored says whether the work folder holds the work.
func (h *host) restored(st *state) bool {
	for _, s := range st.Steps {
		if s.Name == "work" {
			return s.State == "done" || s.State == "skipped"
		}
	}
	return false
}

// announced takes the provider's notice.
func (h *host) announced(at time.Time) {
	if h.notice != nil && h.notice.at.Equal(at) {
		return
	}
	h.notice = &notice{at: at}
	said := "the provider takes this machine at " + plain.Time(at) + ": the work folder is saved now"
	h.j.add("notice", said)
	warn(h.last.terminals, said)
}

// noticeMargin is how long before the end that was announced a save has to be over.
const noticeMargin = 10 * time.Second

// atNotice saves at once after a notice, and again as long as time is left.
func (h *host) atNotice(ctx context.Context) {
	n := h.notice
	if n == nil {
		return
	}
	if h.o.Now().After(n.at.Add(5 * time.Minute)) {
		h.notice = nil // the provider thought better of it
		h.phase, h.why = h.standing()
		h.j.add("notice", "the machine was not taken")
		return
	}
	h.phase, h.why = session.HostSaving, "the provider takes the machine at "+plain.Time(n.at)
	deadline := n.at.Add(-noticeMargin)
	st := h.view()
	left := deadline.Sub(h.o.Now())
	if h.saving || !h.restored(&st) || left <= time.Second || h.now.Before(h.nextTry) || !n.saved.IsZero() &&
		h.now.Sub(n.saved) < 15*time.Second {
		return
	}
	h.startSave(ctx, saving{deadline: deadline, within: left})
}

// idle warns a session that rests, and ends it after the grace.
func (h *host) idle() {
	_, limit := h.bounds(h.view().Order)
	if h.notice != nil {
		return
	}
	if w := h.warning; w != nil {
		h.grace(w, limit)
		return
	}
	if limit == 0 || !h.atRest() || h.now.Sub(h.restSince()) < limit {
		return
	}
	w := &warning{since: h.now, serial: h.view().Order.Serial}
	grace := time.Duration(h.o.Host.Grace)
	rested := plain.Duration(h.now.Sub(h.restSince()).Truncate(time.Second))
	said := fmt.Sprintf(
		"this session rests for %s and ends in %s. To keep it: work, run curfew extend %s, or touch ~/.curfew/keep", rested,
		plain.Duration(grace), h.o.Host.Name)
	w.told = warn(h.last.terminals, said)
	h.warning = w
	h.phase, h.why = session.HostWarned, h.activity+" for "+rested+": "+h.verdict.Why
	h.j.add("warned", fmt.Sprintf("%s; %s told; it ends in %s", h.why, plain.Count(w.told, "terminal"),
		plain.Duration(grace)))
	if w.told > 0 {
		w.accepted = h.now
	}
}

// grace is the time after a warning: whatever changes puts it back.
func (h *host) grace(w *warning, limit time.Duration) {
	if why := h.notAtRest(w.since, limit); why != "" {
		h.putBack(why)
		return
	}
	if w.accepted.IsZero() {
		// The warning counts once the owner can have read it.
		if phase, err := h.told.toldPhase(); err == "" && phase == session.HostWarned {
			w.accepted = h.now
		}
		return
	}
	// Two measurements at least, so that one that was wrong does not end it.
	if h.now.Sub(w.accepted) < time.Duration(h.o.Host.Grace) || w.looks < 2 {
		return
	}
	h.begin(ending{Cause: byIdle, Why: h.activity + " since " + plain.Time(h.restSince()) + ": " + h.verdict.Why})
}

// putBack takes a warning back.
func (h *host) putBack(why string) {
	if h.warning == nil {
		return
	}
	h.warning = nil
	h.rests = h.now
	h.phase, h.why = h.standing()
	h.j.add("extended", "the warning is taken back: "+why)
	warn(h.last.terminals, "the session goes on: "+why)
}
