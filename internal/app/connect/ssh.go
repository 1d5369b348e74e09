package connect

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	sshagent "golang.org/x/crypto/ssh/agent"

	"github.com/curfew-dev/curfew/internal/agent"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/durable"
)

// sshDoor is a machine that lets one connection by SSH in.
type sshDoor struct {
	port    int
	user    string
	hostKey ssh.PublicKey
	// used is closed once the connection has proven its key: then the key is gone from the
	// machine.
	used chan struct{}
}

// config is what a client comes in with: its own key, and the one host key that was handed over.
func (d *sshDoor) config(own ssh.Signer) *ssh.ClientConfig {
	return &ssh.ClientConfig{
		User: d.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(own)}, HostKeyCallback: ssh.FixedHostKey(d.hostKey),
		HostKeyAlgorithms: []string{d.hostKey.Type()},
	}
}

// keyPair makes the key of one connection. It is in memory only.
func keyPair() (ed25519.PrivateKey, ssh.Signer, string, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, "", err
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, nil, "", err
	}
	return private, signer, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), nil
}

// throughDoor hands a public key to the machine, over a shell connection, and runs use while
// the machine lets a connection in by it.
func (r *reachable) throughDoor(ctx context.Context, key string, use func(context.Context, *sshDoor) error) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := &doorLines{door: &sshDoor{used: make(chan struct{})}, at: make(chan struct{})}
	type ended struct {
		code int
		err  error
	}
	done := make(chan ended, 1)
	go func() {
		code, err := r.run(within, agentCommand("ssh", key), lines)
		done <- ended{code, err}
	}()
	failed := func(e ended) error {
		if e.err == nil {
			e.err = fmt.Errorf("the machine lets no SSH in: %s", lines.said())
		}
		return e.err
	}
	select {
	case e := <-done:
		return failed(e)
	case <-lines.at:
	case <-time.After(doorTimeout):
		cancel()
		<-done
		return fmt.Errorf("the machine let no SSH in within %s", doorTimeout)
	}
	err := use(ctx, lines.door)
	select {
	case <-lines.door.used:
		<-done // the shell ends by itself
	default:
		cancel()
		if e := <-done; err == nil && e.err == nil && e.code != 0 {
			err = failed(e)
		}
	}
	return err
}

// doorLines reads what the machine says of its door.
type doorLines struct {
	door *sshDoor
	at   chan struct{}

	mu    sync.Mutex
	lines lineBuffer
	words []string
	told  bool
	used  bool
}

// Write implements io.Writer.
func (l *doorLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.add(b, l.line)
	return len(b), nil
}

func (l *doorLines) line(text string) {
	switch {
	case text == agent.SSHUsedLine && !l.used:
		l.used = true
		close(l.door.used)
	case strings.HasPrefix(text, agent.SSHReadyPrefix) && !l.told:
		var kind, key string
		if _, err := fmt.Sscanf(strings.TrimPrefix(text, agent.SSHReadyPrefix), "%d %s %s %s", &l.door.port, &l.door.user,
			&kind,
			&key); err != nil {
			l.words = append(l.words, text)
			return
		}
		public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(kind + " " + key))
		if err != nil {
			l.words = append(l.words, text)
			return
		}
		l.told, l.door.hostKey = true, public
		close(l.at)
	case text != "" && len(l.words) < 20:
		l.words = append(l.words, text)
	}
}

// said is what the machine said besides.
func (l *doorLines) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.words) == 0 {
		return "it does not say why"
	}
	return strings.TrimPrefix(strings.Join(l.words, " "), "curfew: ")
}

// stdio is the ProxyCommand of an entry: its standard input and output are the stream of SSH.
// The key is in memory, and ssh takes it from the agent's socket of the entry. One connection
// at a time has the socket and the file of the host's key; it gives them up once it is
// through.
func (r *reachable) stdio(ctx context.Context, o Options) error {
	e, err := sessions.NewSSHEntry(r.all, r.s.Name, o.Node)
	if err != nil {
		return err
	}
	private, _, public, err := keyPair()
	if err != nil {
		return err
	}
	turn, err := e.Lock(ctx)
	if err != nil {
		return err
	}
	var once sync.Once
	give := func() { once.Do(func() { e.Clean(); turn.Close() }) }
	defer give()
	keys := sshagent.NewKeyring()
	if err := keys.Add(sshagent.AddedKey{
		PrivateKey: private, Comment: "curfew " + r.s.Name, LifetimeSecs: uint32(doorTimeout / time.Second),
	}); err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", e.File(".agent"))
	if err != nil {
		return fmt.Errorf("offer the key of the connection to ssh: %w", err)
	}
	defer l.Close() //nolint:errcheck // it may be closed
	go serveKeys(l, keys)
	return r.throughDoor(ctx, public, func(ctx context.Context, d *sshDoor) error {
		known := e.Alias + " " + string(ssh.MarshalAuthorizedKey(d.hostKey))
		if err := durable.ReplaceBytes(e.File(".known"), 0o600, []byte(known)); err != nil {
			return err
		}
		through, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-d.used:
				l.Close() //nolint:errcheck // it has served
				give()
			case <-through.Done():
			}
		}()
		return r.open(ctx, clouds.AWSWay{SSH: d.port}, func(opened *clouds.AWSOpened) error {
			at := r.attachment()
			at.In, at.Out, at.Err = o.In, o.Out, o.Err
			return r.at.Attach(ctx, r.plugin, opened, at)
		})
	})
}

// serveKeys answers ssh until the socket is closed.
func serveKeys(l net.Listener, keys sshagent.Agent) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()                  //nolint:errcheck // it may be closed
			_ = sshagent.ServeAgent(keys, conn) // its end is an error
		}()
	}
}

// client runs use with an SSH connection of curfew's own to the machine.
func (r *reachable) client(ctx context.Context, use func(context.Context, *ssh.Client) error) error {
	_, signer, public, err := keyPair()
	if err != nil {
		return err
	}
	return r.throughDoor(ctx, public, func(ctx context.Context, d *sshDoor) error {
		return r.open(ctx, clouds.AWSWay{SSH: d.port}, func(opened *clouds.AWSOpened) error {
			attached, stop := context.WithCancel(ctx)
			defer stop()
			in, toPlugin, err := os.Pipe()
			if err != nil {
				return err
			}
			fromPlugin, out, err := os.Pipe()
			if err != nil {
				return err
			}
			ended := make(chan error, 1)
			go func() {
				at := r.attachment()
				at.In, at.Out = in, out
				err := r.at.Attach(attached, r.plugin, opened, at)
				in.Close()
				out.Close()
				ended <- err
			}()
			stream := &pipes{fromPlugin, toPlugin}
			// A stream that says nothing is given up.
			quiet := time.AfterFunc(doorTimeout, func() { _ = stream.Close() })
			conn, channels, requests, err := ssh.NewClientConn(stream, r.machine, d.config(signer))
			quiet.Stop()
			through := err == nil
			if through {
				client := ssh.NewClient(conn, channels, requests)
				// Whoever interrupts it ends the stream, and with it what waits for it.
				cut := context.AfterFunc(ctx, func() { _ = stream.Close() })
				err = use(ctx, client)
				cut()
				_ = client.Close() // its answer is in err
			}
			_ = stream.Close() // the plugin ends where its input does
			select {
			case e := <-ended:
				if !through && e != nil {
					err = e // the plugin says more than its end
				}
			case <-time.After(time.Second):
				stop()
				<-ended //nolint:errcheck // it was told to end
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		})
	})
}

// pipes is the stream of the plugin as a connection.
type pipes struct {
	from, to *os.File
}

func (p *pipes) Read(b []byte) (int, error)  { return p.from.Read(b) }
func (p *pipes) Write(b []byte) (int, error) { return p.to.Write(b) }

// Close ends both directions.
func (p *pipes) Close() error { return errors.Join(p.to.Close(), p.from.Close()) }

func (p *pipes) LocalAddr() net.Addr              { return pipeAddr{} }
func (p *pipes) RemoteAddr() net.Addr             { return pipeAddr{} }
func (p *pipes) SetDeadline(time.Time) error      { return nil }
func (p *pipes) SetReadDeadline(time.Time) error  { return nil }
func (p *pipes) SetWriteDeadline(time.Time) error { return nil }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "session-manager-plugin" }
