package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/session"
)

// jobs stores jobs.
type jobs struct{ *database }

// Jobs returns the store of jobs.
func (s *Store) Jobs() job.Store { return jobs{s.db} }

// jobRow is a job. Body is the complete job; the other columns are indexed.
type jobRow struct {
	ID          string            `db:"id"`
	Name        string            `db:"name"`
	State       job.State         `db:"state"`
	Over        flag              `db:"over"`
	RequestedAt instant           `db:"requested_at"`
	Version     int64             `db:"version"`
	Body        document[job.Job] `db:"body"`
}

var jobTable = describe("jobs", jobRow{})

func (r jobRow) job() job.Job {
	j := r.Body.of
	j.Version = r.Version
	return j
}

// Put implements job.Store.
func (d jobs) Put(ctx context.Context, j job.Job, events []session.Event, entries ...action.Entry) (job.Job, error) {
	err := exact(j.ID, j.Name)
	if j.ID == "" || j.Name == "" {
		err = errors.New("it needs an id and a name")
	}
	j.Why = prose(j.Why)
	for i := range j.Attempts {
		j.Attempts[i].Evidence = prose(j.Attempts[i].Evidence)
	}
	row := jobRow{
		ID: j.ID, Name: j.Name, State: j.State, Over: flag(j.State.IsFinal()), RequestedAt: at(j.RequestedAt),
		Version: j.Version + 1, Body: document[job.Job]{j},
	}
	if err == nil {
		err = d.transact(ctx, func(t *tx) error {
			if err := t.put(ctx, jobTable(), row, j.Version, job.ErrConflict); err != nil {
				return err
			}
			t.changed, t.later = true, true
			if err := t.addSessionEvents(ctx, j.ID, session.KeeperNode, row.Version, events); err != nil {
				return err
			}
			return t.record(entries...)
		})
	}
	if errors.Is(err, job.ErrConflict) && j.Version == 0 {
		var same jobRow
		if again := d.get(ctx, &same, jobTable().query+" WHERE id = ?", j.ID); errors.Is(again, sql.ErrNoRows) {
			err = job.ErrNameTaken
		}
	}
	if err != nil {
		return job.Job{}, fmt.Errorf("write job %s: %w", j.Name, err)
	}
	return row.job(), nil
}

// Job implements job.Store.
func (d jobs) Job(ctx context.Context, id string) (job.Job, error) {
	var row jobRow
	err := d.get(ctx, &row, jobTable().query+" WHERE id = ?", id)
	if errors.Is(err, sql.ErrNoRows) {
		err = job.ErrNotFound
	}
	if err != nil {
		return job.Job{}, fmt.Errorf("read job %q: %w", id, err)
	}
	return row.job(), nil
}

// Jobs implements job.Store.
func (d jobs) Jobs(ctx context.Context, q job.Query) ([]job.Job, error) {
	f := &filter{dialect: &d.dialect}
	if q.Name != "" {
		f.and("name = ?", q.Name)
	}
	if q.OpenOnly {
		f.and("over = 0")
	}
	var rows []jobRow
	if err := d.list(ctx, &rows, jobTable().query+f.where()+" ORDER BY COALESCE(requested_at, 0) DESC, id",
		f.args...); err != nil {
		return nil, fmt.Errorf("read the jobs: %w", err)
	}
	return convert(rows, jobRow.job), nil
}
