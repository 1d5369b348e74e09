package aws

import (
	"context"
	"slices"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// retentions are the allowed retentions of a log group in days (CloudWatch Logs API reference,
// PutRetentionPolicy).
var retentions = []int{
	1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653,
}

// retentionParams is the retention of a group; 0 for unlimited.
type retentionParams struct {
	Days int `json:"retention_days"`
}

// planRetention sets the retention of a group, unless it is already shorter.
func planRetention(ctx context.Context, s *site, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	days := do.RetentionDays
	if !slices.Contains(retentions, days) {
		return nil, refusal("not-enabled",
			"a log group cannot keep its events for %d days; it can for %v", days, retentions)
	}
	g, err := s.logGroup(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, millis(g.CreationTime)); err != nil {
		return nil, err
	}
	now := retentionDays(g)
	switch {
	case g.LogGroupClass == types.LogGroupClassDelivery:
		return nil, refusal("not-enabled",
			"log group %s only passes its events on; how long it keeps them cannot be set",
			r.ID)
	case do.Change.Verb != "" && now != do.Change.Arguments.RetentionBefore && now != days:
		return nil, refusal("changed", "log group %s keeps its events for %d days now; scan again", r.ID, now)
	case now > 0 && now <= days:
		return nil, refusal("nothing-to-do", "log group %s keeps its events for %d days already", r.ID, now)
	}
	return []action.Step{
		{Name: stepRetention, Params: encoded(retentionParams{days}), Undo: encoded(retentionParams{now})},
	}, nil
}

// logGroup reads a group; inventory.ErrNotFound if it does not exist.
func (p *place) logGroup(ctx context.Context, name string) (types.LogGroup, error) {
	var found *types.LogGroup
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := logsClient(p.reading).DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{
			LogGroupNamePrefix: &name,
			Limit:              awssdk.Int32(logGroupsPage),
			NextToken:          token,
		})
		if err != nil {
			return nil, err
		}
		for _, g := range out.LogGroups {
			if awssdk.ToString(g.LogGroupName) == name {
				found = &g
				return nil, nil
			}
		}
		return out.NextToken, nil
	})
	if err == nil && found == nil {
		err = errNotThere
	}
	if err != nil {
		return types.LogGroup{}, failed("read log group "+name, err)
	}
	return *found, nil
}

func millis(t *int64) time.Time {
	if t == nil {
		return time.Time{}
	}
	return time.UnixMilli(*t).UTC()
}

// retained reads a task's group and its retention.
func (s *site) retained(ctx context.Context, t action.Task) (int, error) {
	g, err := s.logGroup(ctx, t.Ref.ID)
	if err != nil {
		return 0, err
	}
	return retentionDays(g), identical(t, millis(g.CreationTime))
}

func putRetention(ctx context.Context, s *site, t action.Task) (string, error) {
	want, err := decoded[retentionParams](t, t.Step.Params)
	if err != nil {
		return "", err
	}
	former, err := decoded[retentionParams](t, t.Step.Undo)
	if err != nil {
		return "", err
	}
	switch now, err := s.retained(ctx, t); {
	case err != nil:
		return "", err
	case now == want.Days:
		return "", nil
	case now != former.Days:
		return "", refusal("changed",
			"log group %s keeps its events for %d days now, not for %d as when this was planned",
			t.Ref.ID, now, former.Days)
	}
	return "", s.setRetention(ctx, t.Ref.ID, want.Days)
}

func (s *site) setRetention(ctx context.Context, name string, days int) error {
	if days == 0 {
		_, err := logsClient(s.acting).DeleteRetentionPolicy(ctx, &cloudwatchlogs.DeleteRetentionPolicyInput{
			LogGroupName: &name,
		})
		return failed("keep the events of log group "+name+" forever", err)
	}
	_, err := logsClient(s.acting).PutRetentionPolicy(ctx, &cloudwatchlogs.PutRetentionPolicyInput{
		LogGroupName:    &name,
		RetentionInDays: awssdk.Int32(int32(days)),
	})
	return failed("set how long log group "+name+" keeps its events", err)
}

func lookRetention(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	want, err := decoded[retentionParams](t, t.Step.Params)
	if err != nil {
		return action.NotDone, "", err
	}
	now, err := s.retained(ctx, t)
	if err != nil || now != want.Days {
		return action.NotDone, "", err
	}
	return action.Complete, "", nil
}

// restoreRetention restores the former retention. Events that expired meanwhile stay gone.
func restoreRetention(ctx context.Context, s *site, t action.Task) error {
	put, err := decoded[retentionParams](t, t.Step.Params)
	if err != nil {
		return err
	}
	former, err := decoded[retentionParams](t, t.Step.Undo)
	if err != nil {
		return err
	}
	switch now, err := s.retained(ctx, t); {
	case err != nil || now == former.Days:
		return err
	case now != put.Days:
		return refusal("changed", "log group %s was changed by another user or service to %d days", t.Ref.ID, now)
	}
	return s.setRetention(ctx, t.Ref.ID, former.Days)
}
