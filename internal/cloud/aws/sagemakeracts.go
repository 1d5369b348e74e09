package aws

import (
	"context"
	"errors"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Existence is checked by lists: a complete list without a resource proves that it is gone, while
// the errors of SageMaker's other calls are ambiguous.

// notebookNow reads a notebook; inventory.ErrNotFound if it does not exist.
func (p *place) notebookNow(ctx context.Context, name string) (types.NotebookInstanceSummary, error) {
	return listed(ctx, "notebook "+name, func(token *string) ([]types.NotebookInstanceSummary, *string, error) {
		out, err := sagemakerClient(p.reading).ListNotebookInstances(ctx, &sagemaker.ListNotebookInstancesInput{
			NameContains: &name,
			MaxResults:   awssdk.Int32(sageMakerPage),
			NextToken:    token,
		})
		if err != nil {
			return nil, nil, err
		}
		return out.NotebookInstances, out.NextToken, nil
	}, func(n types.NotebookInstanceSummary) bool { return awssdk.ToString(n.NotebookInstanceName) == name })
}

// endpointNow reads an endpoint; inventory.ErrNotFound if it does not exist.
func (p *place) endpointNow(ctx context.Context, name string) (types.EndpointSummary, error) {
	return listed(ctx, "endpoint "+name, func(token *string) ([]types.EndpointSummary, *string, error) {
		out, err := sagemakerClient(p.reading).ListEndpoints(ctx, &sagemaker.ListEndpointsInput{
			NameContains: &name,
			MaxResults:   awssdk.Int32(sageMakerPage),
			NextToken:    token,
		})
		if err != nil {
			return nil, nil, err
		}
		return out.Endpoints, out.NextToken, nil
	}, func(e types.EndpointSummary) bool { return awssdk.ToString(e.EndpointName) == name })
}

// trainingJobNow reads a training job; inventory.ErrNotFound if it does not exist.
func (p *place) trainingJobNow(ctx context.Context, name string) (types.TrainingJobSummary, error) {
	return listed(ctx, "training job "+name, func(token *string) ([]types.TrainingJobSummary, *string, error) {
		out, err := sagemakerClient(p.reading).ListTrainingJobs(ctx, &sagemaker.ListTrainingJobsInput{
			NameContains: &name,
			MaxResults:   awssdk.Int32(sageMakerPage),
			NextToken:    token,
		})
		if err != nil {
			return nil, nil, err
		}
		return out.TrainingJobSummaries, out.NextToken, nil
	}, func(j types.TrainingJobSummary) bool { return awssdk.ToString(j.TrainingJobName) == name })
}

// listed searches a list; inventory.ErrNotFound at its end.
func listed[T any](ctx context.Context, noun string, page func(token *string) ([]T, *string, error), is func(T) bool) (
	T, error) {
	var found T
	have := false
	err := pages(ctx, func(token *string) (*string, error) {
		items, next, err := page(token)
		if err == nil && items == nil {
			return nil, unclear("read " + noun)
		}
		for _, x := range items {
			if is(x) {
				found, have = x, true
				return nil, nil
			}
		}
		return next, err
	})
	if err == nil && !have {
		err = errNotThere
	}
	return found, failed("read "+noun, err)
}

// planNotebook stops a notebook and, if requested, deletes it. Its disk is deleted with it and
// cannot be saved.
func planNotebook(ctx context.Context, s *site, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	if strings.Contains(r.ID, "/") {
		return nil, refusal("no-such-verb",
			"studio application %s cannot be stopped; delete it in the studio, its space keeps its files", r.Name)
	}
	n, err := s.notebookNow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(n.CreationTime)); err != nil {
		return nil, err
	}
	stop, del := action.Step{Name: stepStop, Params: "{}"}, action.Step{Name: stepDelete, Params: "{}"}
	if do.Verb == policy.Delete && !do.ScratchDisks {
		return nil, refusal("unsaved-disk",
			"the disk of notebook %s would be deleted with it, and no snapshot saves it: declare it scratch", r.ID)
	}
	switch status := n.NotebookInstanceStatus; {
	case status == types.NotebookInstanceStatusDeleting:
		return nil, refusal("gone", "notebook %s is being deleted", r.ID)
	case status == types.NotebookInstanceStatusInService && do.Verb == policy.Stop:
		return []action.Step{stop}, nil
	case status == types.NotebookInstanceStatusInService:
		return []action.Step{stop, del}, nil
	case do.Verb == policy.Delete && (status == types.NotebookInstanceStatusStopped ||
		status == types.NotebookInstanceStatusFailed):
		return []action.Step{del}, nil
	default:
		return nil, refusal("state", "notebook %s is %s: only one in service can be stopped", r.ID, status)
	}
}

// notebook reads a task's notebook and refuses another one with the same name.
func (s *site) notebook(ctx context.Context, t action.Task) (types.NotebookInstanceStatus, error) {
	n, err := s.notebookNow(ctx, t.Ref.ID)
	if err != nil {
		return "", err
	}
	return n.NotebookInstanceStatus, identical(t, utc(n.CreationTime))
}

func stopNotebook(ctx context.Context, s *site, t action.Task) (string, error) {
	status, err := s.notebook(ctx, t)
	if err != nil || status == types.NotebookInstanceStatusStopping || status == types.NotebookInstanceStatusStopped {
		return string(status), err
	}
	_, err = sagemakerClient(s.acting).StopNotebookInstance(ctx, &sagemaker.StopNotebookInstanceInput{
		NotebookInstanceName: &t.Ref.ID,
	})
	return "", failed("stop notebook "+t.Ref.ID, err)
}

func lookNotebookStopped(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	status, err := twice(ctx, func() (types.NotebookInstanceStatus, error) { return s.notebook(ctx, t) })
	switch {
	case errors.Is(err, inventory.ErrNotFound):
		return action.Impossible, "", nil
	case err != nil:
		return action.NotDone, "", err
	case status == types.NotebookInstanceStatusStopped || status == types.NotebookInstanceStatusFailed:
		return action.Complete, string(status), nil
	case status == types.NotebookInstanceStatusStopping:
		return action.InProgress, string(status), nil
	case status == types.NotebookInstanceStatusDeleting:
		return action.Impossible, string(status), nil
	}
	return action.NotDone, "", nil
}

func startNotebook(ctx context.Context, s *site, t action.Task) error {
	status, err := s.notebook(ctx, t)
	if err != nil || status == types.NotebookInstanceStatusInService || status == types.NotebookInstanceStatusPending {
		return err
	}
	_, err = sagemakerClient(s.acting).StartNotebookInstance(ctx, &sagemaker.StartNotebookInstanceInput{
		NotebookInstanceName: &t.Ref.ID,
	})
	return failed("start notebook "+t.Ref.ID, err)
}

func deleteNotebook(ctx context.Context, s *site, t action.Task) (string, error) {
	status, err := s.notebook(ctx, t)
	switch {
	case err != nil || status == types.NotebookInstanceStatusDeleting:
		return string(status), err
	case status != types.NotebookInstanceStatusStopped && status != types.NotebookInstanceStatusFailed:
		return "", refusal("state", "notebook %s is %s: it is deleted once it is stopped", t.Ref.ID, status)
	case !t.Do.ScratchDisks:
		return "", refusal("unsaved-disk", "the disk of notebook %s would be deleted with it", t.Ref.ID)
	}
	_, err = sagemakerClient(s.acting).DeleteNotebookInstance(ctx, &sagemaker.DeleteNotebookInstanceInput{
		NotebookInstanceName: &t.Ref.ID,
	})
	return "", failed("delete notebook "+t.Ref.ID, err)
}

func lookNotebookGone(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	status, err := twice(ctx, func() (types.NotebookInstanceStatus, error) { return s.notebook(ctx, t) })
	return deletion(string(status), string(types.NotebookInstanceStatusDeleting), err)
}

// deletion returns the progress of a deletion: complete once the resource is gone.
func deletion(status, deleting string, err error) (action.Progress, string, error) {
	switch {
	case errors.Is(err, inventory.ErrNotFound):
		return action.Complete, "", nil
	case err != nil:
		return action.NotDone, "", err
	case status == deleting:
		return action.InProgress, status, nil
	}
	return action.NotDone, "", nil
}

func planEndpoint(ctx context.Context, s *site, r *inventory.Resource, _ policy.Do) ([]action.Step, error) {
	e, err := s.endpointNow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(e.CreationTime)); err != nil {
		return nil, err
	}
	if err := settled(r.ID, e.EndpointStatus); err != nil {
		return nil, err
	}
	return []action.Step{{Name: stepDelete, Params: "{}"}}, nil
}

// settled refuses an endpoint that is being changed, which SageMaker does not delete.
func settled(name string, status types.EndpointStatus) error {
	switch status {
	case types.EndpointStatusDeleting:
		return refusal("gone", "endpoint %s is being deleted", name)
	case types.EndpointStatusCreating, types.EndpointStatusUpdating, types.EndpointStatusSystemUpdating,
		types.EndpointStatusRollingBack, "":
		return refusal("state", "endpoint %s is %s: it is being changed", name,
			firstOf(string(status), "in an unknown state"))
	}
	return nil
}

// serving reads a task's endpoint and refuses another one with the same name.
func (s *site) serving(ctx context.Context, t action.Task) (types.EndpointStatus, error) {
	e, err := s.endpointNow(ctx, t.Ref.ID)
	if err != nil {
		return "", err
	}
	return e.EndpointStatus, identical(t, utc(e.CreationTime))
}

func deleteEndpoint(ctx context.Context, s *site, t action.Task) (string, error) {
	status, err := s.serving(ctx, t)
	if err != nil || status == types.EndpointStatusDeleting {
		return string(status), err
	}
	if err := settled(t.Ref.ID, status); err != nil {
		return "", err
	}
	_, err = sagemakerClient(s.acting).DeleteEndpoint(ctx, &sagemaker.DeleteEndpointInput{EndpointName: &t.Ref.ID})
	return "", failed("delete endpoint "+t.Ref.ID, err)
}

func lookEndpointGone(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	status, err := twice(ctx, func() (types.EndpointStatus, error) { return s.serving(ctx, t) })
	return deletion(string(status), string(types.EndpointStatusDeleting), err)
}

// planTrainingJob stops a job unless something else started it and would restart it.
func planTrainingJob(ctx context.Context, s *site, r *inventory.Resource, _ policy.Do) ([]action.Step, error) {
	j, err := s.trainingJobNow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(j.CreationTime)); err != nil {
		return nil, err
	}
	if j.TrainingJobStatus != types.TrainingJobStatusInProgress {
		return nil, refusal("state", "training job %s is %s: only one in progress can be stopped",
			r.ID, j.TrainingJobStatus)
	}
	manager, err := s.jobManager(ctx, r.ID)
	switch {
	case err != nil:
		return nil, unanswered(ctx, "what started training job "+r.ID, err)
	case manager != "":
		return nil, refusal("group-member",
			"training job %s belongs to %s: only its manager changes it", r.ID, manager)
	}
	return []action.Step{{Name: stepStop, Params: "{}"}}, nil
}

// jobManager returns the tuning, labeling or AutoML job that a training job is part of.
func (p *place) jobManager(ctx context.Context, name string) (string, error) {
	out, err := sagemakerClient(p.reading).DescribeTrainingJob(ctx, &sagemaker.DescribeTrainingJobInput{
		TrainingJobName: &name,
	})
	if err != nil {
		return "", err
	}
	return firstOf(awssdk.ToString(out.TuningJobArn), awssdk.ToString(out.LabelingJobArn),
		awssdk.ToString(out.AutoMLJobArn)), nil
}

// training reads a task's job and refuses another one with the same name.
func (s *site) training(ctx context.Context, t action.Task) (types.TrainingJobStatus, error) {
	j, err := s.trainingJobNow(ctx, t.Ref.ID)
	if err != nil {
		return "", err
	}
	return j.TrainingJobStatus, identical(t, utc(j.CreationTime))
}

func stopTrainingJob(ctx context.Context, s *site, t action.Task) (string, error) {
	status, err := s.training(ctx, t)
	if err != nil || status != types.TrainingJobStatusInProgress {
		return string(status), err
	}
	_, err = sagemakerClient(s.acting).StopTrainingJob(ctx, &sagemaker.StopTrainingJobInput{
		TrainingJobName: &t.Ref.ID,
	})
	return "", failed("stop training job "+t.Ref.ID, err)
}

// lookTrainingStopped is complete once the job has ended in any way.
func lookTrainingStopped(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	status, err := s.training(ctx, t)
	switch {
	case err != nil:
		return action.NotDone, "", err
	case status == types.TrainingJobStatusStopping:
		return action.InProgress, string(status), nil
	case status == types.TrainingJobStatusStopped || status == types.TrainingJobStatusCompleted ||
		status == types.TrainingJobStatusFailed:
		return action.Complete, string(status), nil
	}
	return action.NotDone, "", nil
}
