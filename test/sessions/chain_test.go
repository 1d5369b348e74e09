package sessions_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/wire"
)

const brief = `sessions: {cloud: aws, grace: 2s, image: IMAGE}
`

// log returns the events of a session, each as "kind text".
func (s *stand) log(name string) (lines []string) {
	s.t.Helper()
	out, _ := s.curfew(0, "logs", name, "-o", "json")
	var doc view.SessionLog
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	for _, e := range doc.Events {
		lines = append(lines, e.Kind+" "+e.Text)
	}
	return lines
}

// inOrder checks that lines contain events in order.
func inOrder(t *testing.T, lines []string, want ...string) {
	t.Helper()
	i := 0
	for _, l := range lines {
		if i < len(want) && strings.HasPrefix(l, want[i]) {
			i++
		}
	}
	if i < len(want) {
		t.Errorf("no %q after %q in\n%s", want[i], want[:i], strings.Join(lines, "\n"))
	}
}

// TestWholeSession runs a whole session on AWS: its machine runs its user data, becomes ready and
// idle, is warned, saves its work and ends, and nothing is left. After a new start its work is
// restored.
func TestWholeSession(t *testing.T) {
	t.Parallel()
	s := newStand(t, brief)
	m := s.host()
	s.write("demo.yaml", `apiVersion: curfew.session/v1
name: demo
resources: {instance_type: `+machineType+`}
lease: 1h
idle: 3s
setup: '[ -f notes.txt ] || echo "made on $(hostname)" > notes.txt'
`)
	out, errs := s.curfew(0, "up", "demo", "-f", "demo.yaml", "-o", "json")
	var doc view.Runs
	if err := json.Unmarshal([]byte(out), &doc); err != nil || len(doc.Runs) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	run := doc.Runs[0]
	if run.State != "ready" || run.Provider != "aws" || run.Region != region || run.Type != machineType ||
		run.Image != s.image || run.HourlyUSD == nil || len(run.ResourceIDs) != 1 || run.HoldID == "" {
		t.Fatalf("up: %s%s", out, errs)
	}
	s.eventually("demo has ended", func() bool { return s.run("demo").EndedAt != nil })
	if run = s.run("demo"); run.State != "ended" || run.Checkpoint == nil || !run.CostUSD.Known() {
		t.Errorf("demo: %+v", run)
	}
	inOrder(t, s.log("demo"), "requested ", "gate allow", "launching "+machineType, "launched ", "ready ", "warned ",
		"snapshot the last", "snapshot snapshot confirmed", "ended ")
	s.nothingLeft()
	if out, _ := s.curfew(0, "budget", "holds"); !strings.Contains(out, "settled") {
		t.Errorf("its hold: %s", out)
	}

	// Start it again, with its work.
	s.curfew(0, "up", "demo", "--idle", "1h", "-q")
	run = s.run("demo")
	text, err := os.ReadFile(filepath.Join(m.root(run.ResourceIDs[0]), "root", "work", "notes.txt"))
	if err != nil || !strings.HasPrefix(string(text), "made on ") {
		t.Errorf("its work: %q, %v", text, err)
	}
	out, _ = s.curfew(0, "status", "demo")
	for _, want := range []string{"demo is ready", s.image, "ready"} {
		if !strings.Contains(out, want) {
			t.Errorf("status says nothing of %q:\n%s", want, out)
		}
	}
	s.curfew(0, "extend", "demo", "--for", "1h")
	if err := os.WriteFile(filepath.Join(m.root(run.ResourceIDs[0]), "root", "work", "more.txt"), []byte("more\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	_, errs = s.curfew(0, "down", "demo")
	if !strings.Contains(errs, "snapshot confirmed") {
		t.Errorf("down: %s", errs)
	}
	s.nothingLeft()
	s.eventually("its keeper has ended", func() bool { return len(s.processes()) == 0 })
	for _, r := range s.list("--all") {
		if r.Name == "demo" && r.EndedAt == nil {
			t.Errorf("it did not end: %+v", r)
		}
	}
}

// TestRefusals checks that a launch refused by a quota is not tried elsewhere, and that the quota
// to raise is named, while missing capacity leads to another attempt.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newStand(t, brief)
	launches := s.account.Wire.Launches.Count // a machine under load may repeat one with its token
	s.account.Wire.Launches.Refuse(wire.LaunchRefusal{
		Code: "VcpuLimitExceeded", Type: machineType, Times: 1, Again: true,
	})
	_, errs := s.curfew(1, "up", "quota", "--type", machineType)
	for _, want := range []string{"over a quota", "L-DB2E81BA", "--region " + region} {
		if !strings.Contains(errs, want) {
			t.Errorf("it does not say %q:\n%s", want, errs)
		}
	}
	if n := launches(); n != 1 {
		t.Errorf("%d launches after a quota", n)
	}
	before := launches()
	s.account.Wire.Launches.Refuse(wire.LaunchRefusal{
		Code: "InsufficientInstanceCapacity", Type: machineType, Times: 1, Again: true,
	})
	s.curfew(0, "up", "capacity", "--type", machineType, "--detach")
	s.eventually("another zone was taken", func() bool { return len(s.run("capacity").ResourceIDs) == 1 })
	if run := s.run("capacity"); run.Attempt != 2 || launches()-before != 2 {
		t.Errorf("%d launches, %+v", launches()-before, run)
	}
	s.curfew(0, "down", "capacity", "--discard")

	// Machines can also be selected by their CPUs.
	s.curfew(0, "up", "cpus", "--cpus", "4", "--detach")
	s.eventually("a machine with 4 CPUs is launched", func() bool { return len(s.run("cpus").ResourceIDs) == 1 })
	described, err := s.api.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{
		InstanceTypes: []types.InstanceType{types.InstanceType(s.run("cpus").Type)},
	})
	if err != nil || len(described.InstanceTypes) != 1 ||
		aws.ToInt32(described.InstanceTypes[0].VCpuInfo.DefaultVCpus) != 4 {
		t.Errorf("launched %+v, %v", s.run("cpus"), err)
	}
	s.curfew(0, "down", "cpus", "--discard")

	// Without a price the gate asks, and nothing is launched.
	s.eventually("no keeper works", func() bool { return len(s.controllers()) == 0 })
	s.account.Wire.Recorder.Reset()
	s.curfew(3, "up", "unpriced", "--type", "t4g.unheard")
	s.curfew(0, "down", "unpriced")
	if n := s.account.Wire.Recorder.Count("ec2:RunInstances"); n != 0 {
		t.Errorf("%d launches without a price", n)
	}
	s.nothingLeft()
}
