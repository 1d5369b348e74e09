package agent

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
)

// TestFindsConnections uses real processes: Systems Manager workers with a terminal, with a stream
// to an SSH server or a port, and with none, and the same without Systems Manager.
func TestFindsConnections(t *testing.T) {
	for _, name := range []string{"bash", "script"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("there is no " + name)
		}
	}
	dir := t.TempDir()
	for name, to := range map[string]string{"ssm-session-worker": "bash", "sshd": "sleep"} {
		path, err := exec.LookPath(to)
		must(t, err)
		must(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	started := map[int]bool{}
	start := func(c *exec.Cmd) {
		t.Helper()
		c.Dir = dir
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must(t, c.Start())
		started[c.Process.Pid] = true
		t.Cleanup(func() {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			_ = c.Wait()
		})
	}
	// workerOf starts a worker whose connection is named after its program file.
	workerOf := func(id, program string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, id), []byte(program+"\n"), 0o600))
		start(exec.Command("./ssm-session-worker", id))
	}
	listener := func() (*net.TCPListener, string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { l.Close() })
		return l.(*net.TCPListener), strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	page, pagePort := listener()
	ssh, sshPort := listener()
	workerOf("ana-shell", `script -qec "sleep 1000" /dev/null </dev/null >/dev/null; true`)
	workerOf("ana-port", "exec 3<>/dev/tcp/127.0.0.1/"+pagePort+"; sleep 1000; true")
	workerOf("ana-ssh", "exec 3<>/dev/tcp/127.0.0.1/"+sshPort+"; sleep 1000; true")
	workerOf("ana-quiet", "sleep 1000; true")
	served, err := page.Accept()
	must(t, err)
	t.Cleanup(func() { served.Close() })
	// An SSH server serves a stream through Systems Manager and one from the network.
	direct, err := net.Dial("tcp", "127.0.0.1:"+sshPort)
	must(t, err)
	t.Cleanup(func() { direct.Close() })
	for range 2 {
		conn, err := ssh.AcceptTCP()
		must(t, err)
		f, err := conn.File()
		must(t, err)
		c := exec.Command("./sshd", "1000")
		c.ExtraFiles = []*os.File{f}
		start(c)
		f.Close()
		conn.Close()
	}
	look := func(up time.Duration, s *sampler) []string {
		t.Helper()
		all, err := allProcesses()
		must(t, err)
		now := map[int]process{}
		for grew := true; grew; { // processes started by this test
			grew = false
			for _, p := range all {
				if _, has := now[p.pid]; !has && (started[p.pid] || now[p.parent].pid != 0) {
					now[p.pid], grew = p, true
				}
			}
		}
		socks, err := connections()
		must(t, err)
		var got []string
		for _, c := range s.findConnections(now, socks, up) {
			if c.Since.IsZero() {
				t.Errorf("%s from %s has no beginning", c.Kind, c.Source)
			}
			got = append(got, c.Kind+" "+c.Source)
		}
		return got
	}
	s := &sampler{options: &Options{Now: time.Now}}
	_, up := bootTime()
	want := []string{
		"port ana-port", "port ana-quiet", "shell ana-shell", "ssh " + direct.LocalAddr().String(), "ssh ana-ssh",
	}
	var got []string
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) { // a worker needs time to start
		if got = look(up+time.Hour, s); slices.Equal(got, want) {
			break
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("the agent sees %q, want %q", got, want)
		}
	}
	// Since is the first observation.
	first := s.connectionsSince["ssh ana-ssh"]
	if look(up+time.Hour, s); !s.connectionsSince["ssh ana-ssh"].Equal(first) {
		t.Error("a connection that is seen again has a new beginning")
	}
	// A new worker is not classified yet.
	if got := look(0, &sampler{options: &Options{Now: time.Now}}); slices.Contains(got, "port ana-quiet") {
		t.Errorf("the agent sees %q at once", got)
	}
	// Without Systems Manager, only the session's ports count.
	byPort := &sampler{
		options: &Options{Now: time.Now, Host: session.HostConfig{Ports: []int{page.Addr().(*net.TCPAddr).Port}}},
	}
	near, err := net.Dial("tcp", "127.0.0.1:"+pagePort)
	must(t, err)
	defer near.Close()
	if got := look(up+time.Hour, byPort); !slices.Contains(got, "port "+near.LocalAddr().String()) ||
		len(got) != len(want)+1 {
		t.Errorf("the agent sees %q", got)
	}
}

func TestOneSSHChecksKey(t *testing.T) {
	const good = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJes1j3bA5mozt4b7HfojNOjOIjGsFBcXcQ//kTxUufW"
	if got, err := checkPublicKey(good + "\n"); err != nil || got != good {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{
		"", "ssh-ed25519", "ssh-rsa " + strings.Fields(good)[1], good + " ana@laptop", `command="sh" ` + good,
		good + "\n" + good, "ssh-ed25519 AAAA", "ssh-rsa " + good,
	} {
		if got, err := checkPublicKey(bad); err == nil {
			t.Errorf("%q is taken as %q", bad, got)
		}
	}
}

// TestOneSSHTimesOut checks that the port closes when no client comes, that nothing opens without
// sshd, and that no files remain.
func TestOneSSHTimesOut(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJes1j3bA5mozt4b7HfojNOjOIjGsFBcXcQ//kTxUufW"
	t.Setenv("TMPDIR", t.TempDir())
	if _, err := findSshd(); err != nil {
		t.Skip(err)
	}
	var out strings.Builder
	err := ServeOneSSH(t.Context(), OneSSHOptions{PublicKey: key, Out: &out, Timeout: 100 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "no one came by SSH") ||
		!strings.HasPrefix(out.String(), SSHReadyPrefix) || strings.Contains(out.String(), SSHUsedLine) {
		t.Errorf("got %v, %q", err, out.String())
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if err := ServeOneSSH(t.Context(), OneSSHOptions{PublicKey: "x", Out: io.Discard}); err == nil {
		t.Error("a door without a key opens")
	}
}
