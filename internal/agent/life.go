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

// decide does what is due. It returns true when the machine is to be released.
func (h *host) decide(ctx context.Context) (bool, error) {
	h.readClock()
	h.updateActivity()
	h.checkKeepFile()
	defer func() { h.outbox.set(h.currentStatus()) }()
	h.noteProgress()
	if h.ending == nil {
		h.endIfDue()
	}
	if h.ending != nil {
		return h.advanceEnd(ctx)
	}
	h.saveBeforeNotice(ctx)
	h.saveWhenDue(ctx)
	h.warnBeforeLease()
	if h.phase != session.HostStarting {
		h.warnIfIdle()
	}
	return false, nil
}

// updateActivity updates the activity: the status reports that of this machine, decisions use that
// of all nodes.
func (h *host) updateActivity() {
	v := h.tracker.verdict(h.now)
	if h.phase == session.HostStarting {
		v = duty.Verdict{State: duty.Busy, Why: "it is set up"}
	}
	h.verdict = v
	if h.options.Host.Nodes > 1 {
		h.verdict = combineVerdicts(append([]duty.Verdict{v}, h.otherVerdicts...)...)
	}
	is := v.State.String()
	switch v.State {
	case duty.Idle, duty.Held, duty.Unknown, duty.Busy:
	default:
		is = duty.Busy.String() // it computes or is about to
	}
	if is == h.activity {
		return
	}
	old := h.activity
	h.activity, h.activitySince = is, h.now
	resting := v.State == duty.Idle || v.State == duty.Held
	if resting && v.Since.After(h.idleNotBefore) {
		h.activitySince = v.Since
	} else if resting {
		h.activitySince = h.idleNotBefore
	}
	if old != "" && !h.tracker.coveredUntil.IsZero() && h.phase != session.HostStarting {
		kind := "busy"
		if resting {
			kind = "idle"
		}
		h.journal.add(kind, is+": "+v.Why)
	}
}

// isResting reports whether the session is known to be idle.
func (h *host) isResting() bool { return h.verdict.State == duty.Idle || h.verdict.State == duty.Held }

// restingSince returns the start of the idle time that counts.
func (h *host) restingSince() time.Time {
	if h.verdict.Since.After(h.idleNotBefore) {
		return h.verdict.Since
	}
	return h.idleNotBefore
}

// checkKeepFile treats a touch of the keep file as work.
func (h *host) checkKeepFile() {
	if entered := modifiedAt(h.folder.path(EnteredFile)); entered.After(h.enteredAt) {
		h.enteredAt = entered
		h.noteWork("someone ran a command in it")
	}
	at, known := h.keepFileTime(), h.readState().KeepFileTime
	if at.IsZero() || at.Equal(known) {
		return
	}
	if err := h.updateState(func(s *state) { s.KeepFileTime = at }); err != nil {
		h.options.Log(err.Error())
		return
	}
	if h.warning == nil && h.ending == nil {
		h.journal.add("extended", "~/.curfew/keep was touched")
	}
	h.noteWork("~/.curfew/keep was touched")
}

// noteWork restarts the idle time for a sign of work that the meters do not show, and withdraws what
// was about to happen because of it.
func (h *host) noteWork(why string) {
	h.idleNotBefore = h.now
	h.cancelWarning(why)
	if e := h.ending; e != nil && e.Cause == causeIdle && !e.Killed && e.AskedAt.IsZero() {
		h.cancelEnd(why)
	}
}

// endIfDue begins the end if an order or the lease requires it.
func (h *host) endIfDue() {
	st := h.readState()
	lease, _ := h.leaseAndIdle(st.Order)
	switch {
	case st.Order.End != nil:
		e := st.Order.End
		h.beginEnd(ending{Cause: causeOrder, Why: e.Reason(), Discard: e.Discard})
	case h.replaced(&st):
		h.beginEnd(ending{Cause: causeReplaced, Why: "another machine took its place", Discard: true})
	case !h.now.Before(lease):
		h.beginEnd(ending{Cause: causeLease, Why: "its lease ended at " + plain.Time(lease)})
	default:
		h.endAfterCommand()
	}
}

// beginEnd begins the end of the session with the final save.
func (h *host) beginEnd(e ending) {
	e.Since = h.now
	h.ending, h.warning, h.finalSave, h.saveGivenUp = &e, nil, nil, false
	h.saveAttempts, h.nextSaveAt = 0, time.Time{}
	h.phase, h.phaseReason = session.HostSaving, e.Why
	h.journal.add("snapshot", "the last snapshot is taken: "+e.Why)
	told := "the session ends: " + e.Why
	if e.Cause != causeIdle {
		warnTerminals(h.lastMeasurement.terminals, told)
	}
}

// persistEnd stores the end: no later process cancels it.
func (h *host) persistEnd() error {
	e := *h.ending
	return h.updateState(func(s *state) { s.Ending = &e })
}

// cancelEnd cancels an end that has had no effect yet.
func (h *host) cancelEnd(why string) {
	h.ending, h.finalSave, h.saveGivenUp = nil, nil, false
	h.idleNotBefore = h.now
	h.phase, h.phaseReason = h.normalPhase()
	h.journal.add("extended", "the session goes on: "+why)
	warnTerminals(h.lastMeasurement.terminals, "the session goes on: "+why)
}

// normalPhase returns the phase of a session that does not end.
func (h *host) normalPhase() (session.Phase, string) {
	st := h.readState()
	switch {
	case st.FailReason != "":
		return session.HostFailed, st.FailReason
	case st.Ready:
		return session.HostReady, ""
	}
	return session.HostStarting, ""
}

// advanceEnd advances an end by one step: save, confirm, check again, release.
func (h *host) advanceEnd(ctx context.Context) (bool, error) {
	e := h.ending
	st := h.readState()
	lease, idle := h.leaseAndIdle(st.Order)
	over := !h.now.Before(lease)
	if o := st.Order.End; o != nil {
		e.Discard = e.Discard || o.Discard
		if e.Cause == causeIdle {
			e.Cause, e.Why = causeOrder, o.Why+", by "+o.By
		}
	}
	if e.Done {
		return true, nil
	}
	if !e.Killed && e.AskedAt.IsZero() {
		switch {
		case e.Cause == causeOrder && st.Order.End == nil && !over:
			h.cancelEnd("the order to end was withdrawn")
			return false, nil
		case e.Cause == causeLease && st.Order.End == nil && !over:
			h.cancelEnd("its lease is until " + plain.Time(lease))
			return false, nil
		case e.Cause == causeIdle && !over && h.activeReason(e.Since, idle) != "":
			h.cancelEnd(h.activeReason(e.Since, idle))
			return false, nil
		}
	}
	saves := h.options.Host.Work != ""
	// An idle session may still go on, so it is asked once its work is saved.
	if !e.Discard && !e.Killed && !h.saving && (h.finalSave != nil && h.finalSave.err == nil ||
		h.finalSave == nil && e.Cause != causeIdle) && h.now.Before(h.endDeadline(lease)) {
		if stopped, err := h.stopGently(); !stopped || err != nil {
			return false, err
		}
	}
	switch {
	case e.Discard:
		return h.finishEnd("unsaved work is given up, as ordered")
	case !saves:
		return h.finishEnd("the session names no place for snapshots")
	case !h.workRestored(&st):
		// The folder holds less than the newest snapshot.
		return h.finishEnd("the work folder was not set up: there is nothing to save")
	case !h.now.Before(h.endDeadline(lease)):
		why := cmp.Or(h.unsavedReason, "the last snapshot took too long")
		h.unsavedReason = why
		h.journal.add("unsaved", "the time to end is over, and the newest work is not saved: "+why)
		return h.finishEnd("there is no last snapshot (" + why + ")")
	case h.saving:
		return false, nil
	case h.finalSave != nil && h.finalSave.err == nil && !e.Killed:
		if over, err := h.stopProcesses(ctx); over || err != nil {
			return over, err
		}
	case h.finalSave != nil && h.finalSave.err == nil && (h.finalSave.snapshot.Complete || h.writerKilled()):
		return h.finishEnd(fmt.Sprintf("the last snapshot is confirmed: number %d", h.finalSave.number))
	}
	if within := time.Duration(h.options.Host.SaveLimit); h.now.Sub(e.Since) >= within &&
		(h.saveAttempts > 0 || h.saveGivenUp) {
		if done, err := h.giveUpSave(lease, within); done || err != nil || h.ending == nil {
			return done, err
		}
	}
	if !h.now.Before(h.nextSaveAt) {
		h.startSave(ctx, saveRequest{
			final: true, processesEnded: e.Killed || h.writerExited(), writerKilled: h.writerKilled(),
			timeout: time.Duration(h.options.Host.SaveLimit),
		})
	}
	return false, nil
}

// stopProcesses ends the processes so that nothing is written after the final snapshot. If files
// changed meanwhile, it requests another save of the now quiet folder.
func (h *host) stopProcesses(ctx context.Context) (bool, error) {
	h.ending.Killed = true
	if err := h.persistEnd(); err != nil {
		return false, err
	}
	h.stopBootstrap() // it would run the setup command again
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := h.options.Cage.Kill(limited); err != nil {
		h.options.Log(err.Error())
	}
	if f := h.finalSave; f.snapshot.Complete && f.fingerprint != "" {
		if now, err := fingerprint(h.work.dir); err == nil && now == f.fingerprint {
			return h.finishEnd(fmt.Sprintf("the last snapshot is confirmed: number %d", f.number))
		}
	}
	h.journal.add("snapshot", "files changed since: the processes are ended and the last snapshot is taken again")
	h.finalSave, h.nextSaveAt = nil, time.Time{}
	return false, nil
}

// activeReason explains why a session ending for idleness is not idle any more; empty if it has
// been idle since a time.
func (h *host) activeReason(since time.Time, idle time.Duration) string {
	switch {
	case h.verdict.State == duty.Unknown:
		return "its activity is unknown: " + h.verdict.Why
	case !h.isResting():
		return "it works: " + h.verdict.Why
	case h.restingSince().After(since):
		return "it worked since"
	case idle == 0 || h.now.Sub(h.restingSince()) < idle:
		return "the idle time was extended"
	}
	return ""
}

// finishEnd completes the end of a session whose work is safe; nothing cancels it afterwards.
func (h *host) finishEnd(how string) (bool, error) {
	if err := h.settleCommand(); err != nil {
		return false, err
	}
	h.ending.Done = true
	h.journal.add("ended", h.ending.Why+"; "+how)
	if err := h.persistEnd(); err != nil {
		return false, err
	}
	h.phase, h.phaseReason = session.HostEnding, h.ending.Why
	warnTerminals(h.lastMeasurement.terminals, "the session ended: "+h.ending.Why)
	return true, nil
}

// endDeadline returns the time at which the session ends even if work is unsaved: EndLimit after
// the lease, or after the begin of the end if that is later because the agent was down.
func (h *host) endDeadline(lease time.Time) time.Time {
	from := lease
	if h.ending.Since.After(from) {
		from = h.ending.Since
	}
	return from.Add(time.Duration(h.options.Host.EndLimit()))
}

// giveUpSave handles a final save that exceeded its time. Unsaved work keeps the machine until the
// deadline unless nothing would be lost. An idle session continues until its lease ends.
func (h *host) giveUpSave(lease time.Time, within time.Duration) (bool, error) {
	e := h.ending
	if !h.now.Before(lease.Add(within)) {
		if h.options.Terminator == nil {
			return h.finishEnd("there is no last snapshot (" + h.unsavedReason +
				"), and the files stay on the machine")
		}
		if seen := h.readState().SavedFingerprint; seen != "" {
			if now, err := fingerprint(h.work.dir); err == nil && now == seen {
				h.unsavedReason = ""
				return h.finishEnd("nothing was written since the last snapshot")
			}
		}
	}
	if !h.saveGivenUp {
		h.saveGivenUp = true
		said := fmt.Sprintf(
			"the work of this session is not saved: %s. The machine is kept until it is, and until %s at "+
				"most; curfew down --discard gives it up", h.unsavedReason, plain.Time(h.endDeadline(lease)))
		h.journal.add("unsaved", said)
		warnTerminals(h.lastMeasurement.terminals, said)
	}
	if e.Cause == causeIdle && h.now.Before(lease) && !e.Killed {
		h.cancelEnd("its work could not be saved: " + h.unsavedReason)
	}
	return false, nil
}

// startSave starts a save unless one is running.
func (h *host) startSave(ctx context.Context, w saveRequest) {
	if h.saving || h.options.Host.Work == "" {
		return
	}
	h.saving = true
	w.startedAt, w.orderSave = h.now, h.readState().Order.SaveRequest
	h.background.Go(func() { h.saveResults <- h.work.save(ctx, w) })
}

// handleSaveResult records the result of a save.
func (h *host) handleSaveResult(s *saveResult) error {
	h.saving = false
	h.saveAttempts++
	if s.err != nil {
		h.unsavedReason = s.err.Error()
		wait := min(h.intervals.Retry<<min(h.saveAttempts-1, 10), 30*time.Second)
		h.nextSaveAt = h.now.Add(wait)
		if h.saveAttempts%20 == 1 {
			h.journal.add("unsaved", "the work folder is not saved: "+s.err.Error())
		}
		if s.final {
			h.finalSave = s
		}
		return nil
	}
	h.unsavedReason, h.lastSave, h.saveAttempts, h.nextSaveAt = s.incomplete, s.startedAt, 0, time.Time{}
	h.savedDeclared, h.saveTook = s.startedAt, h.now.Sub(s.startedAt)
	if h.notice != nil {
		h.notice.savedAt = h.now
	}
	if s.final && h.ending != nil {
		h.finalSave = s
		if !s.snapshot.Complete && h.ending.Killed && !h.writerKilled() {
			h.saveAttempts, h.nextSaveAt = 1, h.now.Add(h.intervals.Retry)
		}
	}
	text := fmt.Sprintf("snapshot confirmed: number %d, %s", s.number, plain.Size(s.snapshot.Bytes))
	if s.snapshot.Step != nil {
		text += fmt.Sprintf(", step %d", *s.snapshot.Step)
	}
	if s.incomplete != "" {
		text += "; " + s.incomplete
	}
	h.journal.add("snapshot", text)
	return h.updateState(func(st *state) {
		st.Snapshot, st.SavedFingerprint, st.AnsweredSave = s.snapshot, s.fingerprint, max(
			st.AnsweredSave, s.orderSave)
		st.SavedSteps = s.steps
	})
}

// saveWhenDue saves at each interval and when the keeper requests it.
func (h *host) saveWhenDue(ctx context.Context) {
	st := h.readState()
	asked := st.Order.SaveRequest > st.AnsweredSave
	if h.options.Host.Work == "" {
		if asked {
			h.unsavedReason = "the session names no place for snapshots"
			if err := h.updateState(func(s *state) { s.AnsweredSave = s.Order.SaveRequest }); err != nil {
				h.options.Log(err.Error())
			}
		}
		return
	}
	due := h.saveDue()
	// Before the restore is done, the folder is not the work.
	if !h.workRestored(&st) || h.saving || h.now.Before(h.nextSaveAt) || h.notice != nil {
		return
	}
	if asked || due {
		h.startSave(ctx, saveRequest{})
	}
}

// saveCostFactor bounds the time spent on snapshots after declarations to 5 percent.
const saveCostFactor = 20

// saveDue reports whether the interval between snapshots is over. The snapshots of a job that
// declares its checkpoints follow the declarations.
func (h *host) saveDue() bool {
	every := time.Duration(h.options.Host.SaveInterval)
	since := h.now.Sub(h.lastSave)
	if h.options.Host.Command != nil && !h.declaredAt.IsZero() {
		return h.declaredAt.After(h.savedDeclared) && since >= max(every, saveCostFactor*h.saveTook)
	}
	return every > 0 && since >= every
}

// workRestored reports whether the work folder holds the work.
func (h *host) workRestored(st *state) bool {
	for _, s := range st.Steps {
		if s.Name == "work" {
			return s.State == "done" || s.State == "skipped"
		}
	}
	return false
}

// handleNotice handles a spot notice.
func (h *host) handleNotice(at time.Time) {
	if h.notice != nil && h.notice.at.Equal(at) {
		return
	}
	h.notice = &notice{at: at, askedAt: h.now}
	said := "the provider takes this machine at " + plain.Time(at) + ": the work folder is saved now"
	h.journal.add("notice", said)
	warnTerminals(h.lastMeasurement.terminals, said)
	h.askToStop("the provider takes the machine", at.Add(-noticeMargin))
}

// noticeMargin is the time before the announced end by which a save has to finish.
const noticeMargin = 10 * time.Second

// saveBeforeNotice saves right after a spot notice, and again while time is left.
func (h *host) saveBeforeNotice(ctx context.Context) {
	n := h.notice
	if n == nil {
		return
	}
	if h.options.Now().After(n.at.Add(5 * time.Minute)) {
		h.notice = nil // the provider did not take the machine
		if err := h.bootstrap.withdrawStop(); err != nil {
			h.options.Log(err.Error())
		}
		h.phase, h.phaseReason = h.normalPhase()
		h.journal.add("notice", "the machine was not taken")
		return
	}
	h.phase, h.phaseReason = session.HostSaving, "the provider takes the machine at "+plain.Time(n.at)
	deadline := n.at.Add(-noticeMargin)
	st := h.readState()
	left := deadline.Sub(h.options.Now())
	if n.savedAt.IsZero() && !h.stopped(n.askedAt, min(time.Duration(h.options.Host.Grace), left/2)) {
		return
	}
	if h.saving || !h.workRestored(&st) || left <= time.Second || h.now.Before(h.nextSaveAt) || !n.savedAt.IsZero() &&
		h.now.Sub(n.savedAt) < 15*time.Second {
		return
	}
	h.startSave(ctx, saveRequest{deadline: deadline, timeout: left})
}

// leaseWarnings are the times before the end of a lease at which people are warned, and the shares of
// a short lease that they are at most.
var leaseWarnings = []struct {
	before time.Duration
	share  time.Duration // divides the lease
}{{15 * time.Minute, 4}, {2 * time.Minute, 10}}

// warnBeforeLease warns people before the lease ends, once for each warning and lease.
func (h *host) warnBeforeLease() {
	st := h.readState()
	if h.options.Host.Command != nil || !st.Ready || len(st.Steps) == 0 {
		return // no one extends the lease of a job
	}
	lease, _ := h.leaseAndIdle(st.Order)
	length := lease.Sub(st.Steps[0].StartedAt)
	warned := 0
	if st.WarnedLease.Equal(lease) {
		warned = st.LeaseWarnings
	}
	due := 0
	for i, w := range leaseWarnings {
		if lease.Sub(h.now) <= min(w.before, length/w.share) {
			due = i + 1
		}
	}
	if due <= warned {
		return
	}
	if err := h.updateState(func(s *state) { s.WarnedLease, s.LeaseWarnings = lease, due }); err != nil {
		h.options.Log(err.Error())
		return
	}
	said := fmt.Sprintf("the lease of this session ends in %s. To keep it: curfew extend %s --for 2h",
		plain.Duration(lease.Sub(h.now).Round(time.Second)), h.options.Host.Name)
	count := warnTerminals(h.lastMeasurement.terminals, said)
	h.journal.add("warned", said+" ("+plain.Count(count, "terminal")+" notified)")
}

// warnIfIdle warns an idle session, and ends it after the grace period.
func (h *host) warnIfIdle() {
	_, limit := h.leaseAndIdle(h.readState().Order)
	if h.notice != nil {
		return
	}
	if w := h.warning; w != nil {
		h.endAfterGrace(w, limit)
		return
	}
	if limit == 0 || !h.isResting() || h.now.Sub(h.restingSince()) < limit {
		return
	}
	w := &warning{since: h.now, serial: h.readState().Order.Serial}
	grace := time.Duration(h.options.Host.Grace)
	rested := plain.Duration(h.now.Sub(h.restingSince()).Truncate(time.Second))
	said := fmt.Sprintf(
		"this session rests for %s and ends in %s. To keep it: work, run curfew extend %s, or touch ~/.curfew/keep",
		rested,
		plain.Duration(grace), h.options.Host.Name)
	w.terminals = warnTerminals(h.lastMeasurement.terminals, said)
	h.warning = w
	h.phase, h.phaseReason = session.HostWarned, h.activity+" for "+rested+": "+h.verdict.Why
	h.journal.add("warned", fmt.Sprintf("%s; %s notified; it ends in %s", h.phaseReason,
		plain.Count(w.terminals, "terminal"),
		plain.Duration(grace)))
	if w.terminals > 0 {
		w.accepted = h.now
	}
}

// endAfterGrace ends a warned session after its grace period; any activity cancels the warning.
func (h *host) endAfterGrace(w *warning, limit time.Duration) {
	if why := h.activeReason(w.since, limit); why != "" {
		h.cancelWarning(why)
		return
	}
	if w.accepted.IsZero() {
		// The grace period begins once the owner can read the warning.
		if phase, err := h.outbox.lastWritten(); err == "" && phase == session.HostWarned {
			w.accepted = h.now
		}
		return
	}
	// Require two measurements: a single bad one must not end the session.
	if h.now.Sub(w.accepted) < time.Duration(h.options.Host.Grace) || w.measurements < 2 {
		return
	}
	h.beginEnd(ending{
		Cause: causeIdle, Why: h.activity + " since " + plain.Time(h.restingSince()) + ": " + h.verdict.Why,
	})
}

// cancelWarning cancels a pending warning.
func (h *host) cancelWarning(why string) {
	if h.warning == nil {
		return
	}
	h.warning = nil
	h.idleNotBefore = h.now
	h.phase, h.phaseReason = h.normalPhase()
	h.journal.add("extended", "the warning is withdrawn: "+why)
	warnTerminals(h.lastMeasurement.terminals, "the session goes on: "+why)
}
