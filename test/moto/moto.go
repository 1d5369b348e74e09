// Package moto starts moto, an AWS API on loopback. Each server is a process with its own account,
// forked from one that has loaded moto: a shared one of the test run if there is one, otherwise one
// of this process.
package moto

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/curfew-dev/curfew/test/shared"
)

// Kind is the name of moto servers among the shared servers of a test run.
const Kind = "moto"

// version is the release for which the corrections in this tree are written.
const version = "5.2.1"

//go:embed server.py
var program string

// Server is a running moto server.
type Server struct {
	url, pid string
	stop     sync.Once
}

// origin is the process that forks the servers, and receives their log.
var origin struct {
	sync.Mutex
	ask func(request string) (answer string, err error)
	log struct {
		sync.Mutex
		io.Writer
	}
}

// interpreter returns a Python that can import the right version of moto: the system's, or one in a
// virtual environment for tests, which is created if necessary.
func interpreter(ctx context.Context) (string, error) {
	check := "import moto, flask; assert moto.__version__ == '" + version + "'"
	if exec.CommandContext(ctx, "python3", "-c", check).Run() == nil {
		return "python3", nil
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find a place for moto: %w", err)
		}
		cache = filepath.Join(home, ".cache")
	}
	venv := filepath.Join(cache, "curfew-test", "moto-"+version)
	python := filepath.Join(venv, "bin", "python")
	if exec.CommandContext(ctx, python, "-c", check).Run() == nil {
		return python, nil
	}
	if err := os.MkdirAll(filepath.Dir(venv), 0o755); err != nil {
		return "", fmt.Errorf("make a place for moto: %w", err)
	}
	// Create it in a temporary directory and move it into place, so that several test processes may
	// do so at once.
	fresh, err := os.MkdirTemp(filepath.Dir(venv), "moto-new-")
	if err != nil {
		return "", fmt.Errorf("make a place for moto: %w", err)
	}
	defer os.RemoveAll(fresh)
	for _, args := range [][]string{
		{"python3", "-m", "venv", fresh},
		{
			filepath.Join(fresh, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"moto[server]==" + version,
		},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("install moto %s (%s): %w: %s", version, strings.Join(args, " "), err, out)
		}
	}
	if err := os.Rename(fresh, venv); err != nil && exec.CommandContext(ctx, python, "-c", check).Run() != nil {
		return "", fmt.Errorf("put moto into place: %w", err)
	}
	return python, nil
}

// Start starts a server on a free loopback port. It ends with this process. The log is shared by
// all servers of this process; shared servers of the run have none.
func Start(ctx context.Context, log io.Writer) (*Server, error) {
	origin.Lock()
	defer origin.Unlock()
	if log != nil {
		origin.log.Lock()
		origin.log.Writer = log
		origin.log.Unlock()
	}
	if origin.ask == nil {
		if err := findOrigin(ctx, log); err != nil {
			return nil, fmt.Errorf("start moto: %w", err)
		}
	}
	answer, err := origin.ask("start")
	if err != nil {
		return nil, fmt.Errorf("start moto: %w", err)
	}
	m := &Server{}
	m.pid, m.url, _ = strings.Cut(answer, " ")
	return m, nil
}

// findOrigin returns the shared origin of the run, or starts one, also if the caller wants the log.
func findOrigin(ctx context.Context, log io.Writer) error {
	if log == nil {
		run, err := shared.Dial(ctx, Kind)
		if err != nil {
			return err
		}
		if run != nil {
			origin.ask = func(request string) (string, error) {
				return run.Answer(context.WithoutCancel(ctx), request)
			}
			return nil
		}
	}
	return startOrigin(ctx)
}

// startOrigin starts the process from which servers are forked.
func startOrigin(ctx context.Context) error {
	python, err := interpreter(ctx)
	if err != nil {
		return err
	}
	cmd := exec.Command(python, "-c", program)
	// Variables of the caller for another AWS account must not reach moto.
	inherited := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "AWS_") })
	cmd.Env = append(inherited, "MOTO_EC2_LOAD_DEFAULT_AMIS=false", "PYTHONUNBUFFERED=1",
		"AWS_ACCESS_KEY_ID=testing", "AWS_SECRET_ACCESS_KEY=testing", "AWS_DEFAULT_REGION=us-east-1")
	cmd.Stderr = logged{}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	answers := bufio.NewReader(out)
	origin.ask = func(request string) (string, error) {
		if _, err := fmt.Fprintln(in, request); err != nil {
			return "", err
		}
		answer, err := answers.ReadString('\n')
		return strings.TrimSpace(answer), err
	}
	return nil
}

// logged writes to the log if there is one.
type logged struct{}

func (logged) Write(b []byte) (int, error) {
	origin.log.Lock()
	defer origin.log.Unlock()
	if origin.log.Writer == nil {
		return len(b), nil
	}
	return origin.log.Write(b)
}

// URL returns the address of the server.
func (m *Server) URL() string { return m.url }

// Close ends the server and waits for its end.
func (m *Server) Close() error {
	var err error
	m.stop.Do(func() {
		origin.Lock()
		defer origin.Unlock()
		if _, err = origin.ask("end " + m.pid); err != nil {
			err = fmt.Errorf("end moto: %w", err)
		}
	})
	return err
}
