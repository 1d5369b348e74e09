// Package sshd replaces OpenSSH's server as the agent of a machine starts it for one connection
// (sshd -i -f FILE -E FILE): keys, commands with both outputs, exit codes and signals. Tests then
// need neither a system server nor its users.
package sshd

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"
)

// Main runs the server with its connection on standard input.
func Main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sshd:", err)
		os.Exit(255)
	}
	os.Exit(0)
}

func serve(args []string) error {
	flags := flag.NewFlagSet("sshd", flag.ContinueOnError)
	inetd, file, log := flags.Bool("i", false, ""), flags.String("f", "", ""), flags.String("E", "", "")
	if err := flags.Parse(args); err != nil || !*inetd {
		return fmt.Errorf("it takes -i, -f and -E, not %q: %w", args, err)
	}
	config, env, err := read(*file, *log)
	if err != nil {
		return err
	}
	stream, err := net.FileConn(os.Stdin)
	if err != nil {
		return err
	}
	conn, channels, requests, err := ssh.NewServerConn(stream, config)
	if err != nil {
		return err
	}
	go ssh.DiscardRequests(requests)
	var all sync.WaitGroup
	for c := range channels {
		if c.ChannelType() != "session" {
			_ = c.Reject(ssh.UnknownChannelType, "only sessions") // the client may be gone
			continue
		}
		ch, in, err := c.Accept()
		if err != nil {
			return err
		}
		all.Go(func() { session(ch, in, env) })
	}
	all.Wait()
	return conn.Close()
}

// read parses the configuration that curfew writes.
func read(file, log string) (config *ssh.ServerConfig, env []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	config = &ssh.ServerConfig{}
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "HostKey":
			pem, err := os.ReadFile(rest)
			if err != nil {
				return nil, nil, err
			}
			key, err := ssh.ParsePrivateKey(pem)
			if err != nil {
				return nil, nil, err
			}
			config.AddHostKey(key)
		case "AuthorizedKeysFile":
			lines, err := os.ReadFile(rest)
			if err != nil {
				return nil, nil, err
			}
			key, _, _, _, err := ssh.ParseAuthorizedKey(lines)
			if err != nil {
				return nil, nil, err
			}
			config.PublicKeyCallback = func(_ ssh.ConnMetadata, offered ssh.PublicKey) (*ssh.Permissions, error) {
				if !bytes.Equal(offered.Marshal(), key.Marshal()) {
					return nil, errors.New("another key")
				}
				return nil, nil
			}
		case "SetEnv":
			for rest != "" {
				name, quoted, _ := strings.Cut(rest, "=")
				value, err := strconv.QuotedPrefix(quoted)
				if err != nil {
					return nil, nil, err
				}
				rest = strings.TrimSpace(quoted[len(value):])
				if value, err = strconv.Unquote(value); err != nil {
					return nil, nil, err
				}
				env = append(env, strings.TrimSpace(name)+"="+value)
			}
		}
	}
	config.AuthLogCallback = func(_ ssh.ConnMetadata, method string, err error) {
		if err == nil && method == "publickey" {
			_ = os.WriteFile(log, []byte("Accepted publickey for someone\n"), 0o600) // no one is admitted without it
		}
	}
	return config, env, nil
}

// session runs the command of a session.
func session(ch ssh.Channel, in <-chan *ssh.Request, env []string) {
	defer ch.Close() //nolint:errcheck // the client may have gone
	for r := range in {
		var m struct{ Command string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &m) != nil {
			_ = r.Reply(false, nil) // as above
			continue
		}
		_ = r.Reply(true, nil) // as above
		go ssh.DiscardRequests(in)
		run(ch, m.Command, env)
		return
	}
}

func run(ch ssh.Channel, command string, env []string) {
	//nolint:gosec,noctx // what the client asks for, for as long as it runs
	c := exec.Command("/bin/sh", "-c", command)
	c.Env = append(os.Environ(), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := c.StdinPipe()
	if err != nil {
		return
	}
	var shown sync.WaitGroup
	var ends []*os.File
	for _, to := range []struct {
		of *io.Writer
		ch io.Writer
	}{{&c.Stdout, ch}, {&c.Stderr, ch.Stderr()}} {
		r, w, err := os.Pipe()
		if err != nil {
			return
		}
		*to.of = w
		ends = append(ends, w)
		shown.Go(func() {
			_, _ = io.Copy(to.ch, r) // the client may be gone
			r.Close()
		})
	}
	err = c.Start()
	for _, w := range ends {
		w.Close()
	}
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(stdin, ch) // the command may not read more
		stdin.Close()             //nolint:errcheck // as above
	}()
	_ = c.Wait() // the result is sent below
	status := c.ProcessState.Sys().(syscall.WaitStatus)
	// Like the real server: send the exit code at once, and the end once no one holds the outputs.
	if status.Signaled() {
		_, _ = ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal     string
			CoreDumped bool
			Error      string
			Lang       string
		}{Signal: names[status.Signal()]})) // the client may be gone
	} else {
		// as above
		_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status.ExitStatus())}))
	}
	shown.Wait()
}

var names = map[syscall.Signal]string{
	syscall.SIGKILL: "KILL", syscall.SIGTERM: "TERM", syscall.SIGINT: "INT", syscall.SIGHUP: "HUP",
	syscall.SIGPIPE: "PIPE",
}
