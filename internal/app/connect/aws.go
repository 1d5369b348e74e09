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

// Bounds of connections.
const (
	openTimeout   = 30 * time.Second // for AWS to open one
	endTimeout    = 20 * time.Second // for AWS to end one
	listenTimeout = time.Minute      // for a forwarded port
	doorTimeout   = 2 * time.Minute  // for a machine to let SSH in
)

// connectorOf is what connects to machines of a region, as the person of the credentials.
func connectorOf(ctx context.Context, a *sessions.Sessions, region string) (*clouds.AWSConnector, error) {
	cloud, err := clouds.OpenAWS(ctx, a.Config, "", []string{region})
	if err != nil {
		return nil, clouds.CloudError(err)
	}
	return cloud.Connector(), nil
}

// reachable is a machine of a session at AWS, and the way there.
type reachable struct {
	all             *sessions.Sessions
	at              *clouds.AWSConnector
	plugin          clouds.AWSPlugin
	s               session.Session
	region, machine string
	environ         []string
	err             io.Writer
	// patience is how long a machine is waited for that is not connected yet.
	patience time.Duration
}

// reachOf finds the way to a machine of a session, for its owner alone.
func reachOf(ctx context.Context, a *sessions.Sessions, s *session.Session, o Options) (*reachable, error) {
	m := s.Machines[o.Node]
	r := &reachable{
		all: a, s: *s, region: cmp.Or(s.Region, m.Pool.Region), machine: m.ID, environ: o.Environ, err: o.Err,
		patience: o.Patience,
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
	if r.at, err = connectorOf(ctx, a, r.region); err != nil {
		return nil, err
	}
	return r, r.mine(ctx)
}

// mine refuses a machine that is not the session's, or whose owner is another person. IAM
// decides the same by the tags; this says it in a line, before anything is opened.
func (r *reachable) mine(ctx context.Context) error {
	who, err := r.at.Person(ctx, r.region)
	if err != nil {
		return clouds.CloudError(err)
	}
	if r.s.Account != "" && who.Account != r.s.Account {
		return &runtime.Error{
			Class: runtime.Usage, Code: "other_account",
			Err: fmt.Errorf("session %s is in account %s, and these credentials are of account %s", r.s.Name, r.s.Account,
				who.Account),
			Hint: "set AWS_PROFILE, or aws.profile in curfew.yaml"}
	}
	whose, err := r.at.Whose(ctx, r.region, r.machine)
	if err != nil {
		return clouds.CloudError(err)
	}
	refuse := func(format string, args ...any) error {
		return &runtime.Error{
			Class: runtime.Denied, Code: "not_yours", Err: fmt.Errorf("connect to "+r.machine+": "+format, args...),
			Hint: "only the owner of a session connects to it",
		}
	}
	switch {
	case whose.Session != r.s.ID:
		return refuse("it is tagged as session %q, not as %s (%s)", whose.Session, r.s.ID, r.s.Name)
	case whose.Person == "":
		return refuse("it has no tag %s, so it has no owner", clouds.TagPerson)
	case sessions.UniqueID.MatchString(whose.Person) && whose.Person != who.ID:
		return refuse("its owner is %s, and these credentials are %s", whose.Person, who.ID)
	case !whose.Running:
		return &runtime.Error{
			Code: "not_running", Err: fmt.Errorf("connect to %s: it does not run", r.machine),
			Hint: "`curfew status " + r.s.Name + "` shows why",
		}
	}
	return nil
}

// open opens a connection, hands it over, and ends it at AWS whatever happens. It is recorded
// before it is asked for, so that whoever comes after a kill ends it.
func (r *reachable) open(ctx context.Context, way clouds.AWSWay, use func(*clouds.AWSOpened) error) (err error) {
	record, err := beginConnection(r.all, r.s.ID, r.region, r.machine)
	if err != nil {
		return err
	}
	defer record.file.Close()
	opened, err := r.opened(ctx, way, record.Key)
	sent := !errors.Is(err, clouds.ErrNotOpened)
	if opened != nil {
		record.ID = opened.ID
		err = cmpErr(err, record.write())
	}
	defer func() {
		// Also when the person interrupted it.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if e := endConnection(end, r.all, r.at, record, sent); e != nil {
			plain.Fprintf(r.err,
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

// unconnectedFor is the time between two looks whether a machine is connected.
const unconnectedFor = 2 * time.Second

// opened asks AWS for a connection, and asks again as long as the machine is waited for. AWS says
// of a machine that is not connected that nothing was opened, so nothing is opened twice.
func (r *reachable) opened(ctx context.Context, way clouds.AWSWay, key string) (*clouds.AWSOpened, error) {
	joining, stop := context.WithTimeout(ctx, r.patience)
	defer stop()
	for {
		limited, cancel := context.WithTimeout(ctx, openTimeout)
		opened, err := r.at.Open(limited, r.region, r.machine, way, key)
		cancel()
		if !errors.Is(err, clouds.ErrUnconnected) {
			return opened, err
		}
		select {
		case <-joining.Done():
			return opened, err
		case <-time.After(unconnectedFor):
		}
	}
}

// attachment is how the plugin is run.
func (r *reachable) attachment() clouds.AWSAttachment {
	return clouds.AWSAttachment{Environ: r.environ}
}

// connectAWS connects to a machine at AWS.
func connectAWS(ctx context.Context, a *sessions.Sessions, s *session.Session, o Options) (int, error) {
	r, err := reachOf(ctx, a, s, o)
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
	case o.Use != nil:
		return 0, r.use(ctx, o)
	case len(o.Command) > 0:
		return r.run(ctx, agentCommand("enter", append([]string{"--"}, o.Command...)...), o.Out)
	}
	return 0, r.shell(ctx, o)
}

// shell gives the person a shell on the machine.
func (r *reachable) shell(ctx context.Context, o Options) error {
	return r.open(ctx, clouds.AWSWay{}, func(opened *clouds.AWSOpened) error {
		at := r.attachment()
		at.In, at.Out, at.Err, at.Terminal, at.Started = o.In, o.Out, o.Err, true, o.Yield
		return r.at.Attach(ctx, r.plugin, opened, at)
	})
}

// agentCommand is a script for the machine's shell that runs a command of its agent, with the
// rights of the agent.
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

// run runs a script on the machine, over a shell connection that AWS records.
func (r *reachable) run(ctx context.Context, script string, out io.Writer) (code int, err error) {
	err = r.open(ctx, clouds.AWSWay{}, func(opened *clouds.AWSOpened) error {
		code, err = r.at.Type(ctx, r.plugin, opened, r.attachment(), script, out)
		return err
	})
	return code, err
}

// forward forwards a port until the person interrupts it. It is open once this machine listens
// on it: the plugin says nothing by its exit code.
func (r *reachable) forward(ctx context.Context, port, local int) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(local)))
	if err != nil {
		return &runtime.Error{
			Class: runtime.Usage, Code: "port_taken", Err: fmt.Errorf("port %d of this machine is taken", local),
			Hint: fmt.Sprintf("name another one: --port %d:%d", port, freeNear(local)),
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	return r.open(ctx, clouds.AWSWay{Port: port, Local: local}, func(opened *clouds.AWSOpened) error {
		forwarding, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		at := r.attachment()
		said := &pluginLines{to: r.err}
		at.Out = said
		go func() {
			if !listens(forwarding, net.JoinHostPort("localhost", strconv.Itoa(local)), listenTimeout) {
				stop(fmt.Errorf("port %d was not forwarded within %s", port, listenTimeout))
				return
			}
			said.open()
			plain.Fprintf(r.err, "port %d of %s is http://localhost:%d here; end with Ctrl-C\n", port, r.s.Name, local)
		}()
		err := r.at.Attach(forwarding, r.plugin, opened, at)
		if cause := context.Cause(forwarding); cause != nil && ctx.Err() == nil {
			return cause
		}
		if err == nil {
			err = errors.New("the machine ended the connection")
			if !said.isOpen() {
				err = fmt.Errorf("port %d was not forwarded: %s", port, cmp.Or(said.last(), "the plugin does not say why"))
			}
		}
		return err
	})
}

// freeNear proposes another port.
func freeNear(port int) int {
	if port < 10000 {
		return port + 10000
	}
	return port - 1000
}

// listens waits until this machine listens at an address.
func listens(ctx context.Context, address string, within time.Duration) bool {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		var d net.Dialer
		if conn, err := d.DialContext(limited, "tcp", address); err == nil {
			conn.Close() //nolint:errcheck // it was only a look
			return true
		}
		select {
		case <-limited.Done():
			return false
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// pluginNoise are lines of the plugin that say nothing to a person who reads curfew's.
var pluginNoise = []string{
	"Starting session with SessionId", "Waiting for connections", "Connection accepted for session",
	"Exiting session with", "Terminate signal received",
}

func isNoise(line string) bool {
	return line == "" || strings.HasPrefix(line, "Port ") && strings.Contains(line, " opened for ") ||
		slices.ContainsFunc(pluginNoise, func(n string) bool { return strings.HasPrefix(line, n) })
}
