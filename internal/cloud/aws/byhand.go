package aws

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Subject is the resource that commands are about.
type Subject struct {
	Kind inventory.Kind
	// Type is the resource's type.
	ID, Type, Account, Region string
}

// ByHand returns the AWS CLI commands for a change, in order; none if a person has to decide more
// than a command can express. Lines starting with # are comments for people.
func ByHand(s Subject, c change.Change) []string {
	h := hand{Subject: s, Change: c, id: plain.Shell(s.ID)}
	switch c.Verb {
	case change.Tag:
		return h.tagged()
	case change.Advise, change.Measure, change.Notify:
		return h.byPerson()
	}
	switch s.Kind {
	case inventory.KindInstance:
		return h.machine()
	case inventory.KindVolume, inventory.KindSnapshot, inventory.KindImage:
		return h.disk()
	case inventory.KindAddress, inventory.KindNATGateway, inventory.KindLoadBalancer:
		return h.network()
	case inventory.KindNotebook, inventory.KindEndpoint, inventory.KindTrainingJob:
		return h.sagemaker()
	case inventory.KindBucket, inventory.KindRepository, inventory.KindLogGroup:
		return h.stored()
	case inventory.KindAutoScalingGroup:
		if c.Verb == change.Scale && len(c.Arguments.Members) > 0 {
			var out []string
			for _, id := range c.Arguments.Members {
				out = append(out, h.endMember(plain.Shell(id)))
			}
			return out
		}
		if c.Verb == change.Scale && c.Arguments.Count != nil {
			return []string{
				h.aws("autoscaling set-desired-capacity --auto-scaling-group-name %s --desired-capacity %d", h.id,
					*c.Arguments.Count),
			}
		}
	case inventory.KindCapacityReservation:
		if n := c.Arguments.Count; c.Verb == change.ModifyReservation && n != nil {
			if *n == 0 {
				return []string{h.aws("ec2 cancel-capacity-reservation --capacity-reservation-id %s", h.id)}
			}
			return []string{
				h.aws("ec2 modify-capacity-reservation --capacity-reservation-id %s --instance-count %d", h.id, *n),
			}
		}
	}
	return nil
}

// hand builds the commands of one change.
type hand struct {
	Subject
	change.Change
	id string // quoted for the shell
}

// aws returns a command in the resource's region. Arguments must already be quoted.
func (h *hand) aws(format string, a ...any) string { return h.in(h.Region, format, a...) }

func (h *hand) in(region, format string, a ...any) string {
	return "aws " + fmt.Sprintf(format, a...) + " --region " + plain.Shell(region)
}

// endMember ends a machine of an Auto Scaling group and reduces the group's size by one.
func (h *hand) endMember(id string) string {
	return h.aws(
		"autoscaling terminate-instance-in-auto-scaling-group --instance-id %s --should-decrement-desired-capacity",
		id)
}

func (h *hand) machine() []string {
	switch a := h.Arguments; h.Verb {
	case change.Stop:
		return []string{h.aws("ec2 stop-instances --instance-ids %s", h.id)}
	case change.Terminate:
		end := h.aws("ec2 terminate-instances --instance-ids %s", h.id)
		if len(a.Snapshot) == 0 {
			return []string{end}
		}
		return append(h.saved(), end)
	case change.ChangeType:
		if a.Type == "" {
			return nil
		}
		return []string{
			h.aws("ec2 stop-instances --instance-ids %s", h.id),
			h.aws("ec2 wait instance-stopped --instance-ids %s", h.id),
			h.aws("ec2 modify-instance-attribute --instance-id %s --instance-type Value=%s",
				h.id, plain.Shell(a.Type)),
			h.aws("ec2 start-instances --instance-ids %s", h.id),
		}
	case change.Scale:
		return []string{h.endMember(h.id)}
	case change.Schedule:
		return h.schedule()
	case change.UseSpot:
		return h.spot()
	case change.Move:
		return h.moved()
	}
	return nil
}

// scheduleRole is the role with which EventBridge Scheduler starts and stops machines.
const scheduleRole = "curfew-schedule"

// schedule starts and stops a machine by two schedules of EventBridge Scheduler, with a role
// limited to that (EventBridge Scheduler User Guide, "Universal targets").
func (h *hand) schedule() []string {
	w := h.Arguments.Week
	if w == nil || h.Account == "" {
		return nil
	}
	partition := partitionNamed(h.Region)
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"scheduler.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
	may := fmt.Sprintf(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["ec2:StartInstances","ec2:StopInstances"],"Resource":"arn:%s:ec2:%s:%s:instance/*"}]}`, partition, h.Region, h.Account)
	one := func(does, call, at string, days []string) string {
		hour, minute, _ := strings.Cut(at, ":")
		cron := fmt.Sprintf("cron(%d %d ? * %s *)", atoi(minute), atoi(hour), strings.ToUpper(strings.Join(days, ",")))
		target := encoded(map[string]string{
			"Arn":     "arn:" + partition + ":scheduler:::aws-sdk:ec2:" + call,
			"RoleArn": "arn:" + partition + ":iam::" + h.Account + ":role/" + scheduleRole,
			"Input":   encoded(map[string][]string{"InstanceIds": {h.ID}})})
		return h.aws(
			"scheduler create-schedule --name %s --schedule-expression %s --schedule-expression-timezone UTC "+
				"--flexible-time-window Mode=OFF --target %s",
			plain.Shell("curfew-"+does+"-"+h.ID), plain.Shell(cron), plain.Shell(target))
	}
	return []string{
		"# once for the account, where the role is not there yet:",
		fmt.Sprintf("aws iam create-role --role-name %s --assume-role-policy-document %s",
			scheduleRole, plain.Shell(trust)),
		fmt.Sprintf("aws iam put-role-policy --role-name %s --policy-name %s --policy-document %s", scheduleRole,
			plain.Shell(scheduleRole+"-"+h.Region), plain.Shell(may)),
		"# start and stop:",
		one("start", "startInstances", w.Start, w.Days),
		one("stop", "stopInstances", w.Stop, w.StopDays()),
		"# or, where Instance Scheduler on AWS is installed, a schedule of it and its tag:",
		fmt.Sprintf("scheduler-cli create-period --name %s --begintime %s --endtime %s --weekdays %s --stack "+
			"INSTANCE-SCHEDULER-STACK --region %s",
			plain.Shell("curfew-"+h.ID), w.Start, w.Stop,
			strings.ToLower(strings.Join(w.Days, ",")), plain.Shell(h.Region)),
		fmt.Sprintf(
			"scheduler-cli create-schedule --name %s --periods %s --timezone UTC --stack INSTANCE-SCHEDULER-STACK "+
				"--region %s",
			plain.Shell("curfew-"+h.ID), plain.Shell("curfew-"+h.ID), plain.Shell(h.Region)),
		h.aws("ec2 create-tags --resources %s --tags %s", h.id, plain.Shell("Key=Schedule,Value=curfew-"+h.ID)),
		"# undo:",
		h.aws("scheduler delete-schedule --name %s", plain.Shell("curfew-start-"+h.ID)),
		h.aws("scheduler delete-schedule --name %s", plain.Shell("curfew-stop-"+h.ID)),
		h.aws("ec2 delete-tags --resources %s --tags Key=Schedule", h.id),
	}
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// spot launches a copy of the machine on spot from a template, and ends the old one.
func (h *hand) spot() []string {
	name, file := plain.Shell("curfew-spot-"+h.ID), plain.Shell("curfew-spot-"+h.ID+".json")
	return []string{
		h.aws("ec2 get-launch-template-data --instance-id %s --query LaunchTemplateData --output json", h.id) + " > " +
			file,
		h.aws("ec2 create-launch-template --launch-template-name %s --launch-template-data %s", name,
			plain.Shell("file://curfew-spot-"+h.ID+".json")),
		"# when its work has saved a checkpoint:",
		h.aws("ec2 run-instances --launch-template %s --instance-market-options %s",
			plain.Shell("LaunchTemplateName=curfew-spot-"+h.ID),
			plain.Shell(
				"MarketType=spot,SpotOptions={SpotInstanceType=one-time,InstanceInterruptionBehavior=terminate}")),
		"# when the new machine has resumed from the checkpoint:",
		h.aws("ec2 terminate-instances --instance-ids %s", h.id),
	}
}

// moved copies a machine's image to another region and launches it there.
func (h *hand) moved() []string {
	to, name := h.Arguments.Region, plain.Shell("curfew-move-"+h.ID)
	if to == "" {
		return nil
	}
	return []string{
		"image=$(" + h.aws("ec2 create-image --instance-id %s --name %s --query ImageId --output text", h.id, name) +
			")",
		h.aws(`ec2 wait image-available --image-ids "$image"`),
		`copy=$(` + h.in(to,
			`ec2 copy-image --source-image-id "$image" --source-region %s --name %s --query ImageId --output text`,
			plain.Shell(h.Region), name) + ")",
		h.in(to, `ec2 wait image-available --image-ids "$copy"`),
		"# add --subnet-id, --security-group-ids and --iam-instance-profile of the new region:",
		h.in(to, `ec2 run-instances --image-id "$copy" --instance-type %s`, plain.Shell(h.Type)),
		"# when the new machine works:",
		h.aws("ec2 terminate-instances --instance-ids %s", h.id),
	}
}

// tagged writes the missing tags, with known values or placeholders for a person.
func (h *hand) tagged() []string {
	service, name := h.tagger()
	if name == "" {
		return nil
	}
	var out []string
	if len(h.Arguments.Tags) > 0 {
		out = append(out, tagCommand(service, name, h.Region, h.Arguments.Tags))
	}
	if len(h.Arguments.Keys) > 0 {
		values := map[string]string{}
		for _, k := range h.Arguments.Keys {
			values[k] = "VALUE"
		}
		out = append(out, "# with the values of its owner:", tagCommand(service, name, h.Region, values))
	}
	return out
}

// tagger returns the service that tags the resource, and the resource's name there. For buckets it
// is the tagging API, because S3 replaces all tags at once.
func (h *hand) tagger() (service, name string) {
	p := &place{region: h.Region, account: &account{id: h.Account}}
	r := &inventory.Resource{ID: h.ID, Kind: h.Kind, Type: h.Type, Region: h.Region}
	switch {
	case strings.HasPrefix(h.ID, "arn:") && h.Kind != inventory.KindLoadBalancer:
		return "tagging", h.ID
	case h.Kind == inventory.KindVPCEndpoint:
		return "ec2", h.ID
	case h.Kind == inventory.KindBucket:
		return "tagging", p.arn("s3", h.ID)
	case h.Kind == inventory.KindCluster:
		return "tagging", p.arn("eks", "cluster/"+h.ID)
	case h.Kind == inventory.KindTable:
		return "tagging", p.arn("dynamodb", "table/"+h.ID)
	case h.Kind == inventory.KindWarehouse:
		return "tagging", p.arn("redshift", "cluster:"+h.ID)
	case h.Kind == inventory.KindCache:
		return "tagging", p.arn("elasticache", "cluster:"+h.ID)
	case h.Kind == inventory.KindDatabase && strings.HasSuffix(h.Type, ".search"):
		r.Detail = &inventory.Database{Engine: "opensearch"}
	case h.Kind == inventory.KindNotebook:
		r.Detail = &inventory.Notebook{IsApp: strings.Contains(h.ID, "/")}
	}
	return p.tagService(r)
}

// saved snapshots volumes one by one, waiting for each.
func (h *hand) saved() []string {
	var out []string
	for _, v := range h.Arguments.Snapshot {
		out = append(out, h.aws("ec2 create-snapshot --volume-id %s", plain.Shell(v)))
	}
	return append(out, "# when every snapshot is completed:")
}

func (h *hand) disk() []string {
	switch string(h.Kind) + " " + string(h.Verb) {
	case "volume delete":
		return append(h.saved(), h.aws("ec2 delete-volume --volume-id %s", h.id))
	case "volume modify-volume":
		return []string{
			h.aws("ec2 modify-volume --volume-id %s --volume-type %s%s%s", h.id, plain.Shell(h.Arguments.Type),
				flag("--iops", h.Arguments.IOPS), flag("--throughput", h.Arguments.ThroughputMiBps))}
	case "snapshot delete":
		return []string{h.aws("ec2 delete-snapshot --snapshot-id %s", h.id)}
	case "image deregister":
		return []string{h.aws("ec2 deregister-image --image-id %s --delete-associated-snapshots", h.id)}
	}
	return nil
}

// flag formats a numeric flag; empty if it is 0.
func flag(name string, n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" %s %d", name, n)
}

func (h *hand) network() []string {
	switch string(h.Kind) + " " + string(h.Verb) {
	case "address release":
		return []string{h.aws("ec2 release-address --allocation-id %s", h.id)}
	case "nat-gateway delete":
		return []string{h.aws("ec2 delete-nat-gateway --nat-gateway-id %s", h.id)}
	case "load-balancer delete":
		if h.Type == "classic" {
			return []string{h.aws("elb delete-load-balancer --load-balancer-name %s", h.id)}
		}
		return []string{h.aws("elbv2 delete-load-balancer --load-balancer-arn %s", h.id)}
	}
	return nil
}

func (h *hand) sagemaker() []string {
	switch string(h.Kind) + " " + string(h.Verb) {
	case "notebook stop":
		if strings.Contains(h.ID, "/") {
			return nil // a studio application is deleted, not stopped
		}
		return []string{h.aws("sagemaker stop-notebook-instance --notebook-instance-name %s", h.id)}
	case "endpoint delete":
		return []string{h.aws("sagemaker delete-endpoint --endpoint-name %s", h.id)}
	case "endpoint scale":
		if h.Arguments.Count == nil {
			return nil
		}
		return []string{
			h.aws("sagemaker update-endpoint-weights-and-capacities --endpoint-name %s "+
				"--desired-weights-and-capacities "+
				"VariantName=%s,DesiredInstanceCount=%d",
				h.id, plain.Shell(h.Arguments.Part), *h.Arguments.Count)}
	case "endpoint change-type":
		return h.otherMachine()
	case "notebook delete-app":
		parts := strings.Split(h.ID, "/")
		if len(parts) != 4 {
			return nil
		}
		owner := "--user-profile-name"
		if parts[2] == "JupyterLab" || parts[2] == "CodeEditor" { // these belong to spaces
			owner = "--space-name"
		}
		return []string{
			h.aws("sagemaker delete-app --domain-id %s %s %s --app-type %s --app-name %s",
				plain.Shell(parts[0]), owner,
				plain.Shell(parts[1]),
				plain.Shell(parts[2]), plain.Shell(parts[3]))}
	case "training-job move":
		if h.Arguments.Region == "" {
			return nil
		}
		file := plain.Shell("curfew-move-" + h.ID + ".json")
		return []string{
			h.aws("sagemaker describe-training-job --training-job-name %s --output json --query %s", h.id,
				plain.Shell("{TrainingJobName: TrainingJobName, HyperParameters: HyperParameters, "+
					"AlgorithmSpecification: AlgorithmSpecification, RoleArn: RoleArn, InputDataConfig: "+
					"InputDataConfig, "+
					"OutputDataConfig: OutputDataConfig, "+
					"ResourceConfig: ResourceConfig, StoppingCondition: StoppingCondition, CheckpointConfig: "+
					"CheckpointConfig}")) +
				" > " + file,
			"# set the image and the buckets of output and checkpoints to the new region in " + file + ", then:",
			h.in(h.Arguments.Region, "sagemaker create-training-job --cli-input-json %s",
				plain.Shell("file://curfew-move-"+h.ID+".json")),
			h.aws("sagemaker stop-training-job --training-job-name %s", h.id),
		}
	case "training-job stop":
		return []string{h.aws("sagemaker stop-training-job --training-job-name %s", h.id)}
	}
	return nil
}

// otherMachine creates an endpoint configuration that differs only in its machines, applies it, and
// shows how to revert.
func (h *hand) otherMachine() []string {
	to := h.Arguments.Type
	if to == "" {
		return nil
	}
	if !strings.HasPrefix(to, "ml.") {
		to = "ml." + to
	}
	// A configuration's name has 63 letters at most.
	name := "curfew-" + h.ID[:min(len(h.ID), 24)] + "-" + strings.ReplaceAll(to, ".", "-")
	file := plain.Shell(name + ".json")
	program := fmt.Sprintf(
		`del(.EndpointConfigArn, .CreationTime) | .EndpointConfigName = %q | .ProductionVariants[].InstanceType = %q`,
		name,
		to)
	return []string{
		"old=$(" + h.aws("sagemaker describe-endpoint --endpoint-name %s --query EndpointConfigName --output text",
			h.id) +
			")",
		h.aws(`sagemaker describe-endpoint-config --endpoint-config-name "$old" --output json`) + " | jq " +
			plain.Shell(program) + " > " + file,
		h.aws("sagemaker create-endpoint-config --cli-input-json %s", plain.Shell("file://"+name+".json")),
		h.aws("sagemaker update-endpoint --endpoint-name %s --endpoint-config-name %s", h.id, plain.Shell(name)),
		"# undo:",
		h.aws(`sagemaker update-endpoint --endpoint-name %s --endpoint-config-name "$old"`, h.id),
	}
}

// imagesOfCall is the maximum number of images per delete call (Amazon ECR API reference,
// BatchDeleteImage).
const imagesOfCall = 100

func (h *hand) stored() []string {
	switch string(h.Kind) + " " + string(h.Verb) {
	case "log-group put-retention":
		return []string{
			h.aws("logs put-retention-policy --log-group-name %s --retention-in-days %d", h.id,
				h.Arguments.RetentionDays),
		}
	case "bucket put-lifecycle":
		document, err := change.LifecycleJSON(h.Document)
		if err != nil {
			return nil
		}
		minimum := ""
		if m := h.Arguments.MinimumSize; m != "" {
			minimum = " --transition-default-minimum-object-size " + plain.Shell(m)
		}
		return []string{
			h.aws("s3api put-bucket-lifecycle-configuration --bucket %s%s --lifecycle-configuration %s", h.id, minimum,
				plain.Shell(document)),
		}
	case "repository put-lifecycle":
		if h.Document == "" {
			return nil
		}
		return []string{
			h.aws("ecr put-lifecycle-policy --repository-name %s --lifecycle-policy-text %s", h.id,
				plain.Shell(h.Document)),
		}
	case "repository delete-untagged":
		var out []string
		for digests := range slices.Chunk(h.Arguments.Images, imagesOfCall) {
			words := make([]string, len(digests))
			for i, d := range digests {
				words[i] = plain.Shell("imageDigest=" + d)
			}
			out = append(out, h.aws("ecr batch-delete-image --repository-name %s --image-ids %s", h.id,
				strings.Join(words, " ")))
		}
		return out
	}
	return nil
}
