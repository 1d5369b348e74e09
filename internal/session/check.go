package session

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// Limits of host documents. Anyone inside a session can write as its host, so values beyond these
// limits are dropped.
const (
	// maxStatusText bounds a text of a status, in bytes, and maxEventText that of an event.
	maxStatusText  = 2 << 10
	maxEventText   = 8 << 10
	maxKindLength  = 32
	maxSetupSteps  = 64
	maxConnections = 256
	maxTerminals   = 10_000
	// maxEventLines bounds the events of one file, maxEventFiles the files of one node.
	maxEventLines = 2_000
	maxEventFiles = 20_000
	// A host flushes its journal every two seconds while output is below its limit, afterwards at
	// most one file per ten seconds.
	firstEventFiles   = 2_000
	eventFileInterval = 10 * time.Second
	// eventFilesPerPass bounds the files read from one node in one pass.
	eventFilesPerPass = 64
	// clockLeeway is how far a host's clock may be ahead of the keeper's.
	clockLeeway = 5 * time.Minute
	// planLeeway bounds planned times; no lease is longer than a year.
	planLeeway = 400 * 24 * time.Hour
)

var (
	hostAddressPattern = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?$`)
	snapshotKeyPattern = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,511}$`)
	hostPhases         = []Phase{HostStarting, HostReady, HostWarned, HostSaving, HostEnding, HostFailed}
	hostActivities     = []string{"", "busy", "held", "idle", "unknown"}
	stepStates         = []string{"waiting", "running", "done", "failed", "skipped"}
	connectionKinds    = []string{"shell", "ssh", "port"}
)

// sanitize clears the fields of a host's status that exceed their limits or cannot be true yet, and
// returns the names of those fields. It returns false if the phase is invalid, in which case the
// status is unusable.
func (st *Status) sanitize(s *Session, now time.Time) (rejected []string, ok bool) {
	drop := func(name string, bad bool, clear func()) {
		if bad {
			rejected = append(rejected, name)
			clear()
		}
	}
	times := func(name string, at *time.Time, leeway time.Duration) {
		earliest := s.RequestedAt.AddDate(0, 0, -1)
		drop(name, !at.IsZero() && (at.After(now.Add(leeway)) || at.Before(earliest)), func() { *at = time.Time{} })
		*at = at.UTC()
	}
	text := func(at *string, limit int) {
		if len(*at) > limit || !utf8.ValidString(*at) {
			*at = strings.ToValidUTF8((*at)[:min(len(*at), limit)], "\uFFFD") + " …"
		}
	}
	times("at", &st.At, clockLeeway)
	times("lease_until", &st.LeaseUntil, planLeeway)
	times("since", &st.ActivitySince, clockLeeway)
	times("ends_at", &st.EndsAt, planLeeway)
	times("notice_at", &st.NoticeAt, planLeeway)
	drop("saved_steps", len(st.SavedSteps) > MaxSavedSteps || slices.ContainsFunc(st.SavedSteps, func(n int64) bool {
		return n < 0
	}), func() { st.SavedSteps = nil })
	drop("round", st.Round < 0 || st.Round > s.Round(), func() { st.Round = 0 })
	drop("boot", len(st.Boot) > 128 || !utf8.ValidString(st.Boot), func() { st.Boot = "" })
	drop("serial", st.OrderSerial < 0 || st.OrderSerial > s.OrderSerial, func() { st.OrderSerial = 0 })
	drop("saved", st.AnsweredSave < 0 || st.AnsweredSave > s.SaveRequest, func() { st.AnsweredSave = 0 })
	drop("activity", !slices.Contains(hostActivities, st.Activity), func() { st.Activity = "unknown" })
	drop("terminals", st.Terminals < 0 || st.Terminals > maxTerminals, func() { st.Terminals = 0 })
	drop("address", st.Address != "" && !hostAddressPattern.MatchString(st.Address), func() { st.Address = "" })
	drop("events", st.Events < 0 || st.Events > possibleEventFiles(s, now), func() { st.Events = 0 })
	text(&st.Why, maxStatusText)
	text(&st.UnsavedReason, maxStatusText)
	drop("steps", len(st.Steps) > maxSetupSteps || slices.ContainsFunc(st.Steps, func(p SetupStep) bool {
		return len(p.Name) > 64 || !slices.Contains(stepStates, p.State)
	}), func() { st.Steps = nil })
	for i := range st.Steps {
		times("steps", &st.Steps[i].StartedAt, clockLeeway)
		times("steps", &st.Steps[i].FinishedAt, clockLeeway)
		text(&st.Steps[i].Name, 64)
		text(&st.Steps[i].Why, maxStatusText)
	}
	drop(
		"connections",
		len(st.Connections) > maxConnections || slices.ContainsFunc(st.Connections, func(c Connection) bool {
			return !slices.Contains(connectionKinds, c.Kind) || len(c.Source) > 256
		}),
		func() { st.Connections = nil },
	)
	for i := range st.Connections {
		text(&st.Connections[i].Source, 256)
		// A terminal may predate the session.
		if at := st.Connections[i].Since; !at.IsZero() &&
			(at.After(now.Add(clockLeeway)) || at.Before(time.Unix(0, 0))) {
			rejected = append(rejected, "connections")
			st.Connections[i].Since = time.Time{}
		}
	}
	n := st.Snapshot
	impossible := n.Bytes < 0 || n.Epoch < 0 || n.Epoch > s.Epoch+s.Round() || n.At.After(now.Add(clockLeeway)) ||
		n.Until.After(now.Add(clockLeeway)) ||
		n.Manifest != "" && !snapshotKeyPattern.MatchString(n.Manifest) || !n.At.IsZero() &&
		n.At.Before(time.Unix(0, 0))
	drop("snapshot", impossible, func() { st.Snapshot = Snapshot{} })
	drop("snapshot step", n.Step != nil && *n.Step < 0, func() { st.Snapshot.Step = nil })
	if c := st.Command; c != nil {
		usable := c.sanitize(st.Node, text, func(name string, at *time.Time) { times(name, at, clockLeeway) })
		drop("command", !usable, func() { st.Command = nil })
	}
	ok = slices.Contains(hostPhases, st.Phase)
	drop("phase", !ok, func() { st.Phase = "" })
	slices.Sort(rejected)
	return slices.Compact(rejected), ok
}

// possibleEventFiles returns the most event files that a host can have written by now.
func possibleEventFiles(s *Session, now time.Time) int64 {
	began := s.LaunchedAt
	if began.IsZero() {
		began = s.RequestedAt
	}
	count := firstEventFiles + int64(max(0, now.Sub(began))/eventFileInterval)
	return min(count, maxEventFiles)
}

// sanitizeHosts sanitizes all statuses and deletes unusable ones. It returns the rejected fields by
// node.
func sanitizeHosts(s *Session, hosts map[int]Status, unreadable map[int]string, now time.Time) (rejected []string) {
	for node, why := range unreadable {
		rejected = append(rejected, fmt.Sprintf("node %d: %s", node, why))
	}
	for node, st := range hosts {
		fields, ok := st.sanitize(s, now)
		if len(fields) > 0 {
			rejected = append(rejected, fmt.Sprintf("node %d: %s", node, strings.Join(fields, ", ")))
		}
		if hosts[node] = st; !ok {
			delete(hosts, node)
		}
	}
	slices.Sort(rejected)
	return rejected
}

// sanitizeEvents enforces the limits on one event file. A missing or empty file below the newest
// becomes a single event, so that later passes skip it.
func sanitizeEvents(s *Session, node int, events []Event, now time.Time) []Event {
	if len(events) == 0 {
		return []Event{{At: now, Node: node, Kind: eventUnreadable, Text: "a file of events is missing or empty"}}
	}
	if excess := len(events) - maxEventLines; excess > 0 {
		events = append(
			events[:maxEventLines:maxEventLines],
			Event{
				At:   now,
				Node: node,
				Kind: eventUnreadable,
				Text: fmt.Sprintf("%d more events of one file are left out", excess),
			},
		)
	}
	for i := range events {
		e := &events[i]
		if e.At.After(now.Add(clockLeeway)) || e.At.Before(s.RequestedAt.AddDate(0, 0, -1)) {
			e.At = now // the time of reading is the latest possible time
		}
		e.At = e.At.UTC()
		if len(e.Kind) > maxKindLength || !utf8.ValidString(e.Kind) {
			e.Kind = eventUnreadable
		}
		if len(e.Text) > maxEventText {
			e.Text = strings.ToValidUTF8(e.Text[:maxEventText], "\uFFFD") + " …"
		}
	}
	return events
}
