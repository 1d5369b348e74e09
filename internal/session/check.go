package session

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// Bounds of what a host says of itself. Whoever runs in a session can write in its host's name,
// so nothing of it is believed beyond them.
const (
	// maxText bounds a text of a status, in bytes, and maxEventText that of an event.
	maxText      = 2 << 10
	maxEventText = 8 << 10
	maxKind      = 32
	maxSteps     = 64
	maxConnected = 256
	maxTerminals = 10_000
	// maxEventLines bounds the events of one file, and maxEventFiles the files of a node.
	maxEventLines = 2_000
	maxEventFiles = 20_000
	// A host flushes its journal every two seconds while it prints, and it prints up to a bound;
	// after that it writes a file each ten seconds at most.
	firstEventFiles   = 2_000
	eventFileInterval = 10 * time.Second
	// eventFilesPerPass bounds the files that one pass reads of one node.
	eventFilesPerPass = 64
	// clockLeeway is how far the clock of a host may be ahead of the keeper's.
	clockLeeway = 5 * time.Minute
	// planLeeway is how far ahead a host may plan: no lease is longer than a year.
	planLeeway = 400 * 24 * time.Hour
)

var (
	hostAddress  = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?$`)
	snapshotKey  = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,511}$`)
	hostPhases   = []Phase{HostStarting, HostReady, HostWarned, HostSaving, HostEnding, HostFailed}
	hostActivity = []string{"", "busy", "held", "idle", "unknown"}
	stepStates   = []string{"waiting", "running", "done", "failed", "skipped"}
	connections  = []string{"shell", "ssh", "port"}
)

// check holds a status of a session's host to its bounds and to what can have happened by now. It
// drops what is beyond them and names the fields, never their values. A status without a valid
// phase says nothing: ok is false.
func (st *Status) check(s *Session, now time.Time) (wrong []string, ok bool) {
	drop := func(name string, bad bool, clear func()) {
		if bad {
			wrong = append(wrong, name)
			clear()
		}
	}
	times := func(name string, at *time.Time, ahead time.Duration) {
		early := s.RequestedAt.AddDate(0, 0, -1)
		drop(name, !at.IsZero() && (at.After(now.Add(ahead)) || at.Before(early)), func() { *at = time.Time{} })
		*at = at.UTC()
	}
	text := func(at *string, limit int) {
		if len(*at) > limit || !utf8.ValidString(*at) {
			*at = strings.ToValidUTF8((*at)[:min(len(*at), limit)], "\uFFFD") + " …"
		}
	}
	times("at", &st.At, clockLeeway)
	times("lease_until", &st.Lease, planLeeway)
	times("since", &st.Since, clockLeeway)
	times("ends_at", &st.EndsAt, planLeeway)
	drop("boot", len(st.Boot) > 128 || !utf8.ValidString(st.Boot), func() { st.Boot = "" })
	drop("serial", st.Serial < 0 || st.Serial > s.Serial, func() { st.Serial = 0 })
	drop("saved", st.Saved < 0 || st.Saved > s.Save, func() { st.Saved = 0 })
	drop("activity", !slices.Contains(hostActivity, st.Activity), func() { st.Activity = "unknown" })
	drop("terminals", st.Terminals < 0 || st.Terminals > maxTerminals, func() { st.Terminals = 0 })
	drop("address", st.Address != "" && !hostAddress.MatchString(st.Address), func() { st.Address = "" })
	drop("events", st.Events < 0 || st.Events > eventFiles(s, now), func() { st.Events = 0 })
	text(&st.Why, maxText)
	text(&st.Unsaved, maxText)
	drop("steps", len(st.Steps) > maxSteps || slices.ContainsFunc(st.Steps, func(p Step) bool {
		return len(p.Name) > 64 || !slices.Contains(stepStates, p.State)
	}), func() { st.Steps = nil })
	for i := range st.Steps {
		times("steps", &st.Steps[i].StartedAt, clockLeeway)
		times("steps", &st.Steps[i].FinishedAt, clockLeeway)
		text(&st.Steps[i].Name, 64)
		text(&st.Steps[i].Why, maxText)
	}
	drop(
		"connections",
		len(st.Connections) > maxConnected || slices.ContainsFunc(st.Connections, func(c Connection) bool {
			return !slices.Contains(connections, c.Kind) || len(c.From) > 256
		}),
		func() { st.Connections = nil },
	)
	for i := range st.Connections {
		text(&st.Connections[i].From, 256)
		// A terminal may be older than the session.
		if at := st.Connections[i].Since; !at.IsZero() &&
			(at.After(now.Add(clockLeeway)) || at.Before(time.Unix(0, 0))) {
			wrong = append(wrong, "connections")
			st.Connections[i].Since = time.Time{}
		}
	}
	n := st.Snapshot
	impossible := n.Bytes < 0 || n.Epoch < 0 || n.Epoch > s.Epoch || n.At.After(now.Add(clockLeeway)) ||
		n.Manifest != "" && !snapshotKey.MatchString(n.Manifest) || !n.At.IsZero() && n.At.Before(time.Unix(0, 0))
	drop("snapshot", impossible, func() { st.Snapshot = Snapshot{} })
	ok = slices.Contains(hostPhases, st.Phase)
	drop("phase", !ok, func() { st.Phase = "" })
	slices.Sort(wrong)
	return slices.Compact(wrong), ok
}

// eventFiles is how many files of events a host can have written by now.
func eventFiles(s *Session, now time.Time) int64 {
	began := s.LaunchedAt
	if began.IsZero() {
		began = s.RequestedAt
	}
	fits := firstEventFiles + int64(max(0, now.Sub(began))/eventFileInterval)
	return min(fits, maxEventFiles)
}

// checkHosts is [Status.check] for what every host said. A host whose status says nothing is left
// out; wrong names the fields that were dropped, by node.
func checkHosts(s *Session, hosts map[int]Status, broken map[int]string, now time.Time) (wrong []string) {
	for node, why := range broken {
		wrong = append(wrong, fmt.Sprintf("node %d: %s", node, why))
	}
	for node, st := range hosts {
		fields, ok := st.check(s, now)
		if len(fields) > 0 {
			wrong = append(wrong, fmt.Sprintf("node %d: %s", node, strings.Join(fields, ", ")))
		}
		if hosts[node] = st; !ok {
			delete(hosts, node)
		}
	}
	slices.Sort(wrong)
	return wrong
}

// checkEvents holds a file of events to its bounds. A file below the newest that has no event is
// one that says so, so that no pass reads it again.
func checkEvents(s *Session, node int, events []Event, now time.Time) []Event {
	if len(events) == 0 {
		return []Event{{At: now, Node: node, Kind: unreadable, Text: "a file of events is missing or empty"}}
	}
	if left := len(events) - maxEventLines; left > 0 {
		events = append(
			events[:maxEventLines:maxEventLines],
			Event{
				At:   now,
				Node: node,
				Kind: unreadable,
				Text: fmt.Sprintf("%d more events of one file are left out", left),
			},
		)
	}
	for i := range events {
		e := &events[i]
		if e.At.After(now.Add(clockLeeway)) || e.At.Before(s.RequestedAt.AddDate(0, 0, -1)) {
			e.At = now // it was read by then
		}
		e.At = e.At.UTC()
		if len(e.Kind) > maxKind || !utf8.ValidString(e.Kind) {
			e.Kind = unreadable
		}
		if len(e.Text) > maxEventText {
			e.Text = strings.ToValidUTF8(e.Text[:maxEventText], "\uFFFD") + " …"
		}
	}
	return events
}
