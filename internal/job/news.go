package job

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
)

// capacityNews is one launch, refusal or interruption in the record of a session.
type capacityNews struct {
	provider, account string
	pool              session.Pool
	at                time.Time
	up                bool
}

// newsOverlap bounds how much later than its request time the record of a closed session appears.
const newsOverlap = time.Hour

// news collects the capacity news in the records of sessions. A record is read until its session is
// over, and not again.
type news struct {
	closed []capacityNews
	// faulty are the closed sessions with a GPU fault.
	faulty []session.Session
	// since is the request time from which closed sessions are read, zero for the first time: a session
	// may run for months. finished holds the request times of the closed sessions that were read, open the
	// ids of the sessions that were open.
	since    time.Time
	finished map[string]time.Time
	open     map[string]bool
}

// read returns the news of the last days, unordered, and the open sessions and those with a GPU fault.
func (n *news) read(ctx context.Context, store session.Store, now time.Time) (all []capacityNews,
	sessions []session.Session, err error) {
	if n.finished == nil {
		n.finished = map[string]time.Time{}
	}
	list, err := store.Sessions(ctx, session.Query{Since: n.since})
	if err != nil {
		return nil, nil, err
	}
	listed := map[string]bool{}
	for _, s := range list {
		listed[s.ID] = true
	}
	for id := range n.open { // requested long ago, and closed since
		if listed[id] {
			continue
		}
		s, err := store.Session(ctx, id)
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			return nil, nil, err
		}
		if err == nil {
			list = append(list, s)
		}
	}
	n.open = map[string]bool{}
	for i := range list {
		switch s := &list[i]; {
		case !s.State.IsFinal():
			n.open[s.ID] = true
			all, sessions = appendNews(all, s), append(sessions, *s)
		case n.finished[s.ID].IsZero():
			n.finished[s.ID] = s.RequestedAt
			n.closed = appendNews(n.closed, s)
			if s.Outcome != nil && s.Outcome.Class == session.GPUFault {
				n.faulty = append(n.faulty, *s)
			}
		}
	}
	n.forget(now)
	return append(all, n.closed...), append(sessions, n.faulty...), nil
}

// forget drops what is not needed any more.
func (n *news) forget(now time.Time) {
	if since := now.Add(-newsOverlap); since.After(n.since) {
		n.since = since
	}
	for id, at := range n.finished {
		if at.Before(n.since) {
			delete(n.finished, id)
		}
	}
	n.closed = slices.DeleteFunc(n.closed, func(c capacityNews) bool { return now.Sub(c.at) > memory })
	n.faulty = slices.DeleteFunc(n.faulty, func(s session.Session) bool { return now.Sub(s.Outcome.At) > memory })
}

// appendNews appends the capacity news in the record of a session.
func appendNews(out []capacityNews, s *session.Session) []capacityNews {
	add := func(at time.Time, p session.Pool, up bool) {
		if !at.IsZero() {
			out = append(out, capacityNews{s.Provider, s.Account, p, at, up})
		}
	}
	for _, f := range s.CapacityFailures {
		add(f.At, f.Pool, false)
	}
	if len(s.Machines) == 0 || !s.Pool.Spot {
		return out
	}
	add(s.LaunchedAt, s.Pool, true)
	if s.EndedBy == session.KeeperActor && !s.MissingSince.IsZero() { // they went by themselves
		add(cmp.Or(s.EndingAt, s.MissingSince), s.Pool, false)
	}
	return out
}

// sightings returns the news of the places of a job, in the order of time.
func (k *placed) sightings(all []capacityNews, j *Job) (out []sighting) {
	for _, n := range all {
		if n.provider != j.Provider || n.account != j.Account || k.began.Sub(n.at) >= memory {
			continue
		}
		if z := k.zone(n.pool); z >= 0 {
			out = append(out, sighting{n.at, z, n.up})
		}
	}
	slices.SortStableFunc(out, func(a, b sighting) int { return a.at.Compare(b.at) })
	return out
}
