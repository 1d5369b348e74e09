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
)

// DoorPrefix begins the line by which a door says where it is: the port, the user, and the host
// key in two words. DoorUsed is the line that says that it was used.
const (
	DoorPrefix = "curfew-ssh "
	DoorUsed   = "curfew-ssh used"
)

// DoorOptions are those of a door.
type DoorOptions struct {
	// Key is the public key that opens it, as a line of authorized_keys: "ssh-ed25519 AAAA…".
	Key string
	// Environ is the environment of this process.
	Environ []string
	// Out takes the lines that say where it is and that it was used.
	Out io.Writer
	// Within is how long it stays open when no one comes; 0: 2 minutes.
	Within time.Duration
}

// doorWithin is how long a door stays open.
const doorWithin = 2 * time.Minute

// visitors is how many connections a door takes until one of them proved its key.
const visitors = 8

// Door lets one SSH connection in: by one key, with a host key made for it, on a port of the
// loopback. Once the key was proven, or in time when no one comes, the port is closed and both
// keys are gone; the connection goes on without the door. Nothing of the machine's own SSH server
// or of its users' keys is touched. It returns when the door is closed.
func Door(ctx context.Context, o DoorOptions) error {
	key, err := doorKey(o.Key)
	if err != nil {
		return err
	}
	sshd, err := findSshd()
	if err != nil {
		return err
	}
	who, err := user.Current()
	if err != nil {
		return fmt.Errorf("open a door for SSH: %w", err)
	}
	dir, err := os.MkdirTemp("", "curfew-ssh-")
	if err != nil {
		return fmt.Errorf("open a door for SSH: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a courtesy: what opens is the port
	d := &door{dir: dir, sshd: sshd, environ: o.Environ}
	host, err := d.prepare(ctx, key, who.Username)
	if err != nil {
		return fmt.Errorf("open a door for SSH: %w", err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("open a door for SSH: %w", err)
	}
	defer l.Close() //nolint:errcheck // it may be closed
	if o.Within <= 0 {
		o.Within = doorWithin
	}
	limited, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	if _, err := fmt.Fprintf(o.Out, "%s%d %s %s\n", DoorPrefix, l.Addr().(*net.TCPAddr).Port, who.Username,
		host); err != nil {
		return err
	}
	if !d.wait(limited, l) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("no one came by SSH within %s", o.Within)
	}
	_, err = fmt.Fprintln(o.Out, DoorUsed)
	return err
}

// doorKey checks a public key: one key of the kind that curfew makes, without options.
func doorKey(line string) (string, error) {
	kind, text, _ := strings.Cut(strings.TrimSpace(line), " ")
	blob, err := base64.StdEncoding.DecodeString(text)
	if kind != "ssh-ed25519" || err != nil || len(blob) != 4+len(kind)+4+32 || string(blob[4:4+len(kind)]) != kind {
		return "", errors.New("open a door for SSH: it takes an ssh-ed25519 public key without options or comment")
	}
	return kind + " " + text, nil
}

// findSshd finds the SSH server, which is not in everyone's PATH.
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

type door struct {
	dir, sshd string
	environ   []string
	mu        sync.Mutex
	came      []*exec.Cmd
}

func (d *door) path(name string) string { return filepath.Join(d.dir, name) }

// prepare writes what the server needs and returns its public host key.
func (d *door) prepare(ctx context.Context, key, who string) (string, error) {
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
		"AllowAgentForwarding no", "X11Forwarding no", "PrintMotd no", "ClientAliveInterval 30", "ClientAliveCountMax 4",
		"Subsystem sftp internal-sftp",
	}
	if set := d.setEnv(); set != "" {
		config = append(config, "SetEnv"+set)
	}
	if os.Geteuid() == 0 {
		if _, err := os.Stat("/etc/pam.d/sshd"); err == nil {
			config = append(config, "UsePAM yes") // a user whose password is locked comes in by key
		}
		// Debian's server asks for this folder, which only its service makes.
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

// setEnv is what a connection by SSH has of this process's environment, which it needs to find the
// agent.
func (d *door) setEnv() (set string) {
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

// wait serves connections until one has proven the key, or ctx ends. Then no other one is left.
func (d *door) wait(ctx context.Context, l net.Listener) bool {
	stop := context.AfterFunc(ctx, func() { l.Close() }) //nolint:errcheck // Accept says it
	defer stop()
	proven := make(chan int, visitors)
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		for n := range visitors {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if err := d.serve(ctx, conn.(*net.TCPConn), n, proven); err != nil {
				return
			}
		}
	}()
	who := -1
	select {
	case who = <-proven:
	case <-ctx.Done():
	}
	l.Close() //nolint:errcheck // no one else comes
	<-refused
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, c := range d.came {
		if n == who {
			_ = c.Process.Release() // it goes on by itself
			continue
		}
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	}
	return who >= 0
}

// serve gives a connection to a server of its own, which outlives this process, and says when
// it has proven the key: the server's log does.
func (d *door) serve(ctx context.Context, conn *net.TCPConn, n int, proven chan<- int) error {
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
	d.came = append(d.came, c)
	d.mu.Unlock()
	go func() {
		for {
			if text, err := os.ReadFile(log); err == nil && strings.Contains(string(text), "Accepted publickey for ") {
				proven <- n
				return
			}
			if pause(ctx, 20*time.Millisecond) != nil {
				return
			}
		}
	}()
	return nil
}
