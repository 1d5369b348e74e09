package aws_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/ssmplugin"
	"github.com/curfew-dev/curfew/test/wire"
)

// patience bounds waits in these tests, which may run under load.
const patience = 2 * time.Minute

// connecting starts a machine with tags and returns a connector to it.
func connecting(t *testing.T, version string, tags map[string]string) (c *aws.Connector, machine, log string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the stand-in of the plugin makes terminals on Linux only")
	}
	environOf(t, scratch)
	backbone(t)
	log = ssmplugin.Install(t, version)
	in := &ec2.RunInstancesInput{
		ImageId: awssdk.String(launchImage), MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1),
		InstanceType: types.InstanceTypeG6Xlarge,
	}
	if len(tags) > 0 {
		spec := types.TagSpecification{ResourceType: types.ResourceTypeInstance}
		for k, v := range tags {
			spec.Tags = append(spec.Tags, types.Tag{Key: awssdk.String(k), Value: awssdk.String(v)})
		}
		in.TagSpecifications = []types.TagSpecification{spec}
	}
	out, err := ec2.NewFromConfig(scratch.Config(launchRegion)).RunInstances(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := aws.New(t.Context(), aws.Options{Regions: []string{launchRegion}, RequestsPerSecond: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return cloud.Connector(), awssdk.ToString(out.Instances[0].InstanceId), log
}

// opened opens a connection.
func opened(t *testing.T, c *aws.Connector, machine string, way aws.Way) *aws.Opened {
	t.Helper()
	o, err := c.Open(t.Context(), launchRegion, machine, way, "curfew connect "+t.Name())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func plugin(t *testing.T) aws.Plugin {
	t.Helper()
	p, err := aws.FindPlugin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// at returns the connection as AWS has it.
func at(t *testing.T, o *aws.Opened) wire.Connection {
	t.Helper()
	for _, x := range scratch.Wire.Connections.All() {
		if x.ID == o.ID {
			return x
		}
	}
	t.Fatalf("AWS has no connection %s", o.ID)
	return wire.Connection{}
}

// TestTypesCommands checks that a command typed into a shell returns its output byte for byte and
// its exit code, with both ways to pass StartSession's response to the plugin, and that secrets
// appear in arguments only if the plugin needs that.
func TestTypesCommands(t *testing.T) {
	c, machine, log := connecting(t, ssmplugin.New, nil)
	big := strings.Repeat("x", 5000)
	for _, tc := range []struct {
		version, script, want string
		code                  int
	}{
		{ssmplugin.New, "echo out; echo err >&2; exit 7", "out\nerr\n", 7},
		{ssmplugin.New, `printf 'a\000\377\r\nb\033[0m'`, "a\x00\xff\r\nb\x1b[0m", 0},
		{ssmplugin.Old, "cat; echo " + big + "; [ -t 0 ] || echo no input", big + "\nno input\n", 0},
		{ssmplugin.Old, "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exit 1", lines(20000), 1},
	} {
		t.Setenv(ssmplugin.VariableVersion, tc.version)
		o := opened(t, c, machine, aws.Way{})
		if got := at(t, o); got.Document != "curfew-shell" || got.Target != machine ||
			got.Reason != "curfew connect "+t.Name() {
			t.Errorf("opened %+v", got)
		}
		var out bytes.Buffer
		code, err := c.Type(t.Context(), plugin(t), o, aws.Attachment{Environ: os.Environ()}, tc.script, &out)
		if err != nil || code != tc.code || out.String() != tc.want {
			t.Errorf("%.60s: got %.200q, exit code %d, %v", tc.script, out.String(), code, err)
		}
		calls := ssmplugin.Calls(t, log)
		call := calls[len(calls)-1]
		secret := slices.ContainsFunc(call.Args, func(a string) bool { return strings.Contains(a, "token-of-") })
		if secret != (tc.version == ssmplugin.Old) {
			t.Errorf("version %s has the token in its arguments: %v: %q", tc.version, secret, call.Args)
		}
		if call.Args[1] != launchRegion || call.Args[2] != "StartSession" || call.Args[3] != "" ||
			!strings.Contains(call.Args[4], `"Target":"`+machine+`"`) || call.Args[5] != scratch.Wire.URL() {
			t.Errorf("the plugin got %q", call.Args)
		}
		if err := c.Close(t.Context(), launchRegion, o.ID); err != nil || at(t, o).Ended.IsZero() {
			t.Errorf("the connection is not ended: %v", err)
		}
	}
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// TestPluginFailures covers a plugin that ends with exit code 0 after a failure, or hangs on a
// dead stream: neither may look like success, nor last.
func TestPluginFailures(t *testing.T) {
	c, machine, _ := connecting(t, ssmplugin.New, nil)
	for mode, want := range map[string]error{
		ssmplugin.Refuses: aws.ErrRefused, ssmplugin.Silent: aws.ErrRefused, ssmplugin.Hangs: aws.ErrStreamDead,
	} {
		t.Setenv(ssmplugin.VariableMode, mode)
		o := opened(t, c, machine, aws.Way{})
		if mode == ssmplugin.Hangs { // as after a network failure
			if err := c.Close(t.Context(), launchRegion, o.ID); err != nil {
				t.Fatal(err)
			}
		}
		a := aws.Attachment{Environ: os.Environ(), Watch: 100 * time.Millisecond}
		if _, err := c.Type(t.Context(), plugin(t), o, a, "true", io.Discard); !errors.Is(err, want) {
			t.Errorf("a plugin that %s: %v, want %v", mode, err, want)
		}
	}
	// A shell that the plugin refuses is an error, although its exit code does not say so.
	t.Setenv(ssmplugin.VariableMode, ssmplugin.Refuses)
	err := c.Attach(t.Context(), plugin(t), opened(t, c, machine, aws.Way{}),
		aws.Attachment{Environ: os.Environ(), Terminal: true})
	if !errors.Is(err, aws.ErrRefused) || !strings.Contains(err.Error(), "the web socket was closed") {
		t.Errorf("got %v", err)
	}
	// An interrupt ends it even if the plugin hangs.
	t.Setenv(ssmplugin.VariableMode, ssmplugin.Hangs)
	o := opened(t, c, machine, aws.Way{})
	ctx, cancel := context.WithCancel(t.Context())
	err = c.Attach(ctx, plugin(t), o, aws.Attachment{Environ: os.Environ(), Started: cancel})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := aws.FindPlugin(t.Context()); !errors.Is(err, aws.ErrNoPlugin) {
		t.Errorf("got %v", err)
	}
}

// TestForwardedPort checks forwarding by a local port, and by the SSH document over the plugin's
// standard input and output.
func TestForwardedPort(t *testing.T) {
	c, machine, _ := connecting(t, ssmplugin.New, nil)
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() {
		for {
			conn, err := far.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "hello")
			conn.Close()
		}
	}()
	port := far.Addr().(*net.TCPAddr).Port
	o := opened(t, c, machine, aws.Way{SSH: port})
	if got := at(t, o); got.Document != "AWS-StartSSHSession" ||
		fmt.Sprint(got.Parameters["portNumber"]) != fmt.Sprint([]any{strconv.Itoa(port)}) {
		t.Errorf("opened %+v", got)
	}
	var out bytes.Buffer
	if err := c.Attach(t.Context(), plugin(t), o, aws.Attachment{Environ: os.Environ(), Out: &out}); err != nil ||
		!strings.HasSuffix(out.String(), "hello") {
		t.Errorf("got %q, %v", out.String(), err)
	}

	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	local := free.Addr().(*net.TCPAddr).Port
	free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	o = opened(t, c, machine, aws.Way{Port: port, Local: local})
	p := plugin(t)
	go func() { ended <- c.Attach(ctx, p, o, aws.Attachment{Environ: os.Environ()}) }()
	got := ""
	for start := time.Now(); got != "hello" && time.Since(start) < patience; time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("tcp", net.JoinHostPort("localhost", strconv.Itoa(local))); err == nil {
			text, _ := io.ReadAll(conn)
			got = string(text)
			conn.Close()
		}
	}
	if got != "hello" {
		t.Errorf("the forwarded port says %q", got)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestReadsOwnerAndLeftoverConnections reads the owner of a machine, and the connections left by a
// killed process.
func TestReadsOwnerAndLeftoverConnections(t *testing.T) {
	c, machine, _ := connecting(t, ssmplugin.New, map[string]string{
		inventory.TagSession: "s1", aws.TagPerson: "AIDAANA",
	})
	got, err := c.Whose(t.Context(), launchRegion, machine)
	if want := (aws.Whose{Session: "s1", Person: "AIDAANA", Running: true}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := c.Whose(t.Context(), launchRegion, "i-0123456789abcdef0"); err == nil {
		t.Error("a machine that is not there is someone's")
	}
	if who, err := c.Person(t.Context(), launchRegion); err != nil || who.ID == "" || who.Account == "" {
		t.Errorf("got %+v, %v", who, err)
	}
	// Found by the reason only, because the ID is unknown.
	o := opened(t, c, machine, aws.Way{})
	left, err := c.Left(t.Context(), launchRegion, machine, "curfew connect "+t.Name())
	if err != nil || !slices.Equal(left, []string{o.ID}) {
		t.Errorf("left are %v, %v", left, err)
	}
	if left, err := c.Left(t.Context(), launchRegion, machine, "curfew connect other"); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	for range 2 { // the second time it has already ended
		if err := c.Close(t.Context(), launchRegion, o.ID); err != nil {
			t.Error(err)
		}
	}
	if left, err := c.Left(t.Context(), launchRegion, machine, "curfew connect "+t.Name()); err != nil ||
		len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if err := c.Close(t.Context(), launchRegion, "session-0"); err != nil {
		t.Error(err)
	}
	// A stopped machine accepts no connection, and AWS confirms that nothing was opened.
	if _, err := ec2.NewFromConfig(scratch.Config(launchRegion)).StopInstances(t.Context(),
		&ec2.StopInstancesInput{InstanceIds: []string{machine}}); err != nil {
		t.Fatal(err)
	}
	_, err = c.Open(t.Context(), launchRegion, machine, aws.Way{}, "x")
	if !errors.Is(err, aws.ErrUnconnected) || !errors.Is(err, aws.ErrNotOpened) {
		t.Errorf("got %v", err)
	}
}
