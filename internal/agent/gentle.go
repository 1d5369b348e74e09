package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Processes that catch SIGTERM may be saving. They are waited for this long where no training takes
// part, and for the grace period where one does.
const saveGrace = 5 * time.Second

// trainingMaxAge is the age of the newest event at which a training counts as over.
const trainingMaxAge = 15 * time.Minute

// stopFile is the file in the run folder that asks a training to save and stop (docs/training.md).
const stopFile = "stop"

// runDir is the folder in which a training declares its events.
func (b *bootstrap) runDir() string { return b.folder.path("run") }

// askToStop writes the stop file and sends SIGTERM to the session's processes.
func (h *host) askToStop(why string, by time.Time) {
	text, err := json.Marshal(struct {
		Reason string    `json:"reason"`
		By     time.Time `json:"by"`
	}{why, by.UTC().Truncate(time.Second)})
	if err == nil {
		err = os.MkdirAll(h.bootstrap.runDir(), 0o755)
	}
	if err == nil {
		err = durable.ReplaceBytes(filepath.Join(h.bootstrap.runDir(), stopFile), 0o644, text)
	}
	if err != nil {
		h.options.Log("write the stop file: " + err.Error())
	}
	pids, err := h.options.Cage.Killable()
	if err != nil {
		h.options.Log("list the processes to stop: " + err.Error())
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended
	}
	if len(pids) > 0 {
		h.journal.add("stop", plain.Count(len(pids), "process")+" asked to save and end")
	}
}

// withdrawStop removes the stop file.
func (b *bootstrap) withdrawStop() error {
	err := os.Remove(filepath.Join(b.runDir(), stopFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// stopped reports whether the processes that were asked to stop have declared a save since, or have
// ended, or had their time.
func (h *host) stopped(askedAt time.Time, limit time.Duration) bool {
	events, err := h.events.Read()
	if err != nil {
		h.options.Log(err.Error())
	}
	training := h.commandRuns()
	if n := len(events.Saved); n > 0 {
		last := events.Saved[n-1].At
		if !last.Before(askedAt.Truncate(time.Millisecond)) {
			return true
		}
		training = training || askedAt.Sub(last) < trainingMaxAge
	}
	if at := h.stepAt; !at.IsZero() {
		training = training || askedAt.Sub(at) < trainingMaxAge
	}
	waited := h.now.Sub(askedAt)
	if !training {
		limit = min(limit, saveGrace)
	}
	return waited >= limit || !h.anyCatchesSIGTERM()
}

// anyCatchesSIGTERM reports whether a process of the session is left that handles SIGTERM.
func (h *host) anyCatchesSIGTERM() bool {
	pids, err := h.options.Cage.Killable()
	if err != nil {
		return true // unknown: wait for the limit
	}
	for _, pid := range pids {
		if catchesSIGTERM(pid) {
			return true
		}
	}
	return false
}

// catchesSIGTERM reads the mask of handled signals in /proc/PID/status.
func catchesSIGTERM(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false // it ended
	}
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(string(line), ":")
		switch value = strings.TrimSpace(value); name {
		case "State":
			if strings.HasPrefix(value, "Z") {
				return false
			}
		case "SigCgt":
			mask, err := strconv.ParseUint(value, 16, 64)
			return err != nil || mask&(1<<(uint(syscall.SIGTERM)-1)) != 0
		}
	}
	return false
}

// stopGently asks the processes of an ending session to save and stop, once, and returns true when
// the last snapshot may be taken.
func (h *host) stopGently() (bool, error) {
	e := h.ending
	limit := time.Duration(h.options.Host.Grace)
	if e.AskedAt.IsZero() {
		e.AskedAt = h.now
		if err := h.persistEnd(); err != nil {
			return false, err
		}
		h.askToStop(e.Why, h.now.Add(limit))
		return false, nil
	}
	return h.stopped(e.AskedAt, limit), nil
}
