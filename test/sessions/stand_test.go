// Package sessions_test runs sessions on AWS: machines that really run their user data and the
// agent, in separate name spaces, and processes of curfew that are killed at any call.
package sessions_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
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
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/sshd"
	"github.com/curfew-dev/curfew/test/ssmplugin"
	"github.com/curfew-dev/curfew/test/versitygw"
)

// asVariable selects the program that a process runs as: curfew, the curl or sshd of a machine, or
// the Session Manager plugin. standVariable marks the processes of a stand.
const (
	asVariable    = "CURFEW_SESSIONS_AS"
	standVariable = "CURFEW_SESSIONS_STAND"
)

func TestMain(m *testing.M) {
	as := os.Getenv(asVariable)
	if as == "" && len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		as = "curfew" // what watches a machine has an environment of its own
	}
	switch as {
	case "curfew":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		code := cli.Run(ctx, cli.System("test"))
		stop()
		os.Exit(code)
	case "curl":
		if err := curl(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(22)
		}
		os.Exit(0)
	case "sshd":
		os.Setenv(asVariable, "curfew") // for what it starts
		sshd.Main()
	case "plugin":
		ssmplugin.Main()
	}
	os.Exit(m.Run())
}

// curl implements what user data needs of curl.
func curl(args []string) error {
	method, to, out := http.MethodGet, "", io.Writer(os.Stdout)
	header := http.Header{}
	for i := 0; i < len(args); i++ {
		switch a := args[i]; a {
		case "-X", "-H", "-o", "--retry", "--max-time":
			i++
			switch a {
			case "-X":
				method = args[i]
			case "-H":
				name, value, _ := strings.Cut(args[i], ": ")
				header.Set(name, value)
			case "-o":
				f, err := os.Create(args[i])
				if err != nil {
					return err
				}
				defer f.Close()
				out = f
			}
		default:
			if strings.HasPrefix(a, "http") {
				to = a
			}
		}
	}
	req, err := http.NewRequest(method, to, http.NoBody)
	if err != nil {
		return err
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", to, res.Status)
	}
	_, err = io.Copy(out, res.Body)
	return err
}

const (
	region = "us-east-1"
	// machineType has a price in the book, and 4 CPUs.
	machineType = "g6.xlarge"
	// patient is the timeout of tests on a busy machine.
	patient = 3 * time.Minute
)

// stand is an account with a backbone and a bucket, and a person's machine.
type stand struct {
	t       *testing.T
	account *sandbox.Sandbox
	// s3 is the address of the bucket; empty uses that of the account.
	s3    string
	image string
	// dir is the person's folder.
	dir string
	env []string
	api *ec2.Client
}

// starting serializes the starts of accounts: eight at once keep two processors busy for longer
// than a call may take.
var starting sync.Mutex

// newStand starts an account and the given configuration of curfew.
func newStand(t *testing.T, config string) *stand {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	account, err := sandbox.Start(ctx, sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := account.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &stand{t: t, account: account, dir: t.TempDir(), api: ec2.NewFromConfig(account.Config(region))}
	bucket := versitygw.Start(t)
	s.s3 = "http://" + bucket.Address()
	if s.image, err = account.Backbone(ctx, region, versitygw.Bucket); err != nil {
		t.Fatal(err)
	}
	s.environ(account.URL())
	s.write("curfew.yaml", "identity: ana\naws: {requests_per_second: 1000, regions: ["+region+
		"]}\n"+strings.ReplaceAll(
		config, "IMAGE", s.image))
	t.Cleanup(s.clear)
	return s
}

func (s *stand) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// environ sets the environment of curfew for an endpoint.
func (s *stand) environ(endpoint string) {
	s.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "XDG_STATE_HOME=" + filepath.Join(s.dir, "state"),
		"TMPDIR=" + os.TempDir(), asVariable + "=curfew", standVariable + "=" + s.dir, "AWS_ENDPOINT_URL=" + endpoint,
		"AWS_REGION=" + region, "AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
		"AWS_EC2_METADATA_DISABLED=true", "AWS_DISABLE_REQUEST_COMPRESSION=true",
		"AWS_ACCESS_KEY_ID=" + versitygw.AccessKey, "AWS_SECRET_ACCESS_KEY=" + versitygw.SecretKey}
	if s.s3 != "" {
		s.env = append(s.env, "AWS_ENDPOINT_URL_S3="+s.s3)
	}
}

// process is a running command of curfew.
type process struct {
	*exec.Cmd
	out, err bytes.Buffer
	done     chan struct{}
}

// start starts a command of curfew.
func (s *stand) start(args ...string) *process {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(self, args...), done: make(chan struct{})}
	p.Dir, p.Env, p.Stdout, p.Stderr = s.dir, s.env, &p.out, &p.err
	// Background processes have their own files and must not delay the wait.
	p.WaitDelay = 10 * time.Second
	if err := p.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.done) }()
	return p
}

// wait waits for its end and returns its exit code; -1 if it was killed.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patient):
		_ = p.Process.Kill()
		<-p.done
		t.Fatalf("curfew %q does not end:\n%s%s", p.Args[1:], p.out.String(), p.err.String())
	}
	return p.ProcessState.ExitCode()
}

// curfew runs a command, checks its exit code, and returns its output.
func (s *stand) curfew(want int, args ...string) (out, errs string) {
	s.t.Helper()
	p := s.start(args...)
	if got := p.wait(s.t); got != want {
		log, _ := os.ReadFile(filepath.Join(s.data(), "keeper.log"))
		s.t.Fatalf("curfew %q: exit code %d, want %d\n%s%s\nkeeper:\n%s", args, got, want,
			p.out.String(), p.err.String(),
			log)
	}
	return p.out.String(), p.err.String()
}

// data returns the data directory of the person.
func (s *stand) data() string { return filepath.Join(s.dir, ".local", "share", "curfew") }

// list returns the output of ls -o json.
func (s *stand) list(args ...string) []view.Run {
	s.t.Helper()
	out, _ := s.curfew(0, append([]string{"ls", "-o", "json"}, args...)...)
	var doc view.Runs
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return doc.Runs
}

// run is one session of ls --all.
func (s *stand) run(name string) view.Run {
	s.t.Helper()
	runs := s.list("--all")
	i := slices.IndexFunc(runs, func(r view.Run) bool { return r.Name == name })
	if i < 0 {
		s.t.Fatalf("there is no session %q in %+v", name, runs)
	}
	return runs[i]
}

// eventually waits until a condition holds.
func (s *stand) eventually(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patient); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(s.data(), "keeper.log"))
			s.t.Fatalf("after %s it does not hold that %s\nkeeper:\n%s", patient, what, log)
		}
	}
}

// processes returns the processes of this stand, whoever started them.
func (s *stand) processes() (pids []int) {
	mark := []byte(standVariable + "=" + s.dir)
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range all {
		env, err := os.ReadFile(f)
		if err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool {
			return bytes.Equal(v, mark)
		}) {
			var pid int
			if _, err := fmt.Sscanf(f, "/proc/%d/", &pid); err == nil && pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// doing returns the processes of some commands.
func (s *stand) doing(commands ...string) []int {
	return slices.DeleteFunc(s.processes(), func(pid int) bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		words := strings.Split(string(line), "\x00")
		return err != nil || !slices.ContainsFunc(commands, func(w string) bool {
			return slices.Contains(words[1:], w)
		})
	})
}

// controllers returns the processes that start and end sessions, without those on machines and
// those that only read.
func (s *stand) controllers() []int { return s.doing("up", "down", "keep") }

// kill ends the running controllers with SIGKILL, and waits until they are gone.
func (s *stand) kill() { killed(s.controllers()) }

// tell prints the resources for a failed test.
func (s *stand) tell(name string) {
	for _, args := range [][]string{{"status", name}, {"logs", name}} {
		p := s.start(args...)
		p.wait(s.t)
		s.t.Logf("curfew %q\n%s%s", args, p.out.String(), p.err.String())
	}
	for _, pid := range s.processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		s.t.Logf("%d: %s", pid, strings.ReplaceAll(string(line), "\x00", " "))
	}
}

func killed(pids []int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if !slices.ContainsFunc(pids, alive) {
			return
		}
	}
}

// alive reports whether a process runs and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// clear ends all processes of curfew, including new ones.
func (s *stand) clear() {
	for len(s.processes()) > 0 {
		killed(s.processes())
	}
}

// held returns the resources of sessions in EC2 by their session tag: running machines, and
// everything else.
func (s *stand) held() (machines, rest map[string][]string) {
	s.t.Helper()
	ctx := context.WithoutCancel(s.t.Context())
	machines, rest = map[string][]string{}, map[string][]string{}
	add := func(to map[string][]string, id *string, tags []types.Tag) {
		for _, t := range tags {
			if aws.ToString(t.Key) == inventory.TagSession {
				to[aws.ToString(t.Value)] = append(to[aws.ToString(t.Value)], aws.ToString(id))
			}
		}
	}
	instances, err := s.api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range instances.Reservations {
		for _, i := range r.Instances {
			if i.State.Name != types.InstanceStateNameTerminated &&
				i.State.Name != types.InstanceStateNameShuttingDown {
				add(machines, i.InstanceId, i.Tags)
			}
		}
	}
	volumes, err := s.api.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, v := range volumes.Volumes {
		add(rest, v.VolumeId, v.Tags)
	}
	interfaces, err := s.api.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, x := range interfaces.NetworkInterfaces {
		add(rest, x.NetworkInterfaceId, x.TagSet)
	}
	for _, ids := range machines {
		slices.Sort(ids)
	}
	return machines, rest
}

// nothingLeft checks that EC2 has nothing of any session.
func (s *stand) nothingLeft() {
	s.t.Helper()
	if machines, rest := s.held(); len(machines)+len(rest) > 0 {
		s.t.Errorf("EC2 still holds %v %v", machines, rest)
	}
	if roles := s.roles(); len(roles) > 0 {
		s.t.Errorf("IAM still holds %q", roles)
	}
}

// machines runs the machines of an account: each runs its user data in separate name spaces with
// its own metadata service.
type machines struct {
	s    *stand
	dir  string
	mu   sync.Mutex
	runs map[string]*machine
}

// machine is a running machine.
type machine struct {
	root string
	// s3 is the storage that its role permits.
	s3   *permitted
	cmd  *exec.Cmd
	over chan struct{}
	log  bytes.Buffer
}

// host runs every machine of the account until the test ends.
func (s *stand) host() *machines {
	s.t.Helper()
	if out, err := exec.Command("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc",
		"true").CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			s.t.Fatalf("unshare: %v: %s", err, out)
		}
		s.t.Skipf("machines need name spaces: unshare: %v: %s", err, out)
	}
	m := &machines{s: s, dir: s.t.TempDir(), runs: map[string]*machine{}}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := m.look(ctx); err != nil && ctx.Err() == nil {
				s.t.Errorf("the machines: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	s.t.Cleanup(func() {
		stop()
		wg.Wait()
		for id, x := range m.runs {
			x.end()
			if refused := x.s3.refused(); len(refused) > 0 {
				s.t.Errorf("machine %s was refused %q", id, refused)
			}
			if s.t.Failed() {
				s.t.Logf("machine %s:\n%s", id, x.log.String())
			}
		}
	})
	return m
}

// look starts launched machines, and ends those that were terminated or shut down.
func (m *machines) look(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	out, err := m.s.api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
	if err != nil {
		return err
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			id := aws.ToString(i.InstanceId)
			x := m.runs[id]
			runs := i.State.Name == types.InstanceStateNameRunning
			switch {
			case runs && x == nil:
				if x, err = m.boot(ctx, i); err != nil {
					return fmt.Errorf("start %s: %w", id, err)
				}
				m.runs[id] = x
			case x == nil:
			case !runs:
				x.end()
			default:
				if _, err := os.Stat(filepath.Join(x.root, "shut-down")); err == nil {
					x.end()
					if _, err := m.s.api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{
						InstanceIds: []string{id},
					}); err !=
						nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// boot runs the user data of a machine.
func (m *machines) boot(ctx context.Context, i types.Instance) (*machine, error) {
	data, err := m.s.api.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
		InstanceId: i.InstanceId, Attribute: types.InstanceAttributeNameUserData,
	})
	if err != nil {
		return nil, err
	}
	if data.UserData == nil {
		return nil, errors.New("it has no user data")
	}
	script, err := base64.StdEncoding.DecodeString(aws.ToString(data.UserData.Value))
	if err != nil {
		return nil, err
	}
	x := &machine{root: filepath.Join(m.dir, aws.ToString(i.InstanceId)), over: make(chan struct{})}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	bin, boot := filepath.Join(x.root, "bin"), filepath.Join(x.root, "var", "lib", "cloud", "scripts", "per-boot")
	for _, d := range []string{bin, boot, filepath.Join(x.root, "root")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{
		"curfew":   "#!/bin/sh\n" + asVariable + "=curfew exec '" + self + "' \"$@\"\n",
		"curl":     "#!/bin/sh\n" + asVariable + "=curl exec '" + self + "' \"$@\"\n",
		"sshd":     "#!/bin/sh\n" + asVariable + "=sshd exec '" + self + "' \"$@\"\n",
		"shutdown": "#!/bin/sh\necho \"$*\" > '" + x.root + "/shut-down'\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			return nil, err
		}
	}
	if x.s3, err = m.s.permit(ctx, i); err != nil {
		return nil, err
	}
	metadata := httptest.NewServer(metadataOf(i))
	x.cmd = exec.Command("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child",
		"--mount-proc", "sh", "-c", string(script))
	x.cmd.Dir, x.cmd.Stdout, x.cmd.Stderr = x.root, &x.log, &x.log
	x.cmd.Env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "CURFEW_ROOT=" + x.root, "HOME=" + filepath.Join(x.root, "root"),
		"CURFEW_METADATA=" + metadata.URL,
		"AWS_EC2_METADATA_SERVICE_ENDPOINT=" + metadata.URL, "AWS_ENDPOINT_URL=" + m.s.account.URL(),
		"AWS_ENDPOINT_URL_S3=" + x.s3.URL, "AWS_CONFIG_FILE=" + os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_ACCESS_KEY_ID=" + versitygw.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + versitygw.SecretKey}
	if err := x.cmd.Start(); err != nil {
		metadata.Close()
		x.s3.Close()
		return nil, err
	}
	// A shell in its name spaces with its environment. It has no job control, because the terminal
	// belongs to other name spaces.
	enter := fmt.Sprintf("#!/bin/sh\nfirst=$(cat /proc/%[1]d/task/%[1]d/children)\nexec nsenter --user --mount --pid "+
		"--preserve-credentials --target ${first%%%% *} env -i", x.cmd.Process.Pid)
	for _, v := range append(x.cmd.Env, "CURFEW_HOST="+filepath.Join(x.root, "etc", "curfew",
		"host.json"), "TERM=dumb",
		"PS1=$ ") {
		enter += " '" + v + "'"
	}
	if err := os.WriteFile(filepath.Join(x.root, "enter"), []byte(enter+" sh +m\n"),
		0o755); err != nil {
		return nil, err
	}
	go func() {
		_ = x.cmd.Wait()
		metadata.Close()
		x.s3.Close()
		close(x.over)
	}()
	return x, nil
}

// end stops the machine like a power failure.
func (x *machine) end() {
	_ = x.cmd.Process.Kill()
	<-x.over
}

// metadataOf serves the metadata of a machine (IMDSv2).
func metadataOf(i types.Instance) http.Handler {
	const token = "secret-token"
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"))
		_, _ = io.WriteString(w, token)
	})
	values := map[string]string{
		"ami-launch-index": fmt.Sprint(aws.ToInt32(i.AmiLaunchIndex)), "local-ipv4": "127.0.0.1",
		"placement/region": region, "instance-id": aws.ToString(i.InstanceId),
	}
	for _, path := range slices.Sorted(maps.Keys(values)) {
		mux.HandleFunc("GET /latest/meta-data/"+path, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Aws-Ec2-Metadata-Token") != token {
				http.Error(w, "no token", http.StatusUnauthorized)
				return
			}
			_, _ = io.WriteString(w, values[path])
		})
	}
	return mux
}

// root returns the file system of a machine.
func (m *machines) root(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.runs[id]
	if x == nil {
		m.s.t.Fatalf("machine %s never ran", id)
	}
	return x.root
}
