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

// sshEndpoint is a machine that accepts one SSH connection.
type sshEndpoint struct {
	port    int
	user    string
	hostKey ssh.PublicKey
	// used is closed once the client has proven its key and the machine has removed it.
	used chan struct{}
}

// config returns a client configuration with the own key and the one expected host key.
func (d *sshEndpoint) config(own ssh.Signer) *ssh.ClientConfig {
	return &ssh.ClientConfig{
		User: d.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(own)}, HostKeyCallback: ssh.FixedHostKey(d.hostKey),
		HostKeyAlgorithms: []string{d.hostKey.Type()},
	}
}

// keyPair generates an in-memory key for one connection.
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

// withOneSSH passes a public key to the machine over a shell connection and runs use while the
// machine accepts a connection with it.
func (r *awsMachine) withOneSSH(ctx context.Context, key string, use func(context.Context, *sshEndpoint) error) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := &readyParser{endpoint: &sshEndpoint{used: make(chan struct{})}, ready: make(chan struct{})}
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
			e.err = fmt.Errorf("the machine lets no SSH in: %s", lines.otherOutput())
		}
		return e.err
	}
	select {
	case e := <-done:
		return failed(e)
	case <-lines.ready:
	case <-time.After(oneSSHTimeout):
		cancel()
		<-done
		return fmt.Errorf("the machine let no SSH in within %s", oneSSHTimeout)
	}
	err := use(ctx, lines.endpoint)
	select {
	case <-lines.endpoint.used:
		<-done // the shell ends by itself
	default:
		cancel()
		if e := <-done; err == nil && e.err == nil && e.code != 0 {
			err = failed(e)
		}
	}
	return err
}

// readyParser parses the machine's lines about its SSH endpoint.
type readyParser struct {
	endpoint *sshEndpoint
	ready    chan struct{}

	mu        sync.Mutex
	lines     lineBuffer
	words     []string
	announced bool
	used      bool
}

// Write implements io.Writer.
func (l *readyParser) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.add(b, l.line)
	return len(b), nil
}

func (l *readyParser) line(text string) {
	switch {
	case text == agent.SSHUsedLine && !l.used:
		l.used = true
		close(l.endpoint.used)
	case strings.HasPrefix(text, agent.SSHReadyPrefix) && !l.announced:
		var kind, key string
		if _, err := fmt.Sscanf(strings.TrimPrefix(text, agent.SSHReadyPrefix), "%d %s %s %s", &l.endpoint.port,
			&l.endpoint.user,
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
		l.announced, l.endpoint.hostKey = true, public
		close(l.ready)
	case text != "" && len(l.words) < 20:
		l.words = append(l.words, text)
	}
}

// otherOutput returns the machine's other output.
func (l *readyParser) otherOutput() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.words) == 0 {
		return "it does not say why"
	}
	return strings.TrimPrefix(strings.Join(l.words, " "), "curfew: ")
}

// stdio is the ProxyCommand of an entry: standard input and output are the SSH stream. The key
// stays in memory and ssh uses it through the entry's agent socket. One connection at a time owns
// the socket and the host key file, until it is established.
func (r *awsMachine) stdio(ctx context.Context, o Options) error {
	e, err := sessions.NewSSHEntry(r.sessions, r.session.Name, o.Node)
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
		PrivateKey: private, Comment: "curfew " + r.session.Name, LifetimeSecs: uint32(oneSSHTimeout / time.Second),
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
	return r.withOneSSH(ctx, public, func(ctx context.Context, d *sshEndpoint) error {
		known := e.Alias + " " + string(ssh.MarshalAuthorizedKey(d.hostKey))
		if err := durable.ReplaceBytes(e.File(".known"), 0o600, []byte(known)); err != nil {
			return err
		}
		through, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-d.used:
				l.Close() //nolint:errcheck // it has served its purpose
				give()
			case <-through.Done():
			}
		}()
		return r.open(ctx, clouds.AWSWay{SSH: d.port}, func(opened *clouds.AWSOpened) error {
			at := r.attachment()
			at.In, at.Out, at.Err = o.In, o.Out, o.Err
			return r.connector.Attach(ctx, r.plugin, opened, at)
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
			_ = sshagent.ServeAgent(keys, conn) // it always ends with an error
		}()
	}
}

// withSSHClient runs use with curfew's own SSH connection to the machine.
func (r *awsMachine) withSSHClient(ctx context.Context, use func(context.Context, *ssh.Client) error) error {
	_, signer, public, err := keyPair()
	if err != nil {
		return err
	}
	return r.withOneSSH(ctx, public, func(ctx context.Context, d *sshEndpoint) error {
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
				err := r.connector.Attach(attached, r.plugin, opened, at)
				in.Close()
				out.Close()
				ended <- err
			}()
			stream := &pipeConn{fromPlugin, toPlugin}
			// A stream without data times out.
			quiet := time.AfterFunc(oneSSHTimeout, func() { _ = stream.Close() })
			conn, channels, requests, err := ssh.NewClientConn(stream, r.machineID, d.config(signer))
			quiet.Stop()
			through := err == nil
			if through {
				client := ssh.NewClient(conn, channels, requests)
				// An interrupt ends the stream and everything that waits for it.
				cut := context.AfterFunc(ctx, func() { _ = stream.Close() })
				err = use(ctx, client)
				cut()
				_ = client.Close() // err has its result
			}
			_ = stream.Close() // the plugin ends when its input does
			select {
			case e := <-ended:
				if !through && e != nil {
					err = e // the plugin's error is more specific
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

// pipeConn is the plugin's stream as a net.Conn.
type pipeConn struct {
	from, to *os.File
}

func (p *pipeConn) Read(b []byte) (int, error)  { return p.from.Read(b) }
func (p *pipeConn) Write(b []byte) (int, error) { return p.to.Write(b) }

// Close closes both directions.
func (p *pipeConn) Close() error { return errors.Join(p.to.Close(), p.from.Close()) }

func (p *pipeConn) LocalAddr() net.Addr              { return pipeAddr{} }
func (p *pipeConn) RemoteAddr() net.Addr             { return pipeAddr{} }
func (p *pipeConn) SetDeadline(time.Time) error      { return nil }
func (p *pipeConn) SetReadDeadline(time.Time) error  { return nil }
func (p *pipeConn) SetWriteDeadline(time.Time) error { return nil }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "session-manager-plugin" }
