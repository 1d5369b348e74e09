package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/host"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

// Timeouts of connections.
const (
	openTimeout   = 30 * time.Second // until AWS opens a connection
	endTimeout    = 20 * time.Second // until AWS ends a connection
	listenTimeout = time.Minute      // until a forwarded port listens
	oneSSHTimeout = 2 * time.Minute  // until a machine accepts SSH
)

// openConnector returns the connector to machines of a region, with the person's credentials.
func openConnector(ctx context.Context, a *sessions.Sessions, region string) (*clouds.AWSConnector, error) {
	cloud, err := clouds.OpenAWS(ctx, a.Config, "", []string{region})
	if err != nil {
		return nil, clouds.CloudError(err)
	}
	return cloud.Connector(), nil
}

// awsMachine is a session's machine at AWS with the means to reach it.
type awsMachine struct {
	sessions          *sessions.Sessions
	connector         *clouds.AWSConnector
	plugin            clouds.AWSPlugin
	session           session.Session
	region, machineID string
	environ           []string
	messages          io.Writer
	// joinTimeout is how long to wait for a machine that is not connected yet.
	joinTimeout time.Duration
}

// findAWSMachine returns a machine of a session, for its owner only.
func findAWSMachine(ctx context.Context, a *sessions.Sessions, s *session.Session, o Options) (*awsMachine, error) {
	m := s.Machines[o.Node]
	r := &awsMachine{
		sessions: a, session: *s, region: cmp.Or(s.Region, m.Pool.Region), machineID: m.ID, environ: o.Environ,
		messages:    o.Err,
		joinTimeout: o.JoinTimeout,
	}
	who, err := a.Request.Person(a.Config)
	if err != nil {
		return nil, err
	}
	if owner := cmp.Or(s.Owner.User, s.RequestedBy); owner != who && s.RequestedBy != who {
		return nil, &runtime.Error{
			Class: runtime.Denied, Code: "not_yours",
			Err:  fmt.Errorf("session %s is %s's: only its owner connects to it", s.Name, owner),
			Hint: "`curfew whoami` shows who you are",
		}
	}
	if r.plugin, err = clouds.FindPlugin(ctx); errors.Is(err, clouds.ErrNoPlugin) {
		return nil, sessions.MissingPlugin("connect")
	} else if err != nil {
		return nil, err
	}
	if r.connector, err = openConnector(ctx, a, r.region); err != nil {
		return nil, err
	}
	return r, r.checkOwner(ctx)
}

// checkOwner refuses a machine of another session or owner. IAM enforces the same by tags; this
// check gives a clear message before anything is opened.
func (r *awsMachine) checkOwner(ctx context.Context) error {
	who, err := r.connector.Person(ctx, r.region)
	if err != nil {
		return clouds.CloudError(err)
	}
	if r.session.Account != "" && who.Account != r.session.Account {
		return &runtime.Error{
			Class: runtime.Usage, Code: "other_account",
			Err: fmt.Errorf("session %s is in account %s, and these credentials are of account %s", r.session.Name,
				r.session.Account,
				who.Account),
			Hint: "set AWS_PROFILE, or aws.profile in curfew.yaml"}
	}
	whose, err := r.connector.Whose(ctx, r.region, r.machineID)
	if err != nil {
		return clouds.CloudError(err)
	}
	refuse := func(format string, args ...any) error {
		return &runtime.Error{
			Class: runtime.Denied, Code: "not_yours", Err: fmt.Errorf("connect to "+r.machineID+": "+format, args...),
			Hint: "only the owner of a session connects to it",
		}
	}
	switch {
	case whose.Session != r.session.ID:
		return refuse("it is tagged as session %q, not as %s (%s)", whose.Session, r.session.ID, r.session.Name)
	case whose.Person == "":
		return refuse("it has no tag %s, so it has no owner", clouds.TagPerson)
	case sessions.UniqueID.MatchString(whose.Person) && whose.Person != who.ID:
		return refuse("its owner is %s, and these credentials are %s", whose.Person, who.ID)
	case !whose.Running:
		return &runtime.Error{
			Code: "not_running", Err: fmt.Errorf("connect to %s: it does not run", r.machineID),
			Hint: "`curfew status " + r.session.Name + "` shows why",
		}
	}
	return nil
}

// open opens a connection, passes it to use, and always ends it at AWS. It is recorded first, so
// that a later process can end it after a kill.
func (r *awsMachine) open(ctx context.Context, way clouds.AWSWay, use func(*clouds.AWSOpened) error) (err error) {
	record, err := beginConnection(r.sessions, r.session.ID, r.region, r.machineID)
	if err != nil {
		return err
	}
	defer record.file.Close()
	opened, err := r.openWithRetry(ctx, way, record.Key)
	sent := !errors.Is(err, clouds.ErrNotOpened)
	if opened != nil {
		record.ID = opened.ID
		err = firstError(err, record.write())
	}
	defer func() {
		// end it even after an interrupt
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if e := endConnection(end, r.sessions, r.connector, record, sent); e != nil {
			plain.Fprintf(r.messages,
				"curfew: the connection is not ended at AWS yet: %v; the next `curfew connect` or `curfew down` ends it\n", e)
		}
	}()
	if errors.Is(err, clouds.ErrUnconnected) {
		return &runtime.Error{
			Code: "not_connected", Err: err,
			Hint: "a machine that has just started needs a minute; its image needs the agent of Systems Manager",
		}
	}
	if err != nil {
		return clouds.CloudError(err)
	}
	err = use(opened)
	if errors.Is(err, clouds.ErrNoPlugin) {
		return sessions.MissingPlugin("connect")
	}
	return err
}

// retryInterval is the time between attempts to reach an unconnected machine.
const retryInterval = 2 * time.Second

// openWithRetry opens a connection, retrying while the machine is not connected. AWS reports that
// nothing was opened in that case, so nothing is opened twice.
func (r *awsMachine) openWithRetry(ctx context.Context, way clouds.AWSWay, key string) (*clouds.AWSOpened, error) {
	joining, stop := context.WithTimeout(ctx, r.joinTimeout)
	defer stop()
	for {
		limited, cancel := context.WithTimeout(ctx, openTimeout)
		opened, err := r.connector.Open(limited, r.region, r.machineID, way, key)
		cancel()
		if !errors.Is(err, clouds.ErrUnconnected) {
			return opened, err
		}
		select {
		case <-joining.Done():
			return opened, err
		case <-time.After(retryInterval):
		}
	}
}

// attachment returns the settings for running the plugin.
func (r *awsMachine) attachment() clouds.AWSAttachment {
	return clouds.AWSAttachment{Environ: r.environ}
}

// connectAWS connects to a machine at AWS.
func connectAWS(ctx context.Context, a *sessions.Sessions, s *session.Session, o Options) (int, error) {
	r, err := findAWSMachine(ctx, a, s, o)
	if err != nil {
		return 0, err
	}
	switch {
	case o.Port > 0:
		return 0, r.forward(ctx, o.Port, cmp.Or(o.Local, o.Port))
	case o.Stdio:
		return 0, r.stdio(ctx, o)
	case o.Editor != "":
		return 0, r.editor(ctx, o)
	case o.UseMachine != nil:
		return 0, r.useMachine(ctx, o)
	case len(o.Command) > 0:
		return r.run(ctx, agentCommand("enter", append([]string{"--"}, o.Command...)...), o.Out)
	}
	return 0, r.shell(ctx, o)
}

// shell opens a shell on the machine.
func (r *awsMachine) shell(ctx context.Context, o Options) error {
	return r.open(ctx, clouds.AWSWay{}, func(opened *clouds.AWSOpened) error {
		at := r.attachment()
		at.In, at.Out, at.Err, at.Terminal, at.Started = o.In, o.Out, o.Err, true, o.YieldTerminal
		return r.connector.Attach(ctx, r.plugin, opened, at)
	})
}

// agentCommand returns a shell script that runs an agent command with the agent's privileges.
func agentCommand(verb string, args ...string) string {
	words := make([]string, len(args))
	for i, word := range args {
		words[i] = plain.Shell(word)
	}
	return `if [ -r "${CURFEW_HOST:-` + host.DefaultHostFile + `}" ]; then s=; else s="sudo -n"; fi
c=${CURFEW_AGENT:-/usr/local/lib/curfew/curfew}
$s test -x "$c" || c=$(command -v curfew) || { echo "the machine has no curfew" >&2; exit 127; }
exec $s "$c" agent ` + verb + " " + strings.Join(words, " ") + "\n"
}

// run runs a script on the machine over a shell connection, which AWS records.
func (r *awsMachine) run(ctx context.Context, script string, out io.Writer) (code int, err error) {
	err = r.open(ctx, clouds.AWSWay{}, func(opened *clouds.AWSOpened) error {
		code, err = r.connector.Type(ctx, r.plugin, opened, r.attachment(), script, out)
		return err
	})
	return code, err
}

// forward forwards a port until it is interrupted. Success means that the local port listens,
// because the plugin's exit code is no evidence.
func (r *awsMachine) forward(ctx context.Context, port, local int) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(local)))
	if err != nil {
		return &runtime.Error{
			Class: runtime.Usage, Code: "port_taken", Err: fmt.Errorf("port %d of this machine is taken", local),
			Hint: fmt.Sprintf("name another one: --port %d:%d", port, suggestPort(local)),
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	return r.open(ctx, clouds.AWSWay{Port: port, Local: local}, func(opened *clouds.AWSOpened) error {
		forwarding, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		at := r.attachment()
		said := &pluginLines{to: r.messages}
		at.Out = said
		go func() {
			if !waitForListener(forwarding, net.JoinHostPort("localhost", strconv.Itoa(local)), listenTimeout) {
				stop(fmt.Errorf("port %d was not forwarded within %s", port, listenTimeout))
				return
			}
			said.setOpen()
			plain.Fprintf(r.messages,
				"port %d of %s is http://localhost:%d here; end with Ctrl-C\n", port, r.session.Name,
				local)
		}()
		err := r.connector.Attach(forwarding, r.plugin, opened, at)
		if cause := context.Cause(forwarding); cause != nil && ctx.Err() == nil {
			return cause
		}
		if err == nil {
			err = errors.New("the machine ended the connection")
			if !said.isOpen() {
				err = fmt.Errorf("port %d was not forwarded: %s", port,
					cmp.Or(said.last(), "the plugin does not say why"))
			}
		}
		return err
	})
}

// suggestPort suggests another local port.
func suggestPort(port int) int {
	if port < 10000 {
		return port + 10000
	}
	return port - 1000
}

// waitForListener waits until a local address accepts connections.
func waitForListener(ctx context.Context, address string, within time.Duration) bool {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		var d net.Dialer
		if conn, err := d.DialContext(limited, "tcp", address); err == nil {
			conn.Close() //nolint:errcheck // only a probe
			return true
		}
		select {
		case <-limited.Done():
			return false
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// pluginNoise are plugin messages that curfew replaces by its own.
var pluginNoise = []string{
	"Starting session with SessionId", "Waiting for connections", "Connection accepted for session",
	"Exiting session with", "Terminate signal received",
}

func isNoise(line string) bool {
	return line == "" || strings.HasPrefix(line, "Port ") && strings.Contains(line, " opened for ") ||
		slices.ContainsFunc(pluginNoise, func(n string) bool { return strings.HasPrefix(line, n) })
}
