// Package versitygw starts a real S3 server, Versity's gateway on a folder, which implements
// conditional writes, multipart uploads and checksums like S3.
package versitygw

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const module = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// Keys are the credentials of every server.
const (
	AccessKey = "testing"
	SecretKey = "testing-secret"
)

// Bucket is the bucket that every server has.
const Bucket = "checkpoints"

// Server is a running server. Its data survives Kill.
type Server struct {
	// Dir is the folder with the bucket as files.
	Dir     string
	address string
	binary  string
	process *exec.Cmd
}

// Binary returns the server's program, built once per user and version.
func Binary(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "curfew-test")
	binary := filepath.Join(dir, "versitygw-v1.8.0")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(dir, "versitygw-new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	build := exec.CommandContext(ctx, "go", "install", module)
	build.Dir = fresh // outside this module
	build.Env = append(os.Environ(), "GOBIN="+fresh, "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go install %s: %w\n%s", module, err, out)
	}
	return binary, os.Rename(filepath.Join(fresh, "versitygw"), binary)
}

// Start runs a server until the end of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	binary, err := Binary(t.Context())
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s, err := Run(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// Run runs a server on an empty folder, until Kill.
func Run(binary, dir string) (*Server, error) {
	s := &Server{Dir: dir, binary: binary}
	if err := os.Mkdir(filepath.Join(s.Dir, Bucket), 0o755); err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.address = free.Addr().String()
	if err := free.Close(); err != nil {
		return nil, err
	}
	return s, s.Restart()
}

// Address returns the host and port of the server.
func (s *Server) Address() string { return s.address }

// Restart restarts a stopped server with the same address and data.
func (s *Server) Restart() error {
	s.process = exec.Command(s.binary, "--quiet", "--access", AccessKey, "--secret", SecretKey, "--port", s.address,
		"posix", s.Dir)
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.process.Start(); err != nil {
		return err
	}
	for range 18_000 { // three minutes
		c, err := net.DialTimeout("tcp", s.address, time.Second)
		if err == nil {
			return c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Kill()
	return fmt.Errorf("versitygw does not listen on %s", s.address)
}

// Kill ends the server like SIGKILL, in the middle of whatever it does.
func (s *Server) Kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
		s.process = nil
	}
}

// Env returns the variables by which AWS SDKs and tools use a server at an address.
func Env(address string) map[string]string {
	return map[string]string{
		"AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": SecretKey, "AWS_REGION": "us-east-1",
		"AWS_ENDPOINT_URL": "http://" + address, "AWS_CONFIG_FILE": os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED":   "true"}
}

// Use configures the SDKs of this process for the server during the test.
func (s *Server) Use(t testing.TB) {
	t.Helper()
	Use(t, s.address)
}

// Use configures the SDKs of this process for an address during the test.
func Use(t testing.TB, address string) {
	t.Helper()
	for k, v := range Env(address) {
		t.Setenv(k, v)
	}
}
