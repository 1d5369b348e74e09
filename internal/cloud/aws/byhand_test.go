package aws

import (
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
)

func TestByHand(t *testing.T) {
	for _, tc := range []struct {
		name string
		task Task
		want string
	}{
		{"stop", Task{Kind: inventory.KindInstance, Action: "stop", ID: "i-1", Region: "us-east-1"},
			"aws ec2 stop-instances --instance-ids i-1 --region us-east-1"},
		{"a fast volume keeps its speed", Task{Kind: inventory.KindVolume, Action: "modify-volume", ID: "vol-1", Region: "us-east-1", Evidence: map[string]string{"gp3_extra_iops": "1000", "gp3_extra_mibps": "125"}},
			"aws ec2 modify-volume --volume-id vol-1 --volume-type gp3 --iops 4000 --throughput 250 --region us-east-1"},
		{"a small volume needs nothing", Task{Kind: inventory.KindVolume, Action: "modify-volume", ID: "vol-1", Region: "us-east-1", Evidence: map[string]string{"gp3_extra_iops": "0"}},
			"aws ec2 modify-volume --volume-id vol-1 --volume-type gp3 --region us-east-1"},
		{"a name is one word of the shell", Task{Kind: inventory.KindLogGroup, Action: "put-retention", ID: "it's; rm -rf $HOME", Region: "us-east-1"},
			`aws logs put-retention-policy --log-group-name 'it'\''s; rm -rf $HOME' --retention-in-days 30 --region us-east-1`},
		{"a type that nobody named", Task{Kind: inventory.KindInstance, Action: "change-type", ID: "i-1", Region: "us-east-1"}, ""},
		{"what a person has to decide", Task{Kind: inventory.KindBucket, Action: "put-lifecycle", ID: "b", Region: "us-east-1"}, ""},
	} {
		if got := strings.Join(ByHand(tc.task), "\n"); got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.name, got, tc.want)
		}
	}
}
