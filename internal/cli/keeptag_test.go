package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// keepTagOf is the tag that keeps a machine, as the provider has it.
func (l *ladderTest) keepTagOf(name string) string {
	l.t.Helper()
	out, err := ec2.NewFromConfig(l.sandbox.Config("us-east-1")).DescribeTags(l.t.Context(),
		&ec2.DescribeTagsInput{Filters: []types.Filter{
			{Name: aws.String("resource-id"), Values: []string{l.account.IDs[name]}},
			{Name: aws.String("key"), Values: []string{inventory.TagKeepUntil}}}})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, tag := range out.Tags {
		return *tag.Value
	}
	return ""
}

// TestKeepFromOtherStateWritesTag checks that an owner whose own state has never seen a machine
// that another process warns about keeps it by its tag, or is told exactly how.
func TestKeepFromOtherStateWritesTag(t *testing.T) {
	l := newLadder(t)
	l.pass(40 * time.Minute)
	l.enforce(ExitDone) // warns, with a state of its own
	l.mu.Lock()
	for _, text := range l.told {
		if strings.Contains(text, "curfew+consent") {
			continue // asks for the disks of another machine, and warns of nothing
		}
		for _, part := range []string{
			"aws+ec2+create-tags", "curfew%3Akeep-until", "it+will+be+terminated", "Lost", "curfew+keep+aws%2F",
		} {
			if !strings.Contains(text, part) {
				t.Errorf("a warning does not say %q:\n%s", part, text)
			}
		}
	}
	l.mu.Unlock()
	ref := l.account.Ref(sandbox.Idle).String()
	end := l.clock().Add(24 * time.Hour).Format(time.RFC3339)

	denied := l.sandbox.Wire.Inject(wire.Fault{Service: "ec2", Operation: "CreateTags", Kind: wire.AccessDenied})
	code, out, errs := l.curfewAny("keep", ref, "--for", "24h", "--reason", "demo", "--data-dir", "laptop")
	command := "aws ec2 create-tags --resources " + l.account.IDs[sandbox.Idle] +
		" --tags Key=curfew:keep-until,Value=" +
		end + " --region us-east-1"
	if code != ExitError || !strings.Contains(errs, command) || strings.Contains(out, "is kept") {
		t.Errorf("denied: exit %d, want %d and %q\n%s%s", code, ExitError, command, out, errs)
	}
	denied()
	if tag := l.keepTagOf(sandbox.Idle); tag != "" {
		t.Fatalf("the tag is %q", tag)
	}
	if out := l.curfew(ExitDone, "keep", ref, "--for", "24h", "--reason", "demo", "--data-dir",
		"laptop"); !strings.Contains(out, "by its tag "+inventory.TagKeepUntil) {
		t.Errorf("it says %s", out)
	}
	if tag := l.keepTagOf(sandbox.Idle); tag != end {
		t.Errorf("the tag is %q, want %q", tag, end)
	}
	// A bare id that no scan has is looked for in the account.
	if out := l.curfew(ExitDone, "keep", l.account.IDs[sandbox.Turning], "--for", "12h",
		"--reason", "demo", "--data-dir",
		"laptop", "--regions", "us-east-1", "-o", "json"); !strings.Contains(out, `"tagged": true`) {
		t.Errorf("it says %s", out)
	}
	if code, _, errs := l.curfewAny("keep", "i-0123456789abcdef0", "--for", "12h", "--reason", "demo", "--data-dir",
		"laptop", "--regions", "us-east-1"); code != ExitError ||
		!strings.Contains(errs, "no resource that curfew has seen") {
		t.Errorf("one that is not there: exit %d, %s", code, errs)
	}
	// The state that has warned keeps by itself and writes no tag.
	l.curfew(ExitDone, "keep", l.account.Ref("gang-4").String(), "--for", "24h", "--reason", "demo")
	if tag := l.keepTagOf("gang-4"); tag != "" {
		t.Errorf("the state that acts wrote the tag %q", tag)
	}
	l.pass(16 * time.Minute)
	if got := l.enforce(ExitDone); !strings.Contains(got[sandbox.Idle], "refused") ||
		l.state(sandbox.Idle) != "running" {
		t.Errorf("after the grace: %v, %s", got, l.state(sandbox.Idle))
	}
}

// TestUnownedMachinesAreWarnedAbout: without an owner tag, those whom the
// configuration names are warned, and only then grace runs.
func TestUnownedMachinesAreWarnedAbout(t *testing.T) {
	l := newLadder(t)
	for _, tag := range []string{"owner", "user", "User", "Owner", "team", "Team"} {
		l.retag(sandbox.Idle, tag, "")
	}
	l.pass(40 * time.Minute)
	code, out, errs := l.curfewAny("enforce", "--once", "--enforce", "--policy", "policies.yaml")
	if code != ExitPartial || !strings.Contains(out, "let notify.unowned or notify.accounts answer for it") {
		t.Fatalf("without a contact: exit %d\n%s%s", code, out, errs)
	}
	config, err := os.ReadFile(filepath.Join(l.dir, "curfew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	l.write("curfew.yaml",
		strings.Replace(string(config), "notify:\n", "notify:\n  unowned: [\"slack:#ml-platform\"]\n",
			1))
	l.pass(time.Minute)
	if got := l.enforce(ExitDone); got[sandbox.Idle] != "warned" {
		t.Errorf("with a contact for unowned resources: %v", got)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := strings.Join(l.told, "\n"); !strings.Contains(last, "channel=%23ml-platform") {
		t.Errorf("told:\n%s", last)
	}
}
