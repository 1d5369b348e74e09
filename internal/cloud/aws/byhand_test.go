package aws

import (
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
)

func TestByHand(t *testing.T) {
	tagged := change.Change{Verb: change.Tag, Arguments: change.Arguments{Tags: map[string]string{"team": "vision"}}}
	for _, tc := range []struct {
		name   string
		kind   inventory.Kind
		id     string
		change change.Change
		want   string
	}{
		{
			"stop", inventory.KindInstance, "i-1", change.Change{Verb: change.Stop},
			"aws ec2 stop-instances --instance-ids i-1 --region us-east-1",
		},
		{"a fast volume keeps its speed", inventory.KindVolume, "vol-1",
			change.Change{
				Verb: change.ModifyVolume, Arguments: change.Arguments{Type: "gp3", IOPS: 4000, ThroughputMiBps: 250},
			},
			"aws ec2 modify-volume --volume-id vol-1 --volume-type gp3 --iops 4000 --throughput 250 --region us-east-1"},
		{
			"a small volume needs nothing", inventory.KindVolume, "vol-1", change.Change{
				Verb: change.ModifyVolume, Arguments: change.Arguments{Type: "gp3"},
			},
			"aws ec2 modify-volume --volume-id vol-1 --volume-type gp3 --region us-east-1"},
		{
			"a name is one word of the shell, and the days are the finding's",
			inventory.KindLogGroup, "it's; rm -rf $HOME",
			change.Change{Verb: change.PutRetention, Arguments: change.Arguments{RetentionDays: 365}},
			`aws logs put-retention-policy --log-group-name 'it'\''s; rm -rf $HOME' --retention-in-days 365 --region us-east-1`},
		{"a reservation of which a part is needed", inventory.KindCapacityReservation, "cr-1",
			change.Change{Verb: change.ModifyReservation, Arguments: change.Arguments{Count: new(int64(2))}},
			"aws ec2 modify-capacity-reservation --capacity-reservation-id cr-1 --instance-count 2 --region us-east-1"},
		{"an unnamed type", inventory.KindInstance, "i-1", change.Change{Verb: change.ChangeType}, ""},
		{
			"a member of a group", inventory.KindInstance, "i-1", change.Change{
				Verb: change.Scale, Arguments: change.Arguments{Group: "g"},
			},
			"aws autoscaling terminate-instance-in-auto-scaling-group --instance-id i-1 " +
				"--should-decrement-desired-capacity " +
				"--region us-east-1"},
		{
			"a group", inventory.KindAutoScalingGroup, "workers", change.Change{
				Verb: change.Scale, Arguments: change.Arguments{Count: new(int64(0))},
			},
			"aws autoscaling set-desired-capacity --auto-scaling-group-name workers --desired-capacity 0 --region us-east-1"},
		{
			"an endpoint", inventory.KindEndpoint, "chat", change.Change{
				Verb: change.Scale, Arguments: change.Arguments{Count: new(int64(2)), Part: "main"},
			},
			"aws sagemaker update-endpoint-weights-and-capacities --endpoint-name chat " +
				"--desired-weights-and-capacities " +
				"VariantName=main,DesiredInstanceCount=2 --region us-east-1"},
		{
			"tags of a bucket", inventory.KindBucket, "b", change.Change{
				Verb: change.Tag, Arguments: change.Arguments{Keys: []string{"team", "cost center"}},
			},
			"# with the values of its owner:\naws resourcegroupstaggingapi tag-resources --resource-arn-list " +
				"arn:aws:s3:::b " +
				"--tags 'cost center=VALUE,team=VALUE' --region us-east-1"},
		{"tags that rules know, and one that they do not", inventory.KindInstance, "i-1",
			change.Change{
				Verb: change.Tag,
				Arguments: change.Arguments{
					Tags: map[string]string{"team": "vision", "project": "ranking"}, Keys: []string{"user"},
				},
			},
			"aws ec2 create-tags --resources i-1 --tags Key=project,Value=ranking Key=team,Value=vision --region " +
				"us-east-1\n# with the values of its owner:\n" +
				"aws ec2 create-tags --resources i-1 --tags Key=user,Value=VALUE --region us-east-1"},
		{
			"a value that the shorthand cannot hold", inventory.KindFileSystem, "fs-1",
			change.Change{Verb: change.Tag, Arguments: change.Arguments{Tags: map[string]string{"team": "a,b"}}},
			`aws fsx tag-resource --resource-arn arn:aws:fsx:us-east-1:123456789012:file-system/fs-1 --tags '[{"Key":"team","Value":"a,b"}]' --region us-east-1`},
		{"tags of a database", inventory.KindDatabase, "db-1", tagged,
			"aws rds add-tags-to-resource --resource-name arn:aws:rds:us-east-1:123456789012:db:db-1 --tags " +
				"Key=team,Value=vision --region us-east-1"},
		{"tags of a secret", inventory.KindSecret, "prod/key", tagged,
			"aws secretsmanager tag-resource --secret-id prod/key --tags Key=team,Value=vision --region us-east-1"},
		{"tags of a log group", inventory.KindLogGroup, "/a", tagged,
			"aws logs tag-resource --resource-arn arn:aws:logs:us-east-1:123456789012:log-group:/a --tags team=vision " +
				"--region us-east-1"},
		{"tags of a cluster", inventory.KindCluster, "c", tagged,
			"aws resourcegroupstaggingapi tag-resources --resource-arn-list " +
				"arn:aws:eks:us-east-1:123456789012:cluster/c " +
				"--tags team=vision --region us-east-1"},
		{"the machines of a group that end", inventory.KindAutoScalingGroup, "workers",
			change.Change{
				Verb: change.Scale, Arguments: change.Arguments{Count: new(int64(1)), Members: []string{"i-1", "i-2"}},
			},
			"aws autoscaling terminate-instance-in-auto-scaling-group --instance-id i-1 " +
				"--should-decrement-desired-capacity " +
				"--region us-east-1\n" +
				"aws autoscaling terminate-instance-in-auto-scaling-group --instance-id i-2 " +
				"--should-decrement-desired-capacity " +
				"--region us-east-1"},
		{"a group without a size", inventory.KindAutoScalingGroup, "workers", change.Change{Verb: change.Scale}, ""},
		{
			"an endpoint on another machine", inventory.KindEndpoint, "chat", change.Change{
				Verb: change.ChangeType, Arguments: change.Arguments{Type: "g5.xlarge"},
			},
			"old=$(aws sagemaker describe-endpoint --endpoint-name chat --query EndpointConfigName --output text --region " +
				"us-east-1)\n" +
				`aws sagemaker describe-endpoint-config --endpoint-config-name "$old" --output json --region us-east-1 | jq 'del(.EndpointConfigArn, .CreationTime) | ` +
				`.EndpointConfigName = "curfew-chat-ml-g5-xlarge" | .ProductionVariants[].InstanceType = "ml.g5.xlarge"' > curfew-chat-ml-g5-xlarge.json` + "\n" +
				"aws sagemaker create-endpoint-config --cli-input-json file://curfew-chat-ml-g5-xlarge.json " +
				"--region us-east-1\n" +
				"aws sagemaker update-endpoint --endpoint-name chat --endpoint-config-name curfew-chat-ml-g5-xlarge --region " +
				"us-east-1\n# undo:\n" +
				`aws sagemaker update-endpoint --endpoint-name chat --endpoint-config-name "$old" --region us-east-1`},
		{
			"images without a tag", inventory.KindRepository, "r", change.Change{
				Verb: change.DeleteUntagged, Arguments: change.Arguments{Images: []string{"sha256:a", "sha256:b"}},
			},
			"aws ecr batch-delete-image --repository-name r --image-ids imageDigest=sha256:a imageDigest=sha256:b --region " +
				"us-east-1"},
		{"the lifecycle of a bucket, as the CLI takes it", inventory.KindBucket, "b",
			change.Change{
				Verb: change.PutLifecycle, Document: change.WriteRules([]change.Rule{{ID: "curfew-x", AbortDays: 3}}),
				Arguments: change.Arguments{MinimumSize: "all_storage_classes_128K"},
			},
			"aws s3api put-bucket-lifecycle-configuration --bucket b --transition-default-minimum-object-size " +
				"all_storage_classes_128K --lifecycle-configuration " +
				`'{"Rules":[{"AbortIncompleteMultipartUpload":{"DaysAfterInitiation":3},"Filter":{"Prefix":""},"ID":"curfew-x","Status":"Enabled"}]}' --region us-east-1`},
		{
			"the lifecycle of a repository", inventory.KindRepository, "r", change.Change{
				Verb: change.PutLifecycle, Document: `{"rules":[]}`,
			},
			`aws ecr put-lifecycle-policy --repository-name r --lifecycle-policy-text '{"rules":[]}' --region us-east-1`},
		{"what a person has to decide", inventory.KindBucket, "b", change.Change{Verb: change.PutLifecycle}, ""},
	} {
		if got := strings.Join(ByHand(Subject{
			Kind: tc.kind, ID: tc.id, Type: "g5.xlarge", Account: "123456789012", Region: "us-east-1",
		}, tc.change), "\n"); got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

// TestByHandStartsAndStops checks that a schedule both starts and stops, also across midnight, and
// that each command names the right region.
func TestByHandStartsAndStops(t *testing.T) {
	m := Subject{
		Kind: inventory.KindInstance, ID: "i-1", Type: "g5.xlarge", Account: "123456789012", Region: "us-east-1",
	}
	advised := func(a change.Arguments) change.Change { return change.Change{Verb: change.Advise, Arguments: a} }
	for _, tc := range []struct {
		name   string
		change change.Change
		want   []string
		kind   inventory.Kind // of "it"; empty is the machine
	}{
		{
			name:   "a fleet in a group that is too large",
			change: advised(change.Arguments{Members: []string{"i-2", "i-3"}, Group: "g"}),
			want: []string{
				"old=$(aws autoscaling describe-auto-scaling-groups", "--instance-id i-2 --should-decrement",
				"--instance-id i-3 --should-decrement", "# undo:", `--desired-capacity "$old"`,
			}},
		{name: "a fleet that is too large", change: advised(change.Arguments{Members: []string{"i-2", "i-3"}}),
			want: []string{
				"stop-instances --instance-ids i-2", "stop-instances --instance-ids i-3", "# undo:",
				"start-instances --instance-ids i-2", "start-instances --instance-ids i-3",
			}},
		{
			name:   "a fleet in a group that is too small",
			change: advised(change.Arguments{Count: new(int64(2)), Group: "g"}),
			want:   []string{`--desired-capacity "$((old + 2))"`, "# undo:", `--desired-capacity "$old"`},
		},
		{name: "a fleet that is too small", change: advised(change.Arguments{Count: new(int64(2))}),
			want: []string{
				"get-launch-template-data --instance-id i-1",
				"run-instances --launch-template LaunchTemplateName=curfew-more-i-1 --count 2", "# undo:",
				"terminate-instances --instance-ids $more",
			}},
		{
			name: "an endpoint that is too small", kind: inventory.KindEndpoint,
			change: advised(change.Arguments{Count: new(int64(4)), Part: "main"}),
			want: []string{
				"old=$(aws sagemaker describe-endpoint", "VariantName=main,DesiredInstanceCount=4", "# undo:",
				`DesiredInstanceCount="$old"`,
			}},
		{
			name: "an endpoint whose owner is asked", kind: inventory.KindEndpoint,
			change: change.Change{Verb: change.Notify},
			want: []string{
				"config=$(", "delete-endpoint --endpoint-name it", "# undo:", "create-endpoint --endpoint-name it",
			},
		},
		{
			name: "a machine that is not measured", change: change.Change{Verb: change.Measure},
			want: []string{
				"put-parameter", `nvidia_gpu`, "AWS-ConfigureAWSPackage", "configure (append)",
				"# undo:", "configure (remove)",
			},
		},
		{
			name: "a machine whose owner is asked", change: change.Change{Verb: change.Notify},
			want: []string{"stop-instances --instance-ids i-1", "# undo:", "start-instances --instance-ids i-1"},
		},
		{
			name: "an idle database", kind: inventory.KindDatabase, change: advised(change.Arguments{}),
			want: []string{"stop-db-instance --db-instance-identifier it", "# undo:", "start-db-instance"},
		},
		{
			name: "a database that is too large", kind: inventory.KindDatabase,
			change: advised(change.Arguments{Type: "db.r5.large"}),
			want:   []string{"--db-instance-class db.r5.large", "# undo:", "--db-instance-class g5.xlarge"}},
		{
			name: "a volume that a claim may hold, whose cluster is asked", kind: inventory.KindVolume,
			change: advised(change.Arguments{}),
			want: []string{
				"deletes the data for good", "kubectl get persistentvolumes --output custom-columns=", "| grep it",
			}},
		{
			name: "a warehouse", kind: inventory.KindWarehouse, change: advised(change.Arguments{}),
			want: []string{"pause-cluster --cluster-identifier it", "# undo:", "resume-cluster"},
		},
		{
			name: "a cache", kind: inventory.KindCache, change: advised(change.Arguments{}),
			want: []string{
				"delete-cache-cluster --cache-cluster-id it --final-snapshot-identifier curfew-it",
				"delete-replication-group",
				"# undo:", "create-cache-cluster",
			},
		},
		{
			name: "a table", kind: inventory.KindTable, change: advised(change.Arguments{}),
			want: []string{
				"old=$(", "--billing-mode PAY_PER_REQUEST", "# undo",
				`--billing-mode PROVISIONED --provisioned-throughput "$old"`,
			},
		},
		{
			name: "an endpoint of a network", kind: inventory.KindVPCEndpoint, change: advised(change.Arguments{}),
			want: []string{
				"describe-vpc-endpoints", "> curfew-it.json", "delete-vpc-endpoints", "# undo:", "create-vpc-endpoint",
			},
		},
		{
			name: "a control plane, which goes one way", kind: inventory.KindCluster,
			change: advised(change.Arguments{}),
			want:   []string{"no way back", `--kubernetes-version "${version%.*}.$((${version#*.} + 1))"`},
		},
		{
			name: "a job whose owner is asked, which goes one way", kind: inventory.KindTrainingJob,
			change: change.Change{Verb: change.Notify}, want: []string{"cannot be resumed", "stop-training-job"},
		},
		{
			name: "schedule", change: change.Change{
				Verb: change.Schedule,
				Arguments: change.Arguments{
					Week: &change.Week{Start: "20:00", Stop: "04:30", Days: []string{"Mon", "Sun"}},
				},
			},
			want: []string{
				"iam create-role --role-name curfew-schedule", "'cron(0 20 ? * MON,SUN *)'",
				"aws-sdk:ec2:startInstances",
				"'cron(30 4 ? * TUE,MON *)'", "aws-sdk:ec2:stopInstances",
				`{\\\"InstanceIds\\\":[\\\"i-1\\\"]}`, "--endtime 04:30", "Key=Schedule,Value=curfew-i-1",
				"delete-schedule --name curfew-start-i-1", "delete-schedule --name curfew-stop-i-1"}},
		{
			name: "spot", change: change.Change{Verb: change.UseSpot},
			want: []string{
				"get-launch-template-data --instance-id i-1", "MarketType=spot",
				"terminate-instances --instance-ids i-1",
			},
		},
		{name: "move", change: change.Change{Verb: change.Move, Arguments: change.Arguments{Region: "eu-west-1"}},
			want: []string{
				"create-image --instance-id i-1", "copy-image", "--source-region us-east-1",
				"run-instances --image-id \"$copy\" --instance-type g5.xlarge --region eu-west-1",
				"terminate-instances",
			}},
	} {
		of := m
		if tc.kind != "" {
			of.Kind, of.ID = tc.kind, "it"
		}
		got := strings.Join(ByHand(of, tc.change), "\n")
		at := 0
		for _, want := range tc.want {
			i := strings.Index(got[at:], strings.ReplaceAll(want, `\\\"`, `\"`))
			if i < 0 {
				t.Errorf("%s: no %q after what comes before it:\n%s", tc.name, want, got)
				break
			}
			at += i
		}
	}
}
