package store_test

import (
	"errors"
	"testing"
	"time"

	jobs "github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestJobsAreWrittenByVersion checks the conditional writes of jobs, the uniqueness of open names, and
// that events are stored with them.
func TestJobsAreWrittenByVersion(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o store.Options) {
		s := open(t, o)
		now := time.Date(2026, 11, 1, 9, 0, 0, 0, time.UTC)
		first := jobs.Job{ID: "j1", Name: "train", State: jobs.Waiting, RequestedAt: now, Spec: []byte("{}\n")}
		made, err := s.Jobs().Put(t.Context(), first, []session.Event{
			{At: now, Node: session.KeeperNode, Kind: "requested"},
		})
		if err != nil || made.Version != 1 {
			t.Fatalf("%+v: %v", made, err)
		}
		next := made
		next.State, next.Attempts = jobs.Running, []jobs.Attempt{{Session: "s1", Number: 1, BeganAt: now, Cost: 5}}
		if next, err = s.Jobs().Put(t.Context(), next, nil); err != nil || next.Version != 2 {
			t.Fatalf("%+v: %v", next, err)
		}
		if _, err := s.Jobs().Put(t.Context(), made, nil); !errors.Is(err, jobs.ErrConflict) {
			t.Errorf("a write over an older version: %v", err)
		}
		other := jobs.Job{ID: "j2", Name: "train", State: jobs.Waiting, RequestedAt: now.Add(time.Minute)}
		if _, err := s.Jobs().Put(t.Context(), other, nil); !errors.Is(err, jobs.ErrNameTaken) {
			t.Errorf("a second open job of the name: %v", err)
		}
		got, err := s.Jobs().Job(t.Context(), "j1")
		if err != nil || got.State != jobs.Running || len(got.Attempts) != 1 || got.Attempts[0].Cost != 5 ||
			string(got.Spec) != "{}\n" {
			t.Errorf("%+v: %v", got, err)
		}
		got.State = jobs.Succeeded
		if _, err := s.Jobs().Put(t.Context(), got, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Jobs().Put(t.Context(), other, nil); err != nil {
			t.Errorf("a job of the name after the other is over: %v", err)
		}
		for q, want := range map[jobs.Query]string{
			{Name: "train"}: "j2 j1", {OpenOnly: true}: "j2", {Name: "none"}: "",
		} {
			list, err := s.Jobs().Jobs(t.Context(), q)
			ids := ""
			for i, j := range list {
				if i > 0 {
					ids += " "
				}
				ids += j.ID
			}
			if err != nil || ids != want {
				t.Errorf("%+v: %q, want %q (%v)", q, ids, want, err)
			}
		}
		if _, err := s.Jobs().Job(t.Context(), "j9"); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("an unknown id: %v", err)
		}
		events, err := s.Sessions().Events(t.Context(), "j1")
		if err != nil || len(events) != 1 || events[0].Kind != "requested" {
			t.Errorf("%+v: %v", events, err)
		}
	})
}
