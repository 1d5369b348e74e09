package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	smtypes "github.com/aws/aws-sdk-go-v2/service/sagemaker/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

var sagemakerRole = aws.String("arn:aws:iam::" + wire.DefaultAccount + ":role/sagemaker")

func sagemakerTags(t map[string]string) []smtypes.Tag {
	var out []smtypes.Tag
	for k, v := range t {
		out = append(out, smtypes.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	return out
}

func (b *seeder) hyperPod(ctx context.Context) error {
	name := "pretraining"
	if _, err := sagemaker.NewFromConfig(b.Config(east)).CreateCluster(ctx,
		&sagemaker.CreateClusterInput{ClusterName: &name, Tags: sagemakerTags(tags(emil, "")),
			InstanceGroups: []smtypes.ClusterInstanceGroupSpecification{
				{InstanceGroupName: aws.String("workers"), InstanceType: "ml.g5.xlarge", InstanceCount: aws.Int32(1),
					ExecutionRole: sagemakerRole, ThreadsPerCore: aws.Int32(2),
					LifeCycleConfig: &smtypes.ClusterLifeCycleConfig{
						OnCreate: aws.String("on_create.sh"), SourceS3Uri: aws.String("s3://sagemaker-lifecycle"),
					}}}}); err != nil {
		return err
	}
	b.age("sagemaker", "ClusterName", name, b.ago(days(90)), "CreationTime")
	b.record(inventory.KindHyperPod, name, east, emil)
	return nil
}

func (b *seeder) notebooks(ctx context.Context) error {
	api := sagemaker.NewFromConfig(b.Config(east))
	for _, x := range []struct {
		name     string
		owner    inventory.Owner
		modified time.Duration
		idle     bool
	}{
		{"exploration-2025", bo, days(30), true},
		{"ranking-eda", emil, days(1), false},
	} {
		if _, err := api.CreateNotebookInstance(ctx, &sagemaker.CreateNotebookInstanceInput{
			NotebookInstanceName: &x.name,
			InstanceType:         "ml.t3.medium", RoleArn: sagemakerRole, VolumeSizeInGB: aws.Int32(20),
			Tags: sagemakerTags(tags(x.owner, "", inventory.TagLifetime, "ephemeral", inventory.TagPurpose,
				"experimentation"))}); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		b.Wire.Patch(wire.Patch{Service: "sagemaker", IDField: "NotebookInstanceName", ID: x.name, Set: map[string]any{
			"CreationTime": b.ago(days(60)), "LastModifiedTime": b.ago(x.modified),
			"NotebookInstanceStatus": "InService"}})
		r := b.record(inventory.KindNotebook, x.name, east, x.owner)
		if x.idle {
			b.plant(r, "notebook-idle", Planted{
				Unknown: true, UpperBoundUSD: month("ml.t3.medium", east, 1),
				Note: "nothing measured its use; its disk goes on costing",
			})
		} else {
			b.innocent(r, "changed yesterday", "notebook-idle")
		}
	}
	// Two additional Studio applications.
	for _, x := range []struct {
		owner  inventory.Owner
		active time.Duration
		idle   bool
	}{{ana, days(20), true}, {bo, time.Hour, false}} {
		b.Wire.State.At(wire.DefaultAccount, east, func(p *wire.Place) {
			p.Apps = append(p.Apps, wire.App{
				Domain: "d-sandbox", User: x.owner.User, Type: "JupyterLab", Name: "default",
				InstanceType: "ml.t3.medium",
				Created:      b.ago(days(40)), Active: b.ago(x.active),
				Tags: tags(x.owner, "", inventory.TagLifetime, "ephemeral",
					inventory.TagPurpose, "experimentation")})
		})
		r := b.record(inventory.KindNotebook, "d-sandbox/"+x.owner.User+"/JupyterLab/default", east, x.owner)
		if x.idle {
			b.plant(r, "notebook-idle", Planted{
				SavingsUSD: month("ml.t3.medium", east, 1), Note: "a Studio application, last used 20 days ago",
			})
		} else {
			b.innocent(r, "used an hour ago", "notebook-idle")
		}
	}
	return nil
}

// endpoint is an inference endpoint to seed.
type endpoint struct {
	name  string
	owner inventory.Owner
	kind  smtypes.ProductionVariantInstanceType
	async bool
	// measured is true if the machine's own metrics exist; calls are invocations per hour, 0 has no
	// datapoint at all, as in SageMaker.
	measured bool
	calls    float64
	gpu, cpu float64
	rule     string
	want     Planted
	not      []string
	note     string
}

func (b *seeder) endpoints(ctx context.Context) error {
	for _, x := range []endpoint{
		{name: "old-detector", owner: ana, kind: "ml.g4dn.xlarge", measured: true, cpu: 1, rule: "endpoint-idle",
			want: Planted{SavingsUSD: month("ml.g4dn.xlarge", east, 1)}},
		{
			name: "batch-embed", owner: bo, kind: "ml.g4dn.xlarge", async: true, measured: true, cpu: 1,
			not:  []string{"endpoint-idle"},
			note: "asynchronous: no invocations between batches"},
		{name: "feed-rank", owner: chen, kind: "ml.g4dn.xlarge", measured: true, calls: 9_000, gpu: 68, cpu: 50,
			not: []string{"endpoint-idle", "inference-overprovisioned"}, note: "it serves"},
		{name: "dark", owner: emil, kind: "ml.g4dn.xlarge", rule: "endpoint-idle",
			want: Planted{
				Unknown: true, UpperBoundUSD: month("ml.g4dn.xlarge", east, 1), Note: "nothing measured its use",
			}},
		{name: "assistant-large", owner: dana, kind: "ml.g4dn.12xlarge", measured: true, calls: 500, gpu: 6, cpu: 8,
			rule: "inference-overprovisioned", want: Planted{
				Unknown: true, UpperBoundUSD: instead("ml.g4dn.12xlarge", "ml.g4dn.xlarge", east),
			},
			not: []string{"endpoint-idle"}},
	} {
		if err := b.endpoint(ctx, x); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return nil
}

func (b *seeder) endpoint(ctx context.Context, x endpoint) error {
	api := sagemaker.NewFromConfig(b.Config(east))
	if _, err := api.CreateModel(ctx, &sagemaker.CreateModelInput{ModelName: &x.name, ExecutionRoleArn: sagemakerRole,
		PrimaryContainer: &smtypes.ContainerDefinition{
			Image: aws.String(wire.DefaultAccount + ".dkr.ecr.us-east-1.amazonaws.com/server:1"),
		}}); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	in := &sagemaker.CreateEndpointConfigInput{
		EndpointConfigName: &x.name, ProductionVariants: []smtypes.ProductionVariant{{
			VariantName: aws.String("main"), ModelName: &x.name, InstanceType: x.kind,
			InitialInstanceCount: aws.Int32(1),
			InitialVariantWeight: aws.Float32(1)}}}
	if x.async {
		in.AsyncInferenceConfig = &smtypes.AsyncInferenceConfig{
			OutputConfig: &smtypes.AsyncInferenceOutputConfig{S3OutputPath: aws.String("s3://acme-vision-results/")},
		}
	}
	if _, err := api.CreateEndpointConfig(ctx, in); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if _, err := api.CreateEndpoint(ctx, &sagemaker.CreateEndpointInput{
		EndpointName: &x.name, EndpointConfigName: &x.name,
		Tags: sagemakerTags(tags(x.owner, "", inventory.TagLifetime, "persistent", inventory.TagPurpose,
			"inference"))}); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	made := b.ago(days(90))
	b.age("sagemaker", "EndpointName", x.name, made, "CreationTime", "LastModifiedTime")
	d := dims("EndpointName", x.name, "VariantName", "main")
	if x.measured {
		for name, v := range map[string]float64{
			"CPUUtilization": x.cpu, "GPUUtilization": x.gpu, "GPUMemoryUtilization": min(80, x.gpu*1.1),
			"MemoryUtilization": 20,
		} {
			b.steady(east, "/aws/sagemaker/Endpoints", name, d, b.ago(days(15)), func(t time.Time) wire.Datum {
				return gauge(t, v, v*1.2)
			})
		}
	}
	if x.calls > 0 {
		b.steady(east, "AWS/SageMaker", "Invocations", d, b.ago(days(15)), func(t time.Time) wire.Datum {
			return counter(t, x.calls)
		})
	}
	r := b.record(inventory.KindEndpoint, x.name, east, x.owner)
	if x.rule != "" {
		b.plant(r, x.rule, x.want)
	}
	if len(x.not) > 0 {
		b.innocent(r, x.note, x.not...)
	}
	return nil
}

func (b *seeder) trainingJobs(ctx context.Context) error {
	api := sagemaker.NewFromConfig(b.Config(east))
	for _, x := range []struct {
		name  string
		owner inventory.Owner
		age   time.Duration
		gpu   float64
		ended bool
		rules []string
		want  Planted
		not   []string
		note  string
	}{
		{
			"detector-long", ana, 30 * time.Hour, 85, false, []string{"training-overrun"}, Planted{SavingsUSD: "0.00"},
			[]string{"training-stalled"}, "30 hours, and it computes",
		},
		{
			"feed-stuck", chen, 12 * time.Hour, 0, false, []string{"training-stalled"},
			Planted{SavingsUSD: month("ml.g4dn.xlarge", east, 1)},
			[]string{"training-overrun"}, "0% for 12 hours"},
		{
			"tokenizer-tune", bo, 2 * time.Hour, 90, false, nil, Planted{},
			[]string{"training-overrun", "training-stalled"},
			"two hours, busy",
		},
		{
			"assistant-done", dana, 50 * time.Hour, 90, true, nil, Planted{},
			[]string{"training-overrun", "training-stalled"}, "completed",
		},
	} {
		if _, err := api.CreateTrainingJob(ctx, &sagemaker.CreateTrainingJobInput{
			TrainingJobName: &x.name, RoleArn: sagemakerRole,
			AlgorithmSpecification: &smtypes.AlgorithmSpecification{TrainingInputMode: smtypes.TrainingInputModeFile,
				TrainingImage: aws.String(wire.DefaultAccount + ".dkr.ecr.us-east-1.amazonaws.com/trainer:1")},
			InputDataConfig: []smtypes.Channel{
				{ChannelName: aws.String("train"), DataSource: &smtypes.DataSource{S3DataSource: &smtypes.S3DataSource{
					S3DataType: smtypes.S3DataTypeS3Prefix,
					S3Uri:      aws.String("s3://acme-vision-labels/datasets/")}}}},
			OutputDataConfig: &smtypes.OutputDataConfig{S3OutputPath: aws.String("s3://acme-vision-results/")},
			ResourceConfig: &smtypes.ResourceConfig{
				InstanceType: "ml.g4dn.xlarge", InstanceCount: aws.Int32(1), VolumeSizeInGB: aws.Int32(50),
			},
			StoppingCondition: &smtypes.StoppingCondition{MaxRuntimeInSeconds: aws.Int32(5 * 24 * 3600)},
			Tags: sagemakerTags(tags(x.owner, "", inventory.TagLifetime, "ephemeral", inventory.TagPurpose,
				"training"))}); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		p := wire.Patch{
			Service: "sagemaker", IDField: "TrainingJobName", ID: x.name,
			Set: map[string]any{"CreationTime": b.ago(x.age),
				"TrainingStartTime": b.ago(x.age), "LastModifiedTime": b.ago(x.age)}}
		if x.ended {
			p.Set["TrainingEndTime"] = b.ago(x.age - 10*time.Hour)
		} else {
			p.Set["TrainingJobStatus"], p.Set["SecondaryStatus"] = "InProgress", "Training"
			p.Remove = []string{"TrainingEndTime", "ModelArtifacts"}
		}
		b.Wire.Patch(p)
		if !x.ended {
			for name, v := range map[string]float64{
				"GPUUtilization": x.gpu, "GPUMemoryUtilization": 70, "CPUUtilization": 20 + x.gpu,
			} {
				b.steady(east, "/aws/sagemaker/TrainingJobs", name, dims("Host", x.name+"/algo-1"), b.ago(x.age),
					func(t time.Time) wire.Datum { return gauge(t, v, v) })
			}
		}
		r := Resource{Kind: inventory.KindTrainingJob, ID: x.name, Region: east, Owner: x.owner}
		if !x.ended {
			r = b.record(inventory.KindTrainingJob, x.name, east, x.owner)
		}
		for _, rule := range x.rules {
			want := x.want
			want.Note = x.note
			b.plant(r, rule, want)
		}
		b.innocent(r, x.note, x.not...)
	}
	return nil
}
