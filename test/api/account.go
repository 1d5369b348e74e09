package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// account is an AWS account in the sandbox for fixes and undos, with a channel that accepts every
// warning. The test sets its time, up to the present.
type account struct {
	box    *sandbox.Sandbox
	ladder *sandbox.Ladder
	people *http.Server
	// url is where the people's channel is, with a metrics server at /metrics.
	url string

	mu  sync.Mutex
	now time.Time // zero uses the clock
	// began is when the account's machine was started.
	began time.Time
}

const (
	region = "us-east-1"
	// spares is the number of idle machines that no policy selects.
	spares = 4
	// stopping is a policy that stops two machines of the account.
	stopping = `
apiVersion: curfew.policy/v1
policies:
  - name: idle
    select: {kind: instance}
    where: resource.name in ["idle", "turning"]
    when: duty.state == "idle" && duty.lasting >= duration("30m")
    then:
      - warn: {notify: [owner], grace: 15m}
      - do: stop
    limits: {per_hour: 10, share: "100%", dollars_per_hour: 500}
    mode: enforce
`
)

func (a *account) clock() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now.IsZero() {
		return time.Now()
	}
	return a.now
}

// pass advances the time while the machines report.
func (a *account) pass(ctx context.Context, d time.Duration) error {
	a.mu.Lock()
	a.now = a.now.Add(d)
	a.mu.Unlock()
	return a.ladder.Advance(ctx, a.clock())
}

// newAccount starts an account and points the SDK of this process to it.
func newAccount(ctx context.Context) (*account, error) {
	a := &account{now: time.Now().Add(-time.Hour), began: time.Now().Add(-50 * time.Hour)}
	var err error
	if a.box, err = sandbox.Start(ctx, sandbox.Options{Now: a.clock}); err != nil {
		return nil, err
	}
	for _, e := range append(a.box.Env(), "SLACK_TOKEN=xoxb-secret-token") {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, a.box.Close())
	}
	a.url = "http://" + l.Addr().String()
	a.people = &http.Server{
		ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case !strings.HasPrefix(r.URL.Path, "/metrics/"):
				fmt.Fprint(w, `{"ok":true,"channel":"U0ANA","ts":"1.1"}`)
			case strings.HasSuffix(r.URL.Path, "/query"): // a metrics server without data about the machines
				fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
			case strings.HasSuffix(r.URL.Path, "/query_range"):
				fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[]}}`)
			default:
				fmt.Fprint(w, `{"status":"success","data":[]}`)
			}
		})}
	go func() { _ = a.people.Serve(l) }()
	if a.ladder, err = a.box.SeedLadder(ctx, region); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *account) close() error { return errors.Join(a.people.Close(), a.box.Close()) }

// spare launches an idle machine for a fix, with three days of measurements.
func (a *account) spare(ctx context.Context, n int) (id string, err error) {
	var tags []types.Tag
	for k, v := range map[string]string{
		"Name": fmt.Sprint("spare-", n), "team": "vision", "project": "detector", "owner": "ana",
		"environment":         "research",
		"cost-center":         "1",
		inventory.TagLifetime: string(inventory.Ephemeral), inventory.TagPurpose: string(inventory.Experimentation)} {
		tags = append(tags, types.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	out, err := ec2.NewFromConfig(a.box.Config(region)).RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: aws.String("ami-0000000000000base"), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		InstanceType: types.InstanceTypeM5Xlarge,
		BlockDeviceMappings: []types.BlockDeviceMapping{
			{
				DeviceName: aws.String("/dev/sda1"),
				Ebs: &types.EbsBlockDevice{
					VolumeSize: aws.Int32(50), VolumeType: types.VolumeTypeGp3, DeleteOnTermination: aws.Bool(false),
				},
			},
		},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: tags}}})
	if err != nil {
		return "", fmt.Errorf("launch a machine: %w", err)
	}
	id = *out.Instances[0].InstanceId
	now := a.clock().UTC().Truncate(5 * time.Minute)
	a.box.Wire.Patch(wire.Patch{
		Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: id,
		Set: map[string]any{
			"launchTime": now.Add(-72 * time.Hour),
		}, Add: map[string]any{"platformDetails": "Linux/UNIX", "usageOperation": "RunInstances"}})
	host := []wire.Dimension{{Name: "InstanceId", Value: id}}
	for at := now.Add(-72 * time.Hour); at.Before(now.Add(4 * time.Hour)); at = at.Add(5 * time.Minute) {
		for name, v := range map[string]float64{"CPUUtilization": 0.6, "NetworkIn": 1500, "NetworkOut": 1500} {
			a.box.Wire.Metrics.Put(wire.DefaultAccount, region, "AWS/EC2", name, host,
				wire.Datum{Time: at, Sum: v, Min: v, Max: v, Count: 1})
		}
	}
	return id, nil
}

// curfew runs a command at the time of the account and ignores its exit code.
func (a *account) curfew(ctx context.Context, dir string, args ...string) error {
	var out, failed bytes.Buffer
	exit := cli.Run(ctx, cli.Process{
		Args:  append(args, "--config", filepath.Join(dir, "curfew.yaml"), "--data-dir", filepath.Join(dir, "state")),
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &failed,
		Now: a.clock, Uptime: func() (string, time.Duration) {
			return "boot", a.clock().Sub(a.began)
		}, Dir: dir, WitnessDir: filepath.Join(dir, "witness"), Lookup: os.LookupEnv})
	if exit != cli.ExitDone && exit != cli.ExitPartial {
		return fmt.Errorf("curfew %s: exit %d: %s%s", strings.Join(args, " "), exit, out.String(), failed.String())
	}
	return nil
}

// acted lets the policies stop two machines within an hour, and audits the account. It returns the
// ids of the spare machines.
func (a *account) acted(ctx context.Context, dir string) (idle []string, err error) {
	if err := os.WriteFile(filepath.Join(dir, "stopping.yaml"), []byte(stopping), 0o600); err != nil {
		return nil, err
	}
	for _, d := range []time.Duration{40 * time.Minute, 16 * time.Minute, 2 * time.Minute} {
		if err := a.pass(ctx, d); err != nil {
			return nil, err
		}
		if err := a.curfew(ctx, dir, "enforce", "--once", "--enforce", "--policy", "stopping.yaml",
			"--quiet"); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	a.now = time.Time{} // from here on the clock's time
	a.mu.Unlock()
	for n := range spares {
		id, err := a.spare(ctx, n)
		if err != nil {
			return nil, err
		}
		idle = append(idle, id)
	}
	return idle, a.curfew(ctx, dir, "scan", "--regions", region, "--quiet")
}
