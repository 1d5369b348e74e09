package aws

import (
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Task is a fix to be carried out by hand.
type Task struct {
	Kind inventory.Kind
	// Action is the finding's fix: stop, terminate, modify-volume, ….
	Action, ID, Region string
	// Type is the resource's type.
	Type string
	// Evidence holds what the finding saw, by signal: the type that fits, what is
	// needed beyond the free part.
	Evidence map[string]string
}

// ByHand returns the AWS CLI commands that carry out a task, in order; none where a
// person has to decide more than a command can say.
func ByHand(t Task) []string {
	aws := func(format string, a ...any) string {
		return "aws " + fmt.Sprintf(format, a...) + " --region " + quote(t.Region)
	}
	id := quote(t.ID)
	switch string(t.Kind) + " " + t.Action {
	case "instance stop":
		return []string{aws("ec2 stop-instances --instance-ids %s", id)}
	case "instance terminate":
		return []string{aws("ec2 terminate-instances --instance-ids %s", id)}
	case "instance snapshot-then-terminate":
		return []string{
			aws("ec2 create-snapshots --instance-specification InstanceId=%s --copy-tags-from-source volume", id),
			"# when every snapshot is completed:",
			aws("ec2 terminate-instances --instance-ids %s", id),
		}
	case "instance change-type":
		to := t.Evidence["fits"]
		if to == "" {
			to = t.Evidence["successor"]
		}
		if to == "" {
			return nil
		}
		return []string{
			aws("ec2 stop-instances --instance-ids %s", id),
			aws("ec2 wait instance-stopped --instance-ids %s", id),
			aws("ec2 modify-instance-attribute --instance-id %s --instance-type Value=%s", id, quote(to)),
			aws("ec2 start-instances --instance-ids %s", id),
		}
	case "volume snapshot-then-delete":
		return []string{
			aws("ec2 create-snapshot --volume-id %s", id),
			"# when the snapshot is completed:",
			aws("ec2 delete-volume --volume-id %s", id),
		}
	case "volume modify-volume":
		return []string{aws("ec2 modify-volume --volume-id %s --volume-type gp3%s%s", id,
			above("--iops", 3000, t.Evidence["gp3_extra_iops"]), above("--throughput", 125, t.Evidence["gp3_extra_mibps"]))}
	case "snapshot delete":
		return []string{aws("ec2 delete-snapshot --snapshot-id %s", id)}
	case "image deregister":
		return []string{aws("ec2 deregister-image --image-id %s --delete-associated-snapshots", id)}
	case "address release":
		return []string{aws("ec2 release-address --allocation-id %s", id)}
	case "nat-gateway delete":
		return []string{aws("ec2 delete-nat-gateway --nat-gateway-id %s", id)}
	case "load-balancer delete":
		if t.Type == "classic" {
			return []string{aws("elb delete-load-balancer --load-balancer-name %s", id)}
		}
		return []string{aws("elbv2 delete-load-balancer --load-balancer-arn %s", id)}
	case "notebook stop":
		if strings.Contains(t.ID, "/") {
			return nil // a studio application is deleted, not stopped
		}
		return []string{aws("sagemaker stop-notebook-instance --notebook-instance-name %s", id)}
	case "endpoint delete":
		return []string{aws("sagemaker delete-endpoint --endpoint-name %s", id)}
	case "training-job stop":
		return []string{aws("sagemaker stop-training-job --training-job-name %s", id)}
	case "log-group put-retention":
		return []string{aws("logs put-retention-policy --log-group-name %s --retention-in-days 30", id)}
	case "capacity-reservation modify-reservation":
		if used := t.Evidence["used_max"]; used != "" && used != "0" {
			return []string{aws("ec2 modify-capacity-reservation --capacity-reservation-id %s --instance-count %s", id, quote(used))}
		}
		return []string{aws("ec2 cancel-capacity-reservation --capacity-reservation-id %s", id)}
	}
	return nil
}

// above returns a flag for a provisioned figure that is over what is free.
func above(flag string, free int, extra string) string {
	var n int
	if _, err := fmt.Sscanf(extra, "%d", &n); err != nil || n <= 0 {
		return ""
	}
	return fmt.Sprintf(" %s %d", flag, free+n)
}

// quote makes a word of a shell command of s.
func quote(s string) string {
	safe := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./:=,@+", c)
	}
	if s != "" && strings.IndexFunc(s, func(c rune) bool { return !safe(c) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
