package aws

import (
	"fmt"
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

// ByHand returns the AWS CLI commands that carry a change out, in order; none where a
// person has to decide more than a command can say. A line that begins with # is for
// people.
func ByHand(s Subject, c change.Change) []string {
	h := hand{Subject: s, Change: c, id: plain.Shell(s.ID)}
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
		if c.Verb == change.Scale && c.Arguments.Count != nil {
			return []string{h.aws("autoscaling set-desired-capacity --auto-scaling-group-name %s --desired-capacity %d", h.id, *c.Arguments.Count)}
		}
	case inventory.KindCapacityReservation:
		if n := c.Arguments.Count; c.Verb == change.ModifyReservation && n != nil {
			if *n == 0 {
				return []string{h.aws("ec2 cancel-capacity-reservation --capacity-reservation-id %s", h.id)}
			}
			return []string{h.aws("ec2 modify-capacity-reservation --capacity-reservation-id %s --instance-count %d", h.id, *n)}
		}
	}
	return nil
}

// hand writes the commands of one change.
type hand struct {
	Subject
	change.Change
	id string // as a word of the shell
}

// aws is a command in the resource's region. Arguments are words of the shell already.
func (h *hand) aws(format string, a ...any) string { return h.in(h.Region, format, a...) }

func (h *hand) in(region, format string, a ...any) string {
	return "aws " + fmt.Sprintf(format, a...) + " --region " + plain.Shell(region)
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
			h.aws("ec2 modify-instance-attribute --instance-id %s --instance-type Value=%s", h.id, plain.Shell(a.Type)),
			h.aws("ec2 start-instances --instance-ids %s", h.id),
		}
	case change.Scale:
		return []string{h.aws("autoscaling terminate-instance-in-auto-scaling-group --instance-id %s --should-decrement-desired-capacity", h.id)}
	}
	return nil
}

// saved snapshots volumes one by one and waits for each.
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
		return []string{h.aws("ec2 modify-volume --volume-id %s --volume-type %s%s%s", h.id, plain.Shell(h.Arguments.Type),
			flag("--iops", h.Arguments.IOPS), flag("--throughput", h.Arguments.ThroughputMiBps))}
	case "snapshot delete":
		return []string{h.aws("ec2 delete-snapshot --snapshot-id %s", h.id)}
	case "image deregister":
		return []string{h.aws("ec2 deregister-image --image-id %s --delete-associated-snapshots", h.id)}
	}
	return nil
}

// flag returns a flag with a figure; nothing where that is 0.
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
		return []string{h.aws("sagemaker update-endpoint-weights-and-capacities --endpoint-name %s --desired-weights-and-capacities VariantName=%s,DesiredInstanceCount=%d",
			h.id, plain.Shell(h.Arguments.Part), *h.Arguments.Count)}
	case "training-job stop":
		return []string{h.aws("sagemaker stop-training-job --training-job-name %s", h.id)}
	}
	return nil
}

func (h *hand) stored() []string {
	switch string(h.Kind) + " " + string(h.Verb) {
	case "log-group put-retention":
		return []string{h.aws("logs put-retention-policy --log-group-name %s --retention-in-days %d", h.id, h.Arguments.RetentionDays)}
	}
	return nil
}
