package aws

import (
	"context"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// sageMakerPage is the maximum page size of SageMaker's lists.
const sageMakerPage = 100

// systemMachine is the type of studio applications that run for free.
const systemMachine = "system"

// machineType strips the service's prefix: "ml.g5.xlarge" is a g5.xlarge.
func machineType[T ~string](t T) string { return strings.TrimPrefix(string(t), "ml.") }

// sageMakerTags reads a resource's tags; nil if unreadable.
func (p *place) sageMakerTags(ctx context.Context, arn *string, name string) map[string]string {
	tags := map[string]string{}
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := sagemakerClient(p.reading).ListTags(ctx, &sagemaker.ListTagsInput{
			ResourceArn: arn,
			MaxResults:  awssdk.Int32(sageMakerPage),
			NextToken:   token,
		})
		if err != nil {
			return nil, err
		}
		for _, t := range out.Tags {
			tags[awssdk.ToString(t.Key)] = awssdk.ToString(t.Value)
		}
		return out.NextToken, nil
	})
	if err != nil {
		p.missed(ctx, "sagemaker:ListTags", name, err)
		return nil
	}
	return tags
}

func (p *place) notebooks(ctx context.Context) {
	var found []types.NotebookInstanceSummary
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := sagemakerClient(p.reading).ListNotebookInstances(ctx, &sagemaker.ListNotebookInstancesInput{
			MaxResults: awssdk.Int32(sageMakerPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, n := range out.NotebookInstances {
			if p.wants(inventory.KindNotebook, awssdk.ToString(n.NotebookInstanceName)) {
				found = append(found, n)
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "sagemaker:ListNotebookInstances", err)
	each(ctx, found, func(n types.NotebookInstanceSummary) {
		r := p.resource(inventory.KindNotebook, awssdk.ToString(n.NotebookInstanceName))
		r.Name, r.Type, r.CreatedAt = r.ID, machineType(n.InstanceType), utc(n.CreationTime)
		r.Size = p.scan.cloud.size(r.Type)
		r.State = notebookStates[n.NotebookInstanceStatus]
		d := &inventory.Notebook{LastModified: utc(n.LastModifiedTime)}
		if r.State == inventory.StateStopped {
			r.StateSince = d.LastModified // the last modification was the stop or later
		}
		out, err := sagemakerClient(p.reading).DescribeNotebookInstance(ctx, &sagemaker.DescribeNotebookInstanceInput{
			NotebookInstanceName: n.NotebookInstanceName,
		})
		p.missed(ctx, "sagemaker:DescribeNotebookInstance", r.ID, err)
		if err == nil {
			d.VolumeGiB = int64(awssdk.ToInt32(out.VolumeSizeInGB))
		}
		r.Detail = d
		r.Tags = p.sageMakerTags(ctx, n.NotebookInstanceArn, r.ID)
		p.scan.add(r)
	})
}

var notebookStates = map[types.NotebookInstanceStatus]inventory.State{
	types.NotebookInstanceStatusPending:            inventory.StatePending,
	types.NotebookInstanceStatusInService:          inventory.StateRunning,
	types.NotebookInstanceStatusStopping:           inventory.StateStopping,
	types.NotebookInstanceStatusStopped:            inventory.StateStopped,
	types.NotebookInstanceStatusFailed:             inventory.StateFailed,
	types.NotebookInstanceStatusDeleting:           inventory.StateDeleting,
	types.NotebookInstanceStatusUpdating:           inventory.StatePending,
	types.NotebookInstanceStatusPendingMaintenance: inventory.StateRunning,
	types.NotebookInstanceStatusInMaintenance:      inventory.StateRunning,
}

// apps lists the studio applications with a machine of their own.
func (p *place) apps(ctx context.Context) {
	var found []types.AppDetails
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := sagemakerClient(p.reading).ListApps(ctx, &sagemaker.ListAppsInput{
			MaxResults: awssdk.Int32(sageMakerPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, a := range out.Apps {
			billed := a.ResourceSpec == nil || a.ResourceSpec.InstanceType != systemMachine
			if billed && (a.Status == types.AppStatusInService || a.Status == types.AppStatusPending) {
				found = append(found, a)
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "sagemaker:ListApps", err)
	each(ctx, found, func(a types.AppDetails) { p.app(ctx, a) })
}

func (p *place) app(ctx context.Context, a types.AppDetails) {
	owner := firstOf(awssdk.ToString(a.SpaceName), awssdk.ToString(a.UserProfileName))
	r := p.resource(inventory.KindNotebook,
		strings.Join([]string{awssdk.ToString(a.DomainId), owner, string(a.AppType), awssdk.ToString(a.AppName)}, "/"))
	r.Name = strings.Trim(owner+"/"+awssdk.ToString(a.AppName), "/")
	r.CreatedAt = utc(a.CreationTime)
	r.State = inventory.StatePending
	if a.Status == types.AppStatusInService {
		r.State = inventory.StateRunning
	}
	spec := a.ResourceSpec
	d := &inventory.Notebook{IsApp: true}
	out, err := sagemakerClient(p.reading).DescribeApp(ctx, &sagemaker.DescribeAppInput{
		DomainId: a.DomainId, AppName: a.AppName, AppType: a.AppType, SpaceName: a.SpaceName,
		UserProfileName: a.UserProfileName,
	})
	p.missed(ctx, "sagemaker:DescribeApp", r.Name, err)
	if err == nil {
		if out.LastUserActivityTimestamp != nil {
			d.LastActivity = inventory.Known(out.LastUserActivityTimestamp.UTC())
		}
		if spec == nil {
			spec = out.ResourceSpec
		}
		r.Tags = p.sageMakerTags(ctx, out.AppArn, r.Name)
	}
	if spec != nil {
		if spec.InstanceType == systemMachine {
			return
		}
		r.Type = machineType(spec.InstanceType)
		r.Size = p.scan.cloud.size(r.Type)
	}
	r.Detail = d
	p.scan.add(r)
}

func (p *place) endpoints(ctx context.Context) {
	var found []types.EndpointSummary
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := sagemakerClient(p.reading).ListEndpoints(ctx, &sagemaker.ListEndpointsInput{
			MaxResults: awssdk.Int32(sageMakerPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, e := range out.Endpoints {
			if p.wants(inventory.KindEndpoint, awssdk.ToString(e.EndpointName)) {
				found = append(found, e)
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "sagemaker:ListEndpoints", err)
	each(ctx, found, func(e types.EndpointSummary) {
		r := p.resource(inventory.KindEndpoint, awssdk.ToString(e.EndpointName))
		r.Name, r.CreatedAt, r.State = r.ID, utc(e.CreationTime), endpointStates[e.EndpointStatus]
		d := p.endpoint(ctx, e)
		d.LastModified = utc(e.LastModifiedTime)
		if len(d.Variants) > 0 {
			r.Type = d.Variants[0].Type
		}
		r.Detail = d
		r.Tags = p.sageMakerTags(ctx, e.EndpointArn, r.ID)
		p.scan.add(r)
	})
}

var endpointStates = map[types.EndpointStatus]inventory.State{
	types.EndpointStatusOutOfService:         inventory.StateFailed,
	types.EndpointStatusCreating:             inventory.StatePending,
	types.EndpointStatusUpdating:             inventory.StateRunning, // the old machines serve meanwhile
	types.EndpointStatusSystemUpdating:       inventory.StateRunning,
	types.EndpointStatusRollingBack:          inventory.StateRunning,
	types.EndpointStatusInService:            inventory.StateRunning,
	types.EndpointStatusDeleting:             inventory.StateDeleting,
	types.EndpointStatusFailed:               inventory.StateFailed,
	types.EndpointStatusUpdateRollbackFailed: inventory.StateRunning,
}

// endpoint reads the machines of an endpoint: their number from the endpoint, their type from its
// configuration.
func (p *place) endpoint(ctx context.Context, e types.EndpointSummary) *inventory.Endpoint {
	d := &inventory.Endpoint{}
	name := awssdk.ToString(e.EndpointName)
	out, err := sagemakerClient(p.reading).DescribeEndpoint(ctx, &sagemaker.DescribeEndpointInput{
		EndpointName: e.EndpointName,
	})
	if err != nil {
		p.missed(ctx, "sagemaker:DescribeEndpoint", name, err)
		return d
	}
	d.Async = out.AsyncInferenceConfig != nil
	counts := map[string]int32{}
	for _, v := range append(out.ProductionVariants, out.ShadowProductionVariants...) {
		if v.CurrentInstanceCount != nil {
			counts[awssdk.ToString(v.VariantName)] = *v.CurrentInstanceCount
		}
	}
	if out.EndpointConfigName == nil {
		return d
	}
	cfg, err := sagemakerClient(p.reading).DescribeEndpointConfig(ctx, &sagemaker.DescribeEndpointConfigInput{
		EndpointConfigName: out.EndpointConfigName,
	})
	if err != nil {
		p.missed(ctx, "sagemaker:DescribeEndpointConfig", name, err)
		return d
	}
	d.Async = d.Async || cfg.AsyncInferenceConfig != nil
	if hostsComponents(cfg.ProductionVariants) {
		p.scan.mu.Lock()
		p.components[name] = true
		p.scan.mu.Unlock()
	}
	for _, v := range append(cfg.ProductionVariants, cfg.ShadowProductionVariants...) {
		variant := inventory.Variant{
			Name: awssdk.ToString(v.VariantName), Type: machineType(v.InstanceType),
			Serverless: v.ServerlessConfig != nil,
			Count:      int64(awssdk.ToInt32(v.InitialInstanceCount))}
		if n, ok := counts[variant.Name]; ok {
			variant.Count = int64(n)
		}
		d.Variants = append(d.Variants, variant)
	}
	return d
}

// hostsComponents reports whether an endpoint hosts inference components: then its variants name no
// model. Their requests are counted by component, not for the endpoint (SageMaker AI guide,
// "Inference component metrics").
func hostsComponents(variants []types.ProductionVariant) bool {
	return slices.ContainsFunc(variants, func(v types.ProductionVariant) bool {
		return awssdk.ToString(v.ModelName) == ""
	})
}

// trainingJobs lists the running jobs; finished ones are no longer charged.
func (p *place) trainingJobs(ctx context.Context) {
	var found []types.TrainingJobSummary
	var err error
	for _, status := range []types.TrainingJobStatus{
		types.TrainingJobStatusInProgress, types.TrainingJobStatusStopping,
	} {
		err = pages(ctx, func(token *string) (*string, error) {
			out, err := sagemakerClient(p.reading).ListTrainingJobs(ctx, &sagemaker.ListTrainingJobsInput{
				StatusEquals: status,
				MaxResults:   awssdk.Int32(sageMakerPage),
				NextToken:    token,
			})
			if err != nil {
				return nil, err
			}
			for _, j := range out.TrainingJobSummaries {
				if j.TrainingJobStatus == status &&
					p.wants(inventory.KindTrainingJob, awssdk.ToString(j.TrainingJobName)) {
					found = append(found, j)
				}
			}
			return out.NextToken, nil
		})
		if err != nil {
			break
		}
	}
	p.failed(ctx, "sagemaker:ListTrainingJobs", err)
	each(ctx, found, func(j types.TrainingJobSummary) {
		r := p.resource(inventory.KindTrainingJob, awssdk.ToString(j.TrainingJobName))
		r.Name, r.CreatedAt = r.ID, utc(j.CreationTime)
		r.State = inventory.StateRunning
		if j.TrainingJobStatus == types.TrainingJobStatusStopping {
			r.State = inventory.StateStopping
		}
		out, err := sagemakerClient(p.reading).DescribeTrainingJob(ctx, &sagemaker.DescribeTrainingJobInput{
			TrainingJobName: j.TrainingJobName,
		})
		p.missed(ctx, "sagemaker:DescribeTrainingJob", r.ID, err)
		if err == nil {
			fillJob(r, out)
			r.Size = p.scan.cloud.size(r.Type)
		} else {
			r.Detail = &inventory.TrainingJob{}
		}
		r.Tags = p.sageMakerTags(ctx, j.TrainingJobArn, r.ID)
		p.scan.add(r)
	})
}

func fillJob(r *inventory.Resource, out *sagemaker.DescribeTrainingJobOutput) {
	d := &inventory.TrainingJob{
		Spot: awssdk.ToBool(out.EnableManagedSpotTraining), StartedAt: utc(out.TrainingStartTime),
	}
	if d.StartedAt.IsZero() {
		r.State = inventory.StatePending // it waits for its machines, which are not charged yet
	}
	if c := out.ResourceConfig; c != nil {
		r.Type = machineType(c.InstanceType)
		d.Count = int64(awssdk.ToInt32(c.InstanceCount))
		d.VolumeGiB = int64(awssdk.ToInt32(c.VolumeSizeInGB))
		mixed := false
		for _, g := range c.InstanceGroups {
			r.Type = firstOf(r.Type, machineType(g.InstanceType))
			mixed = mixed || machineType(g.InstanceType) != r.Type
			d.Count += int64(awssdk.ToInt32(g.InstanceCount))
		}
		if mixed {
			r.Type = "" // no single type's price or metrics apply
		}
	}
	if s := out.StoppingCondition; s != nil {
		d.MaxRuntime = time.Duration(awssdk.ToInt32(s.MaxRuntimeInSeconds)) * time.Second
	}
	for _, c := range out.InputDataConfig {
		if c.DataSource != nil && c.DataSource.S3DataSource != nil {
			d.InputURIs = append(d.InputURIs, awssdk.ToString(c.DataSource.S3DataSource.S3Uri))
		}
	}
	r.Detail = d
}
