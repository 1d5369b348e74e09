package aws

import (
	"context"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// planRepositoryLifecycle replaces the policy that a finding was based on by the finding's
// document.
func planRepositoryLifecycle(ctx context.Context, s *site, r *inventory.Resource, do policy.Do) ([]action.Step,
	error) {
	repo, text, err := s.registryNow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(repo.CreatedAt)); err != nil {
		return nil, err
	}
	return planDocument(r, text, do.Change)
}

// registryNow reads a repository and the text of its lifecycle policy; empty if there is none.
func (p *place) registryNow(ctx context.Context, name string) (repo types.Repository, text string, err error) {
	attempt := "read repository " + name
	out, err := ecrClient(p.reading).DescribeRepositories(ctx, &ecr.DescribeRepositoriesInput{
		RepositoryNames: []string{name},
	})
	if err != nil {
		return repo, "", failed(attempt, err)
	}
	i := slices.IndexFunc(out.Repositories, func(r types.Repository) bool {
		return awssdk.ToString(r.RepositoryName) == name
	})
	if i < 0 {
		return repo, "", failed(attempt, errNotThere)
	}
	repo = out.Repositories[i]
	now, err := ecrClient(p.reading).GetLifecyclePolicy(ctx, &ecr.GetLifecyclePolicyInput{RepositoryName: &name})
	switch {
	case is(err, "LifecyclePolicyNotFoundException"):
		return repo, "", nil
	case err != nil:
		return repo, "", failed("read the lifecycle of repository "+name, err)
	}
	return repo, awssdk.ToString(now.LifecyclePolicyText), nil
}

// registry reads the policy of a task's repository and the change of the task.
func (s *site) registry(ctx context.Context, t action.Task) (now string, put change.Change, err error) {
	if put, err = decoded[change.Change](t, t.Step.Params); err != nil {
		return "", put, err
	}
	repo, now, err := s.registryNow(ctx, t.Ref.ID)
	if err != nil {
		return "", put, err
	}
	return now, put, identical(t, utc(repo.CreatedAt))
}

func putRepositoryLifecycle(ctx context.Context, s *site, t action.Task) (string, error) {
	now, put, err := s.registry(ctx, t)
	switch {
	case err != nil || change.Equivalent(now, put.Document):
		return "", err
	case !change.Equivalent(now, put.Before):
		return "", otherDocument(t.Ref.Kind, t.Ref.ID)
	}
	return "", s.putRegistry(ctx, t.Ref.ID, put.Document)
}

func lookRepositoryLifecycle(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	now, put, err := s.registry(ctx, t)
	if err != nil || !change.Equivalent(now, put.Document) {
		return action.NotDone, "", err
	}
	return action.Complete, "", nil
}

// restoreRepositoryLifecycle writes the former text byte for byte, unless the policy changed since.
// Images expired meanwhile stay gone.
func restoreRepositoryLifecycle(ctx context.Context, s *site, t action.Task) error {
	now, put, err := s.registry(ctx, t)
	switch {
	case err != nil || now == t.Step.Undo:
		return err
	case !change.Equivalent(now, put.Document):
		return refusal("changed", "the lifecycle of repository %s was changed again since", t.Ref.ID)
	}
	return s.putRegistry(ctx, t.Ref.ID, t.Step.Undo)
}

// putRegistry writes a policy byte for byte, or deletes it if empty.
func (s *site) putRegistry(ctx context.Context, name, text string) error {
	if text == "" {
		_, err := ecrClient(s.acting).DeleteLifecyclePolicy(ctx, &ecr.DeleteLifecyclePolicyInput{
			RepositoryName: &name,
		})
		return failed("take the lifecycle of repository "+name+" away", err)
	}
	_, err := ecrClient(s.acting).PutLifecyclePolicy(ctx, &ecr.PutLifecyclePolicyInput{
		RepositoryName:      &name,
		LifecyclePolicyText: &text,
	})
	return failed("put the lifecycle of repository "+name, err)
}
