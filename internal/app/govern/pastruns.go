package govern

import (
	"context"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/internal/store"
)

// PastRuns returns the finished jobs of a database, for estimates of the same name.
func PastRuns(ctx context.Context, s *store.Store) ([]estimate.Run, error) {
	list, err := s.Jobs().Jobs(ctx, job.Query{})
	if err != nil {
		return nil, fmt.Errorf("read the jobs that are over: %w", err)
	}
	var runs []estimate.Run
	for _, j := range list {
		if run, ok := pastRun(&j); ok && j.RerunOf == "" { // a rerun did only a part of the work
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// pastRun converts a finished job to a past run; false if it holds no information about the next
// one.
func pastRun(j *job.Job) (estimate.Run, bool) {
	sp, err := spec.Parse(j.Name, j.Spec)
	worked := j.Worked()
	if err != nil || !j.State.IsFinal() || worked <= 0 {
		return estimate.Run{}, false
	}
	run := estimate.Run{
		Name: j.Name, Finished: j.EndedAt, Completed: j.State == job.Succeeded, Work: worked,
		Machines: max(1, sp.Resources.Nodes),
	}
	for _, a := range j.Attempts {
		if !a.Over() || a.LaunchedAt.IsZero() {
			continue
		}
		run.Machine = a.Pool.Type
		if a.Pool.Spot {
			run.SpotTime += a.EndedAt.Sub(a.LaunchedAt).Truncate(time.Second)
		}
	}
	run.Interruptions, _ = j.Interruptions()
	return run, true
}
