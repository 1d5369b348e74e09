package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// motoVersion is the release that the corrections in this tree are written for.
const motoVersion = "5.2.1"

// moto is a running moto server.
type moto struct {
	url  string
	cmd  *exec.Cmd
	done chan error
	stop sync.Once
}

// interpreter returns a Python that can import moto of the right version: the
// system's, or that of a virtual environment of the tests' own, which is made when
// it is missing.
func interpreter(ctx context.Context) (string, error) {
	check := "import moto, flask; assert moto.__version__ == '" + motoVersion + "'"
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
	venv := filepath.Join(cache, "curfew-test", "moto-"+motoVersion)
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
		{filepath.Join(fresh, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "moto[server]==" + motoVersion},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("install moto %s (%s): %w: %s", motoVersion, strings.Join(args, " "), err, out)
		}
	}
	if err := os.Rename(fresh, venv); err != nil && exec.CommandContext(ctx, python, "-c", check).Run() != nil {
		return "", fmt.Errorf("put moto into place: %w", err)
	}
	return python, nil
}

// startMoto starts moto on a free loopback port and waits until it answers. It
// dies with this process.
func startMoto(ctx context.Context, log io.Writer) (*moto, error) {
	python, err := interpreter(ctx)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = io.Discard
	}
	m := &moto{done: make(chan error, 1)}
	m.cmd = exec.Command(python, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0")
	// What the caller exports for an AWS account of its own is not for moto.
	inherited := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "AWS_") })
	m.cmd.Env = append(inherited, "MOTO_EC2_LOAD_DEFAULT_AMIS=false", "PYTHONUNBUFFERED=1",
		"AWS_ACCESS_KEY_ID=testing", "AWS_SECRET_ACCESS_KEY=testing", "AWS_DEFAULT_REGION=us-east-1")
	dieWithParent(m.cmd)
	out, err := m.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start moto: %w", err)
	}
	started, address := make(chan error, 1), make(chan string, 1)
	go func() {
		// The kernel ends the child when the thread that started it ends, so that
		// thread is kept until the child has ended by itself.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := m.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, url, ok := strings.Cut(lines.Text(), "Running on "); ok {
				select {
				case address <- strings.TrimSpace(url):
				default:
				}
			}
			fmt.Fprintln(log, lines.Text())
		}
		m.done <- m.cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start moto: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case m.url = <-address:
	case err := <-m.done:
		m.done <- err
		return nil, fmt.Errorf("start moto: it ended at once: %w", errors.Join(err, m.close()))
	case <-ctx.Done():
		return nil, fmt.Errorf("start moto: %w", errors.Join(ctx.Err(), m.close()))
	}
	if err := m.answers(ctx); err != nil {
		return nil, fmt.Errorf("start moto: %w", errors.Join(err, m.close()))
	}
	return m, nil
}

func (m *moto) answers(ctx context.Context) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/moto-api/data.json", nil)
		if err != nil {
			return err
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// close ends moto and waits for its end.
func (m *moto) close() error {
	var err error
	m.stop.Do(func() {
		if err = end(m.cmd); errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
		<-m.done
	})
	return err
}
