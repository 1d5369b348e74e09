// Package moto starts moto, an AWS API on loopback. Each server is a process with an account
// of its own, which is forked from one that has loaded moto: the run's, where the run starts
// servers for all packages, or this process's.
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

// Kind names moto's servers among those of a run.
const Kind = "moto"

// version is the release that the corrections in this tree are written for.
const version = "5.2.1"

//go:embed server.py
var program string

// Server is a running moto server.
type Server struct {
	url, pid string
	stop     sync.Once
}

// origin is the process that forks the servers, and takes their log.
var origin struct {
	sync.Mutex
	ask func(request string) (answer string, err error)
	log struct {
		sync.Mutex
		io.Writer
	}
}

// interpreter returns a Python that can import moto of the right version: the
// system's, or that of a virtual environment of the tests' own, which is made when
// it is missing.
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
	// Made in a temporary directory and moved into place, so that several test processes may do it at
	// the same time.
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

// Start starts a server on a free loopback port. It ends with this process. The log is that
// of all servers of this process; servers of the run have none.
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

// findOrigin takes the origin of the run, or starts one: for a run without servers, and for
// whoever wants the log.
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

// startOrigin starts the process that servers are forked from.
func startOrigin(ctx context.Context) error {
	python, err := interpreter(ctx)
	if err != nil {
		return err
	}
	cmd := exec.Command(python, "-c", program)
	// What the caller exports for an AWS account of its own is not for moto.
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

// logged writes to the log, where there is one.
type logged struct{}

func (logged) Write(b []byte) (int, error) {
	origin.log.Lock()
	defer origin.log.Unlock()
	if origin.log.Writer == nil {
		return len(b), nil
	}
	return origin.log.Write(b)
}

// URL is where the server answers.
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
