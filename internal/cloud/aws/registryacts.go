package aws

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// untaggedDays is the age at which images without a tag expire: that after which one
// that nobody pulls counts as unused.
const untaggedDays = 90

// registryRule is a rule of a repository's lifecycle (Amazon ECR User Guide, "Lifecycle
// policy properties").
type registryRule struct {
	Priority    int               `json:"rulePriority"`
	Description string            `json:"description,omitempty"`
	Selection   registrySelection `json:"selection"`
	Action      registryAction    `json:"action"`
}

type registrySelection struct {
	TagStatus   string `json:"tagStatus"`
	CountType   string `json:"countType"`
	CountUnit   string `json:"countUnit,omitempty"`
	CountNumber int    `json:"countNumber"`
}

type registryAction struct {
	Type string `json:"type"`
}

// untaggedRule expires images without a tag. Its description is its name.
func untaggedRule(priority int) registryRule {
	return registryRule{Priority: priority, Description: ruleMark + "untagged",
		Selection: registrySelection{TagStatus: "untagged", CountType: "sinceImagePushed", CountUnit: "days", CountNumber: untaggedDays},
		Action:    registryAction{Type: "expire"}}
}

// registryPolicy is a repository's lifecycle with every rule as it is written.
type registryPolicy struct {
	Rules []json.RawMessage `json:"rules"`
}

// withUntagged returns a lifecycle policy with the rule for untagged images added and no
// other rule changed; changed is false where a rule for them is there already. An empty
// text is a repository without a policy.
func withUntagged(text string) (merged string, changed bool, err error) {
	var p registryPolicy
	if text != "" {
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return "", false, fmt.Errorf("read the lifecycle policy as JSON: %w", err)
		}
	}
	last := 0
	for _, raw := range p.Rules {
		var r registryRule
		if err := json.Unmarshal(raw, &r); err != nil {
			return "", false, fmt.Errorf("read a rule of the lifecycle policy: %w", err)
		}
		// A rule for any image is for those without a tag as well, and has to be the last.
		if r.Selection.TagStatus != "tagged" {
			return text, false, nil
		}
		last = max(last, r.Priority)
	}
	rule, err := json.Marshal(untaggedRule(last + 1))
	if err != nil {
		return "", false, fmt.Errorf("write a rule: %w", err)
	}
	out, err := json.Marshal(registryPolicy{Rules: append(p.Rules, rule)})
	return string(out), true, err
}

// registryParams is the policy that is put, and what it adds.
type registryParams struct {
	Adds     []string `json:"adds"`
	Document string   `json:"document"`
}

func planRepositoryLifecycle(ctx context.Context, s *site, r *inventory.Resource, _ policy.Do) ([]action.Step, error) {
	repo, text, err := s.registryNow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(repo.CreatedAt)); err != nil {
		return nil, err
	}
	merged, changed, err := withUntagged(text)
	switch {
	case err != nil:
		return nil, refusal("unknown", "repository %s: %s", r.ID, err)
	case !changed:
		return nil, refusal("nothing-to-do", "the lifecycle of repository %s says already what becomes of images without a tag", r.ID)
	}
	return []action.Step{{Name: stepLifecycle, Undo: text, Params: encoded(registryParams{
		Adds: []string{fmt.Sprintf("%suntagged: images without a tag expire %d days after they were pushed", ruleMark, untaggedDays)}, Document: merged})}}, nil
}

// registryNow reads a repository and the text of its lifecycle policy; none is no text.
func (p *place) registryNow(ctx context.Context, name string) (repo types.Repository, text string, err error) {
	attempt := "read repository " + name
	out, err := p.ecr.DescribeRepositories(ctx, &ecr.DescribeRepositoriesInput{RepositoryNames: []string{name}})
	if err != nil {
		return repo, "", failed(attempt, err)
	}
	i := slices.IndexFunc(out.Repositories, func(r types.Repository) bool { return awssdk.ToString(r.RepositoryName) == name })
	if i < 0 {
		return repo, "", failed(attempt, errNotThere)
	}
	repo = out.Repositories[i]
	now, err := p.ecr.GetLifecyclePolicy(ctx, &ecr.GetLifecyclePolicyInput{RepositoryName: &name})
	switch {
	case is(err, "LifecyclePolicyNotFoundException"):
		return repo, "", nil
	case err != nil:
		return repo, "", failed("read the lifecycle of repository "+name, err)
	}
	return repo, awssdk.ToString(now.LifecyclePolicyText), nil
}

// registry reads the policy of a task's repository and what the task puts.
func (s *site) registry(ctx context.Context, t action.Task) (now string, put registryParams, err error) {
	if put, err = decoded[registryParams](t, t.Step.Params); err != nil {
		return "", put, err
	}
	repo, now, err := s.registryNow(ctx, t.Ref.ID)
	if err != nil {
		return "", put, err
	}
	return now, put, identical(t, utc(repo.CreatedAt))
}

// sameJSON says whether two texts are the same document, however they are written.
func sameJSON(a, b string) bool {
	plain := func(text string) string {
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return text
		}
		return encoded(v)
	}
	return strings.TrimSpace(plain(a)) == strings.TrimSpace(plain(b))
}

func putRepositoryLifecycle(ctx context.Context, s *site, t action.Task) (string, error) {
	now, put, err := s.registry(ctx, t)
	switch {
	case err != nil || sameJSON(now, put.Document):
		return "", err
	case now != t.Step.Undo:
		return "", refusal("changed", "the lifecycle of repository %s is another one than when this was planned", t.Ref.ID)
	}
	return "", s.putRegistry(ctx, t.Ref.ID, put.Document)
}

func lookRepositoryLifecycle(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	now, put, err := s.registry(ctx, t)
	if err != nil || !sameJSON(now, put.Document) {
		return action.NotDone, "", err
	}
	return action.Complete, "", nil
}

// restoreRepositoryLifecycle puts the former text back, byte for byte, where nobody has
// changed the policy since. Images that have expired meanwhile stay gone.
func restoreRepositoryLifecycle(ctx context.Context, s *site, t action.Task) error {
	now, put, err := s.registry(ctx, t)
	switch {
	case err != nil || now == t.Step.Undo:
		return err
	case !sameJSON(now, put.Document):
		return refusal("changed", "somebody else has changed the lifecycle of repository %s since", t.Ref.ID)
	}
	return s.putRegistry(ctx, t.Ref.ID, t.Step.Undo)
}

// putRegistry puts a policy byte for byte, or takes it away where it is empty.
func (s *site) putRegistry(ctx context.Context, name, text string) error {
	if text == "" {
		_, err := s.hands.ecr.DeleteLifecyclePolicy(ctx, &ecr.DeleteLifecyclePolicyInput{RepositoryName: &name})
		return failed("take the lifecycle of repository "+name+" away", err)
	}
	_, err := s.hands.ecr.PutLifecyclePolicy(ctx, &ecr.PutLifecyclePolicyInput{RepositoryName: &name, LifecyclePolicyText: &text})
	return failed("put the lifecycle of repository "+name, err)
}
