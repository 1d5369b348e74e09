package storm

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/faultproxy"
	"github.com/curfew-dev/curfew/test/wire"
)

const (
	region      = "us-east-1"
	machineType = "g5g.xlarge"
	// idleFor and grace are those of the policy.
	idleFor = 30 * time.Minute
	grace   = 15 * time.Minute
	// past is how long machines were measured before a schedule begins.
	past = 2 * time.Hour
	age  = 8 * time.Hour
)

// thing is a resource of the account that may be kept.
type thing struct {
	name, id, ref string
	// kept is the number of the command after which a keep was in force, or 0.
	kept int64
	// keptBy is "tag" or "command".
	keptBy string
}

// waste is a resource that a scan finds and people fix with the approval of another person.
type waste struct {
	thing
	// rule finds it; verb is the action of a fix, and fixing its call. Neither can be undone, so a
	// keep must prevent it.
	rule, verb, fixing string
}

// machine is a machine of the account with its actual state.
type machine struct {
	thing
	// busy holds the minutes since the beginning of the world in which it works.
	busy map[int]bool
	// never is true if nothing may ever end it.
	never bool
}

// host is a computer on which people and cron run curfew.
type host struct {
	name  string
	proxy *faultproxy.HTTP
	boot  string
	skew  time.Duration
	dir   string
	data  string
	run   sync.Mutex
	// command is the number of the running command.
	command atomic.Int64
	// found holds the findings of the last scan by rule.
	found map[string]string
}

// call is a call that reached the provider and changes a machine.
type call struct {
	at      time.Time
	host    *host
	command int64
	action  string
	ids     []string
	status  int
	// staled is the number of stale responses that the host had received within the command.
	staled int64
	again  bool // repeated by the network
	// running marks the ids of machines that ran when the command arrived.
	running map[string]bool
}

// event is a condition from the end of one command to the beginning of another.
type event struct{ from, to int64 }

// world is an account with its people and hosts, at a time that the test sets.
type world struct {
	seed  uint64
	rng   *rand.Rand
	dir   string
	base  *stand
	began time.Time

	mu  sync.Mutex
	now time.Time

	account  string
	keys     aws.Credentials
	wire     *wire.Server
	direct   *ec2.Client // moto without proxies
	logs     *cloudwatchlogs.Client
	memory   memory // responses of moto since its last change
	machines []*machine
	wastes   []*waste
	hosts    []*host
	verb     string
	perHour  int
	measured int // minutes

	database *database // nil with SQLite
	tcp      *faultproxy.TCP

	commands atomic.Int64
	calls    []call
	scans    []int64                // commands that change nothing
	approved map[string]int64       // first command that approved a request
	waits    func()                 // repeats the last command that needed an approval
	warned   map[string][]time.Time // accepted warnings by the id of their subject
	freezes  []event
	olds     []event // periods in which an older state is in place without acceptance
	backup   string  // a copy of the state, named by its generation
	restored int     // number of restores
	allowed  int     // gates that admitted work
	log      []string
	firstOK  time.Time // first and last complete pass
	lastOK   time.Time
	refusing bool
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) note(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, w.now.Format("15:04:05 ")+fmt.Sprintf(format, a...))
}

const policies = `apiVersion: curfew.policy/v1
policies:
  - name: idle
    select: {kind: instance}
    where: resource.gpus > 0
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")
    then:
      - warn: {notify: [owner], grace: 15m}
      - do: %s
        disks: {root: snapshot}
    limits: {per_hour: %d, share: "100%%", dollars_per_hour: 500}
    mode: enforce
`

const configuration = `aws: {requests_per_second: 10000, profile: %q, regions: [us-east-1]}
notify:
  slack: {token_env: SLACK_TOKEN, base_url: "%s/api/", users: {ana: U0ANA}}
enforce: {window: 2h}
scan: {window: 2h}
gate: {ask_over: %d}
approvers: {bo: [approver], ana: [approver]}
approvals: {accept: [self-declared]}
budgets:
  - {id: vision, team: vision, purpose: training, amount: %d, period: {from: 2026-01-01, until: 2046-01-01}}
`

const job = `apiVersion: curfew.job/v1
name: job-%d
purpose: training
owner: {team: vision, project: ranking, user: ana}
resources: {instance_type: g5.xlarge}
regions: [us-east-1]
run: python train.py
max_runtime: %dh
`

// budgetUSD is the budget of a world, askOver the amount that needs an approval, and jobs the
// number of job files.
const (
	budgetUSD = 25
	askOver   = 12
	jobs      = 4
)

// newWorld creates an account and its hosts.
func newWorld(ctx context.Context, base *stand, seed uint64) (*world, error) {
	w := &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), base: base, warned: map[string][]time.Time{},
		approved: map[string]int64{},
	}
	w.began = base.began
	w.now = w.began
	w.account = fmt.Sprintf("%012d", 100_000_000_000+base.worlds.Add(1))
	var err error
	if w.dir, err = os.MkdirTemp(base.dir, "w"); err != nil {
		return nil, err
	}
	w.memory.everywhere = &base.everywhere
	w.wire = wire.New(wire.Options{Upstream: base.motoURL, Now: w.clock})
	slack := httptest.NewServer(http.HandlerFunc(w.slack))
	base.onClose(w, slack.Close)
	for i := range 3 {
		h := &host{
			name: fmt.Sprintf("h%d", i), boot: fmt.Sprintf("b%d", i), dir: filepath.Join(w.dir, fmt.Sprintf("h%d", i)),
			data: filepath.Join(w.dir, "data"),
		}
		h.proxy = faultproxy.NewHTTP(w.provider(h))
		base.onClose(w, h.proxy.Close)
		w.hosts = append(w.hosts, h)
	}
	if err := w.signIn(ctx); err != nil {
		return nil, err
	}
	w.verb = []string{"terminate", "terminate", "stop"}[w.rng.IntN(3)]
	w.perHour = []int{1, 10, 10}[w.rng.IntN(3)]
	for _, h := range w.hosts {
		if err := os.MkdirAll(h.dir, 0o700); err != nil {
			return nil, err
		}
		files := map[string]string{
			"curfew.yaml":   fmt.Sprintf(configuration, w.profile(h), slack.URL, askOver, budgetUSD),
			"policies.yaml": fmt.Sprintf(policies, w.verb, w.perHour),
		}
		for i := range jobs {
			files[fmt.Sprintf("job-%d.yaml", i)] = fmt.Sprintf(job, i, 6+3*i)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
	}
	for i, name := range []string{"idle", "turning", "unsaved", "persistent"} {
		if err := w.launch(ctx, name, i); err != nil {
			return nil, fmt.Errorf("launch %s: %w", name, err)
		}
	}
	if err := w.leave(ctx); err != nil {
		return nil, fmt.Errorf("leave things behind: %w", err)
	}
	w.measured = -int(past / time.Minute)
	w.measure()
	return w, nil
}

// leave creates an unused address, and logs without a retention.
func (w *world) leave(ctx context.Context) error {
	address, err := w.direct.AllocateAddress(ctx, &ec2.AllocateAddressInput{
		TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeElasticIp, Tags: []types.Tag{
				{Key: aws.String("owner"), Value: aws.String("ana")},
			}}}})
	if err != nil {
		return err
	}
	name := "train-" + w.account
	if _, err := w.logs.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{
		LogGroupName: &name, Tags: map[string]string{"owner": "ana"},
	}); err != nil {
		return err
	}
	w.wire.Patch(wire.Patch{Service: "logs", IDField: "logGroupName", ID: name,
		Set: map[string]any{"creationTime": w.began.AddDate(-1, 0, 0).UnixMilli(), "storedBytes": int64(200 << 30)}})
	w.wastes = []*waste{
		{
			thing: w.thing("address", inventory.KindAddress, *address.AllocationId), rule: "address-unused",
			fixing: "ReleaseAddress", verb: "release",
		},
		{
			thing: w.thing("logs", inventory.KindLogGroup, name), rule: "log-group-no-retention",
			fixing: "PutRetentionPolicy", verb: "put-retention",
		},
	}
	return nil
}

func (w *world) thing(name string, kind inventory.Kind, id string) thing {
	return thing{
		name: name, id: id,
		ref: inventory.Ref{Cloud: "aws", Account: w.account, Region: region, Kind: kind, ID: id}.String(),
	}
}

// things returns all resources that can be exempted.
func (w *world) things() (all []*thing) {
	for _, m := range w.machines {
		all = append(all, &m.thing)
	}
	for _, x := range w.wastes {
		all = append(all, &x.thing)
	}
	return all
}

func (w *world) profile(h *host) string { return "w" + w.account + h.name }

// signIn obtains keys of a new account, with a profile for each host.
func (w *world) signIn(ctx context.Context) error {
	cfg := aws.Config{
		Region: region, BaseEndpoint: aws.String(w.hosts[0].proxy.URL()), DisableRequestCompression: true,
		HTTPClient:  wire.Client{},
		Credentials: credentials.NewStaticCredentialsProvider("testing", "testing", "")}
	out, err := sts.NewFromConfig(cfg).AssumeRole(ctx, &sts.AssumeRoleInput{
		RoleArn: aws.String("arn:aws:iam::" + w.account + ":role/storm"), RoleSessionName: aws.String("storm"),
	})
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	w.keys = aws.Credentials{
		AccessKeyID: *out.Credentials.AccessKeyId, SecretAccessKey: *out.Credentials.SecretAccessKey,
		SessionToken: *out.Credentials.SessionToken,
	}
	cfg.BaseEndpoint = aws.String(w.base.motoURL)
	cfg.Credentials = credentials.StaticCredentialsProvider{Value: w.keys}
	w.direct, w.logs = ec2.NewFromConfig(cfg), cloudwatchlogs.NewFromConfig(cfg)
	for _, h := range w.hosts {
		w.base.profile(w.profile(h), fmt.Sprintf("region = us-east-1\noutput = json\naws_access_key_id = "+
			"%s\naws_secret_access_key = %s\naws_session_token = %s\nendpoint_url = %s\n",
			w.keys.AccessKeyID, w.keys.SecretAccessKey, w.keys.SessionToken, h.proxy.URL()))
	}
	return nil
}

// provider serves the provider to a host behind its proxy, and records changes.
func (w *world) provider(h *host) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if service, operation := called(r, body); asks(operation) || service == "sts" {
			give(rw, w.memory.ask(r, body, w.wire))
			return
		}
		got := httptest.NewRecorder()
		w.memory.change(func() { w.carryOut(h, got, r, body) })
		give(rw, got)
	})
}

// carryOut forwards a call to the provider, and records what was true when it arrived.
func (w *world) carryOut(h *host, rw *httptest.ResponseRecorder, r *http.Request, body []byte) {
	_, operation := called(r, body)
	form, _ := url.ParseQuery(string(body)) // other bodies have no values
	c := call{
		host: h, command: h.command.Load(), action: operation, at: w.clock(), staled: h.proxy.Staled(),
		again: r.Header.Get(faultproxy.Header) != "", running: map[string]bool{},
	}
	for k, v := range form {
		if strings.HasPrefix(k, "InstanceId") || strings.HasPrefix(k, "VolumeId") ||
			k == "InstanceSpecification.InstanceId" || k == "AllocationId" {
			c.ids = append(c.ids, v...)
		}
	}
	for _, x := range w.wastes {
		if operation == "PutRetentionPolicy" && bytes.Contains(body, []byte(strconv.Quote(x.id))) {
			c.ids = append(c.ids, x.id)
		}
	}
	for _, id := range c.ids {
		if strings.HasPrefix(id, "i-") {
			c.running[id] = w.state(id) == "running"
		}
	}
	w.wire.ServeHTTP(rw, r.WithContext(context.WithoutCancel(r.Context()))) // a call that has arrived is carried out
	c.status = rw.Code
	for id, ran := range c.running {
		if ran && rw.Code == http.StatusOK && ends(c.action) { // moto has another clock
			w.wire.Patch(wire.Patch{
				Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: id,
				Set: map[string]any{
					"reason": "User initiated (" + c.at.UTC().Format("2006-01-02 15:04:05") + " GMT)",
				}})
		}
	}
	w.mu.Lock()
	w.calls = append(w.calls, c)
	w.mu.Unlock()
	w.note("  %s: %s %v answered %d", h.name, operation, c.ids, c.status)
}

// ends reports whether an operation ends machines.
func ends(operation string) bool {
	return operation == "TerminateInstances" || operation == "StopInstances"
}

// give sends a response of which copies are sent to others.
func give(rw http.ResponseWriter, got *httptest.ResponseRecorder) {
	maps.Copy(rw.Header(), got.Header())
	rw.WriteHeader(got.Code)
	_, _ = rw.Write(got.Body.Bytes())
}

// slack is the people's channel.
func (w *world) slack(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	if w.refusing {
		fmt.Fprint(rw, `{"ok":false,"error":"is_archived"}`)
		return
	}
	for _, x := range w.things() {
		if bytes.Contains(body, []byte(x.id)) {
			w.warned[x.id] = append(w.warned[x.id], w.now)
		}
	}
	fmt.Fprint(rw, `{"ok":true,"channel":"U0ANA","ts":"1.1"}`)
}

// launch creates a machine and plans its activity.
func (w *world) launch(ctx context.Context, name string, i int) error {
	m := &machine{busy: map[int]bool{}, never: name == "persistent"}
	tags := map[string]string{
		"Name": name, "team": "vision", "project": "detector", "owner": "ana", "environment": "research",
		inventory.TagManaged: "true", inventory.TagLifetime: string(inventory.Ephemeral),
		inventory.TagPurpose: string(inventory.Experimentation)}
	if m.never {
		tags[inventory.TagLifetime] = string(inventory.Persistent)
	}
	var list []types.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	out, err := w.direct.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: aws.String("ami-0000000000000base"), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		InstanceType: machineType,
		BlockDeviceMappings: []types.BlockDeviceMapping{
			{
				DeviceName: aws.String("/dev/sda1"),
				Ebs: &types.EbsBlockDevice{
					VolumeSize: aws.Int32(100), VolumeType: types.VolumeTypeGp3,
					DeleteOnTermination: aws.Bool(name == "unsaved"),
				},
			},
		},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: list}}})
	if err != nil {
		return err
	}
	m.thing = w.thing(name, inventory.KindInstance, *out.Instances[0].InstanceId)
	w.wire.Patch(wire.Patch{
		Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: m.id,
		Set: map[string]any{
			"launchTime": w.began.Add(-age),
		}, Add: map[string]any{"platformDetails": "Linux/UNIX", "usageOperation": "RunInstances"}})
	if i == 1 || w.rng.IntN(3) == 0 { // it works now and then
		for at := w.rng.IntN(60) - 60; at < 300; at += 1 + w.rng.IntN(90) {
			for range 1 + w.rng.IntN(20) {
				m.busy[at] = true
				at++
			}
		}
	}
	w.machines = append(w.machines, m)
	return nil
}

// measure publishes the measurements of the machines up to now.
func (w *world) measure() {
	until := int(w.clock().Sub(w.began) / time.Minute)
	put := func(at time.Time, namespace, name string, value float64, dims ...wire.Dimension) {
		w.wire.Metrics.Put(w.account, region, namespace, name, dims, wire.Datum{
			Time: at, Sum: value, Min: value, Max: value, Count: 1,
		})
	}
	for ; w.measured < until; w.measured++ {
		at := w.began.Add(time.Duration(w.measured) * time.Minute)
		for _, m := range w.machines {
			cpu, gpu, memory, network := 0.8, 0.0, 3.0, 720.0
			if m.busy[w.measured] {
				cpu, gpu, memory, network = 30, 92, 12_000, 1e8
			}
			host := wire.Dimension{Name: "InstanceId", Value: m.id}
			if w.measured%5 == 0 {
				put(at, "AWS/EC2", "CPUUtilization", cpu, host)
				put(at, "AWS/EC2", "NetworkIn", network*2.5, host)
				put(at, "AWS/EC2", "NetworkOut", network*2.5, host)
			}
			card := []wire.Dimension{host, {Name: "index", Value: "0"}, {Name: "name", Value: "NVIDIA T4G"}}
			put(at, "CWAgent", "nvidia_smi_utilization_gpu", gpu, card...)
			put(at, "CWAgent", "nvidia_smi_memory_used", memory, card...)
			put(at, "CWAgent", "nvidia_smi_memory_total", 15360, card...)
			put(at, "CWAgent", "nvidia_smi_power_draw", 10+0.6*gpu, card...)
		}
	}
}

// pass advances the time.
func (w *world) pass(ctx context.Context, d time.Duration) error {
	w.mu.Lock()
	w.now = w.now.Add(d)
	now := w.now
	w.mu.Unlock()
	if d >= 2*time.Minute { // stale responses are never that old
		for _, h := range w.hosts {
			h.proxy.Forget()
		}
	}
	w.measure()
	if w.database != nil {
		return w.database.set(ctx, now)
	}
	return nil
}

// state returns the provider's state of a machine: "" if it is unknown.
func (w *world) state(id string) string {
	out, err := w.direct.DescribeInstances(context.Background(), &ec2.DescribeInstancesInput{
		InstanceIds: []string{id},
	})
	if err != nil || len(out.Reservations) == 0 {
		return ""
	}
	return string(out.Reservations[0].Instances[0].State.Name)
}

// order is a command line with its environment.
type order struct {
	Args            []string
	Now             time.Time
	Boot            string
	Up              time.Duration
	Dir, Data, User string
	// Witness is the location of the state's witness on the host.
	Witness string
	// Stall is a file with the duration for which the process was stopped; empty if it never is.
	Stall string
}

// run carries out a command line in this process.
func (o order) run(ctx context.Context, out, errs io.Writer) int {
	env := map[string]string{"CURFEW_IDENTITY": o.User, "SLACK_TOKEN": "xoxb-secret-token"}
	began := time.Now()
	// The state's clock stops during a command. On a busy machine a command can take longer than
	// two clocks may differ, so its own clock stops as well.
	since := func() time.Duration { return min(time.Since(began), 10*time.Second) + o.stalled() }
	return cli.Run(ctx, cli.Process{
		Args: o.Args, Stdin: strings.NewReader(""), Stdout: out, Stderr: errs, Dir: o.Dir, DataDir: o.Data,
		WitnessDir: o.Witness, Version: "test",
		Lookup: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Now:    func() time.Time { return o.Now.Add(since()) },
		Uptime: func() (string, time.Duration) { return o.Boot, o.Up + since() }})
}

// stalled returns how long the process was stopped.
func (o order) stalled() time.Duration {
	text, err := os.ReadFile(o.Stall)
	if err != nil {
		return 0
	}
	d, err := time.ParseDuration(string(text))
	if err != nil {
		panic(err)
	}
	return d
}

// result is the result of a command; exit is -1 if it was killed or cut off.
type result struct {
	number    int64
	exit      int
	out, errs string
	killed    bool
}

// ending is how a command is ended early: at its n-th call to the provider; 0 is never.
type ending struct {
	at   int64
	kill bool
	// stall runs while the process is stopped at that call instead of ended; it returns the
	// duration.
	stall func() time.Duration
	// stranger is true if another user of the machine runs the command.
	stranger bool
}

// curfew runs a command on a host.
func (w *world) curfew(ctx context.Context, h *host, end ending, args ...string) result {
	return w.as(ctx, "ana", h, end, args...)
}

// as runs a command on a host as a person.
func (w *world) as(ctx context.Context, who string, h *host, end ending, args ...string) result {
	h.run.Lock()
	defer h.run.Unlock()
	number := w.commands.Add(1)
	h.command.Store(number)
	now := w.clock()
	o := order{
		Args: args, Now: now.Add(h.skew), Boot: h.boot, Up: 50*time.Hour + now.Sub(w.began), Dir: h.dir, Data: h.data,
		User: who, Witness: h.dir + ".witness",
	}
	if w.database == nil {
		o.Witness = filepath.Join(w.dir, "witness") // of the one computer
	} else {
		o.Args = append(slices.Clone(args), "--database-url", w.databaseURL())
	}
	var out, errs bytes.Buffer
	r := result{number: number}
	if end.kill || end.stall != nil || end.stranger {
		r.exit, r.killed = w.mortal(ctx, h, end, o, &out, &errs)
	} else {
		bounded, stop := context.WithTimeout(ctx, 2*time.Minute)
		defer stop()
		if end.at > 0 {
			h.proxy.Watch(func(n int64) {
				if n == end.at {
					stop()
				}
			})
			defer h.proxy.Watch(nil)
		}
		r.exit = o.run(bounded, &out, &errs)
		r.killed = bounded.Err() != nil
	}
	r.out, r.errs = out.String(), errs.String()
	w.note("#%d %s on %s (%s) %s: exit %d %s", number, who, h.name, h.skew, strings.Join(args, " "), r.exit,
		strings.TrimSpace(r.errs))
	return r
}

// mortal runs a command line in a separate process, which is killed or stopped at a call, or
// belongs to another user.
func (w *world) mortal(ctx context.Context, h *host, end ending, o order, out, errs *bytes.Buffer) (exit int,
	killed bool) {
	if end.stall != nil {
		o.Stall = filepath.Join(h.dir, fmt.Sprintf("stall-%d", h.command.Load()))
	}
	text, err := json.Marshal(o)
	if err != nil {
		return -1, false
	}
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childVariable+"="+string(text))
	if end.stranger {
		child = w.base.user.Command(ctx, child.Env, w.base.program, "-test.run=^$")
	}
	child.Stdout, child.Stderr = out, errs
	if err := child.Start(); err != nil {
		fmt.Fprint(errs, err)
		return -1, false
	}
	stopped, gone := make(chan struct{}), make(chan error, 1)
	h.proxy.Watch(func(n int64) {
		switch { // it may have ended by itself
		case n != end.at:
		case end.stall == nil:
			_ = child.Process.Kill()
		case child.Process.Signal(syscall.SIGSTOP) == nil:
			close(stopped)
		}
	})
	defer h.proxy.Watch(nil)
	go func() { gone <- child.Wait() }()
	select {
	case err = <-gone:
	case <-stopped:
		d := end.stall()
		if err = os.WriteFile(o.Stall, []byte(d.String()), 0o600); err == nil {
			err = child.Process.Signal(syscall.SIGCONT)
		}
		if err != nil {
			_ = child.Process.Kill()
		}
		err = <-gone
	}
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode(), ended.ExitCode() < 0
	}
	return 0, false
}

// named returns a machine by its name.
func (w *world) named(name string) *machine {
	return w.machines[slices.IndexFunc(w.machines, func(m *machine) bool { return m.name == name })]
}

func (w *world) databaseURL() string {
	return fmt.Sprintf(
		"postgres://curfew@127.0.0.1:%d/%s?sslmode=disable&options=-c%%20search_path%%3Dpublic,pg_catalog",
		w.tcp.Port(), w.database.name)
}

// open opens the state for plain SQL.
func (w *world) open() (*sql.DB, error) {
	if w.database != nil {
		return w.database.open()
	}
	return sql.Open("sqlite", "file:"+filepath.Join(w.dir, "data", "curfew.db")+"?mode=ro&_pragma=busy_timeout(5000)")
}
