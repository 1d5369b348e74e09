package aws

import (
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
)

func TestByHand(t *testing.T) {
	for _, tc := range []struct {
		name   string
		kind   inventory.Kind
		id     string
		change change.Change
		want   string
	}{
		{"stop", inventory.KindInstance, "i-1", change.Change{Verb: change.Stop}, "aws ec2 stop-instances --instance-ids i-1 --region us-east-1"},
		{"a fast volume keeps its speed", inventory.KindVolume, "vol-1",
			change.Change{Verb: change.ModifyVolume, Arguments: change.Arguments{Type: "gp3", IOPS: 4000, ThroughputMiBps: 250}},
			"aws ec2 modify-volume --volume-id vol-1 --volume-type gp3 --iops 4000 --throughput 250 --region us-east-1"},
		{"a small volume needs nothing", inventory.KindVolume, "vol-1", change.Change{Verb: change.ModifyVolume, Arguments: change.Arguments{Type: "gp3"}},
			"aws ec2 modify-volume --volume-id vol-1 --volume-type gp3 --region us-east-1"},
		{"a name is one word of the shell, and the days are the finding's", inventory.KindLogGroup, "it's; rm -rf $HOME",
			change.Change{Verb: change.PutRetention, Arguments: change.Arguments{RetentionDays: 365}},
			`aws logs put-retention-policy --log-group-name 'it'\''s; rm -rf $HOME' --retention-in-days 365 --region us-east-1`},
		{"a reservation of which a part is needed", inventory.KindCapacityReservation, "cr-1",
			change.Change{Verb: change.ModifyReservation, Arguments: change.Arguments{Count: new(int64(2))}},
			"aws ec2 modify-capacity-reservation --capacity-reservation-id cr-1 --instance-count 2 --region us-east-1"},
		{"a type that nobody named", inventory.KindInstance, "i-1", change.Change{Verb: change.ChangeType}, ""},
		{"what a person has to decide", inventory.KindBucket, "b", change.Change{Verb: change.PutLifecycle}, ""},
	} {
		if got := strings.Join(ByHand(Subject{Kind: tc.kind, ID: tc.id, Region: "us-east-1"}, tc.change), "\n"); got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.name, got, tc.want)
		}
	}
}
