package sessions_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

const ending = `apiVersion: curfew.policy/v1
policies:
  - name: old
    select: {kind: instance, lifetime: ephemeral}
    when: resource.age >= duration("1ms")
    then:
      - warn: {notify: [bus], grace: 1s}
      - do: terminate
        even_if_busy: true
    limits: {per_hour: 100, share: "100%", dollars_per_hour: 5000}
    mode: enforce
`

// TestPolicyEndsASession checks that a policy that terminates a session's machine ends the session.
// The machine's disks are tagged as scratch, but it is only terminated once its work is confirmed
// as saved; a machine of a session without a record here is kept.
func TestPolicyEndsASession(t *testing.T) {
	t.Parallel()
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer hook.Close()
	s := newStand(t,
		brief+"notify: {webhook: {url: \""+hook.URL+"\", secret_env: HOOK_SECRET}, names: {bus: [webhook]}}\n")
	s.env = append(s.env, "HOOK_SECRET=0123456789abcdef0123456789abcdef")
	s.write("ending.yaml", ending)
	s.write("demo.yaml", "apiVersion: curfew.session/v1\nname: demo\nresources: {instance_type: "+machineType+
		"}\nlease: 1h\nidle: 1h\nsetup: echo made > notes.txt\n")
	foreign := s.foreign()
	s.curfew(0, "up", "demo", "-f", "demo.yaml", "--detach")
	s.eventually("demo is launched", func() bool { return len(s.run("demo").ResourceIDs) == 1 })
	id := s.run("demo").ResourceIDs[0]

	for _, machine := range []string{id, foreign} { // moto does not say what they run
		s.account.Wire.Patch(wire.Patch{
			Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: machine,
			Add: map[string]any{"platformDetails": "Linux/UNIX", "usageOperation": "RunInstances"}})
	}

	var out, errs string
	enforce := func() {
		p := s.start("enforce", "--once", "--enforce", "--policy", "ending.yaml", "--cloud",
			"aws", "--regions", region)
		p.wait(t) // deferred and refused machines have separate exit codes
		out, errs = p.out.String(), p.err.String()
	}
	defer func() {
		if t.Failed() {
			t.Logf("the last pass:\n%s%s", out, errs)
		}
	}()
	s.eventually("the policy ends the session", func() bool { enforce(); return s.run("demo").State == "ending" })
	// Its machine does not run the agent yet, so nothing is saved or released.
	for range 3 {
		enforce()
	}
	if !s.runs(id) {
		t.Fatalf("the machine of demo ended before its work was saved:\n%s%s", out, errs)
	}
	if run := s.run("demo"); run.State != "ending" || run.Checkpoint != nil {
		t.Errorf("demo: %+v", run)
	}
	if !strings.Contains(out+errs, "which is not in these records") {
		t.Errorf("nothing is said of %s:\n%s%s", foreign, out, errs)
	}

	s.host()
	s.eventually("demo has ended", func() bool { enforce(); return s.run("demo").EndedAt != nil })
	if !s.runs(foreign) {
		t.Error("a machine of a session that is in no record here was ended")
	}
	if s.runs(id) {
		t.Error("the machine of demo still runs")
	}
	if out, _ := s.curfew(0, "audit", "-o", "json"); !strings.Contains(out, "end-session") {
		t.Errorf("the audit log: %s", out)
	}
}

// foreign launches a machine of a session that another installation keeps.
func (s *stand) foreign() string {
	s.t.Helper()
	tags := []types.Tag{}
	for k, v := range map[string]string{
		inventory.TagSession: "other", inventory.TagInstallation: "other", inventory.TagManaged: "true",
		inventory.TagLifetime: "ephemeral",
		inventory.TagDisks:    inventory.DisksScratch, "Name": "other"} {
		tags = append(tags, types.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	out, err := s.api.RunInstances(s.t.Context(), &ec2.RunInstancesInput{
		ImageId: &s.image, InstanceType: machineType, MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: tags}}})
	if err != nil {
		s.t.Fatal(err)
	}
	return aws.ToString(out.Instances[0].InstanceId)
}

// runs reports whether a machine runs.
func (s *stand) runs(id string) bool {
	s.t.Helper()
	machines, _ := s.held()
	for _, ids := range machines {
		if slices.Contains(ids, id) {
			return true
		}
	}
	return false
}

// TestAnotherAccount checks that with credentials of another account, the sessions of the first one
// are listed and left alone.
func TestAnotherAccount(t *testing.T) {
	t.Parallel()
	s := newStand(t, brief)
	s.curfew(0, "up", "demo", "--type", machineType, "--detach")
	s.eventually("demo is launched", func() bool { return len(s.run("demo").ResourceIDs) == 1 })
	s.clear()
	id, own := s.run("demo").ResourceIDs[0], slices.Clone(s.env)
	out, err := sts.NewFromConfig(s.account.Config(region)).AssumeRole(t.Context(),
		&sts.AssumeRoleInput{
			RoleArn: aws.String("arn:aws:iam::222222222222:role/other"), RoleSessionName: aws.String("ben"),
		})
	if err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "AWS_ACCESS_KEY_ID="+*out.Credentials.AccessKeyId,
		"AWS_SECRET_ACCESS_KEY="+*out.Credentials.SecretAccessKey, "AWS_SESSION_TOKEN="+*out.Credentials.SessionToken)
	for _, args := range [][]string{{"down", "demo", "--discard"}, {"extend", "demo", "--for", "1h"}, {"up", "demo"}} {
		if _, errs := s.curfew(2, args...); !strings.Contains(errs, "left alone") ||
			!strings.Contains(errs, "222222222222") {
			t.Errorf("%q: %s", args, errs)
		}
	}
	// A keeper with these credentials does nothing about it, and does not consider it gone.
	s.clear() // commands that list sessions replace a keeper
	keeper := s.start("session", "keep", "--data-dir", s.data())
	select {
	case <-keeper.done:
	default:
	}
	s.eventually("the keeper says that it leaves it alone", func() bool {
		select {
		case <-keeper.done:
			return true
		default:
			return false
		}
	})
	if !strings.Contains(keeper.err.String(), "left alone") {
		t.Errorf("the keeper says %s", keeper.err.String())
	}
	if run := s.run("demo"); run.State != "starting" || !s.runs(id) {
		t.Errorf("demo: %+v", run)
	}
	s.env = own
	s.curfew(0, "down", "demo", "--discard")
	s.nothingLeft()
}
