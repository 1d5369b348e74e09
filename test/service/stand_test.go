// Package service_test runs services of several real processes under faults: kills, suspensions,
// database outages, full disks, provider failures and clock jumps.
package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/postgres"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// childVariable holds the order of a process of a service.
const childVariable = "CURFEW_SERVICE_FAULTS_CHILD"

// order is a command line with its environment.
type order struct {
	Args []string
	Dir  string
	// Clock is a file with the offset of the process's clock, as a duration.
	Clock string
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		var o order
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := o.run(ctx)
		stop()
		os.Exit(code)
	}
	os.Exit(postgres.Run(m))
}

func (o order) run(ctx context.Context) int {
	p := cli.System("test")
	p.Args, p.Dir, p.Stdin = o.Args, o.Dir, strings.NewReader("")
	p.Now = func() time.Time {
		text, err := os.ReadFile(o.Clock)
		if err != nil {
			return time.Now()
		}
		off, err := time.ParseDuration(string(text))
		if err != nil {
			return time.Now()
		}
		return time.Now().Add(off)
	}
	return cli.Run(ctx, p)
}

const (
	region      = "us-east-1"
	machineType = "g5g.xlarge"
	hourly      = 0.42 // price in dollars
	// workers is the number of working machines in an account: with them, idle ones never blow the
	// fuse.
	workers = 8
)

const policies = `apiVersion: curfew.policy/v1
policies:
  - name: idle
    select: {kind: instance}
    where: resource.gpus > 0
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")
    then:
      - warn: {notify: [owner], grace: %s}
      - do: stop
    limits: {per_hour: 1000, share: "100%%", dollars_per_hour: 5000}
    mode: enforce
`

const configuration = `aws:
  requests_per_second: 1000
  regions: [us-east-1]
  accounts:
%s
notify:
  slack: {token_env: SLACK_TOKEN, base_url: "%s/api/", users: {ana: U0ANA}}
metrics: {cloudwatch: {max_usd_per_month: 100000000}}
serve: {interval: 2s, deadline: 1m}
enforce: {window: 2h}
`

// machine is a machine of an account with its actual state.
type machine struct {
	id, account string
	launched    time.Time
	// does is "idle", "work" or "nothing measured".
	does string
}

// ended is a call that stopped a machine, as received by the provider.
type ended struct {
	id      string
	process int
	at      time.Time
	running bool // it was running when the call arrived
	code    int  // status of the response; 0 is none
}

// cloud is accounts at a provider, and the people's channel.
type cloud struct {
	t      *testing.T
	moto   string
	wire   *wire.Server
	slack  *httptest.Server
	roles  []string
	api    map[string]*ec2.Client // moto itself, by account
	making sync.Mutex             // machines are created one at a time
	mu     sync.Mutex
	now    time.Time // end of the measurements
	all    []*machine
	ends   []*ended
	warned map[string]time.Time // time of the first accepted warning
	told   []letter             // accepted messages
	deaf   bool                 // the channel refuses messages
	// deafAfter is a machine after whose warning the channel refuses messages.
	deafAfter string
	listed    map[string][]time.Time
	hook      func(process int, operation string, before bool)
	cut       bool // responses are truncated
}

// newCloud starts moto with accounts of machines.
func newCloud(t *testing.T, accounts int) *cloud {
	t.Helper()
	account, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := account.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &cloud{
		t: t, moto: account.MotoURL(), wire: account.Wire, api: map[string]*ec2.Client{},
		warned: map[string]time.Time{},
		listed: map[string][]time.Time{},
	}
	c.slack = httptest.NewServer(http.HandlerFunc(c.channel))
	t.Cleanup(c.slack.Close)
	c.now = time.Now().UTC().Truncate(time.Minute).Add(-2 * time.Hour)
	for i := range accounts {
		number := fmt.Sprintf("%012d", 111_111_111_111*(i+1))
		role := "arn:aws:iam::" + number + ":role/curfew"
		c.roles = append(c.roles, role)
		cfg := account.Config(region)
		out, err := sts.NewFromConfig(cfg).AssumeRole(t.Context(), &sts.AssumeRoleInput{
			RoleArn: &role, RoleSessionName: aws.String("test"),
		})
		if err != nil {
			t.Fatal(err)
		}
		cfg.BaseEndpoint = aws.String(c.moto)
		cfg.Credentials = credentials.NewStaticCredentialsProvider(*out.Credentials.AccessKeyId,
			*out.Credentials.SecretAccessKey, *out.Credentials.SessionToken)
		c.api[number] = ec2.NewFromConfig(cfg)
		for range workers {
			c.launch(number, "work")
		}
		c.launch(number, "nothing measured")
	}
	c.measure()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
				c.measure()
			}
		}
	})
	t.Cleanup(func() { stop(); wg.Wait() })
	return c
}

// accounts returns the account numbers, sorted.
func (c *cloud) accounts() []string { return slices.Sorted(maps.Keys(c.api)) }

// launch creates a machine with two hours of measurements.
func (c *cloud) launch(account, does string) *machine {
	c.t.Helper()
	tags := map[string]string{
		"Name": does, "team": "vision", "project": "detector", "owner": "ana", "environment": "research",
		inventory.TagManaged: "true", inventory.TagLifetime: string(inventory.Ephemeral),
		inventory.TagPurpose: string(inventory.Experimentation)}
	var list []types.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	c.making.Lock()
	defer c.making.Unlock()
	out, err := c.api[account].RunInstances(c.t.Context(), &ec2.RunInstancesInput{
		ImageId: aws.String("ami-0000000000000base"), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		InstanceType: machineType,
		BlockDeviceMappings: []types.BlockDeviceMapping{
			{
				DeviceName: aws.String("/dev/sda1"),
				Ebs: &types.EbsBlockDevice{
					VolumeSize: aws.Int32(100), VolumeType: types.VolumeTypeGp3, DeleteOnTermination: aws.Bool(false),
				},
			},
		},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: list}}})
	if err != nil {
		c.t.Fatal(err)
	}
	m := &machine{id: *out.Instances[0].InstanceId, account: account, launched: time.Now(), does: does}
	c.wire.Patch(wire.Patch{
		Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: m.id,
		Set: map[string]any{"launchTime": time.Now().UTC().Truncate(time.Second).Add(-8 * time.Hour)},
		Add: map[string]any{"platformDetails": "Linux/UNIX", "usageOperation": "RunInstances"}})
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := time.Now().UTC().Truncate(time.Minute).Add(-2 * time.Hour); at.Before(c.now); at = at.Add(time.Minute) {
		c.report(m, at)
	}
	c.all = append(c.all, m)
	return m
}

// report publishes the measurements of a machine for a minute.
func (c *cloud) report(m *machine, at time.Time) {
	cpu, gpu, memory, network := 0.8, 0.0, 3.0, 720.0
	if m.does == "work" {
		cpu, gpu, memory, network = 30, 92, 12_000, 1e8
	}
	put := func(namespace, name string, value float64, dims ...wire.Dimension) {
		c.wire.Metrics.Put(m.account, region, namespace, name, dims, wire.Datum{
			Time: at, Sum: value, Min: value, Max: value, Count: 1,
		})
	}
	host := wire.Dimension{Name: "InstanceId", Value: m.id}
	if at.Minute()%5 == 0 {
		put("AWS/EC2", "CPUUtilization", cpu, host)
		put("AWS/EC2", "NetworkIn", network*2.5, host)
		put("AWS/EC2", "NetworkOut", network*2.5, host)
	}
	if m.does == "nothing measured" {
		return
	}
	card := []wire.Dimension{host, {Name: "index", Value: "0"}, {Name: "name", Value: "NVIDIA T4G"}}
	put("CWAgent", "nvidia_smi_utilization_gpu", gpu, card...)
	put("CWAgent", "nvidia_smi_memory_used", memory, card...)
	put("CWAgent", "nvidia_smi_memory_total", 15360, card...)
	put("CWAgent", "nvidia_smi_power_draw", 10+0.6*gpu, card...)
}

// measure publishes the measurements of all machines up to now.
func (c *cloud) measure() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for until := time.Now().UTC().Truncate(time.Minute); c.now.Before(until); c.now = c.now.Add(time.Minute) {
		for _, m := range c.all {
			c.report(m, c.now)
		}
	}
}

// channel serves the people's channel: it accepts every warning, unless it is deaf.
func (c *cloud) channel(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	if c.deaf {
		fmt.Fprint(rw, `{"ok":false,"error":"token_revoked"}`)
		return
	}
	c.told = append(c.told, newLetter(body))
	for _, m := range c.all {
		if _, told := c.warned[m.id]; !told && bytes.Contains(body, []byte(m.id)) {
			c.warned[m.id] = time.Now()
			c.deaf = c.deaf || m.id == c.deafAfter
		}
	}
	fmt.Fprint(rw, `{"ok":true,"channel":"U0ANA","ts":"1.1"}`)
}

// endpoint serves the provider to one process.
func (c *cloud) endpoint(process int) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		form, _ := url.ParseQuery(string(body)) // other bodies have no values
		operation := form.Get("Action")
		c.mu.Lock()
		hook, cut := c.hook, c.cut
		c.mu.Unlock()
		if hook != nil {
			hook(process, operation, true)
		}
		got := httptest.NewRecorder()
		if operation == "StopInstances" || operation == "TerminateInstances" {
			c.stop(process, form, got, r)
		} else {
			c.wire.ServeHTTP(got, r)
		}
		// of all machines
		if operation == "DescribeInstances" && got.Code == http.StatusOK && !cut &&
			!bytes.Contains(body, []byte("i-")) {
			c.mu.Lock()
			for _, account := range c.accounts() {
				if bytes.Contains(got.Body.Bytes(), []byte("<ownerId>"+account+"<")) {
					c.listed[account] = append(c.listed[account], time.Now())
				}
			}
			c.mu.Unlock()
		}
		if hook != nil {
			hook(process, operation, false)
		}
		maps.Copy(rw.Header(), got.Header())
		if cut && got.Body.Len() > 1 {
			rw.Header().Set("Content-Length", fmt.Sprint(got.Body.Len()))
			rw.WriteHeader(got.Code)
			_, _ = rw.Write(got.Body.Bytes()[:got.Body.Len()/2])
			return
		}
		rw.WriteHeader(got.Code)
		_, _ = rw.Write(got.Body.Bytes())
	})
}

// stop carries out a call that ends machines, and records their state when it arrived.
func (c *cloud) stop(process int, form url.Values, got *httptest.ResponseRecorder, r *http.Request) {
	if form.Get("DryRun") == "true" {
		c.wire.ServeHTTP(got, r)
		return
	}
	var came []*ended
	for k, v := range form {
		for _, id := range v {
			if strings.HasPrefix(k, "InstanceId") {
				came = append(came, &ended{
					id: id, process: process, at: time.Now(), running: c.state(id) == "running",
				})
			}
		}
	}
	c.mu.Lock()
	c.ends = append(c.ends, came...)
	c.mu.Unlock()
	// A call that has arrived is carried out, even if the process dies.
	ctx, stop := context.WithTimeout(context.WithoutCancel(r.Context()), 30*time.Second)
	defer stop()
	served := false
	func() {
		defer func() { _ = recover() }() // a fault that closes the connection
		c.wire.ServeHTTP(got, r.WithContext(ctx))
		served = ctx.Err() == nil
	}()
	for _, e := range came {
		if !served {
			continue
		}
		c.mu.Lock()
		e.code = got.Code
		c.mu.Unlock()
		if got.Code == http.StatusOK { // moto has another clock
			c.wire.Patch(wire.Patch{
				Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: e.id,
				Set: map[string]any{
					"reason": "User initiated (" + e.at.UTC().Format("2006-01-02 15:04:05") + " GMT)",
				}})
		}
	}
	if !served {
		panic(http.ErrAbortHandler)
	}
}

// state returns the provider's state of a machine.
func (c *cloud) state(id string) string {
	for _, m := range c.machines() {
		if m.id == id {
			out, err := c.api[m.account].DescribeInstances(context.Background(),
				&ec2.DescribeInstancesInput{InstanceIds: []string{id}})
			if err != nil || len(out.Reservations) == 0 {
				return ""
			}
			return string(out.Reservations[0].Instances[0].State.Name)
		}
	}
	return ""
}

func (c *cloud) machines() []*machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

func (c *cloud) calls() []ended {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []ended
	for _, e := range c.ends {
		out = append(out, *e)
	}
	return out
}

// set sets a hook for calls, or removes it if it is nil.
func (c *cloud) set(hook func(process int, operation string, before bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

func (c *cloud) truncate(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = yes
}

// read returns the time at which each account was last listed.
func (c *cloud) read() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]time.Time{}
	for account, times := range c.listed {
		out[account] = times[len(times)-1]
	}
	return out
}

// process is one replica of a service.
type process struct {
	*exec.Cmd
	number int
	clock  string
	log    *buffer
	waited chan struct{}
}

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// service is several processes with a shared state.
type service struct {
	t     *testing.T
	cloud *cloud
	dir   string
	state []string // flags that select the state
	grace time.Duration
	lease time.Duration
	began time.Time // when everything was calm and each machine charged
	// settled is true if calls that failed at the provider may be repeated.
	settled bool

	mu     sync.Mutex
	number int
	all    []*process
	ever   []*process // including ended processes
}

// older writes the configuration for a curfew that supports neither serve nor aws.accounts, and
// returns its folder.
func (s *service) older() string {
	s.t.Helper()
	dir := s.t.TempDir()
	text := fmt.Sprintf(
		"aws: {requests_per_second: 1000, regions: [us-east-1], assume_roles: [%q]}\nnotify:\n  slack: "+
			"{token_env: SLACK_TOKEN, base_url: \"%s/api/\", users: {ana: U0ANA}}\nenforce: {window: 2h}\n",
		strings.Join(s.cloud.roles, `", "`), s.cloud.slack.URL)
	text = strings.ReplaceAll(text, `\"`, `"`)
	for name, text := range map[string]string{"curfew.yaml": text, "policies.yaml": fmt.Sprintf(policies, s.grace)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	return dir
}

// newService writes the configuration of a service.
func newService(t *testing.T, c *cloud, grace, lease time.Duration, state ...string) *service {
	t.Helper()
	s := &service{t: t, cloud: c, dir: t.TempDir(), state: state, grace: grace, lease: lease}
	if err := os.Chmod(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var accounts strings.Builder
	for _, role := range c.roles {
		fmt.Fprintf(&accounts, "    - {role: %q}\n", role)
	}
	for name, text := range map[string]string{
		"curfew.yaml":   fmt.Sprintf(configuration, accounts.String(), c.slack.URL),
		"policies.yaml": fmt.Sprintf(policies, grace),
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, p := range s.processes() {
			_ = p.Process.Signal(syscall.SIGCONT)
			_ = p.Process.Kill()
			<-p.waited
			if t.Failed() {
				t.Logf("process %d:\n%s", p.number, tail(p.log.String()))
			}
		}
	})
	return s
}

func tail(text string) string {
	const most = 4000
	if len(text) > most {
		return "…" + text[len(text)-most:]
	}
	return text
}

func (s *service) processes() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// start starts a replica; binary is another curfew, or "" for this one.
func (s *service) start(binary string) *process {
	s.t.Helper()
	s.mu.Lock()
	s.number++
	p := &process{number: s.number, log: &buffer{}, waited: make(chan struct{})}
	s.mu.Unlock()
	p.clock = filepath.Join(s.dir, fmt.Sprintf("clock-%d", p.number))
	endpoint := httptest.NewServer(s.cloud.endpoint(p.number))
	s.t.Cleanup(func() { endpoint.CloseClientConnections(); endpoint.Close() })
	args := append([]string{
		"serve", "--enforce", "--policy", "policies.yaml", "--listen", "127.0.0.1:0", "--lease", s.lease.String(),
	}, s.state...)
	text, err := json.Marshal(order{Args: args, Dir: s.dir, Clock: p.clock})
	if err != nil {
		s.t.Fatal(err)
	}
	p.Cmd = exec.Command(os.Args[0], "-test.run=^$")
	p.Env = append(os.Environ(), childVariable+"="+string(text))
	dir := s.dir
	if binary != "" {
		p.Cmd = exec.Command(binary, args...)
		if help, _ := exec.CommandContext(s.t.Context(), binary, "serve", "--help").Output(); !bytes.Contains(help,
			[]byte("--enforce")) {
			// It cannot serve, so it runs as from cron.
			once := append([]string{
				"-c", `while :; do "$0" "$@"; sleep 2; done`, binary, "enforce", "--once", "--enforce", "--policy",
				"policies.yaml",
			}, s.state...)
			p.Cmd, dir = exec.Command("sh", once...), s.older()
		}
		p.Env = os.Environ()
	}
	p.Env = append(p.Env, "AWS_ENDPOINT_URL="+endpoint.URL, "AWS_ACCESS_KEY_ID="+sandbox.AccessKey,
		"AWS_SECRET_ACCESS_KEY="+sandbox.SecretKey, "AWS_SESSION_TOKEN=",
		"AWS_REGION="+region, "AWS_DISABLE_REQUEST_COMPRESSION=true", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		"SLACK_TOKEN=xoxb-secret-token", "HOME="+s.dir, "XDG_DATA_HOME="+s.dir,
		"XDG_STATE_HOME="+filepath.Join(s.dir, "witness"), "GOMAXPROCS=2")
	p.Dir, p.Stdout, p.Stderr = dir, p.log, p.log
	if err := p.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.waited) }()
	s.mu.Lock()
	s.all, s.ever = append(s.all, p), append(s.ever, p)
	s.mu.Unlock()
	return p
}

// kill ends a replica at once.
func (s *service) kill(p *process) {
	_ = p.Process.Kill()
	<-p.waited
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(x *process) bool { return x == p })
}

// wait waits for a condition.
func wait(t *testing.T, what string, most time.Duration, is func() bool) {
	t.Helper()
	for until := time.Now().Add(most); ; time.Sleep(50 * time.Millisecond) {
		if is() {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("not within %s: %s", most, what)
		}
	}
}

// everywhere waits until each account was listed after a time, and returns when that was the case.
func (s *service) everywhere(since time.Time, most time.Duration) time.Duration {
	s.t.Helper()
	wait(s.t, "each account is read", most, func() bool {
		at := s.cloud.read()
		for _, account := range s.cloud.accounts() {
			if !at[account].After(since) {
				return false
			}
		}
		return true
	})
	return time.Since(since)
}

// calm waits until each account was read and charged, before the first fault.
func (s *service) calm(began time.Time) {
	s.t.Helper()
	s.everywhere(began, 3*time.Minute)
	for range 2 {
		s.everywhere(time.Now(), 2*time.Minute)
	}
	s.began = time.Now()
}

// stopped waits until all idle machines are stopped and their ends confirmed in the state.
func (s *service) stopped(most time.Duration) {
	s.t.Helper()
	wait(s.t, "all idle machines are stopped", most, func() bool {
		for _, m := range s.cloud.machines() {
			if m.does == "idle" && s.cloud.state(m.id) == "running" {
				return false
			}
		}
		return true
	})
	wait(s.t, "all stops are confirmed", most, func() bool {
		confirmed := s.audit()
		for _, m := range s.cloud.machines() {
			if m.does == "idle" && confirmed[m.id]["confirmed"] == 0 {
				return false
			}
		}
		return true
	})
}
