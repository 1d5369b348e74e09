// Package ssmplugin replaces the Session Manager plugin of AWS: it accepts the arguments of the
// real one, in the form of its version, and connects to this machine. Like the real one it exits
// with code 0 even if it could not connect.
package ssmplugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Environment variables by which tests control it.
const (
	// variableRun turns a test binary into the plugin.
	variableRun = "CURFEW_TEST_PLUGIN"
	// VariableVersion is the version that it reports.
	VariableVersion = "CURFEW_TEST_PLUGIN_VERSION"
	// VariableMode selects a fault, one of the modes.
	VariableMode = "CURFEW_TEST_PLUGIN_MODE"
	// VariableShell is a program that replaces the shell of a machine and receives the machine's
	// id; empty uses the shell of this machine.
	VariableShell = "CURFEW_TEST_PLUGIN_SHELL"
	// VariableLog is a file that receives a JSON line, a [Call], for each run.
	VariableLog = "CURFEW_TEST_PLUGIN_LOG"
	// responseVariable is a variable of the real plugin.
	responseVariable = "AWS_SSM_START_SESSION_RESPONSE"
)

// The modes.
const (
	Refuses = "refuses" // fails to connect
	Silent  = "silent"  // exits at once without output
	Hangs   = "hangs"   // has a dead stream and waits
)

// Versions with the two ways to receive the response of StartSession.
const (
	Old = "1.2.497.0"
	New = "1.2.707.0"
)

// Call is one run of the plugin.
type Call struct {
	Args     []string
	Response map[string]string
	PID      int
}

// Run is for TestMain: it runs the plugin and does not return if the test binary was started as the
// plugin.
func Run() {
	if os.Getenv(variableRun) != "" {
		Main()
	}
}

// Install adds the plugin to PATH for a test whose TestMain calls [Run]. It returns the file with
// its calls.
func Install(tb testing.TB, version string) string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	script := "#!/bin/sh\n" + variableRun + "=1 exec '" + self + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "session-manager-plugin"), []byte(script),
		0o755); err != nil {
		tb.Fatal(err)
	}
	log := filepath.Join(dir, "log")
	tb.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	tb.Setenv(VariableVersion, version)
	tb.Setenv(VariableLog, log)
	return log
}

// Calls returns the calls in a log.
func Calls(tb testing.TB, log string) (calls []Call) {
	tb.Helper()
	f, err := os.Open(log)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for d := json.NewDecoder(f); d.More(); {
		var c Call
		if err := d.Decode(&c); err != nil {
			tb.Fatal(err)
		}
		calls = append(calls, c)
	}
	return calls
}

// Main runs the plugin.
func Main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(cmp.Or(os.Getenv(VariableVersion), New))
		os.Exit(0)
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "Cannot perform start session: %v\n", err)
	}
	os.Exit(0)
}

func run(args []string) error {
	if len(args) != 6 || args[2] != "StartSession" {
		return fmt.Errorf("it takes six arguments, not %q", args)
	}
	answer := args[0]
	if strings.HasPrefix(answer, responseVariable) && os.Getenv(VariableVersion) != Old {
		answer = os.Getenv(args[0])
	}
	c := Call{Args: args, PID: os.Getpid()}
	if err := json.Unmarshal([]byte(answer), &c.Response); err != nil {
		return err
	}
	var request struct {
		Target, DocumentName string
		Parameters           map[string][]string
	}
	if err := json.Unmarshal([]byte(args[4]), &request); err != nil || request.Target == "" {
		return fmt.Errorf("the request is %q: %w", args[4], err)
	}
	if err := note(c); err != nil {
		return err
	}
	if c.Response["TokenValue"] != "token-of-"+c.Response["SessionId"] ||
		!strings.HasPrefix(c.Response["StreamUrl"], "wss://ssmmessages."+args[1]) {
		return fmt.Errorf("the token or the address of the stream is wrong: %q", c.Response)
	}
	fmt.Printf("\nStarting session with SessionId: %s\n", c.Response["SessionId"])
	switch os.Getenv(VariableMode) {
	case Refuses:
		return errors.New("the web socket was closed")
	case Silent:
		return nil
	case Hangs:
		// The real one only handles signals once the stream has begun. Go ends a program that waits
		// for nothing.
		for {
			time.Sleep(time.Hour)
		}
	}
	first := func(name string) string {
		if v := request.Parameters[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	switch request.DocumentName {
	case "AWS-StartPortForwardingSession":
		return forward(first("portNumber"), first("localPortNumber"), c.Response["SessionId"])
	case "AWS-StartSSHSession":
		return stream(first("portNumber"))
	case "":
		return errors.New("no document is named")
	}
	return shell(request.Target)
}

func note(c Call) error {
	name := os.Getenv(VariableLog)
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return json.NewEncoder(f).Encode(c)
}

// stream connects the standard input and output to a port of the machine.
func stream(port string) error {
	conn, err := net.Dial("tcp", "127.0.0.1:"+port) //nolint:noctx // it lives as long as the process
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin) // the end of the input ends the stream
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// forward listens on a local port and connects to one of the machine.
func forward(port, local, id string) error {
	l, err := net.Listen("tcp", "localhost:"+local) //nolint:noctx // it lives as long as the process
	if err != nil {
		return err
	}
	fmt.Printf("Port %s opened for sessionId %s.\nWaiting for connections...\n", local, id)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	go func() {
		<-signals
		fmt.Println("Terminate signal received, exiting.")
		os.Exit(0)
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()                             //nolint:errcheck // one of two ends
			far, err := net.Dial("tcp", "127.0.0.1:"+port) //nolint:noctx // it lives as long as the process
			if err != nil {
				fmt.Printf("\nConnection to destination port failed, check SSM Agent logs.\n")
				return
			}
			defer far.Close() //nolint:errcheck // one of two ends
			go func() {
				_, _ = io.Copy(far, conn)
				_ = far.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(conn, far)
		}()
	}
}

// shell runs a shell on a separate terminal, like the agent of a machine.
func shell(target string) error {
	master, slave, err := openPTY()
	if err != nil {
		return err
	}
	c := exec.Command("sh") //nolint:noctx // it lives as long as the process
	if program := os.Getenv(VariableShell); program != "" {
		c = exec.Command(program, target) //nolint:noctx // as above
	}
	c.Env = append(os.Environ(), "TERM=dumb", "PS1=$ ", variableRun+"=")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = terminalOwner()
	if err := c.Start(); err != nil {
		return err
	}
	_ = slave.Close()
	go func() {
		_, _ = io.Copy(master, os.Stdin)
		// The real one ends with its input, and reports it.
		fmt.Fprintln(os.Stderr, "Cannot perform start session: EOF")
		_ = c.Process.Kill()
	}()
	shown := make(chan struct{})
	go func() {
		_, _ = io.Copy(os.Stdout, master) // it ends with the last process on the terminal
		close(shown)
	}()
	_ = c.Wait() // its exit code is not the plugin's
	select {
	case <-shown:
	case <-time.After(time.Second): // background processes hold the terminal
	}
	return nil
}
