// Command servicebench measures a binary of curfew as a service over many machines: the CPU
// and memory that it needs, the time from a sample to the verdict that it changes, how the
// API answers meanwhile, how the database grows, and what AWS is asked.
//
// AWS is a stand-in on this machine; Prometheus is a real server that scrapes an exporter of
// all machines each minute. What the stand-in, Prometheus and the clients need is not
// counted, but they share the cores.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/test/postgres"
	"github.com/curfew-dev/curfew/test/wire"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "servicebench:", err)
		os.Exit(1)
	}
}

// bench is a running benchmark.
type bench struct {
	binary, dir, policy string
	accounts, machines  int
	replicas, clients   int
	rate                float64
	warm, length        time.Duration
	postgres            bool
	autovacuum, whole   bool
	lease               time.Duration
	limit               string
	audits              bool

	w      *world
	out    io.Writer
	urls   []string
	pids   []int
	server int // the process of Prometheus
	tokens []string
}

// promised is the documented latency limit for 99 % of API calls.
const promised = 100 * time.Millisecond

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	b := bench{out: out}
	f := flag.NewFlagSet("servicebench", flag.ContinueOnError)
	f.IntVar(&b.accounts, "accounts", 50, "accounts")
	all := f.Int("machines", 20_000, "machines in all accounts")
	f.IntVar(&b.replicas, "replicas", 1, "processes of the service")
	f.BoolVar(&b.postgres, "postgres", false, "keep the state in PostgreSQL and not in SQLite")
	f.BoolVar(&b.autovacuum, "autovacuum", true, "let PostgreSQL vacuum tables by itself, as it does by default")
	f.IntVar(&b.clients, "clients", 20, "clients of the API")
	f.Float64Var(&b.rate, "rate", 1, "calls a second of each client")
	f.DurationVar(&b.warm, "warm", 5*time.Minute, "for how long it runs before it is measured")
	f.DurationVar(&b.length, "for", 30*time.Minute, "for how long it is measured")
	f.DurationVar(&b.lease, "lease", 8*time.Second, "for how long a process takes an account")
	f.BoolVar(&b.audits, "audits", false, "let the service audit the accounts too, each once in six hours")
	f.StringVar(&b.limit, "limit", "1000000000", "metrics.cloudwatch.max_usd_per_month")
	f.BoolVar(&b.whole, "whole", false, "let a policy ask what was charged, so that every round is posted whole")
	f.StringVar(&b.policy, "policy", "", "a policy file that the service evaluates (default: one on idle machines)")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 || b.accounts < 1 || *all < b.accounts || b.replicas < 1 || b.replicas > 1 && !b.postgres ||
		b.clients < 1 || b.rate <= 0 || b.length < 3*time.Minute {
		return errors.New("name one binary; at least a machine an account, 3m, and for several replicas -postgres")
	}
	b.machines = *all / b.accounts
	if b.binary, err = filepath.Abs(f.Arg(0)); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "servicebench"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir) //nolint:errcheck // it is temporary
	b.w = newWorld(b.accounts, b.machines)
	defer b.w.close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return b.measure(ctx)
}

const policies = `apiVersion: curfew.policy/v1
policies:
  - name: idle-gpu-machines
    select: {kind: instance, lifetime: ephemeral}
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")%s
    then: [{warn: {notify: [owner], grace: 15m}}, {do: stop}]
`

// serve starts the replicas with a state and Prometheus, and returns a function that ends them.
func (b *bench) serve(ctx context.Context, database string) (end func(), err error) {
	prometheus := free()
	server, err := b.w.prometheus(ctx, b.dir, prometheus)
	if err != nil {
		return nil, err
	}
	var accounts strings.Builder
	for _, role := range b.w.roles {
		fmt.Fprintf(&accounts, "    - {role: %q}\n", role)
	}
	if b.policy == "" {
		b.policy = filepath.Join(b.dir, "policies.yaml")
		charged := ""
		if b.whole {
			charged = " && budget.used_share >= 0.0"
		}
		if err := os.WriteFile(b.policy, fmt.Appendf(nil, policies, charged), 0o600); err != nil {
			return nil, err
		}
	}
	config := fmt.Sprintf("identity: bench\nserve: {skip_audits: %t}\naws:\n  requests_per_second: 1000\n  regions: "+
		"[%s]\n  accounts:\n%smetrics:\n  cloudwatch: {max_usd_per_month: %s}\n  sources: [{url: "+
		"\"http://%s\"}]\nbudgets:\n", !b.audits, region, accounts.String(), b.limit, prometheus)
	for _, team := range []string{"vision", "language", "ranking"} {
		config += fmt.Sprintf("  - {id: %s, team: %s, purpose: any, amount: 1000000}\n", team, team)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "curfew.yaml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	var all []*exec.Cmd
	b.server = server.Process.Pid
	state := []string{"--data-dir", filepath.Join(b.dir, "state")}
	if database != "" {
		state = append(state, "--database-url", database)
	}
	for i := range b.clients {
		out, err := b.curfew(ctx,
			append([]string{"token", "create", fmt.Sprintf("client-%d", i), "--role", "viewer", "-o", "json"},
				state...)...).Output()
		var doc struct{ Secret string }
		if err == nil {
			err = json.Unmarshal(out, &doc)
		}
		if err != nil {
			return nil, fmt.Errorf("create a token: %w", err)
		}
		b.tokens = append(b.tokens, doc.Secret)
	}
	for i := range b.replicas {
		listen := free()
		args := append([]string{
			"serve", "--listen", listen, "--policy", b.policy, "--lease", b.lease.String(),
		}, state...)
		log, err := os.Create(filepath.Join(b.dir, fmt.Sprintf("log-%d", i)))
		if err != nil {
			return nil, err
		}
		cmd := b.curfew(ctx, args...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		all, b.urls, b.pids = append(all, cmd), append(b.urls, "http://"+listen), append(b.pids, cmd.Process.Pid)
	}
	return func() {
		for _, cmd := range append(all, server) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}, nil
}

// curfew returns a command of the binary.
func (b *bench) curfew(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.binary, args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "AWS_ENDPOINT_URL="+b.w.aws.URL, "AWS_ACCESS_KEY_ID=bench",
		"AWS_SECRET_ACCESS_KEY=bench", "AWS_SESSION_TOKEN=", "AWS_REGION="+region,
		"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		"HOME="+b.dir, "XDG_STATE_HOME="+filepath.Join(b.dir, "witness"), "GOMAXPROCS=2")
	return cmd
}

// free returns a currently unused address.
func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // there is no loopback interface
	}
	defer l.Close()
	return l.Addr().String()
}

func (b *bench) measure(ctx context.Context) error {
	database := ""
	size := func() (sizes, error) { return sizeOf(ctx, filepath.Join(b.dir, "state")) }
	if b.postgres {
		server, at, err := postgres.Launch(ctx, "full_page_writes=on", fmt.Sprintf("autovacuum=%t", b.autovacuum))
		if err != nil {
			return err
		}
		defer server.Remove() //nolint:errcheck // it ends with this process too
		database, size = at, func() (sizes, error) { return sizeOfDatabase(ctx, at) }
	}
	end, err := b.serve(ctx, database)
	if err != nil {
		return err
	}
	defer end()
	fmt.Fprintf(b.out, "%d machines in %d accounts, %d processes, state in %s\n", b.machines*b.accounts, b.accounts,
		b.replicas, map[bool]string{false: "SQLite", true: "PostgreSQL"}[b.postgres])
	if err := b.ready(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, b.log())
	}
	if !sleep(ctx, b.warm) {
		return ctx.Err()
	}
	_, audits := b.read(ctx)
	before, beside := b.usage(), b.beside()
	bytes, err := size()
	if err != nil {
		return err
	}
	calls, queries, began := b.w.calls(), b.w.queries.Load(), time.Now()
	measured, stop := context.WithTimeout(ctx, b.length)
	defer stop()
	var wg sync.WaitGroup
	verdicts, answers, memory := &times{}, map[string]*times{}, []string{}
	wg.Go(func() { b.verdicts(measured, verdicts) })
	for _, m := range mix {
		answers[m.name] = &times{}
	}
	for i := range b.clients {
		wg.Go(func() { b.client(measured, i, answers) })
	}
	wg.Go(func() {
		for sleep(measured, b.length/6) {
			memory = append(memory, mib(b.usage().memory))
		}
	})
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	took, after := time.Since(began), b.usage()
	_, audited := b.read(ctx)
	fmt.Fprintf(b.out, "measured for %s after %s, in which %d accounts were audited\n",
		took.Round(time.Second), b.warm,
		audited-audits)
	fmt.Fprintf(b.out, "CPU of curfew                %.2f cores\n", (after.cpu-before.cpu).Seconds()/took.Seconds())
	beside = b.beside().since(beside)
	fmt.Fprintf(b.out,
		"CPU of what it is tested by  %.2f cores Prometheus, %.2f cores AWS, exporter and clients; all "+
			"else on this machine %.2f cores of %d; load %s\n", beside.prometheus.Seconds()/took.Seconds(),
		beside.own.Seconds()/took.Seconds(),
		(beside.all-beside.prometheus-beside.own-(after.cpu-before.cpu)).Seconds()/
			took.Seconds(), runtime.NumCPU(), load())
	fmt.Fprintf(b.out, "memory of curfew             %s at the end, %s at most; over time %s\n", mib(after.memory),
		mib(after.most), strings.Join(memory, ", "))
	fmt.Fprintf(b.out, "sample to verdict            %s (samples come each minute; %d changes)\n", verdicts,
		len(verdicts.all))
	all := &times{}
	for _, m := range mix {
		fmt.Fprintf(b.out, "API %-24s %s\n", m.name, answers[m.name])
		all.all, all.failed = append(all.all, answers[m.name].all...), all.failed+answers[m.name].failed
	}
	fmt.Fprintf(b.out, "API, %d clients, %g calls/s each: %s\n", b.clients, b.rate, all)
	fmt.Fprintf(b.out, "API p99 under %s             %s\n", promised, map[bool]string{
		false: "missed", true: "kept",
	}[all.at(0.99) < promised && all.failed == 0])
	now, err := size()
	if err != nil {
		return err
	}
	grown(b.out, bytes, now, took, b.machines*b.accounts)
	month := 730 / took.Hours()
	asked, most := 0, 0
	for name, n := range b.w.calls() {
		if n -= calls[name]; n > 0 {
			asked, most = asked+n, max(most, n)
			fmt.Fprintf(b.out, "AWS %-32s %.0f calls a month\n", name, float64(n)*month)
		}
	}
	metrics := float64(b.w.queries.Load()-queries) * month
	// CloudWatch charges $0.01 per 1,000 metrics requested by GetMetricData.
	fmt.Fprintf(b.out,
		"AWS in all                   %.0f calls and %.0f metrics a month, which is $%.2f at $0.01 per "+
			"1,000 metrics\n", float64(asked)*month, metrics, metrics/1000*0.01)
	if most < 10*b.accounts {
		fmt.Fprintf(b.out,
			"AWS                          fewer than ten rounds of an account: a longer -for tells more of a month\n")
	}
	for line := range strings.Lines(b.logged()) {
		if strings.Contains(line, "max_usd_per_month=") {
			fmt.Fprintf(b.out, "of the log                   %s", line)
		}
	}
	return nil
}

// ready waits until every account was read.
func (b *bench) ready(ctx context.Context) error {
	began := time.Now()
	for time.Since(began) < 15*time.Minute {
		if passes, _ := b.read(ctx); passes == b.accounts {
			fmt.Fprintf(b.out, "each account was read within %s\n", time.Since(began).Round(time.Second))
			return nil
		}
		if !sleep(ctx, time.Second) {
			return ctx.Err()
		}
	}
	return errors.New("not every account was read within 15m")
}

// read returns the number of accounts with a successful pass, and with a successful audit.
func (b *bench) read(ctx context.Context) (passes, audits int) {
	seen := map[string]bool{}
	for _, u := range b.urls {
		var doc struct {
			Sources []struct {
				Source     string    `json:"source"`
				ReadAt     time.Time `json:"read_at"`
				Background bool      `json:"background"`
			} `json:"sources"`
		}
		if _, err := get(ctx, u+"/readyz", "", &doc); err != nil {
			continue
		}
		for _, s := range doc.Sources {
			if !s.ReadAt.IsZero() && !seen[s.Source] {
				seen[s.Source] = true
				if s.Background {
					audits++
				} else {
					passes++
				}
			}
		}
	}
	return passes, audits
}

func (b *bench) log() string {
	text := b.logged()
	return text[max(0, len(text)-3000):]
}

// logged returns the output of the first process.
func (b *bench) logged() string {
	text, _ := os.ReadFile(filepath.Join(b.dir, "log-0")) // a missing log is empty
	return string(text)
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// times are durations with percentiles.
type times struct {
	mu     sync.Mutex
	all    []time.Duration
	failed int
}

func (t *times) add(d time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all = append(t.all, d); !ok {
		t.failed++
	}
}

func (t *times) String() string {
	if len(t.all) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("p50 %s, p95 %s, p99 %s, most %s (%d, %d failed)", t.at(0.5), t.at(0.95), t.at(0.99), t.at(1),
		len(t.all), t.failed)
}

// at returns the percentile of a share; 0 if empty.
func (t *times) at(share float64) time.Duration {
	if len(t.all) == 0 {
		return 0
	}
	slices.Sort(t.all)
	return t.all[min(len(t.all)-1, int(share*float64(len(t.all))))].Round(100 * time.Microsecond)
}

// verdicts changes the first machine of each account repeatedly, and waits until the API reports
// it.
func (b *bench) verdicts(ctx context.Context, out *times) {
	var wg sync.WaitGroup
	for account := range b.accounts {
		wg.Go(func() {
			id := wire.Fleet{First: account * b.machines}.InstanceID(0)
			for sleep(ctx, time.Duration(rand.IntN(60))*time.Second) {
				b.w.turn(account)
				was, _ := b.w.now(account)
				for {
					works, since := b.w.now(account)
					if works != was {
						var doc struct {
							Resources []struct {
								Duty string `json:"duty"`
							} `json:"resources"`
						}
						_, err := get(ctx, b.urls[account%len(b.urls)]+"/api/v1/resources/"+id,
							b.tokens[account%len(b.tokens)], &doc)
						if err == nil && len(doc.Resources) == 1 && doc.Resources[0].Duty != "" &&
							(doc.Resources[0].Duty == "busy") == works {
							out.add(time.Since(since), true)
							break
						}
					}
					if !sleep(ctx, 2*time.Second) {
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// mix is the mix of client requests, by share.
var mix = []struct {
	name  string
	share int
	path  func(b *bench) string
}{
	{"resources, 50 a page", 35, func(*bench) string { return "/api/v1/resources?limit=50" }},
	{"resources of a team", 15, func(*bench) string { return "/api/v1/resources?team=vision&limit=50" }},
	{"one resource", 25, func(b *bench) string {
		return "/api/v1/resources/" + wire.Fleet{}.InstanceID(rand.IntN(b.machines*b.accounts))
	}},
	{"findings", 10, func(*bench) string { return "/api/v1/findings?limit=50" }},
	{"actions", 5, func(*bench) string { return "/api/v1/actions?limit=50" }},
	{"audit", 5, func(*bench) string { return "/api/v1/audit?limit=50" }},
	{"budgets", 5, func(*bench) string { return "/api/v1/budgets" }},
}

// client sends requests at its rate.
func (b *bench) client(ctx context.Context, number int, answers map[string]*times) {
	every := time.Duration(float64(time.Second) / b.rate)
	if !sleep(ctx, time.Duration(rand.Int64N(int64(every)))) {
		return
	}
	for {
		n := rand.IntN(100)
		for _, m := range mix {
			if n -= m.share; n >= 0 {
				continue
			}
			began := time.Now()
			code, err := get(ctx, b.urls[number%len(b.urls)]+m.path(b), b.tokens[number], nil)
			if ctx.Err() != nil {
				return
			}
			answers[m.name].add(time.Since(began), err == nil && code == http.StatusOK)
			break
		}
		if !sleep(ctx, every) {
			return
		}
	}
}

func get(ctx context.Context, url, token string, into any) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && into != nil {
		err = json.Unmarshal(body, into)
	}
	return res.StatusCode, err
}

// used is the resource use of processes: CPU, current and peak memory in bytes.
type used struct {
	cpu          time.Duration
	memory, most int64
}

// usage sums the kernel's statistics of the processes.
func (b *bench) usage() (out used) {
	for _, pid := range b.pids {
		out.cpu += cpu(pid)
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(status)) {
			var kb int64
			if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
				out.memory += kb << 10
			}
			if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
				out.most += kb << 10
			}
		}
	}
	return out
}

// cpu returns the CPU time of a process.
func cpu(pid int) (out time.Duration) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, i := range []int{11, 12} {
		out += ticks(fields[i])
	}
	return out
}

// ticks parses a duration of the kernel.
func ticks(text string) time.Duration {
	const hertz = 100 // USER_HZ
	n, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(n) * time.Second / hertz
}

// others is the CPU use of Prometheus, of this process, and of the whole machine.
type others struct{ prometheus, own, all time.Duration }

func (o others) since(before others) others {
	return others{o.prometheus - before.prometheus, o.own - before.own, o.all - before.all}
}

func (b *bench) beside() others {
	out := others{prometheus: cpu(b.server), own: cpu(os.Getpid())}
	stat, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, field := range strings.Fields(line) {
		if i >= 1 && i <= 8 && i != 4 && i != 5 { // all but idle and iowait
			out.all += ticks(field)
		}
	}
	return out
}

// load returns the load average of this machine.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:3], ", ")
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
