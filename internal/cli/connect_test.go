package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/ssmplugin"
)

// runTested is the program as the scripts start it; with CURFEW_TEST_SIGNALS it takes signals as
// cmd/curfew does.
func runTested() int {
	ctx, p := context.Background(), System("test")
	if os.Getenv("CURFEW_TEST_SIGNALS") != "" {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		p.Hangups = func() <-chan os.Signal {
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP)
			return hangups
		}
	}
	return Run(ctx, p)
}

// connectPatience is how long the tests of connect wait, on a machine that does much else.
const connectPatience = 2 * time.Minute

// reached is a session at AWS whose machine is this one.
type reached struct {
	t       *testing.T
	box     *sandbox.Sandbox
	dir     string // of the command line
	machine string // its id
	work    string // the work folder "there"
	state   *store.Store
	s       session.Session
	env     []string
}

const connectRegion = "us-east-1"

func reach(t *testing.T) *reached {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the stand-in of the Session Manager plugin makes terminals on Linux only")
	}
	box, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	dir, err := os.MkdirTemp("", "cc") // a short path: sockets have at most 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &reached{t: t, box: box, dir: dir, work: filepath.Join(dir, "there", "home", "work")}
	host := filepath.Join(dir, "there", "etc", "host.json")
	r.env = append(append(os.Environ(), box.Env()...), "HOME="+dir, "XDG_DATA_HOME="+filepath.Join(dir, "data"),
		"XDG_CONFIG_HOME="+filepath.Join(dir, "config"),
		"XDG_STATE_HOME="+filepath.Join(dir, "state"), "CURFEW_HOST="+host,
		"CURFEW_TEST_SIGNALS=1", ssmplugin.VariableLog+"="+filepath.Join(dir, "plugin.log"), "SHELL=/bin/sh",
		"TMPDIR="+filepath.Join(dir, "tmp"))
	// What the agent of the machine leaves.
	stateDir := filepath.Join(dir, "there", "state")
	for _, d := range []string{r.work, filepath.Dir(host), stateDir, filepath.Join(dir, "tmp")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r.write(host, `{"schema":"curfew.session-host/v1","session":"s1","env":{"GREETING":"hello"}}`)
	r.write(filepath.Join(filepath.Dir(host), "agent.json"),
		fmt.Sprintf(`{"state":%q,"home":%q}`, stateDir, filepath.Join(dir, "there", "home")))
	r.write(filepath.Join(stateDir, "environment"), "export CURFEW_WORK="+r.work+"\nexport CURFEW_SESSION=demo\n")
	r.write(filepath.Join(dir, "curfew.yaml"), "identity: ana\naws: {requests_per_second: 10000, regions: ["+
		connectRegion+"]}\n")
	// What AWS has.
	who, err := sts.NewFromConfig(box.Config(connectRegion)).GetCallerIdentity(t.Context(),
		&sts.GetCallerIdentityInput{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ssm.NewFromConfig(box.Config(connectRegion)).PutParameter(t.Context(),
		&ssm.PutParameterInput{Name: awssdk.String("/curfew/backbone/session-document"),
			Value: awssdk.String("curfew-session"), Type: ssmtypes.ParameterTypeString}); err != nil {
		t.Fatal(err)
	}
	r.machine = r.launch(awssdk.ToString(who.UserId))
	// What curfew has.
	if r.state, err = store.Open(t.Context(), store.Options{
		Dir: filepath.Join(dir, "data", "curfew"), Host: store.Host{Now: time.Now},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.state.Close() })
	text := "apiVersion: curfew.session/v1\nname: demo\nlease: 1h\nresources: {instance_type: g6.xlarge}\n"
	sp, err := spec.Parse("demo", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r.s = session.Session{
		ID: "s1", Name: "demo", RequestedBy: "ana", Owner: inventory.Owner{User: "ana"}, Spec: sp.Canonical(),
		Hash:     sp.Hash(),
		Provider: clouds.ProviderAWS, Account: awssdk.ToString(who.Account),
		Region: connectRegion, Epoch: 1, State: session.Ready, Machines: []session.Machine{
			{ID: r.machine, Pool: session.Pool{Type: "g6.xlarge", Region: connectRegion}},
		},
		LeaseUntil: time.Now().Add(time.Hour), RequestedAt: time.Now()}
	r.put(r.s)
	return r
}

// launch starts a machine of the session that a person owns.
func (r *reached) launch(person string) string {
	r.t.Helper()
	tags := []types.Tag{{Key: awssdk.String(inventory.TagSession), Value: awssdk.String("s1")}}
	if person != "" {
		tags = append(tags, types.Tag{Key: awssdk.String("curfew:owner"), Value: awssdk.String(person)})
	}
	api := ec2.NewFromConfig(r.box.Config(connectRegion))
	image, err := api.RegisterImage(r.t.Context(), &ec2.RegisterImageInput{
		Name: awssdk.String("m" + strconv.Itoa(rand.Int())), RootDeviceName: awssdk.String("/dev/sda1"),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := api.RunInstances(r.t.Context(), &ec2.RunInstancesInput{
		ImageId: image.ImageId, MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1),
		InstanceType:      types.InstanceTypeG6Xlarge,
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: tags}}})
	if err != nil {
		r.t.Fatal(err)
	}
	return awssdk.ToString(out.Instances[0].InstanceId)
}

func (r *reached) put(s session.Session) {
	r.t.Helper()
	var err error
	if r.s, err = r.state.Sessions().Put(r.t.Context(), s, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reached) write(file, text string) {
	r.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reached) read(file string) string {
	r.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// command is curfew with arguments.
func (r *reached) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(r.t.Context(), "curfew", args...)
	c.Dir, c.Env = r.dir, slices.Clone(r.env)
	return c
}

// run runs curfew and returns its output and exit code.
func (r *reached) run(args ...string) (out, errs string, code int) {
	r.t.Helper()
	return r.done(r.command(args...))
}

func (r *reached) done(c *exec.Cmd) (out, errs string, code int) {
	r.t.Helper()
	var o, e bytes.Buffer
	c.Stdout, c.Stderr = &o, &e
	if err := c.Run(); err != nil && c.ProcessState == nil {
		r.t.Fatal(err)
	}
	return o.String(), e.String(), c.ProcessState.ExitCode()
}

// open counts the connections that AWS has, and those of them that are open.
func (r *reached) open() (all, open int) {
	for _, c := range r.box.Wire.Connections.All() {
		all++
		if c.Ended.IsZero() {
			open++
		}
	}
	return all, open
}

// nothingOpen holds that there were connections since before, and that none is open and none
// recorded.
func (r *reached) nothingOpen(before int) int {
	r.t.Helper()
	all, open := r.open()
	if all == before || open > 0 {
		r.t.Errorf("AWS has had %d connections, %d before, and %d are open", all, before, open)
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "data", "curfew", "connections", "*")); len(left) > 0 {
		r.t.Errorf("records are left: %q", left)
	}
	return all
}

// eventually waits for something.
func (r *reached) eventually(what string, is func() bool) {
	r.t.Helper()
	for start := time.Now(); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Since(start) > connectPatience {
			r.t.Fatalf("not within %s: %s", connectPatience, what)
		}
	}
}

// TestConnectAtAWS connects to a session at AWS whose machine is this one, by everything but the
// stream itself: the API, the plugin's arguments, terminals, SSH.
func TestConnectAtAWS(t *testing.T) {
	r := reach(t)
	t.Run("command", r.with((*reached).commands))
	t.Run("shell", r.with((*reached).shell))
	t.Run("refusals", r.with((*reached).refusals))
	t.Run("port", r.with((*reached).ports))
	t.Run("killed", r.with((*reached).killed))
	t.Run("file", r.with((*reached).file))
}

// TestConnectBySSH tests many connections with a real ssh and sshd.
func TestConnectBySSH(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("it makes many connections; make test-slow runs it")
	}
	r := reach(t)
	t.Run("copy", r.with((*reached).copies))
	t.Run("editor", r.with((*reached).editors))
}

func (r *reached) with(f func(*reached)) func(*testing.T) {
	return func(t *testing.T) {
		one := *r
		one.t = t
		f(&one)
		r.s = one.s
	}
}

// commands: output and exit code reach the caller, in the work folder and its environment, by
// both versions of the plugin.
func (r *reached) commands() {
	t := r.t
	before, _ := r.open()
	for _, version := range []string{ssmplugin.New, ssmplugin.Old} {
		c := r.command("connect", "demo", "--", "sh", "-c",
			`pwd; echo "$GREETING $CURFEW_SESSION it's"; printf '\001\377'; exit 3`)
		c.Env = append(c.Env, ssmplugin.VariableVersion+"="+version)
		out, errs, code := r.done(c)
		if want := r.work + "\nhello demo it's\n\x01\xff"; out != want || code != 3 ||
			!strings.Contains(errs, "ended with exit code 3") {
			t.Errorf("plugin %s: exit %d, %q, %q", version, code, out, errs)
		}
		before = r.nothingOpen(before)
	}
	if out, errs, code := r.run("connect", "demo", "--", "cd /; pwd; (exit 4)"); out != "/\n" || code != 4 {
		t.Errorf("a shell line: exit %d, %q, %q", code, out, errs)
	}
	before = r.nothingOpen(before)
	if out, errs, code := r.run("connect", "demo", "--", "true"); out != "" || errs != "" || code != 0 {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
	r.nothingOpen(before)
	// The plugin ends with exit code 0, and yet the command was not run.
	c := r.command("connect", "demo", "--", "true")
	c.Env = append(c.Env, ssmplugin.VariableMode+"="+ssmplugin.Refuses)
	if _, errs, code := r.done(c); code != ExitError ||
		!strings.Contains(errs, "could not connect: the web socket was closed") {
		t.Errorf("exit %d, %q", code, errs)
	}
	r.nothingOpen(before)
}

// shell: typed input reaches the shell of the machine.
func (r *reached) shell() {
	before, _ := r.open()
	c := r.command("connect", "demo")
	c.Stdin = strings.NewReader("echo $((6*7)) >$HOME/shell; exit\n")
	// The stand-in ends with its input, as the plugin does; the line may or may not be first.
	_, _, _ = r.done(c)
	r.nothingOpen(before)
}

// refusals: one line each, and nothing was opened.
func (r *reached) refusals() {
	before, _ := r.open()
	for _, tc := range []struct {
		name   string
		change func(*session.Session)
		env    []string
		args   []string
		code   int
		want   string
	}{
		{"another's session", func(s *session.Session) {
			s.RequestedBy, s.Owner.User = "ben", "ben"
		}, nil, nil, ExitDenied, "session demo is ben's: only its owner connects to it"},
		{"another's machine", func(s *session.Session) {
			s.Machines[0].ID = r.launch("AIDABENBENBENBEN")
		}, nil, nil, ExitDenied, "its owner is AIDABENBENBENBEN, and these credentials are"},
		{"a machine without owner", func(s *session.Session) {
			s.Machines[0].ID = r.launch("")
		}, nil, nil, ExitDenied, "it has no tag curfew:owner"},
		{"another session's machine", func(s *session.Session) {
			s.ID = "s2"
		}, nil, nil, ExitDenied, `it is tagged as session "s1", not as s2`},
		{"another account", func(s *session.Session) {
			s.Account = "111122223333"
		}, nil, nil, ExitUsage, "is in account 111122223333, and these credentials are of account"},
		{"not ready", func(s *session.Session) {
			s.State = session.Starting
		}, nil, nil, ExitError, "session demo is starting"},
		{
			"no plugin", func(*session.Session) {}, []string{"PATH=/nowhere"}, nil, ExitError,
			"the Session Manager plugin is not installed; install it: ",
		},
		{"no node", func(*session.Session) {}, nil, []string{"--node", "3"}, ExitUsage, "nodes 0 to 0"},
		{
			"two things", func(*session.Session) {}, nil, []string{"--port", "80", "--editor", "code"}, ExitUsage,
			"does one thing",
		},
		{"no port", func(*session.Session) {}, nil, []string{"--port", "80:x"}, ExitUsage, "8888:9999"},
	} {
		was := r.s
		s := was
		s.Machines = slices.Clone(was.Machines)
		if tc.change(&s); s.ID != was.ID { // another record of the name
			over := was
			over.State, s.Version = session.Ended, 0
			r.put(over)
			was.Version = r.s.Version
		}
		r.put(s)
		curfew, err := exec.LookPath("curfew")
		if err != nil {
			r.t.Fatal(err)
		}
		c := r.command(append([]string{"connect", "demo"}, tc.args...)...)
		c.Path, c.Env = curfew, append(c.Env, tc.env...)
		if out, errs, code := r.done(c); code != tc.code || !strings.Contains(errs, tc.want) ||
			strings.Count(errs, "\n") != 1 || out != "" {
			r.t.Errorf("%s: exit %d, want %d: %q %q", tc.name, code, tc.code, out, errs)
		}
		back := was
		if s.ID != was.ID {
			over := r.s
			over.State = session.Ended
			r.put(over)
		} else {
			back.Version = r.s.Version
		}
		r.put(back)
	}
	if all, open := r.open(); all != before || open != 0 {
		r.t.Errorf("%d connections were opened and %d are open", all-before, open)
	}
}

// ports: a page of the machine is read through a port here, until a signal; then the connection
// is ended at AWS.
func (r *reached) ports() {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a notebook")
	}))
	defer page.Close()
	at, err := url.Parse(page.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		before, _ := r.open()
		local := freePort(r.t)
		c := r.command("connect", "demo", "--port", at.Port()+":"+local)
		said := filepath.Join(r.dir, "said")
		to, err := os.Create(said)
		if err != nil {
			r.t.Fatal(err)
		}
		c.Stderr = to
		if err := c.Start(); err != nil {
			r.t.Fatal(err)
		}
		to.Close()
		r.eventually("the port is forwarded", func() bool {
			res, err := http.Get("http://localhost:" + local) //nolint:noctx // it is here
			if err != nil {
				return false
			}
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body)
			return string(text) == "a notebook" && strings.Contains(r.read(said), "http://localhost:"+local)
		})
		if err := c.Process.Signal(sig); err != nil {
			r.t.Fatal(err)
		}
		_ = c.Wait()
		if code := c.ProcessState.ExitCode(); code != ExitInterrupted || strings.Contains(r.read(said), "SessionId") {
			r.t.Errorf("after %s: exit %d: %s", sig, code, r.read(said))
		}
		r.nothingOpen(before)
	}
	before, _ := r.open()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	defer taken.Close()
	_, errs, code := r.run("connect", "demo", "--port", at.Port()+":"+strconv.Itoa(taken.Addr().(*net.TCPAddr).Port))
	if all, _ := r.open(); all != before || code != ExitUsage ||
		!strings.Contains(errs, "is taken; name another one: --port "+at.Port()+":") {
		r.t.Errorf("a port that is taken: exit %d, %q", code, errs)
	}
	// The plugin says nothing and ends with exit code 0.
	c := r.command("connect", "demo", "--port", at.Port()+":"+freePort(r.t))
	c.Env = append(c.Env, ssmplugin.VariableMode+"="+ssmplugin.Silent)
	if _, errs, code := r.done(c); code != ExitError || !strings.Contains(errs, "was not forwarded") {
		r.t.Errorf("a silent plugin: exit %d, %q", code, errs)
	}
	r.nothingOpen(before)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// killed: the next process closes the connections that a killed one left open.
func (r *reached) killed() {
	before, _ := r.open()
	c := r.command("connect", "demo", "--", "sleep", "1000")
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	records := filepath.Join(r.dir, "data", "curfew", "connections", "*.json")
	r.eventually("the connection is open and recorded", func() bool {
		files, _ := filepath.Glob(records)
		if len(files) != 1 {
			return false
		}
		text, _ := os.ReadFile(files[0])
		return bytes.Contains(text, []byte("session-"))
	})
	// While it lives, no other one ends it.
	if _, errs, code := r.run("connect", "demo", "--", "true"); code != 0 {
		r.t.Errorf("exit %d, %q", code, errs)
	}
	if _, open := r.open(); open != 1 {
		r.t.Errorf("%d connections are open next to one that lives", open)
	}
	if err := c.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	_ = c.Wait()
	for _, call := range ssmplugin.Calls(r.t, filepath.Join(r.dir, "plugin.log")) {
		_ = syscall.Kill(call.PID, syscall.SIGKILL) // the plugin is left too
	}
	// One was killed before AWS's answer reached it: AWS knows it by its reason alone.
	files, _ := filepath.Glob(records)
	first, _, _ := strings.Cut(r.read(files[0]), "\n")
	r.write(files[0], first+"\n{\"key\":\"cut o")
	var known struct{ ID string }
	if err := json.Unmarshal([]byte(first), &known); err != nil || known.ID != "" {
		r.t.Fatalf("the record begins with %q: %v", first, err)
	}
	if _, errs, code := r.run("connect", "demo", "--", "true"); code != 0 || errs != "" {
		r.t.Errorf("exit %d, %q", code, errs)
	}
	r.nothingOpen(before)
}

// needsSSH leaves a test where there is no OpenSSH.
func (r *reached) needsSSH() {
	r.t.Helper()
	for _, name := range []string{"ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(name); err != nil {
			r.t.Skip("there is no " + name)
		}
	}
	if _, err := exec.LookPath("sshd"); err != nil {
		if _, err := os.Stat("/usr/sbin/sshd"); err != nil {
			r.t.Skip("there is no sshd")
		}
	}
}

// file: a file to the machine is the same file there.
func (r *reached) file() {
	r.needsSSH()
	before, _ := r.open()
	text := string(bytesOf(rand.New(rand.NewPCG(3, 4)), 100_000))
	r.write(filepath.Join(r.dir, "one.bin"), text)
	if _, errs, code := r.run("connect", "demo", "--copy", "one.bin", ":in/"); code != 0 ||
		r.read(filepath.Join(r.work, "in", "one.bin")) != text {
		r.t.Fatalf("exit %d, %s", code, errs)
	}
	r.nothingOpen(before)
}

// copies: a folder to the machine and back is the same folder.
func (r *reached) copies() {
	r.needsSSH()
	before, _ := r.open()
	from := filepath.Join(r.dir, "my data")
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string]string{
		"a.txt": "a\n", "deep/er/b c.bin": string(bytesOf(random, 300_000)), "empty": "", "deep/it's": "x",
	}
	for name, text := range want {
		if err := os.MkdirAll(filepath.Join(from, filepath.Dir(name)), 0o755); err != nil {
			r.t.Fatal(err)
		}
		r.write(filepath.Join(from, name), text)
	}
	if err := os.Symlink("a.txt", filepath.Join(from, "link")); err != nil {
		r.t.Fatal(err)
	}
	if _, errs, code := r.run("connect", "demo", "--copy", "my data", ":in/set"); code != 0 ||
		!strings.Contains(errs, "4 files") || !strings.Contains(errs, "copied to session demo") {
		r.t.Fatalf("exit %d, %s", code, errs)
	}
	before = r.nothingOpen(before)
	same := func(dir string) {
		r.t.Helper()
		for name, text := range want {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
				r.t.Errorf("%s in %s is %.20q, %v", name, dir, got, err)
			}
		}
		if to, err := os.Readlink(filepath.Join(dir, "link")); err != nil || to != "a.txt" {
			r.t.Errorf("the link leads to %q, %v", to, err)
		}
	}
	same(filepath.Join(r.work, "in", "set"))
	// Into a folder that is there, under its own name; and back the same way.
	if _, errs, code := r.run("connect", "demo", "--copy", "my data", ":in"); code != 0 {
		r.t.Fatalf("exit %d, %s", code, errs)
	}
	same(filepath.Join(r.work, "in", "my data"))
	if err := os.Mkdir(filepath.Join(r.dir, "back"), 0o755); err != nil {
		r.t.Fatal(err)
	}
	for _, to := range []string{"back", "new/place"} {
		if _, errs, code := r.run("connect", "demo", "--copy", ":in/set", to); code != 0 ||
			!strings.Contains(errs, "copied from session demo") {
			r.t.Fatalf("exit %d, %s", code, errs)
		}
	}
	same(filepath.Join(r.dir, "back", "set"))
	same(filepath.Join(r.dir, "new", "place"))
	if _, errs, code := r.run("connect", "demo", "--copy", ":in/set/a.txt", "one.txt"); code != 0 ||
		r.read(filepath.Join(r.dir, "one.txt")) != "a\n" {
		r.t.Fatalf("exit %d, %s", code, errs)
	}
	r.nothingOpen(before)
	for _, args := range [][]string{{":in/none", "x"}, {"nowhere", ":x"}} {
		if _, errs, code := r.run(append([]string{"connect", "demo", "--copy"}, args...)...); code != ExitError ||
			strings.Count(errs, "\n") != 1 {
			r.t.Errorf("%q: exit %d, %q", args, code, errs)
		}
	}
	for _, args := range [][]string{{"a", "b"}, {":a", ":b"}} {
		if _, errs, code := r.run(append([]string{"connect", "demo", "--copy"}, args...)...); code != ExitUsage ||
			!strings.Contains(errs, "begins with a colon") {
			r.t.Errorf("%q: exit %d, %q", args, code, errs)
		}
	}
	r.nothingOpen(before)
}

func bytesOf(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// editors: the entry for editors works with a real ssh and sshd, for several connections at once;
// keys are nowhere on a disk; the person's files keep their contents; and the entry ends with the
// session.
func (r *reached) editors() {
	r.needsSSH()
	before, _ := r.open()
	dir := filepath.Join(r.dir, ".ssh")
	config, entry := filepath.Join(dir, "config"), filepath.Join(dir, "curfew", "curfew-demo.conf")
	if err := os.Mkdir(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	const own = "Host github.com\n\tUser git   \r\n# no newline at the end"
	real := filepath.Join(r.dir, "dotfile")
	r.write(real, own)
	if err := os.Chmod(real, 0o640); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Symlink("../dotfile", config); err != nil {
		r.t.Fatal(err)
	}
	// An editor that prints its arguments.
	bin := filepath.Join(r.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "code"),
		[]byte("#!/bin/sh\nprintf '%s\\n' \"$@\" > '"+r.dir+"/editor'\n"),
		0o755); err != nil {
		r.t.Fatal(err)
	}
	r.env = append(r.env, "PATH="+bin+":"+os.Getenv("PATH"))
	// Without consent nothing changes.
	_, errs, code := r.run("connect", "demo", "--editor", "code")
	if code != ExitUsage || !strings.Contains(errs, `needs the line "Include curfew/*.conf"`) || r.read(real) != own {
		r.t.Fatalf("exit %d, %q; the file is %q", code, errs, r.read(real))
	}
	for range 2 {
		if _, errs, code := r.run("connect", "demo", "--editor", "code", "--yes"); code != 0 {
			r.t.Fatalf("exit %d, %q", code, errs)
		}
	}
	if got := r.read(filepath.Join(r.dir, "editor")); got != "--remote\nssh-remote+curfew-demo\n"+r.work+"\n" {
		r.t.Errorf("the editor was started with %q", got)
	}
	if got := r.read(real); got != "Include curfew/*.conf\n"+own {
		r.t.Errorf("the configuration is %q", got)
	}
	for file, want := range map[string]os.FileMode{real: 0o640, entry: 0o600} {
		if i, err := os.Stat(file); err != nil || i.Mode().Perm() != want {
			r.t.Errorf("%s has mode %v, %v", file, i.Mode(), err)
		}
	}
	if to, err := os.Readlink(config); err != nil || to != "../dotfile" {
		r.t.Errorf("the link leads to %q, %v", to, err)
	}
	r.nothingOpen(before)
	// ssh does not take ~ from HOME: the tests name the files.
	ssh := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(r.t.Context(), "ssh",
			append([]string{"-F", entry, "-o", "BatchMode=yes", "curfew-demo"},
				args...)...)
		c.Env = r.env
		return c
	}
	var all sync.WaitGroup
	for n := range 3 {
		all.Go(func() {
			c := ssh("cat; echo $SSH_CONNECTION >&2; exit " + strconv.Itoa(n))
			c.Stdin = strings.NewReader("in " + strconv.Itoa(n))
			var out, errs bytes.Buffer
			c.Stdout, c.Stderr = &out, &errs
			if err := c.Run(); c.ProcessState == nil || c.ProcessState.ExitCode() != n ||
				out.String() != "in "+strconv.Itoa(n) {
				r.t.Errorf("ssh %d: %v, %q, %s", n, err, out.String(), errs.String())
			}
		})
	}
	all.Wait()
	// ssh ends its ProxyCommand by a signal and does not wait for it.
	r.eventually("the connections are ended", func() bool { _, open := r.open(); return open == 0 })
	r.eventually("nothing but the entry is there", func() bool {
		files, _ := filepath.Glob(filepath.Join(dir, "curfew", "*"))
		return slices.Equal(files, []string{entry, filepath.Join(dir, "curfew", "curfew-demo.lock")})
	})
	r.eventually("no door is left", func() bool {
		left, _ := os.ReadDir(filepath.Join(r.dir, "tmp"))
		return len(left) == 0
	})
	r.eventually("no record is left", func() bool {
		left, _ := filepath.Glob(filepath.Join(r.dir, "data", "curfew", "connections", "*"))
		return len(left) == 0
	})
	// Another key does not get in: the door takes the one that it was given.
	if c := ssh("true"); c != nil {
		c.Args = append([]string{"ssh", "-o", "IdentityAgent=none"}, c.Args[1:]...)
		if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
			r.t.Errorf("without the key: %v, %s", err, out)
		}
	}
	// The session ends, and the entry with it.
	over := r.s
	over.State, over.EndedAt = session.Ended, time.Now()
	r.put(over)
	if _, errs, code := r.run("connect", "demo"); code != ExitError ||
		!strings.Contains(errs, "session demo is ended") {
		r.t.Errorf("exit %d, %q", code, errs)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "curfew", "*")); len(files) > 0 {
		r.t.Errorf("of the entry are left %q", files)
	}
	if got := r.read(real); got != "Include curfew/*.conf\n"+own {
		r.t.Errorf("the configuration is %q", got)
	}
}
