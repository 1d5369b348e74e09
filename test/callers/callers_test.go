// Package callers runs the service as one Unix user and calls it as another one.
package callers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/test/otheruser"
)

// role is the environment variable that selects the role of a process of this program.
const role = "CALLERS_ROLE"

// TestMain runs this program as curfew or as an attacker for the users of the tests.
func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "curfew":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		os.Exit(cli.Run(ctx, cli.System("test")))
	case "every operation":
		everyOperation(os.Args[1])
		os.Exit(0)
	case "impostor":
		impostor(os.Args[1])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// everyOperation calls each operation of a service without a credential, and prints the responses.
func everyOperation(base string) {
	resp, err := http.Get(base + "/openapi.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	var spec struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&spec); err != nil {
		fmt.Println(err)
		return
	}
	parameter := regexp.MustCompile(`\{[^}]*\}`)
	for path, methods := range spec.Paths {
		for method := range methods {
			req, err := http.NewRequest(strings.ToUpper(method), base+parameter.ReplaceAllString(path, "x"),
				strings.NewReader("{}"))
			if err != nil {
				fmt.Println(err)
				continue
			}
			req.Header.Set("Content-Type", "application/json")
			got, err := again(req)
			fmt.Println(method, path, got, err)
		}
	}
}

// again repeats a call while the service rejects it because of its rate limit.
func again(req *http.Request) (int, error) {
	for {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests {
			return resp.StatusCode, nil
		}
		time.Sleep(100 * time.Millisecond)
		if req.GetBody != nil {
			req.Body, _ = req.GetBody()
		}
	}
}

// impostor listens on its own port, forwards every call to the service, and prints the requests.
func impostor(service string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("listens at", l.Addr())
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got bytes.Buffer
		_ = r.Write(&got)
		fmt.Printf("got %q\n", got.String())
		req, err := http.NewRequest(r.Method, service+r.URL.RequestURI(), nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		req.Header = r.Header.Clone()
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
}

// buffer collects the output of a process.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// world is a machine with the program, and a user who runs the service.
type world struct {
	*testing.T
	program string
	owner   otheruser.User
	data    string
}

// environment returns the environment of every process, which reaches no account.
func environment(as string) []string {
	return []string{
		role + "=" + as, "AWS_ENDPOINT_URL=http://127.0.0.1:1", "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=none",
		"AWS_SECRET_ACCESS_KEY=none", "AWS_EC2_METADATA_DISABLED=true",
	}
}

// start runs a role as a user until the test ends, and returns its output.
func (w *world) start(u otheruser.User, as string, args ...string) *buffer {
	w.Helper()
	out := &buffer{}
	cmd := u.Command(context.WithoutCancel(w.Context()), environment(as), w.program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if w.Failed() {
			w.Logf("%s of %s:\n%s", as, u.Name, out)
		}
	})
	return out
}

// find waits until an expression matches an output.
func (w *world) find(out *buffer, expression string) string {
	w.Helper()
	re := regexp.MustCompile(expression)
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if m := re.FindStringSubmatch(out.String()); m != nil {
			return m[1]
		}
	}
	w.Fatalf("there is no %s in:\n%s", expression, out)
	return ""
}

// curfew gives a command as a user to a service.
func (w *world) curfew(u otheruser.User, server string, env []string, args ...string) (out string, code int) {
	w.Helper()
	cmd := u.Command(w.Context(),
		append(environment("curfew"), append([]string{"CURFEW_SERVER=" + server}, env...)...),
		w.program, args...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// refused checks that every operation refuses a user without a credential.
func (w *world) refused(u otheruser.User, server, when string) {
	w.Helper()
	out, err := u.Command(w.Context(), environment("every operation"), w.program, server).CombinedOutput()
	if err != nil {
		w.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) < 60 {
		w.Errorf("%s: only %d operations:\n%s", when, len(lines), out)
	}
	for _, line := range lines {
		if !strings.HasSuffix(line, " 401 <nil>") {
			w.Errorf("%s: %s", when, line)
		}
	}
}

// TestServiceRefusesOtherUser checks that on a shared machine another user can neither call a
// user's service on loopback, nor read the owner token, nor receive it with a program that poses as
// the service; whether no token was ever created, the only one has expired, or it was revoked.
func TestServiceRefusesOtherUser(t *testing.T) {
	one, two := otheruser.Two(t)
	w := &world{T: t, program: otheruser.Program(t, os.Args[0]), owner: one, data: filepath.Join(one.Home, "state")}
	log := w.start(one, "curfew", "serve", "--listen", "127.0.0.1:0", "--data-dir", w.data)
	server := "http://" + w.find(log, `msg=listening address=(127\.0\.0\.1:\d+)`)
	mine := []string{"CURFEW_DATA_DIR=" + w.data}

	w.refused(two, server, "without tokens")
	for _, line := range []string{
		"token create x --role admin --for 366d", "freeze --reason x", "up x --cpus 1", "settings", "ls",
		"login --browser",
	} {
		if out, code := w.curfew(two, server, nil, strings.Fields(line)...); code != cli.ExitDenied ||
			!strings.Contains(out, "credential") && !strings.Contains(out, "owner token") {
			t.Errorf("another user gives %q: exit %d: %s", line, code, out)
		}
		if out, code := w.curfew(two, server, mine, strings.Fields(line)...); code != cli.ExitError ||
			!strings.Contains(out, "permission denied") && !strings.Contains(out, "belongs to user") {
			t.Errorf("another user gives %q with the owner's data directory: exit %d: %s", line, code, out)
		}
	}
	if out, code := two.Sh(t, "cat "+filepath.Join(w.data, identity.OwnerFile)); code == 0 {
		t.Errorf("another user reads %s", out)
	}
	if out, code := w.curfew(one, server, mine, "freeze", "--reason", "x"); code != cli.ExitDone {
		t.Errorf("the owner: exit %d: %s", code, out)
	}

	// The other user's own service has another token.
	theirs := filepath.Join(two.Home, "state")
	other := w.start(two, "curfew", "serve", "--listen", "127.0.0.1:0", "--data-dir", theirs)
	w.find(other, `msg=listening address=(127\.0\.0\.1:\d+)`)
	if out, code := w.curfew(two, server, []string{"CURFEW_DATA_DIR=" + theirs}, "ls"); code != cli.ExitError ||
		!strings.Contains(out, "did not prove") {
		t.Errorf("with a token of their own: exit %d: %s", code, out)
	}

	// A program of the other user can forward the challenge, but receives no token.
	fake := w.start(two, "impostor", server)
	at := "http://" + w.find(fake, `listens at (127\.0\.0\.1:\d+)`)
	for _, line := range []string{"ls", "freeze --reason x", "login --browser"} {
		if out, code := w.curfew(one, at, mine, strings.Fields(line)...); code != cli.ExitError ||
			!strings.Contains(out, "did not prove") || strings.Count(out, "\n") != 1 {
			t.Errorf("the owner gives %q to an impostor: exit %d: %s", line, code, out)
		}
	}
	if got := fake.String(); !strings.Contains(got, client.OwnerProofPath) ||
		strings.Contains(got, identity.TokenPrefix) || strings.Contains(got, "/api/") {
		t.Errorf("the impostor got:\n%s", got)
	}

	// Expiry of the last token grants no access.
	secret := func(args ...string) string {
		out, code := w.curfew(one, server, mine,
			append([]string{"token", "create", "ci", "--role", "viewer"}, args...)...)
		if code != cli.ExitDone {
			t.Fatalf("a token: exit %d: %s", code, out)
		}
		return strings.SplitN(out, "\n", 2)[0]
	}
	as := func(token string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/api/v1/keeps", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		status, err := again(req)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	short := secret("--for", "1s")
	for as(short) == http.StatusOK {
		time.Sleep(50 * time.Millisecond)
	}
	w.refused(two, server, "after the only token expired")
	long := secret()
	if got := as(long); got != http.StatusOK {
		t.Errorf("a token: %d", got)
	}
	_, id, _ := identity.HashToken(long)
	if out, code := w.curfew(one, server, mine, "token", "revoke", id); code != cli.ExitDone {
		t.Errorf("exit %d: %s", code, out)
	}
	w.refused(two, server, "after the only token was revoked")

	if text := log.String(); strings.Contains(text, "/auth/once") || strings.Contains(text, identity.TokenPrefix) {
		t.Errorf("the log has a secret:\n%s", text)
	}
}

// TestOwnerTokenOfOtherUser checks that neither a service nor a command accepts an owner token in a
// file that belongs to another user or that others can read.
func TestOwnerTokenOfOtherUser(t *testing.T) {
	one, two := otheruser.Two(t)
	w := &world{T: t, program: otheruser.Program(t, os.Args[0]), owner: one}
	planted := filepath.Join(one.Home, "state")
	if out, code := one.Sh(t, "mkdir -m 700 "+planted); code != 0 {
		t.Fatal(out)
	}
	token := identity.TokenPrefix + "owner_" + strings.Repeat("ab", 32)
	file := filepath.Join(planted, identity.OwnerFile)
	for _, c := range []struct {
		name  string
		plant func() error
		why   string
	}{
		{"a file of another user", func() error {
			return errors.Join(os.WriteFile(file, []byte(token), 0o600), os.Chown(file, two.UID, two.GID),
				os.Chmod(file, 0o644))
		}, "it belongs to another user"},
		{"a file that others can read", func() error {
			return errors.Join(os.WriteFile(file, []byte(token), 0o600), os.Chown(file, one.UID, one.GID),
				os.Chmod(file, 0o640))
		}, "others can read it (mode 0640)"},
		{"a link", func() error { return os.Symlink(filepath.Join(two.Home, "token"), file) }, "it is a link"},
		{"a pipe", func() error {
			return errors.Join(syscall.Mkfifo(file, 0o666), os.Chmod(file, 0o666))
		}, "it is no file"},
		{"another text", func() error {
			return errors.Join(os.WriteFile(file, []byte("curfew_owner_short\n"), 0o600),
				os.Chown(file, one.UID, one.GID))
		}, "it is not what `curfew serve` writes"},
	} {
		if err := errors.Join(os.RemoveAll(file), c.plant()); err != nil {
			t.Fatal(err)
		}
		cmd := one.Command(t.Context(), environment("curfew"), w.program, "serve", "--listen",
			"127.0.0.1:0", "--data-dir",
			planted)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != cli.ExitUsage || !strings.Contains(string(out), c.why) {
			t.Errorf("%s: a service: %v: %s", c.name, err, out)
		}
		said, code := w.curfew(one, "http://127.0.0.1:1", []string{"CURFEW_DATA_DIR=" + planted}, "ls")
		if code != cli.ExitUsage || !strings.Contains(said, c.why) {
			t.Errorf("%s: a command: exit %d: %s", c.name, code, said)
		}
	}
}
