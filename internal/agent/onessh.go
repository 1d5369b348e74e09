package agent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/wait"
)

// SSHReadyPrefix begins the line with the port, the user and the host key (two words). SSHUsedLine
// reports that a client connected.
const (
	SSHReadyPrefix = "curfew-ssh "
	SSHUsedLine    = "curfew-ssh used"
)

// OneSSHOptions configure ServeOneSSH.
type OneSSHOptions struct {
	// PublicKey is the accepted key, as a line of authorized_keys: "ssh-ed25519 AAAA…".
	PublicKey string
	// Environ is the environment of this process.
	Environ []string
	// Out receives the lines with SSHReadyPrefix and SSHUsedLine.
	Out io.Writer
	// Timeout bounds the wait for a client; 0 means 2 minutes.
	Timeout time.Duration
}

// oneSSHTimeout is the default timeout.
const oneSSHTimeout = 2 * time.Minute

// maxSSHConnections bounds the connections until one of them proves the key.
const maxSSHConnections = 8

// ServeOneSSH accepts one SSH connection with one public key and a new host key, on a loopback
// port. It returns once a client has proven the key or the timeout ends; then the port is closed
// and both keys are deleted, while the connection continues. The machine's own SSH server and keys
// are untouched.
func ServeOneSSH(ctx context.Context, o OneSSHOptions) error {
	key, err := checkPublicKey(o.PublicKey)
	if err != nil {
		return err
	}
	sshd, err := findSshd()
	if err != nil {
		return err
	}
	account, err := user.Current()
	if err != nil {
		return fmt.Errorf("open a door for SSH: %w", err)
	}
	dir, err := os.MkdirTemp("", "curfew-ssh-")
	if err != nil {
		return fmt.Errorf("open a door for SSH: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a courtesy: what opens is the port
	d := &oneSSHServer{dir: dir, sshd: sshd, environ: o.Environ}
	host, err := d.prepare(ctx, key, account.Username)
	if err != nil {
		return fmt.Errorf("open a door for SSH: %w", err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("open a door for SSH: %w", err)
	}
	defer l.Close() //nolint:errcheck // it may be closed already
	if o.Timeout <= 0 {
		o.Timeout = oneSSHTimeout
	}
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if _, err := fmt.Fprintf(o.Out, "%s%d %s %s\n", SSHReadyPrefix, l.Addr().(*net.TCPAddr).Port, account.Username,
		host); err != nil {
		return err
	}
	if !d.serveUntilProven(limited, l) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("no one came by SSH within %s", o.Timeout)
	}
	_, err = fmt.Fprintln(o.Out, SSHUsedLine)
	return err
}

// checkPublicKey accepts an ssh-ed25519 key without options.
func checkPublicKey(line string) (string, error) {
	kind, text, _ := strings.Cut(strings.TrimSpace(line), " ")
	blob, err := base64.StdEncoding.DecodeString(text)
	if kind != "ssh-ed25519" || err != nil || len(blob) != 4+len(kind)+4+32 || string(blob[4:4+len(kind)]) != kind {
		return "", errors.New("open a door for SSH: it takes an ssh-ed25519 public key without options or comment")
	}
	return kind + " " + text, nil
}

// findSshd finds the SSH server, which may not be on the PATH.
func findSshd() (string, error) {
	if path, err := exec.LookPath("sshd"); err == nil {
		return filepath.Abs(path)
	}
	for _, path := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd"} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no sshd on this machine: its image needs openssh-server")
}

type oneSSHServer struct {
	dir, sshd string
	environ   []string
	mu        sync.Mutex
	servers   []*exec.Cmd
}

func (d *oneSSHServer) path(name string) string { return filepath.Join(d.dir, name) }

// prepare writes the server's files and returns its public host key.
func (d *oneSSHServer) prepare(ctx context.Context, key, who string) (string, error) {
	keygen := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", d.path("host"))
	if out, err := keygen.CombinedOutput(); err != nil {
		return "", fmt.Errorf("ssh-keygen: %w: %.200s", err, strings.TrimSpace(string(out)))
	}
	host, err := os.ReadFile(d.path("host.pub"))
	if err != nil {
		return "", err
	}
	config := []string{
		"HostKey " + d.path("host"), "AuthorizedKeysFile " + d.path("keys"), "StrictModes no", "PidFile none",
		"LogLevel INFO",
		"PubkeyAuthentication yes", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"AuthenticationMethods publickey",
		"PermitRootLogin prohibit-password", "AllowUsers " + who, "MaxAuthTries 3", "LoginGraceTime 60", "UseDNS no",
		"AllowAgentForwarding no", "X11Forwarding no", "PrintMotd no", "ClientAliveInterval 30",
		"ClientAliveCountMax 4",
		"Subsystem sftp internal-sftp",
	}
	if set := d.setEnv(); set != "" {
		config = append(config, "SetEnv"+set)
	}
	if os.Geteuid() == 0 {
		if _, err := os.Stat("/etc/pam.d/sshd"); err == nil {
			config = append(config, "UsePAM yes") // lets users with a locked password log in by key
		}
		// Debian's sshd requires this folder, which only its service creates.
		if err := os.Mkdir("/run/sshd", 0o755); err != nil && !errors.Is(err, fs.ErrExist) &&
			!errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	for name, text := range map[string]string{"keys": key + "\n", "config": strings.Join(config, "\n") + "\n"} {
		if err := os.WriteFile(d.path(name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	f := strings.Fields(string(host))
	if len(f) < 2 {
		return "", errors.New("ssh-keygen wrote no public key")
	}
	return f[0] + " " + f[1], nil
}

// setEnv returns the environment variables that an SSH connection needs to find the agent.
func (d *oneSSHServer) setEnv() (set string) {
	if self, err := os.Executable(); err == nil {
		set += fmt.Sprintf(" CURFEW_AGENT=%q", self)
	}
	for _, v := range d.environ {
		if name, value, _ := strings.Cut(v, "="); name == "CURFEW_HOST" {
			set += fmt.Sprintf(" CURFEW_HOST=%q", value)
		}
	}
	return set
}

// serveUntilProven serves connections until one has proven the key or the context ends. It ends all
// others.
func (d *oneSSHServer) serveUntilProven(ctx context.Context, l net.Listener) bool {
	stop := context.AfterFunc(ctx, func() { l.Close() }) //nolint:errcheck // Accept says it
	defer stop()
	proven := make(chan int, maxSSHConnections)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for n := range maxSSHConnections {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if err := d.serve(ctx, conn.(*net.TCPConn), n, proven); err != nil {
				return
			}
		}
	}()
	accepted := -1
	select {
	case accepted = <-proven:
	case <-ctx.Done():
	}
	l.Close() //nolint:errcheck // no one else comes
	<-closed
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, c := range d.servers {
		if n == accepted {
			_ = c.Process.Release() // the server outlives this process
			continue
		}
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	}
	return accepted >= 0
}

// serve hands a connection to its own sshd process, which outlives this one, and reports through
// proven when the sshd log shows an accepted key.
func (d *oneSSHServer) serve(ctx context.Context, conn *net.TCPConn, n int, proven chan<- int) error {
	defer conn.Close() //nolint:errcheck // the server has it
	f, err := conn.File()
	if err != nil {
		return err
	}
	defer f.Close()
	log := d.path(fmt.Sprintf("log-%d", n))
	c := exec.Command(d.sshd, "-i", "-f", d.path("config"), "-E", log) //nolint:noctx // it goes on after this process
	c.Stdin, c.Stdout = f, f
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", d.sshd, err)
	}
	d.mu.Lock()
	d.servers = append(d.servers, c)
	d.mu.Unlock()
	go func() {
		for {
			if text, err := os.ReadFile(log); err == nil && strings.Contains(string(text), "Accepted publickey for ") {
				proven <- n
				return
			}
			if wait.For(ctx, 20*time.Millisecond) != nil {
				return
			}
		}
	}()
	return nil
}
