package aws

import (
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

// byPerson returns commands for changes that only a person applies, with commands to undo them;
// none if there is no such command.
func (h *hand) byPerson() []string {
	switch h.Kind {
	case inventory.KindInstance:
		return h.fleet()
	case inventory.KindVolume:
		const columns = "NAME:.metadata.name,NAMESPACE:.spec.claimRef.namespace,CLAIM:.spec.claimRef.name,STATUS:.status.phase," +
			"POLICY:.spec.persistentVolumeReclaimPolicy,HANDLE:.spec.csi.volumeHandle,IN_TREE:.spec.awsElasticBlockStore.volumeID"
		return []string{
			"# in the cluster; where it is listed, deleting its claim deletes the data for good:",
			"kubectl get persistentvolumes --output custom-columns=" + columns + " | grep " + h.id,
		}
	case inventory.KindEndpoint:
		return h.replicas()
	case inventory.KindTrainingJob:
		if h.Verb == change.Notify {
			return []string{
				"# if its owner agrees; it cannot be resumed:",
				h.aws("sagemaker stop-training-job --training-job-name %s", h.id),
			}
		}
	case inventory.KindDatabase:
		if strings.HasSuffix(h.Type, ".search") {
			return nil
		}
		return h.database()
	case inventory.KindWarehouse:
		return []string{
			h.aws("redshift pause-cluster --cluster-identifier %s", h.id), "# undo:",
			h.aws("redshift resume-cluster --cluster-identifier %s", h.id),
		}
	case inventory.KindCache:
		return h.cache()
	case inventory.KindCluster:
		return []string{
			"# look for what the next version removes, and upgrade the nodes after it; there is no way back:",
			"version=$(" + h.aws("eks describe-cluster --name %s --query cluster.version --output text", h.id) + ")",
			h.aws(`eks update-cluster-version --name %s --kubernetes-version "${version%%.*}.$((${version#*.} + 1))"`,
				h.id),
		}
	case inventory.KindTable:
		return h.table()
	case inventory.KindVPCEndpoint:
		return h.vpcEndpoint()
	}
	return nil
}

// fleet removes or adds machines of a serving fleet, measures a machine, or stops one after asking
// its owner.
func (h *hand) fleet() []string {
	a := h.Arguments
	switch {
	case h.Verb == change.Notify:
		return []string{
			"# if its owner agrees:", h.aws("ec2 stop-instances --instance-ids %s", h.id), "# undo:",
			h.aws("ec2 start-instances --instance-ids %s", h.id),
		}
	case h.Verb == change.Measure:
		return h.agent()
	case len(a.Members) > 0 && a.Group != "":
		out := []string{h.desired(a.Group)}
		for _, id := range a.Members {
			out = append(out, h.endMember(plain.Shell(id)))
		}
		return append(out, "# undo:",
			h.aws(`autoscaling set-desired-capacity --auto-scaling-group-name %s --desired-capacity "$old"`,
				plain.Shell(a.Group)))
	case len(a.Members) > 0:
		var stop, start []string
		for _, id := range a.Members {
			stop = append(stop, h.aws("ec2 stop-instances --instance-ids %s", plain.Shell(id)))
			start = append(start, h.aws("ec2 start-instances --instance-ids %s", plain.Shell(id)))
		}
		return append(append(stop, "# undo:"), start...)
	case a.Count != nil && a.Group != "":
		return []string{
			h.desired(a.Group),
			h.aws(`autoscaling set-desired-capacity --auto-scaling-group-name %s --desired-capacity "$((old + %d))"`,
				plain.Shell(a.Group), *a.Count),
			"# undo:",
			h.aws(`autoscaling set-desired-capacity --auto-scaling-group-name %s --desired-capacity "$old"`,
				plain.Shell(a.Group)),
		}
	case a.Count != nil:
		name := "curfew-more-" + h.ID
		file := plain.Shell(name + ".json")
		return []string{
			h.aws("ec2 get-launch-template-data --instance-id %s --query LaunchTemplateData --output json", h.id) +
				" > " +
				file,
			h.aws("ec2 create-launch-template --launch-template-name %s --launch-template-data %s", plain.Shell(name),
				plain.Shell("file://"+name+".json")),
			"more=$(" + h.aws(
				"ec2 run-instances --launch-template %s --count %d --query 'Instances[].InstanceId' --output text",
				plain.Shell("LaunchTemplateName="+name), *a.Count) + ")",
			"# undo:",
			h.aws("ec2 terminate-instances --instance-ids $more"),
			h.aws("ec2 delete-launch-template --launch-template-name %s", plain.Shell(name)),
		}
	}
	return nil
}

// desired sets the size of an Auto Scaling group.
func (h *hand) desired(group string) string {
	return "old=$(" + h.aws("autoscaling describe-auto-scaling-groups --auto-scaling-group-names %s --query "+
		"'AutoScalingGroups[0].DesiredCapacity' --output text", plain.Shell(group)) + ")"
}

// agent installs the CloudWatch agent with its GPU metrics by Systems Manager
// (CloudWatch User Guide, "Collect NVIDIA GPU metrics").
func (h *hand) agent() []string {
	const parameter = "curfew-gpu-metrics"
	config := encoded(map[string]any{
		"metrics": map[string]any{"append_dimensions": map[string]string{"InstanceId": "${aws:InstanceId}"},
			"metrics_collected": map[string]any{
				"nvidia_gpu": map[string]any{
					"measurement":                 []string{"utilization_gpu", "memory_used", "memory_total"},
					"metrics_collection_interval": 60,
				},
			}}})
	send := func(document string, parameters any) string {
		return h.aws("ssm send-command --instance-ids %s --document-name %s --parameters %s", h.id, document,
			plain.Shell(encoded(parameters)))
	}
	one := func(v string) []string { return []string{v} }
	return []string{
		"# the machine needs the SSM agent and the policies AmazonSSMManagedInstanceCore and " +
			"CloudWatchAgentServerPolicy:",
		h.aws("ssm put-parameter --name %s --type String --overwrite --value %s", parameter, plain.Shell(config)),
		send("AWS-ConfigureAWSPackage", map[string][]string{
			"action": one("Install"), "name": one("AmazonCloudWatchAgent"),
		}),
		send("AmazonCloudWatch-ManageAgent", map[string][]string{
			"action": one("configure (append)"), "mode": one("ec2"), "optionalConfigurationSource": one("ssm"),
			"optionalConfigurationLocation": one(parameter), "optionalRestart": one("yes")}),
		"# undo:",
		send("AmazonCloudWatch-ManageAgent", map[string][]string{
			"action": one("configure (remove)"), "mode": one("ec2"), "optionalConfigurationSource": one("ssm"),
			"optionalConfigurationLocation": one(parameter), "optionalRestart": one("yes")}),
	}
}

// replicas sets the number of machines of an endpoint variant, or deletes it after asking its
// owner.
func (h *hand) replicas() []string {
	if h.Verb == change.Notify {
		return []string{
			"config=$(" +
				h.aws("sagemaker describe-endpoint --endpoint-name %s --query EndpointConfigName --output text",
					h.id) + ")",
			"# if its owner agrees:", h.aws("sagemaker delete-endpoint --endpoint-name %s", h.id),
			"# undo:", h.aws(`sagemaker create-endpoint --endpoint-name %s --endpoint-config-name "$config"`, h.id),
		}
	}
	if h.Arguments.Count == nil || h.Arguments.Part == "" {
		return nil
	}
	set := func(n string) string {
		return h.aws(
			`sagemaker update-endpoint-weights-and-capacities --endpoint-name %s --desired-weights-and-capacities VariantName=%s,DesiredInstanceCount=%s`, h.id, plain.Shell(h.Arguments.Part), n)
	}
	query := plain.Shell(fmt.Sprintf("ProductionVariants[?VariantName=='%s'].DesiredInstanceCount | [0]",
		h.Arguments.Part))
	return []string{
		"old=$(" + h.aws("sagemaker describe-endpoint --endpoint-name %s --query %s --output text", h.id, query) + ")",
		set(fmt.Sprint(*h.Arguments.Count)), "# undo:", set(`"$old"`),
	}
}

func (h *hand) database() []string {
	if h.Arguments.Type == "" {
		return []string{
			h.aws("rds stop-db-instance --db-instance-identifier %s", h.id) + "   # RDS starts it again after 7 days",
			"# undo:", h.aws("rds start-db-instance --db-instance-identifier %s", h.id),
		}
	}
	class := func(t string) string {
		return h.aws(
			"rds modify-db-instance --db-instance-identifier %s --db-instance-class %s --no-apply-immediately",
			h.id, t)
	}
	return []string{
		class(plain.Shell(h.Arguments.Type)) + "   # in its maintenance window", "# undo:", class(plain.Shell(h.Type)),
	}
}

func (h *hand) cache() []string {
	snapshot := plain.Shell("curfew-" + h.ID)
	return []string{
		"group=$(" + h.aws("elasticache describe-cache-clusters --cache-cluster-id %s --query "+
			"'CacheClusters[0].ReplicationGroupId' --output text", h.id) + ")",
		"# a node of a replication group ends with its group:",
		`if [ "$group" = None ]; then ` +
			h.aws("elasticache delete-cache-cluster --cache-cluster-id %s --final-snapshot-identifier %s", h.id,
				snapshot) +
			"; else " +
			h.aws(
				`elasticache delete-replication-group --replication-group-id "$group" --final-snapshot-identifier %s`,
				snapshot) + "; fi",
		"# Memcached makes no snapshot; leave --final-snapshot-identifier out, and nothing takes it back",
		"# undo:",
		`if [ "$group" = None ]; then ` +
			h.aws("elasticache create-cache-cluster --cache-cluster-id %s --snapshot-name %s",
				h.id, snapshot) + "; else " +
			h.aws(
				`elasticache create-replication-group --replication-group-id "$group" --replication-group-description restored --snapshot-name %s`, snapshot) + "; fi",
	}
}

func (h *hand) table() []string {
	return []string{
		"old=$(" + h.aws("dynamodb describe-table --table-name %s --query "+
			"'Table.ProvisionedThroughput.{ReadCapacityUnits:ReadCapacityUnits,WriteCapacityUnits:WriteCapacityUnits}' "+
			"--output json", h.id) + ")",
		h.aws("dynamodb update-table --table-name %s --billing-mode PAY_PER_REQUEST", h.id),
		"# undo; a table with indexes takes --global-secondary-index-updates as well:",
		h.aws(`dynamodb update-table --table-name %s --billing-mode PROVISIONED --provisioned-throughput "$old"`,
			h.id),
	}
}

func (h *hand) vpcEndpoint() []string {
	name := "curfew-" + h.ID + ".json"
	return []string{
		h.aws("ec2 describe-vpc-endpoints --vpc-endpoint-ids %s --output json --query %s", h.id,
			plain.Shell("VpcEndpoints[0].{VpcId: VpcId, ServiceName: ServiceName, "+
				"VpcEndpointType: VpcEndpointType, SubnetIds: SubnetIds, SecurityGroupIds: Groups[].GroupId, "+
				"PrivateDnsEnabled: "+
				"PrivateDnsEnabled}")) + " > " + plain.Shell(name),
		h.aws("ec2 delete-vpc-endpoints --vpc-endpoint-ids %s", h.id),
		"# undo:",
		h.aws("ec2 create-vpc-endpoint --cli-input-json %s", plain.Shell("file://"+name)),
	}
}
